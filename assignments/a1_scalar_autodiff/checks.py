"""What a1 is checked with; the oracle is PyTorch in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

from assignments.a1_scalar_autodiff import calls
from assignments.checks import AnyCheck, Check
from assignments.draw import Draw

# ---------------------------------------------------------------- central difference


def _difference_inputs(draw: Draw) -> dict[str, Any]:
    fn = draw.choice(tuple(calls.SMOOTH))
    count = {"product": 2, "mixed": 3}.get(fn, 1)
    values = [draw.number(-3, 3) for _ in range(count)]
    return {"fn": fn, "values": values, "arg": draw.integer(0, count - 1)}


def _difference_expected(fn: str, values: list[float], arg: int) -> dict[str, Any]:
    import torch

    xs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    out: Any = calls.SMOOTH[fn](*xs)
    return {"slope": torch.autograd.grad(out, xs)[arg].item()}


def _wide_inputs(draw: Draw) -> dict[str, Any]:
    return {**_difference_inputs(draw), "epsilon": draw.choice((0.5, 0.25, 1.0))}


def _wide_expected(
    fn: str, values: list[float], arg: int, epsilon: float
) -> dict[str, Any]:
    below, above = list(values), list(values)
    below[arg] -= epsilon
    above[arg] += epsilon
    rise = calls.SMOOTH[fn](*above) - calls.SMOOTH[fn](*below)
    return {"slope": rise / (2 * epsilon), "points": sorted([below, above])}


DIFFERENCES = (
    Check(
        "a1.1",
        "slopes",
        calls.difference,
        _difference_inputs,
        _difference_expected,
        tolerance=1e-6,
    ),
    Check(
        "a1.1",
        "a wide epsilon",
        calls.wide_difference,
        _wide_inputs,
        _wide_expected,
        oracle="the formula",
    ),
)

# ------------------------------------------------------------------ scalar functions

FUNCTIONS = {
    "Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Pow": 2, "Neg": 1, "Log": 1, "Exp": 1,
    "Sigmoid": 1, "ReLU": 1, "Tanh": 1,
}  # fmt: skip


def _function_inputs(draw: Draw, name: str, zeros: int) -> dict[str, Any]:
    """Argument n is 0 where bit n of `zeros` is set: there slopes jump, or vanish."""
    xs = [0.0 if zeros >> n & 1 else draw.number(-3, 3) for n in range(FUNCTIONS[name])]
    if name == "Log" or (name == "Pow" and not zeros & 1):
        xs[0] = draw.number(0.25, 4)
    elif name == "Pow" and not zeros & 2:
        xs[1] = float(draw.integer(1, 3))
    elif name == "Div":
        xs[1] = xs[1] or 1.0
    return {"name": name, "xs": xs, "d_out": draw.number(-2, 2) or 1.0}


def _function_expected(name: str, xs: list[float], d_out: float) -> dict[str, Any]:
    import torch

    names = {"ReLU": "relu"}
    fn = vars(torch)[names.get(name, name.lower())]
    given = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in xs]
    out = fn(*given)
    grads = torch.autograd.grad(out, given, torch.tensor(d_out, dtype=torch.float64))
    return {"out": out.item(), "grads": [g.item() for g in grads]}


def _function(name: str) -> Check:
    most = 2 ** FUNCTIONS[name] - 1
    return Check(
        "a1.2",
        name,
        calls.function,
        partial(_function_inputs, name=name),
        _function_expected,
        {"zeros": (0, most)},
        tuple({"zeros": zeros} for zeros in range(1, most + 1)),
        tolerance=1e-12,
        examples=30,
    )


# ----------------------------------------------------------------------- expressions


def _program_inputs(draw: Draw, leaves: int, steps: int) -> dict[str, Any]:
    program = []
    for n in range(leaves, leaves + steps):
        # The value before is always used, so that all steps count.
        operation = draw.choice(tuple(calls.OPERATIONS))
        program.append([operation, n - 1, draw.integer(0, n - 1)])
    return {
        "xs": [draw.number(-1, 1) for _ in range(leaves)],
        "constant": [draw.integer(0, 3) == 3 for _ in range(leaves)],
        "program": program,
    }


def _program_expected(
    xs: list[float], constant: list[bool], program: calls.Program
) -> dict[str, Any]:
    import torch

    leaves = [
        torch.tensor(x, dtype=torch.float64, requires_grad=not c)
        for x, c in zip(xs, constant)
    ]
    out = calls.run_program(leaves, program)
    if out.requires_grad:
        out.backward()
    return {
        "out": out.item(),
        "grads": [None if leaf.grad is None else leaf.grad.item() for leaf in leaves],
        "recorded": out.requires_grad,
    }


def _expressions(task: str) -> Check:
    return Check(
        task,
        "expressions",
        calls.gradients,
        _program_inputs,
        _program_expected,
        {"leaves": (1, 3), "steps": (1, 5)},
        ({"leaves": 3, "steps": 25},),
        tolerance=1e-10,
        examples=60,
    )


def _recording_expected(x: float, y: float) -> dict[str, Any]:
    return {
        "edges": [True, True],
        "half": [True, False],
        "recorded": [True, True, False, False],
        "nodes": [False, False, True, True],
        "values": [x * y, 2.0 * y, 2.0 * y, x * y],
        "gradients": [3.0 * y, 3.0 * x],
        "of one": [-3.0],
    }


def _arrival_inputs(draw: Draw, n: int) -> dict[str, Any]:
    steps = [
        (draw.integer(-1, 2), draw.integer(0, 2), draw.number() or 1.0)
        for _ in range(n)
    ]
    return {"steps": steps}


def _arrival_expected(steps: list[tuple[int, int, float]]) -> dict[str, Any]:
    arrived: list[Any] = []
    for item in range(3):
        mine = [(index, grad) for number, index, grad in steps if number == item]
        sums: dict[int, float] = {}
        for index, grad in mine:
            sums[index] = sums[index] + grad if index in sums else grad
        arrived.append([sums.get(i) for i in range(max(sums) + 1)] if sums else None)
    return {"arrived": arrived}


# ------------------------------------------------------------------------- the order


def _graph_inputs(draw: Draw, n: int) -> dict[str, Any]:
    parents: list[list[int]] = [[]]
    for node in range(1, n):
        count = draw.integer(1, 3)
        below = [draw.integer(-1, node - 1) for _ in range(count)]
        parents.append([node - 1, *below] if draw.integer(0, 1) else below)
    return {"parents": parents}


def _graph_expected(parents: list[list[int]]) -> dict[str, Any]:
    reached, waiting = set(), [len(parents) - 1]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += [p for p in parents[node] if p >= 0]
    nodes = sorted(reached)
    return {"nodes": nodes, "in the wrong order": [], "leaves that wait": []}


def _uses_inputs(draw: Draw, n: int) -> dict[str, Any]:
    return {"uses": [draw.integer(0, n) for _ in range(n)]}


def _uses_expected(uses: list[int]) -> dict[str, Any]:
    leaves = range(max(uses) + 1)
    return {
        # Step n runs after the steps behind it: a leaf that only they use is complete.
        "there": [
            [leaf in uses and leaf not in uses[: n + 1] for leaf in leaves]
            for n in reversed(range(len(uses)))
        ],
        "grads": [float(uses.count(leaf)) or None for leaf in leaves],
    }


def _pass_expected(x: float, y: float, keep: bool, some: bool) -> dict[str, Any]:
    ran = ["out"] if some else ["out", "below"]
    return {
        "found": [y, x * x] if some else None,
        "released": [] if keep else ran,
        "grads": [None, None] if some else [2 * x * y, x * x],
    }


def _two_numbers(draw: Draw) -> dict[str, Any]:
    return {"x": draw.number(), "y": draw.number()}


ORDER = (
    Check(
        "a1.4",
        "an order",
        calls.order,
        _graph_inputs,
        _graph_expected,
        {"n": (1, 6)},
        ({"n": 40},),
        examples=60,
        oracle="the rule",
    ),
    _expressions("a1.4"),
    Check(
        "a1.4",
        "a deep graph",
        calls.chain,
        lambda draw, n: {"n": n},
        lambda n: {"grad": 1.0},
        {"n": (0, 3)},
        ({"n": 20_000},),
        examples=4,
        hint="Python's own recursion ends at a depth of about 1000.",
        oracle="the rule",
    ),
    Check(
        "a1.4",
        "a graph with many ways",
        calls.doubling,
        lambda draw, n: {"n": n},
        lambda n: {"grad": 2.0**n},
        {"n": (0, 4)},
        ({"n": 60},),
        examples=4,
        hint="Visit each node once, however many ways lead to it.",
        oracle="the rule",
    ),
    Check(
        "a1.4",
        "each node once",
        calls.twice,
        lambda draw: {"x": draw.number()},
        lambda x: {"grad": 2 * 3 * (6 * x + 1), "calls": [6 * x + 1.0] * 2},
        tolerance=1e-12,
        examples=10,
        oracle="the rule",
    ),
    Check(
        "a1.4",
        "which nodes run and are released",
        calls.passes,
        lambda draw, keep, some: {
            **_two_numbers(draw),
            "keep": bool(keep),
            "some": bool(some),
        },
        _pass_expected,
        {"keep": (0, 1), "some": (0, 1)},
        [{"keep": keep, "some": some} for keep in (0, 1) for some in (0, 1)],
        tolerance=1e-12,
        examples=5,
        oracle="the handout",
        hint="With inputs, only nodes in wanted[0] run. A node that ran is released, "
        "unless retain_graph is set.",
    ),
    Check(
        "a1.4",
        "a gradient that is missing",
        calls.missing,
        _two_numbers,
        lambda x, y: {"grads": [y, x + y]},
        tolerance=1e-12,
        examples=5,
        oracle="the handout",
        hint="A function may return None for an argument: nothing arrives there.",
    ),
    Check(
        "a1.4",
        "leaves on the way",
        calls.leaves_on_the_way,
        _uses_inputs,
        _uses_expected,
        {"n": (1, 4)},
        ({"n": 12},),
        examples=20,
        oracle="the rule",
        hint="A leaf has its gradient when the last node that uses it has run.",
    ),
)

# ------------------------------------------------------------------------------- XOR


def _network_inputs(draw: Draw, hidden: int, n: int) -> dict[str, Any]:
    count = 2 * hidden + hidden + hidden + 1
    return {
        "hidden": hidden,
        "values": [draw.number(-1, 1) for _ in range(count)],
        "points": [[draw.number(0, 1), draw.number(0, 1)] for _ in range(n)],
    }


def _step_inputs(draw: Draw, hidden: int, n: int) -> dict[str, Any]:
    inputs = _network_inputs(draw, hidden, n)
    labels = [draw.integer(0, 1) for _ in range(n)]
    return {**inputs, "labels": labels, "lr": draw.choice((0.5, 0.1))}


def _forward(parameters: Any, hidden: int, points: Any) -> Any:
    import torch

    w1 = parameters[: 2 * hidden].reshape(2, hidden)
    b1 = parameters[2 * hidden : 3 * hidden]
    w2 = parameters[3 * hidden : 4 * hidden]
    x = torch.tensor(points, dtype=torch.float64)
    return torch.sigmoid(torch.relu(x @ w1 + b1) @ w2 + parameters[4 * hidden])


def _network_expected(hidden: int, values: Any, points: Any) -> dict[str, Any]:
    import torch

    parameters = torch.tensor(values, dtype=torch.float64)
    return {"p": _forward(parameters, hidden, points).tolist()}


def _step_expected(
    hidden: int, values: Any, points: Any, labels: Any, lr: float
) -> dict[str, Any]:
    import torch

    parameters = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    target = torch.tensor(labels, dtype=torch.float64)
    losses = []
    for _ in range(2):
        p = _forward(parameters, hidden, points)
        loss = torch.nn.functional.binary_cross_entropy(p, target)
        (grad,) = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            parameters -= lr * grad
        losses.append(loss.item())
    return {"losses": losses, "after": parameters.tolist()}


SIZES = {"hidden": (1, 3), "n": (1, 4)}
XOR = (
    Check(
        "a1.5",
        "forward",
        calls.probabilities,
        _network_inputs,
        _network_expected,
        SIZES,
        tolerance=1e-10,
    ),
    Check(
        "a1.5",
        "steps",
        calls.one_step,
        _step_inputs,
        _step_expected,
        SIZES,
        tolerance=1e-9,
    ),
    Check(
        "a1.5",
        "training",
        calls.trained,
        lambda draw: {"seed": draw.choice((3, 4, 8))},
        lambda seed: {"corners": [0, 1, 1, 0]},
        examples=1,
        oracle="XOR",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *DIFFERENCES,
    *[_function(name) for name in FUNCTIONS],
    Check(
        "a1.3",
        "what is recorded",
        calls.recording,
        _two_numbers,
        _recording_expected,
        oracle="the handout",
    ),
    Check(
        "a1.3",
        "what has arrived",
        calls.arrivals,
        _arrival_inputs,
        _arrival_expected,
        {"n": (0, 4)},
        ({"n": 12},),
        tolerance=1e-12,
        examples=30,
        oracle="the handout",
        hint="An item with several outputs has a gradient for each, None where none "
        "has arrived.",
    ),
    _expressions("a1.3"),
    *ORDER,
    *XOR,
)
