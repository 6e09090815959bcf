"""``hessmap certify``: a bound on the error of a trained network on unseen data, made or checked again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.views.cli.options import AsJson, console, require_writable

if TYPE_CHECKING:
    from hessmap.certificates import Certificate, Verification
    from hessmap.theory.pac_bayes import PriorGrid

EXAMPLES = """
[bold]Examples[/bold]

  hessmap certify                   [dim]# digits 0-4 against 5-9[/dim]\n
  hessmap certify my:net --initial my:start --data my:train\n
  hessmap certify my:net --initial my:start --data my:train --save c.npz\n
  hessmap certify my:net --initial my:start --data my:train --verify c.npz

With --checkpoint FILE, Ctrl-C and the same command again continue the fit.
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
    prior_data: Annotated[
        str | None,
        typer.Option(help="The samples that the initial model was trained on, none of which may be among the data."),
    ] = None,
    posterior: Annotated[
        str, typer.Option(help="fitted, prior (the initial model with noise) or tightest of both.")
    ] = "fitted",
    loss: Annotated[
        str, typer.Option(help="cross_entropy, bce (one logit) or squared (clipped at 1).")
    ] = "cross_entropy",
    objective: Annotated[
        str, typer.Option(help="bound (the tightest promise), pinsker (a better network) or balanced.")
    ] = "bound",
    test: Annotated[str | None, typer.Option(help="Test data, to compare with; no part of the promise.")] = None,
    basis: Annotated[
        str,
        typer.Option(
            help="standard, approximate, iterative, iterative_decay, iterative_weights or iterative_activity."
        ),
    ] = "iterative",
    iterations: Annotated[int, typer.Option(help="Steps of the fit: more give a tighter bound.")] = 3000,
    delta: Annotated[float, typer.Option(help="How often the samples may mislead.")] = 0.025,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Draws that bound the error: 100,000 pairs of weights and samples, or 10,000 whole networks."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Seed of the fit and the draws: 0; a fresh one where a certificate is verified."
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE,PRECISION[,POINTS]",
            help="Grid of prior variances, fixed before the data: 0.1,100, or 0.0025,1,5 for a prior from data.",
        ),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            help="Check the certificate in this file: bound and draws anew, with your model, initial and data."
        ),
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Store the fit here as it goes, and go on from it.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write certificate and posterior to this file (.npz).")] = None,
    as_json: AsJson = False,
) -> None:
    """Bound the error of a network on data it has not seen.

    Fits a Gaussian posterior around the trained weights, wide where the
    loss is flat, with a small divergence from a prior around the initial
    weights (PAC-Bayes). The bound holds for the network that draws its
    weights from the posterior, with the confidence that is printed.

    With --verify, a certificate is compared with the model, the initial
    weights and the data: every number that is printed is computed anew.
    The exit code is 1 if it is not confirmed.
    """
    require_writable(save)
    require_writable(checkpoint)
    trained, untrained, samples, tests = _subject(model, initial, data, test)
    seen = _prior_data(model, prior_data)
    if verify is not None:
        from hessmap.certificates import Certificate

        options = {"seed": seed, "grid": _grid(grid), "num_draws": draws, "test_data": tests}
        options["prior_data"] = seen
        _report(Certificate.load(verify).verify(trained, samples, initial_model=untrained, **options), as_json)
        return
    found = _fitted_certificate(
        trained,
        untrained,
        samples,
        basis=basis,
        prior_data=seen,
        posterior=posterior,
        loss=loss,
        objective=objective,
        test_data=tests,
        delta=delta,
        grid=_grid(grid),
        num_draws=draws,
        iterations=iterations,
        seed=seed or 0,
        checkpoint=checkpoint,
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
        subject = "" if model is None else f"{model} --initial {initial} --data {data} "
        command = f"hessmap certify {subject}--verify {save}" + ("" if grid is None else f" --grid {grid}")
        command += "" if prior_data is None else f" --prior-data {prior_data}"
        console(stderr=True).print(f"Written to {save}. To check it again: {command}", soft_wrap=True)


def _fitted_certificate(model: Any, initial: Any, data: Any, iterations: int, **options: Any) -> Certificate:
    from hessmap.certificates import FitMoment
    from hessmap.certificates import certify as fit_certificate
    from hessmap.views.progress import TerminalProgress

    with TerminalProgress() as shown:

        def advance(moment: FitMoment) -> None:
            note = f"bound about {moment.bound:.3f} (error {moment.error:.3f}, KL {moment.kl:.0f})"
            shown.advance(moment.iteration, note)

        shown.start("fitting a posterior", total=iterations)
        every = max(1, min(100, iterations // 10))
        return fit_certificate(
            model, initial, data, iterations=iterations, progress=advance, progress_every=every, **options
        )


def _report(found: Verification, as_json: bool) -> None:
    """Print a verification; leave with exit code 1 unless it is confirmed."""
    from hessmap.views.tables import verification_view

    if as_json:
        typer.echo(found.to_json(indent=2))
    else:
        console().print(verification_view(found))
    if not found:
        raise typer.Exit(1)


def _prior_data(model: str | None, prior_data: str | None) -> Any:
    from hessmap.errors import require
    from hessmap.views.cli.subject import referenced_data

    if prior_data is None:
        return None
    require(model is not None, "samples of a prior go with a model of your own", "--prior-data came without")
    return referenced_data(prior_data)


def _grid(text: str | None) -> PriorGrid | None:
    from hessmap.errors import InvalidInput, sentence
    from hessmap.theory.pac_bayes import PriorGrid

    if text is None:
        return None
    scale, _, rest = text.partition(",")
    precision, *points = rest.split(",")
    try:
        return PriorGrid(float(scale), int(precision), *map(int, points[:1]))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        must = "a grid is given as SCALE,PRECISION[,POINTS]"
        raise InvalidInput(sentence(must, f"got {text!r}", "Write for example --grid 0.1,100")) from error


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
