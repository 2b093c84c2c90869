"""Saved tensors that are computed again in the backward pass, and not kept.

With this file what only a backward pass will read need not be written: a GELU that is
written out saves eight tensors, all of which can be had from its input.

    forward     x  ->  y0 ... y8    y8 is written; the graph has a `Later` for others
    backward    y3 is asked for     its steps are noted once more, in the program that
                                    needs it, and run as a part of it

A recorder calls `put_off` before it runs a program. Only elementwise steps are computed
again: results of folds are small, and cost a pass over their rows.

Source: Chen et al., "Training deep nets with sublinear memory cost", 2016, for the
trade of memory for arithmetic; where memory is slow, arithmetic is faster, too.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from minitorch.autodiff import Variable
from minitorch.backend.fusion import Step
from minitorch.executor import active
from minitorch.function import Context
from minitorch.tensor_data import Shape, Storage, TensorData

if TYPE_CHECKING:
    from minitorch.compiler.recorder import Recorder


class Recipe:
    """How results of a program are computed once more.

    Attributes:
        steps: of the program.
        sources: what is read: input k is ~k, and the result of step k is k.
        shape: of all other results.
    """

    def __init__(
        self, steps: Sequence[Step], sources: dict[int, TensorData], shape: Shape
    ) -> None:
        self.steps = steps
        self.sources = sources
        self.shape = shape
        self.versions = {k: a.storage.version for k, a in sources.items()}

    def note(self, recorder: Recorder, k: int) -> TensorData:
        """The result of step k, or input ~k, as `recorder` has it."""
        if k in self.sources:
            source = self.sources[k]
            if source.storage.version != self.versions.get(k, source.storage.version):
                raise RuntimeError(
                    f"compile: a tensor of shape {source.shape} was changed in place "
                    f"between a compiled function and its backward pass, which has to "
                    f"compute from it what was not kept; change a clone() of it"
                )
            return source
        noted = recorder.noted_again(self, k)
        if noted is None:
            step = self.steps[k]
            given = [self.note(recorder, a) for a in step.args]
            if all(a.shape != self.shape for a in given):
                given[0] = given[0].expand(self.shape)
            noted = recorder.note(step.fn, tuple(given), step.dtype)
            assert noted is not None  # it was noted once, on the same device
            recorder.again[self, k] = len(recorder.steps) - 1
        return noted


class Later:
    """In a node, the place of a tensor that is computed when it is asked for. Like the
    tensor it has a shape, a type and a device, which a node asks of its outputs.

    Attributes:
        recipe, k: how.
        tensor: the arguments of `Context._wrap` behind the first, if it was a tensor
            and not the raw result of the node itself.
    """

    def __init__(self, recipe: Recipe, k: int, was: Any) -> None:
        self.recipe, self.k = recipe, k
        raw = getattr(was, "raw", was)
        self.shape, self.dtype, self.device = raw.shape, raw.dtype, raw.device
        self.tensor = None if type(was) is TensorData else (was.node, was.output_index)

    def now(self, wrap: Any) -> Any:
        """The tensor: noted where one notes, else with its memory."""
        from minitorch.compiler.recorder import Recorder

        here = active.executor
        if not isinstance(here, Recorder):
            with Recorder():
                return self.now(wrap)
        with here.lock:  # another thread may need what is noted here
            raw = self.recipe.note(here, self.k)
        return raw if self.tensor is None else wrap(raw, *self.tensor)


class Recomputing(Context):
    """A node that keeps less than it saved."""

    def trust(self) -> None:
        super().trust()
        for x in self._saved or ():
            if type(x) is Later:
                x.recipe.versions.clear()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given, computed again, and not kept."""
        kept, outputs = self._saved, self._outputs  # another thread may use them, too
        late = {id(x): x for x in kept or () if type(x) is Later}
        now = {i: x.now(self._wrap) for i, x in late.items()}
        kept = kept and _replaced(kept, now)
        return self._as_saved(kept, _replaced(outputs, now))


def _replaced(entries: Iterable[Any], by: dict[int, Any]) -> tuple[Any, ...]:
    return tuple([by.get(id(x), x) for x in entries])


# ---------------------------------------------------------------------- the decision


def put_off(recorder: Recorder, outs: dict[int, Storage]) -> dict[int, Storage]:
    """Of the results `outs` those that must be written before a program is forgotten.

    What nodes alone hold is put off, if what it is computed from takes less memory: by
    then they hold a `Later`. Rows' numbers that this needs are written, too.
    """
    alive = [node for each in recorder.nodes if (node := each()) and node._saved]
    nodes = list(dict.fromkeys(alive))  # one may have run backward here, too
    holders = _holders(nodes)
    late = {
        k
        for k in outs
        if not recorder.steps[k].per_row
        and _only_these_hold(outs, k, holders, recorder.shape)
    }
    if not late:
        return outs
    sources = _sources(recorder, late, outs, holders.keys())
    size = prod(recorder.shape)
    less = sum([size * recorder.steps[k].dtype.itemsize for k in late])
    others = (a for a in sources.values() if id(a.storage) not in holders)
    more = {id(a.storage): _bytes(a) for a in others}
    if sum(more.values()) >= less:
        return outs
    recipe = Recipe(tuple(recorder.steps), sources, recorder.shape)
    numbers = {id(outs[k]): k for k in late}
    for node in nodes:
        by = {
            id(x): Later(recipe, numbers[id(raw.storage)], x)
            for x, raw in _raws(node)
            if id(raw.storage) in numbers
        }
        if by:
            node._saved = _replaced(node._saved or (), by)
            node._outputs = _replaced(node._outputs, by)
            node.__class__ = Recomputing
    written = {k: a.storage for k, a in sources.items() if k >= 0}
    rest = {k: storage for k, storage in outs.items() if k not in late}
    return dict(sorted({**rest, **written}.items()))


def _bytes(a: TensorData) -> int:
    """Of all memory behind a window: who holds the window keeps that."""
    array = a.storage.array
    return (a.size if array is None else array.shape[0]) * a.dtype.itemsize


def _raws(node: Context) -> Iterator[tuple[Any, TensorData]]:
    """What a node keeps, and the window on memory that it is."""
    for x in (*(node._saved or ()), *node._outputs):
        if type(x) is TensorData:
            yield x, x
        elif isinstance(x, Variable):
            yield x, x.raw  # type: ignore[attr-defined]


# By the id of memory: what leads there, each with how often it is held.
Holders = dict[int, dict[int, list[Any]]]


def _holders(nodes: Iterable[Context]) -> Holders:
    """The windows on memory that nodes keep, and the tensors around them."""
    found: Holders = {}
    for node in nodes:
        for x, raw in _raws(node):
            theirs = found.setdefault(id(raw.storage), {})
            if id(x) not in theirs and x is not raw:
                theirs.setdefault(id(raw), [raw, 0])[1] += 1
            theirs.setdefault(id(x), [x, 0])[1] += 1
    return found


def _only_these_hold(
    outs: dict[int, Storage], k: int, holders: Holders, shape: Shape
) -> bool:
    """Whether result k is held by nodes alone, and by each as a whole."""
    windows = 0
    for cell in holders.get(id(outs[k]), {}).values():
        if sys.getrefcount(cell[0]) != LOOKED_UP + cell[1]:
            return False
        if type(cell[0]) is TensorData:
            windows += 1
            if cell[0].shape != shape or not cell[0].contiguous:
                return False
    return windows > 0 and sys.getrefcount(outs[k]) == LOOKED_UP + windows


# How many references there are to what is held once, when it is looked up there.
_once = [object()]
LOOKED_UP = sys.getrefcount(_once[0])


def _sources(
    recorder: Recorder,
    late: Iterable[int],
    outs: dict[int, Storage],
    saved: Collection[int],
) -> dict[int, TensorData]:
    """From what to compute the steps `late`: inputs, rows' numbers, and results that
    have memory and that nodes hold."""
    found: dict[int, TensorData] = {}
    open, seen = list(late), set(late)
    while open:
        for a in recorder.steps[open.pop()].args:
            if a in seen:
                continue
            seen.add(a)
            if a < 0:
                found[a] = recorder.inputs[~a]
            elif recorder.steps[a].per_row:
                found[a] = recorder.result(a)
            elif a in outs and id(outs[a]) in saved:
                found[a] = recorder.result(a)
            else:
                open.append(a)
    return found
