"""Operations of torch by their formulas: those whose kernels have no second derivative or a wrong one, or are slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.problem.convolution import matrix_convolution


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """weight * (gain / norm); with dim=-1 one norm for the whole weight."""
    norm: Tensor = torch.linalg.vector_norm(v, dim=[axis for axis in range(v.ndim) if axis != dim], keepdim=True)
    return v * (g / norm)


def _silu(input: Tensor, inplace: bool = False) -> Tensor:
    return input * torch.sigmoid(input)


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """The slopes at -3 and 3 are zero, as in torch; its second derivative is missing there."""
    inside = (input > -3) & (input < 3)
    return torch.where(inside, input / 6 + 0.5, (input >= 3).to(input.dtype))


def _hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    return input * _hardsigmoid(input)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T / sqrt(width) + mask) v."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else abs(scale))
    left = query * (-root if scale is not None and scale < 0 else root)
    scores = left @ (key * root).mT
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        # A row in which nothing is allowed gives zeros, as in torch.
        scores = scores.masked_fill(~attn_mask, -math.inf)
        empty = ~attn_mask.any(-1, keepdim=True)
        shares = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    else:
        shares = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
    return F.dropout(shares, dropout_p) @ value


def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Rows from offs[g - 1] to offs[g] times the matrix of group g; torch's kernel has no float64."""
    if offs is None or self.ndim != 2 or mat2.ndim != 3:
        return torch._grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)
    ends = offs.tolist()
    parts = [self[start:end] @ matrix for start, end, matrix in zip([0, *ends[:-1]], ends, mat2, strict=True)]
    product = torch.cat([*parts, self.new_zeros(len(self) - ends[-1], mat2.shape[2])])
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """A scale and a shift for each channel, where the statistics are given and all is of one number format."""
    given = [value for value in (running_mean, running_var, weight, bias) if value is not None]
    is_alike = input.ndim > 1 and all(value.dtype == input.dtype for value in given)
    if training or running_mean is None or running_var is None or not is_alike:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    along = (-1, *(1 for _ in input.shape[2:]))
    scale = (running_var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    found = (input - running_mean.view(along)) * scale.view(along)
    return found if bias is None else found + bias.view(along)


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Bags of embeddings, one after the other; torch's kernel has no second derivative. An empty bag is zero."""
    if offsets is None and input.ndim != 2:
        raise ValueError(f"bags of embeddings need indices (bags, words), or offsets; got shape {tuple(input.shape)}")
    if offsets is not None:
        ends = [*offsets[1:].tolist(), *([] if include_last_offset else [len(input)])]
        bags = [slice(start, end) for start, end in zip(offsets.tolist(), ends, strict=False)]
    else:
        bags = [slice(number, number + 1) for number in range(len(input))]
    found = F.embedding(input, weight, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq)
    padding = None if padding_idx is None else padding_idx % len(weight)
    counts = torch.ones_like(input, dtype=torch.bool) if padding is None else input != padding
    if per_sample_weights is not None:
        found = found * per_sample_weights[..., None]
    rows = [found[bag][counts[bag]] for bag in bags]
    if mode == "max":
        return torch.stack([row.max(0).values if len(row) else weight.new_zeros(weight.shape[1]) for row in rows])
    return torch.stack([row.sum(0) / (max(1, len(row)) if mode == "mean" else 1) for row in rows])


def _inner_calls_visible(function: FunctionType) -> FunctionType:
    """A composite function of torch whose own calls pass through torch-function modes one by one."""
    plain = {name: lambda *_: False for name in ("has_torch_function", "has_torch_function_unary")}
    made = FunctionType(
        function.__code__,
        function.__globals__ | plain | {"has_torch_function_variadic": lambda *_: False},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


REWRITTEN: dict[Callable[..., Any], Callable[..., Any]] = {
    torch._weight_norm: _weight_norm,
    F.silu: _silu,
    F.hardsigmoid: _hardsigmoid,
    F.hardswish: _hardswish,
    F.scaled_dot_product_attention: _attention,
}
if hasattr(torch, "_grouped_mm"):  # newer than the oldest torch that is taken
    REWRITTEN[torch._grouped_mm] = _grouped_mm
FASTER: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.conv2d: matrix_convolution,
    F.batch_norm: _batch_norm,
}
COMPOSITE: dict[Callable[..., Any], Callable[..., Any]] = {
    F.multi_head_attention_forward: _inner_calls_visible(F.multi_head_attention_forward),  # type: ignore[arg-type]
    F.embedding_bag: _embedding_bag,
}
ATTENTION = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
