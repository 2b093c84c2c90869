"""Follow simulated threads statement by statement, as the warps of a GPU would go.

With this file one can count, for each statement of a kernel, how many warps came to it,
with how many of their lanes, and how often lanes of a warp left a branch in different
directions (`Trace`).

Lanes of a warp execute a statement together if they are in the same call of its
function, and in the same iteration of all loops around it: lanes that part at a branch
meet again behind it. (A GPU's compiler may turn a short branch into predicates, under
which all lanes go the same way; the counts here are those of the source.)
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any

from cuda_ops.simulator.block import current_thread
from cuda_ops.simulator.watch import STAND_INS, WARP, Request

# A block's index and a warp's number, a file, the first line of a statement.
Where = tuple[tuple[tuple[int, int, int], int], str, int]
LEFT = -1  # in the place of the next statement: the function was left


@dataclass
class Statements:
    """The statements of a file, each known by its first line.

    Attributes:
        first: for each line, the first one of its statement.
        loops: for each statement, the loops that it is in, the outermost first; of a
            loop's head, the loop itself as well.
        branches: those that decide where to go on.
    """

    first: dict[int, int]
    loops: dict[int, tuple[int, ...]]
    branches: set[int]


@cache
def statements(file: str) -> Statements:
    """The statements of a file; none, if it cannot be read."""
    found = Statements({}, {}, set())
    try:
        _collect(ast.parse("".join(linecache.getlines(file))).body, (), found)
    except SyntaxError:
        pass
    return found


def _collect(body: list[ast.stmt], loops: tuple[int, ...], found: Statements) -> None:
    for node in body:
        at, end, inner = node.lineno, node.end_lineno or node.lineno, loops
        test = getattr(node, "test", getattr(node, "iter", None))
        if isinstance(node, (ast.For, ast.While)):
            inner = (*loops, at)
        if isinstance(node, (ast.If, ast.For, ast.While)) and test is not None:
            found.branches.add(at)
            end = test.end_lineno or at
        elif isinstance(getattr(node, "body", None), list):
            end = at  # a function, a class
        found.first.update(dict.fromkeys(range(at, end + 1), at))
        found.loops[at] = inner
        for part, around in (("body", inner), ("orelse", loops)):
            _collect(getattr(node, part, []), around, found)


class Visit:
    """A warp at a statement. Lanes are bits of a number.

    Attributes:
        number: how often the lane that came first had come to the statement before.
        lanes: those that came.
        ways: of a branch, for each line where some went on, which ones these were.
        requests: for memory; kept by who wants to see them.
    """

    __slots__ = ("lanes", "number", "requests", "ways")

    def __init__(self, number: int = 0) -> None:
        self.number, self.lanes = number, 0
        self.ways: dict[int, int] = {}
        self.requests: tuple[Request, ...] = ()

    def leave(self, target: int, lane: int) -> None:
        """A lane goes on at `target`."""
        self.ways[target] = self.ways.get(target, 0) | lane


@dataclass
class Flow:
    """How warps went through a statement.

    Attributes:
        warps: how often one came.
        lanes: with how many active lanes, in all.
        branches: how often it decided where to go on.
        divergent: how often its lanes did not go the same way.
    """

    warps: int = 0
    lanes: int = 0
    branches: int = 0
    divergent: int = 0


class Trace:
    """Follows all threads of the blocks that are simulated.

    Attributes:
        flows: for each file and first line of a statement.
        times: for a warp, a file and such a line, how often the warp came.
        first: for the same, the first `keep` visits, by the iterations of loops.
    """

    def __init__(self, keep: int = 0) -> None:
        self.keep = keep
        self.flows: dict[tuple[str, int], Flow] = {}
        self.times: Counter[Where] = Counter()
        self.first: dict[Where, list[Visit]] = {}
        self.visits: dict[tuple[Any, ...], Visit] = {}

    @contextmanager
    def following(
        self, run: Callable[[], Any], codes: Collection[int]
    ) -> Iterator[Callable[[], None]]:
        """`run`, whose steps are followed in functions whose codes have these ids."""

        def follow() -> None:
            thread: Any = current_thread()
            thread.steps = Steps(self, thread)
            sys.settrace(on_call)
            run()

        def on_call(frame: FrameType, event: str, arg: Any) -> Any:
            if id(frame.f_code) not in codes:
                return None
            steps: Steps = current_thread().steps  # Python traces all of them as one
            return steps.on_call(frame)

        before = sys.gettrace()
        try:
            yield follow
        finally:
            sys.settrace(before)

    def here(self) -> Visit:
        """Where the calling thread is, the same for all lanes that are there."""
        thread: Any = current_thread()
        visit: Visit = thread.steps.calls[-1].visit
        return visit

    def count(self) -> None:
        """Add what was visited to `flows`, and to `first`."""
        for (_, _, file, line, _), visit in self.visits.items():
            flow = self.flows.setdefault((file, line), Flow())
            flow.warps += 1
            flow.lanes += visit.lanes.bit_count()
            if line in statements(file).branches:
                flow.branches += 1
                flow.divergent += len(visit.ways) > 1
        if self.keep:
            self._keep_first()
        self.visits.clear()

    def _keep_first(self) -> None:
        """Note what comes first, which is not what was simulated first: a thread goes
        through a loop before another one of its warp begins with it. All visits before
        one of the first `keep` are among these; so its first lane has made fewer."""
        found = defaultdict(list)
        for (warp, path, file, line, turns), visit in self.visits.items():
            where = warp, file, line
            self.times[where] += 1
            if visit.number < self.keep:
                found[where].append((path, turns, visit))
        for where, visits in found.items():
            visits.sort(key=lambda at: at[:2])
            self.first[where] = [visit for _, _, visit in visits[: self.keep]]


class Call:
    """A call of a function that a thread is in.

    Attributes:
        path: which call of its warp it is.
        at: the statement; `turns`, the iterations of the loops around it.
        visit: of the warp, to the statement; `branch`, the same if it is one.
    """

    __slots__ = (
        "_counts", "at", "branch", "file", "path", "statements", "turns", "visit",
    )  # fmt: skip

    def __init__(self, file: str, path: tuple[Any, ...]) -> None:
        self.file, self.path, self.statements = file, path, statements(file)
        self.at = 0
        self.turns: tuple[int, ...] = ()
        self.visit = Visit()
        self.branch: Visit | None = None
        self._counts: dict[int, int] = {}

    def go(self, to: int) -> None:
        """Go on at the statement `to`."""
        loops = self.statements.loops
        around = loops[to]
        if around:
            if around[-1] == to:  # at the head of a loop: from within it, or anew
                again = to in loops.get(self.at, ())
                self._counts[to] = self._counts[to] + 1 if again else 0
            self.turns = tuple([self._counts.get(loop, 0) for loop in around])
        else:
            self.turns = ()
        self.at = to


class Steps:
    """Follows one thread."""

    def __init__(self, trace: Trace, thread: Any) -> None:
        self._trace = trace
        at = thread.blockIdx
        self._warp = (at.x, at.y, at.z), thread.thread_id // WARP
        self._lane = 1 << thread.thread_id % WARP
        self._came: Counter[tuple[str, int]] = Counter()
        self.calls: list[Call] = []

    def on_call(self, frame: FrameType) -> Any:
        """A function begins; gives what Python calls from then on."""
        path: tuple[Any, ...] = ()
        if self.calls:
            caller = self.calls[-1]
            back = frame.f_back
            path = (*caller.path, caller.at, caller.turns, back and back.f_lasti)
        self.calls.append(Call(frame.f_code.co_filename, path))
        return self.on_step

    def on_step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A line begins, or the function is left."""
        call = self.calls[-1]
        if event == "return":
            if call.branch is not None:
                call.branch.leave(LEFT, self._lane)
            self.calls.pop()
        elif event == "line":
            to = call.statements.first.get(frame.f_lineno)
            if to is not None and to != call.at:
                self._go(call, to)
        return self.on_step

    def _go(self, call: Call, to: int) -> None:
        if call.branch is not None:
            call.branch.leave(to, self._lane)
        call.go(to)
        key = self._warp, call.path, call.file, to, call.turns
        visit = self._trace.visits.get(key)
        if visit is None:
            visit = self._trace.visits[key] = Visit(self._came[call.file, to])
        self._came[call.file, to] += 1
        visit.lanes |= self._lane
        call.visit = visit
        call.branch = visit if to in call.statements.branches else None


def codes_of(functions: Collection[Any]) -> Iterator[CodeType]:
    """The codes of functions whose statements are a kernel's, not the simulator's."""
    for fn in functions:
        module = fn.__module__ or ""
        ours = module.startswith(("cuda_ops.simulator", "numba", "numpy", "threading"))
        if not ours and module not in STAND_INS:
            yield fn.__code__
