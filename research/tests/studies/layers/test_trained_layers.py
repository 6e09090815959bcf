"""The trained networks of the layer studies: recipes, samples, layers by name, eigenpairs found once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from hessmap.errors import InvalidInput
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies.layers import measured_layer
from hessmap_research.studies.layers.layer_cases import layer_cases, layers_of
from hessmap_research.studies.layers.measured_layer import hessian_of, stored_eigenpairs
from hessmap_research.studies.layers.trained_layers import (
    IMAGE_SHAPES,
    ZooNetwork,
    _standardise,
    recipe_for,
    trained_layers,
    training_samples,
    untrained_layers,
)

CASE = {"data": "digits", "network": "F-8", "epochs": 2, "layer": "fc1", "seed": 0}


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = use_models_folder(tmp_path_factory.mktemp("models"))
    yield
    use_models_folder(before)


def test_recipes_go_by_family_and_can_be_changed() -> None:
    assert recipe_for("F-100^2", "digits").epochs == 300
    assert recipe_for("F-100^2-BN", "digits").epochs == 60
    assert recipe_for("LeNet5-(fc1-80)", "mnist").learning_rate == 0.05
    assert recipe_for("LeNet5", "cifar10").num_train == 2000
    assert recipe_for("LeNet5", "cifar10", "long").num_train == 50_000
    assert recipe_for("VGG11-W32", "cifar10", "large").num_train == 5000
    assert recipe_for("ResNet18-W48", "cifar10", "large").num_train == 1000
    assert recipe_for("F-200^2-BN", "mnist").epochs == 30
    assert recipe_for("F-16", "digits", epochs=7) == replace(recipe_for("F-16", "digits"), epochs=7)


def test_unknown_recipes_and_data_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="size of a recipe"):
        recipe_for("F-8", "digits", "huge")
    with pytest.raises(InvalidInput, match="data set of large recipes"):
        recipe_for("F-8", "digits", "large")
    with pytest.raises(InvalidInput, match="data set of layers"):
        training_samples("gaussian", 10)


def test_training_starts_from_the_zoo_and_lowers_the_loss_on_the_measured_samples() -> None:
    recipe = replace(recipe_for("F-8", "digits"), epochs=5, num_measured=300, learning_rate=0.1)

    before = untrained_layers("F-8", "digits", recipe=recipe)
    after = trained_layers("F-8", "digits", recipe=recipe)

    assert before.num_samples == after.problem.num_samples == 300
    assert after.problem.risk() < 0.9 * before.risk()
    assert after.run.ending == "5 epochs done"
    drawn = dict(ZooNetwork("F-8", IMAGE_SHAPES["digits"]).build(seed=0).named_parameters())
    torch.testing.assert_close(before.named["fc1.weight"].float(), drawn["fc1.weight"].detach())


def test_random_labels_keep_the_inputs_and_are_the_same_every_time() -> None:
    true, random, again = (training_samples("digits", 200, is_random) for is_random in (False, True, True))

    assert torch.equal(true.inputs, random.inputs)
    assert torch.equal(random.targets, again.targets)
    assert float((true.targets == random.targets).double().mean()) < 0.2


def test_colours_are_standardised_each_by_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(50, 3, 16, generator=generator) * torch.tensor([1.0, 2.0, 5.0])[:, None] + 7

    found = _standardise(images.reshape(50, -1), 3).reshape(50, 3, 16)

    torch.testing.assert_close(found.mean(dim=(0, 2)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(dim=(0, 2), correction=0), torch.ones(3))


@pytest.mark.parametrize(
    ("network", "layers"),
    [
        ("F-100^2", ("fc1", "fc2", "fc3")),
        ("F-200^2-100-BN", ("fc1", "fc2", "fc3", "fc4")),
        ("F-16", ("fc1", "fc2")),
        ("LeNet5", ("conv1", "conv2", "fc1", "fc2", "fc3")),
    ],
)
def test_layers_by_name_are_those_of_the_network(network: str, layers: tuple[str, ...]) -> None:
    model = ZooNetwork(network, (1, 28, 28)).build()

    assert layers_of(network) == layers
    assert tuple(name.removesuffix(".weight") for name, _ in model.named_parameters() if "weight" in name) == layers


def test_layers_of_other_networks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="layers are listed for F-n"):
        layers_of("VGG11")


def test_cases_are_all_layers_of_a_kind_with_three_seeds() -> None:
    assert len(layer_cases([("LeNet5", 3)])) == 15
    assert {case["layer"] for case in layer_cases([("LeNet5", 3)], kinds=("conv",))} == {"conv1", "conv2"}


def test_eigenpairs_are_found_once_and_belong_to_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from hessmap import layers

    hessian = hessian_of(CASE)
    first = stored_eigenpairs(hessian, 5)
    residual = hessian.to_dense().numpy() @ first.eigenvectors - first.eigenvectors * first.eigenvalues

    assert np.abs(residual).max() < 1e-5 * first.eigenvalues[0]
    monkeypatch.setattr(layers, "layer_eigenpairs", None)  # a second search would fail
    again = measured_layer.stored_eigenpairs(hessian_of(CASE), 5)
    np.testing.assert_array_equal(first.eigenvectors, again.eigenvectors)
    with pytest.raises(TypeError, match="not callable"):
        stored_eigenpairs(hessian_of(CASE | {"seed": 1}), 5)
