"""Data parallel training: one model on each rank, and one batch dealt out.

With this file a program for one process becomes one for many:

    init_process_group("gloo")
    model = DistributedDataParallel(model)
    ...                                # as before, on this rank's part of each batch

All ranks begin with the parameters of rank 0. Each backward pass leaves the average of
all ranks' gradients in `.grad` (`minitorch/nn/parallel/reducer.py`), so that equal
optimizers keep the parameters equal: nothing else is ever sent, besides buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from minitorch.autodiff import is_grad_enabled
from minitorch.distributed import ProcessGroup, ReduceOp
from minitorch.distributed.alike import check_alike, give
from minitorch.distributed.collectives import member
from minitorch.distributed.group import Future
from minitorch.distributed.objects import all_reduced
from minitorch.distributed.tensor.placement import layout_of
from minitorch.dtypes import int32, int64
from minitorch.nn.module import Module
from minitorch.nn.parallel.reducer import Bucket, Reducer
from minitorch.tensor import Tensor

# What PyTorch's takes besides, with the values that ask for what is done here anyway.
PYTORCH_ONLY: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "output_device": (None,),
        "dim": (0,),
        "check_reduction": (False,),
        "gradient_as_bucket_view": (False, True),
        "static_graph": (False,),
        "delay_all_reduce_named_params": (None,),
        "param_to_hook_all_reduce": (None,),
        "mixed_precision": (None,),
        "device_mesh": (None,),
        "skip_all_reduce_unused_params": (False,),
    }
)


class DistributedDataParallel(Module):
    """`module`, trained by all ranks of a group.

    Args:
        device_ids: the number of the one GPU that the module is on, or None.
        broadcast_buffers: all ranks get the buffers of rank 0 before a forward pass.
        process_group: the ranks; all, if None.
        bucket_cap_mb: MiB of gradients that are sent together.
        find_unused_parameters: allow that a loss depends on some parameters only.

    Attributes:
        module: the module that was given.
        require_backward_grad_sync: whether backward passes average gradients.

    Until the next backward pass, `.grad` is a view of memory that all gradients share.

    Raises:
        ValueError: nothing here learns, it is wrapped already, or an argument makes no
            sense.
        RuntimeError: the ranks' models are not alike; the message says where.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        **pytorch_only: Any,
    ) -> None:
        super().__init__()
        _refuse(pytorch_only)
        _check_bare(module)
        limit = _bytes(25 if bucket_cap_mb is None else bucket_cap_mb)
        group = member("DistributedDataParallel", process_group)
        named = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if group is None or not named:
            raise ValueError(
                "DistributedDataParallel: expected a module with parameters that "
                "require gradients, and a group with this rank in it"
            )
        _check_device(device_ids, module)
        _check_parts(named, group)
        self.module, self.process_group = module, group
        self.broadcast_buffers = broadcast_buffers and any(
            True for _ in module.buffers()
        )
        self.joining, self.leader = False, 0
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if init_sync:
            tensors = chain(module.named_parameters(), module.named_buffers())
            check_alike("DistributedDataParallel", tensors, group)
            give(chain(module.parameters(), module.buffers()), group)
        names, parameters = list(named), list(named.values())
        self.reducer = Reducer(names, parameters, group, limit, find_unused_parameters)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """A copy of the module, trained by the same ranks."""
        memo[id(self.process_group)] = self.process_group
        copy = memo[id(self)] = type(self).__new__(type(self))
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the module's own."""
        reducer = self.reducer
        reducer.enabled = self.require_backward_grad_sync
        syncing = is_grad_enabled() and reducer.enabled
        if syncing:
            inputs = () if reducer.settled else (*args, *kwargs.values())
            self._begin(rows=_rows(inputs))
        elif self.broadcast_buffers and self.require_forward_param_sync:
            give(self.module.buffers(), self.process_group)
        out = self.module(*args, **kwargs)
        self.require_forward_param_sync = reducer.enabled
        if syncing:
            reducer.look_at(_tensors(out))
        return out

    def register_comm_hook(
        self, state: Any, hook: Callable[[Any, Bucket], Future]
    ) -> None:
        """Let `hook(state, bucket)` send gradients, once for each bucket and in their
        order. It returns a future of what the bucket shall hold, the mean of all ranks'
        say: `minitorch.distributed.algorithms.ddp_comm_hooks` has some.

        Raises:
            TypeError: the hook cannot be called.
            RuntimeError: there is one already.
        """
        if not callable(hook):
            raise TypeError(
                f"register_comm_hook: hook is a {type(hook).__name__}; expected a "
                f"function hook(state, bucket) that returns a future"
            )
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook: there is a hook already")
        self.reducer.hook = partial(hook, state)

    def _begin(self, at_work: bool = True, rows: int = 0) -> bool:
        """A step of all ranks begins; whether any of them is at work in it."""
        group = self.process_group
        if self.joining:
            mine = group.rank() if at_work else -1
            leader = all_reduced(mine, ReduceOp.MAX, group)
            if leader == -1:
                return False
            self.leader = leader
        self.reducer.begin(rows)
        if self.broadcast_buffers and self.require_forward_param_sync:
            give(self.module.buffers(), group, self.leader)
        return True

    @contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True
    ) -> Iterator[None]:
        """Let ranks have unlike numbers of batches. Who is done goes on to send, with
        gradients of 0, until all are; then the last one gives its parameters to all.

        Gradients are divided by the number of all ranks, as before.
        """
        if not divide_by_initial_world_size:
            raise ValueError(
                "DistributedDataParallel.join: gradients are divided by the number of "
                "all ranks; leave out divide_by_initial_world_size=False"
            )
        self.joining = enable
        try:
            yield
            while enable and self._begin(at_work=False):
                self.require_forward_param_sync = True
                self.reducer.shadow()
            if enable:
                state = chain(self.module.parameters(), self.module.buffers())
                give(state, self.process_group, self.leader)
        finally:
            self.joining, self.leader = False, 0

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients of the block stay on their rank and add up there. The first
        backward pass after it, of a forward pass after it, averages the sums. Clone
        a `.grad` that is to outlast `zero_grad`: it may lie where the next ones go."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _refuse(given: Mapping[str, Any]) -> None:
    name = "DistributedDataParallel"
    for key, value in given.items():
        if key not in PYTORCH_ONLY:
            raise TypeError(f"{name}: there is no argument {key!r}")
        if value not in PYTORCH_ONLY[key]:
            raise ValueError(f"{name}: {key}={value!r} is not supported; leave it out")


def _check_bare(module: Module) -> None:
    """Two averages of one gradient would be under way at once."""
    if not isinstance(module, Module):
        raise TypeError(
            f"DistributedDataParallel: the module is a {type(module).__name__}"
        )
    if any(isinstance(m, DistributedDataParallel) for m in module.modules()):
        raise ValueError(
            "DistributedDataParallel: the module, or one in it, is wrapped already; "
            "give the module without the wrapper, wrapped.module"
        )


def _bytes(mib: Any) -> int:
    """Of a bucket, at most."""
    if not isinstance(mib, (int, float)) or not 0 <= mib < math.inf:
        raise ValueError(
            f"DistributedDataParallel: bucket_cap_mb is {mib!r}; expected a number of "
            f"MiB, 0 or more"
        )
    return int(2**20 * mib)


def _check_parts(named: Mapping[str, Tensor], group: ProcessGroup) -> None:
    """Parts of one parameter, which ranks of this group have, have no mean."""
    for name, p in named.items():
        layout = layout_of(p)
        if layout and len(set(layout.group.ranks) & set(group.ranks)) > 1:
            raise ValueError(
                f"DistributedDataParallel: {name} is in parts on ranks "
                f"{list(layout.group.ranks)}, and gradients are to be averaged over "
                f"ranks {list(group.ranks)}; give the process_group of those with the "
                f'same part, such as mesh.get_group("dp")'
            )


def _check_device(device_ids: Sequence[Any] | None, module: Module) -> None:
    devices = sorted({str(p.device) for p in module.parameters()})
    if not device_ids:
        return
    wanted = [str(d) if "cuda" in str(d) else f"cuda:{d}" for d in device_ids]
    if wanted != devices:
        raise ValueError(
            f"DistributedDataParallel: device_ids is {list(device_ids)}, and the "
            f"module is on {', '.join(devices)}; expected the number of the one GPU "
            f"that it is on, and None for a module on a CPU"
        )


def _rows(inputs: Any) -> int:
    """How often each weight is used at least: ids are rows each, else a batch's."""
    counts = (
        x.numel() if x.dtype in (int32, int64) else x.shape[0]
        for x in _tensors(inputs)
        if x.dim()
    )
    return max(counts, default=0)


def _tensors(out: Any) -> Iterator[Tensor]:
    """All tensors in what a module takes or returns."""
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, Mapping):
        yield from _tensors(list(out.values()))
    elif isinstance(out, (tuple, list)):
        for x in out:
            yield from _tensors(x)
    elif hasattr(out, "__dataclass_fields__"):
        yield from _tensors(list(vars(out).values()))
