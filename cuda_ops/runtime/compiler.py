"""From a Python function to machine code, on any machine.

With this file one can compile a kernel for a chip without having one: `to_ptx` makes
PTX, the portable assembly, with Numba and NVVM; `to_cubin` makes the chip's own code
from that with nvJitLink, and says how many registers, how much memory and how many
spills the kernel has (`Cubin`). Signatures are written as text:

    signature("float32[] float32[] int64 4*int64")    two arrays, a number, a 4-tuple

`cached_cubin` keeps the result on disk under a key that names the sources, the versions
and the chip, so that the next process loads it in a millisecond.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba import types

from cuda_ops.runtime.halves import HALVES
from cuda_ops.runtime.tensor_maps import TENSOR_MAP

Arch = tuple[int, int]  # a compute capability, (9, 0) for sm_90

_SCALARS = {
    "float32": types.float32,
    "float64": types.float64,
    "int64": types.int64,
    "int32": types.int32,
    "uint64": types.uint64,
    "uint32": types.uint32,
    "uint16": types.uint16,
    "int8": types.int8,
    "uint8": types.uint8,
    "bool": types.boolean,
    **HALVES,
    "tensor_map": TENSOR_MAP,
}


@cache
def signature(text: str) -> tuple[Any, ...]:
    """Numba's types for a text such as "float32[] int64 3*int64".

    `name[]` is a flat array without gaps, `name[,]` one with two dimensions, `name` a
    number and `n*name` a tuple.
    """
    return tuple(_parse(word, text) for word in text.split())


def _parse(word: str, text: str) -> Any:
    count, _, name = word.rpartition("*")
    name, array, commas = name.partition("[")
    scalar = _SCALARS.get(name)
    if scalar is None or (count and not count.isdigit()):
        raise ValueError(
            f"signature: {word!r} in {text!r} is no type; expected words such as "
            f"float32[], float32, 4*int64, of {', '.join(_SCALARS)}"
        )
    if array:
        return types.Array(scalar, 1 + commas.count(","), "C")
    return types.UniTuple(scalar, int(count)) if count else scalar


# ------------------------------------------------------------------------- compile

RESERVED = 1024  # bytes of shared memory the system has in each block, from sm_90 on


class Cubin(NamedTuple):
    """A kernel's machine code for one chip, and what it needs to run.

    Attributes:
        code: the file that the driver loads.
        entry: the kernel's name in it.
        registers, shared, local, spills: for each thread; shared for each block. The
            number of registers (with those of functions that are called; the driver
            gives 16 at least), the others in bytes.
    """

    code: bytes
    entry: str
    registers: int
    shared: int
    local: int
    spills: int


def to_ptx(
    fn: Callable,
    types_of_args: tuple[Any, ...],
    arch: Arch = (9, 0),
    fastmath: bool = False,
    launch_bounds: Any = None,
    lineinfo: bool = True,
    only_arch: bool = False,
) -> str:
    """PTX for a kernel with arguments of these types; needs no GPU.

    `lineinfo`: with the numbers of the source's lines, for profilers. It takes longer.
    `only_arch`: for no newer chip, with instructions that only this one has ("sm_90a").
    """
    from cuda.bindings import nvvm

    options = dict(fastmath=fastmath, launch_bounds=launch_bounds)
    chip = (*arch, "a") if only_arch else arch
    try:
        ptx = _compiled(fn, types_of_args, chip, "ptx", lineinfo=lineinfo, **options)
    except nvvm.nvvmError:  # NVVM refuses the line numbers of some long loops
        ptx = ""
    # And of some it writes the numbers behind labels that it has dropped.
    if ptx and set(re.findall(r"\$L__\w+(?!:|\w)", ptx)) <= _labels(ptx):
        return ptx
    return _compiled(fn, types_of_args, chip, "ptx", lineinfo=False, **options)


def _labels(ptx: str) -> set[str]:
    """The places that PTX has names for."""
    return set(re.findall(r"^(\$L__\w+):", ptx, re.M))


def to_lto(
    fn: Callable,
    types_of_args: tuple[Any, ...],
    arch: Arch,
    fastmath: bool = False,
    launch_bounds: Any = None,
) -> bytes:
    """Code for the linker to compile, as a whole: it knows that nothing is called.

    Without that it lets no asynchronous product of a warpgroup run on behind another.
    """
    options = dict(fastmath=fastmath, launch_bounds=launch_bounds)
    return _compiled(fn, types_of_args, (*arch, "a"), "ltoir", **options)


def _compiled(
    fn: Callable, types_of_args: Any, chip: Any, output: str, **options: Any
) -> Any:
    from numba import cuda

    from cuda_ops.runtime import lowering

    lowering.install()
    code, _ = cuda.compile(
        fn, types.void(*types_of_args), cc=chip, device=False, abi="numba",
        output=output, **options,
    )  # fmt: skip
    return code


def to_cubin(
    code: str | bytes, arch: Arch, max_registers: int | None = None,
    entry: str | None = None,
) -> Cubin:  # fmt: skip
    """Machine code from PTX, or from `to_lto`'s code; needs no GPU.

    `entry`: which kernel, if there are several.

    Raises:
        RuntimeError: the assembler rejects the code; the message is its log.
    """
    cubin, log = assemble(code, arch, max_registers)
    sections = _sections(cubin)
    if entry is None:  # Only what a host launches has a bank of arguments.
        bank = ".nv.constant0."
        entry = next(name for name in sections if name.startswith(bank))[len(bank) :]
    numbers = _numbers(sections[".nv.info"].data)
    symbol = sections[f".text.{entry}"].info & 0xFFFFFF
    shared = sections.get(f".nv.shared.{entry}", Section(b"", 0, 0)).size
    if shared and arch >= (9, 0):
        shared -= RESERVED
    local = numbers[FRAME, symbol]
    # Now and then a process gets no log. What is spilled is in the frame, too.
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", _about(entry, log))
    return Cubin(
        cubin,
        entry,
        max(16, *(n for (kind, _), n in numbers.items() if kind == REGISTERS)),
        shared,
        local,
        sum(map(int, spilled)) if spilled else local,
    )


class Section(NamedTuple):
    """A part of an ELF file. What is only set aside has a size and no data."""

    data: bytes
    size: int
    info: int


ONLY_SET_ASIDE = 8  # the kind of a section without data


def _sections(cubin: bytes) -> dict[str, Section]:
    """The parts of the file, by name (System V ABI, "Sections")."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    step, count, names = struct.unpack_from("<HHH", cubin, 58)
    heads = [
        struct.unpack_from("<IIQQQQII", cubin, table + i * step) for i in range(count)
    ]
    found = {}
    for name, kind, _, _, offset, size, _, info in heads:
        start = heads[names][4] + name
        text = cubin[start : cubin.index(b"\0", start)].decode()
        end = offset if kind == ONLY_SET_ASIDE else offset + size
        found[text] = Section(cubin[offset:end], size, info)
    return found


REGISTERS, FRAME = 0x2F, 0x11  # what a number in .nv.info is about


def _numbers(info: bytes) -> dict[tuple[int, int], int]:
    """(kind, symbol) -> the number that .nv.info gives it."""
    found, at = {}, 0
    while at < len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:  # `size` bytes follow; else `size` is the value.
            if size == 8:
                symbol, value = struct.unpack_from("<II", info, at)
                found[kind, symbol] = value
            at += size
    return found


def assemble(
    code: str | bytes, arch: Arch, max_registers: int | None = None
) -> tuple[bytes, str]:
    """The file that the driver loads, and the assembler's log."""
    whole = isinstance(code, bytes)
    chip = f"sm_{arch[0]}{arch[1]}{'a' if whole else ''}"
    options = [f"-arch={chip}", "-verbose", "-lto" if whole else "-lineinfo"]
    if max_registers is not None:
        options.append(f"-maxrregcount={max_registers}")
    return _link(code if isinstance(code, bytes) else code.encode(), whole, options)


def _about(entry: str, log: str) -> str:
    """The parts of the assembler's log that speak of one kernel."""
    start = r"Compiling entry function|Function properties for '"
    parts = re.split(f"(?={start})", log)
    return "".join(part for part in parts if f"'{entry}'" in part) or log


def _link(data: bytes, whole: bool, options: list[str]) -> tuple[bytes, str]:
    """Assemble with nvJitLink, as the driver would, but with a log."""
    from cuda.bindings import nvjitlink

    kind = nvjitlink.InputType.LTOIR if whole else nvjitlink.InputType.PTX
    handle = nvjitlink.create(len(options), options)
    try:
        try:
            nvjitlink.add_data(handle, kind, data, len(data), "kernel")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            size = nvjitlink.get_error_log_size(handle)
            text = bytearray(size)
            nvjitlink.get_error_log(handle, text)
            log = text.decode(errors="replace").strip("\0\n ")
            raise RuntimeError(f"assembling a kernel failed: {log}") from error
        code = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, code)
        info = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, info)
        return bytes(code), info.decode(errors="replace")
    finally:
        nvjitlink.destroy(handle)


# --------------------------------------------------------------------------- cache


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None where no folder can be written to.

    $NUMBA_CACHE_DIR/minitorch_cuda, else the user's cache folder.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(given or user).expanduser() / "minitorch_cuda"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def modules() -> list[str]:
    """The names of all modules of `cuda_ops`."""
    root = Path(__file__).parents[1]
    files = [
        file.relative_to(root.parent).with_suffix("") for file in root.rglob("*.py")
    ]
    return sorted(".".join(file.parts).removesuffix(".__init__") for file in files)


def sources() -> list[Path]:
    """The files of this package's modules, and of what it compiles of `minitorch`.

    As the import system finds them: in a workspace another file may take the place of
    one of ours.
    """
    names = [*modules(), "minitorch.operators", "minitorch.step_factors"]
    specs = [find_spec(name) for name in names]
    return [Path(spec.origin) for spec in specs if spec is not None and spec.origin]


@cache
def toolchain() -> str:
    """The versions of everything that makes machine code, and all sources."""
    import numba_cuda
    from cuda.bindings import nvjitlink

    digest = hashlib.sha256()
    for file in sources():
        digest.update(file.read_bytes())
    versions = (numba.__version__, numba_cuda.__version__, *nvjitlink.version())
    return f"{versions} {sys.version_info[:2]} {digest.hexdigest()}"


def closure_text(fn: Callable) -> str:
    """What a function made by a template has in its closure, as text."""
    cells = (cell.cell_contents for cell in fn.__closure__ or ())
    return " ".join(getattr(c, "__qualname__", None) or repr(c) for c in cells)


def cached_cubin(make: Callable[[], Cubin], *key: Any) -> Cubin:
    """What `make` makes, from the disk if it was made before under this key."""
    folder = cache_folder()
    if folder is None:
        return make()
    name = hashlib.sha256(repr((key, toolchain())).encode()).hexdigest()[:32]
    file = folder / f"{name}.cubin"
    found = _read(file)
    if found is None:
        with _alone(folder, name):
            found = _read(file)
            if found is None:
                found = make()
                _write(file, found)
    return found


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """No other process makes the same: ranks would all at once, and read it now."""
    with ExitStack() as held:
        try:
            import fcntl

            file = held.enter_context((folder / "lock").open("ab"))
            fcntl.lockf(file, fcntl.LOCK_EX, 1, int(name[:7], 16))
        except (ImportError, OSError):
            pass  # there are no locks: all make it
        yield


def _read(file: Path) -> Cubin | None:
    """A cubin from the cache; None if it is not there, or broken."""
    try:
        head, code = file.read_bytes().split(b"\n", 1)
        fields = json.loads(head)
        if fields.pop("digest") != hashlib.sha256(code).hexdigest():
            return None
        return Cubin(code, **fields)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, cubin: Cubin) -> None:
    """Write under another name first, so that nobody reads half a file."""
    fields = cubin._asdict()
    code = fields.pop("code")
    fields["digest"] = hashlib.sha256(code).hexdigest()
    part = file.with_name(f"{file.stem}.{os.getpid()}.part")
    try:
        part.write_bytes(json.dumps(fields).encode() + b"\n" + code)
        os.replace(part, file)
    except OSError:
        pass  # a full disk: compile again next time
