"""``hessmap function`` and ``hessmap learning``: the dimensions of a network's function, the volume of its optima."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.cli.options import FIGURES, AsJson, Samples, Seed, Side, console, echo_json, echo_written, require_writable

if TYPE_CHECKING:
    from hessmap.progress import Progress


EXAMPLES = """
[bold]What it prints[/bold]

A network from 64 inputs to 10 outputs can still compute a function of two or three variables. The rank of its
Jacobians bounds the number of them from below, the narrowest representation that all of it passes through from
above; each bound is labelled measured, certified or theorem. Penalties on the weights make such
bottlenecks: the squared norm per layer is at least, and in deep networks about, the rank.

[bold]Examples[/bold]

  hessmap function                              [dim]# a small network on digits[/dim]\n
  hessmap function --tolerance 1e-10 --certify  [dim]# small singular values[/dim]\n
  hessmap function --figure layers.png          [dim]# layer by layer[/dim]\n
  hessmap function my_models:net --data my_data:inputs\n
  hessmap function my_models:net --data my_data:train --json > function.json
"""
_WHAT = """
[bold]What it prints[/bold]

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


def function(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A model of your own: an nn.Module, or a callable without arguments that returns one. Its output "
            "must be one vector per sample. Without it, a network of two hidden layers of 100 is trained on digits.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A data set that 'hessmap data' lists, or samples of your own as PACKAGE.MODULE:ATTRIBUTE: inputs, "
            "(inputs, targets), a loader, or a function that returns one."
        ),
    ] = "digits",
    samples: Annotated[int, typer.Option(help="Number of samples to use, the first ones.")] = 500,
    tolerance: Annotated[
        float, typer.Option(help="Count singular values above this times the largest: 0.1 looks for bottlenecks.")
    ] = 0.1,
    certify: Annotated[
        bool, typer.Option("--certify", help="Ranks in exact arithmetic too, for linear and ReLU networks.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data when a network is trained.")] = 20,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Write a figure of the layers to this file (.png, .pdf, .svg).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the rank of the function a network computes, and the norm of its weights.

    Finds the Jacobians of the outputs in the inputs at all samples, the
    representations after every layer, and bounds on the squared norm of
    the weights; nothing of the model is changed.
    """
    from hessmap.errors import require
    from hessmap.views.progress import TerminalProgress

    require(samples >= 2, "the rank of a function needs at least two samples", f"got --samples {samples}")
    require_writable(figure, FIGURES)
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.functions import bottleneck_view, function_rank, representation_cost

        network, inputs = _subject(model, data, samples, epochs, seed, shown)
        shown.start(f"Jacobians at {len(inputs)} samples")
        rank = function_rank(network, inputs, relative_tolerance=tolerance, certify=certify)
        shown.start("representations of the layers")
        view = bottleneck_view(network, inputs, relative_tolerance=tolerance)
        shown.start("bounds on the squared norm")
        cost = representation_cost(network, inputs, relative_tolerance=tolerance)
        if figure is not None:
            _draw(view, figure)
    if as_json:
        found = {"function_rank": rank, "bottleneck_view": view, "representation_cost": cost}
        echo_json({name: record.to_dict() for name, record in found.items()})
    else:
        from hessmap.views.tables import function_view

        console().print(function_view(rank, view, cost))
    if figure is not None:
        echo_written(figure)


def _subject(model: str | None, data: str, samples: int, epochs: int, seed: int, shown: Progress) -> tuple[Any, Any]:
    """The network and the inputs it is looked at."""
    from hessmap.cli.subject import chosen_data, referenced_model

    given = chosen_data(data, None, None)
    if model is not None:
        return referenced_model(model), _inputs(given, samples)
    import torch

    from hessmap.errors import require
    from hessmap.networks import FullyConnected
    from hessmap.training import train

    must = "training needs inputs with integer labels"
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], torch.Tensor)
    is_labelled = is_pair and given[1].ndim == 1 and not given[1].is_floating_point()
    require(is_labelled, must, f"{data} holds something else", "Name a model of your own as well")
    inputs, targets = given[0].flatten(1).double(), given[1]
    network = FullyConnected((inputs.shape[1], 100, 100, int(targets.max()) + 1), bias=True, activation="relu")
    shown.start(f"training {network} for {epochs} epochs")
    trained = network.build(seed=seed, init="kaiming")
    options: dict[str, Any] = {"optimiser": "adam", "learning_rate": 3e-3, "batch_size": 64}
    train(trained, (inputs, targets), "cross_entropy", epochs=epochs, seed=seed, **options)
    return trained, inputs[:samples]


def _inputs(data: Any, samples: int) -> Any:
    """The first inputs of inputs alone, of a pair, or of a loader."""
    import numpy as np
    import torch

    if isinstance(data, torch.Tensor | np.ndarray):
        return data[:samples]
    if isinstance(data, tuple | list) and data and isinstance(data[0], torch.Tensor | np.ndarray):
        return data[0][:samples]
    from hessmap.errors import InvalidInput, sentence

    parts: list[Any] = []
    try:
        for batch in data:
            parts.append(batch[0] if isinstance(batch, tuple | list) else batch)
            if sum(map(len, parts)) >= samples:
                break
        return torch.cat(parts)[:samples]
    except (TypeError, RuntimeError) as error:
        must = "data must be inputs, (inputs, targets) or a loader of them"
        raise InvalidInput(sentence(must, f"it is a {type(data).__name__}")) from error


def _draw(view: Any, path: Path) -> None:
    from hessmap.views.plots import representations_figure, write_figure

    write_figure(representations_figure(view), path, salt="function")


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
    localisation: Annotated[float, typer.Option(min=0.0, help="Strength of the pull towards the weights.")] = 1.0,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples of a step. Default: all.")] = None,
    check_settings: Annotated[
        bool,
        typer.Option(
            "--check-settings/--no-check-settings", help="Also run with half the step and with a weaker pull."
        ),
    ] = True,
    seconds: Annotated[float, typer.Option(min=1.0, help="Stop the chains after this time.")] = 120.0,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Write a figure of the chains to this file (.png, .pdf, .svg).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the coefficient of any model at its trained weights.

    Chains of stochastic gradient Langevin dynamics walk around the weights;
    the mean rise of their loss is the estimate. It comes with its standard
    error and with checks: whether the chains agree, whether they still
    drift, whether step, length and pull bias the value. If a check
    fails, the verdict is "unreliable" and the output states what to change.
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
