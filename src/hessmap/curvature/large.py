"""The risk of a large model: any inputs, any number format and device, data that are read again at every pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.curvature.evaluation import Forward, called_with, evaluated, main_output
from hessmap.curvature.losses import AnyLoss, FunctionLoss, Loss, ModuleLoss, as_loss
from hessmap.curvature.probing import require_function, require_separate_losses
from hessmap.curvature.pullback import pullback
from hessmap.curvature.samples import sample_weights
from hessmap.curvature.selection import chosen_parameters
from hessmap.curvature.stream import Stream
from hessmap.curvature.structured import Inputs, brought
from hessmap.curvature.untouched import private_copy
from hessmap.errors import InvalidInput, require, sentence
from hessmap.results import Provenance, provenance

_FORMATS = (torch.float32, torch.float64)


class LargeProblem:
    """The same risk as that of a ``Problem``, for products alone: ``loss_hessian(problem) @ vectors`` and the like.

    ``data`` is a tensor or a structure of tensors with ``targets``, or a loader or any iterable of batches
    ``(inputs, targets)`` (a dictionary with its labels under "labels" will do), read once more for every product; it
    may shuffle. Inputs that are a dictionary are passed by keyword, a tuple by position, anything as
    ``forward(model, inputs)`` says. ``parameters`` restricts it to some parameters, by names, globs or layers.
    The copy of the model keeps its own number format (float32 or float64) and device unless ``dtype`` and ``device``
    say otherwise. No temporary of a product is meant to exceed ``memory_budget`` bytes.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss,
        data: Any,
        targets: Tensor | None = None,
        *,
        forward: Forward | None = None,
        parameters: str | Sequence[str] | None = None,
        weights: Tensor | None = None,
        l2: float = 0.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        memory_budget: int = 2**30,
    ) -> None:
        require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
        require(0 <= l2 < float("inf"), "l2 must be finite and not negative", f"got {l2}")
        require(memory_budget >= 2**20, "memory_budget must be at least 1 MiB", f"got {memory_budget} bytes")
        own = next(iter(model.parameters()), torch.empty(0))
        self.dtype = dtype or own.dtype
        self.device = torch.device(device or own.device)
        require(self.dtype in _FORMATS, "dtype must be torch.float32 or torch.float64", f"got {self.dtype}")
        self.model, notes = private_copy(model, self.dtype, self.device)
        self.l2, self.memory_budget = l2, memory_budget
        self.norm: float | None = None  # of the loss Hessian, once somebody asked for it
        self._way, self._said = forward, set[str]()
        chosen = chosen_parameters(self.model, parameters)
        self.named, self._fixed, self.layout = chosen.named, chosen.fixed, chosen.layout
        self.stream = Stream(data, targets)
        self._weights = None if weights is None else sample_weights(weights, self.stream.num_samples)
        must, got = "weights need data in a fixed order", "two passes over the loader gave two orders"
        require(weights is None or self.stream.is_ordered, must, got, "Build the loader with shuffle=False")
        self._set_loss(loss)
        self.notes: tuple[str, ...] = (*notes, *sorted(self._said), *self._left_out(), *self._penalty())
        risk = self.risk()
        require(isfinite(risk), "the loss must be finite", f"the risk is {risk}")

    def _set_loss(self, loss: AnyLoss) -> None:
        """Look at the first samples, then count over one pass what the mean is to be divided by."""
        assert self.stream.first is not None
        inputs, targets = self.stream.first[0], self.stream.first[1]
        few = brought(inputs, self.device, self.dtype)
        require_function(lambda these: self.forward(self.named, these), few)
        outputs = self.forward(self.named, few)
        self.output_dim = outputs.shape[1]
        self.loss = _fitting(as_loss(loss), self.output_shape, self.dtype, self.device)
        require_separate_losses(self.loss, outputs, self._prepared(targets))
        self.mass, seen = 0.0, 0
        for _, part in self.stream.passed():
            self.mass += float(
                self._weights_of(seen, len(part)) @ self.loss.mass(self._prepared(part)).to("cpu", torch.float64)
            )
            seen += len(part)
        require(self.mass > 0, "at least one sample must count", "the loss ignores every one of them")

    def _weights_of(self, start: int, count: int) -> Tensor:
        return torch.ones(count, dtype=torch.float64) if self._weights is None else self._weights[start : start + count]

    def _prepared(self, targets: Tensor) -> Tensor:
        prepared = self.loss.prepare(targets, self.output_dim)
        return prepared.to(self.device, self.dtype if prepared.is_floating_point() else None)

    def _left_out(self) -> tuple[str, ...]:
        return (f"{len(self._fixed)} parameters, frozen or not chosen, were left out",) if self._fixed else ()

    def _penalty(self) -> tuple[str, ...]:
        note = f"the loss Hessian includes {2 * self.l2:g} times the identity from l2={self.l2:g}"
        return (note,) if self.l2 else ()

    @property
    def is_called_plainly(self) -> bool:
        """Whether the model is called with its inputs, not by a function of the user's."""
        return self._way is None

    @property
    def num_samples(self) -> int:
        return self.stream.num_samples

    @property
    def num_parameters(self) -> int:
        return self.layout.size

    @cached_property
    def parameters(self) -> Tensor:
        """The chosen parameters as one flat vector, in the order of ``layout``."""
        return torch.cat([value.reshape(-1) for value in self.named.values()])

    @property
    def data_hash(self) -> str:
        assert self.stream.digest is not None
        return f"{self.num_samples} samples, sum {float(self.stream.digest.sums[0]):.12g}"

    @property
    def provenance(self) -> Provenance:
        return provenance(str(self.dtype).removeprefix("torch."), data_hash=self.data_hash, notes=self.notes)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as named parameters."""
        return {name: vector[place].reshape(self.layout.shape(name)) for name, place in self.layout}

    def forward(self, named: dict[str, Tensor], inputs: Inputs) -> Tensor:
        """Outputs (num_samples, output_dim) of the model with these parameters in place of its own."""
        arguments, keywords = ((inputs,), None) if self._way else called_with(inputs)
        returned = evaluated(self.model, named | self._fixed, arguments, keywords, self._way, self._said)
        outputs, note = main_output(returned)
        if note:
            self._said.add(note)
        if outputs.dtype != self.dtype:
            names = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, outputs.dtype)]
            remedy = "Remove casts (.float(), autocast) from its forward pass, or choose another dtype"
            must, got = f"the model must compute in {names[0]}", f"its outputs are {names[1]}"
            raise InvalidInput(sentence(must, got, remedy))
        must, got = "the model must return one row of outputs per sample", f"they have shape {tuple(outputs.shape)}"
        require(outputs.ndim > 0, must, got)
        self.output_shape = tuple(outputs.shape[1:])
        return outputs.reshape(len(outputs), -1)

    def function(self, inputs: Inputs) -> Callable[[Tensor], Tensor]:
        """The outputs as a function of the flat parameters."""
        return lambda flat: self.forward(self.unflatten(flat), inputs)

    def batches(self, size: int | None = None) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
        """One pass over the data as (inputs, targets, weights); the weights of a whole pass average the data."""
        seen = 0
        for inputs, targets in self.stream.passed(size):
            weights = (self._weights_of(seen, len(targets)) / self.mass).to(self.device, self.dtype)
            seen += len(targets)
            yield brought(inputs, self.device, self.dtype), self._prepared(targets), weights

    @torch.no_grad()
    def risk(self) -> float:
        total = self.l2 * float(self.parameters.square().sum())
        for inputs, targets, weights in self.batches(1024):
            total += float((weights * self.loss.value(self.forward(self.named, inputs), targets)).sum())
        return total

    def gradient(self) -> Tensor:
        """Gradient of the risk, flat."""
        from hessmap.curvature.products import samples_at_once

        total = 2 * self.l2 * self.parameters
        for inputs, targets, weights in self.batches(samples_at_once(self, 1)):
            outputs, pull = pullback(self.function(inputs), self.parameters)
            slope = weights[:, None] * self.loss.gradient(outputs, targets)
            total = total + pull(slope.to(outputs.dtype))
        return total

    def in_single_precision(self) -> LargeProblem:
        """The same risk in float32: a copy of the model and the loss; data, weights and their mass are shared and not
        looked at again."""
        twin = copy.copy(self)
        twin.__dict__.pop("parameters", None)
        twin.dtype, twin._said = torch.float32, set()
        twin.model, _ = private_copy(self.model, twin.dtype, self.device)
        values = {name: value.detach() for name, value in twin.model.named_parameters()}
        twin.named = {name: values[name] for name in self.named}
        twin._fixed = {name: values[name] for name in self._fixed}
        if isinstance(self.loss, ModuleLoss):
            twin.loss = copy.deepcopy(self.loss)
            twin.loss.module.to(self.device, twin.dtype)
        return twin

    def __repr__(self) -> str:
        sizes = f"{self.num_parameters} parameters, {self.num_samples} samples, {self.output_dim} outputs"
        return f"LargeProblem({type(self.model).__name__}, loss '{self.loss.name}', {sizes})"


def _fitting(loss: Loss, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Loss:
    """The loss in the problem's number format; a user's function sees outputs in the shape that the model gave."""
    if isinstance(loss, ModuleLoss):
        loss.module.to(device, dtype)
    if len(shape) <= 1:
        return loss
    must = "outputs with more than one axis per sample need a loss function of the user's"
    got, remedy = f"the model gives {shape} per sample", "Pass (outputs, targets) -> one value per sample"
    require(type(loss) is FunctionLoss, must, got, remedy)
    assert isinstance(loss, FunctionLoss)
    function = loss.function
    return FunctionLoss(lambda outputs, targets: function(outputs.reshape(-1, *shape), targets), loss.name)
