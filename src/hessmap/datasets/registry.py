"""Data sets by name, for the command line and for studies."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from hessmap.datasets.images import cifar10, digits, fashion_mnist, mnist
from hessmap.datasets.preprocessing import Data
from hessmap.datasets.synthetic import dyadic, gaussian, gaussian_mixture, linear_teacher
from hessmap.errors import InvalidInput, require_name, sentence, unknown_name

_LOADERS: dict[str, Callable[..., Data]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "gaussian": gaussian,
    "gaussian_mixture": gaussian_mixture,
    "linear_teacher": linear_teacher,
    "dyadic": dyadic,
}

NAMES: tuple[str, ...] = tuple(_LOADERS)


def by_name(name: str, **options: object) -> Data:
    """Load a data set by its name.

    Args:
        name: Name of the data set's function in this package, such as "digits", "mnist" or "gaussian".
        options: Keyword arguments of that function.

    Returns:
        Data: What the function returns.

    Raises:
        UnknownName: If there is no data set of this name.

    Example:
        >>> by_name("digits", num_samples=100).inputs.shape
        torch.Size([100, 64])
    """
    require_name("data set", name, NAMES)
    signature = inspect.signature(_LOADERS[name])
    for option in options:
        if option not in signature.parameters:
            raise unknown_name(f"option of data set {name!r}", option, signature.parameters)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise InvalidInput(sentence(f"data set {name!r} needs {signature}", str(error))) from None
    return _LOADERS[name](**options)
