"""The book: every page is in it, broken links stop it, and nothing is fetched."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minitorch

ROOT = Path(minitorch.__file__).parent.parent
BOOK = ROOT / "docs" / "book"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (BOOK / "index.md").read_text()
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("assignments/*/README.md")]
    for page in pages:
        name = page.relative_to(ROOT).with_suffix("").as_posix()
        assert f"\n/{name}\n" in contents or name == "docs/README", name


def test_every_listing_is_part_of_the_library() -> None:
    for page in BOOK.glob("*.md"):
        text = page.read_text()
        for path, name in re.findall(
            r"\{literalinclude\} /(\S+)\n:language: python\n:pyobject: (\w+)", text
        ):
            assert re.search(rf"^(def|class) {name}\b", (ROOT / path).read_text(), re.M)
        code = len(re.findall(r"\{literalinclude\}|```python", text))
        assert code == text.count(":pyobject:"), page


# Programs, and the specification, which has the contract's docstrings.
NO_REFERENCE = ["minitorch.cli", "minitorch.bench", "minitorch.lab"]
NO_REFERENCE += ["minitorch.simple_ops"]


def test_the_reference_has_each_module_once() -> None:
    reference = runpy.run_path(str(BOOK / "reference.py"))
    everything, chosen = reference["modules"](ROOT), reference["chosen"]
    listed = chosen(everything, NO_REFERENCE)
    for page in BOOK.glob("api_*.md"):
        (packages,) = reference["LIST"].findall(page.read_text())
        for package in packages.split():
            assert chosen(everything, [package]), f"{page}: no module in {package}"
        listed += chosen(everything, packages.split())
    assert sorted(listed) == everything and "minitorch.nn.hooks" in listed


DOCSTRING = """Rows of `x`s, 2 * 3.

    out[i] = x[i] * 2

name_   what *it* is

>>> f(*x)
4

Args:
    x: a row,
        `a*b` long.
"""
RESTRUCTURED = r"""Rows of ``x``\ s, 2 \* 3.

::

        out[i] = x[i] * 2

::

    name_   what *it* is

>>> f(*x)
4

Args:
    x: a row,
        ``a*b`` long.
"""


def test_docstrings_are_prose() -> None:
    restructured = runpy.run_path(str(BOOK / "prose.py"))["restructured"]
    assert "\n".join(restructured(DOCSTRING.splitlines())) == RESTRUCTURED


PAGE = """# A page

To [code](../lib/code.py), a [folder](../lib), a [handout](../assignments/a1),
and $x^2$.

![a square](square.svg)

<!-- from lib/code.py -->
```python
x = 1
```
"""
CONTENTS = "# I\n\n```{toctree}\n/docs/page\n/assignments/a1/README\n```\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>'


def build(folder: Path, *, page: str) -> Any:
    """A book of three pages, made by the settings of the real one."""
    files = {
        "docs/book/index.md": CONTENTS,
        "docs/page.md": page,
        "docs/square.svg": SVG,
        "assignments/a1/README.md": "# One\n\nBack to [docs](../../docs).\n",
        "lib/__init__.py": '"""What is here."""\n',
        "lib/code.py": "x = 1\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c"]
    return subprocess.run(
        [*command, str(BOOK), str(folder), str(folder / "out")],
        capture_output=True,
        text=True,
    )


@pytest.mark.extras
def test_pages_link_to_code_and_need_no_network(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="pip install -e '.[book]'")
    built = build(tmp_path, page=PAGE)
    assert built.returncode == 0, built.stderr
    out = tmp_path / "out"
    text = (out / "docs" / "page.html").read_text()
    for link in re.findall(r'href="([^"#:?]+)["#?]', text):
        assert (out / "docs" / link).exists(), link
    assert 'href="../source/lib/code.py.html"' in text
    assert 'href="../source/lib/__init__.py.html"' in text
    assert 'href="../assignments/a1/README.html"' in text
    assert "<msup>" in text and "<mi>x</mi>" in text
    assert "lib/code.py</span>" in text  # says where the quotation is from
    (picture,) = re.findall(r'<img alt="a square" src="([^"]+)"', text)
    assert (out / "docs" / picture).read_text() == SVG
    for file in out.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+"(https?:)?//', file.read_text())
        assert not loaded, file


@pytest.mark.extras
@pytest.mark.parametrize("link", ["gone.md", "../lib/gone.py", "#nowhere"])
def test_a_link_that_leads_nowhere_stops_it(link: str, tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="pip install -e '.[book]'")
    built = build(tmp_path, page=f"# A page\n\n[text]({link})\n")
    assert built.returncode != 0
    assert link.lstrip("#") in built.stderr
