"""What a1 runs in the student's process: derivatives of scalars, and a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

# ---------------------------------------------------------------- central difference

SMOOTH: dict[str, Callable[..., float]] = {
    "identity": lambda x: x,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "product": lambda x, y: x * y,
    "mixed": lambda x, y, z: x * y * y + z * z * z - 2.0 * x,
}


def difference(
    device: str, fn: str, values: Sequence[float], arg: int
) -> dict[str, Any]:
    """`central_difference` with its own epsilon."""
    from minitorch.autodiff import central_difference

    return {"slope": central_difference(SMOOTH[fn], *values, arg=arg)}


def wide_difference(
    device: str, fn: str, values: Sequence[float], arg: int, epsilon: float
) -> dict[str, Any]:
    """`central_difference` with a given epsilon, and where it calls the function."""
    from minitorch.autodiff import central_difference

    seen = []

    def watched(*xs: float) -> float:
        seen.append(list(xs))
        return SMOOTH[fn](*xs)

    slope = central_difference(watched, *values, arg=arg, epsilon=epsilon)
    return {"slope": slope, "points": sorted(seen)}


# ------------------------------------------------------------------ scalar functions


def function(
    device: str, name: str, xs: Sequence[float], d_out: float
) -> dict[str, Any]:
    """forward and backward of one ScalarFunction, called by themselves."""
    from minitorch import scalar

    cls = vars(scalar)[name]
    ctx = scalar.ScalarContext(cls)
    out = cls.forward(ctx, *xs)
    grads = cls.backward(ctx, d_out)
    grads = grads if isinstance(grads, tuple) else (grads,)
    return {"out": float(out), "grads": [float(g) for g in grads]}


# ----------------------------------------------------------------------- expressions
#
# A program is a list of (operation, i, j): value number n is the operation on values
# i and j; the first values are the leaves. It runs on our Scalars and on torch's
# tensors alike.

Program = Sequence[Sequence[Any]]

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
    "times two": lambda x, y: x * 2.0,
    "one minus": lambda x, y: 1.0 - x,
    "sigmoid": lambda x, y: x.sigmoid(),
    "tanh": lambda x, y: x.tanh(),
}


def run_program(leaves: Sequence[Any], program: Program) -> Any:
    """The last value."""
    values = list(leaves)
    for operation, i, j in program:
        values.append(OPERATIONS[operation](values[i], values[j]))
    return values[-1]


def gradients(
    device: str, xs: Sequence[float], constant: Sequence[bool], program: Program
) -> dict[str, Any]:
    """The gradients of a program's leaves, None for those that are constant.

    xs are the first values; each [operation, i, j] makes the next, of values i and j.
    """
    from minitorch.scalar import Scalar

    leaves = [Scalar(x, requires_grad=not c) for x, c in zip(xs, constant)]
    out = run_program(leaves, program)
    if out.requires_grad:
        out.backward()
    return {
        "out": out.data,
        "grads": [leaf.grad for leaf in leaves],
        "recorded": out.requires_grad,
    }


def recording(device: str, x: float, y: float) -> dict[str, Any]:
    """What `apply` records: edges, and nothing where nothing is wanted."""
    from minitorch.autodiff import no_grad
    from minitorch.scalar import Mul, Scalar

    a: Any = Scalar(x)
    b: Any = Scalar(y)
    out: Any
    half: Any
    out, half, none = Mul.apply(a, b), Mul.apply(2.0, b), Mul.apply(2.0, y)
    with no_grad():
        off = Mul.apply(a, b)
    return {
        "edges": [edge[0] is leaf for edge, leaf in zip(out.node.edges, (a, b))],
        "half": [edge is None for edge in half.node.edges],
        "recorded": [v.requires_grad for v in (out, half, none, off)],
        "nodes": [v.node is None for v in (out, half, none, off)],
        "values": [v.data for v in (out, half, none, off)],
        "gradients": [float(g) for g in out.node.backward_node([3.0])],
        "of one": [float(g) for g in (-a).node.backward_node([3.0])],
    }


def arrivals(device: str, steps: Sequence[tuple[int, int, float]]) -> dict[str, Any]:
    """`_add_gradient`: what has arrived for each item (number -1: no edge)."""
    from minitorch.autodiff import _add_gradient

    items = [object() for _ in range(3)]
    pending: dict[int, list[Any]] = {}
    for number, index, grad in steps:
        edge = None if number < 0 else (items[number], index)
        _add_gradient(pending, edge, grad)  # type: ignore[arg-type]
    return {"arrived": [pending.get(id(item)) for item in items]}


# ------------------------------------------------------------------ topological sort


def order(device: str, parents: Sequence[Sequence[int]]) -> dict[str, Any]:
    """`topological_sort` of a graph: node n depends on nodes parents[n] (-1: None)."""
    from minitorch.autodiff import Node, topological_sort
    from minitorch.scalar import Scalar

    items: list[Any] = []
    for n, below in enumerate(parents):
        if below:
            node = Node()
            node.number = n
            node.edges = tuple(None if p < 0 else (items[p], 0) for p in below)
        items.append(node if below else Scalar(0.0))  # equal, but not the same
    found = topological_sort([items[-1]])
    number = {id(item): n for n, item in enumerate(items)}
    place = {number[id(item)]: at for at, item in enumerate(found)}
    early = [
        [n, p] for n in place for p in parents[n] if p >= 0 and place[n] > place[p]
    ]
    return {
        "nodes": sorted(number[id(item)] for item in found),
        "in the wrong order": early,
        "leaves that wait": [
            number[id(item)] for item in found if not item.edges and _waits(item, found)
        ],
    }


def _waits(leaf: Any, found: Sequence[Any]) -> bool:
    """Whether there are nodes between a leaf and the last node that uses it."""
    at = [item is leaf for item in found].index(True)
    uses = [any(e and e[0] is leaf for e in item.edges) for item in found[:at]]
    between = uses[::-1].index(True) if True in uses else 0
    return any(item.edges for item in found[at - between : at])


def leaves_on_the_way(device: str, uses: Sequence[int]) -> dict[str, Any]:
    """For each step of a backward pass, which leaves have their gradient already.

    Step number n of the forward pass multiplies with leaf number uses[n]; there[m][i]
    says whether leaf i has its gradient when step number m of the backward pass runs.
    """
    from minitorch.scalar import Scalar, ScalarFunction

    leaves = [Scalar(1.0) for _ in range(max(uses) + 1)]
    seen: list[list[bool]] = []

    class Look(ScalarFunction):
        @staticmethod
        def forward(ctx: Any, a: float, b: float) -> float:
            return a * b

        @staticmethod
        def backward(ctx: Any, d_out: float) -> tuple[float, float]:
            seen.append([leaf.grad is not None for leaf in leaves])
            return d_out, d_out

    out: Any = Scalar(1.0)
    for use in uses:
        out = Look.apply(out, leaves[use])
    out.backward()
    return {"there": seen, "grads": [leaf.grad for leaf in leaves]}


def chain(device: str, n: int) -> dict[str, Any]:
    """A graph of n additions in a row, and the gradient of its one leaf."""
    from minitorch.scalar import Scalar

    x = Scalar(1.0)
    out = x
    for _ in range(n):
        out = out + 1.0
    out.backward()
    return {"grad": x.grad}


def doubling(device: str, n: int) -> dict[str, Any]:
    """x = x + x, n times: 2^n ways through a graph of n nodes."""
    from minitorch.scalar import Scalar

    x = Scalar(1.0)
    out = x
    for _ in range(n):
        out = out + out
    out.backward()
    return {"grad": x.grad}


def twice(device: str, x: float) -> dict[str, Any]:
    """Two backward passes add up in .grad; each node runs once in each."""
    from minitorch.scalar import Scalar, ScalarFunction

    calls = []

    class Counted(ScalarFunction):
        @staticmethod
        def forward(ctx: Any, a: float) -> float:
            return 3.0 * a

        @staticmethod
        def backward(ctx: Any, d_out: float) -> float:
            calls.append(d_out)
            return 3.0 * d_out

    leaf = Scalar(x)
    for _ in range(2):
        middle = Counted.apply(leaf)
        (middle * middle + middle).backward()
    return {"grad": leaf.grad, "calls": [float(c) for c in calls]}


def passes(device: str, x: float, y: float, keep: bool, some: bool) -> dict[str, Any]:
    """A backward pass, perhaps for `some` values only: which nodes are released.

    The nodes "below" and "out" make out = x * x * y; the pass may `keep` them.
    """
    from minitorch.autodiff import backpropagate
    from minitorch.scalar import Mul, Scalar

    a: Any = Scalar(x)
    b: Any = Scalar(y)
    below = Mul.apply(a, a)
    out = Mul.apply(below, b)
    released: list[str] = []
    for name, made in (("below", below), ("out", out)):
        node: Any = made.node
        node.release = partial(released.append, name)
    found = backpropagate([out], [1.0], keep, inputs=[below, b] if some else None)
    return {"found": found, "released": released, "grads": [a.grad, b.grad]}


def missing(device: str, x: float, y: float) -> dict[str, Any]:
    """A function that has no gradient for its second argument, which is used twice."""
    from minitorch.scalar import Mul, Scalar, ScalarFunction

    class Straight(ScalarFunction):
        @staticmethod
        def forward(ctx: Any, a: float, b: float) -> float:
            return a + b

        @staticmethod
        def backward(ctx: Any, d_out: float) -> Any:
            return d_out, None

    a: Any = Scalar(x)
    b: Any = Scalar(y)
    out: Any = Mul.apply(Straight.apply(a, b), b)
    out.backward()
    return {"grads": [a.grad, b.grad]}


# ------------------------------------------------------------------------------- XOR


def _set(network: Any, values: Sequence[float]) -> None:
    for parameter, value in zip(network.parameters(), values):
        parameter.data = value


def probabilities(
    device: str, hidden: int, values: list[float], points: list[list[float]]
) -> dict[str, Any]:
    """The outputs of a network with given parameters."""
    from assignments.a1_scalar_autodiff import xor

    network = xor.Network(hidden)
    _set(network, values)
    return {"p": [network.forward(point).data for point in points]}


def one_step(
    device: str,
    hidden: int,
    values: list[float],
    points: list[list[float]],
    labels: list[int],
    lr: float,
) -> dict[str, Any]:
    """The loss, and the parameters after two steps."""
    from assignments.a1_scalar_autodiff import xor

    network = xor.Network(hidden)
    _set(network, values)
    losses = [float(xor.step(network, points, labels, lr)) for _ in range(2)]
    after = [parameter.data for parameter in network.parameters()]
    return {"losses": losses, "after": after}


def trained(device: str, seed: int) -> dict[str, Any]:
    """Which corners a trained network has right."""
    from assignments.a1_scalar_autodiff import xor

    network = xor.train(seed=seed)
    sure = [network.forward(point).data > 0.5 for point in xor.POINTS]
    return {"corners": [int(s) for s in sure]}
