"""Attention on the GPU: units, cuts and rungs; tests/backends has the contract.

Sizes lie around those of the tiles, which are as small as a warp in the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numba import cuda

import minitorch
from backends.test_attention import attended, check, expected, kept, operands
from helpers import array_of, loaded, make
from minitorch.backend import low_precision
from minitorch.backend.attention import KEEP_ALL, Drop
from minitorch.dtypes import DType, bfloat16, finfo, float16, float32, float64
from tests.cuda.sizes import met, pick

pytest.importorskip("numba_cuda")
from cuda_ops.attention import attention as family
from cuda_ops.attention import decode
from cuda_ops.attention.backward import keys_template
from cuda_ops.attention.dropping import _bit_places, _shares, dropper
from cuda_ops.attention.forward import FORWARD, forward, forward_template
from cuda_ops.attention.one_pass import ONE_PASS, part_rows
from cuda_ops.attention.units import BF16, FMA, TF32, Cut, units_of
from cuda_ops.attention.warpgroup import CUTS
from cuda_ops.random import LOW_32, block_base, counted_from
from cuda_ops.runtime.launch import SIMULATED, Kernel
from cuda_ops.simulator.watch import watching
from minitorch.cuda import is_available
from minitorch.tensor_data import TensorData

WIDE = pick(32, 64)
FIRST = next(cut for cut in FORWARD[FMA] if cut.size == WIDE)
ROWS, COLS = FIRST.rows, FIRST.cols
TF32_ERROR = 5e-3


@pytest.fixture
def tensor_cores() -> Iterator[None]:
    minitorch.set_float32_matmul_precision("high")
    yield
    minitorch.set_float32_matmul_precision("highest")


def close_to(results: Any, right: tuple[np.ndarray, ...], error: float) -> None:
    """Up to an error that is relative to the largest number."""
    for got, x in zip(results, right, strict=True):
        top = max(1.0, np.abs(x).max(initial=0))
        np.testing.assert_allclose(array_of(got), x, rtol=0, atol=error * top)


TILE_SIZES = (
    (decode.FEW + 1, 2), (ROWS - 1, COLS + 1), (COLS, 2 * ROWS), (ROWS + 1, COLS - 1),
)  # fmt: skip


@met("L_S, causal", TILE_SIZES, [False, True])
def test_around_the_size_of_a_tile(L_S: tuple[int, int], causal: bool) -> None:
    arrays = operands((1, 2, 1, *L_S, WIDE, WIDE), float32)
    backend, right = loaded("cuda"), expected(arrays, 0.2, causal)
    plain = attended(backend, arrays, 0.2, causal)
    check(plain, right)
    minitorch.set_float32_matmul_precision("high")
    try:
        results = attended(backend, arrays, 0.2, causal)
    finally:
        minitorch.set_float32_matmul_precision("highest")
    close_to(results, right, TF32_ERROR)
    assert not np.array_equal(array_of(results[0]), array_of(plain[0]))


@pytest.mark.parametrize("E,V", [(pick(16, 80), 8), (12, 20), (5, 7)])
def test_rows_are_filled_up(E: int, V: int, tensor_cores: None) -> None:
    arrays = operands((2, 2, 2, 5, 9, E, V), float32)
    right = expected(arrays, 0.3, False)
    close_to(attended(loaded("cuda"), arrays, 0.3, False), right, TF32_ERROR)


def test_heads_of_features_are_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As models make them: a position's heads lie side by side, here and in outputs."""
    arrays = operands((2, 4, 2, 6, 6, 8, 8), float32)
    right = expected(arrays, 0.3, True)

    def never(*args: Any) -> None:
        raise AssertionError("an operand was copied")

    monkeypatch.setattr(family, "copy_into", never)
    swapped = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)) for a in arrays]
    q, k, v, grad = (make(a, "cuda").permute((0, 2, 1, 3)) for a in swapped)
    made = [make(np.zeros_like(a), "cuda").permute((0, 2, 1, 3)) for a in swapped]
    ends = make(np.zeros((2, 4, 6), np.float32), "cuda")
    backend = loaded("cuda")
    backend.attention(made[3], ends, q, k, v, 0.3, True)
    backend.attention_backward(*made[:3], grad, q, k, v, made[3], ends, 0.3, True)
    check([made[3], ends, *made[:3]], right)


def test_what_has_no_kernel_is_left_to_the_default() -> None:
    assert family.cuts_for(256 + 1, FMA) is None
    backend = loaded("cuda")
    for sizes, dtype in (((1, 1, 1, 2, 3, 257, 4), float32), ((1,) * 7, float64)):
        arrays = operands(sizes, dtype)
        check(attended(backend, arrays, 0.1, True), expected(arrays, 0.1, True))
        q, k, v, out = (make(a, "cuda") for a in arrays)
        assert not family.attention(out, out, q, k, v, 0.1, True)


def test_smaller_tiles_where_shared_memory_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Cut(FMA, 64, 4, 32, 64), Cut(FMA, 64, 4, 16, 32)
    monkeypatch.setitem(FORWARD, FMA, (first, second))
    here = family.properties()
    small = here._replace(shared_memory_per_block=64 * 1024)
    family.cuts_for.cache_clear()
    monkeypatch.setattr(family, "properties", lambda: small)
    found = family.cuts_for(16, FMA)
    family.cuts_for.cache_clear()
    assert found is not None and found.forward == second


@pytest.mark.parametrize("units", [FMA, TF32])
def test_the_same_numbers_each_time(units: str) -> None:
    arrays = operands((1, 2, 1, ROWS + 3, COLS + 3, WIDE, WIDE), float32)
    minitorch.set_float32_matmul_precision("high" if units == TF32 else "highest")
    try:
        runs = [attended(loaded("cuda"), arrays, 0.2, True) for _ in range(2)]
    finally:
        minitorch.set_float32_matmul_precision("highest")
    for one, two in zip(*runs):
        assert np.array_equal(array_of(one), array_of(two))


# ---------------------------------------------------------------------- in one pass

KEYS = next(cut for cut in ONE_PASS if cut.size == WIDE).rows
PART_SIZES = [
    (1, 1), (KEYS, KEYS), (KEYS + 1, KEYS - 1), (2 * KEYS + 3, KEYS + 1),
    (KEYS - 1, 2 * KEYS + 1), (2, 3 * KEYS),
]  # fmt: skip


def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups of heads each launch has, from now on."""
    calls, run = [], family._groups_at_once

    def noted(*args: Any) -> int:
        calls.append(run(*args))
        return calls[-1]

    monkeypatch.setattr(family, "_groups_at_once", noted)
    return calls


@met("L_S, causal", PART_SIZES, [False, True])
def test_parts_of_gradients_are_added(
    L_S: tuple[int, int], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All heads at once, or some of them, whose last launch has fewer."""
    arrays = operands((1, 6, 3, *L_S, WIDE - 4, WIDE), float32)
    right, calls = expected(arrays, 0.2, causal), launched(monkeypatch)
    whole = attended(loaded("cuda"), arrays, 0.2, causal)
    check(whole, right)
    monkeypatch.setattr(family, "_groups_at_once", lambda *_: 2)
    some = attended(loaded("cuda"), arrays, 0.2, causal)
    monkeypatch.setattr(family, "_groups_at_once", lambda *_: 0)
    check(attended(loaded("cuda"), arrays, 0.2, causal), right)
    assert calls == [3]
    for one, two in zip(whole, some, strict=True):
        assert np.array_equal(array_of(one), array_of(two))


def test_how_many_parts_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer heads where memory is short, and two kernels where too few are left."""
    cut = Cut(FMA, 64, 4, 32, 32, blocks=2)
    query, key = (make(np.zeros((2, n, 300, 4), np.float32), "cuda") for n in (12, 6))
    assert part_rows(cut, 300, 300, False) == (3, 900)
    assert part_rows(cut, 300, 300, True) == (3, 2 * (300 + 32) - 3 * 128 + 300)
    assert part_rows(cut, 100, 300, True) == (1, 100)
    group = 2 * 900 * 4 * 4
    here = family.properties()._replace(multi_processor_count=2)
    monkeypatch.setattr(family, "properties", lambda: here)
    for room, found in ((12, 12), (11, 6), (5, 4), (2, 2), (1, 0), (0, 0)):
        monkeypatch.setattr(family, "PARTS", room * group)
        assert family._groups_at_once(cut, query, key, False) == found
    assert family._groups_at_once(None, query, key, False) == 0
    monkeypatch.setattr(family, "PARTS", 1 << 40)
    most = 65535 * family.ADD_THREADS // 4  # of a launch's blocks, a number a thread
    one = make(np.zeros((1, 1, 1, 4), np.float32), "cuda")
    for length, found in ((most, 1), (most + 1, 0)):
        query = one.expand((1, 1, length, 4))
        assert family._groups_at_once(cut, query, one, False) == found


def test_keys_that_do_not_exist_have_no_part() -> None:
    """Their scores are 0, and 2^(0 - logsumexp) overflows if all others are below."""
    arrays = operands((1, 1, 1, 3, 5, 4, 4), float32)
    arrays[0][:], arrays[1][:] = 1 + arrays[0] / 100, arrays[1] / 100 - 1
    right = expected(arrays, 50.0, False)
    assert right[1].max() < -150
    for got, x in zip(attended(loaded("cuda"), arrays, 50.0, False), right):
        np.testing.assert_allclose(array_of(got), x, rtol=1e-3, atol=2e-3)


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
@pytest.mark.parametrize(
    "cut",
    [Cut(FMA, 64, 4, 32, 32), Cut(FMA, 64, 8, 16, 128), Cut(FMA, 128, 8, 16, 48)],
)
def test_parts_are_made_of_all_banks(cut: Cut) -> None:
    """By the tiles of the table for chips; what is computed is right, too."""
    size, L, S = cut.size, cut.cols, cut.rows
    arrays = operands((1, 1, 1, L, S, size, size), float32)
    cuts = family.cuts_for(32, FMA)
    assert cuts is not None
    q, k, v, grad = (make(a, "cuda") for a in arrays)
    right, ends = expected(arrays, 0.05, True), make(np.zeros((1, 1, L), "f4"), "cuda")
    ends.flat()[:] = right[1].reshape(-1)
    out = make(right[0].astype(np.float32), "cuda")
    made = tuple(make(np.zeros_like(a), "cuda") for a in arrays[:3])
    cuts = cuts._replace(one_pass=cut)
    with watching() as watch:
        family.run_backward(cuts, made, grad, q, k, v, out, ends, 0.05, True)
    check(list(made), right[2:])
    by_threads = [used for used in watch.lines.values() if not used.requests]
    assert sum(used.shared_requests for used in by_threads) > 30
    assert sum(used.bank_conflicts for used in by_threads) == 0


# ------------------------------------------------------------------------ half types


def rounded_operands(sizes: tuple[int, ...], dtype: DType) -> list[np.ndarray]:
    """Numbers that the half type has."""
    arrays = operands(sizes, float32)  # type: ignore[arg-type]
    return [a.astype(dtype.numpy).astype(np.float32) for a in arrays]


@pytest.fixture(autouse=True)
def no_warpgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves go to `mma.sync` where a test does not ask for `warpgroups`."""
    monkeypatch.setattr(family, "WARPGROUPS", False)


@pytest.fixture
def warpgroups(monkeypatch: pytest.MonkeyPatch, no_warpgroups: None) -> None:
    monkeypatch.setattr(family, "WARPGROUPS", True)


def halves_attended(
    backend: Any,
    arrays: list[np.ndarray],
    dtype: DType,
    layout: str = "contiguous",
    causal: bool = True,
    mask: TensorData | None = None,
    drop: Drop = KEEP_ALL,
) -> list[TensorData]:
    """As `attended`, in a half type; `layout` is that of inputs and outputs."""
    q, k, v, grad = (make(a.astype(dtype.numpy), "cuda", layout) for a in arrays)
    out, *grads = (make(array_of(x), "cuda", layout) for x in (grad, q, k, v))
    total = make(np.zeros(grad.shape[:3], np.float32), "cuda")
    options = 0.2, causal, mask, drop
    backend.attention(out, total, q, k, v, *options)
    backend.attention_backward(*grads, grad, q, k, v, out, total, *options)
    return [out, total, *grads]


@pytest.mark.parametrize(
    "sizes,dtype",
    [
        ((1, 4, 2, ROWS + 1, COLS + 1, WIDE, WIDE), bfloat16),
        ((2, 2, 1, 5, COLS + 9, 8, 16), bfloat16),
        ((1, 2, 2, ROWS + 3, 7, WIDE, WIDE - 8), float16),
    ],
)
def test_halves_are_multiplied_as_they_are(sizes: Any, dtype: DType) -> None:
    arrays = rounded_operands(sizes, dtype)
    results = halves_attended(loaded("cuda"), arrays, dtype)
    assert results[0].dtype is results[2].dtype is dtype
    wide = [array_of(r).astype(np.float32) for r in results]
    right = expected(arrays, 0.2, True)
    assert abs(wide[1] - right[1]).max() < 1e-5 * abs(right[1]).max()
    for got, x in zip(wide, right):
        top = max(1.0, np.abs(x).max())
        np.testing.assert_allclose(got, x, rtol=0, atol=2 * finfo(dtype).eps * top)


def test_halves_lie_in_any_way() -> None:
    arrays = rounded_operands((1, 2, 1, 3, 9, 8, 8), bfloat16)
    right = halves_attended(loaded("cuda"), arrays, bfloat16)
    for layout in ("permuted", "stepped", "offset"):
        results = halves_attended(loaded("cuda"), arrays, bfloat16, layout)
        for got, x in zip(results, right, strict=True):
            assert np.array_equal(array_of(got), array_of(x))


def test_halves_without_a_kernel_are_widened() -> None:
    arrays = rounded_operands((1, 2, 1, 3, 5, 7, 9), bfloat16)
    right = expected(arrays, 0.2, True)
    backend = low_precision.LowPrecision(loaded("cuda"))
    close_to(halves_attended(backend, arrays, bfloat16), right, 2**-7)
    q, k, v, out = (make(a.astype(bfloat16.numpy), "cuda") for a in arrays)
    assert not family.attention(out, out, q, k, v, 0.2, True)


# ------------------------------------------------------------------- dropout and masks

DROP = (0.4, 987654321987, 2**32 - 40)


@pytest.mark.parametrize(
    "units,kind", [(FMA, ""), (FMA, "numbers"), (TF32, "bool"), (BF16, "numbers")]
)
def test_words_of_dropout_find_their_weights(units: str, kind: str) -> None:
    """In tiles behind the first, in rows of keys that are no multiple of four."""
    L, S, causal = ROWS + 3, 2 * COLS + 5, not kind
    arrays = rounded_operands((2, 2, 1, L, S, WIDE, WIDE), bfloat16)
    dtype = bfloat16.numpy if units == BF16 else np.float32
    mask = np.random.default_rng(1).random((1, 2, L, S)) > 0.3
    mask[0, 1, 5] = False
    if kind == "numbers":
        mask = np.where(mask, 0.5, -np.inf).astype(dtype)
    given = make(mask, "cuda").expand((2, 2, L, S)) if kind else None
    wide = np.broadcast_to(
        mask if kind == "bool" else mask.astype(np.float32), (2, 2, L, S)
    )
    right = expected(arrays, 0.2, causal, wide if kind else None, DROP)
    options: Any = {"mask": given, "drop": DROP}
    minitorch.set_float32_matmul_precision("high" if units == TF32 else "highest")
    try:
        run = halves_attended if units == BF16 else attended
        first = (bfloat16, "contiguous") if units == BF16 else (0.2, causal)
        if units == BF16:
            options["causal"] = causal
        results = run(loaded("cuda"), arrays, *first, **options)
    finally:
        minitorch.set_float32_matmul_precision("highest")
    error = {FMA: 1e-5, TF32: TF32_ERROR, BF16: 2.0**-7}[units]
    for got, x in zip(results, right, strict=True):
        top = abs(x[np.isfinite(x)]).max()
        got = array_of(got).astype(np.float32)
        np.testing.assert_allclose(got, x, rtol=0, atol=error * top)


REAL_CUTS = (
    Cut(FMA, 64, 1, 32, 64), Cut(FMA, 64, 1, 16, 16), Cut(FMA, 128, 1, 8, 32),
    Cut(TF32, 64, 1, 32, 64), Cut(TF32, 64, 1, 16, 16), Cut(BF16, 64, 1, 32, 32),
)  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("cut", REAL_CUTS, ids=str)
def test_lanes_hand_round_the_bits_of_their_blocks(cut: Cut, turned: bool) -> None:
    """What a warp of the tables' cuts has, drawn as `kept_weights` says."""
    units = units_of(cut)
    draw, place = dropper(units, turned, True)[0], units.place

    def bits_of_lanes(chance, base, out):
        t = cuda.threadIdx.x
        row, col, _, _, _ = place()
        out[3 * t], out[3 * t + 1] = row, col
        out[3 * t + 2] = draw(chance, base, 5, 8)

    example = "5*int64 int64[] int64[]"
    kernel = Kernel(bits_of_lanes, f"bits_of_lanes{cut, turned}", (), 32)
    assert SIMULATED or kernel.cubin(example).spills == 0
    p, seed, offset = DROP
    chance = seed & LOW_32, seed >> 32, math.ceil(p * 2**32) - 1, offset, 25
    out = make(np.zeros(96, np.int64), "cuda")
    kernel[1, 32](chance, block_base(), out.flat())
    held, words = units.scores, kept((5 + 72, 100), DROP) > 0
    places = _bit_places(held, turned, *_shares(held, turned))
    for row, col, bits in array_of(out).reshape(32, 3).tolist():
        for (i, j), bit in zip(held.places, places, strict=True):
            line, other = row + held.rows[i], col + held.cols[j]
            query, key = (other, line) if turned else (line, other)
            assert bits >> bit & 1 == words[5 + query, 8 + key]


def test_dropout_counts_from_the_base_of_a_graph() -> None:
    """So that each replay has new zeros; tests/cuda/test_graphs.py replays some."""
    arrays = operands((1, 2, 1, 5, 7, 4, 4), float32)
    backend, (p, seed, offset) = loaded("cuda"), DROP
    base = make(np.array([3], np.int64), "cuda").flat()
    with counted_from(base):
        moved = attended(backend, arrays, 0.2, True, drop=(p, seed, offset - 3))
    for one, two in zip(moved, attended(backend, arrays, 0.2, True, drop=DROP)):
        assert np.array_equal(array_of(one), array_of(two))


# -------------------------------------------------------------------------- warpgroups

ONLY_HOPPER = pytest.mark.skipif(
    is_available() and not family.runs_here(family.attention_warpgroup),
    reason="this GPU has no wgmma: its compute capability is not 9.0",
)
GROUP = CUTS[BF16][0][0]
GROUP_SIZES = [
    (1, 1), (GROUP.rows, GROUP.cols), (GROUP.rows - 1, 3 * GROUP.cols + 1),
    (3 * GROUP.rows + 2, 5), (GROUP.rows + 1, 2 * GROUP.cols - 1),
    (5, pick(37, 4097)), (pick(33, 1000), pick(33, 1000)),
]  # fmt: skip


def near_halves(results: Any, right: tuple[np.ndarray, ...], dtype: DType) -> None:
    for got, x in zip(results, right, strict=True):
        top = max(1.0, np.abs(x).max())
        got = array_of(got).astype(np.float32)
        np.testing.assert_allclose(got, x, rtol=0, atol=2 * finfo(dtype).eps * top)


@ONLY_HOPPER
@met("L_S, causal", GROUP_SIZES, [False, True])
def test_warpgroups_forward_and_backward(
    L_S: tuple[int, int], causal: bool, warpgroups: None
) -> None:
    for dtype, E, V in ((bfloat16, WIDE, WIDE), (float16, pick(8, 128), pick(24, 72))):
        arrays = rounded_operands((1, 2, 2, *L_S, E, V), dtype)
        results = halves_attended(loaded("cuda"), arrays, dtype, causal=causal)
        near_halves(results, expected(arrays, 0.2, causal), dtype)


@ONLY_HOPPER
def test_warpgroups_take_groups_of_heads_masks_and_dropout(warpgroups: None) -> None:
    L, S = pick(5, GROUP.rows + 3), 2 * GROUP.cols + 5
    arrays = rounded_operands((1, 2, 1, L, S, WIDE, WIDE), bfloat16)
    mask = np.random.default_rng(1).random((1, 2, L, S)) > 0.3
    mask[0, 1, 2] = False
    for given, drop in ((mask, KEEP_ALL), (None, DROP)):
        right = expected(arrays, 0.2, False, given, drop)
        shown = None if given is None else make(given, "cuda")
        results = halves_attended(
            loaded("cuda"), arrays, bfloat16, "permuted", False, shown, drop
        )
        for got, x in zip(results, right, strict=True):
            top = abs(x[np.isfinite(x)]).max()
            got = array_of(got).astype(np.float32)
            np.testing.assert_allclose(got, x, rtol=0, atol=2.0**-7 * top)


@ONLY_HOPPER
def test_warpgroups_give_the_same_numbers_each_time(warpgroups: None) -> None:
    """An error that moves is a race."""
    L = pick(35, 1024)
    arrays = rounded_operands((pick(1, 8), 2, 2, L, L, WIDE, WIDE), bfloat16)
    first, *others = (
        halves_attended(loaded("cuda"), arrays, bfloat16) for _ in range(pick(2, 20))
    )
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert np.array_equal(array_of(one), array_of(two))


def test_warpgroups_are_chosen_where_they_are(
    monkeypatch: pytest.MonkeyPatch, warpgroups: None
) -> None:
    size = family.NARROW + 8
    halves = [make(np.ones((1, 1, 2, size), bfloat16.numpy), "cuda") for _ in range(3)]
    for arch, scale, chosen in (
        ((9, 0), 0.2, True), ((9, 0), 0.0, False), ((8, 0), 0.2, False),
        ((10, 0), 0.2, False),
    ):  # fmt: skip
        monkeypatch.setattr(family, "compute_capability", lambda arch=arch: arch)
        family.cuts_for.cache_clear()
        cuts = family._cuts(*halves, scale)
        assert cuts is not None and {cut.wgmma for cut in cuts[:3]} == {chosen}
    family.cuts_for.cache_clear()


@ONLY_HOPPER
def test_heads_that_fill_the_cache_come_in_parts(
    monkeypatch: pytest.MonkeyPatch, warpgroups: None
) -> None:
    """Whatever comes first, numbers are the same."""
    arrays = rounded_operands((2, 6, 3, 3, 5, 16, 16), bfloat16)
    right = halves_attended(loaded("cuda"), arrays, bfloat16)
    assert family._blocks(GROUP, make(arrays[0], "cuda")) == (12, 1, 1)
    for bytes_at_once in (1 << 11, 1):
        monkeypatch.setattr(family, "AT_ONCE", bytes_at_once)
        for one, two in zip(right, halves_attended(loaded("cuda"), arrays, bfloat16)):
            assert np.array_equal(array_of(one), array_of(two))


# ------------------------------------------------------------------------------ rungs

RUNGS = [
    pytest.param(rung, marks=ONLY_HOPPER if rung is family.LADDER[-1] else ())
    for rung in family.LADDER
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rung", RUNGS)
def test_rungs(rung: Callable, causal: bool) -> None:
    half = rung is family.attention_warpgroup
    V, dtype = (24, bfloat16) if half else (12, float32)
    for L, S in ((1, 1), (5, 35), (33, 7)):
        arrays = rounded_operands((2, 2, 2, L, S, 16, V), bfloat16)[:3]
        right = expected([*arrays, np.zeros((2, 2, L, V))], 0.25, causal)[0]
        given = [make(a.astype(dtype.numpy), "cuda") for a in arrays]
        got = array_of(rung(*given, causal)).astype(np.float32)
        error = {family.attention_tensor_core: TF32_ERROR}.get(rung, 1e-5)
        error = 2.0**-6 if half else error
        np.testing.assert_allclose(got, right, rtol=error, atol=error)


@pytest.mark.parametrize("rung", RUNGS)
def test_rungs_say_what_they_take(rung: Callable) -> None:
    arrays = operands((1, 2, 1, 3, 4, 2, 2), float32)[:3]
    with pytest.raises(ValueError, match=r"query is float32 \(1, 2, 3, 2\)"):
        rung(*[make(a, "cuda") for a in arrays])


def test_rungs_are_for_heads_of_a_size() -> None:
    for size in (7, 136):
        half = make(np.ones((1, 1, 2, size), bfloat16.numpy), "cuda")
        with pytest.raises(ValueError, match="no kernel for heads of so many numbers"):
            family.attention_warpgroup(half, half, half)
    a = make(np.ones((1, 1, 2, 260), np.float32), "cuda")
    for rung, message in (
        (family.attention_tiled, "of at most 128 numbers a row"),
        (family.attention_online, "no kernel for heads of so many numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            rung(a, a, a)


# ---------------------------------------------------------------------------- traffic


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
@pytest.mark.parametrize(
    "cut",
    [
        Cut(FMA, 32, 2, 16, 16, 4), Cut(TF32, 32, 2, 16, 16), Cut(BF16, 32, 2, 16, 16),
        Cut(BF16, 32, 2, 16, 32, wgmma=True),
    ],
)  # fmt: skip
def test_no_races(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between warps, too."""
    cuts = family.Cuts(cut, cut, cut, cut if cut.units == FMA else None)
    monkeypatch.setattr(family, "_cuts", lambda *_: cuts)
    S, causal = (67, False) if cut.wgmma else (17, True)
    arrays = rounded_operands((1, 2, 1, 18, S, 32, 32), bfloat16)
    with watching():
        if cut.half:
            results = halves_attended(loaded("cuda"), arrays, bfloat16, causal=causal)
        else:
            results = attended(loaded("cuda"), arrays, 0.2, True)
    close_to(results, expected(arrays, 0.2, causal), TF32_ERROR * (1 + cut.half))


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
@pytest.mark.parametrize("units", [FMA, TF32, BF16])
def test_a_warp_of_the_real_tiles_meets_all_banks(units: str) -> None:
    """Copies past the registers, which use global memory too, aside."""
    cut = Cut(units, 64, 1, 32, 64)
    x = np.random.default_rng(0).standard_normal(64 * 64, np.float32)
    out = np.zeros(32 * 64, np.float32)
    if cut.half:
        x, out = (a.astype(bfloat16.numpy).view(np.uint16) for a in (x, out))
    at, kernel = (0, 0, 0, 64), forward(cut, 16 // cut.item, True)
    launch = kernel[(1, 1), cut.threads, None, kernel.shared]
    with watching() as watch:
        launch(
            x[: 32 * 64], at, x, at, x, at, out, at, np.zeros(32, np.float32),
            (1, 1, 32, 64, 64, 64), np.float32(1), False, x, (0,) * 5, (0,) * 5,
            np.zeros(1, np.int64), np.float32(1),
        )  # fmt: skip
    by_threads = [used for used in watch.lines.values() if not used.requests]
    assert sum(used.shared_requests for used in by_threads) > 30
    assert sum(used.bank_conflicts for used in by_threads) == 0


def test_templates_refuse_what_threads_cannot_share() -> None:
    for template in (forward_template, keys_template):
        with pytest.raises(ValueError, match="cannot share"):
            template(Cut(FMA, 64, 3, 32, 32), 4, True)
