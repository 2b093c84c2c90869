"""What a workspace holds: the handout and the files, and nothing that gives it away."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from assignments import catalog, regions, workspace
from assignments.catalog import Assignment
from minitorch.scalar import Scalar

ASSIGNMENTS = catalog.load_all()
each = pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: a.id)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = {}
    for assignment in ASSIGNMENTS:
        made[assignment.id] = tmp_path_factory.mktemp("course") / assignment.id
        workspace.create(assignment, made[assignment.id])
    return made


@each
def test_no_marker_survives(assignment: Assignment, folders):
    for path in folders[assignment.id].rglob("*"):
        if path.is_file() and path.suffix in (".py", ".mojo", ".md", ".toml"):
            text = path.read_text()
            assert not re.search(r"(BEGIN|END) SOLUTION", text), path


@each
def test_no_solution_line_survives(assignment: Assignment, folders):
    """Lines of a region are gone, unless they stand elsewhere in the file as well."""
    for file in assignment.files:
        if not file.regions():
            continue
        lines = file.source.read_text().splitlines()
        cut = [
            range(c.first, c.last)
            for r in file.regions()
            if r.task.startswith(f"{assignment.id}.")
            for c in r.cuts
        ]
        gone = {n for r in cut for n in r}
        outside = Counter(s.strip() for n, s in enumerate(lines) if n not in gone)
        left = Counter(
            s.strip()
            for s in (folders[assignment.id] / file.path).read_text().splitlines()
        )
        for number in gone:
            line = lines[number].strip()
            if len(line) > 3:
                assert left[line] <= outside[line], f"{file.path}: {line}"


@each
def test_markers_belong_to_tasks_and_files(assignment: Assignment):
    known = {task.id for task in assignment.tasks}
    found = set()
    for file in assignment.files:
        assert file.source.is_file(), file.path
        own = {r.task for r in file.regions() if r.task.startswith(f"{assignment.id}.")}
        assert own or not (file.module or file.is_mojo), (
            f"{file.path} has no region of {assignment.id}"
        )
        found |= own
    assert found <= known
    for task in assignment.tasks:
        assert task.id in found or task.uses


def test_every_marker_is_in_a_listed_file():
    listed = {f.source.resolve() for a in ASSIGNMENTS for f in a.files}
    known = {a.id for a in ASSIGNMENTS}
    root = catalog.LIBRARY
    for package in ("minitorch", "fast_ops", "cuda_ops", "mojo_ops", "assignments"):
        for path in (root / package).rglob("*"):
            if path.suffix not in (".py", ".mojo"):
                continue
            text = path.read_text()
            if "# BEGIN SOLUTION a" not in text or path.name == "regions.py":
                continue
            ours = [r for r in regions.parse(text, path.name)]
            for region in ours:
                if region.task.partition(".")[0] in known:
                    assert path.resolve() in listed, f"{path}: {region.task}"


@each
def test_functions_belong_to_one_task(assignment: Assignment):
    """Tasks can only be looked at one by one if they share no function."""
    for file in assignment.files:
        found = file.regions()
        tasks = {r.task for r in found}
        for one in tasks:
            for other in tasks - {one}:
                both = regions.functions_of(found, one) & regions.functions_of(
                    found, other
                )
                assert not both, f"{file.path}: {both} is in {one} and {other}"


@each
def test_stripped_files_say_what_to_do(assignment: Assignment, folders):
    for file in assignment.files:
        text = (folders[assignment.id] / file.path).read_text()
        if file.module:
            ast.parse(text)
        assert max(map(len, text.splitlines())) <= 88, file.path
        for task in assignment.tasks:
            if any(r.task == task.id for r in file.regions()):
                stub = f'Error("task {task.id} is' if file.is_mojo else f'"{task.id}")'
                assert stub in text
                assert f"# TODO {task.id}" in text


@each
def test_what_is_to_read_is_there(assignment: Assignment, folders):
    """A function that the handout calls complete has not been taken out."""
    written = (folders[assignment.id] / "README.md").read_text()
    for sentence in re.split(r"[.;]\s", written):
        if re.search(r"\b(is|are) complete\b", sentence):
            for name in re.findall(r"`(\w+)`", sentence):
                for path in folders[assignment.id].rglob("*.py"):
                    for part in ast.walk(ast.parse(path.read_text())):
                        if isinstance(part, ast.FunctionDef) and part.name == name:
                            assert "todo(" not in ast.unparse(part), name


def test_what_to_do_names_what_exists():
    """Texts of tasks outlive the names of the code around them, unless it is seen."""
    root = Path(__file__).parents[2]
    sources = [
        path.read_text()
        for folder in ("assignments", "cuda_ops", "fast_ops", "minitorch", "mojo_ops")
        for kind in ("*.py", "*.mojo")
        for path in (root / folder).rglob(kind)
    ]
    known = set(re.findall(r"\w+", "\n".join(sources)))
    for assignment in ASSIGNMENTS:
        for task in assignment.tasks:
            for text in (*task.regions.values(), *task.hints):
                named = set(re.findall(r"\b[a-zA-Z]\w*_\w+\b", text))
                assert named <= known, (task.id, named - known)


@each
def test_every_check_belongs_to_a_task(assignment: Assignment):
    tasks = {task.id for task in assignment.tasks}
    checks = assignment.checks()
    assert {check.task for check in checks} == tasks
    names = [(check.task, check.name) for check in checks]
    assert len(names) == len(set(names))
    for task in assignment.tasks:
        assert task.points > 0 and task.hint


@each
def test_the_handout_names_every_task(assignment: Assignment, folders):
    text = (assignment.folder / "README.md").read_text()
    for task in assignment.tasks:
        assert task.id in text and f"{task.points:g} points" in text
        line = next(s for s in text.splitlines() if s.startswith(f"### {task.id}"))
        assert f"({task.points:g} points)" in line and task.title in line
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        copy = folders[assignment.id] / picture
        assert copy.read_bytes() == (assignment.folder / picture).read_bytes(), picture


@each
def test_every_task_has_a_ladder_of_hints(assignment: Assignment):
    """A question first, as in the stubs, and never a line of the solution."""
    lines = {
        line.strip()
        for file in assignment.files
        for region in file.regions()
        for line in file.source.read_text().splitlines()[region.first : region.last]
    }
    for task in assignment.tasks:
        assert len(task.hints) >= 3 and "?" in task.hints[0], task.id
        assert not task.regions or "?" in str(task.regions), task.id
        code = [s for s in lines if len(s) > 12 and re.search(r"[=(]", s)]
        assert not any(line in hint for line in code for hint in task.hints), task.id


def test_the_graph_that_a1_draws_is_what_is_recorded():
    (assignment,) = [a for a in ASSIGNMENTS if a.id == "a1"]
    text = (assignment.folder / "README.md").read_text()
    code, table = re.search(
        r"one line more:\n\n(.*?)\n\n.*?    node +of .*?\n(.*?)\n\n", text, re.S
    ).groups()
    space = {"Scalar": Scalar}
    exec(textwrap.dedent(code), space)
    first, names = space["a"].node.number, {}
    for line in table.splitlines():
        node, of, *rest = re.split(r"  +", line.strip())
        made, kept = space[of].node, rest[0] if len(rest) == 2 else ""
        names[id(made)] = node
        kind = made.function.__name__
        assert node == f"{kind} {made.number - first + 1}"
        numbers = [f"{v:.3g}" if v % 1 else str(v) for v in made.saved_values]
        assert kept == ", ".join(numbers)
        ends = [edge and edge[0] for edge in made.edges]
        ends = [names.get(id(e), getattr(e, "name", "None")) for e in ends]
        assert rest[-1] == ", ".join(ends)
    space["w"].backward()
    assert (space["x"].grad, space["y"].grad) == (35, 20)


IMPORT_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from assignments import workspace
workspace.use(Path(sys.argv[2]))
import importlib
for name in sorted(set(workspace.files_of([Path(sys.argv[2])])) - set(sys.argv[3:])):
    found = importlib.import_module(name)
    assert found.__file__.startswith(sys.argv[2]), found.__file__
import minitorch, minitorch.nn, fast_ops
assert minitorch.__file__.startswith(sys.argv[1])
"""


@pytest.mark.extras
@each
def test_the_stripped_tree_imports(assignment: Assignment, folders):
    root, place = str(catalog.LIBRARY), str(folders[assignment.id].resolve())
    without = [] if find_spec("numba_cuda") else _modules_for_cuda(assignment)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, root, place, *without],
        cwd=place,  # its folders have the packages' names, and must not hide them
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if without:
        names = ", ".join(without)
        pytest.skip(f"numba-cuda is not installed; all was imported but {names}")


def _modules_for_cuda(assignment: Assignment) -> list[str]:
    return [f.module for f in assignment.files if f.module.startswith("cuda_ops.")]
