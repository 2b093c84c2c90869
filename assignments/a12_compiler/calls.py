"""What a12 runs in the student's process: programs, their text, loops, a recorder."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assignments.calling import operand, read, results, tensor

Written = dict[str, Any]  # a program: inputs, steps, kept, folded
STEP = re.compile(r"y\d+ = (fold_)?(\w+)\((.*)\)(?: from (\S+))?: (\w+)(, one a row)?")


def program_of(program: Written) -> Any:
    """The program that is written down so."""
    from minitorch import dtypes
    from minitorch.backend.fusion import Program

    kinds = {d.name: d for d in vars(dtypes).values() if isinstance(d, dtypes.DType)}
    return Program(
        tuple([kinds[name] for name in program["inputs"]]),
        tuple([_step_of(line, kinds) for line in program["steps"]]),
        tuple(program["kept"]),
        program["folded"],
    )


def _step_of(line: str, kinds: dict[str, Any]) -> Any:
    from minitorch import operators
    from minitorch.backend.fusion import Step

    match = STEP.fullmatch(line)
    assert match is not None, line
    fold, fn, args, start, kind, row = match.groups()
    numbers = [int(a[1:]) if a[0] == "y" else ~int(a[1:]) for a in args.split(", ")]
    begins = float(start) if fold else None
    made = getattr(operators, fn)
    return Step(made, tuple(numbers), kinds[kind], row is not None, begins)


def line_of_step(
    k: int, fn: str, args: Sequence[int], kind: str, per_row: bool, start: float | None
) -> str:
    """Step k as a line, which says all of it."""
    names = ", ".join([f"y{a}" if a >= 0 else f"x{~a}" for a in args])
    begins = "" if start is None else f" from {start}"
    fold, row = "fold_" * (start is not None), ", one a row" * per_row
    return f"y{k} = {fold}{fn}({names}){begins}: {kind}{row}"


def _lines(steps: Sequence[Any]) -> list[str]:
    return [
        line_of_step(k, s.fn.__name__, s.args, s.dtype.name, s.per_row, s.fold_start)
        for k, s in enumerate(steps)
    ]


# -------------------------------------------------------------------------- a12.1


def pruned(device: str, program: Written) -> dict[str, Any]:
    """`needed`"""
    from minitorch.backend.fusion import needed

    found = needed(program_of(program))
    return {
        "steps": _lines(found.steps),
        "kept": list(found.kept),
        "folded": found.folded,
        "steps and kept are tuples": {type(found.steps), type(found.kept)} == {tuple},
        "inputs": [dtype.name for dtype in found.inputs],
    }


# -------------------------------------------------------------------------- a12.2


def texts(device: str, program: Written) -> dict[str, Any]:
    """What each step is as text, and with what folds begin."""
    made = program_of(program)
    numbers = range(len(made.steps))
    lines = [ast.unparse(ast.parse(made.step_text(k))) for k in numbers]
    folds = [k for k in numbers if made.steps[k].fold_start is not None]
    return {
        "step_name": [made.step_name(k) for k in numbers],
        "step_text": lines,
        "start_text": [_value_of(made.start_text(k)) for k in folds],
    }


def _value_of(text: str) -> list[Any]:
    """The type that a text converts to, and what it converts."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        raise ValueError(f"start_text is {text!r}; expected one like 'float32(0.0)'")
    number = eval(ast.unparse(call.args[0]), {"np": np, "__builtins__": {}})
    return [ast.unparse(call.func), float(number)]


# -------------------------------------------------------------------------- a12.3


def levels(device: str, program: Written) -> dict[str, Any]:
    """`fold_levels`, and what lies in memory between levels."""
    from fast_ops.fused import _stored

    made = program_of(program)
    return {"fold_levels": list(made.fold_levels()), "_stored": sorted(_stored(made))}


# -------------------------------------------------------------------------- a12.4


class Line:
    """A part of an array, which counts how many of its elements are read and written.

    An index is a number from 0 to the end, as compilers like it.
    """

    def __init__(self, array: np.ndarray, name: str, counts: dict[str, int]) -> None:
        self.array, self.name, self.counts = array, name, counts
        self.size = array.size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Line(self.array[i], self.name, self.counts)
        self.counts["reads"] += 1
        return self.array[self._at(i)]

    def __setitem__(self, i: Any, value: Any) -> None:
        self.counts["writes"] += 1
        self.array[self._at(i)] = value

    def _at(self, i: Any) -> int:
        if isinstance(i, slice) or not 0 <= i < self.size:
            what = f"{self.name}, {self.size} elements here, has no element {i}"
            raise IndexError(what)
        return int(i)


class _Numpy:
    """NumPy for a loop that runs as Python: its new arrays count, too."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, n: int, kind: Any) -> Line:
        return Line(np.full(n, -1e30).astype(kind), "a new array", self.counts)


def interpreted(
    device: str,
    program: Written,
    kinds: Sequence[str],
    places: Sequence[Sequence[int]],
    arrays: Sequence[np.ndarray],
    size: int,
    n: int,
    whole: bool,
    most_reads: int,
    most_writes: int,
    most_calls: int,
) -> dict[str, Any]:
    """The loop that `text` writes, run as Python.

    Args:
        kinds: how each input lies along a line; places: its d and m.
        n: how many elements a line has.
        whole: whether folds are of lines, not of rows.
        most_reads: as many elements of arrays a loop has to read at most; most_writes,
            most_calls: the same of what it writes, and of calls of functions.
    """
    from fast_ops import fused

    made, counts = program_of(program), dict.fromkeys(("reads", "writes", "calls"), 0)
    lie = {"flat": fused.FLAT, "row": fused.ROW, "one": fused.ONE}
    text = fused.text(made, tuple([lie[kind] for kind in kinds]), made.kept, whole)
    lines, folds = -(-size // n), [k for k in made.kept if made.steps[k].per_row]
    outs, shared = {}, list[int]()
    for k in made.kept:
        step = made.steps[k]
        kind = np.float64 if whole and step.per_row else step.dtype.numpy
        outs[f"y{k}"] = np.full(lines if step.per_row else size, np.nan).astype(kind)
    parts = set[Any]()  # what folds have made
    loop = _python(text, counts, shared, parts)
    given = [Line(x, f"x{k}_", counts) for k, x in enumerate(arrays)]
    given += [Line(z, f"z{name[1:]}_", counts) for name, z in outs.items()]
    numbers = [x for kind, p in zip(kinds, places) if kind != "flat" for x in p]
    loop(*given, size, n, *numbers)
    return {
        **outs,
        "the lines are shared among the cores": len(shared) == 1,
        "lines": sum(shared),
        "parts of folds are rounded": whole
        and any(v not in parts for k in folds for v in outs[f"y{k}"].tolist()),
        "elements are read too often": counts["reads"] > most_reads,
        "elements are written that nobody reads": counts["writes"] > most_writes,
        "steps run too often": counts["calls"] > most_calls,
    }


def _python(
    text: str, counts: dict[str, int], shared: list[int], parts: set[Any]
) -> Any:
    """The function `loop` of a text, for arrays that count."""
    from minitorch import operators

    def function(name: str) -> Any:
        return getattr(operators, name.rpartition("_")[0])

    def scalar(name: str) -> Any:
        fn = function(name)

        def counted(*args: Any) -> Any:
            counts["calls"] += 1
            return fn(*args)

        return counted

    def fold(name: str) -> Any:
        fn = function(name)

        def folded(row: Line, start: Any) -> Any:
            total = np.float64(start)
            for i in range(row.size):
                total = fn(total, row[i])
            parts.add(float(total))
            return total

        return folded

    def prange(*ends: int) -> range:
        shared.append(len(range(*ends)))
        return range(*ends)

    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        line = text.splitlines()[(error.lineno or 1) - 1].strip()
        said = f"{error.msg}: {line}"
        raise ValueError(f"the loop that was made is no Python, {said}") from None
    _look(tree)
    tree.body = [
        s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))
    ]
    space = {"np": _Numpy(counts), "prange": prange, "scalar": scalar, "fold": fold}
    with np.errstate(all="ignore"):
        exec(compile(tree, "the loop that was made", "exec"), space)
        return space["loop"]


# What a loop may use beside its own names.
KNOWN = {"np", "prange", "range", "min", "max", "len", "scalar", "fold"}
MEMBERS = {"empty", "size", "inf", "nan", "shape"}


def _look(tree: ast.Module) -> None:
    """A loop that was made is code, too: it has no names but its own, and a few."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own | KNOWN:
            raise NameError(f"the loop that was made uses {node.id}, which it lacks")
        if isinstance(node, ast.Attribute) and node.attr not in MEMBERS:
            kind = getattr(np, node.attr, None)
            if not (isinstance(kind, type) and issubclass(kind, np.generic)):
                raise NameError(f"the loop that was made uses .{node.attr}")


def compiled(
    device: str, program: Written, shape: Sequence[int], arrays: Sequence[np.ndarray],
    layouts: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """A program as one compiled loop, and by its steps one by one."""
    from fast_ops import fused
    from minitorch.backend import fusion, get_backend

    made, backend, size = program_of(program), get_backend("cpu"), tuple(shape)
    given = [operand("cpu", a, layout) for a, layout in zip(arrays, layouts)]

    def run(by: Callable[..., Any]) -> dict[int, Any]:
        outs = {}
        for k in made.kept:
            step = made.steps[k]
            rows = made.row_shape(size) if step.per_row else size
            outs[k] = backend.empty(rows, step.dtype)
        by(made, size, given, outs)
        return outs

    outs = run(fused.run)
    steps = run(lambda *how: fusion.Fusion.fused(backend, *how))
    same = all(read(outs[k]).tobytes() == read(steps[k]).tobytes() for k in made.kept)
    after = [read(a).tobytes() for a in given]
    return {
        **{f"y{k}": read(out) for k, out in outs.items()},
        "equal to the steps one by one, to the bit": same,
        "inputs are changed": after != [np.array(a).tobytes() for a in arrays],
    }


# -------------------------------------------------------------------------- a12.5


def line(device: str, places: Sequence[Sequence[int]], size: int) -> dict[str, Any]:
    """`line_of`"""
    from fast_ops.fused import line_of

    return {"n": int(line_of(tuple([(m, d) for m, d in places]), size))}


def lies(device: str, m: int, d: int, n: int, size: int) -> dict[str, Any]:
    """`_lies_along`"""
    from fast_ops.fused import _lies_along

    return {"it lies along the lines": bool(_lies_along(m, d, n, size))}


# -------------------------------------------------------------------------- a12.6


def recorded(device: str, code: Sequence[str], **arrays: np.ndarray) -> dict[str, Any]:
    """Lines of a program, recorded: what became of them, and what is there then."""
    from minitorch.compiler.recorder import Fused, Recorder

    given = {name: tensor(device, array) for name, array in arrays.items()}
    space, told = dict(given), list[Fused]()
    with Recorder(told):
        for one in code:
            exec(one, space)
    space.pop("__builtins__", None)
    values = {name: read(value) for name, value in space.items()}
    return {"programs": [str(fused) for fused in told], **values}


# -------------------------------------------------------------------------- a12.7

Timed = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]
TIMES = 2  # how often a function takes its own result in a timed step


def chain(x: Any, weight: Any, bias: Any) -> Any:
    """A scale, a shift, relu and a residual."""
    return (x * weight + bias).relu() + x


def norm(x: Any, weight: Any, bias: Any) -> Any:
    """Layer norm, written out."""
    away = x - x.mean(-1, keepdim=True)
    variance = (away * away).mean(-1, keepdim=True)
    return away / (variance + 1e-5).sqrt() * weight + bias


def _timed(fn: Callable[..., Any], arrays: dict[str, np.ndarray]) -> Timed:
    import minitorch

    given = {name: tensor("cpu", array) for name, array in arrays.items()}
    x, weight, bias = given.values()

    def go() -> Any:
        out = x
        with minitorch.no_grad():
            for _ in range(TIMES):
                out = fn(out, weight, bias)
        return out

    return go, lambda out: results({"out": out}, given)


def timed_chain(device: str, **arrays: np.ndarray) -> Timed:
    """The chain, compiled."""
    import minitorch

    return _timed(minitorch.compile(chain), arrays)


def timed_plain_chain(device: str, **arrays: np.ndarray) -> Timed:
    """The chain, operation by operation."""
    return _timed(chain, arrays)


def timed_norm(device: str, **arrays: np.ndarray) -> Timed:
    """The norm, compiled."""
    import minitorch

    return _timed(minitorch.compile(norm), arrays)


def timed_plain_norm(device: str, **arrays: np.ndarray) -> Timed:
    """The norm, operation by operation."""
    return _timed(norm, arrays)
