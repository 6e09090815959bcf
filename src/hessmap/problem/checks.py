"""Checks of a model and its loss on the first samples, before anything is differentiated.

- The model is deterministic, and its outputs and losses do not depend on the other samples of a batch.
- It reads its weights as attributes of its modules. Derivatives are taken with tensors in place of a module's
  parameters: a weight in a plain list, or one of the original model that a function or a loss closes over, is not
  replaced and would silently be a constant.
- It leaves its weights unmodified and reuses no value that it computed with other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from hessmap.errors import InvalidInput, NotReproducible, UnsupportedNetwork, require, sentence
from hessmap.linalg import preserved_random_state, storage_address
from hessmap.losses import Loss
from hessmap.problem.data import Inputs, Pair, move_to, take_rows
from hessmap.problem.evaluation import FrozenModel, Operation, OperationReader, fitting_inputs, tensors_among
from hessmap.problem.model import private_copy
from hessmap.problem.objective import read_model_loss
from hessmap.problem.samples import prepared_targets

if TYPE_CHECKING:
    from hessmap.problem.problem import Look, Problem
    from hessmap.problem.samples import Batch


HIDDEN_NOTE = (
    "gradients are not those of the outputs: the model hides values from autograd or changes gradients (detach, hooks, "
    "a backward of its own, rounding that gradients pass straight through); its derivatives are those that torch takes"
)
_STRAIGHT_THROUGH = "fake_quant"  # in the names of torch's operations that round and have the gradient of the identity
_READS = ("numpy", "tolist", "item")
_SHAPES = (  # operations that read no values
    *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"),
)
_FIRST_VALUES = ("to", "type_as", "expand_as", "view_as", "reshape_as")  # that read those of their first tensor
NARROW = (torch.float32, torch.bfloat16, torch.float16)


class WeightUseScanner:
    """Notes operations on memory that belongs to one of some weights, reads of values past autograd, and casts."""

    def __init__(self, addresses: Mapping[int, str], given: Mapping[int, str]) -> None:
        self.addresses = addresses
        self.given = given
        self.found: tuple[str, str] | None = None
        self.constants: set[str] = set()
        self.narrow: tuple[str, torch.dtype] | None = None
        self.is_straight_through = False

    def read(self, func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        self.is_straight_through = self.is_straight_through or _STRAIGHT_THROUGH in name
        if name in _READS or (name == "__get__" and getattr(func, "__self__", None) is Tensor.data):
            self.constants |= {self.given[id(value)] for value in args[:1] if id(value) in self.given}
        elif name != "__get__" and self.found is None:
            places = [storage_address(tensor) for tensor in tensors_among((args, kwargs))]
            weight = next((self.addresses[place] for place in places if place in self.addresses), None)
            self.found = None if weight is None else (weight, resolve_name(func) or name)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.dtype in NARROW and self.narrow is None:
            given = [tensor.dtype for tensor in tensors_among(args) if tensor.is_floating_point()]
            is_cast = any(torch.finfo(dtype).eps < torch.finfo(result.dtype).eps for dtype in given)
            self.narrow = (resolve_name(func) or name, result.dtype) if is_cast else None
        return result


def check_weights_used_through_modules(
    forward: Callable[[dict[str, Tensor]], Tensor], named: Mapping[str, Tensor], *models: nn.Module
) -> tuple[Tensor, torch.dtype | None, tuple[str, ...]]:
    """Evaluate once with copies of the weights: the models' own must not be seen. The outputs, the narrower number
    format in which a model computes some of its values, if it does, and notes on constants and casts."""
    own = [(name, value) for model in models for name, value in differentiated(model, named)]
    addresses = {storage_address(value): name for name, value in own}
    given = {name: value.clone() for name, value in named.items()}
    search = WeightUseScanner(addresses, {id(value): name for name, value in given.items()})
    with OperationReader(search.read), torch.enable_grad():
        outputs = forward(given)
    check_weights_unmodified(given, [0] * len(given))
    kept = search.found or next(((name, "a tensor that was kept") for name in reached_weights(outputs, own)), None)
    if kept is not None:
        name, operation = kept
        must = "a model must reach its weights through its modules"
        got = f"{operation} has parameter '{name}' from elsewhere, where it would stay constant"
        remedy = "Read it from its module in forward (self.layer.weight), not from a list, a closure or another model"
        raise UnsupportedNetwork(sentence(must, got, remedy))
    notes = [
        f"the model reads values of '{name}' outside of autograd, where it is a constant"
        for name in sorted(search.constants)
    ]
    operation, narrow = search.narrow or ("", None)
    if narrow is not None:
        name, rounding = str(narrow).removeprefix("torch."), torch.finfo(narrow).eps
        notes.append(f"the model computes some of its values in {name} ({operation}): accurate to about {rounding:.0e}")
    if search.is_straight_through:
        notes.append(HIDDEN_NOTE)
    return outputs.detach(), narrow, tuple(notes)


def computes_narrowly(forward: Callable[[dict[str, Tensor]], Tensor], named: Mapping[str, Tensor]) -> bool:
    """Whether a float64 model computes some of its values in a narrower format."""
    search = WeightUseScanner({}, {})
    with OperationReader(search.read), torch.no_grad():
        forward(dict(named))
    return search.narrow is not None


def differentiated(model: nn.Module, named: Container[str]) -> list[tuple[str, Tensor]]:
    """The parameters of the user's model that are differentiated, by the names that they have in its copy."""
    named_parameters = ((name.replace("_orig_mod.", ""), value) for name, value in model.named_parameters())
    return [(name, value) for name, value in named_parameters if name in named and value.numel()]


def reached_weights(result: Tensor, weights: Iterable[tuple[str, Tensor]]) -> Iterator[str]:
    """The names of those weights that the graph of a result reaches: the tensors themselves, or their memory."""
    known = list(weights) if result.requires_grad else []
    names = {id(value): name for name, value in known}
    places = {storage_address(value): name for name, value in known}
    for leaf in _leaves(result) if known else ():
        name = names.get(id(leaf)) or places.get(storage_address(leaf))
        if name is not None:
            yield name


def _leaves(result: Tensor) -> Iterator[Tensor]:
    """The tensors that autograd would leave gradients in."""
    ends: list[Any] = [result.grad_fn]
    if result.grad_fn is None:
        yield result
    seen = set()
    while ends:
        node = ends.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ends.extend(next_node for next_node, _ in node.next_functions)


class LossWeights:
    """Whether a loss uses weights of the model whose outputs it is given: the user's, which are not those that are
    differentiated, or their copies in a loss module that was copied."""

    def __init__(self, loss: Loss, model: nn.Module, named: Container[str]) -> None:
        own = differentiated(model, named)
        self.name = loss.name
        places = {storage_address(value): name for name, value in own}
        copied = [(places[place], value) for place, value in loss.copies.items() if place in places]
        self.weights = own + copied
        self._places = {storage_address(value): name for name, value in self.weights}
        self._read: set[str] = set()
        held = [places.get(storage_address(value)) for value in loss.held_weights]
        self._require_none(next(filter(None, held), None))

    def require_unused(self, values: Tensor) -> None:
        """Raise if the graph of values of the loss, on outputs without a graph, ends in one of the weights."""
        self._require_none(next(reached_weights(values, self.weights), None))

    def _require_none(self, name: str | None) -> None:
        if name is not None:
            must = "a loss must be a function of outputs and targets"
            got = f"'{self.name}' also depends on parameter '{name}' of the model, which would be treated as a constant"
            remedy = (
                "Compute that term in forward=, from the model that forward(model, inputs) is given, and return it as "
                "one more output of every sample that the loss adds; l2= adds the squared norm of all parameters"
            )
            raise InvalidInput(sentence(must, got, remedy))

    @property
    def notes(self) -> tuple[str, ...]:
        """On weights that the loss read without a graph: constants, by detach or no_grad."""
        return tuple(
            f"the loss reads values of '{name}' outside of autograd, where it is a constant"
            for name in sorted(self._read)
        )

    def read(self, func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry an operation of the loss out, and note whether it uses values of the weights."""
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        used = args[:1] if name in _FIRST_VALUES else () if name in _SHAPES else (args, kwargs)
        places = {storage_address(tensor) for tensor in tensors_among(used)}
        made = {storage_address(tensor) for tensor in tensors_among(result)}
        is_value = bool(made & places) if name == "__get__" else bool(made) or name in _READS
        self._read |= {self._places[place] for place in places if is_value and place in self._places}
        return result


def check_weights_unmodified(named: Mapping[str, Tensor], versions: Sequence[int]) -> None:
    """``versions`` are those of the tensors before a forward pass; a model that writes into its weights is refused."""
    for (name, value), before in zip(named.items(), versions, strict=True):
        if value._version != before:
            must, got = "a forward pass must leave the weights as they are", f"this one writes into parameter '{name}'"
            remedy = "Do it once before, or write the changed weight into a variable"
            raise UnsupportedNetwork(sentence(must, got, remedy))


_FEW_ROWS = 8  # of a batch, that are evaluated once more


def check_deterministic_per_sample(forward: Callable[[Inputs], Tensor], inputs: Inputs, narrowest: torch.dtype) -> None:
    """Two evaluations agree, and no sample sees another, to the rounding of the narrowest number format in it."""
    few = take_rows(inputs, slice(3))
    outputs = []
    for seed in (0, 1):
        with preserved_random_state(seed):
            before = torch.get_rng_state()
            outputs.append(forward(few).detach())
            is_random = not torch.equal(torch.get_rng_state(), before)
    last = len(outputs[0]) - 1
    alone = [forward(take_rows(few, slice(place, place + 1))).detach()[0] for place in (0, last)]
    require(bool(torch.isfinite(outputs[0]).all()), "the model's outputs must be finite", "there is NaN or inf")
    differ = not torch.equal(outputs[0], outputs[1])
    if differ or is_random:  # what is rarely random may agree twice by chance
        got = "two evaluations on the same samples disagree" if differ else "it draws random numbers"
        remedy = "Disable randomness (dropout, noise), for example with model.eval(), or pass "
        remedy += "randomness='fixed' for the Hessian of one draw"
        raise NotReproducible(sentence("the model must be a function of its inputs", got, remedy))
    if not all(_agree(alone[n], outputs[0][place], outputs[0], narrowest) for n, place in enumerate((0, last))):
        raise coupled_samples(len(outputs[0]))


@torch.no_grad()
def require_separate_rows(problem: Problem, pair: tuple[Inputs, Tensor], outputs: Tensor, losses: Tensor) -> None:
    """Check that some samples of a batch have the same outputs and losses among themselves as in the whole batch.

    Args:
        problem: Model, data and loss.
        pair: Inputs and targets of the batch.
        outputs: Its outputs.
        losses: Its losses.

    Raises:
        NotReproducible: If they differ.
    """
    inputs, targets = pair
    count = len(outputs)
    rows = torch.linspace(0, count - 1, min(_FEW_ROWS, count // 2)).long().to(outputs.device)
    if not len(rows):
        return
    few = problem.forward(problem.named, take_rows(inputs, rows)).detach()
    narrowest = problem.narrowest_format or problem.dtype
    if not _rows_agree(few, outputs[rows], outputs, narrowest):
        raise coupled_samples(count)
    among = problem.loss.value(outputs[rows], targets[rows])
    if not _rows_agree(among[:, None], losses[rows, None], losses, outputs.dtype):
        raise _coupled_losses(problem.loss, outputs, targets)


@torch.no_grad()
def require_separate_samples(problem: Problem, batch: Batch, outputs: Tensor | None = None) -> None:
    """The samples of a batch have the same outputs in two parts of it as in the whole, whose ``outputs`` may be given;
    and so have some of those of a last batch, which is not full."""
    inputs, targets, _ = batch
    count, half = len(targets), (len(targets) // 2) | 1  # the sizes of both parts are odd if that of the whole is even
    if count < 2:
        return
    whole = problem.forward(problem.named, inputs).detach() if outputs is None else outputs
    parts = [problem.forward(problem.named, take_rows(inputs, part)) for part in (slice(half), slice(half, None))]
    if not _rows_agree(torch.cat(parts), whole, whole, problem.narrowest_format or problem.dtype):
        raise coupled_samples(count)
    left = problem.num_samples % count
    if problem.samples.is_held and left:
        last = take_rows(problem.inputs, slice(-left, None)), problem.targets[-left:]
        outputs = problem.forward(problem.named, last[0]).detach()
        require_separate_rows(problem, last, outputs, problem.loss.value(outputs, last[1]))


def coupled_samples(count: int) -> NotReproducible:
    """The error for outputs that depend on the other samples of a batch.

    Args:
        count: Number of samples of the batch.

    Returns:
        NotReproducible: The error to raise.
    """
    got = f"the output of a sample changes with the others in its batch, here of {count}"
    remedy = "Call model.eval() so that normalisation layers use their running statistics"
    return NotReproducible(sentence("the model must treat samples independently", got, remedy))


def plain_attributes(model: nn.Module) -> dict[tuple[str, str], tuple[Any, int]]:
    """What the modules keep besides parameters, buffers and modules, with the length of what has one."""
    return {
        (path, name): (value, len(value) if isinstance(value, dict | list | set) else 0)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_") or isinstance(value, Tensor)
    }


def changed_attribute(model: nn.Module, before: dict[tuple[str, str], tuple[Any, int]]) -> str | None:
    """The first attribute that is another than before."""
    for place, (value, length) in plain_attributes(model).items():
        known, known_length = before.get(place, (None, 0))
        if value is not known or length != known_length:
            return ".".join(part for part in place if part)
    return None


def check_no_cached_state(name: str, here: Tensor, fresh: Tensor, narrowest: torch.dtype) -> None:
    """Outputs with other weights, of a model that was used and of one that was not: what is kept must not show."""
    if not _agree(here, fresh, fresh, narrowest):
        must = "a forward pass must not reuse values computed with other weights"
        got = f"the model caches one in '{name}', which derivatives would treat as a constant"
        raise UnsupportedNetwork(sentence(must, got, "Recompute it in every forward pass"))


@torch.no_grad()
def require_separate_losses(loss: Loss, outputs: Tensor, targets: Tensor, together: Tensor) -> None:
    """The loss of a sample is the same alone and among others: no mean over the batch, no broadcasting."""
    must, got = "the loss must be finite", f"'{loss.name}' gives NaN or inf on the first samples"
    require(bool(torch.isfinite(together).all()), must, got)
    alone = torch.cat([loss.value(outputs[n : n + 1], targets[n : n + 1]) for n in range(len(outputs))])
    if not _agree(together, alone, alone, alone.dtype):
        raise _coupled_losses(loss, outputs, targets)


def _coupled_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> NotReproducible:
    shapes = f"outputs of shape {tuple(outputs.shape)} with targets of shape {tuple(targets.shape)}"
    got = f"'{loss.name}' gives a sample a loss in a batch that differs from its loss alone"
    remedy = f"Look for means over the batch, and for broadcasting: it was given {shapes}"
    return NotReproducible(sentence("the loss must treat samples independently", got, remedy))


def _rows_agree(some: Tensor, others: Tensor, among: Tensor, narrowest: torch.dtype) -> bool:
    """Of one row in a hundred, rounding in float32 may change a decision (which expert, which rounded value)."""
    relative, absolute = _tolerances(among, narrowest)
    apart = ~torch.isclose(some, others, rtol=relative, atol=absolute, equal_nan=True).flatten(1).all(1)
    allowed = 0 if narrowest == torch.float64 else len(apart) // 100
    return int(apart.sum()) <= allowed


def _agree(one: Tensor, other: Tensor, among: Tensor, narrowest: torch.dtype) -> bool:
    relative, absolute = _tolerances(among, narrowest)
    return torch.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True)


def _tolerances(among: Tensor, narrowest: torch.dtype) -> tuple[float, float]:
    # Kernels for one sample and for several round differently.
    relative = 1e-8 if narrowest == torch.float64 else 1e-3 if narrowest == torch.float32 else 0.1
    return relative, 1e-2 * relative * float(among.abs().max())


_FEW = 8  # samples on which a model that keeps something is tried
_MOST_SIZES = 16  # of batches that are asked whether samples see each other


class ValidatedModel(NamedTuple):
    """The model as it is called from now on, its loss fitted to the shape of the outputs, and notes on both."""

    model: FrozenModel
    loss: Loss
    output_shape: tuple[int, ...]
    notes: tuple[str, ...]
    loss_weights: LossWeights


def validated_model(model: FrozenModel, loss: Loss | None, first: Pair, original: nn.Module) -> ValidatedModel:
    """Evaluate the first samples and refuse what cannot be differentiated; without a loss, read the model's own."""
    targets = first[1]
    inputs = move_to(first[0], model.device, model.dtype)
    notes: tuple[str, ...] = ()
    versions = [value._version for value in model.named.values()]
    attributes = plain_attributes(model.model)
    if loss is None:
        with fitting_inputs(inputs):
            loss, forward, note = read_model_loss(model.returned, inputs, targets)
        model = replace(model, forward=forward)
        notes = (note,)
    check_weights_unmodified(model.named, versions)
    with fitting_inputs(inputs):
        outputs, narrow, other = check_weights_used_through_modules(
            lambda given: model.outputs(given, inputs), model.named, original, model.model
        )
    check_deterministic_per_sample(lambda few: model.outputs(model.named, few), inputs, narrow or model.dtype)
    if (changed := changed_attribute(model.model, attributes)) is not None:
        _check_no_cached_state(model, changed, original, take_rows(inputs, slice(_FEW)), narrow or model.dtype)
    shape = tuple(outputs.shape[1:])
    fitted = loss.for_output_shape(shape, targets).to(model.dtype, model.device)
    prepared = prepared_targets(fitted, targets, prod(shape), model.dtype, model.device)
    flat = outputs.reshape(len(outputs), -1)
    weights = LossWeights(fitted, original, model.named)
    with torch.enable_grad(), OperationReader(weights.read):
        losses = fitted.value(flat, prepared)
    weights.require_unused(losses)
    require_separate_losses(fitted, flat, prepared, losses.detach())
    found = (*notes, *other, *weights.notes)
    return ValidatedModel(replace(model, narrowest=narrow), fitted, shape, found, weights)


def look_at_batches(problem: Problem, weights: LossWeights) -> Look:
    """What every batch of the first pass is asked: whether its loss uses weights of the model; and, once for every
    size, whether some of its samples have the same outputs and losses in a batch of their own."""
    seen: set[int] = set()

    def look(inputs: Inputs, targets: Tensor, outputs: Tensor, losses: Tensor) -> None:
        weights.require_unused(losses)
        if len(outputs) in seen or len(seen) == _MOST_SIZES:
            return
        seen.add(len(outputs))
        require_separate_rows(problem, (inputs, targets), outputs, losses.detach())

    return look


@torch.no_grad()
def _check_no_cached_state(
    model: FrozenModel, changed: str, original: nn.Module, few: Inputs, narrowest: torch.dtype
) -> None:
    """A model that keeps something gives with other weights what a fresh copy of it gives."""
    fresh = replace(model, model=private_copy(original, model.dtype, model.device, model.modes)[0])
    moved = {name: 1.5 * value + 0.1 for name, value in model.named.items()}
    check_no_cached_state(changed, model.outputs(moved, few), fresh.outputs(moved, few), narrowest)
