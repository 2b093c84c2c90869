"""What the students of a course hand in, bad ones among them, and what they earn.

With this file a test can write any of a hundred (`hand_in`) for an assignment of which
it knows the right files and the broken ones (`Course`).
"""

from __future__ import annotations

import csv
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from assignments.catalog import Assignment
from assignments.grading import batch
from assignments.grading import report as reports

FOREVER = "while True:\n        "
SUM = " + ".join("1" * 50_000)  # deeper than a parser goes
ODD_NAMES = (batch.TABLE, "a\nb\x1b[2J", os.fsdecode(b"\xff\xfe"), "n" * 200)


@dataclass(frozen=True)
class Course:
    """What is handed in to an assignment.

    Attributes:
        right: the files that earn all points, by their paths.
        broken: a path, the text that stands there instead, and what tasks then earn.
    """

    assignment: Assignment
    right: dict[str, str]
    broken: list[tuple[str, str, dict[str, str]]]

    def hand_in(self, folder: Path, number: int) -> tuple[str, dict[str, str]]:
        """Write one of a hundred; its name, and the points of each task."""
        name, files, bad = f"student-{number:03}", dict(self.right), len(self.broken)
        points = {t.id: reports.number(t.points) for t in self.assignment.tasks}
        nothing = dict.fromkeys(points, "0")
        if number < bad:
            path, files[path], lost = self.broken[number]
            points |= lost
        elif number < bad + 3:
            methods = (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
            damaged_zip(folder / f"{name}.zip", methods[number % 3], files)
            return f"{name}.zip", nothing
        elif number == 50:
            deep_folder(folder / name)
            return name, nothing
        elif 90 <= number < 94:
            name = ODD_NAMES[number - 90]
        for path, text in files.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(f"{text}# {number}\n")
        return reports.label(name), points

    def graded(self, out: Path) -> dict[str, dict[str, str]]:
        """The points of each task in the table that was written."""
        names = [task.id for task in self.assignment.tasks]
        with open(out / batch.TABLE, newline="") as file:
            rows = list(csv.DictReader(file))
        return {row["submission"]: {name: row[name] for name in names} for row in rows}


def damaged_zip(target: Path, method: int, files: dict[str, str]) -> None:
    """A zip whose list of contents is right, and whose contents are not."""
    with zipfile.ZipFile(target, "w", method) as archive:
        for path, text in files.items():
            archive.writestr(path, text * 20)
    data = bytearray(target.read_bytes())
    first = 30 + len(next(iter(files))) + 10
    data[first : first + 200] = b"\xff" * 200
    target.write_bytes(data)


def deep_folder(folder: Path) -> None:
    """A folder that is deeper than any path may be long."""
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=handle)
        deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
