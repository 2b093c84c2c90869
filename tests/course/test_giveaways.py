"""What is left to copy of each task's solution, and how twins of solutions are kept."""

from __future__ import annotations

import ast
import marshal
import re
import subprocess
import sys
from collections.abc import Collection
from types import CodeType

import pytest
from course.giveaways import left_to_copy, lines_of, signature
from course.solutions import reference

from assignments import catalog, overlay, regions, workspace
from assignments.grading import library, reading, release

# Lines that stand elsewhere in what the authors of a task have before them; 0 where a
# task is not named. Most are idioms of a few words: the head of a kernel, a binary
# search. What is not, the library cannot do without while a solution is missing (the
# copies of `memory.py` for a3.1, a4.1 and a4.2), or is there to be learned from
# (`sum_divergent` for a4.3, `_loop_order` for a3.3, `sgd_chunk` for a8.4).
BUDGET = {
    "a0.4": 5, "a3.1": 5, "a3.3": 4, "a4.1": 10, "a4.2": 8, "a4.3": 7, "a4.6": 3,
    "a6.1": 1, "a7.2": 3, "a7.3": 4, "a7.4": 3, "a7.5": 9, "a8.1": 3, "a8.2": 7,
    "a8.3": 6, "a8.4": 13, "a10.1": 3, "a12.4": 3, "a13.2": 3,
    "a15.5": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", catalog.ids())
def test_no_more_is_left_to_copy(name):
    for task in catalog.load(name).tasks:
        count, total = left_to_copy(task)
        assert count <= BUDGET.get(task.id, 0), (
            f"{task.id}: {count} of {total} lines can be copied; see where with "
            f"`python tests/course/giveaways.py {task.id}`, and put what gives the "
            f"solution away between # BEGIN TWIN {task.id} and # END TWIN {task.id}"
        )


SUM = """
total = 0
for i in range(n):
    total += x[i] * cuda.grid(1)
"""


def test_names_and_comments_make_no_difference():
    def said(text: str) -> tuple[str, ...]:
        return signature(list(lines_of(ast.parse(text).body)))

    renamed = SUM.replace("total", "s").replace("x", "values") + "# a comment\n"
    assert said(SUM) == said(renamed)
    assert said(SUM) != said(SUM.replace("x[i]", "x[n]"))
    assert said(SUM) != said(SUM.replace("total +=", "total -="))


# ---------------------------------------------------------------------------- twins


def test_a_workspace_lacks_the_twins_and_runs_the_librarys():
    assignment = catalog.load("a4")
    (file,) = [f for f in assignment.files if f.path == "cuda_ops/transpose.py"]
    text = workspace.stripped(assignment)[file.path]
    assert "load4(tile" not in text and "much like a4.5" in text
    source = file.source.read_text()
    twins = regions.twins_in(source, file.path)
    assert "transpose_vectorized" in twins
    assert "load4(tile" in with_functions(text, source, twins)
    given = {file.path: text.encode()}
    for graded, now, before in (
        (assignment, given, {}),
        (catalog.load("a5"), {}, given),
    ):
        tree = library.student_tree(graded, now, graded.tasks[0].id, before)
        (path,) = tree.glob("cuda_ops/__pycache__/transpose.*")
        code = marshal.loads(path.read_bytes()[16:])
        library.remove(tree)
        assert "load4" in names_in(code, "transpose_vectorized")


@pytest.mark.parametrize("name", catalog.ids())
def test_a_solved_workspace_without_the_twins_is_allowed(name):
    assignment = catalog.load(name)
    for file in assignment.files:
        source = file.source.read_text()
        if file.module and regions.twins_in(source, file.path):
            solved = re.sub(r"(?m)^ *# (BEGIN|END) SOLUTION .*\n", "", source)
            text = regions.strip(solved, file.path)
            assert "much like" in text
            for task in ("", *[task.id for task in assignment.tasks]):
                assert not reading.not_allowed(assignment, file, text, task)


def names_in(code: CodeType, function: str) -> set[str]:
    """The names that a function of a module uses, and those inside of it."""
    inside = [part for part in code.co_consts if isinstance(part, CodeType)]
    found = set(code.co_names) if function in ("", code.co_name) else set()
    below = "" if code.co_name == function else function
    return found.union(*[names_in(part, below) for part in inside])


def with_functions(text: str, source: str, names: Collection[str]) -> str:
    """A file with functions of another one, as the overlay puts them together."""
    tree = ast.parse(text)
    overlay.graft(tree, ast.parse(source), names)
    return ast.unparse(tree)


def test_an_edition_lacks_the_twins_that_no_workspace_holds(tmp_path):
    source = tmp_path / "source"
    release.copy_project(source)
    release.remove_solutions(catalog.load("a4"), source)
    text = (source / "cuda_ops/conv/direct.py").read_text()
    assert 'todo("a4.3")' in text and "half //= 2" not in text
    # Those of later assignments stay, until these are handed out.
    assert "# BEGIN TWIN a5.5" in (source / "cuda_ops/conv/tiles.py").read_text()


WITHOUT_TWINS = """
import sys
from pathlib import Path
import numpy as np
from assignments import overlay
folder = Path(sys.argv[1])
overlay._twins = lambda path: set()  # as in an edition, whose library has none either
names = "transpose", "elementwise"
overlay.install({f"cuda_ops.{name}": folder / f"{name}.py" for name in names})
import minitorch
from cuda_ops import transpose
assert not transpose.VECTORS_WRITTEN
x = np.arange(16 * 32, dtype="float32").reshape(16, 32)
a = minitorch.tensor(x, device="cuda")
assert (a.t().contiguous().numpy() == x.T).all()
assert ((2.0 * a + 1.0).numpy() == 2 * x + 1).all()
"""


@pytest.mark.extras
def test_what_is_faster_without_being_needed_has_another_way(tmp_path, monkeypatch):
    """A student who has solved all of a4 works with a library that lacks the twins."""
    pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")
    assignment = catalog.load("a4")
    for path, text in reference(assignment).items():
        left_out = workspace.stripped(assignment)[path]
        if path in ("cuda_ops/transpose.py", "cuda_ops/elementwise.py"):
            twins = regions.twins_in((catalog.LIBRARY / path).read_text(), path)
            done = with_functions(text, left_out, twins)
            done = done.replace(
                "from minitorch.todo import unwritten_task",
                "from minitorch.todo import todo, unwritten_task",
            )
            (tmp_path / path.rpartition("/")[2]).write_text(done)
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TWINS, str(tmp_path)],
        cwd=catalog.LIBRARY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


WITHOUT_BLOCKS = """
import sys
from pathlib import Path
from assignments import overlay
overlay.install({"fast_ops.attention": Path(sys.argv[1])})
import minitorch
x = minitorch.rand(1, 2, 3, 4, requires_grad=True)
y = minitorch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
y.sum().backward()
assert y[0, 0, 0].equal(x[0, 0, 0]) and x.grad is not None
"""


def test_earlier_assignments_do_without_attention_in_blocks(tmp_path):
    """In their editions a11 is not written, and GPTs need attention all the same."""
    stripped = workspace.stripped(catalog.load("a11"))["fast_ops/attention.py"]
    (tmp_path / "attention.py").write_text(stripped)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BLOCKS, str(tmp_path / "attention.py")],
        cwd=catalog.LIBRARY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
