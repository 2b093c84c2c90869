"""A driver of GPUs that are not there, which is strict about whose is what.

With this file the real runtime (`cuda_ops/runtime`, not the simulator) runs on any
machine: `PaperDriver` stands for `cuda.bindings.driver`. Memory is the host's, copies
and fills are done at once, and kernels are not run (`paper_runs.py` does that). What it
checks is what a driver would answer with an error, or worse, with wrong numbers:

- each call needs a context of the calling thread;
- memory, streams, events and kernels are used in the context that they are of;
- a kernel gets addresses of its own GPU only;
- nothing is used after it was destroyed.

    python tests/cuda/paper_driver.py several      # a scenario; see the end
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import types
from pathlib import Path
from typing import Any

from cuda.bindings import driver as real

OK = real.CUresult.CUDA_SUCCESS
NO_CONTEXT = real.CUresult.CUDA_ERROR_INVALID_CONTEXT


class Misuse(AssertionError):
    """What a real driver would have answered with an error, if at all."""


class Handle(int):
    """A context, stream, event, function or graph, and the context that it is of."""

    kind: str
    context: Any = None
    alive = True


class PaperDriver:
    """`gpus` GPUs. `calls` are the names of the calls, with the context of each."""

    def __init__(self, gpus: int = 2) -> None:
        self._gpus = gpus
        self._here = threading.local()
        self._numbers = itertools.count(1)
        # Buffer, size and context. Threads add to it while others look: these take a
        # copy, which is one step of the interpreter.
        self._memory: dict[int, tuple[Any, int, Any]] = {}
        self.contexts: dict[int, Handle] = {}
        self.calls: list[tuple[str, int | None]] = []

    def __getattr__(self, name: str) -> Any:
        """Enumerations are the real ones."""
        return getattr(real, name)

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return found

        def call(*args: Any) -> Any:
            context = self._current()
            index = None if context is None else context.index
            self.calls.append((name, index))
            return found(*args)

        return call if callable(found) else found

    # --------------------------------------------------------------------- checks

    def _current(self) -> Any:
        return getattr(self._here, "context", None)

    def _new(self, kind: str) -> Handle:
        made = Handle(next(self._numbers))
        made.kind, made.context = kind, self._current()
        return made

    def _check(self, ok: bool, what: str) -> None:
        if not ok:
            raise Misuse(what)

    def _mine(self, handle: Any, kind: str) -> Any:
        """The context in which `handle` may be used, which must be the current one."""
        if handle is None or (kind == "stream" and int(handle) == 0):
            return self._current()
        self._check(type(handle) is Handle and handle.kind == kind, f"{handle!r}")
        self._check(handle.alive, f"{kind} used after it was destroyed")
        self._check(handle.context is self._current(), f"{kind} of another context")
        return handle.context

    def _of(self, address: int, size: int) -> Any:
        """The context of memory; None for the host's."""
        for start, (_, length, context) in self._memory.copy().items():
            if start <= address < start + length:
                self._check(address + size <= start + length, "beyond the memory")
                return context
        raise Misuse(f"{size} bytes at {address:#x}, which nobody has")

    def _own(self, address: int, size: int) -> None:
        self._check(self._of(address, size) is self._current(), "another GPU's memory")

    def check_argument(self, value: Any) -> None:
        """A number that a kernel gets: an address must be of its GPU, or the host's."""
        for start, (_, length, context) in self._memory.copy().items():
            if start <= value < start + length:
                self._check(context in (None, self._current()), "another GPU's memory")

    # -------------------------------------------------------------------- devices

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDeviceGetCount(self) -> Any:
        return OK, self._gpus

    def cuDeviceGet(self, index: int) -> Any:
        self._check(0 <= index < self._gpus, f"GPU {index}")
        return OK, index

    def cuDeviceGetName(self, size: int, device: int) -> Any:
        return OK, f"Paper {device}".encode()

    def cuDeviceTotalMem(self, device: int) -> Any:
        return OK, 2**30

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        name = attribute.name
        return OK, 9 if "MAJOR" in name else 0 if "MINOR" in name else 132

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self._check(device not in self.contexts, "a context is retained twice")
        made: Any = self._new("context")
        made.index = device
        self.contexts[device] = made
        return OK, made

    def cuCtxSetCurrent(self, context: Any) -> Any:
        self._check(context is None or context.kind == "context", "no context")
        self._here.context = context
        return (OK,)

    def cuCtxSynchronize(self) -> Any:
        return (NO_CONTEXT if self._current() is None else OK,)

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> Any:
        return OK, int(device != peer)

    def cuCtxEnablePeerAccess(self, peer: Any, flags: int) -> Any:
        self._check(peer is not self._current() is not None, "no peer")
        return (OK,)

    # --------------------------------------------------------------------- memory

    def _take(self, size: int, context: Any) -> Any:
        buffer = ctypes.create_string_buffer(size)
        self._memory[ctypes.addressof(buffer)] = buffer, size, context
        return OK, ctypes.addressof(buffer)

    def cuMemAlloc(self, size: int) -> Any:
        if self._current() is None:
            return NO_CONTEXT, None
        return self._take(size, self._current())

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        return (NO_CONTEXT, None) if self._current() is None else self._take(size, None)

    def cuMemFree(self, address: int) -> Any:
        self._own(address, 1)
        del self._memory[address]
        return (OK,)

    def cuMemFreeHost(self, address: int) -> Any:
        del self._memory[address]
        return (OK,)

    def cuMemGetInfo(self) -> Any:
        return (NO_CONTEXT, 0, 0) if self._current() is None else (OK, 2**29, 2**30)

    def cuMemcpyHtoDAsync(self, out: int, a: int, size: int, stream: Any) -> Any:
        if self._mine(stream, "stream") is None:
            return (NO_CONTEXT,)
        self._own(out, size)
        ctypes.memmove(out, a, size)
        return (OK,)

    def cuMemcpyDtoHAsync(self, out: int, a: int, size: int, stream: Any) -> Any:
        if self._mine(stream, "stream") is None:
            return (NO_CONTEXT,)
        self._own(a, size)
        ctypes.memmove(out, a, size)
        return (OK,)

    def cuMemcpyDtoDAsync(self, out: int, a: int, size: int, stream: Any) -> Any:
        self._own(out, size)
        return self.cuMemcpyDtoHAsync(out, a, size, stream)

    def cuMemcpyPeerAsync(
        self, out: int, to: Any, a: int, source: Any, size: int, stream: Any
    ) -> Any:
        self._check(self._mine(stream, "stream") is source, "not the source's stream")
        self._check(self._of(out, size) is to and self._of(a, size) is source, "whose?")
        ctypes.memmove(out, a, size)
        return (OK,)

    def cuMemsetD8Async(self, out: int, value: int, n: int, stream: Any) -> Any:
        if self._mine(stream, "stream") is None:
            return (NO_CONTEXT,)
        self._own(out, n)
        ctypes.memset(out, value, n)
        return (OK,)

    def cuMemsetD16Async(self, out: int, value: int, n: int, stream: Any) -> Any:
        if self._mine(stream, "stream") is None:
            return (NO_CONTEXT,)
        self._own(out, 2 * n)
        (ctypes.c_uint16 * n).from_address(out)[:] = [value] * n
        return (OK,)

    def cuMemsetD32Async(self, out: int, value: int, n: int, stream: Any) -> Any:
        assert n == 1
        if self._mine(stream, "stream") is None:
            return (NO_CONTEXT,)
        self._own(out, 4)
        ctypes.c_uint32.from_address(out).value = value
        return (OK,)

    # --------------------------------------------------------- streams and events

    def cuTensorMapEncodeTiled(self, kind: Any, dims: int, a: int, *rest: Any) -> Any:
        sizes, steps = rest[0], rest[1]
        last = sum((int(n) - 1) * int(s) for n, s in zip(sizes[1:], steps))
        self._own(a, last + 2 * int(sizes[0]))
        self._check(a % 16 == 0 and all(int(n) % 16 == 0 for n in steps), "16 bytes")
        return OK, types.SimpleNamespace(opaque=[0] * 16)

    def cuStreamCreate(self, flag: Any) -> Any:
        return (NO_CONTEXT, None) if self._current() is None else (
            OK, self._new("stream"))  # fmt: skip

    def cuStreamSynchronize(self, stream: Any) -> Any:
        return (NO_CONTEXT if self._mine(stream, "stream") is None else OK,)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> Any:
        self._check(event.kind == "event" and event.alive, "no event")
        return (NO_CONTEXT if self._mine(stream, "stream") is None else OK,)

    def cuEventCreate(self, flag: Any) -> Any:
        return (NO_CONTEXT, None) if self._current() is None else (
            OK, self._new("event"))  # fmt: skip

    def cuEventRecord(self, event: Any, stream: Any) -> Any:
        self._mine(stream, "stream")
        return (NO_CONTEXT if self._mine(event, "event") is None else OK,)

    def cuEventQuery(self, event: Any) -> Any:
        self._check(event.kind == "event" and event.alive, "no event")
        return (OK,)

    cuEventSynchronize = cuEventQuery

    def cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        self._check(start.context is end.context, "events of two contexts")
        return OK, 1.0

    def _destroy(self, handle: Any) -> Any:
        self._check(handle.alive, f"{handle.kind} destroyed twice")
        handle.alive = False
        return (OK,)

    cuEventDestroy = cuStreamDestroy = cuGraphDestroy = cuGraphExecDestroy = _destroy

    # -------------------------------------------------------------------- kernels

    def cuLibraryLoadData(self, *args: Any) -> Any:
        return OK, "library"

    def cuLibraryGetKernel(self, library: Any, name: bytes) -> Any:
        return OK, "kernel"

    def cuKernelGetFunction(self, kernel: Any) -> Any:
        return (NO_CONTEXT, None) if self._current() is None else (
            OK, self._new("function"))  # fmt: skip

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> Any:
        self._mine(function, "function")
        return (OK,)

    def cuLaunchKernel(self, function: Any, *args: Any) -> Any:
        if self._current() is None:
            return (NO_CONTEXT,)
        self._mine(function, "function")
        self._mine(args[7], "stream")
        return (OK,)

    CUlaunchConfig = types.SimpleNamespace  # a real one would forget whose a stream is

    def cuLaunchKernelEx(self, config: Any, function: Any, *args: Any) -> Any:
        return self.cuLaunchKernel(function, *[0] * 7, config.hStream, *args)

    # --------------------------------------------------------------------- graphs

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        return OK, mode

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        self._mine(stream, "stream")
        self._check(int(stream) != 0, "the default stream cannot be captured")
        return (OK,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        self._mine(stream, "stream")
        return OK, self._new("graph")

    def cuGraphGetNodes(self, graph: Any, most: int) -> Any:
        return OK, [], 3

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        self._mine(graph, "graph")
        return OK, self._new("executable")

    def cuGraphUpload(self, executable: Any, stream: Any) -> Any:
        self._mine(stream, "stream")
        self._mine(executable, "executable")
        return (OK,)

    cuGraphLaunch = cuGraphUpload


def install(gpus: int = 2, paper: PaperDriver | None = None) -> PaperDriver:
    """Let this process use a new `PaperDriver`, and compile nothing."""
    from cuda_ops.runtime import compiler, device, launch

    paper = paper or PaperDriver(gpus)
    device.driver = lambda: paper  # type: ignore[assignment]

    def cubin(self: Any, text: str, arch: Any) -> Any:
        return compiler.Cubin(b"", self.name, 0, 0, 0, 0)

    matcher = launch.matcher

    def checked(*kinds_and_order: Any) -> Any:
        values = matcher(*kinds_and_order)

        def check(args: Any) -> Any:
            found = values(args)
            for value in found or ():
                paper.check_argument(value)
            return found

        return check

    launch.Kernel.cubin = cubin  # type: ignore[method-assign]
    launch.matcher = checked
    return paper


# ----------------------------------------------------------------------- scenarios


def train(place: str) -> None:
    """Much of what a program does on a GPU."""
    from minitorch import nn, ones, optim, rand, tensor
    from minitorch.nn import functional as F

    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 3)
    ).to(place)
    x, y = rand(32, 6, device=place), tensor([0, 1, 2, 0] * 8, device=place)
    for optimizer in (
        optim.SGD(model.parameters(), 0.1, momentum=0.9),
        optim.AdamW(model.parameters()),
    ):
        for _ in range(2):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    images = rand(2, 3, 8, 8, device=place, requires_grad=True)
    out = F.max_pool2d(F.conv2d(images, ones(4, 3, 3, 3, device=place)), 2)
    (out.sum() * 2.5 + out.mean() + out.flatten(1).sort(1)[0].sum()).backward()
    assert images.grad.device == place
    weights = rand(1000, 1000, device=place).bfloat16().requires_grad_()
    F.linear(weights[1:, ::2], weights[:, 500:]).sum().backward()  # by tensor maps
    loss.item(), x[1:, ::2].cpu(), x.numpy()


def alone(paper: PaperDriver) -> None:
    """A process that calls `set_device(1)` leaves GPU 0 alone."""
    from minitorch import cuda, ones

    assert cuda.device_count() == 2 and cuda.current_device() == 0
    assert cuda.get_device_name(0) == "Paper 0" and not paper.contexts
    cuda.set_device(1)
    train("cuda:1")
    ones(100).pin_memory().to("cuda", non_blocking=True).to("cpu", non_blocking=True)
    cuda.synchronize()
    thread = threading.Thread(target=train, args=("cuda:1",))
    thread.start()
    thread.join()
    assert list(paper.contexts) == [1]
    assert {index for _, index in paper.calls} == {None, 1}
    bound = [name for name, _ in paper.calls].count("cuCtxSetCurrent")
    assert bound < 10, f"{bound} changes of context for one GPU"


def several(paper: PaperDriver) -> None:
    """Work goes back and forth between two GPUs, in several threads."""
    from minitorch import cuda

    failed: list[BaseException] = []

    def work(index: int) -> None:
        try:
            train("cuda:0")
            cuda.set_device(index)
            for place in ("cuda:0", "cuda:1", "cuda:0"):
                train(place)
        except BaseException as error:
            failed.append(error)
            raise

    train("cuda:0")
    assert list(paper.contexts) == [0]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    assert not failed
    assert cuda.memory_allocated(1) > 0 and cuda.max_memory_allocated(0) > 0
    cuda.empty_cache()
    assert {index for _, index in paper.calls} == {None, 0, 1}


def copies(paper: PaperDriver) -> None:
    """Numbers arrive, behind the work on both streams; foreign contexts do no harm."""
    import numpy as np

    from minitorch import as_tensor, cuda, from_dlpack, full, tensor
    from minitorch.dtypes import bfloat16, float16

    a = np.arange(35.0, dtype=np.float32).reshape(7, 5)
    x = tensor(a, device="cuda:0")
    side = cuda.Stream(0)
    with cuda.stream(side):
        x.to("cuda:1")  # enables access
        paper.calls.clear()
        y = x.to("cuda:1")
    wanted = ("cuEventRecord", "cuStreamWaitEvent", "cuMemcpyPeerAsync")
    seen = [(name[2:], index) for name, index in paper.calls if name in wanted]
    record, wait = "EventRecord", "StreamWaitEvent"
    assert seen == [
        (record, 1), (wait, 0), ("MemcpyPeerAsync", 0), (record, 0), (wait, 1),
    ], seen  # fmt: skip
    assert y.device == "cuda:1" and np.array_equal(y.numpy(), a)
    assert np.array_equal(y.to("cuda:0").numpy(), a)
    assert tensor(3.5, device="cuda:1").to("cuda:0").item() == 3.5
    with cuda.device(1):
        assert (tensor(2.5, device="cuda:0")).item() == 2.5
    assert y.__dlpack_device__() == (2, 1)
    paper.cuCtxSetCurrent(paper.contexts[1])  # as torch does
    back = from_dlpack(y)
    assert back.device == "cuda:1" and np.array_equal(back.numpy(), a)
    again = as_tensor(Foreign(y))
    assert again.device == "cuda:1" and np.array_equal(again.numpy(), a)
    for dtype in (float16, bfloat16):
        for n in (1, 7):
            z = full((n,), -1.5, dtype=dtype, device="cuda:1")
            assert z.to("cuda:0").tolist() == [-1.5] * n
            borrowed = from_dlpack(z)
            assert borrowed.dtype is dtype and borrowed.tolist() == [-1.5] * n
            assert z.expand(3, n).t().contiguous().float().half().shape == (n, 3)
    assert cuda.current_device() == 0


def outlasting(paper: PaperDriver) -> None:
    """Counters that a launch leaves for the next one are no memory of a graph, where
    an earlier kernel of each replay may write."""
    from cuda_ops.attention.decode import counters
    from minitorch import cuda, ones

    made: list[Any] = []

    def step(x: Any) -> Any:
        made.append(counters(4))
        return x + 1

    run = cuda.make_graphed_step(step)
    for _ in range(4):
        run(ones(3, device="cuda"))
    assert run.graph is not None
    assert {array.block.pool.graphs for array in made} == {0}


def buckets(paper: PaperDriver) -> None:
    """Of a GPT's gradients, those of weights are made where they are sent from."""
    from minitorch import autocast, bfloat16, cuda, optim, randint
    from minitorch.backend import get_backend
    from minitorch.distributed import spawn_threads
    from minitorch.models import GPT, GPTConfig
    from minitorch.nn.parallel import DistributedDataParallel
    from minitorch.train.gpt.shared import Loss

    sys.path.append(str(Path(__file__).parents[1]))
    from rank_checks import homeless

    kind: Any = type(get_backend("cuda"))
    copied: list[int] = []
    copy_all = kind.copy_all

    def counted(outs: Any, tensors: Any) -> None:
        copied.append(sum(out.size for out in outs))
        copy_all(outs, tensors)

    def steps(how: Any) -> tuple[int, int, int]:
        """Numbers in all gradients, those copied in a step, and bytes at its peak."""
        model = GPT(GPTConfig(20_003, 64, n_layer=2, n_head=4, n_embd=256)).to("cuda")
        whole = how(DistributedDataParallel(Loss(model), bucket_cap_mb=1))
        optimizer = optim.AdamW(model.parameters())
        ids = randint(0, 20_003, (2, 4, 64)).to("cuda")
        for _ in range(3):
            optimizer.zero_grad()
            with autocast("cuda", bfloat16):
                loss = whole(*ids)
            del copied[:]
            cuda.reset_peak_memory_stats()
            loss.backward()
            optimizer.step()
        numbers = sum(p.numel() for p in model.parameters())
        return numbers, sum(copied), cuda.max_memory_allocated()

    def rank() -> Any:
        return steps(homeless), steps(lambda model: model)

    kind.copy_all = staticmethod(counted)
    (((all_of_them, before, peak), (_, now, lower)),) = spawn_threads(rank, 1)
    assert before == all_of_them and now < all_of_them / 500, (before, now)
    table = 20_003 * 256 * 4
    assert lower < peak - table / 2, (peak, lower, table)


def calls(paper: PaperDriver) -> None:
    """What follows from shapes and strides alone is found out once, and not for each
    product: the functions that a layer's three enter, in halves and in float32."""
    from cuda_ops.matmul import matmul
    from minitorch import autocast, bfloat16, nn, rand

    ours, entered = str(Path(matmul.__file__).parent), list[str]()

    def see(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            entered.append(frame.f_code.co_name)

    layer, x = nn.Linear(384, 1536).to("cuda"), rand(1024, 384, device="cuda")
    for lower, most in (True, 21), (False, 26):
        for _ in range(2):
            x = x.detach().requires_grad_()
            layer.zero_grad()
            entered.clear()
            sys.setprofile(see)
            with autocast("cuda", bfloat16, enabled=lower):
                y = layer(x)
            y.backward(y.detach())
            sys.setprofile(None)
        assert len(entered) <= most, (len(entered), entered)


class Foreign:
    """Another library's array."""

    def __init__(self, x: Any) -> None:
        self.__cuda_array_interface__ = x.__cuda_array_interface__
        self.__dlpack_device__ = x.__dlpack_device__


def graphed(place: str) -> None:
    """A training step in a graph of a GPU, replayed there and from GPU 0."""
    from cuda_ops.runtime import device
    from minitorch import cuda, nn, ones, optim

    model = nn.Linear(6, 3).to(place)
    optimizer = optim.AdamW(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.dropout(model(x), 0.5).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with cuda.device(place):
        run = cuda.make_graphed_step(step)
        for _ in range(3):
            run(ones(4, 6, device=place))
        assert run.graph is not None
        calls = [name for name, _ in device.driver().calls]
    ready = len(calls) - calls[::-1].index("cuGraphInstantiate")
    made = calls[ready : calls.index("cuGraphLaunch", ready)]
    settled = made.index("cuStreamSynchronize")  # a replay may be on any stream
    assert {"cuLaunchKernel", "cuMemcpyHtoDAsync"} <= set(made[:settled])
    assert not {"cuLaunchKernel", "cuMemcpyHtoDAsync"} & set(made[settled:])
    optimizer.param_groups[0]["lr"] = 0.5
    run(ones(4, 6, device=place))
    run.graph.reset()


def streams(paper: PaperDriver) -> None:
    """Streams, events, graphs, pinned memory and times of each GPU."""
    from minitorch import cuda, ones, profiler

    for place in ("cuda:0", "cuda:1"):
        stream, event = cuda.Stream(place), cuda.Event(enable_timing=True)
        stream.wait_stream(cuda.current_stream(place))
        with cuda.stream(stream):
            train(place)
            event.record()
        cuda.current_stream(place).wait_event(event)
        cuda.default_stream(1).wait_event(event)
        later = stream.record_event(cuda.Event(enable_timing=True))
        later.synchronize()
        assert later.query() and event.elapsed_time(later) == 1.0
        x = ones(100).pin_memory().to(place, non_blocking=True)
        x.to("cpu", non_blocking=True)
        graphed(place)
        with profiler.profile([profiler.ProfilerActivity.CUDA]) as prof:
            x + x
        rows = {span.row for span in prof.events() if span.kind == "device"}
        assert rows == {int(place[-1])}


def fences(paper: PaperDriver) -> None:
    """What is written next to an array of a call is told, and where."""
    import numpy as np

    from assignments import fences as course
    from cuda_ops.runtime.arrays import ARRAYS, DeviceArray
    from minitorch.backend import get_backend

    backend = get_backend("cuda")

    def spoil(array: Any, index: int) -> None:
        byte = ctypes.c_uint8.from_address(array.pointer + index * array.itemsize)
        byte.value = (byte.value + 1) % 256

    def said(dtype: Any, size: int, index: int) -> str:
        try:
            with course.watching("cuda"):
                made = backend.empty((size,), dtype)
                spoil(made.storage.array, index)
                course.name({"out": made})
                del made  # its memory goes to nobody else
                assert np.isnan(backend.to_numpy(backend.empty((3,), float32))).all()
        except IndexError as error:
            return str(error)
        return ""

    float32 = backend.from_numpy(np.ones(1, np.float32)).dtype
    for dtype in ARRAYS:
        for size in (0, 1, 1_333):
            for index in (size, -1):
                assert said(dtype, size, index).endswith(f"`out`: index {index:,}")
    assert said(float32, 5, 0) == ""
    with course.watching("cuda"):
        x = backend.from_numpy(np.arange(7.0))
        array: DeviceArray = x.storage.array
        block = array.base.block
        assert array.pointer == block.pointer + course.BYTES and block.size % 512 == 0
        assert np.array_equal(backend.to_numpy(x), np.arange(7.0))
    assert backend.empty((3,), float32).storage.array.block is not None


if __name__ == "__main__":
    globals()[sys.argv[1]](install())
