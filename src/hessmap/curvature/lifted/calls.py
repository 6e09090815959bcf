"""Every use of a parameter in a forward pass, seen and perturbed without touching the model.

A torch-function mode watches the functional calls, so a weight that is used twice (tied, a module called twice) is
seen twice, and nothing is hooked into the user's modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hessmap.curvature.convolution_geometry import ConvolutionGeometry

Space = Literal["outputs", "weights"]


@dataclass(frozen=True)
class Call:
    """One use of parameters: ``z = W a + b`` at every position, where a are the ``num_inputs`` features that the
    outputs of a group share.

    A linear layer has one group; a convolution is linear over its patches; the scale of a normalisation is as many
    groups as outputs, with one feature each. ``num_positions`` counts how often a sample passes through it (tokens,
    pixels), ``input_size`` the numbers that enter per sample. Names of frozen or missing parameters are None.
    """

    weight: str | None
    bias: str | None
    num_positions: int
    num_inputs: int
    num_outputs: int
    num_groups: int
    input_size: int
    window: ConvolutionGeometry | None = None

    @property
    def output_size(self) -> int:
        return self.num_positions * self.num_outputs

    @property
    def num_features(self) -> int:
        """Parameters per output."""
        return (self.num_inputs if self.weight is not None else 0) + (self.bias is not None)

    @property
    def space(self) -> Space:
        """Where it is perturbed: in its outputs, or in its weights if they are fewer."""
        return "weights" if self.num_features < self.num_positions else "outputs"

    @property
    def directions_per_output(self) -> int:
        return self.num_features if self.space == "weights" else self.num_positions

    @property
    def is_plain(self) -> bool:
        """A linear layer that every sample passes through once."""
        return self.num_positions == self.num_groups == 1 and self.window is None and self.space == "outputs"

    @property
    def held_size(self) -> int:
        """Numbers held of a sample: its inputs, slopes and features, and the slopes spread over the image."""
        features = self.num_groups * self.num_positions * (self.num_inputs + 1)
        spread = self.num_outputs * prod(self.window.kernel) * prod(self.window.padded) if self.window else 0
        return self.input_size + self.output_size + 2 * features + 2 * spread

    def features(self, inputs: Tensor) -> Tensor:
        """What the weights multiply, (groups, samples, positions, num_inputs), of inputs (samples, input_size)."""
        if self.window is not None:
            return self.window.patches(inputs)
        return inputs.reshape(len(inputs), self.num_positions, self.num_groups, -1).permute(2, 0, 1, 3)


class Lift(TorchFunctionMode):
    """Records the calls of named parameters and adds a perturbation to the output of each.

    ``inputs[c]`` is what enters call c, shape (num_samples, input_size); ``perturbations[c]``, where it is not None,
    is added to its output, shape (num_samples, num_outputs, num_positions). ``matrices[c]`` may hold a convolution as
    one matrix.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        num_samples: int,
        perturbations: Sequence[Tensor | None] | None = None,
        matrices: Sequence[Tensor | None] | None = None,
    ) -> None:
        super().__init__()
        self.names = names
        self.num_samples = num_samples
        self.perturbations = perturbations
        self.matrices = matrices
        self.calls: list[Call] = []
        self.weights: list[Tensor | None] = []
        self.inputs: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        watched = _WATCHED.get(func)
        if watched is None:
            return func(*args, **kwargs)
        arguments = dict(zip(watched, args, strict=False)) | kwargs
        weight, bias = (self.names.get(id(arguments.get(key))) for key in ("weight", "bias"))
        if weight is None and bias is None:
            return func(*args, **kwargs)
        if func is F.linear:
            return self._dense(arguments, weight, bias)
        if func in (F.conv1d, F.conv2d):
            if arguments["input"].shape[: -2 if func is F.conv1d else -3] != (self.num_samples,):
                return func(*args, **kwargs)
            return self._convolution(arguments, weight, bias)
        return self._norm(func, arguments, weight, bias)

    def _dense(self, arguments: dict[str, Any], weight: str | None, bias: str | None) -> Tensor:
        entering: Tensor = arguments["input"]
        leaving = F.linear(entering, arguments["weight"], arguments.get("bias"))
        return self._lift_last(1, weight, bias, entering, leaving)

    def _convolution(self, arguments: dict[str, Any], weight: str | None, bias: str | None) -> Tensor:
        entering, kernel, shift = arguments["input"], arguments["weight"], arguments.get("bias")
        given = (arguments.get(key, default) for key, default in _CONVOLUTION.items())
        seen = ConvolutionGeometry.of_call(entering.shape[2:], kernel.shape[2:], *given)
        matrix = self.matrices[len(self.calls)] if self.matrices is not None else None
        if matrix is None:
            leaving = seen.convolve(entering.reshape(*entering.shape[:2], *seen.image), kernel)
        else:
            leaving = (entering.flatten(1) @ matrix).reshape(len(entering), len(kernel), -1)
        leaving = leaving if shift is None else leaving + shift[:, None]
        sizes = prod(seen.positions), prod(kernel.shape[1:]), len(kernel), seen.groups, entering[0].numel()
        leaving = self._lift(Call(weight, bias, *sizes, seen), entering, leaving, kernel)
        return leaving.reshape(*leaving.shape[:2], *seen.positions[4 - entering.ndim :])

    def _norm(
        self, func: Callable[..., Any], arguments: dict[str, Any], weight: str | None, bias: str | None
    ) -> Tensor:
        """Normalise without scale and shift, features last; then scale and shift are a diagonal layer."""
        if func is F.group_norm:  # the same through layer_norm, whose gradient can be pushed forward
            groups = arguments["input"].reshape(len(arguments["input"]), arguments["num_groups"], -1)
            normalised = F.layer_norm(groups, groups.shape[-1:], eps=arguments.get("eps", 1e-5))
            normalised = normalised.reshape(arguments["input"].shape)
        else:
            normalised = func(**(arguments | {"weight": None, "bias": None}))
        scale, shift = arguments.get("weight"), arguments.get("bias")
        if func is F.layer_norm:
            size = prod(arguments["normalized_shape"])
            entering = normalised.reshape(*normalised.shape[: -len(arguments["normalized_shape"])], size)
        else:
            size = normalised.shape[1]
            entering = normalised.movedim(1, -1)
        leaving = entering if scale is None else entering * scale.reshape(size)
        leaving = leaving if shift is None else leaving + shift.reshape(size)
        leaving = self._lift_last(size, weight, bias, entering, leaving)
        return leaving.reshape(normalised.shape) if func is F.layer_norm else leaving.movedim(-1, 1)

    def _lift_last(
        self, groups: int, weight: str | None, bias: str | None, entering: Tensor, leaving: Tensor
    ) -> Tensor:
        """Lift a call whose features and outputs are last in their tensors."""
        outputs = leaving.shape[-1]
        positions = leaving.numel() // outputs // self.num_samples
        sizes = positions, entering.shape[-1] // groups, outputs, groups, entering.numel() // self.num_samples
        shape = leaving.shape
        leaving = leaving.reshape(self.num_samples, positions, outputs).mT
        return self._lift(Call(weight, bias, *sizes), entering, leaving).mT.reshape(shape)

    def _lift(self, call: Call, entering: Tensor, leaving: Tensor, weight: Tensor | None = None) -> Tensor:
        place = len(self.calls)
        self.inputs.append(entering.reshape(self.num_samples, -1))
        self.calls.append(call)
        self.weights.append(weight)
        perturbation = self.perturbations[place] if self.perturbations is not None else None
        return leaving if perturbation is None else leaving + perturbation


_CONVOLUTION: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_WATCHED: dict[Callable[..., Any], tuple[str, ...]] = {
    F.linear: ("input", "weight", "bias"),
    F.conv1d: ("input", "weight", "bias", *_CONVOLUTION),
    F.conv2d: ("input", "weight", "bias", *_CONVOLUTION),
    F.batch_norm: ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    F.layer_norm: ("input", "normalized_shape", "weight", "bias", "eps"),
    F.group_norm: ("input", "num_groups", "weight", "bias", "eps"),
}
