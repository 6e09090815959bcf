"""One allocation for what a layer Hessian holds, filled batch by batch.

Tensors of every batch for themselves would lie between the temporaries of the next ones; what these leave is then too
short for the batch after, and the memory of the process grows with every batch, to several times what is held.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.curvature.layers.batches import LayerBatch
from hessmap.curvature.layers.layer import Layer
from hessmap.curvature.layers.stored_samples import Stored, StoredJacobians, StoredPatches, stored_jacobians

Form = Literal["patches", "jacobians"]


class SampleStore:
    """Room for all samples at the rank that is expected.

    Samples of a smaller rank get rows of zeros, and samples without signs signs of one. The first batch of a larger
    rank, or with signs where there were none, opens room for those that are left.
    """

    def __init__(self, layer: Layer, form: Form, num_samples: int, rank: int) -> None:
        self.layer = layer
        self.form = form
        self._rank = rank
        self._num_left = num_samples
        self._num_filled = 0
        self._buffers: dict[str, Tensor] = {}
        self._closed: list[Stored] = []

    def add(self, batch: LayerBatch) -> None:
        """Copy a batch behind those before."""
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
                self._buffers[name] = torch.empty(self._num_left, *values.shape[1:], dtype=values.dtype)
            self._buffers[name][place] = values
        self._num_filled += count
        self._num_left -= count

    @property
    def stored(self) -> list[Stored]:
        """What was added, as few parts as there were ranks."""
        if not self._num_filled:
            return self._closed
        filled = {name: buffer[: self._num_filled] for name, buffer in self._buffers.items()}
        signs = filled.get("signs")
        if self.form == "patches":
            batch = LayerBatch(self.layer, filled["entering"], filled["weights"], filled["rows"], signs)
            return [*self._closed, StoredPatches(batch)]
        flat = filled["matrices"].flatten(0, 1)
        return [*self._closed, StoredJacobians(self.layer, flat, None if signs is None else signs.flatten())]

    def _by_sample(self, batch: LayerBatch) -> dict[str, Tensor]:
        signs = {} if batch.signs is None else {"signs": batch.signs}
        if self.form == "patches":
            return {"entering": batch.entering, "weights": batch.weights, "rows": batch.rows} | signs
        return {"matrices": stored_jacobians(batch).flat.view(*batch.rows.shape[:2], self.layer.size)} | signs


def _widened_batch(batch: LayerBatch, rank: int) -> LayerBatch:
    missing = rank - batch.rows.shape[1]
    if not missing:
        return batch
    signs = None if batch.signs is None else F.pad(batch.signs, (0, missing), value=1.0)
    return replace(batch, rows=F.pad(batch.rows, (0, 0, 0, 0, 0, missing)), signs=signs)
