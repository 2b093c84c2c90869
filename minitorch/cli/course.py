"""`minitorch start | test | hint | status | diff`: the course, from the student's side.

With these commands one can take an assignment (`minitorch start a1`), see what works
(`minitorch test` in its folder), ask for help (`minitorch hint a1.3`), see how far one
is (`minitorch status`), and, when all is done, compare with the library
(`minitorch diff`).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assignments import catalog
from minitorch.backend.registry import install
from minitorch.cli.errors import FAILURE, friendly, need_fork

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignments.catalog import Assignment, Task
    from assignments.grading.examine import Result
    from assignments.runner import Job, Runners
    from assignments.workspace import Workspace

Name = Annotated[
    str, typer.Argument(metavar="ASSIGNMENT", help=f"{', '.join(catalog.ids())}.")
]
Earlier = Annotated[
    list[Path] | None,
    typer.Option("--with", help="A workspace with earlier work, to use that as well."),
]
Within = Annotated[Path, typer.Option("--in", help="The workspace, or a folder in it.")]


def start(
    assignment: Name,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Where to make it; ./ASSIGNMENT if left out."
        ),
    ] = None,
    earlier: Earlier = None,
    force: Annotated[
        bool, typer.Option("--force", help="Move a folder that is not empty aside.")
    ] = False,
) -> None:
    """Make a workspace for an assignment: its files without the solutions."""
    with friendly(None, "minitorch start"):
        from assignments import workspace

        chosen = catalog.load(assignment)
        place = folder or Path(chosen.id)
        backup = workspace.create(chosen, place, earlier or [], force)
        if backup is not None:
            typer.echo(f"moved what was there to {backup}")
        typer.echo(f"{chosen.id} {chosen.title}: {len(chosen.tasks)} tasks in {place}/")
        there = "" if place == Path() else f"  cd {shlex.quote(str(place))}\n"
        typer.echo(f"read {place / 'README.md'}, then:\n{there}  minitorch test")


def test(
    only: Annotated[
        str | None, typer.Option("-k", "--task", help="Only this task: 3.1, or a3.1.")
    ] = None,
    earlier: Earlier = None,
    device: Annotated[str | None, typer.Option(help="Only on this device.")] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Use your own functions for all tasks at once; otherwise what other "
            "tasks ask for comes from the library.",
        ),
    ] = False,
    xray: Annotated[
        bool,
        typer.Option("--xray", help="Then look into the tasks' kernels, line by line."),
    ] = False,
    folder: Within = Path("."),
) -> None:
    """Check the tasks of the workspace that this is called in."""
    with friendly(None, "minitorch test"):
        need_fork("test")
        from assignments import workspace

        place = workspace.find(folder)
        missing = _missing()
        if missing:
            raise RuntimeError(
                f"test: needs {missing}; install what the course needs: "
                f"{install('course')}; the README says how to get PyTorch without CUDA"
            )
        outcomes = _run(place, only, device, earlier or [], together)
        _show(place, outcomes)
        _look_inside(place, outcomes, xray)
        ran = [o for row in outcomes for o in row[2] if o.status != "not run"]
        if not ran:
            raise RuntimeError("test: nothing was run, for the reasons above")
        if any(o.share == 0 for o in ran):
            raise typer.Exit(FAILURE)


def _missing() -> str:
    from importlib.util import find_spec

    return " and ".join(n for n in ("torch", "hypothesis") if find_spec(n) is None)


SYNTAX_ERROR = "syntax error"
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
Rows = list[tuple["Task", str, list["Result"]]]


def _run(
    place: Workspace,
    only: str | None,
    device: str | None,
    earlier: list[Path],
    together: bool,
) -> Rows:
    from assignments import workspace
    from assignments.grading import reading
    from assignments.grading.examine import unwritten
    from assignments.runner import Job, Runners

    tasks = place.assignment.tasks
    if only is not None:
        tasks = (place.assignment.task(only),)
    devices = dict.fromkeys(name for task in tasks for name in task.devices)
    if device not in (None, *devices):
        what = only or place.assignment.id
        raise ValueError(
            f"test: --device is {device!r}; {what} is checked on {', '.join(devices)}"
        )
    folders = [str(f) for f in (*place.folders, *(p.resolve() for p in earlier))]
    rows: Rows = []
    broken, files = set(workspace.syntax_errors(place)), workspace.contents(place)
    with Runners(say=_say) as runners:
        for task in tasks:
            nothing = workspace.untouched(place.assignment, task, files)
            solved_in = reading.files_of(place.assignment, task)
            lines = (
                [] if nothing else reading.refused(place.assignment, place.folder, task)
            )
            for name in task.devices:
                if device not in (None, name):
                    continue
                if nothing and _is_installed(name):
                    rows.append((task, name, [unwritten(task.id, name)]))
                    continue
                if broken & solved_in:
                    rows.append((task, name, [_broken(task, name)]))
                    continue
                job = Job(task.id, name, folders, together=together)
                found = _one(runners, job)
                if broken and any(word in o.reason for o in found for word in _SYNTAX):
                    found = [_broken(task, name)]
                if lines:
                    found.insert(0, reading.refusal(task, name, lines))
                rows.append((task, name, found))
    return rows


def _broken(task: Task, device: str) -> Result:
    """A task that cannot run because a file is no Python, which is told once."""
    from assignments.grading.examine import Result

    return Result(task.id, "", device, SYNTAX_ERROR)


def _is_installed(device: str) -> bool:
    """Whether the package that a device needs is there."""
    from importlib.util import find_spec

    package = {"cuda": "numba_cuda", "mojo": "mojo"}.get(device)
    return package is None or find_spec(package) is not None


def _one(runners: Runners, job: Job) -> list[Result]:
    """Run a job, with a word about it."""
    _say(f"{job.task} on {job.device} ...")
    outcomes = runners.run(job)
    _say("")
    return outcomes


def _say(text: str) -> None:
    """Let a line take the place of the one before, where somebody is watching."""
    import sys

    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


def _show(place: Workspace, rows: Rows) -> None:
    from assignments import report, workspace
    from assignments.grading.examine import FAILED, HUNG, WRONG, part

    typer.echo(f"{place.assignment.id} {place.assignment.title}")
    report.print_table(rows)
    files = (file.path for file in place.assignment.files)
    gone = [path for path in files if not (place.folder / path).is_file()]
    if gone:
        typer.echo(f"not in this folder, so it does not count: {', '.join(gone)}\n")
    for message in workspace.syntax_errors(place).values():
        typer.echo(f"{message}\n")
    ran = [row for row in rows if not row[2] or row[2][0].status != SYNTAX_ERROR]
    for lines in report.failures(ran):
        typer.echo("\n".join(lines) + "\n")
    parts = workspace.progress(place)
    for task, device, outcomes in rows:
        parts.setdefault(task.id, {})[device] = part(task, outcomes)
    workspace.record(place, parts, [task.id for task, _, _ in rows])
    line = workspace.hints_line(place.assignment, workspace.hints_taken(place))
    said = [line] if line else []
    failed = [
        task
        for task, _, found in rows
        if task.hints and any(o.status in (FAILED, HUNG, WRONG) for o in found)
    ]
    if failed and not line:
        said = [f"stuck? `minitorch hint {failed[0].id}` opens a first hint"]
    if changed := workspace.changed(place):
        said.append(
            f"other tasks count as at their last test; since then these have changed: "
            f"{', '.join(changed)}"
        )
    said.append(f"{_counted(place.assignment, parts)}{_not_run(rows)}")
    for text in said:
        typer.echo(text)


def _look_inside(place: Workspace, rows: Rows, wanted: bool) -> None:
    """Show the x-rays of the kernels that ran, or say how to see one."""
    from assignments.grading.examine import UNWRITTEN
    from minitorch.cli.xray import look, show

    ran = [
        task
        for task, device, found in rows
        if device == "cuda"
        and not all(o.status in ("not run", UNWRITTEN, SYNTAX_ERROR) for o in found)
    ]
    kernels = [kernel for task in ran for kernel in task.xray]
    if kernels and not wanted:
        typer.echo(
            f"`minitorch xray {kernels[-1]}` shows what each line asks memory for"
        )
    if wanted and not kernels:
        typer.echo("--xray: none of these tasks has run a kernel to look into")
    for kernel in kernels if wanted else ():
        try:
            show(look(kernel, place.folder))
        except (ValueError, RuntimeError) as error:
            typer.echo(str(error))


def _counted(assignment: Assignment, parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The points of all tasks, out of those that count here."""
    from assignments.report import number

    tasks = [(task, parts.get(task.id, {})) for task in assignment.tasks]
    total = sum(catalog.points(*task) for task in tasks)
    most = sum(catalog.possible(*task) for task in tasks if not task[0].bonus)
    return f"{number(total)} of {number(most)} points"


def _not_run(rows: Rows) -> str:
    missed = [
        f"{task.id} on {device}"
        for task, device, outcomes in rows
        if all(o.status == "not run" for o in outcomes)
    ]
    return f"; not run here, and not counted: {', '.join(missed)}" if missed else ""


def hint(
    name: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="a4.3, or 4.3.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Show those that are open, and no other.")
    ] = False,
    folder: Within = Path("."),
) -> None:
    """Open the next hint of a task; without a task, say how many there are."""
    with friendly(None, "minitorch hint"):
        from assignments import workspace

        place = workspace.find(folder)
        taken = workspace.hints_taken(place)
        if name is None:
            for task in place.assignment.tasks:
                said = f"{taken.get(task.id, 0)} of {len(task.hints)} hints taken"
                typer.echo(f"{task.id}  {task.title:42} {said}")
            typer.echo(f"`minitorch hint {place.assignment.tasks[0].id}` opens one")
            return
        task = place.assignment.task(name)
        before, most = taken.get(task.id, 0), len(task.hints)
        count = before if again else workspace.take_hint(place, task)
        typer.echo(f"{task.id} {task.title}: {count} of {most} hints")
        first = before if before < count else 0
        for number in range(first, count):
            typer.echo(_hint_text(number + 1, task.hints[number]))
        if not most or (count == before and not again):
            typer.echo("There are no more hints." if most else "It has no hints.")


def _hint_text(number: int, text: str) -> str:
    """A hint with its number, as wide as a page."""
    import textwrap

    margin = f"  {number}. "
    return textwrap.fill(
        text, 80, initial_indent=margin, subsequent_indent=" " * len(margin)
    )


def status(folder: Within = Path(".")) -> None:
    """Show how far the course is: the points of each assignment's last checks."""
    with friendly(None, "minitorch status"):
        from assignments import workspace

        found = workspace.near(folder)
        for assignment in catalog.load_all():
            own = [w for w in found if w.assignment.id == assignment.id]
            title = f"{assignment.id:4} {assignment.title:32}"
            if not own:
                typer.echo(f"{title} not started")
            for place in own:
                _status_line(title, place)


def _status_line(title: str, place: Workspace) -> None:
    from assignments import workspace
    from assignments.answers import ANSWERS, read

    parts = workspace.progress(place)
    tasks = place.assignment.tasks
    hints = sum(workspace.hints_taken(place).values())
    done = [t for t in tasks if catalog.points(t, parts.get(t.id, {})) >= t.points]
    rest = [t.id for t in tasks if t not in done]
    bar = "#" * len(done) + "." * len(rest)
    said = [_counted(place.assignment, parts)]
    said.append(f"next: {rest[0]}" if rest else "done")
    said += [f"hints: {hints}"] if hints else []
    page = place.folder / ANSWERS
    text = page.read_text(errors="replace") if page.exists() else ""
    answers = [answer.text for answer in read(text, place.assignment)]
    said += [f"answers: {sum(map(bool, answers))} of {len(answers)}"] if answers else []
    files = workspace.changed(place)
    said += [f"changed since its last test: {', '.join(files)}"] if files else []
    typer.echo(f"{title} [{bar}] {', '.join(said)}  ({place.folder})")


def diff(
    assignment: Annotated[
        str | None,
        typer.Argument(
            metavar="[ASSIGNMENT]",
            help=f"{', '.join(catalog.ids())}. That of the workspace if left out.",
        ),
    ] = None,
    folder: Within = Path("."),
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Show the solutions without asking.")
    ] = False,
) -> None:
    """Compare a workspace with the library's own solutions."""
    with friendly(None, "minitorch diff"):
        place = _place_for(assignment, folder)
        chosen = place.assignment
        if not any(file.regions() for file in chosen.files):
            raise RuntimeError(
                f"diff: this is a student edition, without the solutions of {chosen.id}"
            )
        if not yes:
            typer.confirm(
                f"This shows the solutions of {chosen.id}. Go on?", abort=True
            )
        for path, lines in _differences(place).items():
            typer.echo(f"\n== {path}")
            typer.echo("".join(lines) or "the same as the library's\n", nl=False)


def _place_for(assignment: str | None, folder: Path) -> Workspace:
    """The workspace that `folder` is in, or one near it, for an assignment."""
    from assignments import workspace

    if assignment is None:
        return workspace.find(folder)
    chosen = catalog.load(assignment)
    found = [w for w in workspace.near(folder) if w.assignment == chosen]
    if not found:
        raise ValueError(f"diff: there is no workspace for {chosen.id} near {folder}")
    here = (folder.resolve(), *folder.resolve().parents)
    return next((w for w in found if w.folder in here), found[0])


def _differences(place: Workspace) -> dict[str, list[str]]:
    """For each file, the lines that turn the student's into the library's."""
    import difflib

    from assignments.workspace import stripped

    found = {}
    for path, text in stripped(place.assignment, []).items():
        own = place.folder / path
        before = own.read_text(errors="replace") if own.exists() else ""
        found[path] = list(
            difflib.unified_diff(
                before.splitlines(True), text.splitlines(True), "yours", "the library's"
            )
        )
    return found
