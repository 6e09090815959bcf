"""Large problems: any data source, inputs and number format, against the dense Hessian of the same small problem."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from cases import CASES, chain
from hessmap.errors import InvalidInput, NotReproducible, UnknownName
from plain_autograd import plain_hessian

MODEL = chain(4, 5, 3).double()
INPUTS = torch.randn(11, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(0, 3, (11,), generator=torch.Generator().manual_seed(1))
VECTORS = torch.randn(43, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
PARTS = (hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian)


def expected(part=hm.loss_hessian) -> Tensor:
    return part(hm.Problem(MODEL, "cross_entropy", INPUTS, LABELS)).to_dense() @ VECTORS


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-12) -> bool:
    return float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


def sources() -> dict[str, tuple[object, ...]]:
    dataset = TensorDataset(INPUTS, LABELS)
    return {
        "tensors": (INPUTS, LABELS),
        "ragged loader": (DataLoader(dataset, batch_size=4),),
        "shuffled loader": (DataLoader(dataset, batch_size=3, shuffle=True),),
        "list of batches": ([(INPUTS[:7], LABELS[:7]), (INPUTS[7:], LABELS[7:])],),
        "dictionaries": ([{"input": INPUTS[:5], "labels": LABELS[:5]}, {"input": INPUTS[5:], "labels": LABELS[5:]}],),
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@pytest.mark.parametrize("name", sources())
def test_every_source_gives_the_same_products(name, part):
    problem = hm.Problem(MODEL, "cross_entropy", *sources()[name])
    assert close(part(problem) @ VECTORS, expected(part))
    assert problem.num_samples == 11


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_products_agree_with_those_of_the_small_problem(case):
    small, large = case.problem(), hm.Problem(case.seeded_model(), case.loss, *case.data())
    vectors = torch.randn(small.num_parameters, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = hm.loss_hessian(small) @ vectors
    assert float((hm.loss_hessian(large) @ vectors - wanted).abs().max()) <= 1e-12 * max(1, float(wanted.abs().max()))
    assert close(large.gradient(), small.gradient(), 1e-11)


def test_a_stored_linearisation_and_a_tiny_budget_give_the_same_products():
    many = INPUTS.repeat(200, 1), LABELS.repeat(200)
    whole = hm.loss_hessian(hm.Problem(MODEL, "cross_entropy", *many))
    pieces = hm.loss_hessian(hm.Problem(MODEL, "cross_entropy", *many, memory_budget=2**20))
    first = whole @ VECTORS
    assert whole._products._kept is not None
    assert close(whole @ VECTORS, first, 1e-14)
    assert close(pieces @ VECTORS, first)
    assert pieces._products._kept is None


def test_float32_is_used_where_it_is_asked_for_and_said():
    problem = hm.Problem(chain(4, 5, 3).float(), "squared", INPUTS, LABELS, dtype=torch.float32)
    operator = hm.loss_hessian(problem)
    assert operator.dtype == torch.float32
    assert (operator @ VECTORS).dtype == torch.float32
    assert problem.provenance.dtype == "float32"
    assert operator.matmat(VECTORS).dtype == torch.float64


def test_float32_agrees_with_float64_to_its_rounding():
    single = hm.Problem(MODEL, "cross_entropy", INPUTS, LABELS, dtype=torch.float32)
    assert close((hm.loss_hessian(single) @ VECTORS).double(), expected(), 1e-5)
    assert any("converted from float64 to float32" in note for note in single.notes)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("0.weight", ["0.weight"]),
        ("*.bias", ["0.bias", "2.bias"]),
        (["2"], ["2.weight", "2.bias"]),
        (["0.bias", "2.*"], ["0.bias", "2.weight", "2.bias"]),
    ],
)
@pytest.mark.parametrize("kind", [hm.Problem])
def test_some_parameters_give_a_block_of_the_whole(kind, patterns, names):
    whole = hm.loss_hessian(hm.Problem(MODEL, "cross_entropy", INPUTS, LABELS))
    places = torch.cat([torch.arange(43)[whole.layout[name]] for name in names])
    part = hm.loss_hessian(kind(MODEL, "cross_entropy", INPUTS, LABELS, parameters=patterns))
    assert list(part.layout.names) == names
    assert close(part.to_dense(), whole.to_dense()[places][:, places])
    assert any("left out" in note for note in part.problem.notes)


def test_unknown_and_frozen_parameters_are_refused():
    with pytest.raises(UnknownName, match=r"parameters must be one of .*; got '0.wieght'. Did you mean '0.weight'"):
        hm.Problem(MODEL, "cross_entropy", INPUTS, LABELS, parameters="0.wieght")
    model = chain(4, 5, 3).double()
    model[0].weight.requires_grad_(False)
    with pytest.raises(InvalidInput, match="parameters must be trainable"):
        hm.Problem(model, "cross_entropy", INPUTS, LABELS, parameters="0.weight")


class Keywords(nn.Module):
    """Two inputs by keyword, a dictionary out, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, hidden: Tensor, mask: Tensor) -> dict[str, Tensor]:
        values = torch.tanh(self.first(hidden))
        return {"hidden": values, "logits": self.last(values * mask)}


class Positions(Keywords):
    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        found = super().forward(hidden, mask)
        return found["logits"], found["hidden"]


MASK = torch.arange(55).reshape(11, 5) % 3


def keyword_hessian(model: nn.Module) -> Tensor:
    logits = model.last(torch.tanh(model.first(INPUTS)) * MASK)
    return plain_hessian(model, nn.functional.cross_entropy(logits, LABELS))


def test_dictionaries_go_by_keyword_and_the_logits_are_taken():
    model = Keywords().double()
    problem = hm.Problem(model, "cross_entropy", {"hidden": INPUTS, "mask": MASK}, LABELS)
    assert close(hm.loss_hessian(problem).to_dense(), keyword_hessian(model))
    assert "the output 'logits' of the model is used" in problem.notes


def test_tuples_go_by_position_and_the_first_output_is_taken():
    model = Positions().double()
    problem = hm.Problem(model, "cross_entropy", (INPUTS, MASK), LABELS)
    assert close(hm.loss_hessian(problem).to_dense(), keyword_hessian(model))
    assert "the first output of the model is used" in problem.notes


def test_a_users_forward_calls_the_model():
    model = Keywords().double()
    batches = [((INPUTS[:6], MASK[:6]), LABELS[:6]), ((INPUTS[6:], MASK[6:]), LABELS[6:])]

    def forward(given: nn.Module, inputs: tuple[Tensor, Tensor]) -> Tensor:
        return given(hidden=inputs[0], mask=inputs[1])["logits"]

    problem = hm.Problem(model, "cross_entropy", batches, forward=forward)
    assert close(hm.loss_hessian(problem).to_dense(), keyword_hessian(model))


def test_a_function_gets_the_shape_of_outputs_with_tokens():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Unflatten(1, (2, 3)), nn.Linear(3, 3)).double()
    targets = torch.stack([LABELS, LABELS.flip(0)], 1)

    def tokens(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.mT, targets, reduction="none").mean(1)

    wanted = plain_hessian(model, tokens(model(INPUTS), targets).mean())
    assert close(hm.loss_hessian(hm.Problem(model, tokens, INPUTS, targets)).to_dense(), wanted)


def test_many_outputs_are_curved_without_their_hessian():
    model = nn.Linear(4, 70).double()
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    small = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    vectors = torch.randn(350, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert close(hm.outer_product_hessian(problem) @ vectors, hm.outer_product_hessian(small).to_dense() @ vectors)


def test_weights_weight_samples_and_l2_is_added():
    weights = torch.arange(11.0)
    small = hm.Problem(MODEL, "squared", INPUTS, LABELS, weights=weights, l2=0.1)
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=4)
    large = hm.Problem(MODEL, "squared", loader, weights=weights, l2=0.1)
    assert close(hm.loss_hessian(large) @ VECTORS, hm.loss_hessian(small) @ VECTORS)
    assert large.risk() == pytest.approx(small.risk(), rel=1e-13)


def test_data_that_change_between_passes_are_refused():
    with pytest.raises(NotReproducible, match="two passes gave 11 and 0 samples"):
        hm.Problem(MODEL, "squared", iter([(INPUTS, LABELS)]))
    batches = [[INPUTS.clone(), LABELS]]
    problem = hm.Problem(MODEL, "squared", batches)
    batches[0][0] += 1
    with pytest.raises(NotReproducible, match="two passes gave different samples"):
        hm.loss_hessian(problem) @ VECTORS


def test_fisher_is_the_expected_and_empirical_fisher_the_observed_square_of_gradients():
    problem = hm.Problem(MODEL, "cross_entropy", INPUTS, LABELS)
    jacobian = hm.output_jacobian(problem)
    probabilities = problem.outputs().softmax(1)
    true, empirical = torch.zeros(43, 43, dtype=torch.float64), torch.zeros(43, 43, dtype=torch.float64)
    for n in range(11):
        for label in range(3):
            slope = (probabilities[n] - torch.eye(3, dtype=torch.float64)[label]) @ jacobian[n]
            true += probabilities[n, label] * torch.outer(slope, slope) / 11
            empirical += (label == int(LABELS[n])) * torch.outer(slope, slope) / 11
    assert close(hm.fisher(problem).to_dense(), true)
    assert close(hm.hessians.empirical_fisher(problem).to_dense(), empirical)
    assert not close(empirical, true, 1e-2)
    with pytest.raises(InvalidInput, match="a negative log-likelihood"):
        hm.fisher(hm.Problem(MODEL, "log_cosh", INPUTS, LABELS))
