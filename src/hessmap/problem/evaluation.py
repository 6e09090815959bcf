"""One evaluation of the model: called with tensors in place of its parameters, its operations read or rewritten.

``FrozenModel`` calls the private copy of the user's model; an error of torch about shapes or types is explained, one of
the user's own code passes with a note. Two torch-function modes are active during one evaluation alone, so that no
setting of the process changes: ``OperationReader`` passes every operation to a function, ``OperationRewriter`` replaces
operations whose kernels have no second derivative or a wrong one, and where ``fast`` is asked for those that torch
differentiates slowly: float64 convolutions as matrix products, frozen batch norms by their formula.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType, TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from hessmap.errors import HessmapError, InvalidInput, require, sentence
from hessmap.linalg import Layout, full_precision, is_out_of_memory
from hessmap.problem.data import Inputs, map_tensors, num_rows, tensors_with_paths
from hessmap.problem.model import (
    Forward,
    Modes,
    checked_device,
    chosen_format,
    chosen_parameters,
    innermost,
    is_raised_in_torch,
    private_copy,
    refuse_shards,
    refuse_what_cannot_be_copied,
)

Operation = Callable[..., Any]
Read = Callable[[Operation, tuple[Any, ...], dict[str, Any]], Any]


class OperationReader(TorchFunctionMode):
    """A torch-function mode that passes every operation to a function.

    Args:
        read: Called with operation, args and kwargs; it carries the operation out and returns its result.
    """

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read

    def __torch_function__(
        self, func: Operation, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._read(func, args, kwargs or {})


def tensors_among(values: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results of an operation, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors_among(value)


ATTENTION_NOTE = (
    "attention is evaluated by its formula, as in torch's math kernel, because the fused kernels have no second "
    "derivative"
)


class OperationRewriter(TorchFunctionMode):
    """A torch-function mode that replaces some operations of torch by their formulas.

    Args:
        notes: Set to which notes on what was replaced are added. Defaults to None: no notes.
        fast: Whether convolutions become matrix products and frozen batch norms their formula. Defaults to False.
    """

    def __init__(self, notes: set[str] | None = None, fast: bool = False) -> None:
        super().__init__()
        self.notes = notes
        self.fast = fast

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ATTENTION and self.notes is not None:
            self.notes.add(ATTENTION_NOTE)
        if func in COMPOSITE:
            with self:
                return COMPOSITE[func](*args, **kwargs)
        if self.fast and func in FASTER:
            return FASTER[func](*args, **kwargs)
        return REWRITTEN.get(func, func)(*args, **kwargs)


class _CalledBy(nn.Module):
    """A model behind a user's way to call it."""

    def __init__(self, model: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.call = forward

    def forward(self, inputs: Inputs) -> Any:
        return self.call(self.model, inputs)


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called unless the user says: a dictionary by keywords, a tuple or list by position."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def named_output(outputs: Any, name: str) -> Tensor | None:
    """The tensor of that name among the outputs of a model: an entry of a dictionary, or a field of an object."""
    found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return found if isinstance(found, Tensor) else None


def main_output(outputs: Any) -> tuple[Tensor, str | None]:
    """The tensor among what a model returned, and a note where something was left aside."""
    if isinstance(outputs, Tensor):
        return outputs, None
    if (logits := named_output(outputs, "logits")) is not None:
        return logits, "the output 'logits' of the model is used"
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    if isinstance(outputs, tuple | list) and outputs and isinstance(outputs[0], Tensor):
        return outputs[0], None if len(outputs) == 1 else "the first output of the model is used"
    got = f"it returned a {type(outputs).__name__}"
    remedy = "Choose one with forward=lambda model, inputs: model(...).something"
    raise InvalidInput(sentence("the model must return a tensor", got, remedy))


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """``named`` are the parameters that are differentiated, ``fixed`` all others; ``forward`` is the user's way to call
    the model. ``narrowest`` is a narrower number format in which it computes some of its values, if there is one;
    ``seen`` collects what evaluations find worth a note. An objective may differentiate while it is evaluated, in
    all ``trainable`` parameters."""

    model: nn.Module
    named: dict[str, Tensor]
    fixed: dict[str, Tensor]
    dtype: torch.dtype
    device: torch.device
    forward: Forward | None
    num_left_out: int
    copy_notes: tuple[str, ...]
    format_notes: tuple[str, ...]
    narrowest: torch.dtype | None = None
    is_objective: bool = False
    modes: Modes = field(default_factory=Modes)
    trainable: frozenset[str] = frozenset()
    seen: set[str] = field(default_factory=set)

    @property
    def layout(self) -> Layout:
        return Layout(tuple((name, tuple(value.shape)) for name, value in self.named.items()))

    @property
    def selection_notes(self) -> tuple[str, ...]:
        """Which parameters are not differentiated."""
        num_frozen = len(self.fixed) - self.num_left_out
        return (
            *([f"{num_frozen} frozen parameters were left out"] if num_frozen else []),
            *([f"{self.num_left_out} trainable parameters were left out, as requested"] if self.num_left_out else []),
        )

    def outputs(self, named: dict[str, Tensor], inputs: Inputs, fast: bool = False) -> Tensor:
        """The model's outputs with these parameters in place of its own: one a sample, in their own shape."""
        outputs, note = main_output(self.returned(inputs, self.forward, named, fast))
        if note:
            self.seen.add(note)
        if outputs.dtype != self.dtype:
            names = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, outputs.dtype)]
            remedy = "Remove casts (.float(), autocast) from its forward pass, or choose another dtype"
            must, got = f"the model must compute in {names[0]}", f"the outputs of its {names[0]} copy are {names[1]}"
            raise InvalidInput(sentence(must, got, remedy))
        count = num_rows(inputs)
        outputs = outputs.reshape(1) if outputs.ndim == 0 and count == 1 else outputs
        must, got = "the model must return one row of outputs per sample", f"they have shape {tuple(outputs.shape)}"
        require(outputs.ndim > 0 and len(outputs) == count, must, f"{count} samples were given and {got}")
        return outputs

    def returned(
        self,
        inputs: Inputs,
        forward: Forward | None,
        named: dict[str, Tensor] | None = None,
        fast: bool = False,
    ) -> Any:
        """Whatever the model returns, called by ``forward``.

        The parameters of an objective have gradients: it may take derivatives in them.
        """
        tensors = (self.named if named is None else named) | self.fixed
        has_graph = torch.is_grad_enabled() and any(value.requires_grad for value in tensors.values())
        if self.is_objective:
            tensors = {
                name: value if value.requires_grad or name not in self.trainable else value.detach().requires_grad_()
                for name, value in tensors.items()
            }
        # Fresh buffers and inputs for every call: a model that counts, averages or works in place writes into them.
        tensors = {name: value.clone() for name, value in self.model.named_buffers()} | tensors
        given = map_tensors(torch.clone, inputs)
        may_differentiate = torch.is_grad_enabled() or self.is_objective
        rewritten, graph = OperationRewriter(self.seen, fast), torch.set_grad_enabled(may_differentiate)
        with noting_forward(inputs), full_precision(self.device), rewritten, graph:
            if forward is None:
                found = functional_call(self.model, tensors, *call_arguments(given))
            else:
                renamed = {f"model.{name}": value for name, value in tensors.items()}
                found = functional_call(_CalledBy(self.model, forward), renamed, (given,))
        keeps_graph = has_graph or not self.is_objective or not isinstance(found, Tensor)
        return found if keeps_graph else found.detach()

    def in_format(self, dtype: torch.dtype) -> FrozenModel:
        """The same parameters of a copy in another number format."""
        model, notes = private_copy(self.model, dtype, self.device, self.modes)
        values = {name: value.detach() for name, value in model.named_parameters()}
        named, fixed = ({name: values[name] for name in chosen} for chosen in (self.named, self.fixed))
        return replace(self, model=model, named=named, fixed=fixed, dtype=dtype, copy_notes=notes, seen=set())


def frozen_model(
    model: nn.Module,
    parameters: str | Sequence[str] | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
    forward: Forward | None,
    *,
    is_objective: bool = False,
    modes: Modes | None = None,
) -> FrozenModel:
    """A copy of the model, restricted to some parameters; it chooses the number format and the device if these are
    None."""
    require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
    require(forward is None or callable(forward), "forward must be a function (model, inputs)", f"got {forward!r}")
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    refuse_shards(model)
    modes = modes or Modes()
    refuse_what_cannot_be_copied(model, modes.may_be_random)
    chosen_device = checked_device(model, device)
    chosen_dtype, format_notes = chosen_format(model, dtype, chosen_device)
    with torch.no_grad():
        copied, notes = private_copy(model, chosen_dtype, chosen_device, modes)
    trainable = frozenset(name for name, value in copied.named_parameters() if value.requires_grad)
    named, fixed, num_left_out = chosen_parameters(copied, parameters)
    return FrozenModel(
        copied,
        named,
        fixed,
        chosen_dtype,
        chosen_device,
        forward,
        num_left_out,
        notes,
        format_notes,
        is_objective=is_objective,
        modes=modes,
        trainable=trainable,
    )


_MISMATCHES = ("shape", "size", "dtype", "xpected")  # words of torch's refusals of a tensor


@contextmanager
def fitting_inputs(inputs: Inputs) -> Iterator[None]:
    """Context in which an error of torch about the shape or type of a tensor is raised as ``InvalidInput``.

    Args:
        inputs: Inputs of the model, whose shapes the error states.

    Returns:
        A context manager; all other errors pass.
    """
    try:
        yield
    except Exception as error:
        if not _is_mismatch(error):
            raise
        got = f"inputs of shape {described(inputs)} gave: {error}"
        raise InvalidInput(sentence("the inputs must fit the model", got)) from error


@contextmanager
def noting_forward(inputs: Inputs) -> Iterator[None]:
    """Context in which an exception of the user's model gets a note that states where it was raised.

    Args:
        inputs: Inputs of the model, whose shapes the note states.

    Returns:
        A context manager.
    """
    try:
        yield
    except HessmapError:
        raise
    except Exception as error:
        error.add_note(f"raised in the forward pass of the model, on inputs of shape {described(inputs)}")
        raise


def described(inputs: Inputs) -> str:
    """Shapes and types of all tensors."""
    return ", ".join(
        f"{tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')}"
        for _, tensor in tensors_with_paths(inputs)
    )


def _is_mismatch(error: Exception) -> bool:
    """A sentence of torch on shapes and types, from its Python code or from an operation, whose C++ has no frame."""
    last = innermost(error)
    if last is None or is_out_of_memory(error) or not any(word in str(error) for word in _MISMATCHES):
        return False
    if is_raised_in_torch(error):
        return type(error) in (RuntimeError, ValueError, TypeError, IndexError)
    return type(error) is RuntimeError and not _is_raise_statement(last)


def _is_raise_statement(last: TracebackType) -> bool:
    """Whether Python code raised it there; else a function did that was called there and has no Python code."""
    code = last.tb_frame.f_code.co_code
    return last.tb_lasti < 0 or dis.opname[code[last.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


# Convolutions as matrix products, differentiable any number of times: of float64 images on CPUs.
#
# torch has no fast float64 convolution for CPUs: it unfolds every patch and multiplies thin matrices. Here an image is
# unfolded along its rows alone, and the rows of the kernel are as many matrix products over slices of that, without a
# copy. A convolution is linear in the image and in the kernel, and the derivatives of
#
#     y = x * w,    dx = y *' w,    dw = y *'' x
#
# are each other: three functions that close under differentiation.

# benchmarks/peers/rows.py times the products of LeNet5 in float64, which are made of these.
_UNFOLDED_BYTES = 2**21  # of the samples that are unfolded at once: about what a processor's own cache holds
_Size = tuple[int, int]


def matrix_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """``torch.conv2d``, by matrix products in float64 without strides and groups."""
    is_plain = _pair(stride) == _pair(dilation) == (1, 1) and groups == 1 and not isinstance(padding, str)
    is_double = input.dtype == weight.dtype == torch.float64
    if not (is_plain and is_double) or input.ndim != 4 or not len(input):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    high, wide = _pair(padding)
    image = F.pad(input, (wide, wide, high, high)) if high or wide else input
    fits = image.shape[1] == weight.shape[1] and image.shape[2] >= weight.shape[2] and image.shape[3] >= weight.shape[3]
    if not fits:  # torch says why
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    outputs: Tensor = _Convolution.apply(image, weight)  # type: ignore[no-untyped-call]
    return outputs if bias is None else outputs + bias[:, None, None]


def _pair(value: Any) -> _Size:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    return (pair[0], pair[-1])


class _Convolution(Function):
    """y[n, o] = sum x[n, c] * w[o, c]."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(image, kernel)
        return convolution(image, kernel)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        image, kernel = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_image = _ImageGradient.apply(given[0], kernel) if needs[0] else None  # type: ignore[no-untyped-call]
        to_kernel = _KernelGradient.apply(given[0], image) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_image, to_kernel


class _ImageGradient(Function):
    """x[n, c] = sum over the places that y[n, o] was made from, times w[o, c]."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, kernel)
        return image_gradient(outputs, kernel)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        outputs, kernel = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_outputs = _Convolution.apply(given[0], kernel) if needs[0] else None  # type: ignore[no-untyped-call]
        to_kernel = _KernelGradient.apply(outputs, given[0]) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_outputs, to_kernel


class _KernelGradient(Function):
    """w[o, c] = sum over samples and places of y[n, o] times x[n, c]."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, image: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, image)
        return kernel_gradient(outputs, image)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        outputs, image = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_outputs = _Convolution.apply(image, given[0]) if needs[0] else None  # type: ignore[no-untyped-call]
        to_image = _ImageGradient.apply(outputs, given[0]) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_outputs, to_image


def convolution(image: Tensor, kernel: Tensor) -> Tensor:
    count, channels, height, width = image.shape
    made, _, tall, broad = kernel.shape
    high, wide = height - tall + 1, width - broad + 1
    rows = kernel.permute(2, 1, 3, 0).reshape(tall, channels * broad, made)
    outputs = image.new_empty(count, made, high, wide)
    step = _num_unfolded(channels * height * wide * broad)
    for start in range(0, count, step):
        samples = slice(start, start + step)
        patches = _row_patches(image[samples], broad)
        total = torch.mm(patches[:high].reshape(-1, channels * broad), rows[0])
        for row in range(1, tall):
            total.addmm_(patches[row : row + high].reshape(-1, channels * broad), rows[row])
        outputs[samples] = total.view(high, -1, wide, made).permute(1, 3, 0, 2)
    return outputs


def kernel_gradient(outputs: Tensor, image: Tensor) -> Tensor:
    count, channels, height, width = image.shape
    _, made, high, wide = outputs.shape
    tall, broad = height - high + 1, width - wide + 1
    kernel = image.new_zeros(tall, made, channels * broad)
    step = _num_unfolded(channels * height * wide * broad)
    for start in range(0, count, step):
        samples = slice(start, start + step)
        patches = _row_patches(image[samples], broad)
        left = outputs[samples].permute(1, 2, 0, 3).reshape(made, -1)
        for row in range(tall):
            kernel[row].addmm_(left, patches[row : row + high].reshape(-1, channels * broad))
    return kernel.view(tall, made, channels, broad).permute(1, 2, 0, 3).contiguous()


def image_gradient(outputs: Tensor, kernel: Tensor) -> Tensor:
    """The convolution of the padded outputs with the flipped kernel."""
    tall, broad = kernel.shape[2:]
    padded = F.pad(outputs, (broad - 1, broad - 1, tall - 1, tall - 1))
    return convolution(padded, kernel.transpose(0, 1).flip(2, 3))


def _row_patches(image: Tensor, broad: int) -> Tensor:
    """(height, samples x places in a row, channels x broad): a slice of it is a matrix."""
    height, channels = image.shape[2], image.shape[1]
    return image.permute(2, 0, 1, 3).unfold(3, broad, 1).permute(0, 1, 3, 2, 4).reshape(height, -1, channels * broad)


def _num_unfolded(entries: int) -> int:
    """Samples that are unfolded at once."""
    return max(1, _UNFOLDED_BYTES // (8 * entries))


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
