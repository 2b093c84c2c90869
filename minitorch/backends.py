"""Switches of PyTorch's that say how devices compute, where PyTorch programs look.

With this file `minitorch.backends.cuda.matmul.allow_tf32 = True` chooses how exactly
float32 matrices are multiplied, as `minitorch.set_float32_matmul_precision` does, and
programs that ask what there is get an answer (`backends.mps.is_available()`). Each
attribute says what it means here. Others do not exist: to set one is an AttributeError.
"""

from __future__ import annotations

import sys
from typing import Any

from minitorch.backend import available_devices
from minitorch.precision import set_float32_matmul_precision, state


class _Matmul:
    """`backends.cuda.matmul`: how a GPU multiplies matrices."""

    __slots__ = ()

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 factors may be rounded to TF32; the same switch as
        `set_float32_matmul_precision`: True is "high", False "highest"."""
        return state.allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        if _flag("backends.cuda.matmul.allow_tf32", value) != state.allow_tf32:
            set_float32_matmul_precision("high" if value else "highest")


class _Cuda:
    """`backends.cuda`: what is peculiar to GPUs."""

    __slots__ = ("matmul",)

    def __init__(self) -> None:
        self.matmul = _Matmul()

    def is_built(self) -> bool:
        """Whether there is code for GPUs, with or without a GPU to run it."""
        return "cuda" in available_devices()


def _kept(name: str) -> property:
    """A switch of `backends.cudnn` that is kept, and without effect."""

    def get(self: Any) -> bool:
        return getattr(self, f"_{name}")

    def set(self: Any, value: bool) -> None:
        setattr(self, f"_{name}", _flag(f"backends.cudnn.{name}", value))

    return property(get, set, doc="See the class.")


class _Cudnn:
    """`backends.cudnn`: convolutions on GPUs. Here they are kernels of our own.

    Attributes:
        allow_tf32: kept, and without effect: convolutions are computed in float32 with
            all its bits, which is more exact than what True allows. False at first.
        benchmark: kept, and without effect: kernels are chosen by rules, and none is
            timed.
        deterministic: kept, and without effect: every kernel gives the same numbers in
            every run, to the last bit, which is what True asks for.
    """

    __slots__ = ("_allow_tf32", "_benchmark", "_deterministic")

    def __init__(self) -> None:
        self._allow_tf32, self._benchmark, self._deterministic = False, False, True

    allow_tf32 = _kept("allow_tf32")
    benchmark = _kept("benchmark")
    deterministic = _kept("deterministic")

    def is_available(self) -> bool:
        """False: cuDNN is not used."""
        return False


class _Mps:
    """`backends.mps`: Apple's GPUs, for which there is no backend."""

    __slots__ = ()

    def is_available(self) -> bool:
        """False."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got a {type(value).__name__}; expected True or False")
    return value


cuda, cudnn, mps = _Cuda(), _Cudnn(), _Mps()
# So that `import minitorch.backends.cudnn as cudnn` finds it, as programs write it.
sys.modules[f"{__name__}.cudnn"] = cudnn  # type: ignore[assignment]
