"""Optimizer steps on the GPU, against the CPU backend's and PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fast_ops import memory as host_memory
from minitorch import dtypes
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import big

pytest.importorskip("numba_cuda")
from cuda_ops import memory, optim

on_cpu = get_backend("cpu")
CHUNK = optim.CHUNK
SIZES = [(1,), (3,), (4,), (0,), (CHUNK - 1,), (CHUNK,), (CHUNK + 5,), (2, 3)]
MANY = [(1 + i % 5,) for i in range(35)]


def tensors(shapes: list[tuple[int, ...]], kind: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(kind) for shape in shapes]


def both(arrays: list[np.ndarray]) -> tuple[list[TensorData], list[TensorData]]:
    ours = [memory.from_numpy(x) for x in arrays]
    return ours, [host_memory.from_numpy(x.copy()) for x in arrays]


def close(ours: list[TensorData], theirs: list[TensorData]) -> None:
    """Equal but for two roundings: one side may fuse a product and a sum."""
    for x, y in zip(ours, theirs):
        rtol = 1e-5 if x.dtype is dtypes.float32 else 1e-12
        np.testing.assert_allclose(
            memory.to_numpy(x), host_memory.to_numpy(y), rtol=rtol, atol=rtol / 10
        )


ADAM = [
    (1, 1e-3, 0.9, 0.999, 1e-8, 0.0, False),
    (7, 0.1, 0.8, 0.99, 1e-5, 0.1, False),
    (100, 0.05, 0.0, 0.9, 1e-8, 0.2, True),
]


@pytest.mark.parametrize("shapes", [SIZES, MANY, []], ids=["sizes", "many", "none"])
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("options", ADAM)
def test_adam(shapes: Any, kind: str, options: tuple[Any, ...]) -> None:
    lists = [both(tensors(shapes, kind, seed)) for seed in range(3)]
    lists.append(both([x**2 for x in tensors(shapes, kind, 3)]))
    optim.adam_step(*[ours for ours, _ in lists], *options)
    on_cpu.adam_step(*[theirs for _, theirs in lists], *options)
    for ours, theirs in lists:
        close(ours, theirs)


SGD = [
    (0.1, 0.0, 0.0, 0.0, False, False),
    (0.1, 0.0, 0.0, 0.3, False, True),
    (0.1, 0.9, 0.0, 0.0, False, True),
    (0.1, 0.9, 0.2, 0.1, False, False),
    (0.1, 0.9, 0.0, 0.1, True, False),
]


@pytest.mark.parametrize("shapes", [SIZES, MANY], ids=["sizes", "many"])
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("options", SGD)
def test_sgd(shapes: Any, kind: str, options: tuple[Any, ...]) -> None:
    lists = [both(tensors(shapes, kind, seed)) for seed in range(3)]
    ours, theirs = [a for a, _ in lists], [b for _, b in lists]
    if options[1] == 0:
        ours[2], theirs[2] = None, None  # type: ignore[call-overload]
    optim.sgd_step(*ours, *options)
    on_cpu.sgd_step(*theirs, *options)
    for x, y in zip(ours, theirs):
        if x is not None:
            close(x, y)


def test_a_first_step_does_not_read_the_velocity() -> None:
    p, g = memory.from_numpy(np.ones(5, "f4")), memory.from_numpy(np.ones(5, "f4"))
    b = memory.from_numpy(np.full(5, np.nan, "f4"))
    optim.sgd_step([p], [g], [b], 0.5, 0.9, 0.0, 0.0, False, True)
    np.testing.assert_array_equal(memory.to_numpy(b), 1.0)
    np.testing.assert_array_equal(memory.to_numpy(p), 0.5)


def test_views_and_mixed_types() -> None:
    """A permuted parameter, one that begins at an odd address, and a float64 one."""

    def views(seed: int) -> list[list[TensorData]]:
        x, y, z = tensors([(3, 4), (9,), (5,)], "f4", seed)
        lists = both([x**2, y**2, z.astype("f8") ** 2])
        return [[a.permute((1, 0)), b.slice(0, 1, 8), c] for a, b, c in lists]

    lists = [views(seed) for seed in range(4)]
    options = (3, 0.01, 0.9, 0.999, 1e-8, 0.1, False)
    optim.adam_step(*[ours for ours, _ in lists], *options)
    on_cpu.adam_step(*[theirs for _, theirs in lists], *options)
    for ours, theirs in lists:
        close(ours, theirs)


@pytest.mark.parametrize("shapes", [SIZES, MANY, []], ids=["sizes", "many", "none"])
@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
def test_copy_all(shapes: Any, kind: str) -> None:
    outs, _ = both(tensors(shapes, kind, 0))
    wanted = tensors(shapes, kind, 1)
    get_backend("cuda").copy_all(outs, both(wanted)[0])
    for out, x in zip(outs, wanted):
        np.testing.assert_array_equal(memory.to_numpy(out), x)


def test_copies_of_views_and_mixed_types() -> None:
    """Permuted on either side, at odd addresses, and between others of other types."""
    x, y, z = tensors([(4, 3), (9,), (5,)], "f4", 0)
    (a, b, c), _ = both([x, y, z.astype("f8")])
    (p, q, r), _ = both([np.zeros((3, 4), "f4"), np.zeros(9, "f4"), np.zeros(5)])
    s = memory.from_numpy(np.zeros((4, 3), "f4"))
    odd = q.slice(0, 1, 7)
    given = [(p, a.permute((1, 0))), (odd, b.slice(0, 2, 7)), (r, c)]
    given.append((s.permute((1, 0)), p))
    optim.copy_all(*zip(*given[:3]))
    optim.copy_all(*zip(*given[3:]))
    np.testing.assert_array_equal(memory.to_numpy(p), x.T)
    np.testing.assert_array_equal(memory.to_numpy(q), [0, *y[2:9], 0])
    np.testing.assert_array_equal(memory.to_numpy(r), z.astype("f8"))
    np.testing.assert_array_equal(memory.to_numpy(s), x)


def test_tensors_of_one_parameter_have_one_type() -> None:
    p, g = memory.from_numpy(np.ones(2, "f4")), memory.from_numpy(np.ones(2, "f8"))
    with pytest.raises(TypeError, match=r"\['float32', 'float64'\]"):
        optim.sgd_step([p], [g], None, 0.1, 0.0, 0.0, 0.0, False, False)


def test_adam_is_pytorchs() -> None:
    x, grads = tensors([(11,)], "f8", 0)[0], tensors([(11,)] * 3, "f8", 1)
    theirs = torch.nn.Parameter(torch.from_numpy(x.copy()))
    adam = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.3)
    p, m, v = (memory.from_numpy(a) for a in (x, np.zeros(11), np.zeros(11)))
    for step, grad in enumerate(grads, 1):
        theirs.grad = torch.from_numpy(grad)
        adam.step()
        optim.adam_step(
            [p], [memory.from_numpy(grad)], [m], [v],
            step, 0.1, 0.9, 0.999, 1e-8, 0.3, True,
        )  # fmt: skip
    np.testing.assert_allclose(memory.to_numpy(p), theirs.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_captured_adam_counts_by_itself(kind: str) -> None:
    """The launches of a graph, made again and again by hand."""
    lists = [both(tensors(SIZES, kind, seed)) for seed in range(2)]
    lists += [both([np.zeros(s, kind) for s in SIZES]) for _ in range(2)]
    ours, theirs = [a for a, _ in lists], [b for _, b in lists]
    options = (0.9, 0.999, 1e-8, 0.1, True)
    made = []
    for step, lr in ((4, 0.1), (5, 0.1), (6, 0.02)):
        on_cpu.adam_step(*theirs, step, lr, *options)
        if not made:
            made = captured_adam(ours, step, lr, options)
        else:
            made[0].set(lr=lr, count=step - 1)
            optim.adam_step(*ours, step, made[0], *options)
    for x, y in zip(ours, theirs):
        close(x, y)
    assert memory.to_numpy(made[0].device_count).tolist() == [6]


def captured_adam(
    lists: Any, step: int, lr: float, options: tuple[Any, ...]
) -> list[optim.Captured]:
    """Capture a step; here that also runs it, with numbers that are not there yet."""
    state = optim.Captured(lr, step - 1, lists[0][0].dtype)
    state.set()
    optim.adam_step(*lists, step, state, *options)
    return [state]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_captured_step_has_its_numbers_from_the_device(momentum: float) -> None:
    lists = [tensors(SIZES, "f4", seed) for seed in range(3)]
    ours, theirs = ([both(column)[0] for column in lists] for _ in range(2))
    options = (momentum, 0.0, 0.1, False, False)
    numbers = optim.Captured(0.5, 7, dtypes.float32)
    numbers.set()
    for given, lr in ((ours, numbers), (theirs, 0.5)):
        optim.sgd_step(given[0], given[1], given[2] if momentum else None, lr, *options)
    for x, y in zip(ours[0], theirs[0]):
        assert np.array_equal(memory.to_numpy(x), memory.to_numpy(y))
    assert memory.to_numpy(numbers.device_count).tolist() == [8]
    numbers.set(lr=0.25, count=3)
    assert memory.to_numpy(numbers.device_lr).tolist() == [0.25]
    assert memory.to_numpy(numbers.device_count).tolist() == [3]


@pytest.mark.skipif(not big, reason="ten million elements take hours in the simulator")
def test_large() -> None:
    lists = [
        both([abs(x) for x in tensors([(10_000_001,)], "f4", s)]) for s in range(4)
    ]
    optim.adam_step(*[ours for ours, _ in lists], *ADAM[1])
    on_cpu.adam_step(*[theirs for _, theirs in lists], *ADAM[1])
    for ours, theirs in lists:
        close(ours, theirs)
