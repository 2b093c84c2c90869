"""Parameters one behind the other: the part of this rank, and all while they are here.

With this file the numbers of `fully_shard` come and go (`Flat`): all parameters of a
module that have one dtype lie in one memory, which is cut into equal parts.

    parameters    [ weight                  ] .. [ bias ] ..      .. to begin aligned
    parts         [ rank 0      |  rank 1      |  rank 2      ]
"""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

from minitorch.autodiff import no_grad
from minitorch.creation import empty, zeros
from minitorch.distributed.collectives import (
    all_gather_into_tensor,
    reduce_scatter_tensor,
)
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.tensor.placement import Layout, boxes_of
from minitorch.dtypes import DType
from minitorch.executor import settle
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor
from minitorch.tensor_data import Storage, TensorData

ALIGNED = 32  # elements at whose multiples parameters begin: kernels read 16 bytes


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """In which types a module works; its parameters stay what they are.

    Attributes:
        param_dtype: of the gathered parameters, and so of products and activations.
        reduce_dtype: in which gradients are sent and added; None: param_dtype.
        output_dtype: of what the module returns.
        cast_forward_inputs: whether arguments are converted to param_dtype.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


class OffloadPolicy:
    """Parameters, gradients and the optimizer's state stay on the module's device."""


class CPUOffloadPolicy(OffloadPolicy):
    """They are on the CPU, where the optimizer makes its steps; the device has what is
    gathered, and gradients until they are sent."""


class Away:
    """Stands for the memory of parameters that are not here."""

    nbytes = 0

    def __init__(self, names: str) -> None:
        self.names = names

    def _refuse(self, *_: Any) -> NoReturn:
        raise RuntimeError(
            f"fully_shard: {self.names} are whole only while the module that was "
            f"wrapped is called, or its backward pass runs; call the wrapped module "
            f"itself, or wrap the one that uses them"
        )

    __getattr__ = __getitem__ = __len__ = _refuse


class Flat:
    """Parameters of one dtype, one behind the other: this rank's part, and all.

    Attributes:
        shard: this rank's part, which the parameters are views of.
        part, total: how many numbers that are, and all are.
        told: what they are, for other ranks.
        storage: the memory of all of them while they are here, else `Away`.
        views: each parameter, in its own shape, in that memory.
        gradient: the sum of whole gradients that have not been sent.
        used: the numbers of parameters that have a gradient in it.
    """

    def __init__(
        self,
        named: dict[str, Parameter],
        group: ProcessGroup,
        policy: MixedPrecisionPolicy,
        offload: bool,
    ) -> None:
        self.params, self.group = list(named.values()), group
        group.shared += 1
        self.told = f"{', '.join(named)} (number {group.shared} that was dealt out)"
        self._lay_out()
        first = self.params[0]
        self.device = first.raw.device
        self.dtype = policy.param_dtype or first.dtype
        self.reduce_dtype = policy.reduce_dtype or self.dtype
        self.away = Away(", ".join(named))
        self.storage = Storage(self.away, self.dtype, self.device)
        self.views = [
            TensorData(self.storage, p.raw.shape, None, start)
            for p, start in zip(self.params, self.starts)
        ]
        self.coming: Any = None  # the work that gathers, and the memory for it
        self.sent: Any = None  # the work that scatters, and where our part comes
        self.gradient: Tensor | None = None
        self.used: set[int] = set()
        self._deal_out("cpu" if offload else self.device)

    def _lay_out(self) -> None:
        """Where each parameter begins, and how much a rank gets."""
        self.sizes = [p.numel() for p in self.params]
        self.starts, end = list[int](), 0
        for size in self.sizes:
            self.starts.append(end)
            end += -(-size // ALIGNED) * ALIGNED
        self.part = -(-end // (ALIGNED * self.group.size())) * ALIGNED
        self.total = self.part * self.group.size()

    @no_grad()
    def _deal_out(self, device: str) -> None:
        whole = self.params[0].new_zeros(self.total)
        for p, start, size in zip(self.params, self.starts, self.sizes):
            whole[start : start + size].view(p.raw.shape).copy_(p)
        me = self.group.rank()
        mine = whole[me * self.part : (me + 1) * self.part]
        self.shard = mine.clone().to(device)
        for i, p in enumerate(self.params):
            low, high = self.piece(i, me)
            p.raw, p.grad = self.shard[low:high].raw, None
            p.dealt = self._layout(i)

    def piece(self, i: int, rank: int) -> tuple[int, int]:
        """Where in its part a rank has numbers of parameter i."""
        start = self.starts[i] - rank * self.part
        bounds = start, start + self.sizes[i]
        low, high = (min(max(place, 0), self.part) for place in bounds)
        return low, high

    def _layout(self, i: int) -> Layout:
        """Which numbers of parameter i each rank has."""
        shape, found = self.views[i].shape, []
        for rank in range(self.group.size()):
            low, high = (
                place + rank * self.part - self.starts[i]
                for place in self.piece(i, rank)
            )
            found.append(tuple(boxes_of(shape, low, high)))
        return Layout(tuple(shape), tuple(found), None, self.group, self.device)

    @property
    def learns(self) -> bool:
        return any(p.requires_grad for p in self.params)

    def start(self) -> None:
        """Begin to gather, unless all is here or on its way."""
        source = self.shard.raw.storage
        if any(p.raw.storage is not source for p in self.params):
            raise RuntimeError(
                f"fully_shard: {self.away.names} have other memory than they got when "
                f"they were dealt out; move or convert a module before that"
            )
        here = self.storage.array is not self.away
        if self.coming is None and (not here or self.storage.version != source.version):
            self.storage.array = self.away  # before there is memory for both
            mine = self.shard.to(self.device, self.dtype)
            out = empty(self.total, dtype=self.dtype, device=self.device)
            with self.group.calls_for(self.told):
                work = all_gather_into_tensor(out, mine, self.group, True)
            self.coming = work, out

    def arrive(self) -> None:
        """Wait until all is here. What was saved of it is out of date if the shard has
        been changed: the versions of both are one."""
        if self.coming is not None:
            work, out = self.coming
            work.wait()
            self.storage.array = out.raw.storage.array
            self.storage.version = self.shard.raw.storage.version
            self.coming = None

    def free(self) -> None:
        """Keep this rank's part alone."""
        if self.coming is not None:
            self.coming[0].wait()
        settle()  # what was put off may need it
        self.storage.array, self.coming = self.away, None

    def take(self, i: int, grad: Tensor) -> None:
        """The whole gradient of parameter i, on this rank."""
        if self.gradient is None:
            self.gradient = self._zeros()
        start = self.starts[i]
        place = self.gradient[start : start + self.sizes[i]].view(grad.raw.shape)
        if i in self.used:
            place.add_(grad.to(self.reduce_dtype))
        else:
            place.copy_(grad)
        self.used.add(i)

    def _zeros(self) -> Tensor:
        return zeros(self.total, dtype=self.reduce_dtype, device=self.device)

    def send(self) -> None:
        """Begin to add up the ranks' gradients; each gets its part of the mean."""
        out = empty(self.part, dtype=self.reduce_dtype, device=self.device)
        whole = self._zeros() if self.gradient is None else self.gradient
        with self.group.calls_for(self.told):
            work = reduce_scatter_tensor(out, whole, ReduceOp.AVG, self.group, True)
        self.sent, self.gradient = (work, out), None

    def settle(self) -> list[tuple[Parameter, Tensor | None]]:
        """Wait for that. Parameters that were used here have their gradients then;
        the others, with what they would get, are returned beside them."""
        work, out = self.sent
        work.wait()
        mine = out.to(self.shard.raw.device, self.shard.dtype)
        used, self.used, self.sent = self.used, set(), None
        outcome: list[tuple[Parameter, Tensor | None]] = []
        for i, p in enumerate(self.params):
            low, high = self.piece(i, self.group.rank())
            grad = mine[low:high].detach()
            if i in used:
                p.accumulate_grad(grad, False)
            outcome.append((p, None if i in used else grad))
        return outcome
