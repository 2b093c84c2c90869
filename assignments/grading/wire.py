"""Values as bytes that cannot carry code.

With this file both ends of a worker's socket can write a message (`encode`) and read
one (`Reader`), and prove that they have (`digest`). A message is

    4 bytes  b"MTG1"
    4 bytes  length of the header, little endian
    header   JSON: fields of the message; arrays are named by their number
    arrays   .npy files of format 1.0, in order; the header has their lengths

Whoever reads believes nothing: every length, type and shape is checked against limits
before memory is taken for it, each array is named once, and `.npy` headers may only
name the dtypes below, so that no pickle is ever loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

MAGIC = b"MTG1"
START = struct.Struct("<4sI")
HEADER_LIMIT = 4 << 20
DEPTH_LIMIT = 20
VALUES_LIMIT = 100_000  # of numbers, texts, lists and names in one message
DTYPES = ("bool", "int8", "int32", "int64", "float32", "float64")
ELEMENTS_LIMIT = 1 << 40
NPY_START = b"\x93NUMPY\x01\x00"
NPY_HEADER_LIMIT = 1024
# {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, numpy.lib.format
NPY_HEADER = re.compile(
    rb"\{'descr': '([<>|][bif][148])', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}, ?)*(?:\d{1,18})?)\), \} *\n"
)

Message = dict[str, Any]


class WireError(Exception):
    """Bytes that are no message, or a value that cannot be sent."""


# ------------------------------------------------------------------------- writing


def encode(message: Message) -> bytes:
    """A message as bytes.

    Args:
        message: values are None, bool, int (64 bits), float, str, np.ndarray of a
            dtype in `DTYPES`, and lists, tuples and dicts (names: str) of them.

    Raises:
        WireError: a value of another type; tells which.
    """
    return b"".join(_pieces(message))


def digest(message: Message) -> str:
    """Whoever can tell it has read all of a message."""
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(message):
        state.update(piece)
    return state.hexdigest()


def _pieces(message: Message) -> Iterator[bytes | memoryview]:
    """What a message consists of; the elements of arrays are not copied."""
    arrays: list[tuple[bytes, memoryview]] = []
    tree = _pack(message, arrays, 0)
    body = {"value": tree, "arrays": [sum(map(len, array)) for array in arrays]}
    header = json.dumps(body, separators=(",", ":")).encode()
    if len(header) > HEADER_LIMIT:
        raise WireError(f"more than {HEADER_LIMIT} bytes of numbers and names")
    yield START.pack(MAGIC, len(header)) + header
    for array in arrays:
        yield from array


def _pack(value: Any, arrays: list[tuple[bytes, memoryview]], depth: int) -> Any:
    # Exact types: a subclass could compute its contents while it is read.
    kind = type(value)
    if depth > DEPTH_LIMIT:
        raise WireError(f"values are nested more than {DEPTH_LIMIT} deep")
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise WireError("an integer that 64 bits do not hold")
        return value
    if kind is float:
        return {"f": value.hex()}
    if kind is list or kind is tuple:
        return [_pack(item, arrays, depth + 1) for item in value]
    if kind is dict:
        return {"d": [_pack_item(item, arrays, depth) for item in value.items()]}
    if kind is np.ndarray:
        arrays.append(_npy(value))
        return {"a": len(arrays) - 1}
    raise WireError(
        f"a value of type {kind.__module__}.{kind.__qualname__}; "
        f"allowed are arrays, numbers, text, None, and lists and dicts of them"
    )


def _pack_item(
    item: tuple[Any, Any], arrays: list[tuple[bytes, memoryview]], depth: int
) -> list[Any]:
    name, value = item
    if type(name) is not str:
        raise WireError(f"a dict's key of type {type(name).__qualname__}")
    return [name, _pack(value, arrays, depth + 1)]


def _npy(array: np.ndarray) -> tuple[bytes, memoryview]:
    """The two parts of a .npy file: its header, and the elements."""
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise WireError(f"an array of {array.dtype}; allowed are {', '.join(DTYPES)}")
    file, contiguous = io.BytesIO(), np.asarray(array, order="C")
    header = np.lib.format.header_data_from_array_1_0(contiguous)
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue(), contiguous.reshape(-1).view(np.uint8).data


# ------------------------------------------------------------------------- reading


class Reader:
    """Collects bytes until they are a message.

    Args:
        limit: bytes that the arrays of one message may have.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._bytes = bytearray()
        self._header: Message | None = None
        self._at = 0
        self._end = 0

    def feed(self, data: bytes) -> Message | None:
        """Take some bytes; the message, once it is complete.

        Raises:
            WireError: not a message, one that is too large, or bytes after its end.
        """
        self._bytes += data
        if self._header is None and not self._read_header():
            return None
        if len(self._bytes) > self._end:
            raise WireError("bytes after the end of the message")
        if len(self._bytes) < self._end:
            return None
        return self._finish()

    @property
    def started(self) -> bool:
        """Whether there is a part of a message."""
        return bool(self._bytes)

    def _read_header(self) -> bool:
        if len(self._bytes) < START.size:
            return False
        magic, length = START.unpack_from(self._bytes)
        if magic != MAGIC or length > HEADER_LIMIT:
            raise WireError("bytes that do not begin a message")
        if len(self._bytes) < START.size + length:
            return False
        self._at = START.size + length
        self._header = header = _parse(bytes(self._bytes[START.size : self._at]))
        sizes: Any = header.get("arrays")
        if set(header) != {"value", "arrays"} or not _are_sizes(sizes):
            raise WireError("a header without value and arrays")
        if sum(sizes) > self.limit:
            raise WireError(f"{sum(sizes)} bytes of arrays; {self.limit} are allowed")
        self._end = self._at + sum(sizes)
        return True

    def _finish(self) -> Message:
        assert self._header is not None
        arrays, at = [], self._at
        for size in self._header["arrays"]:
            arrays.append(_read_npy(memoryview(self._bytes)[at : at + size]))
            at += size
        message = _Tree(arrays).unpack(self._header["value"])
        if not isinstance(message, dict):
            raise WireError("a message that is not a dict")
        self._bytes, self._header = bytearray(), None
        return message


def _are_sizes(sizes: Any) -> bool:
    if type(sizes) is not list or len(sizes) > 10_000:
        return False
    return all(type(size) is int and size >= 0 for size in sizes)


def _parse(text: bytes) -> Message:
    try:
        header = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a header that is not JSON: {error}") from None
    if type(header) is not dict:
        raise WireError("a header that is not a JSON object")
    return header


def _refuse(name: str) -> None:
    raise ValueError(f"{name} in JSON")


class _Tree:
    """Turns JSON into values, of which there may be so many and no more."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays
        self.used = 0
        self.count = 0

    def unpack(self, tree: Any, depth: int = 0) -> Any:
        self.count += 1
        if depth > DEPTH_LIMIT:
            raise WireError(f"values are nested more than {DEPTH_LIMIT} deep")
        if self.count > VALUES_LIMIT:
            raise WireError(f"more than {VALUES_LIMIT} values")
        if tree is None or type(tree) in (bool, str):
            return tree
        if type(tree) is int and -(2**63) <= tree < 2**63:
            return tree
        if type(tree) is list:
            return [self.unpack(item, depth + 1) for item in tree]
        if type(tree) is dict and len(tree) == 1:
            ((kind, content),) = tree.items()
            if kind == "f" and type(content) is str:
                return _number(content)
            if kind == "a" and type(content) is int:
                return self._array(content)
            if kind == "d" and type(content) is list:
                return dict(self._item(item, depth) for item in content)
        raise WireError("a value that is none of those that cross")

    def _array(self, number: int) -> np.ndarray:
        """The arrays come in order and once: none is unpacked a thousand times."""
        if number != self.used or number >= len(self.arrays):
            raise WireError(f"array {number} where array {self.used} is expected")
        self.used += 1
        return self.arrays[number]

    def _item(self, item: Any, depth: int) -> tuple[str, Any]:
        if type(item) is not list or len(item) != 2 or type(item[0]) is not str:
            raise WireError("an entry of a dict that is not a name and a value")
        return item[0], self.unpack(item[1], depth + 1)


def _number(text: str) -> float:
    if len(text) > 40:
        raise WireError("a number of more than 40 digits")
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise WireError("a number that is not one") from None


def _read_npy(data: memoryview) -> np.ndarray:
    """An array from the bytes of a .npy file that nobody has looked at yet.

    `np.load` evaluates the header as Python; here it has to be what `_npy` writes.
    """
    start = len(NPY_START) + 2
    length = int.from_bytes(data[len(NPY_START) : start], "little")
    header = NPY_HEADER.fullmatch(bytes(data[start : start + length]))
    if data[: len(NPY_START)] != NPY_START or length > NPY_HEADER_LIMIT or not header:
        raise WireError("an array that is not in C order and .npy format 1.0")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(n) for n in header[2].decode().split(",") if n.strip())
    if dtype.name not in DTYPES or not dtype.isnative or len(shape) > 32:
        raise WireError(f"an array of {dtype} with {len(shape)} dimensions")
    if math.prod(shape) * dtype.itemsize != len(data) - start - length:
        raise WireError("an array whose bytes do not match its shape")
    if math.prod(max(n, 1) for n in shape) > ELEMENTS_LIMIT:
        raise WireError("an array without elements that is larger than memory")
    array = np.frombuffer(data, dtype, offset=start + length)
    if dtype.kind == "b":
        # A byte of 2 is neither true nor false.
        array = array.view(np.uint8) != 0
    return np.array(array).reshape(shape)
