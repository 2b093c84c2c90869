"""Wrong solutions under compute-sanitizer: what runs there, and what it measured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from course import sanitizer

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")
pytestmark = [pytest.mark.extras, pytest.mark.timeout(600)]

MEASURED = Path(__file__).parent.parent / "cuda" / "measured" / "wrong.json"
CASES = {
    "a4w.9": "nothing",
    "a4w-products_not_awaited": "race in shared memory",
    "a4w-without_guard": "outside of an array",
    "a4w-one_guard_of_two": "race in global memory",  # no tool looks for these
}
# In the tool's place: it runs the same command in the simulator.
STAND_IN = """\
#!/bin/sh
tool=$2; shift 2
case $tool:$(NUMBA_ENABLE_CUDASIM=1 "$@") in
    racecheck:*"in shared"*) echo "RACECHECK SUMMARY: 1 hazard displayed (1 error)" ;;
    memcheck:*outside*) echo "ERROR SUMMARY: 2 errors" ;;
    *) echo "ERROR SUMMARY: 0 errors" ;;
esac
"""


def test_a_tool_runs_what_it_can_speak_of(tmp_path: Path, monkeypatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(STAND_IN)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert set(CASES) <= set(sanitizer.cases())
    for name, kind in CASES.items():
        row = sanitizer.judge(name, gpu=True)
        tools = {tool: row[tool] for tool in sanitizer.FINDS if tool in row}
        expected = {tool: kind == what for tool, what in sanitizer.FINDS.items()}
        assert row["simulator"] == kind and not sanitizer.differs(row)
        assert tools == ({} if "global" in kind else expected)
    assert sanitizer.differs({"simulator": "nothing", "memcheck": True})
    assert sanitizer.differs({"simulator": "nothing", "memcheck": "no summary"})


def test_both_find_the_same() -> None:
    rows = {row["case"]: row for row in json.loads(MEASURED.read_text())}
    assert list(rows) == sanitizer.cases()
    assert not [row for row in rows.values() if sanitizer.differs(row)]
    for name, kind in CASES.items():
        assert rows[name]["simulator"] == kind
