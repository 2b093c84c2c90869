"""DistributedDataParallel, on ranks that are threads."""

from __future__ import annotations

import gc
import pickle
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import rank_checks

import minitorch
from minitorch import distributed as dist
from minitorch import nn, optim
from minitorch.data import DataLoader, DistributedSampler, TensorDataset
from minitorch.distributed import spawn_threads
from minitorch.nn.parallel import DistributedDataParallel as DDP
from minitorch.nn.parallel import reducer
from minitorch.optim.optimizer import is_coming
from minitorch.utils.checkpoint import checkpoint

KIB = 1 / 1024


@pytest.mark.parametrize(
    "n, cap, micro, to_none, whole",
    [
        (1, 25, 1, True, 8),
        (2, 25, 1, True, 8),
        (2, KIB, 2, True, 7),  # several buckets, no_sync, and parts of unequal size
        (4, KIB, 1, False, 9),  # gradients stay in their buckets
        (3, 25, 2, False, 8),
    ],
)
def test_training_by_ranks_is_training_by_one(
    n: int, cap: float, micro: int, to_none: bool, whole: int
) -> None:
    how = cap, micro, to_none, whole
    assert max(spawn_threads(rank_checks.trains_as_one, n, *how)) < 1e-10


def test_buckets_are_made_again_as_gradients_came() -> None:
    assert max(spawn_threads(rank_checks.plain_training, 2)) < 1e-10


@pytest.mark.parametrize("n, find_unused", [(1, False), (2, True), (3, False)])
def test_ranks_with_unlike_numbers_of_batches(n: int, find_unused: bool) -> None:
    apart = spawn_threads(rank_checks.uneven_numbers_of_batches, n, find_unused)
    assert max(apart) < 1e-10


def test_an_error_ends_a_join() -> None:
    """The next one begins as if it had not been."""

    def program() -> Any:
        model = DDP(nn.Linear(2, 1))
        with pytest.raises(ZeroDivisionError), model.join():
            raise ZeroDivisionError
        for _ in range(2):  # without a leader's vote, or all would wait
            model(minitorch.ones(1, 2)).sum().backward()
        return model.joining

    assert spawn_threads(program, 2) == [False, False]


def test_buffers_come_from_rank_0() -> None:
    assert spawn_threads(rank_checks.buffers, 3) == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("dtype", [minitorch.bfloat16, minitorch.float64], ids=str)
def test_gradients_of_any_type_are_averaged(dtype: Any) -> None:
    def program() -> None:
        model = nn.Linear(3, 2).to(dtype)
        whole = DDP(model)
        for _ in range(2):
            model.zero_grad()
            whole(
                minitorch.full((1, 3), dist.get_rank() + 1.0, dtype=dtype)
            ).sum().backward()
            assert (model.weight.grad == 1.5).all()
            assert (model.bias.grad == 1).all()

    spawn_threads(program, 2)


def test_a_copy_is_trained_by_the_same_ranks() -> None:
    """Each with its own gradients, and hooks as the first had."""

    def program() -> None:
        model = DDP(nn.Linear(3, 2), bucket_cap_mb=KIB)
        x = minitorch.full((1, 3), dist.get_rank() + 1.0)
        model(x).sum().backward()
        copy = deepcopy(model)
        assert copy.module.weight is not model.module.weight
        assert copy.module.weight.grad is None
        for _ in range(2):
            copy(x).sum().backward()
        assert (model.module.weight.grad == 1.5).all()
        assert (copy.module.weight.grad == 3.0).all()
        assert copy.process_group is model.process_group
        with pytest.raises(TypeError, match=r"pickled; .* save model\.module"):
            pickle.dumps(model)

    spawn_threads(program, 2)


def test_a_module_is_wrapped_once() -> None:
    def program() -> None:
        wrapped = DDP(nn.Linear(3, 3))
        with pytest.raises(ValueError, match=r"give the module .* wrapped\.module"):
            DDP(nn.Sequential(wrapped, nn.ReLU()))

    spawn_threads(program, 1)


def test_how_parameters_are_divided() -> None:
    mib = 2**18  # elements of float32
    sizes = [mib // 2, mib, 3 * mib, mib, 30 * mib, 4]
    parameters: Any = [minitorch.zeros(1).expand((size,)) for size in sizes]
    parameters.append(minitorch.zeros(4, dtype=minitorch.float64))
    order = range(len(parameters))
    divided = reducer.divide(order, parameters, 5 * 2**20)
    assert divided == [[0], [1, 2, 3], [4], [5], [6]]


@pytest.mark.parametrize(
    "make",
    [lambda p: optim.AdamW(p, 0.1), lambda p: optim.SGD(p, 0.1, momentum=0.9)],
    ids=["adamw", "sgd"],
)
def test_an_optimizer_steps_while_the_last_bucket_comes(make: Any) -> None:
    def program() -> None:
        layers = [nn.Linear(4, 4, bias=False) for _ in range(3)]
        model = DDP(nn.Sequential(*layers), bucket_cap_mb=1e-6)
        optimizer: Any = make(model.parameters())
        x, first = minitorch.ones(2, 4), layers[0].weight
        steps: list[list[bool]] = []
        together = optimizer._step_together

        def watched(params: list[Any], *rest: Any) -> None:
            steps.append([is_coming(p) for p in params])
            together(params, *rest)

        optimizer._step_together = watched
        for step in range(3):
            model(x).sum().backward()
            assert is_coming(first) == (step > 0)  # the first one makes buckets again
            optimizer.step()
            assert not is_coming(first)
            optimizer.zero_grad(set_to_none=False)
        alone, last = [[False, False]], [[True]]
        assert steps == [[False] * 3, *alone, *last, *alone, *last]

        model(x).sum().backward()
        held = first.grad
        optimizer.zero_grad()
        model(x * (1 + dist.get_rank())).sum().backward()
        assert is_coming(first) and held is first.grad
        mean = held.numpy().copy()  # whoever looks waits
        assert not is_coming(first)
        assert mean.any()
        for p in model.parameters():
            dist.broadcast(p.grad, 0)
        assert (first.grad.numpy() == mean).all()

        model(x).sum().backward()
        model(x).sum()  # nobody has looked: the next pass waits
        assert model.reducer.buckets[-1].left is None
        copy = deepcopy(first.grad)
        assert (copy.numpy() == first.grad.numpy()).all()

    spawn_threads(program, 2)


def test_a_bucket_is_sent_while_the_backward_pass_goes_on() -> None:
    """In order, though they are full in another."""

    def program() -> list[str]:
        log: list[str] = []
        layers = [nn.Linear(4, 4, bias=False) for _ in range(4)]
        model = DDP(nn.Sequential(*layers), bucket_cap_mb=1e-6)
        send = model.reducer._send
        model.reducer._send = lambda b: (log.append(f"send {b.members}"), send(b))  # type: ignore[method-assign]
        for i, layer in enumerate(layers):
            note = lambda p, i=i: log.append(f"grad {i}")
            layer.weight._post_hooks.insert(0, note)
        model(minitorch.ones(2, 4)).sum().backward()
        return log

    expected = [f"{what} {i}" for i in (3, 2, 1, 0) for what in ("grad", "send")]
    for log in spawn_threads(program, 2):
        assert [line.replace("(", "").replace(",)", "") for line in log] == expected


@pytest.mark.parametrize("rows", [reducer.MANY_ROWS, reducer.MANY_ROWS - 1])
def test_beside_a_long_backward_pass_all_but_two_buckets_go_slowly(
    rows: int,
) -> None:
    """Ranks agree, whatever rows they have."""

    def program() -> tuple[int, int]:
        slow, group = dist.new_group(), dist.new_group()
        group.beside = lambda: slow
        sent: list[Any] = []
        for g in (slow, group):
            begin = g.all_reduce
            g.all_reduce = lambda *a, g=g, begin=begin: (sent.append(g), begin(*a))[1]
        layers = [nn.Embedding(5, 4), *(nn.Linear(4, 4, bias=False) for _ in range(3))]
        model = DDP(nn.Sequential(*layers), process_group=group, bucket_cap_mb=1e-6)
        ids = minitorch.zeros(rows - dist.get_rank(), dtype=minitorch.int64)
        model(ids).sum().backward()  # finds the order
        del sent[:]
        model(ids).sum().backward()
        assert sent[-1] is group
        return sent.count(slow), sent.count(group)

    many = rows >= reducer.MANY_ROWS
    assert spawn_threads(program, 2) == [(2, 2) if many else (0, 4)] * 2


def test_beside_others_nccl_takes_few_multiprocessors(monkeypatch: Any) -> None:
    transport = pytest.importorskip("minitorch.distributed.transport")
    told: list[Any] = []

    def group(backend: str, ranks: tuple[int, ...]) -> Any:
        handle = SimpleNamespace(group_name="all")
        return transport.TorchGroup(handle, ranks, backend, None, {"timeout": 7})

    options = lambda: SimpleNamespace(config=SimpleNamespace(max_ctas=24))
    nccl = SimpleNamespace(Options=options)
    monkeypatch.setattr(transport, "every", set())
    monkeypatch.setattr(transport, "_looked_for", lambda: 0.0)
    for name, value in (
        ("get_rank", lambda: 0),
        ("get_world_size", lambda: 2),
        ("ProcessGroupNCCL", nccl),
        ("new_group", lambda *given, **more: told.append((given, more))),
    ):
        monkeypatch.setattr(transport.dist, name, value, raising=False)
    monkeypatch.setattr(transport.TorchGroup, "_agree", lambda *_: None)
    whole = group("nccl", (0, 1))
    slow = whole.beside()
    assert slow is not whole and whole.beside() is slow and slow.ranks == (0, 1)
    (((ranks,), more),) = told  # once
    assert ranks == [0, 1] and more["timeout"] == 7
    assert more["pg_options"].config.max_ctas == transport.FEW
    for other in (group("gloo", (0, 1)), group("nccl", (0,))):
        assert other.beside() is other


def test_gradients_are_views_of_buckets() -> None:
    def program() -> None:
        model = DDP(nn.Linear(3, 3))
        for _ in range(2):
            model(minitorch.ones(1, 3) * dist.get_rank()).sum().backward()
            (bucket,) = model.reducer.buckets
            for p in model.parameters():
                assert p.grad.raw.storage is bucket.flat.raw.storage
                assert p.grad.storage_offset() * 4 % reducer.ALIGNED == 0
        assert model.module.weight.grad.tolist() == [[1.0] * 3] * 3  # 2 x the mean
        assert not model.module.weight.grad.requires_grad

    spawn_threads(program, 2)


@pytest.mark.parametrize("kind", ["float32", "autocast", "bfloat16"])
def test_gradients_of_weights_are_written_into_buckets(kind: str) -> None:
    for alike, copied in spawn_threads(rank_checks.gpt_at_home, 2, kind):
        assert alike and len(copied) == 18  # of 28: biases, and weights of norms
        assert not any("wte" in n or "wpe" in n or "c_" in n for n in copied - BIASES)


BIASES = {
    f"model.h.{i}.{name}.bias"
    for i in range(2)
    for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
}


class Shared(nn.Module):
    """One weight for two layers and for a table, and a half of it for another."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(minitorch.randn(6, 6))
        self.table, self.again = nn.Embedding(5, 6), False

    def block(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight).tanh()

    def forward(self, ids: Any) -> Any:
        block = self.block
        if self.again:
            block = lambda x: checkpoint(self.block, x)
        x = block(self.table(ids) + self.weight[ids] + self.weight.bfloat16()[ids])
        return (block(x) @ self.table.weight.t()).square().mean()


def kept_by_a_hook(model: Any, ids: Any) -> list[Any]:
    """What a hook has seen stays as it was."""
    seen: list[Any] = []
    handle = model.module.weight.register_hook(seen.append)
    model(ids).backward()
    first = seen[0].clone()
    model.zero_grad()
    model(ids * 0).backward()
    assert (seen[0] == first).all()
    handle.remove()
    return seen


def asked_for_apart(model: Any, ids: Any) -> list[Any]:
    """`autograd.grad` writes nowhere, before or after a backward pass."""
    weights, loss = list(model.parameters()), model(ids)
    before = minitorch.autograd.grad(loss, weights, retain_graph=True)
    loss.backward(retain_graph=True)
    held = [p.grad.clone() for p in weights]
    after = minitorch.autograd.grad(loss * 2, weights, retain_graph=True)
    assert all((p.grad == g).all() for p, g in zip(weights, held))
    more = minitorch.autograd.grad(loss * 3, weights, create_graph=True)
    assert all((p.grad == g).all() for p, g in zip(weights, held))
    return [*before, *after, *more]


def gradients_of_gradients(model: Any, ids: Any) -> list[Any]:
    model(ids).backward(create_graph=True)
    return []


def stopped_halfway(model: Any, ids: Any) -> list[Any]:
    """A pass that fails has perhaps written to a home; the next one is right."""

    def fail(grad: Any) -> None:
        raise ValueError("stop")

    handle = model.module.table.weight.register_hook(fail)
    with model.no_sync(), pytest.raises(ValueError, match="stop"):
        model(ids).backward()
    handle.remove()
    model.zero_grad()
    model(ids).backward()
    return []


def computed_twice(model: Any, ids: Any) -> list[Any]:
    model.module.again = True
    model(ids).backward()
    return []


@pytest.mark.parametrize(
    "act",
    [kept_by_a_hook, asked_for_apart, gradients_of_gradients, stopped_halfway,
     computed_twice],
)  # fmt: skip
def test_what_is_written_into_buckets_is_what_was_copied(act: Any) -> None:
    def trained(how: Any) -> list[Any]:
        minitorch.manual_seed(3)
        model = how(DDP(Shared()))
        ids = minitorch.tensor([0, 3, 3, 1])
        found = []
        for _ in range(3):
            model.zero_grad()
            model(ids).backward()
            found += [p.grad.numpy().copy() for p in model.parameters()]
            model.zero_grad()
            found += [g.detach().numpy().copy() for g in act(model, ids)]
            found += [p.grad.detach().numpy().copy() for p in model.parameters()]
        return found

    def program() -> None:
        pairs = zip(trained(rank_checks.homeless), trained(lambda model: model))
        assert all((a == b).all() for a, b in pairs)

    spawn_threads(program, 1)


def test_a_model_outlives_its_buckets() -> None:
    def program() -> None:
        layer = nn.Linear(3, 3)
        model = DDP(layer)
        model(minitorch.ones(1, 3)).sum().backward()
        storage = model.reducer.buckets[0].flat.raw.storage
        model.zero_grad()
        del model
        gc.collect()
        layer(minitorch.ones(1, 3)).sum().backward()
        assert layer.weight.grad.raw.storage is not storage

    spawn_threads(program, 1)


def test_no_sync_keeps_gradients_on_their_rank() -> None:
    def program() -> list[float]:
        model = DDP(nn.Linear(1, 1, bias=False))
        x = minitorch.tensor([[float(dist.get_rank())]])
        with model.no_sync():
            model(x).sum().backward()
        alone = model.module.weight.grad.item()
        model(x).sum().backward()
        return [alone, model.module.weight.grad.item()]

    assert spawn_threads(program, 2) == [[0, 1], [1, 1]]


def test_what_a_hook_has_seen_of_a_cast_weight_stays_as_it_is() -> None:
    seen = []

    class Narrow(nn.Linear):
        def forward(self, x: Any) -> Any:
            w = self.weight.to(minitorch.bfloat16)
            w.register_hook(seen.append)
            return nn.functional.linear(x.to(w.dtype), w)

    def program() -> list[Any]:
        model = DDP(Narrow(1, 1, bias=False))
        for size in (1.0, 2.0, 4.0):
            model.zero_grad()
            model(minitorch.tensor([[size]])).sum().backward()
        return [g.tolist() for g in seen]

    assert spawn_threads(program, 1) == [[[[1]], [[2]], [[4]]]]


class Half(nn.Module):
    """Uses only one of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Any) -> Any:
        return self.used(x)


def test_a_parameter_without_a_gradient_is_named() -> None:
    def program() -> None:
        model = DDP(Half())
        x = minitorch.ones(1, 1)
        model(x).sum().backward()
        model(x)

    message = "brought no gradient of idle.weight, idle.bias, .* find_unused_param"
    with pytest.raises(RuntimeError, match=message):
        spawn_threads(program, 2)


def test_a_model_that_was_converted_later_is_refused() -> None:
    def program() -> None:
        model = DDP(nn.Linear(2, 2))
        model.double()
        model(minitorch.ones(1, 2, dtype=minitorch.float64)).sum().backward()

    message = "weight is float64 on 'cpu', and was float32 on 'cpu' when .* wrapped"
    with pytest.raises(RuntimeError, match=message):
        spawn_threads(program, 1)


def other_model(width: int = 3, frozen: bool = False, more: bool = False) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, width if not more else 3))
    if more:
        model.add_module("third", nn.Linear(1, 1))
    model[0].weight.requires_grad_(not frozen)
    return model


@pytest.mark.parametrize(
    "difference, message",
    [
        (
            {"width": 4},
            r"2 is 1.weight \(3, 3\) float32 on rank 0, and 1.weight \(4, 3",
        ),
        (
            {"frozen": True},
            r"0 is 0.weight .* on rank 0, and 0.weight .*, frozen on ran",
        ),
        (
            {"more": True},
            r"4 is missing on rank 0, and third.weight \(1, 1\) float32 on",
        ),
    ],
)
def test_models_that_differ_are_told_apart(difference: Any, message: str) -> None:
    def program() -> None:
        DDP(other_model(**(difference if dist.get_rank() else {})))

    with pytest.raises(RuntimeError, match=message):
        spawn_threads(program, 2)


def test_what_is_refused() -> None:
    def program() -> None:
        model = nn.Linear(1, 1)
        for options, message in (
            ({"device_ids": [0]}, "the module is on cpu"),
            ({"static_graph": True}, "static_graph=True is not supported"),
            ({"bucket_cap_mb": -1}, "bucket_cap_mb is -1"),
            ({"bucket_cap_mb": "25"}, "bucket_cap_mb is '25'"),
        ):
            with pytest.raises(ValueError, match=message):
                DDP(model, **options)
        with pytest.raises(TypeError, match="no argument 'bucket'"):
            DDP(model, bucket=1)
        with pytest.raises(TypeError, match="the module is a int"):
            DDP(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected a module with parameters"):
            DDP(nn.ReLU())

    spawn_threads(program, 1)
    with pytest.raises(ValueError, match="no process group"):
        DDP(nn.Linear(1, 1))


# --------------------------------------------------------------- dealing out the data


@pytest.mark.parametrize("size, n", [(8, 2), (7, 3), (2, 4), (9, 2)])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_sampler_is_pytorchs(
    size: int, n: int, drop_last: bool, shuffle: bool
) -> None:
    from torch.utils.data.distributed import DistributedSampler as Theirs

    data = list(range(size))
    ours = [
        DistributedSampler(data, n, r, shuffle, seed=3, drop_last=drop_last)
        for r in range(n)
    ]
    theirs = Theirs(data, n, 0, shuffle, seed=3, drop_last=drop_last)  # type: ignore[var-annotated, arg-type]
    assert {len(s) for s in ours} == {len(theirs)}
    together = [i for row in zip(*map(list, ours)) for i in row]
    if not shuffle:
        assert list(ours[0]) == list(theirs)
        assert together == (data * n)[: len(together)]
    if len(together) >= size:
        assert set(together) == set(data)
    else:
        assert len(set(together)) == len(together)


def test_the_sampler_in_a_loader() -> None:
    data = TensorDataset(minitorch.arange(10))

    def program() -> Any:
        sampler = DistributedSampler(data)  # type: ignore[arg-type]
        loader = DataLoader(data, 2, sampler=sampler)
        epochs = []
        for epoch in (None, None, 0, 7):
            if epoch is not None:
                sampler.set_epoch(epoch)
            epochs.append([i for (batch,) in loader for i in batch.tolist()])
        return epochs

    first, second = spawn_threads(program, 2)
    for a, b in zip(first, second):
        assert sorted(a + b) == list(range(10))
    assert first[0] == first[2] and len({*map(tuple, first)}) == 3
    with pytest.raises(ValueError, match="a rank below num_replicas, 2"):
        DistributedSampler([1], 2, 2)
