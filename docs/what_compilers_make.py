"""What the compilers make of one loop on this machine: softmax of a row.

With this file one can see how wide the vectors are, and how many registers hold them,
in the loop that takes the exponentials: compiled by Numba and by Mojo for this
processor, and by Numba for a GPU (`python docs/what_compilers_make.py`). Nothing is
run or timed, so that no GPU is needed; what cannot be compiled here says why.
"""

from __future__ import annotations

import importlib
import platform
import re
from typing import Any

import numpy as np

# A file that exports nothing but the function that we want to read.
PROBE = """
from bridge import Buffer
from scalar_math import f32
from softmax import softmax_row

@export
def probe(x: Buffer[f32], z: Buffer[f32], n: Int) abi("C"):
    softmax_row[f32](x, x, z, n)
"""
BITS = {"x": 128, "y": 256, "z": 512}
GPU_KERNEL = "softmax_rows[float32,4,32x32]"  # rows of up to 1,024 numbers


def numba_assembly() -> str:
    """Numba's machine code for the rows of a float32 matrix, on one thread."""
    from fast_ops.launch import compile_kernel

    # A kernel from Numba's disk cache has forgotten its text, so compile once more.
    family = importlib.import_module("fast_ops.softmax")
    kernel = compile_kernel(family.KERNELS.softmax[0].py_func, on_disk=False)
    a = np.zeros(64, np.float32)
    kernel(a, np.empty_like(a), a.size)
    (text,) = kernel.inspect_asm().values()
    return text


def mojo_assembly() -> str:
    """Mojo's machine code for a row of float32, compiled with the flags of the backend;
    an ImportError says why not."""
    from mojo_ops import build

    build.check_platform()
    texts = {"probe": PROBE, **build.sources("softmax")}
    target = build.cache_folder() / f"softmax-row-{build.digest(texts)}.s"
    file = build.source("softmax")
    return build.compiled(target, file, texts, ["--emit", "asm"]).read_text()


def facts(assembly: str) -> dict[str, Any]:
    """What x86 assembly says about the loop that takes the exponentials.

    That is the piece between two labels with the most multiply-adds. Each vector of
    exponentials has its exponent bits shifted into place once (`vpslld $23`).
    """
    pieces = re.split(r"^\S+:.*$", assembly, flags=re.M)
    loop = max(pieces, key=lambda piece: len(re.findall(r"\bvfn?m\w+ps\b", piece)))
    shifted = re.findall(r"vpslld\s+\$23, %([xyz])mm", loop)
    bits = BITS[max(shifted)]
    return {
        "vector": f"{bits} bits",
        "numbers a round": len(shifted) * bits // 32,
        "multiply-adds": len(re.findall(r"\bvfn?m\w+ps\b", loop)),
        "registers": len(set(re.findall(r"%[xyz]mm(\d+)", loop))),
        "from the stack": len(re.findall(r"\(%rsp\), %[xyz]mm", loop)),
    }


def gpu_facts() -> dict[str, Any]:
    """What Numba and the assembler make of the GPU's kernel, for an H100 or H200."""
    from cuda_ops.registry import all_kernels
    from minitorch.cli.inspect import facts as inspect

    kernel = all_kernels()[GPU_KERNEL]
    known = inspect(kernel, kernel.examples[0], (9, 0))
    names = ("vector loads", "registers a thread", "spilled bytes", "shuffles")
    return {name: known[name] for name in names}


def main() -> None:
    """Print a line for each compiler."""
    makers = {
        "Numba, CPU": lambda: facts(numba_assembly()),
        "Mojo, CPU": lambda: facts(mojo_assembly()),
        "Numba, GPU": gpu_facts,
    }
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"This program reads x86 assembly; this is {platform.machine()}.")
        makers = {"Numba, GPU": gpu_facts}
    for name, make in makers.items():
        try:
            found = make()
        except ImportError as error:
            print(f"{name}: cannot be compiled here: {error}")
        else:
            print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
