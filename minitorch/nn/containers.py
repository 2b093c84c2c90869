"""Modules that hold modules.

With this file one can chain modules (`Sequential`) and keep any number of them as an
attribute (`ModuleList`, `ModuleDict`), where a plain list or dict would hide them from
`parameters()`; `ParameterList` and `ParameterDict` do so for parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor


class _Numbered(Module):
    """Modules in order, named "0", "1" and so on unless given other names."""

    def _items(self) -> list[Module]:
        return list(self._modules.values())  # type: ignore[arg-type]

    def _name_at(self, index: Any) -> str:
        position = operator.index(index)
        size = len(self._modules)
        if not -size <= position < size:
            raise IndexError(
                f"{type(self).__name__}: index {position} for {size} module(s)"
            )
        return list(self._modules)[position]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items())

    def __contains__(self, module: object) -> bool:
        return any(module is item for item in self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            items: list[Any] = list(self._modules.items())
            return type(self)._of(items[index])
        return self._modules[self._name_at(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index]
        for name in [names] if isinstance(names, str) else names:
            del self._modules[name]
        if all(name.isdigit() for name in self._modules):
            self._renumber(self._items())

    @classmethod
    def _of(cls, items: list[tuple[str, Module]]) -> Any:
        raise NotImplementedError

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        number = len(self)
        while str(number) in self._modules:  # a slice's modules keep their names
            number += 1
        self.add_module(str(number), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before the one at `index`."""
        items = self._items()
        items.insert(index, module)
        self._renumber(items)
        return self


class Sequential(_Numbered):
    """Each module's output is the next one's input.

    `Sequential(Linear(2, 8), ReLU(), Linear(8, 1))`, or with names:
    `Sequential({"first": Linear(2, 8), "act": ReLU()})`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    @classmethod
    def _of(cls, items: list[tuple[str, Module]]) -> Sequential:
        return cls(dict(items))

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)  # type: ignore[misc]
        return x


class ModuleList(_Numbered):
    """A list of modules, for a forward that loops over them."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    @classmethod
    def _of(cls, items: list[tuple[str, Module]]) -> ModuleList:
        return cls([module for _, module in items])


class _Dict(Module, MutableMapping[str, Any]):
    """What dicts share; a subclass says where its entries are kept."""

    __eq__, __hash__ = Module.__eq__, Module.__hash__  # as for any other module
    _kept: Any  # a property

    def __getitem__(self, name: str) -> Any:
        return self._kept[name]

    def __delitem__(self, name: str) -> None:
        del self._kept[name]

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)


class ModuleDict(_Dict):
    """A dict of modules, in the order of insertion."""

    _kept = property(lambda self: self._modules)

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None
    ) -> None:
        super().__init__()
        self.update(() if modules is None else modules)

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)


class ParameterList(Module):
    """A list of parameters, as `ModuleList` is of modules; a tensor becomes one."""

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.extend(() if values is None else values)

    def __getitem__(self, index: Any) -> Any:
        found = list(self._parameters.values())[index]
        return ParameterList(found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self._parameters)

    def __setitem__(self, index: int, value: Tensor) -> None:
        place = range(len(self))[index]
        self.register_parameter(str(place), _parameter(value))

    def append(self, value: Tensor) -> ParameterList:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend


def _parameter(value: Any) -> Any:
    plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return Parameter(value) if plain else value


class ParameterDict(_Dict):
    """A dict of parameters, in the order of insertion; a tensor becomes a parameter."""

    _kept = property(lambda self: self._parameters)

    def __init__(
        self,
        parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None,
    ) -> None:
        super().__init__()
        self.update(() if parameters is None else parameters)

    def __setitem__(self, name: str, value: Tensor | None) -> None:
        self.register_parameter(name, _parameter(value))
