"""The page "Strides": which storage positions a view shows, and what broadcasts.

With this file one can follow typed views step by step (`views_of`) and compare two
shapes (`broadcast`), on real tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from minitorch.creation import arange
from minitorch.lab.expressions import DEVICE, MOST_NUMBERS, VIEWS, evaluate
from minitorch.lab.questions import text
from minitorch.tensor import Tensor
from minitorch.tensor_data import broadcast_shapes

MOST_DIMS = 6


def shape_of(typed: str) -> tuple[int, ...]:
    """A typed shape: "3, 4", "(3, 4)" or "" for no dimension.

    Raises:
        ValueError: it is none, or has too many numbers.
    """
    parts = typed.strip(" ()").rstrip(", ").split(",")
    sizes = [part.strip() for part in parts] if parts != [""] else []
    if not all(part.isdecimal() for part in sizes) or len(sizes) > MOST_DIMS:
        raise ValueError(
            f"{typed!r:.40}: expected a shape, as 3, 4, of at most {MOST_DIMS} sizes"
        )
    found = tuple(map(int, sizes))
    if math.prod(found) > MOST_NUMBERS:
        raise ValueError(
            f"{found} has {math.prod(found)} numbers; at most {MOST_NUMBERS} are shown"
        )
    return found


def window(x: Tensor, source: str, storage: Any) -> dict[str, Any]:
    """A tensor as a window onto its storage; `storage` is that of t."""
    return {
        "text": source,
        "shape": list(x.shape),
        "strides": list(x.raw.strides),
        "offset": x.raw.offset,
        "contiguous": x.raw.is_contiguous(),
        "shares": x.raw.storage is storage,
        "positions": list(x.raw.positions()),
        "storage": x.raw.storage.array.tolist(),
    }


def views_of(typed_shape: str, typed: str) -> dict[str, Any]:
    """t of this shape, and each tensor on the way to what was typed.

    Raises:
        ValueError, TypeError, IndexError: what is wrong with it.
    """
    shape = shape_of(typed_shape)
    t = arange(math.prod(shape), device=DEVICE).view(shape)
    storage = t.raw.storage
    steps = [window(t, "t", storage)]
    out = evaluate(
        typed or "t",
        {"t": t},
        VIEWS,
        lambda x, source: steps.append(window(x, source, storage)),
    )
    if not isinstance(out, Tensor):
        raise ValueError(f"{typed!r:.40} is {out!r:.40}; expected a view of t")
    return {"steps": steps}


def broadcast(one: str, other: str) -> dict[str, Any]:
    """What two typed shapes expand to, dimension by dimension, or why they do not.

    Raises:
        ValueError: one of them is no shape.
    """
    shapes = shape_of(one), shape_of(other)
    dims = max(len(shape) for shape in shapes)
    padded = [(None,) * (dims - len(shape)) + shape for shape in shapes]
    rows = [{"sizes": pair, "rule": _rule(*pair)} for pair in zip(padded[0], padded[1])]
    try:
        shape = broadcast_shapes(*shapes)
    except ValueError as error:
        return {"rows": rows, "shape": None, "why": str(error)}
    expanded = [
        list(arange(math.prod(s), device=DEVICE).view(s).expand(shape).raw.strides)
        for s in shapes
    ]
    return {"rows": rows, "shape": list(shape), "strides": expanded}


def _rule(a: int | None, b: int | None) -> str:
    if a is None or b is None:
        return "missing in one: as if it were 1"
    if a == b:
        return "equal"
    if 1 in (a, b):
        return f"1 is repeated {b if a == 1 else a} times, with stride 0"
    return f"{a} and {b} differ, and neither is 1"


class StridesPage:
    """What answers for the page."""

    def __init__(self) -> None:
        self.questions = {
            "views": lambda q: views_of(text(q, "shape", 60), text(q, "text", 200)),
            "broadcast": lambda q: broadcast(text(q, "one", 60), text(q, "other", 60)),
        }

    def listen(self) -> Iterator[dict[str, Any] | None]:
        return iter(())
