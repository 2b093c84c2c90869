"""Machine code for what is called, and for nothing else.

With this file kernels are compiled in half of the time. Numba makes a module of LLVM's
for each function, and inlines those that it calls by linking their modules into its
own. By itself it makes machine code of every module, with what lets Python call it:

    _score            a module       called by kernels: no machine code      `Inner`
    loop of a prange  three modules  each called by the next one: none       `Late`
    _attention        a module       called by Python

Their code is in the kernel's. That is the same as before, but for some steps of
scalars: LLVM changes a module, of which others have copies, as it makes machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import CPUDispatcher, cpu_target

# The loop itself, and what hands it to the threads.
LOOP = "__numba_parfor_gufunc"
PASSED_ON = (LOOP, "<numba.np.ufunc.wrappers._GufuncWrapper", "parallelgufuncwrapper")
RUNTIME = "nrt"  # asked for an address while another module is made


class Late(JITCodeLibrary):
    """A module of which machine code is made when somebody asks for an address."""

    _made = False
    _environment: tuple[Any, ...] = ()

    def _optimize_final_module(self) -> None:
        """What is passed on, whoever links it optimizes, with all that is around it."""
        if self._made or not self.name.startswith(PASSED_ON):
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        """What is read from the disk is machine code already; the rest can wait."""
        self._finalized = True
        read = self._object_caching_enabled and getattr(self, "_compiled_object", None)
        if read or self.name == RUNTIME:
            self._make()

    def _make(self) -> None:
        if self._made:
            return
        self._made = True
        if self.name.startswith(PASSED_ON):  # of a user's own ufunc
            self._optimize_final_module()
        super()._finalize_final_module()
        if self._environment:
            self._codegen.set_env(*self._environment)

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function; 0 if there is none by that name."""
        self._ensure_finalized()
        if not self._made and (self.name.startswith(LOOP) or not self._defines(name)):
            return 0
        self._make()
        address: int = super().get_pointer_to_function(name)
        return address

    def _defines(self, name: str) -> bool:
        try:
            return not self._final_module.get_function(name).is_declaration
        except NameError:
            return False

    @property
    def codegen(self) -> Any:
        """Whom Numba asks to `set_env`."""
        return self

    def set_env(self, *environment: Any) -> None:
        """Tell machine code where its Python objects are, as soon as there is some."""
        self._environment = environment
        if self._made:
            self._codegen.set_env(*environment)


# What `Late` takes the place of, and asks for. Where a Numba has it not, that Numba
# compiles as it does by itself: what is lost is time.
KNOWN = (
    "_optimize_final_module", "_finalize_final_module", "_ensure_finalized",
    "_finalized", "_final_module", "_object_caching_enabled", "_codegen",
    "get_pointer_to_function",
)  # fmt: skip
_codegen = cpu_target.target_context.codegen()
_library = _codegen.create_library("fast_ops.late")
if type(_library) is JITCodeLibrary and all(hasattr(_library, name) for name in KNOWN):
    _codegen._library_class = Late


class Inner(CPUDispatcher):
    """A compiled function that kernels call, without what lets Python call it."""

    def __init__(self, fn: Callable, **options: Any) -> None:
        self.options = {"error_model": "numpy", "no_cfunc_wrapper": True, **options}
        inside = {"nopython": True, "boundscheck": None, "no_cpython_wrapper": True}
        super().__init__(fn, targetoptions=inside | self.options)

    def __call__(self, *args: Any) -> Any:
        """Python calls one that is compiled for it."""
        return self.alone(*args)

    @cached_property
    def alone(self) -> Any:
        """The same function, for Python."""
        return njit(**self.options)(self.py_func)
