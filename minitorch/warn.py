"""Warnings that name the user's line.

With this file `warn(text)` tells the first line outside of this package that led to it,
however many functions lie between: `warnings.warn` with a fixed `stacklevel` does so
for one way only.
"""

from __future__ import annotations

import sys
import warnings


def warn(text: str) -> None:
    """A UserWarning at the line outside of this package that led here."""
    package, level, frame = __name__.partition(".")[0], 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == package:
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
