"""Formulas and remarks that the papers state in passing, each against automatic differentiation or exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.special import erf
from torch import Tensor

import hessmap as hm
from hessmap.layers import find_layer, layer_hessian
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
from hessmap.theory.pac_bayes import binary_kl_inverse, complexity
from hessmap.theory.teacher_student import TeacherStudent


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Paper 0 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(3, 4, 2), (2, 3, 4, 3)], ids=str)
def test_backpropagation_of_non_linear_networks(widths: tuple[int, ...]) -> None:
    """S1: equation 7 is right; equation 10 lacks Lambda^k, the derivatives of the layer itself."""
    weights = [normal(k, after, before) for k, (before, after) in enumerate(pairwise(widths))]
    x, delta = normal(7, widths[0]), normal(8, widths[-1])
    last = len(weights) - 1

    def forward(some: list[Tensor]) -> Tensor:
        value = x
        for k, weight in enumerate(some):
            value = weight @ value if k == last else torch.tanh(weight @ value)
        return value

    inputs, slopes = [x], []
    for k, weight in enumerate(weights):
        before = weight @ inputs[-1]
        slopes.append(torch.diag(1 - torch.tanh(before) ** 2) if k < last else torch.eye(len(before)).double())
        inputs.append(torch.tanh(before))
    for k in range(len(weights)):
        behind = torch.eye(widths[-1], dtype=torch.float64)
        for later in range(last, k, -1):
            behind = behind @ slopes[later] @ weights[later]

        def output(weight: Tensor, k: int = k) -> Tensor:
            return forward([*weights[:k], weight, *weights[k + 1 :]])

        jacobian = torch.func.jacrev(output)(weights[k])
        torch.testing.assert_close(jacobian, torch.kron(behind @ slopes[k], inputs[k][None, :]).reshape(jacobian.shape))

        def loss(weight: Tensor, k: int = k) -> Tensor:
            return delta @ output(weight, k)

        gradient = torch.func.grad(loss)(weights[k])
        printed = torch.outer(behind.T @ delta, inputs[k])
        torch.testing.assert_close(gradient, slopes[k] @ printed)
        assert torch.allclose(gradient, printed) is (k == last)


def test_kernel_fisher_and_jacobian_have_the_rank_of_the_outer_product_hessian() -> None:
    """The remark after Corollary 4, for the squared loss, whose Fisher information is H_o itself."""
    for widths in ((4, 3, 2), (3, 5, 4, 2), (5, 2, 4)):
        model = FullyConnected(widths).build(seed=1)
        problem = hm.Problem(model, "squared", normal(2, 9, widths[0]), normal(3, 9, widths[-1]))
        jacobian = hm.output_jacobian(problem).reshape(9 * widths[-1], -1)
        hessian = hm.outer_product_hessian(problem).to_dense()
        ranks = {
            int(torch.linalg.matrix_rank(matrix))
            for matrix in (jacobian, jacobian @ jacobian.T, hessian, hm.fisher(problem).to_dense())
        }
        assert ranks == {hm.predict_ranks(FullyConnected(widths), "squared").outer_product.value}


def test_under_cross_entropy_the_jacobian_has_more_rank_than_the_outer_product_hessian() -> None:
    """The limit of that remark: the Hessian of the loss has a kernel, one direction of the outputs for each sample."""
    model = FullyConnected((4, 3, 3)).build(seed=1)
    problem = hm.Problem(model, "cross_entropy", normal(2, 9, 4), torch.arange(9) % 3)
    jacobian = hm.output_jacobian(problem).reshape(27, -1)
    hessian = hm.outer_product_hessian(problem).to_dense()
    assert int(torch.linalg.matrix_rank(jacobian)) > int(torch.linalg.matrix_rank(hessian, hermitian=True))


def test_bounds_linear_in_samples_exceed_the_parameters() -> None:
    """Section 5.3: N K of the bounds of Jacot et al. 2019 is above p from N = p / K on: 596 samples at the most."""
    least = []
    for widths in ((64, 30, 20, 10), (49, 50, 40, 30, 10), (16, 25, 20, 15, 10)):
        network = FullyConnected(widths)
        least.append(network.num_parameters // 10 + 1)
        assert hm.predict_ranks(network, "squared").loss.value < network.num_parameters < 10 * least[-1]
    assert least == [273, 596, 136]


@pytest.mark.parametrize("widths", [(3, 4, 2), (2, 3, 4, 3), (3, 2, 3, 2)], ids=str)
def test_eigenvalues_of_the_outer_product_hessian_are_those_of_one_small_matrix(widths: tuple[int, ...]) -> None:
    """S8.1: evals(H_o) = evals(sum_l W^{L:l+1} W^{l+1:L} (x) W^{1:l-1} W^{l-1:1} Sigma), but for zeros."""
    weights = [normal(k, after, before) for k, (before, after) in enumerate(pairwise(widths))]
    inputs = normal(5, widths[0], 6)
    sigma = inputs @ inputs.T / 6
    size = widths[-1] * widths[0]
    small = torch.zeros(size, size, dtype=torch.float64)
    for k in range(len(weights)):
        above, below = torch.eye(widths[-1]).double(), torch.eye(widths[0]).double()
        for weight in reversed(weights[k + 1 :]):
            above = above @ weight
        for weight in weights[:k]:
            below = weight @ below
        small += torch.kron(above @ above.T, below.T @ below @ sigma)

    def outputs(*some: Tensor) -> Tensor:
        value = inputs
        for weight in some:
            value = weight @ value
        return value.reshape(-1) / math.sqrt(6)

    jacobian = torch.cat(
        [
            part.reshape(len(outputs(*weights)), -1)
            for part in torch.func.jacrev(outputs, tuple(range(len(weights))))(*weights)
        ],
        1,
    )
    expected = torch.linalg.eigvals(small).real.sort(descending=True).values
    found = torch.linalg.eigvalsh(jacobian.T @ jacobian).flip(0)
    number = min(len(expected), len(found))
    torch.testing.assert_close(found[:number], expected[:number], rtol=1e-9, atol=1e-9 * float(found[0]))
    assert float(found[number:].abs().sum()) < 1e-9 * float(found[0])


# Paper 1 -----------------------------------------------------------------------------------------------------------


def test_both_parts_of_the_hessian_of_a_convolutional_network() -> None:
    """Equation 1 under ReLU and cross-entropy: each part by its own definition."""
    model = Convolutional(6, (1, 2), (3,), outputs=3, activation="relu").build(seed=0)
    inputs, targets = normal(1, 5, 6), torch.tensor([0, 1, 2, 0, 1])
    problem = hm.Problem(model, "cross_entropy", inputs, targets)
    jacobian = hm.output_jacobian(problem)
    logits = model(inputs)
    outer = torch.zeros_like(hm.loss_hessian(problem).to_dense())
    for sample in range(5):
        shares = torch.softmax(logits[sample], 0)
        outer += jacobian[sample].T @ (torch.diag(shares) - torch.outer(shares, shares)) @ jacobian[sample] / 5
    names = [name for name, _ in model.named_parameters()]
    shapes = [value.shape for _, value in model.named_parameters()]
    flat = torch.cat([value.detach().reshape(-1) for value in model.parameters()])

    def weighted(vector: Tensor) -> Tensor:
        pieces = vector.split([shape.numel() for shape in shapes])
        given = {name: piece.reshape(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        found = torch.func.functional_call(model, given, (inputs,))
        gradient = torch.softmax(logits.detach(), 1)
        gradient = gradient - torch.nn.functional.one_hot(targets, 3)
        return (gradient * found).sum() / 5

    functional = torch.func.hessian(weighted)(flat)
    torch.testing.assert_close(hm.outer_product_hessian(problem).to_dense(), outer.detach())
    torch.testing.assert_close(hm.functional_hessian(problem).to_dense(), functional)
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), outer.detach() + functional)


@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_locally_connected_networks_are_sums_of_small_dense_ones(activation: str) -> None:
    """Equation 7 and footnote 9: also with a non-linearity."""
    patches, size, filters, outputs = 3, 4, 2, 5
    network = LocallyConnected(patches, size, filters, outputs, activation=activation)
    model = network.build(seed=0)
    first, last = (value.detach() for value in model.parameters())
    inputs = normal(1, 7, patches * size)
    total = torch.zeros(7, outputs, dtype=torch.float64)
    for patch in range(patches):
        small = FullyConnected((size, filters, outputs), activation=activation).build(seed=0)
        own = first.reshape(patches, filters, size)[patch]
        columns = last.reshape(outputs, -1)[:, patch * filters : (patch + 1) * filters]
        small.load_state_dict(dict(zip(small.state_dict(), (own, columns), strict=True)))
        total += small(inputs[:, patch * size : (patch + 1) * size]).detach()
    torch.testing.assert_close(model(inputs).detach(), total)


def rotation(size: int) -> np.ndarray:
    """pi_R of paper 1: rotates the rows of what it multiplies."""
    return np.roll(np.eye(size, dtype=int), 1, axis=0)


@pytest.mark.parametrize(("size", "taps", "before", "after"), [(5, 2, 1, 1), (4, 3, 2, 3), (6, 4, 3, 2)])
def test_derivatives_of_toeplitz_matrices_up_to_the_order_of_rows(
    size: int, taps: int, before: int, after: int
) -> None:
    """The remark after Lemma 1: I (x) Q has the rows of I_{m m'} (x) the stacked rotations of a tall identity."""
    tall = np.eye(size, taps, dtype=int)
    shifted = [np.linalg.matrix_power(rotation(size), shift) @ tall for shift in range(size - taps + 1)]
    q = np.vstack([np.kron(np.eye(before, dtype=int), one) for one in shifted])
    printed = np.kron(np.eye(after * before, dtype=int), np.vstack(shifted))
    of_rows = [Counter(map(tuple, matrix)) for matrix in (np.kron(np.eye(after, dtype=int), q), printed)]
    assert of_rows[0] == of_rows[1]


def rearranged(m: int, n: int) -> np.ndarray:
    """P_(m): every m-th row of the identity of size m n, from the first, then from the second, .."""
    order = [row for first in range(m) for row in range(first, m * n, m)]
    return np.eye(m * n, dtype=int)[order]


@pytest.mark.parametrize(("m", "n"), [(2, 3), (4, 2), (3, 3), (1, 5)])
def test_auxiliary_matrices(m: int, n: int) -> None:
    """A.2.2: transposes, inverses, columns instead of rows; the commutation matrix K_(n, m) is P_(n), not P_(m)."""
    p_m, p_n = rearranged(m, n), rearranged(n, m)
    by_columns = np.eye(m * n, dtype=int)[:, [row for first in range(n) for row in range(first, m * n, n)]]
    commutation = np.zeros((m * n, m * n), dtype=int)
    for i in range(n):
        for j in range(m):
            commutation[i * m + j, j * n + i] = 1  # block (i, j), of size m x n, has a 1 at (j, i)
    assert (p_m == p_n.T).all()
    assert (p_m @ p_n == np.eye(m * n, dtype=int)).all()
    assert (p_m == by_columns).all()
    assert (p_n == commutation).all()
    assert (p_m == commutation).all() == (m == n or min(m, n) == 1)


def test_products_of_kronecker_products() -> None:
    """A.2.3: (A (x) B)(C (x) D) is AC (x) BD; AB (x) CD, as printed, has another shape, or other entries."""
    generator = np.random.default_rng(0)
    a, b, c, d, x = (generator.integers(-3, 4, size=(3, 3)) for _ in range(5))
    left = np.kron(a, b) @ np.kron(c, d)
    assert (left == np.kron(a @ c, b @ d)).all()
    assert (left != np.kron(a @ b, c @ d)).any()
    assert (np.kron(a, b.T) @ x.reshape(-1) == (a @ x @ b).reshape(-1)).all()


# Paper 2 -----------------------------------------------------------------------------------------------------------


def two_layers() -> tuple[hm.Problem, Tensor, Tensor]:
    model = FullyConnected((4, 5, 3), activation="relu").build(seed=0)
    inputs = normal(1, 8, 4).relu()
    return hm.Problem(model, "cross_entropy", inputs, torch.arange(8) % 3), inputs, model[2].weight.detach()


def test_the_first_layer_of_two_and_its_kronecker_approximation() -> None:
    """Equations 4 and 5: D W2^T A W2 D (x) x x^T on average, and the product of both averages."""
    problem, inputs, second = two_layers()
    model = problem.model
    size = 20
    hessian, output = torch.zeros(size, size, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for x in inputs:
        shares = torch.softmax(model(x[None]).detach()[0], 0)
        active = torch.diag((model[0](x[None])[0] > 0).double())
        m = active @ second.T @ (torch.diag(shares) - torch.outer(shares, shares)) @ second @ active
        output += m / 8
        hessian += torch.kron(m, torch.outer(x, x)) / 8
    found = layer_hessian(problem, "0")
    torch.testing.assert_close(found.to_dense(), hessian)
    product = found.kronecker_approximation()
    torch.testing.assert_close(product.to_dense(), torch.kron(output, inputs.T @ inputs / 8))


def test_the_hessian_in_the_outputs_of_all_layers() -> None:
    """Equations 255 to 260: G^T A G over z of all layers; exact under ReLU, by a double backward."""
    problem, inputs, second = two_layers()
    model = problem.model
    for x, target in zip(inputs, problem.targets, strict=True):

        def loss(added: Tensor, x: Tensor = x, target: Tensor = target) -> Tensor:
            hidden = (model[0](x[None])[0] + added[:5]).relu()
            logits = second @ hidden + added[5:]
            return torch.nn.functional.cross_entropy(logits[None], target[None])

        shares = torch.softmax(model(x[None]).detach()[0], 0)
        active = torch.diag((model[0](x[None])[0] > 0).double())
        g = torch.cat([second @ active, torch.eye(3, dtype=torch.float64)], 1)
        expected = g.T @ (torch.diag(shares) - torch.outer(shares, shares)) @ g
        found = torch.func.hessian(loss)(torch.zeros(8, dtype=torch.float64))
        torch.testing.assert_close(found, expected)


def test_a_layer_of_the_hessian_is_two_cuts_around_a_product() -> None:
    """Appendix D: zeros outside the layer before and behind H v give the product of the layer's own Hessian."""
    problem, _, _ = two_layers()
    whole, own = hm.loss_hessian(problem), layer_hessian(problem, "0")
    vector = normal(4, find_layer(problem, "0").size)
    extended = torch.zeros(whole.size, dtype=torch.float64)
    extended[: own.size] = vector
    torch.testing.assert_close((whole @ extended)[: own.size], own @ vector)


def test_clusters_by_class_are_sufficient_for_c_outliers() -> None:
    """G.5: gradients that depend on the class alone make a matrix of rank c at most, scattered ones do not; and
    gradients that cluster by logit alone have the same rank, so that clusters by class are not necessary."""
    generator = np.random.default_rng(0)
    classes, size = 4, 12
    centres = generator.normal(size=(classes, size))
    noise = generator.normal(size=(classes, classes, size))
    by_class = np.repeat(centres[:, None], classes, 1)
    by_logit = np.repeat(centres[None], classes, 0)
    ranks = [
        np.linalg.matrix_rank(np.einsum("ija,ijb->ab", some, some)) for some in (by_class, by_logit, by_class + noise)
    ]
    assert ranks == [classes, classes, size]


# Network, method, bound, KL, stochastic loss, log prior deviation, as Table 10 prints them.
ROWS_OF_TABLE_10 = (
    ("T-600", "BASE", 0.154, 4612.6, 0.03373, -1.3313),
    ("T-600", "APPR", 0.1432, 3980.6, 0.03417, -1.6063),
    ("T-600", "ITER", 0.1198, 3766.1, 0.02347, -1.2913),
    ("T-600", "ITER(D)", 0.1199, 3751.1, 0.02366, -1.2913),
    ("T-600", "ITER.M", 0.1255, 3929.9, 0.02494, -1.3213),
    ("T-600^2", "BASE", 0.1921, 6966.6, 0.03262, -1.4163),
    ("T-600^2", "APPR", 0.1658, 5176.1, 0.03468, -2.0963),
    ("T-600^2", "ITER", 0.1456, 5086.5, 0.02473, -1.7963),
    ("T-600^2", "ITER(D)", 0.1443, 4956.8, 0.02523, -1.7963),
    ("T-600^2", "ITER.M", 0.1502, 5024.5, 0.02767, -1.8363),
    ("T-1200", "BASE", 0.1754, 5917.6, 0.03295, -1.5463),
    ("T-1200", "APPR", 0.1725, 5318.8, 0.03701, -1.8313),
    ("T-1200", "ITER", 0.1417, 5071.0, 0.02292, -1.4763),
    ("T-1200", "ITER(D)", 0.1413, 5021.1, 0.02316, -1.4763),
    ("T-1200", "ITER.M", 0.1493, 5185.4, 0.02576, -1.5363),
    ("T-300^2", "BASE", 0.1686, 5514.9, 0.03329, -1.1513),
    ("T-300^2", "APPR", 0.1434, 4105.4, 0.03296, -1.8063),
    ("T-300^2", "ITER", 0.1249, 3873.2, 0.02514, -1.4763),
    ("T-300^2", "ITER(D)", 0.1244, 3833.7, 0.02526, -1.4763),
    ("T-300^2", "ITER.M", 0.1308, 3987.2, 0.02721, -1.5713),
    ("R-600", "BASE", 0.6046, 1144.8, 0.507, -1.8263),
    ("R-600", "APPR", 0.5653, 390.25, 0.5066, -2.4713),
    ("R-600", "ITER(D)", 0.5681, 431.62, 0.5066, -2.4513),
    ("R-600", "ITER.M", 0.5616, 340.62, 0.5065, -2.5263),
    ("T-200^2_10", "BASE", 0.4165, 21896.0, 0.04706, -1.1513),
    ("T-200^2_10", "APPR", 0.2621, 11068.0, 0.0366, -1.4213),
    ("T-200^2_10", "ITER", 0.2145, 9821.0, 0.02229, -1.1513),
    ("T-200^2_10", "ITER(D)", 0.2311, 9758.5, 0.03071, -1.1513),
    ("T-200^2_10", "ITER.M", 0.2728, 13406.0, 0.02605, -1.1513),
    ("T-600_10", "BASE", 0.2879, 12674.0, 0.03854, -1.1513),
    ("T-600_10", "APPR", 0.2424, 9095.8, 0.04159, -1.6013),
    ("T-600_10", "ITER", 0.2132, 8697.9, 0.02947, -1.3063),
    ("T-600_10", "ITER.M", 0.2227, 8870.9, 0.03294, -1.4613),
    ("T-600^2_10", "BASE", 0.3472, 17212.0, 0.03884, -1.1513),
    ("T-600^2_10", "APPR", 0.2896, 11618.0, 0.04723, -2.0563),
    ("T-600^2_10", "ITER", 0.2431, 10568.0, 0.03057, -1.5713),
)


def bound_of(kl: float, loss: float, log_deviation: float) -> float:
    """kl^-1(loss, B) for 60,000 samples, delta 0.025 and the grid of Dziugaite and Roy, b = 100 and c = 0.1."""
    index = max(1, round(100 * (math.log(0.1) - 2 * log_deviation)))
    return binary_kl_inverse(loss, complexity(kl, 60_000, index, 0.025))


def test_bounds_of_table_10_follow_from_its_own_columns() -> None:
    """To the printed digits, but for the rows whose prior has the variance c: there the index is 0, not on the grid."""
    gaps = [(bound_of(*row[3:]) - row[2], row[-1]) for row in ROWS_OF_TABLE_10]
    on_grid = [gap for gap, log_deviation in gaps if log_deviation < math.log(0.1) / 2 - 0.005]
    at_the_end = [gap for gap, log_deviation in gaps if log_deviation >= math.log(0.1) / 2 - 0.005]
    assert (len(on_grid), len(at_the_end)) == (29, 7)
    assert max(map(abs, on_grid)) < 6e-5
    assert [round(gap, 4) for gap in (min(at_the_end), max(at_the_end))] == [0.0003, 0.0004]


# Paper 3 -----------------------------------------------------------------------------------------------------------


def best_rank(complexities: list[Fraction], gamma: Fraction) -> set[int]:
    """The ranks k that minimise k + gamma C_k."""
    values = {k: k + gamma * c for k, c in enumerate(complexities, 1)}
    return {k for k, value in values.items() if value == min(values.values())}


def test_small_penalties_prefer_rank_one_and_some_recover_corners_of_the_hull() -> None:
    """Equation 1: min k + gamma C_k. Rank 1 for every small gamma; k alone is best for some gamma exactly where
    (k, C_k) is a corner of the lower convex hull, so that not every rank can be recovered."""
    convex = [Fraction(value) for value in (40, 15, 5, 1)]
    assert best_rank(convex, Fraction(1, 100)) == {1}
    for k in (1, 2, 3, 4):
        slopes = [convex[i - 1] - convex[i] for i in (k - 1, k) if 0 < i < len(convex)]
        between = sum(slopes, Fraction(0)) / len(slopes) if 1 < k < 4 else (2 * slopes[0] if k == 1 else slopes[0] / 2)
        assert best_rank(convex, 1 / between) == {k}
    inside = [Fraction(value) for value in (40, 35, 5)]
    gammas = {Fraction(1, number) for number in range(1, 200)} | {Fraction(1, 35), Fraction(2, 35)}
    assert all(2 not in best_rank(inside, gamma) for gamma in gammas)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("num_layers", [2, 6, 20])
def test_from_how_many_samples_on_rank_one_costs_more(k: int, num_layers: int) -> None:
    """Section 4: N > ((k + C / L) / c)^(k L / (2 k - 2)) is where L c N^((2 / L)(1 - 1 / k)) is above k L + C."""
    c, constant = 0.35, 2.5
    number = ((k + constant / num_layers) / c) ** (k * num_layers / (2 * k - 2))
    for factor, is_above in ((1.01, True), (0.99, False)):
        of_rank_one = num_layers * c * (factor * number) ** (2 / num_layers * (1 - 1 / k))
        assert (of_rank_one > k * num_layers + constant) is is_above


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_as_many_units_as_there_are_moments_suffice(samples: int) -> None:
    """Remark 2: N (N + 1) hidden units. The outputs and the least norms before and behind a layer depend on
    sum z z^T and sum s(z) s(z)^T of its units z in R^N alone, N (N + 1) numbers: by Caratheodory's theorem so many
    units, scaled, have the same sums."""
    generator = np.random.default_rng(samples)
    units = generator.normal(size=(40, samples))
    pairs = np.triu_indices(samples)

    def moments(some: np.ndarray) -> np.ndarray:
        rectified = np.maximum(some, 0)
        return np.array(
            [[*np.outer(z, z)[pairs], *np.outer(s, s)[pairs]] for z, s in zip(some, rectified, strict=True)]
        )

    total = moments(units).sum(0)
    shares, residual = nnls(moments(units).T, total)
    kept = shares > 1e-12
    assert kept.sum() <= samples * (samples + 1) < 40
    assert residual < 1e-9 * np.linalg.norm(total)
    fewer = np.sqrt(shares[kept])[:, None] * units[kept]
    outputs = generator.normal(size=(2, samples))
    inputs = generator.normal(size=(samples + 1, samples))

    def norms(some: np.ndarray) -> tuple[float, float]:
        rectified = np.maximum(some, 0)
        before, behind = some @ np.linalg.pinv(inputs), outputs @ np.linalg.pinv(rectified)
        np.testing.assert_allclose(before @ inputs, some, atol=1e-9)
        np.testing.assert_allclose(behind @ rectified, outputs, atol=1e-8)
        return float((before**2).sum()), float((behind**2).sum())

    np.testing.assert_allclose(norms(fewer), norms(units), rtol=1e-6)


def test_a_small_ridge_fits_first_and_then_shrinks() -> None:
    """Appendix F: the cost falls at once, then the parameters slowly. Adam, three hidden layers, ridge 1e-4."""
    model = FullyConnected((2, 20, 20, 20, 1), activation="relu", bias=True).build(seed=0)
    inputs = normal(1, 30, 2)
    targets = torch.sin(inputs[:, :1])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    history = []
    for _ in range(1500):
        cost = (model(inputs) - targets).square().mean()
        norm = sum(value.square().sum() for value in model.parameters())
        assert isinstance(norm, Tensor)
        history.append((float(cost.detach()), float(norm.detach())))
        optimiser.zero_grad()
        (cost + 1e-4 * norm).backward()
        optimiser.step()
    (cost, norm), (early_cost, early_norm), (_, last_norm) = history[0], history[200], history[-1]
    assert early_cost < 0.02 * cost
    assert abs(early_norm - norm) < 0.2 * norm
    assert last_norm < 0.7 * early_norm
    assert max(cost for cost, _ in history[1000:]) < 0.02 * history[0][0]


# Paper 4 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "hidden"), [(2, 2), (3, 2)])
def test_eigenvectors_of_linear_teachers(inputs: int, hidden: int) -> None:
    """Appendix A.3, in fractions: (v (x) z', sqrt(l1) z) with v = W2 itself, and (v (x) z', 0) on the kernel of W1."""
    rows = [[1, 2], [-2, 1]] if inputs == 2 else [[1, 2, 0], [-2, 1, 0]]
    last = [3, -1]
    network = TeacherStudent(inputs, hidden, activation="identity")
    hessian = network.population_hessian(rows, last)
    squares = [Fraction(5), Fraction(5), Fraction(0)][:inputs]  # of the singular values; the axes are the vectors z'
    for axis, square in enumerate(squares):
        z = [Fraction(int(axis == place)) for place in range(inputs)]
        below = [sum(Fraction(w) * x for w, x in zip(row, z, strict=True)) for row in rows]  # sqrt(l1) z = W1 z'
        y = [v * x for v in last for x in z] + below
        total = square + sum(Fraction(v) ** 2 for v in last)
        product = [sum(Fraction(h) * entry for h, entry in zip(row, y, strict=True)) for row in hessian]
        assert product == [total * entry for entry in y]
        unit = [v * x / math.sqrt(10) for v in last for x in z] + below
        if square:
            found = np.array(hessian, dtype=float) @ np.array(unit, dtype=float)
            assert not np.allclose(found, float(total) * np.array(unit, dtype=float))


def test_square_first_weights_have_no_kernel() -> None:
    """Appendix A.3 says Ni >= Nh; at Ni = Nh a random W1 is invertible. Exact, over a field of 2^31 - 1 elements."""
    from flint import nmod_mat

    generator = np.random.default_rng(0)
    prime = 2**31 - 1
    for inputs, hidden in ((3, 3), (6, 6), (10, 10), (4, 3), (11, 10), (3, 5)):
        for _ in range(20):
            entries = [int(value) for value in generator.integers(0, prime, size=inputs * hidden)]
            rank = nmod_mat(hidden, inputs, entries, prime).rank()
            assert (inputs - rank > 0) is (inputs > hidden)


@pytest.mark.parametrize("correlation", [0.6, -0.3])
def test_the_mean_product_of_error_functions(correlation: float) -> None:
    """Appendix C: arctan of the components of Sigma is right; with F = (Sigma^-1)_12 its sign is the opposite."""
    sigma = np.array([[1.3, correlation], [correlation, 0.8]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    root = np.linalg.cholesky(sigma)
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    z = np.einsum("ab,bij->aij", root, np.array([x, y]))
    mean = float(
        (np.outer(weights, weights) * erf(z[0] / math.sqrt(2)) * erf(z[1] / math.sqrt(2))).sum() / (2 * math.pi)
    )
    (a, f), (_, b) = np.linalg.inv(sigma)
    in_inverse = 2 / math.pi * math.atan(f / math.sqrt((a * b - f * f) * (a * b + a + b - f * f + 1)))
    determinant = float(np.linalg.det(np.eye(2) + sigma))
    in_sigma = 2 / math.pi * math.atan(correlation / math.sqrt(determinant))
    assert mean == pytest.approx(in_sigma, abs=1e-8)
    assert mean == pytest.approx(-in_inverse, abs=1e-8)
