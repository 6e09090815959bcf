"""Doctests of docstrings become blocks of code in the reference, in a section "Example" or outside of sections."""

from __future__ import annotations

import re
from typing import Any

import griffe

PARAGRAPH = re.compile(r"^>>> .*?(?=\n\s*\n(?!>>> )|\Z)", re.MULTILINE | re.DOTALL)

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)  # the parser of sections knows "Examples"


class DoctestBlocks(griffe.Extension):
    """Puts fences around what starts with ``>>>``, up to the next empty line that no other example follows."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = EXAMPLE.sub("Examples:", obj.docstring.value)
            obj.docstring.value = PARAGRAPH.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
