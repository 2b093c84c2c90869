"""What Mojo's kernels compute on a GPU, against PyTorch.

They run on a GPU only: Numba's simulator cannot run PTX. What can be tested without one
is in `test_gpu_compile.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import minitorch as mt
from helpers import SIMULATED
from minitorch.cuda import is_available

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        SIMULATED or not is_available(),
        reason="Mojo's kernels are PTX: they need a GPU, the simulator cannot run them",
    ),
]
if not SIMULATED and is_available():
    from mojo_ops import build, gpu
    from mojo_ops.gpu import compile as mojo

    if build.kept(mojo.place("reduce", mt.cuda.get_device_capability())) is None:
        try:
            mojo.check_compiler()
        except RuntimeError as error:
            pytest.skip(str(error), allow_module_level=True)

SPECIAL = [0.0, -0.0, 1e-30, 88.5, -80.0, 20.0, float("inf"), float("nan")]


def numbers(*shape: int) -> Any:
    """Normal numbers, a few special ones among them, on the CPU."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if x.numel() > 100:
        x.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL)
    return x


def on_gpu(x: Any, skip: int = 0) -> Any:
    """The same numbers on the device, `skip` elements behind an aligned address."""
    room = mt.zeros(x.numel() + skip, device="cuda")
    part = room[skip:]
    part.copy_(mt.tensor(x.numpy().reshape(-1)))
    return part.reshape(x.shape).raw


def check(raw: Any, right: Any, rtol: float, atol: float = 1e-37) -> None:
    mine = torch.from_numpy(mt.Tensor(raw).numpy())
    torch.testing.assert_close(
        mine, right.float().reshape(mine.shape), rtol=rtol, atol=atol, equal_nan=True
    )


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("n", [0, 1, 1024, 4099, 2**21 + 5])
@pytest.mark.parametrize("name", ["relu", "exp", "tanh", "gelu"])
def test_map(name: str, n: int, skip: int) -> None:
    their = torch.nn.functional.gelu if name == "gelu" else getattr(torch, name)
    fn: Callable = {
        "relu": gpu.relu, "exp": gpu.exp, "tanh": gpu.tanh, "gelu": gpu.gelu,
    }[name]  # fmt: skip
    x = numbers(n)
    check(fn(on_gpu(x, skip)), their(x.double()), 0 if name == "relu" else 2e-6)


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("n", [0, 1, 1024, 4099, 2**21 + 5])
def test_zip(n: int, skip: int) -> None:
    x, y = numbers(n), numbers(n).flip(0)
    a, b = on_gpu(x, skip), on_gpu(y, skip)
    check(gpu.add(a, b), x + y, 0, 0)
    check(gpu.mul(a, b), x * y, 0, 0)


def test_any_strides() -> None:
    x = numbers(30, 50)
    flipped = on_gpu(x).permute((1, 0))
    check(gpu.relu(flipped), x.T.relu(), 0)
    check(gpu.add(flipped, flipped), x.T + x.T, 0)


SHAPES = [(1, 1), (3, 5), (7, 1000), (5, 4096), (2, 70_001), (4000, 33), (3, 0), (0, 4)]


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums(shape: tuple[int, int], skip: int) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    a = on_gpu(x, skip)
    check(gpu.sum_rows(a), x.double().sum(1), 1e-5, 1e-3)
    check(gpu.sum_all(a), x.double().sum(), 1e-5, 1e-2)


def test_sums_are_the_same_in_every_run() -> None:
    a = on_gpu(torch.randn(3_000_001, generator=torch.Generator().manual_seed(0)))
    first = mt.Tensor(gpu.sum_all(a)).item()
    assert all(mt.Tensor(gpu.sum_all(a)).item() == first for _ in range(10))


PRODUCTS = [  # M, N, K
    (1, 1, 1), (64, 128, 16), (65, 129, 17), (100, 50, 3), (33, 4, 1000),
    (500, 700, 300), (5, 7, 0), (0, 4, 3), (130, 260, 64),
]  # fmt: skip


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("name", ["matmul", "matmul_tiled"])
@pytest.mark.parametrize("shape", PRODUCTS)
def test_matmul(name: str, shape: tuple[int, int, int], skip: int) -> None:
    M, N, K = shape
    fn = gpu.matmul if name == "matmul" else gpu.matmul_tiled
    random = torch.Generator().manual_seed(0)
    x, y = (torch.randn(s, generator=random) for s in ((M, K), (K, N)))
    right = x.double() @ y.double()
    check(fn(on_gpu(x, skip), on_gpu(y, skip)), right, 1e-5, 1e-4)
    flipped = on_gpu(x.T.contiguous()).permute((1, 0))
    check(fn(flipped, on_gpu(y)), right, 1e-5, 1e-4)


def test_in_a_graph() -> None:
    x = torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    a = mt.Tensor(on_gpu(x))
    gpu.relu(gpu.matmul(a.raw, a.raw))
    graph = mt.cuda.CUDAGraph()
    with mt.cuda.graph(graph):
        out = gpu.relu(gpu.matmul(a.raw, a.raw))
    a.mul_(2)
    graph.replay()
    check(out, 4 * (x @ x).relu(), 1e-4, 1e-3)


def test_what_is_not_accepted() -> None:
    a, b = mt.ones(3, 4, device="cuda").raw, mt.ones(2, 2, device="cuda").raw
    with pytest.raises(ValueError, match=r"expected one shape"):
        gpu.add(a, b)
    with pytest.raises(ValueError, match=r"expected matrices"):
        gpu.matmul(a, b)
    with pytest.raises(ValueError, match=r"expected a matrix"):
        gpu.sum_rows(mt.ones(3, device="cuda").raw)
    with pytest.raises(TypeError, match=r"float32"):
        gpu.relu(mt.ones(3, dtype=mt.float64, device="cuda").raw)
