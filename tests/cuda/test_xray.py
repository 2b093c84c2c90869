"""X-rays in the simulator: sampled blocks, statements, branches, races, scenes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32
from rich.console import Console

pytest.importorskip("numba_cuda")
from assignments import xrays
from cuda_ops.block.intrinsics import load4, shuffle, store4
from cuda_ops.ladders import launches
from cuda_ops.ladders.launches import LAUNCHES
from cuda_ops.runtime.launch import SIMULATED, kernel
from cuda_ops.simulator.steps import statements
from cuda_ops.simulator.watch import wavefronts
from cuda_ops.simulator.xray import KINDS, VISITS, xray
from minitorch.cli.xray import show

pytestmark = pytest.mark.skipif(not SIMULATED, reason="about the simulator")


def seen(run: Any, blocks: int, threads: int, *args: Any) -> dict[str, dict[str, Any]]:
    """The lines of a kernel, by what they say."""
    scene = xray(lambda: run[blocks, threads](*args), run.name)
    lines = [line for function in scene["functions"] for line in function["lines"]]
    return {line["text"].strip(): line for line in lines}


def counts(line: dict[str, Any], kind: str) -> tuple[int, ...]:
    """Requests, sectors or wavefronts, and the ideal."""
    return tuple(n for name, n in line[kind].items() if name != "first")


# -------------------------------------------------------------------- golden cases


@kernel
def read_steps(a, out, step):
    i = cuda.threadIdx.x
    out[i] = a[i * step]


@kernel
def read_vectors(a, out):
    i = 4 * cuda.threadIdx.x
    x0, x1, x2, x3 = load4(a, i)
    store4(out, i, x0, x1, x2, x3)


@kernel
def through_shared(out, step):
    cells = cuda.shared.array(32 * 33, float32)
    t = cuda.threadIdx.x
    cells[t * step] = 1
    out[t] = cells[t * step]


@kernel
def vectors_through_shared(out):
    cells = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    store4(cells, 4 * t, t, t, t, t)
    cuda.syncwarp()
    out[t], _, _, _ = load4(cells, 4 * t)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 5, 8, 9, 33])
def test_sectors_of_a_stride(step: int) -> None:
    a, out = np.zeros(33 * 32, np.float32), np.zeros(32, np.float32)
    line = seen(read_steps, 1, 32, a, out, step)["out[i] = a[i * step]"]
    sectors = min(32, 4 * step) if step else 1
    assert counts(line, "global load") == (1, sectors, 4 if step else 1)
    assert counts(line, "global store") == (1, 4, 4)
    first = [[lane, 4 * step * lane] for lane in range(32)]
    assert line["global load"]["first"] == {"bytes": 4, "lanes": first}


def test_sectors_off_by_four_bytes_and_of_vectors() -> None:
    a, out = np.zeros(160, np.float32), np.zeros(128, np.float32)
    line = seen(read_steps, 1, 32, a[1:], out, 1)["out[i] = a[i * step]"]
    assert counts(line, "global load") == (1, 5, 4)
    lines = seen(read_vectors, 1, 32, a[:128], out)
    assert counts(lines["x0, x1, x2, x3 = load4(a, i)"], "global load") == (1, 16, 16)
    stored = lines["store4(out, i, x0, x1, x2, x3)"]
    assert counts(stored, "global store") == (1, 16, 16)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 6, 8, 16, 31, 32, 33])
def test_wavefronts_of_a_stride(step: int) -> None:
    line = seen(through_shared, 1, 32, np.zeros(32, np.float32), step)
    turns = math.gcd(step, 32) if step else 1
    assert counts(line["cells[t * step] = 1"], "shared store") == (1, turns, 1)
    assert counts(line["out[t] = cells[t * step]"], "shared load") == (1, turns, 1)


def test_wavefronts_of_vectors() -> None:
    lines = seen(vectors_through_shared, 1, 32, np.zeros(32, np.float32))
    stored = lines["store4(cells, 4 * t, t, t, t, t)"]
    assert counts(stored, "shared store") == (1, 4, 4)
    loaded = lines["out[t], _, _, _ = load4(cells, 4 * t)"]
    assert counts(loaded, "shared load") == (1, 4, 4)


def test_pairs_of_lanes_that_load_the_same_vector_are_served_together() -> None:
    lanes = range(32)
    for pairs in ([n // 2 for n in lanes], [n // 4 * 2 + n % 2 for n in lanes]):
        firsts = {n: 16 * pairs[n] for n in lanes}
        assert wavefronts(firsts, 16) == (2, 2)
        assert wavefronts(firsts, 16, write=True) == (4, 4)
    assert wavefronts({n: 8 * (n // 2) for n in lanes}, 8) == (1, 1)
    assert wavefronts({n: 16 * (n // 8) for n in lanes}, 16) == (2, 2)
    assert wavefronts({n: 16 * (n % 8) for n in lanes}, 16) == (4, 4)


@kernel
def rows_of_a_matrix(a, out):
    row = a[cuda.threadIdx.x]
    out[cuda.threadIdx.x] = row[0] + row[1]


def test_a_row_of_a_matrix_is_a_view_and_no_load() -> None:
    a, out = np.zeros((32, 8), np.float32), np.zeros(32, np.float32)
    lines = seen(rows_of_a_matrix, 1, 32, a, out)
    assert "global load" not in lines["row = a[cuda.threadIdx.x]"]
    loads = counts(lines["out[cuda.threadIdx.x] = row[0] + row[1]"], "global load")
    assert loads == (2, 64, 8)


@kernel
def by_names_of_numbas(a, out):
    t = cuda.threadIdx.x
    total = a[t]
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
    total = cuda.shfl_sync(-1, total, 0)
    even = cuda.ballot_sync(0xFFFFFFFF, t % 2 == 0)
    some = cuda.any_sync(-1, t == 3) and not cuda.all_sync(-1, t == 3)
    same = cuda.eq_sync(-1, t < 32) and not cuda.eq_sync(-1, t < 3)
    above = cuda.shfl_up_sync(-1, t, 1) + cuda.shfl_xor_sync(-1, t, 1)
    out[t] = total + above + cuda.popc(even) if some and same else -1


@kernel
def for_half_a_warp(out):
    cuda.shfl_sync(0xFFFF, 1, 0)


@kernel
def by_no_name(out):
    out[0] = cuda.activemusk()


def test_what_lanes_tell_each_other_by_the_names_of_numbas() -> None:
    a, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    seen(by_names_of_numbas, 1, 32, a, out)
    above = np.array([max(t - 1, 0) + (t ^ 1) for t in range(32)])
    assert np.array_equal(out, 496 + above + 16)
    for wrong, message in (
        (for_half_a_warp, "shfl_sync: the mask is 0xffff; here all lanes"),
        (by_no_name, "cuda.activemusk: the simulator does not have it"),
    ):
        scene = xray(lambda run=wrong: run[1, 32](out))
        assert message in scene["error"]


# --------------------------------------------------------- statements and branches


@kernel
def part_in_a_loop(a, out):
    t = cuda.threadIdx.x
    for k in range(4):
        if (k + t) % 2 == 0:
            out[t] = a[32 * k + t]


@kernel
def several_lengths(a, out):
    t = cuda.threadIdx.x
    total = a[t]
    k = 0
    while k < t % 4:
        total += 1
        k += 1
    out[t] = total


@kernel
def warps_part(a, out):
    t = cuda.threadIdx.x
    if t < 32:
        out[t] = a[t]
    else:
        out[t] = (
            a[t]
            + 1
        )  # fmt: skip


def arrays(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(4 * size, np.float32), np.zeros(size, np.float32)


def test_iterations_are_told_apart_without_barriers() -> None:
    """Lanes that come to a line in other iterations make requests of their own."""
    lines = seen(part_in_a_loop, 1, 32, *arrays(32))
    taken = lines["out[t] = a[32 * k + t]"]
    assert (taken["warps"], taken["lanes"]) == (4, 64)
    assert counts(taken, "global load") == (4, 16, 8)
    branch = lines["if (k + t) % 2 == 0:"]
    assert (branch["branches"], branch["divergent"]) == (4, 4)
    head = lines["for k in range(4):"]
    assert (head["branches"], head["divergent"], head["lanes"]) == (5, 0, 160)


def test_what_the_lanes_of_a_warp_did_on_their_first_visits() -> None:
    a, out = arrays(32)
    scene = xray(lambda: part_in_a_loop[1, 32](a, out), lanes=True)
    lines = {x["text"].strip(): x for x in scene["functions"][0]["lines"]}
    even, odd = 0x55555555, 0xAAAAAAAA
    (seen,) = lines["out[t] = a[32 * k + t]"]["seen"]
    assert (seen["block"], seen["warp"], seen["times"]) == ((0, 0, 0), 0, 4)
    assert [visit["lanes"] for visit in seen["visits"]] == [even, odd] * 2
    load, store = seen["visits"][1]["requests"]
    assert (load["kind"], load["array"], load["sectors"]) == ("global load", "a", 4)
    assert load["lanes"] == [[n, 4 * (32 + n)] for n in range(1, 32, 2)]
    assert (store["kind"], store["array"]) == ("global store", "out")
    (seen,) = lines["if (k + t) % 2 == 0:"]["seen"]
    head, body = lines["for k in range(4):"], lines["out[t] = a[32 * k + t]"]
    first = {head["line"]: odd, body["line"]: even}
    assert dict(seen["visits"][0]["ways"]) == first
    scene = xray(lambda: part_in_a_loop[1, 32](a, out))
    assert not any("seen" in x for x in scene["functions"][0]["lines"])


def test_no_more_visits_are_kept_than_are_shown() -> None:
    total = np.zeros(1, np.float32)
    scene = xray(lambda: count_up[1, 1](total, 20), lanes=True)
    (seen,) = scene["functions"][0]["lines"][1]["seen"]
    assert seen["times"] == 20 and len(seen["visits"]) == VISITS


@kernel
def count_up(total, n):
    for k in range(n):
        total[0] += k


def test_lanes_that_leave_a_loop_early() -> None:
    lines = seen(several_lengths, 1, 32, *arrays(32))
    head, body = lines["while k < t % 4:"], lines["total += 1"]
    assert (head["warps"], head["lanes"], head["divergent"]) == (4, 80, 3)
    assert (body["warps"], body["lanes"]) == (3, 48)


def test_warps_that_part_do_not_diverge() -> None:
    lines = seen(warps_part, 1, 64, *arrays(64))
    branch = lines["if t < 32:"]
    assert (branch["branches"], branch["divergent"]) == (2, 0)
    # A statement of several lines is known by its first one.
    assert counts(lines["out[t] = ("], "global load") == (1, 4, 4)
    assert "warps" not in lines["a[t]"]


def test_statements_of_a_file() -> None:
    found = statements(__file__)
    heads = [found.loops[line] for line in sorted(found.branches)]
    assert all(line in found.first for line in found.branches) and () in heads


# -------------------------------------------------------------------------- sampling


@kernel
def note_block(out):
    out[cuda.blockIdx.x] = 1


@kernel
def add_one(a):
    a[cuda.grid(1)] += 1


@pytest.mark.parametrize("blocks, ran", [(1, [0]), (2, [0, 1]), (9, [0, 4, 8])])
def test_three_blocks_run(blocks: int, ran: list[int]) -> None:
    out = np.zeros(blocks, np.float32)
    scene = xray(lambda: note_block[blocks, 1](out))
    assert np.flatnonzero(out).tolist() == ran
    assert scene["launch"]["sampled"] == [[n, 0, 0] for n in ran]


def test_blocks_of_a_grid_with_three_sizes() -> None:
    out = np.zeros(64, np.float32)
    scene = xray(lambda: note_block[(3, 4, 5), 1](out))
    assert scene["launch"]["sampled"] == [[0, 0, 0], [0, 2, 2], [2, 3, 4]]


def test_grids_that_no_gpu_launches() -> None:
    out = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="note_block was launched without blocks"):
        xray(lambda: note_block[0, 32](out))
    for threads, count in ((2048, "2,048"), (0, "0"), ((1, 1, 65), "65")):
        with pytest.raises(RuntimeError, match=f"has {count} threads; expected 1 to"):
            xray(lambda size=threads: note_block[1, size](out))


def test_the_first_launch_of_the_kernel_is_the_last_that_runs() -> None:
    a, out = np.zeros(4, np.float32), np.zeros(4, np.float32)

    def launch() -> None:
        add_one[1, 4](a)
        note_block[1, 1](out)
        note_block[1, 1](out[1:])

    scene = xray(launch, "note_block")
    assert (a.tolist(), out.tolist()) == ([1] * 4, [1, 0, 0, 0])
    assert scene["launch"]["arguments"] == "float32[]"
    with pytest.raises(ValueError, match="nothing_such was not launched; launched: a"):
        xray(launch, "nothing_such")


# ----------------------------------------------------------------------------- races


@kernel
def warp_without_barrier(a, out):
    cells = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    x = shuffle(a[t], 0)
    out[t] = cells[31 - t] + x


@kernel
def warp_with_barrier(a, out):
    cells = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncwarp()
    out[t] = cells[31 - t]


@kernel
def barrier_for_some(a, out):
    t = cuda.threadIdx.x
    if t < 16:
        cuda.syncthreads()
    out[t] = a[t]


def test_races_are_counted_and_the_rest_is_seen_all_the_same() -> None:
    a, out = arrays(32)
    scene = xray(lambda: warp_without_barrier[1, 32](a, out))
    lines = {x["text"].strip(): x for x in scene["functions"][0]["lines"]}
    assert lines["cells[t] = a[t]"].get("races", 0) == 0
    raced = lines["out[t] = cells[31 - t] + x"]
    assert raced["races"] == 32 and "cells[31], which thread 31" in raced["race"]
    assert counts(raced, "global store") == (1, 4, 4) and not scene["error"]
    lines = seen(warp_with_barrier, 1, 32, a, out)
    assert not any("races" in line for line in lines.values())


def test_a_barrier_that_some_do_not_reach_ends_the_run() -> None:
    scene = xray(lambda: barrier_for_some[1, 32](*arrays(32)))
    assert "16 of 32 threads wait at a barrier" in scene["error"]


FILE = """
import numpy as np
from numba import cuda

@cuda.jit(device=True)
def half(x):
    return x / 2

@cuda.jit
def halve(a):
    a[cuda.grid(1)] = half(a[cuda.grid(1)])

def xray():
    halve[16, 32](cuda.to_device(np.ones(512, np.float32)))
"""


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("other", FILE, "has no kernel 'other'; it has halve"),
        ("halve", FILE.replace("xray", "launch"), "has no function xray(), which"),
        (
            "halve",
            FILE.replace("  halve[16, 32](", "  ("),
            "halve was not launched",
        ),
        ("halve", FILE.replace("np.ones", "np.one"), "was not launched: AttributeErr"),
        ("halve", FILE.replace("import cuda", "import cudda"), "cannot be imported"),
    ],
)
def test_files_in_which_something_is_missing(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises((ValueError, RuntimeError), match=re.escape(message)):
        xrays.run(vars(xrays.Target(name, str(file))))


def test_a_file_with_kernels_of_numbas(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    scene = xrays.run(vars(xrays.Target("halve", str(file))))
    (kernel, called) = scene["functions"]
    (line,) = kernel["lines"]
    assert counts(line, "global load") == counts(line, "global store") == (3, 12, 12)
    assert (called["name"], scene["launch"]["arguments"]) == ("half", "float32[]")


# Small tiles, which are a simulator's, let other kernels be chosen than these, or make
# the blocks many; with a GPU's they run in tests/course/test_xray.py and by
# docs/xray_ncu.py.
ONES = [
    name
    for name in LAUNCHES
    if name.startswith(("transpose", "sum", "matmul", "csr_row", "scan", "add"))
    or name in ("softmax_two_passes", "map_large", "zip_repeated", "adam_chunks")
    or name in [puzzle.kernel for puzzle in launches.PUZZLES]
]


@pytest.mark.parametrize("name", ONES)
def test_the_librarys_kernels_have_no_races(name: str) -> None:
    launch = LAUNCHES[name]
    scene = xray(launch.run, launch.kernel)
    lines = [line for function in scene["functions"] for line in function["lines"]]
    assert not scene["error"] and not any("races" in line for line in lines)
    asked = [line[kind] for line in lines for kind in KINDS if kind in line]
    assert asked and scene["scene"] == "xray" and scene["version"] == 1
    for part in asked:
        assert part["ideal"] <= part.get("sectors", part.get("wavefronts"))


def total(name: str, kind: str) -> tuple[int, ...]:
    """What all lines of a rung ask for, of one kind."""
    run: Callable[[], Any] = LAUNCHES[name].run
    scene = xray(run, LAUNCHES[name].kernel)
    lines = [line for function in scene["functions"] for line in function["lines"]]
    parts = [counts(line, kind) for line in lines if kind in line]
    return tuple(map(sum, zip(*parts)))


def test_what_the_transposes_ask_for() -> None:
    """32 sectors a store; 32 wavefronts a load, then 1."""
    assert total("transpose_uncoalesced", "global store") == (96, 32 * 96, 4 * 96)
    assert total("transpose_tiled", "global store") == (96, 4 * 96, 4 * 96)
    assert total("transpose_tiled", "shared load") == (96, 32 * 96, 96)
    assert total("transpose_padded", "shared load") == (96, 96, 96)
    assert total("transpose_vectorized", "shared load") == (96, 4 * 96, 4 * 96)


@pytest.mark.parametrize(
    "kernel, file, page, width",
    [
        ("straight", "docs/two_transposes.py", "docs/gpu_kernels.md", 100),
        ("through_a_tile", "docs/two_transposes.py", "docs/gpu_kernels.md", 100),
        ("every_second", "", "assignments/a4w_gpu_warmup/README.md", 80),
    ],
)
def test_pages_show_what_the_command_prints(
    kernel: str, file: str, page: str, width: int
) -> None:
    root = Path(launches.__file__).parents[2]
    scene = xrays.run(vars(xrays.Target(kernel, str(root / file) if file else "")))
    out = Console(file=StringIO(), width=width)
    show({**scene, "static": {"error": ""}}, out)
    printed = [line.rstrip() for line in out.file.getvalue().splitlines()]
    assert max(map(len, printed)) <= width
    assert all("ideal" in line for line in printed if line.startswith("line"))
    table = "\n".join(printed[: printed.index("not compiled:")])
    assert table in (root / page).read_text()
