"""The executor that puts elementwise functions, and folds of rows, together.

With this file one can let a block of a program be recorded, and see what became of it:

    with Recorder(told := []):
        y = (x * scale + shift).tanh()      # noted, not computed
    for fusion in told:                     # computed at the end of the block, at once
        print(fusion)

The recorder stands at the seam (`minitorch/executor.py`). `map`, `zip`, `where`,
`clamp` and conversions of a backend are not run, but noted: the result is a tensor as
any other, which has no memory yet. All that is noted runs as one program
(`minitorch/backend/fusion.py`) as soon as something needs it, or the block ends:

    noted       a * b    + c    tanh      |  matmul      |  exp    sum of rows   /
    runs                            fused |  as it does  |                      fused

Nothing is guessed. The Python code runs at each call, and decides as it always does:
on shapes, on settings, on numbers that it reads, for which what is noted runs first.
What no variable and no node of the graph holds by then is never written to memory, and
what nodes alone hold is computed again if that takes less (`recompute.py`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import RLock
from typing import Any, NamedTuple

import minitorch.operators as operators
from minitorch.backend import get_backend
from minitorch.backend.fusion import LONG, Program, Step, needed, run_step
from minitorch.compiler.recompute import Recipe, put_off
from minitorch.dtypes import DType, computed
from minitorch.executor import PLAIN, Executor, active, standing
from minitorch.function import Context
from minitorch.tensor_data import Shape, Storage, TensorData, broadcast_shapes

# What programs are made of: all but users' own functions.
OURS = {fn for fn in vars(operators).values() if callable(fn)}

# What rows are folded with.
FOLDS = {operators.add, operators.maximum, operators.minimum}

# Functions, and inputs, of one program: a kernel takes 4 KB of arguments.
MOST_STEPS, MOST_INPUTS = 32, 32


class Fused(NamedTuple):
    """Functions that ran as one.

    Attributes:
        program: the functions.
        shape: of all results.
        device: where.
    """

    program: Program
    shape: Shape
    device: str

    def __str__(self) -> str:
        names = " ".join([
            step.fn.__name__ if step.fold_start is None else f"fold({step.fn.__name__})"
            for step in self.program.steps
        ])  # fmt: skip
        read, written = len(self.program.inputs), len(self.program.kept)
        return f"{self.shape} {self.device}: {names} ({read} read, {written} written)"


class Recorder(Executor):
    """Notes elementwise functions, and folds of rows, and runs them together.

    Each thread has its own.

    Args:
        told: gets a `Fused` for all that runs, in order.
    """

    def __init__(self, told: list[Fused] | None = None) -> None:
        self.told = told
        self.lock = RLock()  # another thread may need what is noted here
        self.runs = False  # whether what was noted is being run
        self.types: dict[str, frozenset[DType]] = {}  # that each device puts together
        self._exit = ExitStack()
        self._begin("", ())

    def _begin(self, device: str, shape: Shape) -> None:
        """Nothing is noted; what comes next is on `device`, of `shape`."""
        self.device, self.shape = device, shape
        self.rows: Shape | None = None  # the shape of folds of rows, if there are some
        self.folded = 0  # the dims of a row
        self.whole = False  # whether there is one, which many threads fold
        self.inputs: list[TensorData] = []
        self.steps: list[Step] = []
        self.made: list[weakref.ref[Storage]] = []  # the memory of each step's result
        self.known: dict[tuple[Any, ...], int] = {}  # the number of each input
        self.pending: dict[int, int] = {}  # of each result, by its memory's id
        self.nodes: list[weakref.ref[Context]] = []  # of operations that were noted
        self.again: dict[tuple[Recipe, int], int] = {}  # steps that are computed again

    # ---------------------------------------------------------------------- the block

    def __enter__(self) -> Recorder:
        self.outer = active.executor  # it goes on seeing what runs
        self._exit.enter_context(standing(self))
        return self

    def __exit__(self, *exc: object) -> None:
        with self._exit:
            self.flush()

    # ------------------------------------------------------------------------ the seam

    @property
    def below(self) -> Executor:
        """Who stood here before, or one who runs all at once."""
        return self.outer or PLAIN

    @property
    def postpones(self) -> bool:  # type: ignore[override]
        """As who stood here before."""
        return self.below.postpones

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        outer = self.outer
        out = run(*args) if outer is None else outer.operation(name, run, args)
        if self.steps and args and type(args[0]) is Context and args[0].edges:
            self.nodes.append(weakref.ref(args[0]))
        return out

    def read(self, name: str, fn: Callable[..., Any], a: TensorData) -> Any:
        self.flush()
        return self.below.read(name, fn, a)

    def advance(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        return self.below.advance(name, run, args)

    def end_behind(self, wait: Callable[[], Any]) -> None:
        self.below.end_behind(wait)

    def forget(self) -> None:
        self.below.forget()

    def settle(self) -> None:
        self.flush()
        self.below.settle()

    def puts_off(self, a: TensorData) -> bool:
        k = self.pending.get(id(a.storage))
        return k is not None and self.made[k]() is a.storage

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Note the function; or run it, after what is noted if it takes tensors."""
        with self.lock:
            if not self.runs:
                part = PARTS.get(name)
                if part is not None:
                    noted = part(self, *args, **kwargs)
                    if noted is not None:
                        return noted
                if self.steps and name not in MAKERS:
                    self.flush()
        if self.outer is None:
            return fn(*args, **kwargs)
        return self.outer.call(name, fn, args, kwargs)

    # ------------------------------------------------------------------- what is noted

    def note(
        self, fn: Callable, operands: tuple[TensorData, ...], dtype: DType
    ) -> TensorData | None:
        """Memory for fn(operands), of type `dtype`; None if no program can have it."""
        device, shape = operands[0].storage.device, operands[0].shape
        types = self._types(device)
        if dtype not in types or fn not in OURS:
            return None
        for a in operands:
            if a.storage.dtype not in types:
                return None
            if a.shape != shape:
                shape = broadcast_shapes(*[a.shape for a in operands])
        # BEGIN SOLUTION a12.6
        per_row = shape == self.rows and device == self.device
        args = None
        if per_row or (shape == self.shape and device == self.device):
            args = self._args(operands, per_row)
        if args is None:
            self.flush()
            self._begin(device, shape)
            per_row, args = False, self._args(operands, False)
        return self._noted(Step(fn, args, dtype, per_row), shape)
        # END SOLUTION a12.6

    def note_fold(
        self, fn: Callable, a: TensorData, dims: Sequence[int], start: float
    ) -> TensorData | None:
        """Memory for a fold of the rows of `a`; None if no program can have it.

        A row is the last dims; others are better folded by themselves. What becomes of
        a long row that is all there is, no other elements are computed with.
        """
        device, shape, dtype = a.storage.device, a.shape, a.storage.dtype
        types = self._types(device)
        count = len(dims)
        row = math.prod(shape[len(shape) - count :])
        if (
            dtype not in types or not dtype.is_floating_point or fn not in FOLDS
            or sorted(dims) != list(range(len(shape) - count, len(shape)))
            or row < 2
        ):  # fmt: skip
            return None
        rows, args = (*shape[: len(shape) - count], *[1] * count), None
        whole = row > LONG and math.prod(shape) == row
        # BEGIN TWIN a12.6
        here = shape == self.shape and device == self.device
        if here and (self.rows is None or (self.rows, self.whole) == (rows, whole)):
            args = self._args((a,), False)
            if args and args[0] >= 0 and self.steps[args[0]].per_row:
                args = None  # rows of one number, which lies nowhere as a row
        if args is None:
            self.flush()
            self._begin(device, shape)
            args = self._args((a,), False)
        self.rows, self.folded, self.whole = rows, count, whole
        return self._noted(Step(fn, args, dtype, True, start), rows)
        # END TWIN a12.6

    def _types(self, device: str) -> frozenset[DType]:
        """The types that a device puts together."""
        found = self.types.get(device)
        if found is None:
            found = self.types[device] = get_backend(device).fused_types
        return found

    def _noted(self, step: Step, shape: Shape) -> TensorData:
        """The result of a step, which gets memory when that is to be written."""
        # BEGIN SOLUTION a12.6
        out = TensorData.around(None, step.dtype, self.device, shape)
        self.pending[id(out.storage)] = len(self.steps)
        self.steps.append(step)
        self.made.append(weakref.ref(out.storage))
        return out
        # END SOLUTION a12.6

    def result(self, k: int) -> TensorData:
        """The result of step k as a tensor."""
        # BEGIN TWIN a12.6
        step, storage = self.steps[k], self.made[k]()
        shape = (self.rows or ()) if step.per_row else self.shape
        if storage is not None:
            return TensorData(storage, shape)
        out = TensorData.around(None, step.dtype, self.device, shape)
        self.pending[id(out.storage)] = k
        self.made[k] = weakref.ref(out.storage)
        return out
        # END TWIN a12.6

    def noted_again(self, recipe: Recipe, k: int) -> TensorData | None:
        """The result of step k of `recipe`, if it is in this program."""
        found = self.again.get((recipe, k))
        return None if found is None else self.result(found)

    def _args(self, operands: tuple[TensorData, ...], per_row: bool) -> Any:
        """The numbers of the operands, as `Step.args` has them; None where a new
        program has to begin: this one is long enough, or it has an operand in another
        form than its steps, and then nothing is noted of them."""
        # BEGIN SOLUTION a12.6
        count = len(self.inputs)
        if len(self.steps) >= MOST_STEPS or count + len(operands) > MOST_INPUTS:
            return None
        args = []
        for a in operands:
            storage = a.storage
            k = self.pending.get(id(storage))
            if k is not None and self.made[k]() is storage:  # yet to be written
                if not self._fits(a, k, per_row):
                    del self.inputs[count:]
                    return None
                args.append(k)
                continue
            key = id(storage), a.shape, a.strides, a.offset
            if key not in self.known:
                self.known[key] = ~len(self.inputs)
                self.inputs.append(a)
            args.append(self.known[key])
        return tuple(args)
        # END SOLUTION a12.6

    def _fits(self, a: TensorData, k: int, per_row: bool) -> bool:
        """Whether `a` is the result of step k as it is. A number for each row is one
        for all of the row, too."""
        # BEGIN SOLUTION a12.6
        row = self.steps[k].per_row
        if a.offset != 0 or (per_row and not row) or (self.whole and row != per_row):
            return False
        shape = (self.rows or ()) if row else self.shape
        if a.shape == shape:
            return a.contiguous
        made = TensorData(a.storage, shape)
        return a.shape == self.shape and a.strides == made.expand(a.shape).strides
        # END SOLUTION a12.6

    def _held(self) -> dict[int, Storage]:
        """The memory of all results that somebody holds, by the numbers of their steps,
        in order."""
        # BEGIN SOLUTION a12.6
        return {k: found for k, ref in enumerate(self.made) if (found := ref())}
        # END SOLUTION a12.6

    def flush(self) -> None:
        """Run what is noted."""
        with self.lock:
            if self.steps:
                self._flush()

    def _flush(self) -> None:
        if len(self.steps) == 1 and self.told is None:
            self._run_alone()
            return
        outs = self._held()
        if self.nodes:
            outs = put_off(self, outs)
        inputs, steps, folded = self.inputs, tuple(self.steps), self.folded
        device, shape, rows = self.device, self.shape, self.rows or ()
        self._begin("", ())  # also if it fails
        if not outs:
            return
        backend = get_backend(device)
        types = tuple([a.storage.dtype for a in inputs])
        program = needed(Program(types, steps, tuple(outs), folded))
        if self.told is not None:
            self.told.append(Fused(program, shape, device))
        raws = {}
        for k, storage in zip(program.kept, outs.values()):
            size = rows if program.steps[k].per_row else shape
            raws[k] = backend.empty(size, storage.dtype)
        backend.fused(program, shape, inputs, raws)
        for k, storage in zip(program.kept, outs.values()):
            storage.array = raws[k].storage.array

    def _run_alone(self) -> None:
        """Run the one function that is noted, as if it had not been."""
        out, (step,), inputs = self.made[0](), self.steps, self.inputs
        dims = range(len(self.shape) - self.folded, len(self.shape))
        backend = get_backend(self.device)
        self._begin("", ())
        if out is not None:
            self.runs = True
            try:
                given = [inputs[~a] for a in step.args]
                out.array = run_step(backend, step, given, dims).storage.array
            finally:
                self.runs = False


# What reads no tensors: it may run before what is noted.
MAKERS = {"arange", "empty", "from_numpy", "full", "normal", "number", "uniform"}


# -------------------------------------------- functions of a backend, as a program's


def _map(
    note: Recorder, fn: Callable, a: TensorData, dtype: DType | None = None,
    out: Any = None,
) -> TensorData | None:  # fmt: skip
    return None if out else note.note(fn, (a,), dtype or a.storage.dtype)


def _zip(
    note: Recorder, fn: Callable, a: TensorData, b: TensorData,
    dtype: DType | None = None, out: Any = None,
) -> TensorData | None:  # fmt: skip
    return None if out else note.note(fn, (a, b), dtype or a.storage.dtype)


def _where(
    note: Recorder, condition: TensorData, a: TensorData, b: TensorData, out: Any = None
) -> TensorData | None:
    if out:
        return None
    return note.note(operators.where, (condition, a, b), a.storage.dtype)


def _clamp(
    note: Recorder, a: TensorData, low: Any, high: Any, out: Any = None
) -> TensorData | None:
    found, dtype = None if out else a, a.storage.dtype
    for fn, bound in ((operators.maximum, low), (operators.minimum, high)):
        if found is not None and bound is not None:
            number = get_backend(a.storage.device).number(bound, computed(dtype))
            found = note.note(fn, (found, number), dtype)
    return found


def _copy(note: Recorder, a: TensorData, dtype: DType) -> TensorData | None:
    """A conversion to float32 or float64; a half type has to be rounded to at once."""
    if dtype is a.storage.dtype or not dtype.is_floating_point or dtype.half:
        return None
    return note.note(operators.identity, (a,), dtype)


def _reduce(
    note: Recorder, fn: Callable, a: TensorData, dims: Sequence[int], start: float,
    dtype: DType | None = None,
) -> TensorData | None:  # fmt: skip
    return note.note_fold(fn, a, dims, start) if dtype in (None, a.dtype) else None


def _mean(
    note: Recorder, a: TensorData, dims: Sequence[int], count: float
) -> TensorData | None:
    total = note.note_fold(operators.add, a, dims, 0)
    if total is None:
        return None
    number = get_backend(a.storage.device).number(count, computed(a.storage.dtype))
    return note.note(operators.div, (total, number), a.storage.dtype)


PARTS: dict[str, Callable[..., TensorData | None]] = {
    "clamp": _clamp,
    "copy": _copy,
    "map": _map,
    "mean": _mean,
    "reduce": _reduce,
    "where": _where,
    "zip": _zip,
}
