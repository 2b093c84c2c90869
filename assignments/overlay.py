"""A student's files in the place of the library's modules of the same names.

With this file one can say which modules come from a workspace (`install`); all the rest
comes from the library. It must happen before the library is imported.

One task at a time is looked at, so that a mistake in one does not count in all others:
functions that belong to other tasks can be taken from the library's own file
(`install(..., from_library=...)`), and the twins of solutions always are.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import marshal
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from assignments import syntax
from assignments.regions import twins_in

# Top-level packages that have modules a workspace may replace.
PACKAGES = ("minitorch", "fast_ops", "cuda_ops", "mojo_ops", "assignments")


class Overlay:
    """A finder of modules that knows the files of a workspace, and nothing else.

    Args:
        files: for each module's name, the file that takes its place.
        from_library: for each module's name, functions ("Module.train") that the
            library's file keeps.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        from_library: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.files = {name: Path(path) for name, path in files.items()}
        self.from_library = dict(from_library or {})
        self.root = Path(__file__).resolve().parent.parent

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Where the module called `name` is; None if that is not ours to say."""
        file = self.files.get(name)
        if file is not None:
            kept = frozenset(self.from_library.get(name, ()))
            loader = StudentLoader(name, str(file), self.library_file(name), kept)
            return importlib.util.spec_from_file_location(name, file, loader=loader)
        if name in PACKAGES:
            return self._package(name)
        return None

    def _package(self, name: str) -> ModuleSpec | None:
        """The library's package.

        A workspace has folders of the same names, without `__init__.py`; Python would
        find those where the workspace is on its path.
        """
        init = self.root / name / "__init__.py"
        return (
            importlib.util.spec_from_file_location(name, init)
            if init.exists()
            else None
        )

    def library_file(self, name: str) -> Path:
        """The library's own file of a module."""
        return self.root.joinpath(*name.split(".")).with_suffix(".py")


class StudentLoader(importlib.machinery.SourceFileLoader):
    """Loads a student's file, with some functions from the library's."""

    def __init__(
        self, name: str, path: str, library: Path, kept: Collection[str]
    ) -> None:
        super().__init__(name, path)
        self.library = library
        self.kept = frozenset(kept) | _twins(library)

    def get_code(self, fullname: str) -> CodeType | None:
        """The compiled module; never from a cache, which would not know `kept`."""
        path = self.get_filename(fullname)
        library = self.library.read_bytes() if self.kept else b""
        return compiled(self.get_data(path), path, library, self.kept)

    def get_source(self, fullname: str) -> str:
        """The text, and what is from elsewhere: caches of kernels depend on both."""
        text = super().get_source(fullname) or ""
        return "\n".join(
            [text, *(f"# from the library: {n}" for n in sorted(self.kept))]
        )


def _twins(library: Path) -> set[str]:
    """What a workspace's file lacks, because it would give a solution away."""
    return (
        twins_in(library.read_text("utf-8"), library.name)
        if library.exists()
        else set()
    )


# -------------------------------------------------------------------------- grafting

LIBRARY_LINES = 100_000  # what is from the library stands after all of a student's


def compiled(
    text: bytes, path: str, library: bytes = b"", kept: Collection[str] = ()
) -> CodeType:
    """A student's file, in which the functions called `kept` are the library's.

    Line numbers stay those of the student's file; the library's begin at
    `LIBRARY_LINES`, so that nobody takes the one for the other.

    Raises:
        SyntaxError: it is no Python, or nested too deeply to be compiled.
    """
    try:
        tree = syntax.parse(text, path)
        if kept:
            graft(tree, syntax.parse(library), kept)
        return compile(tree, path, "exec", dont_inherit=True)
    except (RecursionError, MemoryError, ValueError) as error:
        raise SyntaxError(f"it cannot be compiled: {error}", (path, 1, 1, "")) from None


def write_compiled(files: list[tuple[str, str, list[str]]]) -> str:
    """Compile a student's files with functions of the library's, and run nothing.

    Args:
        files: path, the library's text, and the names of the functions.

    Returns:
        What is wrong with one of them; "" if nothing is.
    """
    for path, library, kept in files:
        try:
            text = Path(path).read_bytes()
            code = compiled(text, path, library.encode(), kept)
        except SyntaxError as error:
            return str(error.msg)[:300]
        target = Path(importlib.util.cache_from_source(path))
        target.parent.mkdir(exist_ok=True)
        # A pyc whose source nobody compares it with, PEP 552.
        head = importlib.util.MAGIC_NUMBER + b"\1" + bytes(11)
        target.write_bytes(head + marshal.dumps(code))
    return ""


def graft(tree: ast.Module, library: ast.Module, names: Collection[str]) -> None:
    """Put the library's functions called `names` into a student's module."""
    for name in sorted(names):
        *classes, function = name.split(".")
        theirs, ours = _scope(tree, classes), _scope(library, classes)
        wanted = _position(ours, function)
        if theirs is None or ours is None or wanted is None:
            continue
        ast.increment_lineno(ours[wanted], LIBRARY_LINES)
        at = _position(theirs, function)
        if at is None:
            theirs.append(ours[wanted])
        else:
            theirs[at] = ours[wanted]
            # Of several, the last one counts; what the others do when they are defined
            # is nobody's solution.
            while (at := _position(theirs[:at], function)) is not None:
                del theirs[at]


def remove(tree: ast.Module, names: Collection[str]) -> None:
    """Take the functions called `names` out of a module."""
    for name in names:
        *classes, function = name.split(".")
        body = _scope(tree, classes)
        at = _position(body, function)
        if body is not None and at is not None:
            del body[at]


def _scope(tree: ast.Module, classes: Sequence[str]) -> list[ast.stmt] | None:
    """The body of a class in a class ... in a module."""
    body: list[ast.stmt] = tree.body
    for name in classes:
        found = [n for n in body if isinstance(n, ast.ClassDef) and n.name == name]
        if not found:
            return None
        body = found[-1].body
    return body


def _position(body: list[ast.stmt] | None, name: str) -> int | None:
    """Where the last function called `name` stands."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for i in reversed(range(len(body or []))):
        node = (body or [])[i]
        if isinstance(node, kinds) and node.name == name:
            return i
    return None


def install(
    files: Mapping[str, Path],
    from_library: Mapping[str, Collection[str]] | None = None,
) -> Overlay:
    """Let `files` take the place of the library's modules, from here on.

    Raises:
        RuntimeError: one of the modules, or one that was made from it, is loaded.
    """
    loaded = [n for n in (*files, *PACKAGES[:-1]) if n in sys.modules]
    if files and loaded:
        raise RuntimeError(
            f"overlay: {', '.join(loaded)} is loaded already; install the overlay "
            f"before the library is imported"
        )
    overlay = Overlay(files, from_library)
    sys.meta_path.insert(0, overlay)
    importlib.invalidate_caches()
    return overlay
