"""``hessmap learning``: the volume of near-optimal weights, exact for linear networks and estimated for any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessmap.cli.options import FIGURES, AsJson, Samples, Seed, Side, console, echo_written, require_writable

_WHAT = """
[bold]What it says[/bold]

Among all weights, those whose loss lies less than e above the best have a volume that shrinks like e to the power
lambda as e falls. lambda is the learning coefficient: half the number of parameters where every direction counts, half
the rank of the Hessian where the optima are smooth, less than the first and more than the second elsewhere.

[bold]Examples[/bold]

  hessmap learning exact 5-5-5 --rank 2\n
  hessmap learning exact 64-30-10 --rank 9 --loss cross_entropy\n
  hessmap learning estimate             [dim]# a small network on digits[/dim]\n
  hessmap learning estimate my_models:net --data my_data:train\n
  hessmap learning estimate --draws 20000 --seconds 600\n
  hessmap learning estimate --json > estimate.json
"""

learning_app = typer.Typer(
    name="learning", help="Compute or estimate the learning coefficient (RLCT).", epilog=_WHAT, no_args_is_help=True,
    rich_markup_mode="rich",
)  # fmt: skip


@learning_app.command("exact", epilog=_WHAT)
def exact(
    network: Annotated[str, typer.Argument(help="Widths of a linear network from input to output: 64-30-20-10.")],
    rank: Annotated[int, typer.Option(min=0, help="Rank of the map that the best weights compute.")],
    loss: Annotated[str, typer.Option(help="squared, cross_entropy or log_cosh.")] = "squared",
    bias: Annotated[bool, typer.Option("--bias", help="Every layer has a bias.")] = False,
    input_rank: Annotated[int | None, typer.Option(help="Rank of the inputs. Default: their number.")] = None,
    centred_input_rank: Annotated[int | None, typer.Option(help="With a bias: rank of the centred inputs.")] = None,
    as_json: AsJson = False,
) -> None:
    """The exact coefficient of a linear network, from integers alone.

    With its multiplicity m (the volume has a factor log(1/e) to the power
    m - 1), half the rank of the outer-product Hessian and half the number
    of parameters beside it.
    """
    from hessmap.networks import FullyConnected
    from hessmap.theory import learning_coefficient

    described = FullyConnected.parse(network)
    if bias:
        described = FullyConnected(described.widths, bias=True, activation=described.activation)
    found = learning_coefficient(
        described, rank, loss=loss, input_rank=input_rank, centred_input_rank=centred_input_rank
    )
    if as_json:
        typer.echo(found.to_json(indent=2))
        return
    from hessmap.views.tables import coefficient_view

    console().print(coefficient_view(found, title=f"{described}, {loss} loss"))


@learning_app.command("estimate", epilog=_WHAT)
def estimate(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A model of your own, trained: an nn.Module, or a callable without arguments that returns one. "
            "Without it, a fully connected network is trained.",
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="A data set that 'hessmap data' lists, or your own as PACKAGE.MODULE:ATTRIBUTE.")
    ] = "digits",
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[str, typer.Option(help="cross_entropy, squared or log_cosh.")] = "cross_entropy",
    widths: Annotated[str | None, typer.Option(help="Widths of the trained network.")] = None,
    activation: Annotated[str, typer.Option(help="Activation of the trained network.")] = "relu",
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data in training.")] = 40,
    chains: Annotated[int, typer.Option(min=1, help="Chains of draws.")] = 8,
    draws: Annotated[int, typer.Option(min=16, help="Draws of each chain.")] = 2000,
    burn_in: Annotated[int | None, typer.Option(min=0, help="Steps of burn-in. Default: half as many.")] = None,
    step_size: Annotated[float | None, typer.Option(help="Default: chosen by the curvature along the chains.")] = None,
    localisation: Annotated[float, typer.Option(min=0.0, help="The pull back to the weights.")] = 1.0,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples of a step. Default: all.")] = None,
    check_settings: Annotated[
        bool, typer.Option("--check-settings/--no-check-settings", help="Go on with half the step and a weaker pull.")
    ] = True,
    seconds: Annotated[float, typer.Option(min=1.0, help="Stop the chains after that time.")] = 120.0,
    seed: Seed = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw the chains into this file (.png, .pdf, .svg).")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the coefficient of any model at its trained weights.

    Chains of stochastic gradient Langevin dynamics walk around the weights;
    the mean rise of their loss is the estimate. It comes with its standard
    error and with checks: whether the chains agree, whether they still
    drift, whether step, length and pull bias the value. One that fails
    makes the verdict "unreliable", and says what to change.
    """
    from hessmap.cli.subject import chosen_data, chosen_network, referenced_model, trained_model
    from hessmap.errors import require
    from hessmap.views.progress import TerminalProgress

    must, got = "a model of your own has its own widths", f"--widths {widths} was given with {model}"
    require(model is None or widths is None, must, got, "Leave one of the two out")
    require_writable(figure, FIGURES)
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.learning import learning_coefficient_estimate
        from hessmap.problem import Problem

        given = chosen_data(data, samples, side)
        if model is not None:
            trained = referenced_model(model)
        else:
            network = chosen_network(given, widths, activation, bias=False)
            trained = trained_model(network, given, loss, epochs, seed, shown)
        problem = Problem(trained, loss, given)
    found = learning_coefficient_estimate(
        problem,
        num_chains=chains,
        num_draws=draws,
        num_burn_in=burn_in,
        step_size=step_size,
        localisation=localisation,
        batch_size=batch_size,
        check_settings=check_settings,
        seconds=seconds,
        seed=seed,
    )
    if figure is not None:
        from hessmap.views.plots import chains_figure, write_figure

        write_figure(chains_figure(found), figure, salt="chains")
    if as_json:
        typer.echo(found.to_json(indent=2))
    else:
        from hessmap.views.tables import estimate_view

        console().print(estimate_view(found, title=str(problem)))
    if figure is not None:
        echo_written(figure)
