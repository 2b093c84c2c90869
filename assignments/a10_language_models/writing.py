"""What the tasks of a10 that train and write are checked with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assignments import gpts
from assignments.a10_language_models import calls
from assignments.a10_language_models.reference import Model
from assignments.checks import Check, Inputs
from assignments.compare import Difference, difference
from assignments.draw import Draw
from assignments.oracles import as_torch

DEFINITION = "the definition"
KINDS = tuple(gpts.KINDS)
WIDTH = gpts.SIZES["n_embd"]
# Sizes of ids, or of x.
TEXTS = {"n": (1, 2), "length": (1, 4)}
TEXT_EDGES = ({"n": 1, "length": 1}, {"n": 2, "length": 8})


def seed_of(draw: Draw) -> int:
    """A seed of a model's parameters."""
    return draw.integer(0, 1 << 30)


def ids_of(draw: Draw, shape: Sequence[int]) -> np.ndarray:
    """Tokens of such a model."""
    return draw.array(shape, "int64", 0, gpts.SIZES["vocab_size"] - 1)


# --------------------------------------------------------------------------- training


def _windows_inputs(draw: Draw, size: int, more: int, dims: int) -> Inputs:
    tokens = draw.array((size + more,), draw.choice(("int64", "int32")), 0, 99)
    shape = tuple(draw.integer(1, 3) for _ in range(dims))
    return {
        "tokens": tokens,
        "size": size,
        "indices": draw.array(shape, "int64", 0, more - 1),
    }


def _windows_expected(
    tokens: np.ndarray, size: int, indices: np.ndarray
) -> dict[str, Any]:
    rows = as_torch(tokens).long().unfold(0, size + 1, 1)[as_torch(indices)]
    return {"x": rows[..., :-1].numpy(), "y": rows[..., 1:].numpy()}


def _rates_inputs(draw: Draw, warmup: int, more: int) -> Inputs:
    most = draw.choice((1.0, 0.02))
    return {"steps": warmup + more, "most": most, "warmup": warmup}


def _rates_expected(steps: int, most: float, warmup: int) -> dict[str, Any]:
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR

    rising = [most * (n + 1) / warmup for n in range(warmup)]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=most)
    falling = CosineAnnealingLR(optimizer, max(1, steps - warmup), most / 10)
    for _ in range(steps - warmup):
        rising.append(float(falling.get_last_lr()[0]))
        optimizer.step()
        falling.step()
    return {"rates": rising}


def _target_inputs(draw: Draw, n: int, length: int) -> Inputs:
    targets = ids_of(draw, (n, length))
    left_out = draw.array((n, length), "bool") & draw.choice((True, False))
    left_out[0, 0] = False
    return {
        "kind": draw.choice(KINDS),
        "seed": seed_of(draw),
        "ids": ids_of(draw, (n, length)),
        "targets": np.where(left_out, -1, targets),
    }


def _loss(model: Model, ids: np.ndarray, targets: np.ndarray) -> Any:
    from torch.nn.functional import cross_entropy

    scores = model.scores(ids).flatten(0, 1)
    return cross_entropy(scores, as_torch(targets).flatten(), ignore_index=-1)


def _losses_expected(
    kind: str, seed: int, ids: np.ndarray, targets: np.ndarray
) -> dict[str, Any]:
    loss = _loss(Model(kind, 1, seed), ids, targets).item()
    both = [[loss, True], [loss, False]]
    return {"loss": loss, "validation": both, "recorded": True}


def _steps_inputs(draw: Draw, **sizes: int) -> Inputs:
    return {**_target_inputs(draw, **sizes), "lr": draw.choice((0.125, 0.5))}


def _steps_expected(
    kind: str, seed: int, ids: np.ndarray, targets: np.ndarray, lr: float
) -> dict[str, Any]:
    import torch

    model = Model(kind, 1, seed)
    optimizer = torch.optim.SGD(model.given.values(), lr=lr)
    lost = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = _loss(model, ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.given.values(), 1.0)
        optimizer.step()
        lost.append(loss.item())
    after = {
        n: model.given[n].detach().numpy().reshape(-1) for n in sorted(model.given)
    }
    return {"losses": lost, "training": True, **after}


SHARE = 0.95  # of the loss of a table of pairs, which the model must stay below
SIZE, UNSEEN, COUNT = 16, 250, 120
_ANSWERS: dict[str, tuple[np.ndarray, float]] = {}  # by the contexts


def _language(random: np.random.Generator, count: int, words: list[list[int]]) -> Any:
    """`count` characters: words, each with a 0 behind it, the first ones the most."""
    often = 1 / np.arange(1, len(words) + 1)
    found: list[int] = []
    while len(found) < count:
        found += [*words[random.choice(len(words), p=often / often.sum())], 0]
    return np.array(found[:count], np.int32)


def _learned_inputs(draw: Draw) -> Inputs:
    """A language of eight words of five letters, and two texts in it."""
    seed = draw.integer(0, 1 << 30)
    random = np.random.default_rng([seed, 10])
    words = [random.integers(1, 6, 4 + i % 3).tolist() for i in range(8)]
    words[0][:5] = [1, 2, 3, 4, 5][: len(words[0])]  # each letter is in one
    words[1][-1] = 5
    tokens = _language(random, 6000, words)
    unseen = _language(random, 13 * UNSEEN + SIZE, words)
    starts = 13 * np.arange(UNSEEN)
    rows = unseen[starts[:, None] + np.arange(SIZE + 1)]
    counts = np.ones((6, 6))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    by_pairs = np.log(counts.sum(1)[rows[:, -2]] / counts[rows[:, -2], rows[:, -1]])
    while len(_ANSWERS) > 8:
        del _ANSWERS[next(iter(_ANSWERS))]
    contexts = rows[:, :-1].copy()
    _ANSWERS[_name(contexts)] = rows[:, -1].astype(np.int64), float(by_pairs.mean())
    return {"tokens": tokens, "contexts": contexts, "count": COUNT, "seed": seed}


def _name(contexts: np.ndarray) -> str:
    return hashlib.sha256(contexts.astype(np.int32).tobytes()).hexdigest()


@dataclass(frozen=True)
class Spells(Check):
    """A model must have learned to spell: it knows what follows in a text that it never
    saw, better than who knows one character before, and all pairs of them.

    What follows there never leaves this process.
    """

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """Why that is not so, or None."""
        right = self.expected(**inputs)
        found = outputs.get("scores") if isinstance(outputs, dict) else None
        losses = outputs.get("losses") if isinstance(outputs, dict) else None
        known = isinstance(found, np.ndarray) and found.dtype == np.float32
        if known and found.shape == right["scores"].shape:
            lost, by_pairs = _unseen_loss(inputs["contexts"], found)
            if not lost < SHARE * by_pairs:
                text = "the model does not know what follows in a text it has not seen"
                least = f"less than {SHARE:g} of {by_pairs:.3f}, a table of pairs' loss"
                return Difference("scores", text, f"a loss of {lost:.3f}", least)
            right["scores"] = found
        if isinstance(losses, list) and len(losses) == inputs["count"]:
            first, last = np.mean(losses[:3]), np.mean(losses[-10:])
            if not last < 0.8 * first:
                text = f"{first:.3f} in the first 3 steps, {last:.3f} in the last 10"
                return Difference("losses", "the loss does not fall", text)
            right["losses"] = losses
        return difference(right, outputs, inputs)


def _unseen_loss(contexts: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The loss of the model, and that of the table of pairs."""
    from torch.nn.functional import cross_entropy

    answers, by_pairs = _ANSWERS[_name(contexts)]
    return float(cross_entropy(as_torch(scores), as_torch(answers))), by_pairs


def _learned_expected(contexts: np.ndarray, count: int, **rest: Any) -> dict[str, Any]:
    scores = np.zeros((len(contexts), 6), np.float32)
    return {"losses": [0.0] * count, "scores": scores}


TRAINING = (
    Check(
        *("a10.4", "windows", calls.windows, _windows_inputs, _windows_expected),
        {"size": (1, 4), "more": (1, 4), "dims": (0, 2)},
        ({"size": 1, "more": 1, "dims": 1}, {"size": 9, "more": 20, "dims": 2}),
        hint="y is x one step later, so a window takes one token more than its size.",
    ),
    Check(
        *("a10.4", "learning rates", calls.rates, _rates_inputs, _rates_expected),
        *({"warmup": (1, 4), "more": (0, 6)}, ({"warmup": 1, "more": 0},)),
        tolerance=1e-6,
        examples=12,
        hint="At step `warmup` the cosine is at its top, at step `steps` it would be "
        "at a tenth of `most`.",
    ),
    Check(
        *("a10.4", "loss", calls.losses, _target_inputs, _losses_expected),
        *(TEXTS, ({"n": 2, "length": 8},)),
        tolerance=1e-4,
        examples=6,
        hint="Targets of -1 do not count. A validation drops nothing, records nothing, "
        "and leaves the model in the mode that it was in.",
    ),
    Check(
        *("a10.4", "two steps", calls.steps, _steps_inputs, _steps_expected),
        *(TEXTS, ({"n": 2, "length": 8},)),
        tolerance=1e-3,
        examples=6,
        hint="Gradients add up: set them to zero before each backward(). They are "
        "shortened before the optimizer looks at them.",
    ),
    Spells(
        *("a10.4", "learns to spell", calls.learned),
        *(_learned_inputs, _learned_expected),
        examples=1,
        oracle="the unseen text",
        hint="Look at the loss of each step. Does the learning rate rise, and fall?",
    ),
)

# --------------------------------------------------------------------------- sampling


def _sampling_inputs(draw: Draw, n: int, vocab: int) -> Inputs:
    return {
        "scores": draw.array((n, vocab), "float32", -4, 4),
        "temperature": draw.choice((1.0, 0.5, 2.0)),
        "k": draw.choice((0, 1, 3, 6)),
        "p": draw.choice((1.0, 0.37, 0.61, 0.93)),
    }


def _chances(scores: np.ndarray, temperature: float, k: int, p: float) -> Any:
    """What each token is drawn with, by PyTorch in float64."""
    import torch

    a = as_torch(scores).double() / temperature
    if 0 < k < a.shape[-1]:
        a = a.masked_fill(a < a.topk(k, -1).values[:, -1:], -math.inf)
    if p < 1:
        shares = torch.softmax(a, -1)
        # The share of all that are better: a token is out where they are enough.
        better = (shares[:, None, :] * (a[:, None, :] > a[:, :, None])).sum(-1)
        a = a.masked_fill(better >= p, -math.inf)
    return torch.softmax(a, -1)


def _sampling_expected(**given: Any) -> dict[str, Any]:
    return {"out": _chances(**given).float().numpy()}


def _drawn_inputs(draw: Draw, vocab: int) -> Inputs:
    """The first token is the worst: of numbers that are alike argmax takes it."""
    given = _sampling_inputs(draw, 1, vocab)
    k = draw.choice((2, 4))
    few = {"temperature": given["temperature"], "k": k}
    scores = given["scores"][0]
    worst = int(scores.argmin())
    scores[0], scores[worst] = scores[worst], scores[0]
    return {"scores": scores, **few, "seed": seed_of(draw), "count": 3000}


def _drawn_expected(count: int, **rest: Any) -> dict[str, Any]:
    return {"tokens": np.zeros(count, np.int64), "at 0": np.zeros(3, np.int64)}


class Draws(Check):
    """Tokens are drawn as often as their probabilities say."""

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """Why that is not so, or None."""
        right = self.expected(**inputs)
        scores, temperature, k = (inputs[n] for n in ("scores", "temperature", "k"))
        chances = _chances(scores[None], temperature, k, 1.0)[0].numpy()
        for name, few in right.items():
            made = outputs.get(name) if isinstance(outputs, dict) else None
            if isinstance(made, np.ndarray) and made.shape == few.shape:
                found = _unlikely(name, made, chances)
                if found is not None:
                    return found
                right[name] = made.astype(few.dtype)
        return difference(right, outputs, inputs)


def _unlikely(name: str, made: np.ndarray, chances: np.ndarray) -> Difference | None:
    """Numbers of draws that come once in 10 000 submissions, or never."""
    if made.dtype != np.int64 or not ((0 <= made) & (made < len(chances))).all():
        return Difference(name, "these are no tokens", str(made[:8]))
    counts, count = np.bincount(made, minlength=len(chances)), len(made)
    if (counts[chances == 0] > 0).any():
        return Difference(name, "a token was drawn whose probability is 0")
    if name == "at 0":
        return None
    allowed = 5.5 * np.sqrt(count * chances * (1 - chances)) + 1
    if (np.abs(counts - count * chances) > allowed).any():
        text = "tokens are not drawn as often as their probabilities say"
        said = [str(np.round(x, 3)) for x in (counts / count, chances)]
        return Difference(name, text, *said)
    return None


SAMPLING = (
    Check(
        *("a10.5", "probabilities", calls.probabilities),
        *(_sampling_inputs, _sampling_expected),
        *({"n": (1, 2), "vocab": (1, 6)}, ({"n": 3, "vocab": 40},)),
        tolerance=1e-5,
        examples=60,
        hint="First the temperature, then the best k, then the fewest that have the "
        "share p. The one that reaches p is still among them.",
    ),
    Check(
        *("a10.5", "the best token", calls.best),
        lambda draw, n, vocab: {"scores": draw.array((n, vocab))},
        lambda scores: {"out": scores.argmax(1)},
        *({"n": (1, 3), "vocab": (1, 5)},),
        examples=8,
        oracle="NumPy",
    ),
    Draws(
        *("a10.5", "draws", calls.drawn, _drawn_inputs, _drawn_expected),
        *({"vocab": (2, 5)}, ({"vocab": 8},)),
        examples=3,
        oracle="probability",
        hint="A time -log(1 - u) / p for each token; who is first? And where u is 0?",
    ),
)

# -------------------------------------------------------------------------- the cache


def _placed_inputs(draw: Draw, count: int, more: int, n: int) -> Inputs:
    """More slots than tokens, as in a cache, or as many, as without one."""
    first = draw.integer(0, more)
    padding = draw.array((n,), "int64", 0, count) if n else None
    length = count + more
    return {"first": first, "count": count, "length": length, "padding": padding}


def _placed_expected(
    first: int, count: int, length: int, padding: np.ndarray | None
) -> dict[str, Any]:
    whole = count == length
    slots, keys = first + np.arange(count), np.arange(length)
    left = np.zeros(1, np.int64) if padding is None else padding
    positions = np.maximum(slots - left[:, None], 0)
    seen = (slots[:, None] >= keys) & (keys >= left[:, None, None])
    mask = None if whole and padding is None else seen[:, None]
    return {"positions": positions, "mask": mask}


def _kept_inputs(draw: Draw, n: int, first: int, more: int) -> Inputs:
    kind = draw.choice(("gpt2", "gpt"))
    counts = [first, *[draw.choice((1, 2)) for _ in range(more)]]
    few = gpts.KINDS[kind].get("n_kv_head", gpts.SIZES["n_head"])
    shape = n, 2 * few, sum(counts) + 1, WIDTH // gpts.SIZES["n_head"]
    back = draw.integer(0, min(2, sum(counts) - 1))
    return {"kind": kind, "counts": counts, "keys": draw.array(shape), "back": back}


def _kept_expected(
    kind: str, counts: Sequence[int], keys: np.ndarray, back: int
) -> dict[str, Any]:
    n, both, _, size = keys.shape
    few, most = both // 2, gpts.SIZES["block_size"]
    memory = np.zeros((2, n, both, most, size), np.float32)
    seen: list[np.ndarray] = []
    slots, at, full = [], 0, 0
    for count in (*counts, 1):
        full -= back if at == sum(counts) else 0
        new = keys[:, :, at : at + count]
        for layer in (0, 1):
            memory[layer, :, :, full : full + count] = (layer + 1) * new
            seen.append((layer + 1) * new if at == 0 else memory[layer].copy())
        where = np.arange(full, full + count)
        masked = (where[:, None] >= np.arange(most))[None, None] if at else None
        at, full = at + count, full + count
        slots.append([where[None], masked, np.array([full])])
    return {
        "keys": [x[:, :few] for x in seen],
        "values": [x[:, few:] for x in seen],
        "slots": slots,
        "memory": memory,
        "in place": True,
        "slot in place": True,
    }


def _stepwise_inputs(draw: Draw, n: int, length: int) -> Inputs:
    ids, first = ids_of(draw, (n, length)), draw.integer(1, length)
    padding = None
    if draw.choice((False, True)):
        padding = draw.array((n,), "int64", 0, first - 1)
    given = {"kind": draw.choice(KINDS), "seed": seed_of(draw)}
    return {**given, "ids": ids, "first": first, "padding": padding}


def _stepwise_expected(
    kind: str, seed: int, ids: np.ndarray, first: int, padding: np.ndarray | None
) -> dict[str, Any]:
    """Each text by itself, at once, and without what is no token of it."""
    model, rows = Model(kind, 2, seed), []
    for row, left in zip(ids, np.zeros(len(ids), int) if padding is None else padding):
        out = model.scores(row[None, left:])[0].detach().numpy()
        rows.append(np.concatenate([np.full((left, out.shape[1]), np.nan), out]))
    return {"scores": np.stack(rows).astype(np.float32)}


class Stepwise(Check):
    """What a model says behind the padding does not count."""

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """Why the scores are wrong, or None."""
        right = self.expected(**inputs)
        made = outputs.get("scores") if isinstance(outputs, dict) else None
        if isinstance(made, np.ndarray) and made.shape == right["scores"].shape:
            blank = np.isnan(right["scores"])
            outputs = {**outputs, "scores": np.where(blank, np.float32(0), made)}
            right["scores"] = np.where(blank, np.float32(0), right["scores"])
        return difference(right, outputs, inputs, self.tolerance)


def _written_inputs(draw: Draw, n: int, most: int, count: int) -> Inputs:
    prompts = [ids_of(draw, (draw.integer(1, most),)).tolist() for _ in range(n)]
    given = {"kind": draw.choice(KINDS), "seed": seed_of(draw), "prompts": prompts}
    return {**given, "count": count, "use_cache": draw.choice((True, False))}


def _written_expected(
    kind: str, seed: int, prompts: calls.Pairs, count: int, use_cache: bool
) -> dict[str, Any]:
    model, size, tokens = Model(kind, 1, seed), gpts.SIZES["block_size"], []
    longest = max(map(len, prompts))
    for prompt in prompts:
        row = list(prompt)
        for _ in range(count):
            # Of a text that is cut, the padding of the batch is cut first.
            seen = row[-min(len(row), size) :]
            row.append(int(model.scores(np.array([seen]))[0, -1].argmax()))
        tokens.append(row[len(prompt) :])
    lengths = [min(longest + n, size) for n in range(count)]
    if use_cache and longest < size and count > 1:
        lengths[1:] = [1 if longest + n <= size else size for n in range(1, count)]
    return {"tokens": tokens, "read": lengths}


CACHE = (
    Check(
        *("a10.6", "places", calls.placed, _placed_inputs, _placed_expected),
        {"count": (1, 3), "more": (0, 3), "n": (0, 2)},
        ({"count": 5, "more": 0, "n": 0}, {"count": 4, "more": 5, "n": 3}),
        oracle=DEFINITION,
        hint="A token sees the slots until its own, but none that is padding. The "
        "first slot that is none has the position 0.",
    ),
    Check(
        *("a10.6", "what is kept", calls.kept, _kept_inputs, _kept_expected),
        {"n": (1, 2), "first": (1, 3), "more": (0, 2)},
        ({"n": 2, "first": 3, "more": 2},),
        examples=10,
        oracle=DEFINITION,
        hint="Memory is taken once, and `slot` changes where it lies. `writing` are "
        "the slots of the tokens that are read; all layers write there, before `slot` "
        "goes on.",
    ),
    Stepwise(
        *("a10.6", "one token at a time", calls.stepwise),
        *(_stepwise_inputs, _stepwise_expected, {"n": (1, 2), "length": (1, 4)}),
        ({"n": 1, "length": 8}, {"n": 3, "length": 6}),
        tolerance=3e-4,
        examples=12,
        hint="Scores must be those of the whole text, read at once. Compare the "
        "positions and the mask of the second token by hand.",
    ),
    Check(
        *("a10.6", "generate", calls.written, _written_inputs, _written_expected),
        {"n": (1, 2), "most": (1, 5), "count": (1, 4)},
        ({"n": 2, "most": 4, "count": 7}, {"n": 3, "most": 10, "count": 3}),
        examples=8,
        hint="With a cache, a step reads one token of each text. A text that has grown "
        "too long is cut at its left, together with its padding.",
    ),
)
