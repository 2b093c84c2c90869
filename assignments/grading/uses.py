"""What a file of Python uses: names by what they mean, attributes, syntax.

With this file one can cut a file into its functions and other statements (`parts`), and
list for each what it uses (`uses`): not the words that stand there, but what they mean.
`np.dot`, `numpy.dot` and `dot` are the same use, "numpy.dot", whatever was imported
under which name; a local variable called `dot` is none.

Nothing here calls itself: however deep a text is nested, reading it takes a time that
grows with its length alone.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import string
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*DEFINITIONS, ast.Lambda)
LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LIMITS = ("numpy.finfo", "numpy.iinfo")


@dataclass(frozen=True)
class Use:
    """One thing that code uses.

    Attributes:
        kind: "name" or "member": what a name or a name and attributes mean: ":add" is
            the file's own `add`, "builtins.len", "numpy.float32"; "module": the same
            for a module that is used as a value; "attribute": of a value; "stores": an
            attribute that is set; "patches": one of something that is no local
            variable; "binds": a name that gets a meaning; "import"; "decorator";
            "syntax".
        name: which.
        line: where.
        role: "annotation" or "base" if it stands in one; "head" in what a definition
            evaluates when the file is imported.
    """

    kind: str
    name: str
    line: int = 0
    role: str = ""

    @property
    def meaning(self) -> tuple[str, str]:
        """Kind and name, which are the same for `np.dot` and for `dot`."""
        return ("name" if self.kind == "member" else self.kind), self.name


@dataclass(frozen=True)
class Part:
    """A function, the head of a class, or another statement of a module or class.

    Attributes:
        name: "add", "Module.train", "Module"; "" for a module's other statements.
        node: the syntax tree.
        names: those that the class around it gives a meaning.
    """

    name: str
    node: ast.stmt
    names: frozenset[str] = frozenset()

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FUNCTIONS)


def parts(tree: ast.Module) -> list[Part]:
    """The parts of a file, in order."""
    found = []
    waiting: list[tuple[str, ast.stmt, frozenset[str]]] = [
        ("", node, frozenset()) for node in reversed(tree.body)
    ]
    while waiting:
        around, node, names = waiting.pop()
        if not isinstance(node, DEFINITIONS):
            found.append(Part(around, node, names))
            continue
        name = f"{around}.{node.name}" if around else node.name
        found.append(Part(name, node, names))
        if isinstance(node, ast.ClassDef):
            inside = frozenset(_bound(node))
            waiting += [(name, child, inside) for child in reversed(node.body)]
    return found


def digest(node: ast.AST) -> bytes:
    """The same for trees that are the same; docstrings do not count."""
    said: list[str] = []
    waiting: list[ast.AST] = [node]
    while waiting:
        at = waiting.pop()
        said.append(type(at).__name__)
        for field, value in ast.iter_fields(at):
            values = value if isinstance(value, list) else [value]
            if field == "body" and isinstance(at, DEFINITIONS):
                values = values[_documented(values) :]
            elif field in ("kind", "type_comment"):
                continue
            # A node's own line, then its children: nothing else is written like that.
            said.append(str(len(values)))
            said += ["." if isinstance(one, ast.AST) else _plain(one) for one in values]
            waiting += [one for one in values if isinstance(one, ast.AST)]
    text = "\n".join(said).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


def _documented(body: list[ast.stmt]) -> int:
    """How many statements of a body are its docstring."""
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return int(isinstance(first, ast.Constant) and isinstance(first.value, str))


def _plain(value: object) -> str:
    # `repr` refuses long integers.
    said = hex(value) if isinstance(value, int) else repr(value)
    return f"{type(value).__name__} {said}"


class Names:
    """What the names of a file mean.

    Args:
        tree: the file.
        is_module: whether a dotted path is a module.
    """

    def __init__(self, tree: ast.Module, is_module: Callable[[str], bool]) -> None:
        self.is_module = is_module
        self.imports: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            for name, path in imported(node):
                self.imports.setdefault(name, set()).add(path)
        self.defined = frozenset(_bound(tree))

    def meanings(self, name: str) -> set[str]:
        """All that a name can mean that is no local variable."""
        found = set(self.imports.get(name, ()))
        if name in self.defined:
            found.add(f":{name}")
        # A definition may be in a branch that does not run.
        if not found or (name in self.defined and hasattr(builtins, name)):
            found.add(f"builtins.{name}")
        return found

    def modules(self, name: str) -> set[str]:
        """The modules that a name can mean."""
        return {path for path in self.imports.get(name, ()) if self.is_module(path)}


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import statement binds, and what they mean."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            yield (alias.asname or root), (alias.name if alias.asname else root)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield (alias.asname or alias.name), f"{module}.{alias.name}"


def _bound(scope: ast.AST) -> dict[str, ast.expr | None]:
    """The names to which a scope gives a meaning, imports aside.

    Where there is just one assignment, also what is assigned.
    """
    found: dict[str, ast.expr | None] = {}
    values = {}
    waiting: list[tuple[ast.AST, bool]] = [(n, False) for n in _inside(scope)]
    while waiting:
        node, looped = waiting.pop()
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[id(node.targets[0])] = node.value
        for name, target in _binds(node):
            if not looped or isinstance(node, ast.NamedExpr):
                found[name] = None if name in found else values.get(id(target))
        if isinstance(node, SCOPES):
            continue
        looped = looped or isinstance(node, LOOPS)
        waiting += [(child, looped) for child in ast.iter_child_nodes(node)]
    return found


def _inside(scope: ast.AST) -> list[ast.AST]:
    """What stands in a scope of its own: of functions, parameters and body."""
    if isinstance(scope, LOOPS):
        return [generator.target for generator in scope.generators]
    if isinstance(scope, (*FUNCTIONS, ast.Lambda)):
        body = scope.body if isinstance(scope.body, list) else [scope.body]
        a = scope.args
        lone = [arg for arg in (a.vararg, a.kwarg) if arg]
        return [*a.posonlyargs, *a.args, *a.kwonlyargs, *lone, *body]
    return list(scope.body)  # type: ignore[attr-defined]


def _binds(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a node itself gives a meaning."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id, node
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node
    elif isinstance(node, ast.arg):
        yield node.arg, node
    elif not isinstance(node, (ast.alias, ast.keyword)):
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):  # definitions, `except ... as`, patterns
            yield name, node


class _Env(NamedTuple):
    """Where a node stands.

    Attributes:
        local: names of the functions around it.
        limits: those of them that are `np.finfo(...)`.
        kinds: those of them that are `type(...)`.
        names: of the class around it.
        role: see `Use`.
    """

    local: frozenset[str] = frozenset()
    limits: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    role: str = ""


def uses(part: Part, names: Names, kept: Collection[bytes] = ()) -> list[Use]:
    """What a part of a file uses.

    Args:
        names: of its file.
        kept: digests of decorators that may stand there as they are.
    """
    return list(_Reader(part, names, kept).read())


class _Reader:
    def __init__(self, part: Part, names: Names, kept: Collection[bytes]) -> None:
        self.part, self.names, self.kept = part, names, kept
        self.waiting: list[tuple[ast.AST, _Env]] = [(part.node, _Env(names=part.names))]
        self.line = part.node.lineno
        self.readers: dict[Any, Callable[[Any, _Env], Iterable[Use]]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Constant: self._constant,
            ast.Subscript: self._subscript,
            (ast.Import, ast.ImportFrom): self._import,
            DEFINITIONS: self._definition,
            ast.Lambda: self._lambda,
            LOOPS: self._loop,
            ast.Compare: self._compare,
            (ast.Assign, ast.AnnAssign, ast.AugAssign): self._assignment,
        }
        self.asked: set[int] = set()  # type(x) where nobody gets the type
        self.rebinds = any(isinstance(n, ast.Nonlocal) for n in ast.walk(part.node))

    def read(self) -> Iterator[Use]:
        while self.waiting:
            node, env = self.waiting.pop()
            self.line = getattr(node, "lineno", self.line)
            for use in self._node(node, env):
                yield Use(use.kind, use.name, self.line, env.role)

    def _push(self, env: _Env, *nodes: ast.AST | None) -> None:
        self.waiting += [(node, env) for node in reversed(nodes) if node is not None]

    def _node(self, node: ast.AST, env: _Env) -> Iterator[Use]:
        """What a node itself uses; what stands in it comes later."""
        if not isinstance(node, ast.expr_context):
            yield Use("syntax", type(node).__name__)
        for name, _ in _binds(node):
            if self.names.modules(name) or name.startswith("__"):
                yield Use("binds", name)
        if isinstance(node, ast.FormattedValue):
            self._ask(node.value, env)
        for kinds, read in self.readers.items():
            if isinstance(node, kinds):
                yield from read(node, env)
                return
        self._push(env, *ast.iter_child_nodes(node))

    # ------------------------------------------------------------------- names

    def _name(self, node: ast.Name, env: _Env) -> Iterator[Use]:
        if isinstance(node.ctx, ast.Load):
            if node.id in env.kinds and id(node) not in self.asked:
                yield Use("name", "builtins.type")
            for meaning in sorted(self._meanings(node.id, env)):
                kind = "module" if self.names.is_module(meaning) else "name"
                yield Use(kind, meaning)

    def _import(self, node: ast.Import | ast.ImportFrom, env: _Env) -> Iterator[Use]:
        for name, path in imported(node):
            yield Use("import", f"{path} as {name}")
        if isinstance(node, ast.Import):
            yield from (Use("import", alias.name) for alias in node.names)

    def _meanings(self, name: str, env: _Env) -> set[str]:
        """What a name means that is read; nothing if it is a local variable."""
        if name in env.local:
            return set()
        found = self.names.meanings(name)
        if name in env.names and not hasattr(builtins, name):
            found.discard(f"builtins.{name}")
        return found

    def _attribute(self, node: ast.Attribute, env: _Env) -> Iterator[Use]:
        base, attributes = _chain(node)
        self._ask(base, env)
        self._push(env, base)
        paths = {""}
        if isinstance(base, ast.Name):
            meanings = self._meanings(base.id, env)
            modules = {path for path in meanings if self.names.is_module(path)}
            if modules:
                self.waiting.pop()
                paths = modules
                yield from (Use("name", other) for other in meanings - modules)
            elif meanings and not isinstance(node.ctx, ast.Load):
                yield from (Use("patches", meaning) for meaning in meanings)
            if base.id in env.limits:
                paths = {"numpy.finfo()"}
        elif self._called(base, env) in LIMITS:
            paths = {"numpy.finfo()"}
        for path in paths:
            yield from self._member(path, attributes, node)

    def _member(
        self, path: str, attributes: list[str], node: ast.Attribute
    ) -> Iterator[Use]:
        """The longest path that is a module's member, and attributes of its value."""
        rest = attributes
        if path:
            path, rest = f"{path}.{rest[0]}", rest[1:]
            while rest and self.names.is_module(path):
                path, rest = f"{path}.{rest[0]}", rest[1:]
            yield Use("module" if self.names.is_module(path) else "member", path)
            if not rest and not isinstance(node.ctx, ast.Load):
                yield Use("patches", path)
        if rest and not isinstance(node.ctx, ast.Load):
            yield Use("stores", rest[-1])
            rest = rest[:-1]
        yield from (Use("attribute", name) for name in rest)

    def _called(self, node: ast.AST, env: _Env) -> str:
        """The path of the function that is called, if it is one."""
        if not isinstance(node, ast.Call):
            return ""
        base, attributes = _chain(node.func)
        if not isinstance(base, ast.Name) or len(attributes) > 1:
            return ""
        meanings = self._meanings(base.id, env)
        return ".".join([*meanings, *attributes]) if len(meanings) == 1 else ""

    def _call(self, node: ast.Call, env: _Env) -> Iterator[Use]:
        function, arguments = node.func, [*node.args, *node.keywords]
        called = self._called(node, env)
        plain = not any(isinstance(a, (ast.Starred, ast.keyword)) for a in arguments)
        if called == "builtins.super" and not arguments:
            yield Use("name", "builtins.super()")
            return None
        if called == "builtins.type" and id(node) in self.asked:
            yield Use("name", "builtins.type()")
            return self._push(env, *arguments)
        if called == "builtins.isinstance" and plain and len(arguments) == 2:
            kind = arguments.pop()
            self._ask(kind, env)
            named = self._names_classes(kind, env)
            self._push(env._replace(role="annotation") if named else env, kind)
        if plain and len(arguments) == 1:  # an array of this type is a new one
            self._ask(function, env)
        if _is_plain_format(function):
            return self._push(env, *arguments)
        self._push(env, function, *arguments)
        return None

    def _compare(self, node: ast.Compare, env: _Env) -> Iterable[Use]:
        """What `is` compares, nobody gets; == hands it to an operand of one's own."""
        sides = [node.left, *node.comparators]
        known = [side for side in sides if self._names_classes(side, env, given=True)]
        identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
        types = [side for side in sides if self._is_type(side, env)]
        if identity or len(known) + len(types) == len(sides):
            for side in types:
                self._ask(side, env)
            for side in known:
                self._push(env._replace(role="annotation"), side)
            sides = [side for side in sides if side not in known]
        self._push(env, *sides, *node.ops)
        return ()

    def _ask(self, node: ast.AST, env: _Env) -> None:
        """Take note of a type where nobody gets it."""
        if self._is_type(node, env):
            self.asked.add(id(node))

    def _is_type(self, node: ast.AST, env: _Env) -> bool:
        named = isinstance(node, ast.Name) and node.id in env.kinds
        return named or self._asks_type(node, env)

    def _asks_type(self, node: ast.AST, env: _Env) -> bool:
        """Whether it is type(x); type(a, b, c) makes a class."""
        if self._called(node, env) != "builtins.type":
            return False
        assert isinstance(node, ast.Call)
        one = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)
        return one and not node.keywords

    def _names_classes(self, node: ast.AST, env: _Env, given: bool = False) -> bool:
        """Whether it is a name for what may be a class, or a tuple of some.

        Args:
            given: of a class that is none of the student's.
        """
        if isinstance(node, ast.Tuple):
            return all(self._names_classes(one, env, given) for one in node.elts)
        base, attributes = _chain(node)
        meanings = self._meanings(base.id, env) if isinstance(base, ast.Name) else ()
        if attributes:
            return bool(meanings) and all(map(self.names.is_module, meanings))
        own = any(meaning.startswith(":") for meaning in meanings)
        return bool(meanings) and not (given and own)

    # ------------------------------------------------------------------- scopes

    def _inner(self, scope: ast.AST, env: _Env) -> _Env:
        bound = _bound(scope)
        inner = env._replace(local=env.local | set(bound), names=frozenset())
        limits = {n for n, v in bound.items() if v and self._called(v, inner) in LIMITS}
        kinds = {n for n, v in bound.items() if v and self._asks_type(v, inner)}
        if self.rebinds:
            limits, kinds = set(), set()
        return inner._replace(
            limits=(env.limits - set(bound)) | limits,
            kinds=(env.kinds - set(bound)) | kinds,
        )

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, env: _Env
    ) -> Iterator[Use]:
        if node is self.part.node:
            env = env._replace(role="head")
        if isinstance(node, ast.ClassDef):
            if node is not self.part.node:
                inside = env._replace(names=frozenset(_bound(node)))
                self._push(inside, *node.body)
            self._push(env._replace(role="base"), *node.bases, *node.keywords)
        else:
            self._push(self._inner(node, env)._replace(role=""), *node.body)
            self._annotation(node.returns, env)
            self._parameters(node.args, env)
        for other in getattr(node, "type_params", ()):
            self._push(env, other)
        for expression in node.decorator_list:
            if digest(expression) not in self.kept:
                yield from self._decorator(expression, env)

    def _decorator(self, node: ast.expr, env: _Env) -> Iterator[Use]:
        """A decorator's text can be code: only constants may be its arguments."""
        function, said = node, ""
        if isinstance(node, ast.Call):
            function = node.func
            plain = all(isinstance(k.value, ast.Constant) for k in node.keywords)
            names = [str(keyword.arg) for keyword in node.keywords]
            said = f"({', '.join(names)})" if plain and not node.args else "(...)"
        base, attributes = _chain(function)
        name = base.id if isinstance(base, ast.Name) else "an expression"
        for meaning in self._meanings(name, env) or {name}:
            yield Use("decorator", ".".join([meaning, *attributes]) + said)
        if isinstance(node, ast.Call):
            self._push(env, *node.args, *node.keywords)

    def _parameters(self, arguments: ast.arguments, env: _Env) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        lone = [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
        for arg in (*every, *lone):
            self._annotation(arg.annotation, env)
            self.waiting.append((ast.copy_location(ast.arg(arg.arg), arg), env))
        self._push(env, *arguments.defaults, *arguments.kw_defaults)

    def _annotation(self, node: ast.expr | None, env: _Env) -> None:
        self._push(env._replace(role="annotation"), node)

    def _constant(self, node: ast.Constant, env: _Env) -> Iterable[Use]:
        """A text in an annotation is one more annotation."""
        if env.role != "annotation" or not isinstance(node.value, str):
            return ()
        try:
            inside = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()  # nobody can evaluate it, either
        for one in ast.walk(inside):
            ast.copy_location(one, node)
        self._push(env, inside)
        return ()

    def _lambda(self, node: ast.Lambda, env: _Env) -> Iterable[Use]:
        self._push(self._inner(node, env), node.body)
        self._parameters(node.args, env)
        return ()

    def _loop(self, node: Any, env: _Env) -> Iterable[Use]:
        """A comprehension; what its first loop runs over stands outside of it."""
        inner = self._inner(node, env)
        results = [getattr(node, name, None) for name in ("elt", "key", "value")]
        self._push(inner, *results)
        for number, generator in enumerate(node.generators):
            self._push(inner, generator.target, *generator.ifs)
            self._push(inner if number else env, generator.iter)
            if generator.is_async:
                yield Use("syntax", "AsyncFor")

    # --------------------------------------------------------------- assignments

    def _assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, env: _Env
    ) -> Iterable[Use]:
        """Slices may get what is there already, not what is computed."""
        if isinstance(node, ast.AugAssign):
            self._push(env, node.op)
        elif isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation, env)
        self._push(env, node.value)
        plain = isinstance(node, ast.Assign) and isinstance(node.value, PLAIN)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id in env.kinds:
                self._ask(node.value, env)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if plain and isinstance(target, ast.Subscript):
                self._push(env, target.value, target.slice)
            else:
                self._push(env, target)
        return ()

    def _subscript(self, node: ast.Subscript, env: _Env) -> Iterable[Use]:
        if isinstance(node.ctx, ast.Store) and _is_slice(node.slice):
            yield Use("syntax", "elements at once")
        self._push(env, node.value, node.slice)


PLAIN = (ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.UnaryOp)


def _chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """`a.b.c` as a, ["b", "c"]."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return node, attributes[::-1]


def _is_slice(index: ast.expr) -> bool:
    elements = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(one, ast.Slice)
        or (isinstance(one, ast.Constant) and one.value is Ellipsis)
        for one in elements
    )


def _is_plain_format(function: ast.expr) -> bool:
    """Whether this is the `format` of a text that looks into none of its arguments."""
    if not (isinstance(function, ast.Attribute) and function.attr == "format"):
        return False
    text = getattr(function.value, "value", None)
    if not (isinstance(function.value, ast.Constant) and isinstance(text, str)):
        return False
    try:
        fields = [(name or "", spec or "") for _, name, spec, _ in FORMAT.parse(text)]
    except ValueError:
        return False
    return not any(set(name) & set(".[") or "{" in spec for name, spec in fields)


FORMAT = string.Formatter()
