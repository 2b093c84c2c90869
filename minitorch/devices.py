"""Devices by name.

With this file the line with which so many PyTorch programs begin works:
`device = minitorch.device("cuda" if minitorch.cuda.is_available() else "cpu")`. A
device here is a string, the name of a backend; `device` checks it and gives it
PyTorch's attributes.
"""

from __future__ import annotations

from minitorch.backend import available_devices


class device(str):
    """The name of an installed backend, with `.type` and `.index`.

    >>> device("cpu").type
    'cpu'
    """

    __slots__ = ()

    def __new__(cls, name: str) -> device:
        kind, _, index = str(name).partition(":")
        if kind not in available_devices():
            raise ValueError(
                f"device: there is no device {kind!r}; installed are "
                f"{', '.join(map(repr, available_devices()))}"
            )
        if index not in ("", "0"):
            raise ValueError(
                f"device: {name!r} has the index {index!r}; each device here is one, "
                f"so leave the index out, or say 0"
            )
        return super().__new__(cls, kind)

    @property
    def type(self) -> str:
        """The name of the backend."""
        return str(self)

    @property
    def index(self) -> None:  # type: ignore[override]
        """None: there is one device of each type."""
        return None

    def __repr__(self) -> str:
        return f"device(type={str(self)!r})"
