"""Source text as everybody reads it, and as a syntax tree, in any thread.

With this file a student's file becomes text (`text_of`), of which all readers see the
same lines, and the grader parses several files at a time (`parse`).
CPython before 3.11.8 and 3.12.2 counts the depth of a tree that it builds for all
threads together (https://github.com/python/cpython/issues/106905): where another thread
gets its turn meanwhile, as Hypothesis's hook into the garbage collector allows,
`ast.parse` raises "SystemError: AST constructor recursion depth mismatch". One thread
at a time is right everywhere.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from functools import lru_cache

_ONE_AT_A_TIME = threading.Lock()
CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
WORD = re.compile(r"\w+")


def text_of(data: bytes) -> str:
    """A file's text as Python reads it: UTF-8, without a byte order mark.

    Lines end in "\\n", whatever they ended in. What else ends lines for some programs,
    such as a form feed, stays a character like others: split at "\\n" alone.

    Raises:
        ValueError: it is not UTF-8, or says that it is not, or has a null byte.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        said = f"not UTF-8: {error.reason} in line {line}, at byte {error.start}"
        raise ValueError(said) from None
    if "\0" in text:
        line = 1 + text.count("\n", 0, text.index("\0"))
        raise ValueError(f"a null byte in line {line}, which no text has")
    named = CODING.search("\n".join(text.split("\n", 2)[:2]))
    if named and named[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
        raise ValueError(f"its encoding is {named[1]}; use UTF-8")
    return text


def parse(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """`ast.parse`, one thread at a time.

    Raises:
        SyntaxError: the text is not Python.
    """
    try:
        with _ONE_AT_A_TIME:
            return ast.parse(text, name)
    except (RecursionError, MemoryError):
        said = "nested too deep for Python's parser"
        raise SyntaxError(said, (name, None, None, None)) from None
    except ValueError as error:  # a null byte, for older Pythons
        raise SyntaxError(f"{name}: {error}") from None


# What editors import by themselves, and what a first attempt has left behind.
OFTEN_LEFT = frozenset(
    "collections copy functools itertools math numpy operator os random sys time "
    "typing".split()
)


def without_unused(text: str, library: str) -> str:
    """A module's text without imports of `OFTEN_LEFT` whose names nobody uses.

    Only whole lines at the top level go, and stay as empty ones. What the library's
    file imports stays: functions that are taken from there may need it.

    Raises:
        SyntaxError: a text is not Python.
    """
    body = parse(text).body
    found = [
        n for n in body if _is_often_left(n) and not _bound(n) & _imported(library)
    ]
    if not found:
        return text
    used = set(_words(ast.Module([n for n in body if n not in found], [])))
    lines = text.split("\n")
    for node in found:
        behind = lines[node.lineno - 1].encode()[node.end_col_offset :].strip()
        whole = node.col_offset == 0 and node.lineno == node.end_lineno
        if whole and behind[:1] in (b"", b"#") and not _bound(node) & used:
            lines[node.lineno - 1] = ""
    return "\n".join(lines)


@lru_cache(maxsize=256)
def _imported(text: str) -> frozenset[str]:
    """The names that a module gets by imports."""
    return frozenset(name for node in parse(text).body for name in _bound(node))


def _bound(node: ast.stmt) -> set[str]:
    """The names that an import statement binds."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return set()
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _is_often_left(node: ast.stmt) -> bool:
    """Whether it imports from `OFTEN_LEFT` alone, and says which names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names} <= OFTEN_LEFT
    if not isinstance(node, ast.ImportFrom) or node.level or "*" in _bound(node):
        return False
    return str(node.module).partition(".")[0] in OFTEN_LEFT


def _words(tree: ast.AST) -> Iterator[str]:
    """All names that code has, and words of its texts; no attributes or docstrings."""
    documents = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) or id(node) in documents:
            continue
        for _, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                yield from WORD.findall(one) if isinstance(one, str) else ()


def without_main(text: str) -> str:
    """A module's text without what stands under `if __name__ == "__main__":`.

    No import runs that, and nobody asks for it; its lines stay, empty.

    Raises:
        SyntaxError: the text is not Python.
    """
    lines = text.split("\n")
    for node in parse(text).body if "__main__" in text else ():
        match node:
            case ast.If(
                test=ast.Compare(
                    left=ast.Name(id="__name__"),
                    ops=[ast.Eq()],
                    comparators=[ast.Constant(value="__main__")],
                ),
                orelse=[],
                end_lineno=int(end),
            ):
                first = node.lineno - 1
                lines[first:end] = [""] * (end - first)
    return "\n".join(lines)
