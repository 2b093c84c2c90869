"""The ladder of sums: what is right, what is wrong on purpose, and where cells lie."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fast_ops
from fast_ops import reduce_ladder, threads
from fast_ops.matmul import LADDER as PRODUCTS
from fast_ops.reduce_ladder import (
    BLOCK,
    LADDER,
    LINE,
    aligned_cells,
    sum_blocks,
    sum_padded,
    sum_per_thread,
    sum_racy,
    sum_serial,
)
from minitorch.backend import get_backend
from minitorch.backend.host.workspace import LINE_BYTES
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

RIGHT = [rung for rung in LADDER if rung is not sum_racy]
SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 100_003]
name = lambda rung: rung.__name__


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def value(rung: Callable[[TensorData], TensorData], x: np.ndarray) -> np.float32:
    got = cpu.to_numpy(rung(cpu.from_numpy(x)))
    assert got.shape == () and got.dtype == np.float32
    return got[()]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads, and the number that there was before once the test is over."""
    if threads.max_num_threads() < 2:
        pytest.skip("needs two threads: this machine has one core")
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("rung", RIGHT, ids=name)
@pytest.mark.parametrize("size", SIZES)
def test_sums_are_those_of_float64(rung: Callable, size: int) -> None:
    x = numbers(size)
    exact = x.sum(dtype=np.float64)
    # The result is rounded once; a block of float32 adds its own, smaller, errors.
    allowed = 2.0**-24 * (2 * abs(exact) + np.abs(x).sum(dtype=np.float64))
    assert abs(value(rung, x) - exact) <= allowed


@pytest.mark.parametrize("rung", RIGHT, ids=name)
def test_every_element_counts_once(rung: Callable) -> None:
    for size in (1, 7, 2 * BLOCK + 5):
        x = np.ones(size, np.float32)  # sums of ones are exact
        assert value(rung, x) == size


@pytest.mark.parametrize("rung", RIGHT, ids=name)
def test_more_threads_than_elements(rung: Callable, two_threads: None) -> None:
    assert value(rung, np.array([3.0], np.float32)) == 3


@pytest.mark.parametrize("rung", RIGHT, ids=name)
def test_any_shape_and_a_view_with_an_offset(rung: Callable) -> None:
    x = numbers(6, 50, 7)
    part = cpu.from_numpy(x).slice(0, 2, 3)
    got = cpu.to_numpy(rung(part))[()]
    assert got == pytest.approx(x[2:5].sum(dtype=np.float64), abs=1e-3)


@pytest.mark.parametrize("rung", RIGHT, ids=name)
def test_nan_and_infinity_arrive(rung: Callable) -> None:
    x = numbers(BLOCK + 3)
    x[5] = np.inf
    assert value(rung, x) == np.inf
    x[-1] = -np.inf
    assert np.isnan(value(rung, x))


def test_blocks_do_not_lose_digits_with_the_length() -> None:
    x = np.full(3_000_001, 0.1, np.float32)
    exact = x.sum(dtype=np.float64)
    running = np.cumsum(x)[-1]  # one float32 total for all elements
    assert abs(running - exact) > 1e-3 * exact
    assert abs(value(sum_blocks, x) - exact) < 1e-5 * exact


@pytest.mark.parametrize("rung", [sum_serial, sum_blocks], ids=name)
@pytest.mark.parametrize("size", SIZES)
def test_same_bits_on_one_thread_and_two(
    rung: Callable, size: int, two_threads: None
) -> None:
    x = numbers(size, seed=1)
    two = value(rung, x)
    threads.set_num_threads(1)
    assert value(rung, x).tobytes() == two.tobytes()


def test_the_racy_rung_loses_updates(two_threads: None) -> None:
    # Long enough for the threads to take turns even where they share a core.
    x = np.ones(10_000_000, np.float32)
    for _ in range(100):
        got = value(sum_racy, x)
        assert got <= x.size  # lost updates only: nothing is added twice
        if got < x.size:
            return
    pytest.fail("sum_racy was right 100 times: did the compiler see a reduction?")


def test_the_racy_rung_is_right_on_one_thread(two_threads: None) -> None:
    threads.set_num_threads(1)
    assert value(sum_racy, np.ones(100_003, np.float32)) == 100_003


def lines_of_cells(rung: Callable, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the cache lines in which the rung's threads left their totals."""
    made = []

    def remember(count: int) -> np.ndarray:
        made.append(aligned_cells(count))
        return made[-1]

    monkeypatch.setattr(reduce_ladder, "aligned_cells", remember)
    value(rung, np.ones(1000, np.float32))
    (cells,) = made
    used = np.flatnonzero(cells) * cells.itemsize + cells.ctypes.data
    assert len(used) == threads.get_num_threads()
    return [int(address) // LINE_BYTES for address in used]


def test_cells_side_by_side_share_a_line(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lines_of_cells(sum_per_thread, monkeypatch)
    assert first == second


def test_padded_cells_have_a_line_each(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lines_of_cells(sum_padded, monkeypatch)
    assert second == first + 1


@pytest.mark.parametrize("count", [0, 1, LINE, 3 * LINE + 1])
def test_cells_begin_at_a_cache_line(count: int) -> None:
    for _ in range(5):
        cells = aligned_cells(count)
        assert cells.shape == (count,) and not cells.any()
        assert cells.ctypes.data % LINE_BYTES == 0 or count == 0


@pytest.mark.parametrize("rung", LADDER, ids=name)
def test_rungs_say_what_they_take(rung: Callable) -> None:
    a = cpu.from_numpy(numbers(3, 4))
    with pytest.raises(ValueError, match=f"{name(rung)}.*not contiguous"):
        rung(a.permute((1, 0)))
    with pytest.raises(ValueError, match=f"{name(rung)}.*float64"):
        rung(cpu.from_numpy(np.ones(3)))


def test_the_benchmark_says_which_rung_is_wrong() -> None:
    pytest.importorskip("torch", reason="the benchmark compares with PyTorch")
    from minitorch.bench import ladder, ladder_cases, report, run

    limits = report.Limits(1e11, 1e10, 1e10, 0.0)
    results = run.measure(ladder_cases("reduce", 40), limits, seconds=0.01)
    assert [result.name for result in results] == [name(rung) for rung in LADDER]
    for result, rung in zip(results, LADDER):
        assert result.wrong == (rung is sum_racy)
        assert ("WRONG" in report.row(result)[0]) == result.wrong
        assert report.row(result)[5].endswith("GB/s")
        assert not (result.wrong and result.good)
    (_, (bars,)) = ladder(results, limits)
    wrong = [row[0] for row in bars["rows"] if row[3][1] == "wrong"]
    assert wrong == ["racy"]


def test_the_benchmark_finds_wrong_results_by_itself() -> None:
    from minitorch.bench import Case, run

    def case(results: list[int]) -> Case:
        build = lambda: ((lambda: results.pop(0)), (lambda: 3))
        return Case(
            "reduce", "a race", build, agree=lambda ours, theirs: ours == theirs
        )

    for results, wrong in (([3, 3, 3], False), ([3, 4, 3], True)):
        mine = case(results)
        assert run.is_wrong(mine, *mine.build()) is wrong


def test_only_some_families_have_ladders() -> None:
    from minitorch.bench import ladder_cases

    with pytest.raises(ValueError, match="'conv' has no ladder; matmul, reduce, "):
        ladder_cases("conv")


def test_the_chapter_names_what_exists() -> None:
    root = Path(fast_ops.__file__).parent.parent
    text = (root / "docs" / "cpu_kernels.md").read_text()
    links = set(re.findall(r"\]\(\.\./([^)]+)\)", text))
    assert links and all((root / link).is_file() for link in links)
    code = "".join((root / link).read_text() for link in links)
    for name_ in re.findall(r"`(_\w+|test_\w+|\w+_\w+|[A-Z_]{4,})`", text):
        assert re.search(rf"(def {name_}\(|^{name_}\b.* = )", code, re.M), name_
    for rung in (*LADDER, *PRODUCTS):
        assert f"### `{name(rung)}`" in text
