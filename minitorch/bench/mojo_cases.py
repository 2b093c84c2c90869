"""Kernels in Mojo and in Numba side by side, on the GPU.

With this file one can list the cases of `minitorch bench mojo --device cuda`
(`mojo_cases`): the same operation by Mojo's kernel and by Numba's, each against
PyTorch. Both are started by the same launcher on the same memory, so the quotient of
their two rows is that of the compilers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import minitorch.operators as operators
from minitorch.bench.cases import Case, torch_module
from minitorch.bench.gpu_cases import nearly_equal, on_raw

LARGE = 2**28
ROWS, COLUMNS = 16_384, 4_096


class _Same(NamedTuple):
    """One operation, by three libraries."""

    name: str
    mojo: Callable
    numba: Callable
    torch: Callable
    shapes: Sequence[tuple[int, ...]]
    flops: float
    moved: float


def mojo_cases() -> Iterator[Case]:
    """Each operation twice: by Mojo, and by Numba."""
    torch_module().set_float32_matmul_precision("highest")
    for same in (*_elementwise(), *_sums(), *_products()):
        for who, ours in (("Mojo", same.mojo), ("Numba", same.numba)):
            yield Case(
                "mojo", f"{same.name}, {who}",
                partial(on_raw, ours, same.torch, list(same.shapes)),
                same.flops, same.moved, agree=nearly_equal,
            )  # fmt: skip


def _elementwise() -> Iterator[_Same]:
    from cuda_ops import elementwise
    from mojo_ops import gpu

    torch, n = torch_module(), LARGE
    yield _Same(
        "add 2^28", gpu.add, partial(elementwise.zip, operators.add), torch.add,
        [(n,), (n,)], 0, 12.0 * n,
    )  # fmt: skip
    for name, ours, op, their_op in (
        ("exp", gpu.exp, operators.exp, torch.exp),
        ("gelu", gpu.gelu, operators.gelu, torch.nn.functional.gelu),
    ):
        numba = partial(elementwise.map, op)
        yield _Same(f"{name} 2^28", ours, numba, their_op, [(n,)], 0, 8.0 * n)


def _sums() -> Iterator[_Same]:
    from cuda_ops.reduce import reduce
    from mojo_ops import gpu

    def numba(dims: tuple[int, ...], a: Any) -> Any:
        return reduce(operators.add, a, dims, 0)

    torch, moved = torch_module(), 4.0 * ROWS * COLUMNS
    shapes = [(ROWS, COLUMNS)]
    yield _Same(
        f"sum of rows, {ROWS} x {COLUMNS}", gpu.sum_rows, partial(numba, (1,)),
        partial(torch.sum, dim=1), shapes, 0, moved,
    )  # fmt: skip
    yield _Same(
        f"sum of all, {ROWS} x {COLUMNS}", gpu.sum_all, partial(numba, (0, 1)),
        torch.sum, shapes, 0, moved,
    )  # fmt: skip


def _products() -> Iterator[_Same]:
    from cuda_ops.matmul import matmul
    from mojo_ops import gpu

    for name, n, ours, numba in (
        ("shared tiles", 2048, gpu.matmul_tiled, matmul.matmul_tiled),
        ("the best", 2048, gpu.matmul, matmul.matmul),
        ("the best", 4096, gpu.matmul, matmul.matmul),
        ("the best", 8192, gpu.matmul, matmul.matmul),
    ):
        yield _Same(
            f"matmul {n}, {name}", ours, numba, torch_module().matmul,
            [(n, n)] * 2, 2.0 * n**3, 12.0 * n * n,
        )  # fmt: skip
