"""Runs the PTX of kernels without a GPU: all threads of a grid at once, in NumPy.

With this file what Numba and NVVM made of a kernel computes on the host's memory:

    program = Program(kernel.ptx("float32[] float32 float32[]"))
    program.launch((1, 1, 1), (128, 1, 1), 0, pointers)      # as for cuLaunchKernel
    print(program.steps)                                # how many instructions it ran

`paper_driver.install(runs=True)` does this at each launch of a program. A register is
an array with a number for each thread. Threads have a program counter each; those with
the smallest run next, so that they meet again where branches do. What a GPU answers
with an error, or with wrong numbers, is a `Fault` that names the kernel and the
instruction: memory that nobody has, addresses that are no multiple of their size, and
threads that wait for each other forever. What is left out (products of warpgroups,
tensor maps) is `Unsupported`.

To debug a kernel, set `ptx.TRACE = print`: each instruction is told with the number of
threads that run it, and the first threads' numbers.

Source: "PTX ISA", version 9.0, chapters on instructions and on the memory model.
"""

from __future__ import annotations

import bisect
import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from ptx_numbers import COMPUTED, SPACES, TYPES, WORD, Fault, U, Unsupported
from ptx_steps import END, MADE, PARTED, Op, computing, guarded, refused

TRACE: Callable[[str], Any] | None = None  # is told of each instruction
STEPS = 3_000_000  # instructions that a launch may run
WIDEST = 8192  # threads that run at once, if a block has no more


class Program:
    """A kernel's PTX, read.

    Attributes:
        steps: how many instructions its launches ran, each for some threads.
    """

    def __init__(self, text: str, name: str = "") -> None:
        text = re.sub(r"//[^\n]*|^\s*\.(loc|file)\b[^\n]*", "", text, flags=re.M)
        entry = re.search(r"\.entry\s+([\w$]+)", text)
        assert entry, "no kernel"
        self.name, self.steps = name or entry[1], 0
        text = text[: entry.end()] + text[entry.end() :].replace(entry[1], "kernel")
        begin = text.index("{", entry.end())
        self.code: list[Callable] = []
        self.labels: dict[str, int] = {}
        self.kinds: list[np.dtype] = []  # of registers
        self._scopes: list[dict[str, Any]] = [{}]
        self.symbols: dict[str, tuple[str, int]] = {}
        self.sizes = dict.fromkeys(SPACES, 0)  # bytes of each space
        self.parameters: list[tuple[int, int]] = []  # offset and size
        self.constants: list[Any] = []
        self._declare(text, text[entry.end() : begin])
        self._read(text[begin + 1 :])

    def _declare(self, text: str, head: str) -> None:
        """Give each variable, and each of the kernel's parameters, its place."""
        pattern = (
            r"\.(%s)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
            r"([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*([^;]+))?"
        )
        found = re.findall(pattern % "param", head)
        found += re.findall(pattern % "shared|local|global|const", text)
        # Last the shared memory whose size a launch says.
        found.sort(key=lambda variable: f"{variable[3]}[]" in text)
        for space, align, kind, name, count, value in found:
            item = TYPES[kind].itemsize
            size = item * int(count or 1) * (f"{name}[]" not in text)
            at = -(-self.sizes[space] // int(align or item)) * int(align or item)
            self.sizes[space] = at + size
            if space == "param":
                self.parameters.append((at, size))
            if space in ("global", "const"):
                numbers = [int(n, 0) for n in re.findall(r"-?\w+", value)]
                made = np.zeros(max(size // item, len(numbers)), TYPES[kind])
                made[: len(numbers)] = numbers
                self.constants.append(made)
                at = made.ctypes.data
            self.symbols[name] = space, at

    def _read(self, body: str) -> None:
        """Make the instructions up to the brace that ends the kernel."""
        pattern = re.compile(
            r"\s*(?:(\{)|(\})|([\w$%]+):(?!:)|([^;{}]*(?:\{[^}]*\}[^;{}]*)*);)"
        )
        at = 0
        while self._scopes:
            found = pattern.match(body, at)
            assert found, body[at : at + 200]
            at = found.end()
            if found[1]:
                self._scopes.append({})
            elif found[2]:
                self._scopes.pop()
            elif found[3]:
                self.labels[found[3]] = len(self.code)
            elif found[4].startswith(".reg"):
                self._registers(*found[4].split(None, 2)[1:])
            elif found[4] and found[4][0] != ".":
                self.code.append(self._later(found[4]))

    def _registers(self, kind: str, names: str) -> None:
        own = TYPES[kind[1:]]
        own = own if own.kind in "fb" else np.dtype(U[own.itemsize])
        for name in names.split(","):
            prefix, many, _ = name.strip().partition("<")
            self._scopes[-1][prefix] = own if many else self._register(own)

    def _register(self, kind: np.dtype) -> tuple[int, np.dtype]:
        self.kinds.append(kind)
        return len(self.kinds) - 1, kind

    def _later(self, text: str) -> Callable:
        """A step that makes itself when it is first run: most never are."""
        at, scopes = len(self.code), tuple(reversed(self._scopes))

        def step(grid: Grid) -> Any:
            self.code[at] = self._made(Op(text, at, partial(self._named, scopes)))
            grid.room()
            return self.code[at](grid)

        return step

    def _named(self, scopes: Sequence[dict[str, Any]], name: str) -> Any:
        """A register's number and type; the text of what is another name; or None."""
        for scope in scopes:
            if name in scope:
                return scope[name]
            prefix = name.rstrip("0123456789")
            if prefix != name and prefix in scope:
                scope[name] = self._register(scope[prefix])
                return scope[name]
        return name if name[0] in "%_$" or name[0].isalpha() else None

    def _made(self, op: Op) -> Callable:
        op.labels = self.labels
        try:
            make = MADE.get(op.name, computing if op.name in COMPUTED else refused)
            step = make(op)
        except Unsupported:
            step = refused(op)
        if op.guard and op.name not in ("bra", "ret", "exit"):
            step = guarded(op, step)
        step.op = op
        return step

    def launch(
        self, blocks: Sequence[int], threads: Sequence[int], shared: int,
        pointers: Any, spans: Iterable[tuple[int, int]] = (), clustered: bool = False,
    ) -> None:  # fmt: skip
        """Run a grid.

        Args:
            clustered: whether the blocks of a column (y) are a cluster.
            shared: bytes of dynamic shared memory of a block.
            pointers: the addresses of the parameters.
            spans: the memory that there is: first address, and that behind the last.
        """
        values = ctypes.create_string_buffer(self.sizes["param"] + 8)
        start = ctypes.addressof(values)
        for (at, size), pointer in zip(self.parameters, pointers, strict=True):
            ctypes.memmove(start + at, pointer, size)
        size, total = int(np.prod(threads)), int(np.prod(blocks))
        step = total if clustered else max(1, WIDEST // size)
        with np.errstate(all="ignore"):
            for first in range(0, total, step):
                here = np.arange(first, min(first + step, total))
                grid = Grid(self, here, blocks, threads, shared, start, spans)
                grid.run()
                self.steps += grid.steps


class Grid:
    """Blocks that run.

    Attributes:
        mask: which threads run the instruction; None for all.
        pcs: of each thread, the next instruction; `waiting`: for others, there.
        barrier: the barrier, and 1, at which it waits.
    """

    def __init__(
        self, program: Program, here: np.ndarray, blocks: Sequence[int],
        threads: Sequence[int], shared: int, parameters: int, spans: Any,
    ) -> None:  # fmt: skip
        size = int(np.prod(threads))
        self.program, self.count, self.size = program, len(here) * size, size
        n = np.arange(self.count)
        self.blocks, self.block, t = blocks, n // size, n % size
        self.cluster = here[self.block] % blocks[0]
        self.lane, warps = t % 32, -(-size // 32)
        self.warp = self.block * warps + t // 32
        self.first = n - self.lane  # the thread that is the warp's lane 0
        self.registers: list[np.ndarray] = []
        self._zeros = {kind: np.zeros(self.count, kind) for kind in TYPES.values()}
        self.room()
        self.mask: np.ndarray | None = None
        self.pcs = np.zeros(self.count, np.int64)
        self.waiting = np.zeros(self.count, bool)
        self.barrier = np.zeros(self.count, np.int64)
        self.steps = self.idle = 0
        self._special: dict[str, Any] = {
            **_split("tid", t, threads), **_split("ctaid", here[self.block], blocks),
            **{f"%ntid.{c}": WORD.type(k) for c, k in zip("xyz", threads)},
            **{f"%nctaid.{c}": WORD.type(k) for c, k in zip("xyz", blocks)},
            "%laneid": self.lane.astype(WORD), "%warpid": (t // 32).astype(WORD),
            "%dynamic_smem_size": WORD.type(shared), "WARP_SZ": WORD.type(32),
        }  # fmt: skip
        # Every block's shared memory, and every thread's local memory, one by one.
        shared += program.sizes["shared"]
        self._bases = {"param": U[8](parameters), "": U[8](0), "global": U[8](0)}
        self._held, ends = [], list(spans)
        for space, owner, room in (
            ("shared", self.block, -(-shared // 16) * 16),
            ("local", n, -(-program.sizes["local"] // 16) * 16),
        ):
            held = np.full((int(owner[-1]) + 1) * room + 16, 0xFF, np.uint8)
            start = -(-held.ctypes.data // 16) * 16
            self._held.append(held)
            self._bases[space] = (start + owner * room).astype(U[8])
            ends.append((start, start + len(held) - 16))
        ends += [(c.ctypes.data, c.ctypes.data + c.nbytes) for c in program.constants]
        ends = sorted(end for end in ends if end[0] < end[1])
        self._starts = np.array([start for start, _ in ends], U[8])
        self._ends = np.array([end for _, end in ends], U[8])

    def room(self) -> None:
        """Have all registers that the program has by now."""
        kinds = self.program.kinds[len(self.registers) :]
        self.registers += [self._zeros[kind] for kind in kinds]

    def special(self, name: str) -> Any:
        if name in self.program.symbols:
            return U[8](self.program.symbols[name][1])
        if name not in self._special:
            raise Unsupported(name)
        return self._special[name]

    def bases(self, space: str) -> Any:
        return self._bases[space if space != "const" else ""]

    def touch(self, op: Op, addresses: np.ndarray, size: int) -> None:
        """Somebody has the memory, and the addresses are multiples of the size."""
        if (addresses % U[8](size)).any():
            raise self.fault(op, f"addresses are no multiples of {size}")
        at = bisect.bisect_right(self._starts, addresses.min()) - 1
        if at >= 0 and addresses.max() + U[8](size) <= self._ends[at]:
            return
        spans = np.searchsorted(self._starts, addresses, "right") - 1
        bad = (spans < 0) | (addresses + U[8](size) > self._ends[spans])
        if bad.any():
            raise self.fault(
                op, f"{bad.sum()} threads at {size} bytes that nobody has, the first "
                f"at {int(addresses[bad][0]):#x}",
            )  # fmt: skip

    def fault(self, op: Op, what: str) -> Fault:
        return Fault(f"{self.program.name}: {op.text} (number {op.at}): {what}")

    def running(self) -> np.ndarray:
        return np.ones(self.count, bool) if self.mask is None else self.mask

    def leave(self, pc: int) -> None:
        """The threads that run go on there, later."""
        self.pcs[self.running()] = pc

    def run(self) -> None:
        """Run all threads to their end."""
        done = -1
        while True:
            ready = (self.pcs < END) & ~self.waiting
            if not ready.any():
                if not self.waiting.any():
                    return
                if done == self.steps - self.idle:
                    op = self.program.code[self.pcs[self.waiting].min()].op
                    raise self.fault(op, "these threads wait for others forever")
                # Others have come to their end, and need not be waited for.
                done, self.waiting[:] = self.steps - self.idle, False
                continue
            pc = int(self.pcs[ready].min())
            group = self.pcs == pc
            self.waiting[group], self.barrier[group] = False, 0
            later = self.pcs[ready & ~group]
            self.mask = None if group.all() else group
            self._go(pc, int(later.min()) if len(later) else END)

    def _go(self, pc: int, stop: int) -> None:
        """Run a group until it parts, or comes to where others are."""
        code = self.program.code
        while True:
            self.steps += 1
            then = code[pc](self)
            if self.steps > STEPS:
                raise self.fault(code[pc].op, f"no end after {STEPS:,} instructions")
            if TRACE:
                TRACE(self._told(code[pc].op))
            if then is PARTED:
                return
            pc = pc + 1 if then is None else then
            if pc >= stop:
                self.leave(pc)
                return

    def _told(self, op: Op) -> str:
        numbers = "" if op.target is None else self.registers[op.target][:4]
        return f"{op.at:5} {self.running().sum():5} threads  {op.text}  {numbers}"

    def bits(self, of: np.ndarray) -> np.ndarray:
        """For each warp, which lanes are."""
        return np.bincount(self.warp, of * 2.0**self.lane).astype(WORD)

    def meet(self, op: Op, named: Any) -> bool:
        """All lanes that a step names are here, of some warps; the others wait."""
        if self.mask is None:
            return True
        self.leave(op.at)
        here, alive = self.pcs == op.at, self.pcs < END
        missing = self.bits(alive)[self.warp] & named & ~self.bits(here)[self.warp]
        go = here & (missing == 0)
        self.waiting[here] = ~go[here]
        if not go.any():
            self.idle += 1
            return False
        self.mask = go
        return True


def _split(name: str, i: np.ndarray, sizes: Sequence[int]) -> dict[str, np.ndarray]:
    x, y = sizes[0], sizes[1]
    found = zip("xyz", (i % x, i // x % y, i // (x * y)))
    return {f"%{name}.{c}": n.astype(WORD) for c, n in found}
