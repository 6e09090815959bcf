"""The operations through which parameters act as layers: one reader for each kind, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.curvature.convolution_geometry import ConvolutionGeometry
from hessmap.curvature.matrix_convolution import matrix_convolution
from hessmap.curvature.recording.layer_call import LayerCall, Parts


def layer_call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], parts: Parts
) -> LayerCall | None:
    """The call as a layer, if the operation is known and a parameter stands where a weight or a bias does."""
    known = _KNOWN.get(func)
    if known is None:
        return None
    names, reader = known
    return reader(func, dict(zip(names, args, strict=False)) | kwargs, parts)


def _same(outputs: Tensor) -> Tensor:
    return outputs


def _linear_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    weight, bias = parts(given["weight"]), parts(given.get("bias"))
    entering, matrix, shift = given["input"], given["weight"], given.get("bias")
    if (weight is None and bias is None) or matrix.ndim != 2 or entering.ndim < 2:
        return None
    sizes = matrix.shape[1], matrix.shape[0]
    return LayerCall(
        "linear",
        "linear",
        weight,
        bias,
        matrix,
        shift,
        entering,
        lambda: F.linear(entering, matrix, shift),
        _same,
        *sizes,
    )


def _matmul_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    entering, matrix = given["input"], given["other"]
    if func is torch.Tensor.__rmatmul__:
        entering, matrix = matrix, entering
    weight = parts(matrix)
    if weight is None or matrix.ndim != 2 or entering.ndim < 2:
        return None
    made = lambda: entering @ matrix  # noqa: E731
    sizes = matrix.shape[0], matrix.shape[1]
    return LayerCall("linear", "matmul", weight, None, matrix, None, entering, made, _same, *sizes, transposed=True)


def _addmm_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    shift, entering, matrix = given["input"], given["mat1"], given["mat2"]
    weight, bias = parts(matrix), parts(shift)
    fits = shift.shape == matrix.shape[1:] and given.get("beta", 1) == given.get("alpha", 1) == 1
    if (weight is None and bias is None) or not fits:
        return None
    made = lambda: torch.addmm(shift, entering, matrix)  # noqa: E731
    sizes = matrix.shape[0], matrix.shape[1]
    return LayerCall("linear", "addmm", weight, bias, matrix, shift, entering, made, _same, *sizes, transposed=True)


def _convolution_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    entering, kernel, shift = given["input"], given["weight"], given.get("bias")
    weight, bias = parts(kernel), parts(shift)
    if (weight is None and bias is None) or entering.ndim != kernel.ndim:
        return None
    options = (given.get(key, default) for key, default in _CONVOLUTION.items())
    geometry = ConvolutionGeometry.of_call(entering.shape[2:], kernel.shape[2:], *options)

    def outputs() -> Tensor:
        made: Tensor = func(**given)
        return made.flatten(2)

    def fast_outputs() -> Tensor:
        return matrix_convolution(**given).flatten(2)

    def returned(values: Tensor) -> Tensor:
        num_axes = entering.ndim - 2
        return values.reshape(*values.shape[:2], *geometry.positions[len(geometry.positions) - num_axes :])

    sizes = prod(kernel.shape[1:]), len(kernel), geometry.groups
    return LayerCall(
        "convolution",
        func.__name__,
        weight,
        bias,
        kernel,
        shift,
        entering,
        outputs,
        returned,
        *sizes,
        geometry=geometry,
        fast_outputs=fast_outputs if func is F.conv2d else None,
    )


def _embedding_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    numbers, table = given["input"], given["weight"]
    weight = parts(table)
    is_plain = given.get("max_norm") is None and not given.get("scale_grad_by_freq") and not given.get("sparse")
    if weight is None or not is_plain or numbers.ndim == 0 or table.ndim != 2:
        return None
    padding = given.get("padding_idx")
    padding = padding + len(table) if padding is not None and padding < 0 else padding
    return LayerCall(
        "embedding",
        "embedding",
        weight,
        None,
        table,
        None,
        numbers,
        lambda: F.embedding(numbers, table, given.get("padding_idx")),
        _same,
        table.shape[0],
        table.shape[1],
        transposed=True,
        padding_index=padding,
    )


def _normalisation_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    """Normalise without scale and shift, features last; then scale and shift are a diagonal layer."""
    scale, shift = given.get("weight"), given.get("bias")
    weight, bias = parts(scale), parts(shift)
    if weight is None and bias is None:
        return None
    if func is F.group_norm:  # the same through layer_norm, whose gradient can be pushed forward
        groups = given["input"].reshape(len(given["input"]), given["num_groups"], -1)
        normalised = F.layer_norm(groups, groups.shape[-1:], eps=given.get("eps", 1e-5)).reshape(given["input"].shape)
    else:
        normalised = func(**(given | {"weight": None} | ({"bias": None} if "bias" in given else {})))
    if "normalized_shape" in given:
        axes = len(given["normalized_shape"])
        entering = normalised.reshape(*normalised.shape[:-axes], -1)
        returned = lambda values: values.reshape(normalised.shape)  # noqa: E731
    else:
        entering = normalised.movedim(1, -1)
        returned = lambda values: values.movedim(-1, 1)  # noqa: E731
    size = entering.shape[-1]

    def outputs() -> Tensor:
        scaled = entering if scale is None else entering * scale.reshape(size)
        return scaled if shift is None else scaled + shift.reshape(size)

    return LayerCall(
        "normalisation",
        func.__name__,
        weight,
        bias,
        scale,
        shift,
        entering,
        outputs,
        returned,
        1,
        size,
        num_groups=size,
    )


def _elementwise_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    """A gain or a shift over the last axes of what enters."""
    entering, own = given["input"], given["other"]
    if parts(own) is None:
        entering, own = own, entering
    part = parts(own)
    if part is None or not isinstance(entering, Tensor) or given.get("alpha", 1) != 1 or given.get("out") is not None:
        return None
    shape = own.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    axes = len(shape)
    if not axes or own.ndim > entering.ndim or axes >= entering.ndim or entering.shape[-axes:] != shape:
        return None
    rows, size, is_gain = entering.flatten(-axes), prod(shape), func in _GAINS
    flat = own.reshape(size)
    outputs = (lambda: rows * flat) if is_gain else (lambda: rows + flat)
    returned = lambda values: values.reshape(entering.shape)  # noqa: E731
    sizes = rows, outputs, returned, 1, size, size
    if is_gain:
        return LayerCall("elementwise", "mul", part, None, flat, None, *sizes)
    return LayerCall("elementwise", "add", None, part, None, flat, *sizes)


_CONVOLUTION: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_GAINS = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__)
_SHIFTS = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
_PRODUCTS = (
    *(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__),
    *(torch.Tensor.__rmatmul__, torch.mm, torch.Tensor.mm),
)
_Reader = Callable[[Callable[..., Any], dict[str, Any], Parts], LayerCall | None]
_KNOWN: Mapping[Callable[..., Any], tuple[tuple[str, ...], _Reader]] = {
    F.linear: (("input", "weight", "bias"), _linear_call),
    torch.addmm: (("input", "mat1", "mat2"), _addmm_call),
    torch.Tensor.addmm: (("input", "mat1", "mat2"), _addmm_call),
    F.embedding: (
        ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
        _embedding_call,
    ),
    F.batch_norm: (
        ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
        _normalisation_call,
    ),
    F.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _normalisation_call),
    F.rms_norm: (("input", "normalized_shape", "weight", "eps"), _normalisation_call),
    F.group_norm: (("input", "num_groups", "weight", "bias", "eps"), _normalisation_call),
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d), (("input", "weight", "bias", *_CONVOLUTION), _convolution_call)),
    **dict.fromkeys((*_GAINS, *_SHIFTS), (("input", "other"), _elementwise_call)),
    **dict.fromkeys(_PRODUCTS, (("input", "other"), _matmul_call)),
}
