"""Ranks that are processes: what moves the numbers is torch's process groups.

With this file Gloo (between CPUs) and NCCL (between GPUs) send our tensors. torch is
lent the memory and nothing is copied: NumPy's arrays on the CPU, and on a GPU what
DLPack describes. There the work begins behind what is under way on our current stream,
and `wait` lets that stream wait for it. Who has sent is kept until then. A CUDA graph
can hold that: NCCL's kernels are captured with ours, and each replay sends again.

Collectives of other ranks than ours cannot be told from ours by their bytes: they would
be added up wrongly, or waited for without end. So a group's first calls are compared
before anything is sent, in the store by which ranks have met, and later ones if they
take long.

It is imported by `init_process_group`, and nothing else in the library imports torch.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import cache, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any
from weakref import WeakSet, proxy

import numpy as np
import torch
import torch.distributed as dist

from minitorch.backend import get_backend
from minitorch.creation import zeros
from minitorch.distributed.group import (
    CannotGoOn,
    ProcessGroup,
    Splits,
    Work,
    told,
    unlike_calls,
)
from minitorch.distributed.rules import ReduceOp
from minitorch.dtypes import bfloat16
from minitorch.executor import active, before_notes, needs_numbers, postponed, settle
from minitorch.tensor import Tensor

OPS: Mapping[ReduceOp, Any] = MappingProxyType(
    {op: getattr(dist.ReduceOp, op.name) for op in ReduceOp}
)

# torch 2.13 renames them.
all_gather_single = getattr(dist, "all_gather_single", None)
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None)
ANYONE = "recv from anyone"
ENV = "env://"
UNLIKE = "calls that differ"  # a note in the store
DLPACK_CUDA = 2  # the type of device of a GPU's memory
FEW = 4  # multiprocessors: a quarter of an H100's links, for a sixth of what all take
COMPARED = 256  # calls of a group that are compared before anything is sent
LATELY = 64  # calls of which a rank knows what they were
PATIENCE = timedelta(seconds=10)  # after which a later one is compared
LOOKED_FOR = 0.02  # seconds before a wait sleeps, where each rank has a core
HERE = nullcontext()
let_others_run = getattr(os, "sched_yield", partial(time.sleep, 0))


def lend(x: Tensor) -> Any:
    """A flat tensor of torch on the memory of x, which is contiguous."""
    half, raw = x.dtype is bfloat16, x.raw  # which NumPy cannot name; torch can
    if x.backend.host_memory:
        settle()
        array = raw.storage.array[raw.offset : raw.offset + raw.size]
        lent = torch.from_numpy(array.view(np.int16) if half else array)
    elif x.__dlpack_device__()[0] == DLPACK_CUDA:
        facts = x.backend.cuda_array_interface(raw)
        facts = {**facts, "shape": (raw.size,), "strides": None}
        facts["typestr"] = "<i2" if half else facts["typestr"]
        source = SimpleNamespace(__cuda_array_interface__=facts, held=raw)
        lent = torch.as_tensor(source)
    else:
        return torch.from_dlpack(x.detach()).reshape(-1)
    return lent.view(torch.bfloat16) if half else lent


def on_our_stream(x: Tensor) -> Any:
    """Lets torch work on the stream that we work on, if x is on a GPU."""
    kind, index = x.__dlpack_device__()
    if kind != DLPACK_CUDA:
        return HERE
    key = x.backend.cuda_array_interface(x.raw)["stream"]
    stream = _stream(key, index)
    if torch.cuda.current_device() != index:
        torch.cuda.set_device(index)  # else torch lets the driver go back to another
    # torch.cuda.current_stream makes an object, which takes ten times as long.
    theirs = torch._C._cuda_getCurrentRawStream(index)
    return HERE if theirs == stream.cuda_stream else torch.cuda.stream(stream)


@cache
def _stream(key: int, index: int) -> Any:
    """torch's name for a stream of ours; 1 is the default one."""
    if key == 1:
        return torch.cuda.default_stream(index)
    return torch.cuda.ExternalStream(key, index)


@cache
def _options(op: Any, async_op: bool) -> Any:
    """torch's options of an all-reduce; on a GPU one that is not to be waited for is
    a kernel of our own stream, and no work is returned."""
    options = dist.AllreduceOptions()
    options.reduceOp = op
    if hasattr(options, "asyncOp"):  # older ones make work of all
        options.asyncOp = async_op
    return options


def observed(name: str, run: Callable[[], Any]) -> Any:
    """`run()`, which a profiler sees."""
    executor = active.executor
    return run() if executor is None else executor.operation(name, run, ())


def _postponed(used: Sequence[Tensor]) -> bool:
    """Whether work on these is captured in a CUDA graph, and not done."""
    return postponed() and bool(used) and not used[0].backend.host_memory


def _never() -> bool:
    """Nothing is done before the graph is replayed."""
    return False


every: WeakSet[Any] = WeakSet()  # groups that may be in use


def _all_arrive() -> None:
    """What is captured in a CUDA graph cannot wait for what was sent before it."""
    for group in list(every):
        for work in group.under_way:
            if any(map(group.by_nccl, work.held)):
                work.wait()


before_notes.append(_all_arrive)


@atexit.register
def _forget_captures() -> None:
    """A program may end without `destroy_process_group`."""
    for group in list(every):
        with suppress(RuntimeError):  # the device may be lost
            group.forget_captures()


class TorchGroup(ProcessGroup):
    """A process group of torch's.

    Attributes:
        handle: torch's own object.
        store: notes that all ranks can read; `limit`: how long torch waits, if told.
        count: how often all ranks did something together; `made`: groups.
        under_way: work that may still read or write our memory.
        captures: executors that have noted work of it, to be done later.
        slow: that of `beside`, once it was asked for.
        lately: its last calls, by their numbers.
        parts: what went from one rank to another, by both ends; None: not compared.
        looks: seconds that a rank looks for the end of Gloo's work before it sleeps.
    """

    def __init__(
        self, handle: Any, ranks: Sequence[int], backend: str, store: Any, limit: Any
    ) -> None:
        self.handle, self.ranks, self.backend = handle, tuple(ranks), backend
        self.store, self.limit, self.count, self.made = store, limit, 0, 0
        self.me = self.ranks.index(dist.get_rank())
        self.looks = _looked_for()
        self.lately: deque[tuple[int, str]] = deque(maxlen=LATELY)
        self.parts: Counter[Any] | None = Counter()
        self.under_way: list[Work] = []
        self.captures: WeakSet[Any] = WeakSet()
        self.slow: TorchGroup | None = None
        every.add(self)

    def by_nccl(self, x: Tensor) -> bool:
        """Whether NCCL sends x, and not Gloo."""
        return "nccl" in self.backend and x.device.type == "cuda"

    def check(self, caller: str, x: Tensor) -> None:
        if self.backend == "nccl" and not self.by_nccl(x):
            raise ValueError(
                f"{caller}: the tensor is on {str(x.device)!r}, and NCCL sends from "
                f'GPUs alone; use x.to("cuda"), or init_process_group("gloo")'
            )

    def subgroup(self, ranks: tuple[int, ...], **options: Any) -> TorchGroup | None:
        backend = options.get("backend") or self.backend
        self.made += 1
        where = f"{self.handle.group_name} group {self.made}"
        self._agree(where, f"new_group({list(ranks)})")
        handle = dist.new_group(list(ranks), **options)
        if dist.get_rank() not in ranks:
            return None
        limit = {key: options[key] for key in options if key == "timeout"}
        return TorchGroup(handle, ranks, backend, self.store, limit)

    def beside(self) -> TorchGroup:
        """By NCCL, few multiprocessors add, so that products of others find as many
        as they have blocks; the ranks' own group, unless it is that of all."""
        if self.backend != "nccl" or self.size() < dist.get_world_size():
            return self
        if self.slow is None:
            options = dist.ProcessGroupNCCL.Options()
            options.config.max_ctas = FEW
            how: Any = {"backend": "nccl", "pg_options": options, **self.limit}
            self.slow = self.subgroup(self.ranks, **how)
        assert self.slow is not None
        return self.slow

    def close(self) -> None:
        own = [self] if self.slow is None else [self.slow, self]
        groups = list(every) if (whole := self.handle is dist.group.WORLD) else own
        for group in groups:
            group.forget_captures()
        for group in [self] if whole else own:
            dist.destroy_process_group(group.handle)
        # Gloo's threads end with the last name for it. At the end of a program it would
        # be too late: one that gives memory back then is ended by Python, and aborts.
        for group in groups:
            group.handle, group.store, group.under_way = None, None, []
            group.closed = True

    def forget_captures(self) -> None:
        """NCCL waits at its end until the last graph with its kernels has gone."""
        for capture in list(self.captures):
            capture.forget()
        self.captures.clear()

    def _meet(
        self, name: str, how: str, start: Callable[[], Any], *used: Tensor
    ) -> Work:
        """Start what all ranks of the group do together.

        Args:
            how: what they must agree on besides the name and the first tensor.
        """
        if _postponed(used):  # from now on ranks may count unlike numbers of calls
            self.count = max(self.count, COMPARED)
            return self._start(name, start, *used)
        self.count += 1
        if self.count <= COMPARED or self.backend == "gloo":
            uneven = name == "all_to_all_single"
            what = used[0].dtype.name if uneven else told(used[0]) if used else ""
            self.lately.append((self.count, f"{name}({what}{how}){self.about}"))
        if self.count <= COMPARED:
            self._compare(1)
        return self._start(name, start, *used, late=self._compare)

    def _compare(self, count: int = LATELY) -> None:
        """Raise a CannotGoOn unless others made our last calls as theirs of the same
        numbers. Who waits may have got through the one that differs, and others not."""
        for number, call in list(self.lately)[-count:]:
            self._agree(f"{self.handle.group_name} {number}", call)

    def _compare_parts(
        self, goes: bool, what: str, x: Tensor, sizes: Mapping[int, int]
    ) -> None:
        """Raise a CannotGoOn unless the ranks of `sizes` mean that as many elements go
        to them (or come from them). Else one that is too small is taken for a whole
        one, and one that is too large ends its receiver."""
        if _postponed([x]):
            self.parts = None  # from now on ranks may count unlike numbers of messages
        if (parts := self.parts) is None:
            return
        for peer, size in sizes.items():
            a, b = (self.me, peer) if goes else (peer, self.me)
            kind = f"{what} {a} {b}"
            parts[goes, kind] += 1
            number = parts[goes, kind]
            if number <= COMPARED:
                where = f"{self.handle.group_name} {kind} {number}"
                who = f"{what} {number} in the group: rank {a}", f"rank {b}"
                told_apart = partial(_unlike_parts, *who, goes)
                self._agree(where, f"{size} of {x.dtype.name}", told_apart)

    def _agree(
        self, where: str, call: str, unlike_here: Callable[..., str] = unlike_calls
    ) -> None:
        """Raise a CannotGoOn unless others left the same call at this place.

        Nobody waits: who comes first leaves a note, and the others read it.
        """
        with suppress(dist.DistError):  # the store has gone, as ranks do that are done
            note = self.store.compare_set(where, "", f"{self.me} {call}").decode()
            other, _, theirs = note.partition(" ")
            if theirs != call:
                self.store.set(UNLIKE, unlike_here(self.me, call, int(other), theirs))
            self._look()

    def _look(self) -> None:
        """Raise a CannotGoOn if ranks have found out about calls that differ."""
        if unlike := self._noted():
            # Work that was begun would be waited for when torch's group goes.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.handle))
            raise CannotGoOn(unlike)

    def _noted(self) -> str:
        """What ranks have found out about calls that differ."""
        with suppress(dist.DistError):
            if self.store.check([UNLIKE]):
                return self.store.get(UNLIKE).decode()
        return ""

    def _start(
        self,
        name: str,
        start: Callable[[], Any],
        *used: Tensor,
        late: Callable[[], None] | None = None,
    ) -> Work:
        """Start work on tensors of ours; `late` is called if it takes long."""
        first = used[0] if used else None
        noting = active.executor if _postponed(used) else None
        if noting is not None and not self.by_nccl(used[0]):
            needs_numbers(f"{name} by {self.backend}", used[0].raw)
        if not postponed():  # else CUDA must not be asked
            under_way = self.under_way
            if first is not None and self.by_nccl(first):  # one ends after the other
                while under_way and under_way[0].is_completed():
                    under_way.pop(0)
            else:
                self.under_way = [w for w in under_way if not w.is_completed()]
        theirs = self._run(name, name, start, first)
        if theirs is None:
            if noting is not None:
                self.captures.add(noting)
            return Work(lambda: None, lambda: True)
        wait = theirs.wait
        if late is not None and self.backend == "gloo":
            wait = partial(_wait, theirs, late, self.looks)

        def arrive() -> None:
            if noting not in (None, active.executor):
                return  # it was never begun: the capture was given up
            self._run(name, f"{name}: wait", wait, first)
            if name == ANYONE:
                here.sender = dist.get_group_rank(self.handle, theirs._source_rank())

        work = Work(arrive, _never if noting else theirs.is_completed, used)
        here = proxy(work)  # for `arrive`, which is part of it
        if noting is None:
            self.under_way.append(work)
        else:
            self.captures.add(noting)
            noting.end_behind(work.wait)
        return work

    def _run(self, name: str, label: str, run: Callable[[], Any], x: Any) -> Any:
        """`run()`, where torch works on our stream; an error says who had it, in
        what, and why if that is known."""
        try:
            if x is None or x.backend.host_memory:
                return observed(label, run)
            with on_our_stream(x):
                return observed(label, run)
        except CannotGoOn:
            raise
        except RuntimeError as error:
            why = self._noted() or "another rank has ended"
            raise CannotGoOn(
                f"{name}: rank {self.ranks[self.me]} of {dist.get_world_size()} cannot "
                f"go on; {self.backend} says: {error}. If a connection was closed or "
                f"the time is over: {why}"
            ) from error

    def _op(self, op: ReduceOp, x: Tensor) -> Any:
        sums = op is ReduceOp.AVG and not self.by_nccl(x)
        return OPS[ReduceOp.SUM if sums else op]

    def _averaged(self, work: Work, op: ReduceOp, x: Tensor) -> Work:
        """Gloo has no average: the sum, divided when it is there."""
        if op is not ReduceOp.AVG or self.by_nccl(x):
            return work

        def arrive() -> None:
            work.wait()
            x.detach().div_(self.size())

        return Work(arrive, work.is_completed, (x,))

    # ----------------------------------------------------------------- collectives

    def all_reduce(self, x: Tensor, op: ReduceOp, async_op: bool = True) -> Work:
        # What dist.all_reduce asks before is known: it takes as long as Gloo itself.
        how = _options(self._op(op, x), async_op or not self.by_nccl(x))
        run = lambda: self.handle.allreduce([lend(x)], how)
        return self._averaged(self._meet("all_reduce", f", {op.name}", run, x), op, x)

    def broadcast(self, x: Tensor, root: int) -> Work:
        run = lambda: dist.broadcast(lend(x), self.ranks[root], self.handle, True)
        return self._meet("broadcast", f", src={root}", run, x)

    def reduce(self, x: Tensor, root: int, op: ReduceOp) -> Work:
        to = self.ranks[root], self._op(op, x), self.handle, True
        how, run = f", dst={root}, {op.name}", lambda: dist.reduce(lend(x), *to)
        work = self._meet("reduce", how, run, x)
        return self._averaged(work, op, x) if root == self.me else work

    def all_gather(self, outs: Sequence[Tensor], x: Tensor) -> Work:
        run = lambda: dist.all_gather([*map(lend, outs)], lend(x), self.handle, True)
        return self._meet("all_gather", "", run, x, *outs)

    def all_gather_into(self, out: Tensor, x: Tensor) -> Work:
        gather = all_gather_single or dist.all_gather_into_tensor
        run = lambda: gather(lend(out), lend(x), self.handle, True)
        return self._meet("all_gather_into_tensor", "", run, x, out)

    def reduce_scatter(self, out: Tensor, x: Tensor, op: ReduceOp) -> Work:
        to = self._op(op, x), self.handle, True
        scatter = reduce_scatter_single or dist.reduce_scatter_tensor
        run = lambda: scatter(lend(out), lend(x), *to)
        work = self._meet("reduce_scatter_tensor", f", {op.name}", run, out, x)
        return self._averaged(work, op, out)

    def all_to_all(self, out: Tensor, x: Tensor, came: Splits, went: Splits) -> Work:
        to = list(came), list(went), self.handle, True
        run = lambda: dist.all_to_all_single(lend(out), lend(x), *to)
        for goes, sizes in ((True, went), (False, came)):
            self._compare_parts(goes, "all_to_all_single", x, dict(enumerate(sizes)))
        return self._meet("all_to_all_single", "", run, out, x)

    def scatter(self, out: Tensor, parts: Sequence[Tensor], root: int) -> Work:
        to = self.ranks[root], self.handle, True
        run = lambda: dist.scatter(lend(out), [*map(lend, parts)] or None, *to)
        return self._meet("scatter", f", src={root}", run, out, *parts)

    def gather(self, x: Tensor, outs: Sequence[Tensor], root: int) -> Work:
        to = self.ranks[root], self.handle, True
        run = lambda: dist.gather(lend(x), [*map(lend, outs)] or None, *to)
        return self._meet("gather", f", dst={root}", run, x, *outs)

    def barrier(self) -> Work:
        if postponed():  # the host waits, which no replay repeats
            needs_numbers("barrier()", zeros(1, device="cuda").raw)
        where: dict[str, Any] = {}
        if self.backend == "nccl":
            where["device_ids"] = [get_backend("cuda").current_index()]
            torch.cuda.set_device(where["device_ids"][0])
        run = lambda: dist.barrier(self.handle, async_op=True, **where)
        return self._meet("barrier", "", run)

    # -------------------------------------------------------------------- messages

    def _message(self, goes: bool, x: Tensor, peer: int, tag: int) -> None:
        """Compare a message with what its other end says; NCCL knows no tags."""
        what = "message" if self.by_nccl(x) else f"message of tag {tag},"
        self._compare_parts(goes, what, x, {peer: x.numel()})

    def send(self, x: Tensor, peer: int, tag: int) -> Work:
        run = lambda: dist.isend(lend(x), self.ranks[peer], self.handle, tag)
        self._message(True, x, peer, tag)
        return self._start("send", run, x, late=self._look)

    def receive(self, x: Tensor, peer: int | None, tag: int) -> Work:
        source = None if peer is None else self.ranks[peer]
        run = lambda: dist.irecv(lend(x), source, self.handle, tag)
        if peer is None:
            self.parts = None  # nobody knows whose count goes on
            return self._start(ANYONE, run, x, late=self._look)
        self._message(False, x, peer, tag)
        return self._start("recv", run, x, late=self._look)

    def batch(self, messages: Sequence[tuple[bool, Tensor, int, int]]) -> list[Work]:
        used = [x for _, x, _, _ in messages]
        name = "batch_isend_irecv"
        for goes, x, peer, tag in messages:
            self._message(goes, x, peer, tag)

        def start() -> Any:
            kinds = dist.irecv, dist.isend
            ops = [
                dist.P2POp(kinds[goes], lend(x), self.ranks[peer], self.handle, tag)
                for goes, x, peer, tag in messages
            ]
            return dist.batch_isend_irecv(ops)

        works = self._run(name, name, start, used[0])
        return [
            self._start(name, _itself(work), *used, late=self._look) for work in works
        ]


def _looked_for() -> float:
    """Nothing if ranks are more than cores, of which who looks would take one."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
    return LOOKED_FOR if here <= (os.cpu_count() or 1) else 0.0


def _wait(work: Any, late: Callable[[], None], looks: float) -> None:
    """Wait; if it takes long, find out whether others wait for something else.

    Gloo sleeps meanwhile, and where cores are shared with others a thread may be woken
    milliseconds late: so look for a while before, and let those run who have work.
    """
    end = time.perf_counter() + looks
    while not work.is_completed() and time.perf_counter() < end:
        let_others_run()
    while True:
        try:
            work.wait(PATIENCE)
            return
        except RuntimeError:
            if work.is_completed():  # the error is its own
                raise
        late()


def _unlike_parts(
    a: str, b: str, goes: bool, me: int, mine: str, other: int, theirs: str
) -> str:
    """What two ranks are told of a part whose ends mean unlike ones."""
    sent, wanted = (mine, theirs) if goes else (theirs, mine)
    return f"{a} sends {sent} to {b}, which expects {wanted}"


def _itself(work: Any) -> Callable[[], Any]:
    return lambda: work


meetings = iter(range(1_000_000))  # their numbers; all ranks begin as often


def start(backend: str | None, device_id: Any, **options: Any) -> TorchGroup:
    """Meet the other processes; the group of all of them."""
    if device_id is not None:
        name = f"cuda:{device_id}" if isinstance(device_id, int) else str(device_id)
        options["device_id"] = torch.device(name)
    limit = {key: options[key] for key in ("timeout",) if key in options}
    url, rank, size = (options.pop(k) for k in ("init_method", "rank", "world_size"))
    try:
        met = dist.rendezvous(url or ENV, rank, size, **limit)
        store, rank, size = next(met)
        # Nothing is to be found of a group before this one, nor of the ranks that
        # torchrun has ended: with its store alone, one would find their addresses.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}.{next(meetings)}", store)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, **options
        )
    except AssertionError as error:  # torch's word for arguments
        raise ValueError(
            f"init_process_group: backend is {backend!r}, rank {rank} of {size}; "
            f"torch says: {error}"
        ) from error
    except (dist.DistStoreError, dist.DistNetworkError) as error:
        raise RuntimeError(
            f"init_process_group: not all ranks came, or rank 0 was not found at its "
            f"address; start all of them, with torchrun say. torch says: {error}"
        ) from error
    handle, ranks = dist.group.WORLD, range(dist.get_world_size())
    return TorchGroup(handle, ranks, dist.get_backend(), store, limit)
