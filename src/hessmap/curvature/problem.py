"""What is differentiated, with what: a model, a loss and data, frozen at the moment of the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.curvature.evaluation import evaluated
from hessmap.curvature.losses import AnyLoss, as_loss
from hessmap.curvature.probing import require_function, require_separate_losses
from hessmap.curvature.pullback import pullback
from hessmap.curvature.samples import gather
from hessmap.curvature.selection import chosen_parameters
from hessmap.curvature.untouched import private_copy
from hessmap.errors import InvalidInput, require, sentence
from hessmap.results import Provenance, data_hash, provenance

Batch = tuple[Tensor, Tensor, Tensor]


class Problem:
    """The risk of a model on data: ``sum_n weight_n loss(model(input_n), target_n)`` with weights of mean one / N,
    plus ``l2`` times the squared norm of the parameters when asked for.

    The model is copied (float64, batch-norm frozen): training the original later does not change the problem.
    ``parameters`` restricts it to some parameters, by names, globs ("*.bias") or layers ("encoder.0").
    ``notes`` says in words whatever was done to it.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss,
        inputs: Any,
        targets: Tensor | None = None,
        *,
        weights: Tensor | None = None,
        l2: float = 0.0,
        parameters: str | Sequence[str] | None = None,
        memory_budget: int = 2**30,
    ) -> None:
        require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
        require(0 <= l2 < float("inf"), "l2 must be finite and not negative", f"got {l2}")
        require(memory_budget >= 2**20, "memory_budget must be at least 1 MiB", f"got {memory_budget} bytes")
        samples = gather(inputs, targets, weights)
        self.model, notes = private_copy(model)
        self.loss = as_loss(loss)
        self.l2 = l2
        self.norm: float | None = None  # of the loss Hessian, once somebody asked for it
        self.memory_budget = memory_budget
        self._said: set[str] = set()  # what the forward pass has to tell
        chosen = chosen_parameters(self.model, parameters)
        self.named, self._fixed, self.layout = chosen.named, chosen.fixed, chosen.layout
        self.inputs = samples.inputs
        require_function(lambda few: self.forward(self.named, few), samples.inputs)
        self.output_dim = self.forward(self.named, samples.inputs[:1]).shape[1]
        self.targets = self.loss.prepare(samples.targets, self.output_dim)
        self._probe_loss()
        mass = float(samples.weights @ self.loss.mass(self.targets))
        require(mass > 0, "at least one sample must count", "the loss ignores every one of them")
        self.weights = samples.weights / mass
        self.data_hash = data_hash(self.inputs.numpy(), self.targets.numpy(), self.weights.numpy())
        penalty = (f"the loss Hessian includes {2 * l2:g} times the identity from l2={l2:g}",) if l2 else ()
        num_frozen = len(self._fixed) - chosen.num_left_out
        frozen: tuple[str, ...] = (f"{num_frozen} frozen parameters were left out",) if num_frozen else ()
        if chosen.num_left_out:
            frozen += (f"{chosen.num_left_out} trainable parameters were left out, as asked",)
        self.notes: tuple[str, ...] = notes + samples.notes + tuple(self._said) + frozen + penalty
        require(math.isfinite(self.risk()), "the loss must be finite", f"the risk is {self.risk()}")

    def _probe_loss(self) -> None:
        chosen = torch.linspace(0, self.num_samples - 1, min(self.num_samples, 16)).long()
        require_separate_losses(self.loss, self.forward(self.named, self.inputs[chosen]), self.targets[chosen])

    @property
    def num_samples(self) -> int:
        return len(self.inputs)

    @property
    def num_parameters(self) -> int:
        return self.layout.size

    @cached_property
    def parameters(self) -> Tensor:
        """All parameters as one flat vector, in the order of ``layout``."""
        return torch.cat([value.reshape(-1) for value in self.named.values()])

    @property
    def provenance(self) -> Provenance:
        return provenance(data_hash=self.data_hash, notes=self.notes)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as named parameters."""
        return {name: vector[place].reshape(self.layout.shape(name)) for name, place in self.layout}

    def forward(self, named: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs (num_samples, output_dim) of the model with these parameters in place of its own."""
        try:
            outputs: Tensor = evaluated(self.model, named | self._fixed, (inputs,), said=self._said)
        except (RuntimeError, ValueError) as error:
            if not any(word in str(error) for word in ("shape", "size", "dtype")):
                raise
            kind = str(inputs.dtype).removeprefix("torch.")
            got = f"inputs of shape {tuple(inputs.shape)} and type {kind} gave: {error}"
            raise InvalidInput(sentence("the inputs must fit the model", got)) from error
        kind = type(outputs).__name__
        require(isinstance(outputs, Tensor), "the model must return a tensor", f"it returned a {kind}")
        if outputs.dtype != torch.float64:
            got = f"the outputs of its float64 copy are {str(outputs.dtype).removeprefix('torch.')}"
            remedy = "Remove casts (.float(), autocast) from its forward pass"
            raise InvalidInput(sentence("the model must compute in float64", got, remedy))
        if outputs.ndim <= 1 and outputs.numel() == len(inputs):
            return outputs.reshape(-1, 1)
        require(
            outputs.ndim == 2 and len(outputs) == len(inputs),
            "the model must return one vector of outputs per sample",
            f"inputs of shape {tuple(inputs.shape)} gave outputs of shape {tuple(outputs.shape)}",
        )
        return outputs

    def function(self, inputs: Tensor) -> Callable[[Tensor], Tensor]:
        """The outputs as a function of the flat parameters."""
        return lambda flat: self.forward(self.unflatten(flat), inputs)

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """The data in order, as (inputs, targets, weights); the weights of all batches together average the data."""
        size = size or self.num_samples
        for start in range(0, self.num_samples, size):
            part = slice(start, start + size)
            yield self.inputs[part], self.targets[part], self.weights[part]

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Outputs of every sample, shape (num_samples, output_dim)."""
        return torch.cat([self.forward(self.named, inputs) for inputs, _, _ in self.batches(4096)])

    def residuals(self) -> Tensor:
        """dloss/doutput of every sample, shape (num_samples, output_dim)."""
        return self.loss.gradient(self.outputs(), self.targets)

    def risk(self) -> float:
        penalty = self.l2 * float(self.parameters.square().sum())
        return float(self.weights @ self.loss.value(self.outputs(), self.targets)) + penalty

    def gradient(self) -> Tensor:
        """Gradient of the risk, flat."""
        total = 2 * self.l2 * self.parameters
        for inputs, targets, weights in self.batches(4096):
            outputs, pull = pullback(self.function(inputs), self.parameters)
            total = total + pull(weights[:, None] * self.loss.gradient(outputs, targets))
        return total

    def gradient_by_name(self) -> dict[str, Tensor | None]:
        """The gradient of the first sample's loss per parameter; None where the loss never sees the parameter."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.named.items()}
        with torch.enable_grad():
            outputs = self.forward(leaves, self.inputs[:1])
            value = self.loss.value(outputs, self.targets[:1]).sum()
        if not value.requires_grad:
            return dict.fromkeys(leaves)
        return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))

    def __repr__(self) -> str:
        sizes = f"{self.num_parameters} parameters, {self.num_samples} samples, {self.output_dim} outputs"
        return f"Problem({type(self.model).__name__}, loss '{self.loss.name}', {sizes})"
