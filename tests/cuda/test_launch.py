"""Launching kernels: arguments, grids, templates, errors, the cache on the disk."""

from __future__ import annotations

import math
import threading
from ctypes import c_bool, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int64

from helpers import array_of, make
from minitorch import dtypes, operators
from minitorch.todo import todo

pytest.importorskip("numba_cuda")
from cuda_ops import simulator
from cuda_ops.block.intrinsics import (
    ballot,
    device,
    load4,
    shuffle,
    shuffle_up,
    shuffle_xor,
    store4,
    sync_warp,
)
from cuda_ops.block.rows import summed
from cuda_ops.runtime import compiler, launch
from cuda_ops.runtime import device as device_of
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.launch import (
    SIMULATED,
    Kernels,
    ceil_div,
    device_function,
    fewest,
    kernel,
)
from cuda_ops.simulator.watch import watching

N = 64


def flat(array: np.ndarray) -> Any:
    return make(array, "cuda").flat()


def back(array: Any) -> np.ndarray:
    from minitorch.tensor_data import Storage, TensorData

    dtype = dtypes.from_numpy_dtype(np.dtype(array.dtype))
    return array_of(TensorData(Storage(array, dtype, "cuda"), (len(array),)))


@pytest.mark.parametrize("dtype", dtypes.COMPUTED)
def test_numbers_of_every_dtype_are_arguments(dtype: dtypes.DType) -> None:
    """The simulator takes any; a launch packs those that it has a word for."""
    word = launch._word(dtype.numpy.type(1))
    assert word == dtype.name and compiler.signature(word)
    assert launch.struct.calcsize(launch._letters(word)) == dtype.itemsize


@pytest.mark.parametrize("parts, most", [(0, 9), (1, 9), (9, 9), (384, 132), (5, 1)])
def test_fewest_blocks_take_as_few_turns(parts: int, most: int) -> None:
    blocks, turns = fewest(parts, most), math.ceil(parts / most)
    assert blocks * turns >= parts and (blocks - 1) * turns < max(parts, 1)


@kernel
def write_arguments(out, i, f, d, b, n, numbers):
    if cuda.grid(1) == 0:
        out[0] = i
        out[1] = f
        out[2] = d
        out[3] = b
        out[4] = n
        out[5] = numbers[0] + 10 * numbers[1] + 100 * numbers[2]


def test_arguments_of_every_type_arrive() -> None:
    """One-byte and four-byte numbers stand between numbers of eight bytes."""
    out = flat(np.zeros(6))
    arguments = (-5, np.float32(0.5), 0.1, True, np.int32(-7), (1, 2, 3))
    write_arguments[1, 32](out, *arguments)
    assert back(out).tolist() == [-5, 0.5, 0.1, 1, -7, 321]
    write_arguments[(1, 1), (32, 1, 1)](out, 2**40, np.float32(1), 2.0, False,
                                        np.int32(3), (4, 5, 6))  # fmt: skip
    assert back(out).tolist() == [2**40, 1, 2, 0, 3, 654]


@kernel
def write_index(out, width):
    x, y = cuda.grid(2)
    if x < width and y < out.size // width:
        out[y * width + x] = (
            cuda.blockIdx.y * 1000 + cuda.blockIdx.x * 100 + cuda.threadIdx.y * 10
        ) + cuda.threadIdx.x


def test_grids_of_two_dimensions() -> None:
    out = flat(np.zeros(15, np.int64))
    write_index[(2, 2), (3, 2)](out, 5)
    y, x = np.divmod(np.arange(15), 5)
    expected = y // 2 * 1000 + x // 3 * 100 + y % 2 * 10 + x % 3
    assert back(out).tolist() == expected.tolist()


def test_no_blocks_is_no_launch() -> None:
    out = flat(np.ones(4, np.int64))
    write_index[0, 32](out, 4)
    assert back(out).tolist() == [1, 1, 1, 1]


def double_all(fn: Any) -> Any:
    def loop(a, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = fn(fn(a[i]))

    return loop


DOUBLES = Kernels(double_all)
OFFSET = 1.5


def times(x: float) -> float:
    return 2 * x


def shifted(x: float) -> float:
    """Calls another function of its module, and reads a number of it."""
    return times(x) + OFFSET / 3


def test_a_template_makes_one_kernel_for_each_function() -> None:
    assert DOUBLES[operators.neg] is DOUBLES[operators.neg]
    a = np.linspace(-2, 2, N, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        out = flat(np.zeros(N, dtype))
        DOUBLES[shifted][ceil_div(N, 32), 32](flat(a.astype(dtype)), out)
        once = 2 * a.astype(dtype) + dtype(0.5)
        np.testing.assert_allclose(back(out), 2 * once + dtype(0.5), rtol=1e-6)


def test_a_closure_of_the_user() -> None:
    slope = 0.25
    leaky = lambda x: x if x > 0 else slope * x
    a = np.linspace(-2, 2, N, dtype=np.float32)
    out = flat(np.zeros(N, np.float32))
    DOUBLES[leaky][ceil_div(N, 32), 32](flat(a), out)
    np.testing.assert_allclose(back(out), np.where(a > 0, a, a / 16), rtol=1e-6)


@kernel
def unfinished(out):
    todo("a4.2")


@device
def missing(x):
    todo("a4.3")


@kernel
def unfinished_inside(out):
    out[0] = missing(out[0])


@pytest.mark.parametrize("blocks", [1, 0])
def test_a_kernel_that_is_not_written_says_so(blocks: int) -> None:
    for run, task in ((unfinished, "a4.2"), (unfinished_inside, "a4.3")):
        with pytest.raises(NotImplementedError, match=f"task {task} is not impl"):
            run[blocks, 32](flat(np.zeros(1, np.float32)))


@kernel
def add_in_shared(a, out):
    part = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    part[i] = a[i]
    cuda.syncthreads()
    out[i] = part[i] + part[(i + 1) % cuda.blockDim.x]


def test_dynamic_shared_memory() -> None:
    a = np.arange(N, dtype=np.float32)
    out = flat(np.zeros(N, np.float32))
    add_in_shared[1, N, 0, 4 * N](flat(a), out)
    assert back(out).tolist() == (a + np.roll(a, -1)).tolist()


# ------------------------------------------------------- without a GPU: the packing

FLOAT64, INT32 = ARRAYS[dtypes.float64], ARRAYS[dtypes.int32]
PARTS = {  # of each argument, as Numba's code reads them
    FLOAT64: [c_int64, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64],
    INT32: [c_int64, c_int64, c_int64, c_int64, c_int64, c_int64, c_int64],
    int: [c_int64],
    bool: [c_bool],
    np.float32: [c_float],
    tuple: [c_int64, c_int64, c_int64],
}


def read_frame(frame: Any, args: Any) -> list[Any]:
    """The kernel's parameters, from where the driver finds them."""
    kinds = [kind for arg in args for kind in PARTS[type(arg)]]
    places = (c_void_p * len(kinds)).from_address(frame[1])
    return [kind.from_address(at).value for kind, at in zip(kinds, places)]


def test_the_driver_finds_each_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_load", lambda *_: None)
    args = (
        True, FLOAT64(2**40, 5, None), (1, -2, 3), np.float32(0.5), 7,
        INT32(4096, 6, None), False,
    )  # fmt: skip
    words = [launch._word(arg) for arg in args]
    kinds = tuple(launch._kind(arg) for arg in args)
    form = launch.Form("name", words, kinds, compiler.Cubin(b"", "", 0, 0, 0, 0), 0)
    frame = form.new_frame()
    form.pack(frame[0], 0, *form.values(args))
    double, single = [0, 0, 5, 8, 2**40, 5, 8], [0, 0, 6, 4, 4096, 6, 4]
    assert read_frame(frame, args) == [True, *double, 1, -2, 3, 0.5, 7, *single, False]
    others = ((*args, 1), args[:-1], (1, *args[1:]), (*args[:2], (1, 2), *args[3:]))
    assert [form.values(other) for other in others] == [None] * 4


class PaperDriver:
    """Takes launches; `during` is called in each, while the driver reads its frame."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.during: Any = lambda: None

    def cuLaunchKernel(self, *args: Any) -> tuple[int]:
        *grid, _, places, _ = args[1:]
        during, self.during = self.during, lambda: None
        during()
        self.seen.append((grid, c_int64.from_address(c_int64.from_address(places).value)
                          .value))  # fmt: skip
        return (0,)


def test_launches_at_one_time_and_of_other_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paper, made = PaperDriver(), []
    monkeypatch.setattr(launch, "_load", lambda *_: None)
    monkeypatch.setattr(device_of, "driver", lambda: paper)

    def compiled(self: Any, words: Any, kinds: Any) -> Any:
        made.append(" ".join(words))
        cubin = compiler.Cubin(b"", "", 0, 0, 0, 0)
        return launch.Form("name", words, kinds, cubin, 0)

    monkeypatch.setattr(launch.Kernel, "_compile", compiled)
    run = launch.Launch(launch.Kernel(times), ((2, 3), 64, None, 128)).run
    paper.during = lambda: run(8)  # another thread, while the driver reads the 7
    run(7)
    run(9, (1, 2))
    run(10)
    grid = [2, 3, 1, 64, 1, 1, 128]
    assert paper.seen == [(grid, 8), (grid, 7), (grid, 9), (grid, 10)]
    assert made == ["int64", "int64 2*int64"]
    for config, shared in (((2, 32), 0), ((2, 32, "mine"), 0), ((2, 32, None, 64), 64)):
        launch.Launch(launch.Kernel(times), config).run(1)
        assert paper.seen[-1] == ([2, 1, 1, 32, 1, 1, shared], 1)


# -------------------------------------------------------------------------- warps


warp_sum = summed(32)


@kernel
def use_warps(a, out):
    i = cuda.grid(1)
    x = a[i]
    out[i] = warp_sum(x, 0, out)
    out[i + N] = shuffle_xor(x, 5)
    out[i + 2 * N] = shuffle_up(x, 3)
    out[i + 3 * N] = shuffle(x, 7)
    out[i + 4 * N] = float32(ballot(x > 0) >> int64(cuda.laneid) & 1)


def test_lanes_of_a_warp_exchange_values() -> None:
    a = np.random.default_rng(0).integers(-9, 9, N).astype(np.float32)
    out = flat(np.zeros(5 * N, np.float32))
    use_warps[1, N](flat(a), out)
    rows, lanes = a.reshape(2, 32), np.arange(32)
    full = np.ones(32, np.float32)
    expected = [
        np.outer(rows.sum(1), full),
        rows[:, lanes ^ 5],
        rows[:, np.where(lanes >= 3, lanes - 3, lanes)],
        np.outer(rows[:, 7], full),
        rows > 0,
    ]
    np.testing.assert_array_equal(back(out), np.ravel(expected))


@kernel
def shuffle_in_one_warp(a, out):
    if cuda.threadIdx.x < 32:
        out[cuda.threadIdx.x] = warp_sum(a[cuda.threadIdx.x], 0, out)
    cuda.syncthreads()
    out[32 + cuda.threadIdx.x] = out[0]


def test_one_warp_exchanges_values_while_others_wait() -> None:
    out = flat(np.zeros(32 + N))
    shuffle_in_one_warp[1, N](flat(np.ones(N)), out)
    assert back(out).tolist() == [32] * (32 + N)


@kernel
def move_vectors(a, out):
    i = cuda.grid(1) * 4
    if i + 4 <= out.size:
        x0, x1, x2, x3 = load4(a, i)
        store4(out, i, x3, x2, x1, x0)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_vectors_of_four_elements(dtype: dtypes.DType) -> None:
    a = np.random.default_rng(1).integers(0, 2, 4 * N).astype(dtype.numpy)
    out = flat(np.zeros(4 * N, dtype.numpy))
    move_vectors[1, N](flat(a), out)
    np.testing.assert_array_equal(back(out), a.reshape(N, 4)[:, ::-1].ravel())


# -------------------------------------------------------------- scalar functions

BY_HAND = [operators.sign, operators.floor, operators.ceil, operators.round]
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e30, -1e30, math.inf, -math.inf]


@pytest.mark.parametrize("fn", BY_HAND, ids=lambda f: f.__name__)
def test_float32_forms_written_by_hand(fn: Any) -> None:
    a = np.array([*SPECIAL, math.nan, 3.7, -3.7], np.float32)
    out = flat(np.zeros(len(a), np.float32))
    Kernels(_once)[fn][1, 32](flat(a), out)
    expected = [fn(float(x)) for x in a]
    np.testing.assert_array_equal(back(out), np.array(expected, np.float32))


def _once(fn: Any) -> Any:
    def loop(a, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = fn(a[i])

    return loop


def test_device_function_takes_functions_only() -> None:
    assert device_function(3) == 3  # numbers of a closure pass through


# ------------------------------------------------------------- cache and signatures


def test_signatures() -> None:
    array, number, shape = compiler.signature("float32[] bool 3*int64")
    assert (array.ndim, array.layout, number.name, shape.count) == (1, "C", "bool", 3)
    with pytest.raises(ValueError, match=r"'float8\[\]' in .* is no type"):
        compiler.signature("float8[]")


def test_the_cache_keeps_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(compiler, "toolchain", lambda: "versions")
    made = compiler.Cubin(b"code\nmore", "entry", 12, 0, 0, 0)
    calls = []

    def make() -> compiler.Cubin:
        calls.append(1)
        return made

    assert [compiler.cached_cubin(make, "key") for _ in range(3)] == [made] * 3
    assert len(calls) == 1
    compiler.cached_cubin(make, "another key")
    assert len(calls) == 2
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1])  # a broken file is made anew
    assert compiler.cached_cubin(make, "key") == made and len(calls) == 3
    assert not [f for f in tmp_path.iterdir() if f.suffix == ".part"]


def test_no_folder_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "cache_folder", lambda: None)
    made = compiler.Cubin(b"", "", 0, 0, 0, 0)
    assert compiler.cached_cubin(lambda: made, "key") is made


# ----------------------------------------------------------------- in the simulator


@kernel
def wait_for_all(out):
    if cuda.threadIdx.x == 3:
        out[0] = 1 // (out.size - out.size)
    cuda.syncthreads()


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
def test_an_error_in_one_thread_ends_the_launch() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_for_all[1, 8](np.zeros(2))


@kernel
def shuffle_in_part(out):
    if cuda.threadIdx.x != 5:
        out[cuda.threadIdx.x] = shuffle_xor(cuda.threadIdx.x, 1)


@kernel
def barrier_in_part(out):
    if cuda.threadIdx.x < 32:
        out[cuda.threadIdx.x] = shuffle_xor(cuda.threadIdx.x, 1)
        cuda.syncthreads()
    else:
        sync_warp()


def _line(message: str) -> str:
    """The line of this file that a message names."""
    number = int(message.partition("test_launch.py:")[2].partition(")")[0])
    return Path(__file__).read_text().splitlines()[number - 1].strip()


@pytest.mark.skipif(not SIMULATED, reason="a GPU may wait for ever")
def test_lanes_that_do_not_come_are_an_error() -> None:
    said = r"lanes that do not come \(shuffle_in_part, test_launch.py:\d+\)"
    with pytest.raises(RuntimeError, match=said) as caught:
        shuffle_in_part[1, 32](np.zeros(32))
    assert _line(str(caught.value)).startswith("out[cuda.threadIdx.x] = shuffle_xor(")
    said = r"32 of 64 threads wait at a barrier \(barrier_in_part, test_launch.py:\d+\)"
    with watching(), pytest.raises(RuntimeError, match=said) as caught:
        barrier_in_part[1, 64](np.zeros(64))
    assert _line(str(caught.value)) == "cuda.syncthreads()"
    out = np.zeros(64)
    barrier_in_part[1, 64](out)  # the second warp has ended: that is allowed
    assert out[:32].tolist() == [i ^ 1 for i in range(32)] and not out[32:].any()


@kernel
def note_order(order, count, rounds):
    for _ in range(rounds):
        order[count[0]] = cuda.threadIdx.x
        count[0] += 1
        cuda.syncthreads()


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
def test_threads_take_turns_in_the_same_order() -> None:
    orders = []
    for _ in range(2):
        order, count = np.zeros(3 * 40), np.zeros(1, np.int64)
        note_order[1, 40](order, count, 3)
        orders.append(order.tolist())
    assert orders[0] == orders[1] == [*range(40)] * 3


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
def test_launches_from_several_threads() -> None:
    outs = [np.zeros(40) for _ in range(4)]
    threads = [threading.Thread(target=shuffle_all[1, 40], args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [i ^ 1 for i in range(40)]
    assert all(out.tolist() == expected for out in outs)


@kernel
def shuffle_all(out):
    out[cuda.grid(1)] = shuffle_xor(cuda.threadIdx.x, 1)
    cuda.syncthreads()


@pytest.mark.skipif(not SIMULATED, reason="about the simulator")
def test_which_kernels_need_threads() -> None:
    assert simulator.has_meetings(use_warps.fn)
    assert simulator.has_meetings(add_in_shared.fn)
    assert not simulator.has_meetings(DOUBLES[operators.neg].fn)
