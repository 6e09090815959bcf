"""Every linear map and convolution of a forward pass as a place of its graph: what entered, what left, and whose.

All layers are seen in one pass, and rows are pulled back to all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hessmap.curvature.evaluation import OperationRewriter
from hessmap.curvature.layers.patches import Patches
from hessmap.curvature.layers.watch import WATCHED
from hessmap.curvature.layout import Layout
from hessmap.curvature.problem import Problem


@dataclass(frozen=True, eq=False)
class Tap:
    """One use of a weight: z = W x + b at every position of a sample.

    ``weight`` and ``bias`` name what is differentiated, None what is not; ``leaving`` is z, as a place of the graph.
    """

    weight: str | None
    bias: str | None
    entering: Tensor
    leaving: Tensor
    patches: Patches | None
    num_samples: int
    num_outputs: int
    num_inputs: int

    @property
    def num_positions(self) -> int:
        return self.leaving.numel() // (self.num_samples * self.num_outputs)

    @property
    def num_columns(self) -> int:
        """Entries of the extended input: those of the weight, and a one for the bias, if they are differentiated."""
        return (0 if self.weight is None else self.num_inputs) + (self.bias is not None)

    def inputs(self, chosen: slice) -> Tensor:
        """The extended inputs of some samples, shape (samples, positions, columns)."""
        images = len(self.entering) // self.num_samples  # a convolution may see several images of a sample
        entering = self.entering.reshape(self.num_samples, images, *self.entering.shape[1:])[chosen]
        rows = entering if self.patches is None else self.patches.unfolded(entering.flatten(0, 1))
        rows = rows.reshape(len(entering), self.num_positions, self.num_inputs)
        ones = rows.new_ones(*rows.shape[:2], 1)
        return ones if self.weight is None else rows if self.bias is None else torch.cat([rows, ones], 2)

    def by_output(self, rows: Tensor) -> Tensor:
        """Rows in the outputs, (rows, *shape of leaving), as (samples, rows, outputs, positions)."""
        if self.patches is None:
            return rows.reshape(len(rows), self.num_samples, -1, self.num_outputs).permute(1, 0, 3, 2)
        images = rows.reshape(len(rows), self.num_samples, -1, self.num_outputs, rows[0, 0, 0].numel())
        return images.permute(1, 0, 3, 2, 4).flatten(3)

    def as_leaving(self, rows: Tensor) -> Tensor:
        """The way back: (samples, rows, outputs, positions) in the shape of leaving."""
        if self.patches is None:
            return rows.permute(1, 0, 3, 2).reshape(-1, *self.leaving.shape)
        images = rows.reshape(*rows.shape[:3], -1, self.leaving[0, 0].numel())
        return images.permute(1, 0, 3, 2, 4).reshape(-1, *self.leaving.shape)


class Taps(TorchFunctionMode):
    """Records the uses of some parameters in linear maps and ungrouped convolutions, and cuts the graph there."""

    def __init__(self, names: Mapping[int, str], num_samples: int) -> None:
        super().__init__()
        self.names = names
        self.num_samples = num_samples
        self.found: list[Tap] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaving = func(*args, **kwargs)
        if func not in WATCHED:
            return leaving
        arguments = dict(zip(WATCHED[func], args, strict=False)) | kwargs
        weight, bias = (self.names.get(id(arguments.get(kind))) for kind in ("weight", "bias"))
        if (weight is None and bias is None) or not self._fits(arguments, leaving):
            return leaving
        leaving = leaving if leaving.requires_grad else leaving.detach().requires_grad_()
        self.found.append(self._tap(weight, bias, arguments, leaving))
        return leaving.clone()  # what comes next may work in place

    def _fits(self, arguments: dict[str, Any], leaving: Tensor) -> bool:
        """Samples come first, and no image is without them."""
        kernel = arguments["weight"]
        is_batched = kernel.ndim == 2 or arguments["input"].ndim == kernel.ndim
        return is_batched and len(leaving) % self.num_samples == 0 and arguments.get("groups", 1) == 1

    def _tap(self, weight: str | None, bias: str | None, arguments: dict[str, Any], leaving: Tensor) -> Tap:
        kernel = arguments["weight"]
        patches = None if kernel.ndim == 2 else Patches.of(kernel, arguments)
        entering = arguments["input"].detach()
        return Tap(weight, bias, entering, leaving, patches, self.num_samples, len(kernel), kernel[0].numel())


@dataclass(frozen=True, eq=False)
class Tapped:
    """One batch: the outputs of the network as a function of what left its layers.

    ``together`` says that rows are pulled back at once, which pays where an operation costs less than its call.
    """

    outputs: Tensor
    targets: Tensor
    weights: Tensor
    taps: tuple[Tap, ...]
    together: bool

    @property
    def places(self) -> list[Tensor]:
        return [tap.leaving for tap in self.taps]

    def flat(self, layout: Layout, parts: Sequence[Tensor]) -> Tensor:
        """Matrices over the layers, (outputs, columns), as one float64 vector over the parameters."""
        vector, places = torch.zeros(layout.size, dtype=torch.float64), dict(layout)
        for tap, part in zip(self.taps, parts, strict=True):
            if tap.weight is not None:
                vector[places[tap.weight]] = part[:, : tap.num_inputs].flatten().to(vector)
            if tap.bias is not None:
                vector[places[tap.bias]] = part[:, -1].to(vector)
        return vector


def tapped(problem: Problem, batch: tuple[Any, Tensor, Tensor], together: bool) -> Tapped | None:
    """The layers of a batch; None unless every parameter is the weight or the bias of one use of one layer."""
    inputs, targets, weights = batch
    taps = Taps({id(value): name for name, value in problem.named.items()}, len(targets))
    own = next(iter(problem.named.values()))
    is_slow = not together and own.dtype == torch.float64 and own.device.type == "cpu"
    with torch.enable_grad(), OperationRewriter(fast_convolutions=is_slow), taps:
        outputs = problem.forward(problem.named, inputs)
    used = Counter(name for tap in taps.found for name in (tap.weight, tap.bias) if name is not None)
    if used != Counter(problem.named.keys()):
        return None
    return Tapped(outputs, targets, weights, tuple(taps.found), together)
