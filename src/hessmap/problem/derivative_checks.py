"""Checks of a model's derivatives, once per problem: torch can differentiate it twice, and the result is right.

An operation with a derivative of its own can hide what it depends on (a ``backward`` that detaches), and a model can
hide values from autograd (``detach``, hooks that change gradients). The products of such a model may be symmetric and
still belong to no function. So derivatives by autograd are compared with differences, on a batch of the size that
products take and on samples spread over the data. Differences count only where four of them agree, on both sides and
with two steps, so that kinks, ties and rounding decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from hessmap.errors import HessmapError, UnsupportedNetwork, sentence
from hessmap.linalg import full_precision, has_float64, is_out_of_memory, random_vector, to_host, widest_dtype
from hessmap.losses import FunctionLoss
from hessmap.problem.autograd import PRODUCTS, BatchGraph, bytes_per_sample, may_be_rewritten, samples_in_use
from hessmap.problem.checks import HIDDEN_NOTE, NARROW, computes_narrowly, require_separate_samples
from hessmap.problem.data import move_to, take_rows
from hessmap.problem.evaluation import Operation, tensors_among
from hessmap.problem.model import is_raised_in_torch
from hessmap.problem.samples import Batch

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem


_OFFER = "pass products='finite_difference' to Problem for products from first derivatives alone"
SYMMETRY_TOLERANCE = 1e-3  # a bad cancellation passes; a wrong derivative does not


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Context in which a missing derivative of torch is raised as ``UnsupportedNetwork``, with torch's reason.

    Returns:
        A context manager; an exception of the user's own code passes with a note.

    Example:
        >>> with twice_differentiable():
        ...     torch.autograd.grad(torch.ones(()), torch.ones(()))
        Traceback (most recent call last):
            ...
        hessmap.errors.UnsupportedNetwork: torch must be able to differentiate the model and its loss twice; torch \
raised: element 0 of tensors does not require grad and does not have a grad_fn. Pass products='finite_difference' to \
Problem for products from first derivatives alone.
    """
    must = "torch must be able to differentiate the model and its loss twice"
    try:
        yield
    except HessmapError:
        raise
    except CheckpointError as error:
        got = "torch.utils.checkpoint computes activations again, with other weights than those that are differentiated"
        remedy = "Switch it off, for example with model.gradient_checkpointing_disable()"
        raise UnsupportedNetwork(sentence(must, got, remedy)) from error
    except Exception as error:
        if _is_refusal_of_torch(error):
            reason = str(error).strip().splitlines()[0].rstrip(".")
            remedy = _OFFER[0].upper() + _OFFER[1:]
            raise UnsupportedNetwork(sentence(must, f"torch raised: {reason}", remedy)) from error
        error.add_note("raised while the model was differentiated")
        raise


def _is_refusal_of_torch(error: Exception) -> bool:
    """Of a derivative that torch does not have: no subclass, which says something else, and nothing of the forward
    pass or the loss, which have their note."""
    is_plain = type(error) in (RuntimeError, NotImplementedError) and not is_out_of_memory(error)
    return is_plain and is_raised_in_torch(error) and not hasattr(error, "__notes__")


def require_symmetric_products(problem: Problem, part: str) -> None:
    """Check u.(H v) = v.(H u) on two samples, once per problem and part, before its first product.

    A function whose derivative hides its own derivative (``once_differentiable``, an embedding that scales its
    gradient by frequency) makes products that belong to no second derivative.

    Args:
        problem: Model, data and loss.
        part: "loss", "outer_product", "functional" or "empirical_fisher".

    Raises:
        UnsupportedNetwork: If the products are not symmetric.
    """
    may_be_rewritten(problem)
    problem.cached(f"symmetry of {part}", _require_symmetric, problem, part)


@torch.inference_mode(False)
def _require_symmetric(problem: Problem, part: str) -> bool:
    few = next(iter(problem.batches(2)))
    size = problem.num_parameters
    vectors = random_vector(2 * size, problem.dtype).reshape(2, size).to(problem.device)
    product = PRODUCTS[part](BatchGraph(problem, few, vectorised=False))
    crossed, scale = [], 0.0
    for n in (0, 1):  # one at a time: vectors of parameters are long
        vector, other = vectors[n], vectors[1 - n]
        image = product(vector[None])[0]
        crossed.append(float((other * image).sum(dtype=widest_dtype(image.device))))
        scale += float(image.to(widest_dtype(image.device)).norm())
    difference = abs(crossed[0] - crossed[1])
    if difference > SYMMETRY_TOLERANCE * scale:
        raise asymmetric(difference / scale)
    return True


def asymmetric(size: float) -> UnsupportedNetwork:
    """The error for second derivatives that are not symmetric.

    Args:
        size: Difference from the transpose, relative to the largest entry.

    Returns:
        UnsupportedNetwork: The error to raise.
    """
    got = f"torch's differ from their transpose by {size:.2g} of the largest"
    causes = "an operation of the model whose second derivative is wrong, or for values that overflow"
    remedy = f"Look for {causes}; {_OFFER}"
    return UnsupportedNetwork(sentence("second derivatives must be symmetric", got, remedy))


HIDDEN_LOSS_NOTE = (
    "gradients of the loss are not those of its values: it hides outputs from autograd (detach, no_grad, item); "
    "its derivatives are those that torch takes"
)
Order = Literal[1, 2]
_MOST_OUTPUTS = 2**16  # of a batch, in the sum that is differentiated
_SPREAD = 64  # samples over all of the data
_FEWER = (8, 2)  # of which some have no kink within a step
_PARTS = 4  # of a batch that a check of spread samples may take
_SPREAD_NARROWLY = 8  # in float32, whose steps meet kinks of a ReLU network on any sample
_IN_DOUBLE = 16  # samples at least of a float32 problem that are checked in float64 then
_ONCE = 2  # samples, the first and the last, whose first derivatives are checked alone
_DOUBLE_BYTES = 64  # a parameter, of a copy in float64 and the vectors of its check


@dataclass(frozen=True)
class _Trust:
    """What differences with a step can tell, relative to the size of the point.

    Those with the step and with a part ``nearer`` of it are believed if no further apart than ``believed`` of the
    largest of them. They contradict a derivative that is further off than ``once`` of its size, a second one than
    ``twice``: or of the part ``resolved`` of value / point, below which they are rounding.
    """

    step: float
    nearer: float
    believed: float
    once: float
    twice: float
    resolved: float


# Steps of 1e-7 meet a kink on one of 1e7 activations, those of 1e-9 on one of 1e9, with less precision.
_TRUST = {
    torch.float64: (_Trust(1e-7, 1 / 32, 1e-3, 1e-4, 1e-3, 1e-3), _Trust(1e-9, 1 / 4, 1e-3, 1e-4, 1e-3, 1e-1)),
    torch.float32: (_Trust(1e-3, 1 / 4, 2e-2, 2e-2, 1e-1, 1e-1),),
    torch.float16: (_Trust(5e-2, 1 / 2, 1e-1, 1e-1, 2.5e-1, 0.5),),
    torch.bfloat16: (_Trust(1e-1, 1 / 2, 2e-1, 2e-1, 4e-1, 1.0),),
}


@torch.inference_mode(False)
@twice_differentiable()
def require_true_derivatives(problem: Problem, order: Order = 2) -> None:
    """Compare derivatives by autograd with differences, once per problem.

    Second derivatives of outputs and loss must be the derivatives of the first ones. Where the first ones are not
    those of the outputs, because the model hides values from autograd, a note of the problem states it.

    Args:
        problem: Model, data and loss.
        order: 1 for what is computed from first derivatives of the outputs alone, which takes no graph of a gradient.
            Defaults to 2.

    Raises:
        UnsupportedNetwork: If second derivatives disagree with differences.
        NotReproducible: If the samples of a batch of the size that products take depend on each other (order 2).
    """
    if order == 2:
        bytes_per_sample(problem)  # before the check, which takes batches of as many samples as fit
        problem.cached("derivatives against differences", _require_true, problem, order)
        problem.cached("first derivatives against differences", bool)  # were part of it
    problem.cached("first derivatives against differences", _require_true, problem, order)


def _require_true(problem: Problem, order: Order) -> bool:
    size, takes_batch = _ONCE, False  # first derivatives have no products whose batches could be compared
    if order == 2:
        size, takes_batch = samples_in_use(problem), not _is_made_of_torch(problem)
        may_be_rewritten(problem)  # asked before casts are left out
    batch = next(iter(problem.batches(size)))
    is_precise = _is_precise(problem, batch)
    if takes_batch and is_precise and problem.narrowest_format is not None:
        require_separate_samples(problem, batch)
    if is_precise:
        with _without_casts(problem):
            told = takes_batch and _check(problem, batch, torch.float64, order, problem.narrowest_format is None)
            if not told or len(batch[1]) < problem.num_samples:  # also beyond the batch
                count = min(_SPREAD, max(_FEWER[0], size // _PARTS))
                _check_some(problem, batch, count, torch.float64, order)
    else:
        _check_narrowly(problem, batch, size, order, takes_batch)
    if isinstance(problem.loss, FunctionLoss):  # of which both derivatives are taken in any case
        _check_loss(problem, batch)
    return True


def _check_narrowly(problem: Problem, batch: Batch, size: int, order: Order, takes_batch: bool) -> None:
    """Differences in the problem's own format, which tell little where steps meet kinks; then in float64 on some
    samples, whose derivatives the whole batch must repeat."""
    narrow = problem.narrowest_format or problem.dtype
    count = min(_SPREAD_NARROWLY, size)
    is_single = problem.dtype == torch.float32 and not _is_made_of_torch(problem)
    repeats = True
    if takes_batch and is_single and narrow == torch.float32:
        told = _check_some(problem, batch, count, narrow, order, fewer=())
        # What kinks hide on a few samples they hide on all of them.
        told_in_double = not told and _check_in_double(problem, _num_in_double(size), order)
        repeats = not (told or told_in_double) or _repeats_derivatives(problem, batch, narrow)
        if told_in_double and repeats:
            return
    told = takes_batch and _check(problem, batch, narrow, order, is_whole=True)
    if not told and not repeats:
        raise _untrue("the outputs", "gradients")
    if not told or len(batch[1]) < problem.num_samples:  # also beyond the batch
        told = _check_some(problem, batch, count, narrow, order) or told
    if not told and is_single:
        _check_in_double(problem, _num_in_double(size), order)


def _num_in_double(size: int) -> int:
    return min(size, _SPREAD, max(_IN_DOUBLE, size // _PARTS))


def _repeats_derivatives(problem: Problem, batch: Batch, number_format: torch.dtype) -> bool:
    """Whether some samples have the same derivatives in a whole batch as among themselves, to what differences in this
    format could tell. Its outputs, which are computed for this, are also compared with those of parts of it."""
    rows = torch.linspace(0, len(batch[1]) - 1, min(_SPREAD_NARROWLY, len(batch[1]))).long().to(problem.device)
    few = take_rows(batch[0], rows), batch[1][rows], batch[2][rows]
    whole = _Line(problem, batch, (), 2, is_whole=True, rows=rows)
    if HIDDEN_NOTE in problem.notes:
        return True
    among, trust = _Line(problem, few, (), 2), _TRUST[number_format][0]
    pairs = (whole.gradient, among.gradient, trust.once), (whole.image, among.image, trust.twice)
    return all(_norm(one - other) <= allowed * _norm(other) for one, other, allowed in pairs)


class _NoCasts(TorchFunctionMode):
    """Operations that would round float64 tensors to a narrower format leave them in float64."""

    def __torch_function__(
        self, func: Operation, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(tensor.dtype == torch.float64 for tensor in tensors_among((args, kwargs))):
            name = getattr(func, "__name__", "")
            is_cast = name in ("float", "half", "bfloat16")
            is_cast = is_cast or (name in ("to", "type_as") and any(map(_is_narrow, (*args[1:], *kwargs.values()))))
            if is_cast:
                return args[0].clone()
            args = tuple(torch.float64 if _is_narrow_format(given) else given for given in args)
            kwargs = {key: torch.float64 if _is_narrow_format(given) else given for key, given in kwargs.items()}
        return func(*args, **kwargs)


def _is_narrow_format(given: Any) -> bool:
    return isinstance(given, torch.dtype) and given in NARROW


def _is_narrow(given: Any) -> bool:
    return _is_narrow_format(given.dtype if isinstance(given, Tensor) else given)


def _without_casts(problem: Problem) -> AbstractContextManager[Any]:
    return nullcontext() if problem.narrowest_format is None else _NoCasts()


def _is_precise(problem: Problem, batch: Batch) -> bool:
    """Whether differences in float64 can be had: the model computes in it, also where casts are left out."""
    if problem.dtype != torch.float64:
        return False
    if problem.narrowest_format is None:
        return True
    few = take_rows(batch[0], slice(2))
    try:
        with _NoCasts():
            return not computes_narrowly(lambda given: problem.forward(given, few), problem.named)
    except (HessmapError, RuntimeError, TypeError, ValueError) as error:  # an operation that needs the narrower format
        if is_out_of_memory(error):
            raise
        return False


def _is_made_of_torch(problem: Problem) -> bool:
    """Whether every module is torch's or ours, called as it was written: nobody else wrote a derivative or looks at the
    size of a batch."""
    if problem.user_forward is not None:
        return False
    for module in problem.model.modules():
        own = vars(module)
        kind = type(module).__module__
        hooks = [value for name, value in own.items() if name.endswith("_hooks") and value]
        given = [value for value in own.values() if callable(value) and not _is_torch(getattr(value, "__module__", ""))]
        if not (_is_torch(kind) or kind.startswith("hessmap.networks.")) or hooks or given or "forward" in own:
            return False
    return True


def _is_torch(name: str | None) -> bool:
    return name is not None and (name.startswith("torch.nn.") or name in ("torch", "torch._C._nn"))


def _check_some(
    problem: Problem,
    batch: Batch,
    count: int,
    number_format: torch.dtype,
    order: Order,
    fewer: tuple[int, ...] = _FEWER,
) -> bool:
    """Samples spread over the data, and fewer of them until differences tell something."""
    if problem.samples.is_held:
        batch = problem.subsample(count)
    for size in (count, *(size for size in fewer if size < count)):
        rows = torch.linspace(0, len(batch[1]) - 1, min(size, len(batch[1]))).long().to(problem.device)
        if _check(problem, (take_rows(batch[0], rows), batch[1][rows], batch[2][rows]), number_format, order):
            return True
    return False


def _check_in_double(problem: Problem, count: int, order: Order) -> bool:
    """A copy of a float32 problem in float64, on a few samples: with its steps, kinks are rarely met."""
    if _DOUBLE_BYTES * problem.num_parameters > problem.memory_budget or not has_float64(problem.device):
        return False
    batch = move_to(problem.subsample(count), problem.device, torch.float64)
    twin = problem.in_double_precision()
    twin.cached("operations may be rewritten", bool)
    if not _is_precise(twin, batch):
        return False
    with _without_casts(twin):
        return _check(twin, batch, torch.float64, order)


def _check(problem: Problem, batch: Batch, number_format: torch.dtype, order: Order, is_whole: bool = False) -> bool:
    """Refuse second derivatives that differences contradict, and note first ones; whether they told something.

    With ``is_whole`` the outputs of the batch, which are computed for this, are also compared with those of a part.
    """
    if HIDDEN_NOTE in problem.notes:  # then the second ones are not those of any function
        if is_whole:
            require_separate_samples(problem, batch)
        return True
    line = _Line(problem, batch, _TRUST[number_format], order, is_whole)
    is_true_once = line.is_true_once()
    if is_true_once is False:
        problem.add_note(HIDDEN_NOTE)
        return True
    if order == 1:
        return is_true_once is not None
    is_true_twice = line.is_true_twice()
    if is_true_twice is False:
        raise _untrue("the outputs", "gradients")
    return is_true_twice is not None


class _Line:
    """A random sum of outputs of some samples, along a random line of the parameters: the sum and its gradient, and
    what autograd finds for the derivatives of both along the line (of order 1: of the sum alone)."""

    def __init__(
        self,
        problem: Problem,
        batch: Batch,
        trusts: tuple[_Trust, ...],
        order: Order,
        is_whole: bool = False,
        rows: Tensor | None = None,
    ) -> None:
        """``rows`` are the samples whose outputs are summed; without ``trusts`` no differences are needed."""
        self.problem, self.batch, self.trusts, self.rows = problem, batch, trusts, rows
        self.fast = order == 2 and may_be_rewritten(problem)  # which takes second derivatives to find out
        self.direction = random_vector(problem.num_parameters, problem.dtype).to(problem.device)
        for name, row in _padding_rows(problem):  # torch takes them for constants
            problem.unflatten(self.direction)[name][row] = 0.0
        self.point_size = _size(problem.parameters)
        self._sums: dict[float, float] = {}
        self._ahead: Tensor | None = None
        graph = BatchGraph(problem, batch, vectorised=False, fast=self.fast)
        if is_whole:
            require_separate_samples(problem, batch, graph.outputs.detach())
        self.value_size = _norm(graph.outputs)
        if order == 1:
            self.gradient = self._gradient_of(graph, 0.0)
            return
        with torch.enable_grad():
            roots = graph.gradient(self._noted_sum(graph.outputs, 0.0))
        graph.forget_outputs()
        self.image = graph.flat_rows(graph.vjp(roots, graph.leaves, graph.split(self.direction[None])))[0]
        self.gradient = _joined(roots, graph)
        del roots, graph
        if trusts:  # of the first step, whose sum comes with the gradient
            self._ahead = self._gradient_at(self._first_place)

    def is_true_once(self) -> bool | None:
        """Asked more sharply than the second derivative, so that what is hidden from both is not laid on it."""
        trust, found = self.trusts[0], torch.tensor(_dot(self.gradient, self.direction), dtype=torch.float64)
        return _judged(found, _norm(self.gradient), self._sum_at, self.value_size, self.point_size, trust, trust.once)

    def is_true_twice(self) -> bool | None:
        sizes = _norm(self.image), self._gradient_at, _norm(self.gradient), self.point_size
        for trust in self.trusts:
            found = _judged(self.image, *sizes, trust, trust.twice)
            if found is not None:
                return found
        return None

    def _sum_at(self, place: float) -> Tensor:
        if place not in self._sums:
            problem, offset = self.problem, self.problem.unflatten(place * self.direction)
            with torch.no_grad():
                moved = {name: value + offset[name] for name, value in problem.named.items()}
                self._noted_sum(problem.forward(moved, self.batch[0], fast=self.fast), place)
        return torch.tensor(self._sums[place], dtype=torch.float64)

    @property
    def _first_place(self) -> float:
        return self.trusts[0].step * self.point_size

    def _gradient_at(self, place: float) -> Tensor:
        if place == 0.0:
            return self.gradient
        if place == self._first_place and self._ahead is not None:
            return self._ahead
        moved = BatchGraph(self.problem, self.batch, vectorised=False, fast=self.fast, offset=place * self.direction)
        return self._gradient_of(moved, place)

    def _gradient_of(self, graph: BatchGraph, place: float) -> Tensor:
        with torch.enable_grad():
            total = self._noted_sum(graph.outputs, place)
        graph.forget_outputs()
        if not total.requires_grad:
            return torch.zeros_like(self.direction)
        with full_precision(total.device):
            return _joined(torch.autograd.grad(total, graph.leaves, allow_unused=True), graph)

    def _noted_sum(self, outputs: Tensor, place: float) -> Tensor:
        total = self._sum(outputs)
        self._sums[place] = float(total.detach())
        return total

    def _sum(self, outputs: Tensor) -> Tensor:
        """Of all outputs of a small model, of some of every sample of a large vocabulary."""
        outputs = outputs if self.rows is None else outputs[self.rows]
        count, width = outputs.shape
        most = max(1, _MOST_OUTPUTS // count)
        if width > most:
            generator = torch.Generator().manual_seed(count)
            outputs = outputs.gather(1, torch.randint(width, (count, most), generator=generator).to(outputs.device))
        return (outputs.reshape(-1) * random_vector(outputs.numel(), outputs.dtype).to(outputs.device)).sum()


def _padding_rows(problem: Problem) -> Iterator[tuple[str, int]]:
    for path, module in problem.model.named_modules():
        name = f"{path}.weight" if path else "weight"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and name in problem.named:
            yield from () if module.padding_idx is None else [(name, module.padding_idx)]


def _joined(parts: Sequence[Tensor | None], graph: BatchGraph) -> Tensor:
    """Derivatives in the leaves as one vector."""
    full = [
        torch.zeros_like(leaf) if part is None else part.detach()
        for part, leaf in zip(parts, graph.leaves, strict=True)
    ]
    return torch.cat([part.reshape(-1) for part in full])


def _check_loss(problem: Problem, batch: Batch) -> None:
    """The Hessian of a user's loss in the outputs is the derivative of its gradient; a note where this hides a part."""
    inputs, targets, _ = batch
    with torch.no_grad():
        outputs = problem.forward(problem.named, inputs).detach()
    direction = random_vector(outputs.numel(), outputs.dtype).to(outputs.device).reshape(outputs.shape)

    def at(place: float) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs there, the value of the loss and its gradient."""
        point = (outputs + place * direction).requires_grad_()
        with torch.enable_grad():
            total = problem.loss.value(point, targets).sum()
        if not total.requires_grad:
            return point, to_host(total), torch.zeros_like(point)
        gradient = torch.autograd.grad(total, point, create_graph=True, materialize_grads=True)[0]
        return point, to_host(total.detach()), gradient

    point, total, gradient = at(0.0)
    image = torch.zeros_like(gradient)
    if gradient.requires_grad:
        image = torch.autograd.grad(gradient, point, direction, materialize_grads=True)[0]
    point_size, trust = _size(outputs), _TRUST[problem.dtype][0]
    along = torch.tensor(_dot(gradient, direction), dtype=torch.float64)
    first = _norm(gradient), lambda place: at(place)[1], float(total.abs()), point_size
    if _judged(along, *first, trust, trust.once) is False:
        problem.add_note(HIDDEN_LOSS_NOTE)
    second = _norm(image), lambda place: at(place)[2].detach(), _norm(gradient), point_size
    if _judged(image, *second, trust, trust.twice) is False:
        raise _untrue("the loss", "its gradient")


def is_contradicted(
    found: float,
    scale: float,
    value: Callable[[float], float],
    value_size: float,
    point_size: float,
    dtype: torch.dtype,
) -> bool:
    """Whether ``found`` is not the derivative of a value at 0, as far as differences tell.

    ``scale`` is the size of the derivative in any direction; rounding is relative to the sizes of value and point.

    >>> is_contradicted(3.0, 1.0, lambda place: (1 + place) ** 3, 1.0, 1.0, torch.float64)
    False
    >>> is_contradicted(2.0, 1.0, lambda place: (1 + place) ** 3, 1.0, 1.0, torch.float64)
    True
    >>> is_contradicted(0.0, 1.0, abs, 1.0, 1.0, torch.float64)    # at a kink nothing is told
    False
    """
    trust = _TRUST[dtype][0]

    def number(place: float) -> Tensor:
        return torch.tensor(value(place), dtype=torch.float64)

    given = torch.tensor(found, dtype=torch.float64)
    return _judged(given, scale, number, value_size, point_size, trust, trust.twice) is False


def _judged(
    found: Tensor,
    scale: float,
    value: Callable[[float], Tensor],
    value_size: float,
    point_size: float,
    trust: _Trust,
    allowed: float,
) -> bool | None:
    """Whether ``found`` is the derivative of a number or a vector at 0; None where differences do not tell."""
    step = trust.step * point_size
    least = trust.resolved * value_size / point_size
    middle, spread = value(0.0), 0.0
    ahead = (value(step) - middle) / step
    if _norm(ahead - found) <= allowed * max(scale, _norm(ahead), least):  # the other side need not be computed
        return True
    del ahead
    central = (value(step) - value(-step)) / (2 * step)
    error, size = _norm(central - found), _norm(central)
    if not error > allowed * max(scale, size, least):
        return True
    for place in (step, trust.nearer * step, -trust.nearer * step):
        difference = (value(place) - middle) / place
        # From their middle: at a kink, autograd's derivative lies between those of the two sides.
        spread, size = max(spread, 2 * _norm(difference - central)), max(size, _norm(difference))
        # Not relative to the derivative: far from a stiff point they are all small beside it.
        if not spread <= min(error, trust.believed * max(least, size)):
            return None
    return False


def _untrue(whose: str, what: str) -> UnsupportedNetwork:
    got = f"torch's differ from differences of {what}"
    remedy = f"Look for a custom backward that detaches its inputs; {_OFFER}"
    return UnsupportedNetwork(sentence(f"second derivatives must be those of {whose}", got, remedy))


def _size(point: Tensor) -> float:
    return _norm(point) / max(1, point.numel()) ** 0.5 or 1.0


def _dot(one: Tensor, other: Tensor) -> float:
    """Parts that stay in the cache: a product as long as all parameters is slower to allocate than to compute."""
    parts = zip(*(torch.split(vector.detach().flatten(), _CACHED) for vector in (one, other)), strict=True)
    return sum(float((some * others).sum(dtype=widest_dtype(some.device))) for some, others in parts)


_CACHED = 2**16  # entries
_NORMS = (torch.float64, torch.float32)
_LEAST_NORM = 1e-15  # whose square is far above the least float32


def _norm(values: Tensor) -> float:
    """In the values' own format, which for float32 takes a twentieth of the time, unless their squares may vanish or
    overflow in it."""
    given = values.detach()
    found = float(torch.linalg.vector_norm(given)) if given.dtype in _NORMS else 0.0
    if _LEAST_NORM < found < 1 / _LEAST_NORM:
        return found
    return float(torch.linalg.vector_norm(given, dtype=widest_dtype(given.device)))
