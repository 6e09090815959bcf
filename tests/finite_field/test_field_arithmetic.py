"""The field against Python's integers and fractions, and heights against the numbers they bound."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.exact import field as field_module
from hessmap.exact.field import (
    NUM_PRIMES_AT_LEAST,
    FieldArray,
    Height,
    PrimeField,
    concatenate,
    dyadic_parts,
    failure_bound,
    field_rank,
    from_floats,
    from_integers,
    random_array,
    random_prime_field,
    scaled_integers,
    where,
)

LARGEST = PrimeField(2**62 - 57)
SMALLEST = PrimeField(2**61 + 15)
FIELDS = pytest.mark.parametrize("field", [LARGEST, SMALLEST], ids=["largest", "smallest"])


def extreme_elements(field: PrimeField, rows: int, columns: int) -> np.ndarray:
    """Random elements and every kind of extreme one: 0, 1, P - 1, limbs of all ones, limb boundaries."""
    values = field.draw(np.random.default_rng(rows * columns), rows, columns)
    special = [0, 1, field.prime - 1, 2**21 - 1, 2**21, 2**42 - 1, 2**42, 2**61 - 1, field.prime // 2]
    values.flat[: len(special)] = special
    return values


@FIELDS
def test_the_two_test_primes_are_prime_and_at_the_ends_of_the_interval(field: PrimeField) -> None:
    assert flint.fmpz(field.prime).is_prime()
    assert 2**61 <= field.prime <= 2**62


@FIELDS
def test_elementwise_operations_agree_with_integers_modulo_the_prime(field: PrimeField) -> None:
    left, right = extreme_elements(field, 40, 30), extreme_elements(field, 30, 40).T
    exact_left, exact_right = left.astype(object), right.astype(object)
    np.testing.assert_array_equal(field.add(left, right), (exact_left + exact_right) % field.prime)
    np.testing.assert_array_equal(field.subtract(left, right), (exact_left - exact_right) % field.prime)
    np.testing.assert_array_equal(field.multiply(left, right), (exact_left * exact_right) % field.prime)


@FIELDS
def test_all_pairs_of_extreme_elements_multiply_exactly(field: PrimeField) -> None:
    values = extreme_elements(field, 1, 9)
    table = field.multiply(values.T, values)
    np.testing.assert_array_equal(table, (values.T.astype(object) * values.astype(object)) % field.prime)


@FIELDS
@pytest.mark.parametrize("length", [0, 1, 639, 640, 641, 2000])
def test_matrix_products_of_any_length_are_exact(field: PrimeField, length: int) -> None:
    left = np.full((3, length), field.prime - 1)
    left[1:] = field.draw(np.random.default_rng(length), 2, length)
    right = np.full((length, 2), field.prime - 1)
    expected = (left.astype(object) @ right.astype(object)) % field.prime if length else np.zeros((3, 2))
    np.testing.assert_array_equal(field.matmul(left, right), expected)


def test_the_longest_exact_sum_of_full_limbs_does_not_round() -> None:
    ones = np.full((1, 640), 2**61 + 2**60 + 2**42 - 1)
    assert LARGEST.matmul(ones, ones.T)[0, 0] == 640 * int(ones[0, 0]) ** 2 % LARGEST.prime


@FIELDS
def test_sums_that_float64_could_not_hold_are_split(field: PrimeField) -> None:
    left, right = (field.draw(np.random.default_rng(seed), 4, 9000) for seed in (0, 1))
    expected = (left.astype(object) @ right.T.astype(object)) % field.prime
    np.testing.assert_array_equal(field.matmul(left, right.T), expected)


def test_batched_products_broadcast_like_numpy() -> None:
    left, right = LARGEST.draw(np.random.default_rng(0), 4, 1, 2, 3), LARGEST.draw(np.random.default_rng(1), 5, 3, 2)
    expected = (left.astype(object) @ right.astype(object)) % LARGEST.prime
    np.testing.assert_array_equal(LARGEST.matmul(left, right), expected)


def test_random_primes_are_primes_of_the_interval_and_follow_the_seed() -> None:
    primes = [random_prime_field(np.random.default_rng(seed)).prime for seed in range(20)]
    assert all(flint.fmpz(prime).is_prime() and 2**61 <= prime <= 2**62 for prime in primes)
    assert len(set(primes)) == 20
    assert random_prime_field(np.random.default_rng(3)).prime == primes[3]


def test_the_number_of_primes_is_bounded_from_below_by_less_than_the_logarithmic_density() -> None:
    density = 2**61 / (61.5 * math.log(2))
    assert 0.5 * density < NUM_PRIMES_AT_LEAST < 0.7 * density


numbers = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(st.lists(numbers, min_size=1, max_size=8))
@share_of_examples(2)
def test_every_float_maps_to_its_fraction(values: list[float]) -> None:
    array = np.array(values)
    found = from_floats(LARGEST, array)
    mantissas, exponents = dyadic_parts(array)
    integers, bits = scaled_integers(array)
    for place, value in enumerate(values):
        fraction = Fraction(value)
        expected = fraction.numerator * pow(fraction.denominator, -1, LARGEST.prime) % LARGEST.prime
        assert found.residues[place] == expected
        assert int(mantissas[place]) * Fraction(2) ** int(exponents[place]) == fraction
        assert Fraction(integers[place], 2**bits) == fraction
        assert is_bounded(fraction, found.height)


def is_bounded(number: Fraction, height: Height) -> bool:
    cleared = number * 2**height.denominator_bits
    return cleared.denominator == 1 and abs(number) <= Fraction(2) ** height.magnitude_bits


dyadic = st.builds(lambda mantissa, exponent: mantissa * 2.0**exponent, st.integers(-99, 99), st.integers(-9, 9))
matrices = st.lists(dyadic, min_size=6, max_size=6).map(lambda values: np.array(values).reshape(2, 3))


@given(matrices, matrices, matrices)
def test_heights_bound_the_numbers_and_residues_follow_them(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    fields = [from_floats(LARGEST, value) for value in (a, b, c)]
    fractions = [np.array([[Fraction(x) for x in row] for row in value]) for value in (a, b, c)]

    def formula(x, y, z):  # type: ignore[no-untyped-def]
        return ((x * y - z) @ z.T + x @ y.T) * (y @ y.T)

    def field_formula(x: FieldArray, y: FieldArray, z: FieldArray) -> FieldArray:
        return ((x * y - z) @ z.mT + x @ y.mT) * (y @ y.mT)

    found, expected = field_formula(*fields), formula(*fractions)
    for place in np.ndindex(2, 2):
        number = Fraction(expected[place])
        modulo = number.numerator * pow(number.denominator, -1, LARGEST.prime) % LARGEST.prime
        assert found.residues[place] == modulo
        assert is_bounded(number, found.height)


@pytest.mark.parametrize("length", [1, 2, 3, 100, 1025])
def test_heights_count_the_terms_of_sums(length: int) -> None:
    row = from_integers(LARGEST, [[1] * length])
    assert length <= 2 ** (row @ row.mT).height.magnitude_bits <= 8 * length
    assert (random_array(LARGEST, np.random.default_rng(0), 1, length) @ row.mT).height.degree == 1


def test_joined_and_selected_arrays_keep_the_larger_height() -> None:
    small, large = from_floats(LARGEST, np.array([[0.5]])), from_integers(LARGEST, [[1000]])
    assert concatenate([small, large], axis=1).height == Height(1, 10)
    chosen = where(np.array([[True, False]]), small, large)
    assert chosen.height == Height(1, 10)
    assert chosen.residues.tolist() == [[int(small.residues[0, 0]), 1000]]


def test_not_a_number_has_no_exact_value() -> None:
    with pytest.raises(InvalidInput, match="exact arithmetic needs finite numbers; there is NaN or inf"):
        from_floats(LARGEST, np.array([1.0, np.nan]))


def test_the_failure_bound_counts_prime_divisors_and_degree() -> None:
    assert failure_bound(Height(), 0) == 0
    # One number of 610 bits has at most ten prime divisors of 61 bits.
    assert failure_bound(Height(magnitude_bits=610), 1) == pytest.approx(10 / NUM_PRIMES_AT_LEAST)
    assert failure_bound(Height(denominator_bits=600, magnitude_bits=10), 1) == pytest.approx(10 / NUM_PRIMES_AT_LEAST)
    assert failure_bound(Height(degree=3), 1) == pytest.approx(3 / 2**61)
    assert failure_bound(Height(10, 10, 5), 7) > failure_bound(Height(10, 10, 5), 6)


@pytest.mark.parametrize(
    ("true_rank", "method"),
    [
        (0, "sketch of size 8"),
        (7, "sketch of size 8"),
        (8, "sketch of size 16"),
        (15, "sketch of size 16"),
        (16, "dense"),
        (30, "dense"),
    ],
)
def test_a_sketched_rank_is_the_direct_rank(true_rank: int, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(true_rank)
    factors = [from_floats(LARGEST, generator.integers(-9, 9, size=(60, true_rank)).astype(float)) for _ in range(2)]
    matrix = factors[0] @ factors[1].mT
    direct = field_rank(matrix, generator)
    monkeypatch.setattr(field_module, "LARGEST_DIRECT_SIZE", 40)
    monkeypatch.setattr(field_module, "_SMALLEST_SKETCH", 8)
    sketched = field_rank(matrix, generator)
    assert (direct.value, direct.method) == (true_rank, "dense")
    assert (sketched.value, sketched.method) == (true_rank, method)
    assert 0 < direct.failure_bound < 1e-15
    assert 0 < sketched.failure_bound < 1e-15


def test_a_long_matrix_is_mixed_down_to_its_short_side() -> None:
    generator = np.random.default_rng(0)
    matrix = random_array(LARGEST, generator, 300, 4) @ random_array(LARGEST, generator, 4, 9)
    for long in (matrix, matrix.mT):
        found = field_rank(long, generator)
        assert (found.value, found.method) == (4, "sketch of size 9")
