"""Pictures for a10: byte pairs, masks, sampling, the cache."""

from __future__ import annotations

import math
from typing import Any

import minitorch
from assignments.pictures import picture
from assignments.pictures.networks import bars
from minitorch.data import BPE
from minitorch.functions.attention import attention_weights
from minitorch.models import GPT, GPTConfig
from minitorch.models.cache import places
from minitorch.models.generation import Sampling
from minitorch.scenes import Scene, part
from minitorch.serving import Engine

A10 = "assignments/a10_language_models"


@picture(f"{A10}/merges")
def merges() -> Scene:
    text, lanes = "aaabdaaabac", []
    learnt = BPE.train(text, 259, pattern=None)
    pairs = learnt.merges or []
    for count in range(len(pairs) + 1):
        some = {token: i for token, i in learnt.tokens.items() if i < 256 + count}
        tokens = BPE(some, pairs[:count], pattern=None)
        at, boxes = 0, []
        for i in tokens.encode(text):
            token = tokens.decode([i])
            boxes.append([at, at + len(token), token, max(0, i - 255)])
            at += len(token)
        name = (
            " + ".join(tokens.decode([i]) for i in pairs[count - 1])
            if count
            else "bytes"
        )
        lanes.append([f"{name}: {len(boxes)} tokens", boxes])
    return [[part("timeline", lanes=lanes)]]


@picture(f"{A10}/mask")
def mask() -> Scene:
    x = minitorch.arange(24.0, device="simple").reshape(6, 4)
    rows = attention_weights(
        (x * 1.7).sin() * 1.5, (x * 0.9).cos() * 1.5, is_causal=True
    )
    cells = [
        [[f"{w:.2f}", 4 if w > 0.4 else int(w > 0.15)] if w else ["", -1] for w in row]
        for row in rows.tolist()
    ]
    names = [f"query {i}: {s}" for i, s in enumerate("to_be_")]
    notes = ["dashed: keys that come later; each row adds up to 1"]
    more: dict[str, Any] = {"cols": list("to_be_"), "rows": names, "notes": notes}
    return [[part("grid", cells=cells, size=(48, 28), **more)]]


@picture(f"{A10}/sampling")
def sampling() -> Scene:
    shares, parts = (0.5, 0.3, 0.1, 0.06, 0.04), []
    scores = minitorch.tensor([[math.log(p) for p in shares]], device="simple")
    for hue, (caption, how) in enumerate(
        (
            ("T = 0.5", Sampling(temperature=0.5)),
            ("T = 1", Sampling()),
            ("T = 2", Sampling(temperature=2.0)),
            ("top_p = 0.7", Sampling(top_p=0.7)),
        ),
        start=1,
    ):
        found = how.probabilities(scores)[0].tolist()
        parts.append(bars("ABCDE", found, hue, 110, caption))
    return [parts]


@picture(f"{A10}/cache")
def cache() -> Scene:
    config = GPTConfig(vocab_size=8, block_size=16, n_layer=1, n_head=1, n_embd=4)
    model, steps, parts = GPT(config).to("simple").eval(), 5, []
    prompt = minitorch.tensor([[1, 2, 3, 4, 5]], device="simple")
    for use_cache, caption in ((False, "without a cache"), (True, "with a cache")):
        read: list[int] = []
        hook = model.wte.register_forward_pre_hook(
            lambda _, args, read=read: read.append(args[0].shape[-1])
        )
        model.generate(prompt, steps, temperature=0, use_cache=use_cache)
        hook.remove()
        cells = []
        for step, count in enumerate(read):
            known, later = 5 + step - count, steps - 1 - step
            cells.append([["", 3]] * known + [["", 2]] * count + [["", -1]] * later)
        more = {"size": (24, 24), "rows": [f"step {i}" for i in range(steps)]}
        notes = [f"{sum(read)} tokens are read"]
        parts.append(part("grid", caption, cells=cells, notes=notes, **more))
    return [parts]


@picture(f"{A10}/slots")
def slots() -> Scene:
    texts, width, length, cells = ("abcd", "efghij"), 8, 6, []
    padding = minitorch.tensor([length - len(t) for t in texts], device="simple")
    memory = minitorch.arange(width, device="simple")
    positions = places(memory[:length], memory[:length], padding).positions.tolist()
    seen: Any = places(memory[length : length + 1], memory, padding).mask
    for text, places_of, sees in zip(texts, positions, seen[:, 0, 0].tolist()):
        left, right = [["", -1]] * (length - len(text)), [["", -1]] * (width - length)
        at = [[str(p), 0] for p in places_of[length - len(text) :]]
        cells += [[*left, *[[s, 1] for s in text], *right], [*left, *at, *right]]
        cells.append([["yes", 3] if yes else ["no", -1] for yes in sees])
    names = ["slot holds", "position", "seen from slot 6"]
    rows = [f"{name}, text {t}" for t in (1, 2) for name in names]
    cols = [str(s) for s in range(width)]
    return [[part("grid", cells=cells, size=(40, 26), cols=cols, rows=rows)]]


@picture("docs/pictures/blocks")
def blocks() -> Scene:
    minitorch.manual_seed(0)
    config = GPTConfig(vocab_size=8, block_size=24, n_layer=1, n_head=1, n_embd=4)
    engine = Engine(GPT(config).to("simple"), 6, 4, max_tokens_per_step=16)
    begin, shown = [1, 2, 3, 4], {}
    coming = {
        0: ("A", [*begin, 5, 6], 11), 2: ("B", [*begin, 7], 8), 4: ("C", [6, 6, 6], 7),
        12: ("D", [*begin, 1, 2], 4),
    }  # fmt: skip
    lanes: list[Any] = [[f"block {i}", []] for i in range(engine.pool.size)]
    step = 0
    while engine.busy or step <= max(coming):
        if step in coming:
            name, prompt, tokens = coming[step]
            shown[engine.add(prompt, tokens, temperature=0)] = name
        engine.step()
        for i, (_, spans) in enumerate(lanes):
            users = [t.id for t in engine.running if i in t.blocks]
            text = " ".join(shown[id] for id in users)
            if spans and spans[-1][1:3] == [step, text]:
                spans[-1][1] += 1
            elif users:
                spans.append([step, step + 1, text, users[0]])
        step += 1
    waits = engine.stats()
    notes = [f"texts that gave all back: {waits['preemptions']}; tokens that were "
             f"there already: {waits['prefix_hit_tokens']}"]  # fmt: skip
    ticks = [[i, str(i)] for i in range(0, step, 4)]
    return [[part("timeline", lanes=lanes, ticks=ticks, unit=26, notes=notes)]]
