"""Every public operation on 32 x 32 elements: what the host pays for a call.

With this file one can time all that `minitorch`, `minitorch.nn.functional` and `Tensor`
offer where there is next to nothing to compute (`tiny_cases`). No list of operations
stands here: `public_operations` finds them, and the arguments of a call follow from the
names of its parameters. An operation that is added is timed from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import minitorch as mt
import minitorch.nn.functional as functional
from minitorch.bench.inputs import (
    Case,
    Pair,
    our_device,
    their_device,
    torch_module,
)

NAMESPACES: dict[str, Any] = {
    "minitorch": mt,
    "functional": functional,
    "Tensor": mt.Tensor,
}


def public_operations() -> dict[str, Any]:
    """All functions, methods and properties that programs can call, by full name.

    Python's own special methods count where they are operators, as `__add__` is.
    """
    found = {}
    for space, owner in NAMESPACES.items():
        for name, value in _members(owner).items():
            special = name.startswith("__") and not hasattr(object, name)
            special = special and isinstance(owner, type)
            callable_ = inspect.isfunction(value) or isinstance(
                value, (property, staticmethod)
            )
            if callable_ and (special or not name.startswith("_")):
                found[f"{space}.{name}"] = value
    return found


def _members(owner: Any) -> dict[str, Any]:
    """What a module or a class holds, or a class gets from the rooms it is made of."""
    bases = owner.__mro__[-2::-1] if isinstance(owner, type) else [owner]
    return {name: value for base in bases for name, value in vars(base).items()}


# ------------------------------------------------------------------------- arguments

N = 32
X = np.random.default_rng(0).uniform(0.1, 0.9, (N, N)).astype(np.float32)
ROW, STATISTICS, MASK, PLACES = X[0], X[1], X > 0.5, np.arange(N * N).reshape(N, N) % N
IMAGE, CLASSES, INT8 = X.reshape(1, 1, N, N), PLACES[0], PLACES.astype(np.int8)

# What a parameter of this name gets: an array becomes a tensor. A parameter that has a
# default, and no name of these, is left out with all that follow it.
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("input", "self", "a", "x", "other", "mat2", "src", "target"), X),
    **dict.fromkeys(("x1", "x2", "tensor1", "tensor2", "mat1"), X),
    **dict.fromkeys(("weight", "bias", "vec"), ROW),
    **dict.fromkeys(("running_mean", "running_var"), STATISTICS),
    **dict.fromkeys(("mask", "condition"), MASK),
    **dict.fromkeys(("dim", "source", "diagonal", "dim1"), 1),
    **dict.fromkeys(("dim0", "destination", "start", "low"), 0),
    **dict.fromkeys(("kernel_size", "length", "chunks", "k", "split_size"), 4),
    **dict.fromkeys(("value", "fill_value"), 0.5), "tensors": [X, X], "index": PLACES,
    "exponent": 2.5, "shape": (4, 8, N), "times": (2, 2), "dims": (1, 0), "min": 0.2,
    "max": 0.8, "sizes": (4, 8), "high": 9, "normalized_shape": (N,), "output_size": 8,
    "pad": (1, 1), "repeats": 2, "shifts": (3, 1), "num_samples": 4, "query": X,
    "key": X, "equation": "ij,jk->ik", "operands": [X, X], "cos": X[:, 0::2],
    "sin": X[:, 1::2],
}  # fmt: skip

# What some need instead; None leaves the parameter out.
IMAGES = {"input": IMAGE, "weight": IMAGE[..., :3, :3], "bias": None}
SEQUENCES = {"input": X[None, :1], "weight": X[None, :1, :3], "bias": None}
VECTORS = {"input": ROW, "other": ROW, "vec2": ROW}
MASKS = {"self": MASK, "other": MASK}
BY_CLASS = {"target": CLASSES, "weight": None}
WITHOUT = {"weight": None, "dim": None}
SOME_ROWS = {"index": slice(3, 7), "value": 1}
WIDE = {"shape": (4, N, N)}
BITS = [f"__{way}{op}__" for op in ("and", "or", "xor") for way in ("", "r", "i")]
SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("dot", "outer"), VECTORS),
    **dict.fromkeys(("conv2d", "max_pool2d", "avg_pool2d"), IMAGES),
    **dict.fromkeys(("adaptive_avg_pool2d", "conv_transpose2d"), IMAGES),
    **dict.fromkeys(("conv1d", "conv_transpose1d", "max_pool1d"), SEQUENCES),
    **dict.fromkeys(("cross_entropy", "nll_loss"), BY_CLASS),
    **dict.fromkeys(("squeeze", "binary_cross_entropy"), WITHOUT),
    **dict.fromkeys(("binary_cross_entropy_with_logits",), WITHOUT),
    **{key: {"end": X} for key in ("lerp", "lerp_")},
    **dict.fromkeys(("__getitem__", "__setitem__"), SOME_ROWS),
    **dict.fromkeys(("expand", "broadcast_to"), WIDE),
    **dict.fromkeys((*BITS, "__invert__"), MASKS),
    "permute": {"dims": (1, 0)}, "select": {"index": 3}, "pad": {"value": None},
    **{key: {"index": CLASSES, "source": X} for key in ("index_copy_", "index_add_")},
    "index_select": {"index": CLASSES}, "bmm": {"input": X[None], "mat2": X[None]},
    "quantized_linear": {"weight": INT8, "scale": ROW},
    "linear": {"weight": X}, "linear_cross_entropy": {"linear_weight": X, **BY_CLASS},
    "embedding": {"input": CLASSES, "weight": X},
    "one_hot": {"input": CLASSES}, "item": {"self": X[0, 0]}, "batch_norm": WITHOUT,
    "group_norm": {"num_groups": 4}, "interpolate": {"input": IMAGE, "size": 48},
    "bincount": {"input": CLASSES},
    "meshgrid": {"tensors": [ROW, ROW]}, "scaled_dot_product_attention": {"value": X},
}  # fmt: skip

# These hand tensors to others, or have no fixed work.
UNTIMED = set(
    """cuda to numpy tolist requires_grad_ to_sparse_csr size data cpu grad_fn
    pin_memory type __array__ __dlpack__ __bool__ __contains__ is_contiguous is_pinned
    is_leaf is_floating_point random_zeros retain_grad __cuda_array_interface__ randint
    from_dlpack __iter__ is_cuda""".split()
)


def arguments(name: str, fn: Callable, dim: bool = False) -> list[Any] | None:
    """The positional arguments of a small call of `fn`; None where one is unknown.

    Args:
        dim: give a `dim` also where it may be left out.
    """
    known = {**ARGUMENTS, **SPECIAL.get(name, {})}
    found: list[Any] = []
    for parameter in inspect.signature(fn).parameters.values():
        value = known.get(parameter.name)
        several = parameter.kind is parameter.VAR_POSITIONAL
        optional = parameter.default is not parameter.empty or several
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        if value is None or (parameter.name == "dim" and optional and not dim):
            return found if optional else None
        found += list(value) if several else [value]
    return found


def rival(space: str, name: str) -> Any:
    """What PyTorch has under this name, or None."""
    torch = torch_module()
    spaces = {"minitorch": torch, "functional": torch.nn.functional}
    for owner in (spaces.get(space, torch.Tensor), torch.Tensor, *spaces.values()):
        if hasattr(owner, name):
            return getattr(owner, name)
    return None


def tiny_cases(device: str | None = None) -> Iterator[Case]:
    """Every operation that PyTorch has too, with recording; with and without a dim."""
    seen = set()
    for full, found in public_operations().items():
        space, _, name = full.partition(".")
        fn = getattr(found, "fget", getattr(found, "__func__", found))
        result = str(inspect.signature(fn).return_annotation)
        tensors = any(word in result for word in ("Tensor", "Any", "Values", "bool"))
        theirs = rival(space, name)
        if fn in seen or name in UNTIMED or not tensors or theirs is None:
            continue
        seen.add(fn)
        theirs = (
            getattr(theirs, "__get__", theirs)
            if isinstance(found, property)
            else theirs
        )
        plain, other = arguments(name, fn), arguments(name, fn, dim=True)
        calls = (
            {"": plain, ", dim 1": other}
            if len(plain or ()) != len(other or ())
            else {"": plain}
        )
        if space == "functional":  # where a dim is meant to be given
            calls = {"": other}
        for text, given in calls.items():
            if given:
                build = partial(_pair, device, name, fn, theirs, given)
                yield Case("tiny", name + text, build, goal=3.0)


def _pair(
    device: str | None, name: str, fn: Callable, theirs: Callable, given: Any
) -> Pair:
    """The two calls, on tensors of their own with the same numbers."""
    torch = torch_module()
    writes = name.endswith("_") and (name[:2] != "__" or name[:3] in ("__i", "__s"))

    def of(make: Callable, device: str, value: Any) -> Any:
        if isinstance(value, list):
            return [of(make, device, one) for one in value]
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        recorded = value.dtype == np.float32 and not writes and value is not STATISTICS
        return make(np.array(value), device=device).requires_grad_(recorded)

    ours = [of(mt.tensor, device or our_device(), value) for value in given]
    other = [of(torch.tensor, their_device(), value) for value in given]
    return lambda: fn(*ours), lambda: theirs(*other)
