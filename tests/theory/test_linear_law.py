"""The law of the linear spectrum: stored values, its own consistency, simulation, and the printed scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaincinv

from golden_tables import each
from hessmap.errors import InvalidInput
from hessmap.theory.teacher_student.spectral_law import (
    LinearSpectrumLaw,
    MarchenkoPastur,
    OneTeacherLaw,
    SpectralLaw,
    exact_moments,
    linear_eigenvalues,
)
from teacher_golden import teacher_golden

LAWS: list[SpectralLaw] = [
    MarchenkoPastur(0.25),
    MarchenkoPastur(1.0, scale=0.5),
    MarchenkoPastur(3.0),
    OneTeacherLaw(6, 3, 1.3),
    OneTeacherLaw(3, 6, 0.8),
    LinearSpectrumLaw(3, 1),
    LinearSpectrumLaw(1, 1),
    LinearSpectrumLaw(10, 9),
    LinearSpectrumLaw(4, 8),
]


def fractions(rows: list[list[str]]) -> np.ndarray:
    from fractions import Fraction

    return np.array([[float(Fraction(entry)) for entry in row] for row in rows])


@each(teacher_golden("law_cdf_"))
def test_stored_values_of_the_distribution_function_come_out(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    law = LinearSpectrumLaw(inputs["Ni"], inputs["Nh"])
    np.testing.assert_allclose(law.cdf(inputs["x"]), case["expected"]["cdf"], atol=case["tol"], rtol=0)


@each(teacher_golden("law_moments_"))
def test_stored_moments_come_out(case: dict[str, Any]) -> None:
    found = exact_moments(case["inputs"]["Ni"], case["inputs"]["Nh"])
    assert found == pytest.approx((case["expected"]["m1"], case["expected"]["m2"]), abs=case["tol"])


@each(teacher_golden("lin_spec_", "lin_bias_spec_"))
def test_stored_spectra_of_linear_teachers_come_out(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    bias = fractions([inputs["b"]])[0] if "b" in inputs else None
    found = linear_eigenvalues(fractions(inputs["W1"]), fractions([inputs["W2"]])[0], bias)
    np.testing.assert_allclose(found, case["expected"]["nonzero"], atol=case["tol"], rtol=0)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_density_distribution_function_quantiles_and_moments_are_those_of_one_law(law: SpectralLaw) -> None:
    probabilities = np.linspace(0.01, 0.99, 20)
    points = law.quantile(probabilities)
    assert np.all(np.diff(points) >= 0)
    assert np.all(law.cdf(points) >= probabilities - 1e-12)
    assert np.all(law.cdf_below(points) <= probabilities + 1e-12)
    inner = points[(points > points[0]) & (points != law.atom[0])]
    step = 1e-5
    slope = (law._continuous_cdf(inner + step) - law._continuous_cdf(inner - step)) / (2 * step)
    np.testing.assert_allclose(law.pdf(inner), slope, rtol=1e-5, atol=1e-8)
    grid = np.linspace(0, law.quantile(1 - 1e-13), 4001)
    for order in (1, 2, 3):
        tail = order * grid ** (order - 1) * (1 - law.cdf(grid))
        assert np.trapezoid(tail, grid) == pytest.approx(law.moment(order), rel=2e-3)
    assert law.variance == pytest.approx(law.moment(2) - law.mean**2)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_law_and_repeat_with_the_seed(law: SpectralLaw) -> None:
    draws = law.sample(4000, seed=1)
    assert law.kolmogorov_smirnov(draws) < 1.95 / np.sqrt(4000)  # passed by chance with probability 1e-3 at most
    np.testing.assert_array_equal(draws, law.sample(4000, seed=1))
    assert law.kolmogorov_smirnov(1.2 * draws + 0.1) > 1.95 / np.sqrt(4000)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.01, 12))
def test_the_averaged_law_is_the_mean_of_the_laws_of_its_teachers(inputs: int, hidden: int, x: float) -> None:
    law = LinearSpectrumLaw(inputs, hidden)
    probabilities = (np.arange(4000) + 0.5) / 4000
    norms = gammaincinv(hidden / 2, probabilities) / (hidden / 2)
    mean = np.mean([law.of_teacher(norm).cdf(x) for norm in norms[::4]])
    assert float(law.cdf(x)) == pytest.approx(mean, abs=2e-3)


def simulated(inputs: int, hidden: int, num_teachers: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [
        linear_eigenvalues(
            generator.normal(size=(hidden, inputs)) / np.sqrt(inputs), generator.normal(size=hidden) / np.sqrt(hidden)
        )
        for _ in range(num_teachers)
    ]


@pytest.mark.parametrize(("inputs", "hidden"), [(20, 40), (40, 20)])
def test_many_teachers_follow_the_averaged_law_and_not_the_printed_one(inputs: int, hidden: int) -> None:
    values = np.concatenate(simulated(inputs, hidden, 300, seed=3))
    assert LinearSpectrumLaw(inputs, hidden).kolmogorov_smirnov(values) < 0.05
    assert LinearSpectrumLaw(inputs, hidden, scale=1 / inputs).kolmogorov_smirnov(values) > 0.3


@pytest.mark.parametrize(("inputs", "hidden", "own", "averaged"), [(200, 400, 0.013, 0.029), (400, 200, 0.007, 0.408)])
def test_one_teacher_follows_its_own_law(inputs: int, hidden: int, own: float, averaged: float) -> None:
    law = LinearSpectrumLaw(inputs, hidden)
    distances = []
    generator = np.random.default_rng(5)
    for _ in range(6):
        outputs = generator.normal(size=hidden) / np.sqrt(hidden)
        values = linear_eigenvalues(generator.normal(size=(hidden, inputs)) / np.sqrt(inputs), outputs)
        one = law.of_teacher(float(outputs @ outputs))
        distances.append((one.kolmogorov_smirnov(values), law.kolmogorov_smirnov(values)))
    mean = np.mean(distances, axis=0)
    assert mean[0] == pytest.approx(own, abs=0.004)
    assert mean[1] == pytest.approx(averaged, rel=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LinearSpectrumLaw(0, 3), "inputs must be at least 1; got 0"),
        (lambda: LinearSpectrumLaw(3, 0), "hidden must be at least 1; got 0"),
        (lambda: OneTeacherLaw(3, 3, -1.0), "must not be negative; got -1.0"),
        (lambda: MarchenkoPastur(0.0), "ratio of a Marchenko-Pastur law must be positive; got 0.0"),
        (lambda: LinearSpectrumLaw(3, 3).quantile(1.5), r"a probability must be in \[0, 1\]; got 1.5"),
        (lambda: LinearSpectrumLaw(3, 3).moment(-1), "the order of a moment must be at least 0; got -1"),
        (lambda: LinearSpectrumLaw(3, 3).kolmogorov_smirnov([]), "values must not be empty"),
        (
            lambda: linear_eigenvalues([[1.0, 2.0]], [1.0, 2.0]),
            r"one entry for each row of W1; the shapes are \(1, 2\)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()


@pytest.mark.parametrize(("inputs", "hidden"), [(7, 3), (12, 4), (5, 5)])
def test_the_atom_of_one_teacher_counts_the_inputs_beyond_the_hidden_units(inputs: int, hidden: int) -> None:
    """Of Ni eigenvalues Ni - Nh are |W2|^2 exactly; the law has an atom of that share there, and none for Ni <= Nh."""
    generator = np.random.default_rng(inputs)
    first, second = generator.normal(size=(hidden, inputs)) / inputs**0.5, generator.normal(size=hidden) / hidden**0.5
    norm = float(second @ second)
    values = linear_eigenvalues(first, second)
    at_norm = int((np.abs(values - norm) < 1e-12).sum())
    assert at_norm == inputs - hidden
    assert OneTeacherLaw(inputs, hidden, norm).atom == pytest.approx((norm, 1 - hidden / inputs))
