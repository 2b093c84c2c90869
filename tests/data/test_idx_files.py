"""IDX files: what is written is what is read, and every defect is told apart."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitorch.data import IdxError, read_idx, write_idx
from minitorch.data.idx import IDX_DTYPES

NATIVE = [dtype.newbyteorder("=") for dtype in IDX_DTYPES.values()]
arrays = st.sampled_from(NATIVE).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx")


@given(array=arrays, packed=st.booleans())
def test_round_trip(folder: Path, array: np.ndarray, packed: bool) -> None:
    path = folder / ("a.gz" if packed else "a")
    write_idx(path, array)
    back = read_idx(path)
    assert back.dtype == array.dtype and back.dtype.isnative
    assert back.shape == array.shape
    # As bytes, so that NaNs are equal to themselves.
    assert back.tobytes() == array.tobytes()


def test_layout_is_that_of_the_format(folder: Path) -> None:
    """The bytes, counted out by hand."""
    write_idx(folder / "a", np.array([[1, -2, 3]], np.int16))
    expected = bytes([0, 0, 0x0B, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 1, 0xFF, 0xFE, 0, 3])
    assert (folder / "a").read_bytes() == expected


def test_strided_and_swapped_arrays(folder: Path) -> None:
    array = np.arange(24, dtype=">i4").reshape(4, 6)[::2, ::-3].T
    write_idx(folder / "a", array)
    np.testing.assert_array_equal(read_idx(folder / "a"), array)


def test_gzip_is_the_same_at_any_time_and_under_any_name(folder: Path) -> None:
    array = np.arange(10, dtype=np.uint8)
    write_idx(folder / "a.gz", array)
    write_idx(folder / "b.gz", array)
    assert (folder / "a.gz").read_bytes() == (folder / "b.gz").read_bytes()


def test_packed_is_told_by_content_not_by_name(folder: Path) -> None:
    array = np.arange(10, dtype=np.uint8)
    write_idx(folder / "a.gz", array)
    (folder / "a.gz").replace(folder / "unnamed")
    np.testing.assert_array_equal(read_idx(folder / "unnamed"), array)


def test_result_may_be_written_to(folder: Path) -> None:
    write_idx(folder / "a", np.zeros(3, np.uint8))
    back = read_idx(folder / "a")
    back[0] = 1
    assert back[0] == 1


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_idx(path, np.zeros(3, np.uint8))
    before = path.read_bytes()
    with pytest.raises(TypeError, match="dtype is int64; IDX has only uint8, int8"):
        write_idx(path, np.zeros(3, np.int64))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_write_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_idx(tmp_path / "none" / "a", np.zeros(3, np.uint8))


GOOD = struct.pack(">BBBB2I", 0, 0, 8, 2, 2, 3) + bytes(range(6))
DEFECTS = {
    "empty": (b"", "truncated: 0 bytes"),
    "two bytes": (GOOD[:2], "truncated: 2 bytes"),
    "no zeros": (b"\1" + GOOD[1:], "wrong magic number 01 00 08 02"),
    "unknown type": (GOOD[:2] + b"\x0a" + GOOD[3:], "wrong magic number 00 00 0a 02"),
    "a text": (b"<html>not found</html>", "wrong magic number"),
    "half a header": (GOOD[:7], "says 2 dimensions, but the file ends after 7 bytes"),
    "half the data": (GOOD[:15], r"makes 18 bytes, but it has 15 bytes"),
    "trailing data": (GOOD + b"x", "trailing data"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_are_told_apart(tmp_path: Path, defect: str, packed: bool) -> None:
    data, message = DEFECTS[defect]
    path = tmp_path / "broken"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(IdxError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


@given(cut=st.integers(3, len(gzip.compress(GOOD)) - 1))
def test_gzip_cut_anywhere(folder: Path, cut: int) -> None:
    path = folder / "cut.gz"
    path.write_bytes(gzip.compress(GOOD)[:cut])
    with pytest.raises(IdxError, match="gzip data is broken"):
        read_idx(path)


@given(data=st.data())
def test_gzip_with_one_wrong_byte_never_gives_wrong_data(
    folder: Path, data: st.DataObject
) -> None:
    good = np.arange(200, dtype=np.uint8)
    write_idx(folder / "good.gz", good)
    packed = bytearray((folder / "good.gz").read_bytes())
    place = data.draw(st.integers(2, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    path = folder / "flipped.gz"
    path.write_bytes(packed)
    try:
        back = read_idx(path)
    except IdxError:
        return
    # Some header fields (time stamp, operating system) do not matter.
    np.testing.assert_array_equal(back, good)


@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_lies_costs_no_memory(tmp_path: Path, packed: bool) -> None:
    """2**96 elements: refused before anything of that size is asked for."""
    data = struct.pack(">BBBB3I", 0, 0, 14, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    path = tmp_path / "huge"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(IdxError, match="truncated"):
        read_idx(path)


def test_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_idx(path, np.arange(6, dtype=np.uint8).reshape(2, 3))
    right = hashlib.md5(GOOD).hexdigest()
    assert read_idx(path, md5=right).tolist() == [[0, 1, 2], [3, 4, 5]]
    other = hashlib.md5(b"").hexdigest()
    with pytest.raises(IdxError, match=f"md5 .* is {right}, expected {other}"):
        read_idx(path, md5=other)
