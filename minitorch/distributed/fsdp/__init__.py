"""Parameters that are dealt out over ranks: stages 2 and 3 of ZeRO.

With this file a model that is too large for one rank is trained by several:

    for block in model.h:
        fully_shard(block)
    fully_shard(model)
    optimizer = AdamW(model.parameters())  # and the loop as before

Each rank keeps one part of a wrapped module's parameters, all of them flat and one
behind the other. They are whole only while the module works:

    forward    gather 0   run 0   free 0          run 1   free 1   ...
                          gather 1 ..............         gather 2 ...
    backward   gather 1   run 1   free 1, scatter the sum of gradients 1 ........
                          gather 0 ..............   run 0   free 0, scatter 0

The graph says when. As it is recorded, a node opens and a node closes each call of a
wrapped module, and each of these nodes has an edge to the one before it:

    output -> Closed 1 -> (operations of 1) -> Opened 1 -> Closed 0 -> ... -> Opened 0

A backward pass runs nodes youngest first. So all ranks gather and scatter in one
order, also where a parameter has no gradient on some of them.

flat.py      parameters one behind the other: a part, all of them, their gradients
passes.py    the nodes in the graph, and what they do

Sources: Rajbhandari et al., "ZeRO", 2020; Zhao et al., "PyTorch FSDP: Experiences on
scaling fully sharded data parallel", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minitorch.distributed.collectives import member
from minitorch.distributed.device_mesh import DeviceMesh
from minitorch.distributed.fsdp.flat import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from minitorch.distributed.fsdp.passes import Trip, Unit, cast
from minitorch.executor import needs_numbers
from minitorch.nn.module import Module


def fully_shard(
    module: Module,
    mesh: DeviceMesh | None = None,
    *,
    reshard_after_forward: bool | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
) -> Module:
    """Deal out the parameters of `module`, but those of modules in it that are wrapped
    already; it is changed in place, and its class becomes an `FSDPModule`.

    All begin with the numbers of rank 0. Parameters stay the same objects, which show
    this rank's part as one dimension (perhaps of no element); outside of a call of the
    module nothing else is there. An optimizer needs no change if it works element by
    element, but groups that are made by shapes are to be made before.

    Args:
        mesh: the ranks, in one dimension; all, if None.
        reshard_after_forward: True frees the parameters behind the forward, and again
            behind the backward pass: stage 3. None: but not those of the outermost
            module in between, whose backward pass begins at once. False keeps them
            until the optimizer changes them, and deals out the rest: stage 2.
        mp_policy, offload_policy: see there.

    Raises:
        ValueError: the module has no `forward`, is wrapped already, or has a parameter
            that another wrapped module has.
        RuntimeError: the ranks' models are not alike; the message says where.
    """
    group = member("fully_shard", None if mesh is None else mesh.get_group())
    if group is None or isinstance(module, FSDPModule):
        raise ValueError(
            "fully_shard: the module is wrapped already, or this rank is in no group"
        )
    if getattr(type(module), "forward", Module.forward) is Module.forward:
        raise ValueError(
            f"fully_shard: {type(module).__name__} has no forward of its own; wrap the "
            f"modules in it, which are called"
        )
    policy = mp_policy or MixedPrecisionPolicy()
    offload = isinstance(offload_policy, CPUOffloadPolicy)
    own = list(_own_modules(module))
    module.__dict__["_unit"] = Unit(own, group, reshard_after_forward, policy, offload)
    cls = type(module)
    module.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {})
    return module


class FSDPModule(Module):
    """What `fully_shard` makes of a module."""

    _unit: Unit

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        unit, outermost = self._unit, self._unit.trip is None
        if outermost and (some := next(self.parameters(), None)) is not None:
            needs_numbers("fully_shard", some.raw)  # by which ranks agree on what came
        trip = Trip(units(self)) if outermost else unit.trip
        try:
            if unit.policy.cast_forward_inputs:
                args, kwargs = cast((args, kwargs), unit.policy.param_dtype)
            unit.open(outermost)
            out = super().__call__(*args, **kwargs)
            return unit.close(cast(out, unit.policy.output_dtype), outermost)
        finally:
            unit.restore()
            if outermost and trip is not None:
                trip.end()

    def set_requires_gradient_sync(self, on: bool) -> None:
        """Whether backward passes send gradients. While they don't, whole gradients add
        up on their rank; the next pass that sends sends the sums."""
        for unit in units(self):
            unit.sends = on


def units(module: Module) -> list[Unit]:
    """Of the wrapped modules in and below `module`."""
    return [m._unit for m in module.modules() if isinstance(m, FSDPModule)]


def _own_modules(module: Module, path: str = "") -> Iterator[tuple[str, Module]]:
    """`module` and those below it, but for wrapped ones, with their paths."""
    yield path, module
    for name, child in module.named_children():
        if not isinstance(child, FSDPModule):
            yield from _own_modules(child, f"{path}{name}.")
