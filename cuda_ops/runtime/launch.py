"""Kernels: Python functions that run on the GPU, or in the simulator.

With this file one can turn a loop body into a kernel, and start it with Numba's syntax:

    @kernel(examples=["float32[] float32[] float32[]"])
    def add_flat(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a[i] + b[i]

    add_flat[blocks, threads](x, y, z)

and make one kernel for each scalar function from a template (`Kernels`). `examples` are
signatures for which tests and `minitorch inspect` compile the kernel
(`cuda_ops.runtime.compiler.signature` explains them).

A kernel is compiled at its first launch for each combination of argument types and kept
on disk (`cuda_ops.runtime.compiler`). From then on a launch takes four steps:

    add_flat[blocks, threads]   look up the `Launch`, which knows the grid
    (x, y, z)                   collect the values, and see that the types are those of
                                the launch before; else look up another `Form`
    a `Frame`                   pack the values into it
    cuLaunchKernel              call the driver, which reads the frame

There is a class of device arrays for each element type, so that a look at types needs
nothing but `type`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.runtime.compiler import (
    Arch,
    Cubin,
    cached_cubin,
    closure_text,
    signature,
    to_cubin,
    to_lto,
    to_ptx,
)
from cuda_ops.runtime.occupancy import MOST_THREADS
from cuda_ops.runtime.scalar import FORMS64, device_function
from cuda_ops.runtime.tensor_maps import WORDS
from cuda_ops.simulator import SIMULATED, TINY, cuda, reachable, simulate
from minitorch import operators
from minitorch.todo import todo, unwritten_task

__all__ = ["SIMULATED", "TINY", "device_function"]  # what is imported, for others

REGISTRY: dict[str, Any] = {}  # every kernel with examples, by name
TEMPLATES: list[Any] = []  # every `Kernels`, whose examples are made on request

GRIDS = 256  # grids of a kernel that are remembered
MOST_DEEP = 64  # threads of a block along z
SHARED_LIMIT = 48 * 1024  # bytes for a block; more must be asked for
OVERLAP = (9, 0)  # the oldest chip on which a kernel begins before another's end
# What older ones do without.
HINTS = r"griddepcontrol\.\w+;|cp\.async\.bulk\.prefetch[^;]*;"


def ceil_div(n: int, m: int) -> int:
    """n / m, rounded up: how many blocks of m cover n."""
    return -(-n // m)


def fewest(parts: int, most: int) -> int:
    """Blocks that share parts in as few turns as `most` do; who computes beside them
    finds the other multiprocessors free."""
    return ceil_div(parts, max(1, ceil_div(parts, most)))


# -------------------------------------------------------------------------- types

_WORDS = {  # the signature word of a number's type
    int: "int64",
    bool: "bool",
    float: "float64",
    np.float32: "float32",
    np.float64: "float64",
    np.int8: "int8",
    np.int32: "int32",
    np.int64: "int64",
    np.uint32: "uint32",
    np.uint64: "uint64",
    np.bool_: "bool",
}
_LETTERS = {  # how `struct` packs them
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "uint16": "H",
    "float16": "H",
    "bfloat16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
    "tensor_map": "Q" * WORDS,
}


def _word(arg: Any) -> str:
    """The signature word of one argument."""
    if type(arg) is tuple:
        return f"{len(arg)}*int64"
    word = getattr(type(arg), "word", None) or _WORDS.get(type(arg))
    if word is None:
        raise TypeError(
            f"got a {type(arg).__name__}; kernels take device arrays, numbers and "
            f"tuples of ints"
        )
    return word


def _letters(word: str) -> str:
    """How `struct` packs an argument; of an array, its address and its size."""
    count, _, name = word.rpartition("*")
    return "qq" if name.endswith("[]") else _LETTERS[name] * int(count or 1)


def _kind(arg: Any) -> Any:
    """What `Kernel` looks its forms up by: a tuple's length, or the type."""
    return len(arg) if type(arg) is tuple else type(arg)


# The numbers 0 to 8, for arguments that never change.
_CONSTANTS = (ctypes.c_int64 * 9)(*range(9))


def _constant(number: int) -> int:
    """Where a number from 0 to 8 lies."""
    return ctypes.addressof(_CONSTANTS) + 8 * number


def _parameters(word: str, places: Iterator[int]) -> list[int]:
    """Where the driver finds the parameters that an argument is to Numba's code.

    Args:
        word: the argument's part of the signature.
        places: where its values are packed.

    An array is seven parameters: two references that only a CPU has, the number of
    elements, the bytes of one, the address, the shape and the stride. Four of them are
    constants, and two are the same number. A tensor map is one, of 128 bytes.
    """
    if word == "tensor_map":
        return list(islice(places, WORDS))[:1]
    if not word.endswith("[]"):
        return list(islice(places, len(_letters(word))))
    zero, item = _constant(0), _constant(struct.calcsize(_LETTERS[word[:-2]]))
    address, size = islice(places, 2)
    return [zero, zero, size, item, address, size, item]


Frame = tuple[Any, int, Any]  # a buffer for values, where its list of places is, and it


def matcher(kinds: tuple[Any, ...], order: Sequence[int]) -> Callable:
    """Make `values(args)`: what to pack for arguments of these kinds; None for others.

    It is written out, because a loop over the kinds takes twice as long. For a number,
    an array and a tuple of two ints, in the order 1, 0, 2, its last lines are

        if type(x0) is k0 and type(x1) is k1 and type(x2) is tuple and len(x2) == 2:
            return (*x1.words, x0, *x2)
    """
    tests, found = [], {}
    for i, kind in enumerate(kinds):
        if type(kind) is int:  # the length of a tuple
            tests.append(f"type(x{i}) is tuple and len(x{i}) == {kind}")
            found[i] = f"*x{i}"
        else:
            tests.append(f"type(x{i}) is k{i}")
            found[i] = f"*x{i}.words" if hasattr(kind, "words") else f"x{i}"
    text = (
        f"def values(args):\n"
        f"    if len(args) != {len(kinds)}:\n"
        f"        return None\n"
        f"    [{', '.join(f'x{i}' for i in range(len(kinds)))}] = args\n"
        f"    if {' and '.join(tests) or True}:\n"
        f"        return ({''.join(found[i] + ', ' for i in order)})\n"
    )
    made: dict[str, Any] = {f"k{i}": kind for i, kind in enumerate(kinds)}
    exec(text, made)
    return made["values"]


class Form:
    """A kernel compiled for one combination of argument types, and loaded.

    Values are packed in another order than that of the arguments: those of arrays
    first, then numbers, then what is in tuples.

    Attributes:
        gpu, function: where it is loaded, and the driver's handle.
        values: of arguments, what to pack (see `matcher`).
        pack: writes all values into a frame's buffer.
        frames: those that no launch is using. The driver reads a frame without the
            global lock, so each launch needs one of its own until the call is over;
            `pop` and `append` are atomic.
    """

    __slots__ = (
        "_letters", "_order", "_words", "cubin", "frames", "function", "gpu", "pack",
        "values",
    )  # fmt: skip

    def __init__(
        self, name: str, words: list[str], kinds: tuple[Any, ...], cubin: Cubin,
        shared: int,
    ) -> None:  # fmt: skip
        self._words = words
        self.cubin = cubin
        # Arrays, numbers, tuples.
        rank = [2 * ("*" in word) + (not word.endswith("[]")) for word in words]
        self._order = sorted(range(len(words)), key=rank.__getitem__)
        self.values = matcher(kinds, self._order)
        self._letters = "".join([_letters(words[i]) for i in self._order])
        self.pack = struct.Struct("@" + self._letters).pack_into
        self.frames: list[Frame] = []
        self.gpu = device.current.gpu
        self.function = _load(name, cubin, shared)

    def new_frame(self) -> Frame:
        """A buffer for all values, and the driver's list of where each of them is."""
        letters = self._letters
        buffer = ctypes.create_string_buffer(struct.calcsize("@" + letters))
        start = ctypes.addressof(buffer)
        ends = [struct.calcsize("@" + letters[: i + 1]) for i in range(len(letters))]
        places = iter([start + e - struct.calcsize(c) for e, c in zip(ends, letters)])
        found = {i: _parameters(self._words[i], places) for i in self._order}
        parameters = [place for i in sorted(found) for place in found[i]]
        pointers = (ctypes.c_void_p * len(parameters))(*parameters)
        return buffer, ctypes.addressof(pointers), pointers


@cache
def can_pack() -> bool:
    """Whether the installed packages have what a launch by the driver needs."""
    api = device.driver()
    needed = ("cuLaunchKernel", "cuLibraryLoadData", "cuLibraryGetKernel")
    found = all(hasattr(api, name) for name in needed)
    return found and importlib.util.find_spec("cuda.bindings.nvjitlink") is not None


def _load(name: str, cubin: Cubin, shared: int) -> Any:
    """The driver's handle of a compiled kernel."""
    api, call = device.driver(), device.call
    what = f"loading kernel {name}"
    library = call(
        what, api.cuLibraryLoadData, cubin.code, None, None, 0, None, None, 0
    )
    entry = call(what, api.cuLibraryGetKernel, library, cubin.entry.encode())
    function = call(what, api.cuKernelGetFunction, entry)
    if shared > SHARED_LIMIT - cubin.shared:
        call(
            f"asking for {shared} bytes of shared memory for kernel {name}",
            api.cuFuncSetAttribute,
            function,
            api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            shared,
        )
    return function


# ------------------------------------------------------------------------- kernels


class Kernel:
    """A Python function that runs once for each thread of a grid.

    Attributes:
        fn: the Python function.
        name: the function's name; of a template's kernel `template[function]`.
        examples: signatures, as text, for which tests compile it.
        threads: the size of a block in those examples.
        max_registers: registers a thread may have; the assembler spills above it.
        launch_bounds: the largest block, or (largest block, least blocks per SM).
        resident: the same least number for chips from sm_90 on alone, whose assembler
            keeps to it without spills.
        fastmath: approximate division, roots and functions; denormal numbers are 0.
        shared: bytes of dynamic shared memory that a launch asks for at most.
        arch: the oldest compute capability it can be compiled for.
        only_arch: it uses instructions that no newer one has (a target such as
            sm_90a).
        overlaps: it may begin before the kernel before it is over, for which it waits
            (`wait_for_previous`); from sm_90 on.
        clusters: the blocks of a column of the grid (y) run together and read each
            other's shared memory (`block/clusters.py`); it has to overlap, too.
        on_disk: keep the machine code for the next process. Only for kernels of this
            package, whose sources are part of the key.
        float32_fn: what takes the place of `fn` for arguments with float32 or half
            numbers and no float64 (of a template's kernel).
        float64_fn: what takes the place of `fn` for arguments with float64 numbers.
        float64: computes in float64 on purpose, whatever the arguments are.
    """

    def __init__(
        self,
        fn: Callable,
        name: str = "",
        examples: Sequence[str] = (),
        threads: int = 256,
        max_registers: int | None = None,
        launch_bounds: int | tuple[int, ...] | None = None,
        resident: int = 1,
        fastmath: bool = False,
        shared: int = 0,
        arch: tuple[int, int] = (7, 5),
        only_arch: bool = False,
        overlaps: bool = False,
        clusters: bool = False,
        on_disk: bool = True,
        float32_fn: Callable | None = None,
        float64_fn: Callable | None = None,
        float64: bool = False,
    ) -> None:
        self.fn = fn
        self.float32_fn = float32_fn
        self.float64_fn = float64_fn
        self.name = name or fn.__name__
        self.examples = tuple(examples)
        self.threads = threads
        self.max_registers = max_registers
        self.launch_bounds = launch_bounds
        self.resident = resident
        self.fastmath = fastmath
        self.shared = shared
        self.arch = arch
        self.only_arch = only_arch
        self.overlaps = overlaps
        self.clusters = clusters
        self.on_disk = on_disk and fn.__module__.startswith("cuda_ops.")
        self.float64 = float64
        self._forms: dict[tuple[Any, ...], Form] = {}
        self._launches: dict[tuple[Any, ...], Callable] = {}
        self._dispatchers: dict[Callable, Any] = {}  # of the plain launch
        if self.examples:
            register(self)

    def __getitem__(self, config: tuple[Any, ...]) -> Callable:
        """`kernel[blocks, threads]` (then stream, bytes of shared memory): to call."""
        return self._launches.get(config) or self._prepare(config)

    def _prepare(self, config: tuple[Any, ...]) -> Callable:
        """What launches a grid; kept, because the same few come again and again."""
        if len(self._launches) >= GRIDS:
            self._launches.clear()
        launch: Callable
        if SIMULATED:
            self._must_fit(_three(config[1]))
            launch = partial(self._simulate, config)
        elif 0 in _three(config[0]):
            launch = self._launch_nothing
        elif can_pack():
            launch = Launch(self, config).run
        else:
            launch = partial(self._launch_plain, config)
        self._launches[config] = launch
        return launch

    # ------------------------------------------------------------- on the GPU

    def form(self, args: tuple[Any, ...]) -> Form:
        """The compiled form for these arguments on the current GPU."""
        kinds = tuple([_kind(arg) for arg in args])
        key = device.current.gpu, kinds
        form = self._forms.get(key)
        if form is None:
            words = [_word(arg) for arg in args]
            form = self._forms[key] = self._compile(words, kinds)
        return form

    def _compile(self, words: list[str], kinds: tuple[Any, ...]) -> Form:
        self._must_be_written()
        cubin = self.cubin(" ".join(words), device.compute_capability())
        with device.between_captures():
            return Form(self.name, words, kinds, cubin, self.shared)

    def _launch_nothing(self, *args: Any) -> None:
        """A grid without blocks, for an empty tensor."""
        self._must_be_written()

    def _launch_plain(self, config: tuple[Any, ...], *args: Any) -> None:
        """Numba's own launch, where calls of the driver are missing; much slower."""
        self._must_be_written()
        words = [_word(arg) for arg in args]
        fn = self._for_types(" ".join(words))
        run = self._dispatchers.get(fn)
        if run is None:
            run = self._dispatchers[fn] = cuda.jit(
                fastmath=self.fastmath,
                max_registers=self.max_registers,
                launch_bounds=self.launch_bounds,
            )(fn)
        stream = cuda.external_stream(device.current.key) if device.current.key else 0
        shared = config[3] if len(config) > 3 else 0
        device.recent.append(self.name)
        device.activate()  # Numba goes to the GPU whose context this thread has
        run[config[0], config[1], stream, shared](*args)
        look_after(0, f"kernel {self.name}{list(config)}")

    # ---------------------------------------------------------- on any machine

    def _for_types(self, text: str) -> Callable:
        """The Python function for a signature: `fn`, or a form for its floats."""
        narrow = "float32" in text or "float16" in text
        if self.float32_fn and narrow and "float64" not in text:
            return self.float32_fn
        return self.float64_fn if self.float64_fn and "float64" in text else self.fn

    def runs_on(self, arch: Arch) -> bool:
        """Whether it can be compiled for chips of this compute capability."""
        return arch == self.arch if self.only_arch else arch >= self.arch

    def ptx(self, text: str, arch: Arch = (9, 0), lineinfo: bool = True) -> str:
        """The kernel's PTX for a signature such as "float32[] int64"; no GPU needed."""
        self._must_be_written()
        bounds = self.launch_bounds
        if self.resident > 1 and arch >= (9, 0):
            bounds = (self.threads, self.resident)
        ptx = to_ptx(
            self._for_types(text), signature(text), arch, self.fastmath, bounds,
            lineinfo, self.only_arch,
        )  # fmt: skip
        return ptx if arch >= OVERLAP else re.sub(HINTS, "", ptx)

    def code(self, text: str, arch: Arch = (9, 0)) -> str | bytes:
        """What machine code is made from: PTX, or more than that for `only_arch`."""
        if self.only_arch:
            return to_lto(
                self._for_types(text), signature(text), arch, self.fastmath,
                self.launch_bounds,
            )  # fmt: skip
        return self.ptx(text, arch)

    def cubin(self, text: str, arch: Arch = (9, 0)) -> Cubin:
        """The kernel's machine code, from the disk if it has been made before."""
        if not self.runs_on(arch):
            more = "" if self.only_arch else " or newer"
            raise RuntimeError(
                f"kernel {self.name} needs a GPU of compute capability "
                f"{self.arch[0]}.{self.arch[1]}{more}; this is {arch[0]}.{arch[1]}"
            )

        def make() -> Cubin:
            return to_cubin(self.code(text, arch), arch, self.max_registers)

        if not self.on_disk:
            return make()
        bounds = self.launch_bounds, self.resident, self.max_registers
        options = (self.fastmath, *bounds)
        return cached_cubin(
            make, self.fn.__module__, self.name, closure_text(self.fn), text, arch,
            options,
        )  # fmt: skip

    # -------------------------------------------------------------- elsewhere

    def _simulate(self, config: tuple[Any, ...], *args: Any) -> None:
        self._must_be_written()
        if device.current.capture is not None:
            device.current.capture.note(self, config, args)
        else:
            self.simulate(config, *args)

    def simulate(self, config: tuple[Any, ...], *args: Any) -> None:
        """Run on NumPy arrays, thread by thread."""
        shared = config[3] if len(config) > 3 else 0
        blocks, threads = _three(config[0]), _three(config[1])
        simulate(self.fn, blocks, threads, shared, args, self.name)

    def _must_fit(self, threads: tuple[int, int, int]) -> None:
        """Refuse what every GPU refuses; the simulator would run it all the same."""
        count = math.prod(threads)
        if not 0 < count <= MOST_THREADS or threads[2] > MOST_DEEP:
            raise ValueError(
                f"{self.name}: a block of {threads} has {count:,} threads; expected 1 "
                f"to {MOST_THREADS:,}, and at most {MOST_DEEP} of them along z"
            )

    def _must_be_written(self) -> None:
        """Raise for a task of a course whose code is missing: a kernel could not."""
        task = unwritten(self.fn)
        if task is not None:
            todo(task)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"


class Launch:
    """A kernel with a grid: what `kernel[blocks, threads]` calls.

    Attributes:
        starts: for each form that was launched, the driver's call with all that does
            not change.
        last: the form of the launch before and its start: most often they fit again.
    """

    __slots__ = ("config", "grid", "kernel", "last", "starts", "stream")

    def __init__(self, kernel: Kernel, config: tuple[Any, ...]) -> None:
        blocks, threads = config[:2]
        stream = config[2] if len(config) > 2 else None
        shared = config[3] if len(config) > 3 else 0
        self.kernel = kernel
        self.config = config
        self.grid = (*_three(blocks), *_three(threads), shared)
        self.stream = stream
        self.starts: dict[Form, Callable] = {}
        self.last: tuple[Form, Callable] | None = None

    def run(self, *args: Any) -> None:
        """Launch the kernel with these arguments."""
        form, start = self.last or self._choose(args)
        here = device.current
        values = form.values(args) if form.gpu is here.gpu else None
        if values is None:  # another GPU or other types than in the launch before
            form, start = self._choose(args)
            values = form.values(args) or []
        device.recent.append(self.kernel.name)
        try:
            frame = form.frames.pop()
        except IndexError:  # the first launch, or all are used by other threads
            frame = form.new_frame()
        form.pack(frame[0], 0, *values)
        code = start(self.stream or here.handle, frame[1], 0)[0]
        form.frames.append(frame)
        if code or device.BLOCKING:
            self._look_after(code, args)

    def _choose(self, args: tuple[Any, ...]) -> tuple[Form, Callable]:
        """The form for these arguments and its start."""
        form = self.kernel.form(args)
        start = self.starts.get(form)
        if start is None:
            start = partial(device.driver().cuLaunchKernel, form.function, *self.grid)
            if self.kernel.overlaps and device.compute_capability() >= OVERLAP:
                start = early_start(form.function, self.grid, self.kernel.clusters)
            self.starts[form] = start
        self.last = form, start
        return form, start

    def _look_after(self, code: Any, args: tuple[Any, ...]) -> None:
        """Raise the error of a launch; or wait for it, if that was asked for."""
        if int(code) == device.INVALID_CONTEXT:  # the first launch in this thread
            device.activate()
            self.run(*args)
        else:
            look_after(code, f"kernel {self.kernel.name}{list(self.config)}")


def early_start(function: Any, grid: tuple[int, ...], clusters: bool) -> Callable:
    """`start(stream, parameters, extra)` of a kernel that begins while the one before
    ends ("programmatic dependent launch"); `clusters` as in `Kernel`."""
    api = device.driver()
    attribute, names = api.CUlaunchAttribute(), api.CUlaunchAttributeID
    attribute.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    attributes = [attribute]
    if clusters:
        together = api.CUlaunchAttribute()
        together.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = together.value.clusterDim
        size.x, size.y, size.z = 1, grid[1], 1
        attributes.append(together)

    @cache
    def config(stream: Any) -> Any:
        made = api.CUlaunchConfig()
        made.gridDimX, made.gridDimY, made.gridDimZ = grid[:3]
        made.blockDimX, made.blockDimY, made.blockDimZ = grid[3:6]
        made.sharedMemBytes, made.hStream = grid[6], stream
        made.attrs, made.numAttrs = attributes, len(attributes)
        return made

    def start(stream: Any, parameters: int, extra: int) -> Any:
        return api.cuLaunchKernelEx(config(stream), function, parameters, extra)

    return start


def look_after(code: Any, what: str) -> None:
    """Raise the error of a launch; or wait for it, if that was asked for."""
    if code:
        device.raise_error(code, f"launching {what}")
    elif device.BLOCKING and device.current.capture is None:
        device.call(what, device.driver().cuCtxSynchronize)


@cache
def unwritten(fn: Any) -> str | None:
    """The task that a kernel, or a device function that it calls, waits for."""
    return next(filter(None, map(unwritten_task, reachable(fn))), None)


def _three(size: Any) -> tuple[int, int, int]:
    """A grid or block size, with ones for the dimensions that are not given."""
    if type(size) is not tuple:
        return int(size), 1, 1
    return (*size, 1, 1, 1)[:3]


def kernel(fn: Callable | None = None, **options: Any) -> Any:
    """Decorate a module-level function: `@kernel` or `@kernel(fastmath=True)`.

    The options are `Kernel`'s.
    """
    if fn is not None:
        return Kernel(fn)
    return lambda fn: Kernel(fn, **options)


def register(made: Kernel) -> None:
    """Remember a kernel by its name."""
    known = REGISTRY.get(made.name)
    if known is not None and known.fn.__module__ != made.fn.__module__:
        raise ValueError(
            f"kernel {made.name} is in {known.fn.__module__} and in "
            f"{made.fn.__module__}; names must differ"
        )
    REGISTRY[made.name] = made


class Kernels(dict):
    """The kernels of one template: `kernels[fn]` is made at the first request.

    Args:
        template: takes a device function, or those of a tuple (`kernels[fn, before]`),
            and returns the kernel's Python function.
        functions: scalar functions for which `examples` are registered.
        options: `Kernel`'s.
    """

    def __init__(
        self,
        template: Callable,
        functions: Sequence[Callable] = (),
        examples: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__()
        self.template = template
        self.options = options
        self.functions = functions
        self.examples = examples
        TEMPLATES.append(self)

    def make_examples(self) -> None:
        """Make, and register, the kernels of the functions that were named."""
        for fn in self.functions:
            if fn not in self or not self[fn].examples:
                self[fn] = self._make(fn, self.examples)

    def _make(self, key: Any, examples: Sequence[str] = ()) -> Kernel:
        fns = key if type(key) is tuple else (key,)
        named = [fn for fn in fns if fn is not None]
        ours = all(map(_is_ours, named))

        def filled(**form: bool) -> Callable:
            return self.template(*[device_function(fn, **form) for fn in fns])

        made, narrow, wide = filled(), None, None
        if not SIMULATED:
            narrow = filled(float32=True)
            if any(fn in FORMS64 for fn in named):
                wide = filled(float64=True)
        words = ",".join([fn.__name__ if fn else "" for fn in fns])
        name = f"{self.template.__name__}[{words}]"
        return Kernel(
            made, name, examples, on_disk=ours, float32_fn=narrow, float64_fn=wide,
            **self.options,
        )  # fmt: skip

    def __missing__(self, key: Any) -> Kernel:
        made = self[key] = self._make(key)
        return made


def _is_ours(fn: Callable) -> bool:
    """Whether a function's text is a part of the key of the kernels on disk."""
    there = getattr(operators, fn.__name__, None) is fn
    return there or fn.__module__.startswith("cuda_ops.")
