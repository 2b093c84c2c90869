"""Devices by name.

With this file the line with which so many PyTorch programs begin works:
`device = minitorch.device("cuda" if minitorch.cuda.is_available() else "cpu")`. A
device here is a string, the name of a backend with or without a number; `device` checks
it and gives it PyTorch's attributes.
"""

from __future__ import annotations

from functools import lru_cache

from minitorch.backend import available_devices
from minitorch.backend.registry import full_name, split_name


class device(str):
    """The name of a device, with `.type` and `.index`.

    >>> device("cuda:1").type, device("cuda", 1).index, device("cpu").index
    ('cuda', 1, None)

    Without an index it is the device of that type that is current when it is used. Two
    names are equal if they mean the same device just now: "cuda" and "cuda:0" are, as
    long as GPU 0 is the current one.

    Raises:
        ValueError: no backend has that name, or the index is no number.
    """

    __slots__ = ()

    def __new__(cls, type: str, index: int | None = None) -> device:
        name = str(type) if index is None else f"{type}:{index}"
        kind, number = split_name(name)
        if kind not in available_devices():
            raise ValueError(
                f"device: there is no device {kind!r}; installed are "
                f"{', '.join(map(repr, available_devices()))}"
            )
        return super().__new__(cls, kind if number is None else f"{kind}:{number}")

    @property
    def type(self) -> str:
        """The name of the backend."""
        return str(self).partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The number among the devices of its type, None if it is not said."""
        return split_name(str(self))[1]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, str) and full_name(self) == full_name(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.type)  # equal ones have that in common

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"


@lru_cache(maxsize=256)
def named(name: str) -> device:
    """The device of this name, always the same object."""
    return device(name)
