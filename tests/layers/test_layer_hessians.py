"""Layer Hessians, factors and Kronecker products against the dense Hessian of the whole network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from cases import CASES, Case
from hessmap.errors import InvalidInput, TooLarge, UnknownName, UnsupportedNetwork
from hessmap.hessians.operators import loss_hessian
from hessmap.layers import (
    PATCH_RULES,
    LayerHessian,
    find_layer,
    kronecker_approximation,
    layer_factors,
    layer_hessian,
    layer_names,
    plan_layer_hessian,
)
from hessmap.layers.batches import LayerBatch, layer_batches
from hessmap.layers.stored_samples import (
    Form,
    SampleStore,
    SampleTerms,
    StoredPatches,
    stored_jacobians,
    stored_product,
)
from hessmap.problem.problem import Problem

LIFTABLE = [case for case in CASES if case.name != "tied weight and bias"]


class Images(nn.Module):
    """Convolutions with stride, padding and dilation, pooling, frozen batch-norm, linear layers."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        pool = nn.MaxPool2d(2) if activation is nn.ReLU else nn.AvgPool2d(2)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding="same"),
            activation(),
            pool,
            nn.Conv2d(3, 4, (2, 3), stride=(1, 2), padding=(0, 1), dilation=(2, 1), bias=False),
            activation(),
            nn.Flatten(),
            nn.Linear(16, 5),
            activation(),
            nn.BatchNorm1d(5, affine=False),
            nn.Linear(5, 3),
        )
        norm = self.layers[8]
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


class Sequences(nn.Module):
    """A one-dimensional convolution, circular padding, and a linear layer over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular")
        self.tokens, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.first(inputs)).transpose(1, 2)
        return self.last(torch.relu(self.tokens(hidden)).mean(1))


def images(activation: type[nn.Module] = nn.ReLU, **options: object) -> Problem:
    generator = torch.Generator().manual_seed(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = Images(activation).double().eval()
    inputs = torch.randn(7, 1, 8, 8, generator=generator, dtype=torch.float64)
    return Problem(model, "cross_entropy", inputs, torch.randint(0, 3, (7,), generator=generator), **options)


def sequences() -> Problem:
    generator = torch.Generator().manual_seed(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = Sequences().double()
    inputs = torch.randn(6, 2, 5, generator=generator, dtype=torch.float64)
    return Problem(model, "cross_entropy", inputs, torch.randint(0, 3, (6,), generator=generator))


def true_block(problem: Problem, hessian: LayerHessian) -> Tensor:
    """The block of the whole network's Hessian, with biases as last columns where the layer has them."""
    layer, layout = hessian.layer, problem.layout
    places = torch.arange(problem.num_parameters)[layout[layer.weight]].reshape(layer.num_outputs, -1)
    if layer.with_bias:
        places = torch.cat([places, torch.arange(problem.num_parameters)[layout[layer.bias]][:, None]], 1)
    return loss_hessian(problem).to_dense()[places.flatten()][:, places.flatten()]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-13) -> None:
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


def check_layer(problem: Problem, name: str, with_bias: bool) -> LayerHessian:
    hessian = layer_hessian(problem, name, with_bias=with_bias)
    expected = true_block(problem, hessian)
    assert_close(hessian.to_dense(), expected)
    assert_close(hessian.matmat(torch.eye(hessian.size, dtype=torch.float64)), expected)
    assert hessian.trace == pytest.approx(float(expected.trace()), rel=1e-12)
    assert hessian.check < 1e-12
    assert (
        hessian.stored_bytes
        == hessian.plan.stored_bytes
        == plan_layer_hessian(problem, name, with_bias=with_bias).stored_bytes
    )
    return hessian


@pytest.mark.parametrize("with_bias", [False, True], ids=["weight", "weight and bias"])
@pytest.mark.parametrize("case", LIFTABLE, ids=[case.name for case in LIFTABLE])
def test_layer_hessian_is_the_block_of_the_whole_one(case: Case, with_bias: bool) -> None:
    problem = case.problem(l2=0.05 if case.name == "linear" else 0.0)
    for name in layer_names(problem):
        if not with_bias or f"{name}.bias" in problem.named:
            check_layer(problem, name, with_bias)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_layer_hessians_of_a_convolutional_network(activation: type[nn.Module]) -> None:
    problem = images(activation)
    names = layer_names(problem)
    assert len(names) == 4
    for name in names:
        hessian = check_layer(problem, name, with_bias=False)
        is_last = name == names[-1]
        assert hessian.plan.curvature == ("gauss_newton" if activation is nn.ReLU or is_last else "full")


def test_layer_hessians_over_sequences_and_tokens() -> None:
    problem = sequences()
    assert layer_names(problem) == ("first", "tokens", "last")
    for name in layer_names(problem):
        check_layer(problem, name, with_bias=True)
    assert find_layer(problem, "tokens").num_positions == 5


@pytest.mark.parametrize("name", ["layers.0", "layers.3", "layers.6"])
def test_both_forms_of_holding_a_layer_give_the_same_contractions(name: str) -> None:
    problem = images()
    hessian = layer_hessian(problem, name)
    outputs, inputs = hessian.weight_shape
    blocks = true_block(problem, hessian).reshape(outputs, inputs, outputs, inputs)
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(outputs, outputs, generator=generator, dtype=torch.float64)
    right = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    left, right = left + left.T, right + right.T
    for batch in layer_batches(problem, hessian.layer, "gauss_newton"):
        for held in (StoredPatches(batch), stored_jacobians(batch)):
            assert_close(held.contract_inputs(right), torch.einsum("iajb,ab->ij", blocks, right), 1e-12)
            assert_close(held.contract_outputs(left), torch.einsum("iajb,ij->ab", blocks, left), 1e-12)


@pytest.mark.parametrize("name", ["layers.0", "layers.3"])
def test_a_compressed_layer_is_the_projected_block(name: str) -> None:
    problem = images()
    hessian = layer_hessian(problem, name)
    outputs, inputs = hessian.weight_shape
    left = torch.linalg.qr(torch.arange(2.0 * outputs).reshape(outputs, 2).double().sin()).Q
    right = torch.linalg.qr(torch.arange(4.0 * inputs).reshape(inputs, 4).double().cos()).Q
    both = torch.kron(left, right)
    expected = both.T @ true_block(problem, hessian) @ both
    assert_close(hessian.compressed(left, right).to_dense(), expected, 1e-12)
    held = [StoredPatches(batch) for batch in layer_batches(problem, hessian.layer, "gauss_newton")]
    hessian.stored = held
    assert_close(hessian.compressed(left, right).to_dense(), expected, 1e-12)


def test_any_split_of_the_data_gives_the_same_layer() -> None:
    whole, split = images(), images()
    split.memory_budget = 2**16
    name = "layers.3"
    assert len(list(layer_batches(split, find_layer(split, name), "gauss_newton"))) > 1
    assert_close(layer_hessian(split, name).to_dense(), layer_hessian(whole, name).to_dense())
    assert_close(layer_factors(split, name).output_factor, layer_factors(whole, name).output_factor)


@pytest.mark.parametrize("with_signs", [False, True], ids=["convex", "indefinite"])
@pytest.mark.parametrize("form", ["patches", "jacobians"])
def test_batches_of_different_ranks_share_a_store(form: Form, with_signs: bool) -> None:
    problem = images()
    layer = find_layer(problem, "layers.3")
    (whole,) = layer_batches(problem, layer, "gauss_newton")
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).expand(7, 2) if with_signs else None
    whole = replace(whole, signs=signs)
    batches = [_some(whole, slice(0, 3), 1), _some(whole, slice(3, 4), 2), _some(whole, slice(4, 7), 1)]
    store = SampleStore(layer, form, num_samples=7, rank=1)
    for batch in batches:
        store.add(batch)
    vectors = torch.eye(layer.size, dtype=torch.float64)
    expected = stored_product([StoredPatches(batch) for batch in batches], layer.weight_shape, 0.0, vectors)
    assert_close(stored_product(store.stored, layer.weight_shape, 0.0, vectors), expected)
    assert len(store.stored) == 2
    per_row = {"patches": layer.num_positions * layer.num_outputs, "jacobians": layer.size}[form] + with_signs
    entering = 7 * layer.input_size if form == "patches" else 0
    assert sum(part.num_bytes for part in store.stored) == 8 * ((3 * 1 + 4 * 2) * per_row + entering)


def _some(batch: LayerBatch, samples: slice, rank: int) -> LayerBatch:
    signs = None if batch.signs is None else batch.signs[samples, :rank]
    return LayerBatch(
        batch.layer, batch.flat_inputs[samples], batch.weights[samples], batch.rows[samples, :rank], signs
    )


@pytest.mark.parametrize("form", ["patches", "jacobians"])
def test_compression_is_the_same_in_pieces_and_takes_the_bytes_that_were_said(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = images()
    layer = find_layer(problem, "layers.3")
    (batch,) = layer_batches(problem, layer, "gauss_newton")
    held: SampleTerms = StoredPatches(batch) if form == "patches" else stored_jacobians(batch)
    left, right = (torch.eye(size, dtype=torch.float64)[:, :3] for size in layer.weight_shape)
    whole = held.compressed(left, right)
    contracted = held.contract_inputs(torch.eye(layer.weight_shape[1], dtype=torch.float64))
    monkeypatch.setattr("hessmap.layers.stored_samples._CACHED", 1)
    monkeypatch.setattr("hessmap.layers.stored_samples._LARGEST", 1)
    pieces, rounded = held.compressed(left, right), held.compressed(left, right, torch.float32)
    assert whole.num_bytes == pieces.num_bytes == held.compressed_bytes(3, 3) == 2 * rounded.num_bytes
    vectors = torch.eye(9, dtype=torch.float64)
    expected = stored_product([whole], (3, 3), 0.0, vectors)
    assert_close(stored_product([pieces], (3, 3), 0.0, vectors), expected)
    assert_close(stored_product([rounded], (3, 3), 0.0, vectors.float()).double(), expected, 1e-6)
    assert_close(held.contract_inputs(torch.eye(layer.weight_shape[1], dtype=torch.float64)), contracted)


def test_weights_of_samples_enter_both_factors() -> None:
    case = next(case for case in CASES if case.name == "relu cross-entropy")
    inputs, targets = case.data()
    counts = torch.arange(1, len(inputs) + 1)
    weighted = Problem(case.seeded_model(), case.loss, inputs, targets, weights=counts.double())
    repeated = Problem(case.seeded_model(), case.loss, *(x.repeat_interleave(counts, 0) for x in (inputs, targets)))
    for name in layer_names(weighted):
        assert_close(layer_hessian(weighted, name).to_dense(), layer_hessian(repeated, name).to_dense())
        ours, theirs = layer_factors(weighted, name), layer_factors(repeated, name)
        assert_close(ours.output_factor, theirs.output_factor)
        assert_close(ours.input_factor, theirs.input_factor)
        assert_close(ours.mean_input, theirs.mean_input)


def test_factors_are_the_means_over_samples() -> None:
    problem = images(nn.Tanh)
    layer = find_layer(problem, "layers.3")
    outputs, inputs, positions = layer.num_outputs, layer.num_inputs, layer.num_positions
    seen = next(layer_batches(problem, layer, "full"))
    rows, patches = seen.rows, seen.inputs
    blocks = torch.einsum("nkpi,nk,nkqj->piqj", rows, seen.signs, rows)
    found = {rule: layer_factors(problem, "layers.3", patch_rule=rule) for rule in PATCH_RULES}
    expected = torch.einsum("pipj->ij", blocks) / positions
    assert_close(found["uncorrelated_patches"].output_factor, expected, 1e-12)
    assert_close(found["mean_patch"].output_factor, blocks.sum((0, 2)), 1e-12)
    assert_close(found["uncorrelated_patches"].input_factor, torch.einsum("npa,npb->ab", patches, patches) / 7)
    mean = patches.mean(1)
    assert_close(found["mean_patch"].input_factor, mean.T @ mean / 7)
    assert found["mean_patch"].mean_patches.shape == (positions, inputs)
    assert found["mean_patch"].output_factor.shape == (outputs, outputs)


def test_one_pass_gives_the_factors_that_are_asked_for_alone() -> None:
    problem = images()
    hessian = layer_hessian(problem, "layers.0")
    for rule in PATCH_RULES:
        alone = kronecker_approximation(problem, "layers.0", patch_rule=rule)
        assert_close(hessian.kronecker_approximation(rule).to_dense(), alone.to_dense())


def test_a_kronecker_product_knows_its_spectrum() -> None:
    product = kronecker_approximation(images(), "layers.3")
    dense = product.to_dense()
    values = torch.linalg.eigvalsh(dense).flip(0)
    pairs = product.leading(product.size)
    assert_close(pairs.eigenvalues, values, 1e-12)
    vectors = product.eigenvectors(product.leading(5))
    assert_close(product @ vectors, dense @ vectors)
    assert float((dense @ vectors - vectors * values[:5]).norm()) < 1e-12 * float(values[0])
    assert product.trace == pytest.approx(float(dense.trace()), rel=1e-12)
    assert product.norm == pytest.approx(float(values[0]), rel=1e-12)
    assert product.frobenius_norm == pytest.approx(float(dense.norm()), rel=1e-12)
    assert product.rank == int((values > 1e-10 * values[0]).sum())


def test_the_model_stays_as_it_was() -> None:
    problem = images()
    before = {name: value.clone() for name, value in problem.model.state_dict().items()}
    layer_hessian(problem, "layers.0")
    assert all(torch.equal(value, before[name]) for name, value in problem.model.state_dict().items())


def test_names_that_are_no_layers_are_refused_in_a_sentence() -> None:
    problem = images()
    with pytest.raises(UnknownName, match=r"layer must be one of layers.0, layers.3, .*; got 'layers.10'"):
        layer_factors(problem, "layers.10")
    with pytest.raises(UnsupportedNetwork, match=r"a layer must be linear or a convolution.*is a MaxPool2d"):
        layer_hessian(problem, "layers.2")
    with pytest.raises(UnsupportedNetwork, match=r"with_bias needs a layer with a trainable bias; 'layers.3' has none"):
        layer_hessian(problem, "layers.3", with_bias=True)
    with pytest.raises(UnknownName, match="patch_rule must be one of uncorrelated_patches, mean_patch; got 'kfc'"):
        layer_factors(problem, "layers.0", patch_rule="kfc")


def test_layers_that_act_twice_are_refused() -> None:
    case = next(case for case in CASES if case.name == "residual, norms, repeated")
    with pytest.raises(UnsupportedNetwork, match="the weight of 'second', or an entry of it, is used more than once"):
        layer_hessian(case.problem(), "second")


def test_a_hidden_use_of_the_weight_is_found_out() -> None:
    case = next(case for case in CASES if case.name == "transposed weight")
    with pytest.raises(
        UnsupportedNetwork,
        match="the weight of 'encoder', or an entry of it, is used more than once in one forward pass",
    ):
        layer_hessian(case.problem(), "encoder")


def test_a_layer_that_does_not_fit_says_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.linalg.devices.available_bytes", lambda device=None: 1000)
    with pytest.raises(TooLarge, match="the Hessian of layer 'layers.0' must fit into memory"):
        layer_hessian(images(), "layers.0")


def test_a_count_beyond_the_size_of_the_product_is_refused() -> None:
    product = kronecker_approximation(images(), "layers.3")
    with pytest.raises(InvalidInput, match="count must be between 1 and the size 72; got 73"):
        product.leading(73)
