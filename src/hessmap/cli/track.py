"""``hessmap tracks list | show | checkpoints``: curvature along trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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

EXAMPLES = """
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
    epilog=EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


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
    from hessmap.views.tables.tracks import stored_tracks_view

    console().print(stored_tracks_view(summaries, store))


@tracks_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A stored track; hessmap tracks list shows them.")],
    store: StorePath = STORE,
    figure: Annotated[Path | None, typer.Option(help="Draw it to this .png, .svg or .pdf file.")] = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Show a stored track: its points, what to make of them, and on request the figure or a page."""
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
    from hessmap.views.tables.tracks import track_view

    console().print(track_view(track))


@tracks_app.command("checkpoints", epilog=EXAMPLES)
def checkpoints(
    model: Annotated[
        str, typer.Argument(metavar="PACKAGE.MODULE:ATTRIBUTE", help="The model, or a function that builds it.")
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Checkpoints: state_dicts, or of train.")],
    data: Annotated[str, typer.Option(help="As for hessmap map: a name, or PACKAGE.MODULE:ATTRIBUTE.")] = "digits",
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[str, typer.Option(help="cross_entropy, squared or log_cosh.")] = "cross_entropy",
    count: Annotated[int, typer.Option(help="How many of the largest eigenvalues.")] = 5,
    name: Annotated[
        str | None, typer.Option(help="Name of the track; a stored one is continued. Default: the time.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Forget a stored track of that name first.")] = False,
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
    from hessmap.views.tables.tracks import track_view

    console().print(track_view(track))
    show = command_line("tracks", "show", values=[track.name])
    console(stderr=True).print(f"Stored as {track.name} in {store}: {show}")
