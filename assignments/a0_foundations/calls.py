"""What a0 runs in the student's process: operators, list functions, module trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assignments.calling import raised

# Functions whose result is a truth value; all others give a number.
BOOLEAN = ("lt", "le", "gt", "ge", "eq", "ne")


def operator(device: str, fn: str, numbers: Sequence[Any]) -> dict[str, Any]:
    """An operator on some numbers."""
    from minitorch import operators

    out = vars(operators)[fn](*numbers)
    return {"out": out if fn in BOOLEAN or fn == "abs_int" else float(out)}


# Functions on which map, zip and reduce are tried.
PLAIN: dict[str, Callable[..., Any]] = {
    "negative": lambda x: -x,
    "text": lambda x: f"<{x}>",
    "minus": lambda x, y: x - y,
    "pair": lambda x, y: [x, y],
}


def map_list(device: str, fn: str, xs: list[Any]) -> dict[str, Any]:
    """`operators.map`, on a list and on a generator."""
    from minitorch import operators

    given = list(xs)
    out = operators.map(PLAIN[fn], given)
    lazily = operators.map(PLAIN[fn], (x for x in xs))
    return {"out": out, "lazily": lazily, "xs": given}


def zip_lists(device: str, fn: str, xs: list[Any], ys: list[Any]) -> dict[str, Any]:
    """`operators.zip_with`, on lists and on generators."""
    from minitorch import operators

    given = list(xs)
    out = operators.zip_with(PLAIN[fn], given, ys)
    lazily = operators.zip_with(PLAIN[fn], (x for x in xs), (y for y in ys))
    return {"out": out, "lazily": lazily, "xs": given}


def reduce_list(device: str, fn: str, xs: list[Any], start: Any) -> dict[str, Any]:
    """`operators.reduce`, on a list and on a generator."""
    from minitorch import operators

    given = list(xs)
    out = operators.reduce(PLAIN[fn], given, start)
    lazily = operators.reduce(PLAIN[fn], (x for x in xs), start)
    return {"out": out, "lazily": lazily, "xs": given}


# ------------------------------------------------------------------ trees of modules
#
# A tree is {"parameters": [names], "children": {name: tree or None}}. The same code
# builds it here, and from PyTorch's classes where the oracle is.

Tree = dict[str, Any]


def build(tree: Tree, module: type, parameter: Callable[[], Any]) -> Any:
    """A module with these parameters and children."""
    made = module()
    for name in tree["parameters"]:
        setattr(made, name, parameter())
    for name, child in tree["children"].items():
        part = None if child is None else build(child, module, parameter)
        made.add_module(name, part)
    return made


def tie(root: Any, child: str, parameter: str) -> None:
    """Let a child, and a parameter of it, hang in the tree at a second place."""
    root.again = getattr(root, child)
    root.tied = getattr(getattr(root, child), parameter)


def ours() -> tuple[type, Callable[[], Any]]:
    """Module, and a function that makes a parameter."""
    from minitorch import zeros
    from minitorch.nn import Module, Parameter

    return Module, lambda: Parameter(zeros(1, device="simple"))


def tree_names(root: Any, tied: bool) -> dict[str, Any]:
    """All names that a tree's iterators give."""
    if tied:
        tie(root, "first", "weight")
    return {
        "children": [name for name, _ in root.named_children()],
        "modules": [name for name, _ in root.named_modules()],
        "prefixed": [name for name, _ in root.named_modules(prefix="net")],
        "all": [name for name, _ in root.named_modules(remove_duplicate=False)],
    }


def parameter_names(root: Any, tied: bool) -> dict[str, Any]:
    """All names that `named_parameters` gives."""
    if tied:
        tie(root, "first", "weight")
    named = root.named_parameters
    return {
        "names": [name for name, _ in named()],
        "prefixed": [name for name, _ in named(prefix="net")],
        "own": [name for name, _ in named(recurse=False)],
        "all": [name for name, _ in named(remove_duplicate=False)],
    }


def training_flags(root: Any, modes: list[bool]) -> dict[str, Any]:
    """What `train` and `eval` set, and what they return."""
    seen = []
    first = root.first
    for target, mode in zip((first, root, first), modes):
        result = target.train() if mode else target.eval()
        seen.append([root.training, first.training, result is target])
        seen.append([part.training for part in first._modules.values() if part])
    result = root.train(modes[0])
    return {"seen": seen, "after": root.training, "same": result is root}


def modules(device: str, tree: Tree, tied: bool) -> dict[str, Any]:
    """The names of modules."""
    return tree_names(build(tree, *ours()), tied)


def parameters(device: str, tree: Tree, tied: bool) -> dict[str, Any]:
    """The names of parameters."""
    return parameter_names(build(tree, *ours()), tied)


def training(device: str, tree: Tree, modes: list[bool]) -> dict[str, Any]:
    """Training and evaluation mode."""
    return training_flags(build(tree, *ours()), modes)


def bad_mode(device: str, mode: Any) -> dict[str, Any]:
    """What `train` does with something that is no bool."""
    module, _ = ours()
    return raised(lambda: module().train(mode))
