"""The book's settings: which pages it has, and how they are read.

With this file `make book` builds it (or the command that the Makefile shows). Pages
stay where they are read on GitHub, so the source is the whole repository: README, docs
and the handouts of the course. Nothing of the result is fetched from elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import minitorch  # noqa: E402

project = "minitorch"
version = release = minitorch.__version__
html_title = f"minitorch {version}"
html_copy_source = False
html_show_copyright = False
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "prose",
    "reference",
    "sources",
    "mathml",
]

root_doc = "docs/book/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/book/*.md",
    "assignments/*/README.md",
    "mojo_ops/gpu/README.md",
]
exclude_patterns = ["docs/README.md"]  # the table of contents, where there is no book

html_theme = "furo"
html_extra_path = ["extra"]
html_static_path = ["static"]
html_css_files = ["book.css"]
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}

# Blocks whose language is not named hold pictures, formulas, and what was printed.
highlight_language = "none"
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False
myst_fence_as_directive = ["math"]
myst_url_schemes = {"http": None, "https": None, "source": "{{path}}"}
suppress_warnings = ["myst.header"]  # the README's headings may begin lower down

# An unknown name of ours is an error. Python's own, NumPy's and their like are not in
# this book, and neither are the names of types that only a checker resolves.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!minitorch\.).*"),
    # Private bases, and variables of types.
    ("py:.*", r".*\.(_\w+|[A-Z]|T_co|Config|Result)"),
]
autodoc_mock_imports = ["torch"]  # by minitorch.distributed.transport alone
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
toc_object_entries = False
