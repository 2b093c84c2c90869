"""Kernels written in Mojo, started exactly as those that Numba compiles.

With this file a launcher can name an exported function of a `.mojo` file and start it
with Numba's syntax:

    relu_flat = MojoKernel("elementwise", "relu_flat", threads=256)
    relu_flat[blocks, 256](x.pointer, out.pointer, n, 1)

All that differs from a kernel of `cuda_ops` is where the PTX comes from: the Mojo
compiler in the place of Numba. Assembler, driver, stream, memory and CUDA graphs are
the same, and so is the cost of a launch; nothing of Mojo's own runtime is loaded.
"""

from __future__ import annotations

import hashlib
from typing import Any, NoReturn

from cuda_ops.runtime.compiler import Arch, Cubin, cached_cubin, to_cubin
from cuda_ops.runtime.launch import Kernel
from mojo_ops.gpu.check import in_simulator
from mojo_ops.gpu.compile import ptx

ALL: list[MojoKernel] = []  # for tests, which compile every one
OLDEST = (8, 0)  # chips that copy to shared memory past the registers (`cp.async`)


def _written_in_mojo() -> None:
    """Stands where a kernel of `cuda_ops` has its Python function."""


class MojoKernel(Kernel):
    """An exported function of a `.mojo` file of this folder.

    Its arguments are addresses of device memory and ints, 8 bytes each.

    Attributes:
        module: the file's name, without `.mojo`.
        entry: the function's name.
        threads: of a block.
    """

    def __init__(self, module: str, entry: str, threads: int) -> None:
        super().__init__(
            _written_in_mojo, f"mojo.{entry}", threads=threads, arch=OLDEST
        )
        self.module = module
        self.entry = entry
        ALL.append(self)

    def ptx(self, text: str = "", arch: Arch = (9, 0), lineinfo: bool = False) -> str:
        """The PTX of all kernels of the file; no GPU needed.

        There is one for a chip, and without line numbers: only `arch` matters.
        """
        return ptx(self.module, arch)

    def cubin(self, text: str = "", arch: Arch = (9, 0)) -> Cubin:
        """The kernel's machine code, from the disk if it has been made before."""
        if arch < self.arch:
            raise RuntimeError(
                f"kernel {self.name} needs a GPU of compute capability "
                f"{self.arch[0]}.{self.arch[1]}; this is {arch[0]}.{arch[1]}"
            )
        made = self.ptx(text, arch)
        digest = hashlib.sha256(made.encode()).hexdigest()

        def make() -> Cubin:
            return to_cubin(made, arch, entry=self.entry)

        return cached_cubin(make, self.name, digest, arch)

    def simulate(self, config: tuple[Any, ...], *args: Any) -> NoReturn:
        """There is no Python function that the simulator could run."""
        raise RuntimeError(in_simulator(self.name))

    def _launch_plain(self, config: tuple[Any, ...], *args: Any) -> NoReturn:
        raise RuntimeError(
            f"{self.name} is started by the driver, and the installed cuda-bindings "
            f"have no cuLaunchKernel or no nvjitlink: pip install -U cuda-bindings"
        )
