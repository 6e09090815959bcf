"""Two questions that a model must answer before it is differentiated: is it a function, and of one sample at a time?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hessmap.curvature.losses import Loss
from hessmap.curvature.nested_tensors import Inputs, take_rows
from hessmap.curvature.random_state import preserved_random_state
from hessmap.errors import NotReproducible, UnsupportedNetwork, require, sentence

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem
    from hessmap.curvature.weighted_samples import Batch

_FEW_ROWS = 8  # of a batch, that are evaluated once more


def require_function(forward: Callable[[Inputs], Tensor], inputs: Inputs, narrowest: torch.dtype) -> None:
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
        remedy = "Switch off what is random in it (dropout, noise), for example with model.eval()"
        raise NotReproducible(sentence("the model must be a function of its inputs", got, remedy))
    if not all(_agree(alone[n], outputs[0][place], outputs[0], narrowest) for n, place in enumerate((0, last))):
        raise coupled_samples(len(outputs[0]))


@torch.no_grad()
def require_separate_rows(problem: Problem, pair: tuple[Inputs, Tensor], outputs: Tensor, losses: Tensor) -> None:
    """Some samples of a batch have the same outputs and losses among themselves as in the whole batch."""
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
def require_separate_halves(problem: Problem, batch: Batch) -> None:
    """The samples of a batch have the same outputs in two parts of it; and some of those of a last batch, which is not
    full, among themselves."""
    inputs, targets, _ = batch
    count, half = len(targets), (len(targets) // 2) | 1  # the sizes of both parts are odd if that of the whole is even
    if count < 2:
        return
    together = problem.forward(problem.named, inputs).detach()
    parts = [problem.forward(problem.named, take_rows(inputs, part)) for part in (slice(half), slice(half, None))]
    if not _rows_agree(torch.cat(parts), together, together, problem.narrowest_format or problem.dtype):
        raise coupled_samples(count)
    left = problem.num_samples % count
    if problem.samples.is_held and left:
        last = take_rows(problem.inputs, slice(-left, None)), problem.targets[-left:]
        outputs = problem.forward(problem.named, last[0]).detach()
        require_separate_rows(problem, last, outputs, problem.loss.value(outputs, last[1]))


def coupled_samples(count: int) -> NotReproducible:
    """The error for outputs that change with the other samples of a batch of that size."""
    got = f"the output of a sample changes with the others in its batch, here of {count}"
    remedy = "Call model.eval() so that normalisation layers use their running statistics"
    return NotReproducible(sentence("samples must not see each other", got, remedy))


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


def require_no_memory(name: str, here: Tensor, fresh: Tensor, narrowest: torch.dtype) -> None:
    """Outputs with other weights, of a model that was used and of one that was not: what is kept must not show."""
    if not _agree(here, fresh, fresh, narrowest):
        must = "a forward pass must not use again what it found with other weights"
        got = f"the model keeps it in '{name}', where derivatives would take it for a constant"
        raise UnsupportedNetwork(sentence(must, got, "Find it anew in every forward pass"))


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
    got = f"'{loss.name}' gives a sample another loss among others than alone"
    remedy = f"Look for means over the batch, and for broadcasting: it was given {shapes}"
    return NotReproducible(sentence("samples must not see each other in the loss", got, remedy))


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
