"""``hessmap plane``: the loss on a line or a plane through a model's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hessmap.cli.options import FIGURES, AsJson, Samples, Seed, Side, console, echo_written, require_writable

EXAMPLES = """
[bold]Examples[/bold]

  hessmap plane                              [dim]# the sharpest directions[/dim]\n
  hessmap plane --directions random --figure plane.png\n
  hessmap plane my:net --data my:train --dimensions 1\n
  hessmap plane my:net --data my:train --other my:second   [dim]# a barrier[/dim]
"""


def plane(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A model of your own: an nn.Module, or a callable without arguments that returns one. Without it, a "
            "small network is trained.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(help="A data set that 'hessmap data' lists, or samples of your own as PACKAGE.MODULE:ATTRIBUTE."),
    ] = "digits",
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[str, typer.Option(help="As of 'hessmap map'.")] = "cross_entropy",
    objective: Annotated[
        str | None, typer.Option(metavar="PACKAGE.MODULE:FUNCTION", help="As of 'hessmap map'.")
    ] = None,
    directions: Annotated[
        str, typer.Option(help="sharpest (eigenvectors) or random (filter-normalised).")
    ] = "sharpest",
    other: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:ATTRIBUTE", help="Another model: the line to it, in place of --directions."
        ),
    ] = None,
    dimensions: Annotated[int, typer.Option(min=1, max=2, help="A line or a plane.")] = 2,
    extent: Annotated[
        float | None, typer.Option(help="Half-width of the grid in lengths. Default: chosen by the direction.")
    ] = None,
    points: Annotated[int | None, typer.Option(min=2, help="Grid points per axis. Default: 41 or 21.")] = None,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data in training.")] = 40,
    seed: Seed = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw it into this file (.png, .pdf, .svg).")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate the loss on a line or a plane through the parameters.

    Compares it with the quadratic model of gradient and Hessian, and reports
    the barrier towards another model; nothing of the models is changed.
    """
    from hessmap.cli.subject import mapped_problem, mapped_subject, referenced_model
    from hessmap.errors import require
    from hessmap.records import MapOptions
    from hessmap.views.progress import TerminalProgress

    require_writable(figure, FIGURES)
    must = "another model needs a model of your own to start from"
    require(other is None or model is not None, must, f"--other {other} was given without one")
    options = MapOptions(
        model=model, data=data, samples=samples, side=side, loss=loss, epochs=epochs, seed=seed, objective=objective
    )
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.applications import loss_plane

        problem = mapped_problem(options, *mapped_subject(options, shown))
        towards: Any = directions if other is None else referenced_model(other)
        shown.start("losses on the grid")
        found = loss_plane(problem, towards, dimensions=dimensions, extent=extent, num_points=points, seed=seed)
        if figure is not None:
            from hessmap.views.plots import write_figure

            write_figure(found.plot(), figure, salt="plane")
    if as_json:
        typer.echo(found.to_json())
    else:
        from hessmap.views.tables.planes import plane_view

        console().print(plane_view(found))
    if figure is not None:
        echo_written(figure)
