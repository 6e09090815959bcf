"""Formulas as MathML, which browsers draw without a script or a font of ours."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(text: str, **_: Any) -> str:
    """Replace what arithmatex marked between \\( and \\), or \\[ and \\]."""
    return FORMULA.sub(lambda found: mathml(found[3], "block" if found[2] == "[" else "inline"), text)


def mathml(latex: str, display: str) -> str:
    return convert(html.unescape(latex), display=display)
