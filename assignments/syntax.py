"""Python source as a syntax tree, in any thread.

With this file the grader parses files of several submissions at a time (`parse`).
CPython before 3.11.8 and 3.12.2 counts the depth of a tree that it builds for all
threads together (https://github.com/python/cpython/issues/106905): where another thread
gets its turn meanwhile, as Hypothesis's hook into the garbage collector allows,
`ast.parse` raises "SystemError: AST constructor recursion depth mismatch". One thread
at a time is right everywhere.
"""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """`ast.parse`, one thread at a time.

    Raises:
        SyntaxError: the text is not Python.
    """
    try:
        with _ONE_AT_A_TIME:
            return ast.parse(text, name)
    except (RecursionError, MemoryError):
        raise SyntaxError(f"{name}: nested too deep for Python's parser") from None
    except ValueError as error:  # a null byte, for older Pythons
        raise SyntaxError(f"{name}: {error}") from None
