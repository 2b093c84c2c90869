"""What a7 runs in the student's process: sparse matrices as lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from assignments.calling import (
    Timed,
    called,
    gradients,
    is_shared,
    most_writers,
    operand,
    operands_of,
    results,
    rung_of,
    tensor,
    timed,
)
from assignments.fences import fenced

# ----------------------------------------------------------------------- building CSR


def pattern(device: str, a: np.ndarray, layout: str) -> dict[str, Any]:
    """`csr_pattern`"""
    from minitorch.backend import get_backend

    x = operand(device, a, layout)
    crow, col = get_backend(device).csr_pattern(x)
    return results({"crow": crow, "col": col}, {"a": x})


def transposed(
    device: str, crow: np.ndarray, col: np.ndarray, cols: int
) -> dict[str, Any]:
    """`csr_transpose`"""
    from minitorch.backend import get_backend

    given = operands_of(device, crow=crow, col=col)
    crow_t, col_t, order = get_backend(device).csr_transpose(**given, cols=cols)
    return results({"crow_t": crow_t, "col_t": col_t, "order": order}, given)


def dense(device: str, cols: int, **lists: np.ndarray) -> dict[str, Any]:
    """`csr_to_dense`"""
    from minitorch.backend import get_backend

    return called(get_backend(device).csr_to_dense, _matrix(device, **lists), cols)


def elements(device: str, crow: np.ndarray, col: np.ndarray) -> dict[str, Any]:
    """`_elements` of simple_ops: all (p, row, column)."""
    from minitorch.simple_ops.sparse import _elements

    found = _elements(operand(device, crow), operand(device, col))
    return {"elements": [[int(n) for n in element] for element in found]}


def _matrix(
    device: str, crow: np.ndarray, col: np.ndarray, values: np.ndarray, **other: Any
) -> dict[str, Any]:
    """The three lists of a matrix as operands, and what it is multiplied by."""
    return operands_of(device, crow=crow, col=col, values=values, **other)


# --------------------------------------------------------------------------- products


def product(
    device: str, b: np.ndarray, layout: str, **lists: np.ndarray
) -> dict[str, Any]:
    """The backend's `csr_matmul`."""
    from minitorch.backend import get_backend

    given = {**_matrix(device, **lists), "b": operand(device, b, layout)}
    return called(get_backend(device).csr_matmul, given)


def rung(device: str, name: str, **lists: np.ndarray) -> dict[str, Any]:
    """A rung of the CPU's ladder of products with a vector."""
    from fast_ops.sparse_ladder import LADDER

    return called(rung_of(LADDER, name), _matrix(device, **lists))


def whole_matvec(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    x: np.ndarray,
    tasks: int,
) -> dict[str, Any]:
    """The kernel `_matvec` itself, into memory that holds NaN."""
    from fast_ops.sparse import matvec_serial

    out = fenced(np.full(crow.size - 1, np.nan, values.dtype))
    matvec_serial(*(fenced(a.copy()) for a in (crow, col, values, x)), out, tasks)
    return {"out": out}


def gpu_rung(device: str, name: str, **lists: np.ndarray) -> dict[str, Any]:
    """A rung of the GPU's ladder."""
    from cuda_ops.ladders.sparse import LADDER

    return called(LADDER[name], _matrix(device, **lists))


def gpu_shares(device: str, share: int, **lists: np.ndarray) -> dict[str, Any]:
    """The kernel `csr_balanced` itself: what groups write, into memory with NaN."""
    from cuda_ops.ladders.sparse import THREADS, WARPS, csr_balanced

    rows, n = lists["crow"].size - 1, lists["b"].shape[1]
    groups = -(-(rows + lists["col"].size) // share)
    made = operands_of(
        device,
        out=np.full((rows, n), np.nan, lists["values"].dtype),
        carry_row=np.full(groups, -1),
        carry=np.full((groups, n), np.nan, lists["values"].dtype),
    )
    given = _matrix(device, **lists)
    out, carry_row, carry = (a.flat() for a in made.values())
    arrays = [a.flat() for a in given.values()]
    csr_balanced[-(-groups // WARPS), THREADS](*arrays, out, n, share, carry_row, carry)
    return results(made, given)


def on_all_cores(device: str, name: str, n: int) -> dict[str, Any]:
    """Whether a kernel's work on n rows or tasks is shared among the cores."""
    from fast_ops import sparse, sparse_ladder

    crow, col, ones, square = np.arange(n + 1), np.arange(n), np.ones(n), np.ones(n * n)
    matrix = crow, col, ones
    given = {
        "_count": (sparse.count_row, square, n, crow.copy()),
        "_columns": (sparse.columns_of_row, np.eye(n).reshape(-1), n, crow, col.copy()),
        "_by_rows": (sparse_ladder._by_rows, *matrix, ones, np.empty(n), n),
        "_matvec": (sparse.matvec_parallel, *matrix, ones, np.empty(n), n),
        "_matmul": (
            sparse.matmul_parallel, *matrix, square, 0, n, np.empty(n * n), n, n, n,
        ),
        "_sample": (
            sparse.sample_parallel, crow, col, square, square, n, np.empty(n), n,
        ),
        "_merged": (
            sparse_ladder._merged, *matrix, ones, np.empty(n), crow[1:].copy(),
            np.empty(n),
        ),
    }  # fmt: skip
    kernel, *arguments = given[name]
    return {"shared": is_shared(kernel, *arguments)}


# --------------------------------------------------------------------- with gradients


def _sparse(
    device: str, crow: np.ndarray, col: np.ndarray, values: Any, cols: int
) -> Any:
    from minitorch import sparse_csr_tensor

    return sparse_csr_tensor(crow, col, values, (crow.size - 1, cols), device=device)


def product_gradients(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    b: np.ndarray,
    grad: np.ndarray,
    wanted: Sequence[bool],
) -> dict[str, Any]:
    """A @ b, and the gradients that are wanted."""
    v, right = tensor(device, values), tensor(device, b)
    v.requires_grad, right.requires_grad = wanted
    out = _sparse(device, crow, col, v, b.shape[0]) @ right
    return gradients(out, grad, values=v, b=right)


def sample_gradients(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    grad: np.ndarray,
    wanted: Sequence[bool],
) -> dict[str, Any]:
    """`CSRSample`, and the gradients that are wanted."""
    from minitorch.functions.sparse import CSRSample

    ones = tensor(device, np.ones(col.size, a.dtype))
    places = _sparse(device, crow, col, ones, b.shape[0]).pattern
    left, right = tensor(device, a), tensor(device, b)
    left.requires_grad, right.requires_grad = wanted
    out = CSRSample.apply(left, right, places)
    return gradients(out, grad, a=left, b=right)


def writers(
    device: str,
    name: str,
    crow: np.ndarray,
    col: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> dict[str, Any]:
    """How many tasks of a kernel write one element."""
    from fast_ops import sparse, sparse_ladder

    (rows, n), flat, tasks = a.shape, b.reshape(-1), sparse.TASKS
    values, x = np.ones(col.size, b.dtype), b[:, 0].copy()
    given: dict[str, tuple[Any, int, tuple[Any, ...], tuple[Any, ...]]] = {
        "_by_rows": (sparse_ladder._by_rows, rows, (values, x), ()),
        "_matvec": (sparse.matvec_parallel, rows, (values, x), ()),
        "_matmul": (sparse.matmul_parallel, rows * n, (values, flat, 0, n), (n, 2)),
        "_sample": (sparse.sample_parallel, col.size, (a.reshape(-1), flat, n), ()),
    }
    kernel, size, before, behind = given[name]
    run = lambda fn, out: fn(crow, col, *before, out, *behind, tasks)
    return {"writers of an element": most_writers(kernel, run, size)}


def transposed_gradients(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    cols: int,
    b: np.ndarray,
    grad: np.ndarray,
) -> dict[str, Any]:
    """`transposed_matmul`: A^T @ b, and both gradients."""
    from minitorch.functions.sparse import transposed_matmul

    v, right = tensor(device, values, requires_grad=True), tensor(device, b)
    right.requires_grad = True
    out = transposed_matmul(v, right, _sparse(device, crow, col, v, cols).pattern)
    return gradients(out, grad, values=v, b=right)


def to_dense_gradients(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    cols: int,
    grad: np.ndarray,
) -> dict[str, Any]:
    """`to_dense`, and the gradient of the values."""
    v = tensor(device, values, requires_grad=True)
    out = _sparse(device, crow, col, v, cols).to_dense()
    return gradients(out, grad, values=v)


def to_sparse_gradients(device: str, a: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    """The values of `to_sparse_csr`, and the gradient of the dense matrix."""
    x = tensor(device, a, requires_grad=True)
    return gradients(x.to_sparse_csr().values(), grad, a=x)


# ----------------------------------------------------------------------- load balance


def first_rows(device: str, crow: np.ndarray, tasks: int) -> dict[str, Any]:
    """`first_row` for all tasks and for the end of the last one."""
    from fast_ops.sparse import first_row

    rows = [int(first_row(crow.copy(), t, tasks)) for t in range(tasks + 1)]
    return {"rows": rows}


class _Looked:
    """A list that counts how often somebody looks at one of its numbers."""

    def __init__(self, numbers: range) -> None:
        self.numbers, self.size, self.count = numbers, len(numbers), 0
        self.shape = (self.size,)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> int:
        self.count += 1
        return self.numbers[i]


def looks(device: str, name: str, rows: int) -> dict[str, Any]:
    """Whether a row is found by a few looks at `crow`, three elements a row. (Of what
    Python cannot run nobody knows, so it counts.)"""
    from numba.core.errors import NumbaError

    from fast_ops import sparse, sparse_ladder

    crow = _Looked(range(0, 3 * rows + 1, 3))
    kernels: dict[str, Any] = {
        "first_row": sparse.first_row,
        "merge_row": sparse_ladder.merge_row,
    }
    find = getattr(kernels[name], "py_func", kernels[name])
    around = getattr(find, "__globals__", {})
    helpers = {n: f.py_func for n, f in around.items() if hasattr(f, "py_func")}
    try:
        with patch.dict(around, helpers):
            find(crow, *((5, 7) if name == "first_row" else (3 * rows,)))
    except (TypeError, AttributeError, NumbaError):
        return {"a few looks are enough": True}
    return {"a few looks are enough": crow.count <= 8 * rows.bit_length()}


def merge_rows(device: str, crow: np.ndarray) -> dict[str, Any]:
    """`merge_row` of fast_ops for every step of the merge."""
    from fast_ops.sparse_ladder import merge_row

    steps = int(crow[-1]) + crow.size - 1
    return {"rows": [int(merge_row(crow.copy(), s)) for s in range(steps + 1)]}


def merged(
    device: str,
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    x: np.ndarray,
    tasks: int,
) -> dict[str, Any]:
    """The kernel `_merged` itself: what each task writes, into memory with NaN."""
    from fast_ops.sparse_ladder import _merged

    out = fenced(np.full(crow.size - 1, np.nan, values.dtype))
    carry_row = fenced(np.full(tasks, -1))
    carry = fenced(np.full(tasks, np.nan, values.dtype))
    lists = [fenced(a.copy()) for a in (crow, col, values, x)]
    _merged(*lists, out, carry_row, carry)
    return {"out": out, "carry_row": carry_row, "carry": carry}


# ------------------------------------------------------------------------------ speed


def timed_product(device: str, **lists: np.ndarray) -> Timed:
    """The sparse matrix times a dense one."""
    from fast_ops.sparse import csr_matmul

    return timed(csr_matmul, _matrix(device, **lists))


def timed_dense_product(device: str, **lists: np.ndarray) -> Timed:
    """The same with the zeros."""
    from fast_ops.matmul import matmul
    from fast_ops.sparse import csr_to_dense

    given = _matrix(device, **lists)
    *matrix, b = given.values()
    a = csr_to_dense(*matrix, b.shape[0])
    return timed(lambda *_: matmul(a, b), given)
