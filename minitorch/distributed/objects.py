"""Python objects between ranks: small ones, as bytes.

With this file ranks can tell each other what is no tensor (`all_gather_object`,
`broadcast_object_list`, `gather_object`, `scatter_object_list`). Objects are pickled:
trust the other ranks.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from minitorch.creation import from_numpy, zeros
from minitorch.distributed.collectives import (
    Group,
    all_gather_into_tensor,
    all_reduce,
    broadcast,
    in_group,
    member,
)
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.dtypes import int64
from minitorch.tensor import Tensor


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """`object_list[r]` becomes the object of rank r."""
    g = member("all_gather_object", group)
    if g is None:
        return
    _places("all_gather_object", object_list, g, True)
    words = _words(obj)
    padded = np.zeros(all_reduced(len(words), ReduceOp.MAX, g), np.int64)
    padded[: len(words)] = words
    all_words = zeros(g.size() * len(padded), dtype=int64, device=_device(g))
    all_gather_into_tensor(all_words, _on_device(g, padded), g)
    for rank, part in enumerate(np.split(all_words.cpu().numpy(), g.size())):
        object_list[rank] = pickle.loads(part.tobytes())


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: Group = None
) -> None:
    """The objects of the list become those of rank `src`, which are as many."""
    g = member("broadcast_object_list", group)
    if g is None:
        return
    root = in_group("broadcast_object_list", g, src, "src") == g.rank()
    words = _words(list(object_list)) if root else np.zeros(0, np.int64)
    count = _on_device(g, np.array([len(words)]))
    broadcast(count, src, g)
    sent = _on_device(g, words if root else np.zeros(count.item(), np.int64))
    broadcast(sent, src, g)
    if not root:
        object_list[:] = pickle.loads(sent.cpu().numpy().tobytes())


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int = 0,
    group: Group = None,
) -> None:
    """On rank `dst`, `object_gather_list[r]` becomes the object of rank r."""
    g = member("gather_object", group)
    if g is None:
        return
    root = in_group("gather_object", g, dst, "dst") == g.rank()
    found = _places("gather_object", object_gather_list, g, root)
    all_gather_object(found, obj, g)
    if root and object_gather_list is not None:
        object_gather_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int = 0,
    group: Group = None,
) -> None:
    """On rank r, the output list begins with object r of rank `src`'s input list."""
    g = member("scatter_object_list", group)
    if g is None:
        return
    root = in_group("scatter_object_list", g, src, "src") == g.rank()
    sent = _places("scatter_object_list", scatter_object_input_list, g, root)
    broadcast_object_list(sent, src, g)
    scatter_object_output_list[0] = sent[g.rank()]


def _places(caller: str, objects: Any, group: ProcessGroup, root: bool) -> list[Any]:
    """The root's list, which has an object for each rank; elsewhere one as long."""
    if root and len(objects or ()) != group.size():
        raise ValueError(
            f"{caller}: the list has {len(objects or ())} places; expected "
            f"{group.size()}, one for each rank"
        )
    return list(objects) if root else [None] * group.size()


def all_reduced(number: int, op: ReduceOp, group: ProcessGroup) -> int:
    """A whole number of each rank, as one."""
    x = _on_device(group, np.array([number]))
    all_reduce(x, op, group)
    return int(x.item())


def highest(number: int) -> int:
    """The highest of all ranks' numbers."""
    group = member("highest")
    assert group is not None
    return all_reduced(number, ReduceOp.MAX, group)


def _words(obj: Any) -> np.ndarray:
    """Its pickle; what follows the end of a pickle is not read."""
    data = pickle.dumps(obj)
    return np.frombuffer(data + bytes(-len(data) % 8), np.int64)


def _device(group: ProcessGroup) -> str:
    return "cuda" if group.backend == "nccl" else "cpu"


def _on_device(group: ProcessGroup, array: np.ndarray) -> Tensor:
    return from_numpy(array.copy(), _device(group))
