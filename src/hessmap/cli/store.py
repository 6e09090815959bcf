"""``hessmap maps`` and ``hessmap tracks``: what a store has, shown, compared, and recreated from its options."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.cli.options import (
    FIGURES,
    STORE,
    AsJson,
    Html,
    Samples,
    Side,
    StorePath,
    console,
    echo_json,
    echo_written,
    require_writable,
    write_text,
)
from hessmap.errors import InvalidInput, require, sentence, short_text

if TYPE_CHECKING:
    from hessmap.problem import Problem
    from hessmap.progress import Progress
    from hessmap.records import CurvatureMap, EigenpairsMeasurement, MapOptions, MapSummary, StoredMap


_FIGURES_OF_MAP = ("density", "layers", "spectrum")
_MAP_FILES = ("map.json", *(f"{name}{suffix}" for name in _FIGURES_OF_MAP for suffix in (".png", ".svg")))
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a stored map; hessmap maps list shows them.")]
_TRACK_EXAMPLES = """
[bold]Examples[/bold]

  hessmap tracks checkpoints my:net epoch-*.pt --data my:train --name run1\n
  hessmap tracks list\n
  hessmap tracks show run1 --figure run1.png\n
  hessmap tracks show run1 --html run1.html

In a training loop of your own, tracker(step) after every step, with

  tracker = hessmap.Tracker(model, "cross_entropy", data, name="run1")
"""

tracks_app = typer.Typer(
    name="tracks",
    help="Curvature along trainings: list and show tracks, or make one from saved checkpoints.",
    epilog=_TRACK_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def list_maps(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """List the stored maps."""
    from hessmap.records import Store, map_summaries

    summaries: tuple[MapSummary, ...] = ()
    if store.exists():
        with Store(store) as opened:
            summaries = map_summaries(opened)
    if as_json:
        echo_json([summary.to_dict() for summary in summaries])
        return
    from hessmap.views.tables import stored_maps_view

    console().print(stored_maps_view(summaries, store))


def show(
    name: Name,
    factors: Annotated[
        bool, typer.Option("--factors", help="Show the columns of the layers' Kronecker factors (K-FAC).")
    ] = False,
    store: StorePath = STORE,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Show a stored map, and the command that made it."""
    from hessmap.records import Store, load_map

    require_writable(html)
    with Store(store) as opened:
        stored = load_map(opened, name)
    if html is not None:
        from hessmap.views.page import map_page

        echo_written(write_text(html, map_page(stored)))
    if as_json:
        typer.echo(stored.record.to_json())
        return
    from rich.text import Text

    from hessmap.views.tables import map_view

    command = f": {stored.command}" if stored.command else ""
    console().print(Text.assemble((stored.name, "bold"), command), map_view(stored.record, factors), sep="\n")


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name of the map to start from.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name of the map to compare it with.")],
    store: StorePath = STORE,
    html: Html = None,
    figure: Annotated[Path | None, typer.Option(help="Write the bars to this .png, .svg or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two maps layer by layer: two checkpoints of a model, for example.

    Where architecture, data or loss differ, the output states what cannot be compared.
    """
    require_writable(html)
    require_writable(figure, FIGURES)
    from hessmap.maps.comparison import compare_maps
    from hessmap.records import Store, load_map

    with Store(store) as opened:
        before, after = load_map(opened, old), load_map(opened, new)
    comparison = compare_maps(before.record, after.record, old, new)
    if html is not None:
        from hessmap.views.page import comparison_page

        echo_written(write_text(html, comparison_page(comparison, before, after)))
    if figure is not None:
        from hessmap.views.plots import comparison_figure, write_figure

        echo_written(write_figure(comparison_figure(comparison), figure, salt="comparison"))
    if as_json:
        typer.echo(comparison.to_json(indent=2))
        return
    from hessmap.views.tables import comparison_view

    console().print(comparison_view(comparison))


def new_name(store: Path, name: str | None, replace: bool) -> str:
    """The name to store a map under: the given one, which must be free unless it is replaced, or the time.

    It is asked for before any work is done, so that a wrong name or store costs nothing.
    """
    require(
        name is None or re.fullmatch(r"[\w.-]+", name) is not None,
        "a run name must consist of letters, digits, '.', '-' and '_'",
        f"got {name!r}",
        "Use --output for a path",
    )
    from hessmap.records import Store, free_name, require_free_map

    wanted = time.strftime("%Y%m%d-%H%M%S") if name is None else name
    require_writable(store, replaces=True)
    if not store.exists():
        return wanted
    with Store(store) as opened:
        opened.require_sound()
        if name is None:
            return free_name(opened, "map", wanted)
        if not replace:
            require_free_map(opened, name)
    return wanted


def new_folder(output: Path | None, name: str) -> Path:
    """The folder of a map, in which its files can be written; it is made when they are."""
    folder = output or Path("hessmap-runs") / f"map-{name}"
    for file in _MAP_FILES:
        require_writable(folder / file)
    return folder


def write_map(found: CurvatureMap, folder: Path) -> list[Path]:
    """The record and the figures; the paths that were written."""
    from hessmap.views.plots import layers_figure, map_density_figure, save_figure, spectrum_figure

    written = [write_text(folder / "map.json", found.to_json())]
    written += save_figure(map_density_figure(found), folder, "density")
    written += save_figure(layers_figure(found), folder, "layers")
    if found.network.is_dense:
        written += save_figure(spectrum_figure(found), folder, "spectrum")
    return written


_NUM_SHOWN = 40  # eigenvalues of a factor


def directions(
    name: Name,
    layer: Annotated[str | None, typer.Option(help="Of this layer's weight alone, with its two factors.")] = None,
    against: Annotated[str | None, typer.Option(help="Another map: how far the two spaces overlap.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many directions.")] = 9,
    yes: Annotated[
        bool, typer.Option("--yes", help="Import the models and data that the maps name without asking.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE.MODULE:ATTRIBUTE", help="Import this one without asking; may be repeated."),
    ] = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
) -> None:
    """Compute the top eigenvectors of the Hessian, which a map does not contain.

    The network is recreated from the options of the map: trained from its
    seed, or imported. A store may come from someone else, so hessmap asks
    before it imports what the store names.
    """
    from hessmap.records import Store, load_map
    from hessmap.views.progress import TerminalProgress

    names = [name] if against is None else [name, against]
    require(len(set(names)) == len(names), "two maps are compared", f"got {name!r} twice")
    with Store(store) as opened:
        maps = [load_map(opened, one) for one in names]
    references = [reference for stored in maps for reference in options_of_map(stored).references]
    if not yes:
        _require_trust(store, [one for one in dict.fromkeys(references) if one not in (trust or ())])
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start("loading torch")
        problems = [problem_of_map(stored, shown) for stored in maps]
        shown.start(f"the {count} sharpest directions")
        found = [_eigenpairs(problem, layer, count) for problem in problems]
        content = _eigenpairs_content(found[0], problems[0], layer)
        if against is not None:
            content["overlap"] = _overlap(found[0], found[1])
    if as_json:
        echo_json(content)
        return
    console().print(f"Eigenvalues: {', '.join(f'{value:.4g}' for value in content['eigenvalues'])}")
    for place, value in enumerate(content.get("overlap", {}).get("values", []), start=1):
        console().print(f"Overlap of the first {place}: {value:.3f}")


def problem_of_map(stored: StoredMap, shown: Progress) -> Problem:
    """The problem that a stored map was made of, from its options. This imports what they name."""
    from hessmap.cli.subject import mapped_problem, mapped_subject

    options = options_of_map(stored)
    model, data = mapped_subject(options, shown)
    return mapped_problem(options, model, data)


def options_of_map(stored: StoredMap | MapSummary) -> MapOptions:
    """The options by which a map is made again; a map that was made in Python has none and is refused."""
    if stored.options is None:
        must, got = "a map must have been made by hessmap map to be recomputed", f"{short_text(stored.name)} was not"
        raise InvalidInput(sentence(must, got, "Use hessmap.loss_hessian and hessmap.top_eigenpairs on its model"))
    return stored.options


def _require_trust(store: Path, references: Sequence[str]) -> None:
    """Ask before code is imported that a store names; without a terminal to ask on, refuse."""
    if not references:
        return
    named = ", ".join(map(repr, references))
    must = "code that a store names must be trusted before it is imported"
    if not sys.stdin.isatty():
        got = f"{store} names {named}, and there is no terminal to ask on"
        raise InvalidInput(sentence(must, got, "Give --yes to import it"))
    typer.echo(f"{store} names {named}, to be found in {Path.cwd()} or among the installed packages.", err=True)
    typer.echo("Import it and run its code? [y/N]: ", err=True, nl=False)  # typer.confirm writes to stdout as well
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidInput(sentence(must, f"{named} was not", "Nothing was imported"))


def _eigenpairs(problem: Problem, layer: str | None, count: int) -> EigenpairsMeasurement:
    from hessmap.hessians import loss_hessian
    from hessmap.measurement import top_eigenpairs

    operator: Any = loss_hessian(problem)
    if layer is not None:
        operator = operator.block(_weight(problem, layer))
    size = operator.shape[0]
    return top_eigenpairs(operator, min(count, size), tolerance=1e-6)


def _weight(problem: Problem, layer: str) -> str:
    """The parameter that a layer of a map is about: its weight, or the one parameter of that name."""
    from hessmap.errors import unknown_name

    names = [name for name, _ in problem.layout]
    for wanted in (f"{layer}.weight", layer):
        if wanted in names:
            return wanted
    raise unknown_name("a layer", layer, [name.removesuffix(".weight") for name in names if name.endswith("weight")])


def _eigenpairs_content(found: EigenpairsMeasurement, problem: Problem, layer: str | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "eigenvalues": found.eigenvalues.tolist(),
        "residuals": found.residuals.tolist(),
        "converged": found.converged,
        "num_products": found.num_products,
        "size": found.size,
    }
    if layer is None or found.eigenvectors is None:
        return content
    shape = problem.layout.shape(_weight(problem, layer))
    rows = shape[0] if len(shape) > 1 else 1
    content["vectors"] = [vector.reshape(rows, -1).tolist() for vector in found.eigenvectors.T]
    return content | _factors(problem, layer)


def _factors(problem: Problem, layer: str) -> dict[str, Any]:
    """The eigenvalues of both factors of the weight, or why there are none."""
    import torch

    from hessmap.errors import HessmapError
    from hessmap.layers import layer_factors

    try:
        factors = layer_factors(problem, layer)
    except HessmapError as error:
        return {"factors_gap": str(error)}
    spectra = {"input": factors.input_factor, "output": factors.output_factor}
    return {
        "factors": {
            name: torch.linalg.eigvalsh(factor).flip(0)[:_NUM_SHOWN].tolist() for name, factor in spectra.items()
        }
    }


def _overlap(first: EigenpairsMeasurement, second: EigenpairsMeasurement) -> dict[str, Any]:
    from hessmap.measurement import overlap_curve

    must = "subspaces can be compared only between networks of the same size"
    require(first.size == second.size, must, f"the sizes are {first.size:,} and {second.size:,}")
    assert first.eigenvectors is not None
    assert second.eigenvectors is not None
    curve = overlap_curve(first.eigenvectors, second.eigenvectors)
    return {"values": curve.values.tolist(), "chance": curve.chance.tolist()}


_MAP_EXAMPLES = """
[bold]Examples[/bold]

  hessmap maps list                           [dim]# what is stored[/dim]\n
  hessmap maps show run3 --html run3.html     [dim]# a map again, or its page[/dim]\n
  hessmap maps compare run1 run3              [dim]# layer by layer[/dim]\n
  hessmap maps directions run3 --layer 2      [dim]# top eigenvectors of a layer[/dim]
"""
maps_app = typer.Typer(
    name="maps",
    help="List, show and compare stored maps.",
    epilog=_MAP_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
maps_app.command("list")(list_maps)
maps_app.command("show")(show)
maps_app.command("compare")(compare)
maps_app.command("directions")(directions)


@tracks_app.command("list")
def list_tracks(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """List the stored tracks."""
    from hessmap.records import Store, TrackSummary, track_summaries

    summaries: tuple[TrackSummary, ...] = ()
    if store.exists():
        with Store(store) as opened:
            summaries = track_summaries(opened)
    if as_json:
        echo_json([summary.__dict__ for summary in summaries])
        return
    from hessmap.views.tables import stored_tracks_view

    console().print(stored_tracks_view(summaries, store))


@tracks_app.command("show")
def show_track(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A stored track; hessmap tracks list shows them.")],
    store: StorePath = STORE,
    figure: Annotated[Path | None, typer.Option(help="Draw it to this .png, .svg or .pdf file.")] = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Show a stored track: its points and findings, and on request a figure or a page."""
    require_writable(figure, FIGURES)
    require_writable(html)
    from hessmap.records import Store, load_track

    with Store(store) as opened:
        track = load_track(opened, name)
    if figure is not None:
        from hessmap.views.plots import track_figure, write_figure

        echo_written(write_figure(track_figure(track), figure, salt="track"))
    if html is not None:
        from hessmap.views.page import track_page

        echo_written(write_text(html, track_page(track)))
    if as_json:
        typer.echo(track.to_json(indent=2))
        return
    from hessmap.views.tables import track_view

    console().print(track_view(track))


@tracks_app.command("checkpoints", epilog=_TRACK_EXAMPLES)
def checkpoints(
    model: Annotated[
        str, typer.Argument(metavar="PACKAGE.MODULE:ATTRIBUTE", help="The model, or a function that builds it.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Checkpoint files: state_dicts, or written by hessmap.train."),
    ],
    data: Annotated[str, typer.Option(help="As for hessmap map: a name, or PACKAGE.MODULE:ATTRIBUTE.")] = "digits",
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[str, typer.Option(help="cross_entropy, squared or log_cosh.")] = "cross_entropy",
    count: Annotated[int, typer.Option(help="How many of the largest eigenvalues.")] = 5,
    name: Annotated[
        str | None, typer.Option(help="Name of the track; a stored one is continued. Default: the time.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a stored track of that name.")] = False,
    store: StorePath = STORE,
    as_json: AsJson = False,
) -> None:
    """Measure a model at saved checkpoints: eigenvalues, trace, gradient.

    Each point is stored when it is made; the same command goes on where it was interrupted.
    """
    from hessmap.cli.subject import chosen_data, referenced_model
    from hessmap.views.progress import TerminalProgress

    require_writable(store, replaces=True)
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.track import TrackSettings, track_checkpoints

        measured_on = chosen_data(data, samples, side)
        track = track_checkpoints(
            referenced_model(model),
            files,
            loss,
            measured_on,
            name=name,
            store=store,
            replace=replace,
            settings=TrackSettings(count=count),
            progress=shown.start,
        )
    if as_json:
        typer.echo(track.to_json(indent=2))
        return
    from hessmap.records import command_line
    from hessmap.views.tables import track_view

    console().print(track_view(track))
    show = command_line("tracks", "show", values=[track.name])
    console(stderr=True).print(f"Stored as {track.name} in {store}: {show}")
