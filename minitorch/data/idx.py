"""With this file one can read and write IDX files, the format of MNIST: `read_idx`
and `write_idx`, plain or gzip. Every way in which such a file can be broken is told
apart in an `IdxError`.

The format (Y. LeCun, http://yann.lecun.com/exdb/mnist/), all numbers big-endian:

    byte 0, 1     zero
    byte 2        type of an element, see `IDX_DTYPES`
    byte 3        number of dimensions, D
    4 * D bytes   the sizes, uint32 each
    the rest      the elements, last dimension fastest
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from minitorch.data.files import atomic_write

# Type code -> NumPy type, as the bytes lie in the file.
IDX_DTYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {
        0x08: np.dtype(">u1"),
        0x09: np.dtype(">i1"),
        0x0B: np.dtype(">i2"),
        0x0C: np.dtype(">i4"),
        0x0D: np.dtype(">f4"),
        0x0E: np.dtype(">f8"),
    }
)

GZIP_MAGIC = b"\x1f\x8b"
# Deflate cannot pack better than 1032 : 1 (zlib's manual, "Maximum Compression
# Factor"), so a gzip file bounds the size of what it can hold.
MAX_GZIP_RATIO = 1032
CHUNK = 1 << 20


class IdxError(ValueError):
    """A file that is not the IDX file it should be; the message says in which way."""


def read_idx(
    path: str | os.PathLike[str], *, md5: str | None = None
) -> npt.NDArray[Any]:
    """Reads an IDX file, gzip or plain (told by its content, not by its name).

    Returns an array of the file's shape, in the machine's own byte order.

    `md5`: if given, the checksum that the *decompressed* file must have.

    Errors: IdxError for a wrong magic number, truncated data, trailing data, broken
    gzip, a wrong checksum; OSError where the file cannot be read. Sizes are checked
    before memory is asked for, so that a broken header cannot exhaust it.
    """
    path = Path(path)
    size = path.stat().st_size
    with open(path, "rb") as raw:
        packed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        if not packed:
            return _read_stream(raw, path, size, md5, exact=True)
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                limit = size * MAX_GZIP_RATIO
                return _read_stream(stream, path, limit, md5, exact=False)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise IdxError(
                f"{path}: the gzip data is broken ({error}); the file has {size} "
                "bytes. It was probably not copied or downloaded in full: get it again"
            ) from error


def write_idx(path: str | os.PathLike[str], array: npt.NDArray[Any]) -> None:
    """Writes an array of one of the IDX types; gzip if the name ends in `.gz`.

    The file appears under its name only when it is complete, and the same array
    gives the same bytes at any time (no time stamp in the gzip header).

    Errors: TypeError for a dtype that IDX lacks; ValueError for a shape that does
    not fit; OSError where the file cannot be written.
    """
    array = np.asarray(array)
    header = _header(array)
    data = array.astype(array.dtype.newbyteorder(">"), order="C", copy=False)
    with atomic_write(path) as file:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.write(header + data.tobytes())
        else:
            file.write(header + data.tobytes())


def _header(array: npt.NDArray[Any]) -> bytes:
    """The first 4 + 4 D bytes of the file for this array."""
    big_endian = array.dtype.newbyteorder(">")
    codes = [code for code, dtype in IDX_DTYPES.items() if dtype == big_endian]
    if not codes:
        names = ", ".join(dtype.name for dtype in IDX_DTYPES.values())
        raise TypeError(f"write_idx: dtype is {array.dtype}; IDX has only {names}")
    if array.ndim > 255 or any(n >= 1 << 32 for n in array.shape):
        raise ValueError(
            f"write_idx: the shape is {array.shape}; IDX has at most 255 dimensions "
            "of less than 2**32 elements each"
        )
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, codes[0], array.ndim, *array.shape)


def _read_stream(
    stream: IO[bytes] | gzip.GzipFile,
    path: Path,
    limit: int,
    md5: str | None,
    *,
    exact: bool,
) -> npt.NDArray[Any]:
    """Reads header and elements. `limit`: the bytes that the stream can give at most
    (`exact`: that it has, precisely)."""
    dtype, shape, header = _read_header(stream, path)
    count = math.prod(shape)
    expected = len(header) + count * dtype.itemsize
    told = f"its header says {dtype.name} {list(shape)}, which makes {expected} bytes"
    if limit < expected:
        has = f"has {limit} bytes" if exact else f"unpacks to {limit} bytes at most"
        raise IdxError(f"{path}: truncated: {told}, but it {has}. Get the file again")
    if exact and limit > expected:
        raise IdxError(f"{path}: trailing data: {told}, but it has {limit} bytes")
    body = _read_body(stream, expected - len(header))
    found = len(header) + len(body)
    if found < expected:
        raise IdxError(
            f"{path}: truncated: {told}, but it has {found} bytes. Get the file again"
        )
    # This read also makes gzip compare its own checksum.
    if stream.read(1):
        raise IdxError(f"{path}: trailing data: {told}, but it goes on after them")
    if md5 is not None:
        _check_md5(path, header, body, md5)
    native = np.frombuffer(body, dtype).astype(dtype.newbyteorder("="), copy=False)
    return native.reshape(shape)


def _read_header(
    stream: IO[bytes] | gzip.GzipFile, path: Path
) -> tuple[np.dtype[Any], tuple[int, ...], bytes]:
    """The element type, the shape, and the bytes that told them."""
    magic = stream.read(4)
    if len(magic) < 4:
        raise IdxError(
            f"{path}: truncated: {len(magic)} bytes, but the magic number alone has 4. "
            "Get the file again"
        )
    if magic[:2] != b"\x00\x00" or magic[2] not in IDX_DTYPES:
        codes = ", ".join(f"{code:02x}" for code in IDX_DTYPES)
        raise IdxError(
            f"{path}: not an IDX file: wrong magic number {magic.hex(' ')}; expected "
            f"00 00, then a type (one of {codes}), then the number of dimensions"
        )
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise IdxError(
            f"{path}: truncated: the magic number says {magic[3]} dimensions, but the "
            f"file ends after {4 + len(sizes)} bytes. Get the file again"
        )
    shape = struct.unpack(f">{magic[3]}I", sizes)
    return IDX_DTYPES[magic[2]], shape, magic + sizes


def _read_body(stream: IO[bytes] | gzip.GzipFile, size: int) -> bytearray:
    """Up to `size` bytes, in pieces: memory grows with what is really there."""
    body = bytearray()
    while len(body) < size:
        piece = stream.read(min(CHUNK, size - len(body)))
        if not piece:
            break
        body += piece
    return body


def _check_md5(path: Path, header: bytes, body: bytearray, expected: str) -> None:
    digest = hashlib.md5(header, usedforsecurity=False)
    digest.update(body)
    if digest.hexdigest() != expected:
        raise IdxError(
            f"{path}: wrong content: the md5 of the decompressed file is "
            f"{digest.hexdigest()}, expected {expected}"
        )
