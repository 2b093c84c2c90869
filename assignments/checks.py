"""What a task is checked with: inputs, a call, and an oracle.

With this file an assignment defines its checks once, and they are used twice: a
student sees the smallest input for which a call and the oracle differ, and a grader
sends inputs from a secret seed to a process that has no oracle. There are three kinds:

    Check        outputs must be those of the oracle
    Speed        right outputs, and how fast, compared with the reference
    Properties   a student's own tests must tell right implementations from wrong ones

The interface of a call: a function of the assignment's `calls.py`, with the device's
name and the inputs by name, which returns named values (see `compare.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assignments.compare import Difference, difference
from assignments.draw import SeededDraw

GPU, SIMULATOR = "gpu", "simulator"

Call = Callable[..., Any]
Inputs = dict[str, Any]


def _no_length(**inputs: Any) -> int:
    return 1


@dataclass(frozen=True)
class Check:
    """Outputs must be those of the oracle, for any inputs.

    Attributes:
        task: "a3.1".
        name: what is checked, in a few words.
        call: call(device, **inputs) -> named outputs; in the student's process.
        inputs: inputs(draw, **sizes) -> named inputs.
        expected: expected(**inputs) -> the right outputs; never in the student's
            process when it counts.
        sizes: from where to where each size goes, both included.
        edges: sizes that are always run: empty, one, around a block, large.
        tolerance: see `compare.difference`; by dtype if None.
        length: length(**inputs) -> how many terms a result is the sum of.
        examples: how many random inputs to try after the edges.
        devices: where to run it; all devices of the task if None.
        needs: GPU or SIMULATOR, for what can only be seen there; "" for both.
        hint: what to look at when it fails.
        oracle: whose word the right outputs are.
        oracles: the same for outputs of which it is another's.
        torch: whether its call starts ranks that talk by torch's Gloo.
    """

    task: str
    name: str
    call: Call
    inputs: Callable[..., Inputs]
    expected: Callable[..., Inputs]
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    edges: Sequence[Mapping[str, int]] = ()
    tolerance: float | None = None
    length: Callable[..., int] = _no_length
    examples: int = 20
    devices: tuple[str, ...] | None = None
    needs: str = ""
    hint: str = ""
    oracle: str = "PyTorch"
    oracles: Mapping[str, str] = field(default_factory=dict)
    torch: bool = False

    def draws(
        self, seed: int, count: int | None = None
    ) -> Iterator[tuple[SeededDraw, Mapping[str, int]]]:
        """What inputs are made from: of all edge sizes, then of `count` random ones."""
        count = self.examples if count is None else count
        for number, edge in enumerate([*self.edges, *[None] * count]):
            sizes = edge
            if sizes is None:
                first = SeededDraw(seed, self.task, self.name, number, "sizes")
                sizes = {n: first.integer(*limits) for n, limits in self.sizes.items()}
            yield SeededDraw(seed, self.task, self.name, number), sizes

    def cases(self, seed: int, count: int | None = None) -> Iterator[Inputs]:
        """Inputs of all edge sizes, then `count` random ones; the same for a seed."""
        for draw, sizes in self.draws(seed, count):
            yield self.inputs(draw, **sizes)

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """What is wrong with the outputs of the call for these inputs, or None."""
        return difference(
            self.expected(**inputs),
            outputs,
            inputs,
            self.tolerance,
            self.length(**inputs),
        )


@dataclass(frozen=True)
class Speed:
    """Right outputs, and how fast compared with the reference.

    Attributes:
        call: call(device, **inputs) -> (go, read): go() does what is timed, and
            read(its result) gives the named outputs.
        rival: the same for the reference library, in a process without an overlay.
        sizes: of the inputs that are timed.
        steps: (ratio, share) pairs: whoever reaches ratio = rival's time / student's
            time gets that share of the points.
        work: work(**inputs) -> (bytes, operations) that are needed at least.
        others: as in `Check`.
    """

    task: str
    name: str
    call: Call
    rival: Call
    inputs: Callable[..., Inputs]
    expected: Callable[..., Inputs]
    sizes: Mapping[str, int]
    steps: Sequence[tuple[float, float]]
    work: Callable[..., tuple[float, float]]
    tolerance: float | None = None
    length: Callable[..., int] = _no_length
    devices: tuple[str, ...] | None = None
    needs: str = ""
    hint: str = ""
    oracle: str = "PyTorch"

    def make_inputs(self, seed: int, number: int) -> Inputs:
        """Inputs for timed call `number`: fresh ones each time."""
        draw = SeededDraw(seed, self.task, self.name, number)
        return self.inputs(draw, **self.sizes)

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """What is wrong with the outputs of the call for these inputs, or None."""
        return difference(
            self.expected(**inputs),
            outputs,
            inputs,
            self.tolerance,
            self.length(**inputs),
        )

    def said(self, ratio: float) -> str:
        """How fast that is, and which ratio would earn more."""
        text = f"{ratio:.2f} times as fast as the reference"
        higher = sorted(step for step in self.steps if step[0] > ratio)
        more = ", ".join(f"{share:.0%} from {least:g}" for least, share in higher)
        return f"{text}; of the points {more}" if more else text

    def points_share(self, ratio: float) -> float:
        """The part of the points, 0 to 1, that a ratio to the rival's speed earns."""
        return max(
            [share for least, share in self.steps if ratio >= least], default=0.0
        )


@dataclass(frozen=True)
class Broken:
    """An implementation with a mistake.

    Attributes:
        name: to tell it from others.
        what: the mistake in words.
        make: returns the object with the functions.
    """

    name: str
    what: str
    make: Callable[[], Any]


@dataclass(frozen=True)
class Properties:
    """A student's own tests must pass on the reference and catch what is broken.

    Attributes:
        module: the student's file, as a module of the library. Each of its functions
            `test_...(ops)` is a test, by Hypothesis, of the object `ops`.
        reference: returns the right implementation.
        broken: wrong implementations; each must fail one test at least.
        functions: the names of what `ops` has.
    """

    task: str
    name: str
    module: str
    reference: Callable[[], Any]
    broken: tuple[Broken, ...]
    functions: tuple[str, ...]
    devices: tuple[str, ...] | None = None
    hint: str = ""


AnyCheck = Check | Speed | Properties


def sizes_of(names: str, *all_sizes: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    """Edge sizes by their names: sizes_of("rows n", (1, 1), (5, 33))."""
    return tuple(dict(zip(names.split(), sizes)) for sizes in all_sizes)


def on_all_cores(kernels: Mapping[str, Sequence[str]], call: Call) -> tuple[Check, ...]:
    """The kernels of fast_ops of each task must have work for all cores
    (`calling.is_shared`)."""

    def check(task: str, name: str) -> Check:
        return Check(
            task,
            f"{name}: on all cores",
            call,
            lambda draw: {"name": name, "n": 34},
            lambda name, n: {"shared": True},
            examples=1,
            devices=("cpu",),
            hint="The iterations of a loop over range are one core's. Which loop can "
            "the cores share?",
            oracle="the task",
        )

    return tuple(
        [check(task, name) for task, names in kernels.items() for name in names]
    )


def why_not(check: AnyCheck, device: str, simulated: bool) -> str:
    """Why a check says nothing on a device here; "" if it does.

    Args:
        simulated: whether the device's kernels run in Numba's simulator.
    """
    needs = "" if isinstance(check, Properties) else check.needs
    if needs == GPU and simulated:
        return f"{check.name}: kernels are simulated here; this needs a GPU"
    if needs == SIMULATOR and not simulated:
        return (
            f"{check.name}: only the simulator can see this; set "
            f"NUMBA_ENABLE_CUDASIM=1 to use it"
        )
    return ""
