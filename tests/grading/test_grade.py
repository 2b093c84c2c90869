"""Grading single submissions, and what is written about them."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from grading.mini_course import (
    CHECKS,
    LIMITS,
    MINI,
    PATH,
    SOLUTION,
    UNTIMED,
    Mini,
    make_grader,
    write_file,
    write_solution,
)
from rich.console import Console

from assignments import catalog
from assignments.checks import GPU, Speed
from assignments.grading import report as reports
from assignments.grading import sandbox, timing
from assignments.grading.channel import Answer, Failed, Worker
from assignments.grading.examine import (
    NOT_RUN,
    PASSED,
    WRONG,
    Clock,
    Inputs,
    Result,
    short,
)
from assignments.grading.executor import Times
from assignments.grading.grade import Graded, Grader, Report
from assignments.grading.library import bare_tree, kernels, stripped_tree
from assignments.grading.processes import cores
from assignments.workspace import stripped
from fast_ops import launch

# So much slower that a busy machine, which adds milliseconds to every call, cannot make
# it look like the reference.
SLOW = SOLUTION.replace(
    "total += value", "total += value\n        for _ in range(200): pass"
)


@pytest.fixture(scope="module")
def grader():
    return make_grader(assignment=UNTIMED)


def points(report) -> list[float]:
    return [graded.points for graded in report.tasks]


def test_solution_and_untouched_workspace(grader, tmp_path):
    solved = grader.grade(write_solution(tmp_path / "solved"))
    assert points(solved) == [4.0, 6.0]
    untouched = (stripped_tree(UNTIMED) / PATH).read_text()
    assert "SOLUTION" not in untouched and "total" not in untouched
    report = grader.grade(write_file(tmp_path / "untouched", untouched))
    assert points(report) == [0.0, 0.0]
    texts = [result.text for graded in report.tasks for result in graded.results]
    assert ["a99.1" in texts[0], "a99.2" in texts[1]] == [True, True]


def test_a_folder_where_one_stands_has_its_name(grader, tmp_path, monkeypatch):
    folder = write_solution(tmp_path / "ada")
    (folder / "inside").mkdir()
    for where, path in ((folder, "."), (folder / "inside", "..")):
        monkeypatch.chdir(where)
        assert grader.grade(Path(path)).name == "ada"


def test_nothing_runs_to_know_that_nothing_is_written(grader, tmp_path, monkeypatch):
    """Of the tasks of one file, those that are written run, and those alone."""
    untouched = (stripped_tree(UNTIMED) / PATH).read_text()
    ran = []

    def noted(self, device, checks, code):
        ran.extend({check.task for check in checks})
        return new_worker(self, device, checks, code)

    new_worker = Grader.new_worker
    monkeypatch.setattr(Grader, "new_worker", noted)
    text = untouched.replace('todo("a99.2")', "return 0")
    assert text != untouched
    report = grader.grade(write_file(tmp_path / "a part", text))
    assert points(report) == [0.0, 0.0] and set(ran) == {"a99.2"}
    assert report.possible == UNTIMED.points


@pytest.mark.parametrize(
    "right, wrong, expected",
    [
        ("2 * x[i] + 1", "2 * x[i]", [0, 6]),
        ("range(x.size)", "range(x.size - 1)", [0, 6]),
        ("total += value", "total = value", [4, 0]),
        ("out[i] = total", "out[i] = float('nan')", [4, 0]),
        ("return out\n\n\ndef", "return out.astype(float)\n\n\ndef", [0, 6]),
        ("return out\n\n\ndef", "x[0] = 0\n    return out\n\n\ndef", [0, 6]),
    ],
)
def test_a_mistake_costs_its_task_alone(grader, tmp_path, right, wrong, expected):
    text = SOLUTION.replace(right, wrong, 1)
    assert text != SOLUTION
    assert points(grader.grade(write_file(tmp_path / "s", text))) == expected


def test_a_crash_costs_its_task_alone(grader, tmp_path):
    text = SOLUTION.replace("2 * x[i] + 1", "1 / 0")
    report = grader.grade(write_file(tmp_path / "s", text))
    assert points(report) == [0.0, 6.0]
    (result,) = report.tasks[0].results
    assert "ZeroDivisionError" in result.text and "out[i]" not in result.text
    assert "in scale: out[i] = 1 / 0" in result.teacher


def test_an_error_tells_the_student_a_line_and_the_teacher_all(grader, tmp_path):
    text = "raise ValueError('first ' + 500 * 'x' + chr(10) + 'second line')"
    text = SOLUTION.replace("total += value", text)
    report = grader.grade(write_file(tmp_path / "s", text))
    result = report.tasks[1].results[0]
    assert result.text.startswith("raised ValueError: first xxx")
    assert "second line" in result.teacher and "second line" not in result.text
    assert len(result.text) < 300
    values = json.loads(reports.gradescope(report))
    assert "second line" not in json.dumps(values["tests"])
    assert "second line" in json.dumps(values["extra_data"])


def test_what_is_not_allowed_costs_its_task_alone(grader, tmp_path):
    text = SOLUTION.replace("total += value", "total += eval('value')")
    report = grader.grade(write_file(tmp_path / "s", text))
    assert points(report) == [4.0, 0.0], report
    assert "uses eval" in report.tasks[1].results[0].text


def test_the_same_seed_gives_the_same_grade(tmp_path):
    wrong = SOLUTION.replace("2 * x[i] + 1", "2 * x[i] + (x[i] < 0.999)")
    path = write_file(tmp_path / "s", wrong)
    grader = make_grader(assignment=UNTIMED)
    first, second = (make_grader(assignment=UNTIMED).grade(path) for _ in range(2))
    assert points(first) == points(second)
    texts = [
        [r.text for g in report.tasks for r in g.results] for report in (first, second)
    ]
    assert texts[0] == texts[1]
    assert first.digest == second.digest
    other = replace(grader.settings, secret="another secret of the tests")
    assert type(grader)(UNTIMED, other).seed("a") != grader.seed("a")
    assert grader.seed("a") != grader.seed("b")


def test_speed_points(tmp_path):
    patient = replace(make_grader().settings, patience=10.0)  # on a busy machine
    grader, said = Grader(MINI, patient), []
    grader.say = said.append
    report = grader.grade(write_file(tmp_path / "slow", SLOW))
    assert points(report) == [4.0, 0.0], report
    # A student who watches knows that it is right long before it is known how fast.
    assert (
        "a99.2 on python: speed of running: the result is right; timing it" in said[0]
    )
    speed = report.tasks[1].results[1]
    assert speed.name == "speed of running"
    assert "times as fast as the reference; of the points 100% from 0.2" in speed.text
    (told,) = [
        check
        for check in json.loads(reports.gradescope(report))["extra_data"]["checks"]
        if "ratio" in check
    ]
    assert told["check"] == speed.name and 0 < told["ratio"] < 0.2


def timed(go, around=1e-3, times=15, every=1.0):
    """Some timed calls, of which every other one takes `every` times as long."""
    return [
        timing.Timed(go * (every if n % 2 else 1), around, None) for n in range(times)
    ]


class Clockwork:
    """A worker that uses a second of a processor for each thing that it does."""

    def __init__(self) -> None:
        self.used, self.tree, self.asked = 0.0, self, []

    def cpu(self) -> float:
        return self.used

    def request(self, message, *limits) -> Answer:
        self.used += 1
        self.asked.append(message["do"])
        return Answer("digest" if message["do"] == "load" else {}, 0.5)

    thaw = cpu

    def freeze(self) -> float:
        self.used += 1  # by what it has left behind, until that stands still, too
        return self.used


def test_what_a_worker_does_until_it_stands_still_counts():
    """Each call asks for four things; all but the timed one are around it."""
    worker, inputs = Clockwork(), timing.Fresh({}, "digest")
    timed = timing._run(worker, "call", "python", inputs, Clock(9.0, 9.0))
    assert worker.asked == ["load", "prepare", "go", "read"]
    assert (timed.go, timed.around) == (0.5, 4.0)
    with pytest.raises(Failed, match="did not arrive"):
        timing._run(worker, "call", "python", timing.Fresh({}, "x"), Clock(9.0, 9.0))


def test_work_outside_of_the_timed_step_counts():
    honest, early = timed(1e-3), timed(1e-5, around=2e-2)
    assert timing.seconds(honest, honest) == pytest.approx(1e-3)
    assert timing.seconds(early, honest) > 1e-2
    # No constant is allowed for noise: a reference that is steady allows nothing.
    slightly = timed(1e-4, around=1.9e-3)
    assert timing.seconds(slightly, honest) == pytest.approx(1e-3)
    # Whoever works early in some calls and late in others has worked in all of them.
    turns = [*timed(1e-5, around=2e-2, times=8), *timed(2e-2, times=7)]
    assert timing.seconds(turns, honest) > 1e-2


def test_a_reference_that_is_not_steady_leaves_points_open():
    speed = next(check for check in CHECKS if isinstance(check, Speed))  # from 0.2
    steady, noisy = timed(1e-3), timed(1e-3, every=1.5)
    near, far = timed(5e-3), timed(1e-3)  # 0.2 and 1 times as fast
    assert timing.points_left_open(speed, near, steady) == []
    assert timing.points_left_open(speed, near, noisy) == ["theirs"]
    assert timing.points_left_open(speed, timed(5e-3, every=1.5), steady) == ["ours"]
    assert timing.points_left_open(speed, far, noisy) == []


def test_few_rounds_are_enough_far_from_a_step_and_no_others():
    speed = next(check for check in CHECKS if isinstance(check, Speed))  # from 0.2
    few = {"times": timing.FEW}
    rival, noisy = timed(1e-3, **few), timed(1e-3, every=6.0, **few)
    for ratio in (0.05, 0.3, 1.0):
        assert timing.settled(speed, timed(1e-3 / ratio, **few), rival)
    for ratio in (0.1, 0.17, 0.23):  # may be the other side of 0.2, after so few
        assert not timing.settled(speed, timed(1e-3 / ratio, **few), rival)
    assert not timing.settled(speed, timed(1e-3, **few), noisy)
    many = timing.ROUNDS
    assert timing.settled(speed, timed(1e-3 / 0.23, times=many), timed(1e-3))
    assert not timing.settled(speed, timed(5e-3, times=many), timed(1e-3, every=1.5))


def test_a_speed_is_lost_only_where_the_library_keeps_it():
    """On a busy machine two threads are no faster than one, whoever wrote them."""
    slow = Result("a99.2", "speed", "cpu", WRONG, 0.4, "1.9 times as fast", ratio=1.9)
    fast = Result("a99.2", "speed", "cpu", PASSED, 1.0, "3 times as fast", ratio=3.0)
    assert timing.beside(slow, fast) is slow
    open_ = timing.beside(slow, slow)
    assert (open_.status, open_.share, open_.ratio) == (NOT_RUN, 0.0, None)
    assert open_.text.startswith(timing.NOISY) and "library" in open_.text


class Turns(Grader):
    """The student's speed, the library's, the student's again, as they are told."""

    def __init__(self) -> None:
        self.times, self.assignment, self.say = Times(), MINI, print

    def machine(self, rival):
        return None

    @contextmanager
    def reference(self, device, checks):
        yield None


@pytest.mark.parametrize(
    ("shares", "earned"),
    [
        ((1.0,), 1.0),
        ((0.0, 1.0, 1.0), 1.0),  # slow for a while
        ((0.5, 1.0, 0.0), 0.5),
        ((0.0, 1.0, 0.5), 0.5),
        ((0.0, 1.0, 0.0), 0.0),
        ((0.5, 0.5), None),
        ((0.5, 1.0, None), None),  # too noisy to tell
    ],
)
def test_a_speed_that_costs_points_is_measured_again(shares, earned, monkeypatch):
    told = [
        Result("a99.2", "speed", "cpu", NOT_RUN, text=timing.NOISY)
        if share is None
        else Result("a99.2", "speed", "cpu", PASSED, share, ratio=1 + share)
        for share in shares
    ]
    monkeypatch.setattr(timing, "examine", lambda *given: told.pop(0))
    speed = next(check for check in CHECKS if isinstance(check, Speed))
    found = Turns()._speed(speed, "cuda", None, None, Inputs(1), None)
    assert not told
    assert (None if found.status == NOT_RUN else found.share) == earned


@pytest.mark.parametrize("partial", [False, True])
def test_what_is_not_judged_neither_gives_nor_takes(partial):
    right = Result("a99.2", "running", "cpu", PASSED, 1.0)
    wrong = Result("a99.2", "other", "cpu", WRONG, text="wrong")
    open_ = Result("a99.2", "speed", "cpu", NOT_RUN, text=f"{timing.NOISY}busy")
    found = timing.uncounted([right, open_], partial)
    assert {result.status for result in found} == {NOT_RUN}
    report = Report(
        MINI, "s", "", "limits", (Graded(MINI.tasks[1], 0.0, tuple(found)),)
    )
    assert report.possible == 0 and report.unjudged == ["a99.2"]
    assert "not judged" in json.loads(reports.gradescope(report))["output"]
    assert "not judged: a99.2" in reports.row(report)
    assert timing.uncounted([right, wrong], partial) == [right, wrong]
    lost = timing.uncounted([right, wrong, open_], partial)
    assert (lost[0].status == NOT_RUN) == partial


def test_one_loop_in_order_is_no_parallel_sum():
    """Its ratio to itself is 1, give or take what a busy machine does to it."""
    checks = catalog.load("a3").checks("a3.5")
    (check,) = (c for c in checks if isinstance(c, Speed) and c.name == "sum")
    assert check.points_share(1.15) == 0


TIMED = [
    check
    for assignment in catalog.load_all()
    for check in assignment.checks()
    if isinstance(check, Speed) and check.needs != GPU
]


@pytest.mark.parametrize("check", TIMED, ids=lambda check: f"{check.task} {check.name}")
def test_timed_calls_bring_few_bytes(check):
    """They are drawn, hashed, sent and read again for each call of each of the two."""
    arrays = [a for a in check.make_inputs(0, 0).values() if isinstance(a, np.ndarray)]
    # What does not stay in a cache, and a3.5's 32 rows of 1.5 KiB for each core.
    most = (24 << 20) + max(2, len(cores())) * (48 << 10)
    assert 0 < sum(array.nbytes for array in arrays) <= most


def test_faster_than_the_machine():
    machine = timing.Machine(bandwidth=1e10, flops=1e11)
    assert machine.least_seconds(1e9, 0) == pytest.approx(0.1 / timing.LIMIT_MARGIN)
    assert machine.least_seconds(1e3, 1e11) == pytest.approx(1 / timing.LIMIT_MARGIN)


# ---------------------------------------------------------------------- the machine


def on_devices(*devices: str) -> Mini:
    """The miniature assignment, for devices of the library."""
    tasks = tuple(replace(task, devices=devices) for task in UNTIMED.tasks)
    return replace(UNTIMED, tasks=tasks)


def lacking(monkeypatch, name: str) -> None:
    """Let a package be one that is not installed."""
    real = sandbox._places
    monkeypatch.setattr(sandbox, "_places", lambda n: () if n == name else real(n))


@pytest.mark.parametrize("package", ["numpy", "numba"])
def test_a_package_that_is_missing_is_an_error(monkeypatch, package):
    lacking(monkeypatch, package)
    with pytest.raises(RuntimeError, match=f"{package} is not installed.*pip install"):
        make_grader(sandbox.MODES[-1], assignment=on_devices("cpu"))


def test_none_of_the_devices_is_here(monkeypatch):
    lacking(monkeypatch, "mojo")
    with pytest.raises(RuntimeError, match="a99 cannot be graded on this machine"):
        make_grader(assignment=on_devices("python", "mojo"))


def test_a_device_that_does_not_work_is_an_error(monkeypatch):
    """Its packages are there; so it should work, and nobody is graded without it."""
    monkeypatch.setattr(sandbox, "NEEDED", {})
    with pytest.raises(RuntimeError, match="not even the reference works here on nix"):
        make_grader(assignment=on_devices("nix"))


def test_one_device_of_two_is_named_and_does_not_count(monkeypatch, tmp_path):
    lacking(monkeypatch, "mojo")
    grader = make_grader(assignment=on_devices("simple", "mojo"))
    report = grader.grade(write_solution(tmp_path / "s"))
    assert points(report) == [4.0, 6.0]
    results = [result for graded in report.tasks for result in graded.results]
    assert {r.text for r in results if r.device == "mojo"} == {grader.missing("mojo")}


def test_no_submission_is_blamed_for_a_reference_that_does_not_start(
    monkeypatch, tmp_path
):
    grader = make_grader(assignment=UNTIMED)
    monkeypatch.setattr(type(grader), "calls", "assignments.no_such_module")
    with pytest.raises(RuntimeError, match="not even the reference"):
        grader.grade(write_solution(tmp_path / "s"))


def test_what_did_not_run_has_not_passed():
    result = Result("a99.1", "device", "cuda", NOT_RUN, text="no GPU")
    graded = Graded(MINI.tasks[0], 0.0, (result,))
    report = Report(MINI, "s", "", "limits", (graded,))
    (test,) = json.loads(reports.gradescope(report))["tests"]
    assert not {"status", "score", "max_score"} & set(test)
    assert test["name"].endswith("(not judged)") and "no GPU" in test["output"]


# --------------------------------------------------------------------------- modes


@pytest.mark.parametrize("mode", sandbox.MODES)
def test_all_modes_that_work_here(mode, tmp_path):
    problem = sandbox.why_not(mode)
    if problem:
        pytest.skip(f"{mode} does not work here: {problem}")
    report = make_grader(mode, assignment=UNTIMED).grade(write_solution(tmp_path / "s"))
    assert points(report) == [4.0, 6.0]
    text = json.loads(reports.gradescope(report))["output"]
    assert (text == "Graded.") == (mode in sandbox.STRONG)
    assert mode in sandbox.STRONG or mode in text


@pytest.mark.parametrize("name", catalog.ids())
def test_kernels_for_students_are_of_sources_that_they_see(name, tmp_path, monkeypatch):
    modules = {path.stem for path in Path(launch.__file__).parent.glob("*.py")}
    for module in modules:
        (tmp_path / f"{module}.any-1.py311.sealed.nbc").touch()
    monkeypatch.setattr(launch, "GIVEN", str(tmp_path))
    assignment = catalog.load(name)
    used = any("cpu" in task.devices for task in assignment.tasks)
    whole = [*kernels(assignment, None).glob("*.nbc")]
    assert len(whole) == used * len(modules)
    folder = kernels(assignment, assignment.tasks[0].id)
    workspace = {path.replace("/", ".") for path in stripped(assignment)}
    for module in modules:
        sources = {f"{name}.py" for name in launch.sources(f"fast_ops.{module}")}
        seen = used and sources.isdisjoint(workspace)
        assert any(folder.glob(f"{module}.*")) == seen


def test_best_mode_is_never_root_without_a_wall(monkeypatch):
    sandbox.best_mode.cache_clear()
    monkeypatch.setattr(
        sandbox, "why_not", lambda mode: "" if mode == "limits" else "no"
    )
    monkeypatch.setattr("os.getuid", lambda: 0)
    try:
        with pytest.raises(RuntimeError, match="as root"):
            sandbox.best_mode()
        monkeypatch.setattr("os.getuid", lambda: 1000)
        assert sandbox.best_mode() == "limits"
    finally:
        sandbox.best_mode.cache_clear()


def test_a_worker_starts_and_ends_quickly():
    mode = sandbox.best_mode()
    start = time.perf_counter()
    with Worker(sandbox.View(bare_tree()), LIMITS, mode) as worker:
        worker.request({"do": "start", "module": ""}, seconds=20)
        with pytest.raises(Failed, match="no action"):
            worker.request({"do": "something"}, seconds=20)
        assert worker.request({"do": "start", "module": ""}, seconds=20).value is None
    with pytest.raises(Failed, match="closed"):
        worker.request({"do": "start", "module": ""}, seconds=20)
    assert time.perf_counter() - start < 10


# -------------------------------------------------------------------------- reports


@pytest.fixture(scope="module")
def mixed(grader, tmp_path_factory):
    text = SOLUTION.replace("2 * x[i] + 1", "2 * x[i]") + "print('hi')\n"
    path = write_file(tmp_path_factory.mktemp("mixed") / "student", text)
    return grader.grade(path)


def test_gradescope(mixed):
    values = json.loads(reports.gradescope(mixed))
    assert values["score"] == 6.0
    assert [t["score"] for t in values["tests"]] == [0.0, 6.0]
    assert [t["max_score"] for t in values["tests"]] == [4.0, 6.0]
    assert [t["status"] for t in values["tests"]] == ["failed", "passed"]
    assert "has wrong values" in values["tests"][0]["output"]
    assert values["extra_data"]["printed"].startswith("hi")
    assert values["stdout_visibility"] == "hidden"


def test_junit(mixed):
    root = ElementTree.fromstring(reports.junit(mixed))
    suites = root.findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    assert [len(suite.findall("testcase/failure")) for suite in suites] == [1, 0]


def test_table(mixed):
    console = Console(record=True, width=120, file=open("/dev/null", "w"))
    reports.show(mixed, console)
    text = console.export_text()
    for part in ("a99.1 scale", "python", "0 of 1", "0 / 4", "6 / 6", "6 of 10"):
        assert part in text


def test_texts_of_strangers_are_harmless(mixed):
    evil = "\x1b]0;x\x07 \ud800 ]]> <b> \x00 =1+1 \x9b31m \u202eoops \u2066 \ufffe"
    result = Result("a99.1", "check", "cpu", "wrong", text=evil)
    graded = Graded(MINI.tasks[0], 0.0, (result,))
    report = replace(mixed, tasks=(graded,), name="=HYPERLINK(1)", output=evil)
    values = json.loads(reports.gradescope(report))
    console = Console(record=True, width=120, file=open("/dev/null", "w"))
    reports.show(report, console)
    for text in (
        values["tests"][0]["output"],
        values["extra_data"]["printed"],
        console.export_text(),
        reports.junit(report),
        "".join(reports.row(report)),
    ):
        assert not {"\x1b", "\x9b", "\u202e", "\u2066", "\x00"} & set(text)
    ElementTree.fromstring(reports.junit(report))
    assert reports.row(report)[0] == "'=HYPERLINK(1)"


def test_of_what_a_compiler_says_the_cause_is_told():
    said = (
        "Failed in nopython mode pipeline (step: native lowering)\n"
        "- Resolution failure for literal arguments:\n"
        "No implementation of function f found for signature:\n >>> f(int64)\n"
    )
    expected = "No implementation of function f found for signature: >>> f(int64)"
    assert short(said) == expected
    assert "write a loop" in short(f"{said}\nNRT required but not enabled")
