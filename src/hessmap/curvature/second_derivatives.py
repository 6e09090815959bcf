"""What torch must be able to do with a model before its curvature is asked for: differentiate it twice, and rightly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import CheckpointError

from hessmap.curvature.agreement import random_vector
from hessmap.curvature.batch_graph import PRODUCTS, BatchGraph
from hessmap.curvature.error_origin import is_raised_in_torch
from hessmap.curvature.memory import is_out_of_memory
from hessmap.errors import HessmapError, UnsupportedNetwork, sentence

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

SYMMETRY_TOLERANCE = 1e-3  # a bad cancellation passes; a wrong derivative does not


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """What torch cannot differentiate is refused in its words; an exception of the user's own code passes with a note.

    >>> with twice_differentiable():
    ...     torch.autograd.grad(torch.ones(()), torch.ones(()))
    Traceback (most recent call last):
        ...
    hessmap.errors.UnsupportedNetwork: torch must be able to differentiate the model and its loss twice; it says: \
element 0 of tensors does not require grad and does not have a grad_fn.
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
            raise UnsupportedNetwork(sentence(must, f"it says: {reason}")) from error
        error.add_note("raised while the model was differentiated")
        raise


def _is_refusal_of_torch(error: Exception) -> bool:
    """Of a derivative that torch does not have: no subclass, which says something else, and nothing of the forward
    pass or the loss, which have their note."""
    is_plain = type(error) in (RuntimeError, NotImplementedError) and not is_out_of_memory(error)
    return is_plain and is_raised_in_torch(error) and not hasattr(error, "__notes__")


def require_symmetric_products(problem: Problem, part: str) -> None:
    """u.(H v) = v.(H u) on two samples, asked once per problem and part, before its first product.

    A function whose derivative hides its own derivative (``once_differentiable``, an embedding that scales its gradient
    by frequency) makes products that belong to no second derivative.
    """
    problem.find_once(f"symmetry of {part}", lambda: _require_symmetric(problem, part))


@torch.inference_mode(False)
def _require_symmetric(problem: Problem, part: str) -> bool:
    few = next(iter(problem.batches(2)))
    size = problem.num_parameters
    vectors = random_vector(2 * size, problem.dtype).reshape(2, size).to(problem.device)
    product = PRODUCTS[part](BatchGraph(problem, few, together=False))
    crossed, scale = [], 0.0
    for n in (0, 1):  # one at a time: vectors of parameters are long
        vector, other = vectors[n], vectors[1 - n]
        image = product(vector[None])[0]
        crossed.append(float((other * image).sum(dtype=torch.float64)))
        scale += float(image.double().norm())
    difference = abs(crossed[0] - crossed[1])
    if difference > SYMMETRY_TOLERANCE * scale:
        raise asymmetric(difference / scale)
    return True


def asymmetric(size: float) -> UnsupportedNetwork:
    """The error for second derivatives that differ from their transpose by so much of the largest."""
    got = f"torch's differ from their transpose by {size:.2g} of the largest"
    remedy = "Look for an operation of the model whose second derivative is wrong, or for values that overflow"
    return UnsupportedNetwork(sentence("second derivatives must be symmetric", got, remedy))
