"""Byte pairs by counting anew, and a GPT in PyTorch: what a10 is compared with.

With this file the checks have merges as the definition has them (`learn`, `merge`), and
the model of `gpts.py` by PyTorch's own operations (`Model`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from assignments.gpts import KINDS, SIZES, parameters
from assignments.oracles import as_torch

Pair = tuple[int, int]

# ------------------------------------------------------------------ byte-pair encoding


def replaced(ids: Sequence[int], pair: Sequence[int], new: int) -> list[int]:
    """A pair's places taken by one number, by `str.replace` on characters."""
    text = "".join(map(chr, ids)).replace("".join(map(chr, pair)), chr(new))
    return [ord(c) for c in text]


def learn(
    pieces: Mapping[str, int], number: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The bytes of the tokens from 256 on, and the merges."""
    words = [(list(piece.encode()), n) for piece, n in pieces.items()]
    tokens, merges = [[i] for i in range(256)], []
    while len(tokens) < number:
        counts: Counter[Pair] = Counter()
        for word, n in words:
            for pair in pairwise(word):
                counts[pair] += n
        most = max(counts.values(), default=0)
        if most < 2:
            break
        pair = min(pair for pair, n in counts.items() if n == most)
        made = tokens[pair[0]] + tokens[pair[1]]
        if made not in tokens:
            tokens.append(made)
        new = tokens.index(made)
        words = [(replaced(word, pair, new), n) for word, n in words]
        merges.append(list(pair))
    return tokens[256:], merges


def merge(ids: Sequence[int], table: Mapping[Pair, tuple[int, int]]) -> list[int]:
    """The pair of the lowest rank is merged, the leftmost one, again and again."""
    out = list(ids)
    while True:
        found = [(table[p][0], i) for i, p in enumerate(pairwise(out)) if p in table]
        if not found:
            return out
        _, i = min(found)
        out[i : i + 2] = [table[out[i], out[i + 1]][1]]


def table_of(
    merges: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]], ranked: bool
) -> dict[Pair, tuple[int, int]]:
    """Ranks of pairs: in the order of `merges`, or by the number of what they make."""
    every = [[i] for i in range(256)] + [list(token) for token in tokens]
    numbers = {bytes(token): i for i, token in enumerate(every)}
    if not ranked:
        made = [bytes(every[a] + every[b]) for a, b in merges]
        return {
            (a, b): (i, numbers[m]) for i, ((a, b), m) in enumerate(zip(merges, made))
        }
    return {
        (numbers[token[:i]], numbers[token[i:]]): (n, n)
        for token, n in numbers.items()
        for i in range(1, len(token))
        if token[:i] in numbers and token[i:] in numbers
    }


# ------------------------------------------------------------------------------ the GPT


def attended(query: Any, key: Any, value: Any, mask: Any = None, **options: Any) -> Any:
    """PyTorch's attention, with heads that are shared; zeros where nothing is seen."""
    from torch.nn.functional import scaled_dot_product_attention

    many = query.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(many, -3) for x in (key, value))
    if mask is None:
        return scaled_dot_product_attention(query, key, value, **options)
    seen = mask if mask.dtype.is_floating_point is False else mask > -np.inf
    none = ~seen.any(-1, keepdim=True)
    mask = (mask | none) if mask is seen else mask.masked_fill(none, 0.0)
    out = scaled_dot_product_attention(query, key, value, mask, **options)
    return out.masked_fill(none, 0.0)


class Model:
    """A GPT with the parameters of `gpts.parameters`.

    Attributes:
        given: the parameters, as tensors that want gradients.
    """

    def __init__(self, kind: str, layers: int, seed: int) -> None:
        self.options, self.layers = KINDS[kind], layers
        found = parameters(kind, layers, seed)
        self.given = {name: as_torch(value, True) for name, value in found.items()}

    def norm(self, name: str, x: Any) -> Any:
        """LayerNorm, or RMSNorm."""
        from torch.nn.functional import layer_norm

        weight, bias = self.given[f"{name}.weight"], self.given.get(f"{name}.bias")
        if self.options.get("norm") == "rms":
            return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight
        return layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def linear(self, name: str, x: Any) -> Any:
        from torch.nn.functional import linear

        return linear(x, self.given[f"{name}.weight"], self.given.get(f"{name}.bias"))

    def attn(self, x: Any, name: str = "h.0.") -> Any:
        """Causal attention: x [B, T, C] -> [B, T, C]"""
        import torch

        heads = SIZES["n_head"]
        size = SIZES["n_embd"] // heads
        few = self.options.get("n_kv_head", heads)
        every = self.linear(f"{name}attn.c_attn", x)
        every = every.unflatten(-1, (-1, size)).transpose(1, 2)
        q, k, v = every.split((heads, few, few), 1)
        if self.options.get("positions") == "rotary":
            q, k = turned(q), turned(k)
        out = attended(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.linear(f"{name}attn.c_proj", torch.clone(out))

    def mlp(self, x: Any, name: str = "h.0.") -> Any:
        """GELU between two layers, or a gate."""
        from torch.nn.functional import gelu, silu

        x, kind = self.linear(f"{name}mlp.c_fc", x), self.options.get("mlp")
        if kind == "swiglu":
            gate, up = x.chunk(2, -1)
            x = silu(gate) * up
        else:
            x = gelu(x, approximate="none" if kind == "gelu" else "tanh")
        return self.linear(f"{name}mlp.c_proj", x)

    def block(self, x: Any, name: str = "h.0.") -> Any:
        x = x + self.attn(self.norm(f"{name}ln_1", x), name)
        return x + self.mlp(self.norm(f"{name}ln_2", x), name)

    def scores(self, ids: np.ndarray, head: Any = None) -> Any:
        """ids [B, T] -> [B, T, vocab]; the head is the table of tokens, or another."""
        table = self.given["wte.weight"]
        x = table[as_torch(ids)]
        if "wpe.weight" in self.given:
            x = x + self.given["wpe.weight"][: ids.shape[1]]
        for i in range(self.layers):
            x = self.block(x, f"h.{i}.")
        return self.norm("ln_f", x) @ (table if head is None else head).t()


def angles(length: int, width: int) -> np.ndarray:
    """How far each point is turned at each position: [length, width / 2]"""
    speeds = 10_000.0 ** (-np.arange(0, width, 2) / width)
    return np.outer(np.arange(length), speeds)


def turned(x: Any, by: np.ndarray | None = None) -> Any:
    """Rotary positions as products of complex numbers; x [*, T, E]."""
    import torch

    a, b = x.double().chunk(2, -1)
    by = angles(*x.shape[-2:]) if by is None else by
    out = torch.complex(a, b) * torch.exp(1j * as_torch(by).double())
    return torch.cat([out.real, out.imag], -1).to(x.dtype)
