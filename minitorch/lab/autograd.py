"""The page "Autograd": the graph of a typed expression, and its backward pass.

With this file one can record what a user typed, and let the engine itself go backward
(`graph_of`): each node tells which gradient arrived and what it sent on, in the order
in which that happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minitorch.autodiff import Node, Variable, topological_sort
from minitorch.creation import ones_like, tensor
from minitorch.lab.expressions import DEVICE, MATHEMATICS, VIEWS, evaluate
from minitorch.lab.questions import text
from minitorch.tensor import Tensor

MOST_NODES = 60


class Recording:
    """The nodes and leaves of a graph, numbered, and what happened at each."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[Tensor, str]] = {}  # by the node that made them
        self.names: dict[int, str] = {}  # of leaves
        self.leaves: list[Tensor] = []  # held, since `names` knows them by their id
        self.steps: list[dict[str, Any]] = []

    def made(self, out: Tensor, source: str) -> None:
        """An operation of the text made `out`."""
        if out.node is not None:
            self.values[id(out.node)] = (out, source)

    def given(self, name: str, value: Any) -> Any:
        """A name for a value: numbers and lists are leaves that want a gradient."""
        if not isinstance(value, (int, float, Tensor)):
            raise ValueError(f"{name}: got {value!r:.40}; expected a number or a list")
        if not isinstance(value, Tensor):
            value = tensor(float(value), device=DEVICE)
        if value.node is None and not value.requires_grad:
            value = value.detach().requires_grad_()
            self.leaves.append(value)
        self.names.setdefault(id(value if value.node is None else value.node), name)
        return value

    def describe(self, item: Any, numbers: dict[int, int]) -> dict[str, Any]:
        """A node or leaf as the page shows it."""
        number, name = numbers[id(item)], self.names.get(id(item), "")
        if isinstance(item, Tensor):
            value = item.detach().tolist()
            shape = list(item.shape)
            return {"id": number, "name": name, "op": "", "shape": shape,
                    "value": value, "inputs": []}  # fmt: skip
        out, source = self.values.get(id(item), (None, ""))
        return {
            "id": number,
            "name": name,
            "op": item.function.__name__,
            "text": source,
            "shape": None if out is None else list(out.shape),
            "value": None if out is None else out.detach().tolist(),
            "inputs": [e and numbers[id(e[0])] for e in item.edges],
        }

    def watch(self, item: Any, numbers: dict[int, int]) -> None:
        """Let `item` tell when the backward pass comes to it."""
        number = numbers[id(item)]
        if isinstance(item, Tensor):
            item.register_hook(lambda grad: self._arrived(number, grad) and None)
            return
        run = item.backward_node

        def told(grads: list[Any]) -> Any:
            step = self._arrived(number, grads[0])
            sent = run(grads)
            for edge, grad in zip(item.edges, sent):
                if edge is not None and grad is not None:
                    news = {"to": numbers[id(edge[0])], "grad": grad.tolist()}
                    step["sends"].append(news)
            return sent

        item.backward_node = told

    def _arrived(self, number: int, grad: Any) -> Any:
        step = {"id": number, "grad": grad.detach().tolist(), "sends": []}
        self.steps.append(step)
        return step


def graph_of(typed: str) -> dict[str, Any]:
    """Nodes, edges and steps of the backward pass of what was typed.

    Raises:
        ValueError, TypeError, IndexError, ArithmeticError: what is wrong with it.
    """
    recording = Recording()
    names: dict[str, Any] = {}
    out = evaluate(typed, names, MATHEMATICS | VIEWS, recording.made, recording.given)
    if not isinstance(out, Tensor) or not out.requires_grad:
        raise ValueError(
            "the result depends on no name; give a value a name first: x = 2"
        )
    order: list[Node | Variable] = topological_sort(
        [out if out.node is None else out.node]
    )
    if len(order) > MOST_NODES:
        raise ValueError(f"the graph has {len(order)} nodes; at most {MOST_NODES}")
    numbers = {id(item): i for i, item in enumerate(order)}
    nodes = [recording.describe(item, numbers) for item in order]
    for item in order:
        recording.watch(item, numbers)
    out.backward(ones_like(out))
    return {"nodes": nodes, "steps": recording.steps, "scalar": out.numel() == 1}


class AutogradPage:
    """What answers for the page."""

    def __init__(self) -> None:
        self.questions = {"graph": lambda q: graph_of(text(q, "text", 400))}

    def listen(self) -> Iterator[dict[str, Any] | None]:
        return iter(())
