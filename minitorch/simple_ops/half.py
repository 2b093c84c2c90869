"""Numbers of 16 bits, made of the bits of a float32.

With this file lists become tensors of bfloat16 (`round_to_bfloat16`), which is the
upper half of a float32: the sign, the eight bits of the exponent, and seven of the
fraction.

    sign exponent fraction | what is cut off
      s  eeeeeeee fffffff  | xxxxxxxxxxxxxxxx

Source: Kalamkar et al., "A study of bfloat16 for deep learning training", 2019.
"""

from __future__ import annotations

import numpy as np

from minitorch.dtypes import bfloat16


def to_bfloat16(word: int) -> int:
    """The bits of a float32, rounded to those of the nearest bfloat16.

    Of two that are as near, the one whose last bit is 0. A carry may run through the
    fraction into the exponent, which is right: 1.111..., rounded up, is 10.000. So
    what is too large becomes infinite. A NaN stays one, whichever of its bits is set.
    """
    # BEGIN SOLUTION a11.4
    kept, cut = word >> 16, word & 0xFFFF
    if word & 0x7FFFFFFF > 0x7F800000:
        return kept | 0x40
    return kept + (cut > 0x8000 or (cut == 0x8000 and kept % 2 == 1))
    # END SOLUTION a11.4


def round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    """A flat array of float32, rounded to the nearest bfloat16."""
    words = [to_bfloat16(word) for word in array.view(np.uint32).tolist()]
    return np.array(words, np.uint16).view(bfloat16.numpy)
