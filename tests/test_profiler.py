"""The profiler: what it notes, how spans nest, and that it costs nothing when off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import minitorch
from minitorch import nn
from minitorch.backend import get_backend
from minitorch.executor import Executor, active, executing
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
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == len(prof.events())
    assert {"name", "cat", "ph", "ts", "dur", "pid", "tid"} <= set(spans[0])
    rows = {e["tid"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {event["tid"] for event in spans} == rows


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
