"""Losses as users write them: broadcasting, fitted samples, torch's modules with their options."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from cases import chain
from hessmap.errors import InvalidInput, NotReproducible
from plain_autograd import plain_hessian

INPUTS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NUMBERS = torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.arange(9) % 3


class OneOutput(nn.Module):
    """A model that gives a vector of numbers, one per sample, as research code often does."""

    def __init__(self, squeezed: int | None) -> None:
        super().__init__()
        self.layers, self.squeezed = chain(4, 5, 1).double(), squeezed

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.layers(inputs)
        return outputs.squeeze() if self.squeezed is None else outputs.squeeze(self.squeezed)


def assert_same_curvature(problem: hm.Problem, model: nn.Module, risk: Tensor, rtol: float = 1e-12) -> None:
    """Dense form, products and risk against plain autograd of the user's own expression."""
    expected = plain_hessian(model, risk)
    scale = float(expected.abs().max())
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    assert problem.risk() == pytest.approx(float(risk.detach()), rel=1e-12, abs=1e-15)
    assert float((hm.loss_hessian(problem) @ identity - expected).abs().max()) < rtol * scale
    assert float((hm.loss_hessian(problem).to_dense() - expected).abs().max()) < rtol * scale


@pytest.mark.parametrize("squeezed", [-1, None])
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.HuberLoss(delta=0.5)], ids=lambda loss: type(loss).__name__)
def test_a_vector_of_outputs_is_not_broadcast_against_a_vector_of_targets(loss, squeezed):
    model = OneOutput(squeezed)
    assert_same_curvature(hm.Problem(model, loss, INPUTS, NUMBERS), model, loss(model(INPUTS), NUMBERS))


def test_binary_cross_entropy_takes_a_vector_of_targets():
    model, targets, loss = OneOutput(-1), (NUMBERS > 0).double(), nn.BCEWithLogitsLoss()
    assert_same_curvature(hm.Problem(model, loss, INPUTS, targets), model, loss(model(INPUTS), targets))


def test_a_function_that_broadcasts_or_averages_over_the_batch_is_refused():
    model = chain(4, 5, 1).double()
    with pytest.raises(
        NotReproducible, match=r"the loss must treat samples independently.*shape \(9, 1\) with targets of shape \(9,\)"
    ):
        hm.Problem(model, lambda out, target: (out - target).square().mean(1), INPUTS, NUMBERS)
    with pytest.raises(NotReproducible, match="the loss must treat samples independently"):
        hm.Problem(model, lambda out, target: (out - out.mean(0)).square().sum(1), INPUTS, NUMBERS)


def test_equal_targets_at_the_start_do_not_hide_the_broadcasting():
    sorted_targets = torch.tensor([0.0] * 6 + [1.0] * 3, dtype=torch.float64)
    with pytest.raises(NotReproducible, match="the loss must treat samples independently"):
        hm.Problem(chain(4, 5, 1).double(), lambda out, target: (out - target).square().mean(1), INPUTS, sorted_targets)


def test_a_function_that_rounds_to_float32_is_refused():
    with pytest.raises(InvalidInput, match="must compute in float64; it returned float32"):
        hm.Problem(chain(4, 1).double(), lambda out, target: out[:, 0].float(), INPUTS, NUMBERS)


def test_integer_targets_of_a_single_output_are_refused():
    with pytest.raises(InvalidInput, match=r"need two outputs or more; the network has 1.*targets.double\(\)"):
        hm.Problem(chain(4, 1).double(), "squared", INPUTS, torch.zeros(9, dtype=torch.long))


def test_log_cosh_keeps_its_curvature_at_a_residual_of_exactly_zero():
    """autograd's abs has slope 0 at 0, which would lose the whole Hessian at interpolation."""
    model = chain(4, 5, 3).double()
    problem = hm.Problem(model, "log_cosh", INPUTS, model(INPUTS).detach())
    same = hm.Problem(model, "squared", INPUTS, model(INPUTS).detach())  # log cosh'' = 1 at 0
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    expected = hm.loss_hessian(same).to_dense()
    assert torch.allclose(hm.loss_hessian(problem) @ identity, expected, rtol=1e-12, atol=1e-14)
    assert torch.allclose(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ["cross_entropy", nn.CrossEntropyLoss()], ids=["ours", "torch's"])
@pytest.mark.parametrize("margin", [20.0, 35.0])
def test_fitted_samples_keep_their_digits_in_the_loss_hessian(loss, margin):
    """At a margin m the Hessian is of size exp(-m): p_y - 1 would leave exp(m) roundings of it."""
    model = chain(4, 6, 3).double()
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([margin, 0.0, 1.0]))
    problem = hm.Problem(model, loss, INPUTS, torch.zeros(9, dtype=torch.long))
    hessian = hm.loss_hessian(problem)
    parts = hm.outer_product_hessian(problem).to_dense() + hm.functional_hessian(problem).to_dense()
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    scale = float(parts.abs().max())
    assert float((hm.loss_hessian(problem) @ identity - parts).abs().max()) < 1e-12 * scale
    assert float((hessian.to_dense() - parts).abs().max()) < 1e-12 * scale
    assert hessian.dense.method == "lifted"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)},
        {"weight": torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64), "ignore_index": 2},
        {"weight": torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64), "ignore_index": -100, "label_smoothing": 0.1},
    ],
    ids=["plain", "weights", "ignored", "smoothed"],
)
def test_torch_cross_entropy_means_what_torch_means(options):
    model, targets = chain(4, 5, 3).double(), LABELS.clone()
    targets[3] = options.get("ignore_index", 0)
    loss = nn.CrossEntropyLoss(**options)
    assert_same_curvature(hm.Problem(model, loss, INPUTS, targets), model, loss(model(INPUTS), targets))


def test_torch_cross_entropy_takes_distributions_and_narrow_integers():
    model, loss = chain(4, 5, 3).double(), nn.CrossEntropyLoss()
    spread = F.softmax(INPUTS[:, :3], 1)
    assert_same_curvature(hm.Problem(model, loss, INPUTS, spread), model, loss(model(INPUTS), spread))
    assert_same_curvature(hm.Problem(model, loss, INPUTS, LABELS.int()), model, loss(model(INPUTS), LABELS))


def test_labels_out_of_range_are_refused_for_torch_modules_too():
    with pytest.raises(InvalidInput, match=r"labels must be in 0..2.*sample 2 has label 3"):
        hm.Problem(chain(4, 3).double(), nn.CrossEntropyLoss(), INPUTS, LABELS + 1)


@pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented")
def test_a_torch_loss_without_forward_derivatives_is_differentiated():
    model, targets, loss = chain(4, 5, 3).double(), INPUTS[:, :3].sign(), nn.SoftMarginLoss()
    assert_same_curvature(hm.Problem(model, loss, INPUTS, targets), model, loss(model(INPUTS), targets))
