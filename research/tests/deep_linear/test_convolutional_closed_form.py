"""Closed-form Hessians of deep linear convolutional networks: the independent second way against the engine."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, UnknownName, UnsupportedNetwork
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.problem.problem import Problem
from hessmap.records import PARTS, Part
from hessmap_research.deep_linear import DeepLinearConvolutionHessian, deep_linear_convolution_of

HESSIANS = {"outer_product": outer_product_hessian, "functional": functional_hessian, "loss": loss_hessian}


def conv(*arguments: int, bias: bool = False, **options: int) -> nn.Conv1d:
    return nn.Conv1d(*arguments, bias=bias, **options)


def dense(*arguments: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(*arguments, bias=bias)


def plain(last: int, *convolutions: nn.Module, bias: bool = False) -> nn.Sequential:
    return nn.Sequential(*convolutions, nn.Flatten(), dense(last, 3, bias=bias))


NETWORKS = {
    "one hidden": (plain(10, conv(1, 2, 3)), (1, 7)),
    "two hidden": (plain(9, conv(1, 2, 3), nn.Identity(), conv(2, 3, 3)), (1, 7)),
    "three hidden": (plain(6, conv(2, 2, 2), conv(2, 3, 2), conv(3, 2, 2)), (2, 6)),
    "strides": (plain(6, conv(1, 2, 3, stride=2), conv(2, 3, 2, stride=2)), (1, 11)),
    "stride beyond the kernel": (plain(6, conv(2, 2, 2, stride=3)), (2, 8)),
    "paddings": (plain(8, conv(1, 2, 3, padding=1), conv(2, 2, 3, padding=2, stride=2)), (1, 6)),
    "dilation and groups": (plain(6, conv(2, 4, 2, groups=2), conv(4, 2, 2, dilation=2)), (2, 6)),
    "bias": (plain(8, conv(1, 2, 2, bias=True), conv(2, 2, 2, padding=1, bias=True), bias=True), (1, 4)),
    "bias in some layers": (plain(6, conv(1, 2, 2), conv(2, 2, 2, bias=True)), (1, 5)),
    "flat inputs": (nn.Sequential(nn.Unflatten(1, (2, 4)), plain(6, conv(2, 3, 3))), (8,)),
    "dense layers": (nn.Sequential(plain(6, conv(1, 2, 3)), dense(3, 2), dense(2, 3)), (1, 5)),
    "images": (plain(12, nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, (2, 1), (1, 2), 1, bias=False)), (1, 3, 3)),
    "pooling": (plain(12, nn.Conv2d(1, 2, 2, bias=False), nn.AvgPool2d(2), nn.Conv2d(2, 3, (1, 1))), (1, 5, 5)),
}


def problem_of(model: nn.Module, shape: tuple[int, ...]) -> Problem:
    generator = torch.Generator().manual_seed(0)
    model = model.double()
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    inputs = torch.randn(30, *shape, generator=generator, dtype=torch.float64)
    weights = torch.arange(1.0, 31.0, dtype=torch.float64)
    targets = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    return Problem(model, "squared", inputs, targets, weights=weights)


each_network = pytest.mark.parametrize(("model", "shape"), NETWORKS.values(), ids=NETWORKS)


@each_network
@pytest.mark.parametrize("part", PARTS)
def test_closed_form_equals_the_engine(model: nn.Module, shape: tuple[int, ...], part: Part) -> None:
    problem = problem_of(model, shape)
    known = HESSIANS[part](problem)
    found = DeepLinearConvolutionHessian(deep_linear_convolution_of(problem), part)
    assert found.layout == problem.layout
    dense_form = found.to_dense()
    assert (dense_form - known.to_dense()).abs().max() <= 1e-12 * known.scale
    assert torch.equal(dense_form, dense_form.T)
    vectors = torch.randn(found.size, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert (found @ vectors - dense_form @ vectors).abs().max() <= 1e-12 * known.scale * found.size


def test_closed_form_equals_double_backward_of_the_risk() -> None:
    problem = problem_of(*NETWORKS["paddings"])

    def risk(flat: Tensor) -> Tensor:
        outputs = problem.forward(problem.unflatten(flat), problem.inputs)
        return problem.weights @ problem.loss.value(outputs, problem.targets)

    known = torch.func.hessian(risk)(problem.parameters)
    found = DeepLinearConvolutionHessian(deep_linear_convolution_of(problem)).to_dense()
    assert (found - known).abs().max() <= 1e-12 * known.abs().max()


def test_frozen_parameters_are_left_out() -> None:
    model, shape = NETWORKS["two hidden"]
    whole = DeepLinearConvolutionHessian(deep_linear_convolution_of(problem_of(model, shape))).to_dense()
    model[0].weight.requires_grad_(False)
    try:
        rest = DeepLinearConvolutionHessian(deep_linear_convolution_of(problem_of(model, shape))).to_dense()
    finally:
        model[0].weight.requires_grad_(True)
    assert float((rest - whole[6:, 6:]).abs().max()) <= 1e-14 * float(whole.abs().max())


def factors(problem: Problem) -> tuple[list[Tensor], list[Tensor], list[int], Tensor]:
    """T_l, Q_l and m_l of every layer, and Omega, for the printed blocks."""
    convolution = deep_linear_convolution_of(problem)
    layers = convolution.layers
    omega = convolution.network.residual_input_moment
    return [x.matrix for x in layers], [x.filter_derivative for x in layers], [len(x.filters) for x in layers], omega


def product(matrices: list[Tensor], size: int) -> Tensor:
    result = torch.eye(size, dtype=torch.float64)
    for matrix in matrices:
        result = matrix @ result
    return result


def printed_functional_block(problem: Problem, earlier: int, later: int, permuted: bool) -> Tensor:
    """Proposition 3 for k < l, the second index by the transposed weight; ``permuted`` reorders the rows of Q (x) 1."""
    matrices, derivatives, filters, omega = factors(problem)
    between = product(matrices[earlier + 1 : later], matrices[earlier].shape[0])
    before = product(matrices[:earlier], matrices[0].shape[1])
    after = product(matrices[later + 1 :], matrices[later].shape[0])
    middle = torch.kron(between.T.contiguous(), before @ omega.T @ after)
    right = torch.kron(derivatives[later], torch.eye(filters[later], dtype=torch.float64))
    if permuted:
        inputs, columns = matrices[later].shape[1], right.shape[1]
        by_position = right.reshape(-1, inputs, filters[later], columns)  # (position, channel and input, filter)
        right = by_position.permute(1, 2, 0, 3).reshape(right.shape)
    left = torch.kron(torch.eye(filters[earlier], dtype=torch.float64), derivatives[earlier]).T
    block = left @ middle @ right
    return block.reshape(len(block), -1, filters[later]).transpose(1, 2).reshape(block.shape)


@pytest.mark.parametrize(("earlier", "later"), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
def test_proposition_3_holds_with_the_row_permutation_and_fails_as_printed(earlier: int, later: int) -> None:
    problem = problem_of(*NETWORKS["three hidden"])
    names = problem.layout.names
    known = functional_hessian(problem).block(names[earlier], names[later]).to_dense()
    corrected = printed_functional_block(problem, earlier, later, permuted=True)
    assert (corrected - known).abs().max() <= 1e-12 * known.abs().max()
    printed = printed_functional_block(problem, earlier, later, permuted=False)
    has_one_position = later == 3
    is_right = bool((printed - known).abs().max() <= 1e-12 * known.abs().max())
    assert is_right == has_one_position


@pytest.mark.parametrize(("earlier", "later"), [(0, 0), (0, 2), (1, 2), (2, 3)])
def test_proposition_2_holds_as_printed(earlier: int, later: int) -> None:
    problem = problem_of(*NETWORKS["three hidden"])
    matrices, derivatives, filters, _ = factors(problem)
    inputs = problem.inputs.flatten(1)
    moment = inputs.T @ (problem.weights[:, None] * inputs)
    sides = [
        (product(matrices[place + 1 :], matrices[place].shape[0]), product(matrices[:place], matrices[0].shape[1]))
        for place in (earlier, later)
    ]
    middle = torch.kron(sides[0][0].T @ sides[1][0], sides[0][1] @ moment @ sides[1][1].T)
    left, right = (
        torch.kron(torch.eye(filters[place], dtype=torch.float64), derivatives[place]) for place in (earlier, later)
    )
    names = problem.layout.names
    known = outer_product_hessian(problem).block(names[earlier], names[later]).to_dense()
    assert (left.T @ middle @ right - known).abs().max() <= 1e-12 * known.abs().max()


def test_proposition_4_the_whole_outer_product_hessian_is_one_factorisation() -> None:
    """H_o = Q^T A (I (x) Sigma) A^T Q, with A^T of the Toeplitz products and Q block diagonal in the derivatives."""
    problem = problem_of(*NETWORKS["three hidden"])
    matrices, derivatives, filters, _ = factors(problem)
    inputs = problem.inputs.flatten(1)
    moment = inputs.T @ (problem.weights[:, None] * inputs)
    columns = []
    for place, matrix in enumerate(matrices):
        after = product(matrices[place + 1 :], matrix.shape[0])
        before = product(matrices[:place], matrices[0].shape[1])
        columns.append(torch.kron(after, before.T.contiguous()))
    blocks = [torch.kron(torch.eye(n, dtype=torch.float64), q) for n, q in zip(filters, derivatives, strict=True)]
    root = torch.cat(columns, 1) @ torch.block_diag(*blocks)
    num_outputs = matrices[-1].shape[0]
    made = root.T @ torch.kron(torch.eye(num_outputs, dtype=torch.float64), moment) @ root
    known = outer_product_hessian(problem).to_dense()
    assert (made - known).abs().max() <= 1e-12 * known.abs().max()


def test_what_has_no_closed_form_is_refused() -> None:
    inputs, targets = torch.ones(4, 1, 5, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    active = plain(6, conv(1, 2, 3), nn.ReLU()).double()
    with pytest.raises(UnsupportedNetwork, match=r"without activation; layer 1 \(ReLU\) is an activation"):
        deep_linear_convolution_of(Problem(active, "squared", inputs, targets))
    linear = plain(6, conv(1, 2, 3)).double()
    with pytest.raises(InvalidInput, match=r"the loss is 'log_cosh'\. Use loss_hessian"):
        deep_linear_convolution_of(Problem(linear, "log_cosh", inputs, targets))
    square = conv(2, 2, 2)
    tied = plain(4, conv(1, 2, 2), square, square).double()
    with pytest.raises(UnsupportedNetwork, match="layer 2 .* shares a parameter with layer 1"):
        deep_linear_convolution_of(Problem(tied, "squared", inputs, targets))
    closed = deep_linear_convolution_of(Problem(linear, "squared", inputs, targets))
    with pytest.raises(UnknownName, match="part must be one of"):
        DeepLinearConvolutionHessian(closed, "gradient")  # type: ignore[arg-type]


def test_a_model_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = plain(6, conv(1, 2, 3)).double()
    inputs, targets = torch.ones(4, 1, 5, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)
    single = nn.Conv1d.forward
    monkeypatch.setattr(nn.Conv1d, "forward", lambda module, inputs: 2 * single(module, inputs))
    with pytest.raises(UnsupportedNetwork, match="must compute what the model computes"):
        deep_linear_convolution_of(Problem(model, "squared", inputs, targets))
