"""How fast texts are served that come one by one: continuous and static batches.

With this file one can print tokens a second, and how long a reader waits, for requests
that arrive at random:

    python -m minitorch.bench.serving --preset char --rates 2,8 --requests 40

A Poisson process says when they come, and their lengths are drawn evenly; the seed
decides all of it. Both ways have memory for the same number of tokens. `Engine` gives
it out in blocks. In a static batch each text has room for the longest that may come;
the batch is as large as that allows, takes who waits when the one before has ended, and
ends with its longest text. It hands on tokens as they are made, as the engine does.
Where nobody waits, the clock is put forward to the next arrival. On a machine that has
other work, `--processor-time` with one thread (NUMBA_NUM_THREADS=1) does not count it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import typer

from minitorch.models import GPT
from minitorch.random import manual_seed
from minitorch.serving import Engine

HEADINGS = (
    "requests/s", "batches", "tokens/s", "first token, p50", "p99", "last token, p50",
    "p99",
)  # fmt: skip
BLOCK = 16


class Request(NamedTuple):
    """A prompt that arrives `at` seconds, and how many tokens are wanted."""

    at: float
    prompt: list[int]
    tokens: int


class Wait(NamedTuple):
    """Seconds from a request's arrival to its first and its last token, and when that
    was since the begin."""

    first: float
    last: float
    ended: float


Lengths = tuple[int, int]  # the least and the most
Clock = Callable[[], float]


def draw(
    count: int, rate: float, vocab: int, prompt: Lengths, tokens: Lengths, seed: int = 0
) -> list[Request]:
    """Requests of a Poisson process of `rate` a second."""
    rng = np.random.default_rng(seed)
    at = rng.exponential(1 / rate, count).cumsum()
    sizes = zip(*(rng.integers(low, high + 1, count) for low, high in (prompt, tokens)))
    return [
        Request(float(t), rng.integers(0, vocab, int(n)).tolist(), int(new))
        for t, (n, new) in zip(at, sizes)
    ]


def continuous(
    model: GPT,
    requests: Sequence[Request],
    memory: int,
    batch: int,
    clock: Clock = time.perf_counter,
) -> list[Wait]:
    """By an engine with blocks for `memory` tokens."""
    engine = Engine(model, memory // BLOCK, BLOCK, batch)
    engine.warm_up()
    coming, seen = deque(requests), _Seen(clock)
    by_id: dict[int, Request] = {}
    while coming or engine.busy:
        if not engine.busy:
            seen.wait(coming[0].at)
        while coming and coming[0].at <= seen.now():
            request = coming.popleft()
            id = engine.add(request.prompt, request.tokens, temperature=0.0)
            by_id[id] = request
        for event in engine.step():
            seen.token(by_id[event.id], event.finished is not None)
    return seen.waits


def static(
    model: GPT,
    requests: Sequence[Request],
    memory: int,
    batch: int,
    clock: Clock = time.perf_counter,
) -> list[Wait]:
    """By `model.stream` for up to `batch` of those who wait, again and again."""
    coming, seen = deque(requests), _Seen(clock)
    batch = min(batch, memory // max(len(r.prompt) + r.tokens for r in requests))
    while coming:
        seen.wait(coming[0].at)
        some: list[Request] = []
        while coming and len(some) < batch and coming[0].at <= seen.now():
            some.append(coming.popleft())
        most = max(request.tokens for request in some)
        prompts = [request.prompt for request in some]
        for made, _ in enumerate(model.stream(prompts, most, temperature=0.0), 1):
            for request in some:
                if made <= request.tokens:
                    seen.token(request, made == request.tokens)
    return seen.waits


class _Seen:
    """A clock, and what was seen of each request since it started."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.start = clock, clock()
        self.first: dict[float, float] = {}
        self.waits: list[Wait] = []

    def now(self) -> float:
        return self.clock() - self.start

    def wait(self, until: float) -> None:
        """Put the clock forward, where nobody has anything to do."""
        self.start -= max(0.0, until - self.now())

    def token(self, request: Request, last: bool) -> None:
        now, at = self.now(), request.at
        first = self.first.setdefault(at, now - at)
        if last:
            self.waits.append(Wait(first, now - at, now))


WAYS = {"static": static, "continuous": continuous}


def row(rate: float, way: str, tokens: int, waits: Sequence[Wait]) -> str:
    """A line of the table."""
    speed = tokens / max(wait.ended for wait in waits)
    firsts, lasts = ([w[i] for w in waits] for i in (0, 1))
    seconds = [np.percentile(times, p) for times in (firsts, lasts) for p in (50, 99)]
    told = " | ".join(f"{s:.2f} s" for s in seconds)
    return f"| {rate:g} | {way} | {speed:,.0f} | {told} |"


def main(
    preset: Annotated[str, typer.Option(help="char, gpt2, ...")] = "char",
    rates: Annotated[str, typer.Option(help="Requests a second.")] = "2,8",
    requests: Annotated[int, typer.Option(min=1, help="How many come.")] = 40,
    prompt: Annotated[str, typer.Option(help="Tokens given.")] = "8,64",
    tokens: Annotated[str, typer.Option(help="Tokens wanted.")] = "8,128",
    memory: Annotated[int, typer.Option(min=BLOCK, help="For so many tokens.")] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Texts at once, at most.")] = 16,
    seed: Annotated[int, typer.Option(help="Of times and lengths.")] = 0,
    device: Annotated[str, typer.Option(help="Where the model is.")] = "cpu",
    busy: Annotated[
        bool, typer.Option("--processor-time", help="Not the time that passes.")
    ] = False,
) -> None:
    """Print tokens a second and waiting times, by arrivals and kind of batches."""
    manual_seed(0)
    model = GPT.preset(preset).to(device)
    clock = time.process_time if busy else time.perf_counter
    given, wanted = (tuple(map(int, text.split(","))) for text in (prompt, tokens))
    print(f"| {' | '.join(HEADINGS)} |\n|{' ---: |' * len(HEADINGS)}")
    for rate in map(float, rates.split(",")):
        args = model.config.vocab_size, given, wanted, seed
        coming = draw(requests, rate, *args)  # type: ignore[arg-type]
        for way, serve in WAYS.items():
            first = [r._replace(at=0.0, tokens=2) for r in coming[:6]]
            serve(model, first, memory, batch)  # compiles
            waits = serve(model, coming, memory, batch, clock)
            print(row(rate, way, sum(r.tokens for r in coming), waits), flush=True)


if __name__ == "__main__":
    typer.run(main)
