"""`minitorch grade`, `grade-all`, `leaderboard` and `release`: the teacher's side.

With these commands one can grade what students hand in, one submission or a folder of
them, show who is fastest, and make what the course hands out. docs/grading.md says what
to expect of them.
"""

from __future__ import annotations

import math
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assignments import catalog
from minitorch.cli.errors import complain, friendly, need_fork

if TYPE_CHECKING:
    from assignments.grading.batch import Entry
    from assignments.grading.grade import Grader

Name = Annotated[
    str, typer.Argument(metavar="ASSIGNMENT", help=f"{', '.join(catalog.ids())}.")
]
Secret = Annotated[
    Path | None,
    typer.Option(
        help="File with the secret from which all inputs are drawn.",
        show_default="made once, in your configuration folder",
    ),
]
Seed = Annotated[
    str | None, typer.Option(help="The secret itself, for trying things out.")
]
Sandbox = Annotated[
    str,
    typer.Option(
        help="bubblewrap, namespaces, user or limits.", show_default="the strongest"
    ),
]
Patience = Annotated[
    float, typer.Option(help="A task may take so many times its stated seconds.")
]
MarksFile = Annotated[
    Path | None,
    typer.Option(
        "--marks",
        exists=True,
        help="Table of a teacher's points for answers.md: "
        "submission,question,points,comment.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]


def grade(
    assignment: Name,
    submission: Annotated[Path, typer.Argument(exists=True, help="A folder or a zip.")],
    earlier: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="DIR",
            help="A workspace with the same student's earlier work, to use instead of "
            "the library's; or a2=DIR, where DIR does not say what it is for.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for results.json and junit.xml.")
    ] = Path("grades"),
    secret: Secret = None,
    seed: Seed = None,
    sandbox: Sandbox = "",
    patience: Patience = 1.0,
    marks: MarksFile = None,
    debug: Debug = False,
) -> None:
    """Grade one submission."""
    with friendly(debug, "minitorch grade"):
        need_fork("grade")
        from rich.console import Console

        from assignments.grading import batch, report
        from assignments.grading.earlier import read

        grader = _grader(assignment, secret, seed, sandbox, patience, marks)
        out.mkdir(parents=True, exist_ok=True)  # or an error, before minutes of work
        carried = [read(word, grader.assignment) for word in earlier or []]
        found = grader.grade(submission, carried)
        batch.write(found, out)
        console = Console(highlight=False)
        report.show(found, console)
        typer.echo(f"written: {out / batch.RESULTS}, {out / batch.JUNIT}")


def grade_all(
    assignment: Name,
    folder: Annotated[
        Path,
        typer.Argument(
            exists=True,
            file_okay=False,
            help="Folder with a folder or a zip for each submission.",
        ),
    ],
    jobs: Annotated[int, typer.Option(help="Submissions at the same time.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("grades"),
    secret: Secret = None,
    seed: Seed = None,
    sandbox: Sandbox = "",
    patience: Patience = 1.0,
    marks: MarksFile = None,
    debug: Debug = False,
) -> None:
    """Grade a folder of submissions; go on where an earlier run has stopped."""
    with friendly(debug, "minitorch grade-all"):
        need_fork("grade-all")
        from assignments.grading import batch

        grader = _grader(assignment, secret, seed, sandbox, patience, marks)
        found = batch.submissions(folder)
        total, count = len(found), 0
        unknown = grader.settings.marks.keys() - {path.name for path in found}
        for what, names in (
            ("not graded, since neither folders nor zips", batch.left_out(folder)),
            ("marks for what is no submission there", unknown),
        ):
            if names:
                complain(f"notice: {folder}: {what}: {', '.join(sorted(names))}")

        def say(entry: Entry) -> None:
            nonlocal count
            count += 1
            values = dict(zip(entry.header, entry.cells))
            early = "" if entry.again else " (from an earlier run)"
            line = f"{count:4} of {total}  {entry.name}: {values['points']} points"
            typer.echo(f"{line}, {values['status']}{early}")

        entries = batch.grade_all(grader, folder, out, jobs, say)
        typer.echo(f"the table is {out / batch.TABLE}")
        failed = [entry.name for entry in entries if entry.failed]
        if failed:
            raise RuntimeError(
                f"grade-all: the grader itself failed on {len(failed)} of {total} "
                f"({', '.join(failed[:5])}); the table says why"
            )


def leaderboard(
    grades: Annotated[
        Path,
        typer.Argument(exists=True, file_okay=False, help="What grade-all wrote."),
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("leaderboard.html"),
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous",
            help="The first digits of a submission's digest instead of its name.",
        ),
    ] = False,
) -> None:
    """Make a page of who is fastest, from graded results."""
    with friendly(None, "minitorch leaderboard"):
        from assignments.grading import leaderboard as board

        entries = board.read(grades, anonymous)
        out.write_text(board.page(entries), encoding="utf-8")
        typer.echo(f"written: {out}, with {len(entries)} results")


def release(
    assignment: Name,
    out: Annotated[Path, typer.Argument(help="Folder for what is made.")],
    debug: Debug = False,
) -> None:
    """Make the students' zip, the student edition and the autograder."""
    with friendly(debug, "minitorch release"):
        from assignments.grading.release import release as make

        for path in make(catalog.load(assignment), out):
            typer.echo(f"written: {path}")
        typer.echo("the autograder has the solutions and a secret: keep it to yourself")


def _grader(
    assignment: str,
    secret: Path | None,
    seed: str | None,
    sandbox: str,
    patience: float,
    marks: Path | None,
) -> Grader:
    from assignments.answers import read_marks
    from assignments.grading.grade import Grader, Settings

    if not (patience > 0 and math.isfinite(patience)):
        raise ValueError(f"--patience is {patience}; it must be a number above 0")
    text = seed if seed is not None else read_secret(secret or default_secret())
    chosen = catalog.load(assignment)
    given = read_marks(marks, chosen) if marks is not None else {}
    settings = Settings(secret=text, mode=sandbox, patience=patience, marks=given)
    grader = Grader(chosen, settings)
    if grader.weakness:
        complain(f"notice: {grader.weakness}")
    return grader


def default_secret() -> Path:
    """The secret of this user's course; made when it is needed for the first time."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path("~/.config").expanduser()
    path = folder / "minitorch" / "grading-secret"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(f"{secrets.token_hex(32)}\n")
        try:
            os.link(part, path)  # unlike a rename, it keeps what another process made
        except FileExistsError:
            pass
        part.unlink()
    return path


def read_secret(path: Path) -> str:
    """The secret in a file.

    Raises:
        ValueError: it is too short to be one.
    """
    try:
        text = path.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text ({error}); a secret is") from None
    if len(text) < 16:
        raise ValueError(f"{path} has {len(text)} characters; a secret has 16 or more")
    return text
