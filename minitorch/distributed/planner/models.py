"""Language models in numbers: parameters and operations, exactly.

With this file one can take a model by name (`named("gpt2")`, `named("llama-8b")`), read
one from a JSON or TOML file (`read`), and count what it learns (`parameters`) and what
a token costs (`flops_per_token`, for model FLOPs utilization; `step_flops`, as done).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from minitorch.models.config import PRESETS, GPTConfig

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

SHAPES = ("gpt2", "llama")
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder: GPT-2's shape (biases, learned positions, two products in an
    MLP) or Llama's (no biases, rotary positions, three products).

    Attributes:
        layers, hidden, ffn, heads, kv_heads: blocks, width, units of an MLP, heads of
            queries and of keys and values.
        vocabulary: how many tokens there are.
        tied: whether the head shares the table of the tokens.
        positions: rows of the table of positions, of GPT-2's shape.
        bias: whether products and norms of GPT-2's shape have one.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    shape: str = "llama"
    positions: int = 0
    bias: bool = True

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary")
        for name in sizes:
            check_number(f"model {self.name}: {name}", getattr(self, name), int)
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"model {self.name}: hidden is {self.hidden}, heads {self.heads} and "
                f"kv_heads {self.kv_heads}; each must be a multiple of the next"
            )
        if self.shape not in SHAPES or self.positions < 0:
            raise ValueError(
                f"model {self.name}: shape is {self.shape!r} and positions is "
                f"{self.positions}; expected one of {', '.join(SHAPES)}, and 0 or more"
            )

    @property
    def kv(self) -> int:
        """Numbers of a token's keys, and of its values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def table(self) -> int:
        """Parameters of the table of tokens, or of the head."""
        return self.vocabulary * self.hidden

    @property
    def matrices(self) -> int:
        """Parameters of a layer that stand in matrix products."""
        h, products = self.hidden, 2 if self.shape == "gpt2" else 3
        return 2 * h * h + 2 * h * self.kv + products * h * self.ffn

    @property
    def layer(self) -> int:
        """All parameters of a layer."""
        h, bias = self.hidden, int(self.shape == "gpt2" and self.bias)
        biases = bias * (2 * h + 2 * self.kv + self.ffn + h)
        return self.matrices + biases + 2 * h * (1 + bias)

    def parameters(self, copies: int = 1) -> int:
        """How many numbers are learned.

        12 l h^2 + 13 l h + (V + s) h for GPT-2's shape with f = 4 h, and the last norm.

        Args:
            copies: of a tied table; a pipeline's first and last stage hold one each.
        """
        tables = self.table * (copies if self.tied else 2)
        last_norm = self.hidden * (1 + int(self.shape == "gpt2" and self.bias))
        return (
            self.layers * self.layer + tables + self.positions * self.hidden + last_norm
        )

    def flops_per_token(self, sequence: int, copies: int = 1) -> float:
        """6 N + 12 L h s: what model FLOPs utilization (MFU) counts for a token."""
        attention = 12 * self.layers * self.hidden * sequence
        return 6 * self.parameters(copies) + attention

    def layer_flops(self, sequence: int) -> tuple[float, float]:
        """Operations of a layer's forward pass for a token: products, attention."""
        return 2.0 * self.matrices, 4.0 * self.hidden * sequence

    def step_flops(self, batch: int, sequence: int, recompute: bool = True) -> float:
        """Operations of a step of so many sequences; a backward pass is two forward.

        96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) for GPT-2's shape with f = 4 h and
        all layers computed twice. Source: Narayanan et al., "Efficient large-scale
        language model training on GPU clusters using Megatron-LM", 2021 (SC21).
        """
        layers = self.layers * sum(self.layer_flops(sequence))
        return batch * sequence * (layers * (3 + recompute) + 6.0 * self.table)


def check_number(what: str, value: Any, kind: type) -> None:
    """ValueError unless `value` is a number above 0, and an int where `kind` is int."""
    number = isinstance(value, (int, kind)) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        a = "an int, 1 or more" if kind is int else "a number above 0"
        raise ValueError(f"{what} is {value!r}; expected {a}")


# Published models: Llama 2 and 3, and GPT-3.
PUBLISHED = {
    model.name: model
    for model in (
        Model("llama-7b", 32, 4096, 11008, 32, 32, 32_000),
        Model("llama-8b", 32, 4096, 14336, 32, 8, 128_256),
        Model("llama-70b", 80, 8192, 28672, 64, 8, 128_256),
        Model("llama-405b", 126, 16384, 53248, 128, 8, 128_256),
        Model(
            "gpt3-175b", 96, 12288, 49152, 96, 96, 50_257, True, "gpt2", positions=2048
        ),
    )
}


def named(name: str) -> Model:
    """A model by name: a published one, one of `minitorch.models`, or a file's."""
    if name not in PRESETS:
        return PUBLISHED.get(name) or read(Model, name, [*PRESETS, *PUBLISHED])
    return described(name, GPTConfig.preset(name))


def described(name: str, c: GPTConfig) -> Model:
    """A model of `minitorch.models` by its sizes."""
    return Model(
        name, c.n_layer, c.n_embd, c.hidden, c.n_head, c.kv_heads, c.vocab_size, c.tied,
        "llama" if c.mlp == "swiglu" else "gpt2",
        c.block_size if c.positions == "learned" else 0, c.bias,
    )  # fmt: skip


def read(cls: type[T], path: str, names: Iterable[str]) -> T:
    """An object of a dataclass from a JSON or TOML file of its fields; its name is the
    file's, if none is given. Errors: ValueError."""
    file, what = Path(path), cls.__name__.lower()
    if file.suffix not in (".json", ".toml"):
        raise ValueError(
            f"plan: there is no {what} {path!r}; expected one of {', '.join(names)}, "
            f"or a file that ends in .json or .toml"
        )
    try:
        given = (json if file.suffix == ".json" else tomllib).loads(
            file.read_text("utf-8")
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"plan: {path} is no {what}'s file: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"plan: {path} is a {type(given).__name__}; expected fields")
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    given = {"name": file.stem, **given}
    wrong = [f"{name} is not known" for name in given if name not in known]
    wrong += [
        f"{name} is missing"
        for name, f in known.items()
        if f.default is MISSING and name not in given
    ]
    if wrong:
        raise ValueError(
            f"plan: {path}: {', '.join(wrong)}; fields: {', '.join(known)}"
        )
    for name, value in given.items():
        kind = str(known[name].type)
        good = {"bool": bool, "str": str, "int": int}.get(kind, (int, float))
        if not isinstance(value, good) or (kind != "bool" and isinstance(value, bool)):
            raise ValueError(f"plan: {path}: {name} is {value!r}; expected {kind}")
    return cls(**given)
