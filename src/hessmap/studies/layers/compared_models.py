"""Models that are compared with each other: trained from other seeds, in other ways, or for longer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hessmap.errors import unknown_name
from hessmap.studies.layers.trained_layers import Recipe, recipe_for, trained_layers

if TYPE_CHECKING:
    from hessmap.curvature import Problem

COMPARED = ("seeds", "recipes", "checkpoints")
LABELS = ("true", "random")
_SHARES = (0.25, 0.5, 1.0)


def compared_model(network: str, data: str, labels: str, compared: str, number: int) -> Problem:
    """A model of those that differ in their ``seeds``, in seeds and ``recipes``, or are ``checkpoints`` of one.

    There are three recipes, as in the paper: one, a tenth of its learning rate, and momentum 0.9 with weight decay
    5e-4; and three checkpoints, after a quarter, half and all of the epochs.
    """
    recipe = first_recipe(network, data, labels)
    if compared == "recipes":
        recipe = _recipes(recipe)[number]
    elif compared == "checkpoints":
        recipe = replace(recipe, epochs=round(_SHARES[number] * recipe.epochs))
    elif compared != "seeds":
        raise unknown_name("what is compared", compared, COMPARED)
    seed = 0 if compared == "checkpoints" else number
    return trained_layers(network, data, seed=seed, recipe=recipe).problem


def first_recipe(network: str, data: str, labels: str) -> Recipe:
    """Random labels need more steps than samples of true ones: 700 digits, 600 epochs at ten times the rate."""
    if labels not in LABELS:
        raise unknown_name("labels", labels, LABELS)
    if labels == "true":
        return recipe_for(network, data)
    return recipe_for(
        network, data, num_train=700, num_measured=700, epochs=600, learning_rate=0.1, has_random_labels=True
    )


def _recipes(first: Recipe) -> tuple[Recipe, Recipe, Recipe]:
    slow = replace(first, learning_rate=first.learning_rate / 10)
    return first, slow, replace(first, momentum=0.9, weight_decay=5e-4)
