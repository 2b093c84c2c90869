"""Workspaces, `minitorch start | test | status | diff`, and pytest in a workspace."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from course import solutions
from course.solutions import reference, run_task, with_mistake, write_files
from typer.testing import CliRunner

from assignments import catalog, report, workspace
from assignments.grading import examine, worker
from assignments.grading.channel import Failed
from assignments.grading.examine import CRASHED, FAILED, HUNG, PASSED, UNWRITTEN, WRONG
from minitorch.cli import course
from minitorch.cli.app import app

SOLVED = """
    above, below = list(values), list(values)
    above[arg] += epsilon
    below[arg] -= epsilon
    return (f(*above) - f(*below)) / (2.0 * epsilon)
"""


@pytest.fixture
def place(tmp_path):
    """An untouched workspace for a1."""
    workspace.create(catalog.load("a1"), tmp_path / "a1")
    return tmp_path / "a1"


def solve(place, task, body):
    """Put code in the place of the first todo of a task."""
    for path in place.rglob("*.py"):
        text = path.read_text()
        line = f'    todo("{task}")\n'
        if line in text:
            path.write_text(text.replace(line, body.lstrip("\n"), 1))
            return path
    raise ValueError(f"no todo of {task}")


def call(*words, code=0):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result.output


# ---------------------------------------------------------------------------- start


def test_start_makes_a_workspace(tmp_path):
    said = call("start", "a1", tmp_path / "mine")
    assert "a1 Scalar autodiff" in said and "README.md" in said
    made = {p.relative_to(tmp_path / "mine").as_posix() for p in tmp_path.rglob("*.*")}
    assert {
        "README.md",
        "workspace.toml",
        "conftest.py",
        "course.py",
        "minitorch/autodiff.py",
        "minitorch/scalar.py",
        "xor.py",
    } <= made
    assert not any("checks" in name or "calls" in name for name in made)


@pytest.mark.parametrize("assignment", catalog.load_all(), ids=lambda a: a.id)
def test_links_of_a_workspace_lead_to_files_in_it(assignment, tmp_path):
    workspace.create(assignment, tmp_path / "mine")
    text = (tmp_path / "mine" / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+\.(?:md|svg))[^)]*\)", text)
    assert all((tmp_path / "mine" / link).is_file() for link in links), links


def test_start_does_not_overwrite(tmp_path):
    call("start", "a1", tmp_path / "mine")
    (tmp_path / "mine" / "xor.py").write_text("my work\n")
    said = call("start", "a1", tmp_path / "mine", code=1)
    assert "not empty" in said or "not empty" in str(said)
    assert (tmp_path / "mine" / "xor.py").read_text() == "my work\n"
    call("start", "a1", tmp_path / "mine", "--force")
    (backup,) = tmp_path.glob("mine-backup-*")
    assert (backup / "xor.py").read_text() == "my work\n"
    assert "todo" in (tmp_path / "mine" / "xor.py").read_text()


def test_start_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["start", "a1", str(tmp_path / "file" / "a1")])
    assert result.exit_code == 1
    assert "a1 cannot be made: " in result.output
    assert "; name another folder" in result.output
    call("start", "a1", tmp_path / "mine")
    (tmp_path / "mine" / "work").write_text("mine")

    def full(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(workspace, "_fill", full)
    result = CliRunner().invoke(app, ["start", "a1", str(tmp_path / "mine"), "--force"])
    assert result.exit_code == 1
    assert (tmp_path / "mine" / "work").read_text() == "mine"


def test_start_names_the_assignments(tmp_path):
    call("start", "a99", tmp_path / "mine", code=1)
    with pytest.raises(ValueError, match=r"there is no assignment 'a99'; there are a0"):
        catalog.load("a99")


def test_assignments_are_in_the_order_of_their_numbers(tmp_path):
    ids = list(catalog.ids())
    assert ids.index("a4w") + 1 == ids.index("a4")  # a warm-up is for what comes next
    ids.remove("a4w")
    numbers = [int(name[1:]) for name in ids]
    assert numbers == sorted(set(numbers))
    for name in ("a10", "a9", "a4", "a4w", "a1"):
        workspace.create(catalog.load(name), tmp_path / name)
    found = [place.assignment.id for place in workspace.near(tmp_path)]
    assert found == ["a1", "a4w", "a4", "a9", "a10"]


def test_a_task_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"no task '1.9'; the tasks are a1.1"):
        catalog.load("a1").task("1.9")


# --------------------------------------------------------------------- test, status


def test_nothing_to_check_is_an_error(place):
    result = CliRunner().invoke(app, ["test", "--in", str(place), "--device", "cuda"])
    assert result.exit_code == 1 and "is checked on python" in str(result.stderr)


def test_a_test_in_which_nothing_is_run_is_no_success(place, monkeypatch):
    task = catalog.load("a1").task("1.1")
    gone = examine.Result("a1.1", "", "cuda", examine.NOT_RUN, text="there is no GPU")
    right = examine.Result("a1.1", "", "python", PASSED, 1.0)
    for found, code in (([gone], 1), ([], 1), ([gone, right], 0)):
        monkeypatch.setattr(
            course, "_run", lambda *_, found=found: [(task, "python", found)]
        )
        words = ["test", "--in", str(place), "--xray"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code
        assert ("nothing was run" in result.output + result.stderr) is (code == 1)
        assert ("not run here, and not counted" in result.output) is (code == 1)
        assert "none of these tasks has run a kernel" in result.output
        assert ("not run: there is no GPU" in result.output) is (found == [gone])


def test_solving_a_task_turns_it_green(place):
    said = call("test", "-k", "1.1", "--in", place, code=1)
    assert "not written yet" in said and "0 / 2" in said
    assert said.splitlines()[-1] == "0 of 21 points"
    solve(place, "a1.1", SOLVED)
    said = call("test", "-k", "1.1", "--in", place)
    assert "2 / 2" in said and "passed" in said and "2 of 21 points" in said
    lines = {s.split()[0]: s for s in call("status", "--in", place).splitlines()}
    assert "[#....] 2 of 21 points, next: a1.2" in lines["a1"]
    assert "not started" in lines["a0"]


def test_a_failure_is_explained(place, runner):
    solve(place, "a1.1", "    return (f(*values) - 1.0) / epsilon\n")
    task = catalog.load("a1").task("1.1")
    outcome = run_task(runner, task, "python", place)[0]
    assert outcome.status == WRONG
    text = "\n".join(report.lines_of(outcome, task))
    parts = "the check/smallest input/fn = 'identity'/came out/PyTorch says/hint"
    assert all(part in text for part in parts.split("/"))
    assert "Traceback" not in text and len(text.splitlines()) < 15


def test_who_says_what_is_no_output_of_pytorchs(runner, tmp_path):
    (wrong,) = [w for w in solutions.WRONG if w.name == "a11-skipped_not_counted"]
    write_files(wrong.assignment, tmp_path / "a", with_mistake(wrong))
    task = wrong.assignment.task(wrong.task)
    outcomes = run_task(runner, task, wrong.device, tmp_path / "a")
    (outcome,) = [o for o in outcomes if o.status == WRONG]
    said = dict(outcome.lines)
    assert outcome.reason.startswith("turns[")
    assert "the task says" in said and "PyTorch says" not in said


def test_a_hint_is_told_once_and_what_a_function_returned_is_blamed(place):
    solve(place, "a1.1", "    return (f(*values) - 1.0) / epsilon\n")
    said = call("test", "-k", "1.1", "--in", place, code=1)
    assert said.count("the check") == 2 and said.count("hint  ") == 1
    for _ in range(2):  # forward and backward of Add
        solve(place, "a1.2", "    return None\n")
    said = call("test", "-k", "1.2", "--in", place, code=1)
    assert "not 'NoneType'" in said and "by what yours returned" in said


def test_an_exception_points_at_the_line(place, runner):
    solve(place, "a1.1", "    raise IndexError('\\x1b[0m \u202e range')\n")
    task = catalog.load("a1").task("1.1")
    outcome = run_task(runner, task, "python", place)[0]
    text = "\n".join(report.lines_of(outcome, task))
    assert "raised IndexError: [0m  range" in text
    assert "autodiff.py" in text and "raise IndexError('\\x1b[0m  range')" in text


def test_start_where_one_stands(tmp_path, monkeypatch):
    """In an empty folder, which stays the same one: a shell is in it."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    folder = Path(".")
    before = folder.stat().st_ino
    workspace.create(catalog.load("a1"), folder)
    assert (folder / "xor.py").is_file() and folder.stat().st_ino == before
    with pytest.raises(FileExistsError, match="you are in it"):
        workspace.create(catalog.load("a1"), folder, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_start_says_what_is_in_the_way_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file is a file; name another folder"):
        workspace.create(catalog.load("a1"), tmp_path / "file")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace.shutil, "copyfile", full)
    said = "a1 cannot be made: No space left on device; name another folder"
    with pytest.raises(OSError, match=said):
        workspace.create(catalog.load("a1"), tmp_path / "a1")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_marks_that_editors_leave_are_no_mistake(tmp_path):
    """A byte order mark, form feeds, blank lines at the end."""
    a0 = catalog.load("a0")
    workspace.create(a0, tmp_path / "a0")
    for path, text in workspace.stripped(a0, []).items():
        data = b"\xef\xbb\xbf" + f"{text}\x0c\n# a\u2028b\n\n".encode()
        (tmp_path / "a0" / path).write_bytes(data)
    said = call("test", "-k", "0.1", "--in", tmp_path / "a0")
    assert "passed" in said and "not allowed" not in said


def test_temporary_files_are_removed(place, runner):
    make = "import tempfile; raise ValueError(tempfile.mkdtemp())"
    solve(place, "a1.1", f"    {make}\n")
    outcome = run_task(runner, catalog.load("a1").task("1.1"), "python", place)[0]
    made = Path(outcome.reason.partition("ValueError: ")[2])
    assert made.is_absolute() and not made.exists() and not made.parent.exists()


def test_hanging_crashing_and_broken_files(place, runner, tmp_path):
    tasks = catalog.load("a1").tasks
    path = solve(place, "a1.1", "    while True:\n        pass\n")
    first, second = run_task(runner, tasks[0], "python", place, limit=3)
    assert first.status == HUNG and "endless" in first.reason
    assert second.status == CRASHED and "not run" in second.reason
    text = path.read_text()
    path.write_text(text.replace("while True:\n        pass", "import os; os._exit(0)"))
    outcome = run_task(runner, tasks[0], "python", place)[0]
    assert outcome.status == CRASHED and "ended with code 0" in outcome.reason
    others = run_task(runner, tasks[1], "python", place)
    assert {o.status for o in others} == {UNWRITTEN}
    path.write_text("def broken(:\n")
    outcome = run_task(runner, tasks[0], "python", place)[0]
    assert outcome.status == FAILED and "SyntaxError" in outcome.reason
    assert ("raised at", "autodiff.py:1: def broken(:") in outcome.lines


@pytest.mark.parametrize("how", ["os.abort()", "os.kill(os.getpid(), 11)"])
def test_a_crash_names_check_and_input(place, runner, how):
    """No frames of what runs the checks, and no list of modules."""
    solve(place, "a1.1", f"    import os; {how}\n")
    task = catalog.load("a1").tasks[0]
    outcomes = run_task(runner, task, "python", place)
    text = "\n".join(report.lines_of(outcomes[0], task))
    assert outcomes[0].status == CRASHED and outcomes[0].name in text
    assert "ended by SIG" in text and "smallest input" in text and "fn = " in text
    assert "bounds" in text
    for part in ("runner.py", "worker.py", "Extension modules", "Current thread"):
        assert part not in text
    assert len(report.first_failures(outcomes)) == 1


@pytest.mark.parametrize("line", ["gone = nowhere", "from numba import gone"])
def test_a_backend_that_a_student_broke_fails(tmp_path, runner, line):
    """It is no device that is missing here."""
    place = tmp_path / "a3"
    workspace.create(catalog.load("a3"), place)
    path = place / "fast_ops" / "elementwise.py"
    path.write_text(path.read_text() + f"\n\n{line}\n")
    task = catalog.load("a3").task("3.1")
    outcome = run_task(runner, task, "cpu", place)[0]
    assert outcome.status == FAILED
    where = dict(outcome.lines)["raised at"]
    assert "elementwise.py" in where and "gone" in where


def test_pytest_here_calls_in_its_own_process(place):
    solve(place, "a1.1", "    import os; raise ValueError(os.getpid(), os.getppid())\n")
    words = ["pytest", "-k", "1.1", "--here", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(catalog.LIBRARY)}
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=place, env=env, stdout=-1, text=True
    ) as process:
        said = process.communicate()[0]
    assert f"raised ValueError: ({process.pid}, {os.getpid()})" in said, said


def test_earlier_work_is_used(tmp_path, runner):
    """a2's workspace together with a wrong a0: the mistake shows."""
    early, late = tmp_path / "a0", tmp_path / "a2"
    workspace.create(catalog.load("a0"), early)
    texts = reference(catalog.load("a0"))
    wrong = texts["minitorch/operators.py"].replace("return x + y", "return x - y")
    (early / "minitorch/operators.py").write_text(wrong)
    workspace.create(catalog.load("a2"), late, [early])
    assert workspace.read(late).earlier == (early,)
    for path, text in reference(catalog.load("a2")).items():
        (late / path).write_text(text)
    task = catalog.load("a2").task("2.3")
    alone = run_task(runner, task, "simple", late)
    assert {o.status for o in alone} == {PASSED}
    both = run_task(runner, task, "simple", late, early)
    assert {o.name for o in both if o.status == WRONG} >= {"zip", "reduce"}


def test_diff_asks_first(place):
    said = CliRunner().invoke(app, ["diff", "a1", "--in", str(place)], input="n\n")
    assert said.exit_code == 1 and "- f(*below)" not in said.output
    said = call("diff", "a1", "--in", place, "--yes")
    assert "+    return (f(*above) - f(*below)) / (2.0 * epsilon)" in said
    assert "SOLUTION" not in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("def broken(:", "line 1: invalid syntax\n    def broken(:\n               ^"),
        ("return 1", "line 1: 'return' outside function\n    return 1\n    ^"),
        ("if x:\n", "line 3: expected an indented block"),
        ("\n# caf\udce9", "not UTF-8: invalid continuation byte in line 2, at byte 6"),
        ("\n\n\0", "a null byte in line 3"),
        ("x = " + "9" * 99 + "(:", f"1: invalid syntax\n    {'9' * 43}(:\n{' ' * 48}^"),
    ],
)
def test_a_syntax_error_is_told_once(place, line, said):
    path = place / "minitorch" / "autodiff.py"
    path.write_bytes(f"{line}\n{path.read_text()}".encode(errors="surrogateescape"))
    out = call("test", "--in", place, code=1)
    assert out.count("minitorch/autodiff.py") == 1 and said in out
    assert "SyntaxError" not in out and "hint" not in out
    table = [text.split() for text in out.splitlines() if text.startswith(" a1.")]
    # For tasks that are solved elsewhere, the library's file takes its place.
    told = {row[0] for row in table if row[-2:] == ["syntax", "error"]}
    assert told == {"a1.1", "a1.3", "a1.4"}


@pytest.mark.extras
def test_an_error_in_a_mojo_file_is_told_with_its_line(tmp_path, runner):
    pytest.importorskip("mojo.run", reason="no Mojo compiler")
    place, path = tmp_path / "a9", "mojo_ops/matmul.mojo"
    workspace.create(catalog.load("a9"), place)
    text = "# one line\n" + reference(catalog.load("a9"))[path]
    text = text.replace("var total = Scalar[T](0)", "var total = Scalar[T](zero)", 1)
    (place / path).write_text(text)
    (place / "mojo_ops/elementwise.mojo").write_bytes(b"\xff")  # costs its tasks alone
    assert "elementwise" in str(workspace.syntax_errors(workspace.read(place)))
    task = catalog.load("a9").task("9.1")
    (outcome,) = run_task(runner, task, "mojo", place)
    said = "\n".join(report.lines_of(outcome, task))
    number = text.splitlines().index("            var total = Scalar[T](zero)") + 1
    assert f"matmul.mojo:{number}: var total = Scalar[T](zero)" in said
    assert "unknown declaration 'zero'" in said
    assert "hint" not in said and "input" not in said and "printed" not in said
    assert str(outcome.lines).count("compiling") == 1


def test_what_numba_cannot_compile_is_told_with_its_line(tmp_path):
    import numba

    path = tmp_path / "fast_ops" / "mine.py"
    path.parent.mkdir()
    path.write_text("def inner(x):\n    return x.nothing\n")
    exec(compile(path.read_text(), str(path), "exec"), made := {})
    inner = numba.njit(made["inner"])
    with pytest.raises(numba.core.errors.TypingError) as caught:
        numba.njit(lambda x: inner(x))(1.0)
    said = worker.describe(caught.value, {str(path)})
    problem = examine.describe(
        Failed("raised", said["text"], "TypingError", said["where"])
    )
    assert (
        problem.reason
        == "raised TypingError: Unknown attribute 'nothing' of type float64"
    )
    assert dict(problem.lines)["raised at"] == "mine.py:2: return x.nothing"


def test_commands_of_a_workspace_use_its_files(tmp_path):
    """`minitorch plan`, which a13's handout calls, with the student's formula."""
    workspace.create(catalog.load("a13"), tmp_path / "a13")
    env = {**os.environ, "PYTHONPATH": str(catalog.LIBRARY)}

    def plan():
        words = [sys.executable, "-m", "minitorch.cli", "plan", "--model", "gpt2"]
        return subprocess.run(
            words, cwd=tmp_path / "a13", env=env, capture_output=True, text=True
        )

    said = plan()
    assert said.returncode == 1 and "a13.6 is not implemented yet" in said.stderr
    assert "Traceback" not in said.stderr
    path = "minitorch/distributed/planner/memory.py"
    (tmp_path / "a13" / path).write_text(reference(catalog.load("a13"))[path])
    said = plan()
    assert said.returncode == 0 and "tokens/s" in said.stdout, said.stderr


def test_a_file_with_another_name_is_missed(place):
    path = solve(place, "a1.1", SOLVED)
    path.rename(path.with_name("auto_diff.py"))
    said = call("test", "-k", "1.1", "--in", place, code=1)
    assert "not written yet" in said and "not in this folder" in said
    assert "minitorch/autodiff.py" in said


def test_one_error_at_one_line_is_told_once(place):
    path = place / "minitorch" / "scalar.py"
    path.write_text(path.read_text() + "\n\nnowhere()\n")
    out = call("test", "-k", "1.2", "--in", place, code=1)
    assert out.count("NameError") == 1 and "11 of 11 checks fail" in out
    assert "also in" in out and "Sub, Mul, Div" in out


def test_diff_knows_its_own_workspace(place, tmp_path, monkeypatch):
    workspace.create(catalog.load("a1"), tmp_path / "a1-another")
    solve(place, "a1.1", SOLVED)
    monkeypatch.chdir(place / "minitorch")
    said = call("diff", "--yes")
    assert "== minitorch/autodiff.py" in said and 'todo("a1.1")' not in said
    monkeypatch.chdir(tmp_path / "a1-another")
    said = call("diff", "a1", "--yes")  # not that of the other one
    assert '-    todo("a1.1")' in said
    monkeypatch.chdir(tmp_path)
    assert "is no workspace" in str(CliRunner().invoke(app, ["diff"]).stderr)
    (place / "workspace.toml").write_text("x = 1")  # as another program's
    assert "expected a line" in str(CliRunner().invoke(app, ["status"]).stderr)


def test_status_knows_what_has_changed_since(place):
    call("test", "-k", "1.2", "--in", place, code=1)
    assert "changed" not in call("status", "--in", place)
    path = solve(place, "a1.1", SOLVED)
    said = call("status", "--in", place)
    assert "changed since its last test: minitorch/autodiff.py" in said
    said = call("test", "-k", "1.1", "--in", place)
    assert "at their last test; since then these have changed: minitorch/auto" in said
    assert "changed" in call("status", "--in", place)  # 1.2 was checked before that
    assert "changed" not in call("test", "-k", "1.2", "--in", place, code=1)
    assert "changed" not in call("status", "--in", place)
    path.unlink()
    assert "autodiff.py" in call("status", "--in", place)


def test_progress_that_held_points_is_forgotten(place):
    for data in (b'{"a1.1": {"python": 6}}', b"\xff"):
        (place / workspace.PROGRESS).write_bytes(data)
        assert "points" in call("status", "--in", place)
        assert workspace.progress(workspace.read(place)) == {}


# ---------------------------------------------------------------------------- hints


def test_hints_open_one_by_one(place):
    task = catalog.load("a1").task("1.3")
    first, second, *_ = [" ".join(hint.split()) for hint in task.hints]
    most = len(task.hints)
    said = " ".join(call("hint", "1.3", "--in", place).split())
    assert first in said and second not in said and f"1 of {most} hints" in said
    said = " ".join(call("hint", "a1.3", "--in", place).split())
    assert second in said and first not in said
    said = " ".join(call("hint", "a1.3", "--again", "--in", place).split())
    assert first in said and second in said and f"2 of {most} hints" in said
    for _ in range(most):
        said = call("hint", "a1.3", "--in", place)
    assert "no more hints" in said
    assert f"a1.3  The chain rule {most} of" in " ".join(
        call("hint", "--in", place).split()
    ).replace("a1.3 The", "a1.3  The")
    assert f"hints taken: a1.3 {most} of {most}" in call(
        "test", "-k", "1.3", "--in", place, code=1
    )
    assert f"hints: {most}" in call("status", "--in", place)


def test_hints_are_told_with_a_grade(place):
    from assignments.grading import submission

    call("hint", "a1.3", "--in", place)
    found = submission.read(place, catalog.load("a1"))
    assert found.hints == {"a1.3": 1}
    before = found.digest
    (place / workspace.HINTS).write_text('{"a1.3": 99, "a1.4": true, "x": 1}')
    found = submission.read(place, catalog.load("a1"))
    assert found.hints == {"a1.3": 3} and found.digest == before
    for text in ("[" * 100_000, "\x00", '{"a1.3": {}}', "[1]"):
        (place / workspace.HINTS).write_text(text)
        assert submission.read(place, catalog.load("a1")).hints == {}


# ----------------------------------------------------------------------- not written


def untouched(place, task) -> bool:
    made = workspace.read(place)
    return workspace.untouched(made.assignment, task, workspace.contents(made))


def test_what_is_not_written_is_known_without_a_run(place, monkeypatch):
    from assignments import runner

    monkeypatch.setattr(runner.Runners, "run", lambda *_: pytest.fail("it ran"))
    said = call("test", "--in", place, code=1)
    assert said.count("not written yet") == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\nraise ValueError\n",
        lambda text: text.replace('todo("a1.1")', "return None"),
        lambda text: text.replace("    todo(", "    print()\n    todo("),
        lambda text: "def broken(:\n",
        lambda text: text.replace("from __future__ import annotations", ""),
    ],
)
def test_any_other_code_runs(place, change):
    task = catalog.load("a1").task("a1.1")
    assert untouched(place, task)
    path = place / "minitorch" / "autodiff.py"
    path.write_text(path.read_text() + "\n\n# a comment\n")
    assert untouched(place, task)
    path.write_text(change(path.read_text()))
    assert not untouched(place, task)


def test_other_tasks_do_not_matter(place):
    tasks = catalog.load("a1").tasks
    solve(place, "a1.1", SOLVED)
    assert [untouched(place, task) for task in tasks] == [False, *[True] * 4]
    (place / "minitorch" / "autodiff.py").unlink()
    assert not any(untouched(place, task) for task in tasks)


# ---------------------------------------------------------------------------- pytest


def test_pytest_in_a_workspace(place):
    solve(place, "a1.1", SOLVED)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "task1_1 or task1_3",
            "-p",
            "no:cacheprovider",
        ],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 2 passed" in done.stdout, done.stdout
    assert "a1.3 is not implemented yet" in done.stdout
    assert "Traceback" not in done.stdout and 'in _add_gradient: todo("' in done.stdout


def test_pytest_tells_a_syntax_error_once(place):
    path = place / "minitorch" / "autodiff.py"
    path.write_text(f"def broken(:\n{path.read_text()}")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "-m", "task1_1 or task1_3 or task1_4"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(catalog.LIBRARY)},
        capture_output=True,
        text=True,
    )
    assert "1 failed" in done.stdout and "passed" not in done.stdout, done.stdout
    assert "minitorch/autodiff.py, line 1: invalid syntax" in done.stdout
