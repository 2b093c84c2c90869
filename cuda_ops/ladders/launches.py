"""Each step of the ladders, and what else the course asks for, ready to be launched.

With this file one can launch a kernel of the library on operands of a size that shows
what it does (`LAUNCHES`), which is what an x-ray needs:

    LAUNCHES["transpose_padded"].run()      # kernel "transpose_padded"
    LAUNCHES["matmul_tiled"].run()          # kernel "matmul_shared_tiles"

Sides are multiples of the tiles, so that all blocks do the same, and products have few
steps of k, since each of them takes the simulator a second.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData


class Launch(NamedTuple):
    """A kernel, as `Kernel.name` has it without brackets, and what launches it."""

    kernel: str
    run: Callable[[], Any]


def numbers(*shape: int, dtype: Any = np.float32) -> TensorData:
    """Numbers from 0 to 1, the same ones each time; whole ones if the type is."""
    made = np.random.default_rng(0).random(shape)
    made = np.rint(made) if np.dtype(dtype).kind == "i" else made
    return get_backend("cuda").from_numpy(made.astype(dtype))


def _call(place: str, *shapes: tuple[int, ...]) -> Callable[[], Any]:
    """Calls "module:function" with tensors of these shapes."""
    return lambda: _function(place)(*(numbers(*shape) for shape in shapes))


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"cuda_ops.{module}"), name)


def _scalar(place: str, fn: str, *shapes: tuple[int, ...]) -> Callable[[], Any]:
    """The same of `map` or `zip` with a scalar function."""

    def run() -> None:
        from minitorch import operators

        _function(place)(vars(operators)[fn], *(numbers(*shape) for shape in shapes))

    return run


def _turned(place: str, fn: str, shape: tuple[int, ...]) -> Callable[[], Any]:
    """`zip` of a matrix and a transposed one."""

    def run() -> None:
        from minitorch import operators

        a = numbers(*shape)
        b = TensorData(numbers(*shape).storage, shape, (1, shape[0]), 0)
        _function(place)(vars(operators)[fn], a, b)

    return run


def _scan() -> Any:
    return _function("scan:exclusive_scan")(numbers(1 << 20, dtype=np.int64))


def _puzzle(
    name: str, grid: tuple[Any, Any], arrays: tuple[int, ...], *more: int
) -> Launch:
    """A kernel of a4w on whole numbers, in arrays of these sizes."""

    def run() -> None:
        flat = [numbers(size, dtype=np.int64).flat() for size in arrays]
        _function(f"ladders.puzzles:{name}")[grid](*flat, *more)

    return Launch(name, run)


def _sparse(rung: str, columns: int, rows: int = 4096) -> Callable[[], Any]:
    """A rung on rows with 0 to 64 elements each."""

    def run() -> None:
        random = np.random.default_rng(0)
        ends = np.concatenate([[0], random.integers(0, 65, rows).cumsum()])
        places = random.integers(0, rows, ends[-1])
        crow, col = (get_backend("cuda").from_numpy(a) for a in (ends, places))
        operands = numbers(len(places)), numbers(rows, columns)
        _function(f"ladders.sparse:{rung}")(crow, col, *operands)

    return run


def _layer_norm() -> None:
    _function("norm:layer_norm")(numbers(512, 2048), *[numbers(2048)] * 2, 1e-5)


def _layer_norm_backward() -> None:
    grad, x, column, row = numbers(1024, 1024), numbers(1024, 1024), 1024, numbers(1024)
    _function("norm:layer_norm_backward")(grad, x, row, row, numbers(column))


def _adam() -> None:
    lists = [[numbers(1 << 20)] for _ in range(4)]
    options = (1e-3, 0.9, 0.999, 1e-8, 0.1, True)
    _function("optim:adam_step")(*lists, 1, *options)


def _bias() -> None:
    from minitorch.operators import gelu

    _function("linear:bias_activation")(numbers(*SQUARE), numbers(2048), gelu)


def _bias_backward() -> None:
    from minitorch.operators import gelu_backward

    x, row = numbers(*SQUARE), numbers(2048)
    _function("linear:bias_activation_backward")(x, x, row, gelu_backward)


def _attention() -> None:
    _function("ladders.attention:attention_tiled")(
        *(numbers(1, 1, rows, 32) for rows in (24, 64, 64)), False
    )


SQUARE = (2048, 2048)
MILLION = (1 << 20,)
LARGE = (1 << 22,)
# [M, K] @ [K, N] of two steps of the tiles, or some of k without tiles.
_SHORT, _TILED = ((256, 16), (16, 256)), ((256, 64), (64, 256))

# As they are drawn in the handout.
PUZZLES = (
    _puzzle("add_ten", (1, 5), (5, 5)),
    _puzzle("glue_digits", (1, 3), (3, 3, 3)),
    _puzzle("double_guarded", (1, 8), (5, 5)),
    _puzzle("lower_triangle", (1, (4, 4)), (6, 6), 2, 3),
    _puzzle("times_table", (1, (4, 4)), (2, 3, 6)),
    _puzzle("every_second", (2, 8), (20, 10)),
    _puzzle("turn_blocks", (2, 8), (16, 16)),
    _puzzle("sum_of_three", (2, 8), (14, 12)),
    _puzzle("dot_product", (1, 8), (3, 3, 1)),
    _puzzle("count_values", (1, 8), (5, 4)),
)

LAUNCHES: dict[str, Launch] = {
    **{puzzle.kernel: puzzle for puzzle in PUZZLES},
    **{
        f"transpose_{rung}": Launch(
            f"transpose_{rung}", _call(f"transpose:{rung}", SQUARE)
        )
        for rung in ("uncoalesced", "tiled", "padded", "vectorized")
    },
    **{
        rung: Launch(f"{rung}_blocks", _call(f"ladders.reduce:{rung}", MILLION))
        for rung in (
            "sum_divergent", "sum_contiguous", "sum_several", "sum_shuffle",
            "sum_vectorized",
        )
    },
    **{
        f"softmax_{rung}": Launch(kernel, _call(f"ladders.softmax:{rung}", (256, 4096)))
        for rung, kernel in (
            ("three_passes", "softmax_three_passes"),
            ("two_passes", "softmax_two_passes"),
            ("one_pass", "softmax_rows"),
        )
    },
    **{
        rung: Launch(kernel, _call(f"matmul.matmul:{rung}", *shapes))
        for rung, kernel, shapes in (
            ("matmul_naive", "matmul_one_by_one", _SHORT),
            ("matmul_coalesced", "matmul_row_by_row", _SHORT),
            ("matmul_tiled", "matmul_shared_tiles", ((64, 64), (64, 32))),
            ("matmul_coarsened", "matmul_column_tiles", _SHORT),
            ("matmul_squared", "matmul_square_outputs", _SHORT),
            ("matmul_buffered", "matmul_two_slots", _SHORT),
            ("matmul_vectorized", "matmul_vectorized", _TILED),
            ("matmul_tensor_core", "matmul_tensor_core", _TILED),
        )
    },
    "map_large": Launch("map_large", _scalar("elementwise:map", "exp", LARGE)),
    "map_flat": Launch("map_flat", _scalar("elementwise:map", "exp", MILLION)),
    "zip_large": Launch("zip_large", _scalar("elementwise:zip", "add", LARGE, LARGE)),
    "zip_flat": Launch("zip_flat", _scalar("elementwise:zip", "add", MILLION, MILLION)),
    "zip_repeated": Launch(
        "zip_repeated", _scalar("elementwise:zip", "add", SQUARE, (2048,))
    ),
    "zip_strided": Launch("zip_strided", _turned("elementwise:zip", "add", SQUARE)),
    "scan_tiles": Launch("scan_tiles", _scan),
    "add_before": Launch("add_before", _scan),
    "csr_row_a_thread": Launch("csr_row_a_thread", _sparse("row_a_thread", 1)),
    "csr_row_a_warp": Launch("csr_row_a_warp", _sparse("row_a_warp", 1)),
    "csr_row_a_warp_wide": Launch("csr_row_a_warp_wide", _sparse("row_a_warp", 32)),
    "csr_balanced": Launch("csr_balanced", _sparse("balanced", 32, 48)),
    "bias_rows": Launch("bias_rows", _bias),
    "bias_rows_backward": Launch("bias_rows_backward", _bias_backward),
    "attention_tiled": Launch("attention_shared_tiles", _attention),
    "layer_norm_rows": Launch("layer_norm_rows", _layer_norm),
    "layer_norm_backward_rows": Launch(
        "layer_norm_backward_rows", _layer_norm_backward
    ),
    "adam_chunks": Launch("adam_chunks", _adam),
}  # fmt: skip


def find(name: str) -> Launch:
    """By its own name, or its kernel's.

    Raises:
        ValueError: it is not here.
    """
    for known, launch in LAUNCHES.items():
        if name in (known, launch.kernel):
            return launch
    raise ValueError(
        f"xray: there is no kernel {name!r}; `minitorch xray --list` prints the names "
        f"of all {len(LAUNCHES)}. One of your own is FILE:KERNEL"
    )
