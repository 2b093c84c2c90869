"""The profiler: what it notes, how spans nest, and that it costs nothing when off."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import minitorch
from helpers import SIMULATED, rows_of_trace
from minitorch import nn
from minitorch.backend import get_backend
from minitorch.executor import Executor, active, executing, users_stack
from minitorch.profiler import Averages, ProfilerActivity, profile, record_function


def train_step(device: str = "cpu") -> None:
    model = nn.Linear(4, 3).to(device)
    optimizer = minitorch.optim.SGD(model.parameters(), lr=0.1)
    x, y = minitorch.ones(2, 4, device=device), minitorch.tensor([0, 2], device=device)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_operations_backward_nodes_and_kernels_are_noted(device: str) -> None:
    with profile(record_shapes=True, profile_memory=True) as prof:
        with record_function("step"):
            train_step(device)
    found = {(span.kind, span.name) for span in prof.events()}
    assert {
        ("user", "step"),
        ("operation", "Linear"),
        ("operation", "LinearBackward"),
        ("kernel", "matmul"),
        ("kernel", "sgd_step"),
    } <= found
    linear = next(span for span in prof.events() if span.name == "Linear")
    assert linear.shapes == ((2, 4), (3, 4), (3,))
    assert linear.bytes >= 4 * 2 * 3


def test_spans_nest(device: str) -> None:
    with profile() as prof:
        train_step(device)
    open_until: list[float] = []
    for span in prof.events():
        if span.kind == "device":
            continue
        while open_until and span.start >= open_until[-1]:
            open_until.pop()
        assert not open_until or span.end <= open_until[-1]
        assert span.inner <= span.time + 1e-6
        open_until.append(span.end)


def test_spans_nest_where_a_generator_waits_inside_of_one() -> None:
    def batches() -> Iterator[None]:
        with record_function("load"):
            yield

    waiting = batches()
    with profile() as prof:
        with record_function("step"):
            next(waiting)
        with record_function("next step"):
            next(waiting, None)
    step, load, after = prof.events()
    assert (step.name, load.name, after.name) == ("step", "load", "next step")
    assert step.start <= load.start <= load.end <= step.end <= after.start


def test_self_times_add_up() -> None:
    with profile() as prof:
        with record_function("all"):
            train_step()
    averages = {a.key: a for a in prof.key_averages()}
    total = sum(a.self_cpu_time_total for a in averages.values())
    assert total == pytest.approx(averages["all"].cpu_time_total, rel=1e-6)


def test_the_table_sorts_and_names_what_it_can_sort_by() -> None:
    with profile() as prof:
        train_step()
    averages = prof.key_averages()
    assert isinstance(averages, Averages)
    lines = averages.table(sort_by="count", row_limit=2, header="a step").splitlines()
    assert lines[0] == "a step" and lines[1].startswith("Name")
    assert len(lines) == 5 and lines[-1].startswith("Self CPU time total")
    with pytest.raises(ValueError, match="sort_by is 'time'; expected one of count"):
        averages.table(sort_by="time")


def test_shapes_tell_calls_apart() -> None:
    with profile(record_shapes=True) as prof:
        for n in (2, 3, 3):
            minitorch.ones(n) + 1.0
    grouped = [a for a in prof.key_averages(True) if a.key == "Add"]
    assert sorted((a.shapes, a.count) for a in grouped) == [
        (((2,), ()), 1),
        (((3,), ()), 2),
    ]


def test_the_stack_is_the_users() -> None:
    with profile(with_stack=True) as prof:
        minitorch.ones(2) + 1.0
    add = next(span for span in prof.events() if span.name == "Add")
    assert "test_the_stack_is_the_users" in add.stack[0]


def test_the_trace_is_what_viewers_read(tmp_path: Path) -> None:
    with profile() as prof:
        train_step()
        other = threading.Thread(target=train_step, name="other")
        other.start()
        train_step()
        other.join()
    prof.export_chrome_trace(tmp_path / "trace.json")
    rows = rows_of_trace(tmp_path / "trace.json")
    assert sorted(rows) == ["MainThread", "other"]
    assert sum(map(len, rows.values())) == len(prof.events())


def test_waits_of_the_host_are_rows(device: str) -> None:
    x = minitorch.ones(3, device=device)
    with profile(record_shapes=True) as prof:
        x.sum().item()
        print(x)
    reads = {s.name: s.shapes for s in prof.events() if s.kind == "read"}
    assert reads == {"host read: item()": ((),), "host read: repr()": ((3,),)}
    assert "host read: item()" in prof.key_averages().table()


def test_a_step_of_an_optimizer_is_an_operation() -> None:
    with profile() as prof:
        train_step()
    by_name = {span.name: span for span in prof.events()}
    outer, inner = by_name["SGD.step"], by_name["sgd_step"]
    assert (outer.kind, inner.kind) == ("operation", "kernel")
    assert outer.start <= inner.start <= inner.end <= outer.end


@pytest.mark.skipif(not SIMULATED, reason="takes the simulator for a GPU")
def test_kernels_of_a_stream_follow_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("minitorch.profiler._simulated", lambda: False)
    with profile(activities=list(ProfilerActivity)) as prof:
        other = threading.Thread(target=train_step, args=["cuda"])
        other.start()
        train_step("cuda")
        train_step("cpu")
        other.join()
    on_gpu = [span for span in prof.events() if span.kind == "device"]
    assert {"sgd_step", "matmul"} <= {span.name for span in on_gpu}
    assert sum(span.name == "sgd_step" for span in on_gpu) == 2  # not the CPU's
    on_gpu.sort(key=lambda span: (span.start, span.end))
    for span, following in itertools.pairwise(on_gpu):
        assert span.start <= span.end <= following.start
    prof.export_chrome_trace(tmp_path / "trace.json")
    rows = rows_of_trace(tmp_path / "trace.json")
    assert len(rows["GPU, stream 0"]) == len(on_gpu)
    assert "CUDA total" in prof.key_averages().table(sort_by="cuda_time_total")


def test_off_means_off() -> None:
    with profile() as prof:
        minitorch.ones(2) + 1.0
    count, backend = len(prof.events()), get_backend("cpu")
    minitorch.ones(2) + 1.0
    with record_function("nobody looks"):
        pass
    assert len(prof.events()) == count and active.executor is None
    assert type(backend).__name__ == "CPUBackend"


def test_an_error_ends_the_spans() -> None:
    with pytest.raises(ValueError, match="matmul"), profile() as prof:
        minitorch.ones(2, 3) @ minitorch.ones(2, 3)
    assert all(span.end >= span.start for span in prof.events())
    assert active.executor is None


def test_two_executors_do_not_fit() -> None:
    with executing(Executor()), pytest.raises(RuntimeError, match="active already"):
        with profile():
            pass
    assert active.executor is None


def test_values_are_the_same_with_an_executor(device: str) -> None:
    def compute() -> list[float]:
        x = minitorch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        (x.softmax(1) @ x.t()).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    expected = compute()
    with executing(Executor()):
        assert compute() == expected


@pytest.mark.skipif(minitorch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_cannot_be_timed() -> None:
    with pytest.raises(
        ValueError, match=r"ProfilerActivity\.CUDA, but there is no GPU"
    ):
        profile(activities=[ProfilerActivity.CUDA])


def test_a_profiler_that_is_used_again_goes_on() -> None:
    prof = profile()
    for name in ("first", "second"):
        with prof, record_function(name):
            minitorch.ones(2) + 1.0
    first, second = (s for s in prof.events() if s.kind == "user")
    assert first.name == "first" and first.end <= second.start


def test_activities_are_members_of_the_enum() -> None:
    with pytest.raises(ValueError, match=r"activities is \['cuda'\]; each must be"):
        profile(activities=["cuda"])


def test_files_whose_names_begin_as_the_librarys_are_the_users() -> None:
    code = "users_stack()"
    path = Path(minitorch.__file__).parent.with_name("minitorch_of_mine.py")
    stack = eval(compile(code, path, "eval"), {"users_stack": users_stack})
    assert stack[0].startswith(f"{path}(1)")
