"""Links from the text to the code: files of the library are pages of the book.

With this file a link to `fast_ops/matmul.py`, which leads to the file on GitHub, leads
to a page with the file in the book; one to a folder leads to its README, or to the file
that describes it; and a quoted piece of the library says which file it is from.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.highlighting import PygmentsBridge

CODE = {".py": "python", ".mojo": "mojo", ".pyi": "python"}
LINK = re.compile(r"\[([^][]*)\]\(([^)#:\s]+)\)")
QUOTE = re.compile(r"^<!-- from (\S+) -->\n```(\w+)\n", re.M)


class Sources:
    """The files that the pages of one build link to."""

    def __init__(self) -> None:
        self.linked: set[str] = set()

    def read(self, app: Any, docname: str, text: list[str]) -> None:
        """Before a page is parsed: mend its links and quotations."""
        here, root = posixpath.dirname(docname), Path(app.srcdir)

        def link(path: str, label: str) -> str:
            if app.builder.name == "singlehtml":
                return label  # for the PDF, which has no pages of code
            self.linked.add(path)
            return f"[{label}](source:{posixpath.relpath('source', here)}/{path}.html)"

        def mended(found: re.Match[str]) -> str:
            path = posixpath.normpath(posixpath.join(here, found[2]))
            if (root / path).is_dir():
                if path == posixpath.dirname(posixpath.dirname(app.config.root_doc)):
                    return f"[{found[1]}](/{app.config.root_doc}.md)"
                if f"{path}/README" in app.env.found_docs:
                    return f"[{found[1]}](/{path}/README.md)"
                files = [f"{path}/__init__.py", *map(str, root.glob(f"{path}/*.py"))]
                path = next(f for f in files if (root / f).is_file())
                path = posixpath.relpath(root / path, root)
            code = Path(path).suffix in CODE and (root / path).is_file()
            return link(path, found[1]) if code else found[0]

        quoted = QUOTE.sub(r"```{code-block} \2\n:caption: \1\n\n", text[0])
        text[0] = LINK.sub(mended, quoted)

    def pages(self, app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
        """A page for each file: its name, title and text, and the template."""
        bridge = PygmentsBridge("html")
        for path in sorted(self.linked):
            code = (Path(app.srcdir) / path).read_text("utf-8")
            shown = bridge.highlight_block(
                code, CODE[Path(path).suffix], linenos="inline"
            )
            body = f"<h1>{html.escape(path)}</h1>\n{shown}"
            yield f"source/{path}", {"title": path, "body": body}, "page.html"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    sources = Sources()
    app.connect("source-read", sources.read)
    app.connect("html-collect-pages", sources.pages)
