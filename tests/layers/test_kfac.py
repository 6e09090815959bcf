"""Curvature of whole networks by Kronecker products: factors written out by hand, dense blocks, inverses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

import hessmap as hm
from hessmap.errors import InvalidInput, MissingExtra, NotReproducible, UnsupportedNetwork
from hessmap.layers import KroneckerCurvature
from hessmap.layers.curvature_operator import FactoredBlock
from hessmap.layers.kfac import CurvatureKind, FisherKind, _add_moment, _mirror
from hessmap.layers.kronecker import eigenpairs_of

DOUBLE = torch.float64


class Block(nn.Module):
    """A token model with an embedding, a norm and a head that is tied to the embedding."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.head(torch.tanh(self.inner(self.norm(self.embed(ids)))))
        return hidden


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return model, torch.randn(20, 6, dtype=DOUBLE), torch.randint(3, (20,))


def cnn() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(4, 3)
    )
    return model.double(), torch.randn(12, 2, 4, 4, dtype=DOUBLE), torch.randint(3, (12,))


def tokens(tied: bool = False) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(2)
    return Block(tied).double(), torch.randint(5, (7, 3)), torch.randint(5, (7, 3))


Rows = Callable[[Tensor, Tensor], Tensor]
CASES: dict[str, Callable[[], tuple[nn.Module, Tensor, Tensor]]] = {"mlp": mlp, "cnn": cnn, "tokens": tokens}


def problem_of(name: str) -> hm.Problem:
    model, inputs, targets = CASES[name]()
    return hm.Problem(model, "cross_entropy", inputs, targets)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def same_layer(problem: hm.Problem) -> Tensor:
    """Whether two parameters belong to one module."""
    owners = torch.cat(
        [torch.full((place.stop - place.start,), hash(name.rpartition(".")[0])) for name, place in problem.layout]
    )
    return owners[:, None] == owners[None, :]


def by_hand(problem: hm.Problem, model: nn.Module, inputs: Tensor, targets: Tensor, rows: Rows, sharing: str) -> Tensor:
    """K-FAC by hooks and one backward pass per sample and column of the root, as its definition reads."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    for layer in layers:
        layer.register_forward_hook(lambda module, given, made: seen.__setitem__(module, (given[0], made)))
    sums = [[torch.zeros(()), torch.zeros(())] for _ in layers]
    for sample, target in zip(inputs, targets, strict=True):
        outputs = model(sample[None])
        for column, row in enumerate(rows(outputs[0].detach(), target)):
            gradients = torch.autograd.grad(outputs, [seen[layer][1] for layer in layers], row[None], retain_graph=True)
            for pair, layer, gradient in zip(sums, layers, gradients, strict=True):
                x, g = seen[layer][0], gradient
                if isinstance(layer, nn.Conv2d):
                    x = F.unfold(x, layer.kernel_size, padding=int(layer.padding[0]))[0].T
                    g = g[0].flatten(1).T
                x = torch.cat([x, torch.ones(len(x), 1, dtype=DOUBLE)], 1)
                if sharing == "reduce":
                    x, g = x.mean(0, keepdim=True), g.sum(0, keepdim=True)
                pair[0] = pair[0] + g.T @ g / len(inputs)
                if column == 0:
                    pair[1] = pair[1] + x.T @ x / len(x) / len(inputs)
    dense = torch.zeros(problem.num_parameters, problem.num_parameters, dtype=DOUBLE)
    start = 0
    for (output, given), layer in zip(sums, layers, strict=True):
        outputs, size = len(output), layer.weight.numel()
        weight = torch.arange(size).reshape(outputs, -1)
        places = start + torch.cat([weight, size + torch.arange(outputs)[:, None]], 1).flatten()
        dense[places[:, None], places] = torch.kron(output, given).detach()
        start += size + outputs
    return dense


def softmax_root(outputs: Tensor, _: Tensor) -> Tensor:
    p = outputs.softmax(0)
    values, vectors = torch.linalg.eigh(torch.diag(p) - torch.outer(p, p))
    root: Tensor = (vectors * values.clamp(min=0).sqrt()).T
    return root


def loss_gradient(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs.softmax(0) - F.one_hot(target, 3))[None]


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize(("fisher", "rows"), [("exact", softmax_root), ("empirical", loss_gradient)])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_kfac_is_that_of_its_definition(name: str, fisher: str, rows: Rows, sharing: str) -> None:
    model, inputs, targets = CASES[name]()
    problem = hm.Problem(model, "cross_entropy", inputs, targets)
    found = hm.kronecker_curvature(problem, "kfac", fisher=fisher, sharing=sharing).to_dense()
    assert relative(found, by_hand(problem, model, inputs, targets, rows, sharing)) < 1e-12


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("name", list(CASES))
def test_blocks_and_diagonals_are_those_of_the_whole_matrix(name: str, fisher: str) -> None:
    problem = problem_of(name)
    whole = (hm.outer_product_hessian if fisher == "exact" else hm.hessians.empirical_fisher)(problem).to_dense()
    block = hm.kronecker_curvature(problem, "block", fisher=fisher).to_dense()
    assert relative(block, whole * same_layer(problem)) < 1e-12
    diagonal = hm.kronecker_curvature(problem, "diagonal", fisher=fisher).to_dense()
    assert relative(diagonal, torch.diag(whole.diagonal())) < 1e-12


@pytest.mark.parametrize("name", list(CASES))
def test_corrected_eigenvalues_and_nearest_products_are_closer(name: str) -> None:
    """EK-FAC minimises the Frobenius error over eigenvalues in K-FAC's basis, "best" over all Kronecker products."""
    problem = problem_of(name)
    exact = hm.kronecker_curvature(problem, "block").to_dense()
    errors = {
        kind: relative(hm.kronecker_curvature(problem, kind).to_dense(), exact) for kind in ("kfac", "ekfac", "best")
    }
    assert errors["ekfac"] < errors["kfac"]
    assert errors["best"] < errors["kfac"]


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_second_moments_are_quadratic_forms_of_the_exact_block(name: str) -> None:
    problem = problem_of(name)
    exact = hm.outer_product_hessian(problem).to_dense()
    for block in hm.kronecker_curvature(problem, "ekfac").blocks:
        basis = torch.kron(*block.bases)
        own = exact[block.entries][:, block.entries]
        assert relative(block.values.flatten(), (basis.T @ own @ basis).diagonal()) < 1e-11


def test_nearest_product_is_the_leading_singular_pair_of_the_rearranged_block() -> None:
    problem = problem_of("mlp")
    exact = hm.outer_product_hessian(problem).to_dense()
    for block in hm.kronecker_curvature(problem, "best").blocks:
        rows, columns = block.values.shape
        own = exact[block.entries][:, block.entries].reshape(rows, columns, rows, columns)
        rearranged = own.permute(0, 2, 1, 3).reshape(rows**2, columns**2)
        left, size, right = torch.linalg.svd(rearranged)
        nearest = torch.kron((size[0] * left[:, 0]).reshape(rows, rows), right[0].reshape(columns, columns))
        left_basis, right_basis = block.bases
        basis = torch.kron(left_basis, right_basis)
        assert relative(basis @ torch.diag(block.values.flatten()) @ basis.T, nearest) < 1e-6


def test_exact_where_theory_says_so() -> None:
    model, inputs, targets = mlp()
    one = hm.Problem(model, "cross_entropy", inputs[:1], targets[:1])
    exact = hm.kronecker_curvature(one, "block").to_dense()
    assert relative(hm.kronecker_curvature(one, "kfac").to_dense(), exact) < 1e-12
    linear = hm.Problem(nn.Linear(6, 3), "squared", inputs, torch.randn(20, 3))
    exact = hm.outer_product_hessian(linear).to_dense()
    assert relative(hm.kronecker_curvature(linear, "kfac").to_dense(), exact) < 1e-12


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "best", "diagonal", "block", "full"])
@pytest.mark.parametrize("name", list(CASES))
def test_functions_of_the_matrix_are_those_of_dense_linear_algebra(name: str, kind: str) -> None:
    problem = problem_of(name)
    curvature = hm.kronecker_curvature(problem, kind)
    identity = torch.eye(problem.num_parameters, dtype=DOUBLE)
    damped = curvature.to_dense() + 0.1 * identity
    vectors = torch.randn(problem.num_parameters, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    solution = torch.linalg.solve(damped, vectors)
    assert relative(curvature.solve(vectors, damping=0.1), solution) < 1e-9
    assert relative(curvature.solve(vectors[:, 0], damping=0.1), solution[:, 0]) < 1e-9
    half = curvature.inverse_sqrt(vectors, damping=0.1)
    assert relative(curvature.inverse_sqrt(half, damping=0.1), solution) < 1e-9
    assert curvature.log_determinant(damping=0.1) == pytest.approx(float(torch.logdet(damped)), rel=1e-9)
    expected = torch.linalg.eigvalsh(curvature.to_dense()).flip(0)
    assert float((curvature.eigenvalues() - expected).abs().max()) < 1e-12 * float(expected[0]) + 1e-14
    assert relative(curvature @ vectors, curvature.to_dense() @ vectors) < 1e-12
    assert relative(curvature.exact_diagonal(), curvature.to_dense().diagonal()) < 1e-12


@pytest.mark.parametrize("name", list(CASES))
def test_products_are_those_of_the_blocks_at_their_entries(name: str) -> None:
    """Slices of a vector, also of columns that are not contiguous, are the entries that every block names."""
    curvature = hm.kronecker_curvature(problem_of(name), "kfac")
    vectors = torch.randn(3, curvature.size, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)).T
    expected = torch.zeros_like(vectors)
    for block in curvature.blocks:
        expected[block.entries] = block.multiply(vectors[block.entries])
    torch.testing.assert_close(curvature @ vectors, expected)


def test_samples_of_a_batch_that_depend_on_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a size that was not seen when the problem was made."""

    class Coupled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden: Tensor = self.layer(inputs)
            return hidden + hidden.mean(0) if len(inputs) == 12 else hidden

    _, inputs, targets = mlp()
    problem = hm.Problem(Coupled().double(), "cross_entropy", inputs, targets)
    hm.kronecker_curvature(problem)
    monkeypatch.setattr("hessmap.layers.kfac.rows_that_fit", lambda *_: 12)
    with pytest.raises(NotReproducible, match="independent|samples"):
        hm.kronecker_curvature(problem)


def test_samples_have_the_inverse_as_covariance() -> None:
    curvature = hm.kronecker_curvature(problem_of("mlp"), "ekfac")
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([curvature.sample(generator, damping=0.1) for _ in range(4000)])
    covariance = torch.linalg.inv(curvature.to_dense() + 0.1 * torch.eye(curvature.size, dtype=DOUBLE))
    # Entries of a sample covariance deviate by sqrt((c_ii c_jj + c_ij^2) / draws); six of these leave out none of 53^2.
    scale = (torch.outer(covariance.diagonal(), covariance.diagonal()) + covariance.square()).div(4000).sqrt()
    assert float(((draws.T @ draws / 4000 - covariance) / scale).abs().max()) < 6


@pytest.mark.parametrize("name", ["mlp", "tokens"])
def test_sampled_gradients_have_the_exact_matrix_as_mean(name: str) -> None:
    problem = problem_of(name)
    exact = hm.kronecker_curvature(problem, "block").to_dense()
    found = torch.stack(
        [hm.kronecker_curvature(problem, "block", fisher="sampled", seed=seed).to_dense() for seed in range(150)]
    )
    error = (found.mean(0) - exact).norm()
    spread = found.var(0).sum().div(150).sqrt()  # the expected size of the error
    assert float(error) < 2 * float(spread)
    assert relative(found[0], exact) > 0.02


def test_what_covers_what() -> None:
    curvature = hm.kronecker_curvature(problem_of("tokens"), "kfac")
    forms = {name: block.form for block in curvature.blocks for name in block.names}
    assert forms["inner.weight"] == forms["inner.bias"] == forms["head.weight"] == "kronecker"
    assert forms["embed.weight"] == forms["norm.weight"] == forms["norm.bias"] == "diagonal"
    assert set(forms) == set(problem_of("tokens").layout.names)


def test_tied_weights_get_the_exact_diagonal_of_both_uses() -> None:
    problem = hm.Problem(*tokens(tied=True)[:1], "cross_entropy", *tokens(tied=True)[1:])
    curvature = hm.kronecker_curvature(problem, "ekfac")
    exact = hm.outer_product_hessian(problem).to_dense().diagonal()
    for block in curvature.blocks:
        if "embed.weight" in block.names:
            assert block.form == "diagonal"
            assert relative(block.values, exact[block.entries]) < 1e-12
            return
    raise AssertionError("the tied weight is in no block")


@pytest.mark.parametrize("kind", ["kfac", "best", "block", "diagonal"])
def test_blocks_of_the_loss_hessian(kind: str) -> None:
    problem = problem_of("mlp")
    whole = hm.loss_hessian(problem).to_dense()
    found = hm.kronecker_curvature(problem, kind, part="loss").to_dense()
    if kind == "block":
        assert relative(found, whole * same_layer(problem)) < 1e-12
    elif kind == "diagonal":
        assert relative(found, torch.diag(whole.diagonal())) < 1e-12
    else:
        one = hm.layers.layer_factors(problem, "0", with_bias=True)
        product = torch.kron(one.output_factor, one.input_factor)
        places = hm.kronecker_curvature(problem, kind, part="loss").blocks[0].entries
        close = relative(found[places][:, places], product)
        assert close < 1e-12 if kind == "kfac" else close > 1e-3


def test_the_penalty_is_part_of_every_block_of_the_loss_hessian() -> None:
    model, inputs, targets = mlp()
    with_penalty, plain = (hm.Problem(model, "cross_entropy", inputs, targets, l2=l2) for l2 in (0.3, 0.0))
    for kind in ("kfac", "block", "diagonal"):
        found = [hm.kronecker_curvature(one, kind, part="loss").to_dense() for one in (with_penalty, plain)]
        identity = torch.eye(plain.num_parameters, dtype=DOUBLE)
        assert float((found[0] - found[1] - 0.6 * identity).abs().max()) < 1e-12


class Conv1D(nn.Module):
    """The linear layer of GPT-2 in transformers: the weight is stored as inputs x outputs."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.empty(num_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, inputs.reshape(-1, inputs.shape[-1]), self.weight)
        return flat.view(*inputs.shape[:-1], -1)


class Product(Conv1D):
    """No bias, and an operator."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        self.bias = None

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


class Transposed(Conv1D):
    """The weight is transposed on its way into a linear layer; the bias comes first among the parameters."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        nn.Module.__init__(self)
        self.bias = nn.Parameter(torch.empty(num_outputs))
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight.T, self.bias)


STORED_AS_INPUTS_BY_OUTPUTS = [Conv1D, Product, Transposed]


def stored_problem(layer: type[Conv1D] | None, shape: tuple[int, ...] = (8, 2)) -> hm.Problem:
    """Two layers of one kind over tokens or vectors; None is nn.Linear with the same function as Conv1D."""
    generator = torch.Generator().manual_seed(9)
    make = nn.Linear if layer is None else layer
    model = nn.Sequential(make(4, 5), nn.Tanh(), make(5, 3)).double()
    for place in (0, 2):
        weight = model[place].weight
        inputs, outputs = weight.shape[::-1] if layer is None else weight.shape
        drawn = torch.randn(inputs, outputs, generator=generator, dtype=DOUBLE)
        weight.data.copy_(drawn.T if layer is None else drawn)
        shift = torch.randn(outputs, generator=generator, dtype=DOUBLE)
        if model[place].bias is not None:
            model[place].bias.data.copy_(shift)
    inputs = torch.randn(*shape, 4, generator=generator, dtype=DOUBLE)
    return hm.Problem(model, "cross_entropy", inputs, torch.randint(3, shape, generator=generator))


def as_linear(stored: hm.Problem, linear: hm.Problem) -> Tensor:
    """Of every parameter of the linear network its position in the other one."""
    places = torch.empty(linear.num_parameters, dtype=torch.long)
    own = stored.unflatten(torch.arange(stored.num_parameters))
    for name, place in linear.layout:
        places[place] = (own[name].T if own[name].ndim == 2 else own[name]).flatten()
    return places


@pytest.mark.parametrize("fisher", ["exact", "empirical", "sampled"])
@pytest.mark.parametrize("kind", ["kfac", "ekfac", "best", "block", "diagonal", "full"])
@pytest.mark.parametrize(("layer", "shape"), [(Conv1D, (8, 2)), (Transposed, (8,))], ids=["tokens", "vectors"])
def test_weights_stored_as_inputs_by_outputs_have_the_curvature_of_linear_layers(
    layer: type[Conv1D], kind: CurvatureKind, fisher: FisherKind, shape: tuple[int, ...], tmp_path: Path
) -> None:
    stored, linear = stored_problem(layer, shape), stored_problem(None, shape)
    places = as_linear(stored, linear)
    found, expected = (hm.kronecker_curvature(one, kind, fisher=fisher) for one in (stored, linear))
    tolerance = 1e-6 if kind == "best" else 1e-12  # of the power method, and of rounding
    assert relative(found.to_dense()[places][:, places], expected.to_dense()) < tolerance
    assert [block.form for block in found.blocks] == [block.form for block in expected.blocks]
    vector = torch.randn(linear.num_parameters, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
    moved = torch.empty_like(vector)
    moved[places] = vector
    tolerance *= 100  # a damping of a tenth of the eigenvalues
    assert relative(found.solve(moved, damping=0.1)[places], expected.solve(vector, damping=0.1)) < tolerance
    assert (
        relative(found.inverse_sqrt(moved, damping=0.1)[places], expected.inverse_sqrt(vector, damping=0.1)) < tolerance
    )
    determinant = expected.log_determinant(damping=0.1)
    assert found.log_determinant(damping=0.1) == pytest.approx(determinant, rel=tolerance)
    assert relative(found.exact_diagonal()[places], expected.exact_diagonal()) < tolerance
    found.save(tmp_path / "curvature.npz")
    assert torch.equal(hm.load(tmp_path / "curvature.npz").to_dense(), found.to_dense())


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "best", "diagonal", "block"])
@pytest.mark.parametrize("layer", STORED_AS_INPUTS_BY_OUTPUTS)
def test_weights_stored_as_inputs_by_outputs_against_dense_matrices(layer: type[Conv1D], kind: CurvatureKind) -> None:
    problem = stored_problem(layer)
    curvature = hm.kronecker_curvature(problem, kind)
    dense, exact = curvature.to_dense(), hm.ggn(problem).to_dense()
    if kind in ("kfac", "ekfac", "best"):
        assert {block.form.partition(",")[0] for block in curvature.blocks} == {"kronecker"}
    if kind == "ekfac":
        for block in curvature.blocks:
            own, basis = exact[block.entries][:, block.entries], torch.kron(*block.bases)
            assert relative(block.values.flatten(), (basis.T @ own @ basis).diagonal()) < 1e-11
    if kind in ("diagonal", "block"):
        assert relative(dense, exact * (same_layer(problem) if kind == "block" else torch.eye(len(exact)))) < 1e-12
    damped = dense + 0.1 * torch.eye(len(dense), dtype=DOUBLE)
    gradient = problem.gradient()
    assert relative(curvature.solve(gradient, damping=0.1), torch.linalg.solve(damped, gradient)) < 1e-9
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    noise = torch.randn(len(dense), generator=generators[0], dtype=DOUBLE)
    drawn = curvature.sample(generators[1], damping=0.1)
    assert relative(damped @ drawn, curvature.inverse_sqrt(damped @ noise, damping=0.1)) < 1e-9
    error = hm.kronecker_error(problem, curvature, damping=0.1)
    whole = relative(dense, exact)
    assert abs(error.frobenius_error - whole) <= 5 * error.frobenius_standard_error
    assert sum(block.size for block in error.blocks) == problem.num_parameters
    assert error.solve_error == pytest.approx(
        relative(curvature.solve(gradient, damping=0.1), torch.linalg.solve(exact + damped - dense, gradient)), rel=1e-2
    )


@pytest.mark.parametrize("kind", ["kfac", "best", "block", "diagonal"])
def test_loss_hessians_of_weights_stored_as_inputs_by_outputs(kind: CurvatureKind) -> None:
    for layer in (Conv1D, Transposed):
        stored, linear = stored_problem(layer), stored_problem(None)
        places = as_linear(stored, linear)
        found, expected = (hm.kronecker_curvature(one, kind, part="loss") for one in (stored, linear))
        assert [block.form for block in found.blocks] == [block.form for block in expected.blocks]
        tolerance = 1e-5 if kind == "best" else 1e-12
        assert relative(found.to_dense()[places][:, places], expected.to_dense()) < tolerance


def test_influence_and_laplace_of_weights_stored_as_inputs_by_outputs() -> None:
    scores, evidence = [], []
    for layer in (Conv1D, None):
        problem = stored_problem(layer, (8,))
        curvature = hm.kronecker_curvature(problem, "kfac")
        scores.append(hm.influence(problem, problem, curvature=curvature, damping=0.1).scores)
        evidence.append(hm.laplace(problem, curvature, prior_precision=1.0).marginal_likelihood().value)
    assert relative(torch.as_tensor(scores[0]), torch.as_tensor(scores[1])) < 1e-10
    assert evidence[0] == pytest.approx(evidence[1], rel=1e-10)


class Experts(nn.Module):
    """Two experts with one weight of three axes, mixed by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.weight = nn.Parameter(torch.randn(2, 3, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        mixed = torch.einsum("ne,nd,edh->nh", self.gate(inputs).softmax(1), inputs, self.weight)
        outputs: Tensor = self.head(torch.tanh(mixed))
        return outputs


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_weights_without_factors_get_their_exact_diagonal_or_block(fisher: str) -> None:
    torch.manual_seed(4)
    problem = hm.Problem(Experts().double(), "cross_entropy", torch.randn(8, 3), torch.randint(3, (8,)))
    make = hm.outer_product_hessian if fisher == "exact" else hm.hessians.empirical_fisher
    exact = make(problem).to_dense()
    for kind, form in (("ekfac", "diagonal"), ("block", "dense")):
        curvature = hm.kronecker_curvature(problem, kind, fisher=fisher)
        (block,) = [block for block in curvature.blocks if "weight" in block.names]
        own = exact[block.entries][:, block.entries]
        dense = block.apply(lambda values: values, torch.eye(len(own), dtype=DOUBLE))
        assert block.form == form
        assert relative(dense, torch.diag(own.diagonal()) if form == "diagonal" else own) < 1e-12


class Squares(nn.Module):
    """A weight without a layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sin(inputs * self.weight) * self.weight


@pytest.mark.parametrize("model", [Squares(), nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))])
def test_a_loss_that_is_not_convex_has_no_factors(model: nn.Module) -> None:
    problem = hm.Problem(model.double(), lambda outputs, _: outputs.cos().sum(1), torch.randn(4, 2), torch.zeros(4))
    with pytest.raises(InvalidInput, match="convex in the outputs"):
        hm.kronecker_curvature(problem, "kfac")


@pytest.mark.parametrize("name", list(CASES))
def test_fisher_diagonals_are_those_of_dense_matrices(name: str) -> None:
    problem = problem_of(name)
    for fisher, make in (("exact", hm.fisher), ("empirical", hm.hessians.empirical_fisher)):
        found = hm.fisher_diagonal(problem, fisher=fisher)
        shapes = {key: tuple(value.shape) for key, value in problem.model.state_dict().items()}
        assert {key: tuple(value.shape) for key, value in found.items()} == shapes
        flat = torch.cat([value.flatten() for value in found.values()])
        assert relative(flat, make(problem).to_dense().diagonal()) < 1e-12
    draws = [hm.fisher_diagonal(problem, fisher="sampled", seed=seed) for seed in range(200)]
    flat = torch.stack([torch.cat([value.flatten() for value in draw.values()]) for draw in draws])
    spread = flat.var(0).sum().div(200).sqrt()
    assert float((flat.mean(0) - hm.fisher(problem).to_dense().diagonal()).norm()) < 3 * float(spread)


def test_fisher_diagonals_are_shaped_as_the_state_dict(tmp_path: Path) -> None:
    """A tied parameter has all of its names, as in the state dict; buffers and frozen parameters have none."""
    model, inputs, targets = tokens(tied=True)
    model.register_buffer("scale", torch.ones(2, dtype=DOUBLE))
    problem = hm.Problem(model, "cross_entropy", inputs, targets)
    found, state = hm.fisher_diagonal(problem, path=tmp_path / "fisher.pt"), model.state_dict()
    assert list(found) == [name for name in state if name != "scale"]
    assert {name: value.shape for name, value in found.items()} == {name: state[name].shape for name in found}
    assert found["head.weight"] is found["embed.weight"]
    stored = torch.load(tmp_path / "fisher.pt", weights_only=True)
    assert stored["head.weight"].data_ptr() == stored["embed.weight"].data_ptr()
    exact = hm.ggn(problem).to_dense().diagonal()
    assert relative(torch.cat([found[name].flatten() for name in problem.layout.names]), exact) < 1e-12
    if find_spec("safetensors") is not None:
        hm.fisher_diagonal(problem, path=tmp_path / "fisher.safetensors")
        stored = import_module("safetensors.torch").load_file(tmp_path / "fisher.safetensors")
        assert all(torch.equal(stored[name], found[name]) for name in found)
    merged = hm.merge([model, model], [found, found])
    assert relative(merged.head.weight.detach(), model.head.weight.detach()) < 1e-12
    assert merged.head.weight is merged.embed.weight
    part = hm.Problem(model, "cross_entropy", inputs, targets, parameters=["inner.weight"])
    assert list(hm.fisher_diagonal(part)) == ["inner.weight"]


def test_fisher_diagonals_are_written_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("mlp")
    found = hm.fisher_diagonal(problem, path=tmp_path / "fisher.pt")
    stored = torch.load(tmp_path / "fisher.pt", weights_only=True)
    assert stored.keys() == found.keys()
    assert all(torch.equal(stored[name], found[name]) for name in found)
    if find_spec("safetensors") is not None:
        hm.fisher_diagonal(problem, path=tmp_path / "fisher.safetensors")
        stored = import_module("safetensors.torch").load_file(tmp_path / "fisher.safetensors")
        assert all(torch.equal(stored[name], found[name]) for name in found)
    monkeypatch.setattr("hessmap.layers.kfac.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install safetensors"):
        hm.fisher_diagonal(problem, path=tmp_path / "other.safetensors")


def test_eigenvectors_are_computed_when_a_function_of_the_matrix_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("mlp")
    calls = []
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix, found=torch.linalg.eigh: calls.append(1) or found(matrix))
    curvature = hm.kronecker_curvature(problem, "kfac")
    vector = problem.gradient()
    product = curvature @ vector
    assert not calls
    by_eigenvectors = curvature._apply(lambda values: values, vector)
    assert len(calls) == 4  # two factors of two layers
    assert relative(product, by_eigenvectors) < 1e-12
    curvature.solve(vector, damping=0.1)
    assert len(calls) == 4


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "block"])
def test_factors_that_do_not_converge_are_decomposed_by_another_method(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs, targets = mlp()
    single = hm.Problem(model.float(), "cross_entropy", inputs.float(), targets, dtype=torch.float32)
    expected = hm.kronecker_curvature(single, kind).solve(single.gradient(), damping=0.1)

    def failing(matrix: Tensor) -> Tensor:
        raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    found = hm.kronecker_curvature(single, kind).solve(single.gradient(), damping=0.1)
    assert found.dtype == torch.float32
    assert relative(found, expected) < 1e-5


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("used", [[0, 2, 3, 7], [], [5], list(range(9))])
def test_rows_of_zeros_are_eigenvectors_of_their_own(
    used: list[int], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead units: what LAPACK is given has no row of zeros, whatever it would make of one."""
    rows = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))  # rank 2
    rows[:, [place for place in range(9) if place not in used]] = 0.0
    factor, sizes, eigh = 1e-9 * rows.T @ rows, list[int](), torch.linalg.eigh

    def watched(matrix: Tensor) -> Tensor:
        sizes.append(len(matrix))
        if fails:
            raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")
        found: Tensor = eigh(matrix)
        return found

    monkeypatch.setattr(torch.linalg, "eigh", watched)
    values, vectors = eigenpairs_of(factor)
    assert sizes == ([len(used)] if used else [])
    assert values.dtype == vectors.dtype == torch.float32
    assert bool((values.diff() >= 0).all())
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(9), rtol=0, atol=1e-5)
    torch.testing.assert_close(factor @ vectors, vectors * values, rtol=0, atol=1e-5 * float(factor.norm()))
    assert torch.linalg.matrix_rank(vectors[:, values.abs() <= 1e-6 * float(factor.norm())]) == 9 - min(2, len(used))


def test_relative_damping_scales_with_the_mean_eigenvalue_of_each_block() -> None:
    curvature = hm.kronecker_curvature(problem_of("mlp"), "kfac")
    vector = torch.ones(curvature.size, dtype=DOUBLE)
    damping = torch.zeros_like(vector)
    for block in curvature.blocks:
        damping[block.entries] = 0.5 * block.values.mean()
    expected = torch.linalg.solve(curvature.to_dense() + torch.diag(damping), vector)
    assert relative(curvature.solve(vector, damping=0.5, relative=True), expected) < 1e-10


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "diagonal", "block", "full"])
def test_files_restore_the_whole_curvature(kind: str, tmp_path: Path) -> None:
    model, inputs, targets = tokens()
    for dtype in (torch.float64, torch.float32):
        curvature = hm.kronecker_curvature(hm.Problem(model, "cross_entropy", inputs, targets, dtype=dtype), kind)
        curvature.save(tmp_path / "new" / "curvature.npz")
        loaded = hm.load(tmp_path / "new" / "curvature.npz")
        assert isinstance(loaded, KroneckerCurvature)
        assert loaded.dtype == dtype
        assert loaded.layout == curvature.layout
        assert [block.names for block in loaded.blocks] == [block.names for block in curvature.blocks]
        assert torch.equal(loaded.to_dense(), curvature.to_dense())
        assert torch.equal(loaded.to("cpu").to_dense(), curvature.to_dense())
        assert repr(loaded) == repr(curvature)


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("name", list(CASES))
def test_full_is_the_whole_matrix(name: str, fisher: str) -> None:
    problem = problem_of(name)
    whole = (hm.ggn if fisher == "exact" else hm.hessians.empirical_fisher)(problem).to_dense()
    curvature = hm.kronecker_curvature(problem, "full", fisher=fisher)
    assert relative(curvature.to_dense(), whole) < 1e-12
    assert [block.names for block in curvature.blocks] == [problem.layout.names]
    loss = hm.kronecker_curvature(problem, "full", part="loss").to_dense()
    assert relative(loss, hm.loss_hessian(problem).to_dense()) < 1e-12


def test_wrong_arguments_are_answered_in_a_sentence() -> None:
    problem = problem_of("mlp")
    with pytest.raises(InvalidInput, match="kind must be one of"):
        hm.kronecker_curvature(problem, "kfra")
    with pytest.raises(InvalidInput, match="damping must be positive"):
        hm.kronecker_curvature(problem).solve(problem.gradient(), damping=0.0)
    with pytest.raises(InvalidInput, match="no sampled or empirical form"):
        hm.kronecker_curvature(problem, part="loss", fisher="empirical")
    with pytest.raises(InvalidInput, match="no EK-FAC form"):
        hm.kronecker_curvature(problem, "ekfac", part="loss")
    indefinite = hm.kronecker_curvature(problem, "block", part="loss")
    with pytest.raises(InvalidInput, match="positive definite"):
        indefinite.solve(problem.gradient(), damping=1e-9)


def test_many_outputs_ask_for_a_choice() -> None:
    torch.manual_seed(0)
    problem = hm.Problem(nn.Linear(3, 101), "cross_entropy", torch.randn(9, 3), torch.randint(101, (9,)))
    # float64: factors of 101 outputs, and of 3 inputs with a bias; the entries of one block of 404
    for kind, cost in (("kfac", 8 * (101**2 + 4**2)), ("block", 8 * 404**2), ("diagonal", 8 * 404)):
        stated = (
            f'101: "exact" propagates 101 gradients per sample, "sampled" and "empirical" one; .* take {cost:,} bytes'
        )
        with pytest.raises(InvalidInput, match=rf"fisher must be chosen above 100 outputs.*{stated}"):
            hm.kronecker_curvature(problem, kind)
        found = hm.kronecker_curvature(problem, kind, fisher="empirical")
        held = [block.factors if isinstance(block, FactoredBlock) else [block.values] for block in found.blocks]
        assert sum(tensor.nbytes for tensors in held for tensor in tensors) == cost
    assert hm.kronecker_curvature(problem, fisher="sampled").size == problem.num_parameters


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "diagonal", "block"])
@pytest.mark.parametrize("formed", [True, False])
def test_errors_are_those_of_dense_matrices(kind: str, formed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not formed:
        monkeypatch.setattr("hessmap.layers.kfac_error._FORMED", 0)
        monkeypatch.setattr("hessmap.layers.kfac_error._PROBES", 2000)
    problem = problem_of("cnn")
    curvature = hm.kronecker_curvature(problem, kind)
    found = hm.kronecker_error(problem, curvature, count=2, damping=0.05, tolerance=1e-8)
    exact, dense = hm.outer_product_hessian(problem).to_dense(), curvature.to_dense()
    whole = float((exact - dense).norm() / exact.norm())
    assert abs(found.frobenius_error - whole) <= 5 * found.frobenius_standard_error
    for block, own in zip(curvature.blocks, found.blocks, strict=True):
        true, ours = (matrix[block.entries][:, block.entries] for matrix in (exact, dense))
        error = float((true - ours).norm() / true.norm())
        assert abs(own.frobenius_error - error) <= 5 * own.frobenius_standard_error + 1e-12
        assert (own.frobenius_standard_error < 1e-15) == (formed or kind == "block")
        if own.overlap is not None:
            top = [torch.linalg.eigh(matrix).eigenvectors[:, -2:] for matrix in (true, ours)]
            assert own.overlap == pytest.approx(float((top[0].T @ top[1]).square().sum() / 2), abs=1e-5)
    identity = 0.05 * torch.eye(problem.num_parameters, dtype=DOUBLE)
    solutions = [torch.linalg.solve(matrix + identity, problem.gradient()) for matrix in (exact, dense)]
    assert found.solve_error == pytest.approx(relative(solutions[1], solutions[0]), rel=1e-5)
    assert found.solve_converged


def test_the_sentence_names_the_best_and_the_worst_layer() -> None:
    problem = problem_of("cnn")
    found = hm.kronecker_error(problem, hm.kronecker_curvature(problem))
    ranked = sorted(found.blocks, key=lambda block: block.overlap or 0.0)
    assert found.summary.startswith("K-FAC recovers the sharpest direction best in layer")
    for block in (ranked[0], ranked[-1]):
        assert f"layer {block.names[0].removesuffix('.weight')} ({100 * (block.overlap or 0.0):.0f} %)" in found.summary


def test_the_table_the_frame_and_the_figure_have_a_row_for_every_block(tmp_path: Path) -> None:
    problem = problem_of("tokens")
    found = hm.kronecker_error(problem, hm.kronecker_curvature(problem, "ekfac"))
    lines = found.table().splitlines()
    assert len(lines) == 2 + len(found.blocks)
    for line, block in zip(lines[1:], found.blocks, strict=False):
        assert line.split()[0] == block.label
        assert f"{100 * block.frobenius_error:.1f} %" in line
        assert line.endswith("-" if block.overlap is None else f"{100 * block.overlap:.1f} %")
    assert "whole" in lines[-1]
    assert f"{100 * found.frobenius_error:.1f} %" in lines[-1]
    axes = found.plot().axes[0]
    assert [text.get_text().splitlines()[0] for text in axes.get_yticklabels()] == [b.label for b in found.blocks]
    widths = [bar.get_width() for bar in axes.containers[0]]
    assert widths == pytest.approx([block.frobenius_error for block in found.blocks])
    assert hm.records.KroneckerError.from_json(found.to_json()) == found


def test_a_curvature_of_other_parameters_is_refused() -> None:
    with pytest.raises(InvalidInput, match="that of the problem's parameters"):
        hm.kronecker_error(problem_of("cnn"), hm.kronecker_curvature(problem_of("mlp")))


class Encoder(nn.Module):
    """Attention with packed projections, whose weight is used in three parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.output = nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.block(self.embed(ids)).mean(1))
        return outputs


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.output = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.output(torch.tanh(self.layer(torch.tanh(self.layer(inputs)))))
        return outputs


def flat(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, str]]] = {
    "encoder": (Encoder, (5,), {"block.self_attn.in_proj_weight": "kronecker", "embed.weight": "diagonal"}),
    "grouped": (lambda: flat(nn.Conv2d(4, 4, 3, groups=2), nn.ReLU(), width=16), (4, 4, 4), {"0.weight": "diagonal"}),
    "strided": (lambda: flat(nn.Conv1d(2, 3, 3, 2, 1), nn.GELU(), width=12), (2, 8), {"0.bias": "kronecker"}),
    "transposed": (lambda: flat(nn.ConvTranspose2d(2, 3, 2), nn.Tanh(), width=27), (2, 2, 2), {"0.weight": "diagonal"}),
    "batch norm": (
        lambda: flat(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), width=12).eval(),
        (2, 4, 4),
        {"0.weight": "kronecker", "1.weight": "diagonal"},
    ),
    "used twice": (Recurrent, (4,), {"layer.weight": "diagonal", "output.weight": "kronecker"}),
}


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
@pytest.mark.parametrize("name", list(LAYERS))
def test_all_kinds_of_layers_have_the_second_moments_of_the_exact_matrix(name: str, fisher: str) -> None:
    """In the basis of every block, diagonals included, the diagonal of the exact matrix is that of EK-FAC."""
    make, shape, forms = LAYERS[name]
    torch.manual_seed(6)
    inputs = torch.randint(6, (10, *shape)) if name == "encoder" else torch.randn(10, *shape, dtype=DOUBLE)
    problem = hm.Problem(make().double(), "cross_entropy", inputs, torch.randint(3, (10,)))
    exact = (hm.ggn if fisher == "exact" else hm.hessians.empirical_fisher)(problem).to_dense()
    curvature = hm.kronecker_curvature(problem, "ekfac", fisher=fisher)
    found = {name: block.form.partition(",")[0] for block in curvature.blocks for name in block.names}
    assert forms.items() <= found.items()
    assert sorted(torch.cat([block.entries.flatten() for block in curvature.blocks]).tolist()) == list(
        range(len(exact))
    )
    for block in curvature.blocks:
        own = exact[block.entries][:, block.entries]
        basis = torch.kron(*block.bases) if block.bases else torch.eye(len(own), dtype=DOUBLE)
        assert (
            float((block.values.flatten() - (basis.T @ own @ basis).diagonal()).abs().max() / own.abs().max()) < 1e-12
        )


class HandWrittenTanh(torch.autograd.Function):
    """Right once; its second derivative misses what the backward pass depends on."""

    @staticmethod
    def forward(ctx, given: Tensor) -> Tensor:
        outputs = torch.tanh(given)
        ctx.save_for_backward(outputs.detach())
        return outputs

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (outputs,) = ctx.saved_tensors
        return gradient * (1 - outputs.detach().square())


class WithActivation(nn.Module):
    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.last(self.activation(self.first(inputs)))
        return found


def problem_with(activation: Callable[[Tensor], Tensor], dtype: torch.dtype = DOUBLE) -> hm.Problem:
    _, inputs, targets = mlp()
    return hm.Problem(WithActivation(activation).to(dtype), "cross_entropy", inputs.to(dtype), targets, dtype=dtype)


class TanhDifferentiableOnce(HandWrittenTanh):
    backward = staticmethod(once_differentiable(HandWrittenTanh.backward))


@pytest.mark.parametrize("fisher", ["exact", "sampled", "empirical"])
@pytest.mark.parametrize("activation", [HandWrittenTanh, TanhDifferentiableOnce])
def test_first_derivatives_are_enough(activation: type[torch.autograd.Function], fisher: FisherKind) -> None:
    """A model whose second derivatives are wrong or absent has the K-FAC of the same function, and no Hessian."""
    problem = problem_with(activation.apply)
    found = hm.kronecker_curvature(problem, "kfac", fisher=fisher).to_dense()
    expected = hm.kronecker_curvature(problem_with(torch.tanh), "kfac", fisher=fisher).to_dense()
    assert relative(found, expected) < 1e-13
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be|differentiate the model"):
        hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=DOUBLE)


@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_values_that_the_model_hides_from_autograd_are_noted(dtype: torch.dtype) -> None:
    hiding = problem_with(lambda given: given * given.detach(), dtype)
    hm.kronecker_curvature(hiding)
    assert any("gradients are not those of the outputs" in note for note in hiding.notes)
    honest = problem_with(lambda given: given * given, dtype)
    hm.kronecker_curvature(honest)
    assert not any("gradients are not those of the outputs" in note for note in honest.notes)


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "best"])
@pytest.mark.parametrize("name", list(CASES))
def test_the_size_of_a_batch_changes_nothing(name: str, kind: CurvatureKind, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hm.kronecker_curvature(problem_of(name), kind).to_dense()
    monkeypatch.setattr("hessmap.layers.kfac._BATCH_BYTES", 1)
    monkeypatch.setattr("hessmap.layers.kfac._ROWS_AT_ONCE", 2)
    assert relative(hm.kronecker_curvature(problem_of(name), kind).to_dense(), whole) < 1e-10


def test_factors_of_wide_layers_are_the_second_moments() -> None:
    """Wider than a block of columns; the half above the diagonal is the transpose of the other."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(7, 600, dtype=DOUBLE), torch.zeros(7, 300, dtype=DOUBLE)
    model = nn.Linear(600, 300).double()
    problem = hm.Problem(model, "squared", inputs, targets)
    (block,) = hm.kronecker_curvature(problem, "kfac", fisher="empirical").blocks
    assert isinstance(block, FactoredBlock)
    extended = torch.cat([inputs, torch.ones(7, 1, dtype=DOUBLE)], 1)
    gradients = model(inputs).detach()  # of half the squared distance from zero
    for found, rows in zip(block.factors, (gradients, extended), strict=True):
        torch.testing.assert_close(found, rows.T @ rows / 7, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("weights", [[0.5] * 7, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]])
def test_second_moments_weight_samples_and_are_added(weights: list[float]) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(7, 2, 300, generator=generator, dtype=DOUBLE)
    shares = torch.tensor(weights, dtype=DOUBLE)
    found = torch.full((300, 300), torch.nan, dtype=DOUBLE)
    _add_moment(found, rows[:3], shares[:3], is_new=True)
    _add_moment(found, rows[3:], shares[3:], is_new=False)
    _mirror(found)
    torch.testing.assert_close(found, torch.einsum("n,npi,npj->ij", shares, rows, rows), rtol=1e-11, atol=1e-11)
