"""What a program waits for on a GPU: small operations, optimizers, steps, epochs.

With this file one can list the cases whose time is the host's as much as the GPU's
(`tiny_cases`, `optimizer_cases`, `step_cases`, `epoch_cases`). They are timed by the
host's clock, from a GPU that has nothing to do to one that has done all
(`compare_hosts`). What is timed is the CPU benchmark's table, on the device "cuda".

A training step, on batches of 64, is compared three times:

    eager           the kernels are started one by one, on both sides
    graph           a CUDA graph, started with one call; new inputs are copied in
    graph, fused    PyTorch with its Adam that updates all parameters in one kernel
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from minitorch import operators
from minitorch.bench import cases, epoch, tiny
from minitorch.bench.cases import Networks, eager_steps, steps_of
from minitorch.bench.gpu_harness import compare_hosts
from minitorch.bench.inputs import Case, Pair, both, torch_module
from minitorch.cuda import make_graphed_step

BATCH = 64

# The goals of the project for one H200 are 100 us and 500 us, where PyTorch's graphs
# took 172 us and 567 us.
STEPS = {"MLP 784-256-128-10": 100 / 172, "CNN of PyTorch's MNIST example": 500 / 567}


def _by_the_host(listed: Iterator[Case]) -> Iterator[Case]:
    return (replace(case, compare=compare_hosts) for case in listed)


def tiny_cases() -> Iterator[Case]:
    """What an operation costs when there is nothing to compute."""
    yield from _by_the_host(iter([Case("tiny", "add 1000, the launch alone", launch)]))
    yield from _by_the_host(tiny.tiny_cases())


def launch() -> Pair:
    """Our kernel and PyTorch's, for memory that is there already."""
    from cuda_ops.elementwise import ZIP_FLAT

    torch = torch_module()
    (x, out), (their_x, their_out) = both((1000,), (1000,))
    flat, result, run = x.raw.flat(), out.raw.flat(), ZIP_FLAT[operators.add]
    return (
        lambda: run[4, 256](flat, flat, result, True),
        lambda: torch.add(their_x, their_x, out=their_out),
    )


def optimizer_cases() -> Iterator[Case]:
    """One step of Adam and AdamW, against PyTorch's fused ones."""
    return _by_the_host(cases.optimizer_cases())


def step_cases() -> Iterator[Case]:
    """Whole training steps: forward, cross-entropy, backward, Adam."""
    for name, goal in STEPS.items():
        networks = partial(cases.twins, name)
        shape = (BATCH, 1, 28, 28)
        for how, build, ratio in (
            ("eager", partial(eager_steps, networks, shape), 1.0),
            ("graph", partial(graph_steps, networks, shape), goal),
            ("graph, fused", partial(graph_steps, networks, shape, fused=True), 1.0),
        ):
            text = f"{name}, {how}"
            yield Case("step", text, build, goal=ratio, compare=compare_hosts)


def graph_steps(
    networks: Networks, shape: tuple[int, ...], fused: bool = False
) -> Pair:
    """The same as CUDA graphs, with new inputs for each replay."""
    options = {"capturable": True, "fused": fused or None}
    (step, x, y), (their_step, their_x, their_y) = steps_of(networks, shape, **options)
    graphed = make_graphed_step(step)
    their_graphed = their_graph(their_step, their_x, their_y)
    return lambda: graphed(x, y), lambda: their_graphed(their_x, their_y)


def their_graph(step: Callable[..., Any], *inputs: Any) -> Callable[..., Any]:
    """PyTorch's graph of `step`, as its documentation does it, and inputs copied in."""
    torch = torch_module()
    static = [x.clone() for x in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*static)

    def replay(*new: Any) -> None:
        for old, x in zip(static, new):
            old.copy_(x)
        graph.replay()

    return replay


def epoch_cases() -> Iterator[Case]:
    """`minitorch train mnist --device cuda` against the same program of PyTorch's."""
    return _by_the_host(epoch.epoch_cases("cuda"))
