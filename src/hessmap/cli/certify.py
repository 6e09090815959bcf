"""``hessmap certify``: a bound on the error on unseen data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hessmap.cli.options import AsJson, console, require_writable

if TYPE_CHECKING:
    from hessmap.certificates import Certificate, Verification
    from hessmap.theory.pac_bayes import PriorGrid


class Subject(NamedTuple):
    """A trained network with its start, or a function that builds a new one (``build``); samples, and test samples."""

    model: Any
    initial: Any
    build: Callable[[], Any] | None
    data: Any
    tests: Any
    prior_data: Any


def subject_of(
    model: str | None, initial: str | None, data: str | None, test: str | None, prior_data: str | None, is_check: bool
) -> Subject:
    """Everything that the references name. Without ``initial`` the model is built and trained here, or checked."""
    from hessmap.cli.subject import referenced_data, referenced_model
    from hessmap.errors import require

    if model is None:
        named = (("--initial", initial), ("--data", data), ("--test", test), ("--prior-data", prior_data))
        given = [name for name, value in named if value]
        require(not given, "initial weights and data go with a model of your own", f"{', '.join(given)} came without")
        from hessmap.certificates import digits_example

        example = digits_example()
        return Subject(example.model, example.initial, None, example.data, example.test, None)
    require(data is not None, "a model of your own needs its training data", "--data is missing")
    assert data is not None
    samples, tests = referenced_data(data), None if test is None else referenced_data(test)
    seen = None if prior_data is None else referenced_data(prior_data)
    if initial is not None:
        return Subject(referenced_model(model), referenced_model(initial), None, samples, tests, seen)
    require(seen is None or is_check, "samples of a prior go with its network", "--prior-data came without --initial")
    build = None if is_check else builder_of(model)
    return Subject(referenced_model(model) if is_check else None, None, build, samples, tests, seen)


def builder_of(reference: str) -> Callable[[], Any]:
    """The function that a reference names; a network that is there already needs the weights that it started from."""
    from torch import nn

    from hessmap.cli.subject import referenced_model, referenced_object
    from hessmap.errors import require

    require(
        not isinstance(referenced_object(reference), nn.Module),
        "a certificate needs the weights that training started from, or a function that builds a new network",
        f"{reference} is a network and --initial is missing",
        "Keep a copy before training, or name the function that builds it: its prior is then trained here",
    )
    return functools.partial(referenced_model, reference)


def training_of(reference: str | None, epochs: int, seed: int) -> Callable[[Any, Any], Any]:
    """A training of the user's own, called with the new network and the prior's samples; or that of hessmap."""
    if reference is not None:
        from hessmap.cli.subject import referenced_object
        from hessmap.errors import require

        found = referenced_object(reference)
        must = "a training is a function of a network and its samples"
        require(callable(found), must, f"{reference} is a {type(found).__name__}")
        return found  # type: ignore[no-any-return]
    from hessmap.training import train

    return functools.partial(train, epochs=epochs, seed=seed, record_every=epochs)


def grid_of(text: str | None) -> PriorGrid | None:
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


EXAMPLES = """
[bold]Examples[/bold]

  hessmap certify                   [dim]# digits 0-4 against 5-9[/dim]\n
  hessmap certify my:build --data my:train --save c.npz\n
  hessmap certify my:build --data my:train --verify c.npz\n
  hessmap certify my:net --initial my:start --data my:train --save c.npz\n
  hessmap certify my:net --initial my:start --data my:train --verify c.npz

With --checkpoint FILE, Ctrl-C and the same command again continue the fit.
"""


def certify(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A function that builds a new network, whose prior is trained here; with --initial a trained one. "
            "Without it, a network of 20 hidden units is trained to tell digits 0-4 from 5-9.",
        ),
    ] = None,
    initial: Annotated[
        str | None,
        typer.Option(help="The same model with the weights that training started from, as PACKAGE.MODULE:ATTRIBUTE."),
    ] = None,
    prior_fraction: Annotated[
        float, typer.Option(help="Without --initial: the share of the data that the prior is trained on.")
    ] = 0.5,
    train: Annotated[
        str | None,
        typer.Option(help="Without --initial: your own training, called with the new network and its samples."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Without --initial and --train: epochs of the training.")] = 20,
    data: Annotated[
        str | None, typer.Option(help="The training data, (inputs, labels), as PACKAGE.MODULE:ATTRIBUTE.")
    ] = None,
    prior_data: Annotated[
        str | None,
        typer.Option(help="The samples that the initial model was trained on, none of which may be among the data."),
    ] = None,
    posterior: Annotated[
        str | None,
        typer.Option(help="fitted, prior (the prior's network with noise; usual without --initial) or tightest."),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="cross_entropy, bce (one logit) or squared (clipped at 1).")
    ] = "cross_entropy",
    objective: Annotated[
        str, typer.Option(help="bound (the tightest bound), pinsker (a better network) or balanced.")
    ] = "bound",
    test: Annotated[str | None, typer.Option(help="Test data, for comparison; the bound does not use them.")] = None,
    basis: Annotated[
        str,
        typer.Option(
            help="standard, approximate, iterative, iterative_decay, iterative_weights or iterative_activity."
        ),
    ] = "iterative",
    iterations: Annotated[int, typer.Option(help="Steps of the fit: more give a tighter bound.")] = 3000,
    delta: Annotated[float, typer.Option(help="Probability with which the samples may invalidate the bound.")] = 0.025,
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
            help="Check the certificate in this file: recompute bound and draws with your model, initial and data."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the fit to this file while it runs, and resume from it.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write certificate and posterior to this file (.npz).")] = None,
    as_json: AsJson = False,
) -> None:
    """Bound the error of a network on data it has not seen.

    A function that builds a network is enough: half of the data train it,
    and the other half bound the error of the result. For a network that
    was trained before (with --initial), a Gaussian posterior is fitted
    around its weights, wide where the loss is flat, with a small
    divergence from a prior around the initial weights (PAC-Bayes). The
    bound holds for the network that draws its weights from the posterior.

    With --verify, a certificate is compared with the model, the initial
    weights and the data: every number that is printed is recomputed.
    The exit code is 1 if it is not confirmed.
    """

    require_writable(save, replaces=True)
    require_writable(checkpoint, replaces=True)
    subject = subject_of(model, initial, data, test, prior_data, verify is not None)
    common: dict[str, Any] = {"grid": grid_of(grid), "num_draws": draws, "test_data": subject.tests}
    if verify is not None:
        from hessmap.certificates import Certificate

        common |= {"seed": seed, "prior_data": subject.prior_data, "initial_model": subject.initial}
        _report(Certificate.load(verify).verify(subject.model, subject.data, **common), as_json)
        return
    common |= {"basis": basis, "loss": loss, "objective": objective, "delta": delta, "seed": seed or 0}
    if subject.build is not None:
        common |= {"prior_fraction": prior_fraction, "train": training_of(train, epochs, seed or 0)}
        common |= {"posterior": posterior or "prior"}
    else:
        common |= {"posterior": posterior or "fitted", "prior_data": subject.prior_data, "checkpoint": checkpoint}
    found = _found_certificate(subject, iterations, common)
    if as_json:
        import dataclasses

        typer.echo(dataclasses.replace(found, posterior={}).to_json(indent=2))
    else:
        from hessmap.views.tables import certificate_view

        console().print(certificate_view(found))
    if save is None:
        return
    _save(found, save)  # last: a disk that is full by now costs the file and not the certificate
    if not as_json:
        named = (("--initial", initial), ("--data", data), ("--prior-data", prior_data), ("--grid", grid))
        words = [*([] if model is None else [model]), *(f"{name} {value}" for name, value in named if value)]
        command = " ".join(["hessmap certify", *words, f"--verify {save}"])
        console(stderr=True).print(f"Written to {save}. To check it again: {command}", soft_wrap=True)


def _save(certificate: Certificate, path: Path) -> None:
    from hessmap.errors import InvalidInput, sentence

    try:
        certificate.save(path)
    except OSError as error:
        raise InvalidInput(sentence("the file must be writable", f"{path} is not ({error.strerror})")) from error


def _found_certificate(subject: Subject, iterations: int, options: dict[str, Any]) -> Certificate:
    from hessmap.certificates import FitMoment, certify_from_data
    from hessmap.certificates import certify as fit_certificate
    from hessmap.views.progress import TerminalProgress

    with TerminalProgress() as shown:

        def advance(moment: FitMoment) -> None:
            note = f"bound about {moment.bound:.3f} (error {moment.error:.3f}, KL {moment.kl:.0f})"
            shown.advance(moment.iteration, note)

        shown.start("fitting a posterior", total=iterations)
        common: dict[str, Any] = options | {"iterations": iterations, "progress": advance}
        if subject.build is not None:
            return certify_from_data(subject.build, subject.data, **common)
        every = max(1, min(100, iterations // 10))
        return fit_certificate(subject.model, subject.initial, subject.data, progress_every=every, **common)


def _report(found: Verification, as_json: bool) -> None:
    """Print a verification; leave with exit code 1 unless it is confirmed."""
    from hessmap.views.tables import verification_view

    if as_json:
        typer.echo(found.to_json(indent=2))
    else:
        console().print(verification_view(found))
    if not found:
        raise typer.Exit(1)
