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
tells more). What must not stay fixed passes the seam of `minitorch/executor.py`, where
`Capture` stands meanwhile:

- random numbers: the place in the generator's sequence is in device memory, and moves
  on at each replay, on the device and in `minitorch.default_generator`;
- optimizers: the number of steps and the learning rate are in device memory. A replay
  counts a step on both sides, and takes over a learning rate that was changed;
- reads of numbers by the host, which are not there before the replay, are refused.

So a replay leaves everything as the same step without a graph would, to the last bit.

Source: the interface is PyTorch's (its documentation, "CUDA semantics", CUDA graphs).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from weakref import finalize

from minitorch.backend import get_backend
from minitorch.dtypes import float32, promote
from minitorch.executor import (
    Executor,
    active,
    before_notes,
    executing,
    users_stack,
)
from minitorch.nn.utils import Clipped
from minitorch.optim.optimizer import Group, Optimizer, with_grad
from minitorch.random import default_generator
from minitorch.tensor import Tensor
from minitorch.tensor_data import TensorData


def graph_pool_handle() -> Any:
    """Memory that several graphs may share, if they never run at the same time, and
    nobody needs a graph's outputs after the next one has been replayed."""
    get_backend("cuda")
    from cuda_ops.graphs import Pool

    return Pool()


# ------------------------------------------------------- what a replay must refresh


def _refuse(text: str) -> NoReturn:
    from cuda_ops.runtime.device import CaptureError

    raise CaptureError(text)


# Functions of a backend whose learning rate and step number a graph can refresh.
STEPS = ("adam_step", "sgd_step")


class _Step:
    """A step of an optimizer in a graph.

    Attributes:
        params: with a gradient at the capture; `missing` are in no launch so far.
        before: what the optimizer remembered of each parameter before the capture.
        parts: for each captured launch its numbers on the device, the number of its
            group, and what the optimizer remembers of the parameters in it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.state = optimizer, optimizer.state
        self.params = [p for g in optimizer.param_groups for p in with_grad(g)]
        self.storages = [p.raw.storage for p in self.params]
        self.missing = set(self.params)
        self.options = list(map(_options, optimizer.param_groups))
        self.before = {p: dict(values) for p, values in self.state.items()}
        self.taken = optimizer.steps_taken
        self.parts: list[tuple[Any, int, list[dict[str, Any]]]] = []

    def numbers(self, params: list[TensorData], lr: float, step: int) -> Any:
        """Device memory for the learning rate and the number of a step on `params`."""
        from cuda_ops.optim import Captured

        dtype = promote(params[0].dtype, float32)  # in which the step is computed
        made, raws = Captured(lr, step - 1, dtype), set(map(id, params))
        mine = [p for p in self.params if id(p.raw) in raws]
        groups = enumerate(self.optimizer.param_groups)
        index = next(i for i, g in groups if any(p is mine[0] for p in g["params"]))
        self.missing -= set(mine)
        counted = [self.state[p] for p in mine if "step" in self.state[p]]
        self.parts.append((made, index, counted))
        return made

    def captured(self) -> None:
        """Raise a CaptureError if replays would not do what steps do."""
        name = f"{type(self.optimizer).__name__}.step() cannot be captured in a CUDA"
        if self.missing:
            _refuse(
                f"{name} graph: its learning rate would stand still; SGD, Adam and "
                f"AdamW can, with parameters on the GPU. Leave step() out of the "
                f"captured block, and call it after each replay"
            )
        if any(len(s) != len(self.before.get(p, ())) for p, s in self.state.items()):
            _refuse(
                f"{name} graph as its first step, which makes the optimizer's state: "
                f"take one step before the capture"
            )

    def undo(self) -> None:
        """No step was taken during the capture."""
        self.optimizer.steps_taken = self.taken
        for p, values in list(self.state.items()):
            values.clear()
            values.update(self.before.get(p, {}))
            if not values:
                del self.state[p]

    def check(self) -> None:
        """Raise a RuntimeError if what cannot be refreshed has changed."""
        if (
            self.optimizer.state is not self.state
            or any(p.raw.storage is not s for p, s in zip(self.params, self.storages))
            or list(map(_options, self.optimizer.param_groups)) != self.options
        ):
            raise RuntimeError(
                f"replay: since the capture {type(self.optimizer).__name__} was given "
                f"other options than lr, or its parameters or its state are in other "
                f"memory (load_state_dict does that); capture the step again"
            )

    def refresh(self) -> None:
        """Take over what has changed since the last replay, and count the step."""
        self.optimizer.steps_taken += 1
        for numbers, index, states in self.parts:
            lr = self.optimizer.param_groups[index]["lr"]
            if lr != numbers.lr:
                numbers.set(lr=lr)
            if states and states[0]["step"] != numbers.count:
                numbers.set(count=states[0]["step"])
            numbers.count += 1  # as the replay does on the device
            for state in states:
                state["step"] += 1


def _options(group: Group) -> dict[str, Any]:
    """What a captured step cannot change."""
    return {k: v for k, v in group.items() if k not in ("params", "lr", "initial_lr")}


class Capture(Executor):
    """Stands at the seam while a graph is captured, and refreshes what has to be.

    Attributes:
        steps: of optimizers, in order; `step` is the one that is being taken.
        blocks: how far a replay moves the default generator on.
        base: on the device: how far after `start` a replay begins; `at` is in it.
        clipped: gradients that nobody in the graph has multiplied by their factor.
        ends: what other streams do; the graph ends behind it.
        grads: of each parameter that a backward pass came to, what it had before.
    """

    postpones = True

    def __init__(self) -> None:
        from cuda_ops.graphs import new_counter

        self.steps: list[_Step] = []
        self.step: _Step | None = None
        self.clipped: list[Clipped] = []
        self.graph: Any = None
        self.ends: list[Callable[[], Any]] = []
        self.grads: dict[Tensor, Tensor | None] = {}
        self.seed, self.start = default_generator.seed, default_generator.offset
        self.base, self.at, self.blocks = new_counter(), 0, 0

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """Note what gradients were, before a backward pass adds to them."""
        for edge in getattr(args[0], "edges", ()) if args else ():
            if edge is not None and isinstance(edge[0], Tensor):
                self.grads.setdefault(edge[0], edge[0].grad)
        return run(*args)

    def read(self, name: str, fn: Callable[..., Any], a: TensorData) -> Any:
        """Refuse to read what is on the GPU."""
        if not a.device.startswith("cuda"):
            return fn(a)
        where = next(iter(users_stack()), "the library")
        return _refuse(
            f"reading numbers on the CPU cannot be captured in a CUDA graph: {name} "
            f"asks for those of a tensor of shape {a.shape}, at {where}. Nothing is "
            f"computed before the graph is replayed: keep the tensor, and read it "
            f"after g.replay()"
        )

    def advance(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """Note a step of an optimizer; the default generator may move on."""
        owner = getattr(run, "__self__", None)
        if isinstance(owner, Optimizer):
            self.step = _Step(owner)
            self.steps.append(self.step)
            run(*args)
            self.step.captured()
            self.step = None
            return None
        if isinstance(owner, Clipped):
            self.clipped.append(owner)
        elif owner is not default_generator or owner.sequence == "pytorch":
            raise RuntimeError(
                "random numbers in a CUDA graph come from the default generator, which "
                "moves on at each replay; leave out generator=, and use manual_seed, "
                'with sequence="philox"'
            )
        return run(*args)

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Let a step of an optimizer have its numbers from device memory."""
        if name not in STEPS or self.step is None:
            return fn(*args, **kwargs)
        given = inspect.signature(fn).bind(*args, **kwargs)
        x = given.arguments
        if not x["params"][0].device.startswith("cuda"):
            return None  # nothing is computed, and the step is refused
        x["lr"] = self.step.numbers(x["params"], x["lr"], x.get("step", 1))
        return fn(*given.args, **given.kwargs)

    @contextmanager
    def of(self, graph: Any, pool: Any, stream: Any) -> Iterator[None]:
        """Capture what the block does; nothing is drawn, and no step is taken."""
        from cuda_ops import random

        self.graph = graph
        for arrive in before_notes:
            arrive()
        try:
            with graph.capture(pool, stream), random.counted_from(self.base):
                with executing(self):
                    yield
                    for end in self.ends:
                        end()
                self.blocks = default_generator.offset - self.start
                if self.blocks:  # the graph ends by moving on
                    random.advance(self.base, self.blocks)
        except BaseException:  # nothing was computed, nor added
            for p, grad in self.grads.items():
                p.grad = grad
            raise
        finally:
            self.ends, self.grads = [], {}
            default_generator.offset = self.start
            for step in reversed(self.steps):
                step.undo()
        self.clipped = [grad for grad in self.clipped if grad.pending]
        for step in self.steps:
            for numbers, *_ in step.parts:
                numbers.set()

    def end_behind(self, wait: Callable[[], Any]) -> None:
        """Have the graph wait for that on its own stream, if nobody does before."""
        self.ends.append(wait)

    def forget(self) -> None:
        """Give the graph back; NCCL waits for that before a process group ends."""
        if self.graph is not None:  # else it was for another of its groups
            self.graph.destroy()
        self.graph = None

    def before_replay(self) -> None:
        """Let the replay begin where generator and optimizers are; move these on."""
        from cuda_ops.graphs import set_counter

        if self.graph is None:
            raise RuntimeError(
                "replay: this graph sends numbers to other ranks, in a process group "
                "that was destroyed; capture the step again, with the new group"
            )
        if self.blocks and default_generator.seed != self.seed:
            raise RuntimeError(
                f"replay: the random numbers of this graph are those of seed "
                f"{self.seed}, and now the seed is {default_generator.seed}; capture "
                f"the step again after manual_seed"
            )
        for step in self.steps:
            step.check()
        for step in self.steps:
            step.refresh()
        for grad in self.clipped:
            grad.forget()
        at = default_generator.offset - self.start
        if self.blocks and at != self.at:
            set_counter(self.base, at)
        self.at = at + self.blocks
        default_generator.offset += self.blocks


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
        self._open: tuple[Any, Capture] | None = None
        self._captured: Capture | None = None

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
        from cuda_ops import graphs
        from cuda_ops.runtime import device

        if self._captured is not None or self._open is not None:
            raise RuntimeError("CUDAGraph: it holds a graph already; reset() it first")
        if not (pool is None or isinstance(pool, graphs.Pool)):
            raise TypeError(
                f"CUDAGraph: pool is a {type(pool).__name__}; expected what "
                f"graph_pool_handle() returns"
            )
        self._pool = pool or graphs.Pool()
        side = device.current.gpu.side_stream
        handle = side if stream is None else stream.handle
        capture = Capture()
        block = capture.of(self._graph, self._pool, handle)
        block.__enter__()
        self._open = block, capture

    def capture_end(self, *error: Any) -> None:
        """End what `capture_begin` began; nothing has run until now.

        With an `error`, the three arguments of `__exit__`, nothing is kept.
        """
        from minitorch.cuda import current_stream

        if self._open is None:
            raise RuntimeError("CUDAGraph: capture_end() without capture_begin()")
        (block, capture), self._open = self._open, None
        block.__exit__(*(error or (None, None, None)))
        if not any(error):
            self._captured = capture
            # What was filled for replays is there then, on whichever stream they are.
            current_stream(self._graph.gpu.name).synchronize()

    def replay(self) -> None:
        """Do again all that was captured, behind the work of its GPU's stream."""
        if self._captured is None:
            raise RuntimeError(
                "replay: this graph is empty; capture one with "
                "`with minitorch.cuda.graph(g):`"
            )
        from cuda_ops.runtime.device import not_in_graph, on

        not_in_graph("replaying a graph", "end the capture before")
        with on(self._graph.gpu):
            self._captured.before_replay()
            self._graph.replay()

    def random_start(self) -> int | None:
        """Where, behind where its capture did, the last replay began to draw random
        numbers; None: it draws none."""
        capture = self._captured
        if capture is None or not capture.blocks:
            return None
        return capture.at - capture.blocks

    def reset(self) -> None:
        """Forget the graph, and give its memory back as far as no tensor uses it."""
        self._graph.destroy()
        self._captured = self._pool = None

    def gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Parameters of captured optimizers, and where a replay leaves their .grad."""
        steps = self._captured.steps if self._captured is not None else []
        params = [p for step in steps for p in step.params]
        return [(p, p.grad) for p in params if p.grad is not None]

    def pool(self) -> Any:
        """The graph's memory, for another graph that may share it."""
        return self._pool


def _destroy(graph: Any) -> None:
    """Called when a `CUDAGraph` is gone, but not at the end of the program."""
    with suppress(RuntimeError):  # the device may be lost
        graph.destroy()


class graph:
    """Capture the work of a block: `with minitorch.cuda.graph(g):`.

    Nothing is computed in the block: outputs get their numbers by `g.replay()`. Run the
    same code once before, so that kernels are compiled and an optimizer's state exists.

    Args:
        cuda_graph: the `CUDAGraph` to capture into.
        pool, stream: see `CUDAGraph.capture_begin`.

    Raises:
        CaptureError: something that cannot be captured; the message says what to do.
            Random numbers, optimizers and gradients are then as they were before.
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

    def __exit__(self, *error: Any) -> None:
        self.cuda_graph.capture_end(*error)


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

    def __call__(self, *inputs: Tensor) -> Any:
        """What the step returns; tensors are overwritten by the next call."""
        kind = tuple([(x.raw.shape, x.dtype, x.raw.device) for x in inputs])
        if self.graph is None and kind in self._seen and not self._plain:
            if active.executor is None:  # else it wants to see the step
                self._capture(kind, inputs)
        if self.graph is None or kind != self._kind:
            self._seen.add(kind)
            self._alone = True
            return self._step(*inputs)
        # Not `Tensor.copy_`: the host's time for a step is what a small network waits
        # for, and of one kind all inputs can be copied as they are.
        for static, x in zip(self._inputs, inputs):
            static.backend.copy_into(static.raw, x.raw)
        self.graph.replay()
        if self._alone:  # .grad is what the other step left there
            for p, grad in self._grads:
                p.grad = grad
            self._alone = False
        return self._outputs

    def _capture(self, kind: Any, inputs: tuple[Tensor, ...]) -> None:
        from cuda_ops.graphs import CaptureError
        from cuda_ops.runtime.allocator import OutOfMemoryError
        from minitorch.cuda import device

        static = [x.detach().clone() for x in inputs]
        made = CUDAGraph()
        try:
            with device(static[0].device if static else None), graph(made):
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
