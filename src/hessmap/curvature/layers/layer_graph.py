"""Every use of a weight in a forward pass as a place of its graph: what entered, what left, and whose it is.

All layers are cut out in one pass, and vector-Jacobian products reach all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from hessmap.curvature.batch_graph import has_slow_convolutions
from hessmap.curvature.layout import Layout
from hessmap.curvature.nested_tensors import num_rows
from hessmap.curvature.problem import Problem
from hessmap.curvature.recording import LayerCall, LayerUse, Recording, recording_of, replay
from hessmap.curvature.weighted_samples import Batch


@dataclass(frozen=True, eq=False)
class GraphUse:
    """One use of a weight: z = W x + b at every position of a sample.

    ``entering`` is what entered, (samples, input_size); ``leaving`` is z, as a place of the graph.
    """

    use: LayerUse
    entering: Tensor
    leaving: Tensor

    @property
    def num_positions(self) -> int:
        return self.use.num_positions

    @property
    def num_outputs(self) -> int:
        return self.use.num_outputs

    @property
    def num_groups(self) -> int:
        return self.use.num_groups

    @property
    def num_columns(self) -> int:
        """Entries of the extended input: those of the weight, and a one for the bias, if they are differentiated."""
        return (0 if self.use.weight is None else self.use.num_inputs) + (self.use.bias is not None)

    def inputs(self, chosen: slice) -> Tensor:
        """The extended inputs of some samples, shape (groups, samples, positions, columns)."""
        entering = self.entering[chosen]
        shape = self.num_groups, len(entering), self.num_positions
        ones = self.leaving.new_ones(*shape, 1)
        if self.use.weight is None:
            return ones
        rows = self.use.features(entering)
        return rows if self.use.bias is None else torch.cat([rows, ones], 3)

    def by_output(self, rows: Tensor) -> Tensor:
        """Rows in what left, (rows, *shape of leaving), as (samples, rows, outputs, positions)."""
        count = len(self.entering)
        found: Tensor = vmap(lambda row: self.use.sample_outputs(row, count))(rows)
        return found.transpose(0, 1)

    def as_leaving(self, rows: Tensor) -> Tensor:
        """The way back: (samples, rows, outputs, positions) in the shape of leaving."""
        shape = tuple(self.leaving.shape)
        found: Tensor = vmap(lambda row: self.use.row_outputs(row, shape))(rows.transpose(0, 1))
        return found


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """One batch: the outputs of the network as a function of what left its layers.

    ``together`` says that vector-Jacobian products are made at once, which pays where an operation is cheap.
    """

    problem: Problem
    outputs: Tensor
    targets: Tensor
    weights: Tensor
    uses: tuple[GraphUse, ...]
    together: bool

    @property
    def places(self) -> list[Tensor]:
        return [use.leaving for use in self.uses]

    def flat(self, layout: Layout, parts: Sequence[Tensor]) -> Tensor:
        """Matrices over the uses, (outputs, columns), as one float64 vector over the parameters."""
        vector, places = torch.zeros(layout.size, dtype=torch.float64), dict(layout)
        for own, part in zip(self.uses, parts, strict=True):
            weight, bias = own.use.weight, own.use.bias
            if weight is not None:
                values = part[:, : own.use.num_inputs].flatten().to(vector)
                entries = own.use.weight_entries
                vector[places[weight.name]][slice(None) if entries is None else entries] = values
            if bias is not None:
                index = None if bias.index is None else bias.index.flatten()
                vector[places[bias.name]][slice(None) if index is None else index] = part[:, -1].to(vector)
        return vector


def layer_graph(problem: Problem, batch: Batch, together: bool) -> LayerGraph | None:
    """The layers of a batch; None unless every parameter acts through known layers, each of its entries once."""
    recording = recording_of(problem)
    if not recording.uses or not _acts_once(recording):
        return None
    inputs, targets, weights = batch
    count, found = num_rows(inputs), list[GraphUse]()
    is_slow = not together and has_slow_convolutions(problem)

    def at_use(number: int, call: LayerCall) -> Tensor:
        use = recording.uses[number]
        outputs = call.fast_outputs() if is_slow and call.fast_outputs is not None else call.outputs()
        if outputs.dtype != problem.dtype:
            raise RuntimeError("a layer computes in another number format than the model")
        leaving = outputs if outputs.requires_grad else outputs.detach().requires_grad_()
        entering = use.sample_inputs(call.inputs.detach(), count, problem.dtype)
        found.append(GraphUse(use, entering, leaving))
        return leaving.clone()  # what comes next may work in place

    with torch.enable_grad():
        outputs = replay(problem, recording, inputs, range(len(recording.uses)), at_use)
    return LayerGraph(problem, outputs, targets, weights, tuple(found), together)


def _acts_once(recording: Recording) -> bool:
    """Whether every use is known and no entry of a parameter is used twice."""
    if not recording.is_fixed or any(not use.is_structured for use in recording.uses):
        return False
    used = [name for name in recording.names if recording.uses_of(name)]
    return all(name in recording.structured_names and _are_apart(recording, name) for name in used)


def _are_apart(recording: Recording, name: str) -> bool:
    uses = recording.uses_of(name)
    if len(uses) == 1:
        return True
    parts = [part for use in uses for part in (use.weight, use.bias) if part is not None and part.name == name]
    if any(part.index is None for part in parts):
        return False
    entries = torch.cat([part.index.flatten() for part in parts if part.index is not None]).tolist()
    return len(set(entries)) == len(entries)
