"""How fast a GPT writes, with and without the cache of keys and values.

With this file one can print a table of tokens a second, by batch and length:

    python -m minitorch.bench.generation --preset char --batches 1,4,8 --tokens 32,128

The two take turns, so that other work on the machine slows both; the ratio is the
median of the rounds' ratios, and says more than the two times. Where other work is
heavy, `--processor-time` with one thread (NUMBA_NUM_THREADS=1) does not count it.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated, NamedTuple

import typer

from minitorch.models import GPT
from minitorch.random import manual_seed

HEADINGS = "batch", "new tokens", "with cache / without", "with, tokens/s", "without"


class Speed(NamedTuple):
    """Tokens a second of all texts together, with a cache and without, and how often
    the second goes into the first, as the median of the rounds."""

    batch: int
    tokens: int
    ratio: float
    cached: float
    again: float


def measure(
    model: GPT,
    batch: int,
    prompt: int,
    tokens: int,
    rounds: int = 5,
    busy: bool = False,
) -> Speed:
    """Let the model write `tokens` behind prompts of equal length, in turns.

    Args:
        batch: how many texts at once.
        prompt: tokens that are given, of each text.
        busy: count this process's time on the processor, not the time that passes.

    Errors: ValueError where prompt and tokens are more than the model looks back at.
    """
    most = model.config.block_size
    if prompt + tokens > most:
        raise ValueError(
            f"generation: {prompt} + {tokens} tokens are more than the block_size, "
            f"{most}, from where on no cache helps; take fewer"
        )
    rows = [
        [(i + j) % model.config.vocab_size for j in range(prompt)] for i in range(batch)
    ]
    clock = time.process_time if busy else time.perf_counter
    times: dict[bool, list[float]] = {True: [], False: []}
    for n in range(rounds + 1):
        for use_cache, seen in times.items():
            start = clock()
            model.generate(rows, tokens, temperature=0.0, use_cache=use_cache)
            if n:  # the first round compiles
                seen.append(clock() - start)
    ratios = [again / cached for cached, again in zip(*times.values())]
    cached, again = (batch * tokens / statistics.median(t) for t in times.values())
    return Speed(batch, tokens, statistics.median(ratios), cached, again)


def row(speed: Speed) -> str:
    """A line of the table."""
    batch, tokens, ratio, cached, again = speed
    return f"| {batch} | {tokens} | {ratio:.1f} | {cached:,.0f} | {again:,.0f} |"


def main(
    preset: Annotated[str, typer.Option(help="char, gpt2, ...")] = "char",
    batches: Annotated[str, typer.Option(help="Texts at once.")] = "1,4,8",
    tokens: Annotated[str, typer.Option(help="New tokens of a text.")] = "32,128",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens given.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 5,
    device: Annotated[str, typer.Option(help="Where the model is.")] = "cpu",
    busy: Annotated[
        bool, typer.Option("--processor-time", help="Not the time that passes.")
    ] = False,
) -> None:
    """Print tokens a second, with and without a cache."""
    manual_seed(0)
    model = GPT.preset(preset).to(device)
    print(f"| {' | '.join(HEADINGS)} |\n|{' ---: |' * len(HEADINGS)}")
    for new in map(int, tokens.split(",")):
        for batch in map(int, batches.split(",")):
            print(row(measure(model, batch, prompt, new, rounds, busy)), flush=True)


if __name__ == "__main__":
    typer.run(main)
