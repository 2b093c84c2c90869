"""Which layers are cut, and how: a plan by names.

With this file one can share the layers of any model between the ranks of a mesh:

    parallelize_module(model, mesh["tp"], {
        "h.*.mlp.c_fc": ColwiseParallel(),
        "h.*.mlp.c_proj": RowwiseParallel(),
    })

Names are PyTorch's. `minitorch/models/parallel.py` has the plan of a GPT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.distributed.collectives import broadcast
from minitorch.distributed.device_mesh import DeviceMesh
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.tensor.parallel.layers import (
    ColumnParallelLinear,
    DropoutOfPart,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from minitorch.distributed.tensor.parallel.operators import summed
from minitorch.distributed.tensor.placement import (
    Cut,
    Placement,
    Replicate,
    layout_of,
)
from minitorch.nn.dropout import Dropout
from minitorch.nn.embedding import Embedding
from minitorch.nn.experts import MixtureOfExperts
from minitorch.nn.linear import Linear
from minitorch.nn.module import Module
from minitorch.nn.norm import LayerNorm, RMSNorm
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor

WHOLE = Replicate()
Done = dict[int, Cut]  # of parameters that are cut, by their ids


class ParallelStyle:
    """How one module is shared."""

    def apply(self, module: Any, group: ProcessGroup, done: Done) -> None:
        """Let `module` be this rank's part of what it was."""
        raise NotImplementedError

    def refuse(self, module: Any, expected: str) -> None:
        """Say that this style is for other modules."""
        kind, wrong = type(self).__name__, type(module).__name__
        raise TypeError(f"{kind}: the module is a {wrong}; expected {expected}")


@dataclass(frozen=True)
class ColwiseParallel(ParallelStyle):
    """A linear layer of which each rank makes some of the outputs.

    Args:
        input_layouts: Replicate(), or Shard(dim) for parts of a sequence.
        blocks: outputs that lie side by side and are cut each by itself, such as
            queries, keys and values; their sizes. None: one block.
    """

    input_layouts: Placement = WHOLE
    blocks: Sequence[int] | None = None

    def apply(self, module: Any, group: ProcessGroup, done: Done) -> None:
        if type(module) is not Linear:
            self.refuse(module, "an nn.Linear; for an Embedding use RowwiseParallel")
        blocks = tuple(self.blocks or (module.out_features,))
        if sum(blocks) != module.out_features:
            raise ValueError(
                f"ColwiseParallel: blocks {blocks} add up to {sum(blocks)}; the layer "
                f"has {module.out_features} outputs"
            )
        module.__class__, module.inputs = ColumnParallelLinear, self.input_layouts
        names = ["weight"] if module.bias is None else ["weight", "bias"]
        _cut(module, names, Cut(0, blocks, group), done)


@dataclass(frozen=True)
class RowwiseParallel(ParallelStyle):
    """A linear layer of which each rank takes some inputs, or a part of a table's rows.

    Args:
        output_layouts: Replicate(), or Shard(dim) for parts of a sequence.
    """

    output_layouts: Placement = WHOLE

    def apply(self, module: Any, group: ProcessGroup, done: Done) -> None:
        if type(module) is Embedding and module.padding_idx is None:
            module.__class__ = VocabParallelEmbedding
            cut = Cut(0, (module.num_embeddings,), group)
        elif type(module) is Linear:
            module.__class__ = RowParallelLinear
            cut = Cut(1, (module.in_features,), group)
            if module.bias is not None and self.output_layouts != Replicate():
                add_up_gradient(module.bias, group)
        else:
            self.refuse(module, "an nn.Linear, or an nn.Embedding without padding")
        module.outputs = self.output_layouts
        _cut(module, ["weight"], cut, done)


@dataclass(frozen=True)
class SequenceParallel(ParallelStyle):
    """A norm of a sequence in parts: what each rank learns from its part is added; or
    dropout, which drops other numbers of each part."""

    def apply(self, module: Any, group: ProcessGroup, done: Done) -> None:
        if not isinstance(module, (LayerNorm, RMSNorm, Dropout)):
            self.refuse(module, "an nn.LayerNorm, nn.RMSNorm or nn.Dropout")
        if isinstance(module, Dropout):
            module.__class__, module.group = DropoutOfPart, group
        for parameter in module.parameters():
            add_up_gradient(parameter, group)


@dataclass(frozen=True)
class ExpertParallel(ParallelStyle):
    """A mixture of experts of which each rank has some, for the tokens of all ranks.

    The ranks have tokens of their own, as with data parallel, and the loss is the mean
    of theirs; gradients of other parameters are to be averaged, those of experts are
    averages.
    """

    def apply(self, module: Any, group: ProcessGroup, done: Done) -> None:
        if type(module) is not MixtureOfExperts:
            self.refuse(module, "an nn.MixtureOfExperts")
        count, n = module.num_experts, group.size()
        if count % n:
            raise ValueError(
                f"ExpertParallel: {count} experts and {n} ranks; expected a multiple "
                f"of {n}"
            )
        _cut(module, ["up", "down"], Cut(0, (count,), group), done)
        for weight in (module.up, module.down):
            _when_learned(weight, lambda grad: grad / n)


def add_up_gradient(parameter: Parameter, group: ProcessGroup) -> None:
    """Let a parameter that all have get the sum of all ranks' gradients."""
    _when_learned(parameter, partial(summed, group=group))


def _when_learned(parameter: Parameter, hook: Callable[[Tensor], Tensor]) -> None:
    if parameter.requires_grad:
        parameter.register_hook(hook)


def _cut(module: Any, names: Sequence[str], cut: Cut, done: Done) -> None:
    """Keep this rank's parts; a parameter of two modules is cut once."""
    module.group = cut.group
    for name in names:
        parameter = getattr(module, name)
        if done.setdefault(id(parameter), cut) != cut:
            raise ValueError(
                f"parallelize_module: a {type(module).__name__} shares its {name} "
                f"with a module that cuts it in another way; give both the same rows"
            )
        if layout_of(parameter) is None:
            parameter.dealt = cut.layout(parameter)
            mine = parameter.dealt.part(parameter.detach())
            parameter.raw, parameter.grad = mine.raw, None


@no_grad()
def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle],
) -> Module:
    """Share a module, or those of its modules that a plan names, between ranks.

    Modules and parameters stay the same objects; a parameter that is cut gets the
    memory of its part. All ranks begin with what the mesh's first rank has. Move the
    module before, and make the optimizer afterwards.

    Args:
        device_mesh: of one dimension, such as `mesh["tp"]`.
        parallelize_plan: a style for `module`, or styles by names of modules in it,
            where `*` stands for one part of a name: "h.*.mlp.c_fc".

    Errors: ValueError for a name that no module has, and for a mesh of several
    dimensions; TypeError for a style that does not fit its module.
    """
    if device_mesh.ndim != 1:
        raise ValueError(
            f"parallelize_module: the mesh has {device_mesh.ndim} dimensions; expected "
            f'one of them, such as mesh["tp"]'
        )
    group = device_mesh.get_group()
    for parameter in module.parameters():
        broadcast(parameter, group.ranks[0], group)
    plan: Mapping[str, ParallelStyle] = (
        {"": parallelize_plan}
        if isinstance(parallelize_plan, ParallelStyle)
        else parallelize_plan
    )
    done: Done = {}
    for pattern, style in plan.items():
        for child in _named(module, pattern):
            style.apply(child, group, done)
    return module


def _named(module: Module, pattern: str) -> Iterator[Module]:
    """The modules whose names fit a pattern, part by part."""
    wanted = pattern.split(".")
    names = [name for name, _ in module.named_modules()]
    fitting = [
        name
        for name in names
        if len(name.split(".")) == len(wanted)
        and all(map(fnmatchcase, name.split("."), wanted))
    ]
    if not fitting:
        raise ValueError(
            f"parallelize_module: no module is named {pattern!r}; there are "
            f"{', '.join(names[1:9])}, ..."
        )
    return map(module.get_submodule, fitting)
