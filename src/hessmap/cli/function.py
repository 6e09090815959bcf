"""``hessmap function``: how many dimensions the function of a network has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.cli.options import FIGURES, AsJson, Seed, console, echo_json, echo_written, require_writable

if TYPE_CHECKING:
    from hessmap.progress import Progress

EXAMPLES = """
[bold]What it says[/bold]

A network from 64 inputs to 10 outputs can still compute a function of two or three variables. The rank of its
Jacobians bounds the number of them from below, the narrowest representation that all of it passes through from
above; each bound says whether it is measured, certified or a theorem. Penalties on the weights make such
bottlenecks: the squared norm per layer is at least, and in deep networks about, the rank.

[bold]Examples[/bold]

  hessmap function                              [dim]# a small network on digits[/dim]\n
  hessmap function --tolerance 1e-10 --certify  [dim]# drops nothing small[/dim]\n
  hessmap function --figure layers.png          [dim]# layer by layer[/dim]\n
  hessmap function my_models:net --data my_data:inputs\n
  hessmap function my_models:net --data my_data:train --json > function.json
"""


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
    figure: Annotated[Path | None, typer.Option(help="Draw the layers into this file (.png, .pdf, .svg).")] = None,
    as_json: AsJson = False,
) -> None:
    """The rank of the function a network computes, and what its weights cost.

    Finds the Jacobians of the outputs in the inputs at all samples, the
    representations behind every layer, and bounds on the squared norm of
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
        from hessmap.views.tables.function import function_view

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

    must = "a network can be trained on inputs with the numbers of their classes"
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
