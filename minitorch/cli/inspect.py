"""`minitorch inspect KERNEL`: what the compiler made of a GPU kernel.

With this file one can see, on any machine, how many registers a kernel needs, whether
it spills, how full a multiprocessor gets, and which instructions are in it. The kernel
is compiled for a chip; the chip need not be here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minitorch.backend.registry import install
from minitorch.cli.errors import friendly

if TYPE_CHECKING:
    from cuda_ops.runtime.launch import Kernel

COUNTED = {  # what is counted in the PTX, by the name that is shown
    "vector loads": r"\bld\.(?:global|shared)[.\w]*\.v[24]",
    "vector stores": r"\bst\.(?:global|shared)[.\w]*\.v[24]",
    "other loads": r"\bld\.(?:global|shared)(?![.\w]*\.v[24])",
    "other stores": r"\bst\.(?:global|shared)(?![.\w]*\.v[24])",
    "asynchronous copies": r"\bcp\.async\.c[ag]",
    "tensor-core instructions": r"\b(?:mma\.sync|wgmma\.mma_async)\.",
    "barriers": r"\bbar(?:rier)?\.(?:cta\.)?sync",
    "shuffles": r"\bshfl\.",
    "atomics": r"\b(?:atom|red)\.",
    "float64 instructions": r"\b[a-z][.\w]*\.f64\b",
}


def inspect(
    kernel: Annotated[
        str | None, typer.Argument(help="Its name, or a part of it.")
    ] = None,
    arch: Annotated[
        str, typer.Option(help="The chip: sm_75, sm_80, sm_86, sm_89, sm_90, ...")
    ] = "sm_90",
    list_all: Annotated[
        bool, typer.Option("--list", help="Print the names of all kernels.")
    ] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Print the PTX.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Show what the compiler made of a GPU kernel: registers, spills, instructions."""
    with friendly(debug, "minitorch inspect --list"):
        kernels = _kernels()
        if list_all or kernel is None:
            for name in sorted(kernels):
                typer.echo(name)
            return
        found = _find(kernel, kernels)
        chip = chip_of(arch, "inspect")
        for one in found:
            for example in one.examples:
                _show(one, example, chip, ptx)


def _kernels() -> dict[str, Kernel]:
    """All kernels that have example signatures, by name."""
    try:
        from cuda_ops.registry import all_kernels
    except ImportError as error:
        raise _no_compiler("inspect", error) from error
    return all_kernels()


def _no_compiler(command: str, error: ImportError) -> RuntimeError:
    return RuntimeError(
        f"{command}: kernels cannot be compiled here: {error}. What to do: "
        f"{install('cuda13')}; no GPU is needed"
    )


def _find(name: str, kernels: dict[str, Kernel]) -> list[Kernel]:
    if name in kernels:
        return [kernels[name]]
    found = [kernels[known] for known in sorted(kernels) if name in known]
    if not found:
        raise ValueError(
            f"inspect: there is no kernel {name!r}; `minitorch inspect --list` prints "
            f"the names of all {len(kernels)}"
        )
    return found


def chip_of(arch: str, command: str) -> tuple[int, int]:
    """The compute capability that an option --arch names."""
    match = re.fullmatch(r"(?:sm_)?(\d+)\.?(\d)", arch)
    if match is None:
        raise ValueError(f"{command}: --arch is {arch!r}; expected, for example, sm_90")
    try:
        from cuda_ops.runtime.occupancy import limits
    except ImportError as error:
        raise _no_compiler(command, error) from error
    chip = int(match[1]), int(match[2])
    limits(chip)
    return chip


def facts(kernel: Kernel, example: str, chip: tuple[int, int]) -> dict[str, Any]:
    """What is known about a kernel for one signature and one chip, by name."""
    from numba.core.errors import NumbaError

    from cuda_ops.runtime.compiler import to_cubin
    from cuda_ops.runtime.occupancy import occupancy

    try:
        text = kernel.ptx(example, chip)
    except NumbaError as error:
        raise RuntimeError(
            f"inspect: {kernel.name} does not compile: {error}"
        ) from error
    code = kernel.code(example, chip) if kernel.only_arch else text
    made = to_cubin(code, chip, kernel.max_registers)
    fits = occupancy(chip, kernel.threads, made.registers, made.shared + kernel.shared)
    code = "\n".join(line.split("//")[0] for line in text.splitlines())
    code = code[code.index(")\n{") :] if ")\n{" in code else code
    return {
        "PTX bytes": len(text),
        "machine code bytes": len(made.code),
        "registers a thread": made.registers,
        "shared memory bytes": made.shared,
        "dynamic shared memory bytes": kernel.shared,
        "spilled bytes": made.spills,
        "local memory bytes": made.local,
        "threads a block": kernel.threads,
        "blocks an SM": fits.blocks,
        "occupancy": f"{fits.share:.0%}, limited by {fits.limit}",
        **{name: len(re.findall(what, code)) for name, what in COUNTED.items()},
    }


def _show(kernel: Kernel, example: str, chip: tuple[int, int], ptx: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not kernel.runs_on(chip):
        typer.echo(
            f"{kernel.name}: needs sm_{kernel.arch[0]}{kernel.arch[1]}"
            f"{'a' if kernel.only_arch else ''}, which sm_{chip[0]}{chip[1]} is not"
        )
        return
    if ptx:
        typer.echo(kernel.ptx(example, chip))
        return
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, show_header=False, title_justify="left",
        title=Text(f"{kernel.name} for sm_{chip[0]}{chip[1]}\n({example})"),
    )  # fmt: skip
    for name, value in facts(kernel, example, chip).items():
        shown = f"{value:,}" if isinstance(value, int) else value
        table.add_row(Text(name), Text(shown, justify="right"))
    Console(highlight=False).print(table)
