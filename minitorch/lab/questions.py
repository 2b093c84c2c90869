"""What a page asked, checked.

With this file one can take a field out of a question (`number`, `whole`, `choice`,
`text`); what is missing, or makes no sense, is a ValueError that says what was
expected. And numbers can be packed for a page (`packed`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


def number(question: dict[str, Any], name: str, low: float, high: float) -> float:
    """A number from `low` to `high`."""
    x = question.get(name)
    if isinstance(x, bool) or not isinstance(x, (int, float)) or not low <= x <= high:
        raise ValueError(f"{name}: got {x!r:.40}; expected a number, {low} to {high}")
    return float(x)


def whole(question: dict[str, Any], name: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    x = question.get(name)
    if type(x) is not int or not low <= x <= high:
        raise ValueError(
            f"{name}: got {x!r:.40}; expected a whole number, {low} to {high}"
        )
    return x


def choice(question: dict[str, Any], name: str, known: Iterable[str]) -> str:
    """One of the `known` words."""
    x, words = question.get(name), tuple(known)
    if not isinstance(x, str) or x not in words:
        raise ValueError(f"{name}: got {x!r:.40}; choose from {', '.join(words)}")
    return x


def text(question: dict[str, Any], name: str, most: int) -> str:
    """A text of at most `most` characters."""
    x = question.get(name)
    if not isinstance(x, str) or len(x) > most:
        raise ValueError(f"{name}: expected a text of at most {most} characters")
    return x


def packed(x: npt.NDArray[Any]) -> str:
    """The bytes of an array, for a typed array of the page."""
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
