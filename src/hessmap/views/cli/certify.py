"""``hessmap certify``: a bound on the error of a trained network on unseen data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hessmap.views.cli.options import AsJson, Seed, console, require_writable

EXAMPLES = """
[bold]Examples[/bold]

  hessmap certify                               [dim]# a small network on digits, 0-4 against 5-9[/dim]\n
  hessmap certify my_models:trained --initial my_models:untrained --data my_data:train\n
  hessmap certify my_models:trained --initial my_models:untrained --data my_data:train --test my_data:test \\
      --save certificate.npz --checkpoint fit.pt [dim]# Ctrl-C, and the same command continues[/dim]
"""


def certify(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A trained model of your own: an nn.Module, or a callable without arguments that returns one. "
            "Without it, a network of 20 hidden units is trained to tell digits 0-4 from 5-9.",
        ),
    ] = None,
    initial: Annotated[
        str | None,
        typer.Option(help="The same model with the weights that training started from, as PACKAGE.MODULE:ATTRIBUTE."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The training data, (inputs, labels), as PACKAGE.MODULE:ATTRIBUTE.")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Test data, to compare with; no part of the promise.")] = None,
    basis: Annotated[
        str,
        typer.Option(
            help="standard, approximate, iterative, iterative_decay, iterative_weights or iterative_activity."
        ),
    ] = "iterative",
    iterations: Annotated[int, typer.Option(help="Steps of the fit: more give a tighter bound.")] = 3000,
    delta: Annotated[float, typer.Option(help="How often the samples may mislead.")] = 0.025,
    draws: Annotated[int, typer.Option(help="Draws of weights and samples that estimate the error.")] = 100_000,
    seed: Seed = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Store the fit here as it goes, and go on from it.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write certificate and posterior to this file (.npz).")] = None,
    as_json: AsJson = False,
) -> None:
    """Bound the error of a network on data it has not seen.

    Fits a Gaussian posterior around the trained weights, wide where the
    loss is flat, and pays for its divergence from a prior around the
    initial weights (PAC-Bayes). The bound holds for the network that draws
    its weights from the posterior, with the confidence that is printed.
    """
    from hessmap.certificates import FitMoment
    from hessmap.certificates import certify as fit_certificate
    from hessmap.views.progress import TerminalProgress

    require_writable(save)
    require_writable(checkpoint)
    trained, untrained, samples, tests = _subject(model, initial, data, test)
    with TerminalProgress() as shown:

        def advance(moment: FitMoment) -> None:
            note = f"bound about {moment.bound:.3f} (error {moment.error:.3f}, KL {moment.kl:.0f})"
            shown.advance(moment.iteration, note)

        shown.start("fitting a posterior", total=iterations)
        found = fit_certificate(
            trained,
            untrained,
            samples,
            basis,
            test_data=tests,
            delta=delta,
            num_draws=draws,
            iterations=iterations,
            seed=seed,
            checkpoint=checkpoint,
            progress=advance,
            progress_every=max(1, min(100, iterations // 10)),
        )
    if save is not None:
        found.save(save)
    if as_json:
        import dataclasses

        typer.echo(dataclasses.replace(found, posterior={}).to_json(indent=2))
        return
    from hessmap.views.tables import certificate_view

    console().print(certificate_view(found))
    if save is not None:
        console(stderr=True).print(f"Written to {save}: Certificate.load(path).verify(model, data) checks it again")


def _subject(model: str | None, initial: str | None, data: str | None, test: str | None) -> tuple[Any, Any, Any, Any]:
    """The trained network, the untrained one, the samples and the test samples."""
    from hessmap.errors import require
    from hessmap.views.cli.subject import referenced_data, referenced_model

    if model is None:
        given = [name for name, value in (("--initial", initial), ("--data", data), ("--test", test)) if value]
        require(not given, "initial weights and data go with a model of your own", f"{', '.join(given)} came without")
        from hessmap.studies.certificates.task import digits_task

        return digits_task()
    require(data is not None, "a model of your own needs its training data", "--data is missing")
    require(
        initial is not None,
        "a certificate needs the weights that training started from",
        "--initial is missing",
        "Keep a copy before training, or build the network again from its seed",
    )
    assert data is not None
    assert initial is not None
    tests = None if test is None else referenced_data(test)
    return referenced_model(model), referenced_model(initial), referenced_data(data), tests
