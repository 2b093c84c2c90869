"""With this file one can join samples into a batch: `default_collate`, which a
`DataLoader` uses unless it is given another `collate_fn`; and put a batch into pinned
memory: `pin_memory`, which a `DataLoader(..., pin_memory=True)` does with each.

    tensors or arrays of one shape [...]   -> one tensor [B, ...]
    numbers                                -> a tensor [B] of float64, int64 or bool
    tuples, lists                          -> a list, collated place by place
    named tuples, dicts                    -> the same type, collated field by field
    strings, bytes                         -> the samples, as they are
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from minitorch.data.dataset import readable_by_numpy

if TYPE_CHECKING:
    from minitorch.tensor import Tensor


def default_collate(samples: Sequence[Any]) -> Any:
    """Joins B samples of one structure into a batch of that structure.

    Errors: ValueError where samples differ in shape, length or keys; TypeError for
    an empty batch or a type it does not know.
    """
    from minitorch.tensor import Tensor

    if len(samples) == 0:
        raise ValueError("default_collate: no samples given; expected at least one")
    first = samples[0]
    _check_types(samples)
    if isinstance(first, Tensor):
        return _stack_tensors(samples)
    if isinstance(first, (np.ndarray, np.generic)):
        return _stack_arrays([np.asarray(sample) for sample in samples])
    if isinstance(first, (bool, int, float)):
        return _numbers(samples)
    if isinstance(first, (str, bytes)):
        return samples
    if isinstance(first, Mapping):
        return _mappings(samples)
    if isinstance(first, (tuple, list)):
        return _tuples(samples)
    raise TypeError(
        f"default_collate: a sample is a {type(first).__name__}; expected tensors, "
        "arrays, numbers, strings, or tuples, lists or dicts of these. For anything "
        "else pass a collate_fn to the DataLoader"
    )


def _check_types(samples: Sequence[Any]) -> None:
    """Samples of one place must be of one kind (numbers may be mixed)."""
    numbers = (bool, int, float)
    first = samples[0]
    expected = numbers if isinstance(first, numbers) else type(first)
    for i, sample in enumerate(samples):
        if not isinstance(sample, expected):
            raise TypeError(
                f"default_collate: sample 0 is a {type(first).__name__} and sample "
                f"{i} a {type(sample).__name__}; expected the same type in all"
            )


def _check_shapes(shapes: Sequence[tuple[int, ...]]) -> None:
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"default_collate: sample 0 has shape {shapes[0]} and sample {i} has "
                f"{shape}; they must be equal to be stacked. Pad them, or pass a "
                "collate_fn to the DataLoader"
            )


def _stack_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """B tensors [...] -> [B, ...]"""
    from minitorch.creation import from_numpy
    from minitorch.tensor import Tensor

    _check_shapes([tuple(tensor.shape) for tensor in tensors])
    if all(readable_by_numpy(tensor) for tensor in tensors):
        # NumPy, not a kernel: this may run beside the kernels of the main thread.
        stacked = np.stack([tensor.numpy() for tensor in tensors])
        return from_numpy(stacked, device=tensors[0].device)
    return Tensor.stack(tensors)


def _stack_arrays(arrays: Sequence[npt.NDArray[Any]]) -> Tensor:
    from minitorch.creation import from_numpy

    _check_shapes([array.shape for array in arrays])
    return from_numpy(np.stack(arrays))


def _numbers(numbers: Sequence[float]) -> Tensor:
    """One tensor; float64 as soon as one number is a float, as in PyTorch."""
    from minitorch.creation import from_numpy

    array = np.array(numbers)
    if array.dtype not in (np.dtype(bool), np.dtype(np.float64)):
        array = array.astype(np.int64)
    return from_numpy(array)


def _mappings(samples: Sequence[Mapping[Any, Any]]) -> Any:
    first = samples[0]
    for i, sample in enumerate(samples):
        if sample.keys() != first.keys():
            raise ValueError(
                f"default_collate: sample 0 has the keys {list(first)} and sample {i} "
                f"{list(sample)}; expected the same keys in all"
            )
    return _like(
        first, {key: default_collate([s[key] for s in samples]) for key in first}
    )


def _tuples(samples: Sequence[Any]) -> Any:
    first = samples[0]
    for i, sample in enumerate(samples):
        if len(sample) != len(first):
            raise ValueError(
                f"default_collate: sample 0 has {len(first)} parts and sample {i} has "
                f"{len(sample)}; expected the same number in all"
            )
    parts = [default_collate(column) for column in zip(*samples, strict=True)]
    return type(first)(*parts) if _is_named(first) else parts


def _is_named(parts: Any) -> bool:
    """Whether a tuple or list is a named tuple."""
    return hasattr(parts, "_fields")


def _like(batch: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    """`made` in the type of `batch`, if that can be made from a dict."""
    make: Callable[[dict[Any, Any]], Any] = type(batch)
    try:
        return make(made)
    except TypeError:
        return made


def pin_memory(batch: Any) -> Any:
    """The batch with all of its tensors in pinned memory (`Tensor.pin_memory`).

    Goes through lists, tuples, named tuples and mappings, and calls the method
    `pin_memory` of whatever has one; strings and others stay as they are.

    Errors: RuntimeError for a tensor that is not on the CPU.
    """
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return _like(batch, {key: pin_memory(value) for key, value in batch.items()})
    if isinstance(batch, (tuple, list)):
        parts = [pin_memory(part) for part in batch]
        return type(batch)(*parts) if _is_named(batch) else type(batch)(parts)
    return batch
