"""The exact Hessian of one layer as a structured operator: products without a backward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.layers.batches import Curvature, layer_batches, samples_at_once
from hessmap.layers.curvature_choice import CurvatureChoice, autograd_product, choose_curvature, random_direction
from hessmap.layers.factors import PATCH_RULES, FactorSums, LayerFactors, PatchRule
from hessmap.layers.kronecker import KroneckerProduct, product_of_factors
from hessmap.layers.layer import Layer, find_layer
from hessmap.layers.stored_samples import Form, SampleStore, SampleTerms, stored_product
from hessmap.linalg import (
    SymmetricOperator,
    available_bytes,
    disagreement,
    has_float64,
    readable_bytes,
    require_memory,
    to_host,
    tolerance,
)
from hessmap.problem import Problem
from hessmap.records import Provenance


@dataclass(frozen=True)
class LayerPlan:
    """Storage and cost of a layer Hessian, before it is built.

    Attributes:
        form: "patches" (rows and inputs) or "jacobians" (their products), whichever needs fewer flops.
        curvature: "gauss_newton" or "full".
        stored_bytes: Bytes that the operator stores.
        flops_per_vector: Flops of one matrix-vector product.
    """

    form: Form
    curvature: Curvature
    stored_bytes: int
    flops_per_vector: int

    def __str__(self) -> str:
        return f"{self.form}: {readable_bytes(self.stored_bytes)} stored, {self.flops_per_vector:.2g} flops a product"


class CompressedHessian(SymmetricOperator):
    """A layer Hessian restricted to some directions of its outputs and inputs, with proportionally cheaper products.

    In float32 products cost half as much again and have a relative error of about 2e-7; vectors keep their dtype.

    Args:
        stored: Terms of the Hessian.
        penalty: Multiple of the identity that is added.
        precision: dtype of the products. Defaults to float64.
    """

    def __init__(self, stored: list[SampleTerms], penalty: float, precision: torch.dtype = torch.float64) -> None:
        self.stored = stored
        self.penalty = penalty
        self.precision = precision
        self.weight_shape = stored[0].layer.weight_shape
        own = stored[0].device
        self.device = own if has_float64(own) else torch.device("cpu")  # of its float64 vectors

    @property
    def size(self) -> int:
        return self.weight_shape[0] * self.weight_shape[1]

    def matmat(self, vectors: Tensor) -> Tensor:
        rounded = _moved(vectors, self.stored[0].device, self.precision)
        return _moved_like(stored_product(self.stored, self.weight_shape, self.penalty, rounded), vectors)

    def in_single_precision(self) -> CompressedHessian:
        return CompressedHessian([part.to_float32() for part in self.stored], self.penalty, torch.float32)

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype = torch.float64) -> CompressedHessian:
        """Restrict further, to the columns of ``outputs`` and ``inputs``."""
        stored = [part.compressed(outputs, inputs, precision) for part in self.stored]
        return CompressedHessian(stored, self.penalty, precision)


class LayerHessian(SymmetricOperator):
    """d2 risk / dW2 of one layer, over matrices of shape (outputs, inputs) flattened row by row.

    Stores, per sample, the inputs of the layer and rows of the second derivative in its outputs. ``check`` is the
    relative difference of one product from autograd's, over all samples. Made by ``layer_hessian``.

    Args:
        problem: Problem that the layer belongs to.
        plan: Form and cost of what is stored.
        stored: Terms of the Hessian.
        factors: Kronecker factors of the layer for every patch rule.

    Raises:
        UnsupportedNetwork: If the product differs from autograd's.
    """

    def __init__(
        self, problem: Problem, plan: LayerPlan, stored: list[SampleTerms], factors: tuple[LayerFactors, ...]
    ) -> None:
        self.problem = problem
        self.plan = plan
        self.stored = stored
        self.factors = {found.patch_rule: found for found in factors}
        self.layer = factors[0].layer
        self.layout = self.layer.layout
        self.dtype, self.device = problem.dtype, problem.device
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
        given = _moved(vectors, self.device, self.dtype)
        return _moved_like(stored_product(self.stored, self.weight_shape, self._penalty, given), vectors)

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        diagonal = torch.full((self.size,), self._penalty, dtype=torch.float64)
        for part in self.stored:
            for matrices in part.jacobian_parts():
                diagonal += to_host(matrices.signed_values(matrices.flat.square()).sum(0))
        return diagonal

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(self._matrix)

    def _matrix(self) -> Tensor:
        needed = self.dtype.itemsize * self.size * self.size
        require_memory(f"the dense Hessian of layer '{self.layer.name}'", needed, "Use products or top_eigenpairs")
        matrix = torch.zeros(self.size, self.size, dtype=self.dtype, device=self.device)
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
        return float(
            self.contract_inputs(torch.eye(self.weight_shape[1], dtype=self.dtype, device=self.device)).trace()
        )

    def contract_inputs(self, matrix: Tensor, *, without_signs: bool = False) -> Tensor:
        """Contract the Hessian with a matrix over the inputs.

        Args:
            matrix: C, (inputs, inputs).
            without_signs: Take all terms of H = sum sign vec(J) vec(J)^T as positive. Defaults to False.

        Returns:
            T over outputs with <T, B> = <H, B (x) C> for every B.
        """
        given = _moved(matrix, self.device, self.dtype)
        total = self._penalty * matrix.trace() * torch.eye(self.weight_shape[0], dtype=matrix.dtype).to(matrix.device)
        for part in self.stored:
            total += _moved_like((part.without_signs() if without_signs else part).contract_inputs(given), matrix)
        return total

    def contract_outputs(self, matrix: Tensor, *, without_signs: bool = False) -> Tensor:
        """Contract the Hessian with a matrix over the outputs.

        Args:
            matrix: B, (outputs, outputs).
            without_signs: Take all terms as positive. Defaults to False.

        Returns:
            T over inputs with <T, C> = <H, B (x) C> for every C.
        """
        given = _moved(matrix, self.device, self.dtype)
        total = self._penalty * matrix.trace() * torch.eye(self.weight_shape[1], dtype=matrix.dtype).to(matrix.device)
        for part in self.stored:
            total += _moved_like((part.without_signs() if without_signs else part).contract_outputs(given), matrix)
        return total

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype | None = None) -> CompressedHessian:
        """(U (x) V)^T H (U (x) V) for orthonormal columns U over outputs and V over inputs."""
        precision = precision or self.dtype
        left, right = (_moved(basis, self.device, self.dtype) for basis in (outputs, inputs))
        stored = [part.compressed(left, right, precision) for part in self.stored]
        return CompressedHessian(stored, self._penalty, precision)

    def compressed_bytes(self, num_outputs: int, num_inputs: int) -> int:
        """Bytes stored by the Hessian compressed to that many directions."""
        return sum(part.compressed_bytes(num_outputs, num_inputs) for part in self.stored)

    def in_single_precision(self) -> CompressedHessian:
        """The operator with products in float32: half the memory and time, relative error about 2e-7."""
        return CompressedHessian([part.to_float32() for part in self.stored], self._penalty, torch.float32)

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


def _moved(values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Convert on the host: a device may lack the dtype."""
    return values.to(dtype).to(device) if values.device.type == "cpu" else values.to(device).to(dtype)


def _moved_like(values: Tensor, like: Tensor) -> Tensor:
    return _moved(values, like.device, like.dtype)


def plan_layer_hessian(problem: Problem, name: str, *, with_bias: bool = False) -> LayerPlan:
    """Predict the storage of ``layer_hessian`` and the cost of one of its products.

    Args:
        problem: Problem that the layer belongs to.
        name: Name of the layer, as in ``model.named_modules()``.
        with_bias: Extend the weight by the layer's bias. Defaults to False.

    Returns:
        LayerPlan: form, curvature, bytes, flops.
    """
    layer = find_layer(problem, name, with_bias)
    return _plan(problem, layer, choose_curvature(problem, layer))


def layer_hessian(problem: Problem, name: str, *, with_bias: bool = False) -> LayerHessian:
    """Build the exact Hessian of the risk in the weight of one layer.

    Args:
        problem: Problem that the layer belongs to.
        name: Name of the layer, as in ``model.named_modules()``.
        with_bias: Extend the weight by the layer's bias, [W, b]. Defaults to False.

    Returns:
        LayerHessian: a symmetric operator whose products need no backward pass.

    Raises:
        TooLarge: If the layer's samples do not fit in memory.
        UnsupportedNetwork: If the layer's structure is not supported, or differs from autograd.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> block = hm.loss_hessian(problem).to_dense()[:12, :12]
        >>> bool(torch.allclose(layer_hessian(problem, "0").to_dense(), block))
        True
    """
    layer = find_layer(problem, name, with_bias)
    needed = choose_curvature(problem, layer)
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


def _plan(problem: Problem, layer: Layer, needed: CurvatureChoice) -> LayerPlan:
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
