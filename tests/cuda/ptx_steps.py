"""The instructions of PTX, each as a function of the threads that run it.

With this file `ptx.py` makes of an instruction's text what runs it: `MADE` has what is
more than numbers of numbers: memory, branches, and what threads do together. A step
takes the `Grid` and changes it; it returns None, the number of the step that follows,
or `PARTED`, when threads go on at different places or wait.

Source: "PTX ISA", version 9.0, chapter on instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from ptx_numbers import (
    COMPUTED,
    COUNTS,
    HOST,
    JOINED,
    SPACES,
    TYPES,
    UPDATED,
    WORD,
    U,
    Unsupported,
    compared,
    converted,
    floats,
    places,
)

if TYPE_CHECKING:
    from ptx import Grid

END = 2**40  # the program counter of a thread that is over
PARTED = object()
NOTHING = (
    "griddepcontrol", "membar", "fence", "nanosleep", "prefetch", "prefetchu", "pragma",
)  # fmt: skip


class Op:
    """An instruction: `@guard name.words args`, and where it stands."""

    def __init__(self, text: str, at: int, names: Callable[[str], Any]) -> None:
        found = re.fullmatch(r"(?:@(!?)(\S+)\s+)?(\w+)([\w.:]*)\s*(.*)", text, re.S)
        assert found, text
        self.text, self.at, self.names = " ".join(text.split()), at, names
        self.negated, self.guard = bool(found[1]), found[2]
        self.name, self.words = found[3], found[4].split(".")[1:]
        self.args = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", found[5])
        self.kind = TYPES.get(self.words[-1] if self.words else "", WORD)
        self.target: int | None = None
        self.labels: dict[str, int] = {}
        self.rounding = next((w for w in self.words if w in ("rz", "rm", "rp")), "rn")
        self.many = 2 if "v2" in self.words else 4 if "v4" in self.words else 1

    # An operand's numbers, and what takes a result.

    def read(self, arg: str, kind: np.dtype) -> Callable[[Grid], Any]:
        """`get(grid)`: the operand's numbers, as this type."""
        negated, arg = arg[0] == "!", arg.lstrip("!")
        found = self.names(arg)
        if found is None:
            number = _constant(arg, kind)
            return lambda grid: number
        if isinstance(found, str):  # a special register, or where a variable is
            return lambda grid: _low(grid.special(found), kind)
        i, own = found
        if negated:
            return lambda grid: ~grid.registers[i]
        if own == kind:
            return lambda grid: grid.registers[i]
        if own.itemsize == kind.itemsize:
            return lambda grid: grid.registers[i].view(kind)
        return lambda grid: _low(grid.registers[i], kind)

    def write(self, arg: str) -> Callable[[Grid, Any], None]:
        """`put(grid, numbers)`, where the threads run that are running now."""
        if arg == "_":
            return lambda grid, value: None
        i, own = self.names(arg)
        self.target = i

        def put(grid: Grid, value: Any) -> None:
            if value.dtype != own:
                value = _low(value, own)
            if grid.mask is not None:
                value = np.where(grid.mask, value, grid.registers[i])
            elif value.ndim == 0:
                value = np.full(grid.count, value)
            grid.registers[i] = value

        return put

    def address(self, arg: str, space: str) -> Callable[[Grid], np.ndarray]:
        """`get(grid)`: addresses in the host's memory, one a thread."""
        base, _, offset = re.sub(r"[\s\[\]]", "", arg).partition("+")
        more = U[8](int(offset or 0) % 2**64)
        if any(word.endswith("::cluster") for word in self.words):
            there = self.read(base, TYPES["s32"])  # from the thread's own block on
            return lambda grid: (
                grid.bases(space) + there(grid).astype(np.int64).view(U[8]) + more
            )
        get = self.read(base, TYPES["u64"])
        return lambda grid: grid.bases(space) + (get(grid) + more)

    def space(self) -> str:
        parts = [word.partition("::")[0] for word in self.words]
        return next((part for part in parts if part in SPACES), "")


def _low(value: Any, kind: np.dtype) -> Any:
    """The same bits as another type; of a wider number the lower ones."""
    if value.dtype.itemsize == kind.itemsize:
        return value.view(kind)
    if value.dtype.kind == "b":
        return value.astype(kind)
    if floats(value):
        value = value.view(U[value.dtype.itemsize])
    sign = "i" if value.dtype.kind == "i" else "u"
    return value.astype(f"{sign}{kind.itemsize}").view(kind)


def _constant(arg: str, kind: np.dtype) -> Any:
    """A number that is written in an instruction."""
    if arg[:2] in ("0f", "0F", "0d", "0D"):
        bits = U[len(arg) // 2 - 1](int(arg[2:], 16))
        return _low(bits.view(f"f{bits.itemsize}"), kind)
    number = int(arg.rstrip("U"), 0)
    if kind.kind in "bf":
        return kind.type(number)
    return U[kind.itemsize](number % 2 ** (8 * kind.itemsize)).view(kind)


# --------------------------------------------------------------------- instructions


def refused(op: Op) -> Callable:
    def step(grid: Grid) -> None:
        raise Unsupported(f"{grid.program.name}: {op.text}")

    return step


def guarded(op: Op, step: Callable) -> Callable:
    """For the threads whose predicate holds."""
    get = op.read(("!" if op.negated else "") + op.guard, TYPES["pred"])

    def some(grid: Grid) -> None:
        if op.name in TOGETHER:
            raise Unsupported(op.text)
        mask = grid.mask
        grid.mask = get(grid) & grid.running()
        if grid.mask.any():
            step(grid)
        grid.mask = mask

    return some


def computing(op: Op) -> Callable:
    """d = fn(a, b, ..)."""
    fn, kind, name = COMPUTED[op.name], op.kind, op.name
    if {"cc", "sat"} & set(op.words):
        raise Unsupported(op.text)
    if op.words and op.words[-1] in ("f16x2", "bf16x2"):
        return in_pairs(op)
    kinds = [kind] * (len(op.args) - 1)
    for i in range(COUNTS.get(name, 9), len(kinds)):
        kinds[i] = WORD
    if name == "selp":
        kinds[2] = TYPES["pred"]
    if name == "mad" and "wide" in op.words:
        kinds[2] = np.dtype(f"{kind.kind}{2 * kind.itemsize}")
    gets = [op.read(arg, k) for arg, k in zip(op.args[1:], kinds)]
    put, least = op.write(op.args[0]), np.float32(2.0**-126)

    def step(grid: Grid) -> None:
        put(grid, fn(op, *[get(grid) for get in gets]))

    def flushed(grid: Grid) -> None:
        xs = [get(grid) for get in gets]
        out = fn(op, *[np.where(np.abs(x) < least, x * 0, x) for x in xs])
        put(grid, np.where(np.abs(out) < least, out * 0, out))

    return flushed if "ftz" in op.words and kind == np.float32 else step


def in_pairs(op: Op) -> Callable:
    """As `computing`, of words of two halves."""
    fn, half = COMPUTED[op.name], TYPES[op.words[-1][:-2]]
    gets = [op.read(arg, WORD) for arg in op.args[1:]]
    put = op.write(op.args[0])

    def step(grid: Grid) -> None:
        words = [np.broadcast_to(get(grid), grid.count).copy() for get in gets]
        put(grid, fn(op, *[word.view(half) for word in words]).view(WORD))

    return step


def moving(op: Op) -> Callable:
    """mov: also between a number and its halves."""
    to, a = op.args
    if "{" not in op.text:
        return computing(op)
    parts = re.findall(r"[^{},\s]+", to if "{" in to else a)
    part = np.dtype(U[op.kind.itemsize // len(parts)])
    if "{" in to:
        get, puts = op.read(a, op.kind), [op.write(name) for name in parts]

        def apart(grid: Grid) -> None:
            words = np.broadcast_to(get(grid), grid.count).copy().view(part)
            for i, put in enumerate(puts):
                put(grid, words[i :: len(puts)].copy())

        return apart
    gets, store = [op.read(name, part) for name in parts], op.write(to)

    def joined(grid: Grid) -> None:
        rows = [np.broadcast_to(get(grid), grid.count) for get in gets]
        store(grid, np.stack(rows, 1).view(op.kind)[:, 0])

    return joined


def comparing(op: Op) -> Callable:
    names = op.args[0].split("|")
    a, b = (op.read(arg, op.kind) for arg in op.args[1:3])
    join = next((JOINED[w] for w in op.words if w in JOINED), None)
    other = op.read(op.args[3], TYPES["pred"]) if join else None
    puts = [op.write(name) for name in names]

    def step(grid: Grid) -> None:
        holds = compared(op, a(grid), b(grid))
        for put, value in zip(puts, (holds, ~holds)):
            put(grid, join(value, other(grid)) if join and other else value)

    return step


def converting(op: Op) -> Callable:
    put, source = op.write(op.args[0]), TYPES[op.words[-1]]
    gets = [op.read(arg, source) for arg in op.args[1:]]
    if op.words[-2] in ("f16x2", "bf16x2"):
        half = TYPES[op.words[-2][:-2]]

        def pair(grid: Grid) -> None:
            high, low = [_low(get(grid).astype(half), WORD) for get in gets]
            put(grid, high << WORD.type(16) | low)

        return pair
    return lambda grid: put(grid, converted(op, gets[0](grid)))


def carrying(op: Op) -> Callable:
    """mad and add of 32 bits with a carry."""
    gets = [op.read(arg, WORD) for arg in op.args[1:]]
    put, takes = op.write(op.args[0]), op.name in ("madc", "addc")

    def step(grid: Grid) -> None:
        *ab, c = [get(grid).astype(U[8]) for get in gets]
        carry = grid._special.setdefault("carry", np.zeros(grid.count, bool))
        p = ab[0] * ab[1] if len(ab) == 2 else ab[0]
        p = p >> U[8](32) if "hi" in op.words else p & U[8](2**32 - 1)
        out = p + c + (carry if takes else U[8](0))
        if "cc" in op.words:
            now = out >> U[8](32) != 0
            grid._special["carry"] = np.where(grid.running(), now, carry)
        put(grid, out.astype(WORD))

    return step


def with_or_without_carry(op: Op) -> Callable:
    return carrying(op) if "cc" in op.words else computing(op)


def pointing(op: Op) -> Callable:
    """cvta: between addresses and those of a space."""
    space, put = op.space(), op.write(op.args[0])
    get = op.read(op.args[1], TYPES["u64"])
    if "to" in op.words:
        return lambda grid: put(grid, get(grid) - grid.bases(space))
    return lambda grid: put(grid, get(grid) + grid.bases(space))


def loading(op: Op) -> Callable:
    where, size = op.address(op.args[1], op.space()), op.kind.itemsize
    puts = [op.write(name) for name in re.findall(r"[^{},\s]+", op.args[0])]
    parameter = op.space() == "param"

    def step(grid: Grid) -> None:
        addresses, mask = where(grid), grid.mask
        if addresses.ndim and mask is not None:
            addresses = addresses[mask]
        if not parameter:
            addresses = np.atleast_1d(addresses)
            grid.touch(op, addresses, size * len(puts))
        at = places(addresses, size)
        for i, put in enumerate(puts):
            value = HOST[size][at + i].view(op.kind)
            if mask is not None and value.size > 1:
                value, some = np.zeros(grid.count, op.kind), value
                value[mask] = some
            put(grid, value if value.size > 1 else value.reshape(()))

    return step


def storing(op: Op) -> Callable:
    where, size = op.address(op.args[0], op.space()), op.kind.itemsize
    names = re.findall(r"[^{},\s]+", op.args[1])
    gets = [op.read(name, np.dtype(U[size])) for name in names]
    if op.space() == "param":  # of a function that is called, such as float64's pow
        raise Unsupported(op.text)

    def step(grid: Grid) -> None:
        addresses = np.broadcast_to(where(grid), grid.count)
        mask = grid.running()
        addresses = addresses[mask]
        grid.touch(op, addresses, size * len(gets))
        at = places(addresses, size)
        for i, get in enumerate(gets):
            HOST[size][at + i] = np.broadcast_to(get(grid), grid.count)[mask]

    return step


def copying(op: Op) -> Callable:
    """cp.async, at once: a wait that is missing does not show."""
    if ("bulk" in op.words and "prefetch" not in op.words) or "mbarrier" in op.words:
        raise Unsupported(op.text)
    if {"commit_group", "wait_group", "wait_all", "prefetch"} & set(op.words):
        return lambda grid: None
    to, source = op.address(op.args[0], "shared"), op.address(op.args[1], "global")
    size = int(op.args[2])
    get = op.read(op.args[3] if len(op.args) > 3 else op.args[2], WORD)

    def step(grid: Grid) -> None:
        mask = grid.running()
        there, here = to(grid)[mask], np.broadcast_to(source(grid), grid.count)[mask]
        count = np.broadcast_to(get(grid), grid.count)[mask]
        grid.touch(op, there, size)
        if count.any():
            grid.touch(op, here[count > 0], size)
        for i in range(0, size, 4):
            rest = np.clip(count.astype(np.int64) - i, 0, 4)
            value = np.zeros(len(there), WORD)
            some = rest > 0
            value[some] = HOST[4][places(here[some] + U[8](i), 4)]
            value = value & (2 ** (8 * rest) - 1).astype(WORD)
            HOST[4][places(there + U[8](i), 4)] = value

    return step


def updating(op: Op) -> Callable:
    """atom and red: threads of one address one after the other."""
    args, size = (op.args if op.name == "atom" else ["_", *op.args]), op.kind.itemsize
    put, where = op.write(args[0]), op.address(args[1], op.space())
    gets = [op.read(arg, op.kind) for arg in args[2:]]
    fn = next(UPDATED[w] for w in op.words if w in UPDATED)
    if op.many > 1:
        raise Unsupported(op.text)

    def step(grid: Grid) -> None:
        mask = grid.running()
        addresses = np.broadcast_to(where(grid), grid.count)[mask]
        grid.touch(op, addresses, size)
        values = [np.broadcast_to(get(grid), grid.count)[mask] for get in gets]
        at, memory = places(addresses, size), HOST[size]
        before, left = np.empty(len(at), op.kind), np.arange(len(at))
        while len(left):
            _, first = np.unique(at[left], return_index=True)
            now = left[first]
            before[now] = memory[at[now]].view(op.kind)
            after = fn(before[now], *[value[now] for value in values])
            memory[at[now]] = after.astype(op.kind).view(U[size])
            left = np.delete(left, first)
        out = np.zeros(grid.count, op.kind)
        out[mask] = before
        put(grid, out)

    return step


def branching(op: Op) -> Callable:
    """bra, ret and exit."""
    get = op.read(("!" if op.negated else "") + op.guard, TYPES["pred"]) if (
        op.guard) else None  # fmt: skip

    def step(grid: Grid) -> Any:
        to = END if op.name != "bra" else op.labels[op.args[0]]
        here = grid.running()
        taken = here if get is None else get(grid) & here
        there = np.count_nonzero(taken)
        if there == 0:
            return None
        if there == np.count_nonzero(here) and to < END:
            return to
        grid.leave(op.at + 1)
        grid.pcs[taken] = to
        return PARTED

    return step


def waiting(op: Op) -> Callable:
    """bar.sync: of all threads of a block, or of as many as it says; bar.red tells
    all whether any thread's predicate holds. Blocks of a cluster wait in `wait`."""
    if "cluster" in op.words:
        if "arrive" in op.words:
            return lambda grid: None
        return meeting(op, lambda grid: WORD.type(2**31), lambda grid: grid.cluster)
    if "arrive" in op.words:
        raise Unsupported(op.text)
    if "warp" in op.words:
        named = op.read(op.args[0], WORD)
        return lambda grid: None if grid.meet(op, named(grid)) else PARTED
    red = "red" in op.words
    if red and ("or" not in op.words or len(op.args) > 3):
        raise Unsupported(op.text)
    holds = op.read(op.args[2], TYPES["pred"]) if red else None
    count = op.read(op.args[1], WORD) if len(op.args) == 2 else None
    name = op.read(op.args[red], WORD)
    return meeting(op, name, lambda grid: grid.block, count, holds)


def meeting(
    op: Op, name: Callable, group: Callable, count: Any = None, holds: Any = None
) -> Callable:
    """A barrier of this name for threads of a group, all of them or `count`."""
    put = op.write(op.args[0]) if holds else None

    def step(grid: Grid) -> Any:
        if grid.mask is None and count is None and put is None:
            return None
        grid.leave(op.at)
        here, owner = grid.running(), group(grid)
        number = int(np.broadcast_to(name(grid), grid.count)[here][0]) + 1
        grid.barrier[here], grid.waiting[here] = number, True
        there = grid.barrier == number
        need = np.bincount(owner, grid.pcs < END)
        if count is not None:
            need[:] = np.broadcast_to(count(grid), grid.count)[here][0]
        go = there & (np.bincount(owner, there) >= need)[owner]
        if put is not None:
            grid.mask = go
            put(grid, np.bincount(owner, holds(grid) & there)[owner] > 0)
        grid.barrier[go], grid.waiting[go] = 0, False
        grid.pcs[go] += 1
        grid.idle += not go.any()
        return PARTED

    return step


def mapping(op: Op) -> Callable:
    """mapa: where another block of the cluster has what this one has at an address,
    seen from this block's shared memory."""
    put, a, rank = op.write(op.args[0]), *(op.read(x, WORD) for x in op.args[1:])

    def step(grid: Grid) -> None:
        columns, own = grid.blocks[0], grid.special("%ctaid.y").astype(np.int64)
        block = grid.block + (rank(grid).astype(np.int64) - own) * columns
        starts = grid.bases("shared")
        there = starts[block * grid.size] - starts
        put(grid, (a(grid).astype(U[8]) + there).astype(WORD))

    return step


def shuffling(op: Op) -> Callable:
    """shfl.sync: another lane's number; of a lane that is not there, all bits."""
    mode, names = op.words[1], op.args[0].split("|")
    put, holds = op.write(names[0]), op.write(names[1] if len(names) > 1 else "_")
    a, b, c, named = (op.read(arg, WORD) for arg in op.args[1:])

    def step(grid: Grid) -> Any:
        if not grid.meet(op, named(grid)):
            return PARTED
        lane, of, clamp = grid.lane, b(grid).astype(int), c(grid).astype(int)
        group = clamp >> 8 & 31
        most, least = (lane & group) | (clamp & 31 & ~group), lane & group
        j = {
            "up": lane - of, "down": lane + of, "bfly": lane ^ of,
            "idx": least | (of & ~group),
        }[mode]  # fmt: skip
        ok = j >= most if mode == "up" else j <= most
        source = grid.first + np.where(ok, j, lane)
        there = source < np.minimum(grid.count, (grid.block + 1) * grid.size)
        source = np.where(there, source, 0)
        there &= grid.running()[source]
        numbers = np.broadcast_to(a(grid), grid.count)[source]
        put(grid, np.where(there, numbers, WORD.type(2**32 - 1)))
        holds(grid, ok)
        return None

    return step


def voting(op: Op) -> Callable:
    put, value = op.write(op.args[0]), op.read(op.args[1], TYPES["pred"])
    named = op.read(op.args[2], WORD)

    def step(grid: Grid) -> Any:
        if not grid.meet(op, named(grid)):
            return PARTED
        here = grid.running()
        bits = grid.bits(value(grid) & here)[grid.warp]
        every = grid.bits(here)[grid.warp]
        results = {"ballot": bits, "any": bits != 0, "all": bits == every,
                   "uni": (bits == every) | (bits == 0)}  # fmt: skip
        put(grid, results[op.words[1]])
        return None

    return step


ALL = WORD.type(2**32 - 1)


def warps_of(op: Op, grid: Grid, numbers: Any) -> np.ndarray:
    """Numbers as [warps, 32]."""
    if grid.size % 32:
        raise grid.fault(op, "not all lanes of the last warp are there")
    return np.broadcast_to(numbers, grid.count).reshape(-1, 32)


def multiplying(op: Op) -> Callable:
    """mma.sync: d = a @ b + c for each warp. Lane 4 g + t has of a the rows g and g + 8
    and the columns t and t + 4, of b the rows t and t + 4 and column g; halves two in a
    word, 2 t for t; of c and d the columns 2 t and 2 t + 1 of the rows g and g + 8."""
    found = re.fullmatch(r"m(8|16)n8k(\d+)", op.words[2])
    if not found:
        raise Unsupported(op.text)
    rows, depth, kind = int(found[1]), int(found[2]), TYPES[op.words[-3]]
    word, total = np.dtype(U[max(4, kind.itemsize)]), TYPES[op.words[-1]]
    many = word.itemsize // kind.itemsize
    lists = [re.findall(r"[^{},\s]+", arg) for arg in op.args]
    puts = [op.write(name) for name in lists[0]]
    a, b = ([op.read(name, word) for name in names] for names in lists[1:3])
    c = [op.read(name, total) for name in lists[3]]
    g, t, e = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4, np.arange(many)

    def numbers(grid: Grid, get: Callable) -> np.ndarray:
        words = np.ascontiguousarray(warps_of(op, grid, get(grid)))
        if op.words[-3] == "tf32":
            words = words & WORD.type(0xFFFFE000)
        return words.view(kind).reshape(len(words), 32, many).astype(total)

    def step(grid: Grid) -> Any:
        if not grid.meet(op, ALL):
            return PARTED
        warps = grid.count // 32
        left = np.zeros((warps, rows, depth), total)
        right = np.zeros((warps, depth, 8), total)
        for i, get in enumerate(a):
            down, along = (i & 1, i >> 1) if rows == 16 else (0, i)
            left[:, g + 8 * down, many * (t + 4 * along) + e] = numbers(grid, get)
        for i, get in enumerate(b):
            right[:, many * (t + 4 * i) + e, g] = numbers(grid, get)
        out = left @ right
        for i, (get, put) in enumerate(zip(c, puts)):
            mine = out[:, g[:, 0] + 8 * (i >> 1), 2 * t[:, 0] + (i & 1)]
            put(grid, mine.reshape(-1) + get(grid))
        return None

    return step


def dealing(op: Op) -> Callable:
    """ldmatrix: four matrices of 8 rows of 16 bytes, whose addresses eight lanes have.
    Lane 4 g + t gets word t of row g; with `trans` column g of rows 2 t and 2 t + 1."""
    if "x4" not in op.words:
        raise Unsupported(op.text)
    puts = [op.write(name) for name in re.findall(r"[^{},\s]+", op.args[0])]
    where = op.address(op.args[1], "shared")
    g, t = np.arange(32) // 4, np.arange(32) % 4

    def step(grid: Grid) -> Any:
        if not grid.meet(op, ALL):
            return PARTED
        addresses = np.broadcast_to(where(grid), grid.count)
        grid.touch(op, addresses[grid.running()], 16)
        rows = np.where(grid.running(), addresses, addresses[grid.running()][0])
        rows = warps_of(op, grid, rows)
        for i, put in enumerate(puts):
            mine = rows[:, 8 * i : 8 * i + 8]
            if "trans" in op.words:
                column = U[8](2) * g.astype(U[8])
                low, high = (
                    HOST[2][places(mine[:, 2 * t + k] + column, 2)].astype(WORD)
                    for k in (0, 1)
                )
                words = high << WORD.type(16) | low
            else:
                words = HOST[4][places(mine[:, g] + U[8](4) * t.astype(U[8]), 4)]
            put(grid, words.reshape(-1))
        return None

    return step


MADE: dict[str, Callable] = {
    **dict.fromkeys(NOTHING, lambda op: lambda grid: None),
    "mov": moving, "setp": comparing, "cvt": converting, "cvta": pointing,
    "mad": with_or_without_carry, "add": with_or_without_carry,
    "madc": carrying, "addc": carrying, "ld": loading, "ldu": loading,
    "st": storing, "cp": copying, "atom": updating, "red": updating,
    "bra": branching, "ret": branching, "exit": branching, "bar": waiting,
    "barrier": waiting, "mapa": mapping, "shfl": shuffling, "vote": voting,
    "mma": multiplying, "ldmatrix": dealing,
}  # fmt: skip
TOGETHER = ("bar", "barrier", "shfl", "vote", "mma", "ldmatrix")
