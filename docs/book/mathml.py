"""Formulas without a script: LaTeX becomes MathML, which browsers draw themselves.

With this file the book has `html_math_renderer = "mathml"`. Docutils translates; what
it cannot read stops the build.
"""

from __future__ import annotations

from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> None:
    """Called by Sphinx."""

    def inline(translator: Any, node: Any) -> None:
        translator.body.append(tex2mathml(node.astext(), as_block=False))
        raise SkipNode

    def block(translator: Any, node: Any) -> None:
        translator.body.append(tex2mathml(node.astext(), as_block=True))
        raise SkipNode

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
