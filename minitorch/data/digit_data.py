"""With this file one can get digits on any machine: `load_digits` returns MNIST where
that can be had, and digits that are drawn here where it cannot.

    >>> digits = load_digits(train=True)
    >>> digits.images.shape, digits.source
    ((60000, 28, 28), 'mnist')
    >>> test = load_digits(train=False, source=digits.source)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from minitorch.data.digits import drawn_digits
from minitorch.data.mnist import MNISTUnavailable, load_mnist

Source = Literal["mnist", "drawn"]

# How many digits are drawn in place of MNIST's 60,000 and 10,000.
DRAWN_TRAIN = 12_000
DRAWN_TEST = 2_000


@dataclass(frozen=True)
class DigitData:
    """images uint8 [N, 28, 28] (0 is background, 255 ink), labels uint8 [N].

    `source`: "mnist" or "drawn". `notice`: what the user should be told, such as why
    these are not MNIST's; "" if nothing.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    source: Source
    notice: str = ""

    def __len__(self) -> int:
        return len(self.labels)


def load_digits(
    data_dir: str | os.PathLike[str] | None = None,
    train: bool = True,
    allow_download: bool = True,
    *,
    source: Source | None = None,
    least: int = 0,
) -> DigitData:
    """MNIST (see `load_mnist`), or else 12,000 (2,000 if not `train`) drawn digits.

    A `data_dir`, and the folder that MINITORCH_DATA names, must have MNIST's files.
    `least`: how many digits to draw at least; the first 12,000 are always the same.
    `source`: "mnist" to have no digits rather than drawn ones, "drawn" not to look for
    MNIST. A test set should have the source of its training set.

    Errors: MNISTFileError for a file that is broken, or not there, in a folder that the
    user named, since other digits in its place would hide that; MNISTUnavailable if
    source is "mnist"; ValueError for another source.
    """
    if source not in (None, "mnist", "drawn"):
        raise ValueError(
            f"load_digits: source is {source!r}; expected 'mnist', 'drawn' or None"
        )
    if source == "drawn":
        return _drawn(train, least, "")
    download = allow_download and data_dir is None
    try:
        images, labels = load_mnist(data_dir, train, download)
    except MNISTUnavailable as error:
        if source == "mnist":
            raise
        return _drawn(train, least, f"These are drawn digits, not MNIST's. {error}")
    return DigitData(images, labels, "mnist")


def _drawn(train: bool, least: int, notice: str) -> DigitData:
    n = max(least, DRAWN_TRAIN if train else DRAWN_TEST)
    images, labels = drawn_digits(n, seed=0, train=train)
    return DigitData(images, labels, "drawn", notice)
