"""A layer of a trained network with its Hessian and its top eigenpairs, which are found once for all studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hessmap.records import EigenpairsMeasurement, data_hash
from hessmap_research.runner.model_cache import cached_model
from hessmap_research.runner.study import Case
from hessmap_research.studies.layers.layer_cases import NUM_CLASSES, recipe_of
from hessmap_research.studies.layers.trained_layers import Recipe, trained_layers

if TYPE_CHECKING:
    from hessmap.layers import LayerFactors, LayerHessian
    from hessmap.problem.problem import Problem

_VERSION = 1
_TOLERANCE = 1e-6
_MOST = {"digits": 60}
_MOST_OF_IMAGES = 40
_MOST_ON_ALL_IMAGES = 240  # twice the outputs of fc1, found once for every study


def problem_of(case: Case, recipe: Recipe | None = None) -> Problem:
    """The trained network of a case with the fields data, network, epochs and seed, on its samples."""
    how = recipe or recipe_of(case)
    return trained_layers(case["network"], case["data"], seed=case["seed"], recipe=how).problem


def hessian_of(case: Case, recipe: Recipe | None = None) -> LayerHessian:
    """The Hessian of the layer of a case."""
    from hessmap.layers import layer_hessian

    return layer_hessian(problem_of(case, recipe), case["layer"])


def eigenpairs_of(case: Case, hessian: LayerHessian) -> EigenpairsMeasurement:
    """The top 60 eigenpairs of the layer Hessian of a case, all if there are fewer: 40 for images and MNIST, 240
    for networks on all images."""
    most = _MOST_ON_ALL_IMAGES if "size" in case else _MOST.get(case["data"], _MOST_OF_IMAGES)
    return stored_eigenpairs(hessian, min(hessian.size, most))


def stored_eigenpairs(hessian: LayerHessian, count: int) -> EigenpairsMeasurement:
    """Top eigenpairs of a layer Hessian, kept beside the trained networks by parameters, samples and layer."""
    import torch

    from hessmap.layers import layer_eigenpairs

    def find(_: Path) -> dict[str, Any]:
        found = layer_eigenpairs(hessian, count, tolerance=_TOLERANCE)
        values = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "provenance"}
        return {name: torch.from_numpy(value) if hasattr(value, "dtype") else value for name, value in values.items()}

    problem = hessian.problem
    state = problem.model.state_dict()
    settings = {
        "recipe": "layer eigenpairs",
        "recipe_version": _VERSION,
        "parameters": data_hash(*(state[name].numpy() for name in sorted(state))),
        "data": problem.data_hash,
        "layer": hessian.layer.name,
        "count": count,
        "tolerance": _TOLERANCE,
    }
    stored = cached_model(settings, find)
    plain: dict[str, Any] = {
        name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in stored.items()
    }
    return EigenpairsMeasurement(**plain)


def factors_in_numbers(factors: LayerFactors, places: Sequence[int]) -> dict[str, Any]:
    """How near E[x x^T] is to rank one, how E[M] falls, and their eigenvalues: gamma 1 to 3, tau at some places."""
    from hessmap.layers import product_of_factors
    from hessmap.layers.comparison import autocorrelation, class_outliers

    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    values = product_of_factors(factors).output_eigenpairs[0].numpy()
    outliers = class_outliers(values, NUM_CLASSES)
    return {
        "squared_cosine": inputs.squared_cosine,
        "eigenvalue_ratio": inputs.eigenvalue_ratio,
        "gap": outliers.ratio,
        "num_outliers": outliers.num_outliers,
        **{f"gamma_{place}": float(inputs.eigenvalues[place - 1]) for place in (1, 2, 3)},
        **{f"tau_{place}": float(values[place - 1]) for place in places if place <= len(values)},
    }
