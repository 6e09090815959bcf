"""HTML pages of maps, comparisons and tracks: one file each, with nothing loaded from elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.figure import Figure

from hessmap import __version__
from hessmap.maps.comparison import track_summary
from hessmap.records import CurvatureMap, CurvatureTrack, MapComparison, NetworkCurvature, StoredMap, command_line
from hessmap.views.plots.layers import QUANTITIES, network_layers_figure, quantity_figure
from hessmap.views.plots.spectrum import network_density_figure, network_spectrum_figure
from hessmap.views.plots.style import BAR_COLOURS, FAINT, GRID, HESSIAN_COLOURS, INK, PAPER, SERIES_COLOURS, SHADE
from hessmap.views.plots.track import panel_figures
from hessmap.views.tables import comparison as compared
from hessmap.views.tables import map as mapped
from hessmap.views.tables.comparison import track_facts, track_points
from hessmap.views.tables.contents import moment

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
    """A figure of a page, in the colours of its text and grid.

    Attributes:
        title: Its heading.
        svg: The figure as inline SVG.
    """

    title: str
    svg: str


def page(template: str, package: str = "hessmap.views", **values: Any) -> str:
    """Fill a template; values are escaped unless the template marks them as safe.

    Args:
        template: File name of the template.
        package: Package whose folder "templates" has it. Defaults to "hessmap.views".
        values: What the template shows, by name.

    Returns:
        str: The page in HTML.
    """
    own, shared = PackageLoader(package, "templates"), PackageLoader("hessmap.views", "templates")
    loader = ChoiceLoader([own, shared])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    colours = {"hessians": HESSIAN_COLOURS, "series": SERIES_COLOURS}
    return environment.get_template(template).render(version=__version__, **colours, **values)


def page_style() -> str:
    """Read the style sheet that all pages share.

    Returns:
        str: CSS.
    """
    return page("page.css.j2")


def inline_svg(figure: Figure, salt: str) -> str:
    """Convert a figure to SVG inside a page: as wide as its place, in the colours of its text and grid.

    Args:
        figure: A matplotlib figure.
        salt: Text that keeps the inner names of two figures on one page apart.

    Returns:
        str: The SVG element.
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


_INSTALL = "pip install hessmap"


def map_page(stored: StoredMap) -> str:
    """Make the page of one map: findings, figures, layers, ranks, and the command that made it.

    Args:
        stored: The stored map.

    Returns:
        str: The page in HTML.
    """
    made = stored.record
    origin = made.provenance
    return page(
        "map.html.j2",
        title=_title(stored),
        name=stored.name,
        created=moment(origin.created) if origin else "",
        summary=made.summary,
        status=_rank_status(made),
        drawings=_drawings(made),
        facts=mapped.network_facts(made.network),
        estimates="" if made.network.is_dense else mapped.estimates_note(made.network),
        whole=mapped.whole_table(made.network),
        work=_work(made),
        notes=made.network.notes,
        networks=[_network(network) for network in made.networks if network.has_ranks],
        layers=mapped.layers(made.network, factors=True),
        kinds=mapped.kinds(made.network) if mapped.has_kinds(made.network) else None,
        kinds_legend=_capital(mapped.KINDS_LEGEND),
        layers_legend=_capital(mapped.layers_legend(made.network, factors=True)),
        commands=[_INSTALL, *_made_by(stored), command_line("maps", "show", "--html=map.html", values=[stored.name])],
        made_with=_versions(origin.versions) if origin else "",
        data_hash=origin.data_hash if origin else "",
    )


def comparison_page(comparison: MapComparison, old: StoredMap, new: StoredMap) -> str:
    """Make the page of a comparison: what differs, what changed, bars before and after, tables, commands.

    Args:
        comparison: The comparison of two maps.
        old: The first of the two maps.
        new: The second.

    Returns:
        str: The page in HTML.
    """
    drawings = [
        Drawing(
            _capital(label),
            inline_svg(quantity_figure(comparison, label), salt=f"quantity{place}"),
        )
        for place, label in enumerate(QUANTITIES)
        if comparison.layers
    ]
    return page(
        "comparison.html.j2",
        title=f"{comparison.old.name} → {comparison.new.name}: what changed in the curvature",
        identities=[compared.identity_line(side) for side in (comparison.old, comparison.new)],
        caveats=comparison.caveats,
        summary=comparison.summary,
        drawings=drawings,
        layers=compared.layers(comparison),
        factors=compared.factors(comparison) if compared.has_factors(comparison) else None,
        layers_legend=_capital(compared.LAYERS_LEGEND),
        factors_legend=_capital(compared.factors_legend(comparison)),
        numbers=compared.numbers(comparison),
        parts=compared.parts(comparison),
        undecided=compared.NO_CLEAR_GAP if compared.has_undecided_rank(comparison) else "",
        commands=[
            _INSTALL,
            *dict.fromkeys([*_made_by(old), *_made_by(new)]),
            command_line("maps", "compare", "--html=comparison.html", values=[old.name, new.name]),
        ],
    )


def _title(stored: StoredMap) -> str:
    """The title of the map, or what it is a map of where the title is no more than its name."""
    network = stored.record.network
    if stored.record.title != stored.name:
        return stored.record.title
    return f"{network.description}, {network.loss} loss, {network.num_samples:,} samples"


def _rank_status(made: CurvatureMap) -> str:
    """Whether the ranks are those of the theorems: "open" where none applies."""
    answers = [part.agrees for network in made.networks for part in network.parts if part.agrees is not None]
    if not answers:
        return "open"
    return "holds" if all(answers) else "fails"


def _drawings(made: CurvatureMap) -> list[Drawing]:
    density = inline_svg(network_density_figure(made.network), salt="density")
    shares = inline_svg(network_layers_figure(made.network), salt="layers")
    spectra = [
        Drawing(
            f"Spectra of the {network.name}, {network.description}",
            inline_svg(network_spectrum_figure(network), salt=f"spectrum{place}"),
        )
        for place, network in enumerate(made.networks)
        if network.is_dense
    ]
    title = "Where the parameters are, and where the curvature is"
    return [
        Drawing("Density of the eigenvalues of H_L", density),
        Drawing(title, shares),
        *spectra,
    ]


def _work(made: CurvatureMap) -> str:
    """What making the map took."""
    if made.work is None:
        return ""
    products = f"{made.work.num_products:,} products in " if made.work.num_products else ""
    return f"The map took {products}{made.work.seconds:.3g} s"


def _network(network: NetworkCurvature) -> dict[str, Any]:
    return {
        "heading": f"Ranks of the {network.name}: {network.description}",
        "facts": mapped.network_facts(network),
        "ranks": mapped.ranks(network),
        "lines": mapped.rank_notes(network),
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _made_by(stored: StoredMap) -> list[str]:
    return [stored.command] if stored.command else []


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def track_page(track: CurvatureTrack) -> str:
    """Make the page of one track, from its points alone.

    Args:
        track: The track.

    Returns:
        str: The page in HTML.
    """
    figures = panel_figures(track) if track.points else {}
    return page(
        "track.html.j2",
        title=f"{track.name}: the curvature of {track.network} along its training",
        name=track.name,
        facts=track_facts(track),
        summary=track_summary(track),
        drawings=[
            Drawing(title, inline_svg(figure, salt=f"track{place}"))
            for place, (title, figure) in enumerate(figures.items())
        ],
        points=track_points(track),
        shown=len(track_points(track).lines),
        total=track.num_points,
        commands=["pip install hessmap", command_line("tracks", "show", "--html=track.html", values=[track.name])],
    )
