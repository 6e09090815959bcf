"""The step that an optimiser would take, taken by a private copy of it: nothing of the user's is written to.

The parameters of the copy are clones in the problem's dtype, on its device; its state is copied and converted.
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn, optim

from hessmap.applications.preconditioners import Moved
from hessmap.errors import InvalidInput, require, sentence
from hessmap.problem import Problem, preserved_random_state

GradientChoice = Literal["problem", "stored"]
_SHOWN = 3
_KERNEL_OPTIONS = ("foreach", "fused", "capturable", "differentiable")  # of torch: other code for the same step


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
    require(not changed, must, got, "Build the problem again at the present weights")
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
        moved = problem_at(problem, torch.cat([named[name].reshape(-1) for name in problem.layout.names]))
        slopes = problem.unflatten(moved.gradient())
        for key, name in names.items():
            clones[key].grad = slopes[name].clone()
        return torch.as_tensor(moved.risk(), dtype=problem.dtype, device=problem.device)

    return evaluate


def problem_at(problem: Problem, point: Tensor) -> Problem:
    """The same problem at other parameters (flat): for its risk and its gradient."""
    moved = copy.copy(problem)
    moved.named = problem.unflatten(point)
    moved.__dict__["parameters"] = point
    return moved


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
