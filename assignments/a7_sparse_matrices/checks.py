"""What a7 is checked with; the oracle of gradients is PyTorch on dense matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assignments.a7_sparse_matrices import calls
from assignments.checks import AnyCheck, Check, Speed, on_all_cores
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, torch_gradients
from assignments.simulated import simulates

# From here on fast_ops shares the work among its threads.
PARALLEL = 32_768
SIMULATED = simulates("cuda")  # where every thread of a GPU costs


def lists_of(draw: Draw, rows: int, cols: int, long: int = 0) -> dict[str, np.ndarray]:
    """crow and col of a matrix: empty rows, columns in any order, places twice.

    With `long`, row rows // 2 has so many elements, far more than the others.
    Without columns there are no elements.
    """
    most = min(cols, 9) if rows < 50 else min(cols, 100)
    lengths = [draw.integer(-1, most) if cols else 0 for _ in range(rows)]
    lengths = [max(n, 0) for n in lengths]
    if long and rows and cols:
        lengths[rows // 2] = long
    crow = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nnz = int(crow[-1])
    col = draw.array((nnz,), "int64", 0, cols - 1) if nnz else np.zeros(0, np.int64)
    return {"crow": crow, "col": col}


def rows_of(crow: np.ndarray) -> np.ndarray:
    """The row of each element."""
    return np.repeat(np.arange(crow.size - 1), np.diff(crow))


def dense_of(crow: np.ndarray, col: np.ndarray, values: Any, cols: int) -> Any:
    """The matrix as a dense tensor of PyTorch, through which gradients flow."""
    import torch

    values = as_torch(values) if isinstance(values, np.ndarray) else values
    zeros = torch.zeros((crow.size - 1, cols), dtype=values.dtype)
    if not col.size:  # `index_put` of some versions refuses dimensions of size 0
        return zeros + values.sum()
    places = as_torch(rows_of(crow)), as_torch(col)
    return zeros.index_put(places, values, accumulate=True)


def _with_values(draw: Draw, lists: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**lists, "values": draw.array((lists["col"].size,))}


def _longest(crow: np.ndarray, **rest: Any) -> int:
    """How far rounding may go: terms have both signs, so long sums stay small."""
    longest = int(np.diff(crow).max(initial=1))
    return min(longest, 64 * math.isqrt(longest))


SHAPE = {"rows": (0, 4), "cols": (0, 5)}
SMALL = ({"rows": 0, "cols": 3}, {"rows": 3, "cols": 0}, {"rows": 1, "cols": 1})

# ----------------------------------------------------------------------- building CSR


def _pattern_inputs(draw: Draw, rows: int, cols: int) -> dict[str, Any]:
    keep = draw.array((rows, cols), "bool")
    a = np.where(keep, draw.array((rows, cols)), 0).astype(np.float32)
    if a.size and draw.integer(0, 3) == 3:
        a.flat[draw.integer(0, a.size - 1)] = draw.choice((np.nan, -0.0, np.inf))
    return {"a": a, "layout": layout(draw)}


def _pattern_expected(a: np.ndarray, layout: str) -> dict[str, Any]:
    stored = as_torch(a != 0)
    crow = np.concatenate([[0], np.cumsum(stored.sum(1).numpy())])
    return {"crow": crow.astype(np.int64), "col": stored.nonzero()[:, 1].numpy()}


def _transposed_expected(crow: np.ndarray, col: np.ndarray, cols: int) -> Any:
    import torch

    order = torch.sort(as_torch(col), stable=True).indices.numpy()
    counts = np.bincount(col, minlength=cols)
    return {
        "crow_t": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "col_t": rows_of(crow)[order],
        "order": order,
    }


def _elements_expected(crow: np.ndarray, col: np.ndarray) -> dict[str, Any]:
    numbered = zip(rows_of(crow).tolist(), col.tolist())
    return {"elements": [[p, i, k] for p, (i, k) in enumerate(numbered)]}


def _dense_inputs(draw: Draw, rows: int, cols: int) -> dict[str, Any]:
    return {**_with_values(draw, lists_of(draw, rows, cols)), "cols": cols}


BUILDING = (
    Check(
        "a7.1",
        "elements",
        calls.elements,
        lambda draw, rows, cols: lists_of(draw, rows, cols),
        _elements_expected,
        SHAPE,
        (*SMALL, {"rows": 7, "cols": 9}),
        devices=("simple",),
        hint="An empty row has crow[i] == crow[i + 1], and no element.",
        oracle="NumPy",
    ),
    Check(
        "a7.1",
        "csr_pattern",
        calls.pattern,
        _pattern_inputs,
        _pattern_expected,
        SHAPE,
        (*SMALL, {"rows": 33, "cols": 65}),
        hint="crow has an entry for each row, empty ones too, and one more. NaN is not "
        "zero.",
    ),
    Check(
        "a7.1",
        "csr_transpose",
        calls.transposed,
        lambda draw, rows, cols: {**lists_of(draw, rows, cols), "cols": cols},
        _transposed_expected,
        SHAPE,
        (*SMALL, {"rows": 33, "cols": 65}),
        hint="Elements of one column stay in the order of their rows.",
    ),
    Check(
        "a7.1",
        "csr_to_dense",
        calls.dense,
        _dense_inputs,
        lambda crow, col, values, cols: {
            "out": dense_of(crow, col, values, cols).numpy()
        },
        SHAPE,
        (*SMALL, {"rows": 7, "cols": 9}),
        devices=("simple",),
        hint="Numbers for the same place are added up.",
    ),
)

# --------------------------------------------------------------------------- products


def _vector_inputs(
    draw: Draw, rows: int, cols: int, long: int = 0, name: str = ""
) -> dict[str, Any]:
    lists = _with_values(draw, lists_of(draw, rows, cols, long))
    named = {"name": name} if name else {}
    return {**named, **lists, "x": draw.array((cols,))}


def _vector_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray, **rest: Any
) -> dict[str, Any]:
    return {"out": _product_expected(crow, col, values, x[:, None])["out"][:, 0]}


def _matvec_inputs(
    draw: Draw, rows: int, cols: int, tasks: int, long: int = 0
) -> dict[str, Any]:
    return {**_vector_inputs(draw, rows, cols, long), "tasks": tasks}


def _product_inputs(
    draw: Draw, rows: int, cols: int, n: int, long: int = 0
) -> dict[str, Any]:
    lists = _with_values(draw, lists_of(draw, rows, cols, long))
    return {**lists, "b": draw.array((cols, n)), "layout": layout(draw)}


def _product_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, b: np.ndarray, **rest: Any
) -> dict[str, Any]:
    out = np.zeros((crow.size - 1, b.shape[1]))
    np.add.at(out, rows_of(crow), values[:, None].astype(np.float64) * b[col])
    return {"out": out.astype(np.float32)}


def _sizes(*all_sizes: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(("rows", "cols", "n", "long"), s)) for s in all_sizes)


def _on_gpu(
    name: str, check: str, n: tuple[int, int], *edges: tuple[int, ...], task: str
) -> Check:
    """A check of a rung of the GPU's ladder; simulated, with few and small inputs."""

    def inputs(draw: Draw, rows: int, cols: int, n: int, long: int = 0) -> Any:
        given = _product_inputs(draw, rows, cols, n, long)
        del given["layout"]
        return {"name": name, **given}

    large = () if SIMULATED else _sizes((3000, 500, n[0]), (3000, 90, n[1], 60_000))
    return Check(
        task,
        check,
        calls.gpu_rung,
        inputs,
        _product_expected,
        {**SHAPE, "n": n},
        (*_sizes((0, 3, n[0]), (1, 1, n[0]), *edges), *large),
        length=_longest,
        examples=4 if SIMULATED else 20,
        devices=("cuda",),
        hint="Does a thread without work do nothing? Are empty rows written?",
        oracle="NumPy",
    )


NEVER_ZERO = "The memory of out is not zero at the beginning. Are empty rows written?"


def _rung(task: str, name: str) -> Check:
    return Check(
        task,
        name,
        calls.rung,
        lambda draw, **sizes: _vector_inputs(draw, **sizes, name=name),
        _vector_expected,
        SHAPE,
        (*SMALL, {"rows": 100, "cols": 70}, {"rows": 65, "cols": 300, "long": 5000}),
        length=_longest,
        devices=("cpu",),
        hint=NEVER_ZERO,
        oracle="NumPy",
    )


VECTORS = (
    Check(
        "a7.2",
        "one task after the other",
        calls.whole_matvec,
        _matvec_inputs,
        _vector_expected,
        {**SHAPE, "tasks": (1, 4)},
        (
            {"rows": 2, "cols": 3, "tasks": 64},
            {"rows": 63, "cols": 20, "tasks": 64},
            {"rows": 9, "cols": 20, "tasks": 4, "long": 999},
        ),
        length=_longest,
        hint=NEVER_ZERO,
        devices=("cpu",),
        oracle="NumPy",
    ),
    _rung("a7.2", "matvec_by_rows"),
    Check(
        "a7.2",
        "csr_matmul with one column",
        calls.product,
        _product_inputs,
        _product_expected,
        {**SHAPE, "n": (1, 1)},
        _sizes((0, 3, 1), (3, 0, 1), (65, 9, 1), (800, 300, 1), (65, 40, 1, PARALLEL)),
        length=_longest,
        hint=NEVER_ZERO,
        devices=("cpu",),
        oracle="NumPy",
    ),
    _on_gpu(
        "row_a_thread", "a row a thread", (1, 3), (33, 20, 2), (64, 9, 1), task="a7.2"
    ),
    _on_gpu(
        "row_a_warp", "a row a warp", (1, 1), (5, 90, 1, 33), (3, 9, 1, 32), task="a7.2"
    ),
)

MATRICES = (
    Check(
        "a7.3",
        "csr_matmul",
        calls.product,
        _product_inputs,
        _product_expected,
        {**SHAPE, "n": (0, 4)},
        _sizes((0, 3, 2), (3, 0, 2), (1, 1, 1), (2, 3, 0), (5, 9, 17)),
        length=_longest,
        examples=30,
        hint=NEVER_ZERO,
        devices=("simple", "cpu"),
        oracle="NumPy",
    ),
    Check(
        "a7.3",
        "csr_matmul in parallel and in blocks",
        calls.product,
        _product_inputs,
        _product_expected,
        {**SHAPE, "n": (2, 4)},
        _sizes((150, 90, 127), (70, 200, 128), (70, 90, 129), (33, 40, 300, 700)),
        length=_longest,
        examples=2,
        hint="The last block of columns can be narrower than `wide`.",
        devices=("cpu",),
        oracle="NumPy",
    ),
    _on_gpu(
        "row_a_warp",
        "a row a warp",
        (2, 5),
        (3, 9, 31),
        (3, 9, 32),
        (5, 9, 33),
        task="a7.3",
    ),
)

# --------------------------------------------------------------------- with gradients

BOTH = ((True, True), (True, False), (False, True))
SIZED = {**SHAPE, "n": (1, 3)}
EDGES = _sizes((0, 3, 2), (3, 0, 2), (1, 1, 1), (8, 7, 5))


def _product_gradient_inputs(
    draw: Draw, rows: int, cols: int, n: int
) -> dict[str, Any]:
    return {
        **_with_values(draw, lists_of(draw, rows, cols)),
        "b": draw.array((cols, n)),
        "grad": draw.array((rows, n)),
        "wanted": draw.choice(BOTH),
    }


def _product_gradient_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, b: np.ndarray,
    grad: np.ndarray, wanted: Any,
) -> dict[str, Any]:  # fmt: skip
    v, right = as_torch(values), as_torch(b)
    v.requires_grad, right.requires_grad = wanted
    out = dense_of(crow, col, v, b.shape[0]) @ right
    return torch_gradients(out, grad, values=v, b=right)


def _sample_inputs(draw: Draw, rows: int, cols: int, n: int) -> dict[str, Any]:
    lists = lists_of(draw, rows, cols)
    return {
        **lists,
        "a": draw.array((rows, n)),
        "b": draw.array((cols, n)),
        "grad": draw.array((lists["col"].size,)),
        "wanted": draw.choice(BOTH),
    }


def _sample_expected(
    crow: np.ndarray, col: np.ndarray, a: np.ndarray, b: np.ndarray, grad: np.ndarray,
    wanted: Any,
) -> dict[str, Any]:  # fmt: skip
    left, right = as_torch(a), as_torch(b)
    left.requires_grad, right.requires_grad = wanted
    out = (left @ right.T)[as_torch(rows_of(crow)), as_torch(col)]
    return torch_gradients(out, grad, a=left, b=right)


def _transposed_inputs(draw: Draw, rows: int, cols: int, n: int) -> dict[str, Any]:
    return {
        **_with_values(draw, lists_of(draw, rows, cols)),
        "cols": cols,
        "b": draw.array((rows, n)),
        "grad": draw.array((cols, n)),
    }


def _transposed_gradients(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, cols: int, b: np.ndarray,
    grad: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    v, right = as_torch(values).requires_grad_(), as_torch(b).requires_grad_()
    return torch_gradients(
        dense_of(crow, col, v, cols).T @ right, grad, values=v, b=right
    )


def _to_dense_inputs(draw: Draw, rows: int, cols: int) -> dict[str, Any]:
    return {**_dense_inputs(draw, rows, cols), "grad": draw.array((rows, cols))}


def _to_dense_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, cols: int, grad: np.ndarray
) -> dict[str, Any]:
    v = as_torch(values).requires_grad_()
    return torch_gradients(dense_of(crow, col, v, cols), grad, values=v)


def _to_sparse_inputs(draw: Draw, rows: int, cols: int) -> dict[str, Any]:
    a = np.where(draw.array((rows, cols), "bool"), draw.array((rows, cols), low=1), 0)
    grad = draw.array((int((a != 0).sum()),))
    return {"a": a.astype(np.float32), "grad": grad}


def _to_sparse_expected(a: np.ndarray, grad: np.ndarray) -> dict[str, Any]:
    x = as_torch(a).requires_grad_()
    return torch_gradients(x[as_torch(a != 0)], grad, a=x)


def _terms(**inputs: Any) -> int:
    return 64


def _gradient(
    name: str, call: Any, inputs: Any, expected: Any, sizes: Any, edges: Any
) -> Check:
    return Check("a7.4", name, call, inputs, expected, sizes, edges, length=_terms)


def _places(draw: Draw, **sizes: int) -> dict[str, Any]:
    given = _sample_inputs(draw, **sizes)
    return {name: given[name] for name in ("crow", "col", "a", "b")}


FLAT = ({"rows": 0, "cols": 3}, {"rows": 3, "cols": 0}, {"rows": 8, "cols": 7})
GRADIENTS = (
    _gradient(
        "A @ b", calls.product_gradients, _product_gradient_inputs,
        _product_gradient_expected, SIZED, EDGES,
    ),
    _gradient(
        "a @ b^T at A's places", calls.sample_gradients, _sample_inputs,
        _sample_expected, SIZED, (*EDGES, *_sizes((70, 50, 100))),
    ),
    _gradient(
        "A^T @ b", calls.transposed_gradients, _transposed_inputs,
        _transposed_gradients, SIZED, EDGES,
    ),
    _gradient(
        "to_dense", calls.to_dense_gradients, _to_dense_inputs, _to_dense_expected,
        SHAPE, FLAT,
    ),
    _gradient(
        "to_sparse_csr", calls.to_sparse_gradients, _to_sparse_inputs,
        _to_sparse_expected, SHAPE, FLAT,
    ),
)  # fmt: skip

WRITERS = tuple(
    Check(
        *(task, f"{name}: each element by one task", calls.writers),
        lambda draw, name=name, **sizes: {"name": name, **_places(draw, **sizes)},
        lambda **_: {"writers of an element": 1},
        {**SHAPE, "n": (1, 3)},
        _sizes((70, 50, 3)),
        examples=2,
        devices=("cpu",),
        hint="A task ends where the next one begins; a row belongs to one of them.",
        oracle="the definition",
    )
    for name, task in {
        "_by_rows": "a7.2",
        "_matvec": "a7.2",
        "_matmul": "a7.3",
        "_sample": "a7.4",
    }.items()
)

# ----------------------------------------------------------------------- load balance

ROW_COST = 4  # as in fast_ops/sparse.py


def _first_rows_inputs(
    draw: Draw, rows: int, tasks: int, long: int = 0
) -> dict[str, Any]:
    return {"crow": lists_of(draw, rows, 9, long)["crow"], "tasks": tasks}


def _first_rows_expected(crow: np.ndarray, tasks: int) -> dict[str, Any]:
    before = crow + ROW_COST * np.arange(crow.size)
    wanted = before[-1] * np.arange(tasks + 1) // tasks
    return {"rows": np.searchsorted(before, wanted).tolist()}


def _merge_rows_expected(crow: np.ndarray) -> dict[str, Any]:
    ends = crow[1:] + np.arange(crow.size - 1)
    steps = np.arange(int(crow[-1]) + crow.size)
    return {"rows": np.searchsorted(ends, steps).tolist()}


def _shares(
    crow: np.ndarray, products: np.ndarray, steps: np.ndarray
) -> dict[str, Any]:
    """What tasks write that take the steps steps[t] to steps[t + 1] of the merge.

    products [nnz, n] has, for each element, what it adds to its row of the result.
    """
    rows, tasks, n = crow.size - 1, steps.size - 1, products.shape[1]
    first = np.searchsorted(crow[1:] + np.arange(rows), steps)
    out, carry = np.zeros((rows, n), np.float32), np.zeros((tasks, n), np.float32)
    for t in range(tasks):
        p, last = int(steps[t] - first[t]), int(first[t + 1])
        for i in range(int(first[t]), last):
            out[i], p = products[p : crow[i + 1]].sum(0), int(crow[i + 1])
        carry[t] = products[p : steps[t + 1] - last].sum(0)
    return {"out": out, "carry_row": first[1:], "carry": carry}


def _merged_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray, tasks: int
) -> dict[str, Any]:
    products = values.astype(np.float64) * x[col]
    steps = np.arange(tasks + 1) * (crow.size - 1 + col.size) // tasks
    found = _shares(crow, products[:, None], steps)
    return {**found, "out": found["out"][:, 0], "carry": found["carry"][:, 0]}


def _shares_inputs(
    draw: Draw, rows: int, cols: int, n: int, long: int = 0
) -> dict[str, Any]:
    given = _product_inputs(draw, rows, cols, n, long)
    del given["layout"]
    return {**given, "share": draw.choice((4, 1, 16))}


def _shares_expected(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, b: np.ndarray, share: int
) -> dict[str, Any]:
    products = values[:, None].astype(np.float64) * b[col]
    total = crow.size - 1 + col.size
    steps = np.minimum(np.arange(-(-total // share) + 1) * share, total)
    return _shares(crow, products, steps)


BALANCE = (
    *(
        Check(
            *("a7.5", f"{name}: by halving", calls.looks),
            lambda draw, rows, name=name: {"name": name, "rows": rows},
            lambda **_: {"a few looks are enough": True},
            {"rows": (1000, 2000)},
            examples=1,
            devices=("cpu",),
            oracle="the handout",
            hint="What is looked for rises with each row. Is it there yet at the row "
            "in the middle? Then in which half is it?",
        )
        for name in ("first_row", "merge_row")
    ),
    Check(
        "a7.5",
        "first_row",
        calls.first_rows,
        _first_rows_inputs,
        _first_rows_expected,
        {"rows": (0, 5), "tasks": (1, 4)},
        (
            {"rows": 0, "tasks": 3},
            {"rows": 1, "tasks": 64},
            {"rows": 63, "tasks": 64},
            {"rows": 65, "tasks": 64},
            {"rows": 40, "tasks": 8, "long": 1000},
        ),
        examples=30,
        hint="Task 0 begins at row 0, and `tasks` of them end after the last row. A "
        "task may be empty.",
        devices=("cpu",),
        oracle="NumPy",
    ),
    Check(
        "a7.5",
        "merge_row",
        calls.merge_rows,
        lambda draw, rows, long=0: {"crow": lists_of(draw, rows, 9, long)["crow"]},
        _merge_rows_expected,
        {"rows": (0, 4)},
        ({"rows": 0}, {"rows": 33}, {"rows": 20, "long": 300}),
        examples=30,
        hint="The end of row i is step crow[i + 1] + i: is it before this step?",
        devices=("cpu",),
        oracle="NumPy",
    ),
    Check(
        "a7.5",
        "every task's share",
        calls.merged,
        _matvec_inputs,
        _merged_expected,
        {**SHAPE, "tasks": (1, 4)},
        (
            {"rows": 2, "cols": 3, "tasks": 64},
            {"rows": 33, "cols": 20, "tasks": 16},
            {"rows": 9, "cols": 20, "tasks": 7, "long": 999},
        ),
        length=_longest,
        examples=30,
        hint="Begin with the element start - first. A row that does not end here goes "
        "to carry, and not to out.",
        devices=("cpu",),
        oracle="NumPy",
    ),
    _rung("a7.5", "matvec_merged"),
    Check(
        "a7.5",
        "every group's share",
        calls.gpu_shares,
        _shares_inputs,
        _shares_expected,
        {**SHAPE, "n": (1, 2)},
        _sizes((1, 1, 1), (7, 9, 33), (5, 20, 2, 60)),
        length=_longest,
        examples=4 if SIMULATED else 30,
        devices=("cuda",),
        hint="Begin with the element g * steps - i0. A row that does not end here goes "
        "to carry, and not to out.",
        oracle="NumPy",
    ),
    _on_gpu("balanced", "balanced", (1, 2), (40, 9, 1), (5, 20, 1, 99), task="a7.5"),
)

# ---------------------------------------------------------------------- all the cores

KERNELS = {
    "a7.1": ("_count", "_columns"),
    "a7.2": ("_by_rows", "_matvec"),
    "a7.3": ("_matmul",),
    "a7.4": ("_sample",),
    "a7.5": ("_merged",),
}
ON_ALL_CORES = on_all_cores(KERNELS, calls.on_all_cores)

# ------------------------------------------------------------------------------ speed


def _sparse(draw: Draw, rows: int, cols: int, n: int) -> dict[str, Any]:
    """1 % of the places, columns in order."""
    keep = draw.array((rows, cols), low=0, high=1) < 0.01
    crow = np.concatenate([[0], np.cumsum(keep.sum(1))]).astype(np.int64)
    lists = {"crow": crow, "col": np.nonzero(keep)[1].astype(np.int64)}
    return {**_with_values(draw, lists), "b": draw.array((cols, n))}


def _speed(name: str, n: int, steps: Any, hint: str) -> Speed:
    return Speed(
        "a7.6",
        name,
        calls.timed_product,
        calls.timed_dense_product,
        _sparse,
        _product_expected,
        {"rows": 1500, "cols": 1500, "n": n},
        steps,
        lambda crow, col, values, b: (
            float(b.nbytes + values.nbytes),
            2.0 * col.size * b.shape[1],
        ),
        length=_longest,
        hint=hint,
        oracle="NumPy",
    )


SPEED = (
    _speed(
        "1 % times a vector",
        1,
        ((1.0, 0.5), (1.4, 1.0)),
        "A row should be a loop without branches, and its sum a local variable.",
    ),
    _speed(
        "1 % times 64 columns",
        64,
        ((1.0, 0.5), (2.0, 1.0)),
        "Does the innermost loop run along a row of the dense matrix?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *BUILDING,
    *VECTORS,
    *MATRICES,
    *GRADIENTS,
    *WRITERS,
    *BALANCE,
    *ON_ALL_CORES,
    *SPEED,
)
