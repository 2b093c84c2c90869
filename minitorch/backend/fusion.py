"""Several functions as one: what the compiler hands to a backend.

With this file one can write a chain of `map`, `zip`, `where` and `reduce` down as a
`Program`, run it function by function on any backend (`fused`, the default), and make
the text of a loop of it (`Program.step_text`), for a backend that compiles.

    y = (a + b).tanh() * b            0: add(a, b)   1: tanh(0)   2: mul(1, b)

All values of a program have one shape, to which inputs are broadcast; or they are one
number a row, which is what a fold over the last dims makes of it:

    e = exp(a - a.max(-1))            0: fold maximum(a)  1: sub(a, 0)  2: exp(1)
    y = e / e.sum(-1)                 3: fold add(2)      4: div(2, 3)

A row is gone through once for each fold on the way: the `fold_levels` of these steps,
how many folds it takes to have them, are 1, 1, 1, 2 and 2.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, NamedTuple

from minitorch.backend.primitives import Primitives
from minitorch.dtypes import DType, computed
from minitorch.tensor_data import Shape, TensorData

LONG = 16_384  # a longer row is folded by many, if it is all there is


class Step(NamedTuple):
    """One function of a program.

    Attributes:
        fn: of `minitorch/operators.py`; `where` chooses.
        args: what it is given: k is the result of step k, ~k (below 0) input k.
        dtype: of the result.
        per_row: whether the result is one number a row.
        fold_start: of a fold of rows, with what it begins; None: it is none.
    """

    fn: Callable
    args: tuple[int, ...]
    dtype: DType
    per_row: bool = False
    fold_start: float | None = None


class Program(NamedTuple):
    """Functions in the order in which they are computed.

    Attributes:
        inputs: the types of what is read.
        steps: each uses inputs and the steps before it.
        kept: the steps whose results are written.
        folded: how many of the last dims make up a row; 0 where nothing is folded.
    """

    inputs: tuple[DType, ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    folded: int = 0

    def row_shape(self, shape: Shape) -> Shape:
        """The shape of what is one number a row, where all else has `shape`."""
        end = len(shape) - self.folded
        return (*shape[:end], *[1] * self.folded)

    def inputs_of(self, folds: bool) -> set[int]:
        """The inputs that are folded as they are; or those that are used as numbers of
        a row."""
        return {
            ~a
            for step in self.steps
            if step.per_row and folds == (step.fold_start is not None)
            for a in step.args
            if a < 0
        }

    def folds_whole(self, shape: Shape) -> bool:
        """Whether all of a large tensor becomes one number, or several: no element is
        computed with these."""
        end = len(shape) - self.folded
        return prod(shape[:end]) == 1 and prod(shape[end:]) > LONG and self.folded > 0

    def fold_levels(self) -> list[int]:
        """For each step how many folds it takes to have it, one after the other."""
        # BEGIN SOLUTION a12.3
        found: list[int] = []
        for step in self.steps:
            before = [found[a] for a in step.args if a >= 0]
            found.append(max(before, default=0) + (step.fold_start is not None))
        return found
        # END SOLUTION a12.3

    # -------------------------------------------------------------------- as text

    def step_text(self, k: int) -> str:
        """Step k as Python: inputs are x0, x1, ..., and results y0, y1, ...

        A result is rounded to its type, as if it were written to memory; half types are
        float32 in between: y2 = float32(exp_float32(y1)).
        """
        # BEGIN SOLUTION a12.2
        step = self.steps[k]
        args = ", ".join([f"y{a}" if a >= 0 else f"x{~a}" for a in step.args])
        return f"y{k} = {self.step_kind(k)}({self.step_name(k)}({args}))"
        # END SOLUTION a12.2

    def step_kind(self, k: int) -> str:
        """The type in which step k is computed."""
        return computed(self.steps[k].dtype).name

    def start_text(self, k: int) -> str:
        """With what the fold that is step k begins: float32(-np.inf)."""
        # BEGIN SOLUTION a12.2
        start = repr(float(self.steps[k].fold_start or 0.0)).replace("inf", "np.inf")
        return f"{self.step_kind(k)}({start})"
        # END SOLUTION a12.2

    def step_name(self, k: int) -> str:
        """The name of a step's function for the type that it is given: exp_float32; of
        a fold, fold_add_float32. (The last argument's type: `where` has a condition.)
        """
        # BEGIN SOLUTION a12.2
        last = self.steps[k].args[-1]
        kind = self.steps[last].dtype if last >= 0 else self.inputs[~last]
        fold = "fold_" if self.steps[k].fold_start is not None else ""
        return f"{fold}{self.steps[k].fn.__name__}_{computed(kind).name}"
        # END SOLUTION a12.2

    def head_text(self) -> list[str]:
        """What lines need: types, and functions, by `scalar` and `fold` of their names.

        float32 = np.float32; exp_float32 = scalar("exp_float32")
        """
        called = sorted({self.step_name(k) for k in range(len(self.steps))})
        types = sorted({self.step_kind(k) for k in range(len(self.steps))})
        return [
            *(f"{name} = np.{'bool_' if name == 'bool' else name}" for name in types),
            *(
                f"{name} = {'fold' if name.startswith('fold_') else 'scalar'}"
                f'("{name.removeprefix("fold_")}")'
                for name in called
            ),
        ]


@lru_cache(maxsize=4096)
def needed(program: Program) -> Program:
    """The same program without steps that nobody uses.

    Its inputs are the same, used or not. Where no step is left that is one number a
    row, it has no rows (`folded`).
    """
    # BEGIN SOLUTION a12.1
    wanted, steps = set(program.kept), program.steps
    for k in reversed(range(len(steps))):
        if k in wanted:
            wanted.update(arg for arg in steps[k].args if arg >= 0)
    number = {k: i for i, k in enumerate(sorted(wanted))}
    rest = [
        step._replace(args=tuple([a if a < 0 else number[a] for a in step.args]))
        for k, step in enumerate(steps)
        if k in wanted
    ]
    folded = program.folded if any(step.per_row for step in rest) else 0
    kept = tuple([number[k] for k in program.kept])
    return Program(program.inputs, tuple(rest), kept, folded)
    # END SOLUTION a12.1


class Fusion(Primitives):
    """Functions one after the other, or as one."""

    # Of these a backend makes one kernel; programs of other types do not come to it.
    fused_types: frozenset[DType] = frozenset()

    def fused(
        self,
        program: Program,
        shape: Shape,
        inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData],
    ) -> None:
        """Compute `program` of `inputs`, which broadcast to `shape`.

        `outs` has memory for the results of each step in `program.kept`, without gaps,
        and apart from the inputs.
        """
        self._one_by_one(program, shape, inputs, outs, {}, range(len(program.steps)))

    def _one_by_one(
        self, program: Program, shape: Shape, inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData], values: dict[int, TensorData],
        which: Iterable[int],
    ) -> None:  # fmt: skip
        """Compute some steps by the backend's functions; `values` has results."""
        dims = range(len(shape) - program.folded, len(shape))
        for k in which:
            step = program.steps[k]
            given = [values[a] if a >= 0 else inputs[~a] for a in step.args]
            size = shape
            if step.fold_start is not None:
                given[0] = given[0].expand(shape)
            elif step.per_row:
                size = program.row_shape(shape)
            if all(a.shape != size for a in given):
                given[0] = given[0].expand(size)
            values[k] = run_step(self, step, given, dims, outs.get(k))

    def _fused_whole(
        self, program: Program, shape: Shape, inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData], run: Callable,
    ) -> None:  # fmt: skip
        """A program that `folds_whole`: by `run` up to its folds, for all of which it
        has memory; then what is made of these numbers."""
        ones, values = program.row_shape(shape), dict(outs)
        rest = []
        for k, step in enumerate(program.steps):
            if step.fold_start is not None:
                values[k] = outs.get(k) or self.empty(ones, step.dtype)
            elif step.per_row:
                rest.append(k)
                values.pop(k, None)
        run(program, shape, inputs, values)
        self._one_by_one(program, shape, inputs, outs, values, rest)


def run_step(
    backend: Primitives, step: Step, given: Sequence[TensorData], dims: Sequence[int],
    out: TensorData | None = None,
) -> TensorData:  # fmt: skip
    """One step by the functions of a backend, into `out` if given; it folds `dims`."""
    if step.fold_start is not None:
        made = backend.reduce(step.fn, given[0], dims, step.fold_start, step.dtype)
        return made if out is None else backend.into(out, made)
    if len(given) == 1:
        return backend.map(step.fn, given[0], step.dtype, out)
    if len(given) == 2:
        return backend.zip(step.fn, given[0], given[1], step.dtype, out)
    return backend.where(given[0], given[1], given[2], out)


# ------------------------------------------------------------------ text that is made


def load(name: str, text: str) -> ModuleType:
    """The module that `text` makes, from a file of its own, as compilers want it.

    The file is in the folder of `generated_folder`, where one can read it.
    """
    name = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with _loading:  # so that no thread finds a module that is half made
        return sys.modules.get(name) or _made(name, text)


_loading = RLock()


def _made(name: str, text: str) -> ModuleType:
    path, data = generated_folder() / f"{name}.py", text.encode()
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)  # who cleans up deletes it
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(path)  # at once: other processes never see half of it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made


@cache
def generated_folder() -> Path:
    """Where kernels are written that the compiler makes: $NUMBA_CACHE_DIR, else the
    user's cache folder; one that ends with the process where neither can be written."""
    given: Any = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = Path(given or Path(user).expanduser() / "minitorch").absolute() / "compiled"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    _kept.append(made := tempfile.TemporaryDirectory(prefix="minitorch-compiled-"))
    return Path(made.name)


_kept: list[Any] = []  # folders that are deleted at the end
