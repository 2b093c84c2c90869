"""Typed text as tensors, without `eval`.

With this file one can compute what a user typed (`evaluate`): Python's own parser reads
it, and of its tree only what stands in a table here is followed, node by node. There
are numbers, lists of them, names that were given before, the operations and methods of
the table, and nothing else: no attribute, no call, no name of Python's.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from minitorch.creation import tensor
from minitorch.tensor import Tensor

MOST_CHARACTERS, MOST_NUMBERS = 400, 512
DEVICE = "simple"  # plain loops: nothing to compile, so that the answer is quick
BINARY: Mapping[type, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.Pow: operator.pow,
        ast.MatMult: operator.matmul,
    }
)
MATHEMATICS = frozenset(
    "abs exp log max mean min relu sigmoid sin cos sqrt sum tanh".split()
)
VIEWS = frozenset(
    "contiguous expand flatten permute reshape squeeze transpose unsqueeze view".split()
)


class Evaluator:
    """Computes the nodes of a tree.

    Args:
        names: what names stand for.
        methods: the methods of tensors that may be called; those of mathematics as
            functions, too.
        made: called with each tensor that an operation made, and its text.
    """

    def __init__(
        self,
        names: dict[str, Any],
        methods: frozenset[str],
        made: Callable[[Tensor, str], Any],
    ) -> None:
        self.names, self.methods, self.made = names, methods, made

    def value(self, node: ast.AST) -> Any:
        """What a node of the tree is worth: a number, a tensor, or a tuple of ints."""
        find = getattr(self, f"_{type(node).__name__.lower()}", None)
        if find is None:
            raise ValueError(
                f"{ast.unparse(node)[:40]!r}: {type(node).__name__} is not known here"
            )
        out = find(node)
        if isinstance(out, Tensor):
            if out.numel() > MOST_NUMBERS:
                raise ValueError(
                    f"{ast.unparse(node)[:40]!r} has {out.numel()} numbers; at most "
                    f"{MOST_NUMBERS} are shown"
                )
            if not isinstance(node, ast.Name):
                self.made(out, ast.unparse(node))
        return out

    def _constant(self, node: ast.Constant) -> Any:
        if type(node.value) in (int, float):
            return node.value
        raise ValueError(f"{node.value!r}: expected a number")

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            known = ", ".join(self.names) or "none"
            raise ValueError(f"there is no {node.id!r}; known names: {known}")
        return self.names[node.id]

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise ValueError(f"{ast.unparse(node)!r}: of signs only + and - are known")
        x = self.value(node.operand)
        return -x if isinstance(node.op, ast.USub) else x

    def _binop(self, node: ast.BinOp) -> Any:
        apply = BINARY.get(type(node.op))
        if apply is None:
            raise ValueError(f"{ast.unparse(node)!r}: known are + - * / ** @")
        a, b = self.value(node.left), self.value(node.right)
        for x in (a, b):
            if not isinstance(x, (int, float, Tensor)):
                raise ValueError(f"{ast.unparse(node)!r}: {x!r} is no number")
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            a, b = float(a), float(b)  # powers of ints could fill the memory
        return apply(a, b)

    def _tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self.value(item) for item in node.elts)

    def _list(self, node: ast.List) -> Any:
        return tensor(_numbers(node), device=DEVICE)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            name, args = node.func.attr, [node.func.value, *node.args]
        elif isinstance(node.func, ast.Name):
            name, args = node.func.id, node.args
        else:
            raise ValueError(f"{ast.unparse(node)!r} cannot be called")
        if name not in self.methods or node.keywords or not args:
            known = ", ".join(sorted(self.methods))
            raise ValueError(f"{ast.unparse(node)!r} is not known; known are {known}")
        x, *rest = [self.value(arg) for arg in args]
        if not isinstance(x, Tensor):
            x = tensor(x, device=DEVICE)
        return getattr(x, name)(*rest)

    def _attribute(self, node: ast.Attribute) -> Any:
        x = self.value(node.value)
        if node.attr != "T" or not isinstance(x, Tensor):
            raise ValueError(f"{ast.unparse(node)!r} is not known")
        return x.T

    def _subscript(self, node: ast.Subscript) -> Any:
        x = self.value(node.value)
        if not isinstance(x, Tensor):
            raise ValueError(f"{ast.unparse(node.value)!r} is no tensor")
        many = isinstance(node.slice, ast.Tuple)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(self._index(item) for item in items)
        return x[index if many else index[0]]

    def _index(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self._whole(p) for p in parts))
        if isinstance(node, ast.Constant) and node.value in (None, ...):
            return node.value
        return self._whole(node)

    def _whole(self, node: ast.AST) -> int:
        x = self.value(node)
        if type(x) is not int:
            raise ValueError(f"{ast.unparse(node)!r}: expected a whole number")
        return x


def _numbers(node: ast.AST) -> Any:
    """Lists of numbers as Python's own, in which minus signs may stand."""
    if isinstance(node, ast.List):
        return [_numbers(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _numbers(node.operand)
        return -inner if isinstance(inner, float) else inner
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{ast.unparse(node)[:40]!r}: a list holds numbers, or lists")


def parse(text: str) -> list[ast.stmt]:
    """The statements of a text.

    Raises:
        ValueError: it is too long, or no Python.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(text)} characters; at most "
                         f"{MOST_CHARACTERS} are read")  # fmt: skip
    try:
        return ast.parse(text.strip()).body
    except SyntaxError as error:
        line = f" in line {error.lineno}" if error.lineno else ""
        raise ValueError(f"this is no Python{line}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise ValueError("this is nested too deeply, or no text") from None


def evaluate(
    text: str,
    names: dict[str, Any],
    methods: frozenset[str] = MATHEMATICS | VIEWS,
    made: Callable[[Tensor, str], Any] = lambda tensor, text: None,
    given: Callable[[str, Any], Any] = lambda name, value: value,
) -> Any:
    """The value of the last statement of `text`, in which names may be assigned.

    Args:
        names: those that are known; those that are assigned are added.
        methods, made: as of `Evaluator`.
        given: what a name shall stand for, from the name and the assigned value.

    Raises:
        ValueError, TypeError, IndexError, ArithmeticError: what is wrong with it.
    """
    evaluator, out = Evaluator(names, methods, made), None
    for statement in parse(text):
        match statement:
            case ast.Expr(value=node):
                out = evaluator.value(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=node):
                out = names[name] = given(name, evaluator.value(node))
            case _:
                raise ValueError(
                    f"{ast.unparse(statement)[:40]!r}: expected name = value, or "
                    f"a value"
                )
    if out is None:
        raise ValueError("nothing was typed; expected an expression")
    return out
