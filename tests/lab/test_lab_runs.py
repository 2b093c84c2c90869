"""The page Runs: curves and settings of runs, which may write, break off or go away."""

from __future__ import annotations

import json
import shutil

import pytest

from minitorch.lab.runs import MOST_POINTS, RunsPage

LINES = [
    {"step": step, "time": 1000.0 + step / 2, "val_loss": 4.0 / (step + 1), "lr": 0.1}
    for step in range(0, 50, 10)
]


def write(folder, rows=LINES, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    (folder / "config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.setattr("minitorch.lab.runs.FRESH", 1e9)  # however slow the machine is
    sizes = {"batch_size": 4, "block_size": 8, "accumulate": 2}
    one = write(tmp_path / "one", lr=0.1, out="one", seed=0, **sizes)
    other = write(tmp_path / "two", LINES[1:], lr=0.2, out="two", seed=0)
    return one, other


def test_curves_and_settings_of_runs(two, tmp_path):
    page = RunsPage([tmp_path])
    found = page.compare({"runs": list(two), "by": "steps"})
    assert found["metric"] == "val_loss" and found["metrics"] == ["val_loss", "lr"]
    one, other = found["curves"]
    assert one["x"] == [0, 10, 20, 30, 40] and one["y"][0] == 4.0
    assert other["last"] == other["best"] == 4 / 41 and found["gone"] == []
    settings = {row["name"]: row for row in found["settings"]}
    assert settings["lr"] == {"name": "lr", "values": ["0.1", "0.2"], "differs": True}
    assert settings["batch_size"]["values"] == ["4", ""] and "out" not in settings
    assert not settings["seed"]["differs"]
    found = page.compare({"runs": list(two), "by": "seconds", "metric": "lr"})
    assert [curve["x"][:2] for curve in found["curves"]] == [[0, 5], [0, 5]]
    found = page.compare({"runs": list(two), "by": "tokens"})
    assert [curve["x"][1:2] for curve in found["curves"]] == [[640], []]
    assert found["curves"][1]["last"] is None


def test_a_long_run_is_thinned_out_and_its_end_is_kept(tmp_path):
    rows = [{"step": n, "loss": 1.0 - n / 5000} for n in range(3333)]
    rows[7]["loss"], rows[8]["loss"] = "none", float("nan")
    name = write(tmp_path / "long", rows)
    found = RunsPage([tmp_path]).compare({"runs": [name], "by": "steps"})
    (long,) = found["curves"]
    assert MOST_POINTS / 2 < len(long["x"]) <= MOST_POINTS and long["x"][-1] == 3332


def test_news_tell_what_is_written_and_what_is_broken(two, tmp_path):
    page = RunsPage([tmp_path])
    news = page.listen()
    first = next(news)
    assert [run["steps"] for run in first["runs"]] == [40, 40]
    assert all(run["trains"] and not run["problem"] for run in first["runs"])
    assert next(news) is None
    with open(tmp_path / "one" / "metrics.jsonl", "a") as file:
        file.write('{"step": 50, "val_lo')
    run = next(news)["runs"][0]
    assert run["steps"] == 40 and "1 of 6 lines of" in run["problem"]
    (tmp_path / "one" / "config.json").write_text("{")
    assert "config.json is no JSON" in next(news)["runs"][0]["problem"]
    shutil.rmtree(tmp_path / "one")
    assert [run["name"] for run in next(news)["runs"]] == [two[1]]
    assert page.compare({"runs": list(two), "by": "steps"})["gone"] == [two[0]]
    shutil.rmtree(tmp_path / "two")
    last = next(news)
    assert last["runs"] == [] and "has no run in it" in last["problem"]
    assert page.compare({"runs": list(two), "by": "steps"})["curves"] == []


@pytest.mark.parametrize(
    "question, why",
    [
        ({"runs": [], "by": "days"}, "choose from steps"),
        ({"runs": "one", "by": "steps"}, "list of at most"),
        ({"runs": ["x"] * 99, "by": "steps"}, "list of at most"),
        ({"runs": [], "by": "steps", "metric": 1}, "text"),
    ],
)
def test_what_makes_no_sense_is_said(ask, question, why):
    status, content = ask("runs/compare", question)
    assert status == 400 and why in content["error"]
    assert ask("runs/compare", {"runs": ["/etc/passwd"], "by": "steps"}) == (
        200,
        {"metric": "val_loss", "metrics": [], "curves": [], "settings": [],
         "gone": ["/etc/passwd"]},
    )  # fmt: skip


@pytest.mark.extras
def test_the_page_in_a_browser(lab, visit, two, tmp_path, monkeypatch):
    monkeypatch.setattr(lab.pages["runs"], "folders", [tmp_path])
    screen = visit("runs", viewport={"width": 420, "height": 800})
    page = screen.page
    curves = page.locator("#curves path")
    screen.until(lambda: curves.count() == 2)
    assert page.locator("#settings tr.now th").first.inner_text().startswith("lr")
    label = page.locator("#curves").get_attribute("aria-label")
    assert label.startswith("val_loss along steps: ") and "best 0.09756" in label
    page.get_by_label("at", exact=True).press("Home")
    assert screen.text("#ends tr:first-child td:nth-child(3)") == "4"
    assert screen.text("#ends tr:last-child td:nth-child(3)") == "-"
    assert not screen.nameless()
    page.get_by_label("only those that differ").press("Space")
    assert "seed" in screen.text("#settings")
    write(tmp_path / "two", [*LINES, {"step": 60, "val_loss": 0.01}], lr=0.2)
    screen.until(lambda: "60 steps, training" in screen.text("#list"))
    screen.until(lambda: "0.01" in screen.text("#ends tr:last-child"))
    page.get_by_role("combobox", name="along").select_option("tokens")
    screen.until(lambda: "no val_loss along tokens" in screen.text("#ends"))
    with open(tmp_path / "two" / "metrics.jsonl", "a") as file:
        file.write("{")
    alert = page.get_by_role("alert")
    screen.until(lambda: "1 of 7 lines" in alert.inner_text())
    page.get_by_role("checkbox", name="two").press("Space")
    screen.until(lambda: curves.count() == 1 and not alert.inner_text())
    shutil.rmtree(tmp_path / "one")
    screen.until(lambda: "one is gone" in alert.inner_text())
    screen.until(lambda: curves.count() == 0)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 420
