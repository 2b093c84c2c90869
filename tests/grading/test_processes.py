"""All processes of a worker: counted, stopped, ended; with a control group or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from grading.mini_course import LIMITS, PATH, make_grader, write_file

from assignments.grading import channel, library, processes, sandbox
from assignments.grading.channel import Failed, Worker

# A worker that does not look at the grader any more, below a grader that is in the
# middle of a request.
GRADER = """
import json, sys
sys.path[:0] = json.loads(sys.argv[2])
from assignments.grading import library, sandbox
from assignments.grading.channel import Worker
from grading.mini_course import LIMITS, MINI, PATH
if sys.argv[4] == "without a group":
    sandbox.new_group = lambda *_: None
tree = library.student_tree(MINI, {PATH: sys.stdin.buffer.read()}, "a99.1")
with Worker(sandbox.View(tree), LIMITS, sys.argv[1]) as worker:
    for module in ("minitorch.simple_ops.mini", "assignments.a99_mini.calls"):
        worker.request({"do": "start", "module": module}, 60)
    print(*worker.tree.processes(), flush=True)
    if sys.argv[3] == "exception":
        raise ZeroDivisionError
    call = {"do": "call", "call": "scale", "device": "cpu", "inputs": {"x": 1}}
    worker.request(call, 60)
"""
BUSY = """
import os, signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
    os._exit(0)


def scale(x):
    while True:
        pass
"""


@pytest.fixture(params=["in a group", "without a group"])
def group(request, monkeypatch):
    """With a control group, if there can be one here, and without."""
    if request.param == "without a group":
        monkeypatch.setattr(sandbox, "new_group", lambda *_: None)
    else:
        folder = processes.new_group(1 << 30, 10)
        if folder is None:
            pytest.skip("no control groups (cgroups v2) can be made here")
        processes.remove_group(str(folder))
    return request.param


def mode_or_skip(mode: str) -> str:
    problem = sandbox.why_not(mode)
    if problem:
        pytest.skip(f"{mode} does not work here: {problem}")
    return mode


def gone(numbers: list[int]) -> bool:
    """Whether processes have ended, for which they get a while."""
    end = time.monotonic() + 30
    while any(processes._state(number) not in "XZ" for number in numbers):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("way", ["SIGKILL", "SIGTERM", "SIGINT", "exception"])
@pytest.mark.parametrize("mode", sandbox.MODES)
def test_workers_end_with_the_grader(mode, way, group):
    mode_or_skip(mode)
    words = [sys.executable, "-c", GRADER, mode, json.dumps(sys.path), way, group]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as grader:
        assert grader.stdin is not None and grader.stdout is not None
        numbers: list[int] = []
        try:
            grader.stdin.write(BUSY.encode())
            grader.stdin.close()
            numbers += map(int, grader.stdout.readline().split())
            assert len(numbers) >= 2  # the worker, and what it has left behind
            launchers = processes.Tree(grader.pid, None).processes()
            if way != "exception":
                time.sleep(0.1)
                grader.send_signal(getattr(signal, way))
            assert gone([*numbers, *launchers])
            groups = next(processes._parents(), None)
            assert groups is None or not list(groups.glob(f"minitorch-{grader.pid}-*"))
        finally:
            for number in (*numbers, grader.pid):
                processes.send(number, signal.SIGKILL)


@pytest.fixture
def worker(request, tmp_path, group):
    """A worker with some text in the place of the mini course's file."""
    grader = make_grader()
    path = write_file(tmp_path / "s", request.param)
    files = {PATH: (path / PATH).read_bytes()}
    tree = library.student_tree(grader.assignment, files, "a99.1")
    with Worker(sandbox.View(tree), LIMITS, grader.mode) as made:
        for module in ("minitorch.simple_ops.mini", grader.calls):
            made.request({"do": "start", "module": module}, 60)
        yield made
    library.remove(tree)


SCALE = {"do": "call", "call": "scale", "device": "cpu", "inputs": {"x": 1}}
SPINNERS = """
import os
import threading


def spin():
    while True:
        pass


for number in range(3):
    if os.fork() == 0:
        os.setsid()
        spin()
threading.Thread(target=spin, daemon=True).start()


def scale(x):
    spin()
"""


@pytest.mark.parametrize("worker", [SPINNERS], indirect=True)
def test_all_of_it_stands_still(worker):
    before = worker.tree.cpu()
    time.sleep(0.5)
    assert worker.tree.cpu() > before
    for _ in range(2):
        worker.freeze()
        frozen = worker.tree.cpu()
        time.sleep(0.5)
        assert worker.tree.cpu() - frozen < 0.02
        worker.thaw()
        time.sleep(0.5)
        assert worker.tree.cpu() > frozen


@pytest.mark.parametrize("worker", [SPINNERS], indirect=True)
def test_who_works_while_it_has_to_stand_still_is_ended(worker):
    worker.freeze()
    worker.tree.thaw()  # as if it could do that itself
    time.sleep(1.0)
    with pytest.raises(Failed, match="had to stand still"):
        worker.thaw()
    assert worker.dead


@pytest.mark.parametrize("worker", [SPINNERS], indirect=True)
def test_ones_own_spinners_stretch_no_limit(worker, monkeypatch):
    """The processors are busy with nobody else, whatever else runs here."""
    share = worker._share
    begin = share()
    monkeypatch.setattr("assignments.grading.channel.BEGIN_EVERY", 0.0)
    monkeypatch.setattr("assignments.grading.channel.busy", lambda: share() - begin)
    start = time.perf_counter()
    with pytest.raises(Failed, match="longer than it may"):
        worker.request(SCALE, 1.0)
    assert worker.tree.waited() >= 0.0
    assert time.perf_counter() - start < 4.0


@pytest.mark.parametrize("worker", ["def scale(x):\n    return x\n"], indirect=True)
def test_small_calls_do_not_look_at_all_processes_each(worker, monkeypatch):
    looked = []
    see = processes.Tree.waited
    monkeypatch.setattr(processes.Tree, "waited", lambda t: looked.append(0) or see(t))
    done, send, now = [], Worker._send, time.perf_counter()
    monkeypatch.setattr(Worker, "_send", lambda w, b: done.append("sent") or send(w, b))
    monkeypatch.setattr(processes.Tree, "memory", lambda *_: done.append("looked") or 0)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    worker._watched = now - 1
    for _ in range(20):
        with pytest.raises(Failed, match="no attribute 'copy'"):
            worker.request(SCALE, 5.0)
    assert len(looked) <= 1  # none, if the worker has just started
    # What is timed begins when it is sent, so memory is looked at before.
    assert done[:2] == ["looked", "sent"] and done.count("looked") == 1


@pytest.mark.parametrize(
    "worker", ["def scale(x):\n    while True: pass\n"], indirect=True
)
def test_what_others_take_does_not_count(worker, monkeypatch):
    """As if others had the processors for nine of ten seconds, and we had waited."""
    began = time.perf_counter()

    def taken():
        return 0.9 * (time.perf_counter() - began)

    monkeypatch.setattr("assignments.grading.channel.BEGIN_EVERY", 0.0)
    monkeypatch.setattr("assignments.grading.channel.busy", lambda: 1e9 + taken())
    monkeypatch.setattr(worker, "_share", lambda: 0.0)
    monkeypatch.setattr(processes.Tree, "waited", lambda _: taken())
    start = time.perf_counter()
    with pytest.raises(Failed, match="longer than it may"):
        worker.request(SCALE, 0.5)
    assert time.perf_counter() - start >= 2.5  # five times as long, and no longer


def test_what_any_thread_waits_for_a_processor_is_waiting():
    """As of a compiler whose first thread sleeps, beside others that are busy."""
    spin = "threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True)"
    text = f"import threading, time; {spin}.start(); time.sleep(600)"
    count = 2 * len(processes.cores()) + 1
    running = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(count)]
    try:
        first, end, waited = running[0].pid, time.monotonic() + 60, 0.0
        while waited < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
            others = set(os.listdir(f"/proc/{first}/task")) - {str(first)}
            for thread in others:
                with open(f"/proc/{first}/task/{thread}/schedstat") as file:
                    waited = 1e-9 * int(file.read().split()[1])
        assert processes._waiting(first) >= waited >= 0.2
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_a_process_may_have_any_name():
    """Fifteen bytes can end within a letter, and a student can choose them."""
    name = b"1) Z 1 \xff\xc3"
    code = f"open('/proc/self/comm', 'wb').write({name}); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        try:
            assert process.pid in processes.descendants(os.getpid())
            assert channel._is_of(str(process.pid), os.getuid())
        finally:
            process.kill()


def test_memory_is_counted_once_and_all_of_it(tmp_path):
    """Pages that two processes share are one; those of no process count as well."""
    text = (
        "import mmap, os, sys, time\n"
        "kept = mmap.mmap(-1, 64 << 20)\n"
        "kept.write(bytes(64 << 20))\n"
        "number = os.memfd_create('x')\n"
        "os.write(number, bytes(32 << 20))\n"
        "os.fork()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    launch = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {text!r}])"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", launch], stdout=pipe) as process:
        tree = processes.Tree(process.pid, None)
        try:
            assert process.stdout is not None
            for _ in range(2):
                process.stdout.readline()
            used = tree.memory(1) >> 20
        finally:
            tree.kill()
    assert 96 <= used < 150


def test_a_group_has_limits_where_there_are_any(tmp_path, monkeypatch):
    """On a system whose groups limit memory, and on one whose do not."""
    for number, names in enumerate([("memory.max", "pids.max"), ()]):
        parent = tmp_path / str(number)
        parent.mkdir()
        made = []

        def mkdir(self, names=names, made=made):
            os.mkdir(self)
            made.append(self)
            for name in ("cgroup.freeze", *names):
                (self / name).touch()

        monkeypatch.setattr(processes, "_parents", lambda parent=parent: iter([parent]))
        with monkeypatch.context() as patch:
            patch.setattr(type(parent), "mkdir", mkdir)
            assert processes.new_group(1 << 30, 7) == made[0]
        limits = {path.name: path.read_text() for path in made[0].glob("*.max")}
        assert limits == dict(zip(names, (str(1 << 30), "7")))
