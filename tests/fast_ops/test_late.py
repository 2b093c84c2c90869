"""Machine code is made of what is called alone, and all that can be called works."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from numba import cfunc, njit, prange, vectorize

from fast_ops.late import Late
from fast_ops.launch import compile_kernel, device_function


@device_function
def half_of_positive(x: float) -> float:
    if x < 0:
        raise ValueError("negative")
    return x / 2


@device_function
def twice(x: float) -> float:
    return half_of_positive(x) * 4


def loop(a: np.ndarray, out: np.ndarray) -> None:
    for i in prange(out.size):
        out[i] = twice(a[i])


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[str]]]:
    """Names of modules that are finished, and of those with machine code."""
    every: list[str] = []
    made: list[str] = []
    finish, make = Late.finalize, Late._finalize_specific
    monkeypatch.setattr(Late, "finalize", lambda m: [every.append(m.name), finish(m)])
    monkeypatch.setattr(
        Late, "_finalize_specific", lambda m: [made.append(m.name), make(m)]
    )
    yield every, made


def test_machine_code_is_made_of_a_kernel_alone(modules) -> None:
    every, made = modules
    a, out = np.ones(5, np.float32), np.zeros(5, np.float32)
    compile_kernel(loop, ("a test of late",), parallel=True, on_disk=False)(a, out)
    assert out.tolist() == [2.0] * 5
    assert {"half_of_positive", "twice", "parallelgufuncwrapper"} <= {*every}
    assert {*made} - {"fast_ops.team", "nrt"} == {"loop"}  # those are made once


def test_python_calls_what_kernels_call() -> None:
    assert twice(3) == 6 and half_of_positive(np.float32(1)) == 0.5
    with pytest.raises(ValueError, match="negative"):
        twice(-1.0)


def test_errors_come_out_of_what_is_linked() -> None:
    @njit
    def caller(x):
        return twice(x)

    assert caller(3.0) == 6.0
    with pytest.raises(ValueError, match="negative"):
        caller(-1.0)


@njit
def even(n):
    return True if n == 0 else odd(n - 1)


@njit
def odd(n):
    return False if n == 0 else even(n - 1)


def test_functions_that_call_each_other() -> None:
    assert even(10) and not odd(10)


def test_what_others_call_by_address() -> None:
    add_one = cfunc("float64(float64)")(lambda x: x + 1)
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(add_one.address)(2) == 3

    @njit
    def apply(fn, x):
        return fn(x)

    assert apply(add_one, 2.0) == 3.0
    for target in ("cpu", "parallel"):
        ufunc = vectorize(["float64(float64)"], target=target)(lambda x: x * 3)
        assert ufunc(np.ones(3)).tolist() == [3.0] * 3
