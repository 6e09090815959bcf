"""Sums over samples of signed outer products of matrices J = sum_p row_p x_p^T: what a layer Hessian is made of.

    H = sum sign vec(J) vec(J)^T,    J of shape (outputs, inputs), one per sample and row of its output curvature

A batch is held as rows and inputs ("patches": J is never formed) or as the matrices J themselves ("jacobians"),
whichever multiplies with fewer flops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hessmap.curvature.layers.batches import LayerBatch
from hessmap.curvature.layers.watch import Layer

_CACHED = 2**21  # entries of the largest temporary of a product


@dataclass(frozen=True)
class HeldPatches:
    """Rows and inputs of some samples; products go through the layer's outputs."""

    batch: LayerBatch

    @property
    def layer(self) -> Layer:
        return self.batch.layer

    @property
    def num_bytes(self) -> int:
        signs = self.batch.signs
        return 8 * (self.batch.rows.numel() + self.batch.entering.numel() + (0 if signs is None else signs.numel()))

    def add_product(self, vectors: Tensor, total: Tensor) -> None:
        """Add H V to the total; V and the total are (inputs, outputs, count)."""
        layer, count = self.batch.layer, vectors.shape[2]
        positions, outputs = layer.num_positions, layer.num_outputs
        right, out = vectors.reshape(len(vectors), -1), total.view(len(total), -1)
        for part in parts(self.batch, positions * outputs * count):
            inputs, rows = part.inputs.flatten(0, 1), part.rows.flatten(2)
            moved = (inputs @ right).view(len(rows), positions * outputs, count)
            curved = rows.mT @ part.signed(rows @ moved)
            out.addmm_(inputs.T, curved.view(len(inputs), outputs * count))

    def compressed(self, outputs: Tensor, inputs: Tensor) -> HeldPatches:
        """The same for U^T J V: rows and inputs in coordinates along the columns of U and V."""
        entering = (self.batch.inputs @ inputs).flatten(1)
        layer = seen_along(self.batch.layer, outputs, inputs)
        return HeldPatches(replace(self.batch, layer=layer, entering=entering, rows=self.batch.rows @ outputs))

    def single(self) -> HeldPatches:
        """The same in float32."""
        signs = None if self.batch.signs is None else self.batch.signs.float()
        return HeldPatches(
            replace(self.batch, entering=self.batch.entering.float(), rows=self.batch.rows.float(), signs=signs)
        )

    def jacobian_parts(self) -> Iterator[HeldJacobians]:
        """The matrices J, a few samples at a time."""
        for part in parts(self.batch, self.batch.rows.shape[1] * self.batch.layer.size):
            yield jacobians(part)

    def contracted_inputs(self, matrix: Tensor) -> Tensor:
        """sum sign J C J^T for a matrix C over inputs."""
        outputs = self.batch.layer.num_outputs
        total = matrix.new_zeros(outputs, outputs)
        for part in parts(self.batch, self._largest_entries):
            inputs, rows = part.inputs, part.rows
            between = inputs @ matrix @ inputs.mT  # (samples, positions, positions)
            total += rows.flatten(0, 2).T @ part.signed(between[:, None] @ rows).flatten(0, 2)
        return total

    def contracted_outputs(self, matrix: Tensor) -> Tensor:
        """sum sign J^T B J for a matrix B over outputs."""
        size = self.batch.layer.weight_shape[1]
        total = matrix.new_zeros(size, size)
        for part in parts(self.batch, self._largest_entries):
            inputs, rows = part.inputs, part.rows
            left, right = (_by_position(values) for values in (part.signed(rows @ matrix), rows))
            total += inputs.flatten(0, 1).T @ (left @ right.mT @ inputs).flatten(0, 1)
        return total

    @property
    def _largest_entries(self) -> int:
        """Of a sample's temporaries in a contraction."""
        rank, positions, outputs = self.batch.rows.shape[1:]
        return positions * max(rank * outputs, self.batch.layer.weight_shape[1], positions)


@dataclass(frozen=True)
class HeldJacobians:
    """The matrices J of some samples, flat, and their signs: one large product."""

    layer: Layer
    flat: Tensor  # (samples * rank, outputs * inputs)
    signs: Tensor | None

    @property
    def num_bytes(self) -> int:
        return 8 * (self.flat.numel() + (0 if self.signs is None else self.signs.numel()))

    @property
    def matrices(self) -> Tensor:
        return self.flat.view(-1, *self.layer.weight_shape)

    def signed(self, values: Tensor) -> Tensor:
        return values if self.signs is None else values * self.signs.reshape(-1, *[1] * (values.ndim - 1))

    def add_product(self, vectors: Tensor, total: Tensor) -> None:
        flat = vectors.transpose(0, 1).reshape(self.layer.size, -1)
        product = self.flat.T @ self.signed(self.flat @ flat)
        total += product.view(*self.layer.weight_shape, -1).transpose(0, 1)

    def compressed(self, outputs: Tensor, inputs: Tensor) -> HeldJacobians:
        flat = (outputs.T @ self.matrices @ inputs).flatten(1)
        return HeldJacobians(seen_along(self.layer, outputs, inputs), flat, self.signs)

    def single(self) -> HeldJacobians:
        return HeldJacobians(self.layer, self.flat.float(), None if self.signs is None else self.signs.float())

    def jacobian_parts(self) -> Iterator[HeldJacobians]:
        yield self

    def contracted_inputs(self, matrix: Tensor) -> Tensor:
        matrices = self.matrices
        return torch.einsum("kia,kja->ij", self.signed(matrices @ matrix), matrices)

    def contracted_outputs(self, matrix: Tensor) -> Tensor:
        matrices = self.matrices
        return torch.einsum("kia,kib->ab", self.signed(matrix @ matrices), matrices)


Held = HeldPatches | HeldJacobians


def _by_position(values: Tensor) -> Tensor:
    """(samples, rank, positions, outputs) as (samples, positions, rank * outputs)."""
    return values.transpose(1, 2).flatten(2)


def held_product(held: list[Held], weight_shape: tuple[int, int], penalty: float, vectors: Tensor) -> Tensor:
    """The product of the sum of some held parts, and of a multiple of the identity, with columns."""
    matrices = vectors.reshape(*weight_shape, -1).transpose(0, 1).contiguous()
    total = torch.zeros_like(matrices)
    for part in held:
        part.add_product(matrices, total)
    product = total.transpose(0, 1).reshape(len(vectors), -1)
    return product + penalty * vectors if penalty else product


def seen_along(layer: Layer, outputs: Tensor, inputs: Tensor) -> Layer:
    """The layer in other coordinates: a linear one over as many positions."""
    shape = (1, layer.num_positions, inputs.shape[1])
    return replace(
        layer,
        kind="linear",
        num_outputs=outputs.shape[1],
        num_inputs=inputs.shape[1],
        input_shape=shape,
        with_bias=False,
        patches=None,
    )


def jacobians(batch: LayerBatch) -> HeldJacobians:
    """The matrices J of a batch, shape (samples * rank, outputs * inputs)."""
    flat = (batch.rows.mT @ batch.inputs[:, None]).flatten(0, 1).flatten(1)
    return HeldJacobians(batch.layer, flat, None if batch.signs is None else batch.signs.flatten())


def parts(batch: LayerBatch, entries_per_sample: int) -> list[LayerBatch]:
    """A batch in pieces whose largest temporary stays in the cache."""
    step = max(1, _CACHED // entries_per_sample)
    return [
        LayerBatch(
            batch.layer,
            batch.entering[start : start + step],
            batch.weights[start : start + step],
            batch.rows[start : start + step],
            None if batch.signs is None else batch.signs[start : start + step],
        )
        for start in range(0, len(batch.rows), step)
    ]
