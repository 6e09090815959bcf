"""What ``hessmap certify`` is about: networks, samples, a training, a grid; by reference or as text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
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
        from hessmap.certificates.example import digits_example

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
