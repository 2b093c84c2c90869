"""Modules as a tree: attributes, names, states, switches, hooks, errors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch import nn


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()  # noqa: UP008
        self.first = nn.Linear(2, 3)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False))
        self.scale = nn.Parameter(minitorch.ones(1))
        self.register_buffer("seen", minitorch.zeros(1))
        self.register_buffer("scratch", minitorch.zeros(2), persistent=False)

    def forward(self, x):
        return self.inner(self.first(x)) * self.scale


NAMES = ["scale", "first.weight", "first.bias", "inner.1.weight"]


def test_names_in_order():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["seen", "scratch"]
    assert list(net.state_dict()) == ["scale", "seen", *NAMES[1:]]
    modules = ["", "first", "inner", "inner.0", "inner.1"]
    assert [name for name, _ in net.named_modules()] == modules
    assert [name for name, _ in net.named_children()] == ["first", "inner"]
    assert next(net.named_parameters("net"))[0] == "net.scale"
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert len(list(net.parameters())) == 4 and len(list(net.buffers())) == 2
    assert list(net.children()) == [net.first, net.inner]


def test_shared_modules_and_parameters_come_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(list(net.parameters())) == 2 and len(list(net.modules())) == 3
    both = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert both == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(net.state_dict()) == both
    tied = nn.Linear(2, 2)
    tied.weight = layer.weight
    assert [n for n, _ in nn.ModuleList([layer, tied]).named_parameters()] == [
        "0.weight",
        "0.bias",
        "1.bias",
    ]


def test_train_and_eval_reach_all_modules():
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())
    with pytest.raises(ValueError, match="mode"):
        net.train("yes")


def test_a_misspelt_attribute_names_close_ones():
    with pytest.raises(AttributeError, match=r"'Net' .*'frist'; did you mean 'first'"):
        _ = Net().frist
    assert not hasattr(Net(), "nothing_like_it")
    with pytest.raises(AttributeError, match=r"no attribute 'qqqqqq'$"):
        _ = Net().qqqqqq


def test_forgotten_super_init():
    class Forgot(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"'layer' .*before super\(\)\.__init__"):
        Forgot()

    class Empty(nn.Module):
        def __init__(self):
            self.size = 3

    with pytest.raises(AttributeError, match=r"super\(\)\.__init__"):
        Empty()(1)


def test_attributes_are_replaced_and_deleted():
    net = Net()
    net.scale = nn.Parameter(minitorch.zeros(1))
    assert net.scale.item() == 0.0 and list(dict(net.named_parameters())) == NAMES
    with pytest.raises(TypeError, match="registered parameter"):
        net.scale = minitorch.zeros(1)
    with pytest.raises(TypeError, match="registered module"):
        net.first = 3
    with pytest.raises(TypeError, match="registered buffer"):
        net.seen = "a"
    net.seen = minitorch.ones(1)
    assert dict(net.named_buffers())["seen"] is net.seen
    net.scale = None
    assert "scale" not in dict(net.named_parameters()) and net.scale is None
    del net.first
    assert not hasattr(net, "first")
    del net.scratch
    net.scratch = nn.Parameter(minitorch.zeros(1))  # may become another kind
    assert "scratch" in net.state_dict()
    net.plain = 3
    del net.plain
    with pytest.raises(AttributeError):
        del net.plain


def test_names_that_cannot_be_registered():
    net = Net()
    for name in ("a.b", ""):
        with pytest.raises(ValueError, match="named"):
            net.add_module(name, nn.ReLU())
    with pytest.raises(ValueError, match="hide"):
        net.parameters = nn.Linear(1, 1)
    with pytest.raises(TypeError, match="register_buffer"):
        net.register_buffer("x", 3)
    with pytest.raises(TypeError, match="Parameter or None"):
        net.register_parameter("x", minitorch.zeros(1))
    with pytest.raises(TypeError, match="Module"):
        net.add_module("x", 3)


def test_load_state_dict_copies():
    net, other = Net(), Net()
    result = other.load_state_dict(net.state_dict())
    assert result.missing_keys == [] and result.unexpected_keys == []
    x = minitorch.randn(4, 2)
    assert other(x).equal(net(x))
    assert other.first.weight is not net.first.weight
    with minitorch.no_grad():
        net.first.weight.add_(1)
    assert not other.first.weight.equal(net.first.weight)


def test_load_state_dict_lists_all_problems_and_changes_nothing():
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = {name: value + 1 for name, value in net.state_dict().items()}
    del state["scale"], state["first.bias"]
    state["first.weight"] = minitorch.zeros(5, 5)
    state["seen"] = 3.0
    state["other"] = minitorch.zeros(1)
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    text = str(error.value)
    for part in (
        "missing: 'scale' (1,)",
        "missing: 'first.bias' (3,)",
        "unexpected: 'other'",
        "'first.weight' is (5, 5); expected (3, 2)",
        "'seen' is a float",
    ):
        assert part in text
    for name, value in net.state_dict().items():
        assert value.equal(before[name])
    with pytest.raises(RuntimeError, match="wrong shape"):
        net.load_state_dict(state, strict=False)
    with pytest.raises(TypeError, match="dict"):
        net.load_state_dict([1])


def test_load_state_dict_not_strict():
    net = Net()
    state = {"scale": minitorch.zeros(1), "more": minitorch.zeros(1)}
    result = net.load_state_dict(state, strict=False)
    assert result.unexpected_keys == ["more"] and "seen" in result.missing_keys
    assert net.scale.item() == 0.0


def test_state_dict_shares_memory_and_keep_vars():
    net = Net()
    assert net.state_dict()["scale"].raw is net.scale.raw
    assert not net.state_dict()["scale"].requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert "net.first.bias" in net.state_dict(prefix="net.")


def test_to_keeps_the_objects():
    net = Net()
    net(minitorch.ones(1, 2)).sum().backward()
    weight = net.first.weight
    assert net.double() is net and net.first.weight is weight
    assert weight.dtype is minitorch.float64 and weight.grad.dtype is minitorch.float64
    assert net(minitorch.ones(1, 2).double()).dtype is minitorch.float64
    net.float().to("simple")
    assert weight.device == "simple" and weight.dtype is minitorch.float32
    assert net.seen.device == "simple" and weight.grad.device == "simple"
    net.to(minitorch.zeros(1))
    assert weight.device == "cpu"
    batch = nn.BatchNorm1d(2).double()
    assert batch.num_batches_tracked.dtype is minitorch.int64
    with pytest.raises(TypeError, match="int64"):
        net.to(minitorch.int64)
    with pytest.raises(ValueError, match="nowhere"):
        net.to("nowhere")
    with pytest.raises(TypeError, match="non_blocking is 1; expected a bool"):
        net.to("cpu", non_blocking=1)


def test_to_without_waiting(device):
    """Also from pinned memory, where there is a GPU: the numbers arrive."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net(minitorch.ones(2, 3)).sum().backward()
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    first = net[0].weight
    grad = first.grad.tolist()
    if device == "cuda":
        for tensor in net.parameters():
            tensor.raw = tensor.detach().pin_memory().raw
    assert net.to(device, non_blocking=True) is net
    minitorch.ones(1, device=device).sum().item()  # waits for the work before it
    assert net[0].weight is first and first.device == device
    assert first.grad.device == device and first.grad.tolist() == grad
    after = {name: value.tolist() for name, value in net.state_dict().items()}
    assert after == before


def test_apply_zero_grad_requires_grad():
    net = Net()
    visited = []
    net.apply(lambda module: visited.append(type(module).__name__))
    assert visited == ["Linear", "ReLU", "Linear", "Sequential", "Net"]
    net(minitorch.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not net(minitorch.ones(1, 2)).requires_grad


def test_hooks():
    net = nn.Linear(1, 1)
    calls = []
    pre = net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    post = net.register_forward_hook(lambda module, args, out: calls.append(args))
    plus = net.register_forward_hook(lambda module, args, out: out + 1)
    x = minitorch.ones(1, 1)
    expected = net.forward(x * 2) + 1
    assert net(x).equal(expected) and calls[0][0].item() == 2.0
    for handle in (pre, post, plus):
        handle.remove()
    assert net(x).equal(net.forward(x)) and len(calls) == 1


def test_repr():
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (inner): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=3, out_features=1, bias=False)\n"
        "  )\n"
        ")"
    )
    assert "Parameter containing" in repr(Net().scale)


def test_deepcopy_and_pickle():
    net = Net()
    net(minitorch.ones(1, 2)).sum().backward()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(other.scale, nn.Parameter) and other.scale.requires_grad
        x = minitorch.randn(3, 2)
        assert other(x).equal(net(x))
        assert list(other.state_dict()) == list(net.state_dict())
        with minitorch.no_grad():
            other.first.weight.add_(1)
        assert not other(x).equal(net(x))
    assert net.scale.grad is not None and copy.deepcopy(net).scale.grad is None
    tied = nn.ModuleList([nn.Linear(1, 1)] * 2)
    assert len(list(copy.deepcopy(tied).parameters())) == 2
    with pytest.raises(RuntimeError, match="detach"):
        copy.deepcopy(net.scale * 2)
    with pytest.raises(RuntimeError, match="detach"):
        pickle.dumps(net.scale * 2)


def test_parameter_needs_a_floating_tensor():
    with pytest.raises(TypeError, match="list"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match="int64"):
        nn.Parameter(minitorch.zeros(1).long())
    assert not nn.Parameter(minitorch.zeros(1), requires_grad=False).requires_grad


def test_forward_is_missing():
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_get_submodule():
    net = Net()
    assert net.get_submodule("inner.1") is net.inner[1]
    assert net.get_submodule("") is net
    with pytest.raises(AttributeError, match=r"'inner\.7'"):
        net.get_submodule("inner.7")


# ---------------------------------------------------------------------- containers


def test_sequential_is_a_list_with_names():
    net = nn.Sequential({"a": nn.Linear(1, 2), "b": nn.ReLU()})
    assert list(dict(net.named_children())) == ["a", "b"]
    net.append(nn.Linear(2, 3))
    assert len(net) == 3 and net[-1] is net[2] and net.a in net
    assert type(net[:2]) is nn.Sequential and len(net[1:]) == 2
    assert net(minitorch.ones(1, 1)).shape == (1, 3)
    with pytest.raises(IndexError, match="index 5"):
        net[5]
    rest = net[1:]  # its modules are still named "1" and so on
    kinds = [type(m) for m in rest]
    assert [type(m) for m in rest.append(nn.Tanh())] == [*kinds, nn.Tanh]


def test_module_list():
    layers = nn.ModuleList(nn.Linear(i, i) for i in range(1, 4))
    layers.insert(0, nn.ReLU())
    layers.extend([nn.Tanh()])
    assert [type(m).__name__ for m in layers] == ["ReLU", *["Linear"] * 3, "Tanh"]
    del layers[0]
    assert list(dict(layers.named_children())) == ["0", "1", "2", "3"]
    layers[0] = nn.Sigmoid()
    assert isinstance(layers[0], nn.Sigmoid) and len(layers[1:]) == 3
    with pytest.raises(TypeError, match="Module"):
        layers.append(3)


def test_module_dict():
    table = nn.ModuleDict({"a": nn.Linear(1, 1)})
    table["b"] = nn.ReLU()
    assert list(table) == ["a", "b"] and "b" in table and len(table) == 2
    assert [name for name, _ in table.named_parameters()] == ["a.weight", "a.bias"]
    assert isinstance(table.pop("b"), nn.ReLU)
    del table["a"]
    assert len(table) == 0 and list(table.items()) == []
    assert len(nn.ModuleDict(None)) == len(nn.ParameterDict(None)) == 0


def test_parameter_list():
    for lib in (nn, torch.nn):
        t = minitorch if lib is nn else torch
        some = lib.ParameterList([t.ones(2), lib.Parameter(t.zeros(3))])
        some += [t.ones(1)]
        assert some.append(t.ones(4)) is some and len(some) == 4
        assert [len(p) for p in some] == [2, 3, 1, 4] and len(some[-1]) == 4
        assert [len(p) for p in some[1:3]] == [3, 1] and some[:1][0] is some[0]
        names = [name for name, _ in some.named_parameters()]
        assert names == list(some.state_dict()) == ["0", "1", "2", "3"]
        assert all(type(p) is lib.Parameter and p.requires_grad for p in some)
        some[-1] = t.zeros(5)
        assert type(some[3]) is lib.Parameter and [len(p) for p in some] == [2, 3, 1, 5]
        with pytest.raises(IndexError):
            some[4]
        with pytest.raises(IndexError):
            some[4] = t.ones(1)
    with pytest.raises(TypeError, match="arameter"):
        nn.ParameterList([3])
    assert len(nn.ParameterList()) == 0


trees = st.recursive(
    st.just(None), lambda children: st.lists(children, max_size=3), max_leaves=12
)


def build(tree) -> nn.Module:
    """A leaf is a parameter, a list a module of its items."""
    module = nn.Module()
    for i, item in enumerate(tree or ()):
        if item is None:
            setattr(module, f"p{i}", nn.Parameter(minitorch.zeros(1)))
        else:
            setattr(module, f"m{i}", build(item))
    return module


@given(trees)
def test_any_tree_has_all_its_names(tree):
    def paths(items, lead=""):
        own = [f"{lead}p{i}" for i, item in enumerate(items or ()) if item is None]
        for i, item in enumerate(items or ()):
            if item is not None:
                own += paths(item, f"{lead}m{i}.")
        return own

    module = build(tree)
    assert [name for name, _ in module.named_parameters()] == paths(tree)
    assert list(module.state_dict()) == paths(tree)
    module.eval()
    assert not any(m.training for m in module.modules())


def test_numpy_is_not_a_parameter():
    module = nn.Module()
    module.table = np.zeros(3)
    assert list(module.parameters()) == []


def test_a_program_of_one_process_may_wrap_its_model():
    net = Net()
    wrapped = nn.DataParallel(net, device_ids=["cpu"], output_device="cpu")
    assert wrapped.module is net and nn.parallel.DataParallel is nn.DataParallel
    assert list(wrapped.state_dict()) == [f"module.{name}" for name in net.state_dict()]
    x = minitorch.ones(4, 2)
    assert wrapped(x).tolist() == net(x).tolist()
    for options in ({"device_ids": range(2)}, {"output_device": 1}):
        with pytest.raises(ValueError, match=r"torchrun, and use .*Distributed"):
            nn.DataParallel(net, **options)
    with pytest.warns(UserWarning, match="a process computes on one device here"):
        nn.DataParallel(net)
