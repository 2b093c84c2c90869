"""A language model: a stack of blocks that guesses the next token of a text.

With this file one can build a GPT (`GPT(GPTConfig())`, `GPT.preset("gpt2")`), train it
(`model.loss(ids, targets)`) and let it write (`model.generate(ids, 100)`). Its parts
are GPT-2's or Llama's, as the `GPTConfig` says; names of parameters are GPT-2's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import minitorch.models.decoding as decoding
import minitorch.nn.functional as F
from minitorch import nn
from minitorch.creation import arange
from minitorch.functions.autocasting import lower_here
from minitorch.functions.movement import cat
from minitorch.models.cache import KVCache, Places, places
from minitorch.models.config import GPTConfig
from minitorch.models.generation import generate, stream
from minitorch.tensor import Tensor
from minitorch.utils.checkpoint import checkpoint


class LayerNorm(nn.LayerNorm):
    """Layer norm that gives autocast's products the type that they want."""

    def forward(self, x: Tensor) -> Tensor:
        dims, eps = self.normalized_shape, self.eps
        return F.layer_norm(x, dims, self.weight, self.bias, eps, lower_here(x))


def _norm(config: GPTConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.n_embd, config.norm_eps)
    return LayerNorm(config.n_embd, config.norm_eps, bias=config.bias)


class Attention(nn.Module):
    """Each token takes a mean of what the tokens before it, and itself, have to say.

    x [B, T, C] -> [B, T, C]
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.n_head, config.kv_heads
        all_heads = self.heads + 2 * self.kv_heads
        self.size, self.p = config.head_size, config.dropout
        self.c_attn = nn.Linear(config.n_embd, all_heads * self.size, config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, where: Places, cache: KVCache | None = None, layer: int = 0
    ) -> Tensor:
        # BEGIN SOLUTION a10.3
        h, kv = self.heads, self.kv_heads
        heads = self.c_attn(x).unflatten(-1, (h + 2 * kv, self.size)).transpose(1, 2)
        if where.rotation is None:
            q, k, v = heads.split((h, kv, kv), 1)
        else:
            both, v = heads.split((h + kv, kv), 1)
            q, k = F.rotary(both, *where.rotation).split((h, kv), 1)
        if cache is not None:
            k, v = cache.write(layer, cat([k, v], 1))
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            where.mask,
            self.p if self.training else 0.0,
            is_causal=where.mask is None,
            enable_gqa=kv != h,
        )
        return self.dropout(self.c_proj(y.transpose(1, 2).flatten(2)))
        # END SOLUTION a10.3


class MLP(nn.Module):
    """Two linear layers at each position with GELU between them, or three with a gate.

    x [*, C] -> [*, C]. SwiGLU: silu(x @ gate) * (x @ up), as one product. Source:
    Shazeer, "GLU variants improve transformer", 2020.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.kind = config.mlp
        units = config.hidden * (2 if self.kind == "swiglu" else 1)
        self.c_fc = nn.Linear(config.n_embd, units, config.bias)
        self.c_proj = nn.Linear(config.hidden, config.n_embd, config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION a10.3
        x = self.c_fc(x)
        if self.kind == "swiglu":
            gate, up = x.chunk(2, -1)
            x = F.silu(gate) * up
        else:
            x = F.gelu(x, "tanh" if self.kind == "gelu_tanh" else "none")
        return self.dropout(self.c_proj(x))
        # END SOLUTION a10.3


class Block(nn.Module):
    """Attention, then an MLP; each is given normalized numbers, and adds to them."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1, self.attn = _norm(config), Attention(config)
        self.ln_2, self.mlp = _norm(config), MLP(config)

    def forward(
        self, x: Tensor, where: Places, cache: KVCache | None = None, layer: int = 0
    ) -> Tensor:
        # BEGIN SOLUTION a10.3
        x = x + self.attn(self.ln_1(x), where, cache, layer)
        return x + self.mlp(self.ln_2(x))
        # END SOLUTION a10.3


KINDS: set[type] = {Block, Attention, MLP, LayerNorm}


class GPT(nn.Module):
    """Scores for the next token after each token: ids int64 [B, T] -> [B, T, vocab].

    Weights start normal with the standard deviation 0.02, those of layers whose output
    is added to the stream with 0.02 / sqrt(2 layers); biases are 0.

    Attributes:
        config: what it is made of.
        recompute: keep only the inputs of blocks for the backward pass, and compute
            the rest again: less memory for a third more work.

    Source: see `GPTConfig`.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config, self.recompute = config, False
        c = config.n_embd
        # Made once, since a CUDA graph of a step can take no copies from the host.
        self.register_buffer("slots", arange(config.block_size), persistent=False)
        self.wte = nn.Embedding(config.vocab_size, c)
        learned = config.positions == "learned"
        self.wpe = nn.Embedding(config.block_size, c) if learned else None
        self.rotary: Any = None
        if not learned:
            self.rotary = nn.RotaryEmbedding(
                config.head_size, config.block_size, config.rotary_base,
                scaling=config.rotary_scaling,
            )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = _norm(config)
        self.lm_head = nn.Linear(c, config.vocab_size, bias=False)
        if config.tied:
            self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            _start(name, parameter, config.n_layer)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> GPT:
        """A model with fresh weights and the sizes of `GPTConfig.preset`."""
        return cls(GPTConfig.preset(name, **changes))

    @property
    def device(self) -> str:
        """Where the weights are."""
        return self.wte.weight.raw.device

    def num_parameters(self, embeddings: bool = True) -> int:
        """How many numbers it learns; see `GPTConfig.num_parameters`."""
        return self.config.num_parameters(embeddings)

    def flops_per_token(self, length: int | None = None) -> int:
        """What training costs for a token; see `GPTConfig.flops_per_token`."""
        return self.config.flops_per_token(length)

    def features(
        self, ids: Tensor, cache: KVCache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """What the head turns into scores: ids [B, T] -> [B, T, n_embd].

        Args:
            cache: holds what came before; the new tokens are added to it.
            padding: int64 [B], how many ids at the left of each row are no tokens. A
                cache has its own.

        Errors: ValueError for ids of another shape, or too many.
        """
        if ids.dim() != 2 or not 1 <= ids.shape[1] <= self.config.block_size:
            raise ValueError(
                f"GPT: ids are {tuple(ids.shape)}; expected (batch, length) with a "
                f"length from 1 to block_size, {self.config.block_size}"
            )
        if decoding.takes(KINDS, self, ids, cache):
            return decoding.features(self, ids, cache)
        where = self._where(ids, cache, padding)
        # BEGIN SOLUTION a10.3
        x = self.wte(ids)
        if self.wpe is not None:
            x = x + self.wpe(where.positions)
        x = self.dropout(x)
        # END SOLUTION a10.3
        for layer, block in enumerate(self.h):
            if self.recompute and cache is None:
                x = checkpoint(block, x, where)
            else:
                x = block(x, where, cache, layer)
        if cache is not None:
            cache.advance(ids.shape[1])
        return self.ln_f(x)

    def _where(
        self, ids: Tensor, cache: KVCache | None, padding: Tensor | None
    ) -> Places:
        length = ids.shape[1]
        if cache is not None:
            where = cache.places(length)
        else:
            slots = self.slots[:length]
            where = places(slots, slots, padding)
        return self._turned(where)

    def _turned(self, where: Places) -> Places:
        """With the rotation of its positions, if they are rotary."""
        if self.rotary is None:
            return where
        turns = (t.unsqueeze(1) for t in self.rotary.at(where.positions))
        return where._replace(rotation=tuple(turns))

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """Scores [B, T, vocab_size]; the arguments are those of `features`."""
        return self.lm_head(self.features(ids, cache, padding))

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of targets [B, T], but where they are -1."""
        # BEGIN SOLUTION a10.4
        return F.linear_cross_entropy(
            self.features(ids).flatten(0, 1), self.lm_head.weight, targets.flatten(),
            ignore_index=-1, options=nn.LinearCrossEntropyOptions(),
        )  # fmt: skip
        # END SOLUTION a10.4

    def generate(self, prompt: Any, max_new_tokens: int, **options: Any) -> Any:
        """What it writes behind a prompt, or several; see `generation.generate`."""
        return generate(self, prompt, max_new_tokens, **options)

    def stream(self, prompt: Any, max_new_tokens: int, **options: Any) -> Iterator[Any]:
        """The same, token by token; see `generation.stream`."""
        return stream(self, prompt, max_new_tokens, **options)

    def extra_repr(self) -> str:
        return f"{self.num_parameters():,} parameters"


def _start(name: str, parameter: Tensor, layers: int) -> None:
    """The first numbers of a parameter."""
    if name.endswith("bias"):
        nn.init.zeros_(parameter)
    elif parameter.dim() == 2:
        residual = name.endswith("c_proj.weight")
        nn.init.normal_(
            parameter, 0.0, 0.02 / math.sqrt(2 * layers) if residual else 0.02
        )
