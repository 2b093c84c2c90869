r"""Runs for scaling laws: GPTs of several sizes, on a text whose entropy is known.

With this file one can train, for each budget of operations C and each size N, a GPT on
D = C / 6N tokens, and have a row of each run in a file (`python -m
minitorch.bench.scaling runs.csv`), for `minitorch.scaling` to fit:

    python -m minitorch.bench.scaling runs.csv --budgets 3e10,1e11 --widths 8,16,32
    python -m minitorch.bench.scaling runs.csv --device cuda --batch 64 \
        --budgets 1e12,3e12,1e13,3e13,1e14 --widths 16,24,32,48,64,96,128,192 \
        --seconds 380 --longest 60

All runs read the same text from its beginning, none of it twice, and each has a
learning rate that falls to its own end: a run that is stopped before its schedule is
over is no run of that length (Hoffmann et al., 2022). The loss is the text's entropy
and the `excess` over it. Rows that are in the file are not run again, and a program
that is stopped loses the run at hand alone.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from minitorch.autodiff import no_grad
from minitorch.backend.registry import split_name
from minitorch.creation import from_numpy
from minitorch.data.urns import UrnText
from minitorch.models import GPT, GPTConfig
from minitorch.optim import AdamW
from minitorch.optim.lr_scheduler import LambdaLR
from minitorch.random import manual_seed
from minitorch.scaling import Run, parameters, read_runs, tokens_for
from minitorch.tensor import Tensor
from minitorch.train.gpt.session import text_step
from minitorch.train.schedule import warm_up_cosine

WINDOW = 32  # tokens of a piece: two are enough to know the urn
LAYERS = 2
NARROW = 16  # the width whose highest learning rate is given
FEWEST = 50  # steps of a run
PART = 256  # batches that are drawn together
TESTED, TEST_KEY = 2048, 1  # pieces that a loss is measured on, and their key
WARM = 10  # steps before the clock can say how long the others will take
LOOK = 64  # steps between looks at the clock and the loss


class LeftOut(Exception):
    """A run would end too late, or its steps were too long."""


class Texts:
    """The batches of a text, drawn once and kept where they are used."""

    def __init__(self, text: UrnText, batch: int, device: str) -> None:
        self.text, self.batch, self.device = text, batch, device
        self._parts: list[Any] = []

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """x and y int64 [1, batch, WINDOW] of a step."""
        part, at = divmod(step, PART)
        while part >= len(self._parts):
            rows = PART * self.batch
            ids = self.text.draw(rows, WINDOW + 1, 0, len(self._parts))
            ids = ids.reshape(PART, 1, self.batch, WINDOW + 1)
            on_gpu = split_name(self.device)[0] == "cuda"
            kept = from_numpy(ids).to(self.device) if on_gpu else ids.astype("uint8")
            self._parts.append(kept)
        found = self._parts[part][at]
        if not isinstance(found, Tensor):
            found = from_numpy(found.astype("int64")).to(self.device)
        return found[:, :, :-1], found[:, :, 1:]


def config_of(width: int, vocab: int) -> GPTConfig:
    """A GPT of this width: two blocks, heads of 16 numbers."""
    heads = max(1, width // 16)
    return GPTConfig(vocab, WINDOW, LAYERS, heads, width, bias=False)


def plan(
    budgets: list[float],
    widths: list[int],
    batch: int,
    vocab: int,
    seeds: int = 1,
    rate: float = 0.02,
    power: float = 1.5,
) -> Iterator[Run]:
    """The runs of all budgets and widths that take `FEWEST` steps or more, with no
    loss yet; small budgets come first. The highest learning rate is `rate` for a width
    of 16, and falls as width ** -power."""
    for budget in sorted(budgets):
        for width in widths:
            n = parameters(LAYERS, width, vocab)
            steps = round(tokens_for(budget, n) / (batch * WINDOW))
            for seed in range(seeds if steps >= FEWEST else 0):
                yield Run(
                    budget, width, n, steps * batch * WINDOW, steps, batch,
                    rate * (NARROW / width) ** power, seed, vocab,
                    math.nan, math.nan, "",
                )  # fmt: skip


def train(
    run: Run, texts: Texts, deadline: float = math.inf, longest: float = math.inf
) -> Run:
    """The run with its loss.

    Errors: LeftOut where it would end behind `deadline`, of `time.perf_counter()`, or
    take more than `longest` seconds, or the loss is not finite.
    """
    start, device = time.perf_counter(), texts.device
    if start > deadline:
        raise LeftOut("the time is over")
    manual_seed(run.seed)
    model = GPT(config_of(run.width, run.vocab)).to(device)
    optimizer = AdamW(model.parameters(), run.lr, betas=(0.9, 0.99), weight_decay=0.0)
    warm_up = warm_up_cosine(min(100, run.steps // 10), run.steps, 0.05)
    scheduler = LambdaLR(optimizer, warm_up)
    step: Any = partial(text_step, model, optimizer, 1.0)
    if split_name(device)[0] == "cuda":
        from minitorch.cuda import make_graphed_step

        step = make_graphed_step(step)
    warm = start
    for i in range(run.steps):
        loss = step(*texts(i))
        scheduler.step()
        if i == WARM or (i and i % LOOK == 0):
            if not math.isfinite(loss.item()):
                raise LeftOut(f"the loss became {loss.item()}")
            now = time.perf_counter()
            warm = now if i == WARM else warm
            each = (now - warm) / max(1, i - WARM)
            left = each * (run.steps - i)
            if i > WARM and (now + left > deadline or now - warm + left > longest):
                raise LeftOut(f"its {each * run.steps:.0f} s would be too long")
    loss = texts.text.entropy + measured(model, texts.text)
    if not math.isfinite(loss):
        raise LeftOut(f"the loss became {loss}")
    seconds = round(time.perf_counter() - start, 1)
    return run._replace(loss=round(loss, 6), seconds=seconds, device=device)


@no_grad()
def measured(model: GPT, text: UrnText, rows: int = 128) -> float:
    """The mean `excess` of a model on pieces that nobody has learnt from."""
    ids, total = text.draw(TESTED, WINDOW, TEST_KEY), 0.0
    for at in range(0, TESTED, rows):
        some = ids[at : at + rows]
        scores = model(from_numpy(some).to(model.device)).log_softmax(-1)
        total += text.excess(some, scores.numpy()) * len(some)
    return total / TESTED


def _numbers(name: str, text: str, kind: type[Any]) -> list[Any]:
    """Numbers above 0 between commas, each of them once."""
    try:
        found = [kind(part) for part in text.split(",")]
        if all(0 < x < math.inf for x in found):
            return list(dict.fromkeys(found))
    except ValueError:
        pass
    raise typer.BadParameter(
        f"{name} {text}: expected numbers above 0 between commas"
        f"{', whole ones' if kind is int else ''}"
    )


def main(
    path: Annotated[Path, typer.Argument(help="The file of rows, runs.csv.")],
    budgets: Annotated[str, typer.Option(help="Operations.")] = "3e10,1e11,3e11,1e12",
    widths: Annotated[str, typer.Option(help="Of models.")] = "8,12,16,24,32,48,64",
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Pieces of 32 tokens.")] = 16,
    rate: Annotated[float, typer.Option(help="Learning rate at width 16.")] = 0.02,
    power: Annotated[float, typer.Option(help="How it falls with width.")] = 1.5,
    vocab: Annotated[int, typer.Option(help="Tokens of the language.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 1,
    seconds: Annotated[float, typer.Option(help="For all of it.")] = math.inf,
    longest: Annotated[float, typer.Option(help="Seconds of a run.")] = math.inf,
) -> None:
    """Train what is not in the file yet, and add a row for each run."""
    deadline = time.perf_counter() + seconds
    sizes = _numbers("--widths", widths, int)
    costs = _numbers("--budgets", budgets, float)
    text = UrnText(vocab)
    texts, done = Texts(text, batch, device), {run.key for run in read_runs(path)}
    print(f"entropy {text.entropy:.4f} nats a token, {len(done)} runs in {path}")
    for run in plan(costs, sizes, batch, vocab, seeds, rate, power):
        if run.key in done:
            continue
        try:
            run = train(run, texts, deadline, longest)
        except LeftOut as why:
            print(f"C {run.budget:g}, width {run.width}: left out, {why}", flush=True)
            continue
        old = path.read_bytes() if path.exists() else b""
        with path.open("a", newline="") as file:
            file.write("\n" if old and not old.endswith(b"\n") else "")
            rows = csv.writer(file, lineterminator="\n")
            rows.writerows([run] if old else [Run._fields, run])
        print(
            f"C {run.budget:g} N {run.N:,} D {run.D:,}: loss {run.loss:.4f}, "
            f"{run.loss - text.entropy:.4f} above the entropy, {run.seconds} s",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
