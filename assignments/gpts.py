"""Small GPTs with given parameters, for the checks of a10 and a14.

With this file a call makes a model of a kind and a seed (`model_of`), and an oracle has
the same numbers (`parameters`). As `calling.py` it runs in the student's process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assignments.calling import tensor

# The sizes of all models here; the width of a head is even, for rotary positions.
SIZES = {"vocab_size": 11, "block_size": 8, "n_head": 2, "n_embd": 8}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt": {"bias": False, "mlp": "gelu", "n_kv_head": 1},
    "llama": {"norm": "rms", "positions": "rotary", "mlp": "swiglu", "bias": False,
              "n_kv_head": 1},
}  # fmt: skip


def shapes(kind: str, layers: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters, by their names."""
    given, c, vocab = KINDS[kind], SIZES["n_embd"], SIZES["vocab_size"]
    heads, bias = SIZES["n_head"], given.get("bias", True)
    qkv = c + 2 * given.get("n_kv_head", heads) * c // heads
    units = 8 * c if given.get("mlp") == "swiglu" else 4 * c
    products = {
        "attn.c_attn": (qkv, c), "attn.c_proj": (c, c), "mlp.c_fc": (units, c),
        "mlp.c_proj": (c, 4 * c),
    }  # fmt: skip
    found: dict[str, tuple[int, ...]] = {"wte.weight": (vocab, c)}
    if given.get("positions") != "rotary":
        found["wpe.weight"] = SIZES["block_size"], c
    names = [f"h.{i}.ln_{n}" for i in range(layers) for n in (1, 2)]
    for i in range(layers):
        found.update({f"h.{i}.{n}.weight": shape for n, shape in products.items()})
    found.update({f"{name}.weight": (c,) for name in [*names, "ln_f"]})
    if bias:
        known = [name for name in found if not name.startswith("w")]
        found.update({f"{n[:-6]}bias": found[n][:1] for n in known})
    return found


def parameters(kind: str, layers: int, seed: int) -> dict[str, np.ndarray]:
    """Parameters of a model, by a seed: too many numbers to print."""
    random = np.random.default_rng([seed, 1])
    found = shapes(kind, layers)
    return {n: random.uniform(-1, 1, found[n]).astype(np.float32) for n in found}


def model_of(
    device: str, kind: str, layers: int, seed: int, dropout: float = 0.0
) -> Any:
    """A GPT with given parameters."""
    from minitorch import no_grad
    from minitorch.models import GPT, GPTConfig

    config = GPTConfig(**SIZES, **KINDS[kind], n_layer=layers, dropout=dropout)
    model = GPT(config).to(device)
    given = parameters(kind, layers, seed)
    with no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensor(device, given[name]))
    return model
