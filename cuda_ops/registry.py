"""All kernels, for those who look at them: tests, and `minitorch inspect`.

With this file one can get every kernel that was made with example signatures, by name
(`all_kernels`).
"""

from __future__ import annotations

from importlib import import_module

from cuda_ops.runtime.compiler import modules
from cuda_ops.runtime.launch import REGISTRY, SIMULATED, TEMPLATES, Kernel


def all_kernels(*names: str) -> dict[str, Kernel]:
    """Every kernel with `examples`, from all files of this package.

    `names`: of modules, if those of a few and what they import are enough.

    Raises:
        RuntimeError: in the simulator, where nothing can be compiled.
    """
    if SIMULATED:
        raise RuntimeError(
            "kernels cannot be compiled in the simulator; unset NUMBA_ENABLE_CUDASIM"
        )
    for name in names or modules():
        if name != "cuda_ops.backend":  # which needs a GPU
            import_module(name)
    for kernels in TEMPLATES:
        kernels.make_examples()
    return dict(REGISTRY)
