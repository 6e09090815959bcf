"""Two questions that a model must answer before it is differentiated: is it a function, and of one sample at a time?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.curvature.losses import Loss
from hessmap.curvature.nested_tensors import Inputs, take_rows
from hessmap.curvature.random_state import preserved_random_state
from hessmap.errors import NotReproducible, UnsupportedNetwork, require, sentence


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
        got = "the output of a sample changes with the others in its batch"
        remedy = "Call model.eval() so that normalisation layers use their running statistics"
        raise NotReproducible(sentence("samples must not see each other", got, remedy))


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
        shapes = f"outputs of shape {tuple(outputs.shape)} with targets of shape {tuple(targets.shape)}"
        got = f"'{loss.name}' gives a sample another loss among others than alone"
        remedy = f"Look for means over the batch, and for broadcasting: it was given {shapes}"
        raise NotReproducible(sentence("samples must not see each other in the loss", got, remedy))


def _agree(one: Tensor, other: Tensor, among: Tensor, narrowest: torch.dtype) -> bool:
    # Kernels for one sample and for several round differently.
    relative = 1e-8 if narrowest == torch.float64 else 1e-3 if narrowest == torch.float32 else 0.1
    absolute = 1e-2 * relative * float(among.abs().max())
    return torch.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True)
