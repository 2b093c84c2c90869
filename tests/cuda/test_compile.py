"""Every kernel compiles for sm_75, sm_80 and sm_90, without a GPU, and fits the chip.

The PTX is made once, for the oldest chip that a kernel is for, as NVVM takes most of
the time; the assembler makes machine code for each chip from it. Line numbers, which
change nothing in the code, are left out. Each kernel is a test of its own, so that
`pytest -n 2` shares them among its processes.

A kernel that takes numbers of several types is compiled for its first types and for
float64, which needs the most registers; a template for rows of several lengths, or for
several numbers of lanes, for the longest or the most, which need more than the others.
With HYPOTHESIS_PROFILE=thorough all are.
"""

from __future__ import annotations

import copy
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from math import prod
from unittest import mock

import pytest
from numba import cuda

pytest.importorskip("numba_cuda")
from cuda_ops.block import mma, wgmma
from cuda_ops.block.intrinsics import WARP, load
from cuda_ops.block.rows import Fit
from cuda_ops.elementwise import MAP_LARGE, ZIP_FLAT
from cuda_ops.matmul import warpgroup
from cuda_ops.matmul.kernels import EXAMPLE
from cuda_ops.matmul.vector import VectorConfig, matvec
from cuda_ops.memory import copy_flat
from cuda_ops.reduce import _COLUMNS, FOLD_COLUMNS_WIDE
from cuda_ops.registry import all_kernels
from cuda_ops.runtime.compiler import Cubin, assemble, signature, to_cubin, to_ptx
from cuda_ops.runtime.launch import SIMULATED, Kernel
from cuda_ops.runtime.occupancy import limits, occupancy
from cuda_ops.simulator.sizes import REAL
from cuda_ops.softmax import FORWARD as SOFTMAX
from cuda_ops.transpose import _TEXT, PADDED
from minitorch import operators
from minitorch.dtypes import float32

CHIPS = ((7, 5), (8, 0), (9, 0))
KERNELS = {} if SIMULATED else all_kernels()
# Threads, and how much each keeps of a row; how many lanes a row has.
FIT = re.compile(r",\d+x\d+\]$|(?<=\[)\d+(?=\]|, float)")
GROUPS = re.compile("attention.*_warpgroup")
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def chosen(examples: Sequence[str]) -> Sequence[str]:
    """The first one, and the first with float64."""
    wide = [example for example in examples[1:] if "float64" in example]
    return examples if THOROUGH else [examples[0], *wide[:1]]


def longest(names: Iterable[str]) -> Iterable[str]:
    """All names, but of those that differ only in length or lanes, one."""
    fits = {name: [*map(int, re.findall(r"\d+", name))][-2:] for name in names}
    kinds = {FIT.sub("", n): n for n in sorted(names, key=lambda n: prod(fits[n]))}
    return sorted(names if THOROUGH else kinds.values())


CASES = [
    (name, example)
    for name in longest(KERNELS)
    if not GROUPS.match(name)  # those below
    for example in chosen(KERNELS[name].examples)
]
# Arithmetic that must not be in a float32 kernel. Conversions are allowed, and so are
# the products in the slow path of the library's sin and cos.
WIDE = re.compile(r"\b(?:add|sub|div|sqrt|rcp|setp\.\w+)(?:\.\w+)*\.f64\b")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_compiles_and_fits(case: tuple[str, str]) -> None:
    name, example = case
    kernel: Kernel = KERNELS[name]
    whole = kernel.code(example) if kernel.only_arch else b""
    assert isinstance(whole, bytes)
    ptx = linked_ptx(whole) or kernel.ptx(example, kernel.arch, lineinfo=False)
    if "float32" in example and "float64" not in example and not kernel.float64:
        wide = WIDE.findall(ptx)
        assert not wide, f"float64 arithmetic: a literal without float32()? {wide}"
    for chip in filter(kernel.runs_on, CHIPS):
        early = kernel.overlaps and chip >= (9, 0)
        code = kernel.ptx(example, chip, lineinfo=False) if early else ptx
        assert whole or ("griddepcontrol.wait;" in code) is early
        fits(kernel, to_cubin(whole or code, chip, kernel.max_registers), chip)


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_loops_and_thread_numbers_are_plain() -> None:
    """A loop steps by additions alone, and no thread number is tested for a sign."""

    def columns(a, out, n):
        total = out[0]
        for k in range(n):
            total += load(a, k * 32 + cuda.threadIdx.x % 32)
        out[cuda.threadIdx.x // 32] = total

    ptx = Kernel(columns, "", [], 64).ptx("float32[] float32[] int64", lineinfo=False)
    loops = [block for block in ptx.split("$L__")[1:] if "add.f32" in block]
    assert loops and not any(re.search("selp|shr|mul", block) for block in loops), ptx
    assert "shr.s64" not in ptx and "setp.lt.s64" not in ptx, ptx


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_what_is_inlined_without_copies_is_the_same() -> None:
    """Of a kernel whose functions call others, in several places and in loops."""
    from numba.cuda.core import inline_closurecall

    from cuda_ops.runtime import lowering

    kernel = KERNELS["softmax_rows[float32,1,32x4]"]

    def plain() -> str:
        made = to_ptx(kernel.fn, signature(kernel.examples[0]), lineinfo=False)
        return re.sub(r"B\dv\d+|smem_\d+", "", made)  # Numba counts what it compiles

    ours, copies = plain(), mock.Mock(wraps=copy.deepcopy)
    worker = inline_closurecall.InlineWorker
    theirs = mock.patch.object(worker, "inline_function", lowering.with_copies)
    with theirs, mock.patch("copy.deepcopy", copies):
        assert plain() == ours
    assert copies.called


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_line_numbers_leave_code_that_assembles() -> None:
    """NVVM writes some of round's behind labels that it has dropped."""
    ptx = MAP_LARGE[operators.round].ptx("float64[] float64[] bool")
    to_cubin(ptx, (9, 0))
    add = ZIP_FLAT[operators.add]
    assert ".loc" in add.ptx(ZIP_FLAT.examples[0])


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("kept", [True, False])
def test_what_a_kernel_needs_is_read_without_a_log(kept: bool) -> None:
    """Beside the log of one that spills, with functions that are called."""
    kernel = KERNELS["softmax_rows[float32,1,256x32]"]
    bounds = r"\.(maxntid|minnctapersm).*"  # With which no register is taken away.
    ptx = re.sub(bounds, "", kernel.ptx(kernel.examples[0], (7, 5)))
    code, log = assemble(ptx, (7, 5), 24)
    text = log if kept else ""
    with mock.patch("cuda_ops.runtime.compiler.assemble", lambda *_: (code, text)):
        made = to_cubin("", (7, 5))

    def logged(what: str) -> int:
        (part,) = re.findall(rf"{made.entry}.*?{what}", log, re.S)
        return int(re.findall(r"\d+", part)[-1])

    assert f".entry {made.entry}(" in ptx
    assert made.registers == logged(r"Used \d+ registers") == 24
    assert made.shared == logged(r"\d+ bytes smem") > 0
    assert made.local == logged(r"\d+ bytes stack") > 0
    stores, loads = logged(r"\d+ bytes spill stores"), logged(r"\d+ bytes spill loads")
    assert stores > 0 and made.spills == (stores + loads if kept else made.local)


def fits(kernel: Kernel, made: Cubin, chip: tuple[int, int]) -> None:
    assert made.spills == 0, f"{made.spills} bytes spilled for {chip}"
    assert made.local == 0, f"{made.local} bytes of local memory for {chip}"
    shared = made.shared + kernel.shared
    assert shared <= limits(chip).block_shared, f"{shared} bytes shared for {chip}"
    assert occupancy(chip, kernel.threads, made.registers, shared).blocks >= 1, chip


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("kind", [mma.BF16, mma.TF32])
@pytest.mark.parametrize("a_along", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_a_warpgroup_run_on_behind_each_other(
    kind: str, a_along: bool, turned: bool
) -> None:
    """Where registers feed them, too; and nothing is spilled, but for multiples of a
    row's length, which a kernel that stores columns keeps for all tiles."""
    if turned and (a_along or kind == mma.BF16):
        pytest.skip("halves are not turned, nor what lies along k")
    config = warpgroup.GROUP_CONFIGS[kind][0]._replace(turned=turned)
    kernel = warpgroup.warpgroup(config, a_along, True)
    word = "float32[]" if kind == mma.TF32 else "uint16[]"
    code = kernel.code(warpgroup.EXAMPLE.replace("uint16[]", word))
    _, log = assemble(code, (9, 0), kernel.max_registers)
    assert "serialized" not in log, log
    if not turned:
        fits(kernel, to_cubin(code, (9, 0), kernel.max_registers), (9, 0))


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("kind", [mma.TF32, mma.BF16])
def test_every_cut_of_a_warpgroup_fits(kind: str) -> None:
    """And no block waits for registers with which it was not launched."""
    word = "float32[]" if kind == mma.TF32 else "uint16[]"
    for config in warpgroup.GROUP_CONFIGS[kind][1:]:
        kernel = warpgroup.warpgroup(config, True, True)
        code = kernel.code(warpgroup.EXAMPLE.replace("uint16[]", word))
        _, log = assemble(code, (9, 0), kernel.max_registers)
        assert "serialized" not in log and "setmaxnreg" not in log, log
        fits(kernel, to_cubin(code, (9, 0), kernel.max_registers), (9, 0))


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("a_along", [False, True])
@pytest.mark.parametrize("b_along", [False, True])
def test_six_products_of_a_split_one_run_on_behind_each_other(
    a_along: bool, b_along: bool
) -> None:
    kernel = warpgroup.warpgroup(warpgroup.SPLITS[0], a_along, b_along)
    code = kernel.code(warpgroup.EXAMPLE.replace("uint16[]", "float32[]"))
    _, log = assemble(code, (9, 0), kernel.max_registers)
    assert "serialized" not in log, log
    fits(kernel, to_cubin(code, (9, 0), kernel.max_registers), (9, 0))


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
def test_warps_that_add_rows_up_leave_products_alone() -> None:
    """They have few registers, and may spill what they keep for a whole tile."""
    config = warpgroup.SQUARE._replace(sums=True, wide=True)
    kernel = warpgroup.warpgroup(config, False, False)
    code = kernel.code(warpgroup.EXAMPLE.replace("uint16[]", "float32[]"))
    _, log = assemble(code, (9, 0), kernel.max_registers)
    assert "serialized" not in log, log
    assert to_cubin(code, (9, 0), kernel.max_registers).spills <= 64


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("name", sorted(filter(GROUPS.match, KERNELS)))
def test_products_of_attention_run_on_behind_each_other(name: str) -> None:
    kernel = KERNELS[name]
    for example in chosen(kernel.examples):
        code = kernel.code(example)
        assert isinstance(code, bytes) and not WIDE.search(linked_ptx(code))
        _, log = assemble(code, (9, 0), kernel.max_registers)
        assert "serialized" not in log, log
        fits(kernel, to_cubin(code, (9, 0), kernel.max_registers), (9, 0))


def linked_ptx(code: bytes) -> str:
    """What the linker assembles, which needs no second compilation by Numba."""
    if not code:
        return ""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(3, ["-arch=sm_90a", "-lto", "-ptx"])
    kind = nvjitlink.InputType.LTOIR
    nvjitlink.add_data(handle, kind, code, len(code), "kernel")
    nvjitlink.complete(handle)
    ptx = bytearray(nvjitlink.get_linked_ptx_size(handle))
    nvjitlink.get_linked_ptx(handle, ptx)
    nvjitlink.destroy(handle)
    return ptx.decode()


# The ways in which kernels read and write halves; float16 and bfloat16 convert alike.
HALVES = (
    (ZIP_FLAT[operators.add], "float16[] bfloat16[] bfloat16[] bool"),
    (MAP_LARGE[operators.exp], "bfloat16[] bfloat16[] bool"),
    (FOLD_COLUMNS_WIDE[operators.add], _COLUMNS.replace("float32[]", "bfloat16[]")),
    (copy_flat, "bool[] bfloat16[] bool"),
    (PADDED[float32,], _TEXT.replace("T", "float16", 1).replace("T", "float32")),
    (
        matvec("float32", VectorConfig(32, 4, True)),
        EXAMPLE.replace("float32", "bfloat16"),
    ),
    (SOFTMAX.rows[0][Fit(float32, 4, WARP, 4)], "bfloat16[] bfloat16[] int64 int64"),
)


@pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")
@pytest.mark.parametrize("kernel, text", HALVES, ids=lambda value: str(value)[:30])
def test_halves_are_computed_in_float32(kernel: Kernel, text: str) -> None:
    """From sm_80 on bfloat16 numbers are rounded by one instruction."""
    for chip in (CHIPS[0], CHIPS[-1]):
        ptx = kernel.ptx(text, chip, lineinfo=False)
        assert not re.search(r"\.f64|call", ptx), chip
        if "bfloat16[]" in text:
            assert ("cvt.rn.bf16.f32" in ptx) is (chip >= (8, 0))
        fits(kernel, to_cubin(ptx, chip), chip)


def test_there_are_kernels() -> None:
    assert SIMULATED or {"zip_large[add]", "copy_strided"} <= KERNELS.keys()


@pytest.mark.parametrize("module", REAL)
def test_the_simulator_knows_the_real_sizes(module: str) -> None:
    names = vars(importlib.import_module(module))
    assert {name: names[name] for name in REAL[module]} == REAL[module]


class Numbers:
    """What writes instructions, but with numbers instead."""

    zext = staticmethod(lambda x, kind: x)
    lshr = staticmethod(lambda x, y: x >> y.constant)
    or_ = staticmethod(lambda x, y: x | y.constant)
    add = staticmethod(lambda x, y: x + y.constant)


@pytest.mark.skipif(SIMULATED, reason="the simulator has no descriptors")
@pytest.mark.parametrize("along", [False, True])
def test_descriptors_name_the_places_that_copies_fill(along: bool) -> None:
    """As "PTX ISA", 9.7.15.5.1.2, has layouts of 128-byte swizzling."""
    size, wide = (128, 96) if along else (96, 128)  # of k, of rows
    group = wgmma.Group(wide, size, True, False, mma.BF16, along)
    place, start = wgmma.line_place(group), 8192
    ends = wgmma._descriptors(Numbers(), start, group, along, wide)
    for k0, end in zip(range(0, size, 16), ends, strict=True):
        assert end >> 61 == 2
        first, leading, stride = ((end >> n & 0x3FFF) << 4 for n in (0, 16, 32))
        for row in range(wide):
            for k in range(16):
                line, i = (row, k) if along else (k, row)
                at = first + line // 8 * stride + line % 8 * 128 + 2 * (i % 64)
                at += i // 64 * leading
                at ^= (at >> 7 & 7) << 4
                assert at == start + 2 * place(row, k0 + k, along, wide)
