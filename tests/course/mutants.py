"""Solutions that are wrong in one place, made by machine, and whether checks notice.

With this file one can make all mutants of a task (`mutants`): the library's file with
one operator, bound, index, barrier or statement of the task's regions changed. Each is
run with the task's own checks (`Trial`), and is caught, or survives. Survivors that do
the same as the reference are listed with the reason in `survivors.toml`; any other one
is a hole in the checks.

    python tests/course/mutants.py a4            # 30 mutants of each task of a4
    python tests/course/mutants.py a4.3 --count 0    # all mutants of a4.3
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (2, 1)]

from course.solutions import HERE, reference, write_files

from assignments import catalog
from assignments.catalog import Assignment, File, Task, tomllib
from assignments.checks import Properties
from assignments.grading.examine import HUNG, NOT_RUN, Result
from assignments.regions import strip
from assignments.runner import Job, Runners

COUNT = 30
LEAST = 40.0  # seconds that a task may take, on a machine that is busy
SURVIVORS = HERE / "survivors.toml"
CAUGHT, TIMED_OUT, SURVIVED, SAME, SKIPPED, INVALID = (
    "caught",
    "timed out",
    "survived",
    "does the same",
    "not run",
    "does not compile",
)


@dataclass(frozen=True)
class Mutant:
    """A file with one mistake.

    Attributes:
        task: whose region it is in, "a3.1".
        path: the file, as it lies in a workspace.
        function: where in it.
        before, after: what was changed, the lines around it included.
        marked: the whole file, with its markers.
    """

    task: str
    path: str
    function: str
    before: str
    after: str
    marked: str

    @property
    def text(self) -> str:
        """The whole file, as it comes into a workspace."""
        return strip(self.marked, self.path, ())

    @property
    def change(self) -> str:
        """The mutant's name: it holds as long as these lines do."""
        return f"{self.before} -> {self.after}"

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the file runs, of the task's devices."""
        folders = {
            "cuda_ops": "cuda",
            "fast_ops": "cpu",
            "minitorch/simple_ops": "simple",
        }
        known = catalog.load(self.task.partition(".")[0]).task(self.task).devices
        here = [d for name, d in folders.items() if self.path.startswith(f"{name}/")]
        if self.path.count("/") == 0 and "python" in known:
            return ("python",)
        return tuple(d for d in known if not here or d in here)


# -------------------------------------------------------------------------- changes

# A change: the node that is replaced, and what takes its place.
Change = tuple[ast.AST, str]

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
EITHER_WAY = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
# Calls whose first two arguments may change places.
COMMUTE = ("add", "mul", "close", "gcd", "array")
NAMES = {"min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin"}


def changes(node: ast.AST, compiled: bool) -> Iterator[Change]:
    """Everything that is changed at one node, one thing at a time."""
    for made in _text_changes(node, compiled):
        if ast.unparse(ast.parse(made)) != ast.unparse(ast.parse(ast.unparse(node))):
            yield node, made


def _text_changes(node: ast.AST, compiled: bool) -> Iterator[str]:
    whole = ast.unparse(node)
    if _can_be_left_out(node):
        yield "pass"
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield f"return {_swapped(node.value.elts)}"
    if isinstance(node, ast.AugAssign):
        target, value = ast.unparse(node.target), ast.unparse(node.value)
        yield f"{target} = {value}"
        for kind in OPERATORS.get(type(node.op), ()):
            yield ast.unparse(ast.AugAssign(node.target, kind(), node.value))
    if isinstance(node, (ast.BinOp, ast.BoolOp)):
        for kind in OPERATORS.get(type(node.op), ()):
            yield f"({_with(node, op=kind())})"
    if isinstance(node, ast.BinOp) and not isinstance(node.op, EITHER_WAY):
        yield f"({_with(node, left=node.right, right=node.left)})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind in OPERATORS.get(type(node.ops[0]), ()):
            yield f"({_with(node, ops=[kind()])})"
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.Constant):
        yield from _constants(node.value)
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.Subscript):
        yield from _subscripts(node, ("lower",) if compiled else ("lower", "upper"))
    if isinstance(node, ast.IfExp):
        yield f"({_with(node, body=node.orelse, orelse=node.body)})"
    if isinstance(node, (ast.Break, ast.Continue)):
        yield {"break": "continue", "continue": "break"}[whole]


def _with(node: ast.AST, **fields: object) -> str:
    values = {name: getattr(node, name, None) for name in node._fields}
    return ast.unparse(type(node)(**{**values, **fields}))


def _can_be_left_out(node: ast.AST) -> bool:
    """A statement without which all names still have values."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)  # that would be a docstring
    if isinstance(node, ast.Return):
        return node.value is None
    if isinstance(node, ast.Assign):
        return not any(isinstance(n, (ast.Name, ast.Tuple)) for n in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.If))


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield from (str(n) for n in {value + 1, abs(value - 1)} - {value})
    elif isinstance(value, float):
        yield repr(value + 1.0)


def _calls(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    if last in NAMES:
        changed = name[: len(name) - len(last)] + NAMES[last]
        yield f"{changed}({', '.join(map(ast.unparse, node.args))})"
    if last == "abs":
        inner = node.args[0] if node.args else node.func.value  # abs(x), or x.abs()
        yield f"({ast.unparse(inner)})"
    if last in ("range", "prange"):
        for i in range(min(2, len(node.args))):
            for more in (" + 1", " - 1"):
                args = [ast.unparse(a) for a in node.args]
                args[i] = f"{args[i]}{more}"
                yield f"{name}({', '.join(args)})"
    elif len(node.args) > 1 and last not in (*NAMES, *COMMUTE):
        rest = [ast.unparse(k) for k in (*node.args[2:], *node.keywords)]
        yield f"{name}({', '.join([_swapped(node.args), *rest])})"


def _swapped(nodes: list[ast.expr]) -> str:
    """The first two the other way round."""
    return ", ".join(ast.unparse(n) for n in (nodes[1], nodes[0]))


def _subscripts(node: ast.Subscript, bounds: tuple[str, ...]) -> Iterator[str]:
    value, index = ast.unparse(node.value), node.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if len(parts) == 2:
        yield f"{value}[{_swapped(parts)}]"
    for i, part in enumerate(parts):
        for made in _indices(part, bounds):
            all_parts = [ast.unparse(p) for p in parts]
            all_parts[i] = made
            yield f"{value}[{', '.join(all_parts)}]"


def _indices(part: ast.expr, bounds: tuple[str, ...]) -> Iterator[str]:
    if isinstance(part, ast.Slice):
        for name in bounds:
            bound = getattr(part, name)
            if bound is not None:
                more = ast.parse(f"({ast.unparse(bound)}) + 1", mode="eval").body
                yield _with(part, **{name: more})
    elif not isinstance(part, ast.Constant):  # those are changed by themselves
        yield f"{ast.unparse(part)} + 1"
        yield f"{ast.unparse(part)} - 1"


# -------------------------------------------------------------------------- mutants

# Statements of Mojo's read like Python's when `var x` and `comptime for i` are written
# `var_x` and `for comptime_i`, which is as long.
MOJO = re.compile(r"\b(var|comptime) (for )?(?=\w)")
BACK = re.compile(r"\b(for )?(var|comptime)_(?=\w)")


def mutants(task: Task) -> list[Mutant]:
    """All mutants of a task's regions, in the order of the files."""
    assignment = catalog.load(task.assignment)
    if any(isinstance(check, Properties) for check in assignment.checks(task.id)):
        return []  # a weaker test that finds all that is broken is a right one
    found: dict[tuple[str, str], Mutant] = {}
    for file in assignment.files:
        if file.module or file.is_mojo:
            for mutant in _of_file(task, file):
                found.setdefault((mutant.path, mutant.marked), mutant)
    return list(found.values())


def _of_file(task: Task, file: File) -> Iterator[Mutant]:
    text = file.source.read_text()
    lines = (MOJO.sub(r"\2\1_", text) if file.is_mojo else text).splitlines(True)
    compiled = file.path.startswith("fast_ops/")
    for region in file.regions():
        for cut in () if region.twin or region.task != task.id else region.cuts:
            part = lines
            if file.is_mojo:  # nothing but the region reads like Python
                part = ["\n"] * (cut.first - 1) + ["if True:\n"]
                part += lines[cut.first : cut.last]
            tree = ast.parse("".join(part))
            for node in _inside(tree, cut.first, cut.last, compiled):
                for place, made in changes(node, compiled):
                    changed = _replaced(lines, place, made)
                    if file.is_mojo:
                        changed = [BACK.sub(r"\2 \1", some) for some in changed]
                    yield Mutant(task.id, file.path, cut.function, *changed)


def _inside(tree: ast.AST, first: int, last: int, compiled: bool) -> Iterator[ast.AST]:
    """The nodes of lines first to last (from 0, exclusive), but for what is never run
    to make a result: annotations, decorators, the words of an error."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "exc", "msg"):
            continue
        if compiled and name == "upper":  # nothing looks at the end of a slice there
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST):
                continue
            line = getattr(node, "lineno", None)
            if line is not None and first < line and (node.end_lineno or 0) <= last:
                yield node
            if not isinstance(node, ast.JoinedStr):
                yield from _inside(node, first, last, compiled)


def _replaced(lines: list[str], node: ast.AST, made: str) -> tuple[str, str, str]:
    """The lines that change, before and after, and the whole text."""
    first, last = node.lineno - 1, node.end_lineno
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last - 1].encode()[node.end_col_offset :].decode()
    before = "".join(lines[first:last])
    after = f"{head}{made}{tail}"
    whole = "".join([*lines[:first], after, *lines[last:]])
    return _short(before), _short(after), whole


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 120 else f"{words[:115]} ..."


def sample(task: Task, count: int) -> list[Mutant]:
    """`count` mutants of a task, always the same ones; all if `count` is 0."""
    found = mutants(task)
    if count and count < len(found):
        found = random.Random(task.id).sample(found, count)
    return found


@cache
def same_as_reference() -> frozenset[tuple[str, str, str]]:
    """Task, function and change of the survivors that are known to do the same."""
    entries = tomllib.loads(SURVIVORS.read_text()).get("survivor", [])
    return frozenset((e["task"], e["function"], e["change"]) for e in entries)


# --------------------------------------------------------------------------- trials


class Trial:
    """Runs mutants of an assignment in one workspace.

    Args:
        runner: what runs jobs; it simulates a GPU where none is meant.
        folder: an empty folder for the workspace.
        limit: seconds that a task may take; eight times what the reference takes if 0.
    """

    def __init__(
        self, runner: Runners, assignment: Assignment, folder: Path, limit: float = 0.0
    ) -> None:
        self.runner, self.assignment, self.folder = runner, assignment, folder
        self.fixed = limit
        self.limits: dict[tuple[str, str], float] = {}
        write_files(assignment, folder, reference(assignment))

    def limit(self, task: Task, device: str) -> float:
        """Seconds after which a mutant has no end."""
        if self.fixed:
            return self.fixed
        if (task.id, device) not in self.limits:
            begin = time.monotonic()
            outcomes = self._job(task, device, 10 * task.seconds)
            bad = [o for o in outcomes if o.share == 0 and o.status != NOT_RUN]
            if bad:
                raise RuntimeError(f"{task.id} on {device}: the reference fails: {bad}")
            taken = time.monotonic() - begin
            self.limits[task.id, device] = max(LEAST, 8 * taken)
        return self.limits[task.id, device]

    def run(self, mutant: Mutant) -> tuple[str, str]:
        """What became of a mutant, and which check said so."""
        if (mutant.task, mutant.function, mutant.change) in same_as_reference():
            return SAME, ""
        task = self.assignment.task(mutant.task)
        path = self.folder / mutant.path
        right, found = reference(self.assignment)[mutant.path], (SKIPPED, "")
        for device in mutant.devices:
            limit = self.limit(task, device)
            path.write_text(mutant.text)
            try:
                outcomes = self._job(task, device, limit)
            finally:
                path.write_text(right)
            for outcome in outcomes:
                if outcome.status == HUNG:
                    return TIMED_OUT, device
                if "it does not compile" in outcome.reason:
                    return INVALID, outcome.reason  # which says nothing of the checks
                if outcome.share == 0 and outcome.status != NOT_RUN:
                    return CAUGHT, f"{device}: {outcome.name}: {outcome.reason}"
            if any(outcome.status != NOT_RUN for outcome in outcomes):
                found = SURVIVED, ""
            elif found[0] == SKIPPED:
                found = SKIPPED, outcomes[0].reason
        return found

    def _job(self, task: Task, device: str, limit: float) -> list[Result]:
        folders = [str(self.folder)]
        return self.runner.run(Job(task.id, device, folders, limit, first_failure=True))


def tasks(names: Collection[str]) -> list[Task]:
    """Tasks by their names, or by those of their assignments."""
    every = [task for a in catalog.load_all() for task in a.tasks]
    return [t for t in every if not names or {t.id, t.assignment} & set(names)]


def count_of(
    found: list[Mutant], trial: Trial, say: Callable[[str], None]
) -> Counter[str]:
    """How many mutants there are of each fate; survivors are told."""
    counted: Counter[str] = Counter()
    for mutant in found:
        fate, _ = trial.run(mutant)
        counted[fate] += 1
        if fate == SURVIVED:
            say(f"  {mutant.path} {mutant.function}\n    {mutant.change}")
        elif fate == TIMED_OUT:
            say(f"  (timed out: {mutant.function}: {mutant.change})")
    return counted


def main() -> None:
    """Make mutants, run them, and print a table and what survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="a4, a4.3; all if none is given")
    parser.add_argument("--count", type=int, default=COUNT, help="of each task; 0: all")
    parser.add_argument("--list", action="store_true", help="print, and run nothing")
    args = parser.parse_args()
    with Runners() as runner:
        for task in tasks(args.names):
            found = sample(task, args.count)
            if args.list:
                print(*(f"{m.function}: {m.change}" for m in found), sep="\n")
                continue
            if found:
                begin = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    place = Path(folder) / task.assignment
                    trial = Trial(runner, catalog.load(task.assignment), place)
                    counted = count_of(
                        found, trial, lambda line: print(line, flush=True)
                    )
                said = ", ".join(f"{n} {fate}" for fate, n in counted.items())
                took = time.monotonic() - begin
                print(
                    f"{task.id}: {len(mutants(task))} mutants, {len(found)} run: {said}"
                    f" ({took:.0f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
