"""Losses against autograd, and torch's own reductions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.losses import LOSSES, as_loss, output_roots

GENERATOR = torch.Generator().manual_seed(2)
OUTPUTS = 3 * torch.randn(6, 4, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.tensor([0, 3, 1, 2, 2, 0])
REAL = torch.randn(6, 4, generator=GENERATOR, dtype=torch.float64)


def losses():
    yield from ((LOSSES["squared"](), REAL), (LOSSES["cross_entropy"](), LABELS), (LOSSES["log_cosh"](), REAL))
    yield as_loss(nn.CrossEntropyLoss(label_smoothing=0.1)), LABELS
    yield as_loss(nn.BCEWithLogitsLoss()), REAL.sigmoid()
    yield as_loss(nn.MSELoss()), REAL


@pytest.mark.parametrize(("loss", "targets"), list(losses()), ids=lambda value: getattr(value, "name", None))
def test_derivatives_agree_with_autograd_and_the_root_squares_to_the_hessian(loss, targets):
    outputs = OUTPUTS.clone().requires_grad_()
    expected = torch.autograd.grad(loss.value(outputs, targets).sum(), outputs)[0]
    assert torch.allclose(loss.gradient(OUTPUTS, targets), expected, rtol=1e-12, atol=1e-14)
    for sample in range(len(OUTPUTS)):
        one = slice(sample, sample + 1)
        exact = torch.autograd.functional.hessian(lambda out, one=one: loss.value(out, targets[one])[0], OUTPUTS[one])
        assert torch.allclose(loss.hessian(OUTPUTS, targets)[sample], exact[0, :, 0], rtol=1e-10, atol=1e-13)
    root = loss.hessian_factor(OUTPUTS, targets)
    assert torch.allclose(root @ root.mT, loss.hessian(OUTPUTS, targets), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("module", "targets"),
    [
        (nn.MSELoss(), REAL),
        (nn.CrossEntropyLoss(), LABELS),
        (nn.CrossEntropyLoss(ignore_index=2), LABELS),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 3.0]), ignore_index=3), LABELS),
        (nn.CrossEntropyLoss(label_smoothing=0.3), LABELS),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0])), REAL.sigmoid()),
        (nn.SmoothL1Loss(), REAL),
    ],
    ids=lambda value: str(value) if isinstance(value, nn.Module) else "",
)
def test_a_torch_loss_module_keeps_torchs_own_mean(module, targets):
    model = nn.Linear(4, 4).double()
    expected = float(module.double()(model(OUTPUTS), targets).detach())
    assert hm.Problem(model, module, OUTPUTS, targets).risk() == pytest.approx(expected, rel=1e-12)


def test_the_fewest_rows_of_an_output_root_keep_the_whole_hessian_and_drop_its_kernel_alone():
    """Softmax with classes of probability 0.9, 0.09, .. has rows of very different lengths, and a kernel of one row."""
    outputs = torch.tensor([[0.0, -2.3, -4.6, -6.9], [0.0, -2.5, -5.0, -9.0]], dtype=torch.float64)
    loss, targets, weights = LOSSES["cross_entropy"](), torch.tensor([0, 1]), torch.tensor([0.25, 0.75]).double()
    rows, signs = output_roots(loss, outputs, targets, weights)
    probabilities = outputs.softmax(1)
    exact = torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None, :]
    assert signs is None
    assert rows.shape[1] == outputs.shape[1] - 1
    assert torch.allclose(rows.mT @ rows, weights[:, None, None] * exact, rtol=1e-10, atol=1e-16)


def test_a_loss_that_is_not_convex_has_no_root():
    wavy = as_loss(lambda out, target: torch.cos(out).sum(1))
    with pytest.raises(InvalidInput, match="convex in the outputs"):
        wavy.hessian_factor(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3))


def test_fitted_samples_keep_their_relative_accuracy():
    """At a margin of 40 the residual is 4e-18: 1 - p would be exactly zero."""
    outputs = torch.tensor([[40.0, 0.0]], dtype=torch.float64)
    loss = LOSSES["cross_entropy"]()
    tiny = torch.exp(torch.tensor(-40.0, dtype=torch.float64))
    assert float(loss.gradient(outputs, torch.tensor([0]))[0, 0]) == pytest.approx(-float(tiny), rel=1e-12)
    assert float(loss.hessian(outputs, torch.tensor([0]))[0, 0, 0]) == pytest.approx(float(tiny), rel=1e-12)
    residual = torch.tensor([[25.0]], dtype=torch.float64)
    exact = 1 / torch.cosh(residual) ** 2
    assert torch.allclose(LOSSES["log_cosh"]().hessian(residual, torch.zeros(1, 1))[0], exact, rtol=1e-12, atol=0)


def test_samples_that_are_all_ignored_are_refused():
    with pytest.raises(InvalidInput, match="at least one target must count"):
        hm.Problem(nn.Linear(4, 4), nn.CrossEntropyLoss(ignore_index=1), OUTPUTS, torch.ones(6).long())
