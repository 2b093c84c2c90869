"""States of models and optimizers that ranks share: in parts, or whole.

With this file one gets what this rank has of a model, for a checkpoint that all ranks
write (`storage.py`), or a whole state on one rank; and deals out such a state, whatever
number of ranks had it:

    state = get_model_state_dict(model)                 # with `ShardedTensor`s

    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=whole)  # on rank 0; {} elsewhere
    ...
    set_model_state_dict(model, state, options=whole)   # each rank takes its part
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.distributed.checkpoint.storage import StoredTensor
from minitorch.distributed.tensor.placement import ShardedTensor, layout_of
from minitorch.nn.module import IncompatibleKeys, Module, misfits
from minitorch.optim.optimizer import Optimizer
from minitorch.tensor import Tensor


@dataclass(frozen=True)
class StateDictOptions:
    """How a state is read or written.

    Attributes:
        full_state_dict: whole tensors, and not the parts of this rank.
        cpu_offload: on the CPU; a whole state then on rank 0 of the group alone.
        strict: missing and unexpected names are an error.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    strict: bool = True


Options = StateDictOptions
PARTS = StateDictOptions()
TENSORS = (Tensor, ShardedTensor, StoredTensor)


def saved(p: Tensor, value: Any, options: Options = PARTS) -> Any:
    """A parameter, or what an optimizer keeps for it, as it is saved."""
    if not isinstance(value, Tensor):
        return value
    value, layout = value.detach(), layout_of(p)
    if layout is not None and value.shape != p.shape:
        layout = None  # all ranks have the same
    if layout is not None and options.full_state_dict:
        value, layout = layout.whole(value), None
    value = value.cpu() if options.cpu_offload else value
    return value if layout is None else ShardedTensor(layout, value)


def part(p: Tensor, value: Any, options: Options = PARTS) -> Any:
    """What a parameter of this rank gets of a saved `value`, whole or in parts."""
    if isinstance(value, ShardedTensor):
        return value.local
    layout, shape = layout_of(p), tuple(getattr(value, "shape", ()))
    stored = isinstance(value, StoredTensor)
    if layout is not None and shape == layout.shape:
        if stored or options.full_state_dict:
            return layout.part(value)
    return value.whole() if stored else value


def _nothing(model: Module, options: Options) -> bool:
    """Whether this rank gets none of a whole state, for it is not the first."""
    found = [layout_of(p) for p in model.parameters()]
    leads = all(x is None or x.group.rank() == 0 for x in found)
    return options.full_state_dict and options.cpu_offload and not leads


@no_grad()
def get_model_state_dict(
    model: Module, *, options: Options | None = None
) -> dict[str, Any]:
    """As `model.state_dict()`. All ranks must call this, for they send their parts."""
    every = model.state_dict(keep_vars=True)
    # A tied parameter is brought together once.
    first = {x: saved(x, x, options or PARTS) for x in dict.fromkeys(every.values())}
    nothing = _nothing(model, options or PARTS)
    return {} if nothing else {name: first[x] for name, x in every.items()}


@no_grad()
def set_model_state_dict(
    model: Module,
    model_state_dict: Mapping[str, Tensor],
    *,
    options: Options | None = None,
) -> IncompatibleKeys:
    """As `model.load_state_dict(...)`: each rank gives the same whole state, which may
    be in a checkpoint (`open_state`), or its own part of a state in parts.

    Raises:
        RuntimeError: lists all names that do not fit; nothing was changed then.
    """
    options, own = options or PARTS, model.state_dict(keep_vars=True)
    shapes = {
        name: layout_of(p) or p
        if options.full_state_dict or not isinstance(model_state_dict.get(name), Tensor)
        else p
        for name, p in own.items()
    }
    problems = misfits(shapes, model_state_dict, options.strict, TENSORS)
    if problems:
        raise RuntimeError(
            "set_model_state_dict: the state does not fit, and nothing was changed:\n"
            "    " + "\n    ".join(problems)
        )
    parts = {
        name: part(own[name], value, options) if name in own else value
        for name, value in model_state_dict.items()
    }
    return model.load_state_dict(parts, options.strict)


@no_grad()
def get_optimizer_state_dict(
    model: Module, optimizers: Optimizer, *, options: Options | None = None
) -> dict[str, Any]:
    """{"state": {name: {...}}, "param_groups": [...]}: as `optimizer.state_dict()`, but
    with names of parameters in place of their numbers. All ranks must call this."""
    options, state, groups = options or PARTS, {}, []
    name_of = {p: name for name, p in model.named_parameters()}
    for group in optimizers.param_groups:
        names = [name_of[p] for p in group["params"]]
        groups.append({**group, "params": names})
        for p, name in zip(group["params"], names):
            held = optimizers.state.get(p, {})
            values = {key: saved(p, held[key], options) for key in sorted(held)}
            if values:
                state[name] = values
    nothing = _nothing(model, options)
    return {} if nothing else {"state": state, "param_groups": groups}


@no_grad()
def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer,
    optim_state_dict: Mapping[str, Any],
    *,
    options: Options | None = None,
) -> None:
    """Take over what `get_optimizer_state_dict` returned, with any number of ranks.

    Raises:
        ValueError: the groups do not have the same parameters.
    """
    state, groups = dict[int, Any](), list[Any]()
    name_of = {p: name for name, p in model.named_parameters()}
    saved_groups = optim_state_dict["param_groups"]
    for group, saved in zip(optimizers.param_groups, saved_groups):
        names = [name_of[p] for p in group["params"]]
        if sorted(names) != sorted(saved["params"]):
            differing = sorted(set(names) ^ set(saved["params"]))
            raise ValueError(
                f"set_optimizer_state_dict: group {len(groups)} has other parameters "
                f"than the saved one; they differ in {', '.join(differing)}"
            )
        first = sum(len(g["params"]) for g in groups)
        numbers = list(range(first, first + len(names)))
        groups.append({**saved, "params": numbers})
        for k, p, name in zip(numbers, group["params"], names):
            values = optim_state_dict["state"].get(name, {})
            if values:
                state[k] = {
                    key: part(p, v, options or PARTS) for key, v in values.items()
                }
    groups += saved_groups[len(groups) :]  # too many of them: the optimizer's own error
    optimizers.load_state_dict({"state": state, "param_groups": groups})
