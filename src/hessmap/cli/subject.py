"""What a command is about: models and data of the user's own by reference, listed data by name, or a new network.

A reference is ``package.module:attribute``, found from the current folder.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hessmap.errors import InvalidInput, require, sentence

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.networks import FullyConnected
    from hessmap.problem import Problem
    from hessmap.progress import Progress
    from hessmap.records import MapOptions

_SHAPE = "a model or data of your own is named as package.module:attribute"
_HIDDEN_WIDTHS = (30, 20)
_COPIES_IN_TRAINING = 5  # weights, gradient, two moments of Adam, the best weights so far


def referenced_model(reference: str) -> nn.Module:
    """The module that the reference names, or that the zero-argument callable it names returns."""
    from torch import nn

    found = referenced_object(reference)
    if isinstance(found, nn.Module):
        return found
    require(
        callable(found),
        "a model must be an nn.Module or a callable without arguments that returns one",
        f"{reference} is a {type(found).__name__}",
    )
    made = made_by(found, reference)
    require(
        isinstance(made, nn.Module),
        "a model must be an nn.Module or a callable without arguments that returns one",
        f"{reference}() returned a {type(made).__name__}",
    )
    assert isinstance(made, nn.Module)
    return made


def referenced_data(reference: str) -> Any:
    """Whatever the reference names (inputs and targets, or a loader), called first if it is a function."""
    found = referenced_object(reference)
    return made_by(found, reference) if inspect.isroutine(found) or inspect.isclass(found) else found


def referenced_object(reference: str) -> Any:
    """Import the module and follow the dotted attribute."""
    module_name, colon, attributes = reference.partition(":")
    require(
        bool(module_name and colon and attributes),
        _SHAPE,
        f"got {reference!r}",
        "Write for example my_package.models:classifier",
    )
    found: Any = imported_module(module_name)
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            offer = _offer(name, found, module_name)
            raise InvalidInput(sentence(f"{reference} must exist", f"there is no {name!r}", offer)) from error
        except Exception as error:
            raise InvalidInput(sentence(f"{reference} must be readable", _raised_text(error))) from error
    return found


def made_by(factory: Any, reference: str) -> Any:
    """The result of a factory without arguments; what it needs or raises is said in one sentence."""
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InvalidInput(
            sentence(f"{reference} must be callable without arguments", str(error), "Wrap it in a function")
        ) from error
    except ValueError:
        pass  # no signature to read: try the call
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise InvalidInput(sentence(f"{reference}() must return", _raised_text(error))) from error


def imported_module(module_name: str) -> Any:
    """The module of a name, of the current folder or installed; what is wrong with it is said in one sentence."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InvalidInput(
                sentence(
                    f"the module {module_name!r} must be importable from the current folder",
                    f"there is no module {missing!r} in {here} or among the installed packages",
                    "Change to the folder that contains it, or install it",
                )
            ) from error
        raise InvalidInput(sentence(f"the module {module_name!r} must import", _raised_text(error))) from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(sentence(f"the module {module_name!r} must import", _raised_text(error))) from error


def _raised_text(error: BaseException) -> str:
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())}".rstrip(".")


def _offer(name: str, owner: Any, module_name: str) -> str:
    """The near names of the owner, or all of them where they are few."""
    names = [public for public in dir(owner) if not public.startswith("_")]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Similar names in {module_name}: {', '.join(near)}"
    return f"{module_name} has {', '.join(names)}" if 0 < len(names) <= 12 else ""


def mapped_subject(options: MapOptions, progress: Progress) -> tuple[nn.Module, Any]:
    """The model and the data that options of ``hessmap map`` describe.

    Both the command and the commands that recreate the problem of a stored map use it.

    Args:
        options: The options; the modules of ``options.references`` are imported, which runs their code.
        progress: Is told of a training.

    Returns:
        The model, imported or trained from its seed, and the data.
    """
    data = chosen_data(options.data, options.samples, options.side)
    if options.model is not None:
        return referenced_model(options.model), data
    own = "--objective" if options.objective is not None else f"--loss {options.loss}"
    is_named = options.objective is None and options.loss != "own" and ":" not in options.loss
    must = "a loss or an objective of your own needs a model of your own"
    require(is_named, must, f"{own} was given without a model", "Write hessmap map my:model ..")
    network = chosen_network(data, options.widths, options.activation, options.bias)
    return trained_model(network, data, options.loss, options.epochs, options.seed, progress), data


def mapped_problem(options: MapOptions, model: nn.Module, data: Any) -> Problem:
    """The problem of a map: a loss by its name, a loss or an objective of the user's own, or the model's own loss.

    Args:
        options: The options; ``loss`` is a name, a reference or "own", ``objective`` a reference.
        model: The model.
        data: The data, or the batches of an objective.

    Returns:
        Problem: The model, with the loss or objective, on the data.
    """
    from hessmap.problem import Problem

    if options.objective is not None:
        return Problem(model, objective=referenced_object(options.objective), data=data)
    if options.loss == "own":
        return Problem(model, None, data)
    return Problem(model, referenced_object(options.loss) if ":" in options.loss else options.loss, data)


def chosen_data(name: str, samples: int | None, side: int | None) -> Any:
    """A data set by its name, or the user's own by its reference."""
    options = {"num_samples": samples, "side": side}
    given = {option: value for option, value in options.items() if value is not None}
    if ":" in name:
        require(
            not given,
            "--samples and --side choose from a listed data set",
            f"the data is {name}",
            "Select the samples in that function",
        )
        return referenced_data(name)
    from hessmap.datasets import by_name

    return by_name(name, **given)


def chosen_network(data: Any, widths: str | None, activation: str, bias: bool) -> FullyConnected:
    """The architecture to train: the given widths, or two hidden layers between the data's inputs and classes."""
    from torch import Tensor

    from hessmap.networks import FullyConnected

    is_pair = isinstance(data, tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)
    if widths is None:
        must = "data must be (inputs, targets) or a loader of them"
        require(is_pair or hasattr(data, "__iter__"), must, f"it is a {type(data).__name__}")
        require(is_pair, "a loader does not determine the widths of a network", "--widths is missing", "Give --widths")
        input_dim, output_dim, _ = _dimensions(*data)
        return FullyConnected((input_dim, *_HIDDEN_WIDTHS, output_dim), bias=bias, activation=activation)
    network = FullyConnected(FullyConnected.parse(widths).widths, bias=bias, activation=activation)
    if is_pair:
        input_dim, output_dim, has_labels = _dimensions(*data)
        first, last = network.widths[0], network.widths[-1]
        must = f"--widths must begin with the {input_dim} inputs of the data"
        require(first == input_dim, must, f"{widths} begins with {first}")
        must = f"--widths must end with {'at least ' if has_labels else ''}the {output_dim} outputs of the data"
        require(last == output_dim or (has_labels and last > output_dim), must, f"{widths} ends with {last}")
    return network


def _dimensions(inputs: Tensor, targets: Tensor) -> tuple[int, int, bool]:
    """Inputs and outputs of a sample, and whether the targets are labels."""
    has_labels = targets.ndim == 1 and not targets.is_floating_point()
    output_dim = int(targets.max()) + 1 if has_labels else targets.reshape(len(targets), -1).shape[1]
    return inputs.reshape(len(inputs), -1).shape[1], output_dim, has_labels


def trained_model(
    network: FullyConnected, data: Any, loss: str, epochs: int, seed: int, progress: Progress
) -> nn.Module:
    """The network after training by Adam, as good a minimum as a practitioner would stop at."""
    from hessmap.linalg import require_memory
    from hessmap.training import train

    num_bytes = 8 * _COPIES_IN_TRAINING * network.num_parameters
    require_memory(f"training {network.num_parameters:,} parameters", num_bytes, "Give smaller --widths")
    progress.start(f"training {network} ({network.num_parameters:,} parameters) for {epochs} epochs, {loss} loss")
    model = network.build(seed=seed, init="kaiming")
    train(model, data, loss, optimiser="adam", learning_rate=3e-3, batch_size=64, epochs=epochs, seed=seed)
    return model
