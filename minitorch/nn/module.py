"""Modules: the parts of a network, and the tree that they form.

With this file one can write a network as a class:

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layer = Linear(2, 1)

        def forward(self, x):
            return self.layer(x).sigmoid()

A module notices the parameters, buffers and modules that become its attributes. So
`named_parameters()` lists all that is learned below it, `state_dict()` and
`load_state_dict()` store it, `to()` moves it and `train()` and `eval()` switch it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Any, ClassVar, NamedTuple, TypeVar

from minitorch.arguments import parse_to
from minitorch.autodiff import no_grad
from minitorch.dtypes import DType, bfloat16, float16, float32, float64
from minitorch.functions.operands import kind_of
from minitorch.nn.hooks import Before, Watch
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Handle, Tensor

M = TypeVar("M", bound="Module")


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found no use for, or no value for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """A part of a network. Subclasses define `forward`; users call the module.

    Attributes:
        training: whether layers such as dropout act as in training.
    """

    training: bool
    _shown: ClassVar[tuple[str, ...]] = ()  # attributes that are printed
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent: set[str]
    _forward_pre_hooks: list[Callable]
    _forward_hooks: list[Callable]
    _backward_hooks: list[Callable]

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _modules={},
            _non_persistent=set(),
            _forward_pre_hooks=[],
            _forward_hooks=[],
            _backward_hooks=[],
        )

    # --------------------------------------------------------------- to be called

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output for some input; every subclass defines its own."""
        raise NotImplementedError(
            f"{type(self).__name__}: has no forward(self, ...); define one"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook in tuple(self._forward_pre_hooks):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watch = Watch(self, self._backward_hooks) if self._backward_hooks else None
        given = args if watch is None else watch.inputs(args)
        out = self.forward(*given, **kwargs)
        for hook in tuple(self._forward_hooks):
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out if watch is None else watch.outputs(out)

    def register_forward_pre_hook(self, hook: Callable) -> Handle:
        """Call `hook(module, args)` before each forward; it may return new args."""
        return Handle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable) -> Handle:
        """Call `hook(module, args, output)` after it; it may return a new output."""
        return Handle(self._forward_hooks, hook)

    def register_full_backward_hook(self, hook: Callable) -> Handle:
        """Call `hook(module, grad_input, grad_output)` in each backward pass.

        Both are tuples: the gradients of the positional arguments of `forward` (None
        for what is no tensor, 0 for one that needs none, and None everywhere if no
        argument needs one) and of its outputs. The hook may return another grad_input
        to go on with.
        """
        return Handle(self._backward_hooks, hook)

    def register_full_backward_pre_hook(self, hook: Callable) -> Handle:
        """Call `hook(module, grad_output)` before that; it may return another one."""
        return Handle(self._backward_hooks, Before(hook))

    # ----------------------------------------------------------------- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif self._is_registered(name):
            self._replace(name, value)
        else:
            object.__setattr__(self, name, value)

    def _is_registered(self, name: str) -> bool:
        own = self.__dict__
        return "_parameters" in own and (
            name in own["_parameters"]
            or name in own["_buffers"]
            or name in own["_modules"]
        )

    def _replace(self, name: str, value: Any) -> None:
        """Give a registered name None, or for a buffer another tensor."""
        table: dict[str, Any] = self._modules
        kind, wanted, allowed = "module", "a module", False
        if name in self._buffers:
            table, kind, wanted = self._buffers, "buffer", "a tensor"
            allowed = isinstance(value, Tensor)
        elif name in self._parameters:
            table, kind, wanted = self._parameters, "parameter", "an nn.Parameter"
        if value is not None and not allowed:
            raise TypeError(
                f"{type(self).__name__}.{name} is a registered {kind}, and got a "
                f"{type(value).__name__}; assign {wanted} or None, or delete it first: "
                f"del module.{name}"
            )
        table[name] = value

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__  # Python comes here only for what is not found in it
        if "_parameters" not in own:
            self._require_init(name, "used")
        for table in (own["_parameters"], own["_modules"], own["_buffers"]):
            if name in table:
                return table[name]
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not name.startswith("__"):
            close = get_close_matches(name, dir(self), 3)
            if close:
                message += f"; did you mean {' or '.join(map(repr, close))}?"
        raise AttributeError(message, obj=self)  # with a name, Python adds its guess

    def __delattr__(self, name: str) -> None:
        if not self._is_registered(name):
            object.__delattr__(self, name)
            return
        for table in (self._parameters, self._modules, self._buffers):
            table.pop(name, None)
        self._non_persistent.discard(name)

    def __dir__(self) -> list[str]:
        own = self.__dict__
        tables = ("_parameters", "_modules", "_buffers")
        names = chain.from_iterable(own.get(table, ()) for table in tables)
        return sorted({*object.__dir__(self), *names})

    def _require_init(self, name: str, what: str) -> None:
        if "_parameters" not in self.__dict__:
            kind = type(self).__name__
            raise AttributeError(
                f"{kind}: {name!r} is {what} before super().__init__() was called; "
                f"make that call the first line of {kind}.__init__",
                obj=self,
            )

    def _claim(self, name: str, kind: str) -> None:
        """Check that `name` can be registered, and free it."""
        self._require_init(name, f"registered as a {kind}")
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(
                f"{type(self).__name__}: a {kind} cannot be named {name!r}; a name is "
                f"a string without dots, and not empty"
            )
        tables: dict[str, dict[str, Any]] = {
            "parameter": self._parameters,
            "buffer": self._buffers,
            "module": self._modules,
        }
        if hasattr(type(self), name):
            raise ValueError(
                f"{type(self).__name__}: a {kind} cannot be named {name!r}, because "
                f"the class has an attribute of that name, which would hide it"
            )
        for other, table in tables.items():
            if other != kind:
                table.pop(name, None)
        self.__dict__.pop(name, None)
        self._non_persistent.discard(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make `param` the attribute `name`, to be learned and stored."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"register_parameter: {name!r} is a {type(param).__name__}; expected "
                f"an nn.Parameter or None"
            )
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"register_parameter: {name!r} is the result of an operation; a "
                f"parameter must be a leaf: Parameter(tensor.detach())"
            )
        self._claim(name, "parameter")
        self._parameters[name] = param

    def register_buffer(
        self, name: str, tensor: Tensor | None, persistent: bool = True
    ) -> None:
        """Make `tensor` the attribute `name`: moved with the module, not learned.

        Args:
            persistent: whether `state_dict()` holds it.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"register_buffer: {name!r} is a {type(tensor).__name__}; expected a "
                f"tensor or None"
            )
        self._claim(name, "buffer")
        self._buffers[name] = tensor
        if not persistent:
            self._non_persistent.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Make `module` the attribute `name`, a child of this one."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"add_module: {name!r} is a {type(module).__name__}; expected a Module "
                f"or None"
            )
        self._claim(name, "module")
        self._modules[name] = module

    register_module = add_module

    # ------------------------------------------------------------------- the tree

    # BEGIN SOLUTION a0.4
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules that are attributes of this one, each once, with their names."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def named_modules(
        self,
        memo: set[int] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Module]]:
        """This module, named `prefix`, and all below it, named `prefix.child...`.

        A module that is used in two places comes once, unless `remove_duplicate` is
        False.
        """
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their names, as in "encoder.layer1.weight".

        Args:
            prefix: what to put before each name.
            recurse: also those of the modules below, not only this module's own.
            remove_duplicate: a parameter that is used in two places comes once.
        """
        seen: set[int] = set()
        for path, module in self._places(prefix, recurse, remove_duplicate):
            for name, parameter in module._parameters.items():
                if parameter is None or id(parameter) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(parameter))
                yield (f"{path}.{name}" if path else name), parameter

    def train(self: M, mode: bool = True) -> M:
        """Set `training` here and in all modules below."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: mode is {mode!r}; expected True or False")
        self.training = mode
        for _, module in self.named_children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        """Set `training` to False here and in all modules below."""
        return self.train(False)

    # END SOLUTION a0.4

    def _places(
        self, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterable[tuple[str, Module]]:
        if recurse:
            return self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        return [(prefix, self)]

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their names; the arguments are those of named_parameters."""
        seen: set[int] = set()
        for path, module in self._places(prefix, recurse, remove_duplicate):
            for name, buffer in module._buffers.items():
                if buffer is None or id(buffer) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(buffer))
                yield (f"{path}.{name}" if path else name), buffer

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        return (parameter for _, parameter in self.named_parameters("", recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (buffer for _, buffer in self.named_buffers("", recurse))

    def children(self) -> Iterator[Module]:
        """The modules that are attributes of this one."""
        return (module for _, module in self.named_children())

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path: `get_submodule("encoder.0")`; "" is this one."""
        module: Module = self
        for name in target.split(".") if target else ():
            child = module._modules.get(name)
            if child is None:
                raise AttributeError(
                    f"get_submodule: {target!r}: {type(module).__name__} has no module "
                    f"{name!r}; it has {list(module._modules)}"
                )
            module = child
        return module

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call `fn` on all modules below, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -------------------------------------------------------- gradients and memory

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to 0."""
        for parameter in self.parameters():
            clear_grad(parameter, set_to_none)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Turn the learning of all parameters on or off."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move to a device, convert floating-point numbers to a dtype, or both.

        `to("cuda")`, `to(minitorch.float64)`, `to("cpu", minitorch.float32)` or
        `to(tensor)`. The parameters stay the same objects, so an optimizer keeps them.

        With `non_blocking=True` nobody waits for copies between pinned memory and
        "cuda", as in `Tensor.to`.
        """
        device, dtype, non_blocking = parse_to("Module.to", *args, **kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(
                f"Module.to: dtype is {dtype.name}; a module's parameters are "
                f"floating-point numbers"
            )
        with no_grad():
            for tensor in chain(self.parameters(), self.buffers()):
                _move(tensor, device, dtype, non_blocking)
                if tensor.grad is not None:
                    _move(tensor.grad, device, dtype, non_blocking)
        return self

    def cpu(self: M) -> M:
        """Move to the device "cpu"."""
        return self.to("cpu")

    def cuda(self: M, device: Any = None) -> M:
        """Move to a GPU: the current one, or that of a number or a name."""
        return self.to("cuda" if device is None else device)

    def float(self: M) -> M:
        """Convert to float32."""
        return self.to(float32)

    def half(self: M) -> M:
        """Convert to float16."""
        return self.to(float16)

    def bfloat16(self: M) -> M:
        """Convert to bfloat16."""
        return self.to(bfloat16)

    def double(self: M) -> M:
        """Convert to float64."""
        return self.to(float64)

    # ----------------------------------------------------------- saving and loading

    def state_dict(
        self, *, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Tensor]:
        """All parameters and persistent buffers by name; they share this memory.

        Args:
            prefix: what to put before each name.
            keep_vars: the parameters themselves instead of detached tensors.
        """
        state: dict[str, Tensor] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            lead = prefix + (f"{path}." if path else "")
            for name, tensor in chain(
                module._parameters.items(), module._buffers.items()
            ):
                if tensor is not None and name not in module._non_persistent:
                    state[lead + name] = tensor if keep_vars else tensor.detach()
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy the tensors of `state_dict` into the parameters and buffers.

        Args:
            strict: names that are missing or that mean nothing here are an error.

        Raises:
            RuntimeError: lists all names that are missing, unexpected or of a wrong
                shape; nothing was changed then.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"load_state_dict: got a {type(state_dict).__name__}; expected a dict "
                f"of tensors"
            )
        for path, module in self.named_modules(remove_duplicate=False):
            module._before_load(state_dict, f"{path}." if path else "")
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        problems = misfits(own, state_dict, strict)
        if problems:
            lines = "\n    ".join(problems)
            raise RuntimeError(
                f"load_state_dict: the state does not fit {type(self).__name__}, and "
                f"nothing was changed:\n    {lines}"
            )
        with no_grad():
            for name, tensor in own.items():
                if name in state_dict:
                    tensor.copy_(state_dict[name].detach())
        return IncompatibleKeys(missing, unexpected)

    def _before_load(self, state: Mapping[str, Any], lead: str) -> None:
        """What a layer does before the tensors whose names begin with `lead` come."""

    # -------------------------------------------------------------------- printing

    def extra_repr(self) -> str:
        """What to print between the brackets, `_shown` if a subclass says no more."""
        shown = self._shown + ("inplace",) * self.__dict__.get("inplace", False)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    def __repr__(self) -> str:
        name, extra = type(self).__name__, self.extra_repr()
        lines = [f"({key}): {module!r}" for key, module in self._modules.items()]
        if not lines:
            return f"{name}({extra})"
        lines = ([extra] if extra else []) + lines
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{name}(\n  {body}\n)"


def clear_grad(tensor: Tensor, set_to_none: bool) -> None:
    """Drop the gradient of a tensor, or replace it by zeros."""
    if tensor.grad is not None:
        tensor.grad = None if set_to_none else tensor.new_zeros(tensor.raw.shape)


def misfits(
    own: Mapping[str, Any],
    state: Mapping[str, Any],
    strict: bool = True,
    kinds: tuple[type, ...] = (Tensor,),
) -> list[str]:
    """One line for each value of `state` that cannot be copied into its tensor, and
    (if `strict`) for each name that only one of the two has; `kinds` of values may be
    tensors."""
    lines = []
    for name, tensor in own.items():
        value = state.get(name, tensor)
        if name in state and not isinstance(value, kinds):
            lines.append(
                f"not a tensor: {name!r} is a {kind_of(value)}; of another library's "
                f"tensor give minitorch.from_dlpack(tensor)"
            )
        elif _shape(value) != _shape(tensor):
            lines.append(
                f"wrong shape: {name!r} is {_shape(value)}; expected {_shape(tensor)}"
            )
        elif strict and name not in state:
            lines.append(f"missing: {name!r} {_shape(tensor)}")
    return lines + [f"unexpected: {k!r}" for k in state if strict and k not in own]


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _move(
    tensor: Tensor, device: str | None, dtype: DType | None, non_blocking: bool
) -> None:
    """Let `tensor` refer to memory on `device` and, if it is floating, of `dtype`."""
    moved = tensor.detach()
    if dtype is not None and moved.dtype.is_floating_point:
        moved = moved.to(dtype)
    if device is not None:
        moved = moved.to(device, non_blocking=non_blocking)
    tensor.raw = moved.raw
