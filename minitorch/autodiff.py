"""Reverse-mode differentiation of any graph of operations.

With this file one can differentiate numerically (`central_difference`) and run
backpropagation (`backpropagate`) over a recorded graph. The same few lines serve
`Scalar`s, whose gradients are Python floats, and `Tensor`s, whose gradients are
tensors.

A graph is made of two kinds of things:

- a `Variable` is a value: a leaf that a user made, or the output of an operation;
- a `Node` is one recorded operation. Its `edges` say where the gradient of each of its
  inputs has to go: to the node that made that input, or to a leaf variable.

A node does not hold its input values (an operation saves those that its derivative
needs), so memory that the backward pass does not need is free as soon as the forward
pass has left it.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, chapter 3;
the structure of nodes and edges is PyTorch's (Paszke et al., 2017).
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any


# BEGIN SOLUTION a1.1
def central_difference(
    f: Callable[..., float], *values: float, arg: int = 0, epsilon: float = 1e-6
) -> float:
    """The derivative of `f` with respect to argument number `arg`, numerically.

    The error is O(epsilon^2).
    """
    # f'(x) is about (f(x + epsilon) - f(x - epsilon)) / (2 epsilon).
    above, below = list(values), list(values)
    above[arg] += epsilon
    below[arg] -= epsilon
    return (f(*above) - f(*below)) / (2.0 * epsilon)


# END SOLUTION a1.1


# ------------------------------------------------------------- recording on and off


# Both of what `grad_mode` says, for this thread: an operation asks once.
modes: ContextVar[tuple[Any, Any]] = ContextVar("modes", default=(True, None))


class _GradMode:
    """Whether operations are recorded; `minitorch/utils/checkpoint.py` has a true value
    of its own, which is told of each node. And who chooses the types of operations: the
    mode of `minitorch/amp/autocast.py`, or None."""

    @property
    def enabled(self) -> Any:
        return modes.get()[0]

    @enabled.setter
    def enabled(self, mode: Any) -> None:
        modes.set((mode, modes.get()[1]))

    @property
    def autocast(self) -> Any:
        return modes.get()[1]

    @autocast.setter
    def autocast(self, mode: Any) -> None:
        modes.set((modes.get()[0], mode))


grad_mode = _GradMode()


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return bool(grad_mode.enabled)


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode`, which sets 0, is why they are not (no_grad: False)."""
    return type(grad_mode.enabled) is int


class _Switch:
    """Set the mode for a `with` block or, as a decorator, for calls of a function."""

    mode: int

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Without brackets, as in `@no_grad`, what is given is the function."""
        if given and inspect.isroutine(given[0]):
            return cls()(given[0])
        return super().__new__(cls)

    def __init__(self) -> None:
        self.previous: list[int] = []

    def __enter__(self) -> None:
        before = grad_mode.enabled
        self.previous.append(before)
        if before or self.mode is not False:  # inference_mode goes on in no_grad
            grad_mode.enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        grad_mode.enabled = self.previous.pop()

    def __call__(self, fn: Callable) -> Callable:
        mode = self.mode

        @functools.wraps(fn)
        def each(*args: Any, **kwargs: Any) -> Any:
            """A generator, between whose steps the mode is its caller's."""
            steps, sent = fn(*args, **kwargs), None
            try:
                while True:
                    with set_grad_mode(mode):
                        item = steps.send(sent)
                    sent = yield item
            except StopIteration as end:
                return end.value
            finally:
                steps.close()

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with set_grad_mode(mode):
                return fn(*args, **kwargs)

        return each if inspect.isgeneratorfunction(fn) else call


class no_grad(_Switch):
    """Don't record: `with no_grad(): ...`, or `@no_grad` on a function."""

    mode = False


class enable_grad(_Switch):
    """Record again inside a `no_grad` block."""

    mode = True


class set_grad_mode(_Switch):
    """Record or not, as `mode` says, for a `with` block."""

    def __init__(self, mode: int) -> None:
        super().__init__()
        self.mode = mode


class inference_mode(set_grad_mode):
    """`no_grad` by the name that programs use which only predict.

    In PyTorch its tensors can never be recorded later; here they are as others are.
    """

    def __init__(self, mode: bool = True) -> None:
        super().__init__(0 if mode else True)


class set_grad_enabled(set_grad_mode):
    """Record or not: for a `with` block, or, called by itself, from here on."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self.before = grad_mode.enabled
        grad_mode.enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        grad_mode.enabled = self.before

    def __call__(self, fn: Callable) -> Callable:
        grad_mode.enabled = self.before  # as a decorator it changes nothing by itself
        return super().__call__(fn)


# ----------------------------------------------------------------------- the graph

Edge = tuple[Any, int]  # (a Node or a leaf Variable, which of the node's outputs)

numbers = itertools.count(1)  # of the nodes, in the order in which they are recorded


class Node:
    """One recorded operation.

    Attributes:
        edges: for each input, where its gradient goes; None for a constant.
        hooks: functions to call when the gradient of an output is complete.
        number: the next of `numbers` when this was recorded, so that it is larger than
            the number of every node that this one depends on.
    """

    __slots__ = ("__dict__", "__weakref__", "edges", "number")

    edges: Sequence[Edge | None]
    number: int
    hooks: dict[int, list[Callable]] | None = None

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        """Gradients of the inputs from the gradients of the outputs (chain rule)."""
        raise NotImplementedError

    def take(self, pending: dict[int, list[Any]]) -> None:
        """Take over gradients to which `backward_node` adds its own, and memory."""

    def release(self) -> None:
        """Drop what was saved for the backward pass."""


class Variable:
    """A value that may take part in a graph: a leaf, or an output of a node."""

    __slots__ = (
        "__weakref__",
        "_hooks",
        "_post_hooks",
        "grad",
        "node",
        "output_index",
        "requires_grad",
    )

    edges: tuple[()] = ()  # as the end of an edge, a leaf has none of its own
    grad: Any
    node: Node | None
    output_index: int
    requires_grad: bool
    _hooks: list[Callable] | None
    _post_hooks: list[Callable] | None

    @property
    def is_leaf(self) -> bool:
        """Whether a user made this, rather than a recorded operation."""
        return self.node is None

    def edge(self) -> Edge | None:
        """Where a gradient with respect to this has to go."""
        if not self.requires_grad:
            return None
        return (self, 0) if self.node is None else (self.node, self.output_index)

    def accumulate_grad(self, grad: Any, create_graph: bool) -> None:
        """Add `grad` to what the leaf has in `.grad`."""
        raise NotImplementedError


# BEGIN SOLUTION a1.4
def topological_sort(roots: Sequence[Any]) -> list[Any]:
    """All nodes and leaves below `roots`, each before everything that it depends on.

    Nodes come youngest first, which is the forward pass in reverse: an operation uses
    only what was made before it. A leaf comes right after the last node that uses it,
    when its gradient is complete, and not after the whole graph: what is to be done
    with the gradient, such as sending it to another machine, can start at once.

    Every edge is looked at twice; the numbers that are sorted lie in long runs.
    """
    nodes: dict[int, Any] = {}
    stack = [root for root in roots if root.edges]  # deep graphs: no recursion
    while stack:
        node = stack.pop()
        if node.number not in nodes:
            nodes[node.number] = node
            for edge in node.edges:
                if edge is not None and edge[0].edges:
                    stack.append(edge[0])
    order: list[Any] = []  # from its end: the oldest node first, its leaves before it
    placed: set[int] = set()
    for number in sorted(nodes):
        for edge in reversed(nodes[number].edges):
            if edge is not None and not edge[0].edges and id(edge[0]) not in placed:
                placed.add(id(edge[0]))
                order.append(edge[0])
        order.append(nodes[number])
    unused = {id(x): x for x in roots if not x.edges and id(x) not in placed}
    return [*unused.values(), *reversed(order)]


# END SOLUTION a1.4


def backpropagate(
    roots: Sequence[Variable],
    gradients: Sequence[Any],
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Variable] | None = None,
) -> list[Any] | None:
    """Send `gradients` from `roots` back through the graph.

    Args:
        roots: the variables to start from.
        gradients: the gradient of each root.
        retain_graph: keep saved tensors, so that the graph can be used again.
        create_graph: record the backward pass itself, for gradients of gradients.
        inputs: return the gradients of these variables (None for one that no root
            depends on) instead of adding to the `.grad` of the leaves.

    A node runs when the gradients of all its uses have arrived and been added up, and
    a leaf gets its gradient as soon as it is complete: this is what the topological
    order is for.
    """
    pending: dict[int, list[Any]] = {}
    mark_shared(gradients)
    start = [root.edge() for root in roots]
    for edge, gradient in zip(start, gradients):
        _add_gradient(pending, edge, gradient)
    order = topological_sort([edge[0] for edge in start if edge is not None])
    wanted = None if inputs is None else _wanted(order, inputs)
    results: dict[tuple[int, int], Any] = {}
    before = modes.set((create_graph, None))
    calls = _after.set([])
    try:
        for item in order:
            grads = pending.pop(id(item), None)
            if grads is None or (wanted and id(item) not in wanted[1]):
                continue
            grads = _run_hooks(item, grads)
            if item.edges and not create_graph and wanted is None:
                item.take(pending)
            if wanted is not None:
                for index, grad in enumerate(grads):
                    results[id(item), index] = grad
            # BEGIN SOLUTION a1.4
            if isinstance(item, Variable):
                if wanted is None:
                    item.accumulate_grad(grads[0], create_graph)
            elif wanted is None or id(item) in wanted[0]:
                for edge, grad in zip(item.edges, item.backward_node(grads)):
                    if edge is not None and grad is not None:
                        _add_gradient(pending, edge, grad)
                if not retain_graph:
                    item.release()
            # END SOLUTION a1.4
    finally:
        modes.reset(before)
        for call in _after.get():
            call()
        _after.reset(calls)
    return None if inputs is None else [_result(results, x) for x in inputs]


# What is to be called when the backward pass that runs has ended.
_after: ContextVar[list[Callable[[], Any]]] = ContextVar("after backward")


def call_after_backward(call: Callable[[], Any]) -> None:
    """From a hook: call `call` when this backward pass ends, also if it fails."""
    _after.get().append(call)


def _add_gradient(pending: dict[int, list[Any]], edge: Edge | None, grad: Any) -> None:
    """Add `grad` to what has arrived for output `edge[1]` of `edge[0]`."""
    # BEGIN SOLUTION a1.3
    if edge is None:
        return
    grads = pending.setdefault(id(edge[0]), [])
    while len(grads) <= edge[1]:
        grads.append(None)
    before = grads[edge[1]]
    grads[edge[1]] = grad if before is None else before + grad
    # END SOLUTION a1.3


def mark_shared(gradients: Iterable[Any]) -> None:
    """Say of gradients that somebody besides this backward pass may hold their memory.

    This is all that decides who owns it. A `.grad` is changed in place, by the next
    backward pass or by its user, so that it takes over the memory of the gradient that
    arrives only if nobody else has it; else it is a copy. An operation of the library
    returns new memory, or (a view of) what it was given, and a gradient is handed on
    only once. Thus shared are

    - the gradients that a backward pass starts with, which are its caller's;
    - those that a hook has seen or returned, because it may keep them;
    - those that a user's `Function` returned, for the same reason;
    - those that lie in one memory but go to several inputs, as both of a + b.
    """
    for grad in gradients:
        if isinstance(grad, Variable) and hasattr(grad, "raw"):  # else it is a number
            grad.raw.storage.shared = True


def _run_hooks(item: Any, grads: list[Any]) -> list[Any]:
    """Call the hooks of `item` with its complete gradients; they may replace them."""
    if isinstance(item, Variable):
        hooks = {0: item._hooks} if item._hooks else None
    else:
        hooks = item.hooks
    if not hooks:
        return grads
    for index, functions in hooks.items():
        for hook in tuple(functions):  # a hook may remove itself
            if index < len(grads) and grads[index] is not None:
                replacement = hook(grads[index])
                if replacement is not None:
                    _check_alike(grads[index], replacement)
                    grads[index] = replacement
                mark_shared([grads[index]])
    return grads


def _check_alike(given: Any, returned: Any) -> None:
    """A hook may replace a gradient by one of the same shape and type."""
    x, y = (getattr(grad, "raw", None) for grad in (given, returned))
    if x is not None and (y is None or x.shape != y.shape or x.dtype is not y.dtype):
        returned = returned if y is None else f"{y.dtype.name} {y.shape}"
        raise ValueError(
            f"hook: it was given {x.dtype.name} {x.shape}, and returned "
            f"{returned}; expected the same shape and type, or None"
        )


def _wanted(
    order: Sequence[Any], inputs: Sequence[Variable]
) -> tuple[set[int], set[int]]:
    """The items above an input, which must run, and those together with the inputs."""
    ends = {id(edge[0]) for edge in (x.edge() for x in inputs) if edge is not None}
    above: set[int] = set()
    both = set(ends)
    for item in reversed(order):
        if any(edge is not None and id(edge[0]) in both for edge in item.edges):
            above.add(id(item))
            both.add(id(item))
    return above, both


def _result(results: dict[tuple[int, int], Any], x: Variable) -> Any:
    edge = x.edge()
    return None if edge is None else results.get((id(edge[0]), edge[1]))
