"""GPT-2 and Llama in PyTorch, with the names and layouts of their published files.

With this file a test has a second opinion on `minitorch.models`, and files to load:
`GPT2(...)` and `Llama(...)` return scores, and their `state_dict()` is what is
published. Nothing clever is done here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def attend(q: Any, k: Any, v: Any) -> Any:
    """Causal attention [B, H, T, E], by its formula."""
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(unseen, -math.inf).softmax(-1) @ v


def heads(x: Any, size: int) -> Any:
    """[B, T, H * E] -> [B, H, T, E]"""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


class Conv1D(nn.Module):
    """x @ weight + bias, weight [in, out]: GPT-2's linear layer."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * 0.1)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.1)

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class GPT2(nn.Module):
    """h.0.attn.c_attn.weight and so on."""

    def __init__(self, vocab: int, length: int, layers: int, n_heads: int, c: int):
        super().__init__()
        self.size = c // n_heads
        self.wte, self.wpe = nn.Embedding(vocab, c), nn.Embedding(length, c)
        self.h = nn.ModuleList(nn.ModuleDict() for _ in range(layers))
        for block in self.h:
            block["ln_1"], block["ln_2"] = nn.LayerNorm(c), nn.LayerNorm(c)
            parts = {"c_attn": Conv1D(c, 3 * c), "c_proj": Conv1D(c, c)}
            block["attn"] = nn.ModuleDict(parts)
            parts = {"c_fc": Conv1D(c, 4 * c), "c_proj": Conv1D(4 * c, c)}
            block["mlp"] = nn.ModuleDict(parts)
        self.ln_f = nn.LayerNorm(c)
        for name, p in self.named_parameters():  # no part may be left out unnoticed
            if "ln_" in name:
                nn.init.normal_(p, 1.0 if name.endswith("weight") else 0.0, 0.2)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for b in self.h:
            q, k, v = b["attn"]["c_attn"](b["ln_1"](x)).chunk(3, -1)
            y = attend(*(heads(part, self.size) for part in (q, k, v)))
            x = x + b["attn"]["c_proj"](y.transpose(1, 2).flatten(2))
            y = F.gelu(b["mlp"]["c_fc"](b["ln_2"](x)), approximate="tanh")
            x = x + b["mlp"]["c_proj"](y)
        return self.ln_f(x) @ self.wte.weight.T


class Llama(nn.Module):
    """model.layers.0.self_attn.q_proj.weight and so on."""

    def __init__(
        self, vocab: int, layers: int, n_heads: int, kv: int, c: int, hidden: int
    ) -> None:
        super().__init__()
        self.size, self.share = c // n_heads, n_heads // kv
        few = kv * self.size
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocab, c)})
        self.model["layers"] = nn.ModuleList(nn.ModuleDict() for _ in range(layers))
        for layer in self.model["layers"]:
            sizes = {"q": (c, c), "k": (c, few), "v": (c, few), "o": (c, c)}
            layer["self_attn"] = self.linears(sizes)
            sizes = {"gate": (c, hidden), "up": (c, hidden), "down": (hidden, c)}
            layer["mlp"] = self.linears(sizes)
            layer["input_layernorm"] = nn.RMSNorm(c, 1e-5)
            layer["post_attention_layernorm"] = nn.RMSNorm(c, 1e-5)
        self.model["norm"] = nn.RMSNorm(c, 1e-5)
        self.lm_head = nn.Linear(c, vocab, bias=False)
        for name, p in self.named_parameters():
            if "norm" in name:
                nn.init.normal_(p, 1.0, 0.2)

    @staticmethod
    def linears(sizes: dict[str, tuple[int, int]]) -> nn.ModuleDict:
        return nn.ModuleDict(
            {f"{name}_proj": nn.Linear(*s, bias=False) for name, s in sizes.items()}
        )

    def turn(self, x: Any) -> Any:
        """Rotary positions, as products of complex numbers."""
        half = self.size // 2
        speeds = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speeds
        points = torch.complex(*x.double().chunk(2, -1)) * torch.exp(1j * angles)
        return torch.cat([points.real, points.imag], -1).to(x.dtype)

    def forward(self, ids: Any) -> Any:
        x = self.model["embed_tokens"](ids)
        for layer in self.model["layers"]:
            attention, mlp = layer["self_attn"], layer["mlp"]
            y = layer["input_layernorm"](x)
            q, k, v = (heads(attention[f"{n}_proj"](y), self.size) for n in "qkv")
            k, v = (t.repeat_interleave(self.share, 1) for t in (self.turn(k), v))
            y = attend(self.turn(q), k, v)
            x = x + attention["o_proj"](y.transpose(1, 2).flatten(2))
            y = layer["post_attention_layernorm"](x)
            x = x + mlp["down_proj"](F.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))
        return self.lm_head(self.model["norm"](x))
