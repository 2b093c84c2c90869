"""Other layers in the place of a model's: bytes for floats, adapters around weights.

With this file one can write functions that change a model in place, as `quantize_` and
`add_lora_` do (`replace_`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minitorch.nn.module import Module

M = TypeVar("M", bound=Module)


def replace_(
    caller: str,
    model: M,
    kind: type,
    make: Callable[[Any], Module],
    filter_fn: Callable[[Any, str], bool] = lambda layer, name: True,
) -> M:
    """Put make(layer) in the place of layers of one kind, wherever each is used.

    Args:
        caller: the name of the function, for errors.
        kind: which layers. Subclasses stay, since nobody knows what they do.
        filter_fn: filter_fn(layer, name) says which of them.

    Returns: the model.

    Raises:
        ValueError: the model is itself such a layer, one has hooks, or make(layer)
            says so; nothing was replaced.
    """
    if isinstance(model, kind):
        raise ValueError(
            f"{caller}: the model is a {kind.__name__}, which nothing can replace in "
            f"place; put it into an nn.Sequential"
        )
    found = [
        (name, module)
        for name, module in model.named_modules()
        if type(module) is kind and filter_fn(module, name)
    ]
    for name, module in found:
        hooks = module._forward_hooks, module._forward_pre_hooks
        if any((*hooks, module._backward_hooks)):
            raise ValueError(f"{caller}: {name} has hooks; remove them first")
    made: Any = {module: make(module) for _, module in found}  # may be used often
    for module in list(model.modules()):
        for name, part in module._modules.items():
            if part in made:
                module._modules[name] = made[part]
    return model
