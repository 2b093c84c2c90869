"""What a task allows, and what a student's file uses beyond that.

With this file one can find the places in a student's file (`violations`) where it uses
more than a task allows. What a task allows is a list, and all else is refused:

- what the library's solution of this task uses itself: functions, attributes, syntax;
- constants of the library's file, its types in annotations, and the fields of the
  library's records (a `Program` has `steps`) that the file imports;
- what the student wrote, which is read in the same way;
- of Python, NumPy and Numba what `allowed.py` lists, and `allows` of the assignment.

A module stands left of a dot and nowhere else, so that nothing can be another name for
it. What the library's file has outside of the tasks stays as it is.

It is a reader, not a wall: the wall is the sandbox. It cannot see types: `2 * x + 1` on
a whole array looks like arithmetic on numbers.
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache

import numpy as np

from assignments import syntax
from assignments.catalog import LIBRARY
from assignments.grading import allowed
from assignments.grading.uses import Names, Part, Use, digest, parts, uses

LIBRARY_ROOTS = ("minitorch", "fast_ops", "cuda_ops")


@dataclass(frozen=True)
class Violation:
    """Something that a task does not allow.

    Attributes:
        line: where.
        function: the function or "Class.method" around it; "" if none.
        text: what, and what to do.
    """

    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Rules:
    """What a file is read for.

    Attributes:
        path: of the file in the workspace.
        tasks: for each task that is graded here, the functions to write.
        others: functions of other tasks; the library's take their place.
        tests: whether the student writes tests in it.
        used: for each task, what its solution uses (`solution_uses`), where the
            library's file has no solutions, as in a student edition.
        allows: what the assignment allows beside `allowed.py`, by full names.
    """

    path: str
    tasks: Mapping[str, Collection[str]] = field(default_factory=dict)
    others: Collection[str] = ()
    tests: bool = False
    used: Mapping[str, Collection[tuple[str, str]]] = field(default_factory=dict)
    allows: Collection[str] = ()

    @property
    def is_kernel(self) -> bool:
        """Whether the file is for kernels, loops or scalar mathematics."""
        return self.path.startswith(allowed.KERNEL_FILES)

    def members(self, module: str) -> Collection[str]:
        """What may be used of a module by its name."""
        own = {name.rpartition(".") for name in self.allows}
        listed = allowed.MODULES.get(module, frozenset())
        if module in allowed.TENSOR_MODULES and self.is_kernel:
            listed = frozenset()
        listed |= {name for around, _, name in own if around == module}
        if self.tests and not listed:
            return allowed.TEST_MODULES.get(module, "").split()
        return listed


def violations(text: str, reference: str, rules: Rules) -> list[Violation]:
    """What a student's file uses and may not, in order of lines.

    Args:
        text: the student's file.
        reference: the library's file, with all solutions.

    Raises:
        SyntaxError: the text is no Python.
    """
    student = _File(syntax.parse(text))
    library = _library_file(reference)
    found = {
        violation
        for task in rules.tasks or [""]
        for violation in _Reading(student, library, rules, task).violations()
    }
    return sorted(found, key=lambda v: (v.line, v.text))


def solution_uses(
    reference: str, functions: Collection[str]
) -> frozenset[tuple[str, str]]:
    """What some functions of a library's file use, by `uses.Use.meaning`."""
    library = _library_file(reference)
    found = [part for part in library.parts if part.name in functions]
    return frozenset(u.meaning for part in found for u in library.uses(part))


# ------------------------------------------------------------------------- modules


def _is_module(path: str) -> bool:
    """Whether a dotted path is a module: one of the lists, or one of the library."""
    if path.startswith((":", ".", "builtins.")) or path.endswith(")"):
        return False
    if "." not in path or path in allowed.MODULES or path in allowed.TEST_MODULES:
        return True
    around, _, name = path.rpartition(".")
    return _source(path) is not None and name not in _given(around)


@cache
def _source(path: str) -> _File | None:
    """A module of the library."""
    names = path.split(".")
    if names[0] not in LIBRARY_ROOTS:
        return None
    for place in (LIBRARY.joinpath(*names, "__init__.py"), LIBRARY.joinpath(*names)):
        file = place if place.suffix else place.with_suffix(".py")
        if all(name.isidentifier() for name in names) and file.is_file():
            return _File(syntax.parse(file.read_text()))
    return None


@cache
def _given(module: str) -> frozenset[str]:
    """The public names that a module of the library itself gives a meaning."""
    file = _source(module)
    if file is None:
        return frozenset()
    names, imports = set(file.names.defined), file.names.imports.items()
    if module in PACKAGES:  # what it imports is there to be used, submodules aside
        names |= {name for name, paths in imports if paths != {f"{module}.{name}"}}
    if module == "minitorch.nn.functional":  # parts of it that stand elsewhere
        parts = [f"minitorch.functions.{part}." for part in ("activation", "losses")]
        names |= {name for name, paths in imports if paths <= {p + name for p in parts}}
    return frozenset(name for name in names if not name.startswith("_"))


PACKAGES = ("minitorch", "minitorch.nn")


@cache
def _foreign() -> frozenset[str]:
    """Attributes that lead from a value to NumPy's algorithms or behind the scenes.

    An attribute of the student's own may not have one of these names, because nothing
    here tells whose attribute it is.
    """
    kinds = [np.ndarray, np.ufunc, type, *vars(types).values()]
    found = {n for kind in kinds if isinstance(kind, type) for n in dir(kind)}
    found |= {"numpy", "storage", "py_func", "overloads", "targetctx", "typingctx"}
    return frozenset(found - {"base", "data", "flags", "device"})


@cache
def _of_library() -> frozenset[str]:
    """Attributes that lead from a tensor to the library's own algorithms.

    They are for the student's own things no more than those above: `x.backend` would
    have kernels that do what a task asks for.
    """
    found = {"backend"}
    for folder in ("minitorch/backend", "minitorch/tensor"):
        for path in LIBRARY.joinpath(folder).glob("*.py"):
            module = path.relative_to(LIBRARY).with_suffix("").as_posix()
            source = _source(module.replace("/", ".").removesuffix(".__init__"))
            found |= source.methods if source else set()
    return frozenset(found)


class _File:
    """A file's parts, and what each of them uses."""

    def __init__(self, tree: ast.Module) -> None:
        self.names = Names(tree, _is_module)
        self.parts = parts(tree)
        self._uses: dict[int, list[Use]] = {}

    def uses(self, part: Part, kept: Collection[bytes] = ()) -> list[Use]:
        """What a part uses, apart from decorators that are kept."""
        key = id(part)
        if key not in self._uses:
            self._uses[key] = uses(part, self.names, kept)
        return self._uses[key]

    @cached_property
    def _known(self) -> dict[str, set[bytes]]:
        known: dict[str, set[bytes]] = {}
        for part in self.parts:
            known.setdefault(part.name, set()).add(_digest(part))
        return known

    def has(self, part: Part) -> bool:
        """Whether a part of another version of the file stands here as well."""
        return part.name in self._known and _digest(part) in self._known[part.name]

    @cached_property
    def functions(self) -> frozenset[str]:
        return frozenset(part.name for part in self.parts if part.is_function)

    @cached_property
    def methods(self) -> frozenset[str]:
        """Names of functions in classes."""
        found = [name.rpartition(".") for name in self.functions]
        return frozenset(name for around, _, name in found if around)

    @cached_property
    def decorators(self) -> frozenset[bytes]:
        """Digests of all decorators."""
        nodes = [node for part in self.parts for node in ast.walk(part.node)]
        lists = [getattr(node, "decorator_list", []) for node in nodes]
        return frozenset(digest(one) for decorators in lists for one in decorators)

    @cached_property
    def imports(self) -> frozenset[str]:
        """What the file imports, and under which name."""
        found = [use for part in self.parts for use in self.uses(part)]
        return frozenset(use.name for use in found if use.kind == "import")

    @cached_property
    def bases(self) -> frozenset[str]:
        """What the file's classes are derived from."""
        found = [use for part in self.parts for use in self.uses(part)]
        return frozenset(use.name for use in found if use.role == "base")

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Attributes that the file sets, and fields of its classes."""
        every = [use for part in self.parts for use in self.uses(part)]
        found = {use.name for use in every if use.kind == "stores"}
        nodes = [part.node for part in self.parts if part.name]
        fields = [n.target for n in nodes if isinstance(n, ast.AnnAssign)]
        return frozenset(found | {n.id for n in fields if isinstance(n, ast.Name)})

    @cached_property
    def fields(self) -> frozenset[str]:
        """Fields of records of the library that the file imports, or that are listed
        beside them: numbers and names, which no task asks for."""
        found: set[str] = set()
        for one in self.imports:
            module, _, name = one.partition(" as ")[0].rpartition(".")
            source = _source(module)
            if source is not None:
                found |= source.fields_of({name} | allowed.MODULES.get(module, set()))
        return frozenset(found)

    def fields_of(self, names: Collection[str]) -> set[str]:
        """The fields of some classes, if these are records."""
        classes = [p for p in self.parts if isinstance(p.node, ast.ClassDef)]
        records = {p.name for p in classes if _is_record(p.node)} & set(names)
        inside = [p.node for p in self.parts if p.name in records]
        targets = [n.target for n in inside if isinstance(n, ast.AnnAssign)]
        return {t.id for t in targets if isinstance(t, ast.Name)}

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names at the top for what is no function and holds none."""
        found: set[str] = set()
        for part in self.parts:
            if isinstance(part.node, (ast.Assign, ast.AnnAssign)) and not part.name:
                names = [n for n in ast.walk(part.node) if isinstance(n, ast.Name)]
                stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
                plain = all(map(_is_plain, self.uses(part)))
                found |= stored if plain else set()
        return frozenset(found)


def _is_record(node: ast.stmt) -> bool:
    """Whether a class is a `NamedTuple` or a dataclass, which holds fields."""
    assert isinstance(node, ast.ClassDef)
    heads = [ast.unparse(head) for head in (*node.bases, *node.decorator_list)]
    return any(head == "NamedTuple" or head.startswith("dataclass") for head in heads)


def _is_plain(use: Use) -> bool:
    """Whether no function of the library's comes in by this use."""
    module, _, name = use.name.rpartition(".")
    if use.kind in ("name", "member"):
        known = module == "builtins" or name in allowed.MODULES.get(module, ())
        known = known or name.lstrip(":_").isupper()
        return known and use.name not in allowed.COMPILERS
    hidden = use.name == "Lambda" or use.name.startswith("__")
    return not hidden and use.kind in ("syntax", "attribute")


def _digest(part: Part) -> bytes:
    """Of a part as it is; of a class its head."""
    node = part.node
    if isinstance(node, ast.ClassDef):
        node = ast.ClassDef(
            node.name, node.bases, node.keywords, [], node.decorator_list
        )
    return digest(node)


@lru_cache(maxsize=256)
def _library_file(text: str) -> _File:
    return _File(syntax.parse(text))


# ------------------------------------------------------------------------- judging


class _Reading:
    """One task's reading of a file.

    Args:
        student: the student's file.
        library: the same file in the library.
        task: which; "" if none is solved in the file.
    """

    def __init__(self, student: _File, library: _File, rules: Rules, task: str) -> None:
        self.student, self.library, self.rules = student, library, rules
        self.functions = functions = rules.tasks.get(task, ())
        everything = {*rules.others, *(f for fs in rules.tasks.values() for f in fs)}
        self.elsewhere = everything - set(functions)
        self.kernel = rules.is_kernel
        # What the library's file imports, and where that stands.
        self.before = {one.partition(" as ")[0] for one in library.imports}
        self.around = {one.rpartition(".")[0] for one in self.before} | self.before
        self.right = {*self._used_by(functions), *rules.used.get(task, ())}
        self.own_attributes: set[str] = set()

    def violations(self) -> Iterable[Violation]:
        reached, others = self._split()
        for part in reached:
            found = [v for use in self._uses(part) if (v := self._violation(part, use))]
            if found and self._is_given(part):
                text = f"changes {part.name}, which is given; put it back as it was"
                found = [Violation(part.node.lineno, part.name, text)]
            yield from found
        every = self._used_by({*self.elsewhere, *self.functions})
        every |= {use for uses in self.rules.used.values() for use in uses}
        for part in others:
            for use in self._uses(part):
                at_import = use.role == "head" or use.kind == "decorator"
                if at_import or use.meaning not in every:
                    violation = self._violation(part, use)
                    yield from [violation] if violation else []

    def _violation(self, part: Part, use: Use) -> Violation | None:
        problem = self._problem(use)
        return Violation(use.line, part.name, problem) if problem else None

    def _uses(self, part: Part) -> list[Use]:
        return self.student.uses(part, self.library.decorators)

    def _used_by(self, functions: Collection[str]) -> set[tuple[str, str]]:
        """What some functions of the library use."""
        found = [p for p in self.library.parts if p.name in functions]
        return {use.meaning for p in found for use in self.library.uses(p)}

    def _is_given(self, part: Part) -> bool:
        return part.name in self.library.functions - set(self.functions)

    # ------------------------------------------------------------------ what is read

    def _split(self) -> tuple[list[Part], list[Part]]:
        """What can run for this task, and the student's functions that cannot.

        What is as it was is in neither.
        """
        own: dict[str, list[Part]] = {}
        waiting: list[Part] = []
        counts = Counter(part.name for part in self.student.parts)
        for part in self.student.parts:
            # Other tasks' functions are the library's, or read for their own task; of
            # two with one name the library's takes the place of one.
            elsewhere = part.name in self.elsewhere and counts[part.name] == 1
            if elsewhere or self.library.has(part):
                continue
            self._note_attributes(part)
            top = part.name.partition(".")[0]
            if part.is_function and top not in self.library.names.defined:
                own.setdefault(f":{top}", []).append(part)
            elif part.is_function and part.name not in self.library.functions:
                name = part.name.rpartition(".")[2]
                # What stands behind an operator runs without being named.
                place = waiting if name.startswith("__") else own.setdefault(name, [])
                place.append(part)
            else:
                waiting.append(part)
        mine = [part for found in own.values() for part in found]
        heads = [u for part in mine for u in self._uses(part) if u.role == "head"]
        reached: list[Part] = []
        found = heads
        while found or waiting:
            for use in found:
                waiting += own.pop(use.name.partition("(")[0], [])
            found = []
            if waiting:
                reached.append(waiting.pop())
                found = self._uses(reached[-1])
        return reached, [part for left in own.values() for part in left]

    def _note_attributes(self, part: Part) -> None:
        """Attributes that the student's own code defines."""
        if part.is_function:
            self.own_attributes.add(part.name.rpartition(".")[2])
        if part.name and isinstance(part.node, (ast.Assign, ast.AnnAssign)):
            self.own_attributes |= part.names
        stored = [use.name for use in self._uses(part) if use.kind == "stores"]
        self.own_attributes.update(stored)

    # ------------------------------------------------------------------ what is wrong

    def _problem(self, use: Use) -> str:
        """What is wrong with a use; "" if nothing is."""
        if use.role in ("", "head") and use.meaning in self.right:
            return ""
        judges = {
            "name": self._name,
            "member": self._member,
            "module": self._module,
            "attribute": self._attribute,
            "stores": self._stores,
            "patches": self._patches,
            "binds": self._binds,
            "import": self._import,
            "decorator": self._decorator,
            "syntax": self._syntax,
        }
        return judges[use.kind](use)

    def _syntax(self, use: Use) -> str:
        if use.role == "annotation" and use.name not in allowed.ANNOTATION:
            return "has more than types in an annotation"
        if use.role == "base" and use.name in ("keyword", "Call", "Starred"):
            return "has more than the names of classes behind a class's name"
        more = frozenset() if self.kernel else allowed.TENSOR_SYNTAX
        listed = use.name in allowed.SYNTAX | more
        return "" if listed else SAID.get(use.name, f"uses {use.name.lower()}")

    def _name(self, use: Use) -> str:
        name = use.name
        if name.startswith("builtins.") and use.role != "base":
            quiet = use.role == "annotation"  # `type[Tensor]`
            return "" if quiet else self._builtin(name.partition(".")[2])
        if name.startswith(":"):
            return self._own(name[1:], use)
        return self._member(use)

    def _builtin(self, name: str) -> str:
        absent = not hasattr(builtins, name.rstrip("()")) and not name.startswith("__")
        # What has no meaning at all is an error when it runs, which the checks tell.
        if absent or name in allowed.BUILTINS:
            return ""
        return SAID.get(name, f"uses {name}")

    def _own(self, name: str, use: Use) -> str:
        mine = self._is_mine(name)
        based = use.role == "base" and use.name in self.library.bases
        asked = name in {f.partition(".")[0] for f in self.functions}
        module = self.rules.path.removesuffix(".py").replace("/", ".")
        listed = name in self.library.constants or name in self.rules.members(module)
        if mine or based or asked or listed or use.role == "annotation":
            return ""
        return f"uses {name}, which this task's solution does not need"

    def _is_mine(self, name: str) -> bool:
        return name not in self.library.names.defined

    def _member(self, use: Use) -> str:
        path = use.name
        module, _, name = path.rpartition(".")
        if use.role == "base":
            listed = path in allowed.BASES | self.library.bases
            return "" if listed else f"derives a class from {_short(path)}"
        if path in allowed.COMPILERS:
            return f"uses {name} other than as a decorator"
        if path in allowed.ARRAYS and use.role != "annotation":
            return f"uses {name} other than as a type"
        if module == "builtins":  # of a file that gives `map` another meaning
            return self._builtin(name)
        if name in self.rules.members(module):
            return ""
        if module in allowed.OPEN:
            here = module in self.around or "minitorch" in self.before
            listed = here and name in _given(module)
            return "" if listed else f"uses {name} of {module}"
        if self._is_method(module, name):
            return ""
        source = _source(module)
        if source is None:
            return f"uses {name} of {module}"
        if use.role == "annotation" or name in source.constants:
            return ""
        return f"uses {name}, which this task's solution does not need"

    def _is_method(self, module: str, name: str) -> bool:
        """Whether `minitorch.flatten(x)` stands for `x.flatten()`."""
        methods = allowed.TENSORS - {"grad"}  # the function makes what `x.grad` holds
        return module == "minitorch" and not self.kernel and name in methods

    def _module(self, use: Use) -> str:
        return f"uses {use.name} other than left of a dot"

    def _attribute(self, use: Use) -> str:
        name = use.name
        if name in allowed.VALUES or (not self.kernel and name in allowed.TENSORS):
            return ""
        if name in allowed.VIEWS and self.rules.path.startswith(allowed.VIEW_FILES):
            return ""
        foreign = _foreign() | (_of_library() - self.library.methods)
        known = self.own_attributes | self.library.attributes | self.library.fields
        if name in known - foreign:
            return ""
        if name in self.own_attributes:
            return f"uses .{name}, as others call one of theirs; rename yours"
        if name in SAID:
            return SAID[name]
        if self.kernel and hasattr(np.ndarray, name) and not name.startswith("_"):
            return f"uses .{name}, where a loop is to be written"
        return f"uses .{name}, which is on no list (assignments/grading/allowed.py)"

    def _stores(self, use: Use) -> str:
        return f"sets .{use.name}" if use.name.startswith("__") else ""

    def _patches(self, use: Use) -> str:
        own = use.name.startswith(":") and self._is_mine(use.name[1:])
        return "" if own else f"sets an attribute of {_short(use.name)}"

    def _binds(self, use: Use) -> str:
        listed = use.name in allowed.METHODS
        return "" if listed else f"gives the name {use.name} another meaning"

    def _import(self, use: Use) -> str:
        path = use.name.partition(" as ")[0]
        module, _, name = path.rpartition(".")
        root = path.partition(".")[0]
        listed = bool(self.rules.members(path)) or name in self.rules.members(module)
        if root in ("numpy", "numba"):
            listed = listed and any(
                one.partition(".")[0] == root for one in self.before
            )
        listed |= self.rules.tests and path in allowed.TEST_MODULES
        opened = module in allowed.OPEN & self.around and name in _given(module)
        opened |= module in self.around and self._is_method(module, name)
        if listed or opened or use.name in self.library.imports:
            return ""
        if _may_be_own(path):
            return (
                f"imports {path}, which the library's file does not; if that is a file "
                f"of your own: only the assignment's files are handed in, so put what "
                f"you need of it into one of them"
            )
        free = ", ".join(
            name
            for name in allowed.MODULES
            if name.isalpha() and name not in ("numpy", "numba", "minitorch")
        )
        return (
            f"imports {path}, which the library's file does not; what helps with loops "
            f"and numbers is allowed, too: {free}"
        )

    def _decorator(self, use: Use) -> str:
        name, _, arguments = use.name.partition("(")
        options = set(filter(None, arguments.rstrip(")").split(", ")))
        if name in allowed.COMPILERS and options <= allowed.COMPILER_OPTIONS:
            return ""
        listed = name in allowed.DECORATORS or name.endswith(".setter")
        own = name.startswith(":") and self._is_mine(name[1:])
        tests = self.rules.tests and name.partition(".")[0] in allowed.TEST_MODULES
        return "" if listed or own or tests else f"has the decorator {_short(use.name)}"


def _may_be_own(path: str) -> bool:
    """Whether an import may be of a student's own file: of nothing that is known."""
    around = path.rpartition(".")[0]
    root = path.partition(".")[0]
    if root in LIBRARY_ROOTS:
        return _source(path) is None and _source(around) is None
    return root not in sys.stdlib_module_names | {"numpy", "numba", "scipy", "torch"}


def _short(name: str) -> str:
    return name.lstrip(":").removeprefix("builtins.")


SAID = {
    "AsyncFunctionDef": "uses async",
    "TryStar": "uses except*",
    "MatMult": "uses @, where a loop is to be written",
    "elements at once": "computes many elements at once, where a loop is to be written",
    "Global": "uses global; pass it on instead",
    "MatchClass": "uses a pattern with the name of a class",
    "MatchMapping": "uses a pattern of a dictionary",
    "type": "hands a type on; compare it, name it, or call it with one value",
    "storage": "uses .storage, which holds NumPy's array; read(a) gives the numbers",
}
