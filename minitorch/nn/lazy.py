"""Layers that find out how many inputs they have.

With this file one can leave out the number that the layer before decides:
`LazyLinear(10)` becomes a `Linear(n, 10)` when it is first called, with n features.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, ClassVar

from minitorch.nn.conv import Conv1d, Conv2d
from minitorch.nn.linear import Linear
from minitorch.nn.module import Module
from minitorch.nn.norm import BatchNorm1d, BatchNorm2d
from minitorch.random import fork_rng
from minitorch.tensor import Tensor


class _Lazy(Module):
    """A layer that is made without its first argument, and becomes a `_kind`.

    Till the first call, or till a state is loaded, its parameters are empty, and what
    is written to them is lost; they stay the same objects, as for an optimizer.
    """

    _kind: ClassVar[type[Module]]
    _size: ClassVar[str]  # the attribute that is not known
    _dim: ClassVar[int] = 1  # of the input, which has that size

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with fork_rng():  # numbers are drawn by `_become` alone
            super().__init__(0, *args, **kwargs)  # type: ignore[call-arg]
        self._options = args, kwargs

    def forward(self, x: Tensor) -> Tensor:
        least = max(self._dim + 1, -self._dim)
        if x.dim() < least:
            raise ValueError(
                f"{type(self).__name__}: the input is {x.raw.shape}; expected {least} "
                f"dimensions or more"
            )
        self._become(x.raw.shape[self._dim])
        return self.forward(x)  # which is another one by now

    def _before_load(self, state: Mapping[str, Any], lead: str) -> None:
        """Read the size from a weight [out, in / groups, *], or from statistics."""
        for name in ("running_mean", "weight"):
            saved = state.get(lead + name)
            if isinstance(saved, Tensor) and saved.dim():
                size = saved.raw.shape[int(saved.dim() > 1)]
                if size:  # else that layer was never called, either
                    self._become(size * getattr(self, "groups", 1))
                return

    def _become(self, size: int) -> None:
        args, kwargs = self._options
        kind: Any = self._kind
        made = kind(size, *args, **kwargs)
        pairs = zip(
            chain(self.parameters(), self.buffers()),
            chain(made.parameters(), made.buffers()),
        )
        for own, full in pairs:  # this layer may have been moved since it was made
            moved = full.detach().to(own.raw.device)
            own.raw = (moved if own.dtype == full.dtype else moved.to(own.dtype)).raw
        setattr(self, self._size, size)
        del self._options
        self.__class__ = self._kind  # type: ignore[assignment]


class LazyLinear(_Lazy, Linear):
    """A `Linear(in_features, out_features, ...)` without the in_features."""

    _kind, _size, _dim = Linear, "in_features", -1


class LazyConv1d(_Lazy, Conv1d):
    """A `Conv1d(in_channels, out_channels, ...)` without the in_channels."""

    _kind, _size, _dim = Conv1d, "in_channels", -2


class LazyConv2d(_Lazy, Conv2d):
    """A `Conv2d(in_channels, out_channels, ...)` without the in_channels."""

    _kind, _size, _dim = Conv2d, "in_channels", -3


class LazyBatchNorm1d(_Lazy, BatchNorm1d):
    """A `BatchNorm1d(num_features, ...)` without the num_features."""

    _kind, _size = BatchNorm1d, "num_features"


class LazyBatchNorm2d(_Lazy, BatchNorm2d):
    """A `BatchNorm2d(num_features, ...)` without the num_features."""

    _kind, _size = BatchNorm2d, "num_features"
