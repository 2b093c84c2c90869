"""Gradients of all ranks become their average, while the backward pass goes on.

With this file one can see how that is done without waiting: gradients are put into
buckets, in the order in which they come, and a bucket is sent when it is full.

    backward pass   grad 9   grad 8   grad 7   grad 6   grad 5  ...  grad 0
    buckets         [  9        8  ]  [  7        6        5 ]  ...  [ 1  0 ]
    all-reduce                   ---------->            ------------->    ------>

Each gradient has a place in its bucket. Weights' gradients, nearly all of the bytes,
are written there by the operation that makes them (`Parameter.home`); the others are
copied when all of a bucket have come. The places are `.grad` from then on. All ranks
send their buckets in the same order: one that is full too early waits for its turn.
When the last is sent, the others are waited for, and for the last one by whoever first
looks at a gradient in it: an optimizer takes the step of all other parameters before.

Sums take multiprocessors from what computes meanwhile. Where a backward pass is long
beside them, all but the last two buckets go by `ProcessGroup.beside`: slowly, by few.

Source: Li et al., "PyTorch Distributed: Experiences on accelerating data parallel
training", 2020.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from minitorch.autodiff import Variable, no_grad, topological_sort
from minitorch.creation import tensor, zeros
from minitorch.distributed import ProcessGroup, ReduceOp, Work, all_reduce, broadcast
from minitorch.distributed.group import Future
from minitorch.dtypes import int64
from minitorch.executor import needs_numbers, postponed
from minitorch.nn.parameter import Parameter
from minitorch.nn.utils import Coming
from minitorch.tensor import Tensor

FIRST_BYTES = 2**20  # the first bucket is small, so that sending starts early
ALIGNED = 64  # bytes at whose multiples gradients begin: kernels read 16 at a time
# A backward pass takes 4 operations for each parameter and row, 10 fs at 400 TFLOP/s; a
# gradient in float32 travels 6 bytes, 61 ps at 98 GB/s. So 6,100 rows hide slow sums.
MANY_ROWS = 8192


class Bucket:
    """Some gradients that are sent together.

    Attributes:
        members: the numbers of their parameters.
        flat: all their numbers.
        places: of each, its part of `flat`, in the parameter's shape; see `Coming`.
        missing: those that have not come.
        work: what was sent, until it was waited for; `left`: for others to wait for.
        number, last: its place among the buckets.
    """

    def __init__(self, members: Sequence[int], parameters: Sequence[Parameter]) -> None:
        self.members, self.missing = tuple(members), set(members)
        self.work: Work | Future | None = None
        self.left: Work | Future | None = None
        self.number, self.last = 0, False
        self.of = [parameters[i] for i in members]
        starts, end = [], 0
        for i in self.members:
            starts.append(end)
            end += _padded(parameters[i])
        first = parameters[self.members[0]]
        self.flat = zeros(end, dtype=first.dtype, device=first.raw.device)
        self.places = {
            i: Coming(
                self.flat[start : start + parameters[i].numel()]
                .view(parameters[i].shape)
                .raw
            )
            for i, start in zip(self.members, starts)
        }

    def leave(self) -> None:
        """Let whoever asks for one of the gradients wait for them."""
        for place in self.places.values():
            place.work = self.work
        self.left, self.work = self.work, Future(lambda: self.flat)

    def arrive(self) -> None:
        """Wait for what was left, if nobody did."""
        if self.left is not None:
            self.left.wait()
            self.left = None

    # What hooks may ask, by PyTorch's names for a GradBucket.

    def index(self) -> int:
        """Its number; the last layers' bucket is 0."""
        return self.number

    def is_last(self) -> bool:
        """Whether it is the last of a backward pass."""
        return self.last

    def buffer(self) -> Tensor:
        """All its gradients as one vector, with zeros between them."""
        return self.flat

    def set_buffer(self, buffer: Tensor) -> None:
        """Give all gradients other numbers."""
        if buffer.raw is not self.flat.raw:
            self.flat.copy_(buffer)

    def gradients(self) -> list[Tensor]:
        """The gradients, which are views of the buffer."""
        return list(self.places.values())

    def parameters(self) -> list[Parameter]:
        """Their parameters."""
        return self.of


def _padded(parameter: Tensor) -> int:
    """Elements from its beginning to that of the next."""
    step = ALIGNED // parameter.element_size()
    return -(-parameter.numel() // step) * step


def divide(
    order: Iterable[int], parameters: Sequence[Parameter], limit: int
) -> list[list[int]]:
    """The numbers of `order` in buckets of at most `limit` bytes (or one parameter),
    the first of FIRST_BYTES; those of one bucket have one dtype and one device."""
    # BEGIN SOLUTION a13.2
    closed: list[list[int]] = []
    open_ones: dict[Any, tuple[list[int], int]] = {}
    for i in order:
        p = parameters[i]
        kind, size = (p.dtype, p.device), p.numel() * p.element_size()
        members, nbytes = open_ones.pop(kind, ([], 0))
        cap = limit if closed else min(limit, FIRST_BYTES)
        if members and nbytes + size > cap:
            closed.append(members)
            members, nbytes = [], 0
        open_ones[kind] = [*members, i], nbytes + size
    return closed + [members for members, _ in open_ones.values()]
    # END SOLUTION a13.2


class Reducer:
    """Averages gradients over the ranks of a group.

    Args:
        names, parameters: what is learned, in the order of all ranks' models.
        limit: bytes of a bucket.
        find_unused: look in each graph for parameters that get no gradient.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Parameter],
        group: ProcessGroup,
        limit: int,
        find_unused: bool,
    ) -> None:
        self.names, self.parameters, self.group = names, parameters, group
        self.limit, self.find_unused = limit, find_unused
        self.enabled = True  # False: gradients stay on their rank
        self.hook: Callable[[Bucket], Future] | None = None  # sends, if not `_send`
        self.came: list[int] = []  # in this backward pass, in order
        self.unused: set[int] = set()  # in this graph
        self.settled = find_unused  # the order in which gradients come is known
        self.postponed = False  # this backward pass is captured in a CUDA graph
        self.beside = group  # sends all but the last two buckets
        self.rows = 0  # of the inputs; ids count each
        self._make_buckets(reversed(range(len(parameters))))
        for i, p in enumerate(parameters):
            hook = partial(_tell, weakref.ref(self), i)
            p.register_post_accumulate_grad_hook(hook)

    def __deepcopy__(self, memo: dict[int, Any]) -> Reducer:
        """One for a copy of the model, whose gradients have buckets of their own."""
        parameters = deepcopy(self.parameters, memo)
        copy = Reducer(self.names, parameters, self.group, self.limit, self.find_unused)
        copy.hook = deepcopy(self.hook, memo)
        return copy

    @no_grad()
    def _make_buckets(self, order: Iterable[int]) -> None:
        divided = divide(order, self.parameters, self.limit)
        self.buckets = [Bucket(members, self.parameters) for members in divided]
        self.bucket_of = {i: b for b in self.buckets for i in b.members}
        for number, bucket in enumerate(self.buckets):
            bucket.number, bucket.last = number, bucket is self.buckets[-1]
        for i in self.bucket_of:
            self._offer(i)
        self._start_over()

    def _offer(self, i: int) -> None:
        """Let the next gradient of parameter i be written where it is sent from."""
        self.parameters[i].home = weakref.ref(self.bucket_of[i].places[i])

    def _start_over(self) -> None:
        self.came, self.sent = [], 0
        for bucket in self.buckets:
            bucket.missing, bucket.work = set(bucket.members), None

    # ------------------------------------------------------------ before and after

    def begin(self, rows: int = 0) -> None:
        """A forward pass of so many rows begins, whose gradients are to be averaged.

        Raises:
            RuntimeError: some gradients of the last backward pass have not come.
        """
        if self.came and self.postponed:
            self._start_over()  # the capture was given up
        self.buckets[-1].arrive()
        self.rows = rows
        self.postponed = postponed()
        self.settled = self.settled or self.postponed  # a graph keeps its buckets
        if self.find_unused:
            needs_numbers("find_unused_parameters", self.buckets[0].flat.raw)
        if self.came:
            missing = [n for i, n in enumerate(self.names) if i not in set(self.came)]
            raise RuntimeError(
                f"DistributedDataParallel: the last backward pass on rank "
                f"{self.group.rank()} brought no gradient of {', '.join(missing)}, and "
                f"the other ranks may wait for them; pass find_unused_parameters=True, "
                f"or use all parameters in the loss"
            )

    def look_at(self, outputs: Iterable[Tensor]) -> None:
        """Find the parameters that the outputs of a forward pass don't depend on."""
        if self.find_unused:
            ends = [edge[0] for edge in (x.edge() for x in outputs) if edge is not None]
            used = {id(x) for x in topological_sort(ends) if isinstance(x, Variable)}
            every = enumerate(self.parameters)
            self.unused = {i for i, p in every if id(p) not in used}

    # ------------------------------------------------------ during a backward pass

    def _hook(self, i: int) -> None:
        """The gradient of parameter i has come."""
        if not self.came:
            for j in sorted(self.unused):
                self._ready(j)
        self._offer(i)
        self._ready(i)
        if len(self.came) == len(self.parameters):
            self._finish()

    def _ready(self, i: int) -> None:
        bucket = self.bucket_of[i]
        if i not in bucket.missing:
            raise RuntimeError(
                f"DistributedDataParallel: a second gradient of {self.names[i]} came "
                f"before all others had come; make one backward pass for each forward "
                f"pass, or put all but the last under no_sync()"
            )
        self._check(bucket, i)
        # BEGIN SOLUTION a13.2
        bucket.missing.discard(i)
        self.came.append(i)
        if not bucket.missing:
            self._fill(bucket)
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
            self._send(self.buckets[self.sent])
            self.sent += 1
        # END SOLUTION a13.2

    def _check(self, bucket: Bucket, i: int) -> None:
        """Raise a RuntimeError for a parameter that is another than at first."""
        p, place = self.parameters[i], bucket.places[i]
        if p.dtype is not place.dtype or p.raw.device != place.raw.device:
            raise RuntimeError(
                f"DistributedDataParallel: {self.names[i]} is {p.dtype.name} on "
                f"{str(p.device)!r}, and was {place.dtype.name} on "
                f"{str(place.device)!r} when the model was wrapped; convert or move a "
                f"module before that"
            )

    def _fill(self, bucket: Bucket) -> None:
        """Put gradients into their places, unless they are there."""
        # BEGIN SOLUTION a13.2
        places, grads = [], []
        for i, place in bucket.places.items():
            p = self.parameters[i]
            if p.grad is None:
                place.zero_()
            elif p.grad.raw is not place.raw:
                places.append(place.raw)
                grads.append(p.grad.raw)
            if i not in self.unused:
                p.grad = place
        bucket.flat.backend.copy_all(places, grads)
        # END SOLUTION a13.2

    @no_grad()
    def _send(self, bucket: Bucket) -> None:
        if self.hook is not None:
            bucket.work = self.hook(bucket)
            return
        ends = bucket.number >= len(self.buckets) - 2
        group = self.group if ends else self.beside
        # BEGIN SOLUTION a13.2
        bucket.work = all_reduce(bucket.flat, ReduceOp.AVG, group, async_op=True)
        # END SOLUTION a13.2

    @no_grad()
    def shadow(self) -> None:
        """Take part in a backward pass of the others, with gradients of 0."""
        for bucket in self.buckets:
            bucket.flat.zero_()
            self._send(bucket)
        self.came = [i for bucket in self.buckets for i in bucket.members]
        self.unused = set(self.came)
        self._finish(shadow=True)
        self.unused = set()

    @no_grad()
    def _finish(self, shadow: bool = False) -> None:
        """All are sent: wait for them, but for the last, if nobody looks at it now."""
        used_somewhere = self._used_somewhere(shadow) if self.find_unused else set()
        if self.settled and not (self.hook or self.find_unused or shadow):
            self.buckets[-1].leave()
        # BEGIN SOLUTION a13.2
        for bucket in self.buckets:
            assert bucket.work is not None
            result: Any = bucket.work.wait()
            if self.hook is not None:
                bucket.set_buffer(result)
        # END SOLUTION a13.2
        for i in self.unused & used_somewhere:
            self.parameters[i].grad = self.bucket_of[i].places[i]
        if not self.settled:
            self._settle()
        self._start_over()

    def _settle(self) -> None:
        """Make buckets again, as gradients came on rank 0, and move them there."""
        self.settled = True
        device = self.buckets[0].flat.raw.device
        found = tensor([*self.came, self.rows], dtype=int64, device=device)
        broadcast(found, self.group.ranks[0], self.group)
        *order, rows = found.tolist()
        if rows >= MANY_ROWS and self.hook is None:
            self.beside = self.group.beside()
            # So that it is ready: no graph can connect it.
            broadcast(found, self.group.ranks[0], self.beside)
        self._make_buckets(order)
        for bucket in self.buckets:
            self._fill(bucket)

    def _used_somewhere(self, shadow: bool) -> set[int]:
        """The parameters that have a gradient on any rank; the others get none."""
        have = [int(p.grad is not None and not shadow) for p in self.parameters]
        device = self.buckets[0].flat.raw.device
        votes = tensor(have, dtype=int64, device=device)
        all_reduce(votes, ReduceOp.MAX, self.group)
        return {i for i, vote in enumerate(votes.tolist()) if vote}


def _tell(reducer: weakref.ref[Reducer], i: int, parameter: Tensor) -> None:
    """The hook of parameter i, which does not keep the reducer alive."""
    found = reducer()
    if found is not None and found.enabled:
        found._hook(i)
