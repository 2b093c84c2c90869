"""Questions of the handouts, the page that collects answers, and a teacher's points."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from grading.mini_course import UNTIMED, make_grader, write_solution
from typer.testing import CliRunner

from assignments import answers, catalog, workspace
from assignments.answers import HERE
from assignments.catalog import Assignment, Question
from assignments.grading import batch
from minitorch.cli.app import app

ASSIGNMENTS = catalog.load_all()
each = pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda a: a.id)


def words(text: str) -> str:
    return " ".join(text.split())


@each
def test_a_handout_begins_with_hours_and_what_one_will_be_able_to_do(
    assignment: Assignment,
) -> None:
    text = (assignment.folder / "README.md").read_text()
    first = words(text.partition("\n## ")[0])
    for line in (
        f"- **Hours:** about {assignment.hours:g}.",
        f"- **Before it:** {assignment.before}.",
        f"- **Afterwards you can** {assignment.able}",
    ):
        assert line in first and assignment.able.endswith(".")
    schedule = (catalog.LIBRARY / "docs" / "teaching.md").read_text()
    (row,) = [r for r in schedule.splitlines() if f"/{assignment.slug})" in r]
    assert row.endswith(f"| {assignment.hours:g} |")


@each
def test_questions_have_points_and_a_rubric(assignment: Assignment) -> None:
    asked = answers.questions(assignment)
    assert len(asked) == len(assignment.questions)
    for question in assignment.questions:
        parts = [float(n) for n in re.findall(r"(\d+): ", question.rubric)]
        assert sum(parts) == question.points
    total = sum(question.points for question in assignment.questions)
    text = words((assignment.folder / "README.md").read_text())
    assert not asked or f"with their points ({total:g} in all)" in text


@each
def test_a_new_page_has_all_questions_and_no_answer(assignment: Assignment) -> None:
    page = answers.template(assignment)
    asked = answers.questions(assignment)
    quoted = words(re.sub("^> ?", "", page, flags=re.M))
    assert all(words(text) in quoted for text in asked)
    assert [a.text for a in answers.read(page, assignment)] == [""] * len(asked)
    filled = page.replace(HERE, f"{HERE}\n\n12 ms.\n\n## A heading of mine\n\nSo.")
    found = answers.read(filled, assignment)
    assert {a.text for a in found} <= {"12 ms.\n\n## A heading of mine\n\nSo."}


def test_the_line_above_an_answer_may_be_missing() -> None:
    page = answers.template(ASSIGNMENTS[0])
    for put, texts in (("", ["", "", ""]), ("Because.", ["Because."] * 3)):
        found = answers.read(page.replace(HERE, put), ASSIGNMENTS[0])
        assert [answer.text for answer in found] == texts


@pytest.mark.parametrize("text", ["", "\0", "## 1. (\n## 999. (x", "## 1. (2 points)"])
def test_any_text_is_read(text: str) -> None:
    found = answers.read(text, ASSIGNMENTS[0])
    assert [answer.text for answer in found] == [""] * 3


def test_a_workspace_has_the_page_and_a_file_for_assistants(tmp_path: Path) -> None:
    workspace.create(ASSIGNMENTS[0], tmp_path / "a0")
    page = (tmp_path / "a0" / "answers.md").read_text()
    assert page == answers.template(ASSIGNMENTS[0])
    (tmp_path / "a0" / "answers.md").write_text(page.replace(HERE, "Because.", 2))
    said = CliRunner().invoke(app, ["status", "--in", str(tmp_path / "a0")]).output
    assert "answers: 1 of 3" in words(said)  # the first place is the head's example
    assert "Do not:" in (tmp_path / "a0" / "AGENTS.md").read_text()


ASKED = replace(
    UNTIMED, questions=(Question(2, "2: a reason."), Question(3, "3: all."))
)
PAGE = f"# a99\n\n## 1. (2 points)\n{HERE}\nIt waits.\n\n## 2. (3 points)\n{HERE}\n"


def test_answers_count_when_a_teacher_gave_points(tmp_path: Path) -> None:
    """And a result is made anew when the points have changed."""
    kim = tmp_path / "in" / "kim"
    write_solution(kim)
    (kim / "answers.md").write_text(PAGE)
    grader, out = make_grader(assignment=ASKED), tmp_path / "out"
    first = grade_all(grader, tmp_path / "in", out)
    assert (first["answered"], first["marked"]) == ("1 of 2", "0")
    tests = {t["number"]: t for t in read_tests(out / "kim")}
    assert "score" not in tests["answer 1"] and "max_score" not in tests["answer 2"]
    assert "It waits." in tests["answer 1"]["output"]
    assert "no answer; not marked, 3 possible (3: all.)" in tests["answer 2"]["output"]

    table = tmp_path / "marks.csv"
    table.write_text("submission,question,points,comment\nkim,1,1.5,for what?\n")
    given = answers.read_marks(table, ASKED)
    grader.settings = replace(grader.settings, marks=given)
    second = grade_all(grader, tmp_path / "in", out)
    assert second["marked"] == "1.5"
    assert float(second["points"]) == float(first["points"]) + 1.5
    (one,) = [t for t in read_tests(out / "kim") if t["number"] == "answer 1"]
    assert (one["score"], one["max_score"]) == (1.5, 2)
    assert one["output"].startswith("answer 1: 2 words; 1.5 of 2 points; for what?")


def test_points_count_for_answers_that_were_given_elsewhere(tmp_path: Path) -> None:
    """On paper, say: the submission has no `answers.md`, and was graded before."""
    write_solution(tmp_path / "in" / "kim")
    grader, out = make_grader(assignment=ASKED), tmp_path / "out"
    assert grade_all(grader, tmp_path / "in", out)["marked"] == "0"
    grader.settings = replace(grader.settings, marks={"kim": {1: (1.5, "on paper")}})
    assert grade_all(grader, tmp_path / "in", out)["marked"] == "1.5"
    grader.settings = replace(grader.settings, marks={})
    assert grade_all(grader, tmp_path / "in", out)["marked"] == "0"


def grade_all(grader, folder: Path, out: Path) -> dict[str, str]:
    """Grade a folder with one submission; its line of the table."""
    batch.grade_all(grader, folder, out)
    with open(out / batch.TABLE, newline="") as file:
        (row,) = csv.DictReader(file)
    return row


def read_tests(folder: Path) -> list[dict]:
    return json.loads((folder / batch.RESULTS).read_text())["tests"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submission,question\nkim,1\n", "no column points"),
        ("submission;question;points\nkim;1;1\n", "no column .* with commas"),
        ("submission,question,points\nkim,3,1\n", "line 2: question is '3'"),
        ("submission,question,points\nkim,1,2.5\n", "points are '2.5'; expected"),
        ("submission,question,points\nkim,1,nan\n", "points are 'nan'"),
        ("submission,question,points\nkim,1\n", "points are None"),
    ],
)
def test_a_table_that_makes_no_sense_is_named(
    text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "marks.csv").write_text(text)
    with pytest.raises(ValueError, match=f"^marks: .*{said}"):
        answers.read_marks(tmp_path / "marks.csv", ASKED)


def test_a_table_in_another_encoding_is_named(tmp_path: Path) -> None:
    """As spreadsheet programs save it, unless they are asked for UTF-8."""
    table = tmp_path / "marks.csv"
    text = "submission,question,points,comment\nkim,1,1,schön\n"
    table.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"marks.csv is not UTF-8 .* save it"):
        answers.read_marks(table, ASKED)
