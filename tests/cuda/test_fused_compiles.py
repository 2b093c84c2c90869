"""Kernels that the compiler makes become machine code for every chip; needs no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="pip install -e '.[cuda13]'")

from cuda_ops import fused, fused_rows
from cuda_ops.block.intrinsics import WARP
from cuda_ops.block.rows import BLOCK
from minitorch.backend.fusion import Program, Step
from minitorch.dtypes import bfloat16, bool_, float32, float64
from minitorch.operators import add, div, exp, gt, maximum, mul, sub, tanh, where

ARCHES = [(7, 5), (9, 0)]


def chain(dtype: Any) -> Program:
    """(a * b > c ? tanh(a * b) : c) + a, and whether a * b > c"""
    steps = (
        Step(mul, (~0, ~1), dtype),
        Step(gt, (0, ~2), bool_),
        Step(tanh, (0,), dtype),
        Step(where, (1, 2, ~2), dtype),
        Step(add, (3, ~0), dtype),
    )
    return Program((dtype,) * 3, steps, (1, 4))


def softmax(dtype: Any) -> Program:
    """softmax(a * b), and the logarithm's maximum"""
    steps = (
        Step(mul, (~0, ~1), dtype),
        Step(maximum, (0,), dtype, True, -np.inf),
        Step(sub, (0, 1), dtype),
        Step(exp, (2,), dtype),
        Step(add, (3,), dtype, True, 0.0),
        Step(div, (3, 4), dtype),
    )
    return Program((dtype,) * 2, steps, (1, 5), 1)


@pytest.mark.parametrize("arch", ARCHES, ids=str)
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
class TestCompiles:
    """Machine code without spills, and in float32 without a step in float64."""

    def test_a_chain(self, dtype: Any, arch: Any) -> None:
        kinds, t = (fused.FLAT, fused.ROW, fused.RUN), dtype.name
        kernel = fused.made(chain(dtype), kinds, (1, 4))
        words = f"{t}[] {t}[] {t}[] bool[] {t}[] int64 int64 int64 int64 int64 bool"
        check(kernel, words, dtype, arch)

    def test_rows(self, dtype: Any, arch: Any) -> None:
        kinds, t = (fused_rows.FLAT, fused_rows.SAME), dtype.name
        for width, group in ((4, WARP), (1, BLOCK)):
            kernel = fused_rows.made(softmax(dtype), kinds, width, group)
            check(kernel, f"{t}[] {t}[] {t}[] {t}[] int64 int64", dtype, arch)


def check(kernel: Any, words: str, dtype: Any, arch: Any) -> None:
    made = kernel.cubin(words, arch)
    assert made.spills == 0 and made.local == 0 and made.registers <= 128
    if dtype is not float64:
        assert ".f64" not in kernel.ptx(words, arch)
