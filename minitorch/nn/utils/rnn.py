"""Sequences of different lengths, together: padded, or packed.

With this file one can make one tensor of them that ends with padding (`pad_sequence`),
and let a recurrent layer read no padding: `pack_padded_sequence` puts all first steps
one after the other, then all second steps, and so on; `nn.RNN`, `nn.LSTM` and `nn.GRU`
take what it makes, and `pad_packed_sequence` leads back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minitorch.creation import tensor
from minitorch.functions.movement import cat, stack
from minitorch.functions.operands import checked_tensor
from minitorch.tensor import Tensor


class PackedSequence(NamedTuple):
    """B sequences, the longest first, as their first steps, their second, and so on.

    Attributes:
        data: all steps [sum of lengths, *].
        batch_sizes: how many sequences have a step t, int64 [T] on the CPU.
        sorted_indices: which of the sequences as they were given is the longest, and
            so on, [B]; None: they came in this order.
        unsorted_indices: the way back, [B].
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on another device, or of another type."""
        data = self.data.to(*args, **kwargs)
        order = (x if x is None else x.to(data.device) for x in self[2:])
        return PackedSequence(data, self.batch_sizes, *order)


def pad_sequence(
    sequences: Sequence[Tensor] | Tensor,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """B tensors [L, *] -> [T, B, *], or [B, T, *], where T is the largest L.

    Args:
        padding_value: what follows a shorter one; with `padding_side` "left", what
            comes before.

    Raises:
        ValueError: there is no sequence, or the sizes after the first differ.
    """
    given = [checked_tensor("pad_sequence", x) for x in sequences]
    if not given or len({x.raw.shape[1:] for x in given}) > 1 or not given[0].dim():
        raise ValueError(
            f"pad_sequence: the sequences are {[x.raw.shape for x in given]}; expected "
            f"some, of one dimension or more, that differ in the first size alone"
        )
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side is {padding_side!r}, no side")
    times, padded = max(len(x) for x in given), []
    for x in given:
        parts = [x, x.new_full((times - len(x), *x.raw.shape[1:]), padding_value)]
        padded.append(cat(parts if padding_side == "right" else parts[::-1]))
    return stack(padded, 0 if batch_first else 1)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """[T, B, *], or [B, T, *], without what comes after each sequence's length.

    Args:
        lengths: 1 to T each, as a list or a tensor [B].
        enforce_sorted: the longest comes first, and so on; else they are sorted here.

    Raises:
        ValueError: the lengths do not fit, or are not in this order.
    """
    shape = checked_tensor("pack_padded_sequence", input).raw.shape
    many = _lengths("pack_padded_sequence", lengths, shape, batch_first)
    order = np.argsort(-many, kind="stable")
    if enforce_sorted and (np.diff(many) > 0).any():
        raise ValueError(
            f"pack_padded_sequence: the lengths {many.tolist()} rise; sort the "
            f"sequences, the longest first, or pass enforce_sorted=False"
        )
    steps, columns = _there(many[order]).nonzero()
    places = np.stack([steps, order[columns]])
    index = np.ravel_multi_index(places[::-1] if batch_first else places, shape[:2])
    data = input.flatten(0, 1).index_select(0, tensor(index, device=input.device))
    sizes = tensor(np.bincount(steps), device="cpu")
    if enforce_sorted:
        return PackedSequence(data, sizes)
    ways = (tensor(way, device=input.device) for way in (order, np.argsort(order)))
    return PackedSequence(data, sizes, *ways)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences as they were given, [T, B, *] or [B, T, *], and their lengths [B].

    Args:
        padding_value: what follows the shorter ones.
        total_length: T; None: the longest's.
    """
    data, back = sequence.data, sequence.unsorted_indices
    sizes = np.array(sequence.batch_sizes.tolist())
    lengths = (sizes[:, None] > np.arange(sizes[0])).sum(0)
    times = len(sizes) if total_length is None else total_length
    if times < len(sizes):
        raise ValueError(
            f"pad_packed_sequence: total_length is {times}, but a sequence has "
            f"{len(sizes)} steps"
        )
    places = np.full((times, sizes[0]), len(data))  # of the padding, in the last row
    places[: len(sizes)][_there(lengths)] = np.arange(len(data))
    if back is not None:
        way = back.tolist()
        places, lengths = places[:, way], lengths[way]
    places = places.T if batch_first else places
    end = data.new_full((1, *data.raw.shape[1:]), padding_value)
    index = tensor(places.reshape(-1), device=data.device)
    padded = cat([data, end]).index_select(0, index).unflatten(0, places.shape)
    return padded, tensor(lengths, device="cpu")


def pack_sequence(
    sequences: Sequence[Tensor], enforce_sorted: bool = True
) -> PackedSequence:
    """B tensors [L, *], packed; see `pack_padded_sequence`."""
    lengths = [len(x) for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """[T, B, *], or [B, T, *] -> B tensors [L, *], without their padding."""
    shape = checked_tensor("unpad_sequence", padded_sequences).raw.shape
    many = _lengths("unpad_sequence", lengths, shape, batch_first).tolist()
    each = padded_sequences.unbind(0 if batch_first else 1)
    return [x[:length] for x, length in zip(each, many)]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, each [L, *]."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


def _lengths(
    name: str, lengths: Any, shape: tuple[int, ...], batch_first: bool
) -> np.ndarray:
    given = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    many = np.array(given, np.int64)
    times, batch = shape[:2][::-1] if batch_first else (*shape, 0, 0)[:2]
    fits = len(shape) > 1 and many.shape == (batch,) and batch
    if not fits or not 1 <= many.min() <= many.max() <= times:
        raise ValueError(
            f"{name}: the input is {shape} and the lengths are {many.tolist()}; "
            f"expected one length for each of {batch} sequences, from 1 to {times}"
        )
    return many


def _there(lengths: np.ndarray) -> np.ndarray:
    """[T, B]: whether a sequence has this step."""
    return np.arange(lengths.max())[:, None] < lengths
