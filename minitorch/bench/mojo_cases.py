"""Kernels in Mojo and in Numba side by side, on the GPU.

With this file one can list the cases of `minitorch bench mojo --device cuda`
(`mojo_cases`): the same operation by Mojo's kernel and by Numba's, each against
PyTorch. Both are started by the same launcher on the same memory, so the quotient of
their two rows is that of the compilers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import minitorch.operators as operators
from minitorch.bench.gpu_cases import COLUMNS, LARGE, ROWS
from minitorch.bench.inputs import Case, nearly_equal, on_raw, torch_module


def mojo_cases() -> Iterator[Case]:
    """Each operation twice: by Mojo, and by Numba."""
    yield from _elementwise()
    yield from _sums()
    yield from _products()


def _by_each(
    name: str,
    mojo: Callable,
    numba: Callable,
    theirs: Callable,
    shapes: Sequence[tuple[int, ...]],
    moved: float,
    flops: float = 0.0,
) -> Iterator[Case]:
    for who, ours in (("Mojo", mojo), ("Numba", numba)):
        build = partial(on_raw, ours, theirs, shapes)
        yield Case("mojo", f"{name}, {who}", build, flops, moved, agree=nearly_equal)


def _elementwise() -> Iterator[Case]:
    from cuda_ops import elementwise
    from mojo_ops import gpu

    torch, n = torch_module(), LARGE
    add = partial(elementwise.zip, operators.add)
    yield from _by_each("add 2^28", gpu.add, add, torch.add, [(n,), (n,)], 12.0 * n)
    for name, mojo, op, theirs in (
        ("exp", gpu.exp, operators.exp, torch.exp),
        ("gelu", gpu.gelu, operators.gelu, torch.nn.functional.gelu),
    ):
        numba = partial(elementwise.map, op)
        yield from _by_each(f"{name} 2^28", mojo, numba, theirs, [(n,)], 8.0 * n)


def _sums() -> Iterator[Case]:
    from cuda_ops.reduce import reduce
    from mojo_ops import gpu

    torch, moved = torch_module(), 4.0 * ROWS * COLUMNS
    for what, mojo, dims, theirs in (
        ("rows", gpu.sum_rows, (1,), partial(torch.sum, dim=1)),
        ("all", gpu.sum_all, (0, 1), torch.sum),
    ):
        numba = lambda a, dims=dims: reduce(operators.add, a, dims, 0)
        name = f"sum of {what}, {ROWS} x {COLUMNS}"
        yield from _by_each(name, mojo, numba, theirs, [(ROWS, COLUMNS)], moved)


def _products() -> Iterator[Case]:
    from cuda_ops.matmul import matmul
    from mojo_ops import gpu

    kernels: dict[str, Any] = {
        "shared tiles": (gpu.matmul_tiled, matmul.matmul_tiled),
        "the best": (gpu.matmul, matmul.matmul),
    }
    for n, which in (
        (2048, "shared tiles"), (2048, "the best"), (4096, "the best"),
        (8192, "the best"),
    ):  # fmt: skip
        mojo, numba = kernels[which]
        yield from _by_each(
            f"matmul {n}, {which}", mojo, numba, torch_module().matmul,
            [(n, n)] * 2, 12.0 * n * n, 2.0 * n**3,
        )  # fmt: skip
