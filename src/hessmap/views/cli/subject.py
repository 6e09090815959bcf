"""What is mapped: the data and the network that the options name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.errors import require
from hessmap.views.cli.references import referenced_data

if TYPE_CHECKING:
    from torch import nn

    from hessmap.networks import FullyConnected
    from hessmap.progress import Progress

_HIDDEN_WIDTHS = (30, 20)


def chosen_data(name: str, samples: int | None, side: int | None) -> Any:
    """A data set by its name, or the user's own by its reference."""
    options = {"num_samples": samples, "side": side}
    given = {option: value for option, value in options.items() if value is not None}
    if ":" in name:
        require(
            not given,
            "--samples and --side choose from a listed data set",
            f"the data is {name}",
            "Make the choice in that function",
        )
        return referenced_data(name)
    from hessmap.datasets import by_name

    return by_name(name, **given)


def chosen_network(data: Any, widths: str | None, activation: str, bias: bool) -> FullyConnected:
    """The architecture to train: the given widths, or two hidden layers between the data's inputs and classes."""
    from torch import Tensor

    from hessmap.networks import FullyConnected

    if widths is not None:
        return FullyConnected(FullyConnected.parse(widths).widths, bias=bias, activation=activation)
    is_pair = isinstance(data, tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)
    require(is_pair, "a loader does not tell the widths of a network", "--widths is missing", "Give --widths")
    inputs, targets = data
    is_labels = targets.ndim == 1 and not targets.is_floating_point()
    output_dim = int(targets.max()) + 1 if is_labels else targets.reshape(len(targets), -1).shape[1]
    input_dim = inputs.reshape(len(inputs), -1).shape[1]
    return FullyConnected((input_dim, *_HIDDEN_WIDTHS, output_dim), bias=bias, activation=activation)


def trained_model(
    network: FullyConnected, data: Any, loss: str, epochs: int, seed: int, progress: Progress
) -> nn.Module:
    """The network after training by Adam, as good a minimum as a practitioner would stop at."""
    from hessmap.training import train

    progress.start(f"training {network} ({network.num_parameters:,} parameters) for {epochs} epochs, {loss} loss")
    model = network.build(seed=seed, init="kaiming")
    train(model, data, loss, optimiser="adam", learning_rate=3e-3, batch_size=64, epochs=epochs, seed=seed)
    return model
