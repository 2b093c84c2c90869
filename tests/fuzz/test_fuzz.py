"""Random programs, and the ones that failed once, run as they do with PyTorch.

With this file `pytest tests/fuzz` first replays the programs in `kept/`, then draws
others, the same each time: a change is refused for what it breaks, not for its day.
Who looks for what is broken draws new ones; pytest prints the seed at its start.

    HYPOTHESIS_PROFILE=thorough pytest tests/fuzz      the day's programs
    MINITORCH_FUZZ_SEED=20260131 pytest tests/fuzz     the programs of that day
    MINITORCH_FUZZ_PROGRAMS=20000 pytest tests/fuzz    more of them, on each device

A program that fails is made as short as possible and written to `kept/`, to be renamed
and committed together with what mends it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.compare import PREAMBLE, difference, statements
from fuzz.programs import programs
from helpers import SIMULATED
from minitorch import Tensor, function

KEPT = Path(__file__).parent / "kept"
SEED = int(os.environ["MINITORCH_FUZZ_SEED"])  # tests/conftest.py sets it
PARTS = 4  # tests that workers share among them
# What a device gets by default: compilers and the simulator take their time.
PROGRAMS = {"simple": 1000, "cpu": 1000, "mojo": 100, "cuda": 32 if SIMULATED else 1000}


class Difference(Exception):
    """A program that does not run as it does with PyTorch."""

    def __init__(self, lines: list[str], what: str) -> None:
        super().__init__(what)
        self.lines = lines


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.py")), ids=lambda p: p.stem)
def test_kept_program(path: Path, device: str) -> None:
    what = difference(statements(path.read_text()), device)
    assert what is None, what


@pytest.mark.timeout(900)  # hypothesis takes up to 300 s to simplify a program
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int, device: str) -> None:
    found = first_difference(device, part)
    if found is not None:
        lines = shortened(found.lines, lambda lines: difference(lines, device))
        path = kept(lines, f"found_{SEED}_{device}_{part}.py")
        pytest.fail(f"{difference(lines, device)}\n\n{path}:\n\n{text(lines)}", False)


def first_difference(device: str, part: int) -> Difference | None:
    """Draw programs until one differs, and let hypothesis simplify that one."""
    wanted = int(os.environ.get("MINITORCH_FUZZ_PROGRAMS", PROGRAMS.get(device, 100)))

    @seed(zlib.crc32(f"{SEED} {device} {part}".encode()))
    @settings(
        max_examples=max(1, wanted // PARTS),
        database=None,
        derandomize=False,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def run(lines: list[str]) -> None:
        what = difference(lines, device)
        if what is not None:
            raise Difference(lines, what)

    try:
        run()
    except Difference as found:
        return found
    return None


def shortened(
    lines: list[str], differs: Callable[[list[str]], str | None]
) -> list[str]:
    """The program without the lines that it differs without, too."""
    number = len(lines)
    while number > 0:
        number -= 1
        for rest in without(lines, number):
            if differs(rest) is not None:
                lines, number = rest, len(rest)
                break
    return lines


def without(lines: list[str], number: int) -> Iterator[list[str]]:
    """The program without a line; what was made there may be another tensor then."""
    before, after = lines[:number], lines[number + 1 :]
    yield before + after
    target, _, expression = lines[number].partition(" = ")
    if target.isidentifier():
        for name in re.findall(r"\b[a-z]\b", expression):
            yield before + [re.sub(rf"\b{target}\b", name, line) for line in after]


def text(lines: list[str]) -> str:
    """A program that runs as it stands, with either library."""
    return "\n".join(["import torch", PREAMBLE, "", *lines, ""])


def kept(lines: list[str], name: str) -> Path:
    """Write a program to where it is replayed from."""
    path = KEPT / name
    path.write_text(text(lines))
    return path


def test_a_failing_program_is_shortened_and_runs_as_it_stands() -> None:
    lines = ["a = torch.tensor([1.0, 2.0])", "b = a + 1", "c = a.exp()", "d = c * b"]
    assert shortened(lines, lambda p: "wrong" if lines[2] in p else None) == lines[2:3]
    assert statements(text(lines)) == lines
    names: dict[str, object] = {}
    exec(text(lines), names)
    exec(text(lines).replace("import torch", "import minitorch as torch"), names)


# What is broken, how, and the lines at which it shows. a is [1, 2] and has a gradient.
BROKEN: dict[str, tuple[Any, str, Callable, list[str]]] = {
    "values": (Tensor, "exp", lambda x: x + 1, ["b = a.exp()"]),
    "dtype": (Tensor, "sign", lambda x: x.double(), ["b = a.sign()"]),
    "shape": (Tensor, "t", lambda x: x.reshape(1, 2), ["b = a.t()"]),
    "recording": (Tensor, "neg", lambda x: x.detach() * -1, ["b = a.neg()"]),
    "gradient": (
        Tensor,
        "square",
        lambda x: x * x.detach(),
        ["b = a.square()", "b.backward(torch.arange(1.0, 3.0))"],
    ),
    "alias": (
        Tensor,
        "ravel",
        lambda x: x.clone(),
        ["b = a.detach()", "c = b.ravel()", "c.zero_()"],
    ),
    "no error": (Tensor, "view", lambda x, shape: x, ["b = a.view((3, 3))"]),
    "error": (Tensor, "relu", lambda x: x.relu6(), ["b = a.relu()"]),
    "not ours": (Tensor, "view", lambda x, shape: [].index(x), ["b = a.view((3, 3))"]),
    "version": (
        function,
        "_version",
        lambda x: 0,
        ["b = a * 1", "c = b * b", "b.mul_(3.0)", "c.backward(torch.arange(1.0, 3.0))"],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_differences_are_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong, lines = BROKEN[what]
    program = ["a = torch.tensor([1.0, 2.0], requires_grad=True)", *lines]
    assert difference(program, "simple") is None
    monkeypatch.setattr(owner, name, wrong)
    assert f"line {len(program)}, " in str(difference(program, "simple"))


def test_random_programs_find_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "mul_", lambda x, y: x.add_(y))
    found = first_difference("simple", 0)
    assert found is not None
    lines = shortened(found.lines, lambda lines: difference(lines, "simple"))
    # It may show in a later line: a product with 0 has the right value all the same.
    assert len(lines) <= 5
    assert any(".mul_(" in line or " *= " in line for line in lines)
