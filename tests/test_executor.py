"""The seam: all that computes passes it, reads are announced, and nothing is lost."""

from __future__ import annotations

import ast
import copy
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import minitorch
from minitorch import nn, optim
from minitorch.executor import Executor, executing
from minitorch.optim.lr_scheduler import ExponentialLR
from minitorch.utils.data import DataLoader, TensorDataset

ROOT = Path(minitorch.__file__).parent
FAST_OPS = ROOT.parent / "fast_ops"
LAUNCHERS = FAST_OPS, ROOT / "backend" / "host"

# Each way in which the host asks for numbers, by the name that the seam is told.
READS: dict[str, Callable[[minitorch.Tensor], Any]] = {
    "item()": lambda x: x[1].item(),
    "bool()": lambda x: bool(x[1]),
    "float()": lambda x: float(x[1]),
    "int()": lambda x: int(x[1]),
    "index": lambda x: range(9)[x.long()[1]],
    "tolist()": lambda x: x.tolist(),
    "numpy()": lambda x: x.numpy(),
    "repr()": lambda x: repr(x),
    "boolean mask": lambda x: x[x > 1],
    "nonzero()": lambda x: x.nonzero(),
    "check of an index": lambda x: x[-x.long()],
    "to_sparse_csr()": lambda x: x.reshape(1, 3).to_sparse_csr(),
    "pickle": lambda x: pickle.dumps(x),
}


class Seen(Executor):
    """Notes the names of what passes."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.calls: list[str] = []
        self.steps: list[str] = []

    def read(self, name: str, fn: Callable[..., Any], a: Any) -> Any:
        self.reads.append(name)
        return fn(a)

    def call(self, name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls.append(name)
        return fn(*args, **kwargs)

    def advance(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        self.steps.append(name)
        return run(*args)


@pytest.mark.parametrize("name", READS)
def test_each_read_is_seen_once(device: str, name: str) -> None:
    x = minitorch.tensor([0.0, 1.0, 2.0], device=device)
    with executing(Seen()) as seen:
        READS[name](x)
    assert seen.reads == [name]
    assert "to_numpy" not in seen.calls


def test_moving_to_another_device_is_a_read(device: str) -> None:
    x, other = minitorch.ones(3, device=device), "simple" if device == "cpu" else "cpu"
    with executing(Seen()) as seen:
        x.to(other)
    assert seen.reads == [f"to('{other}')"]


def test_what_needs_no_numbers_reads_none(device: str) -> None:
    x = minitorch.tensor([0.0, 1.0, 2.0], device=device, requires_grad=True)
    with executing(Seen()) as seen:
        (x * 2 + x[1:].sum()).sum().backward()
        copy.deepcopy(x).detach().reshape(3, 1).argmax(0)
        x.shape, x.dtype, len(x)
    assert seen.reads == []


def test_reads_pass_one_place() -> None:
    """Nobody in the library asks a backend for numbers but `host_read`."""
    found = []
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr.startswith("to_numpy"):
                    found.append(file.relative_to(ROOT).parts[0])
    assert set(found) == {"backend"}  # defaults, within a backend
    text = (ROOT / "executor.py").read_text()
    assert text.count(".to_numpy") == 1


# ------------------------------------------------------------- all that computes


class Network(nn.Module):
    """One of each kind of layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.linear, self.scale = nn.Linear(8, 3), nn.LayerNorm(3)

    def forward(self, x: minitorch.Tensor) -> minitorch.Tensor:
        x = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return self.scale(self.linear(nn.functional.dropout(x.flatten(1), 0.5)))


def train(make: Callable[..., Any]) -> None:
    """Data, weights, and two steps, from nothing."""
    minitorch.manual_seed(0)
    data = TensorDataset(minitorch.randn(4, 1, 6, 6), minitorch.tensor([0, 1, 2, 0]))
    model = Network()
    nn.init.orthogonal_(model.linear.weight)
    optimizer = make(model.parameters())
    schedule = ExponentialLR(optimizer, 0.9)
    for x, y in DataLoader(data, batch_size=2, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, 0.1),
    "rmsprop": lambda p: optim.RMSprop(p, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_launch_passes_the_seam(name: str) -> None:
    """What is entered of launchers from above was called, or read, by the executor."""
    entered: list[str] = []
    bypassed: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        if Path(frame.f_code.co_filename).parent not in LAUNCHERS:
            return
        if Path(caller.f_code.co_filename).parent in LAUNCHERS:
            return
        if caller.f_code in (Seen.call.__code__, Seen.read.__code__):
            entered.append(frame.f_code.co_name)
        elif not Path(caller.f_code.co_filename).is_relative_to(ROOT / "backend"):
            bypassed.add(f"{frame.f_code.co_name} from {caller.f_code.co_name}")

    train(OPTIMIZERS[name])  # loads and compiles
    with executing(Seen()) as seen:
        threading.setprofile(note)  # the loader has a thread of its own
        sys.setprofile(note)
        try:
            train(OPTIMIZERS[name])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    assert not bypassed
    launched, calls, steps = map(Counter, (entered, seen.calls, seen.steps))
    assert launched.pop("to_numpy") == len(seen.reads)
    by_default = set(calls) - set(launched)  # made of primitives
    assert launched == {k: n for k, n in calls.items() if k not in by_default}
    assert launched["conv2d"] == 2 and launched["normal"] >= 2
    assert sum(n for step, n in steps.items() if step.endswith(".step")) == 2
    assert steps["Generator.take"] >= 4


def test_a_step_counts_itself_as_before() -> None:
    w = minitorch.ones(2, requires_grad=True)
    optimizer = optim.Adam([w], 0.1)
    with executing(Seen()) as seen:
        for _ in range(3):
            w.sum().backward()
            optimizer.step()
    assert optimizer.steps_taken == optimizer.state[w]["step"] == 3
    assert seen.steps == ["Adam.step"] * 3
    assert not w.grad_fn and w.requires_grad
