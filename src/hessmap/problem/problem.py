"""Problem: a model, a loss and data, frozen at the moment of the call; its risk and its gradient."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import isfinite, prod
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.errors import checked_count, checked_seed, number_or_none, require, require_name, short_text
from hessmap.linalg import Fallbacks, checked_budget, full_precision, is_answerable, is_out_of_memory
from hessmap.losses import AnyLoss, ModelLoss, ObjectiveLoss, PositionLoss, as_loss, require_parts
from hessmap.problem.autograd import samples_at_once
from hessmap.problem.checks import look_at_batches, validated_model
from hessmap.problem.data import Inputs
from hessmap.problem.derivative_checks import twice_differentiable
from hessmap.problem.evaluation import FrozenModel, frozen_model
from hessmap.problem.model import Forward, Modes, checked_device, is_small_for_its_device, num_trainable
from hessmap.problem.objective import (
    BatchWeights,
    LossObjective,
    Objective,
    averaged_batches,
    labelled_data,
    loss_objective,
    objective_forward,
    objective_name,
    require_dependence,
    structured_objective,
)
from hessmap.problem.samples import (
    Batch,
    ObjectiveBatches,
    WeightedSamples,
    as_samples,
    checked_weights,
    objective_batches,
    weighted_samples,
)
from hessmap.records import Provenance, html_facts, provenance

PASS = 4096  # samples of a forward pass at once
Look = Callable[[Inputs, Tensor, Tensor, Tensor], None]  # at inputs, targets, outputs and losses of a batch


@torch.no_grad()
def risk_value(
    problem: Problem,
    look: Look | None = None,
    parameters: Tensor | None = None,
    buffers: Mapping[str, Tensor] | None = None,
) -> float:
    """The weighted sum of losses, and the penalty, at the problem's or other parameters and buffers.

    ``look`` gets every batch."""
    named = {**(problem.named if parameters is None else problem.unflatten(parameters)), **(buffers or {})}
    total = problem.l2 * float((problem.parameters if parameters is None else parameters).square().sum())
    for inputs, targets, weights in problem.batches(PASS):
        outputs = problem.forward(named, inputs).detach()  # a model may take gradients of its own
        with torch.set_grad_enabled(look is not None):
            losses = problem.loss.value(outputs, targets)
        if look is not None:
            look(inputs, targets, outputs, losses)
        total += float(weights @ losses.detach().to(weights.dtype))
    return total


@twice_differentiable()
@torch.inference_mode(False)
def risk_gradient(problem: Problem) -> Tensor:
    """The gradient of the risk, flat."""
    total = 2 * problem.l2 * problem.parameters
    for inputs, targets, weights in problem.batches(samples_at_once(problem, 1)):
        outputs, vjp = outputs_and_vjp(problem, inputs)
        cotangent = weights[:, None] * problem.loss.gradient(outputs, targets)
        total = total + vjp(cotangent.to(outputs.dtype))
    return total


def outputs_and_vjp(problem: Problem, inputs: Inputs) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Evaluate some samples and linearise them.

    Args:
        problem: Model, data and loss.
        inputs: Inputs of some samples.

    Returns:
        Outputs (samples, output_dim), and a function that maps a cotangent of these to its product with the
        Jacobian, flat.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in problem.named.items()}
    with torch.enable_grad():
        outputs = problem.forward(leaves, inputs)

    def vjp(cotangent: Tensor) -> Tensor:
        if not outputs.requires_grad:
            return torch.zeros_like(problem.parameters)
        weights = list(leaves.values())
        with full_precision(cotangent.device):
            parts = torch.autograd.grad(outputs, weights, cotangent, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    return outputs.detach(), vjp


_FEW = 8  # samples on which a copy in float32 is tried
_CHECKED = {"derivatives against differences"}
_Found = TypeVar("_Found")


class Problem:
    """A model, its loss (or objective) and data: what curvature is computed of.

    The risk is ``sum_n weight_n loss(model(input_n), target_n)`` with sample weights that sum to one, plus ``l2`` times
    the squared norm of the parameters. Where a sample has outputs at several positions (tokens, pixels), it is the mean
    over all positions that count. With an ``objective``, it is the mean of ``objective(model, batch)`` over batches.

    Args:
        model: Any module. It is copied: neither its mode, gradients, buffers nor later training are affected.
        loss: A name ("squared": half the sum of squares over the outputs, "mse": their mean, "l1", "cross_entropy",
            "bce": binary cross-entropy of logits, "log_cosh"), a torch loss module or function
            (``F.cross_entropy``), or a function ``(outputs, targets)`` that returns one value per sample. Defaults to
            the model's own loss, for data of dictionaries with labels: if it is recognised all Hessians exist, else the
            loss Hessian alone.
        data: Tensors with ``targets``, a pair of both, a dictionary with its targets under "labels", a data set, a
            loader or a list of batches. Tensors are copied into memory, everything else is read again at every pass.
            For an objective: a list or loader of batches, or one batch (a tensor, tuple, dictionary or object).
        targets: Targets of ``data``. Defaults to those that come with the data.
        objective: Function ``(model, batch)`` that returns the mean loss of a batch as a scalar, or one loss per
            sample. It may call the model and its parts any number of times and differentiate inside. Only the loss
            Hessian exists. It replaces ``loss``, ``targets``, ``forward``, ``weights`` and ``class_axis``.
        batch_weights: How the batches of an objective are averaged: by "size" (default), "equal", or one number per
            batch. The size of a batch is the number of values of an objective that returns one per sample, the common
            first dimension of the batch's tensors for a scalar, and for a loss with ``batch_norm="train"`` or
            ``randomness="fixed"`` the number of targets that count. Pass numbers for a scalar that is a mean over
            something else, such as the tokens that ``ignore_index`` leaves.
        forward: How to call the model, ``(model, inputs)``. Defaults to keywords for a dictionary of inputs, positions
            for a tuple.
        parameters: Names, globs ("*.bias") or layers ("encoder.0") to differentiate. Defaults to all trainable ones.
        weights: Weight of each sample in the mean. Defaults to equal weights.
        class_axis: Axis of the classes where the shape of the targets does not determine it: -1 for outputs (samples,
            tokens, classes), 1 for (samples, classes, positions..).
        l2: Coefficient of the squared norm of the parameters. Defaults to 0.
        dtype: torch.float32 or torch.float64. Defaults to float64 up to a million trainable parameters and to the
            model's own format above.
        device: Device to compute on. Defaults to the model's; a model on an accelerator with at most 10,000 trainable
            parameters and 2^20 numbers of data in memory is computed on the CPU, and ``notes`` states it. A given
            device is used for any size.
        memory_budget: Bytes of the problem's device that its operators and their measurements hold at once, beside
            the model (inf: no limit). Defaults to a quarter of the machine's free memory, at most 8 GiB, or half of
            the free memory of an accelerator.
        products: "auto" (default: exact), or "finite_difference": central differences of gradients, for models or
            objectives without a second derivative in torch.
        compile: Whether products are traced and compiled, which needs a C++ compiler and takes up to minutes at the
            first product. Defaults to False.
        batch_norm: "frozen" (default: running statistics), or "train": statistics of each given batch,
            differentiated through.
        randomness: None (default: a random model raises), or "fixed": the random numbers of dropout and noise are
            drawn once, from ``seed``.
        seed: Seed of fixed randomness. Defaults to 0.
        num_draws: Number of draws over which fixed randomness is averaged. Defaults to 1.

    Attributes:
        notes: What was done to the model and the data, in words.
        num_parameters: Number of differentiated parameters.
        num_samples: Number of samples.
        parameters: The differentiated parameters, flat.
        layout: Names, shapes and positions of the parameters in flat vectors.

    Raises:
        InvalidInput: If model, loss and data do not fit each other.
        NotReproducible: If model, objective or data are random, or the samples of a loss depend on each other.
        UnsupportedNetwork: If torch cannot differentiate the model.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        >>> problem = Problem(model, "cross_entropy", torch.randn(20, 3), torch.randint(2, (20,)))
        >>> problem.num_parameters, problem.num_samples, problem.gradient().shape
        (26, 20, torch.Size([26]))
        >>> contrast = Problem(model, objective=lambda model, x: model(x).std(), data=[torch.randn(8, 3)])
        >>> contrast.gradient().shape
        torch.Size([26])
    """

    share = 1.0  # of the samples of all processes, by what counts in the mean

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss | None = None,
        data: Any = None,
        targets: Any = None,
        *,
        objective: Objective | None = None,
        batch_weights: BatchWeights | Sequence[float] = "size",
        forward: Forward | None = None,
        parameters: str | Sequence[str] | None = None,
        weights: Any = None,
        class_axis: int | None = None,
        l2: float = 0.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        memory_budget: float | None = None,
        products: Literal["auto", "finite_difference"] = "auto",
        compile: bool = False,
        batch_norm: Literal["frozen", "train"] = "frozen",
        randomness: Literal["fixed"] | None = None,
        seed: int = 0,
        num_draws: int = 1,
    ) -> None:
        self._original = weakref.ref(model) if isinstance(model, nn.Module) else None
        penalty = number_or_none(l2)
        is_penalty = penalty is not None and 0 <= penalty < float("inf")
        require(is_penalty, "l2 must be finite and not negative", f"got {short_text(l2)}")
        require(isinstance(compile, bool | np.bool_), "compile must be True or False", f"got {short_text(compile)}")
        self.l2 = penalty or 0.0
        self.compile = bool(compile)
        require_name("products", products, ("auto", "finite_difference"))
        require_name("batch_norm", batch_norm, ("frozen", "train"))
        if isinstance(batch_weights, str):
            require_name("batch_weights", batch_weights, ("size", "equal"))
        require(randomness in (None, "fixed"), "randomness must be None or 'fixed'", f"got {short_text(randomness)}")
        self.products = products
        self._difference_error = 0.0
        self._first_notes: tuple[str, ...] = ()
        self._later_notes: list[str] = []
        self._fallbacks = Fallbacks()
        draws = checked_count("num_draws", num_draws, 1)
        first_seed = checked_seed(seed)
        must = "num_draws above 1 needs randomness='fixed'"
        require(draws == 1 or randomness == "fixed", must, f"got num_draws={draws} with randomness=None")
        seeds = range(first_seed, first_seed + draws) if randomness == "fixed" else None
        if objective is not None:
            given = {"loss": loss, "targets": targets, "forward": forward, "weights": weights, "class_axis": class_axis}
            for name, value in given.items():
                must, got = f"an objective cannot be combined with {name}=", f"both were given ({short_text(value)})"
                require(value is None, must, got, "The objective computes the whole loss from model and batch")
            require(callable(objective), "objective must be a function (model, batch)", f"got {short_text(objective)}")
        elif batch_norm == "train" or seeds is not None:
            objective = loss_objective(loss, forward, class_axis)
        else:
            objective = structured_objective(model, loss, data, targets, forward)
        if objective is not None:
            must = "weights= needs a loss of single samples"
            require(weights is None, must, f"the objective '{objective_name(objective)}' has whole batches")
        self.memory_budget = 0
        self._holders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # shared with its copies

        def build(place: torch.device | str | None) -> None:
            where = checked_device(model, place) if isinstance(model, nn.Module) else None
            self.memory_budget = checked_budget(memory_budget, where)
            if objective is not None:
                batches = data if targets is None else [(data, targets)]
                choices = parameters, dtype, place
                self._set_objective(model, objective, batches, batch_weights, batch_norm, seeds, choices)
            else:
                frozen = frozen_model(model, parameters, dtype, place, forward)
                self._set_loss(model, frozen, loss, (data, targets), weights, class_axis, forward)

        if device is None and is_small_for_its_device(model, (data, targets)):
            self._build_on_host(model, build)
        else:
            build(device)

    def _build_on_host(self, model: nn.Module, build: Callable[[torch.device | str | None], None]) -> None:
        """Compute a small problem on the CPU, unless its model or loss has tensors of its own on the device."""
        own, few = checked_device(model, None), f"{num_trainable(model):,} parameters are few for a device"
        refusal = ""
        try:
            build("cpu")
        except Exception as error:
            if is_out_of_memory(error):
                raise
            refusal = str(error).partition("\n")[0] or type(error).__name__
        if refusal:  # outside of the handler: an error of the same problem on its device is raised by itself
            build(None)
        note = f"computed on {own}, because on the CPU it raised: {refusal}"
        moved = f"moved from {own} to the CPU, because {few}; device='{own}' computes there"
        self._first_notes = (note if refusal else moved, *self._first_notes)

    def _set_loss(
        self,
        model: nn.Module,
        frozen: FrozenModel,
        loss: AnyLoss | None,
        given: tuple[Any, Any],
        weights: Any,
        class_axis: int | None,
        forward: Forward | None,
    ) -> None:
        """Make this the problem of a loss of single samples."""
        data, targets = given if loss is not None else (labelled_data(*given, forward), None)
        samples, data_notes = as_samples(data, targets, frozen.dtype, frozen.device, self.memory_budget)
        given_weights = checked_weights(weights, samples)
        first = validated_model(frozen, None if loss is None else as_loss(loss, class_axis), samples.first, model)
        self.output_shape, self.output_dim = first.output_shape, prod(first.output_shape)
        self._set_parts(first.model, weighted_samples(samples, given_weights, first.loss, self.output_dim, frozen))
        sums = first.loss.is_sum
        self._first_notes = (
            *(*frozen.copy_notes, *data_notes, *frozen.format_notes, *first.notes, *sorted(frozen.seen)),
            *frozen.selection_notes,
            *self._l2_notes,
            *(["the loss is summed over the samples (reduction='sum'): Hessians are those of the sum"] if sums else []),
        )
        risk = risk_value(self, look_at_batches(self, first.loss_weights))
        require(isfinite(risk), "the loss must be finite", f"the risk is {risk}")

    @property
    def local(self) -> Problem:
        """The problem on the samples of this process: this one, unless the data are split over processes."""
        return self

    def mean_over_processes(self, own: Tensor, mass: float | None = None) -> Tensor:
        """A mean over the samples of all processes, from that over the samples of this one, whose weights sum to
        ``mass`` in the local problem; by default the mean is that of the loss."""
        return own

    def agreed(self, value: _Found) -> _Found:
        """A value that all processes must share, such as a time: that of the first one."""
        return value

    def least(self, number: int) -> int:
        """The least number of all processes."""
        return number

    def at(self, point: Tensor) -> Problem:
        """The same problem at other parameters (flat): for its risk and its gradient."""
        moved = copy.copy(self)
        moved.named = self.unflatten(point)
        moved.__dict__["parameters"] = point
        return moved

    @property
    def _l2_notes(self) -> tuple[str, ...]:
        note = f"the loss Hessian includes {2 * self.l2:g} times the identity from l2={self.l2:g}"
        return (note,) if self.l2 else ()

    def _set_objective(
        self,
        model: nn.Module,
        objective: Objective,
        data: Any,
        rule: BatchWeights | Sequence[float],
        batch_norm: str,
        seeds: range | None,
        choices: tuple[Any, Any, Any],
    ) -> None:
        """Make this the problem of an objective on whole batches."""
        modes = Modes(batch_norm == "frozen", seeds is not None)
        forward = objective_forward(objective, seeds)
        frozen = frozen_model(model, *choices, forward, is_objective=True, modes=modes)
        batches = objective_batches(data)
        is_mean = not isinstance(rule, str) or rule == "equal"
        is_sum = isinstance(objective, LossObjective) and objective.loss.is_sum and not is_mean
        loss = ObjectiveLoss(objective_name(objective), is_sum)
        first = validated_model(frozen, loss, batches.first, model)
        require_dependence(first.model, batches, loss.name)
        weights, note = averaged_batches(first.model, objective, batches, rule)
        self.output_shape, self.output_dim = (1,), 1
        self._set_parts(first.model, weighted_samples(batches, weights, first.loss, 1, frozen))
        drawn = [] if seeds is None else [f"the random numbers of {len(seeds)} draws are fixed (randomness='fixed')"]
        found = (*frozen.copy_notes, note, *drawn, *frozen.format_notes, *first.notes, *sorted(frozen.seen))
        self._first_notes = (*dict.fromkeys(found), *frozen.selection_notes, *self._l2_notes)
        require(isfinite(risk := risk_value(self)), "the objective must be finite", f"its value is {risk}")

    @property
    def original_model(self) -> nn.Module | None:
        """The user's model of which this problem has a copy; None once it no longer exists."""
        return None if self._original is None else self._original()

    @property
    def is_objective(self) -> bool:
        """Whether the problem is that of an objective on whole batches, which has the loss Hessian alone."""
        return isinstance(self.samples, ObjectiveBatches)

    @property
    def has_parts(self) -> bool:
        """Whether the loss is a known function of outputs and targets, so that H_L = H_o + H_f is defined."""
        return not isinstance(self.loss, ModelLoss)

    def _set_parts(self, frozen: FrozenModel, data: WeightedSamples) -> None:
        """Make these the model, the loss and the data of this problem."""
        self._frozen, self._data = frozen, data
        self.model, self.user_forward = frozen.model, frozen.forward
        self.named, self.layout = frozen.named, frozen.layout
        self.dtype, self.device = frozen.dtype, frozen.device
        self.narrowest_format = frozen.narrowest
        self.samples, self.loss, self.normaliser = data.samples, data.loss, data.normaliser
        self.num_parameters, self.num_samples = self.layout.size, self.samples.num_samples
        self._cache: dict[str, Any] = {}
        self.__dict__.pop("parameters", None)  # of the model before

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the model and the data, how products are made once that is decided, and how often a slower
        method was used because a faster one failed."""
        found = [*self._first_notes, *self._later_notes, *self._fallbacks.notes]
        if self.products == "finite_difference":
            found.append(
                f"products are finite differences of gradients: relative error about {self._difference_error:.0e}"
            )
        return tuple(found)

    @property
    def difference_error(self) -> float:
        """Largest estimated relative error of the products by finite differences so far; 0.0 before the first."""
        return self._difference_error

    def note_difference_error(self, error: float) -> None:
        """Note the estimated relative error of products by finite differences, the largest so far."""
        self._difference_error = max(self._difference_error, error)

    def add_note(self, note: str) -> None:
        """Say something more, once; the problem in single precision says the same."""
        if note not in self._later_notes:
            self._later_notes.append(note)

    def count_fallback(self, kind: str, error: Exception) -> None:
        """Note that a faster method failed and a slower one is used: one note a kind, with how often and why."""
        self._fallbacks.add(kind, error)

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
        return self._data.in_memory.inputs

    @property
    def targets(self) -> Tensor:
        """All targets in memory, as the loss reads them."""
        return self._data.in_memory.targets

    @property
    def weights(self) -> Tensor:
        """The weight of every sample in the mean, in the order of ``inputs``."""
        return self._data.weights

    @property
    def data_hash(self) -> str:
        """Equal for equal samples, targets and weights."""
        return self._data.data_hash

    @property
    def provenance(self) -> Provenance:
        return provenance(str(self.dtype).removeprefix("torch."), data_hash=self.data_hash, notes=self.notes)

    def cached(self, key: str, compute: Callable[..., _Found], *arguments: Any) -> _Found:
        """``compute(*arguments)`` at the first call with this key; the same result at later ones."""
        if key not in self._cache:
            self._cache[key] = compute(*arguments)
        found: _Found = self._cache[key]
        return found

    def hold(self, holder: Any, num_bytes: int) -> None:
        """Let an operator hold linearised batches: all operators of the problem, and of its copies at other points and
        in other precisions, hold at most half of the memory budget, and those that began first let theirs go.

        Args:
            holder: Has a method ``let_go``.
            num_bytes: Bytes that it will hold; 0: none any more.
        """
        self._holders.pop(holder, None)
        room = self.memory_budget // 2 - num_bytes
        for other in list(self._holders) if num_bytes else ():
            if sum(self._holders.values()) <= room:
                break
            other.let_go()
            self._holders.pop(other, None)
        if num_bytes:
            self._holders[holder] = num_bytes

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector as named parameters."""
        return {name: vector[part].reshape(self.named[name].shape) for name, part in self.layout}

    def forward(self, named: dict[str, Tensor], inputs: Inputs, *, fast: bool = False) -> Tensor:
        """Outputs (num_samples, output_dim) of the model with these parameters in place of its own."""
        outputs = self._frozen.outputs(named, inputs, fast)
        shape = tuple(outputs.shape[1:])
        is_known = shape == self.output_shape or self.loss.accepts(shape)
        got = f"some have shape {self.output_shape} and some {shape}"
        require(is_known, "every sample must have outputs of one shape", got)
        return outputs.reshape(len(outputs), -1)

    def function(self, inputs: Inputs) -> Callable[[Tensor], Tensor]:
        """The outputs as a function of the flat parameters."""
        return lambda flat: self.forward(self.unflatten(flat), inputs)

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """One pass over the data as (inputs, targets, weights); the weights of a whole pass average the data."""
        return self._data.batches(size)

    def subsample(self, count: int) -> Batch:
        """Some samples for a check: spread over the data where they are held, the first of a stream."""
        return self._data.few(count)

    def ordered_batches(self, size: int | None = None) -> Iterator[Batch]:
        """One pass whose samples come in the order of ``inputs`` and ``targets``, also of a loader that shuffles."""
        return self._data.ordered_batches(size)

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Outputs of every sample, shape (num_samples, output_dim), in the order of ``inputs``."""
        require_samples(self, "the matrix of outputs")
        return torch.cat([self.forward(self.named, inputs).detach() for inputs, _, _ in self.ordered_batches(PASS)])

    def residuals(self) -> Tensor:
        """dloss/doutput of every sample, shape (num_samples, output_dim), in the order of ``inputs``."""
        require_samples(self, "residuals")
        require_samples(self, "the matrix of residuals")
        found = []
        for inputs, targets, _ in self.ordered_batches(PASS):  # one pass: another one may have another order
            with torch.no_grad():
                outputs = self.forward(self.named, inputs).detach()
            found.append(self.loss.gradient(outputs, targets).detach())
        return torch.cat(found)

    def risk(self, parameters: Tensor | None = None, buffers: Mapping[str, Tensor] | None = None) -> float:
        """Mean loss over the data.

        Args:
            parameters: Flat parameters in the order of ``layout`` at which the loss is evaluated. Default: the model's.
            buffers: Buffers of the model by name (running statistics of batch norm) to use in place of its own.

        Returns:
            The risk, with the penalty of ``l2``.

        Raises:
            InvalidInput: If ``parameters`` is not a vector of the problem's size.
        """
        if parameters is None:
            return risk_value(self, buffers=buffers)
        must = f"parameters must be a flat tensor of {self.num_parameters} entries"
        is_flat = isinstance(parameters, Tensor) and tuple(parameters.shape) == (self.num_parameters,)
        got = f"shape {tuple(parameters.shape)}" if isinstance(parameters, Tensor) else f"a {type(parameters).__name__}"
        require(is_flat, must, f"got {got}")
        return risk_value(self, parameters=parameters.detach().to(self.parameters), buffers=buffers)

    def gradient(self) -> Tensor:
        """Gradient of the risk, flat."""
        return risk_gradient(self)

    @torch.inference_mode(False)
    def in_single_precision(self) -> Problem | None:
        """The same risk in float32, for iterations that make sure of their result in float64; None if it is in float32
        already, or if its model or loss does not give finite numbers in float32."""
        if self.dtype != torch.float64:
            return None
        single = copy.copy(self)
        try:
            loss = self.loss.to(torch.float32, self.device)
            single._set_parts(self._frozen.in_format(torch.float32), self._data.in_format(torch.float32, loss))
            inputs, targets, _ = next(iter(single.batches(_FEW)))
            with torch.no_grad():
                losses = loss.value(single.forward(single.named, inputs), targets)
        except (RuntimeError, TypeError, ValueError) as error:  # it holds float64 tensors of its own
            if not is_answerable(error, refusals=True):
                raise
            self.count_fallback("all products are in float64: the model or its loss does not run in float32", error)
            return None
        if not bool(torch.isfinite(losses).all()):
            return None
        for name in _CHECKED & self._cache.keys():  # in float64, which tells more
            single._cache[name] = self._cache[name]
        return single

    @torch.inference_mode(False)
    def in_double_precision(self) -> Problem:
        """The same model and loss in float64, for checks on samples that the caller brings in float64 as well."""
        double = copy.copy(self)
        data = replace(self._data, loss=self.loss.to(torch.float64, self.device), dtype=torch.float64)
        frozen = replace(
            self._frozen.in_format(torch.float64), narrowest=torch.float32
        )  # of its casts nothing is known
        double._set_parts(frozen, data)
        return double

    def __repr__(self) -> str:
        if isinstance(self.samples, ObjectiveBatches):
            batches = f"{self.num_samples} batch{'' if self.num_samples == 1 else 'es'}"
            sizes = f"{self.num_parameters} parameters, {batches} of {sum(self.samples.sizes)} samples"
            return f"Problem({type(self.model).__name__}, objective '{self.loss.name}'{self._batch_norm_text}, {sizes})"
        sizes = f"{self.num_parameters} parameters, {self.num_samples} samples, {self.output_dim} outputs"
        return f"Problem({type(self.model).__name__}, loss '{self.loss.name}'{self._batch_norm_text}, {sizes})"

    @property
    def _batch_norm_text(self) -> str:
        norms = [module for module in self.model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        if not norms:
            return ""
        return ", batch norm of each batch" if any(norm.training for norm in norms) else ", batch norm frozen"

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
        return html_facts("Problem", rows.items())


def require_problem(problem: object) -> None:
    """Raise unless an argument is a Problem.

    Args:
        problem: The argument.

    Raises:
        InvalidInput: If it is something else.
    """
    remedy = "Build one with hm.Problem(model, loss, data)"
    require(isinstance(problem, Problem), "this needs a Problem", f"got a {type(problem).__name__}", remedy)


def require_samples(problem: object, what: str) -> None:
    """Raise unless an argument is a Problem with outputs and targets of single samples.

    Args:
        problem: The argument.
        what: What was asked for, in words for the error.

    Raises:
        InvalidInput: If it is something else, or the problem of an objective.
    """
    require_problem(problem)
    if isinstance(problem, Problem) and problem.is_objective:
        require_parts(problem.loss, what)
