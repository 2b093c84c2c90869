"""Reads what a student wrote for what a task does not allow.

With this file one can find the places in a student's file (`violations`) that get the
right values in another way than the task asks for: a NumPy function where a kernel is
to be written, the library's other implementation of the same thing, another task's
function, or Python's ways to look behind the scenes.

It is a reader, not a wall: the wall is the sandbox. What stands in the library's own
file, word for word, is allowed; everything that the student added may use

- modules that the library's file imports, and `math`, `typing` and others in
  `MODULES`;
- of NumPy and Numba what `NUMPY` and `NUMBA` list: arrays and dtypes, no algorithms;
- no names or attributes in `NAMES` and `ATTRIBUTES`, and no `__private__` ones.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from assignments import syntax

MODULES = {
    "__future__",
    "abc",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "math",
    "numba",
    "numbers",
    "numpy",
    "typing",
    "minitorch.todo",
}
TEST_MODULES = {"hypothesis", "hypothesis.strategies", "pytest"}

NUMPY = set(
    """
    ndarray empty empty_like zeros zeros_like ones ones_like full full_like arange
    asarray ascontiguousarray array float16 float32 float64 int8 int16 int32 int64
    uint8 uint16 uint32 uint64 intp bool_ dtype iinfo finfo nan inf pi e newaxis
    integer floating generic number typing errstate isnan isinf isfinite sqrt exp log
    floor ceil tanh abs maximum minimum NDArray int_ float_ complex64 complex128
    """.split()
)
NUMBA = set(
    """
    njit jit prange vectorize guvectorize cuda literal_unroll literally typed types
    int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 boolean void
    get_num_threads set_num_threads get_thread_id get_parallel_chunksize
    set_parallel_chunksize parallel_chunksize
    """.split()
)
NAMES = set(
    """
    eval exec compile open __import__ globals locals vars breakpoint
    getattr setattr delattr memoryview objmode torch scipy sys os importlib gc inspect
    ctypes cffi subprocess threading multiprocessing socket pickle builtins
    """.split()
)
# Ways from an object to the frame, the code or the module that it came from.
ATTRIBUTES = set(
    """
    f_back f_globals f_locals f_builtins f_code tb_frame tb_next gi_frame cr_frame
    ag_frame func_globals func_code mro subclasses ctypeslib ctypes sys os modules
    importlib builtins linalg fft core extending objmode _umath_linalg
    """.split()
)
DUNDERS = set(
    """
    __init__ __name__ __len__ __getitem__ __setitem__ __iter__ __next__ __eq__ __ne__
    __lt__ __le__ __gt__ __ge__ __hash__ __repr__ __str__ __call__ __add__ __radd__
    __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __neg__ __pow__ __bool__
    __matmul__ __contains__ __doc__ __all__ __post_init__ __enter__ __exit__ __abs__
    __delitem__ __reversed__ __slots__ __setattr__ __getattr__ __float__ __int__
    """.split()
)
# Those that may be called by name; `x.__add__(y)` would be a way around rules for +.
CALLED_DUNDERS = {"__init__", "__name__", "__doc__", "__len__", "__post_init__"}
# NumPy's algorithms, as methods of arrays.
METHODS = set(
    """
    dot sum prod max min mean std var argmax argmin cumsum cumprod argsort searchsorted
    trace diagonal accumulate reduceat outer clip compress matmul
    """.split()
)
# Files in which a kernel, a loop or scalar mathematics is to be written; in others a
# student works with tensors, whose methods have the same names.
KERNEL_FILES = (
    "fast_ops/",
    "cuda_ops/",
    "minitorch/simple_ops/",
    "minitorch/operators.py",
    "minitorch/scalar.py",
    "minitorch/autodiff.py",
    "minitorch/tensor_data.py",
)


@dataclass(frozen=True)
class Violation:
    """Something that a task does not allow.

    Attributes:
        line: where.
        function: the outermost function or "Class.method" around it; "" if none.
        text: what, and what to do.
    """

    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Rules:
    """What may be used in a file.

    Attributes:
        kernel: whether loops are to be written, not NumPy's algorithms.
        modules: that may be imported.
        forbidden: names of other tasks' functions, for functions that may not use them.
    """

    kernel: bool
    modules: frozenset[str]
    forbidden: frozenset[str] = frozenset()


def rules_for(path: str, reference: str, tests: bool, others: Collection[str]) -> Rules:
    """The rules for a student's version of a library file.

    Args:
        path: of the file in the workspace.
        reference: text of the library's file.
        tests: whether the student writes tests in it.
        others: functions of other tasks.
    """
    tree = syntax.parse(reference)
    own = {name for node in ast.walk(tree) for name in _imports(node)}
    modules = MODULES | own | (TEST_MODULES if tests else set())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    short = {name.rpartition(".")[2] for name in others if "." not in name}
    kernel = path.startswith(KERNEL_FILES)
    # What the reference calls across tasks, a student may call as well.
    called = _called_across(tree, short) if short & used else set()
    return Rules(kernel, frozenset(modules), frozenset(short - called))


def _called_across(tree: ast.Module, names: set[str]) -> set[str]:
    """Those of the functions that another function of the file uses."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            found |= (inside & names) - {node.name}
    return found


def violations(text: str, reference: str, rules: Rules) -> list[Violation]:
    """What a student's file uses and may not, in order of lines.

    Args:
        text: the student's file.
        reference: the library's file; statements that are in both are allowed.
        rules: from `rules_for`.
    """
    known = {
        ast.dump(node)
        for node in ast.walk(syntax.parse(reference))
        if isinstance(node, ast.stmt)
    }
    found = [
        Violation(getattr(node, "lineno", 0), function, problem)
        for node, function in _new(syntax.parse(text), known, "")
        for problem in _problems(node, rules, function)
    ]
    return sorted(set(found), key=lambda v: (v.line, v.text))


def _new(
    node: ast.AST, known: set[str], function: str
) -> Iterator[tuple[ast.AST, str]]:
    """All nodes that are not part of a statement that the library has, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and ast.dump(child) in known:
            continue
        name = getattr(child, "name", "") if isinstance(child, DEFINITIONS) else ""
        inside = function
        if name and isinstance(node, (ast.Module, ast.ClassDef)):
            inside = f"{function}.{name}" if function else name
        yield child, inside
        yield from _new(child, known, inside)


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _problems(node: ast.AST, rules: Rules, function: str) -> Iterator[str]:
    for name in _imports(node):
        if name not in rules.modules:
            yield f"imports {name}, which the library's file does not"
    if isinstance(node, ast.ImportFrom):
        yield from _imported_names(node, rules)
    if isinstance(node, ast.Name):
        yield from _name(node.id, rules, function)
    if isinstance(node, ast.Attribute):
        yield from _attribute(node, rules, function)
    if rules.kernel:
        yield from _whole_arrays(node)


def _whole_arrays(node: ast.AST) -> Iterator[str]:
    """Operators that work on arrays as a whole, as far as they can be seen."""
    operator = getattr(node, "op", None)
    if isinstance(operator, ast.MatMult):
        yield "uses @, where a loop is to be written"
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AugAssign):
        targets = [node.target]
    for target in targets:
        computed = isinstance(node, ast.AugAssign) or not isinstance(
            node.value,  # type: ignore[attr-defined]
            (ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.UnaryOp),
        )
        if computed and isinstance(target, ast.Subscript) and _is_slice(target.slice):
            yield "computes many elements at once, where a loop is to be written"


def _is_slice(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(part, ast.Slice)
        or (isinstance(part, ast.Constant) and part.value is Ellipsis)
        for part in parts
    )


def _imports(node: ast.AST) -> list[str]:
    """The modules that a statement imports; relative ones by their dots."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


def _imported_names(node: ast.ImportFrom, rules: Rules) -> Iterator[str]:
    for alias in node.names:
        allowed = {"numpy": NUMPY, "numba": NUMBA}.get(node.module or "")
        if alias.name == "*" or (allowed is not None and alias.name not in allowed):
            yield f"imports {alias.name} from {node.module}"
        yield from _name(alias.name, rules, "")


def _name(name: str, rules: Rules, function: str) -> Iterator[str]:
    if name in NAMES:
        yield f"uses {name}"
    if _is_private(name):
        yield f"uses {name}"
    if name in rules.forbidden and function.rpartition(".")[2] != name:
        yield f"uses {name}, which another task asks for"


def _is_private(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS


def _attribute(node: ast.Attribute, rules: Rules, function: str) -> Iterator[str]:
    name, owner = node.attr, node.value
    root = owner.id if isinstance(owner, ast.Name) else ""
    private = name.startswith("__") and name not in CALLED_DUNDERS
    if name in ATTRIBUTES or name in NAMES - {"compile"} or private:
        yield f"uses .{name}"
    if root in ("np", "numpy") and name not in NUMPY:
        yield f"uses NumPy's {name}"
    elif root in ("nb", "numba") and name not in NUMBA:
        yield f"uses Numba's {name}"
    elif rules.kernel and name in METHODS and root != "math":
        yield f"uses .{name}, where a loop is to be written"
    if name in ("np", "numpy") and isinstance(node.ctx, ast.Load):
        yield f"uses .{name}"
