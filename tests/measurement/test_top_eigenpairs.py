"""Some eigenpairs of operators with a known spectrum, by products alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput, UnknownName
from hessmap.linalg.lanczos import BlockLanczos, ScaledProduct
from hessmap.measurement.eigenpairs import top_eigenpairs
from hessmap.measurement.wanted_pairs import ENDS
from hessmap.records import EigenpairsMeasurement, Record
from known_spectra import KNOWN_MATRICES, Counted, Floats, KnownMatrix, random_orthogonal, rotated

NOT_EMPTY = [case for case in KNOWN_MATRICES if len(case.eigenvalues)]


def wanted(eigenvalues: Floats, which: str, count: int) -> Floats:
    descending = np.sort(eigenvalues)[::-1]
    if which == "both_ends" and 2 * count < len(descending):
        return np.concatenate([descending[:count], descending[-count:]])
    if which == "magnitude":
        return np.sort(np.abs(descending))[::-1][:count]
    return {"largest": descending[:count], "smallest": descending[-count:]}.get(which, descending)


def check(found: EigenpairsMeasurement, matrix: Floats, eigenvalues: Floats) -> None:
    """Values, orthonormality, true residuals, and that the claimed ones are the true ones."""
    norm = float(np.abs(eigenvalues).max(initial=0.0)) or 1.0
    vectors = found.eigenvectors
    values = np.sort(np.abs(found.eigenvalues))[::-1] if found.which == "magnitude" else found.eigenvalues
    count = len(values) if found.which != "both_ends" else (len(values) + 1) // 2
    expected = wanted(eigenvalues, found.which, count)
    assert found.converged
    assert np.abs(values - expected).max() <= max(found.tolerance, 1e-13) * norm
    assert (np.diff(found.eigenvalues) <= 0).all()
    assert np.abs(vectors.T @ vectors - np.eye(vectors.shape[1])).max() < 1e-12
    residuals = np.linalg.norm((matrix @ vectors - vectors * found.eigenvalues) / norm, axis=0)
    assert residuals.max() <= max(found.tolerance, 1e-12)
    assert np.abs(residuals - found.residuals / norm).max() < 1e-12  # what is dropped as dependent is not claimed
    assert found.residual_check / norm <= 3 * float(np.linalg.norm(residuals)) + 1e-12


@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize("case", NOT_EMPTY, ids=[case.name for case in NOT_EMPTY])
def test_known_spectra_are_found_from_every_end(case: KnownMatrix, which: str) -> None:
    size = len(case.eigenvalues)
    for count in sorted({1, min(3, size), size}):
        check(top_eigenpairs(case.matrix, count, which=which), case.matrix, case.eigenvalues)


@pytest.mark.parametrize("block_size", [1, 3, 8, 32])
@pytest.mark.parametrize("count", [5, 40])
def test_thirty_copies_of_an_eigenvalue_are_all_found(block_size: int, count: int) -> None:
    eigenvalues = np.concatenate([np.full(30, 5.0), np.linspace(0, 4, 370)])
    matrix = rotated(eigenvalues)
    found = top_eigenpairs(matrix, count, block_size=block_size)
    check(found, matrix, eigenvalues)
    assert (np.abs(found.eigenvalues - 5) < 1e-8).sum() == min(count, 30)


def test_copies_are_found_where_hardly_any_directions_are_left() -> None:
    eigenvalues = np.array([0.0] * 12 + [1.0] * 6)
    matrix = rotated(eigenvalues, seed=18)
    check(top_eigenpairs(matrix, 12, which="smallest", block_size=1), matrix, eigenvalues)


def test_copies_that_mix_with_those_found_before_are_not_overlooked() -> None:
    eigenvalues = np.array([4.0] * 10 + [0.0] * 10 + [2.0] * 9)
    for seed in range(5):
        matrix = rotated(eigenvalues, seed=29 + seed)
        check(top_eigenpairs(matrix, 9, which="smallest", block_size=1, seed=seed), matrix, eigenvalues)


def test_without_the_probe_a_single_vector_misses_the_copies() -> None:
    """The guard bites: one Krylov sequence converges with a single copy of each eigenvalue."""
    eigenvalues = np.concatenate([np.full(30, 5.0), np.linspace(0, 4, 370)])
    matrix = torch.from_numpy(rotated(eigenvalues))
    process = BlockLanczos(ScaledProduct(matrix.__matmul__, 400), 200, torch.Generator().manual_seed(0))
    process.start(torch.empty(0, 400, dtype=torch.float64), 1)
    for _ in range(25):
        process.expand()
    values, _, residuals = process.ritz()
    assert float(residuals[-1]) < 1e-6 * process.norm
    assert ((process.product.scale * values - 5).abs() < 0.9).sum() == 1


@pytest.mark.parametrize("rounded", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("block_size", [1, 8])
def test_the_basis_stays_orthonormal_where_couplings_fall_to_rounding(block_size: int, rounded: bool) -> None:
    matrix = torch.from_numpy(rotated(np.concatenate([2.0 ** -np.arange(60.0), np.zeros(340)])))
    narrow = matrix.float().double()
    product = (lambda vectors: (narrow @ vectors.float().double()).float().double()) if rounded else matrix.__matmul__
    process = BlockLanczos(ScaledProduct(product, 400), 250, torch.Generator().manual_seed(0))
    process.start(torch.empty(0, 400, dtype=torch.float64), block_size)
    while process.dimension + block_size <= 200:
        process.expand()
    basis, block = process.basis, process.block
    vectors = torch.cat([basis, block])
    assert float((vectors @ vectors.T - torch.eye(len(vectors))).abs().max()) < 1e-13
    images = product(basis.T) / process.product.scale
    rest = images - basis.T @ process.projection - block.T @ process.coupling
    assert float(rest.norm(dim=0).max()) < (1e-6 if rounded else 1e-13) * process.norm


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_slowly_falling_spectrum_misses_no_eigenvalue(block_size: int) -> None:
    eigenvalues = 1 / (1 + np.arange(900.0))
    matrix = rotated(eigenvalues)
    found = top_eigenpairs(matrix, 50, block_size=block_size, tolerance=1e-6)
    check(found, matrix, eigenvalues)
    assert found.num_products < 450


def test_thick_restarts_keep_to_the_bound_of_vectors() -> None:
    eigenvalues = 1 / (1 + np.arange(600.0))
    matrix = rotated(eigenvalues)
    found = top_eigenpairs(matrix, 20, block_size=4, max_basis=40)
    check(found, matrix, eigenvalues)
    assert found.num_restarts > 2


def test_small_eigenvalues_can_be_asked_for_relative_to_themselves() -> None:
    eigenvalues = 10.0 ** -np.linspace(0, 9, 60)
    matrix = np.diag(eigenvalues)
    found = top_eigenpairs(matrix, 30, tolerance=1e-6, relative_to="eigenvalue")
    residuals = np.linalg.norm(matrix @ found.eigenvectors - found.eigenvectors * found.eigenvalues, axis=0)
    assert (residuals <= 1e-6 * found.eigenvalues).all()


def test_a_good_start_saves_products() -> None:
    eigenvalues = np.concatenate([np.linspace(2, 1.5, 6), np.linspace(1, 0, 494)])
    matrix = rotated(eigenvalues)
    near = random_orthogonal(500, 1)[:, :6] + 1e-6 * np.random.default_rng(0).standard_normal((500, 6))
    cold = top_eigenpairs(matrix, 6, block_size=6)
    warm = top_eigenpairs(matrix, 6, block_size=6, start=near)
    check(warm, matrix, eigenvalues)
    assert warm.num_products < cold.num_products - 12


def test_a_start_may_hold_more_vectors_than_there_are_dimensions() -> None:
    start = np.random.default_rng(0).standard_normal((5, 9))
    assert top_eigenpairs(np.diag(np.arange(5.0)), 2, start=start).eigenvalues == pytest.approx([4, 3])
    wide = np.random.default_rng(0).standard_normal((300, 40))
    found = top_eigenpairs(np.diag(np.arange(300.0)), 5, start=wide, block_size=3)
    assert found.eigenvalues == pytest.approx([299, 298, 297, 296, 295], abs=1e-6)


def test_an_operator_with_products_that_are_not_finite_is_refused() -> None:
    broken = Counted(np.diag(np.arange(9.0)))
    broken.matrix[3, 3] = torch.inf
    with pytest.raises(InvalidInput, match="the products of an operator must be finite; there is NaN or inf in one"):
        top_eigenpairs(broken, 2)


class Rounded(Counted):
    """Products rounded to float32 on the way in and out, as those of a model in float32 are, and stored.

    The sums are taken in float64: in which order a machine adds float32 numbers is not what is tested."""

    def __init__(self, matrix: Floats) -> None:
        super().__init__(matrix)
        self.products: list[tuple[Floats, Floats]] = []

    def matmat(self, vectors: torch.Tensor) -> torch.Tensor:
        self.count += vectors.shape[1]
        image = (self.matrix.float().double() @ vectors.float().double()).float().double()
        self.products.append((vectors.numpy().copy(), image.numpy().copy()))
        return image

    def images_of(self, vectors: Floats) -> Floats:
        """What the operator itself returned for these vectors: another product would have bits of its own."""
        given, images = (np.concatenate(columns, axis=1) for columns in zip(*self.products, strict=True))
        rounded = vectors.astype(np.float32)  # an operator in float32 gets vectors in float32
        distances = np.abs(given[:, :, None] - rounded[:, None]).max(0)
        assert distances.min(0).max() < 1e-12
        return images[:, distances.argmin(0)]


def test_an_operator_in_float32_has_a_tolerance_that_it_can_meet() -> None:
    eigenvalues = np.concatenate([np.linspace(2, 1.5, 6), np.linspace(1, 0, 294)])
    matrix = rotated(eigenvalues)
    narrow = Rounded(matrix)
    narrow.dtype = torch.float32
    found = top_eigenpairs(narrow, 6)
    assert (found.tolerance, found.converged) == (1e-5, True)
    assert found.eigenvalues == pytest.approx(eigenvalues[:6], abs=1e-6)
    assert found.num_products == narrow.count
    images = narrow.images_of(found.eigenvectors)
    true = np.linalg.norm(images - found.eigenvectors * found.eigenvalues, axis=0)
    assert found.residuals == pytest.approx(true, rel=1e-6)  # not those of the recurrence
    assert top_eigenpairs(matrix, 6).tolerance == 1e-8


def test_a_tolerance_below_the_rounding_of_float32_is_not_called_converged() -> None:
    """The recurrence alone would say so: its residuals go on falling where those of products do not."""
    matrix = rotated(np.concatenate([np.linspace(2, 1.5, 6), np.linspace(1, 0, 294)]))
    narrow = Rounded(matrix)
    claimed = top_eigenpairs(narrow, 6, tolerance=1e-8, max_products=3000)  # taken for float64
    assert (claimed.residuals <= 1e-8 * claimed.norm).all()
    assert any("a product with the vectors found shows residuals" in note for note in claimed.provenance.notes)
    assert not claimed.converged
    narrow.dtype = torch.float32
    found = top_eigenpairs(narrow, 6, tolerance=1e-8, max_products=3000)
    assert not found.converged
    assert found.residuals.max() > 1e-8 * found.norm


def test_a_problem_in_float32_converges_by_default() -> None:
    import hessmap as hm

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    inputs, labels = torch.randn(50, 5), torch.randint(3, (50,))
    narrow = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels, dtype=torch.float32))
    wide = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels, dtype=torch.float64))
    found, truth = top_eigenpairs(narrow, 4), top_eigenpairs(wide, 4)
    assert (found.tolerance, found.converged, truth.tolerance) == (1e-5, True, 1e-8)
    assert found.eigenvalues == pytest.approx(truth.eigenvalues, rel=1e-4)
    assert hm.sharpness(narrow).converged
    solved = hm.measurement.krylov_solve(narrow, np.ones(narrow.size), shift=1.0)
    assert (solved.tolerance, solved.converged) == (1e-5, True)


def test_products_are_counted_and_bounded() -> None:
    operator = Counted(rotated(np.linspace(0, 1, 300)))
    found = top_eigenpairs(operator, 3, block_size=3)
    assert found.converged
    assert found.num_products == operator.count
    stopped = top_eigenpairs(operator, 3, block_size=3, max_products=30)
    assert not stopped.converged
    assert stopped.num_products <= 40
    assert stopped.residuals.max() > 1e-8


def test_the_same_seed_gives_the_same_pairs_and_the_record_survives_json() -> None:
    matrix = rotated(np.linspace(0, 1, 120))
    first, second = (top_eigenpairs(matrix, 4, seed=3) for _ in range(2))
    assert first == second
    assert (first.eigenvectors == second.eigenvectors).all()
    assert Record.from_json(first.to_json()) == first


@given(data=st.data())
def test_any_spectrum_is_found(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 60))
    few = data.draw(
        st.lists(st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 2)), min_size=1, max_size=6)
    )
    eigenvalues = np.array([few[place % len(few)] for place in range(size)])
    count = data.draw(st.integers(1, size))
    which = data.draw(st.sampled_from(ENDS))
    scale = 10.0 ** data.draw(st.integers(-14, 14))
    block_size = data.draw(st.integers(1, size))
    matrix = rotated(eigenvalues, seed=size) * scale
    found = top_eigenpairs((matrix + matrix.T) / 2, count, which=which, block_size=block_size)
    check(found, matrix, eigenvalues * scale)


def test_a_basis_must_hold_what_is_wanted_and_two_blocks() -> None:
    matrix = rotated(np.linspace(0, 1, 60))
    with pytest.raises(InvalidInput, match="max_basis must be at least 13; got 12"):
        top_eigenpairs(matrix, 5, block_size=4, max_basis=12)
    assert top_eigenpairs(matrix, 5, block_size=4, max_basis=13, max_products=200).num_products <= 220


def test_bad_questions_get_a_sentence() -> None:
    matrix = np.eye(5)
    with pytest.raises(InvalidInput, match="count must be between 1 and the size 5 of the operator; got 6"):
        top_eigenpairs(matrix, 6)
    with pytest.raises(InvalidInput, match="count must be between 1 and the size 5 of the operator; got 0"):
        top_eigenpairs(matrix, 0)
    with pytest.raises(UnknownName, match="which must be one of largest, smallest, both_ends, magnitude; got 'top'"):
        top_eigenpairs(matrix, 1, which="top")
    with pytest.raises(UnknownName, match="relative_to must be one of norm, eigenvalue"):
        top_eigenpairs(matrix, 1, relative_to="trace")
    with pytest.raises(InvalidInput, match="tolerance must be between 1e-15 and 1"):
        top_eigenpairs(matrix, 1, tolerance=0.0)
    with pytest.raises(InvalidInput, match=r"a measurement needs a square matrix; got shape \(2, 3\)"):
        top_eigenpairs(np.ones((2, 3)), 1)
    with pytest.raises(InvalidInput, match=r"start must contain vectors with 5 entries as columns; got shape \(4, 2\)"):
        top_eigenpairs(matrix, 1, start=np.ones((4, 2)))
    with pytest.raises(InvalidInput, match="block_size must be between 1 and the size 5; got 6"):
        top_eigenpairs(matrix, 1, block_size=6)
    with pytest.raises(InvalidInput, match="max_basis must be at least"):
        top_eigenpairs(np.eye(90), 10, max_basis=12)
