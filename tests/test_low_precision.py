"""float16 and bfloat16: stored in 16 bits, computed in float32, rounded once.

The oracle is PyTorch in the same type on the CPU: our error against float64 is at most
twice its error (three times for gradients), and a rounding of the result.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from operations import OPERATIONS, TORCH_DTYPES, elements, numpy_of, weighted_sum
from torch.nn import functional as torch_functional

import minitorch
import minitorch.nn.functional as F
from helpers import LAYOUTS, make, numbers
from minitorch import dtypes, nn
from minitorch.backend import get_backend
from minitorch.backend.around import Around
from minitorch.backend.low_precision import LowPrecision
from minitorch.dtypes import bfloat16, finfo, float16, float32, int64
from minitorch.executor import Executor, executing

HALVES = [float16, bfloat16]
half = pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
FLOATING = [op for ops in OPERATIONS.values() for op in ops if "f" in op.kinds]
Arrays = list[np.ndarray]


def exact(x: Any) -> np.ndarray:
    """The elements of a tensor of either library, as float64 if they are floating."""
    x = x.detach().cpu()
    return numpy_of(x.double() if x.is_floating_point() else x)


def close(mine: Any, same: Any, truth: Any, times: float, slack: float) -> bool:
    """Whether our error is at most `times` PyTorch's worst and `slack` * |truth|.

    Of gradients (`times` is 3) the largest |truth| counts, since they are sums.
    """
    a, b, c = exact(mine), exact(same), exact(truth)
    if not mine.is_floating_point():
        return np.array_equal(a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = np.abs(b - c)
        worst = theirs[np.isfinite(theirs)].max(initial=0.0)
        size = np.abs(c).max(initial=0.0) if times == 3 else np.abs(c)
        near = np.abs(a - c) <= times * worst + slack * size + 1e-7
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(c))).all())


def answers(library: Any, fn: Any, arrays: Arrays, dtype: Any, grad: bool) -> Any:
    """The results of `fn`, and the gradients of its operands, of type `dtype`."""
    tensors = [library.tensor(a, dtype=dtype) for a in arrays]
    for x in tensors if grad else []:
        x.requires_grad_()
    out = fn(library, *tensors)
    out = list(out) if isinstance(out, (tuple, list)) else [out]
    if grad:
        weighted_sum(out).backward()
    kept = [x for x in out if hasattr(x, "numel")]
    return kept, [x.grad for x in tensors if x.grad is not None]


@pytest.mark.parametrize("op", FLOATING, ids=str)
def test_every_operation(op, monkeypatch):
    """Here on the plain device: all others convert and round in the same place."""
    monkeypatch.setattr("minitorch.creation.DEFAULT_DEVICE", "simple")
    for dtype in HALVES:
        for shapes in op.shapes[:2]:
            arrays = [
                elements(op, s, dtype, i, "").astype(np.float64)
                for i, s in enumerate(shapes)
            ]
            theirs = op.oracle or op.fn
            want = answers(torch, theirs, arrays, torch.float64, op.differentiable)
            kind, eps = TORCH_DTYPES[dtype], finfo(dtype).eps
            same = answers(torch, theirs, arrays, kind, op.differentiable)
            ours = answers(minitorch, op.fn, arrays, dtype, op.differentiable)
            for x, y, z in zip(ours[0], same[0], want[0], strict=True):
                assert x.dtype.name == str(y.dtype)[6:], shapes
                assert close(x, y, z, 2, eps / 2), f"{dtype} {shapes}: {x} {z}"
            for x, y, z in zip(ours[1], same[1], want[1], strict=True):
                assert x.dtype is dtype, shapes
                assert close(x, y, z, 3, eps), f"gradient, {dtype} {shapes}: {x} {z}"


# ------------------------------------------------------------- on every device


def network(m: Any, f: Any, x: Any, weight: Any, image: Any, kernel: Any) -> Any:
    """Many families at once: x [4, 6], weight [5, 6], image [1, 2, 5, 5]."""
    hidden = f.gelu(f.linear(x, weight)) * 0.3 + x[:, :5]
    norm = f.layer_norm(hidden, (5,))
    planes = f.max_pool2d(f.conv2d(image, kernel, padding=1), 2)
    joined = m.cat([norm, planes.reshape(3, 4).t()], 1)
    return f.log_softmax(m.where(joined > -0.5, joined, joined * 2), 1)


SHAPES = [(4, 6), (5, 6), (1, 2, 5, 5), (3, 2, 3, 3)]


@half
def test_a_network(device, dtype):
    rng, kind = np.random.default_rng(0), TORCH_DTYPES[dtype]
    arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in SHAPES]
    mine = [
        minitorch.tensor(a, device=device, dtype=dtype).requires_grad_() for a in arrays
    ]
    wide = [torch.tensor(a.astype(np.float64)) for a in arrays]
    same = [x.to(kind) for x in wide]
    for x in (*wide, *same):
        x.requires_grad_()
    out = network(minitorch, F, *mine)
    expected = network(torch, torch_functional, *wide)
    theirs = network(torch, torch_functional, *same)
    assert out.dtype is dtype and out.device == mine[0].device
    assert close(out, theirs, expected, 2, finfo(dtype).eps)
    for result in (out, expected, theirs):
        weighted_sum(result).backward()
    for x, y, z in zip(mine, same, wide):
        assert x.grad.dtype is dtype
        assert close(x.grad, y.grad, z.grad, 3, 4 * finfo(dtype).eps)


@half
def test_training_of_half_parameters(device, dtype):
    """Steps of optimizers are taken in float32, and rounded once."""
    for optimizer_of in (
        lambda m, p: m.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda m, p: m.optim.AdamW(p, lr=0.05, eps=1e-4),
    ):
        start = [[0.5, -1.0, 2.0], [0.25, 3.0, -0.125]]
        target = minitorch.tensor([1, 0], device=device)
        p = minitorch.tensor(start, dtype=dtype, device=device, requires_grad=True)
        q = torch.tensor(start, dtype=TORCH_DTYPES[dtype], requires_grad=True)
        mine, theirs = optimizer_of(minitorch, [p]), optimizer_of(torch, [q])
        for _ in range(3):
            F.cross_entropy(p, target).backward()
            torch_functional.cross_entropy(q, torch.tensor([1, 0])).backward()
            for optimizer in (mine, theirs):
                optimizer.step()
                optimizer.zero_grad()
        assert p.dtype is dtype and all(
            value.dtype is dtype
            for state in mine.state.values()
            for value in state.values()
            if isinstance(value, minitorch.Tensor)
        )
        near = 8 * finfo(dtype).eps
        np.testing.assert_allclose(exact(p), exact(q), rtol=near, atol=near)


@half
def test_memory(device, dtype):
    a = np.random.default_rng(1).standard_normal((3, 4)).astype(dtype.numpy)
    x = minitorch.tensor(a, device=device)
    assert x.dtype is dtype and x.element_size() == 2
    assert x.raw.storage.array.itemsize == 2
    assert x.numpy().dtype == dtype.numpy and np.array_equal(x.numpy(), a)
    assert x.tolist() == a.astype(np.float64).tolist()
    assert x[1, 2].item() == float(a[1, 2])
    assert np.array_equal(x.t()[1:, ::2].contiguous().numpy(), a.T[1:, ::2])
    assert np.array_equal(minitorch.stack([x, x], 1).numpy(), np.stack([a, a], 1))
    y = x.clone()
    y[1] = 7
    y[:, 0] += 0.5
    assert y[1, 0].item() == 7.5 and x[1, 0].item() == float(a[1, 0])
    assert (y >= x).dtype is minitorch.bool
    assert minitorch.arange(5, device=device).to(dtype).long().tolist() == [*range(5)]
    one = minitorch.full((2,), 2**70, dtype=dtype, device=device)
    assert one.double()[0].item() == (np.inf if dtype is float16 else 2.0**70)
    assert minitorch.zeros(3, dtype=dtype, device=device).tolist() == [0, 0, 0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    """Operands that lie anyhow in memory; what is repeated is converted once."""
    a, b = (numbers((3, 4), seed=i, layout=layout) for i in range(2))
    a, b = a.astype(bfloat16.numpy), b.astype(bfloat16.numpy)
    x, y = (minitorch.Tensor(make(each, device, layout)) for each in (a, b))
    wide = torch.tensor(a.astype(np.float64)), torch.tensor(b.astype(np.float64))
    for fn in (lambda x, y: x * y, lambda x, y: x.t() @ y, lambda x, y: x.sum(0)):
        expected = fn(*wide).float().bfloat16()
        np.testing.assert_array_equal(exact(fn(x, y)), exact(expected))
    if layout != "expanded":  # which cannot be written
        x.add_(y)
        np.testing.assert_array_equal(exact(x), exact((wide[0] + wide[1]).bfloat16()))


def test_rounding(device):
    """To the nearest, ties to the even one; too large is infinite; NaN stays NaN."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-31:31] + halves[1:-30:31]) / 2
    numbers = [
        *ties.tolist(), *(-halves[::31]).tolist(),
        0.0, -0.0, 1.00390625, 1.01171875, -1.00390625, 3.14159265, 1 / 3, 65519.0,
        65520.0, -65520.0, 3.39e38, 1e-40, 3e-8, 2.9e-8, 6e-5, np.inf, -np.inf, np.nan,
    ]  # fmt: skip
    x = minitorch.tensor(numbers, device=device)
    for dtype in HALVES:
        rounded = x.to(dtype)
        expected = torch.tensor(numbers).to(TORCH_DTYPES[dtype])
        np.testing.assert_array_equal(exact(rounded), exact(expected))
        signs = np.signbit(exact(rounded)), np.signbit(exact(expected))
        np.testing.assert_array_equal(*[s[:-1] for s in signs])
        np.testing.assert_array_equal(exact(rounded.float()), exact(expected))


@half
def test_random_numbers(device, dtype):
    """The float32 numbers of the seed, rounded; none of `rand` becomes 1."""
    minitorch.manual_seed(3)
    x = minitorch.rand(2000, dtype=dtype, device=device)
    y = minitorch.randn(50, dtype=dtype, device=device)
    minitorch.manual_seed(3)
    u = minitorch.rand(2000, device=device).clamp(max=1 - finfo(dtype).eps / 2)
    assert x.dtype is dtype and float(x.max()) < 1 and x.equal(u.to(dtype))
    assert y.equal(minitorch.randn(50, device=device).to(dtype))


def test_what_is_computed_is_float32():
    """A backend sees conversions and float32; an executor, the operation itself."""
    calls = []

    def noted(name: str, fn: Any) -> Any:
        def call(*args: Any) -> Any:
            calls.append((name, args[0].dtype))
            return fn(*args)

        return call

    class Watch(Executor):
        def call(self, name, fn, args, kwargs):
            calls.append((name, args[0].dtype))
            return fn(*args, **kwargs)

    x = minitorch.ones(2, 3, dtype=bfloat16)
    LowPrecision(Around(get_backend("cpu"), noted)).softmax(x.raw, 1)
    assert calls == [("copy", bfloat16), ("softmax", float32), ("copy", float32)]
    calls.clear()
    with executing(Watch()):
        x.softmax(1)
    assert calls == [("softmax", bfloat16)]


def test_a_backend_can_say_what_takes_half_types():
    class Native(type(get_backend("simple"))):
        takes_half = get_backend("simple").takes_half | {"matmul"}

    backend = Native()
    assert LowPrecision(backend).matmul is backend.matmul
    assert LowPrecision(backend).softmax is not backend.softmax


def test_numbers_beside_half_tensors_are_not_rounded():
    x = minitorch.tensor([3.0], dtype=bfloat16)
    y = torch.tensor([3.0], dtype=torch.bfloat16)
    assert (x * 0.7).item() == (y * 0.7).item()
    assert (x * 0.1 == 0.3).item() == (y * 0.1 == 0.3).item()
    small = minitorch.tensor([0.5], dtype=float16)
    assert (small * 100_000).item() == 49_984  # and not 0.5 * infinity


# ------------------------------------------------------------------- the types


@half
def test_finfo(dtype):
    mine, theirs = finfo(dtype), torch.finfo(TORCH_DTYPES[dtype])
    for name in "bits eps max min tiny smallest_normal resolution dtype".split():
        assert getattr(mine, name) == getattr(theirs, name), name
    with pytest.raises(TypeError, match="int64"):
        finfo(int64)
    assert minitorch.half is float16 and finfo().eps == torch.finfo().eps


def test_promotion_of_two_halves():
    assert dtypes.promote(float16, bfloat16) is float32
    assert dtypes.promote(bfloat16, int64) is bfloat16


@half
def test_conversions(dtype):
    x = minitorch.tensor([1.5, -2.0])
    for y in (x.to(dtype), x.type(dtype), x.type_as(minitorch.zeros(1, dtype=dtype))):
        assert y.dtype is dtype and y.tolist() == [1.5, -2.0]
    assert x.half().dtype is float16 and x.bfloat16().dtype is bfloat16
    assert x.to(dtype).int().tolist() == [1, -2]
    assert minitorch.tensor([True, False]).to(dtype).tolist() == [1.0, 0.0]
    array = np.arange(3).astype(dtype.numpy)
    shared = minitorch.from_numpy(array)
    shared[0] = 9
    assert shared.dtype is dtype and float(array[0]) == 9


@half
def test_printing(dtype):
    values = [[0.1, 2.5], [1 / 3, -7.0]]
    mine, theirs = minitorch.tensor(values, dtype=dtype), torch.tensor(values)
    expected = repr(theirs.to(TORCH_DTYPES[dtype])).replace("torch", "minitorch")
    assert repr(mine) == expected and f"{mine[0, 0]:.2f}" == "0.10"


@half
def test_copies_and_files(dtype, tmp_path):
    import safetensors.torch

    from minitorch.serialization import load_file, save_file

    x = minitorch.randn(3, 4, dtype=dtype)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.dtype is dtype and y.equal(x)
    minitorch.save({"x": x, "more": [1, x[0]]}, tmp_path / "state")
    assert minitorch.load(tmp_path / "state")["more"][1].equal(x[0])
    save_file({"x": x}, tmp_path / "x")
    theirs = safetensors.torch.load_file(tmp_path / "x")["x"]
    assert theirs.dtype is TORCH_DTYPES[dtype] and np.array_equal(
        exact(theirs), exact(x)
    )
    safetensors.torch.save_file({"y": theirs * 2}, tmp_path / "y")
    assert load_file(tmp_path / "y")["y"].equal(x * 2)


@half
def test_dlpack(dtype):
    x = minitorch.randn(3, 4, dtype=dtype)
    lent = torch.from_dlpack(x.t()[1:])
    assert lent.dtype is TORCH_DTYPES[dtype] and lent.tolist() == x.t()[1:].tolist()
    lent[0, 0] = 7
    assert x[0, 1].item() == 7
    theirs = torch.arange(6, dtype=TORCH_DTYPES[dtype]).reshape(2, 3)
    borrowed = minitorch.from_dlpack(theirs.t())
    assert borrowed.dtype is dtype and borrowed.tolist() == theirs.t().tolist()
    borrowed[0, 1] = -1
    assert theirs[1, 0] == -1
    assert minitorch.from_dlpack(x).equal(x)
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        minitorch.from_dlpack(torch.zeros(2, dtype=torch.float8_e5m2))


# --------------------------------------------------------------------- modules


def models() -> Any:
    def build(m: Any) -> Any:
        return m.nn.Sequential(
            m.nn.Conv2d(1, 4, 3), m.nn.BatchNorm2d(4), m.nn.GELU(), m.nn.Flatten(),
            m.nn.Linear(16, 8), m.nn.LayerNorm(8), m.nn.Linear(8, 3),
        )  # fmt: skip

    mine, theirs = build(minitorch), build(torch)
    state = mine.state_dict()
    theirs.load_state_dict({k: torch.tensor(v.tolist()) for k, v in state.items()})
    return mine, theirs


@half
def test_modules(dtype):
    mine, theirs = models()
    kind, eps = TORCH_DTYPES[dtype], finfo(dtype).eps
    wide = copy.deepcopy(theirs).double()
    (mine.half if dtype is float16 else mine.bfloat16)()
    theirs.to(kind)
    assert {p.dtype for p in mine.parameters()} == {dtype}
    assert {b.dtype for b in mine.buffers()} == {dtype, int64}
    image = np.random.default_rng(2).standard_normal((5, 1, 4, 4)).astype(dtype.numpy)
    x = minitorch.tensor(image)
    y = torch.tensor(image.astype(np.float64))
    labels = [0, 2, 1, 1, 0]
    loss = F.cross_entropy(mine(x), minitorch.tensor(labels))
    truth = torch_functional.cross_entropy(wide(y), torch.tensor(labels))
    same = torch_functional.cross_entropy(theirs(y.to(kind)), torch.tensor(labels))
    assert loss.dtype is dtype and close(loss, same, truth, 2, 2 * eps)
    loss.backward(), truth.backward(), same.backward()
    assert {p.grad.dtype for p in mine.parameters()} == {dtype}
    # All in one: the gradient of a bias before batch norm is 0, and what is seen of it
    # is rounding alone.
    grads = [
        m.cat([p.grad.reshape(-1) for p in model.parameters()])
        for m, model in ((minitorch, mine), (torch, theirs), (torch, wide))
    ]
    assert close(*grads, 3, 4 * eps)
    assert mine.float()[0].weight.dtype is float32


def test_attention_and_losses_in_half_types():
    for dtype in HALVES:
        layer = nn.MultiheadAttention(8, 2, batch_first=True).to(dtype)
        x = minitorch.randn(2, 5, 8, dtype=dtype)
        assert layer(x, x, x)[0].dtype is dtype
        for loss in (nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss()):
            assert loss(x, x * 0.5).dtype is dtype
        weights = minitorch.tensor([0.0, 1.0, 0.0], dtype=dtype)
        assert minitorch.multinomial(weights, 1).item() == 1


@half
def test_in_place_beside_a_wider_tensor(device, dtype):
    """The wider operand is not rounded before it is used."""
    start, other = [0.1, 3.0, 1e-7], [0.3, 1e9, 1e-7]
    for name in ("add_", "sub_", "mul_", "div_"):
        mine = minitorch.tensor(start, dtype=dtype, device=device)
        theirs = torch.tensor(start, dtype=TORCH_DTYPES[dtype])
        getattr(mine, name)(minitorch.tensor(other, device=device))
        getattr(theirs, name)(torch.tensor(other))
        assert mine.dtype is dtype
        np.testing.assert_array_equal(exact(mine), exact(theirs))


@half
@pytest.mark.parametrize("op", OPERATIONS["in place"], ids=str)
def test_in_place_where_elements_have_gaps(device, dtype, op):
    """Nothing that was converted on the way is written in place of the tensor."""
    x, y = (minitorch.rand(*n, 4, dtype=dtype, device=device) for n in ([3], []))
    if op.kinds == "b":
        x, y = x > 0.5, y > 0.5
    rows, columns = op.fn(minitorch, x - 0.5 if op.kinds == "f" else x, y + y)
    np.testing.assert_array_equal(exact(rows), exact(columns))


@half
def test_clipped_gradients_of_half_parameters(device, dtype):
    """They can be read, and taken by an optimizer that multiplies nothing itself."""
    p = minitorch.tensor([1.0, 2.0], dtype=dtype, device=device, requires_grad=True)
    p.grad = minitorch.tensor([300.0, 400.0], dtype=dtype, device=device)
    nn.utils.clip_grad_norm_([p], 1.0)
    minitorch.optim.SGD([p], lr=1.0).step()
    near = 2 * finfo(dtype).eps
    np.testing.assert_allclose(exact(p.grad), [0.6, 0.8], rtol=near)
    np.testing.assert_allclose(exact(p), [0.4, 1.2], rtol=2 * near)
