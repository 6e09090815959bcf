"""Eigenpairs found by products in float32 and verified by products in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hessmap.errors import InvalidInput
from hessmap.linalg import LinearOperator, ScaledProduct, normal_vectors, to_host
from hessmap.measurement.eigenpair_iteration import SHARE, EigenpairIteration, RitzPairs
from hessmap.measurement.operators_in import FLOAT32_TOLERANCE, Matrix, is_iterated_in_single, is_low_precision
from hessmap.measurement.probes import ProbedOperator

_FLOOR = 1e-6  # of the norm: the rounding of a product in float32
_MOST_APART = 1e-4  # of a product: where both formats differ by more, they are not those of one operator
_SQUARE = 1e-3  # a tolerance whose square, the error of values in float64, is no less than what float32 adds to them
_NUM_MIXTURES = 2
_LARGE = 10_000  # the size from which on products in float32 were found to take half the time

Precision = Literal["auto", "single", "mixed", "float64"]
PROBE_PRECISIONS = ("auto", "float64")  # of estimates from random probes


@dataclass(frozen=True)
class Attempt:
    """What products in float32 led to: pairs with residuals in float64, which are a result if ``is_final``, or a start
    for the iteration in float64, or nothing. ``check`` is the norm of a random combination of their residuals."""

    num_single_products: int = 0
    pairs: RitzPairs | None = None
    check: float = 0.0
    is_final: bool = False

    @property
    def start(self) -> Tensor | None:
        """Approximate eigenvectors, one a row."""
        return None if self.pairs is None else self.pairs.vectors().T


def chosen_precision(precision: Precision, matrix: Matrix, plan: EigenpairIteration) -> Precision:
    """float64 where float32 cannot meet the tolerance, or by default where it saves too little."""
    tolerance, total = plan.wanted.tolerance, plan.wanted.total(plan.size)
    if is_low_precision(matrix) or tolerance < FLOAT32_TOLERANCE:
        return "float64"
    if precision != "auto":
        return precision
    least = 1 if is_iterated_in_single(matrix) else _LARGE
    if plan.size < max(least, 4 * total):
        return "float64"
    return "single" if tolerance >= _SQUARE else "mixed"


def attempt(
    matrix: Matrix, double: ScaledProduct, plan: EigenpairIteration, start: Tensor | None, precision: Precision
) -> Attempt:
    """Iterate in float32 and verify the pairs in float64: "mixed" by a product with each of them, "single" by products
    with random mixtures.

    A first product with a random vector, in both formats, shows whether they are of one operator: a unit that float32
    switches the other way or a number that it has no room for could hide an eigenvalue from the iteration.
    """
    narrow = matrix.in_single_precision() if isinstance(matrix, LinearOperator) and precision != "float64" else None
    if narrow is None:
        return Attempt()
    single = ScaledProduct(narrow.matmat, plan.size)
    single.place_on(double.device)
    verify, to_come = _one_by_one, plan.wanted.total(plan.size)
    if precision == "single":
        verify, to_come = with_rounding, _NUM_MIXTURES
    rough = replace(plan.wanted, tolerance=SHARE * plan.wanted.tolerance, floor=_FLOOR)
    vector, expected = _random_product(double, plan.seed)
    allowed = max(1, plan.max_products - double.num_products - to_come - 1)
    try:
        found = single(vector)
        if not _agree(double.scale * expected, single.scale * found, plan.wanted.tolerance):
            return Attempt(single.num_products)
        pairs = replace(plan, wanted=rough, max_products=allowed).run(single, start)
    except InvalidInput:  # products that are not finite
        return Attempt(single.num_products)
    if rough.are_out_of_reach(pairs.values, pairs.norm):
        return Attempt(single.num_products, pairs)
    verified, check = verify(pairs, double)
    is_met = plan.wanted.are_met(verified.values, verified.residuals, verified.norm)
    verified = replace(verified, converged=pairs.converged and is_met)
    spent = double.num_products + single.num_products
    return Attempt(single.num_products, verified, check, verified.converged or spent >= plan.max_products)


def verified_single(matrix: LinearOperator, seed: int, tolerance: float = _MOST_APART) -> LinearOperator | None:
    """The operator in float32, if it has one whose product with a random vector agrees with that in float64.

    Args:
        matrix: Operator in float64.
        seed: Seed of the vector.
        tolerance: How far the products may differ, relative to their size. Defaults to 1e-4.

    Returns:
        The operator in float32, or None.
    """
    narrow = matrix.in_single_precision()
    if narrow is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    vector = normal_vectors((matrix.shape[1], 1), generator, matrix.dtype, matrix.device)
    expected, found = matrix.matmat(vector), narrow.matmat(vector).to(matrix.dtype)
    return narrow if _are_close(expected, found, tolerance) else None


def in_verified_single(operator: ProbedOperator, precision: str) -> ProbedOperator:
    """The same probes of the operator in float32 where "auto" means that, with a note; else the operator itself.

    Args:
        operator: Operator and probes.
        precision: "auto" or "float64".

    Returns:
        Probes of the operator in float32, or of the given one.
    """
    if precision == "float64" or not is_iterated_in_single(operator.matrix):
        return operator
    assert isinstance(operator.matrix, LinearOperator)
    narrow = verified_single(operator.matrix, operator.seed)
    if narrow is None:
        return operator
    found = ProbedOperator(narrow, operator.seed)
    found.product.num_products = operator.num_products + 2
    found.notes = (*operator.notes, "products are in float32; a random one agrees with float64 to 1e-4")
    return found


def _random_product(product: ScaledProduct, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vector = normal_vectors((product.size, 1), generator, product.dtype, product.device)
    return vector, product(vector)


def _agree(expected: Tensor, found: Tensor, tolerance: float) -> bool:
    """Whether one random vector has the same product in both formats, to the tolerance.

    A part of A that float32 lacks, of rank one and size e, shows as e / sqrt(size), and A itself as its Frobenius norm
    / sqrt(size): in a ratio of the two, parts of the tolerance show in any dimension.
    """
    return _are_close(expected, found, min(tolerance, _MOST_APART))


def _are_close(expected: Tensor, found: Tensor, tolerance: float) -> bool:
    largest = float(expected.abs().max()) or 1.0  # squares of tiny entries would vanish
    apart, whole = float(((found - expected) / largest).norm()), float((expected / largest).norm())
    return apart <= tolerance * whole  # False for NaN


def _images(pairs: RitzPairs, double: ScaledProduct, mixture: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The Ritz vectors, or their combinations, and the products in float64 with them, in the unit of the iteration."""
    vectors = pairs.vectors(mixture)
    images = double(vectors)
    return vectors, images * (double.scale / pairs.process.product.scale)


def _one_by_one(pairs: RitzPairs, double: ScaledProduct) -> tuple[RitzPairs, float]:
    """Rayleigh and Ritz in the space of the vectors, whose values are right to the square of the residuals, and true
    residuals; beside them a random combination of these.

    Copies of an eigenvalue may be rotated at will, and some rotations gather their residuals in one of them: then the
    vectors stay as they were.
    """
    vectors, images = _images(pairs, double)
    inside = to_host(vectors.T @ images)
    values, rotation = torch.linalg.eigh((inside + inside.T) / 2)
    misfits = images @ rotation.to(images) - vectors @ (rotation * values).to(vectors)
    if len(values):
        pairs.process.norm = max(pairs.norm, float(values.abs().max()))
        order = inside.diagonal().argsort()
        places = order.to(images.device)
        unrotated = images[:, places] - vectors[:, places] * values.to(vectors)
        if float(unrotated.norm(dim=0).max()) < float(misfits.norm(dim=0).max()):
            rotation, misfits = torch.eye(len(order), dtype=rotation.dtype)[:, order], unrotated
    coordinates = pairs.coordinates @ rotation
    found = replace(pairs, values=values, coordinates=coordinates, residuals=to_host(misfits.norm(dim=0)))
    return found, float((misfits @ pairs.random_signs(1).to(misfits)).norm())


def with_rounding(pairs: RitzPairs, double: ScaledProduct) -> tuple[RitzPairs, float]:
    """The pairs as they are, with the rounding of their products added to their residuals; beside them the norm of a
    random combination of these.

    With A = S + E, S what the iteration made of the operator and S V = V L + R that the recurrence knows,
    E V c = A V c - V L c - R c for random signs c: its square is about the sum of the ||E v||^2. Rounding goes with the
    size of a product, so each pair gets of it in proportion to its eigenvalue.
    """
    signs = pairs.random_signs(_NUM_MIXTURES)
    images = _images(pairs, double, signs)[1]
    misfits = pairs.vectors(pairs.values[:, None] * signs).neg_().add_(images)  # in place: vectors are long
    del images
    check = float(misfits[:, 0].norm())
    process = pairs.process
    coefficients = process.coupling @ (pairs.coordinates @ signs)
    misfits -= process.block.T @ coefficients.to(process.block)
    rounding = float(misfits.norm(dim=0).max())
    sizes = pairs.values.abs()
    shares = sizes / sizes.norm() if float(sizes.max()) > 0 else torch.ones_like(sizes)
    return replace(pairs, residuals=pairs.residuals + rounding * shares), check
