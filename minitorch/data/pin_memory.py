"""With this file one can put a batch into pinned memory, whatever its structure:
`pin_memory`, which a `DataLoader(..., pin_memory=True)` does with each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def pin_memory(batch: Any) -> Any:
    """The batch with all of its tensors in pinned memory (`Tensor.pin_memory`).

    Goes through lists, tuples, named tuples and mappings, and calls the method
    `pin_memory` of whatever has one; strings and others stay as they are.

    Errors: RuntimeError for a tensor that is not on the CPU.
    """
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        pinned = {key: pin_memory(value) for key, value in batch.items()}
        return pinned if type(batch) is dict else _like(batch, pinned)
    if isinstance(batch, (tuple, list)):
        parts = [pin_memory(part) for part in batch]
        named = hasattr(batch, "_fields")
        return type(batch)(*parts) if named else type(batch)(parts)
    return batch


def _like(batch: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    """`made` in the type of `batch`, if that can be made from a dict."""
    make: Callable[[dict[Any, Any]], Any] = type(batch)
    try:
        return make(made)
    except TypeError:
        return made
