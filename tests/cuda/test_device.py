"""What only a GPU has: launches at speed, errors that come later, shared memory.

`pytest tests/cuda/test_device.py -s` prints the cost of a launch.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import SIMULATED, assert_equal, make, numbers
from minitorch import dtypes, operators
from minitorch.backend import get_backend

pytest.importorskip("numba_cuda")
from numba import cuda

from cuda_ops.elementwise import ZIP_FLAT
from cuda_ops.runtime import device, launch
from cuda_ops.runtime.allocator import OutOfMemoryError, Pool, use_pool
from cuda_ops.runtime.launch import ceil_div, kernel

pytestmark = pytest.mark.skipif(SIMULATED, reason="needs a GPU, not the simulator")

F32 = dtypes.float32


@kernel
def add_shifted(a, out, n):
    i = cuda.grid(1)
    if i < n:
        out[i] = a[i] + 1


# ------------------------------------------------------------------------ launches


def test_the_fast_launch_is_used() -> None:
    assert launch.can_pack()
    x = make(numbers((100,)), "cuda").flat()
    out = get_backend("cuda").empty((100,), F32).flat()
    add_shifted[1, 128](x, out, 100)
    (form,) = add_shifted._forms.values()
    assert form.cubin.registers > 0


def test_the_plain_launch_gives_the_same() -> None:
    a = numbers((100,))
    out = get_backend("cuda").empty((100,), F32)
    add_shifted._launch_plain((1, 128), make(a, "cuda").flat(), out.flat(), 100)
    assert_equal(out, a + np.float32(1))


def test_the_cost_of_a_launch() -> None:
    x = make(numbers((1000,)), "cuda").flat()
    out = get_backend("cuda").empty((1000,), F32).flat()
    run = ZIP_FLAT[operators.add]
    best = 1.0
    for _ in range(20):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            run[4, 256](x, x, out, True)
        best = min(best, (time.perf_counter() - start) / 200)
    a = minitorch.ones(1000, device="cuda")
    start = time.perf_counter()
    for _ in range(500):
        with minitorch.no_grad():
            a + a
    eager = (time.perf_counter() - start) / 500
    print(f"\na launch: {1e6 * best:.2f} us, an eager a + a: {1e6 * eager:.2f} us")
    assert best < 50e-6


def test_launches_from_another_thread() -> None:
    a, results = numbers((300,)), []

    def work() -> None:
        x = make(a, "cuda")
        results.append(get_backend("cuda").map(operators.neg, x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for out in results:
        assert_equal(out, -a)


def test_too_many_threads_names_the_kernel() -> None:
    out = get_backend("cuda").empty((10,), F32).flat()
    with pytest.raises(device.CudaError, match=r"kernel add_shifted\[1, 4096"):
        add_shifted[1, 4096](out, out, 10)


def test_a_type_that_kernels_do_not_take() -> None:
    with pytest.raises(TypeError, match="got a str; kernels take device arrays"):
        add_shifted[1, 32]("a", "b", 3)


# ------------------------------------------------------------- errors of the device

BROKEN = """
import numpy as np
from numba import cuda
from cuda_ops.runtime.launch import kernel
from minitorch.backend import get_backend
from minitorch import dtypes

@kernel
def write_far_away(out):
    out[cuda.grid(1) + (1 << 40)] = 1

@kernel
def harmless(out):
    out[cuda.grid(1)] = 1

backend = get_backend("cuda")
out = backend.empty((64,), dtypes.float32)
try:
    write_far_away[1, 32](out.flat())
    harmless[1, 32](out.flat())
    backend.to_numpy(out)
except RuntimeError as error:
    print("ERROR", error)
"""


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **environment},
    )
    return result.stdout + result.stderr


def test_an_error_that_comes_later_names_the_last_kernels() -> None:
    text = run(BROKEN)
    assert "ILLEGAL_ADDRESS" in text and "write_far_away" in text, text
    assert "CUDA_LAUNCH_BLOCKING=1" in text


def test_with_waiting_the_error_names_the_kernel() -> None:
    text = run(BROKEN, CUDA_LAUNCH_BLOCKING="1")
    assert "kernel write_far_away[1, 32] failed" in text, text


BAD_INDEX = """
import minitorch

table, index = minitorch.zeros(4, 2, device="cuda"), minitorch.tensor([0, 4])
try:
    rows = table.index_select(0, index.to("cuda"))
    print("WENT ON")
    rows.numpy()
except IndexError as error:
    print("ERROR", error)
"""


def test_a_bad_index_is_raised_later_and_says_so() -> None:
    text = run(BAD_INDEX)
    assert "WENT ON\nERROR index_select: index 4 is outside" in text, text
    assert "an earlier operation" in text and "CUDA_LAUNCH_BLOCKING=1" in text


def test_with_waiting_a_bad_index_is_raised_by_its_operation() -> None:
    text = run(BAD_INDEX, CUDA_LAUNCH_BLOCKING="1")
    assert "ERROR" in text and "WENT ON" not in text, text
    assert "earlier" not in text


# -------------------------------------------------------------------------- memory


def test_memory_is_reused() -> None:
    gc.collect()
    minitorch.cuda.empty_cache()
    x = minitorch.zeros(1 << 20, device="cuda")
    before = minitorch.cuda.memory_reserved()
    for _ in range(50):
        x = x + 1.0
    assert x.numpy()[0] == 50
    assert minitorch.cuda.memory_reserved() <= before + 2 * 20 * 2**20


def test_out_of_memory_says_how_much() -> None:
    total = minitorch.cuda.get_device_properties().total_memory
    with pytest.raises(OutOfMemoryError, match=r"were asked for.*are free"):
        minitorch.empty(total // 4 + 1, device="cuda")
    assert minitorch.ones(3, device="cuda").sum().item() == 3


def test_a_pool_of_its_own() -> None:
    pool = Pool()
    with use_pool(pool):
        x = minitorch.ones(1000, device="cuda")
    y = minitorch.ones(1000, device="cuda")
    assert pool.in_use() == 4096 and pool.segments
    start, size, _ = pool.segments[0]
    assert start <= x.raw.storage.array.pointer < start + size
    assert not start <= y.raw.storage.array.pointer < start + size


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, (1 << 24) + 1])
def test_copies_to_the_gpu_and_back(size: int) -> None:
    backend = get_backend("cuda")
    a = (np.arange(size) % 1000).astype(np.float32)
    first, tensors = a.copy(), []
    for k in range(3):
        tensors.append(backend.from_numpy(a))
        a += 1  # the copy must not see this
        assert k < 3
    for k, x in enumerate(tensors):
        assert_equal(x, first + np.float32(k))


def test_nobody_waits_for_a_pinned_copy() -> None:
    size = 1 << 26
    busy, x = minitorch.ones(size, device="cuda"), minitorch.ones(size).pin_memory()
    for _ in range(20):
        busy = busy * 1.0 + 0.0
    on_gpu, done = x.to("cuda", non_blocking=True), minitorch.cuda.Event()
    done.record()
    assert not done.query()
    place = x.numpy().ctypes.data
    del x  # its memory is still being read
    other = minitorch.zeros(size).pin_memory()
    assert other.numpy().ctypes.data != place or done.query()
    assert on_gpu.sum().item() == size


def test_a_copy_to_the_cpu_that_nobody_waits_for() -> None:
    x = minitorch.arange(1 << 24, device="cuda")
    out = x.to("cpu", non_blocking=True)
    del x
    minitorch.ones(1 << 24, device="cuda")  # the memory is used behind the copy
    minitorch.cuda.synchronize()
    assert out.is_pinned() and np.array_equal(out.numpy(), np.arange(1 << 24))


def test_streams_and_events() -> None:
    stream = minitorch.cuda.Stream()
    start, end = (minitorch.cuda.Event(enable_timing=True) for _ in range(2))
    x = minitorch.ones(1 << 22, device="cuda")
    stream.wait_stream(minitorch.cuda.current_stream())
    with minitorch.cuda.stream(stream):
        start.record()
        y = x + x
        end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 1000 and end.query()
    stream.synchronize()
    assert float(y.sum().item()) == 2 * (1 << 22)


# ------------------------------------------------------------------ other libraries


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "bool"])
def test_torch_takes_our_memory(torch: Any, kind: str) -> None:
    a = numbers((4, 6), dtypes.by_name(kind))
    x = minitorch.tensor(a, device="cuda")
    theirs = torch.from_dlpack(x.T)
    np.testing.assert_array_equal(theirs.cpu().numpy(), a.T)
    theirs.fill_(1)
    np.testing.assert_array_equal(x.numpy(), np.ones_like(a))
    del x
    gc.collect()
    assert bool((theirs == 1).all())


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "bool"])
def test_we_take_torch_memory(torch: Any, kind: str) -> None:
    theirs = torch.ones(4, 6, dtype=getattr(torch, kind), device="cuda")
    x = minitorch.from_dlpack(theirs[:, 1::2])
    assert x.device == "cuda" and x.shape == (4, 3)
    theirs[2, 3] = 0
    assert x[2, 1].item() == 0 and x[2, 0].item() == 1
    again = minitorch.as_tensor(theirs)
    assert again.raw.storage.array.pointer == theirs.data_ptr()


def test_torch_reads_the_cuda_array_interface(torch: Any) -> None:
    x = minitorch.arange(12, device="cuda").float().reshape(3, 4)
    theirs = torch.as_tensor(x.T, device="cuda")
    assert theirs.data_ptr() == x.raw.storage.array.pointer
    np.testing.assert_array_equal(theirs.cpu().numpy(), x.numpy().T)


def test_an_unused_capsule_gives_the_memory_back() -> None:
    from cuda_ops.runtime import dlpack

    x = minitorch.ones(1000, device="cuda")
    before = len(dlpack._lent)
    capsule = x.__dlpack__()
    assert len(dlpack._lent) == before + 1
    del capsule
    gc.collect()
    assert len(dlpack._lent) == before


def test_a_tensor_that_requires_grad_is_not_shared() -> None:
    x = minitorch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match=r"use \.detach\(\) first"):
        x.__dlpack__()


# ------------------------------------------------------------------------- accuracy


FUNCTIONS = (
    operators.exp, operators.log, operators.tanh, operators.sigmoid, operators.gelu,
    operators.gelu_tanh, operators.silu, operators.erf, operators.softplus,
    operators.log1p, operators.expm1, operators.sqrt, operators.rsqrt, operators.sin,
    operators.cos,
)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_float32_functions_are_accurate(fn: Any) -> None:
    """A few units in the last place of what float64 gives.

    In the left tail of gelu 1 + erf(x) cancels, in PyTorch as well: there it is a few
    units of x.
    """
    low = 1e-3 if fn in (operators.log, operators.sqrt, operators.rsqrt) else -8
    a = np.linspace(max(low, -0.99) if fn is operators.log1p else low, 8, 10_001)
    x = make(a.astype(np.float32), "cuda")
    wide = make(a.astype(np.float32).astype(np.float64), "cuda")
    backend = get_backend("cuda")
    narrow = backend.to_numpy(backend.map(fn, x)).astype(np.float64)
    exact = backend.to_numpy(backend.map(fn, wide))
    tail = np.abs(a) if fn in (operators.gelu, operators.gelu_tanh) else 0.0
    error = np.abs(narrow - exact) / (np.abs(exact) + tail + 1e-6)
    print(f"\n{fn.__name__}: {error.max() / 2**-23:.1f} ulp")
    assert error.max() < 12 * 2**-23


def test_one_launch_for_many_sizes() -> None:
    for n in (1, 255, 256, 257, 4095, 4096, 4097, 1 << 21, (1 << 21) + 5):
        a = numbers((n,))
        x = make(a, "cuda")
        out = get_backend("cuda").empty((n,), F32)
        add_shifted[ceil_div(n, 256), 256](x.flat(), out.flat(), n)
        assert_equal(out, a + np.float32(1))
