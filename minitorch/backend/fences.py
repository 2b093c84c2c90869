"""Where somebody can stand around the memory that backends take.

With this file a grader lets every new array lie between two fences, to see what kernels
write behind its end (`assignments/fences.py`). As long as `around` is None, which is
always so in programs, it costs a comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitorch.dtypes import DType

Take = Callable[[int, DType], Any]  # `size` elements of a type, as a flat array

# Makes an array of `size` elements with the help of a backend's own function.
around: Callable[[Take, int, DType], Any] | None = None
