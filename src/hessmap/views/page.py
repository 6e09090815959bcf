"""Self-contained HTML pages: templates of ``views/templates``, all framed by ``page.html.j2``."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.figure import Figure

from hessmap import __version__
from hessmap.views.plots.style import BAR_COLOURS, FAINT, GRID, HESSIAN_COLOURS, INK, PAPER, SERIES_COLOURS, SHADE

# What is drawn in these colours follows the page, light or dark.
_OF_THE_PAGE = {
    INK: "currentColor",
    "#000000": "currentColor",
    GRID: "var(--rule)",
    FAINT: "var(--soft)",
    PAPER: "var(--paper)",
    SHADE: "var(--panel)",
    BAR_COLOURS[0]: "var(--pale)",
    BAR_COLOURS[1]: "var(--blue)",
}


@dataclass(frozen=True)
class Drawing:
    """A figure as inline SVG, which takes the ink and the grid of the page that it stands in, and its title."""

    title: str
    svg: str


def page(template: str, package: str = "hessmap.views", **values: Any) -> str:
    """Fill a template of a package; whatever is put into it is escaped unless the template says otherwise."""
    own, shared = PackageLoader(package, "templates"), PackageLoader("hessmap.views", "templates")
    loader = ChoiceLoader([own, shared])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    colours = {"hessians": HESSIAN_COLOURS, "series": SERIES_COLOURS}
    return environment.get_template(template).render(version=__version__, **colours, **values)


def page_style() -> str:
    """The style sheet that all pages share."""
    return page("page.css.j2")


def inline_svg(figure: Figure, salt: str) -> str:
    """A figure as SVG to stand inside a page, as wide as its place, in the ink and with the grid of the page.

    ``salt`` keeps the inner names of two drawings on one page apart.
    """
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<g id="\w+_\d+"(/?)>', r"<g\1>", svg)  # matplotlib counts from 1 in every drawing
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r'\1role="img"', svg, count=1)
    for drawn, of_the_page in _OF_THE_PAGE.items():
        svg = re.sub(rf'(?<=[ "]){drawn}(?=[;"])', of_the_page, svg)  # in a style, not in a name
    return svg
