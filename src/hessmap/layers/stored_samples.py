"""Sums over samples of signed outer products: the terms of a layer Hessian.

    H = sum sign vec(J) vec(J)^T,    J = sum_p row_p x_p^T of shape (outputs, inputs), one per sample and row

A batch is stored as rows and inputs ("patches": J is never formed) or as the matrices J ("jacobians"), whichever needs
fewer flops per product. All samples are stored in one allocation that is filled batch by batch: one allocation per
batch, between the temporaries of the next ones, fragments the heap to several times what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.layers.batches import LayerBatch
from hessmap.layers.layer import Layer
from hessmap.problem import LayerUse, ParameterPart


def restricted_layer(layer: Layer, outputs: Tensor, inputs: Tensor) -> Layer:
    """The layer restricted to some directions of its outputs and inputs: linear, with the same positions."""
    number, use = layer.uses[0]
    sizes = outputs.shape[1], inputs.shape[1]
    restricted = LayerUse(
        "linear",
        "restricted",
        use.parameters,
        ParameterPart(layer.weight),
        None,
        sizes,
        num_inputs=sizes[1],
        num_outputs=sizes[0],
        num_positions=layer.num_positions,
        input_size=layer.num_positions * sizes[1],
    )
    return replace(
        layer,
        kind="linear",
        num_outputs=sizes[0],
        num_inputs=sizes[1],
        uses=((number, restricted),),
        is_transposed=False,
        with_bias=False,
    )


# Sizes for two CPU cores; benchmarks/layer_eigenpairs.py times the products.
_LARGEST = 2**21  # entries of the largest temporary of a product
_CACHED = 2**18  # entries that are still in the cache when they are needed once more


@dataclass(frozen=True)
class StoredPatches:
    """Rows and inputs of some samples; products go through the layer's outputs."""

    batch: LayerBatch

    @property
    def layer(self) -> Layer:
        return self.batch.layer

    @property
    def device(self) -> torch.device:
        return self.batch.rows.device

    @property
    def num_bytes(self) -> int:
        return sum(_bytes_of(held) for held in (self.batch.rows, self.batch.flat_inputs, self.batch.signs))

    def compressed_bytes(self, num_outputs: int, num_inputs: int) -> int:
        """Bytes of ``compressed`` in the present dtype, with unfolded patches."""
        samples, rank, positions = self.batch.rows.shape[:3]
        return self.batch.rows.element_size() * samples * positions * (rank * num_outputs + num_inputs) + _bytes_of(
            self.batch.signs
        )

    def product(self, matrices: Tensor) -> Tensor:
        """H V; V and the product are (count, outputs, inputs)."""
        positions, outputs, count = self.batch.layer.num_positions, self.batch.layer.num_outputs, len(matrices)
        # What a sample's small products sum over lies side by side: outputs, or the outputs of all positions.
        ordered = matrices if positions == 1 else matrices.transpose(0, 1)
        flat, last = ordered.flatten(0, 1), ordered.shape[1]
        total, held = torch.zeros_like(flat), flat.new_empty(0)
        for part in parts(self.batch, positions * outputs * count, _LARGEST):
            inputs, rows = part.inputs.flatten(0, 1), part.rows.flatten(2)
            if len(held) < len(inputs):
                held = flat.new_empty(len(inputs), len(flat))
            moved = held[: len(inputs)]
            parted = torch.mm(inputs, flat.T, out=moved).view(len(rows), -1, last)
            if positions == 1:
                torch.bmm(part.signed_values(rows @ parted.mT).mT, rows, out=parted)
            else:
                torch.bmm(rows.mT, part.signed_values(rows @ parted), out=parted)
            total.addmm_(moved.T, inputs)
        return total.view(ordered.shape) if positions == 1 else total.view(ordered.shape).transpose(0, 1)

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype | None = None) -> StoredPatches:
        """The same for U^T J V: rows and inputs in coordinates along the columns of U and V."""
        samples, rank, positions = self.batch.rows.shape[:3]
        precision = precision or self.batch.rows.dtype
        flat_inputs = inputs.new_empty(samples, positions * inputs.shape[1], dtype=precision)
        rows = inputs.new_empty(samples, rank, positions, outputs.shape[1], dtype=precision)
        start = 0
        for part in parts(self.batch, self._largest_entries, _CACHED):
            place = slice(start, start + len(part.rows))
            flat_inputs[place] = (part.inputs @ inputs).flatten(1)
            rows[place] = part.rows @ outputs
            start = place.stop
        signs = None if self.batch.signs is None else self.batch.signs.to(precision)
        layer = restricted_layer(self.batch.layer, outputs, inputs)
        return StoredPatches(replace(self.batch, layer=layer, flat_inputs=flat_inputs, rows=rows, signs=signs))

    def without_signs(self) -> StoredPatches:
        """The sum of the same terms, all of them positive."""
        return StoredPatches(replace(self.batch, signs=None))

    def to_float32(self) -> StoredPatches:
        """The same terms in float32."""
        signs = None if self.batch.signs is None else self.batch.signs.float()
        return StoredPatches(
            replace(self.batch, flat_inputs=self.batch.flat_inputs.float(), rows=self.batch.rows.float(), signs=signs)
        )

    def jacobian_parts(self) -> Iterator[StoredJacobians]:
        """The matrices J, a few samples at a time."""
        for part in parts(self.batch, self.batch.rows.shape[1] * self.batch.layer.size, _LARGEST):
            yield stored_jacobians(part)

    def contract_inputs(self, matrix: Tensor) -> Tensor:
        """sum sign J C J^T for a matrix C over inputs."""
        outputs = self.batch.layer.num_outputs
        total = matrix.new_zeros(outputs, outputs)
        for part in parts(self.batch, self._largest_entries, _CACHED):
            inputs, rows = part.inputs, part.rows
            between = inputs @ matrix @ inputs.mT  # (samples, positions, positions)
            total += rows.flatten(0, 2).T @ part.signed_values(between[:, None] @ rows).flatten(0, 2)
        return total

    def contract_outputs(self, matrix: Tensor) -> Tensor:
        """sum sign J^T B J for a matrix B over outputs."""
        size = self.batch.layer.weight_shape[1]
        total = matrix.new_zeros(size, size)
        for part in parts(self.batch, self._largest_entries, _CACHED):
            inputs, rows = part.inputs, part.rows
            left, right = (_by_position(values) for values in (part.signed_values(rows @ matrix), rows))
            total += inputs.flatten(0, 1).T @ (left @ right.mT @ inputs).flatten(0, 1)
        return total

    @property
    def _largest_entries(self) -> int:
        """Of a sample's temporaries in a contraction."""
        rank, positions, outputs = self.batch.rows.shape[1:]
        return positions * max(rank * outputs, self.batch.layer.weight_shape[1], positions)


@dataclass(frozen=True)
class StoredJacobians:
    """Matrices J of some samples, flat, and their signs: a product is one GEMM.

    Attributes:
        layer: The layer.
        flat: The matrices, (samples * rank, outputs * inputs).
        signs: Their signs, (samples * rank,); None if all are positive.
    """

    layer: Layer
    flat: Tensor  # (samples * rank, outputs * inputs)
    signs: Tensor | None

    @property
    def device(self) -> torch.device:
        return self.flat.device

    @property
    def num_bytes(self) -> int:
        return _bytes_of(self.flat) + _bytes_of(self.signs)

    def compressed_bytes(self, num_outputs: int, num_inputs: int) -> int:
        """What ``compressed`` takes in the present format."""
        return self.flat.element_size() * len(self.flat) * num_outputs * num_inputs + _bytes_of(self.signs)

    @property
    def matrices(self) -> Tensor:
        return self.flat.view(-1, *self.layer.weight_shape)

    def signed_values(self, values: Tensor) -> Tensor:
        return values if self.signs is None else values * self.signs.reshape(-1, *[1] * (values.ndim - 1))

    def product(self, matrices: Tensor) -> Tensor:
        flat = matrices.flatten(1).T.contiguous()
        product = torch.zeros_like(flat)
        for part in self.jacobian_parts(_CACHED):
            product.addmm_(part.flat.T, part.signed_values(part.flat @ flat))
        return product.T.view(-1, *self.layer.weight_shape)

    def compressed(self, outputs: Tensor, inputs: Tensor, precision: torch.dtype | None = None) -> StoredJacobians:
        precision = precision or self.flat.dtype
        layer = restricted_layer(self.layer, outputs, inputs)
        flat = self.flat.new_empty(len(self.flat), layer.size, dtype=precision)
        start = 0
        for part in self.jacobian_parts(_CACHED):
            place = slice(start, start + len(part.flat))
            flat[place] = (outputs.T @ part.matrices @ inputs).flatten(1)
            start = place.stop
        return StoredJacobians(layer, flat, None if self.signs is None else self.signs.to(precision))

    def without_signs(self) -> StoredJacobians:
        return replace(self, signs=None)

    def to_float32(self) -> StoredJacobians:
        return StoredJacobians(self.layer, self.flat.float(), None if self.signs is None else self.signs.float())

    def jacobian_parts(self, entries: int = _LARGEST) -> Iterator[StoredJacobians]:
        """The same matrices, a few at a time."""
        step = max(1, entries // self.layer.size)
        for start in range(0, len(self.flat), step):
            place = slice(start, start + step)
            yield StoredJacobians(self.layer, self.flat[place], None if self.signs is None else self.signs[place])

    def contract_inputs(self, matrix: Tensor) -> Tensor:
        size = self.layer.weight_shape[0]
        total = matrix.new_zeros(size, size)
        for part in self.jacobian_parts(_CACHED):
            total += (part.signed_values(part.matrices @ matrix) @ part.matrices.mT).sum(0)
        return total

    def contract_outputs(self, matrix: Tensor) -> Tensor:
        size = self.layer.weight_shape[1]
        total = matrix.new_zeros(size, size)
        for part in self.jacobian_parts(_CACHED):
            total.addmm_(part.signed_values(matrix @ part.matrices).view(-1, size).T, part.flat.view(-1, size))
        return total


SampleTerms = StoredPatches | StoredJacobians


def _bytes_of(values: Tensor | None) -> int:
    return 0 if values is None else values.numel() * values.element_size()


def _by_position(values: Tensor) -> Tensor:
    """(samples, rank, positions, outputs) as (samples, positions, rank * outputs)."""
    return values.transpose(1, 2).flatten(2)


def stored_product(stored: list[SampleTerms], weight_shape: tuple[int, int], penalty: float, vectors: Tensor) -> Tensor:
    """The product of the sum of some stored parts, and of a multiple of the identity, with columns."""
    matrices = vectors.T.reshape(-1, *weight_shape)
    product = sum((part.product(matrices) for part in stored[1:]), stored[0].product(matrices)).flatten(1).T
    return product + penalty * vectors if penalty else product


def stored_jacobians(batch: LayerBatch) -> StoredJacobians:
    """The matrices J of a batch, shape (samples * rank, outputs * inputs)."""
    samples, rank, positions, outputs = batch.rows.shape
    if batch.layer.is_plain:
        left = batch.rows.mT.reshape(samples, rank * outputs, positions)
        flat = (left @ batch.inputs).view(samples * rank, batch.layer.size)
    else:
        flat = batch.layer.jacobians(batch.flat_inputs, batch.rows[:, :, 0]).view(samples * rank, batch.layer.size)
    return StoredJacobians(batch.layer, flat, None if batch.signs is None else batch.signs.flatten())


def parts(batch: LayerBatch, entries_per_sample: int, largest: int) -> list[LayerBatch]:
    """Split a batch so that the largest temporary has at most ``largest`` entries."""
    step = max(1, largest // entries_per_sample)
    return [
        LayerBatch(
            batch.layer,
            batch.flat_inputs[start : start + step],
            batch.weights[start : start + step],
            batch.rows[start : start + step],
            None if batch.signs is None else batch.signs[start : start + step],
        )
        for start in range(0, len(batch.rows), step)
    ]


Form = Literal["patches", "jacobians"]


class SampleStore:
    """Storage for all samples at the expected rank.

    Samples of smaller rank are padded with rows of zeros, samples without signs with ones. The first batch of larger
    rank, or with signs where there were none, opens a new allocation for the remaining samples.
    """

    def __init__(self, layer: Layer, form: Form, num_samples: int, rank: int) -> None:
        self.layer = layer
        self.form = form
        self._rank = rank
        self._num_left = num_samples
        self._num_filled = 0
        self._buffers: dict[str, Tensor] = {}
        self._closed: list[SampleTerms] = []

    def add(self, batch: LayerBatch) -> None:
        """Append a batch."""
        count, rank = batch.rows.shape[:2]
        gets_signs = batch.signs is not None and bool(self._buffers) and "signs" not in self._buffers
        if rank > self._rank or gets_signs:
            self._closed = self.stored
            self._buffers, self._num_filled, self._rank = {}, 0, max(rank, self._rank)
        place = slice(self._num_filled, self._num_filled + count)
        if batch.signs is None and "signs" in self._buffers:
            batch = replace(batch, signs=batch.rows.new_ones(count, rank))
        for name, values in self._by_sample(_widened_batch(batch, self._rank)).items():
            if name not in self._buffers:
                self._buffers[name] = values.new_empty(self._num_left, *values.shape[1:])
            self._buffers[name][place] = values
        self._num_filled += count
        self._num_left -= count

    @property
    def stored(self) -> list[SampleTerms]:
        """The stored terms, one part per allocation."""
        if not self._num_filled:
            return self._closed
        filled = {name: buffer[: self._num_filled] for name, buffer in self._buffers.items()}
        signs = filled.get("signs")
        if self.form == "patches":
            batch = LayerBatch(self.layer, filled["flat_inputs"], filled["weights"], filled["rows"], signs)
            return [*self._closed, StoredPatches(batch)]
        flat = filled["matrices"].flatten(0, 1)
        return [*self._closed, StoredJacobians(self.layer, flat, None if signs is None else signs.flatten())]

    def _by_sample(self, batch: LayerBatch) -> dict[str, Tensor]:
        signs = {} if batch.signs is None else {"signs": batch.signs}
        if self.form == "patches":
            return {"flat_inputs": batch.flat_inputs, "weights": batch.weights, "rows": batch.rows} | signs
        return {"matrices": stored_jacobians(batch).flat.view(*batch.rows.shape[:2], self.layer.size)} | signs


def _widened_batch(batch: LayerBatch, rank: int) -> LayerBatch:
    missing = rank - batch.rows.shape[1]
    if not missing:
        return batch
    signs = None if batch.signs is None else F.pad(batch.signs, (0, missing), value=1.0)
    return replace(batch, rows=F.pad(batch.rows, (0, 0, 0, 0, 0, missing)), signs=signs)
