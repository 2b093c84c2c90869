"""What a11 is checked with; the oracle is PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from assignments.a11_flash_attention import calls
from assignments.checks import AnyCheck, Check, Speed, sizes_of
from assignments.draw import Draw
from assignments.oracles import as_torch
from assignments.simulated import simulates

SIMULATED = simulates("cuda")


# -------------------------------------------------------------------- online softmax


def _online_inputs(draw: Draw, keys: int, size: int, lines: int) -> dict[str, Any]:
    first = draw.choice((-1, -1, 0, 64, 70))
    keys = min(keys, first + lines) if first >= 0 else keys
    high = draw.choice((2.0, 30.0, 200.0))
    scores = draw.array((keys, lines), low=-high, high=high)
    if first < 0 and draw.choice((False, True)):  # as by a mask, but the last key
        scores[: min(size, keys - 1), lines // 2 :] = -np.inf
    return {"scores": scores, "size": size, "first_query": first}


def _online_expected(scores: np.ndarray, size: int, first_query: int) -> dict[str, Any]:
    import torch

    x = as_torch(scores).double()
    if first_query >= 0:
        key, query = torch.arange(x.shape[0]), torch.arange(x.shape[1])
        hidden = key[:, None] > query + first_query
        x = x.masked_fill(hidden, -torch.inf)
    top = x.max(0).values
    made = {"top": top, "total": (x - top).exp().sum(0), "softmax": x.softmax(0)}
    return {name: a.float().numpy() for name, a in made.items()}


ONLINE = (
    Check(
        "a11.1",
        "blocks of any size",
        calls.online,
        _online_inputs,
        _online_expected,
        {"keys": (1, 9), "size": (1, 9), "lines": (1, 5)},
        sizes_of(
            "keys size lines",
            *((1, 1, 1), (17, 1, 5), (40, 7, 64), (129, 128, 63), (300, 128, 64)),
            *((128, 128, 9), (65, 64, 64)),
        ),
        length=lambda scores, **rest: 4 * len(scores),
        examples=30,
        hint="Is what was summed up before relative to the new maximum? decay is the "
        "factor for it, and for all weights of earlier blocks.",
    ),
)

# ------------------------------------------------------------------------- attention

# Batches, heads of keys, and heads of queries for each of them; then as everywhere.
DIMS = "B K group L S E V"
SMALL = {"B": (1, 2), "K": (1, 2), "group": (1, 2), "L": (1, 5), "S": (1, 6)}
SMALL |= {"E": (1, 5), "V": (1, 5)}
# Around blocks of 64 queries and of 128 keys; groups of heads; more keys than queries.
EDGES = sizes_of(
    DIMS,
    *((1, 1, 1, 63, 63, 16, 16), (1, 1, 1, 64, 64, 8, 24), (1, 2, 1, 65, 65, 16, 16)),
    *((1, 1, 1, 128, 128, 8, 8), (1, 1, 2, 129, 129, 40, 8), (2, 2, 2, 9, 300, 16, 16)),
    *((1, 1, 1, 300, 70, 8, 8), (1, 2, 1, 257, 257, 33, 9), (1, 1, 1, 1, 1, 1, 1)),
)


def _heads(
    draw: Draw, B: int, K: int, group: int, L: int, S: int, E: int, V: int
) -> dict[str, Any]:
    shapes = {"query": (B, K * group, L, E), "key": (B, K, S, E), "value": (B, K, S, V)}
    high = draw.choice((2.0, 2.0, 4.0))
    return {name: draw.array(s, low=-high, high=high) for name, s in shapes.items()}


def _how(draw: Draw, query: np.ndarray, key: np.ndarray) -> dict[str, Any]:
    shape = (*query.shape[:-1], key.shape[-2])
    return {
        "scale": draw.choice((0.25, 1.0, 0.1)),
        "causal": bool(draw.integer(0, 1)),
        "layout": draw.choice(("contiguous", calls.FEATURES, "stepped")),
        "mask": _mask(draw, shape),
        "drop": (draw.choice((0.0, 0.0, 0.25)), draw.integer(0, 2**20), 8),
    }


def _mask(draw: Draw, shape: tuple[int, ...]) -> Any:
    """None, or numbers, or bools [B, H, L, S]; some queries see no key of a block."""
    kind = draw.choice(("none", "numbers", "bools"))
    hidden = draw.array(shape, "int64", 0, 3) == 0
    hidden[..., :1, :] = draw.choice((False, True))
    hidden[..., -1:, :128] = True
    if kind == "bools":
        return ~hidden
    numbers = np.where(hidden, np.float32(-np.inf), draw.array(shape))
    return numbers if kind == "numbers" else None


def _attention_inputs(draw: Draw, **sizes: int) -> dict[str, Any]:
    heads = _heads(draw, **sizes)
    return {**heads, **_how(draw, heads["query"], heads["key"])}


def _attended(
    query: Any, key: Any, value: Any, scale: float, causal: bool, mask: Any, drop: Any
) -> Any:
    """out and logsumexp of tensors of PyTorch's, 0 and -inf where no key is seen."""
    import torch

    keys, values = (
        x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value)
    )
    scores = query @ keys.mT * scale
    seen = torch.ones_like(scores, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    if mask is not None and mask.dtype == bool:
        seen = seen & as_torch(mask)
    elif mask is not None:
        scores = scores + as_torch(mask)
    scores = scores.masked_fill(~seen, -torch.inf)
    ends = scores.detach().logsumexp(-1)
    none = ends.isinf().unsqueeze(-1)
    weights = scores.masked_fill(none, 0).softmax(-1).masked_fill(none, 0)
    return (weights * _kept(scores.shape, drop)) @ values, ends


def _kept(shape: tuple[int, ...], drop: tuple[float, int, int]) -> Any:
    """What dropout multiplies weights by."""
    if not drop[0]:
        return 1
    from minitorch.backend import get_backend
    from minitorch.dtypes import float32

    kept = get_backend("cpu").kept_weights(tuple(shape), drop, float32)
    return as_torch(kept.array())


def _attention_expected(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    causal: bool,
    mask: np.ndarray | None = None,
    drop: tuple[float, int, int] = (0.0, 0, 0),
    **how: Any,
) -> dict[str, Any]:
    operands = [as_torch(x).double() for x in (query, key, value)]
    out, ends = _attended(*operands, scale, causal, mask, drop)
    return {"out": out.float().numpy(), "logsumexp": ends.float().numpy()}


def _length(query: np.ndarray, key: np.ndarray, **rest: Any) -> int:
    # A score of E products can be 64 times as large as 1, and a sum has S of them.
    return 16 * (query.shape[-1] + key.shape[-2])


def _gradient_inputs(draw: Draw, **sizes: int) -> dict[str, Any]:
    heads = _heads(draw, **sizes)
    how = _how(draw, heads["query"], heads["key"])
    grad = draw.array((*heads["query"].shape[:-1], heads["value"].shape[-1]))
    forward = _attention_expected(**heads, **how)
    return {"grad": grad, **heads, **forward, **how}


def _gradients_expected(
    grad: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    causal: bool,
    mask: np.ndarray | None = None,
    drop: tuple[float, int, int] = (0.0, 0, 0),
    **how: Any,
) -> dict[str, Any]:
    import torch

    operands = [as_torch(x).double().requires_grad_() for x in (query, key, value)]
    out, _ = _attended(*operands, scale, causal, mask, drop)
    grads = torch.autograd.grad((out * as_torch(grad)).sum(), operands)
    return {name: g.float().numpy() for name, g in zip(calls.GRADS, grads)}


ATTENTION = (
    Check(
        "a11.2",
        "attention",
        calls.attend,
        _attention_inputs,
        _attention_expected,
        SMALL,
        EDGES,
        length=_length,
        examples=20,
        hint="The last block of keys can be shorter. What `out` has of earlier blocks "
        "is multiplied by decay; before the first one it holds garbage.",
    ),
    Check(
        "a11.2",
        "memory for blocks alone",
        calls.memory,
        lambda draw: {"width": 8, "few": 256, "many": 4096},
        lambda **inputs: {"memory grows with the keys": False},
        examples=1,
        hint="The weights of one block of keys take the place of those before.",
        oracle="the definition",
    ),
    Check(
        "a11.3",
        "gradients",
        calls.gradients,
        _gradient_inputs,
        _gradients_expected,
        SMALL,
        EDGES,
        length=lambda query, key, **rest: 2 * _length(query, key),
        examples=20,
        hint="dv and dk get a part from each block of queries, dq one from each block "
        "of keys, of which the first overwrites it.",
    ),
)

# -------------------------------------------------------------------------- bfloat16

CUTS = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
SPECIAL = (
    *(0x7F800000, 0xFF800000, 0x7F800001, 0xFF80FFFF, 0x7F808000, 0x7FFFFFFF),
    *(0xFFFFFFFF, 0x7FC00000, 0x7FBFFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F7FFF),
    *(0x7F7F8000, 0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00008000),
    *(0x00008001, 0x00018000, 0x00028000, 0x007FFFFF, 0x00800000, 0x807F8000),
    *(0x3F7FFFFF, 0x3F808000, 0x3F818000, 0x3F80FFFF, 0x477FE000, 0xC77FF000),
)


def _word_inputs(draw: Draw, n: int) -> dict[str, Any]:
    upper = draw.array((n,), "int64", 0, 0xFFFF)
    cuts = np.array(CUTS)[draw.array((n,), "int64", 0, len(CUTS) - 1)]
    return {"words": upper << 16 | cuts}


def _rounded(words: np.ndarray) -> dict[str, Any]:
    import torch

    numbers = as_torch(words.astype(np.uint32).view(np.float32))
    bits = numbers.bfloat16().view(torch.int16).numpy().view(np.uint16)
    return {"bits": calls.same_nan(bits.astype(np.int64))}


ROUNDING = (
    Check(
        "a11.4",
        "ties, and what is near them",
        calls.rounded,
        _word_inputs,
        _rounded,
        {"n": (1, 4)},
        ({"n": 100},),
        examples=20,
        hint="Is the half cut off exactly one half? Then the last bit that is kept "
        "decides.",
    ),
    Check(
        "a11.4",
        "NaN, infinity, the largest and the smallest",
        calls.rounded,
        lambda draw, n: {"words": np.array(SPECIAL[:n], np.int64)},
        _rounded,
        {"n": (1, len(SPECIAL))},
        ({"n": len(SPECIAL)},),
        examples=3,
        hint="Which bits may a NaN have? What does rounding up make of 0x7FFFFFFF, and "
        "cutting off of 0x7F800001?",
    ),
)

# ---------------------------------------------------------------------- loss scaling

HUGE = 3e38  # times a first scale it is infinite in float32


def _training_inputs(draw: Draw, steps: int, n: int) -> dict[str, Any]:
    grads = [[draw.array((n,)), draw.array((1,))] for _ in range(steps)]
    for number, step in enumerate(grads):
        kind = draw.integer(0, 5)
        if kind < 3:
            step[kind % 2][0] = (np.inf if number else HUGE, np.nan, -np.inf)[kind]
    options = {
        "init_scale": draw.choice((8.0, 2.0**16, 3.0)),
        "growth_factor": draw.choice((2.0, 1.5)),
        "backoff_factor": draw.choice((0.5, 0.25)),
        "growth_interval": draw.choice((1, 2, 3)),
    }
    factors = [draw.choice((None, None, None, None, 5.0)) for _ in range(steps)]
    given = [draw.array((n,)), draw.array((1,))]
    clip = bool(draw.integer(0, 1))
    return {
        "params": given, "grads": grads, "options": options, "factors": factors,
        "clip": clip,
    }  # fmt: skip


def _limit_inputs(draw: Draw, n: int) -> dict[str, Any]:
    """A scale that cannot grow any more."""
    inputs = _training_inputs(draw, 3, n)
    tiny = np.full(1, 2.0**-120, np.float32)
    options = {"init_scale": 2.0**126, "growth_factor": 2.0, "growth_interval": 1}
    return {
        **inputs, "params": [tiny, tiny], "grads": [[tiny, tiny]] * 3,
        "options": options, "factors": [None] * 3,
    }  # fmt: skip


def _trained(
    params: Any, grads: Any, options: Any, factors: Any, clip: bool
) -> dict[str, Any]:
    import torch

    p = [as_torch(a).requires_grad_() for a in params]
    optimizers = [torch.optim.SGD([x], lr=0.5) for x in p]
    scaler = torch.amp.GradScaler("cpu", **options)
    g = [[as_torch(a) for a in step] for step in grads]
    number = lambda x: x.detach().numpy().copy()
    made = calls.steps(scaler, p, optimizers, g, factors, clip, number)
    return {**made, "turns": [len(grads)] * len(p)}  # as schedulers count


def _scaled(loss: np.ndarray, half: bool, init_scale: float) -> dict[str, Any]:
    import torch

    scaler, x = torch.amp.GradScaler("cpu", init_scale), as_torch(loss)
    x = x.half() if half else x
    found = [scaler.scale(x), *scaler.scale([x])]
    one, *several = [y.numpy() for y in found]
    return {"one": one, "list": several}


TURNS = {"turns": "the task"}  # PyTorch does not count them

SCALING = (
    Check(
        "a11.5",
        "scale",
        calls.scaled,
        lambda draw, n: {
            "loss": np.asarray(draw.array(()), np.float32),
            "half": bool(draw.integer(0, 1)),
            "init_scale": draw.choice((2.0**16, 3.0)),
        },
        _scaled,
        {"n": (1, 1)},
        examples=6,
        hint="A loss in float16 times 65,536 is infinite; in float32 it is not.",
    ),
    Check(
        "a11.5",
        "steps, growth and backoff",
        calls.trained,
        _training_inputs,
        _trained,
        {"steps": (1, 7), "n": (1, 4)},
        sizes_of("steps n", (12, 2), (9, 1), (20, 3)),
        oracles=TURNS,
        tolerance=1e-6,
        examples=25,
        hint="A step is skipped for the optimizer that has such a gradient alone, and "
        "counts in its steps_taken; the factor shrinks if there was one anywhere.",
    ),
    Check(
        "a11.5",
        "no factor is infinite",
        calls.trained,
        _limit_inputs,
        _trained,
        {"n": (1, 1)},
        oracles=TURNS,
        tolerance=1e-6,
        examples=1,
        hint="A factor that would grow to infinity stays what it is.",
    ),
)

# -------------------------------------------------------------------------- on a GPU

SMALL = ((1, 1, 1, 1), (3, 5, 4, 2))
SCORES = (*SMALL, (5, 33, 1, 1))  # more than a block's: values are multiplied elsewhere
# Of three tiles, a later one has the largest score.
TILES = (*SMALL, (2, 70, 3, 33), (5, 32, 2, 3), (2, 33, 2, 128))
MANY = (*TILES, (9, 31, 16, 40), (70, 65, 64, 64), (65, 130, 128, 96), (7, 300, 20, 5))


def _rung(name: str, few: Any, hint: str) -> Check:
    def inputs(draw: Draw, L: int, S: int, E: int, V: int) -> dict[str, Any]:
        heads = _heads(draw, 1, 2, 1, L, S, E, V)
        causal = draw.integer(0, 1) == 1 and S <= 16 * L  # else most keys are hidden
        return {"name": name, **heads, "causal": causal}

    def expected(name: str, causal: bool, **heads: np.ndarray) -> dict[str, Any]:
        scale = heads["query"].shape[-1] ** -0.5
        out = _attention_expected(**heads, scale=scale, causal=causal)["out"]
        return {"out": out}

    return Check(
        "a11.6",
        name,
        calls.rung,
        inputs,
        expected,
        {"L": (1, 4), "S": (1, 5), "E": (1, 3), "V": (1, 3)},
        sizes_of("L S E V", *(few if SIMULATED else MANY)),
        length=_length,
        examples=4 if SIMULATED else 12,
        hint=hint,
    )


RUNGS = (
    _rung(
        *("attention_composed", SCORES),
        "Which query and which key does score t belong to?",
    ),
    _rung(
        *("attention_tiled", TILES),
        "Two barriers for each tile, which all threads reach. Whose lane holds the "
        "weight of a key, and which lanes need it?",
    ),
)

# ----------------------------------------------------------------------------- speed

LONG = {"L": 1024, "E": 32}


def _long_inputs(draw: Draw, L: int, E: int) -> dict[str, Any]:
    return {name: draw.array((1, 2, L, E)) for name in ("query", "key", "value")}


def _long_expected(**heads: np.ndarray) -> dict[str, Any]:
    scale = heads["query"].shape[-1] ** -0.5
    return _attention_expected(**heads, scale=scale, causal=True)


def _long_gradient_inputs(draw: Draw, L: int, E: int) -> dict[str, Any]:
    heads = _long_inputs(draw, L, E)
    return {"grad": draw.array((1, 2, L, E)), **heads, **_long_expected(**heads)}


def _work(products: int) -> Any:
    """Half of the scores, and `products` of two operations for each and a feature."""

    def work(query: np.ndarray, **rest: np.ndarray) -> tuple[float, float]:
        return 4.0 * query.nbytes, float(products * query.size * query.shape[-2])

    return work


SPEED = (
    Speed(
        "a11.7",
        "attention",
        calls.timed_forward,
        calls.timed_composed,
        _long_inputs,
        _long_expected,
        LONG,
        ((2.0, 0.5), (3.3, 1.0)),
        _work(2),
        length=_length,
        hint="Are keys that no query of the block sees left out, and do the products "
        "go through _score and _weigh?",
    ),
    Speed(
        "a11.7",
        "gradients",
        calls.timed_backward,
        calls.timed_composed_backward,
        _long_gradient_inputs,
        lambda **inputs: _gradients_expected(
            **inputs, scale=inputs["query"].shape[-1] ** -0.5, causal=True
        ),
        LONG,
        ((1.3, 0.5), (2.0, 1.0)),
        _work(5),
        length=lambda query, key, **rest: 2 * _length(query, key),
        hint="The weights are made once for each block of queries and of keys.",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *ONLINE,
    *ATTENTION,
    *ROUNDING,
    *SCALING,
    *RUNGS,
    *SPEED,
)
