"""The page X-ray: what `minitorch xray` sees of a kernel, lane by lane."""

from __future__ import annotations

import os
import threading
import time

import pytest

from minitorch.lab.xray import XRayPage

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")

FILE = """
import numpy as np
from numba import cuda, float32

@cuda.jit
def column(a, out):
    cells = cuda.shared.array((32, 32), float32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    cells[lane, warp] = a[cuda.blockIdx.x * 64 + t]
    if lane < 8:
        out[64 * t] = cells[lane, warp]

def xray():
    column[4, 64](np.zeros(256, np.float32), np.zeros(4096, np.float32))
"""
ENDLESS = """
import os
from pathlib import Path
import numpy as np
from numba import cuda

@cuda.jit
def spin(a):
    while a[0] == 0:
        a[0] = 0

def xray():
    Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
    spin[1, 32](np.zeros(1, np.float32))
"""


@pytest.fixture(scope="module")
def column(tmp_path_factory):
    file = tmp_path_factory.mktemp("xray") / "mine.py"
    file.write_text(FILE)
    return f"{file}:column"


@pytest.fixture(scope="module")
def scene(column):
    return XRayPage().look({"kernel": column})


def test_a_line_has_the_numbers_of_the_command_and_what_each_lane_did(scene):
    lines = {x["text"].strip(): x for x in scene["functions"][0]["lines"]}
    assert scene["title"].startswith("column: 4 blocks (4, 1, 1) of threads (64, 1, 1)")
    assert scene["columns"] == "lanes branch access requests each ideal".split()
    assert scene["facts"][-1].startswith("not claimed: cache hits")
    assert not scene["ended"] and "error" not in scene
    line = lines["cells[lane, warp] = a[cuda.blockIdx.x * 64 + t]"]
    assert line["flow"] == ["32.0", ""]
    assert line["accesses"] == [
        ["global load", "6", "4 sectors", "100%"],
        ["shared store", "6", "32 wavefronts", "3.1%"],
    ]
    seen = {(x["block"][0], x["warp"]): x for x in line["seen"]}
    assert set(seen) == {(b, w) for b in (0, 2, 3) for w in (0, 1)}
    ((load, store),) = [visit["requests"] for visit in seen[2, 1]["visits"]]
    assert load["kind"] == "global load" and load["array"] == "a"
    assert load["lanes"] == [[n, 4 * (2 * 64 + 32 + n)] for n in range(32)]
    assert store["lanes"] == [[n, 128 * n + 4] for n in range(32)]
    assert (store["wavefronts"], store["ideal"], store["together"]) == (32, 1, 32)
    branch = lines["if lane < 8:"]["seen"][0]["visits"][0]
    ways = {to: lanes for to, lanes in branch["ways"]}
    assert sorted(ways.values()) == [0xFF, 0xFFFFFF00] and branch["lanes"] == 2**32 - 1


def test_who_looks_can_stop_and_nothing_goes_on(tmp_path):
    file, page, found = tmp_path / "endless.py", XRayPage(), []

    def look():
        with pytest.raises(RuntimeError, match="xray: stopped"):
            page.look({"kernel": f"{file}:spin"})
        found.append("stopped")

    file.write_text(ENDLESS)
    looking = threading.Thread(target=look)
    looking.start()
    number, end = file.with_suffix(".pid"), time.monotonic() + 120
    while not number.exists() or not number.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    page.stop({})
    looking.join(120)
    assert found == ["stopped"]
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < end:
            os.kill(int(number.read_text()), 0)
            time.sleep(0.05)


@pytest.mark.parametrize("kernel, why", [("", "no kernel was named"), (None, "a text")])
def test_what_makes_no_sense_is_said(ask, kernel, why):
    status, content = ask("xray/look", {"kernel": kernel})
    assert status == 400 and why in content["error"]


@pytest.mark.extras
def test_the_page_in_a_browser(lab, visit, monkeypatch, scene, column):
    """Once a kernel was looked at, nothing is asked any more."""
    page_of, asked = lab.pages["xray"], []

    def look(question):
        asked.append(question["kernel"])
        return scene if question["kernel"] == column else page_of.look(question)

    monkeypatch.setitem(page_of.questions, "look", look)
    screen = visit("xray", viewport={"width": 420, "height": 800})
    page = screen.page
    kernel = page.get_by_label("A kernel of the library")
    screen.until(lambda: page.locator("#names option").count() > 30)
    kernel.fill(column)
    kernel.press("Enter")
    # The line with most conflicts is shown first.
    screen.until(lambda: "shared store of cells" in screen.text("#pictures"))
    assert "take 32 wavefronts; 1 would do" in screen.text("#pictures")
    assert page.locator("tr.now .bad").count() == 0  # its first row is the load's
    assert "4 sectors" in screen.text("tr.now") and page.locator(".bad").count() > 1
    page.get_by_label("block").select_option("(2, 0, 0)")
    page.get_by_label("warp").select_option("1")
    lane = page.get_by_label("lane", exact=True)
    lane.press("ArrowRight")
    assert "bytes 644 to 647, sector 20" in lane.get_attribute("aria-valuetext")
    assert "bytes 132 to 135, bank 1" in screen.text("#one")
    assert page.locator("svg[role=img]").count() == 2
    assert page.locator("#lanes tr").count() == 32 and not screen.nameless()
    page.locator("button[aria-pressed=true]").press("ArrowDown")
    assert screen.text("#statement") == "if lane < 8:"
    assert "; lanes 0 to 7 go on at line 12." in screen.text("#told")
    page.keyboard.press("ArrowDown")
    assert "8 of 32 lanes (0 to 7)" in screen.text("#told")
    assert "touch 8 sectors; 1 would hold" in screen.text("#pictures")
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert asked == [column] and wide <= 420
    wrong = column.replace("mine.py:column", "wrong.py:column")
    with open(wrong.rpartition(":")[0], "w") as file:
        file.write("def column(:\n")
    kernel.fill(wrong)
    page.get_by_role("button", name="Look").click()
    alert = page.get_by_role("alert")
    screen.until(lambda: "SyntaxError" in alert.inner_text(), seconds=120)
    assert "wrong.py, line 1" in alert.inner_text()
