"""The driver on paper, with kernels that run: their PTX, in NumPy.

With this file a program uses the real runtime, its launches and compiler, without a
GPU, and gets the numbers (`paper_operations.py` has examples):

    import paper_runs

    paper = paper_runs.install()
    import minitorch
    minitorch.ones(3, device="cuda") + 1

A launch hands over the addresses of parameters as they are packed for a GPU. PTX is
made as a GPU's would be, and kept on disk where machine code is.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import paper_driver
import ptx
from paper_driver import NO_CONTEXT, OK, PaperDriver


class RunningDriver(PaperDriver):
    """A GPU of a compute capability.

    Attributes:
        traced: each instruction of kernels with this in their names is printed.
        compiled: the kernels, with the types of their arguments.
        compiling, running: seconds of the processor for them.
    """

    def __init__(self, capability: tuple[int, int] = (9, 0), traced: str = "") -> None:
        super().__init__(1)
        self.capability, self.traced = capability, traced
        self.compiled: list[str] = []
        self.compiling = self.running = 0.0
        self.steps, self._clustered = 0, False

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        major, minor = self.capability
        name = attribute.name
        return OK, major if "MAJOR" in name else minor if "MINOR" in name else 132

    def cuLibraryLoadData(self, code: bytes, *args: Any) -> Any:
        return OK, code

    def cuLibraryGetKernel(self, library: bytes, name: bytes) -> Any:
        return OK, ptx.Program(library.decode(), name.decode())

    def cuKernelGetFunction(self, kernel: ptx.Program) -> Any:
        if self._current() is None:
            return NO_CONTEXT, None
        made: Any = self._new("function")
        made.program = kernel
        return OK, made

    def cuLaunchKernel(self, function: Any, *args: Any) -> Any:
        answer = super().cuLaunchKernel(function, *args)
        if answer == (OK,):
            self._run(function.program, args[:7], args[8])
        return answer

    def cuLaunchKernelEx(self, config: Any, function: Any, *args: Any) -> Any:
        sizes = ("gridDim", "blockDim")
        grid = [getattr(config, size + c) for size in sizes for c in "XYZ"]
        more = (config.sharedMemBytes, config.hStream)
        self._clustered = len(config.attrs) > 1
        answer = self.cuLaunchKernel(function, *grid, *more, *args)
        self._clustered = False
        return answer

    def _run(self, program: ptx.Program, grid: Any, frame: int) -> None:
        """Run a grid on the memory of this GPU and of the host."""
        count = len(program.parameters)
        pointers = (ctypes.c_void_p * count).from_address(frame)
        context, before = self._current(), program.steps
        spans = [
            (start, start + size)
            for start, (_, size, owner) in self._memory.copy().items()
            if owner in (None, context)
        ]
        traced = self.traced and self.traced in program.name
        ptx.TRACE = print if traced else None
        start = time.process_time()
        program.launch(grid[:3], grid[3:6], grid[6], pointers, spans, self._clustered)
        self.running += time.process_time() - start
        self.steps += program.steps - before


def install(capability: tuple[int, int] = (9, 0), traced: str = "") -> RunningDriver:
    """Let this process use a new `RunningDriver`."""
    from cuda_ops.runtime import compiler, launch

    paper = RunningDriver(capability, traced)
    paper_driver.install(paper=paper)

    def cubin(self: Any, text: str, arch: Any) -> Any:
        def make() -> Any:
            code = self.ptx(text, arch, lineinfo=False).encode()
            return compiler.Cubin(code, self.name, 16, 0, 0, 0)

        start = time.process_time()
        paper.compiled.append(f"{self.name} {text}")
        made = compiler.cached_cubin(
            make, "paper", self.fn.__module__, self.name,
            launch.closure_text(self.fn), text, arch, self.fastmath,
            self.launch_bounds, self.resident,
        ) if self.on_disk else make()  # fmt: skip
        paper.compiling += time.process_time() - start
        return made

    launch.Kernel.cubin = cubin  # type: ignore[method-assign]
    return paper
