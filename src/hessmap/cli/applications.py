"""``hessmap step`` and ``hessmap plane``: the curvature that the next step meets, and the loss around a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.cli.options import FIGURES, AsJson, Samples, Seed, Side, console, echo_written, require_writable

if TYPE_CHECKING:
    from hessmap.problem import Problem


STEP_EXAMPLES = """
[bold]What you write[/bold]

A function without arguments that returns model, optimiser, loss and data, at the point of training to examine:

  # my.py\n
  def training():\n
      model = Net()\n
      optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n
      saved = torch.load("checkpoint.pt")\n
      model.load_state_dict(saved["model"])\n
      optimizer.load_state_dict(saved["optimizer"])\n
      return model, optimizer, "cross_entropy", (inputs, labels)

A dictionary with "model", "optimizer", "data" and "loss" or "objective" works too; its other entries are options of
hessmap.Problem.

[bold]What it prints[/bold]

The preconditioned sharpness next to the stability threshold of the optimiser (2 / lr for descent, 38 / lr for Adam with
beta1 = 0.9): above it the step grows along the sharpest direction. What the step does to the loss, predicted and
measured; the learning rate above which it would raise the loss; which layers have the curvature along it. Nothing
is trained, nothing is changed.

[bold]Examples[/bold]

  hessmap step my:training\n
  hessmap step my:training --batch-size 128  [dim]# batch sharpness, too[/dim]\n
  hessmap step my:training --figure step.png\n
  hessmap step my:training --json > step.json
"""
_PARTS = ("model", "optimizer", "loss", "data")
PLANE_EXAMPLES = """
[bold]Examples[/bold]

  hessmap plane                              [dim]# the sharpest directions[/dim]\n
  hessmap plane --directions random --figure plane.png\n
  hessmap plane my:net --data my:train --dimensions 1\n
  hessmap plane my:net --data my:train --other my:second   [dim]# a barrier[/dim]
"""


def step(
    training: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="A function that returns model, optimiser, loss and data, or a dictionary of them.",
        ),
    ],
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples of a mini-batch. Default: those of a loader, or all.")
    ] = None,
    num_batches: Annotated[int, typer.Option(min=1, help="Mini-batches for batch sharpness and noise scale.")] = 16,
    stored_gradient: Annotated[
        bool, typer.Option("--stored-gradient", help="Step with the .grad of the parameters, not with all of the data.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the step to this .png, .svg or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether the next step of an optimiser is stable, before it is taken.

    Compares the sharpness that the optimiser is exposed to with its
    stability threshold, and predicts and measures the change of the loss.
    """
    require_writable(figure, FIGURES)
    from hessmap.views.progress import TerminalProgress

    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and {training}")
        from hessmap.applications import step_report

        problem, optimizer, model = _subject(training)
        shown.start(f"the next step of {type(optimizer).__name__} on {problem.num_samples:,} samples")
        found = step_report(
            problem,
            optimizer,
            model=model,
            gradient="stored" if stored_gradient else "problem",
            batch_size=batch_size,
            num_batches=num_batches,
        )
    if figure is not None:
        from hessmap.views.plots import step_figure, write_figure

        echo_written(write_figure(step_figure(found), figure, salt="step"))
    if as_json:
        typer.echo(found.to_json(indent=2))
        return
    from hessmap.views.tables import step_view

    console().print(step_view(found))


def _subject(reference: str) -> tuple[Problem, Any, Any]:
    """The problem, the optimiser and the model that the function returns."""
    from hessmap.cli.subject import made_by, referenced_object
    from hessmap.errors import require
    from hessmap.problem import Problem

    must = f"{reference} must be a function that returns (model, optimizer, loss, data), or a dictionary of them"
    factory = referenced_object(reference)
    require(callable(factory), must, f"it is a {type(factory).__name__}")
    made = made_by(factory, reference)
    if isinstance(made, Mapping):
        given = dict(made)
    else:
        is_four = isinstance(made, tuple | list) and len(made) == len(_PARTS)
        got = (
            f"it returned {len(made)} values"
            if isinstance(made, tuple | list)
            else f"it returned a {type(made).__name__}"
        )
        require(is_four, must, f"it returned {got}")
        given = dict(zip(_PARTS, made, strict=True))
    missing = [name for name in ("model", "optimizer", "data") if name not in given]
    require(not missing, must, f"its dictionary has no {', '.join(missing)}")
    model, optimizer = given.pop("model"), given.pop("optimizer")
    return Problem(model, **given), optimizer, model


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
    loss: Annotated[str, typer.Option(help="As for 'hessmap map'.")] = "cross_entropy",
    objective: Annotated[
        str | None, typer.Option(metavar="PACKAGE.MODULE:FUNCTION", help="As for 'hessmap map'.")
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
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this file (.png, .pdf, .svg).")] = None,
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
        from hessmap.views.tables import plane_view

        console().print(plane_view(found))
    if figure is not None:
        echo_written(figure)
