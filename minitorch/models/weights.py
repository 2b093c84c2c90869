"""Weights of GPT-2 and Llama in the files that they are published in.

With this file one can read such files (`load_weights`, `from_pretrained`) and write
them (`save_weights`). They are safetensors; the names and layouts are those of Hugging
Face's `transformers`, which differ from this library's in three ways: GPT-2's linear
weights are transposed ([in, out]), Llama's queries, keys, values and its two inner
products are tensors of their own, and its parts have other names.

    ours                            Llama's
    wte.weight                      model.embed_tokens.weight
    h.0.ln_1.weight                 model.layers.0.input_layernorm.weight
    h.0.attn.c_attn.weight          model.layers.0.self_attn.{q,k,v}_proj.weight
    h.0.attn.c_proj.weight          model.layers.0.self_attn.o_proj.weight
    h.0.ln_2.weight                 model.layers.0.post_attention_layernorm.weight
    h.0.mlp.c_fc.weight             model.layers.0.mlp.{gate,up}_proj.weight
    h.0.mlp.c_proj.weight           model.layers.0.mlp.down_proj.weight
    ln_f.weight                     model.norm.weight
    lm_head.weight                  lm_head.weight
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.lora import lora_state_dict
from minitorch.models.config import LLAMA, GPTConfig
from minitorch.models.gpt import GPT
from minitorch.nn.module import misfits
from minitorch.quantization import QuantizedLinear
from minitorch.serialization import PathLike, load_file, save_file
from minitorch.tensor import Tensor

# Of our names; what is "{a,b}" there are several tensors, one below the other.
LLAMA_NAMES = {
    r"^wte": "model.embed_tokens",
    r"^ln_f": "model.norm",
    r"^h\.": "model.layers.",
    r"\bln_1\b": "input_layernorm",
    r"\bln_2\b": "post_attention_layernorm",
    r"\battn\.c_attn\b": "self_attn.{q,k,v}_proj",
    r"\battn\.c_proj\b": "self_attn.o_proj",
    r"\bmlp\.c_fc\b": "mlp.{gate,up}_proj",
    r"\bmlp\.c_proj\b": "mlp.down_proj",
}
# Of its positions since Llama 3.1, in the order of `RotaryEmbedding`'s scaling.
LLAMA3_SCALING = (
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
)  # fmt: skip
# Tensors of files that are no weights: masks, and the speeds of rotary positions.
IGNORED = re.compile(r"\.attn\.(masked_)?bias$|\.rotary_emb\.inv_freq$")
HEAD = "lm_head.weight"


# A name of a file's tensor, and the part of a parameter that it is: a view of it.
Part = tuple[str, Tensor]


def load_weights(model: GPT, path: PathLike) -> GPT:
    """Put the weights of a safetensors file, or of all in a folder, into the model.

    Args:
        path: in GPT-2's layout or Llama's, as the model's parts are.

    Errors: FileNotFoundError; ValueError, if the model has parts of both, or if a
    tensor is missing, unexpected or of another shape: all of them are named, and
    nothing was changed.
    """
    files = _files(Path(path))
    found = {k: v for file in files for k, v in load_file(file).items()}
    found = {
        name.removeprefix("transformer."): tensor
        for name, tensor in found.items()
        if not IGNORED.search(name)
    }
    parts = dict(_parts(model))
    problems = _untied(model, found, parts) + misfits(parts, found)
    if problems:
        raise ValueError(
            f"load_weights: {path} does not fit the model, and nothing was changed:\n"
            "    " + "\n    ".join(problems)
        )
    with no_grad():
        for name, view in parts.items():
            view.copy_(found[name])
    return model


def save_weights(model: GPT, path: PathLike) -> None:
    """Write the weights in GPT-2's layout or Llama's, as the model's parts are.

    Errors: ValueError if it has parts of both; `minitorch.save(model.state_dict(),
    path)` stores any model.
    """
    save_file(dict(_parts(model)), path)


def from_pretrained(path: PathLike, config: GPTConfig | None = None) -> GPT:
    """A model with the weights of a file, or of all files in a folder.

    Args:
        config: what it is made of; None: as `config.json` beside the file says.

    Errors: as those of `load_weights`.
    """
    if config is None:
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        config = read_config(folder / "config.json")
    return load_weights(GPT(config), path)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"load_weights: {path} has no *.safetensors files")
    return files


def _parts(model: GPT) -> Iterator[Part]:
    """What a file of this model holds; views share the memory of parameters."""
    if any(isinstance(module, QuantizedLinear) for module in model.modules()):
        raise ValueError(
            "weights: the model is quantized, which these files cannot tell; load them "
            "before quantize_, and store model.state_dict() with minitorch.save"
        )
    if lora_state_dict(model):
        raise ValueError(
            "weights: the model has adapters, which these files cannot tell; merge_ "
            "them first, or store lora_state_dict(model) with minitorch.save"
        )
    llama = _is_llama(model.config)
    for name, parameter in model.named_parameters():
        whole = parameter.detach()
        if llama:
            yield from _llama_parts(model.config, name, whole)
        else:
            turned = whole.dim() == 2 and name.startswith("h.")
            yield name, whole.t() if turned else whole


def _llama_parts(config: GPTConfig, name: str, whole: Tensor) -> Iterator[Part]:
    for ours, theirs in LLAMA_NAMES.items():
        name = re.sub(ours, theirs, name)
    several = re.search(r"\{(.*)\}", name)
    if several is None:
        yield name, whole
        return
    names = several[1].split(",")
    q, kv = config.n_embd, config.kv_heads * config.head_size
    sizes = (q, kv, kv) if len(names) == 3 else (config.hidden,) * 2
    for each, view in zip(names, whole.split(sizes)):
        yield name.replace(several[0], each), view


def _is_llama(config: GPTConfig) -> bool:
    """Whether the parts are Llama's, or GPT-2's."""
    own = {name: getattr(config, name) for name in LLAMA}
    if own == LLAMA:
        return True
    gpt2 = (config.norm, config.positions) == ("layer", "learned")
    if gpt2 and config.mlp != "swiglu" and config.kv_heads == config.n_head:
        return False
    raise ValueError(
        f"weights: a model with {own} is neither a GPT-2 nor a Llama, which is "
        f"{dict(LLAMA)}; store its state_dict() with minitorch.save"
    )


def _untied(
    model: GPT, found: dict[str, Tensor], parts: Mapping[str, Tensor]
) -> list[str]:
    """Drop a head that is written although it is the table of tokens; or complain."""
    if not model.config.tied or HEAD not in found:
        return []
    table = next(iter(parts))  # what a model has first
    head, tokens = found.pop(HEAD), found.get(table)
    if tokens is None or (head.shape == tokens.shape and bool((head == tokens).all())):
        return []
    return [f"not tied: {HEAD!r} differs from {table!r}; this needs tied=False"]


def read_config(path: PathLike) -> GPTConfig:
    """The `config.json` of a GPT-2 or Llama in Hugging Face's words.

    Errors: FileNotFoundError; ValueError if it is another model, or one with parts that
    are not here.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except ValueError as error:  # no UTF-8, or no JSON
        raise ValueError(f"read_config: {path} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"read_config: {path} has a JSON {type(content).__name__}; expected an "
            f"object"
        )
    given = {k: v for k, v in content.items() if v is not None}
    kind = given.get("model_type")
    try:
        if kind == "gpt2":
            return _gpt2_config(given)
        if kind == "llama":
            return _llama_config(given)
    except KeyError as error:
        raise ValueError(f"read_config: {path} has no {error}") from None
    raise ValueError(
        f'read_config: {path} is of a {kind!r}; expected model_type "gpt2" or "llama"'
    )


def _refuse(given: Mapping[str, Any], **allowed: Any) -> None:
    """Only these values, or none, may be given."""
    for name, value in allowed.items():
        if given.get(name, value) != value:
            raise ValueError(
                f"read_config: {name} is {given[name]!r}; models here have {value!r}"
            )


def _gpt2_config(given: Mapping[str, Any]) -> GPTConfig:
    _refuse(
        given, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False,
    )  # fmt: skip
    kinds = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
    kind = given.get("activation_function", "gelu_new")
    if kind not in kinds:
        _refuse(given, activation_function="gelu_new")
    return GPTConfig(
        vocab_size=given["vocab_size"],
        block_size=given["n_positions"],
        n_layer=given["n_layer"],
        n_head=given["n_head"],
        n_embd=given["n_embd"],
        n_hidden=given.get("n_inner"),
        mlp=kinds[kind],
        tied=given.get("tie_word_embeddings", True),
        norm_eps=given.get("layer_norm_epsilon", 1e-5),
    )


def _llama_config(given: Mapping[str, Any]) -> GPTConfig:
    _refuse(given, hidden_act="silu", attention_bias=False, mlp_bias=False)
    # The second is the newer way to say how positions are turned.
    rope = given.get("rope_scaling") or {"rope_type": "default"}
    rope = {**given, **rope, **given.get("rope_parameters", {})}
    kind, scaling = rope.get("rope_type", rope.get("type")), None
    if kind == "llama3":
        scaling = tuple(rope[name] for name in LLAMA3_SCALING)
    elif kind != "default":
        raise ValueError(
            f'read_config: rope_type is {kind!r}; expected "default" or "llama3"'
        )
    heads = given["num_attention_heads"]
    size = given["hidden_size"] // heads
    _refuse(given, head_dim=size)
    return GPTConfig(
        vocab_size=given["vocab_size"],
        block_size=given["max_position_embeddings"],
        n_layer=given["num_hidden_layers"],
        n_head=heads,
        n_embd=given["hidden_size"],
        n_kv_head=given.get("num_key_value_heads"),
        n_hidden=given["intermediate_size"],
        tied=given.get("tie_word_embeddings", False),
        norm_eps=given.get("rms_norm_eps", 1e-6),
        rotary_base=rope.get("rope_theta", 10_000.0),
        rotary_scaling=scaling,
        **LLAMA,
    )
