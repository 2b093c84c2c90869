"""Opening what was handed in."""

from __future__ import annotations

import zipfile

import pytest
from grading.mini_course import MINI, PATH, write_solution

from assignments.grading import submission


def test_folder_and_zip_are_the_same(tmp_path):
    folder = write_solution(tmp_path / "a")
    text = (folder / PATH).read_text()
    archive = tmp_path / "b.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"a3-work/{PATH}", text)
        file.writestr("a3-work/__MACOSX/notes", "x")
    one, two = (submission.read(path, MINI) for path in (folder, archive))
    assert one.files == two.files == {PATH: text.encode()}
    assert one.digest == two.digest
    assert (one.name, two.name) == ("a", "b.zip")


def test_a_folder_in_a_folder_is_found(tmp_path):
    write_solution(tmp_path / "student" / "work" / "a99")
    assert list(submission.read(tmp_path / "student", MINI).files) == [PATH]


def test_digest_depends_on_contents(tmp_path):
    folders = [write_solution(tmp_path / f"{i}", note=str(i % 2)) for i in range(3)]
    digests = [submission.read(path, MINI).digest for path in folders]
    assert digests[0] == digests[2] != digests[1]


def test_nothing_and_too_much_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(submission.Refused, match="none of the assignment's files"):
        submission.read(tmp_path / "empty", MINI)
    folder = write_solution(tmp_path / "large", note="x" * submission.FILE_LIMIT)
    with pytest.raises(submission.Refused, match="more than"):
        submission.read(folder, MINI)
    with pytest.raises(FileNotFoundError, match="expected a folder or a zip"):
        submission.read(tmp_path / "missing", MINI)


@pytest.mark.parametrize(
    "data, problem",
    [
        (b"x = 1\n", ""),
        ("x = 'ä'\n".encode(), ""),
        (b"x = 1\r\ny = 2\r\n", ""),
        (b"# -*- coding: utf-8 -*-\n", ""),
        (b"x = (\n", "SyntaxError"),
        (b"\xff", "UTF-8"),
        (b"# coding: latin-1\n", "encoding"),
        (b"# a\x0cx = 1\n", "end lines"),
        ("# a\u2028x = 1\n".encode(), "end lines"),
        (b"x = 1\ry = 2\n", "end lines"),
        (b"x = 1\x00\n", "null"),
    ],
)
def test_what_is_no_python(data, problem):
    found = submission.why_not_python(data)
    assert problem in found if problem else not found


def test_deep_nesting_does_not_end_the_grader():
    assert submission.why_not_python(b"x = " + b"-" * 300_000 + b"1")
