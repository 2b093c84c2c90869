"""What a18 runs in the student's process: pools, keys, tables, steps, guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

Ops = Sequence[Sequence[Any]]
MOST = 100_000  # ways that a program of draws may go, until it is stopped


def pool(device: str, size: int, block_size: int, ops: Ops) -> dict[str, Any]:
    """`BlockPool`, by one call after the other; what each of them has done.

    Texts and blocks have the numbers of their calls, since it is left open which of
    several blocks without a key is taken.
    """
    from minitorch.serving.blocks import BlockPool, OutOfBlocksError

    made = BlockPool(size, block_size)
    texts: list[list[int]] = []
    marks: dict[int, int] = {}  # of a block: the call that gave it its key
    log: list[Any] = []
    for number, (name, *given) in enumerate(ops):
        said: Any = "done"
        try:
            if name == "take":
                texts.append(made.take(given[0]))
                said = len(set(texts[-1]))
            elif name == "share":
                texts.append(made.share([key.encode() for key in given[0]]))
                said = [marks.get(block) for block in texts[-1]]
            elif name == "publish":
                block, key = texts[given[0]][given[1]], given[2].encode()
                before = dict(made._known)
                made.publish(block, key)
                if made._known != before:
                    marks[block] = number
            elif name == "twice":
                made.release([texts[given[0]][given[1]]])
            else:  # "keep": the text knows what it had
                made.release(texts[given[0]])
                texts[given[0]] = [] if name == "release" else texts[given[0]]
        except (OutOfBlocksError, ValueError) as error:
            said = type(error).__name__
        used = [[made.references[block] for block in text] for text in texts]
        alone = len({block for text in texts for block in text})
        known = sorted(key.decode() for key in made._known)
        log.append([said, used, alone, made.used, made.available, known])
    need = [made.blocks_for(n) for n in range(3 * block_size + 2)]
    return {"log": log, "blocks for 0, 1, ... tokens": need}


def keys(device: str, texts: Ops, cut: int, block_size: int) -> dict[str, Any]:
    """`extend_keys`: which blocks have the same key, in two steps and at once."""
    from minitorch.serving.blocks import extend_keys

    found, first = [], []
    for text in texts:
        mine: list[bytes] = []
        extend_keys(mine, text[:cut], block_size)
        first.append(len(mine))
        extend_keys(mine, text, block_size)
        found.append(mine)
    numbers: dict[bytes, int] = {}
    named = [[numbers.setdefault(key, len(numbers)) for key in row] for row in found]
    return {
        "alike": named,
        "so many at first": first,
        "short": all(type(k) is bytes and len(k) <= 64 for row in found for k in row),
    }


def tables(
    device: str, block_size: int, parts: Ops, blocks: int, pages: int
) -> dict[str, Any]:
    """`PagedCache._tables` and `_places`"""
    from minitorch.models import GPTConfig
    from minitorch.serving.cache import PagedCache, Part

    config = GPTConfig(n_layer=1, n_head=1, n_embd=2, vocab_size=2)
    cache = PagedCache(config, blocks, block_size, device)
    given = [Part(list(b), first, count) for b, first, count in parts]
    positions, slots, wide = cache._places(given, pages)
    narrow = cache._tables(given, max(len(b) for b, _, _ in parts))
    found = {"positions": positions, "slots": slots, "of tokens": wide}
    found["of texts"] = narrow
    return {name: np.array(value, np.int64) for name, value in found.items()}


def steps(
    device: str, blocks: int, block_size: int, batch: int, budget: int, texts: Ops
) -> dict[str, Any]:
    """`Engine.step`, where no model is asked: token n of text i is `token(i, n)`.

    texts: when each comes, its prompt, and how many tokens are wanted.
    """
    from minitorch.models import GPT
    from minitorch.serving import Engine

    model = GPT.preset(
        "tiny", vocab_size=16, n_layer=1, n_head=1, n_embd=2, block_size=64
    )
    engine: Any = Engine(model, blocks, block_size, batch, budget)
    engine._scores = lambda *_: None
    engine._chosen = lambda ready, _: [token(t.id, len(t.tokens)) for t in ready]
    log: list[Any] = []
    plan = engine._schedule

    def watched() -> Any:
        before = {t.id for t in engine.running}
        chunks = list(plan())
        lengths = [count for _, count in chunks]
        ones = [count == 1 for count in lengths]
        log.append([
            sorted([t.id, t.read, count] for t, count in chunks),
            ones == sorted(ones, reverse=True),
            [t.id for t in engine.running],
            [t.id for t in engine.waiting],
            engine.pool.used,
            [len(t.blocks) for t in engine.running],
            len({t.id for t in engine.running} - before),
        ])  # fmt: skip
        return chunks

    engine._schedule = watched
    written: dict[str, list[Any]] = {}
    rest = list(texts)
    for now in range(300):
        while rest and rest[0][0] <= now:
            _, prompt, count = rest.pop(0)
            engine.add(list(prompt), count)
        for id, new, _ in engine.step():
            written.setdefault(str(id), []).append(new)
        if not rest and not engine.busy:
            break
    names = "preemptions", "prefix_tokens", "prefix_hit_tokens"
    counts = {name: engine.stats()[name] for name in names}
    return {
        "steps": log, "written": written, "used in the end": engine.pool.used, **counts,
    }  # fmt: skip


def token(text: int, length: int) -> int:
    """What stands in the place of a model."""
    return (7 * text + length * length) % 16


# ------------------------------------------------------------------------- guesses


class NoMore(Exception):
    """A program asks for a number that was not thought of yet."""


class Numbers:
    """These parts of `grid`, one after the other, as numbers in [0, 1)."""

    def __init__(self, path: Sequence[int], grid: int) -> None:
        self.rest, self.grid = list(path), grid

    def __call__(self) -> float:
        if not self.rest:
            raise NoMore
        return (self.rest.pop(0) + 0.5) / self.grid


def ways(run: Callable[[Callable[[], float]], Any], grid: int) -> Iterator[Any]:
    """(what run(uniform) returns, how likely that is), for all ways it can go.

    A number in [0, 1) is one of `grid` that stand for equal parts of it: of a program
    that asks at multiples of 1 / grid alone, this is all that can happen.
    """
    todo: list[tuple[int, ...]] = [()]
    count = 0
    while todo:
        path = todo.pop()
        count += 1
        if count > MOST:
            raise RuntimeError("it asks for numbers without an end")
        try:
            out = run(Numbers(path, grid))
        except NoMore:
            todo += [(*path, i) for i in range(grid)]
        else:
            yield out, float(grid) ** -len(path)


def drawn(device: str, weights: np.ndarray, grid: int) -> dict[str, Any]:
    """How often `draw` gives each token."""
    from minitorch.models.speculative import draw

    shares = np.zeros(len(weights))
    for made, share in ways(lambda uniform: draw(weights.copy(), uniform), grid):
        shares[made] += share
    return {"shares": shares}


def judged(
    device: str, small: np.ndarray, large: np.ndarray, grid: int
) -> dict[str, Any]:
    """How often `judge` makes each text, over all guesses and draws.

    shares: of texts of all lengths. A text that ends early goes on as the large model
    does, so that each has n + 1 tokens.
    """
    from minitorch.models.speculative import judge

    n, vocab = small.shape
    shares, lengths = np.zeros((vocab,) * (n + 1)), np.zeros(n + 2)
    for guesses in np.ndindex(*small.shape[1:] * n):
        chance = float(np.prod([small[i, g] for i, g in enumerate(guesses)]))
        if not chance:
            continue
        run = partial(judge, list(guesses), small.copy(), large.copy())
        for made, share in ways(run, grid):
            lengths[len(made)] += chance * share
            rest = np.ones(())
            for row in large[len(made) :]:
                rest = np.multiply.outer(rest, row)
            shares[tuple(made)] += chance * share * rest
    return {"shares": shares, "lengths": lengths}


class Table:
    """A model whose expectations follow from the last token alone."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.steps = rows, 0

    def expects(self, text: list[int]) -> np.ndarray:
        self.steps += 1
        found: np.ndarray = self.rows[np.array(text)]
        return found


def written(
    device: str, small: np.ndarray, large: np.ndarray, count: int, ahead: int,
    grid: int,
) -> dict[str, Any]:  # fmt: skip
    """How often `speculate` makes each text of `count` tokens behind [0]."""
    from minitorch.models.speculative import speculate

    shares = np.zeros((len(small),) * count)
    read = enough = 0.0

    def run(uniform: Callable[[], float]) -> Any:
        models = Table(large), Table(small)
        made = speculate(*models, [0], count, ahead, uniform=uniform)
        return made, models[0].steps

    for (made, reads), share in ways(run, grid):
        shares[tuple(made[:count])] += share
        read += share * reads
        enough += share * (len(made) <= count + ahead)
    return {"shares": shares, "steps of the large model": read, "no more": enough}
