"""Stages of a network on ranks, and what a schedule lets them do.

With this file one can train a network that is cut by layers:

    stage = PipelineStage(layers, rank, ranks, input_args=zeros(4, 128, 768))
    pipeline = Pipeline([stage], one_f_one_b(ranks, 8), loss_fn)
    loss = pipeline.step(inputs, targets)    # on the last rank; elsewhere None

All ranks may call `step` alike: the first stage takes the inputs, the last the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from minitorch.autodiff import backpropagate, grad_mode, no_grad
from minitorch.creation import empty, zeros
from minitorch.distributed.alike import give
from minitorch.distributed.collectives import (
    P2POp,
    all_reduce,
    batch_isend_irecv,
    irecv,
    isend,
    member,
)
from minitorch.distributed.group import ProcessGroup, Work
from minitorch.distributed.pipelining.schedules import (
    Action,
    Key,
    Message,
    Schedule,
    check,
    chunks_of,
    program,
)
from minitorch.dtypes import DType, computed
from minitorch.executor import active
from minitorch.functions.movement import stack
from minitorch.nn.containers import ModuleList
from minitorch.nn.module import Module
from minitorch.nn.parallel import DistributedDataParallel
from minitorch.nn.parameter import Parameter
from minitorch.nn.utils import clip_grads_with_norm_, common_norm
from minitorch.tensor import Tensor
from minitorch.utils.checkpoint import checkpoint


class Form(NamedTuple):
    """What a tensor is like, without its numbers."""

    shape: tuple[int, ...]
    dtype: DType
    device: str

    @classmethod
    def of(cls, x: Tensor) -> Form:
        return cls(tuple(x.shape), x.dtype, x.raw.device)

    def empty(self) -> Tensor:
        """Memory for such a tensor."""
        return empty(self.shape, dtype=self.dtype, device=self.device)


class End:
    """Where a graph ends, to start from in the backward pass, without the numbers: they
    are sent, and need not stay."""

    def __init__(self, x: Tensor) -> None:
        self.end = x.edge()

    def edge(self) -> Any:
        return self.end


class PipelineStage:
    """Some layers of a network, and the micro-batches that are on their way in them.

    Args:
        submodule: takes what the stage before returns, one tensor; the first stage
            takes a micro-batch.
        stage_index, num_stages: which stage of how many it is.
        input_args: a tensor of the shape, dtype and device of what comes from the stage
            before; not for the first stage.
        output_args: one like what goes to the next stage, to be checked; None: not.
        recompute: keep inputs only, and compute the stage again in its backward pass.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        *,
        input_args: Tensor | None = None,
        output_args: Tensor | None = None,
        recompute: bool = False,
    ) -> None:
        if stage_index > 0 and input_args is None:
            raise ValueError(
                f"PipelineStage: stage {stage_index} receives; give input_args, a "
                f"tensor like the micro-batches that come from the stage before"
            )
        self.submodule, self.recompute = submodule, recompute
        self.index, self.is_last = stage_index, stage_index == num_stages - 1
        self.takes = None if input_args is None else Form.of(input_args)
        self.gives = None if output_args is None else Form.of(output_args)
        self.makes: Form | None = None  # known when it has made one
        self.held: dict[int, tuple[Tensor, Any]] = {}

    def forward(
        self, microbatch: int, x: Tensor, end: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """`end` of what the layers make of x, held for the backward pass."""
        if self.index > 0:
            x.requires_grad_(bool(grad_mode.enabled))
        out = end(
            checkpoint(self.submodule, x) if self.recompute else self.submodule(x)
        )
        self.makes = Form.of(out)
        if self.gives not in (None, self.makes):  # Gloo would let it pass, or abort
            raise ValueError(
                f"PipelineStage: stage {self.index} made {self.makes}; expected "
                f"{self.gives}, as the next stage does"
            )
        if grad_mode.enabled:
            self.held[microbatch] = x, out if self.is_last else End(out)
        return out.detach()

    def backward(self, microbatch: int, grad: Tensor | None) -> Tensor | None:
        """The gradient of what came in, from that of what went out."""
        x, end = self.held.pop(microbatch)
        if grad is None:
            end.backward()
        else:
            backpropagate([end], [grad])
        return x.grad


class Pipeline:
    """Does what a schedule says.

    Args:
        stages: this rank's, in the order of chunks.
        schedule: for all ranks of the group.
        loss_fn: of the last stage's output and a micro-batch's targets.
        group: the ranks, in the order of stages; None: all ranks.
        shared: parameters that the first and the last stage both have, such as a table
            that is also the head; the two get the sum of their gradients. Give them on
            the first and on the last rank.
        count: from the targets of a batch, what the sum of its micro-batches' losses is
            divided by; None: the number of these, which makes it the mean.
        data: the ranks with the same stages and other rows. Their gradients are
            averaged (`DistributedDataParallel`) while the last micro-batch goes back.

    Attributes:
        module: this rank's stages, in a list.
        synced: whether the gradients of the last step were exchanged.
        before: of `shared`, the gradients that were exchanged before this step.

    Errors: ValueError for a schedule that cannot be done, or of other ranks or stages.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        schedule: Schedule,
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        group: ProcessGroup | None = None,
        shared: Sequence[Tensor] = (),
        count: Callable[[Tensor], Any] | None = None,
        data: ProcessGroup | None = None,
    ) -> None:
        found = member("Pipeline", group)
        assert found is not None
        ranks, chunks = len(schedule), chunks_of(schedule)
        mine = [chunk * ranks + found.rank() for chunk in range(chunks)]
        if ranks != found.size() or [stage.index for stage in stages] != mine:
            raise ValueError(
                f"Pipeline: the schedule has {ranks} ranks with {chunks} stage(s) "
                f"each, and the group {found.size()} ranks; expected stages {mine} "
                f"here, got {[stage.index for stage in stages]}"
            )
        check(schedule)
        self.group, self.stages, self.loss_fn = found, tuple(stages), loss_fn
        self.shared, self.ranks, self.count = tuple(shared), ranks, count
        self.module = ModuleList(stage.submodule for stage in stages)
        self.microbatches = 1 + max(action.microbatch for action in schedule[0])
        self.training = program(schedule, found.rank())
        self.ddp: Any = None
        if data and any(p.requires_grad for p in self.parameters()):
            self.ddp = DistributedDataParallel(self.module, process_group=data)
        elif data:
            give(self.parameters(), data)
        last = {a.chunk: a for a in schedule[found.rank()] if a.kind == "B"}
        self.sending, self.sync, self.synced = set(last.values()), True, True
        self.before: list[Tensor | None] = []
        forward = [[a for a in row if a.kind == "F"] for row in schedule]
        self.evaluating = program(forward, found.rank())

    def parameters(self) -> Iterator[Parameter]:
        """Those of this rank's stages, each once."""
        return self.module.parameters()

    @no_grad()
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """As `nn.utils.clip_grad_norm_`, of all ranks' gradients as one vector."""
        twice = 0 < self.group.rank() == self.ranks - 1  # the first rank counts these
        skipped = {id(p) for p in self.shared if twice}
        mine = [p for p in self.parameters() if p.grad is not None]
        counted = [p for p in mine if id(p) not in skipped]
        if counted:
            total = common_norm(counted).square()
        else:  # all of this rank's parameters are frozen
            like = next(self.parameters())
            total = zeros((), dtype=computed(like.dtype), device=like.raw.device)
        all_reduce(total, group=self.group)
        clip_grads_with_norm_(mine, max_norm, total.sqrt())
        return total.sqrt()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As `DistributedDataParallel.no_sync`, for the steps of a block."""
        self.sync = False
        try:
            yield
        finally:
            self.sync = True

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Gradients of the batch's loss are added to those of the parameters; under
        `no_grad` there is the loss alone.

        Args:
            inputs, targets: [batch, ...], cut into equal micro-batches.

        Returns:
            the loss, on the rank of the last stage.
        """
        n = self.microbatches
        for x in (inputs, targets):
            if x.shape[0] % n:
                raise ValueError(
                    f"Pipeline: the batch has {x.shape[0]} rows and the schedule "
                    f"{n} micro-batches; expected a multiple of {n}"
                )
        if grad_mode.enabled:
            self._begin()
        count = n if self.count is None else self.count(targets)
        run = Run(self, inputs.chunk(n), targets.chunk(n), count)
        for event in self.training if grad_mode.enabled else self.evaluating:
            if isinstance(event, Message):
                run.message(event)
            elif active.executor is None:
                run.act(event)
            else:  # a profiler shows what was done when
                name = f"{event.kind} {event.microbatch}"
                active.executor.operation(name, run.act, (event,))
        run.finish()
        if grad_mode.enabled and self.sync:
            self._add_up_shared()
        return stack(run.losses).sum() if run.losses else None

    def _begin(self) -> None:
        """Put aside what was exchanged; what was not adds up with what comes."""
        if self.synced:
            self.before = [p.grad for p in self.shared]
            for p in self.shared:
                p.grad = None
        self.synced = self.sync
        if self.ddp is not None and self.sync:
            self.ddp.reducer.begin()

    def _add_up_shared(self) -> None:
        """First and last rank tell each other the gradients of what both have."""
        me, last = self.group.rank(), self.ranks - 1
        for p, old in zip(self.shared, self.before):
            if p.grad is not None and me in (0, last) and last > 0:
                theirs, peer = p.grad.clone(), self.group.ranks[last - me]
                ops = [
                    P2POp(isend, p.grad.contiguous(), peer, self.group),
                    P2POp(irecv, theirs, peer, self.group),
                ]
                for work in batch_isend_irecv(ops):
                    work.wait()
                p.grad = p.grad + theirs
            if old is not None:
                p.grad = old if p.grad is None else p.grad + old


class Run:
    """One batch on its way through the stages of this rank.

    Attributes:
        ready: what stages of this rank made, for whoever needs it.
        coming: what was asked of other ranks.
        sent: the last message of each kind, which may still be read.
    """

    def __init__(
        self, pipeline: Pipeline, inputs: Any, targets: Any, count: Any
    ) -> None:
        self.pipeline, self.inputs, self.targets = pipeline, inputs, targets
        self.count, self.losses = count, list[Tensor]()
        self.ready: dict[Key, Tensor] = {}
        self.coming: dict[Key, tuple[Work | None, Tensor]] = {}
        self.sent: dict[str, tuple[Work | None, Tensor]] = {}

    def message(self, message: Message) -> None:
        """Send what a stage made, or ask for what it will need."""
        kind, stage, microbatch, source, target = message
        group, key = self.pipeline.group, (kind, stage, microbatch)
        if source == group.rank():
            self._wait_until_sent(kind)
            x = self.ready.pop(key).contiguous()
            self.sent[kind] = isend(x, group.ranks[target], group), x
        else:
            mine = self.pipeline.stages[stage // self.pipeline.ranks]
            form = mine.takes if kind == "F" else mine.makes
            assert form is not None
            x = form.empty()
            self.coming[key] = irecv(x, group.ranks[source], group), x

    def _wait_until_sent(self, kind: str) -> None:
        work, _ = self.sent.pop(kind, (None, None))
        if work is not None:
            work.wait()

    def _take(self, key: Key) -> Tensor:
        if key in self.coming:
            work, x = self.coming.pop(key)
            assert work is not None
            work.wait()
            return x
        return self.ready.pop(key)

    def act(self, action: Action) -> None:
        """One pass of a micro-batch through a stage."""
        kind, chunk, i = action
        stage = self.pipeline.stages[chunk]
        if kind == "F":
            x = self._take(("F", stage.index, i)) if stage.index else self.inputs[i]
            end = self._loss_of(i) if stage.is_last else _as_it_is
            out = stage.forward(i, x, end)
            if stage.is_last:
                self.losses.append(out)
            else:
                self.ready["F", stage.index + 1, i] = out
        else:
            grad = None if stage.is_last else self._take(("B", stage.index, i))
            if self.pipeline.ddp is not None:
                sends = self.pipeline.sync and action in self.pipeline.sending
                self.pipeline.ddp.reducer.enabled = sends
            below = stage.backward(i, grad)
            if stage.index > 0:
                assert below is not None
                self.ready["B", stage.index - 1, i] = below

    def _loss_of(self, i: int) -> Callable[[Tensor], Tensor]:
        return lambda out: self.pipeline.loss_fn(out, self.targets[i]) / self.count

    def finish(self) -> None:
        """Wait until all messages are read."""
        for kind in tuple(self.sent):
            self._wait_until_sent(kind)


def _as_it_is(x: Tensor) -> Tensor:
    return x
