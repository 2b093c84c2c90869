"""Every kernel compiles for sm_75, sm_80 and sm_90, without a GPU, and fits the chip.

The PTX is made once, for the oldest chip that a kernel is for; the assembler makes
machine code for each chip from it. Two processes share the work, and it is done before
the first test.
"""

from __future__ import annotations

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import pytest

pytest.importorskip("numba_cuda")
from cuda_ops.compiler import to_cubin
from cuda_ops.launch import SIMULATED, Kernel
from cuda_ops.occupancy import limits, occupancy
from cuda_ops.registry import all_kernels

pytest.importorskip("numba_cuda", reason="pip install 'minitorch[cuda13]'")


CHIPS = ((7, 5), (8, 0), (9, 0))
KERNELS = {} if SIMULATED else all_kernels()
CASES = [
    (name, example)
    for name, kernel in sorted(KERNELS.items())
    for example in kernel.examples
]
# Arithmetic that must not be in a float32 kernel. Conversions are allowed, and so are
# the products in the slow path of the library's sin and cos.
WIDE = re.compile(r"\b(?:add|sub|div|sqrt|rcp|setp\.\w+)(?:\.\w+)*\.f64\b")


class Made(NamedTuple):
    """What a test asks about a kernel: an error, or numbers for each chip."""

    error: str
    wide: list[str]
    chips: dict[tuple[int, int], tuple[int, int, int, int]]


def compile_one(case: tuple[str, str]) -> Made:
    """The kernel's registers, shared memory, local memory and spills for each chip."""
    name, example = case
    kernel = KERNELS[name]
    chips = {}
    try:
        ptx = kernel.ptx(example, kernel.arch)
        for chip in CHIPS:
            if chip >= kernel.arch:
                made = to_cubin(ptx, chip, kernel.max_registers)
                chips[chip] = made.registers, made.shared, made.local, made.spills
    except Exception as error:
        return Made(f"{type(error).__name__}: {error}", [], {})
    return Made("", WIDE.findall(ptx), chips)


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, str], Made]:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return dict(zip(CASES, pool.map(compile_one, CASES, chunksize=4)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_compiles_and_fits(
    case: tuple[str, str], results: dict[tuple[str, str], Made]
) -> None:
    kernel: Kernel = KERNELS[case[0]]
    made = results[case]
    assert not made.error
    for chip, (registers, shared, local, spills) in made.chips.items():
        assert spills == 0, f"{spills} bytes spilled for {chip}"
        assert local == 0, f"{local} bytes of local memory for {chip}"
        shared += kernel.shared
        assert shared <= limits(chip).block_shared, f"{shared} bytes shared for {chip}"
        assert occupancy(chip, kernel.threads, registers, shared).blocks >= 1, chip
    if "float32" in case[1] and "float64" not in case[1] and not kernel.float64:
        assert not made.wide, "float64 arithmetic: a literal without float32()?"


def test_there_are_kernels() -> None:
    assert SIMULATED or {"zip_large[add]", "copy_strided"} <= KERNELS.keys()
