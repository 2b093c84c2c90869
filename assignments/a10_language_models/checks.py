"""What a10 is checked with; the oracle is PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from assignments import gpts
from assignments.a10_language_models import calls, reference
from assignments.a10_language_models.reference import Model, attended
from assignments.a10_language_models.writing import (
    CACHE,
    DEFINITION,
    KINDS,
    SAMPLING,
    TEXT_EDGES,
    TEXTS,
    TRAINING,
    WIDTH,
    ids_of,
    seed_of,
)
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.draw import Draw
from assignments.oracles import as_torch, torch_gradients

# ------------------------------------------------------------------ byte-pair encoding

LETTERS = "abc"


def _word(draw: Draw, most: int, letters: str = LETTERS) -> str:
    return "".join(draw.choice(letters) for _ in range(draw.integer(0, most)))


def _pair_inputs(draw: Draw, n: int) -> Inputs:
    ids = draw.array((n,), "int64", 97, 99)
    pair = [draw.integer(97, 99), draw.integer(97, 99)]
    return {"ids": ids.tolist(), "pair": pair, "new": 256}


def _text_inputs(draw: Draw, words: int, most: int, tokens: int) -> Inputs:
    found = {_word(draw, most): draw.integer(1, 4) for _ in range(words)}
    pieces, times = list(found), list(found.values())
    return {"pieces": pieces, "times": times, "number": 256 + tokens}


def _trained_expected(
    pieces: Sequence[str], times: Sequence[int], number: int
) -> dict[str, Any]:
    tokens, merges = reference.learn(dict(zip(pieces, times)), number)
    return {"tokens": tokens, "merges": merges, "bytes first": True}


def _table_inputs(draw: Draw, n: int, merges: int) -> Inputs:
    """Any merges, also such that make a token of others, or one that is there."""
    pairs = {(draw.integer(0, 2), draw.integer(0, 2)) for _ in range(merges)}
    ranks = draw.array((len(pairs),), "int64", 0, 99).argsort(kind="stable")
    table = [[a, b, int(r), draw.integer(0, 3)] for (a, b), r in zip(pairs, ranks)]
    ids = draw.array((n,), "int64", 0, 2)
    return {"ids": ids.tolist(), "table": table}


def _merged_expected(ids: Sequence[int], table: calls.Pairs) -> dict[str, Any]:
    merges = {(a, b): (rank, new) for a, b, rank, new in table}
    return {"out": reference.merge(ids, merges)}


SIGNS = "ab cé🙂"
PATTERN = r" ?\S+|\s+"


def _vocabulary(draw: Draw) -> Inputs:
    """Merges that were learnt from a text in one piece: some cross its spaces."""
    counts = {_word(draw, 40, SIGNS): 2, _word(draw, 4, SIGNS): 1}
    tokens, merges = reference.learn(counts, 256 + draw.integer(0, 12))
    return {"merges": merges, "tokens": tokens}


def _coding_inputs(draw: Draw, n: int) -> Inputs:
    given, ranked = _vocabulary(draw), draw.choice((False, True))
    text = _word(draw, n, SIGNS)
    return {"text": text, **given, "ranked": ranked, "pattern": PATTERN}


def _coding_expected(
    text: str, merges: calls.Pairs, tokens: calls.Pairs, ranked: bool, pattern: str
) -> dict[str, Any]:
    import re

    table = reference.table_of(merges, tokens, ranked)
    ids = []
    for piece in re.findall(pattern, text):
        data = list(piece.encode())
        whole = ranked and data in tokens
        found = reference.merge(data, table)
        ids += [256 + list(tokens).index(data)] if whole else found
    return {"ids": ids, "again": ids}


def _decoding_inputs(draw: Draw, n: int) -> Inputs:
    given = _vocabulary(draw)
    most = 255 + len(given["tokens"])
    ids = [draw.choice((97, 0xC3, 0xA9, most)) for _ in range(n)]
    return {"ids": ids, **given}


def _decoding_expected(
    ids: Sequence[int], merges: calls.Pairs, tokens: calls.Pairs
) -> dict[str, Any]:
    every = [[i] for i in range(256)] + [list(token) for token in tokens]
    data = [byte for i in ids for byte in every[i]]
    return {"bytes": data, "text": bytes(data).decode("utf-8", "replace")}


def _unknown_inputs(draw: Draw, n: int) -> Inputs:
    given = _decoding_inputs(draw, n)
    bad = draw.choice((256 + len(given["tokens"]), -1))
    return {**given, "ids": [*given["ids"], bad]}


# What chance could leave out: a merge that could cross a cut, and one piece, a token
# that no merge makes.
CODED = {
    "a cut": {"text": "a a", "merges": [[97, 32]], "tokens": [[97, 32]]},
    "a whole piece": {"text": "abc", "merges": [], "tokens": [[97, 98, 99]]},
}

# A published example of Gage's algorithm: aaabdaaabac becomes XdXac in three steps.
PUBLISHED = {"pieces": ["aaabdaaabac"], "times": [1], "number": 300}
MERGES = [[97, 97], [97, 98], [256, 257]]

TOKENS = (
    Check(
        *("a10.1", "merge_pair", calls.pair_merged, _pair_inputs),
        lambda ids, pair, new: {"out": reference.replaced(ids, pair, new)},
        *({"n": (0, 6)}, ({"n": 0}, {"n": 1}, {"n": 40})),
        oracle="str.replace, on characters,",
        hint="aaa has one pair aa: what was merged is no part of the next pair.",
    ),
    Check(
        *("a10.1", "train_merges", calls.trained, _text_inputs, _trained_expected),
        {"words": (0, 4), "most": (1, 6), "tokens": (0, 5)},
        (
            {"words": 1, "most": 12, "tokens": 20},
            {"words": 30, "most": 9, "tokens": 40},
        ),
        oracle="counting all pairs anew",
        hint="Of pairs that there are equally often, the one with the lower numbers; "
        "a pair that there is once is not merged.",
    ),
    Check(
        *("a10.1", "a published example", calls.trained, lambda draw: PUBLISHED),
        lambda **given: {
            "merges": MERGES,
            "tokens": [list(b"aa"), list(b"ab"), list(b"aaab")],
            "bytes first": True,
        },
        examples=1,
        oracle="the example",
        hint="aaabdaaabac -> ZabdZabac -> ZYdZYac -> XdXac",
    ),
    Check(
        *("a10.1", "merge", calls.merged, _table_inputs, _merged_expected),
        {"n": (0, 7), "merges": (0, 5)},
        (
            {"n": 0, "merges": 1},
            {"n": 1, "merges": 3},
            {"n": 3, "merges": 9},
            {"n": 4, "merges": 9},
            {"n": 60, "merges": 9},
        ),
        examples=60,
        oracle=DEFINITION,
        hint="The lowest rank first, wherever it is in the piece. What a merge makes "
        "can be merged again, with either neighbour.",
    ),
    Check(
        *("a10.1", "encode", calls.encoded, _coding_inputs, _coding_expected),
        *({"n": (0, 8)}, ({"n": 0}, {"n": 60})),
        oracle=DEFINITION,
        hint="Cut into pieces, then bytes, then merges. Does `whole_pieces` take a "
        "piece that is a token whole?",
    ),
    *(
        Check(
            *("a10.1", name, calls.encoded),
            lambda draw, given=given: {**given, "ranked": True, "pattern": PATTERN},
            _coding_expected,
            examples=1,
            oracle=DEFINITION,
            hint="Which pieces are there, and which of them are tokens?",
        )
        for name, given in CODED.items()
    ),
    Check(
        *("a10.1", "decode", calls.decoded, _decoding_inputs, _decoding_expected),
        *({"n": (0, 5)}, ({"n": 0}, {"n": 30})),
        oracle=DEFINITION,
        hint="A character can be in two tokens: bytes first, text last.",
    ),
    Check(
        *("a10.1", "no token", calls.refused, _unknown_inputs),
        *(lambda **given: {"raises": "ValueError"}, {"n": (0, 2)}),
        examples=6,
        oracle="the handout",
        hint="`checked(self, ids)` goes through ids, and refuses what is no token.",
    ),
)

# -------------------------------------------------------------------------- attention


def _mask(draw: Draw, shape: Sequence[int]) -> np.ndarray:
    """Which keys a query sees, or numbers that are added; some queries see none."""
    if draw.choice((True, False)):
        return draw.array(shape, "bool")
    return _numbers(draw, shape)


def _numbers(draw: Draw, shape: Sequence[int]) -> np.ndarray:
    seen = draw.array(shape, "bool")
    return np.where(seen, draw.array(shape), np.float32(-np.inf))


def _weights_inputs(draw: Draw, n: int, length: int, keys: int, e: int) -> Inputs:
    large = draw.choice((1.0, 30.0))
    query = (draw.array((n, length, e)) * large).astype(np.float32)
    causal = draw.choice((True, False))
    mask = draw.choice((None, "mask"))
    return {
        "query": query,
        "key": draw.array((n, keys, e)),
        "mask": None if causal or mask is None else _mask(draw, (length, keys)),
        "causal": causal,
        "scale": draw.choice((None, 0.25)),
    }


def _weights_expected(
    query: np.ndarray, key: np.ndarray, mask: Any, causal: bool, scale: float | None
) -> dict[str, Any]:
    """The output of attention to values that are the rows of an identity."""
    q, k = as_torch(query).double()[:, None], as_torch(key).double()[:, None]
    ones = as_torch(np.tile(np.eye(key.shape[1]), (len(key), 1, 1, 1)))
    added = None if mask is None else as_torch(mask)
    if added is not None and added.is_floating_point():
        added = added.double()
    out = attended(q, k, ones, added, is_causal=causal, scale=scale)
    return {"out": out[:, 0].float().numpy()}


def _attention_inputs(
    draw: Draw, few: int, group: int, length: int, keys: int, e: int
) -> Inputs:
    shapes = {
        "query": (1, few * group, length, e),
        "key": (1, few, keys, e),
        "value": (1, few, keys, 3),
        "grad": (1, few * group, length, 3),
    }
    arrays = {name: draw.array(shape) for name, shape in shapes.items()}
    return {**arrays, "mask": _numbers(draw, (length, keys))}


def _attention_expected(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray,
    grad: np.ndarray,
) -> dict[str, Any]:
    q, k, v, added = (as_torch(x, True) for x in (query, key, value, mask))
    out = attended(q, k, v, added)
    return torch_gradients(out, grad, query=q, key=k, value=v, mask=added)


def _slopes_inputs(draw: Draw, **sizes: int) -> Inputs:
    given = _attention_inputs(draw, **sizes)
    del given["mask"]
    shape = (*given["query"].shape[:-1], given["key"].shape[-2])
    kept = 2 * draw.array(shape, "int64", 0, 1).astype(np.float32)
    options = {"causal": draw.choice((True, False)), "scale": 0.5}
    return {**given, **options, "kept": kept if draw.choice((False, True)) else None}


def _slopes_expected(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    grad: np.ndarray,
    causal: bool,
    scale: float,
    kept: np.ndarray | None,
) -> dict[str, Any]:
    import torch

    q, k, v = (as_torch(x, True) for x in (query, key, value))
    out = attended(q, k, v, is_causal=causal, scale=scale)
    if kept is not None:  # The weights are what attention makes of units.
        units = torch.eye(k.shape[-2]).expand(*k.shape[:-1], -1)
        weights = attended(q, k, units, is_causal=causal, scale=scale)
        many = q.shape[-3] // k.shape[-3]
        out = (weights * as_torch(kept)) @ v.repeat_interleave(many, -3)
    found = torch_gradients(out, grad, query=q, key=k, value=v)
    return {name: found[name] for name in ("grad_query", "grad_key", "grad_value")}


ROWS = {"n": (1, 2), "length": (1, 3), "keys": (1, 4), "e": (1, 3)}
HEADS = {"few": (1, 2), "group": (1, 3), "length": (1, 3), "keys": (1, 3), "e": (1, 3)}
HEAD_EDGES = (
    {"few": 2, "group": 3, "length": 5, "keys": 7, "e": 4},
    {"few": 3, "group": 1, "length": 1, "keys": 9, "e": 2},
    {"few": 1, "group": 1, "length": 8, "keys": 8, "e": 1},
)

ATTENTION = (
    Check(
        *("a10.2", "attention_weights", calls.weights),
        *(_weights_inputs, _weights_expected, ROWS),
        (
            {"n": 1, "length": 1, "keys": 1, "e": 1},
            {"n": 2, "length": 9, "keys": 9, "e": 4},
            {"n": 1, "length": 7, "keys": 4, "e": 4},
            {"n": 1, "length": 4, "keys": 7, "e": 4},
        ),
        tolerance=2e-5,
        examples=40,
        hint="A row belongs to a query, and its sum is 1. exp(-infinity) is 0: what "
        "must the score of a key be that may not be seen?",
    ),
    Check(
        *("a10.2", "attention with shared heads", calls.attention),
        *(_attention_inputs, _attention_expected, HEADS, HEAD_EDGES),
        tolerance=2e-5,
        hint="A query that sees no key gets zeros, and its gradient is 0, not NaN. "
        "Query head h looks at head h // group.",
    ),
    Check(
        *("a10.2", "gradients", calls.slopes),
        *(_slopes_inputs, _slopes_expected, HEADS, HEAD_EDGES),
        tolerance=2e-5,
        hint="A head that is shared gets the sum of the gradients of all that share "
        "it. The scale stands in front of query and of key.",
    ),
)

# --------------------------------------------------------------------------- the block


def _turned_inputs(draw: Draw, n: int, length: int, half: int) -> Inputs:
    shape = n, length, 2 * half
    return {
        **{name: draw.array(shape) for name in ("x", "grad", "again")},
        "angles": draw.array((length, half), "float32", -4, 4),
    }


def _turned_expected(
    x: np.ndarray, angles: np.ndarray, grad: np.ndarray, again: np.ndarray
) -> dict[str, Any]:
    import torch

    a, g = as_torch(x, True), as_torch(grad, True)
    out = reference.turned(a, angles)
    (first,) = torch.autograd.grad((out * g).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad((first * as_torch(again)).sum(), g)
    named = {"out": out, "grad_x": first, "grad_of_grad": second}
    return {name: value.detach().numpy() for name, value in named.items()}


def _part_inputs(name: str) -> Any:
    def inputs(draw: Draw, n: int, length: int) -> Inputs:
        shape = n, length, WIDTH
        given = {"name": name, "kind": draw.choice(KINDS), "seed": seed_of(draw)}
        return {**given, "x": draw.array(shape), "grad": draw.array(shape)}

    return inputs


def _part_expected(
    name: str, kind: str, seed: int, x: np.ndarray, grad: np.ndarray
) -> dict[str, Any]:
    model, a = Model(kind, 1, seed), as_torch(x, True)
    found = torch_gradients(getattr(model, name)(a), grad, x=a)
    inside = "h.0." if name == "block" else f"h.0.{name}."
    grads = {
        n.removeprefix(inside): p.grad.numpy()
        for n, p in model.given.items()
        if n.startswith(inside)
    }
    return {**found, **{f"grad of {n}": grads[n] for n in sorted(grads)}}


def _layer_expected(seed: int, x: np.ndarray, **rest: Any) -> dict[str, Any]:
    """The same for GPT-2's block, which is a layer of PyTorch's encoders."""
    import torch
    from torch import nn

    given = {n: as_torch(v) for n, v in gpts.parameters("gpt2", 1, seed).items()}
    layer = nn.TransformerEncoderLayer(
        WIDTH, gpts.SIZES["n_head"], 4 * WIDTH, 0.0,
        lambda a: nn.functional.gelu(a, approximate="tanh"), batch_first=True,
        norm_first=True,
    )  # fmt: skip
    names = {
        "self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj.": "attn.c_proj.",
        "linear1.": "mlp.c_fc.", "linear2.": "mlp.c_proj.", "norm1.": "ln_1.",
        "norm2.": "ln_2.",
    }  # fmt: skip
    with torch.no_grad():
        for theirs, ours in names.items():
            for end in ("weight", "bias"):
                layer.get_parameter(theirs + end).copy_(given[f"h.0.{ours}{end}"])
    a = as_torch(x, True)
    length = x.shape[1]
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    out = layer(a, src_mask=unseen)
    known = dict(layer.named_parameters())
    found = torch_gradients(out, rest["grad"], x=a)
    grads = {
        ours + end: known[theirs + end].grad.numpy()
        for theirs, ours in names.items()
        for end in ("weight", "bias")
    }
    return {**found, **{f"grad of {n}": grads[n] for n in sorted(grads)}}


def _layer_inputs(draw: Draw, **sizes: int) -> Inputs:
    return {**_part_inputs("block")(draw, **sizes), "kind": "gpt2"}


PLACES = ("mlp", "attn", "weights", "embeddings")
DROPPED = len(PLACES), len(KINDS)


def _dropped_inputs(draw: Draw, n: int, length: int, place: int, kind: int) -> Inputs:
    x, which = draw.array((n, length, WIDTH)), {"place": PLACES[place]}
    return {**which, "kind": tuple(KINDS)[kind], "seed": seed_of(draw), "x": x}


def _dropped_expected(
    place: str, kind: str, seed: int, x: np.ndarray
) -> dict[str, Any]:
    model, zeros = Model(kind, 1, seed), as_torch(np.zeros_like(x))
    if place == "weights":
        zeros = model.linear("h.0.attn.c_proj", zeros)
    elif place == "embeddings":
        zeros = model.norm("ln_f", model.block(zeros))
    return {"out": zeros.detach().numpy()}


def _scores_inputs(draw: Draw, n: int, length: int, layers: int) -> Inputs:
    given = {"kind": draw.choice(KINDS), "layers": layers, "seed": seed_of(draw)}
    first = draw.integer(1, length)
    return {**given, "ids": ids_of(draw, (n, length)), "first": first}


def _scores_expected(
    kind: str, layers: int, seed: int, ids: np.ndarray, first: int
) -> dict[str, Any]:
    out = Model(kind, layers, seed).scores(ids).detach().numpy()
    return {"at once": out, "with a cache": out}


def _part(name: str, said: str, hint: str) -> Check:
    return Check(
        *("a10.3", said, calls.part, _part_inputs(name), _part_expected),
        *(TEXTS, TEXT_EDGES),
        tolerance=1e-4,
        examples=9,
        hint=hint,
    )


BLOCK = (
    Check(
        *("a10.3", "rotary positions", calls.turned, _turned_inputs, _turned_expected),
        {"n": (1, 2), "length": (1, 3), "half": (1, 2)},
        ({"n": 2, "length": 5, "half": 4},),
        examples=10,
        hint="The gradient of a turn is the turn back: the angle has the other sign.",
    ),
    _part(
        "mlp", "the MLP", "Of a gated MLP, the first half of the units are the gates."
    ),
    _part(
        "attn",
        "attention in heads",
        "Write the shapes beside the lines: [B, T, (h + 2 kv) E], [B, h + 2 kv, T, E]. "
        "Values are not turned.",
    ),
    _part(
        "block", "the block", "Each part is given normalized numbers, and adds to x."
    ),
    Check(
        *("a10.3", "as PyTorch's encoder", calls.part, _layer_inputs, _layer_expected),
        *(TEXTS, TEXT_EDGES),
        tolerance=1e-4,
        examples=3,
    ),
    Check(
        *("a10.3", "dropout", calls.dropped, _dropped_inputs, _dropped_expected),
        {**TEXTS, "place": (0, len(PLACES) - 1), "kind": (0, len(KINDS) - 1)},
        sizes_of("n length place kind", *product((1,), (3,), *map(range, DROPPED))),
        tolerance=1e-4,
        examples=2,
        hint="It is after the embeddings, in the weights of attention, and behind the "
        "last product of both parts.",
    ),
    Check(
        *("a10.3", "the whole model", calls.scores, _scores_inputs, _scores_expected),
        *({**TEXTS, "layers": (1, 2)}, ({"n": 2, "length": 8, "layers": 2},)),
        tolerance=3e-4,
        examples=9,
        hint="With a cache: what the layer writes is its own, and what comes back are "
        "all keys and values that there are.",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *TOKENS,
    *ATTENTION,
    *BLOCK,
    *TRAINING,
    *SAMPLING,
    *CACHE,
)
