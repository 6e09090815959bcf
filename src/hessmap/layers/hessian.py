"""The true Hessian of one layer as a structured operator: products without a backward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.layers.batches import Curvature, layer_batches, samples_at_once
from hessmap.layers.curvature_choice import NeededCurvature, autograd_product, needed_curvature, random_direction
from hessmap.layers.factors import PATCH_RULES, FactorSums, LayerFactors, PatchRule
from hessmap.layers.kronecker import KroneckerProduct, product_of_factors
from hessmap.layers.layer import Layer, find_layer
from hessmap.layers.stored_samples import Form, SampleStore, Stored, stored_product
from hessmap.linalg import SymmetricOperator, available_bytes, disagreement, readable_bytes, require_memory, tolerance
from hessmap.problem import Problem
from hessmap.records import Provenance


@dataclass(frozen=True)
class LayerPlan:
    """What a layer Hessian will store and cost, known before it is built.

    ``form`` is "patches" (rows and inputs) or "jacobians" (their products), whichever multiplies with fewer flops.
    """

    form: Form
    curvature: Curvature
    stored_bytes: int
    flops_per_vector: int

    def __str__(self) -> str:
        return f"{self.form}: {readable_bytes(self.stored_bytes)} stored, {self.flops_per_vector:.2g} flops a product"


class CompressedHessian(SymmetricOperator):
    """A layer Hessian restricted to some directions of its outputs and inputs; its products are cheaper by as much.

    In single precision they are cheaper by two again, and right to about 2e-7 of the norm; vectors keep their format.
    """

    def __init__(self, stored: list[Stored], penalty: float, precision: torch.dtype = torch.float64) -> None:
        self.stored = stored
        self.penalty = penalty
        self.precision = precision
        self.weight_shape = stored[0].layer.weight_shape

    @property
    def size(self) -> int:
        return self.weight_shape[0] * self.weight_shape[1]

    def matmat(self, vectors: Tensor) -> Tensor:
        rounded = vectors.to(self.precision)
        return stored_product(self.stored, self.weight_shape, self.penalty, rounded).to(vectors.dtype)

    def in_single_precision(self) -> CompressedHessian:
        return CompressedHessian([part.single() for part in self.stored], self.penalty, torch.float32)

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype = torch.float64) -> CompressedHessian:
        """The same seen in still fewer directions."""
        stored = [part.compressed(outputs, inputs, precision) for part in self.stored]
        return CompressedHessian(stored, self.penalty, precision)


class LayerHessian(SymmetricOperator):
    """d2 risk / dW2 of one layer, over matrices of shape (outputs, inputs) flattened row by row.

    It holds, per sample, what entered the layer and the rows of the second derivative in its outputs; ``check`` is the
    relative difference of one product from autograd's, over all samples.
    """

    def __init__(
        self, problem: Problem, plan: LayerPlan, stored: list[Stored], factors: tuple[LayerFactors, ...]
    ) -> None:
        self.problem = problem
        self.plan = plan
        self.stored = stored
        self.factors = {found.patch_rule: found for found in factors}
        self.layer = factors[0].layer
        self.layout = self.layer.layout
        self.dtype = problem.dtype
        self.check = self._disagreement()

    @property
    def size(self) -> int:
        return self.layer.size

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.layer.weight_shape

    @property
    def num_samples(self) -> int:
        return self.problem.num_samples

    @property
    def stored_bytes(self) -> int:
        return sum(part.num_bytes for part in self.stored)

    @property
    def provenance(self) -> Provenance:
        return replace(self.problem.provenance, notes=(*self.problem.notes, f"layer '{self.layer.name}', {self.plan}"))

    def matmat(self, vectors: Tensor) -> Tensor:
        return stored_product(self.stored, self.weight_shape, self._penalty, vectors.to(self.dtype)).to(vectors.dtype)

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        diagonal = torch.full((self.size,), self._penalty, dtype=torch.float64)
        for part in self.stored:
            for matrices in part.jacobian_parts():
                diagonal += matrices.signed_values(matrices.flat.square()).sum(0).double()
        return diagonal

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(self._matrix)

    def _matrix(self) -> Tensor:
        needed = self.dtype.itemsize * self.size * self.size
        require_memory(f"the dense Hessian of layer '{self.layer.name}'", needed, "Use products or top_eigenpairs")
        matrix = torch.zeros(self.size, self.size, dtype=self.dtype)
        for part in self.stored:
            for matrices in part.jacobian_parts():
                matrix.addmm_(matrices.flat.T, matrices.signed_values(matrices.flat))
        matrix = (matrix + matrix.T) / 2
        matrix.diagonal().add_(self._penalty)
        return matrix

    @property
    def _penalty(self) -> float:
        return 2 * self.problem.l2

    @cached_property
    def trace(self) -> float:
        return float(self.contracted_inputs(torch.eye(self.weight_shape[1], dtype=self.dtype)).trace())

    def contracted_inputs(self, matrix: Tensor, *, without_signs: bool = False) -> Tensor:
        """The matrix T over outputs with <T, B> = <H, B (x) C> for every B, C the given matrix over inputs.

        ``without_signs`` takes all terms of H = sum sign vec(J) vec(J)^T as positive.
        """
        given = matrix.to(self.dtype)
        total = self._penalty * matrix.trace() * torch.eye(self.weight_shape[0], dtype=matrix.dtype)
        for part in self.stored:
            total += (part.without_signs() if without_signs else part).contracted_inputs(given)
        return total

    def contracted_outputs(self, matrix: Tensor, *, without_signs: bool = False) -> Tensor:
        """The matrix T over inputs with <T, C> = <H, B (x) C> for every C, B the given matrix over outputs."""
        given = matrix.to(self.dtype)
        total = self._penalty * matrix.trace() * torch.eye(self.weight_shape[1], dtype=matrix.dtype)
        for part in self.stored:
            total += (part.without_signs() if without_signs else part).contracted_outputs(given)
        return total

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype | None = None) -> CompressedHessian:
        """(U (x) V)^T H (U (x) V) for orthonormal columns U over outputs and V over inputs."""
        precision = precision or self.dtype
        stored = [part.compressed(outputs.to(self.dtype), inputs.to(self.dtype), precision) for part in self.stored]
        return CompressedHessian(stored, self._penalty, precision)

    def compressed_bytes(self, num_outputs: int, num_inputs: int) -> int:
        """What the Hessian compressed to that many directions stores."""
        return sum(part.compressed_bytes(num_outputs, num_inputs) for part in self.stored)

    def in_single_precision(self) -> CompressedHessian:
        """The same operator with products in float32: half the memory and time, right to about 2e-7 of the norm."""
        return CompressedHessian([part.single() for part in self.stored], self._penalty, torch.float32)

    def kronecker_approximation(self, patch_rule: PatchRule = "uncorrelated_patches") -> KroneckerProduct:
        """E[M] (x) E[x x^T] from the same pass over the data."""
        return product_of_factors(self.factors[patch_rule])

    def _disagreement(self) -> float:
        vector = random_direction(self.problem, self.layer)
        expected = self._penalty * vector
        for batch in self.problem.batches(max(1, samples_at_once(self.problem, self.layer) // 2)):
            expected = expected + autograd_product(self.problem, self.layer, batch, vector)
        check = disagreement((self @ vector.flatten()).view_as(vector), expected)
        if check > tolerance(self.dtype):
            got = f"for '{self.layer.name}' they differ by {check:.1e}"
            must = f"the layer's structure and autograd must agree to {tolerance(self.dtype):g}"
            raise UnsupportedNetwork(sentence(must, got, "Use loss_hessian(problem).block instead"))
        return check

    def __repr__(self) -> str:
        return f"Hessian of layer '{self.layer.name}', size {self.size}, {self.plan}, of {self.problem!r}"


def plan_layer_hessian(problem: Problem, name: str, *, with_bias: bool = False) -> LayerPlan:
    """The bytes that ``layer_hessian`` will hold and the flops of one of its products."""
    layer = find_layer(problem, name, with_bias)
    return _plan(problem, layer, needed_curvature(problem, layer))


def layer_hessian(problem: Problem, name: str, *, with_bias: bool = False) -> LayerHessian:
    """The second derivative of the risk in the weight of one layer, [W, b] with ``with_bias``.

    Refused with the bytes if the layer's samples do not fit the memory.

    >>> import torch, hessmap as hm
    >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
    >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
    >>> block = hm.loss_hessian(problem).to_dense()[:12, :12]
    >>> bool(torch.allclose(layer_hessian(problem, "0").to_dense(), block))
    True
    """
    layer = find_layer(problem, name, with_bias)
    needed = needed_curvature(problem, layer)
    plan = _plan(problem, layer, needed)
    what = f"the Hessian of layer '{name}'"
    require_memory(what, plan.stored_bytes + problem.working_bytes, "Use fewer samples, or loss_hessian(problem).block")
    sums = [FactorSums(problem, layer, rule) for rule in PATCH_RULES]
    store = SampleStore(layer, plan.form, problem.num_samples, needed.rank)
    for batch in layer_batches(problem, layer, plan.curvature):
        for total in sums:
            total.add(batch)
        store.add(batch)
    return LayerHessian(problem, plan, store.stored, tuple(total.factors(plan.curvature) for total in sums))


def _plan(problem: Problem, layer: Layer, needed: NeededCurvature) -> LayerPlan:
    outputs, inputs = layer.weight_shape
    samples, positions, rank = problem.num_samples, layer.num_positions, needed.rank
    signs, entry = rank if needed.has_signs else 0, problem.dtype.itemsize
    forms: tuple[LayerPlan, ...] = (
        LayerPlan(
            "patches",
            needed.curvature,
            stored_bytes=entry * samples * (rank * positions * outputs + layer.input_size + signs),
            flops_per_vector=4 * samples * positions * outputs * (inputs + rank),
        ),
        LayerPlan(
            "jacobians",
            needed.curvature,
            stored_bytes=entry * samples * rank * (outputs * inputs + bool(signs)),
            flops_per_vector=4 * samples * rank * outputs * inputs,
        ),
    )
    forms = forms if layer.is_plain else forms[1:]
    fitting = [plan for plan in forms if plan.stored_bytes + problem.working_bytes <= available_bytes()]
    return min(fitting or forms, key=lambda plan: plan.flops_per_vector if fitting else plan.stored_bytes)
