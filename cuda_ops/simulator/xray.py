"""Look into a kernel, line by line, on any machine.

With this file one can run a few blocks of a kernel in the simulator and get all that
was seen as one *scene* of plain numbers and texts, for tables and pictures (`xray`):

    scene = xray(lambda: transpose.tiled(a), "transpose_tiled")
    scene["functions"][0]["lines"][7]["global load"]     # requests, sectors, ideal

The first, the middle and the last block run, and no others. So results are not to be
used, and a race between blocks is found only if it is between these. What each number
means, and what no simulator knows, is in docs/gpu_kernels.md.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from types import CodeType, FrameType
from typing import Any

import numpy as np

from cuda_ops.simulator import reachable
from cuda_ops.simulator import watch as watching
from cuda_ops.simulator.steps import Trace, Visit, codes_of, statements
from cuda_ops.simulator.watch import (
    Launch,
    Line,
    Request,
    Traffic,
    Watch,
    served_together,
)

VERSION = 1  # of the scenes
VISITS = 8  # of each warp to each line, that are shown lane by lane
KINDS = tuple(" ".join(w) for w in product(("global", "shared"), ("load", "store")))


class Seen(Exception):
    """The kernel that was wanted has run: what else is launched does not matter."""


class XRay(Watch):
    """Watches the first launch of one kernel, and nothing else.

    Args:
        name: the kernel's; of a template's kernel with or without what stands in
            brackets. The first one that is launched, if it is "".
        lanes: keep what each lane did when its warp came to a line for the first times.
    """

    def __init__(self, name: str = "", lanes: bool = False) -> None:
        super().__init__()
        self.name = name
        self.lanes = lanes
        self.launch: Launch | None = None
        self.others: list[str] = []  # launched before
        self.asked: dict[tuple[Line, str], Traffic] = {}
        self.shown: dict[tuple[Line, str], Request] = {}  # the first one
        self.races: dict[Line, str] = {}
        self.trace = Trace(VISITS if lanes else 0)
        self._blocks = (0, 0, 0)
        self._codes: dict[int, CodeType] = {}  # by their ids
        self._inside = False

    def begin(self, launch: Launch) -> None:
        if self.launch is not None:
            raise Seen
        launch = launch._replace(args=tuple(map(_on_host, launch.args)))
        super().begin(launch)
        self._blocks = launch.blocks
        template = re.split(r"[\[+]", launch.name)[0]
        self._inside = self.name in ("", launch.name, template)
        if self._inside:
            self.launch = launch
            self._codes = {id(code): code for code in codes_of(reachable(launch.fn))}
        else:
            self.others.append(launch.name)

    def sample(self) -> Sequence[Any]:
        from numba.cuda.simulator.kernelapi import Dim3

        nx, ny, nz = self._blocks
        count = nx * ny * nz
        numbers = sorted({0, count // 2, count - 1}) if count else []
        return [Dim3(n % nx, n // nx % ny, n // (nx * ny)) for n in numbers]

    @contextmanager
    def followed(self, run: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
        if not self._inside:
            yield run
            return
        with self.trace.following(run, self._codes) as follow:
            yield follow

    def wrap(self, array: Any, name: str, shared: bool) -> Any:
        return super().wrap(_on_host(array), name, shared) if self._inside else array

    def forget(self, array: Any) -> None:
        if self._inside:
            super().forget(array)

    def place(self, frame: FrameType | None) -> tuple[Any, ...]:
        """By the iterations of loops as well; not by a running number alone."""
        visit = self.trace.here()
        found: list[Any] = [visit]
        while frame is not None:
            found.append(self.start_of(frame))
            if id(frame.f_code) in self._codes:
                break
            found.append(id(frame.f_code))
            frame = frame.f_back
        return tuple(found)

    def on_race(self, line: Line, error: RuntimeError) -> None:
        self.races.setdefault(line, str(error).removeprefix("race: "))

    def on_request(
        self, request: Request, traffic: Traffic, place: tuple[Any, ...]
    ) -> None:
        super().on_request(request, traffic, place)
        key = request.line, _kind(request)
        visit: Visit = place[0]
        if visit.number < self.trace.keep:
            visit.requests += (request,)
        self.asked[key] = self.asked.get(key, Traffic()) + traffic
        self.shown.setdefault(key, request)

    # ------------------------------------------------------------------ the scene

    def scene(self, error: str = "") -> dict[str, Any]:
        """All that was seen; see docs/gpu_kernels.md.

        Raises:
            ValueError: the kernel was not launched, or without blocks.
        """
        launch, found = self.launch, self.lines
        if launch is None:
            others = ", ".join(dict.fromkeys(self.others)) or "nothing"
            raise ValueError(
                f"xray: {self.name or 'no kernel'} was not launched; launched: {others}"
            )
        if not self.sample():
            raise ValueError(
                f"xray: {launch.name} was launched without blocks, {launch.blocks}; "
                f"there is nothing to see"
            )
        self.trace.count()
        functions = [self._function(code, found) for code in self._codes.values()]
        functions = [f for f in functions if any("warps" in x for x in f["lines"])]
        return {
            "scene": "xray",
            "version": VERSION,
            "kernel": launch.name,
            "module": launch.fn.__module__,
            "launch": {
                "blocks": launch.blocks,
                "threads": launch.threads,
                "shared": launch.shared,
                "arguments": " ".join(map(word, launch.args)),
                "sampled": [[at.x, at.y, at.z] for at in self.sample()],
            },
            "functions": functions,
            "error": error,
        }

    def _function(self, code: CodeType, found: dict[Line, Traffic]) -> dict[str, Any]:
        file, first = code.co_filename, statements(code.co_filename).first
        numbers = list(_body(code))
        here = {n: self._line(file, n) for n in numbers}
        for line, traffic in found.items():
            at = here.get(first.get(line.number, line.number))
            if line.file == file and at is not None:
                self._add_traffic(at, line, traffic)
        if self.lanes:
            for (warp, where, number), visits in self.trace.first.items():
                if where == file and number in here:
                    times = self.trace.times[warp, where, number]
                    seen = here[number].setdefault("seen", [])
                    seen.append(_seen(*warp, times, visits))
        return {
            "name": code.co_name,
            "file": file,
            "lines": [here[n] for n in numbers],
        }

    def _line(self, file: str, number: int) -> dict[str, Any]:
        text = linecache.getline(file, number).rstrip()
        flow = self.trace.flows.get((file, number))
        return {"line": number, "text": text, **(vars(flow) if flow else {})}

    def _add_traffic(self, at: dict[str, Any], line: Line, traffic: Traffic) -> None:
        if traffic.races:
            at["races"] = at.get("races", 0) + traffic.races
            at.setdefault("race", self.races[line])
        for kind in KINDS:
            asked, shown = (d.get((line, kind)) for d in (self.asked, self.shown))
            if isinstance(asked, Traffic) and isinstance(shown, Request):
                had = at.setdefault(kind, {"first": _first(shown)})
                for name, count in _counts(asked, kind).items():
                    had[name] = had.get(name, 0) + count


def _on_host(arg: Any) -> Any:
    """What is in a device array of Numba's simulator; other arguments as they are."""
    return getattr(arg, "_ary", arg)


def _counts(asked: Traffic, kind: str) -> dict[str, int]:
    """What was asked for, by the names that a scene has for it."""
    if kind.startswith("shared"):
        taken, ideal = asked.wavefronts, asked.ideal_wavefronts
        return {"requests": asked.shared_requests, "wavefronts": taken, "ideal": ideal}
    taken, ideal = asked.sectors, asked.ideal_sectors
    return {"requests": asked.requests, "sectors": taken, "ideal": ideal}


def _first(request: Request) -> dict[str, Any]:
    """A request, as a picture shows it: the first byte of each active lane."""
    firsts = [[lane, first] for lane, (_, first) in sorted(request.lanes.items())]
    return {"bytes": request.width, "lanes": firsts}


def _kind(request: Request) -> str:
    return KINDS[2 * request.shared + request.write]


def _seen(
    block: tuple[int, int, int], warp: int, times: int, visits: Sequence[Visit]
) -> dict[str, Any]:
    """What the lanes of a warp did at a line."""
    shown = [
        {
            "lanes": visit.lanes,
            "ways": sorted(visit.ways.items()),
            "requests": [_lane_by_lane(request) for request in visit.requests],
        }
        for visit in visits
    ]
    return {"block": block, "warp": warp, "times": times, "visits": shown}


def _lane_by_lane(request: Request) -> dict[str, Any]:
    kind, firsts = _kind(request), {n: at for n, (_, at) in request.lanes.items()}
    together = served_together(firsts, request.width, request.write)
    return {
        "kind": kind,
        "array": request.array,
        **_first(request),
        **_counts(request.traffic(), kind),
        **({"together": together} if request.shared else {}),
    }


def _body(code: CodeType) -> range:
    """The lines of a function, without its docstring."""
    text = "".join(linecache.getlines(code.co_filename))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if start == code.co_firstlineno:
                skip = len(node.body) > 1 and ast.get_docstring(node) is not None
                return range(node.body[skip].lineno, (node.end_lineno or start) + 1)
    return range(0)


def word(arg: Any) -> str:
    """The type of an argument as text, `float32[]`, which a compiler can be told."""
    if isinstance(arg, np.ndarray):
        return f"{arg.dtype.name}[{',' * (arg.ndim - 1)}]"
    if isinstance(arg, tuple):
        return f"{len(arg)}*int64"
    kinds = {bool: "bool", int: "int64", float: "float64"}
    return kinds.get(type(arg)) or np.asarray(arg).dtype.name


def xray(
    launch: Callable[[], Any], name: str = "", lanes: bool = False
) -> dict[str, Any]:
    """The scene of the first launch of a kernel within `launch()`.

    An error in one of its threads ends it, and is part of the scene.

    Args:
        lanes: with what each lane did, which is long.

    Raises:
        ValueError: the kernel is not launched.
        RuntimeError: `launch` fails before that.
    """
    watch, error = XRay(name, lanes), ""
    watching.current.append(watch)
    try:
        launch()
    except Seen:
        pass
    except Exception as problem:
        if watch.launch is None:
            if isinstance(problem, NotImplementedError):  # a task of the course
                raise
            what = f"{type(problem).__name__}: {problem}"
            raise RuntimeError(f"xray: {name} was not launched: {what}") from problem
        error = f"{type(problem).__name__}: {problem}"
    finally:
        watching.current.pop()
    return watch.scene(error)
