"""Dense forms belong to who asked for them, change no product, and never need more of the operator than they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from dense_form_checks import assert_may_be_changed
from hessmap.hessians import operators as hessians
from hessmap.layers import KroneckerProduct
from hessmap.linalg import operator
from hessmap.linalg.operator import DenseOperator, LinearOperator, PrincipalBlock, SymmetricOperator
from hessmap.linalg.vectors import Layout


def normals(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


class Attention(nn.Module):
    """Layer norm, attention and a parameter of its own, that no layer shows."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.gain, self.last = nn.Parameter(torch.ones(width)), nn.Linear(width, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.norm(inputs)
        return self.last((self.gain * self.attention(found, found, found)[0]).mean(1))


def perceptron(width: int = 5, **options: Any) -> hm.Problem:
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).double()
    return hm.Problem(model, "cross_entropy", normals(12, 4), torch.arange(12) % 3, l2=0.01, **options)


def convolutional(channels: int = 2, **options: Any) -> hm.Problem:
    layers = nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)
    model = nn.Sequential(*layers).eval()
    model(torch.zeros(1, 1, 5, 5))
    return hm.Problem(model.double(), "squared", normals(7, 1, 5, 5), torch.arange(7) % 3, **options)


def attention(width: int = 4, **options: Any) -> hm.Problem:
    model = Attention(width).double()
    return hm.Problem(model, "cross_entropy", normals(6, 3, width), torch.arange(6) % 3, **options)


def symmetric(size: int) -> Tensor:
    matrix = normals(size, size)
    return matrix + matrix.T


OPERATORS: dict[str, Callable[[], LinearOperator]] = {
    "loss Hessian": lambda: hm.loss_hessian(perceptron()),
    "outer-product Hessian": lambda: hm.outer_product_hessian(convolutional()),
    "functional Hessian": lambda: hm.functional_hessian(attention()),
    "Fisher": lambda: hm.fisher(attention()),
    "empirical Fisher": lambda: hm.hessians.empirical_fisher(perceptron()),
    "matrix": lambda: DenseOperator(symmetric(5)),
    "diagonal block": lambda: hm.loss_hessian(attention()).block("last.weight"),
    "large diagonal block": lambda: hm.loss_hessian(perceptron(60)).block("0.bias"),
    "rectangular block": lambda: hm.loss_hessian(perceptron(60)).block("0.bias", "2.weight"),
    "block of a matrix": lambda: DenseOperator(symmetric(5), Layout((("a", (2,)), ("b", (3,))))).block("b"),
    "pair of a matrix": lambda: DenseOperator(symmetric(5), Layout((("a", (2,)), ("b", (3,))))).block("a", "b"),
    "principal block": lambda: PrincipalBlock(hm.fisher(perceptron(60)), torch.tensor([1, 7, 300])),
    "layer": lambda: hm.layer_hessian(perceptron(), "0"),
    "layer with its bias": lambda: hm.layer_hessian(convolutional(), "4", with_bias=True),
    "factors": lambda: hm.kronecker_approximation(perceptron(), "2"),
    "trivial factors": lambda: KroneckerProduct(torch.ones(1, 1).double(), symmetric(3)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_dense_form_may_be_changed(name: str) -> None:
    assert_may_be_changed(OPERATORS[name]())


@pytest.mark.parametrize("name", ["loss Hessian", "Fisher", "empirical Fisher", "large diagonal block", "layer"])
def test_a_large_dense_form_is_handed_out_and_not_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "KEPT", 0)
    monkeypatch.setattr(hessians, "KEPT", 0)
    given = OPERATORS[name]()
    dense = given.to_dense()
    expected = dense.clone()
    dense.zero_()
    assert torch.equal(given.to_dense(), expected)
    held = [value for value in vars(given).values() if isinstance(value, Tensor) and value.shape == dense.shape]
    assert not held
    assert getattr(given, "_kept", None) is None


def test_the_record_of_a_dense_form_may_be_changed_too() -> None:
    hessian = hm.loss_hessian(perceptron())
    found = hessian.dense
    expected = found.matrix.clone()
    found.matrix.zero_()
    assert torch.equal(hessian.dense.matrix, expected)
    assert hessian.dense.method == found.method == "lifted"


MEASUREMENTS: dict[str, Callable[[Any], object]] = {
    "dense": lambda H: H.to_dense(),
    "spectrum": hm.spectrum,
    "rank": hm.numerical_rank,
    "density": lambda H: hm.density_estimate(H, num_steps=10, num_probes=4),
    "trace": lambda H: hm.trace_estimate(H, method="hutch++"),
    "eigenpairs": lambda H: hm.top_eigenpairs(H, 3),
    "matrix for products": lambda H: H.matrix_for_products(10_000),
    "blocks of vectors": lambda H: H @ torch.eye(H.size, dtype=torch.float64),
}


@pytest.mark.parametrize("measurement", MEASUREMENTS)
@pytest.mark.parametrize("problem", [perceptron, convolutional, attention])
def test_products_do_not_depend_on_what_was_asked_before(problem: Callable[..., hm.Problem], measurement: str) -> None:
    hessian = hm.loss_hessian(problem())
    vectors = normals(hessian.size, 3)
    first = hessian @ vectors
    block_size = hessian.block_size
    MEASUREMENTS[measurement](hessian)
    assert torch.equal(hessian @ vectors, first)
    assert hessian.block_size == block_size


def test_many_products_of_a_small_chain_use_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    hessian = hm.loss_hessian(perceptron())
    asked: list[int] = []
    plain = hessians.Hessian.matmat

    def counted(self: Any, vectors: Tensor) -> Tensor:
        asked.append(vectors.shape[1])
        return plain(self, vectors)

    monkeypatch.setattr(hessians.Hessian, "matmat", counted)
    for measure in (
        lambda H: hm.density_estimate(H, num_steps=10, num_probes=4),
        lambda H: hm.top_eigenpairs(H, 10),
        lambda H: hm.density_estimate(H.block("0.weight"), num_steps=8, num_probes=4),
    ):
        measure(hessian)
    assert not asked
    found = hm.top_eigenpairs(hessian, 10)
    expected = torch.linalg.eigvalsh(hessian.to_dense()).flip(0)[:10]
    assert torch.allclose(torch.from_numpy(found.eigenvalues), expected, rtol=1e-7, atol=1e-9)


LARGE: dict[str, tuple[Callable[[], hm.Problem], str, str]] = {
    "perceptron": (lambda: perceptron(60), "2.bias", "0.weight"),
    "convolutional": (lambda: convolutional(20), "0.bias", "4.weight"),
    "attention": (lambda: attention(12), "gain", "attention.in_proj_weight"),
    "norm": (lambda: attention(12), "norm.weight", "last.weight"),
}
KINDS = (hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian, hm.fisher, hm.hessians.empirical_fisher)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LARGE)
def test_a_block_needs_products_with_its_own_columns_alone(
    name: str, kind: Callable[[hm.Problem], hessians.Hessian], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, small, other = LARGE[name][0](), *LARGE[name][1:]
    layout = problem.layout
    whole = kind(problem).to_dense()
    scale = float(whole.abs().max())
    places = torch.cat([torch.arange(problem.num_parameters)[layout[one]] for one in (other, small)])[::40]
    expected = {
        "diagonal": whole[layout[small], layout[small]],
        "wide": whole[layout[small], layout[other]],
        "tall": whole[layout[other], layout[small]],
        "places": whole[places][:, places],
    }
    hessian = kind(problem)
    blocks = {
        "diagonal": hessian.block(small),
        "wide": hessian.block(small, other),
        "tall": hessian.block(other, small),
        "places": PrincipalBlock(hessian, places),
    }
    asked: list[int] = []
    plain = hessians.Hessian.matmat

    def counted(self: Any, vectors: Tensor) -> Tensor:
        asked.append(vectors.shape[1])
        return plain(self, vectors)

    def refused(*args: object) -> None:
        raise AssertionError("the whole was written down")

    monkeypatch.setattr(hessians.Hessian, "matmat", counted)
    monkeypatch.setattr(hessians, "dense_hessian", refused)
    for form, block in blocks.items():
        asked.clear()
        found = block.to_dense()
        assert sum(asked) == min(found.shape)
        assert torch.allclose(found, expected[form], rtol=1e-8, atol=1e-10 * scale), form
    assert torch.equal(blocks["diagonal"].to_dense(), blocks["diagonal"].to_dense().T)
    assert torch.equal(blocks["wide"].to_dense(), blocks["tall"].to_dense().T)
    assert len(hm.spectrum(blocks["diagonal"]).eigenvalues) == blocks["diagonal"].size
    assert hm.numerical_rank(blocks["diagonal"]).size == blocks["diagonal"].size
    assert hm.numerical_rank(blocks["wide"]).size == min(blocks["wide"].shape)


def test_a_block_of_most_of_the_network_uses_the_dense_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = perceptron(60)
    expected = hm.loss_hessian(problem).to_dense()[problem.layout["0.weight"], problem.layout["0.weight"]]
    assert torch.equal(hm.loss_hessian(problem).block("0.weight").to_dense(), expected)
    tight = perceptron(60, memory_budget=2**20)
    monkeypatch.setattr(hessians, "dense_hessian", lambda *_: pytest.fail("the whole does not fit the budget"))
    assert hm.loss_hessian(tight).block("0.weight").to_dense().shape == (240, 240)


def test_a_block_of_a_network_whose_hessian_fits_no_memory() -> None:
    model = nn.Sequential(nn.Linear(300, 700), nn.ReLU(), nn.Linear(700, 3))
    problem = hm.Problem(model, "cross_entropy", torch.randn(4, 300), torch.arange(4) % 3)
    hessian = hm.loss_hessian(problem)
    block = hessian.block("2.bias")
    outputs = problem.outputs().softmax(1)
    expected = (torch.diag_embed(outputs) - outputs[:, :, None] * outputs[:, None]).mean(0)
    assert torch.allclose(block.to_dense(), expected, rtol=1e-10)
    assert hm.numerical_rank(block).value == 2
    with pytest.raises(hm.errors.TooLarge, match="needs"):
        hessian.block("0.weight").to_dense()


def test_a_block_that_is_nothing_but_rounding_is_symmetric() -> None:
    """The functional Hessian at an exact fit: what is left of its samples is no asymmetry of the operator."""
    model = nn.Sequential(nn.Linear(4, 60), nn.Tanh(), nn.Linear(60, 3)).double()
    inputs = normals(9, 4)
    targets = model(inputs).detach() * (1 + 1e-15)
    hessian = hm.functional_hessian(hm.Problem(model, "squared", inputs, targets))
    block = hessian.block("0.bias").to_dense()
    assert float(block.abs().max()) < 1e-13
    assert torch.equal(block, block.T)
    assert hm.numerical_rank(hessian.block("0.bias")).value == 0


def test_blocks_of_operators_of_ones_own_take_no_more_products() -> None:
    class Own(SymmetricOperator):
        layout = Layout((("a", (70, 3)), ("b", (5,))))
        size, asked = 215, 0

        def matmat(self, vectors: Tensor) -> Tensor:
            self.asked += vectors.shape[1]
            return matrix @ vectors

    matrix = symmetric(215)
    own = Own()
    assert torch.allclose(own.block("b").to_dense(), matrix[210:, 210:])
    assert torch.allclose(own.block("a", "b").to_dense(), matrix[:210, 210:])
    assert torch.allclose(own.block("b", "a").to_dense(), matrix[210:, :210])
    assert own.asked == 15
    assert torch.allclose(own.block("a").to_dense(), matrix[:210, :210])
    assert own.asked == 225
