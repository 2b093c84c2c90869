"""What a GPT is made of, in numbers.

With this file one can describe a model (`GPTConfig(n_layer=6, ...)`), take a known one
by name (`GPTConfig.preset("gpt2")`), and count its parameters and the work that a token
costs, before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and parts of a `GPT`; the defaults are GPT-2's.

    Attributes:
        vocab_size: how many tokens there are.
        block_size: the longest sequence, in tokens.
        n_layer, n_head, n_embd: blocks, heads of a block's attention, and width.
        dropout: after the embeddings, of the weights of attention, and of what a block
            adds; in training.
        bias: whether linear layers and layer norms have one.
        n_kv_head: heads of keys and values, which groups of heads share; None: n_head.
        n_hidden: units between the two products of an MLP; None: 4 n_embd.
        norm: "layer" or "rms".
        positions: "learned", a table that is added, or "rotary".
        mlp: "gelu", "gelu_tanh" (GPT-2's own approximation), or "swiglu", which has
            gates and so a product more.
        tied: whether the head shares the table of the tokens.
        norm_eps, rotary_base, rotary_scaling: numbers in these parts.

    Errors: ValueError for sizes and names that make no sense.

    Source: Radford et al., "Language models are unsupervised multitask learners", 2019;
    RMSNorm, rotary positions, SwiGLU: Touvron et al., "LLaMA", 2023.
    """

    vocab_size: int = 50_257
    block_size: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True
    n_kv_head: int | None = None
    n_hidden: int | None = None
    norm: str = "layer"
    positions: str = "learned"
    mlp: str = "gelu_tanh"
    tied: bool = True
    norm_eps: float = 1e-5
    rotary_base: float = 10_000.0
    rotary_scaling: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            _check_size(name, getattr(self, name))
        _check_size("n_kv_head", self.kv_heads)
        _check_size("n_hidden", self.hidden)
        for name, names in CHOICES.items():
            if getattr(self, name) not in names:
                raise ValueError(
                    f"GPTConfig: {name} is {getattr(self, name)!r}; expected one of "
                    f"{', '.join(names)}"
                )
        if self.n_embd % self.n_head or self.n_head % self.kv_heads:
            raise ValueError(
                f"GPTConfig: n_embd is {self.n_embd}, n_head {self.n_head} and "
                f"n_kv_head {self.kv_heads}; each must be a multiple of the next"
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(
                f"GPTConfig: a head has n_embd / n_head = {self.head_size} numbers; "
                f"rotary positions need an even number"
            )
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"GPTConfig: dropout is {self.dropout}; it is from 0 to 1")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> GPTConfig:
        """The configuration `name`, one of `PRESETS`, with some fields changed."""
        if name not in PRESETS:
            raise ValueError(
                f"GPTConfig.preset: there is no {name!r}; expected one of "
                f"{', '.join(PRESETS)}"
            )
        return cls(**{**PRESETS[name], **changes})

    @property
    def head_size(self) -> int:
        """Numbers of a query, key or value."""
        return self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def hidden(self) -> int:
        """Units between the two products of an MLP."""
        return 4 * self.n_embd if self.n_hidden is None else self.n_hidden

    def num_parameters(self, embeddings: bool = True) -> int:
        """How many numbers such a model learns.

        Args:
            embeddings: count tables that are only looked up in: those of positions, and
                that of tokens where the head does not share it.
        """
        c, bias = self.n_embd, int(self.bias)
        qkv = c + 2 * self.kv_heads * self.head_size
        gates = self.hidden * (2 if self.mlp == "swiglu" else 1)
        linear = c * (qkv + c + gates + self.hidden) + bias * (qkv + c + gates + c)
        norm = c * (1 + (bias if self.norm == "layer" else 0))
        total = self.n_layer * (linear + 2 * norm) + norm + self.vocab_size * c
        looked_up = self.block_size * c if self.positions == "learned" else 0
        looked_up += 0 if self.tied else self.vocab_size * c
        return total + (looked_up if embeddings else 0)

    def flops_per_token(self, length: int | None = None) -> int:
        """Operations, forward and backward, that training takes for one token.

        6 N + 12 L H Q T: for each parameter in a product one multiplication and one
        addition, three times (forward, and for the two gradients), and as much for the
        two products of attention with T positions. Model FLOPs utilization is this,
        times tokens a second, over what the machine can do.

        Args:
            length: T; None: block_size.

        Source: Chowdhery et al., "PaLM", 2022, appendix B.
        """
        length = self.block_size if length is None else length
        attention = 12 * self.n_layer * self.n_head * self.head_size * length
        return 6 * self.num_parameters(embeddings=False) + attention


def _check_size(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"GPTConfig: {name} is {value!r}; expected an int, 1 or more")


CHOICES = {
    "norm": ("layer", "rms"),
    "positions": ("learned", "rotary"),
    "mlp": ("gelu", "gelu_tanh", "swiglu"),
}

LLAMA: Mapping[str, Any] = MappingProxyType(
    {"norm": "rms", "positions": "rotary", "mlp": "swiglu", "bias": False}
)


def _sizes(layers: int, heads: int, width: int, block: int = 1024) -> dict[str, int]:
    return dict(n_layer=layers, n_head=heads, n_embd=width, block_size=block)


# By name, smallest first. "char" ones are nanoGPT's for Shakespeare; "llama-" ones have
# the sizes of published models (llama2.c's stories15M and stories110M, TinyLlama 1.1B).
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tiny": {**_sizes(2, 2, 16, 64), "vocab_size": 65},  # 9 thousand
        "char-small": {
            **_sizes(4, 4, 128, 64), "vocab_size": 65, "bias": False, "mlp": "gelu",
        },  # 0.8 million
        "char": {
            **_sizes(6, 6, 384, 256), "vocab_size": 65, "bias": False, "mlp": "gelu",
            "dropout": 0.2,
        },  # 11 million
        "llama-15m": {
            **LLAMA, **_sizes(6, 6, 288, 256), "vocab_size": 32_000, "n_hidden": 768,
        },
        "llama-110m": {
            **LLAMA, **_sizes(12, 12, 768), "vocab_size": 32_000, "n_hidden": 2048,
        },
        "gpt2": _sizes(12, 12, 768),  # 124 million
        "gpt2-medium": _sizes(24, 16, 1024),  # 355 million
        "gpt2-large": _sizes(36, 20, 1280),  # 774 million
        "llama-1.1b": {
            **LLAMA, **_sizes(22, 32, 2048, 2048), "vocab_size": 32_000,
            "n_hidden": 5632, "n_kv_head": 4, "tied": False,
        },
        "gpt2-xl": _sizes(48, 25, 1600),  # 1.56 billion
    }
)  # fmt: skip
