"""Optimizers whose memory is dealt out over ranks: stage 1 of ZeRO.

With this file the ranks of data parallel training keep what an optimizer remembers only
once in all:

    model = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), AdamW, lr=1e-3)

Each parameter belongs to one rank, which alone makes its step, and sends the new
numbers to the others. Gradients are those of all ranks, as without it.

Source: Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion
parameter models", 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.creation import empty
from minitorch.distributed.alike import check_alike, give_all
from minitorch.distributed.collectives import Group, in_group, member
from minitorch.distributed.objects import broadcast_object_list
from minitorch.optim.optimizer import Optimizer, refuse
from minitorch.tensor import Tensor


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of which each rank holds a part.

    Args:
        params: parameters, or groups of them, the same on all ranks.
        optimizer_class: makes the steps, such as `AdamW`.
        process_group: the ranks; all, if None.
        parameters_as_bucket_view: let all parameters of a rank lie in one memory, so
            that one message brings them.
        defaults: for `optimizer_class`.

    Attributes:
        optim: the optimizer that makes the steps; its state is that of this rank.

    Raises:
        RuntimeError: the ranks' parameters are not alike; the message says where.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Group = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        name = type(self).__name__
        refuse(name, overlap_with_ddp=overlap_with_ddp)
        group = member(name, process_group)
        if group is None:
            raise ValueError(f"{name}: this rank is not in the group")
        self.process_group, self.as_view = group, parameters_as_bucket_view
        self.optim = optimizer_class(params, **defaults)
        self.defaults, self.steps_taken = self.optim.defaults, 0
        self.consolidated: dict[str, Any] | None = None
        self.owners: dict[int, int] = {}  # by the id of a parameter, a rank's number
        self.loads = [0] * group.size()  # how many numbers each rank learns
        self.flat: list[tuple[Tensor, int]] = []  # memory of many, and its owner
        self._adopt()
        for param_group in self.param_groups:
            self._deal_out(param_group["params"])

    def _adopt(self) -> None:
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """As every optimizer's; the ranks' groups must be alike."""
        self.optim.add_param_group(param_group)
        self._deal_out(self.param_groups[-1]["params"])

    def _deal_out(self, params: list[Tensor]) -> None:
        """The largest first, each to the rank that has least to learn."""
        name = type(self).__name__
        check_alike(name, [("of shape", p) for p in params], self.process_group)
        # BEGIN SOLUTION a13.3
        for p in sorted(params, key=lambda p: -p.numel()):
            rank = self.loads.index(min(self.loads))
            self.owners[id(p)] = rank
            self.loads[rank] += p.numel() if p.requires_grad else 0
        # END SOLUTION a13.3
        if self.as_view:
            self._put_together(params)

    @no_grad()
    def _put_together(self, params: list[Tensor]) -> None:
        """What learns of one owner, dtype and device gets one memory, unless it did."""
        kinds: dict[Any, list[Tensor]] = {}
        held = {flat.raw.storage for flat, _ in self.flat}
        for p in [p for p in params if p.requires_grad and p.raw.storage not in held]:
            kinds.setdefault((self.owners[id(p)], p.dtype, p.device), []).append(p)
        for (owner, dtype, _), some in kinds.items():
            size = sum(p.numel() for p in some)
            flat, start = empty(size, dtype=dtype, device=some[0].raw.device), 0
            for p in some:
                place = flat[start : start + p.numel()].view(p.raw.shape)
                place.copy_(p)
                p.raw, start = place.raw, start + p.numel()
            self.flat.append((flat, owner))

    def owns(self, p: Tensor) -> bool:
        """Whether this rank makes the steps of a parameter."""
        return self.owners[id(p)] == self.process_group.rank()

    @no_grad()
    def _step(self) -> None:
        for group in self.param_groups if self.as_view else ():
            self._put_together(group["params"])  # also what was frozen until now
        # BEGIN SOLUTION a13.3
        every = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [p for p in group["params"] if self.owns(p)]
        try:
            self.optim._step()
        finally:
            for group, params in zip(self.param_groups, every):
                group["params"] = params
        learned = [p for params in every for p in params if p.requires_grad]
        sent = self.flat or [(p, self.owners[id(p)]) for p in learned]
        give_all(sent, self.process_group)
        # END SOLUTION a13.3
        self.steps_taken, self.consolidated = self.steps_taken + 1, None

    # ------------------------------------------------------------ saving and loading

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks together on rank `to`, on its CPU. All ranks
        must call this; then `state_dict()` gives it there, until the next step."""
        group = self.process_group
        root = in_group("consolidate_state_dict", group, to, "to")
        own = super().state_dict()
        mine = {number: _on_cpu(values) for number, values in own["state"].items()}
        state: dict[int, Any] = {}
        for rank, number in enumerate(group.ranks):
            sent = [mine if rank == group.rank() else None]
            broadcast_object_list(sent, number, group)
            if root == group.rank():
                state.update(sent[0] or {})
        if root == group.rank():
            self.consolidated = {**own, "state": dict(sorted(state.items()))}

    def state_dict(self) -> dict[str, Any]:
        """What `optimizer_class` would say, had it made all steps on one rank.

        Raises:
            RuntimeError: the ranks' states have not been brought together here.
        """
        if self.consolidated is None:
            raise RuntimeError(
                "ZeroRedundancyOptimizer.state_dict: each rank has a part of the "
                "state; call consolidate_state_dict(to=rank) on all ranks after the "
                "last step, and then state_dict() on that rank"
            )
        return self.consolidated

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take this rank's part of what `state_dict()`, or that of an optimizer of
        `optimizer_class`, returned with any number of ranks."""
        others = {
            int(number)
            for group, saved in zip(self.param_groups, state_dict["param_groups"])
            for number, p in zip(saved["params"], group["params"])
            if not self.owns(p)
        }
        state = state_dict["state"]
        kept = {number: state[number] for number in state if int(number) not in others}
        self.optim.load_state_dict({**state_dict, "state": kept})
        self._adopt()


def _on_cpu(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with tensors on the CPU."""
    return {k: v.cpu() if isinstance(v, Tensor) else v for k, v in values.items()}
