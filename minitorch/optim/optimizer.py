"""What all optimizers share.

With this file one can write an optimizer: a subclass of `Optimizer` defines
`update(group)`, which changes the parameters of one group from their gradients.
Groups, their options, `zero_grad`, `step(closure)` and the saving and loading of state
come from here, in PyTorch's layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from minitorch.autodiff import enable_grad, no_grad
from minitorch.executor import advance
from minitorch.nn.module import Module, clear_grad
from minitorch.nn.utils import Clipped, Coming, others
from minitorch.tensor import Tensor
from minitorch.tensor_data import TensorData

Group = dict[str, Any]


class Optimizer:
    """Changes parameters so that a loss becomes smaller.

    Attributes:
        param_groups: dicts with the list "params" and the options for them.
        defaults: the options of a group that names none of its own.
        state: for each parameter a dict of what the method remembers about it.
    """

    _numbers: tuple[str, ...] = ()  # options that must be numbers, 0 or more

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.steps_taken = 0
        for group in _as_groups(type(self).__name__, params):
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Change more parameters: {"params": [...], "lr": 0.1} and default options."""
        name = type(self).__name__
        group = {**self.defaults, **param_group}
        params = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        unknown = sorted(set(group) - set(self.defaults) - {"params", "initial_lr"})
        if unknown:
            raise ValueError(
                f"{name}: a parameter group has the unknown option(s) {unknown}; known "
                f"are {sorted(self.defaults)}"
            )
        self.check(group)
        seen = {id(p) for other in self.param_groups for p in other["params"]}
        for p in group["params"]:
            _check_param(name, p)
            if id(p) in seen:
                raise ValueError(
                    f"{name}: a parameter of shape {p.raw.shape} is given twice, and "
                    f"would be changed twice in each step"
                )
            seen.add(id(p))
        self.param_groups.append(group)

    def started(self, p: Tensor, *names: str) -> dict[str, Any]:
        """The state of p, which begins with zeros like p under these names."""
        state = self.state[p]
        if not state:
            state.update({name: p.new_zeros(p.raw.shape) for name in names})
        return state

    def check(self, group: Group) -> None:
        """Raise a ValueError if an option of the group makes no sense."""
        name = type(self).__name__
        check_numbers(name, group, *self._numbers)
        if self._numbers and "betas" in group:
            check_betas(name, group["betas"])

    def update(self, group: Group) -> None:
        """Change the parameters of one group; not recorded."""
        raise NotImplementedError(
            f"{type(self).__name__}: has no update(self, group); define one"
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change all parameters that have a gradient.

        Args:
            closure: computes the loss anew, with its gradients; called first.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        advance(f"{type(self).__name__}.step", self._step)
        return loss

    @no_grad()
    def _step(self) -> None:
        for group in self.param_groups:
            self.update(group)
        self.steps_taken += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to 0."""
        for group in self.param_groups:
            for p in group["params"]:
                clear_grad(p, set_to_none)

    # ------------------------------------------------------------ saving and loading

    def state_dict(self) -> dict[str, Any]:
        """{"state": {0: {...}, ...}, "param_groups": [...]}, parameters as numbers.

        The tensors in it share this optimizer's memory.
        """
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
            options = {key: value for key, value in group.items() if key != "params"}
            options["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(options)
        state = {numbers[id(p)]: dict(values) for p, values in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy what `state_dict()` returned; the groups must be as many and as large.

        Raises:
            ValueError: they are not, or hold an option that is not known here.
        """
        name = type(self).__name__
        saved = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in saved]
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise ValueError(
                f"{name}.load_state_dict: the saved groups have {sizes} parameters; "
                f"this optimizer's have {own}"
            )
        groups = [self._loaded_group(*pair) for pair in zip(self.param_groups, saved)]
        by_number = {
            number: p
            for group, other in zip(self.param_groups, saved)
            for number, p in zip(other["params"], group["params"])
        }
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            if int(number) not in by_number:
                raise ValueError(
                    f"{name}.load_state_dict: there is a state for parameter {number}, "
                    f"which no group has"
                )
            p = by_number[int(number)]
            state[p] = {k: self._loaded(p, k, value) for k, value in values.items()}
        self.param_groups, self.state = groups, state

    def _loaded_group(self, group: Group, saved: Mapping[str, Any]) -> Group:
        known = {key: saved[key] for key in saved if key in group or key in _EXTRA}
        for key, value in saved.items():
            if key not in known and value:
                raise ValueError(
                    f"{type(self).__name__}.load_state_dict: option {key!r} = "
                    f"{value!r} is not known here; known are {sorted(self.defaults)}"
                )
        return {**group, **deepcopy(known), "params": group["params"]}

    def _loaded(self, p: Tensor, key: str, value: Any) -> Any:
        """A saved value of p's state, copied."""
        return _like(p, key, value)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [
                f"    {key}: {group[key]}" for key in sorted(group) if key != "params"
            ]
        return "\n".join([*lines, ")"])


_EXTRA = ("initial_lr",)  # what schedulers add to a group


def _as_groups(name: str, params: Iterable[Any]) -> list[dict[str, Any]]:
    """The groups in what a user passed: parameters, or dicts."""
    if isinstance(params, (Tensor, Module)):
        raise TypeError(
            f"{name}: params is a {type(params).__name__}; expected an iterable, such "
            f"as model.parameters() or [tensor]"
        )
    given = list(params)
    if not given:
        raise ValueError(f"{name}: got no parameters")
    if isinstance(given[0], dict):
        return given
    return [{"params": given}]


def _check_param(name: str, p: Any) -> None:
    if not isinstance(p, Tensor):
        raise TypeError(
            f"{name}: a parameter is a {type(p).__name__}; expected a tensor"
        )
    if not p.is_leaf:
        raise ValueError(
            f"{name}: a tensor of shape {p.raw.shape} is the result of an operation; "
            f"only leaves can be optimized"
        )


def _like(p: Tensor, key: str, value: Any) -> Any:
    """A saved value for parameter p: tensors of p's shape on its device, copied."""
    if not isinstance(value, Tensor):
        return deepcopy(value)
    if key == "step":  # PyTorch keeps this number in a tensor
        return int(value.item())
    if value.raw.shape != p.raw.shape:
        raise ValueError(
            f"load_state_dict: {key!r} is {value.raw.shape}, but its parameter is "
            f"{p.raw.shape}"
        )
    return value.detach().to(p.device, p.dtype).clone()


def check_numbers(name: str, group: Group, *keys: str) -> None:
    """These options must be numbers, 0 or more."""
    for key in keys:
        value = group[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            kind = type(value).__name__
            raise TypeError(f"{name}: {key} is a {kind}; expected a number")
        if not value >= 0.0:
            raise ValueError(f"{name}: {key} is {value}; it must be 0.0 or more")


def check_betas(name: str, betas: Any) -> None:
    """Two decay rates, each in [0, 1)."""
    try:
        fits = len(betas) == 2 and all(0.0 <= beta < 1.0 for beta in betas)
    except TypeError:  # no pair, or not of numbers
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: betas is {betas!r}; expected two numbers, 0 or more and below 1"
        )


def refuse(name: str, **given: Any) -> None:
    """Options of PyTorch's that do not exist here must have their default."""
    for key, value in given.items():
        if value:
            raise ValueError(
                f"{name}: {key}={value!r} is not offered here; leave it out"
            )


def check_fused(name: str, foreach: bool | None, fused: bool | None) -> None:
    """PyTorch's choice of how a step is computed, one of two at most.

    Here a step always takes all parameters together and reads each number once, which
    is what either asks for.
    """
    if foreach and fused:
        raise RuntimeError(f"{name}: foreach and fused cannot both be True; name one")


def with_grad(group: Group) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [p for p in group["params"] if p.grad is not None]


def is_coming(p: Tensor) -> bool:
    """Whether the gradient of p is still on its way from other ranks."""
    return type(p.grad) is Coming and p.grad.work is not None


def in_order(kinds: Mapping[tuple[Any, ...], Any]) -> list[tuple[Any, Any]]:
    """What is stepped together, by keys that end with `is_coming`: while some gradients
    come, parameters with others take their step."""
    return sorted(kinds.items(), key=lambda kind: kind[0][-1])


def whole_with_grad(name: str, group: Group) -> list[Tensor]:
    """The same, for a step that looks at all numbers of a parameter together.

    Raises:
        ValueError: one is a part, of which other ranks have the rest.
    """
    params = with_grad(group)
    if any(others(p) is not None for p in params):
        raise ValueError(
            f"{name}: a parameter has been dealt out over ranks by fully_shard; the "
            f"step needs the whole; use AdamW, or {name} by ZeroRedundancyOptimizer"
        )
    return params


def gradient(p: Tensor, maximize: bool = False) -> Tensor:
    """The gradient to go down along: p's own, or its negative to maximize."""
    assert p.grad is not None  # `with_grad` has chosen p
    if p.grad.raw.shape != p.raw.shape:
        raise ValueError(
            f"optimizer step: a parameter is {p.raw.shape} and its .grad "
            f"{p.grad.raw.shape}; they must have one shape"
        )
    grad = p.grad.detach()
    return -grad if maximize else grad


def scaled_gradients(
    params: list[Tensor], maximize: bool
) -> tuple[list[TensorData], TensorData | None]:
    """The gradients to go down along, and a factor of all that is yet to be multiplied.

    `clip_grad_norm_` leaves one behind; all of `params` have the same, or none.
    """
    first = params[0].grad
    if maximize or factor_of(params[0]) is None:
        return raw_gradients(params, maximize), None
    assert isinstance(first, Clipped)
    return [_whole(p) for p in params], first.factor


def factor_of(p: Tensor) -> TensorData | None:
    """What the gradient of p has yet to be multiplied by: None is 1."""
    grad = p.grad
    return grad.factor if type(grad) is Clipped and grad.pending else None


def _whole(p: Tensor) -> TensorData:
    assert isinstance(p.grad, Clipped)
    whole = p.grad.whole
    if whole.shape != p.raw.shape:
        gradient(p)  # its error
    return whole


def raw_gradients(params: list[Tensor], maximize: bool) -> list[TensorData]:
    """The gradients to go down along, as a backend takes them."""
    raws = [p.grad.raw for p in params if p.grad is not None]
    if maximize or [raw.shape for raw in raws] != [p.raw.shape for p in params]:
        return [gradient(p, maximize).raw for p in params]  # or its error
    return raws


def touch(params: Iterable[Tensor]) -> None:
    """Count a change of memory, so that graphs which saved it notice."""
    for p in params:
        p.raw.storage.version += 1
