"""Every Hessian against an oracle that shares nothing with the engine: double backward, entry by entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import hessmap as hm
from cases import CASES, Case, chain
from hessmap.hessians.dense import dense_hessian
from hessmap.hessians.products import hessian_product
from hessmap.linalg.lanczos import spectral_norm
from hessmap.problem.trace import recording_of
from hessmap.records import PARTS
from hidden_products import HiddenProduct

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_part = pytest.mark.parametrize("part", PARTS)
OPERATORS = {
    "loss": hm.loss_hessian,
    "outer_product": hm.outer_product_hessian,
    "functional": hm.functional_hessian,
}


def oracle(case: Case, part: str) -> Tensor:
    """Plain torch.autograd on the user's own model: gradients of gradients, one row at a time."""
    model, (inputs, targets) = case.seeded_model().eval(), case.data()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = case.problem().loss
    prepared = loss.prepare(targets, case.output_dim)
    outputs = model(inputs)
    held = outputs.detach().requires_grad_()
    slope = torch.autograd.grad(loss.value(held, prepared).sum(), held, create_graph=True)[0]
    if part == "loss":
        return rows_of(flat_gradient(loss.value(outputs, prepared).mean(), parameters), parameters)
    if part == "functional":
        return rows_of(flat_gradient((slope.detach() * outputs).sum() / len(inputs), parameters), parameters)
    jacobian = rows_of(outputs.reshape(-1), parameters).reshape(*outputs.shape, -1)
    output_hessian = torch.stack(
        [
            torch.autograd.grad(slope[:, c].sum(), held, retain_graph=True, materialize_grads=True, allow_unused=True)[
                0
            ]
            for c in range(case.output_dim)
        ],
        1,
    )
    return torch.einsum("ncp,ncd,ndq->pq", jacobian, output_hessian, jacobian) / len(inputs)


def flat_gradient(value: Tensor, parameters: list[Tensor]) -> Tensor:
    gradients = torch.autograd.grad(value, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def rows_of(vector: Tensor, parameters: list[Tensor]) -> Tensor:
    rows = []
    for entry in vector:
        if not entry.requires_grad:
            rows.append(torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64))
            continue
        gradients = torch.autograd.grad(entry, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    return torch.stack(rows)


def relative_error(found: Tensor, expected: Tensor) -> float:
    scale = float(expected.abs().max())
    return float((found - expected).abs().max()) / (scale or 1.0)


@by_case
@by_part
def test_dense_form_equals_double_backward(case, part):
    assert relative_error(OPERATORS[part](case.problem()).to_dense(), oracle(case, part)) < 1e-12


def test_the_comparison_itself_can_fail():
    case = CASES[3]
    dense = hm.loss_hessian(case.problem()).to_dense().clone()
    dense[0, 1] += 1e-9 * dense.abs().max()
    assert relative_error(dense, oracle(case, "loss")) > 1e-12


@by_case
def test_parts_add_up(case):
    problem = case.problem()
    whole, outer, functional = (OPERATORS[part](problem).to_dense() for part in ("loss", "outer_product", "functional"))
    assert relative_error(outer + functional, whole) < 1e-12


@by_case
@by_part
def test_products_are_linear_symmetric_and_agree_with_the_dense_form(case, part):
    problem = case.problem()
    operator, dense = OPERATORS[part](problem), OPERATORS[part](problem).to_dense()
    generator = torch.Generator().manual_seed(1)
    one, other = torch.randn(2, operator.size, generator=generator, dtype=torch.float64)
    together = operator @ torch.stack([one, other], 1)
    assert relative_error(together, dense @ torch.stack([one, other], 1)) < 1e-11
    assert torch.allclose(operator @ (2 * one - other), 2 * (operator @ one) - operator @ other, rtol=1e-9, atol=1e-10)
    assert torch.allclose(one @ (operator @ other), other @ (operator @ one), rtol=1e-9, atol=1e-10)
    assert operator.dtype == together.dtype == torch.float64
    assert torch.equal(operator @ one, operator @ one)


@by_case
@by_part
def test_any_split_of_the_data_gives_the_same_matrix(case, part):
    """The smallest budget forces a batch for each of the samples and few directions at a time."""
    few = replace(case, num_samples=4)
    whole = dense_hessian(few.problem(), part).matrix
    problem = few.problem()
    problem.memory_budget = 2000
    split = dense_hessian(problem, part)
    assert split.method == "lifted"  # what is split wrongly would be replaced by autograd's
    assert relative_error(split.matrix, whole) < 1e-12


def test_every_case_is_lifted_and_unused_parameters_are_named():
    matrices = {case.name: dense_hessian(case.problem(), "loss") for case in CASES}
    assert {name for name, found in matrices.items() if found.method != "lifted"} == set()
    assert all(found.check < 1e-10 for found in matrices.values())
    notes = " ".join(matrices["residual, norms, repeated"].notes)
    assert "was computed by autograd" not in notes
    assert "does not depend on parameter 'never_used.weight'" in notes


class Hidden(nn.Module):
    """One weight that acts through a custom function alone, and one that acts through it as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(HiddenProduct.apply(torch.tanh(self.first(inputs)), self.first.weight))
        return HiddenProduct.apply(hidden, self.last)


def test_uses_that_are_hidden_from_the_recording_go_by_autograd():
    case = Case("hidden", Hidden, "squared", 4, 3)
    found = dense_hessian(case.problem(), "loss")
    assert relative_error(found.matrix, oracle(case, "loss")) < 1e-12
    recording = recording_of(case.problem())
    assert {"first.weight", "last"} & recording.structured_names == set()
    assert "first.bias" in recording.structured_names
    assert found.method == "autograd"


def test_unused_parameters_have_a_zero_block():
    problem = CASES[11].problem()
    hessian = hm.loss_hessian(problem)
    place = problem.layout["never_used.weight"]
    assert float(hessian.to_dense()[place].abs().max()) == 0.0
    assert float(hm.loss_hessian(problem).block("first.weight").to_dense().abs().max()) > 0


def test_attention_module_is_lifted():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.last = nn.Linear(4, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            tokens = inputs.reshape(len(inputs), 3, 4)
            return self.last(self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1))

    case = Case("attention", Attention, "squared", 12, 2, num_samples=4)
    found = dense_hessian(case.problem(), "loss")
    with sdpa_kernel(SDPBackend.MATH):
        assert relative_error(found.matrix, oracle(case, "loss")) < 1e-11
    assert found.method == "lifted"
    assert not any("autograd" in note for note in found.notes)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_functional_part_stays_right_when_residuals_are_tiny(loss):
    """Scaled residuals scale H_f: it is built directly, not as the difference of two large matrices."""
    model = chain(4, 5, 3).double()
    inputs = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    residual = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs = model(inputs).detach()
    if loss == "squared":
        found = [hm.functional_hessian(hm.Problem(model, loss, inputs, outputs - s * residual)) for s in (1.0, 1e-10)]
        # output - target is only known to the rounding of the output: compare with the residual as it is stored
        stored = (outputs - (outputs - 1e-10 * residual)) / 1e-10
        exact = hm.functional_hessian(hm.Problem(model, loss, inputs, outputs - stored)).to_dense()
        assert relative_error(found[1].to_dense() / 1e-10, exact) < 1e-10
    else:
        with torch.no_grad():
            model[2].weight.mul_(0.0)
            model[2].bias.copy_(torch.tensor([30.0, 0.0, 1.0], dtype=torch.float64))
        labels = torch.zeros(7, dtype=torch.long)
        slope = hm.Problem(model, loss, inputs, labels).residuals()
        expected = -(torch.exp(torch.tensor(-30.0).double()) + torch.exp(torch.tensor(-29.0).double()))
        assert abs(float(slope[0, 0]) / float(expected) - 1) < 1e-11


def test_l2_adds_twice_itself_to_the_diagonal_and_says_so():
    case = CASES[3]
    plain, penalised = case.problem(), case.problem(l2=0.25)
    difference = hm.loss_hessian(penalised).to_dense() - hm.loss_hessian(plain).to_dense()
    assert torch.allclose(difference, 0.5 * torch.eye(plain.num_parameters, dtype=torch.float64), atol=1e-14)
    assert torch.allclose(penalised.gradient() - plain.gradient(), 0.5 * plain.parameters, atol=1e-14)
    assert penalised.risk() == pytest.approx(plain.risk() + 0.25 * float(plain.parameters.square().sum()))
    assert any("0.5 times the identity" in note for note in penalised.notes)


def test_weights_weight_samples():
    case = CASES[5]
    inputs, targets = case.data()
    counts = torch.tensor([1, 2, 0, 1, 3, 1, 1, 1, 1, 1, 1])
    repeated = hm.Problem(
        case.seeded_model(), case.loss, inputs.repeat_interleave(counts, 0), targets.repeat_interleave(counts)
    )
    weighted = hm.Problem(case.seeded_model(), case.loss, inputs, targets, weights=counts)
    assert relative_error(hm.loss_hessian(weighted).to_dense(), hm.loss_hessian(repeated).to_dense()) < 1e-12


def test_blocks_are_cut_from_the_whole():
    problem = CASES[4].problem()
    hessian = hm.loss_hessian(problem)
    vector = torch.randn(problem.layout["2.weight"].stop - problem.layout["2.weight"].start, dtype=torch.float64)
    matrix_free = hm.loss_hessian(problem).block("0.weight", "2.weight") @ vector
    dense = hessian.to_dense()[problem.layout["0.weight"], problem.layout["2.weight"]]
    assert torch.allclose(matrix_free, dense @ vector, rtol=1e-10, atol=1e-12)
    assert torch.equal(hessian.block("0.weight", "2.weight").to_dense(), dense)
    assert hessian.block("2.bias").size == 6
    assert hessian.block("2.bias").scale == hessian.block("2.bias", "0.weight").scale == hessian.scale
    with pytest.raises(hm.errors.UnknownName, match=r"parameter must be one of .*Did you mean '0.weight'"):
        hessian.block("0.weigth")


@by_case
def test_all_three_carry_the_norm_of_the_loss_hessian(case):
    problem = case.problem()
    norm = float(torch.linalg.matrix_norm(hm.loss_hessian(problem).to_dense(), 2))
    for operator in OPERATORS.values():
        assert operator(problem).scale == pytest.approx(norm, rel=1e-2)


@pytest.mark.parametrize(
    "eigenvalues",
    [[1.0, -1.0, *[0.99] * 30, *[-0.99] * 30], [0.0] * 5, [3.0], [1e-200, -2e-200, 0.0], list(range(-60, 50))],
    ids=["both ends", "zero", "one", "tiny", "wide"],
)
def test_the_norm_is_found_whatever_the_spectrum(eigenvalues):
    matrix = torch.diag(torch.tensor(eigenvalues, dtype=torch.float64))
    found = spectral_norm(lambda vector: matrix @ vector, len(matrix))
    assert found == pytest.approx(float(matrix.abs().max()), rel=1e-2, abs=0)


def test_products_accept_many_columns_at_once():
    problem = CASES[3].problem()
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    assert relative_error(hessian_product(problem, "loss", identity), hm.loss_hessian(problem).to_dense()) < 1e-12


@pytest.mark.parametrize("scale", [1.0, 1e-10])
def test_a_functional_part_that_the_samples_cancel_is_zero_to_rounding(scale: float) -> None:
    """At a least-squares solution of a linear network residual and inputs have no moment, though both are there."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    model = hm.FullyConnected((4, 5, 2)).build(seed=0)
    moved = noise - inputs @ torch.linalg.lstsq(inputs, noise).solution
    problem = hm.Problem(model, "squared", inputs, model(inputs).detach() + scale * moved)
    dense = dense_hessian(problem, "functional")
    assert dense.method == "lifted"
    assert float(dense.matrix.abs().max()) < 1e-14
