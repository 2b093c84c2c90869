"""The autograd engine at the level of tensors: what a user may rely on."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from operations import assert_same

import minitorch
from minitorch import Function, Tensor
from minitorch.grad_check import GradientError, gradcheck, gradgradcheck


def leaf(values: Any, device: str, dtype: Any = minitorch.float32) -> Tensor:
    """A leaf that requires grad."""
    return minitorch.tensor(values, dtype=dtype, device=device, requires_grad=True)


# ---------------------------------------------------------------- leaves and .grad


def test_gradients_of_a_graph_with_shared_parts(device):
    def run(lib: Any, **where: Any) -> list[Any]:
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True, **where)
        w = lib.tensor([[0.5, -1.0, 2.0]], requires_grad=True, **where)
        h = (x * w).tanh()
        out = (h * h + h * x).sum() + (h @ x).sum() * x[1]
        out.backward()
        return [out, x.grad, w.grad]

    for mine, theirs in zip(run(minitorch, device=device), run(torch)):
        assert_same(mine, theirs, 1e-6)


def test_backward_adds_to_grad(device):
    x = leaf([1.0, 2.0], device)
    (x * 3).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]
    assert first.tolist() == [5.0, 7.0]  # added in place, as PyTorch does
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0] and not x.grad.requires_grad


@pytest.mark.parametrize("keep", ["leaves", "start", "hook", "retained", "user"])
def test_gradients_do_not_share_memory(device, keep):
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    seen: list[Tensor] = []
    start = minitorch.tensor([1.0, 1.0], device=device)
    c = a + b
    if keep == "hook":
        c.register_hook(seen.append)
    elif keep == "retained":
        c.retain_grad()
    elif keep == "user":
        c = Keeper.apply(a + b, start)
    c.backward(start)
    others = [b.grad, start, *seen] + ([c.grad] if keep == "retained" else [])
    a.grad.zero_()
    assert all(other.tolist() == [1.0, 1.0] for other in others)


class Keeper(Function):
    """The identity, whose gradient is a tensor that it was given."""

    @staticmethod
    def forward(ctx, x, kept):
        ctx.kept = kept
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.kept, None


def test_leaves_and_their_flags(device):
    x = leaf([1.0], device)
    y = x * 2
    z = minitorch.tensor([1.0], device=device) * 2
    assert x.is_leaf and not y.is_leaf and z.is_leaf
    assert y.requires_grad and not z.requires_grad
    assert y.grad_fn is not None and x.grad_fn is None
    assert not (y > 0).requires_grad and not y.long().requires_grad
    assert not y.argmax().requires_grad
    d = y.detach()
    assert d.is_leaf and not d.requires_grad
    d.fill_(5.0)
    assert y.item() == 5.0  # the memory is one
    with pytest.raises(RuntimeError, match="only a leaf"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match="int64"):
        minitorch.tensor([1], device=device, requires_grad=True)


def test_cast_and_clone_pass_gradients(device):
    x = leaf([1.0, 2.0], device)
    (x.double() * minitorch.tensor([2.0, 3.0], device=device).double()).sum().backward()
    assert x.grad.dtype is minitorch.float32 and x.grad.tolist() == [2.0, 3.0]
    y = x.clone()
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


def test_moving_to_another_device_passes_gradients():
    x = leaf([1.0, 2.0], "simple")
    y = x.to("cpu") * 3
    assert y.device == "cpu"
    y.sum().backward()
    assert x.grad.device == "simple" and x.grad.tolist() == [3.0, 3.0]


# ------------------------------------------------------------------ starting points


def test_backward_needs_a_start(device):
    x = leaf([1.0, 2.0], device)
    with pytest.raises(RuntimeError, match="needs a gradient argument"):
        (x * 2).backward()
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        (x * 2).backward(minitorch.ones(3, device=device))
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        (x.detach() * 2).sum().backward()
    (x * 2).backward(minitorch.tensor([1.0, 10.0], device=device))
    assert x.grad.tolist() == [2.0, 20.0]
    one = leaf([[3.0]], device)
    (one * one).backward()  # one element needs no argument
    assert one.grad.tolist() == [[6.0]]


def test_backward_of_a_leaf_is_its_start(device):
    x = leaf(2.0, device)
    x.backward()
    assert x.grad.item() == 1.0


# ---------------------------------------------------------------- using a graph twice


def test_second_backward_needs_retain_graph(device):
    x = leaf([1.0, 2.0], device)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()
    z = x.exp().sum()
    z.backward(retain_graph=True)
    z.backward()
    assert np.allclose(x.grad.tolist(), 3 * np.exp([1.0, 2.0]))


def test_two_losses_over_one_trunk(device):
    x = leaf([1.0, 2.0], device)
    trunk = x * x
    a, b = trunk.sum(), (trunk * 2).sum()
    a.backward(retain_graph=True)
    b.backward()
    assert x.grad.tolist() == [6.0, 12.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.mul_(2),
        lambda x: x.zero_(),
        lambda x: x.copy_(x.detach() * 2),
        lambda x: x.__setitem__(0, 5.0),
        lambda x: x.__setitem__(x > 100, 5.0),
        lambda x: x.detach().add_(1),
        lambda x: x[1:].fill_(3.0),
    ],
)
def test_changing_a_saved_tensor_is_an_error(device, change):
    w = leaf([1.0, 2.0], device)
    x = minitorch.tensor([3.0, 4.0], device=device)
    y = (w * x).sum()
    change(x)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


def test_changing_a_saved_output_is_an_error(device):
    x = leaf([1.0, 2.0], device)
    y = x.exp()
    with minitorch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match=r"Exp.*changed in place"):
        y.sum().backward()


def test_changing_what_is_not_saved_is_allowed(device):
    x = leaf([1.0, 2.0], device)
    y = x + 1
    y.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


# ------------------------------------------------------------- recording on and off


def test_no_grad_as_a_block_and_as_a_decorator(device):
    x = leaf([1.0], device)
    with minitorch.no_grad():
        assert not minitorch.is_grad_enabled() and not (x * 2).requires_grad
        with minitorch.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @minitorch.no_grad()
    def quiet(n: int) -> bool:
        """A docstring."""
        return (x * 2).requires_grad or (n > 0 and quiet(n - 1))

    assert quiet(3) is False and minitorch.is_grad_enabled()
    assert quiet.__doc__ == "A docstring."

    @minitorch.enable_grad()
    def loud() -> bool:
        return (x * 2).requires_grad

    with minitorch.no_grad():
        assert loud()


def test_no_grad_ends_with_an_exception():
    with pytest.raises(KeyError), minitorch.no_grad():
        raise KeyError
    assert minitorch.is_grad_enabled()


def test_set_grad_enabled(device):
    x = leaf([1.0], device)
    with minitorch.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert minitorch.is_grad_enabled()
    minitorch.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
        with minitorch.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not minitorch.is_grad_enabled()
    finally:
        minitorch.set_grad_enabled(True)

    @minitorch.set_grad_enabled(False)
    def quiet() -> bool:
        return (x * 2).requires_grad

    assert minitorch.is_grad_enabled()  # decorating changes nothing
    assert not quiet() and minitorch.is_grad_enabled()


@pytest.mark.parametrize("mode", [minitorch.no_grad, minitorch.inference_mode])
def test_a_decorated_generator_leaves_its_caller_alone(mode):
    @mode()
    def tokens(n: int) -> Any:
        try:
            for _ in range(n):
                told = yield minitorch.is_grad_enabled()
            return told
        finally:
            ended.append(minitorch.is_grad_enabled())

    ended: list[bool] = []
    steps = tokens(2)
    assert next(steps) is False and minitorch.is_grad_enabled()
    assert steps.send(3) is False and minitorch.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        steps.send(4)
    assert end.value.value == 4 and ended == [False] and minitorch.is_grad_enabled()
    for _ in tokens(2):
        break  # which closes it
    assert len(ended) == 2 and list(tokens(2)) == [False, False]


@pytest.mark.parametrize("mode", [minitorch.no_grad, minitorch.inference_mode])
def test_a_decorator_without_brackets(mode):
    x = minitorch.ones(2, requires_grad=True)

    @mode
    def double(x: minitorch.Tensor) -> minitorch.Tensor:
        """A docstring."""
        return x * 2

    assert not double(x).requires_grad and double.__doc__ == "A docstring."
    assert minitorch.is_grad_enabled()


def test_modes_belong_to_threads():
    @minitorch.no_grad()
    def wait(mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        other.wait(5)

    first, second, results = threading.Event(), threading.Event(), []

    def one() -> None:
        wait(first, second)
        results.append(minitorch.is_grad_enabled())

    def two() -> None:
        first.wait(5)
        results.append(minitorch.is_grad_enabled())
        with minitorch.no_grad():
            wait(second, first)
            results.append(minitorch.is_grad_enabled())

    threads = [threading.Thread(target=f) for f in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, True, True]


# ---------------------------------------------------------------------------- hooks


def test_hooks_of_leaves_and_of_results(device):
    x = leaf([1.0, 2.0], device)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    (y * 3 + y).sum().backward()  # called once, with the sum over both uses
    assert seen == [("y", [4.0, 4.0]), ("x", [8.0, 8.0])]


def test_hooks_replace_gradients_in_order(device):
    x = leaf([1.0], device)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    handle = x.register_hook(lambda g: -g)
    y.sum().backward()
    assert x.grad.tolist() == [-22.0]
    handle.remove()
    handle.remove()  # twice does no harm
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0]


def test_one_hook_registered_twice(device):
    x = leaf([1.0], device)
    calls = []
    hook = calls.append
    first = x.register_hook(hook)
    x.register_hook(hook)
    x.sum().backward()
    first.remove()
    first.remove()
    x.sum().backward()
    assert len(calls) == 3


def test_a_hook_may_remove_itself(device):
    x = leaf([1.0], device)
    calls = []

    def once(grad):
        calls.append("once")
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: calls.append("always"))
    for _ in range(2):
        x.sum().backward()
    assert calls == ["once", "always", "always"]


def test_post_accumulate_hooks(device):
    x = leaf([1.0], device)
    seen = []
    x.register_hook(lambda g: seen.append("grad"))
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    for _ in range(2):
        (x * 3).sum().backward()
    handle.remove()
    x.sum().backward()
    assert seen == ["grad", 3.0, "grad", 6.0, "grad"]
    with pytest.raises(RuntimeError, match="only leaves"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(RuntimeError, match="does not require grad"):
        x.detach().register_hook(print)


def test_a_post_accumulate_hook_changes_only_its_own_gradient(device):
    a, b = leaf([1.0, 2.0], device), leaf([[3.0, 4.0]], device)
    for x in (a, b):
        x.register_post_accumulate_grad_hook(lambda x: x.grad.mul_(5).detach())
    (a.view(1, 2) + b).backward(minitorch.ones(1, 2, device=device).exp())
    for x in (a, b):
        assert x.grad.flatten().tolist() == pytest.approx([5 * math.e] * 2)


def test_step_inside_the_backward_pass(device):
    x = leaf([1.0], device)

    def step(tensor):
        with minitorch.no_grad():
            tensor -= 0.1 * tensor.grad
        tensor.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * 2).sum().backward()
    assert x.grad is None and np.isclose(x.item(), 0.8)


def test_retain_grad(device):
    x = leaf([1.0, 2.0], device)
    y = x * 2
    y.retain_grad()
    y.retain_grad()  # twice is once
    y.register_hook(lambda g: g * 5)  # what is kept is what goes on
    (y * y).sum().backward()
    assert y.grad.tolist() == [20.0, 40.0] and x.grad.tolist() == [40.0, 80.0]
    x.retain_grad()  # nothing to do for a leaf
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


# ------------------------------------------------------------------- user functions


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


class ExpAndFloor(Function):
    """Two outputs, of which one is saved and the other not differentiable."""

    @staticmethod
    def forward(ctx, x, scale):
        out, floor = x.exp() * scale, x.floor()
        ctx.save_for_backward(out)
        ctx.mark_non_differentiable(floor)
        return out, floor

    @staticmethod
    def backward(ctx, grad, grad_floor):
        (out,) = ctx.saved_tensors
        return grad * out, None


class SinCos(Function):
    """Two differentiable outputs, both saved."""

    @staticmethod
    def forward(ctx, x):
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx, grad_s, grad_c):
        s, c = ctx.saved_tensors
        return grad_s * c - grad_c * s


def test_user_function(device):
    x = leaf([1.0, -2.0], device, minitorch.float64)
    y = Square.apply(x)
    assert "Square" in repr(y.grad_fn)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, -4.0]
    assert gradcheck(Square.apply, [x]) and gradgradcheck(Square.apply, [x])
    with minitorch.no_grad():
        assert not Square.apply(x).requires_grad
    assert not Square.apply(x.detach()).requires_grad


def test_user_function_with_several_outputs(device):
    x = leaf([0.5, 1.5], device, minitorch.float64)
    out, floor = ExpAndFloor.apply(x, 2.0)
    assert out.requires_grad and not floor.requires_grad
    (out.sum() + floor.sum()).backward()
    assert np.allclose(x.grad.tolist(), 2 * np.exp([0.5, 1.5]))
    assert gradcheck(SinCos.apply, [x]) and gradgradcheck(SinCos.apply, [x])
    x.grad = None
    SinCos.apply(x)[1].sum().backward()  # the other output's gradient is zeros
    assert np.allclose(x.grad.tolist(), -np.sin([0.5, 1.5]))


def test_user_function_that_uses_needs_input_grad(device):
    class Product(Function):
        @staticmethod
        def forward(ctx, a, b, number):
            ctx.save_for_backward(a, b)
            return a * b * number

        @staticmethod
        def backward(ctx, grad):
            assert ctx.needs_input_grad == (True, False, False)
            _, b = ctx.saved_tensors
            return grad * b * 3, None, None

    class Split(Function):
        @staticmethod
        def forward(a, b, number):
            return a * b * number

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:2], output)

        @staticmethod
        def backward(ctx, grad):
            _, b, out = ctx.saved_tensors
            return grad * b * 3 + out * 0, None, None

    a = leaf([2.0], device)
    Split.apply(a, minitorch.tensor([5.0], device=device), 3).sum().backward()
    assert a.grad.tolist() == [15.0]
    a.grad = None
    Product.apply(a, minitorch.tensor([5.0], device=device), 3).sum().backward()
    assert a.grad.tolist() == [15.0]


def test_user_function_with_an_argument_left_out(device):
    """As in PyTorch, its backward pass may return a None for it."""

    class Affine(Function):
        @staticmethod
        def forward(ctx, x, weight, bias=None):
            ctx.save_for_backward(x, weight)
            return x @ weight if bias is None else x @ weight + bias

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            bias = grad.sum(0) if ctx.needs_input_grad[2:] == (True,) else None
            return grad @ weight.t(), x.t() @ grad, bias

    kind = minitorch.float64
    x, w = leaf([[1.0, 2.0]], device, kind), leaf([[3.0], [4.0]], device, kind)
    b = leaf([5.0], device, kind)
    assert gradcheck(Affine.apply, [x, w]) and gradcheck(Affine.apply, [x, w, b])


def test_user_function_with_wrong_number_of_gradients(device):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = leaf([1.0], device)
    with pytest.raises(RuntimeError, match=r"Wrong.backward returned 1 .* 2 argument"):
        Wrong.apply(x, x).sum().backward()
    with pytest.raises(TypeError, match="none of the arguments is a tensor"):
        Wrong.apply(1, 2)


def test_gradcheck_finds_a_wrong_gradient(device):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            out = (grad * 3).clone()
            out[1] = out[1] * 2
            return out

    x = leaf([1.0, 2.0, 3.0], device, minitorch.float64)
    with pytest.raises(GradientError) as error:
        gradcheck(lambda a, b: Wrong.apply(b), [1.0, x])
    text = str(error.value)
    for part in ("input 1", "index (1,)", "3", "(numeric)", "6 (analytic)"):
        assert part in text
    assert gradcheck(Wrong.apply, [x], raise_exception=False) is False
    with pytest.raises(TypeError, match="float64"):
        gradcheck(lambda a: a, [leaf([1.0], device)])
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(lambda a: a, [x.detach()])


def test_gradgradcheck_finds_a_wrong_second_gradient(device):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x.detach()

    x = leaf([1.0, 2.0], device, minitorch.float64)
    assert gradcheck(Wrong.apply, [x])
    with pytest.raises(GradientError):
        gradgradcheck(Wrong.apply, [x])


# ----------------------------------------------------------------------------- grad()


def test_grad_returns_without_touching_grad(device):
    x, w = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    h = x * w
    y = (h * h).sum()
    gx, gh = minitorch.grad(y, [x, h], retain_graph=True)
    assert gx.tolist() == [18.0, 64.0] and gh.tolist() == [6.0, 16.0]
    assert x.grad is None and w.grad is None and not gx.requires_grad
    (gw,) = minitorch.grad(y, w)
    assert gw.tolist() == [6.0, 32.0]
    assert minitorch.grad(x.sum(), x)[0].tolist() == [1.0, 1.0]


def test_grad_of_unused_inputs(device):
    x, w = leaf([1.0], device), leaf([2.0], device)
    with pytest.raises(RuntimeError, match="allow_unused=True"):
        minitorch.grad((x * 2).sum(), [x, w])
    gx, gw = minitorch.grad((x * 2).sum(), [x, w], allow_unused=True)
    assert gx.item() == 2.0 and gw is None
    with pytest.raises(RuntimeError, match="does not require grad"):
        minitorch.grad((x * 2).sum(), [x.detach()])


def test_gradients_of_gradients(device):
    x = leaf([0.5, -1.0], device, minitorch.float64)
    t = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    (g,) = minitorch.grad((x**3).sum(), x, create_graph=True)
    (s,) = torch.autograd.grad((t**3).sum(), t, create_graph=True)
    (g * g).sum().backward()
    (s * s).sum().backward()
    assert_same(x.grad, t.grad, 1e-12)
    (third,) = minitorch.grad(
        minitorch.grad(
            minitorch.grad(x.tanh().sum(), x, create_graph=True)[0].sum(),
            x,
            create_graph=True,
        )[0].sum(),
        x,
    )
    t1 = torch.tanh(t).detach()
    assert_same(third, -2 * (1 - t1**2) * (1 - 3 * t1**2), 1e-12)


def test_backward_with_create_graph(device):
    x = leaf([2.0], device, minitorch.float64)
    (x**3).sum().backward(create_graph=True)
    g = x.grad
    assert g.requires_grad
    (second,) = minitorch.grad(g.sum(), x)
    assert second.tolist() == [12.0]


def test_grad_with_several_outputs(device):
    x = leaf([1.0, 2.0], device)
    a, b = x * 2, x * x
    starts = [
        minitorch.ones(2, device=device),
        minitorch.full((2,), 3.0, device=device),
    ]
    assert minitorch.grad([a, b], x, starts)[0].tolist() == [8.0, 14.0]


# ------------------------------------------------------------------ changes in place


def in_place(lib: Any, change: Any, **where: Any) -> list[Any]:
    """Value and gradients of a change to a result."""
    x = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True, **where)
    y = lib.tensor([0.5, -1.5], requires_grad=True, **where)
    z = x * 2
    before = z.sum()  # uses the old value
    z = change(lib, z, y)
    out = (z * z).sum() + before
    out.backward()
    return [out, x.grad, y.grad]


def assign(index: Any, value: Any = None) -> Any:
    def change(lib: Any, z: Any, y: Any) -> Any:
        place = index(lib, z) if callable(index) else index
        z[place] = y if value is None else value
        return z

    return change


def same(method: str, *args: Any) -> Any:
    return lambda lib, z, y: getattr(z, method)(*(args or (y,)))


def augmented(lib: Any, z: Any, y: Any) -> Any:
    z += y
    z *= 2
    z -= y
    z /= y
    return z


@pytest.mark.parametrize(
    "change",
    [
        same("add_"),
        same("sub_"),
        same("mul_"),
        same("div_"),
        same("mul_", 3.0),
        same("copy_"),
        same("fill_", 2.0),
        lambda lib, z, y: z.zero_(),
        same("clamp_", -1.0, 5.0),
        augmented,
        assign(0),
        assign((slice(None), 1)),
        assign(Ellipsis),
        assign((slice(None), slice(None, None, 2)), 7.0),
        assign(lambda lib, z: z > 3, 7.0),
        assign(lambda lib, z: lib.tensor([1], device=z.device)),
        assign((1, slice(None))),
        assign([0, 0]),
        assign((0, 1), 9.0),
    ],
)
def test_recorded_changes_in_place(device, change):
    mine = in_place(minitorch, change, device=device)
    theirs = in_place(torch, change)
    for a, b in zip(mine, theirs):
        assert (a is None) == (b is None)
        if b is not None:
            assert_same(a, b, 1e-6)


def test_in_place_on_a_leaf_is_an_error(device):
    x = leaf([1.0, 2.0], device)
    for change in (
        lambda: x.add_(1),
        lambda: x.view(2).add_(1),
        lambda: x[0:1].mul_(2),
    ):
        with pytest.raises(RuntimeError, match="leaf"):
            change()
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1.0
    with minitorch.no_grad():
        x += 1
    assert x.tolist() == [2.0, 3.0] and x.is_leaf and x.requires_grad


def test_in_place_on_an_expanded_tensor_is_an_error(device):
    x = minitorch.ones(1, device=device).expand(3)
    for change in (lambda: x.add_(1), lambda: x.fill_(2), lambda: x[0:2].zero_()):
        with pytest.raises(RuntimeError, match="expanded"):
            change()
    assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("index", [0, slice(0, 1), [0]])
def test_infinite_gradients_stop_at_assigned_elements(device, index):
    a = leaf([1.0, 2.0], device)
    x = a * 1
    x[index] = 5.0
    x.backward(minitorch.tensor([float("inf"), 1.0], device=device))
    assert a.grad.tolist() == [0.0, 1.0]


def test_assigning_into_a_tensor_makes_it_part_of_the_graph(device):
    x = leaf([1.0, 2.0], device)
    out = minitorch.zeros(2, 2, device=device)
    out[0] = x
    out[1] = x * 3
    out.sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]


# --------------------------------------------------------------------------- memory


def test_saved_tensors_are_freed_by_backward(device):
    x = leaf([1.0, 2.0], device)
    h = x * 2
    saved = weakref.ref(h)
    y = (h * h).sum()
    del h
    assert saved() is not None
    y.backward()
    assert saved() is None


@pytest.mark.usefixtures("few_objects")
def test_no_reference_cycles(device):
    _pass_without_cycles(device)  # compiles kernels, which leaves cycles in Numba
    gc.collect()
    gc.disable()
    try:
        assert _pass_without_cycles(device) == [None] * 8
    finally:
        gc.enable()


def _pass_without_cycles(device):
    """What is left of the tensors and nodes of a forward and backward pass."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
    h = (x.exp() @ x).softmax(-1)
    h.retain_grad()
    a, b = SinCos.apply(h.sigmoid())
    y = (a * b).max(0).values.sum()
    y[None].register_hook(lambda g: g)
    refs = [weakref.ref(t) for t in (h, a, b, y)]
    nodes = [weakref.ref(t.grad_fn) for t in (h, a, b, y)]
    y.backward(retain_graph=True)
    del h, a, b, y
    return [r() for r in refs + nodes]


def test_a_graph_that_is_never_used_is_freed(device):
    gc.disable()
    try:
        x = leaf([1.0], device)
        y = x
        for _ in range(10):
            y = y.exp().tanh()
        ref = weakref.ref(y.grad_fn)
        del y
        assert ref() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("few_objects")
def test_training_does_not_grow_the_process():
    minitorch.manual_seed(0)
    w1 = minitorch.randn(4, 8, requires_grad=True)
    w2 = minitorch.randn(8, 1, requires_grad=True)
    x, y = minitorch.randn(16, 4), minitorch.randn(16, 1)

    def step() -> float:
        loss = (((x @ w1).tanh() @ w2 - y) ** 2).mean()
        loss.backward()
        with minitorch.no_grad():
            for w in (w1, w2):
                w -= 0.05 * w.grad
                w.grad = None
        return loss.item()

    first = step()
    for _ in range(50):
        step()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        last = step()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert last < 0.5 * first
    assert grown < 20_000, f"{grown} bytes more after 1000 steps"


def test_a_chain_of_100_000_operations():
    x = minitorch.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    ref = weakref.ref(y.grad_fn)
    y.backward(retain_graph=True)
    assert x.grad.item() == 1.0
    del y  # with all that it has saved
    assert ref() is None


# ------------------------------------------------------------------ copies, pickles


def test_deepcopy_and_pickle(device):
    x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
    (x * x).sum().backward()
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.tolist() == x.tolist() and other.device == device
        assert other.requires_grad and other.is_leaf and other.dtype is x.dtype
        with minitorch.no_grad():
            other.zero_()
    assert x[0, 0].item() == 1.0
    assert copy.deepcopy(x).grad.tolist() == x.grad.tolist()
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]
    strided = minitorch.arange(12, device=device).reshape(3, 4)[::2, 1:].T
    assert pickle.loads(pickle.dumps(strided)).tolist() == strided.tolist()
    assert copy.deepcopy(strided).tolist() == strided.tolist()
    for operation in (copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="detach"):
            operation(x * 2)


# ------------------------------------------------------------ PyTorch's module of names


def test_the_autograd_module(device):
    x = leaf([2.0], device, minitorch.float64)
    (g,) = minitorch.autograd.grad((x * x).sum(), x)
    assert g.tolist() == [4.0]
    assert minitorch.autograd.Function is Function
    assert minitorch.autograd.gradcheck(lambda x: x * x, [x])
    assert minitorch.autograd.gradgradcheck(lambda x: x**3, [x])
    with minitorch.autograd.no_grad():
        assert not (x * 2).requires_grad
