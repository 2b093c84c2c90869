"""Pages of the reference: one part for each module, made of its docstrings.

With this file a page of the book has a comment, `<!-- modules: minitorch.nn ... -->`,
in whose place all modules of these packages stand that define something public, in this
order. So a new module of a package is in the book without another word.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

LIST = re.compile(r"^<!-- modules: (.*?) -->$", re.M | re.S)
INNER = "minitorch.backend.host."  # what two backends share, behind the contract
PART = "## {0}\n\n```{{eval-rst}}\n.. automodule:: {0}\n```\n"


def modules(root: Path) -> list[str]:
    """All modules of the library that define something for others, by name."""
    found = []
    for file in sorted((root / "minitorch").rglob("*.py")):
        if file.name != "__main__.py" and _defines_something(file):
            name = ".".join(file.relative_to(root).with_suffix("").parts)
            found.append(name.removesuffix(".__init__"))
    return [name for name in found if not name.startswith(INNER)]


def _defines_something(file: Path) -> bool:
    kinds = ast.FunctionDef, ast.ClassDef
    body = ast.parse(file.read_text("utf-8")).body
    return any(isinstance(n, kinds) and not n.name.startswith("_") for n in body)


def chosen(names: list[str], packages: list[str]) -> list[str]:
    """Those of `names` that are one of `packages` or in it, in their order, once."""
    found = [
        name
        for package in packages
        for name in names
        if name == package or name.startswith(f"{package}.")
    ]
    return list(dict.fromkeys(found))


def setup(app: Any) -> None:
    """Called by Sphinx."""

    def read(app: Any, docname: str, text: list[str]) -> None:
        def parts(found: re.Match[str]) -> str:
            names = chosen(modules(Path(app.srcdir)), found[1].split())
            return "\n".join(PART.format(name) for name in names)

        text[0] = LIST.sub(parts, text[0])

    app.connect("source-read", read)
