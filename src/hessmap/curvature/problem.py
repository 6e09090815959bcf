"""What is differentiated, with what: a model, a loss and data, frozen at the moment of the call."""

from __future__ import annotations

import copy
import html
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import isfinite, prod
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from hessmap.curvature.evaluation import Forward, evaluate, explained_error, main_output
from hessmap.curvature.given_data import samples_of
from hessmap.curvature.graph_memory import samples_at_once
from hessmap.curvature.losses import AnyLoss, Loss, PositionLoss, as_loss
from hessmap.curvature.memory import checked_budget, require_memory
from hessmap.curvature.model_copy import checked_device, chosen_format, private_copy
from hessmap.curvature.nested_tensors import (
    Inputs,
    concatenate,
    move_to,
    num_bytes,
    num_rows,
    take_rows,
    tensors_with_paths,
)
from hessmap.curvature.other_ways import require_one_way, require_unwritten
from hessmap.curvature.own_loss import labelled_data, read_own_loss
from hessmap.curvature.probing import require_function, require_separate_losses
from hessmap.curvature.samples import HeldSamples, sample_weights
from hessmap.curvature.second_derivatives import twice_differentiable
from hessmap.curvature.selection import chosen_parameters
from hessmap.errors import HessmapError, InvalidInput, require, sentence
from hessmap.results import Provenance, data_hash, provenance

Batch = tuple[Any, Tensor, Tensor]  # inputs (a tensor or nested tensors), targets, weights
_PASS = 4096  # samples of a forward pass at once
_FEW = 8
_Found = TypeVar("_Found")


class Problem:
    """The risk of a model on data: ``sum_n weight_n loss(model(input_n), target_n)`` with weights of mean one / N,
    plus ``l2`` times the squared norm of the parameters when asked for.

    Where a sample has outputs at several positions (tokens, pixels), the risk is the mean over all positions of the
    data that count; ``class_axis`` says where the classes are if the shape of the targets does not: -1 for outputs
    (samples, tokens, classes), 1 for (samples, classes, positions..).

    ``data`` is a tensor or a structure of tensors with ``targets``, a pair of both, a dictionary with its targets under
    "labels", a data set, a loader, or a list of batches. Tensors are held, everything else is read again at every pass
    and may shuffle. Inputs that are a dictionary are passed to the model by keyword, a tuple by position, anything as
    ``forward(model, inputs)`` says. ``parameters`` restricts the problem to some parameters, by names, globs ("*.bias")
    or layers ("encoder.0").

    Without a ``loss`` the model's own is taken, for data of dictionaries with labels: where it is recognised as a
    cross-entropy or squared loss all Hessians exist, else the loss Hessian alone.

    The model is copied with batch-norm frozen: training the original later does not change the problem. The copy is in
    float64 up to a million trainable parameters and in its own number format above, unless ``dtype`` says otherwise. No
    temporary is meant to exceed ``memory_budget`` bytes; without one it is a quarter of the free memory, at most 8 GiB.

    Products are traced and compiled, for the speed of their matrix products, where a measurement needs so many that it
    pays ("auto", which needs a C++ compiler); with ``compile=True`` always, which takes up to minutes at the first
    product, with False never. ``notes`` says in words whatever was done.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    >>> problem = Problem(model, "cross_entropy", torch.randn(20, 3), torch.randint(2, (20,)))
    >>> problem.num_parameters, problem.num_samples, problem.gradient().shape
    (26, 20, torch.Size([26]))
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss | None,
        data: Any,
        targets: Any = None,
        *,
        forward: Forward | None = None,
        parameters: str | Sequence[str] | None = None,
        weights: Any = None,
        class_axis: int | None = None,
        l2: float = 0.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        memory_budget: int | None = None,
        compile: bool | Literal["auto"] = "auto",
    ) -> None:
        require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
        is_penalty = isinstance(l2, int | float) and 0 <= l2 < float("inf")
        require(is_penalty, "l2 must be finite and not negative", f"got {l2!r}")
        require(forward is None or callable(forward), "forward must be a function (model, inputs)", f"got {forward!r}")
        require(compile in (True, False, "auto"), 'compile must be True, False or "auto"', f"got {compile!r}")
        self.l2 = float(l2)
        self.compile: bool | Literal["auto"] = compile
        self.memory_budget, budget_notes = checked_budget(memory_budget)
        self.dtype, format_notes = chosen_format(model, dtype)
        self.device = checked_device(model, device)
        data, targets = (data, targets) if loss is not None else (labelled_data(data, targets, forward), None)
        with torch.no_grad():
            self.model, model_notes = private_copy(model, self.dtype, self.device)
            self.samples, data_notes = samples_of(data, targets, self.dtype, self.device, self.memory_budget)
        self.user_forward = forward
        self._evaluation_notes: set[str] = set()
        self._found_once: dict[str, Any] = {}
        chosen = chosen_parameters(self.model, parameters)
        self.named, self._fixed, self.layout = chosen.named, chosen.fixed, chosen.layout
        self._weights = sample_weights(weights, self.samples.num_samples)
        must, got = "weights need data in a fixed order", "two passes over the loader gave two orders"
        is_ordered = weights is None or self.samples.is_ordered
        require(is_ordered, must, got, "Build the loader with shuffle=False")
        own_notes = self._set_loss(None if loss is None else as_loss(loss, class_axis), model)
        num_frozen = len(self._fixed) - chosen.num_left_out
        self._later_notes: list[str] = []
        self._first_notes: tuple[str, ...] = (
            *(*model_notes, *data_notes, *format_notes, *own_notes, *sorted(self._evaluation_notes), *budget_notes),
            *([f"{num_frozen} frozen parameters were left out"] if num_frozen else []),
            *([f"{chosen.num_left_out} trainable parameters were left out, as asked"] if chosen.num_left_out else []),
            *([f"the loss Hessian includes {2 * self.l2:g} times the identity from l2={self.l2:g}"] if l2 else []),
        )
        risk = self.risk()
        require(isfinite(risk), "the loss must be finite", f"the risk is {risk}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the model and the data, and how products are made once that is decided."""
        return self._first_notes + tuple(self._later_notes)

    def add_note(self, note: str) -> None:
        """Say something more, once; the problem in single precision says the same."""
        if note not in self._later_notes:
            self._later_notes.append(note)

    def _set_loss(self, loss: Loss | None, original: nn.Module) -> tuple[str, ...]:
        """Look at the first samples, then count over one pass what the mean is to be divided by; notes on both."""
        inputs, targets = self.samples.first
        inputs = move_to(inputs, self.device, self.dtype)
        notes: tuple[str, ...] = ()
        versions = [value._version for value in self.named.values()]
        if loss is None:
            loss, self.user_forward, note = read_own_loss(self._returned, inputs, targets)
            notes = (note,)
        few = take_rows(inputs, slice(_FEW))
        require_unwritten(self.named, versions)
        narrow, other = require_one_way(lambda given: self._outputs_of(given, few), self.named, original, self.model)
        notes += other
        require_function(lambda few: self._outputs_of(self.named, few), inputs, narrow or self.dtype)
        self.output_shape = tuple(self._outputs_of(self.named, inputs).shape[1:])
        self.output_dim = prod(self.output_shape)
        self.loss = loss.fitted(self.output_shape, targets).to(self.dtype, self.device)
        require_separate_losses(self.loss, self.forward(self.named, inputs).detach(), self._prepared(targets))
        if isinstance(self.samples, HeldSamples):
            self.samples = HeldSamples(self.samples.inputs, self._prepared(self.samples.targets))
        self.mass, start = 0.0, 0
        for _, part in self._pairs(None):
            masses = self.loss.mass(part).to("cpu", torch.float64)
            self.mass += float(self._raw_weights(start, len(part)) @ masses)
            start += len(part)
        require(self.mass > 0, "at least one sample must count", "the loss ignores every one of them")
        return notes

    def _raw_weights(self, start: int, count: int) -> Tensor:
        return torch.ones(count, dtype=torch.float64) if self._weights is None else self._weights[start : start + count]

    def _prepared(self, targets: Tensor) -> Tensor:
        prepared = self.loss.prepare(targets, self.output_dim)
        return prepared.to(self.device, self.dtype if prepared.is_floating_point() else None)

    def _pairs(self, size: int | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass over inputs and prepared targets."""
        if self.samples.is_held:
            yield from self.samples.batches(size)
        else:
            for inputs, targets in self.samples.batches(size):
                yield move_to(inputs, self.device, self.dtype), self._prepared(targets)

    @property
    def num_samples(self) -> int:
        return self.samples.num_samples

    @property
    def num_parameters(self) -> int:
        return self.layout.size

    @property
    def num_outputs(self) -> int:
        """Outputs that belong together: all of a sample, or those of one position of it (the classes of a token)."""
        return self.loss.num_outputs if isinstance(self.loss, PositionLoss) else self.output_dim

    @property
    def working_bytes(self) -> int:
        """What temporaries should stay below: the budget, or 1 GiB, above which more at once is not faster."""
        return min(self.memory_budget, 2**30)

    @cached_property
    @torch.inference_mode(False)
    def parameters(self) -> Tensor:
        """The differentiated parameters as one flat vector, in the order of ``layout``."""
        return torch.cat([value.reshape(-1) for value in self.named.values()])

    @property
    def inputs(self) -> Inputs:
        """All inputs in memory; those of a stream are gathered, or refused if they do not fit."""
        return self._in_memory.inputs

    @property
    def targets(self) -> Tensor:
        """All targets in memory, as the loss reads them."""
        return self._in_memory.targets

    @cached_property
    @torch.inference_mode(False)
    def weights(self) -> Tensor:
        """The weight of every sample in the mean, in the order of ``inputs``."""
        return (self._raw_weights(0, self.num_samples) / self.mass).to(self.device, self.dtype)

    @cached_property
    @torch.inference_mode(False)
    def _in_memory(self) -> HeldSamples:
        if isinstance(self.samples, HeldSamples):
            return self.samples
        each = num_bytes(self.samples.first[0], self.dtype) / num_rows(self.samples.first[0])
        what = f"the inputs of {self.num_samples} streamed samples"
        require_memory(what, 2 * int(each * self.num_samples), "Use fewer samples, or a function that streams them")
        inputs, targets = zip(*self._pairs(None), strict=True)
        return HeldSamples(concatenate(list(inputs)), torch.cat(targets))

    @cached_property
    def data_hash(self) -> str:
        """Equal for equal samples, targets and weights."""
        if isinstance(self.samples, HeldSamples):
            tensors = [tensor for _, tensor in tensors_with_paths(self.samples.inputs)]
            arrays = [*tensors, self.samples.targets, self.weights]
            return data_hash(*(array.cpu().numpy() for array in arrays))
        return f"{self.num_samples} samples, sum {float(self.samples.digest().sums[0]):.12g}"

    @property
    def provenance(self) -> Provenance:
        return provenance(str(self.dtype).removeprefix("torch."), data_hash=self.data_hash, notes=self.notes)

    def find_once(self, name: str, find: Callable[[], _Found]) -> _Found:
        """What belongs to the problem and is costly to find: found at the first call, and kept."""
        if name not in self._found_once:
            self._found_once[name] = find()
        found: _Found = self._found_once[name]
        return found

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as named parameters."""
        return {name: vector[place].reshape(self.layout.shape(name)) for name, place in self.layout}

    def forward(self, named: dict[str, Tensor], inputs: Inputs, *, fast_convolutions: bool = False) -> Tensor:
        """Outputs (num_samples, output_dim) of the model with these parameters in place of its own."""
        outputs = self._outputs_of(named, inputs, fast_convolutions)
        shape = tuple(outputs.shape[1:])
        if shape != self.output_shape and not self.loss.takes(shape):
            must = "every sample must have outputs of one shape"
            raise InvalidInput(sentence(must, f"some have shape {self.output_shape} and some {shape}"))
        return outputs.reshape(len(outputs), -1)

    def _outputs_of(self, named: dict[str, Tensor], inputs: Inputs, fast_convolutions: bool = False) -> Tensor:
        """The model's own outputs, one a sample, in their own shape."""
        outputs, note = main_output(self._returned(inputs, self.user_forward, named, fast_convolutions))
        if note:
            self._evaluation_notes.add(note)
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

    def _returned(
        self,
        inputs: Inputs,
        forward: Forward | None,
        named: dict[str, Tensor] | None = None,
        fast_convolutions: bool = False,
    ) -> Any:
        """Whatever the model returns."""
        tensors = (self.named if named is None else named) | self._fixed
        try:
            return evaluate(self.model, tensors, inputs, forward, self._evaluation_notes, fast_convolutions)
        except Exception as error:
            explained = explained_error(error, inputs)
            if explained is error:
                raise
            raise explained from error

    def function(self, inputs: Inputs) -> Callable[[Tensor], Tensor]:
        """The outputs as a function of the flat parameters."""
        return lambda flat: self.forward(self.unflatten(flat), inputs)

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """One pass over the data as (inputs, targets, weights); the weights of a whole pass average the data."""
        start = 0
        for inputs, targets in self._pairs(size):
            yield inputs, targets, self.weights[start : start + len(targets)]
            start += len(targets)

    def few_samples(self, count: int) -> Batch:
        """Some samples for a check: spread over the data where they are held, the first of a stream."""
        if not isinstance(self.samples, HeldSamples):
            return next(iter(self.batches(count)))
        chosen = torch.linspace(0, self.num_samples - 1, min(self.num_samples, count)).long().to(self.device)
        return take_rows(self.samples.inputs, chosen), self.samples.targets[chosen], self.weights[chosen]

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Outputs of every sample, shape (num_samples, output_dim)."""
        return torch.cat([self.forward(self.named, inputs).detach() for inputs, _, _ in self.batches(_PASS)])

    def residuals(self) -> Tensor:
        """dloss/doutput of every sample, shape (num_samples, output_dim)."""
        return self.loss.gradient(self.outputs(), self.targets)

    @torch.no_grad()
    def risk(self) -> float:
        total = self.l2 * float(self.parameters.square().sum())
        for inputs, targets, weights in self.batches(_PASS):
            outputs = self.forward(self.named, inputs).detach()  # a model may take gradients of its own
            total += float(weights @ self.loss.value(outputs, targets).to(weights.dtype))
        return total

    @twice_differentiable()
    @torch.inference_mode(False)
    def gradient(self) -> Tensor:
        """Gradient of the risk, flat."""
        total = 2 * self.l2 * self.parameters
        for inputs, targets, weights in self.batches(samples_at_once(self, 1)):
            outputs, vjp = self.linearised(inputs)
            slope = weights[:, None] * self.loss.gradient(outputs, targets)
            total = total + vjp(slope.to(outputs.dtype))
        return total

    def linearised(self, inputs: Inputs) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The outputs of some samples, and the product of a cotangent with their Jacobian, flat: by autograd alone,
        which takes every model."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.named.items()}
        with torch.enable_grad():
            outputs = self.forward(leaves, inputs)

        def vjp(cotangent: Tensor) -> Tensor:
            if not outputs.requires_grad:
                return torch.zeros_like(self.parameters)
            parts = torch.autograd.grad(
                outputs, list(leaves.values()), cotangent, retain_graph=True, materialize_grads=True
            )
            return torch.cat([part.reshape(-1) for part in parts])

        return outputs.detach(), vjp

    @torch.inference_mode(False)
    def in_single_precision(self) -> Problem | None:
        """The same risk in float32, for iterations that make sure of their result in float64: a copy of the model and
        the loss; data and weights are shared.

        None if it is in float32 already, or if its model or loss does not give finite numbers in float32.
        """
        if self.dtype != torch.float64:
            return None
        twin = copy.copy(self)
        for name in ("parameters", "weights", "data_hash", "_in_memory"):
            twin.__dict__.pop(name, None)
        twin.dtype, twin._evaluation_notes, twin._found_once = torch.float32, set(), {}
        try:
            twin.model, _ = private_copy(self.model, twin.dtype, self.device)
            values = {name: value.detach() for name, value in twin.model.named_parameters()}
            twin.named = {name: values[name] for name in self.named}
            twin._fixed = {name: values[name] for name in self._fixed}
            twin.loss = self.loss.to(twin.dtype, self.device)
            if isinstance(self.samples, HeldSamples):
                held = move_to((self.samples.inputs, self.samples.targets), self.device, twin.dtype)
                twin.samples = HeldSamples(*held)
            inputs, targets, _ = next(iter(twin.batches(_FEW)))
            with torch.no_grad():
                values_there = twin.loss.value(twin.forward(twin.named, inputs), targets)
        except (HessmapError, RuntimeError, TypeError, ValueError):  # it holds float64 tensors of its own
            return None
        return twin if bool(torch.isfinite(values_there).all()) else None

    def __repr__(self) -> str:
        sizes = f"{self.num_parameters} parameters, {self.num_samples} samples, {self.output_dim} outputs"
        return f"Problem({type(self.model).__name__}, loss '{self.loss.name}', {sizes})"

    def _repr_html_(self) -> str:
        rows = {
            "model": type(self.model).__name__,
            "loss": self.loss.name,
            "samples": f"{self.num_samples:,}",
            "outputs": " × ".join(map(str, self.output_shape)) or "1",
            "parameters": f"{self.num_parameters:,} in {len(self.layout.names)} tensors",
            "number format": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            **{f"note {place}": note for place, note in enumerate(self.notes, start=1)},
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table><caption>Problem</caption>{cells}</table>"


def require_problem(problem: object) -> None:
    """Raise unless it is a Problem: what every function that differentiates asks first."""
    remedy = "Build one with hm.Problem(model, loss, data)"
    require(isinstance(problem, Problem), "this needs a Problem", f"got a {type(problem).__name__}", remedy)
