"""When parameters are together: the nodes that `fully_shard` puts into the graph.

With this file a call of a wrapped module opens and closes a `Unit`, the module's own
parameters, in the forward pass and in the backward pass. `Trip` is what they know of
each other: one forward pass of the outermost module, and the backward pass behind it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from minitorch.autodiff import Edge, Node, grad_mode, is_grad_enabled, no_grad, numbers
from minitorch.creation import tensor
from minitorch.distributed.alike import check_alike, give
from minitorch.distributed.collectives import all_reduce
from minitorch.distributed.fsdp.flat import Flat, MixedPrecisionPolicy
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.tensor.placement import layout_of
from minitorch.dtypes import DType, int64
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor


class Unit:
    """A wrapped module's own parameters, and its place in the pass that goes on.

    Args:
        own: the module and those below it that are not wrapped, with their paths.
        group, reshard, policy, offload: as for `fully_shard`.

    Attributes:
        places: where each parameter is: module, key there, whole name.
        flats: their numbers, by dtype, device and whether they learn.
        index: of each parameter, which of these, and its number in it.
        sends: whether backward passes send gradients.
        trip: the forward pass that goes on.
        following: the unit that was opened behind this one in the last pass.
        in_backward: whether the module's backward pass goes on: it stays open, though
            a checkpoint may call it anew.
    """

    def __init__(
        self,
        own: Sequence[tuple[str, Module]],
        group: ProcessGroup,
        reshard: bool | None,
        policy: MixedPrecisionPolicy,
        offload: bool,
    ) -> None:
        self.reshard, self.policy = reshard, policy
        self.places = [
            (m, key, f"{path}{key}", p)
            for path, m in own
            for key, p in m._parameters.items()
            if p is not None
        ]
        named = _named(self.places)
        _begin_alike(named, own, group)
        kinds: dict[Any, dict[str, Parameter]] = {}
        for p, name in named.items():
            kinds.setdefault((p.dtype, p.device, p.requires_grad), {})[name] = p
        self.flats = [Flat(some, group, policy, offload) for some in kinds.values()]
        self.index = {
            p: (flat, i) for flat in self.flats for i, p in enumerate(flat.params)
        }
        self.sends, self.in_backward = True, False
        self.trip: Trip | None = None
        self.following: Unit | None = None

    def start(self) -> None:
        """Begin to gather."""
        for flat in self.flats:
            flat.start()

    @no_grad()
    def gather(self, ahead: Unit | None) -> None:
        """Have all parameters here, and let those of another unit come meanwhile."""
        self.start()
        for flat in self.flats:
            flat.arrive()
        if ahead is not None:
            ahead.start()

    def free(self) -> None:
        for flat in self.flats:
            flat.free()

    def open(self, outermost: bool) -> None:
        """Before a forward pass of the module: it gets whole parameters."""
        trip = self.trip
        assert trip is not None
        if trip.last is not None:
            trip.last.following = self
        trip.last = self
        self.gather(None if self.in_backward else self.following)
        node = Opened(self, trip, outermost) if is_grad_enabled() else None
        whole: dict[Tensor, Tensor] = {}
        for p, (flat, i) in self.index.items():
            learns = node is not None and p.requires_grad
            place = node.place(flat, i) if learns else 0  # type: ignore[union-attr]
            whole[p] = Tensor.wrap(flat.views[i], node if learns else None, place)
        for module, key, _, p in self.places:
            module._parameters[key] = whole[p]  # type: ignore[assignment]

    def restore(self) -> None:
        """After it: the module has its parts back."""
        for module, key, _, p in self.places:
            module._parameters[key] = p

    def close(self, out: Any, outermost: bool) -> Any:
        """What the module returns; its backward pass begins with a node of ours."""
        soon = self.reshard is None and outermost and is_grad_enabled()
        if is_grad_enabled():
            assert self.trip is not None
            node = Closed(self, self.trip)
            out = mapped(node.passed, out) if outermost else out
        if not (soon or self.in_backward or self.reshard is False):
            self.free()
        return out


def _named(places: Sequence[tuple[Module, str, str, Parameter]]) -> dict[Any, str]:
    """The parameters, each once, with its first name."""
    named: dict[Any, str] = {}
    for _, _, name, p in places:
        if layout_of(p) is not None:
            raise ValueError(
                f"fully_shard: {name} is a parameter that has been dealt out with "
                f"another module; wrap only a module that has all of its places in it"
            )
        named.setdefault(p, name)
    return named


def _begin_alike(
    named: dict[Any, str], own: Sequence[tuple[str, Module]], group: ProcessGroup
) -> None:
    """All ranks get the parameters and buffers of rank 0."""
    state: dict[str, Tensor] = {name: p for p, name in named.items()}
    for path, m in own:
        some = m._buffers.items()
        state.update({f"{path}{key}": x for key, x in some if x is not None})
    check_alike("fully_shard", state.items(), group)
    give(state.values(), group)


class Trip:
    """A forward pass of an outermost module, and the backward pass behind it.

    Attributes:
        edge: to the node that was recorded last.
        last: the unit that was opened last.
        sending: the flats whose gradients are under way.
    """

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.edge: Edge | None = None
        self.last: Unit | None = None
        self.sending: list[Flat] = []
        self.outcomes: list[tuple[Parameter, Tensor | None]] = []
        for unit in self.units:
            unit.trip = self

    def end(self) -> None:
        """The forward pass is over; who was gathered in vain goes."""
        self.edge = self.last = None  # nodes know this trip, and it no node
        for unit in self.units:
            unit.trip = None
            if any(flat.coming for flat in unit.flats):
                unit.free()

    def settle(self) -> None:
        """Wait for what was sent."""
        for flat in self.sending:
            self.outcomes += flat.settle()
        self.sending = []

    def finish(self) -> None:
        """The backward pass is over. A parameter that had no gradient here gets one if
        it had one on any rank: they vote."""
        self.settle()
        outcomes, self.outcomes = self.outcomes, []
        if not outcomes:
            return
        flat = next(flat for unit in self.units for flat in unit.flats)
        mine = [int(grad is None) for _, grad in outcomes]
        votes = tensor(mine, dtype=int64, device=flat.device)
        all_reduce(votes, ReduceOp.MAX, flat.group)
        if all(mine):
            return  # nobody here need know, or wait for the votes
        for (p, grad), vote in zip(outcomes, votes.tolist()):
            if vote and grad is not None:
                p.accumulate_grad(grad, False)


class Opened(Node):
    """A call of a module begins. The backward pass comes here when it has all of the
    module's gradients: they are sent, and the parameters freed."""

    def __init__(self, unit: Unit, trip: Trip, outermost: bool) -> None:
        self.unit, self.trip, self.outermost = unit, trip, outermost
        self.edges, self.number = (trip.edge,), next(numbers)
        self.outputs: list[tuple[Flat, int]] = []
        trip.edge = self, 0

    def place(self, flat: Flat, i: int) -> int:
        """The number of an output: a whole parameter. 0 is the edge from the next."""
        self.outputs.append((flat, i))
        return len(self.outputs)

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        unit, trip = self.unit, self.trip
        if grad_mode.enabled:
            raise RuntimeError(
                "fully_shard: no gradients of gradients are taken; leave out "
                "create_graph=True"
            )
        trip.settle()
        for (flat, i), grad in zip(self.outputs, grads[1:]):
            if grad is not None:
                flat.take(i, grad)
        unit.in_backward = False
        if unit.reshard is not False:
            unit.free()
        if unit.sends:
            trip.sending = [flat for flat in unit.flats if flat.learns]
            for flat in trip.sending:
                flat.send()
        if self.outermost:
            trip.finish()
        return (0,)


class Closed(Node):
    """A call of a module ends, and its backward pass will begin."""

    def __init__(self, unit: Unit, trip: Trip) -> None:
        self.unit = unit
        self.edges, self.number = (trip.edge,), next(numbers)
        trip.edge = self, 0

    def passed(self, x: Tensor) -> Tensor:
        """x, whose backward pass comes through here."""
        edge = x.edge()
        if edge is None:
            return x
        self.edges = (*self.edges, edge)
        return Tensor.wrap(x.raw, self, len(self.edges) - 1)

    def backward_node(self, grads: list[Any]) -> Sequence[Any]:
        self.unit.in_backward = True
        self.unit.gather(self._ahead())
        passed = grads[1:] + [None] * (len(self.edges) - len(grads))
        return (0, *passed)

    def _ahead(self) -> Unit | None:
        """Whose backward pass comes next."""
        edge = self.edges[0]
        while edge is not None:
            node = edge[0]
            if isinstance(node, Closed) and node.unit is not self.unit:
                return node.unit
            edge = node.edges[0]
        return None


def mapped(fn: Callable[[Tensor], Any], x: Any) -> Any:
    """`x` with fn(tensor) in place of all tensors in lists, tuples, dicts and so on."""
    if isinstance(x, Tensor):
        return fn(x)
    if isinstance(x, dict):
        return type(x)({key: mapped(fn, value) for key, value in x.items()})
    if isinstance(x, (list, tuple)):
        values = [mapped(fn, value) for value in x]
        return type(x)(*values) if hasattr(x, "_fields") else type(x)(values)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x) if f.init}
        return dataclasses.replace(x, **mapped(fn, fields))
    return x


def cast(x: Any, dtype: DType | None) -> Any:
    """`x` with its tensors of floating-point numbers as dtype; None leaves them."""
    if dtype is None:
        return x
    return mapped(lambda t: t.to(dtype) if t.dtype.is_floating_point else t, x)
