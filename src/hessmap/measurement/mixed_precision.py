"""Eigenpairs found by products in float32 and made sure of by products in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hessmap.curvature.operator import LinearOperator
from hessmap.errors import InvalidInput
from hessmap.measurement.krylov_basis import KrylovBasis, Product
from hessmap.measurement.lanczos import Lanczos, RitzPairs
from hessmap.measurement.matrices import NARROW_TOLERANCE, Matrix, is_narrow

_ROOM = 0.8  # of the tolerance for the iteration, the rest for the rounding of its products
_FLOOR = 1e-6  # of the norm: the rounding of a product in float32
_MOST_APART = 1e-4  # of a product: where both formats differ by more, they are not those of one operator
_SQUARE = 1e-3  # a tolerance whose square, the error of values in float64, is no less than what float32 adds to them
_NUM_MIXTURES = 2
_DEAR = 10_000  # the size from which on products in float32 were found to take half the time

Precision = Literal["auto", "single", "mixed", "float64"]


@dataclass(frozen=True)
class Attempt:
    """What products in float32 led to: pairs with residuals in float64, which are a result if ``is_final``, or a start
    for the iteration in float64, or nothing. ``check`` is the norm of a random combination of their residuals."""

    num_products: int = 0
    num_single_products: int = 0
    basis: KrylovBasis | None = None
    pairs: RitzPairs | None = None
    check: float = 0.0
    is_final: bool = False

    @property
    def start(self) -> Tensor | None:
        """Approximate eigenvectors, one a row."""
        if self.basis is None or self.pairs is None:
            return None
        return self.basis.combined(self.pairs.vectors).T


def chosen_precision(precision: Precision, matrix: Matrix, plan: Lanczos) -> Precision:
    """float64 where float32 cannot meet the tolerance, or by default where it saves too little."""
    tolerance, total = plan.wanted.tolerance, plan.wanted.total(plan.size)
    if is_narrow(matrix) or tolerance < NARROW_TOLERANCE:
        return "float64"
    if precision != "auto":
        return precision
    if plan.size < max(_DEAR, 4 * total):
        return "float64"
    return "single" if tolerance >= _SQUARE else "mixed"


def attempt(matrix: Matrix, product: Product, plan: Lanczos, start: Tensor | None, precision: Precision) -> Attempt:
    """Iterate in float32 and make sure of the pairs in float64: "mixed" by a product with each of them, "single" by
    products with random mixtures.

    A first product with a random vector, in both formats, shows whether they are of one operator: a unit that float32
    switches the other way or a number that it has no room for could hide an eigenvalue from the iteration.
    """
    narrow = matrix.in_single_precision() if isinstance(matrix, LinearOperator) and precision != "float64" else None
    if narrow is None:
        return Attempt()
    single, double = _Counted(narrow.matmat), _Counted(product)
    if not _agree(double, single, plan):
        return Attempt(double.count + single.count, single.count)
    make_sure, to_come = (_mixtures, _NUM_MIXTURES) if precision == "single" else (_each, plan.wanted.total(plan.size))
    rough = replace(plan.wanted, tolerance=_ROOM * plan.wanted.tolerance, floor=_FLOOR)
    allowed = max(1, plan.max_products - to_come - 2)
    try:
        basis, pairs = replace(plan, wanted=rough, max_products=allowed).run(single, start)
    except InvalidInput:  # products that are not finite
        return Attempt(double.count + single.count, single.count)
    if rough.is_out_of_reach(pairs.values, basis.norm):
        return Attempt(double.count + single.count, single.count, basis, pairs)
    found, check = make_sure(basis, pairs, double)
    is_met = bool(plan.wanted.limits(found.values, found.residuals, basis.norm).all())
    found = replace(found, converged=pairs.converged and is_met)
    spent = double.count + single.count
    return Attempt(spent, single.count, basis, found, check, found.converged or spent >= plan.max_products)


class _Counted:
    def __init__(self, product: Product) -> None:
        self.product = product
        self.count = 0

    def __call__(self, vectors: Tensor) -> Tensor:
        self.count += vectors.shape[1]
        return self.product(vectors)


def _agree(product: Product, single: Product, plan: Lanczos) -> bool:
    """Whether one random vector has the same product in both formats, to the tolerance.

    A part of A that float32 lacks, of rank one and size e, shows as e / sqrt(size), and A itself as its Frobenius norm
    / sqrt(size): in a ratio of the two, parts of the tolerance are seen in any dimension.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    vector = torch.randn(plan.size, 1, generator=generator, dtype=torch.float64)
    expected, found = product(vector), single(vector)
    largest = float(expected.abs().max()) or 1.0  # squares of tiny entries would vanish
    apart, whole = float(((found - expected) / largest).norm()), float((expected / largest).norm())
    return apart <= min(plan.wanted.tolerance, _MOST_APART) * whole  # False for NaN


def _each(basis: KrylovBasis, pairs: RitzPairs, product: Product) -> tuple[RitzPairs, float]:
    """Rayleigh and Ritz in the space of the vectors, whose values are right to the square of the residuals, and true
    residuals; beside them a random combination of these.

    Copies of an eigenvalue may be turned at will, and some turns gather their residuals in one of them: then the
    vectors stay as they were.
    """
    vectors = basis.combined(pairs.vectors)
    images = product(vectors) / (basis.unit or 1.0)
    inside = vectors.T @ images
    values, turn = torch.linalg.eigh((inside + inside.T) / 2)
    misfits = images @ turn - vectors @ (turn * values)
    if len(values):
        basis.norm = max(basis.norm, float(values.abs().max()))
        order = inside.diagonal().argsort()
        as_they_were = images[:, order] - vectors[:, order] * values
        if float(as_they_were.norm(dim=0).max()) < float(misfits.norm(dim=0).max()):
            turn, misfits = torch.eye(len(order), dtype=turn.dtype)[:, order], as_they_were
    found = replace(pairs, values=values, vectors=pairs.vectors @ turn, residuals=misfits.norm(dim=0))
    return found, float((misfits @ _signs(basis, len(values), 1)).norm())


def _mixtures(basis: KrylovBasis, pairs: RitzPairs, product: Product) -> tuple[RitzPairs, float]:
    """The pairs as they are, with the rounding of their products added to their residuals.

    With A = S + E, S the operator in float32 and S V = V L + R that the recurrence knows, E V c = A V c - V L c - R c
    for random signs c: its square is about the sum of the ||E v||^2. Rounding goes with the size of a product, so each
    pair gets of it in proportion to its eigenvalue.
    """
    signs = _signs(basis, len(pairs.values), _NUM_MIXTURES)
    images = product(basis.combined(pairs.vectors @ signs)) / (basis.unit or 1.0)
    misfits = images - basis.combined(pairs.vectors @ (pairs.values[:, None] * signs))
    known = basis.block.T @ (basis.coupling @ (pairs.vectors @ signs))
    rounding = float((misfits - known).norm(dim=0).max())
    sizes = pairs.values.abs()
    shares = sizes / sizes.norm() if float(sizes.max()) > 0 else torch.ones_like(sizes)
    return replace(pairs, residuals=pairs.residuals + rounding * shares), float(misfits[:, 0].norm())


def _signs(basis: KrylovBasis, rows: int, columns: int) -> Tensor:
    return torch.randint(0, 2, (rows, columns), generator=basis.generator).double() * 2 - 1
