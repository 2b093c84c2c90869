"""Tokens in a file, and windows of them for a language model.

With this file one can keep the tokens of a text in a file that need not fit into memory
(`write_tokens`, `open_tokens`), and draw batches of windows from it (`TokenWindows`).

    tokens       t  o  _  b  e  _  o  r
    window 2     x: _  b  e  _             what the model reads
                 y:    b  e  _  o          what follows each of these
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from minitorch.data.dataset import BatchDataset, Indices
from minitorch.data.files import atomic_write

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

Tokens = npt.NDArray[Any]
PathLike = str | os.PathLike[str]


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 where that is enough for all tokens, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def write_tokens(path: PathLike, ids: Iterable[int], vocab_size: int) -> None:
    """Write tokens as `token_dtype(vocab_size)`, one after the other and nothing else,
    as nanoGPT's `.bin` files are.

    Raises:
        ValueError: a token that is not below `vocab_size`.
    """
    tokens = np.fromiter(ids, np.int64)
    if tokens.size and not (0 <= tokens.min() and tokens.max() < vocab_size):
        raise ValueError(
            f"write_tokens: the tokens are from {tokens.min()} to {tokens.max()}; "
            f"vocab_size is {vocab_size}"
        )
    with atomic_write(path) as file:
        file.write(tokens.astype(token_dtype(vocab_size)).tobytes())


def open_tokens(path: PathLike, vocab_size: int) -> Tokens:
    """The tokens in a file [N], read from the disk as they are used.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is cut off, or has tokens of a larger type.
    """
    dtype, size = token_dtype(vocab_size), os.path.getsize(path)
    if size % dtype.itemsize:
        raise ValueError(
            f"open_tokens: {path} has {size} bytes, which are no whole number of "
            f"{dtype} tokens; it was cut off, or written for another vocab_size"
        )
    if size == 0:  # which cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


class TokenWindows(BatchDataset[tuple["Tensor", "Tensor"]]):
    """Sample i is x = tokens[i : i + T], y = tokens[i + 1 : i + 1 + T], int64 [T] each.

    Args:
        tokens: [N], whole numbers.
        block_size: T.

    Raises:
        ValueError: N is not more than T.
    """

    def __init__(self, tokens: Tokens, block_size: int) -> None:
        if block_size < 1 or len(tokens) <= block_size:
            raise ValueError(
                f"TokenWindows: block_size is {block_size}, and there are "
                f"{len(tokens)} tokens; a window needs one more than block_size"
            )
        self.tokens, self.block_size = tokens, block_size

    def __len__(self) -> int:
        return len(self.tokens) - self.block_size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.get_batch(np.array([range(len(self))[index]]))
        return x[0], y[0]

    def get_batch(self, indices: Indices) -> list[Tensor]:
        """x and y, int64 [*indices.shape, T]."""
        from minitorch.creation import from_numpy

        # BEGIN SOLUTION a10.4
        places = np.asarray(indices)[..., None] + np.arange(self.block_size + 1)
        windows = self.tokens[places].astype(np.int64)
        return [
            from_numpy(windows[..., :-1].copy()),
            from_numpy(windows[..., 1:].copy()),
        ]
        # END SOLUTION a10.4

    def draw(self, shape: tuple[int, ...], seed: int, *key: int) -> list[Tensor]:
        """Windows at random places: x and y, int64 [*shape, T].

        Which ones is a pure function of (seed, key): with the number of the step as the
        key, a run that is resumed draws what it would have drawn. A window may come
        twice.
        """
        # Philox' raw numbers stay the same with later NumPys, see `shuffled`. The
        # remainder prefers some places by less than one part in 10^9.
        source = np.random.SeedSequence(seed, spawn_key=key)
        numbers = np.random.Philox(source).random_raw(int(np.prod(shape)))
        return self.get_batch((numbers % len(self)).astype(np.int64).reshape(shape))
