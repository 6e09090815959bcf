"""Effective dimension, reconstruction error and overlap, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.measurement import effective_dimension, reconstruction_error, spectrum, subspace_overlap
from hessmap.records import EffectiveDimension, ReconstructionErrors, Record, Spectrum, SubspaceOverlap
from known_spectra import KNOWN_MATRICES, NAMES, KnownMatrix, random_orthogonal

each_known_matrix = pytest.mark.parametrize("case", KNOWN_MATRICES, ids=NAMES)


@each_known_matrix
@pytest.mark.parametrize("relative_epsilon", [1e-6, 0.3, 100.0])
def test_effective_dimension_is_the_sum_over_the_known_eigenvalues(case: KnownMatrix, relative_epsilon: float) -> None:
    epsilon = relative_epsilon * (case.norm or 1.0)
    found = effective_dimension(case.matrix, epsilon)
    magnitudes = np.abs(case.eigenvalues)
    known = float((magnitudes / (magnitudes + epsilon)).sum())
    assert found.error_bound is not None
    assert abs(found.value - known) <= 4 * found.error_bound + 1e-14
    assert found.error_bound <= 1e-11 / relative_epsilon
    assert found.value <= case.rank + 1e-6
    assert found == effective_dimension(spectrum(case.matrix), epsilon)


@each_known_matrix
def test_nuclear_ratio_is_at_most_the_rank_and_counts_negative_eigenvalues_by_magnitude(case: KnownMatrix) -> None:
    found = effective_dimension(case.matrix, epsilon=1.0)
    known = float(np.abs(case.eigenvalues).sum() / case.norm) if case.norm else 0.0
    assert found.nuclear_ratio == pytest.approx(known, rel=1e-12, abs=0)
    assert found.num_negative == int((case.eigenvalues < 0).sum())


def test_effective_dimension_tends_to_the_rank_as_epsilon_vanishes() -> None:
    values = [effective_dimension(KNOWN_MATRICES[1].matrix, epsilon).value for epsilon in (1.0, 1e-2, 1e-4, 1e-6)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(3, abs=1e-5)


def test_effective_dimension_is_bounded_at_the_pole_of_the_signed_formula() -> None:
    found = effective_dimension(np.diag([1.0, -0.5]), epsilon=0.5)
    assert found.value == pytest.approx(1 / 1.5 + 0.5 / 1.0)
    assert found.num_negative == 1


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.inf, np.nan])
def test_epsilon_must_be_positive(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be positive and finite; got"):
        effective_dimension(np.eye(2), epsilon)


@each_known_matrix
def test_reconstruction_error_is_that_of_the_truncated_matrix(case: KnownMatrix) -> None:
    matrix = case.matrix
    found = reconstruction_error(matrix)
    assert found.ranks.tolist() == list(range(len(matrix) + 1))
    assert (np.diff(found.errors) <= 0).all()
    left, values, right = np.linalg.svd(matrix) if matrix.size else (matrix, np.zeros(0), matrix)
    norm = float(np.sqrt(np.square(values / (case.norm or 1)).sum())) or 1.0
    for rank in sorted({0, 1, case.rank, len(matrix)} & set(range(len(matrix) + 1))):
        rest = (matrix - (left[:, :rank] * values[:rank]) @ right[:rank]) / (case.norm or 1)
        assert found.errors[rank] == pytest.approx(np.linalg.norm(rest) / norm, abs=1e-13)
    assert found == reconstruction_error(spectrum(matrix))


@each_known_matrix
def test_nothing_is_lost_at_the_rank_and_everything_at_zero(case: KnownMatrix) -> None:
    found = reconstruction_error(case.matrix, ranks=[case.rank, 0])
    assert found.noise_floor is not None
    assert found.errors[0] <= 4 * found.noise_floor
    assert found.noise_floor < 1e-12
    assert found.errors[1] == pytest.approx(float(case.rank > 0))


def test_largest_magnitudes_are_kept_first() -> None:
    assert reconstruction_error(np.diag([3.0, -4.0]), ranks=[1]).errors == pytest.approx([0.6])


def test_ranks_beyond_the_size_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"ranks must be between 0 and the size 3; got \[4\]"):
        reconstruction_error(np.eye(3), ranks=[2, 4])
    with pytest.raises(InvalidInput, match=r"ranks must be between 0 and the size 3; got \[-1\]"):
        reconstruction_error(np.eye(3), ranks=[-1])


def test_partial_spectra_are_refused() -> None:
    top = Spectrum(np.array([3.0]), "lanczos", True, np.zeros(1), 3.0, size=10)
    with pytest.raises(InvalidInput, match="an effective dimension needs the whole spectrum; this one holds 1 of 10"):
        effective_dimension(top, 1.0)
    with pytest.raises(InvalidInput, match="a reconstruction error needs the whole spectrum; this one holds 1 of 10"):
        reconstruction_error(top)


@share_of_examples(0.5)
@given(size=st.integers(1, 12), share=st.floats(0, 1), seed=st.integers(0, 10**6))
def test_overlap_is_the_mean_squared_cosine_of_the_canonical_angles(size: int, share: float, seed: int) -> None:
    count = max(1, round(share * size))
    first, second = random_orthogonal(size, seed)[:, :count], random_orthogonal(size, seed + 1)[:, :count]
    cosines = np.linalg.svd(first.T @ second, compute_uv=False)
    found = subspace_overlap(first, torch.from_numpy(second.copy()))
    assert found.value == pytest.approx(np.square(cosines).mean())
    assert found.value == pytest.approx(subspace_overlap(second, first).value)
    mixed = first @ random_orthogonal(count, seed + 2)
    assert subspace_overlap(first, mixed).value == pytest.approx(1)
    assert subspace_overlap(mixed, second).value == pytest.approx(found.value)
    assert found.chance == count / size


def test_orthogonal_subspaces_do_not_overlap_and_random_ones_do_by_chance() -> None:
    rotation = random_orthogonal(12, seed=0)
    assert subspace_overlap(rotation[:, :4], rotation[:, 4:8]).value == pytest.approx(0, abs=1e-28)
    drawn = [subspace_overlap(rotation[:, :4], random_orthogonal(12, seed)[:, :4]).value for seed in range(1, 200)]
    assert np.mean(drawn) == pytest.approx(4 / 12, abs=0.03)


def test_bases_that_give_no_overlap_are_refused() -> None:
    basis = random_orthogonal(6, seed=0)[:, :2]
    with pytest.raises(InvalidInput, match=r"must be orthonormal; the second basis U .* up to 0\.21"):
        subspace_overlap(basis, 1.1 * basis)
    with pytest.raises(InvalidInput, match=r"equal dimension in one space; got bases of shape \(6, 2\) and \(6, 1\)"):
        subspace_overlap(basis, basis[:, :1])
    with pytest.raises(InvalidInput, match="at least one basis vector"):
        subspace_overlap(basis[:, :0], basis[:, :0])


def test_records_survive_json() -> None:
    matrix = KNOWN_MATRICES[5].matrix
    vectors = spectrum(matrix, vectors=True).eigenvectors
    assert vectors is not None
    records: list[Record] = [
        effective_dimension(matrix, 1.0),
        reconstruction_error(matrix),
        subspace_overlap(vectors[:, :2], vectors[:, 1:3]),
    ]
    for record, kind in zip(records, (EffectiveDimension, ReconstructionErrors, SubspaceOverlap), strict=True):
        assert kind.from_json(record.to_json()) == record


def test_ranks_that_are_no_integers_are_refused():
    with pytest.raises(InvalidInput, match=r"a rank must be an integer; got 1.7"):
        reconstruction_error(np.diag([3.0, 1.0]), ranks=[1.7])
