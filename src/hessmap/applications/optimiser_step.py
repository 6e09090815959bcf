"""The next step of an optimiser, its preconditioner P, and the curvature above which that step is unstable.

The step is taken by a private copy of the optimiser: nothing of the user's is written to. The parameters of the copy
are clones in the problem's dtype, on its device; its state is copied and converted.

Every optimiser here moves a parameter w by ``-lr P^-1 m`` with a momentum m of the gradients. With P frozen, on a
quadratic loss with Hessian H, the iteration is linear and the quantity that decides about its stability is the largest
eigenvalue of P^-1 H, the preconditioned sharpness. Let M^-1 be the factor by which the newest gradient moves w (see the
table). Eliminating the momentum gives, for every optimiser of the table but Nesterov's, a recurrence of second order

    M (C w_k - w_{k+1}) = B M (C w_{k-1} - w_k) + (H + W) w_k

with diagonal B (momentum), C = 1 - lr * decoupled weight decay, and W the coupled weight decay. For an eigenvector v of
the corresponding quadratic eigenvalue problem, z solves a scalar quadratic equation with real coefficients and the
product of roots v* B M C v / v* M v < 1: complex z are inside the unit circle, so that stability is lost at z = -1 (or,
where H + W is not positive, at z = 1). There

    (H + W) v = M (1 + B) (1 + C) v,

hence the step is stable exactly if the largest eigenvalue of S^-1/2 (H + W) S^-1/2 is below 1, S = M (1 + B) (1 + C).
S is reported as threshold times preconditioner: the threshold is that of the first parameter group, without weight
decay, and the ratios of the other groups and the factor 1 - lr * decay / 2 are part of P.

    SGD                         M = 1 / lr                      2 / lr
    with momentum, dampening d  M = 1 / ((1 - d) lr)            (2 + 2 momentum) / ((1 - d) lr)
    Nesterov                                                    (2 + 2 momentum) / ((1 + 2 momentum) lr)
    RMSprop                     M = P / lr                      (2 + 2 momentum) / lr
    Adagrad, Adafactor          M = P / lr                      2 / lr
    Adam, AdamW, Adamax         M = P / ((1 - beta1) lr)        (2 + 2 beta1) / ((1 - beta1) lr): 38 / lr at 0.9

For Nesterov's momentum the newest gradient enters twice, w <- w - lr (g + momentum b) with b <- momentum b + g. Trace
and determinant of the iteration along an eigenvector with eigenvalue h are 1 + momentum - lr (1 + momentum) h and
momentum (1 - lr h); Jury's conditions give the threshold above.

References: Cohen et al. 2021, "Gradient descent on neural networks typically occurs at the edge of stability",
appendix B; Cohen et al. 2022, "Adaptive gradient methods at the edge of stability".
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn, optim

from hessmap.errors import InvalidInput, require, sentence
from hessmap.linalg import Layout, LinearOperator, SymmetricOperator, preserved_random_state
from hessmap.problem import Problem
from hessmap.records import Provenance

InverseRoot = Callable[[Tensor], Tensor]  # x -> P^-1/2 x of one parameter, in its shape
Preconditioner = Callable[[optim.Optimizer], Mapping[Tensor, Tensor | InverseRoot]]


_SETTLED = 10  # steps before which a preconditioner of averages changes by much at every step
GradientChoice = Literal["problem", "stored"]
_SHOWN = 3
_KERNEL_OPTIONS = ("foreach", "fused", "capturable", "differentiable")  # of torch: other code for the same step


class GroupRule(NamedTuple):
    """The linear iteration of one parameter group: ``gain`` is its stability threshold times the learning rate (None
    where none is derived), ``formula`` that threshold in words."""

    rate: float
    gain: float | None
    formula: str | None
    coupled_decay: float = 0.0
    decoupled_decay: float = 0.0
    is_maximised: bool = False
    has_nesterov: bool = False


def _number(value: Any) -> float:
    return float(value)


def _sgd(group: dict[str, Any]) -> GroupRule:
    momentum, dampening = _number(group["momentum"]), _number(group["dampening"])
    rate, decay, maximised = _number(group["lr"]), _number(group["weight_decay"]), bool(group["maximize"])
    if momentum == 0:
        return GroupRule(rate, 2.0, "2 / lr", decay, 0.0, maximised)
    if group["nesterov"]:
        gain = (2 + 2 * momentum) / (1 + 2 * momentum)
        return GroupRule(rate, gain, "(2 + 2 momentum) / ((1 + 2 momentum) lr)", decay, 0.0, maximised, True)
    if dampening >= 1:  # no gradient after the first enters the momentum
        return GroupRule(rate, None, None, decay, 0.0, maximised)
    formula = "(2 + 2 momentum) / ((1 - dampening) lr)" if dampening else "(2 + 2 momentum) / lr"
    return GroupRule(rate, (2 + 2 * momentum) / (1 - dampening), formula, decay, 0.0, maximised)


def _adam(group: dict[str, Any]) -> GroupRule:
    beta, decay = _number(group["betas"][0]), _number(group["weight_decay"])
    is_decoupled = bool(group.get("decoupled_weight_decay", False))
    coupled, decoupled = (0.0, decay) if is_decoupled else (decay, 0.0)
    formula = "(2 + 2 beta1) / ((1 - beta1) lr)"
    rate, maximised = _number(group["lr"]), bool(group["maximize"])
    return GroupRule(rate, (2 + 2 * beta) / (1 - beta), formula, coupled, decoupled, maximised)


def _rmsprop(group: dict[str, Any]) -> GroupRule:
    momentum = _number(group["momentum"])
    formula = "(2 + 2 momentum) / lr" if momentum else "2 / lr"
    decay, maximised = _number(group["weight_decay"]), bool(group["maximize"])
    return GroupRule(_number(group["lr"]), 2 + 2 * momentum, formula, decay, 0.0, maximised)


def _adagrad(group: dict[str, Any]) -> GroupRule:
    decay, maximised = _number(group["weight_decay"]), bool(group["maximize"])
    return GroupRule(_number(group["lr"]), 2.0, "2 / lr", decay, 0.0, maximised)


def _adafactor(group: dict[str, Any]) -> GroupRule:
    decay, maximised = _number(group["weight_decay"]), bool(group["maximize"])
    return GroupRule(_number(group["lr"]), 2.0, "2 / lr", 0.0, decay, maximised)


def _unknown(group: dict[str, Any]) -> GroupRule:
    return GroupRule(_number(group.get("lr", 0.0)), None, None, is_maximised=bool(group.get("maximize", False)))


class Moved(NamedTuple):
    """One parameter of an optimiser that has taken its step: its group and state after it, its gradient, its value
    before it."""

    group: dict[str, Any]
    state: dict[str, Any]
    gradient: Tensor
    before: Tensor


def _ones(moved: Moved) -> Tensor:
    return torch.ones_like(moved.before)


def _adam_diagonal(moved: Moved) -> Tensor:
    """(1 - beta1^t) (sqrt(v / (1 - beta2^t)) + eps), where v is the largest so far with amsgrad."""
    (first, second), step = map(_number, moved.group["betas"]), _number(moved.state["step"])
    squares: Tensor = moved.state["max_exp_avg_sq" if moved.group["amsgrad"] else "exp_avg_sq"]
    root: Tensor = (squares / (1 - second**step)).sqrt() + _number(moved.group["eps"])
    return root.mul(1 - first**step)


def _adamax_diagonal(moved: Moved) -> Tensor:
    largest: Tensor = moved.state["exp_inf"]
    return largest.mul(1 - _number(moved.group["betas"][0]) ** _number(moved.state["step"]))


def _rmsprop_diagonal(moved: Moved) -> Tensor:
    squares: Tensor = moved.state["square_avg"]
    if moved.group["centered"]:
        squares = squares - moved.state["grad_avg"].square()
    root: Tensor = squares.clamp(min=0).sqrt() + moved.group["eps"]
    return root


def _adagrad_diagonal(moved: Moved) -> Tensor:
    decayed = 1 + (_number(moved.state["step"]) - 1) * _number(moved.group["lr_decay"])
    root: Tensor = moved.state["sum"].sqrt() + moved.group["eps"]
    return root * decayed


def _adafactor_diagonal(moved: Moved) -> Tensor:
    """sqrt(v) times the clipping of the update, over the relative step size, all three as they were in this step."""
    group, state, before = moved.group, moved.state, moved.before
    rate, step = _number(group["lr"]), _number(state["step"])
    small, relative = group["eps"]
    small = torch.finfo(before.dtype).eps if small is None else small
    if before.ndim > 1:
        rows, columns = state["row_var"], state["col_var"]
        squares = (rows @ columns) / rows.mean(dim=-2, keepdim=True).clamp(min=small)
    else:
        squares = state["variance"]
    root = squares.clamp(min=small * small).sqrt()
    update = moved.gradient / root
    clipped = max(1.0, float(update.norm()) / (update.numel() ** 0.5 * group["d"]))
    size = max(relative, float(before.norm()) / before.numel() ** 0.5) * min(rate, step**-0.5)
    found: Tensor = root * (clipped * rate / size)
    return found


class OptimiserRule(NamedTuple):
    """The iteration of a group, and the diagonal of P for a parameter (None: not known)."""

    of_group: Callable[[dict[str, Any]], GroupRule]
    diagonal: Callable[[Moved], Tensor] | None


_UNKNOWN = OptimiserRule(_unknown, None)
RULES: dict[type, OptimiserRule] = {
    optim.SGD: OptimiserRule(_sgd, _ones),
    optim.Adam: OptimiserRule(_adam, _adam_diagonal),
    optim.AdamW: OptimiserRule(_adam, _adam_diagonal),
    optim.Adamax: OptimiserRule(_adam, _adamax_diagonal),
    optim.RMSprop: OptimiserRule(_rmsprop, _rmsprop_diagonal),
    optim.Adagrad: OptimiserRule(_adagrad, _adagrad_diagonal),
    optim.Adafactor: OptimiserRule(_adafactor, _adafactor_diagonal),
}


def rule_of(optimizer: optim.Optimizer) -> OptimiserRule:
    """The rule of exactly this class: a subclass may step in another way."""
    return RULES.get(type(optimizer), _UNKNOWN)


class StepPreconditioner(NamedTuple):
    """P^-1/2 of a step as a vector or a function of columns, W, and the threshold; what is undefined is None.

    ``inverse_root`` is zero at parameters that the optimiser does not move.
    """

    inverse_root: Tensor | InverseRoot | None
    decay: Tensor | None
    sign: float
    threshold: float | None
    formula: str | None
    rate: float | None
    notes: tuple[str, ...]

    @property
    def is_identity(self) -> bool:
        """Whether P = 1 and nothing is added to the Hessian."""
        root = self.inverse_root
        return isinstance(root, Tensor) and self.decay is None and self.sign == 1 and bool((root == 1).all())


def step_preconditioner(
    optimizer: optim.Optimizer,
    moved: Mapping[str, tuple[Tensor, Moved]],
    layout: Layout,
    like: Tensor,
    hook: Preconditioner | None = None,
    given_threshold: float | None = None,
) -> StepPreconditioner:
    """P and the threshold of an optimiser that has just taken the step.

    Args:
        optimizer: The optimiser after the step.
        moved: By name, each parameter of the problem that it moves, and how.
        layout: Of the problem.
        like: A vector of the dtype and device of the result.
        hook: Returns P for each parameter in place of the rule.
        given_threshold: Threshold to use where none is derived.

    Returns:
        StepPreconditioner: with notes on what is folded into P.
    """
    rule, notes = rule_of(optimizer), []
    rules = {name: rule.of_group(each.group) for name, (_, each) in moved.items()}
    active = {name: each for name, each in rules.items() if each.rate > 0}
    signs = {each.is_maximised for each in active.values()}
    if not active or len(signs) > 1:
        reason = "some groups are maximised and some minimised" if active else "no parameter has a positive lr"
        return StepPreconditioner(None, None, 1.0, None, None, None, (f"preconditioner undefined: {reason}",))
    first = next(iter(active.values()))
    gains = {each.gain for each in active.values()}
    is_derived = None not in gains and not (len(gains) > 1 and any(each.has_nesterov for each in active.values()))
    threshold = first.gain / first.rate if is_derived and first.gain is not None else given_threshold
    formula = first.formula if is_derived else None if threshold is None else "given"
    factors = {name: _relative_factor(each, first, is_derived) for name, each in active.items()}
    notes += _folded_notes(active, is_derived)
    decay = _spread({name: each.coupled_decay for name, each in active.items()}, layout, like)
    sign = -1.0 if signs == {True} else 1.0
    if hook is not None:
        root, note = _hooked_root(hook(optimizer), moved, factors, layout, like)
    elif rule.diagonal is None:
        name = type(optimizer).__name__
        root, note = None, f"no preconditioner is known for {name}: pass preconditioner="
    else:
        diagonals = {name: rule.diagonal(moved[name][1]) for name in active}
        root, note = _diagonal_root(diagonals, factors, layout, like)
        steps = min(_number(moved[name][1].state.get("step", _SETTLED)) for name in active)
        if steps < _SETTLED:
            notes.append(f"step {steps:g} of the optimiser: P, taken as frozen, still changes quickly")
    notes += [note] if note else []
    return StepPreconditioner(root, decay, sign, threshold, formula, first.rate, tuple(notes))


def _relative_factor(rule: GroupRule, first: GroupRule, is_derived: bool) -> float:
    """What P is multiplied by, so that one threshold is that of all groups."""
    gain = rule.gain / first.gain if is_derived and rule.gain is not None and first.gain is not None else 1.0
    return gain * (first.rate / rule.rate) * (1 - rule.rate * rule.decoupled_decay / 2)


def _folded_notes(active: Mapping[str, GroupRule], is_derived: bool) -> list[str]:
    rules = list(active.values())
    found = []
    if len({rule.rate for rule in rules}) > 1:
        found.append("learning rates of the parameter groups differ: their ratios to the first are part of P")
    if is_derived and len({rule.gain for rule in rules}) > 1:
        found.append("momenta of the parameter groups differ: the ratios of their thresholds are part of P")
    if any(rule.decoupled_decay for rule in rules):
        found.append("decoupled weight decay: the factor 1 - lr * weight_decay / 2 is part of P")
    if any(rule.coupled_decay for rule in rules):
        found.append("coupled weight decay is added to the Hessian of the preconditioned sharpness")
    return found


def _spread(values: Mapping[str, float], layout: Layout, like: Tensor) -> Tensor | None:
    """One number a parameter as a column; None where all are zero."""
    if not any(values.values()):
        return None
    found = like.new_zeros(layout.size, 1)
    for name, place in layout:
        found[place] = values.get(name, 0.0)
    return found


def _diagonal_root(
    diagonals: Mapping[str, Tensor], factors: Mapping[str, float], layout: Layout, like: Tensor
) -> tuple[Tensor | None, str | None]:
    found = like.new_zeros(layout.size)
    for name, place in layout:
        if name in diagonals:
            values = diagonals[name].to(like).reshape(-1) * factors[name]
            if not bool((values > 0).all()) or not bool(torch.isfinite(values).all()):
                return None, f"preconditioner undefined: P has entries that are not positive and finite in '{name}'"
            found[place] = values.rsqrt()
    return found, None


def _hooked_root(
    given: Mapping[Tensor, Tensor | InverseRoot],
    moved: Mapping[str, tuple[Tensor, Moved]],
    factors: Mapping[str, float],
    layout: Layout,
    like: Tensor,
) -> tuple[Tensor | InverseRoot | None, str | None]:
    must = "preconditioner(optimizer) must return a dictionary from parameters to diagonals or functions"
    require(isinstance(given, Mapping), must, f"got a {type(given).__name__}")
    missing = [name for name in factors if moved[name][0] not in given]
    require(
        not missing,
        must,
        f"nothing for {', '.join(missing[:3])}",
        "Return one entry for each parameter that has a step",
    )
    parts = {name: given[moved[name][0]] for name in factors}
    if all(isinstance(part, Tensor) for part in parts.values()):
        diagonals = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
        for name, part in diagonals.items():
            shape = layout.shape(name)
            require(
                tuple(part.shape) == shape, f"the diagonal of '{name}' must have shape {shape}", f"got {part.shape}"
            )
        return _diagonal_root(diagonals, factors, layout, like)

    def root(columns: Tensor) -> Tensor:
        found = torch.zeros_like(columns)
        for name, place in layout:
            if name not in parts:
                continue
            part, scale, shape = parts[name], factors[name] ** -0.5, layout.shape(name)
            for column in range(columns.shape[1]):
                vector = columns[place, column].reshape(shape)
                image = vector * part.to(vector).rsqrt() if isinstance(part, Tensor) else part(vector)
                got = f"got {tuple(image.shape)}" if isinstance(image, Tensor) else f"got a {type(image).__name__}"
                is_like = isinstance(image, Tensor) and image.shape == vector.shape
                require(is_like, f"P^-1/2 of '{name}' must return a tensor of shape {shape}", got)
                found[place, column] = scale * image.reshape(-1).to(columns)
        return found

    return root, None


class PreconditionedHessian(SymmetricOperator):
    """P^-1/2 (H + W) P^-1/2: two products with a vector beside that with H, and one more with weight decay.

    Args:
        hessian: The symmetric operator H.
        inverse_root: P^-1/2 as a vector, or as a function of columns.
        decay: W as a column. Defaults to none.

    Example:
        >>> import hessmap as hm
        >>> H = hm.linalg.DenseOperator(torch.diag(torch.tensor([4.0, 9.0], dtype=torch.float64)))
        >>> PreconditionedHessian(H, torch.tensor([0.5, 1 / 3], dtype=torch.float64)).to_dense().diagonal()
        tensor([1., 1.], dtype=torch.float64)
    """

    makes_new_images = True

    def __init__(
        self, hessian: SymmetricOperator, inverse_root: Tensor | InverseRoot, decay: Tensor | None = None
    ) -> None:
        must = "the inverse root of a preconditioner must be a vector of the operator's size, or a function"
        is_vector = isinstance(inverse_root, Tensor) and inverse_root.shape == (hessian.size,)
        if not is_vector and (isinstance(inverse_root, Tensor) or not callable(inverse_root)):
            shape = getattr(inverse_root, "shape", type(inverse_root).__name__)
            raise InvalidInput(sentence(must, f"got {shape} for size {hessian.size}"))
        self.hessian = hessian
        self.layout = hessian.layout
        self.dtype, self.device = hessian.dtype, hessian.device
        self.inverse_root = inverse_root
        self.decay = decay
        column = inverse_root[:, None] if isinstance(inverse_root, Tensor) else None
        self._column = None if column is None else column.to(hessian.device, hessian.dtype)

    @property
    def size(self) -> int:
        return self.hessian.size

    @property
    def block_size(self) -> int:
        return self.hessian.block_size

    @property
    def provenance(self) -> Provenance | None:
        return self.hessian.provenance

    def matmat(self, vectors: Tensor) -> Tensor:
        scaled = self._scaled(vectors)
        images = self.hessian.matmat(scaled)
        if self.decay is not None:
            images = torch.addcmul(images, self.decay.to(images), scaled.to(images))
        return self._scaled(images)

    def _scaled(self, vectors: Tensor) -> Tensor:
        if self._column is not None:
            return vectors * self._column
        assert not isinstance(self.inverse_root, Tensor)
        return self.inverse_root(vectors)

    def in_single_precision(self) -> LinearOperator | None:
        narrow = self.hessian.in_single_precision()
        if not isinstance(narrow, SymmetricOperator):
            return None
        return PreconditionedHessian(narrow, self.inverse_root, self.decay)


class OptimiserStep(NamedTuple):
    """The change of the problem's parameters, flat; the copy of the optimiser after it; how each parameter moved."""

    change: Tensor
    optimizer: optim.Optimizer
    moved: dict[str, tuple[Tensor, Moved]]
    notes: tuple[str, ...]


def inner_optimizer(optimizer: Any) -> optim.Optimizer:
    """The optimiser of torch, also inside of a wrapper (accelerate) that keeps it as ``optimizer``."""
    found = optimizer
    while isinstance(getattr(found, "optimizer", None), optim.Optimizer):
        found = found.optimizer
    must, got = "optimizer must be a torch.optim.Optimizer", f"got a {type(optimizer).__name__}"
    require(isinstance(found, optim.Optimizer), must, got, "Pass the optimiser of your training loop")
    assert isinstance(found, optim.Optimizer)
    return found


def named_parameters(problem: Problem, optimizer: optim.Optimizer, model: nn.Module | None) -> dict[str, Tensor]:
    """The parameters of the problem that the optimiser moves, by the problem's names; their values must agree.

    Args:
        problem: The problem.
        optimizer: The optimiser.
        model: The model whose parameters the optimiser has. Defaults to the one that the problem was built from.

    Returns:
        The optimiser's own tensors by name, in the problem's order.

    Raises:
        InvalidInput: If no parameter is found, or values have changed since the problem was built.
    """
    original = problem.original_model if model is None else model
    must = "the optimiser must train the model of the problem"
    remedy = "Build the problem from the model that the optimiser trains, or pass model="
    require(original is not None, must, "the model that the problem was built from no longer exists", remedy)
    require(isinstance(original, nn.Module), "model must be a torch.nn.Module", f"got a {type(original).__name__}")
    assert original is not None
    names = {id(value): name.replace("_orig_mod.", "") for name, value in original.named_parameters()}
    given = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    found = {names[id(each)]: each for each in given if id(each) in names}
    found = {name: found[name] for name in problem.layout.names if name in found}
    got = f"none of its {len(given)} parameters is one of the {len(names)} of {type(original).__name__}"
    require(bool(found), must, got, remedy)
    changed = [name for name, value in found.items() if not _is_same(value, problem.named[name])]
    must = "the optimiser's parameters must have the values that the problem was built with"
    got = f"{len(changed)} of {len(found)} have changed ({', '.join(changed[:_SHOWN])})"
    require(not changed, must, got, "Build the problem again at the current weights")
    return found


def _is_same(value: Tensor, known: Tensor) -> bool:
    return value.shape == known.shape and torch.equal(value.detach().to(known), known)


def optimiser_step(
    problem: Problem,
    optimizer: optim.Optimizer,
    gradient: Tensor,
    *,
    model: nn.Module | None = None,
    choice: GradientChoice = "problem",
) -> OptimiserStep:
    """Take the optimiser's next step with a private copy.

    Args:
        problem: The problem at the present weights.
        optimizer: The optimiser, which is only read.
        gradient: Flat gradient of the problem's risk.
        model: As for ``named_parameters``.
        choice: Step with ``gradient`` ("problem", the default), or with what the parameters have as ``.grad``
            ("stored").

    Returns:
        OptimiserStep: The change of the parameters and the copy.

    Raises:
        InvalidInput: If optimiser and problem do not fit each other, or gradients are missing.
    """
    named = named_parameters(problem, optimizer, model)
    names = {id(value): name for name, value in named.items()}
    clones = {
        id(each): each.detach().to(problem.device, problem.dtype, copy=True).requires_grad_()
        for group in optimizer.param_groups
        for each in group["params"]
    }
    made = _copied_optimizer(optimizer, clones, problem)
    slopes = problem.unflatten(gradient)
    for key, clone in clones.items():
        name = names.get(key)
        if choice == "problem":
            clone.grad = None if name is None else slopes[name].detach().clone().to(clone)
    if choice == "stored":
        _copy_stored_gradients(optimizer, clones, problem)
    gradients = {key: clone.grad for key, clone in clones.items()}
    before = {key: clone.detach().clone() for key, clone in clones.items()}
    with preserved_random_state(), torch.enable_grad():
        _take_step(made, _closure(problem, clones, names) if choice == "problem" else None)
    change, moved = torch.zeros_like(problem.parameters), {}
    groups = {id(each): group for group in made.param_groups for each in group["params"]}
    for name, place in problem.layout:
        if name not in named or gradients[id(named[name])] is None:
            continue
        key = id(named[name])
        clone, slope = clones[key], gradients[key]
        assert slope is not None
        change[place] = (clone.detach() - before[key]).reshape(-1)
        moved[name] = clone, Moved(groups[id(clone)], made.state[clone], slope, before[key])
    must, got = "the step must be finite", "the optimiser's step has NaN or inf"
    require(bool(torch.isfinite(change).all()), must, got, "Check the gradients and the state of the optimiser")
    return OptimiserStep(change, made, moved, tuple(_coverage_notes(problem, moved, len(clones))))


def _coverage_notes(problem: Problem, moved: dict[str, Any], num_given: int) -> Iterator[str]:
    left = len(problem.layout.names) - len(moved)
    if left:
        yield f"{left} of the problem's {len(problem.layout.names)} parameter tensors are not moved by this step"
    if num_given > len(moved):
        others = num_given - len(moved)
        yield f"{others} parameter tensors of the optimiser are not part of the problem, or have no gradient"


def _copied_optimizer(optimizer: optim.Optimizer, clones: dict[int, Tensor], problem: Problem) -> optim.Optimizer:
    """The same optimiser with the clones for its parameters, without hooks and without a scheduler's wrapper."""
    kind = type(optimizer)
    kept = {
        name: value
        for name, value in vars(optimizer).items()
        if not name.endswith("_hooks") and not (callable(value) and hasattr(kind, name))
    }
    try:
        copied = copy.deepcopy(kept, dict(clones))
    except Exception as error:
        error.add_note("raised while the optimiser was copied")
        raise
    made = object.__new__(kind)
    made.__dict__.update(copied)
    made.__dict__.update({name: OrderedDict() for name in vars(optimizer) if name.endswith("_hooks")})
    for group in made.param_groups:
        group.update({name: False for name in _KERNEL_OPTIONS if group.get(name) is not None})
    for state in made.state.values():
        if isinstance(state, dict):
            state.update(_converted(state, problem))
    return made


def _converted(value: Any, problem: Problem) -> Any:
    """The same structure with its real tensors in the problem's dtype; counters of a single number stay."""
    if isinstance(value, Tensor):
        return value.to(problem.device, problem.dtype) if value.ndim and value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _converted(item, problem) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_converted(item, problem) for item in value)
    return value


def _copy_stored_gradients(optimizer: optim.Optimizer, clones: dict[int, Tensor], problem: Problem) -> None:
    found = False
    for group in optimizer.param_groups:
        for each in group["params"]:
            clone = clones[id(each)]
            clone.grad = None if each.grad is None else each.grad.detach().to(clone, copy=True)
            found = found or each.grad is not None
    must, remedy = "gradient='stored' needs the gradients of a backward pass", "Call loss.backward() first"
    require(found, must, "every parameter has grad None", remedy)


def _closure(problem: Problem, clones: dict[int, Tensor], names: dict[int, str]) -> Callable[[], Tensor]:
    """The loss as a function of the copy's parameters, for optimisers that evaluate it themselves (LBFGS)."""

    def evaluate() -> Tensor:
        named = dict(problem.named)
        for key, name in names.items():
            named[name] = clones[key].detach()
        moved = problem.at(torch.cat([named[name].reshape(-1) for name in problem.layout.names]))
        slopes = problem.unflatten(moved.gradient())
        for key, name in names.items():
            clones[key].grad = slopes[name].clone()
        return torch.as_tensor(moved.risk(), dtype=problem.dtype, device=problem.device)

    return evaluate


def _take_step(optimizer: optim.Optimizer, closure: Callable[[], Tensor] | None) -> None:
    """Step without the hooks of all optimisers of the process; what torch or the optimiser raises is noted."""
    step: Any = type(optimizer).step
    step = step.__wrapped__ if getattr(step, "hooked", False) else step
    parameters = inspect.signature(step).parameters
    needs_closure = "closure" in parameters and parameters["closure"].default is inspect.Parameter.empty
    if needs_closure and closure is None:
        must = f"a step of {type(optimizer).__name__} evaluates the loss itself"
        raise InvalidInput(sentence(must, "gradient='stored' was given", "Use gradient='problem'"))
    try:
        step(optimizer, closure) if needs_closure else step(optimizer)
    except Exception as error:
        error.add_note("raised in step() of a private copy of the optimiser")
        raise
