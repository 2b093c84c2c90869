"""CUDA graphs: capture a training step once, then start all of it with one call.

With this file one can capture what a block of code does on the GPU, and replay it:

    x, y = minitorch.zeros(64, 784, device="cuda"), ...    # static inputs
    step()                                  # once as usual: compiles, makes the state
    g = minitorch.cuda.CUDAGraph()
    with minitorch.cuda.graph(g):
        loss = step()                       # noted, not done
    for images, labels in loader:
        x.copy_(images); y.copy_(labels)    # new numbers into the old memory
        g.replay()                          # loss has the new number

or leave all of that to `make_graphed_step`. Names are PyTorch's, but for the last one.

What the driver captures is a list of kernels with fixed arguments (`cuda_ops/graphs.py`
tells more). What must not stay fixed in a training step is looked after here:

- random numbers: the place in the generator's sequence is in device memory, and moves
  on at each replay, on the device and in `minitorch.default_generator`;
- optimizers: the number of steps and the learning rate are in device memory. A replay
  counts a step on both sides, and takes over a learning rate that was changed.

So a replay leaves everything as the same step without a graph would, to the last bit.

Source: the interface is PyTorch's (its documentation, "CUDA semantics", CUDA graphs).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from weakref import finalize

from minitorch.backend import get_backend
from minitorch.creation import Generator, default_generator
from minitorch.optim.optimizer import Group, Optimizer, watch, with_grad
from minitorch.tensor import Tensor


def graph_pool_handle() -> Any:
    """Memory that several graphs may share, if they never run at the same time, and
    nobody needs a graph's outputs after the next one has been replayed."""
    get_backend("cuda")
    from cuda_ops.graphs import Pool

    return Pool()


# ------------------------------------------------------------------- random numbers


class _Numbers:
    """The random numbers of a graph: `blocks` of the default generator's sequence."""

    def __init__(self) -> None:
        from cuda_ops.graphs import new_counter

        self.generator = default_generator
        self.seed, self.start = self.generator.seed, self.generator.offset
        self.blocks = 0
        self.base = (
            new_counter()
        )  # on the device: how far after `start` a replay begins
        self.at = 0  # what is in it

    def captured(self) -> None:
        """Let the graph end by moving on; called when everything else is captured."""
        from cuda_ops import random

        self.blocks = self.generator.offset - self.start
        if self.blocks:
            random.advance(self.base, self.blocks)

    def undo(self) -> None:
        """Nothing was drawn during the capture."""
        self.generator.offset = self.start

    def before_replay(self) -> None:
        """Let the replay begin where the generator is."""
        from cuda_ops.graphs import set_counter

        if not self.blocks:
            return
        if self.generator.seed != self.seed:
            raise RuntimeError(
                f"replay: the random numbers of this graph are those of seed "
                f"{self.seed}, and now the seed is {self.generator.seed}; capture the "
                f"step again after manual_seed"
            )
        at = self.generator.offset - self.start
        if at != self.at:
            set_counter(self.base, at)
        self.at = at + self.blocks
        self.generator.offset += self.blocks


# ----------------------------------------------------------------------- optimizers


class _Update:
    """The update of one parameter group in a graph.

    Attributes:
        before: what the optimizer remembered of each parameter before the capture.
        parts: for each captured launch its numbers on the device, and what the
            optimizer remembers of the parameters in it.
    """

    def __init__(self, optimizer: Optimizer, group: Group) -> None:
        self.optimizer = optimizer
        self.index = next(i for i, g in enumerate(optimizer.param_groups) if g is group)
        self.params = with_grad(group)
        self.storages = [p.raw.storage for p in self.params]
        self.options = _options(group)
        self.state = optimizer.state
        self.before = {p: dict(self.state[p]) for p in self.params if p in self.state}
        self.parts: list[tuple[Any, list[dict[str, Any]]]] = []

    def note(self, captured: list[Any]) -> None:
        """Find out what the launches need, after `update` has made them.

        Raises:
            CaptureError: replays would not do what steps do.
        """
        from cuda_ops.graphs import CaptureError

        name = type(self.optimizer).__name__
        if self.params and not captured:
            raise CaptureError(
                f"{name}.step() cannot be captured in a CUDA graph: its learning rate "
                f"would stand still; SGD, Adam and AdamW can. Leave step() out of the "
                f"captured block, and call it after each replay"
            )
        states = [self.state[p] for p in self.params if p in self.state]
        if any(len(self.state[p]) != len(self.before.get(p, ())) for p in self.params
               if p in self.state):  # fmt: skip
            raise CaptureError(
                f"{name}.step() cannot be captured in a CUDA graph as its first step, "
                f"which makes the optimizer's state: take one step before the capture"
            )
        for numbers in captured:
            mine = [s for s in states if s.get("step") == numbers.count + 1]
            self.parts.append((numbers, mine))

    def undo(self) -> None:
        """No step was taken during the capture."""
        for p in self.params:
            values = self.before.get(p)
            if values is None:
                self.state.pop(p, None)
            else:
                self.state[p].clear()
                self.state[p].update(values)

    def before_replay(self) -> None:
        """Take over what has changed since the last replay, or say why not."""
        group = self.optimizer.param_groups[self.index]
        if (
            self.optimizer.state is not self.state
            or any(p.raw.storage is not s for p, s in zip(self.params, self.storages))
            or _options(group) != self.options
        ):
            raise RuntimeError(
                f"replay: since the capture {type(self.optimizer).__name__} was given "
                f"other options than lr, or its parameters or its state are in other "
                f"memory (load_state_dict does that); capture the step again"
            )
        for numbers, states in self.parts:
            lr, count = group["lr"], states[0]["step"] if states else numbers.count
            if lr != numbers.lr:
                numbers.set(lr=lr)
            if count != numbers.count:
                numbers.set(count=count)

    def after_replay(self) -> None:
        """Count the step."""
        for numbers, states in self.parts:
            numbers.count += 1
            for state in states:
                state["step"] += 1


def _options(group: Group) -> dict[str, Any]:
    """What a captured update cannot change."""
    return {k: v for k, v in group.items() if k not in ("params", "lr", "initial_lr")}


class _Updates:
    """All updates of a graph, in order."""

    def __init__(self) -> None:
        self.all: list[_Update] = []
        self.taken: dict[Optimizer, int] = {}  # steps before the capture, then in it
        self.captured: list[Any] = []  # what `cuda_ops.optim` notes

    def __call__(self, optimizer: Optimizer, group: Group) -> None:
        """Do an update while the graph is captured; `watch.update`."""
        update = _Update(optimizer, group)
        self.all.append(update)
        self.taken.setdefault(optimizer, optimizer.steps_taken)
        done = len(self.captured)
        optimizer.update(group)
        update.note(self.captured[done:])

    def undo(self) -> None:
        """No step was taken during the capture."""
        watch.update = None
        for update in reversed(self.all):
            update.undo()
        for optimizer, before in self.taken.items():
            steps, optimizer.steps_taken = optimizer.steps_taken - before, before
            self.taken[optimizer] = steps

    def before_replay(self) -> None:
        """See `_Update`."""
        for update in self.all:
            update.before_replay()

    def after_replay(self) -> None:
        """See `_Update`."""
        for update in self.all:
            update.after_replay()
        for optimizer, steps in self.taken.items():
            optimizer.steps_taken += steps


# --------------------------------------------------------------------------- graphs


class CUDAGraph:
    """Work on the GPU, captured once and replayed with one call.

    Capture it with `graph`. A replay reads and writes the memory of the tensors that
    were captured, so `x.copy_(new)` gives it new input, and its outputs are replaced by
    the next replay. It must be kept as long as its outputs are used.
    """

    def __init__(self) -> None:
        get_backend("cuda")
        from cuda_ops.graphs import Graph

        self._graph = Graph()
        finalize(self, _destroy, self._graph).atexit = False
        self._pool: Any = None
        self._open: ExitStack | None = None
        self._numbers: Any = None
        self._updates = _Updates()
        self._ready = False

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels that a replay starts, in order."""
        return self._graph.names

    def capture_begin(self, pool: Any = None, stream: Any = None) -> None:
        """Note what is done from here on, instead of doing it.

        Args:
            pool: what `graph_pool_handle()` or another graph's `pool()` returned;
                None: memory of its own.
            stream: a `minitorch.cuda.Stream` to capture on; None: one for all graphs.
        """
        from cuda_ops import graphs, optim, random

        if self._ready or self._open is not None:
            raise RuntimeError("CUDAGraph: it holds a graph already; reset() it first")
        if not (pool is None or isinstance(pool, graphs.Pool)):
            raise TypeError(
                f"CUDAGraph: pool is a {type(pool).__name__}; expected what "
                f"graph_pool_handle() returns"
            )
        self._pool = pool or graphs.Pool()
        handle = graphs.side_stream() if stream is None else stream.handle
        numbers, self._updates = _Numbers(), _Updates()
        with ExitStack() as stack:
            stack.callback(numbers.undo)
            stack.callback(self._updates.undo)
            stack.enter_context(self._graph.capture(self._pool, handle))
            self._updates.captured = stack.enter_context(optim.capturing())
            stack.enter_context(random.counted_from(numbers.base))
            stack.callback(_draw_from, None)
            _draw_from(numbers.generator)
            watch.update = self._updates
            self._numbers, self._open = numbers, stack.pop_all()

    def capture_end(self) -> None:
        """End what `capture_begin` began; nothing has run until now."""
        if self._open is None:
            raise RuntimeError("CUDAGraph: capture_end() without capture_begin()")
        stack, self._open = self._open, None
        with stack:
            self._numbers.captured()
        for numbers in self._updates.captured:
            numbers.set()
        self._ready = True

    def capture_abandon(self, *error: Any) -> None:
        """End a capture that has failed; everything is as it was before."""
        if self._open is not None:
            stack, self._open = self._open, None
            stack.__exit__(*error)

    def replay(self) -> None:
        """Do again all that was captured, behind the work of the current stream."""
        if not self._ready:
            raise RuntimeError(
                "replay: this graph is empty; capture one with "
                "`with minitorch.cuda.graph(g):`"
            )
        from cuda_ops.runtime.device import not_in_graph

        not_in_graph("replaying a graph", "end the capture before")
        self._updates.before_replay()
        self._numbers.before_replay()
        self._graph.replay()
        self._updates.after_replay()

    def reset(self) -> None:
        """Forget the graph, and give its memory back as far as no tensor uses it."""
        self._graph.destroy()
        self._numbers, self._updates, self._pool = None, _Updates(), None
        self._ready = False

    def gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Parameters of captured optimizers, and where a replay leaves their .grad."""
        params = [p for update in self._updates.all for p in update.params]
        return [(p, p.grad) for p in params if p.grad is not None]

    def pool(self) -> Any:
        """The graph's memory, for another graph that may share it."""
        return self._pool


def _destroy(graph: Any) -> None:
    """Called when a `CUDAGraph` is gone, but not at the end of the program."""
    with suppress(RuntimeError):  # the device may be lost
        graph.destroy()


def _draw_from(generator: Generator | None) -> None:
    Generator.captured = generator


class graph:
    """Capture the work of a block: `with minitorch.cuda.graph(g):`.

    Nothing is computed in the block: outputs get their numbers by `g.replay()`. Run the
    same code once before, so that kernels are compiled and an optimizer's state exists.

    Args:
        cuda_graph: the `CUDAGraph` to capture into.
        pool, stream: see `CUDAGraph.capture_begin`.

    Raises:
        CaptureError: something that cannot be captured; the message says what to do.
            Random numbers and optimizers are then as they were before.
    """

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None
    ) -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(
                f"graph: got a {type(cuda_graph).__name__}; expected a CUDAGraph()"
            )
        self.cuda_graph = cuda_graph
        self.options = pool, stream

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin(*self.options)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.cuda_graph.capture_end()
        else:
            self.cuda_graph.capture_abandon(kind, error, traceback)


# ------------------------------------------------------------------- a training step


class GraphedStep:
    """A step that is captured when inputs of one kind come for the second time.

    The first inputs of a kind (shapes and dtypes) are worked on as usual: kernels are
    compiled, an optimizer makes its state. With the second the step is captured, and
    from then on replayed. Inputs of another kind, such as the last, smaller batch, are
    worked on without a graph; the results are the same.

    Attributes:
        graph: the `CUDAGraph`, None as long as nothing was captured.
    """

    def __init__(
        self, step: Callable[..., Any], refused: Callable[[str], None] | None
    ) -> None:
        self.graph: CUDAGraph | None = None
        self._step = step
        self._refused = refused
        self._seen: set[Any] = set()
        self._kind: Any = None
        self._inputs: list[Tensor] = []
        self._outputs: Any = None
        self._grads: list[tuple[Tensor, Tensor]] = []
        self._alone = True  # whether the last step was not a replay
        self._plain = _launches_are_waited_for()
        # Not `Tensor.copy_`: the host's time for a step is what a small network waits
        # for, and of one kind all inputs can be copied as they are.
        self._copy_into = get_backend("cuda").copy_into

    def __call__(self, *inputs: Tensor) -> Any:
        """What the step returns; tensors are overwritten by the next call."""
        kind = tuple([(x.raw.shape, x.dtype, x.device) for x in inputs])
        if self.graph is None and kind in self._seen and not self._plain:
            self._capture(kind, inputs)
        if self.graph is None or kind != self._kind:
            self._seen.add(kind)
            self._alone = True
            return self._step(*inputs)
        for static, x in zip(self._inputs, inputs):
            self._copy_into(static.raw, x.raw)
        self.graph.replay()
        if self._alone:  # .grad is what the other step left there
            for p, grad in self._grads:
                p.grad = grad
            self._alone = False
        return self._outputs

    def _capture(self, kind: Any, inputs: tuple[Tensor, ...]) -> None:
        from cuda_ops.graphs import CaptureError
        from cuda_ops.runtime.allocator import OutOfMemoryError

        made = CUDAGraph()
        static = [x.detach().clone() for x in inputs]
        try:
            with graph(made):
                outputs = self._step(*static)
        except (CaptureError, OutOfMemoryError) as error:
            self._plain = True
            if self._refused is None:
                raise
            self._refused(str(error))
            return
        self.graph, self._kind = made, kind
        self._inputs, self._outputs = static, outputs
        self._grads = made.gradients()


def _launches_are_waited_for() -> bool:
    """Whether CUDA_LAUNCH_BLOCKING asks for the name of each kernel that fails."""
    get_backend("cuda")
    from cuda_ops.runtime.device import BLOCKING

    return BLOCKING


def make_graphed_step(
    step: Callable[..., Any], refused: Callable[[str], None] | None = None
) -> GraphedStep:
    """`step(*tensors)` as a function that replays a CUDA graph from the third call on.

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = minitorch.cuda.make_graphed_step(step)

    Args:
        step: works on tensors on the device "cuda", and returns tensors or None. It
            must do the same work for all inputs of one shape.
        refused: called with the reason if the step cannot be captured; it then goes on
            without a graph. None: raise the `CaptureError`.
    """
    return GraphedStep(step, refused)


def is_device_error(error: BaseException) -> bool:
    """Whether the driver has reported `error`, after which the GPU may be lost."""
    get_backend("cuda")
    from cuda_ops.runtime.device import CudaError

    return isinstance(error, CudaError)
