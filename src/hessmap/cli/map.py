"""``hessmap map``: train a small network or take the user's own, map its curvature, and store the map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessmap.cli.options import STORE, Samples, Seed, Side, StorePath, console

EXAMPLES = """
[bold]Your own model, data and loss[/bold]

A name with a colon is imported: MODULE:ATTRIBUTE, from the current folder too.

  hessmap map my_models:net --data my_data:train\n
  hessmap map my_models:gpt --data my_data:tokens --loss own\n
  hessmap map my:net --data my:train --loss my:focal_loss\n
  hessmap map my:net --data my:batches --objective my:contrastive

[bold]Examples[/bold]

  hessmap map                               [dim]# 64-30-20-10 relu on digits[/dim]\n
  hessmap map --name run3 --seed 3          [dim]# stored as run3[/dim]\n
  hessmap map --ranks                       [dim]# and what theory claims[/dim]\n
  hessmap map --loss squared --certify      [dim]# ranks in exact arithmetic[/dim]\n
  hessmap map --widths 64-16-16-10 --activation tanh --epochs 20\n
  hessmap map --data mnist --side 8 --samples 2000\n
  hessmap map --json > map.json

Every map is stored under its name: see hessmap maps list, show, compare.
"""


def map_curvature(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="Your model: an nn.Module, or a function without arguments that returns one. It is mapped as it is. "
            "Default: a small fully connected network is trained.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A data set that 'hessmap data' lists, or your own as PACKAGE.MODULE:ATTRIBUTE: (inputs, targets), a "
            "loader, or a function that returns one."
        ),
    ] = "digits",
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[
        str,
        typer.Option(
            help="cross_entropy, squared (half the sum of squares), mse (their mean), l1, bce (of logits), log_cosh; "
            "PACKAGE.MODULE:ATTRIBUTE for your own function or module; 'own' for the loss that the model returns, as "
            "Hugging Face models do."
        ),
    ] = "cross_entropy",
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="Your function f(model, batch) in place of --loss: it returns the loss of a batch, a scalar or one "
            "value per sample (contrastive, VAE, PINN, ..). --data names the batches.",
        ),
    ] = None,
    widths: Annotated[
        str | None, typer.Option(help="Widths of the trained network. Default: two hidden layers, 30-20.")
    ] = None,
    activation: Annotated[str, typer.Option(help="Activation of the trained network.")] = "relu",
    bias: Annotated[bool, typer.Option("--bias", help="The trained network has biases.")] = False,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data in training.")] = 40,
    seed: Seed = 0,
    ranks: Annotated[
        bool,
        typer.Option(
            "--ranks",
            help="Also the ranks of the three Hessians, next to theory, and those of the network without activations. "
            "Two to five times the work.",
        ),
    ] = False,
    factors: Annotated[
        bool, typer.Option("--factors", help="Show the columns of the layers' Kronecker factors (K-FAC).")
    ] = False,
    certify: Annotated[
        bool | None,
        typer.Option(
            "--certify/--no-certify",
            help="Compute the ranks in exact arithmetic as well (implies --ranks). Default with --ranks: where the "
            "spectrum does not decide them and the network is small. Needs the squared loss and a piecewise linear "
            "or polynomial network.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=1.0,
            help="Time limit. Dense Hessians that would take longer are not formed; estimates use fewer products.",
        ),
    ] = 60.0,
    dense: Annotated[
        bool | None,
        typer.Option(
            "--dense/--estimate",
            help="Form dense Hessians, or estimate from products. Default: dense if time and memory suffice.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the map in the store. Default: the time.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a stored map of that name.")] = False,
    store: StorePath = STORE,
    output: Annotated[
        Path | None, typer.Option(help="Folder for figures and record. Default: hessmap-runs/map-NAME.")
    ] = None,
    files: Annotated[
        bool, typer.Option("--files/--no-files", help="Write the folder, or store the record only.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")] = False,
) -> None:
    """Map the curvature of a network: five numbers, then layer by layer.

    The five numbers of the whole network: largest eigenvalue of the loss
    Hessian (sharpness), largest stable learning rate, trace, share of
    negative curvature, effective dimension. Small networks get dense
    Hessians and exact numbers; larger ones estimates with standard errors,
    within --seconds. --ranks adds the ranks of the Hessians and what theory
    claims of them. Figures and the record are written to a folder, and the
    record to the store.
    """
    from hessmap.cli.store import new_folder, new_name, write_map
    from hessmap.cli.subject import mapped_problem, mapped_subject
    from hessmap.errors import require, short_text
    from hessmap.records import MapOptions, Store, add_map
    from hessmap.views.progress import TerminalProgress
    from hessmap.views.tables import map_view

    require(
        model is None or ":" in model,
        "a model is named as PACKAGE.MODULE:ATTRIBUTE",
        f"got {short_text(model)}",
        f"Stored maps: hessmap maps {model}" if model in ("list", "show", "compare", "directions") else "",
    )
    require(
        model is None or widths is None,
        "--widths is for the network that hessmap trains",
        f"--widths {widths} was given with {model}",
        "Leave one of the two out",
    )
    options = MapOptions(
        model=model,
        data=data,
        samples=samples,
        side=side,
        loss=loss,
        widths=widths,
        activation=activation,
        bias=bias,
        epochs=epochs,
        seed=seed,
        ranks=ranks,
        certify=certify,
        seconds=seconds,
        dense=dense,
        name=name,
        objective=objective,
    )
    stored_as = new_name(store, name, replace)
    folder = new_folder(output, stored_as) if files else None
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.curvature_map import curvature_map

        mapped, mapped_on = mapped_subject(options, shown)
        found = curvature_map(
            mapped_problem(options, mapped, mapped_on),
            seconds=seconds,
            dense=dense,
            ranks=ranks,
            certify=certify,
            title=name or "",
            progress=shown.start,
        )
        shown.start("writing the record" if folder is None else "writing the record and the figures")
        with Store(store, create=True) as opened:
            add_map(opened, stored_as, found, options, replace)
        paths = [] if folder is None else write_map(found, folder)
    if as_json:
        typer.echo(found.to_json())
    else:
        console().print(map_view(found, factors))
    aside = console(stderr=True)
    if paths:
        aside.print(f"Written to {folder}: {', '.join(path.name for path in paths)}")
    aside.print(f"Stored as {stored_as} in {store}: hessmap maps show {stored_as}")
