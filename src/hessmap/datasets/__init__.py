"""With what a network is differentiated: real and synthetic data; torch loads with the first that is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.datasets.catalogue import NAMES, available, by_name, data_folders

if TYPE_CHECKING:
    from hessmap.datasets.images import cifar10, cifar100, digits, fashion_mnist, mnist
    from hessmap.datasets.preprocessing import (
        Data,
        ImageAugmentation,
        class_subset,
        downscale,
        grayscale,
        one_hot,
        random_labels,
        standardise,
        subsample,
        two_halves,
    )
    from hessmap.datasets.synthetic import dyadic, gaussian, gaussian_mixture, linear_teacher

_NEEDS_TORCH = {
    "images": ("cifar10", "cifar100", "digits", "fashion_mnist", "mnist"),
    "preprocessing": (
        "Data",
        "ImageAugmentation",
        "class_subset",
        "downscale",
        "grayscale",
        "one_hot",
        "random_labels",
        "standardise",
        "subsample",
        "two_halves",
    ),
    "synthetic": ("dyadic", "gaussian", "gaussian_mixture", "linear_teacher"),
}
_HOMES = {name: home for home, names in _NEEDS_TORCH.items() for name in names}

__all__ = [
    "NAMES",
    "Data",
    "ImageAugmentation",
    "available",
    "by_name",
    "cifar10",
    "cifar100",
    "class_subset",
    "data_folders",
    "digits",
    "downscale",
    "dyadic",
    "fashion_mnist",
    "gaussian",
    "gaussian_mixture",
    "grayscale",
    "linear_teacher",
    "mnist",
    "one_hot",
    "random_labels",
    "standardise",
    "subsample",
    "two_halves",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
