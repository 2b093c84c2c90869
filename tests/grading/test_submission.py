"""Opening what was handed in."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from grading.mini_course import (
    MINI,
    PATH,
    SOLUTION,
    UNTIMED,
    make_grader,
    write_file,
    write_solution,
)

from assignments import catalog, workspace
from assignments.answers import ANSWERS
from assignments.grading import apart, intake, submission


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


def test_what_forms_for_uploads_make_of_it(tmp_path):
    """Moodle: a folder with what was handed in; else the files without folders."""
    right = catalog.load("a1")
    texts = {name: t.encode() for name, t in workspace.stripped(right, []).items()}
    assert any("/" in name for name in texts) and any("/" not in name for name in texts)
    place = tmp_path / "Jane Doe_123_assignsubmission_file_"
    place.mkdir()
    for flat in (False, True):
        with zipfile.ZipFile(place / "my a1.ZIP", "w") as file:
            for name, text in texts.items():
                file.writestr(Path(name).name if flat else f"a1/{name}", text)
        found = submission.read(place, right)
        assert found.files == texts and found.missing == ()
    for name, text in texts.items():
        (place / Path(name).name).write_bytes(text)
    (place / "scalar.py").write_bytes(b"x = 1\n")  # what lies there goes before a zip
    assert submission.read(place, right).files == {
        **texts,
        "minitorch/scalar.py": b"x = 1\n",
    }


def test_a_zip_may_have_answers_beside_it(tmp_path):
    right = catalog.load("a1")
    texts = {name: t.encode() for name, t in workspace.stripped(right, []).items()}
    with zipfile.ZipFile(tmp_path / "a1.zip", "w") as file:
        for name, text in texts.items():
            file.writestr(name, text)
    (tmp_path / ANSWERS).write_text("because")
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "__MACOSX" / "._a1.zip").write_bytes(b"x")
    found = submission.read(tmp_path, right)
    assert (found.files, found.answers) == (texts, "because")


def test_the_work_for_another_assignment_is_refused(tmp_path):
    """Though it has files of the same names, in other folders."""
    for other in ("a2", "a4"):
        workspace.create(catalog.load(other), tmp_path / other)
        with pytest.raises(apart.Refused, match="none of the assignment's files"):
            submission.read(tmp_path / other, catalog.load("a3"))


def test_of_two_zips_none_is_read(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        with zipfile.ZipFile(tmp_path / "in" / f"{name}.zip", "w") as file:
            file.writestr(PATH, "x = 1\n")
    with pytest.raises(apart.Refused, match="none of the assignment's files"):
        submission.read(tmp_path / "in", MINI)
    (tmp_path / "in" / "b.zip").unlink()
    (tmp_path / "in" / "a.zip").rename(tmp_path / "a.zip")
    (tmp_path / "in" / "a.zip").symlink_to(tmp_path / "a.zip")
    with pytest.raises(apart.Refused, match="is a link"):
        submission.read(tmp_path / "in", MINI)


def test_the_workspace_counts_and_not_its_backup(tmp_path):
    """`minitorch start --force` moves the old folder to `a99-backup-...`, beside it."""
    text = (write_solution(tmp_path / "in" / "a99") / PATH).read_text()
    write_solution(tmp_path / "in" / "a99-backup-20260101-000000", note="old")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr(f"a99-backup-20260101-000000/{PATH}", "old")
        file.writestr(f"a99/{PATH}", text)
    for path in (tmp_path / "in", tmp_path / "b.zip"):
        assert submission.read(path, MINI).files == {PATH: text.encode()}


def test_a_zip_may_have_the_separators_of_windows(tmp_path):
    archive, name = tmp_path / "b.zip", f"a99/{PATH}"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(zipfile.ZipInfo(name.replace("/", "\\")), "x = 1\n")
    assert submission.read(archive, MINI).files == {PATH: b"x = 1\n"}
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr(name, "x = 2\n")
    with pytest.raises(apart.Refused, match="two entries"):
        submission.read(archive, MINI)


def test_digest_depends_on_contents(tmp_path):
    folders = [write_solution(tmp_path / f"{i}", note=str(i % 2)) for i in range(3)]
    digests = [submission.read(path, MINI).digest for path in folders]
    assert digests[0] == digests[2] != digests[1]


def test_nothing_and_too_much_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(apart.Refused, match="none of the assignment's files"):
        submission.read(tmp_path / "empty", MINI)
    folder = write_solution(tmp_path / "large", note="x" * submission.FILE_LIMIT)
    with pytest.raises(apart.Refused, match="more than"):
        submission.read(folder, MINI)
    with pytest.raises(FileNotFoundError, match="expected a folder or a zip"):
        submission.read(tmp_path / "missing", MINI)


def test_a_long_page_of_answers_costs_no_code(tmp_path):
    """One with pictures in it, say; its beginning is read."""
    folder = write_solution(tmp_path / "s")
    (folder / ANSWERS).write_text("![](data:image/png;base64," + "A" * (2 << 20))
    read = submission.read(folder, MINI)
    assert not read.missing and len(read.answers) == submission.FILE_LIMIT


@pytest.mark.parametrize(
    "data, problem",
    [
        (b"x = 1\n", ""),
        ("x = 'ä'\n".encode(), ""),
        (b"x = 1\r\ny = 2\r\n", ""),
        (b"x = 1\n\n", ""),
        (b"\n\n", ""),
        (b"x = 1", ""),
        (b"\xef\xbb\xbfx = 1\n", ""),
        (b"x = 1\n\x0c\ny = 2\n", ""),
        (b"# a\x0cx = 1\n", ""),
        ("# a\u2028x = 1\n".encode(), ""),
        (b"x = 1\ry = 2\n", ""),
        (b"x = " + b" + ".join([b"1"] * 985) + b"\n", ""),
        (b"# -*- coding: utf-8 -*-\n", ""),
        (b"x = (\n", "SyntaxError"),
        (b"\xff", "UTF-8"),
        (b"# coding: latin-1\n", "encoding"),
        (b"x = 1\x00\n", "null"),
        # What a parser takes and a compiler does not.
        (b"return 1\n", "outside function (line 1)"),
        (b"def f():\n    break\n", "outside loop (line 2)"),
        (b"x = 1\nfrom __future__ import annotations\n", "(line 2)"),
    ],
)
def test_what_is_no_python(data, problem):
    found = intake.why_not_python(data)
    assert problem in found if problem else not found


@pytest.mark.parametrize("sign", [b"-", b"(", b"not ", b"[", b"lambda: "])
def test_deep_nesting_does_not_end_the_grader(sign):
    try:
        text = b"x = " + sign * 300_000 + b"1"
        assert apart.limited(intake.why_not_python, text)
    except apart.Refused:
        pass  # the parser was brought down, and its process with it


def spin():
    while True:
        pass


def flood():
    return "x" * (apart.MEMORY + 1)


def test_reading_that_takes_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", 3.0)
    for call in (spin, flood, os.abort):
        with pytest.raises(apart.Refused):
            apart.limited(call)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        apart.limited(divmod, 1, 0)


HONEST = {
    "a blank line at the end": (b"", b"\n\n"),
    "a form feed": (b"", b"\n\x0c\n# the end\x0c\n"),
    "a byte order mark": (b"\xef\xbb\xbf", b""),
    "a line separator in a comment": (b"", "# a\u2028b\x85c\n".encode()),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_files_earn_their_points(name, tmp_path):
    before, after = HONEST[name]
    folder = write_solution(tmp_path / "s")
    path = folder / PATH
    path.write_bytes(before + path.read_bytes() + after)
    report = make_grader(assignment=UNTIMED).grade(folder)
    assert report.points == UNTIMED.points, report.tasks


def test_a_long_sum_is_graded(tmp_path):
    """985 terms were too deep for a reader that calls itself for each of them."""
    text = SOLUTION.replace("total = 0.0", f"total = {' + '.join(['0.0'] * 985)}")
    report = make_grader(assignment=UNTIMED).grade(write_file(tmp_path / "s", text))
    assert report.points == UNTIMED.points, report.tasks


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_damaged_zips_are_refused(method, tmp_path):
    """Whatever the error is called: zlib.error, LZMAError, EOFError, BadZipFile."""
    target = tmp_path / "s.zip"
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr(PATH, SOLUTION * 50)
    good = target.read_bytes()
    for at in (10, 30 + len(PATH), 40 + len(PATH), 60 + len(PATH), len(good) - 40):
        target.write_bytes(good[:at] + bytes(9) + good[at + 9 :])
        try:
            submission.read(target, MINI)
        except apart.Refused:
            pass
    target.write_bytes(good[: len(good) // 2])
    with pytest.raises(apart.Refused, match="no zip that can be read"):
        submission.read(target, MINI)
