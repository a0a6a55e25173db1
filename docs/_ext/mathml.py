"""Equations as MathML, which browsers draw by themselves: no script, no font, no network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# A browser lowers an index by what the font for mathematics says. Where no such font is installed it
# only keeps clear of the letter, so the letter says that it reaches below the line.
LETTER = re.compile(r"<msub>(<mi[^>]*>[^<]*</mi>)")
LOWERED = r'<msub><mpadded depth="0.2em">\1</mpadded>'
# A function is set apart from what it is applied to.
FUNCTION = re.compile(r"<mi>(log|exp|min|max)</mi>")
APART = r'<mo form="prefix" stretchy="false" lspace="0.17em" rspace="0.17em">\1</mo>'


def mathml(latex: str, display: str) -> str:
    """An equation as browsers read it."""
    return FUNCTION.sub(APART, LETTER.sub(LOWERED, convert(latex, display=display)))


def inline(self: Any, node: nodes.math) -> None:
    """$...$"""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """$$...$$, in a box that scrolls by itself where a screen is narrow."""
    self.body.append(self.starttag(node, "div", CLASS="equation"))
    self.body.append(mathml(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
