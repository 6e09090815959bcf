"""The exact rank of the generic network of an architecture, by random draws in GF(P)."""

from __future__ import annotations

import numpy as np

from hessmap.curvature.finite_field.drawn_network import drawn_network
from hessmap.curvature.finite_field.evaluation import evaluate
from hessmap.curvature.finite_field.generic_data import (
    drawn_derivatives,
    drawn_inputs,
    drawn_residuals,
    generic_ranks,
)
from hessmap.curvature.finite_field.hessian import field_hessian
from hessmap.curvature.finite_field.prime_field import random_prime_field
from hessmap.curvature.finite_field.rank import field_rank
from hessmap.curvature.losses import LOSSES
from hessmap.curvature.memory import require_memory
from hessmap.errors import checked_seed, integer_or_none, require, unknown_name
from hessmap.results import PARTS, Part, RankCertificate, provenance


def generic_rank(
    net: object,
    part: Part = "loss",
    loss: str = "squared",
    *,
    input_rank: int | None = None,
    residual_rank: int | None = None,
    centred_input_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    num_samples: int | None = None,
    seed: int = 0,
) -> RankCertificate:
    """The exact rank of the loss, outer-product or functional Hessian of the generic network of an architecture.

    ``net`` is a ``FullyConnected``, ``Convolutional`` or ``LocallyConnected``.
    Weights, inputs and residuals are drawn uniformly from GF(P), P a random prime of [2^61, 2^62]; residuals and
    softmax probabilities independently of the outputs. The value is never above the rank of the generic real
    network, and below it with probability at most ``failure_bound``. Linear and polynomial activations only.

    ``input_rank`` and ``centred_input_rank`` are the ranks of the inputs and of the centred inputs (equal, or one
    less). ``residual_rank`` is the rank of Omega = sum residual input^T or, with bias, of [Omega_c, omega], omega the
    sum of the residuals; ``mean_residual_is_zero`` asks for omega = 0. All are generic unless given. A linear network
    needs no more samples than the ranks do; with a polynomial activation the rank can grow with ``num_samples``
    (default: the number of parameters).

    >>> import hessmap as hm
    >>> generic_rank(hm.FullyConnected((6, 5, 4)), "loss", residual_rank=1).value
    33
    """
    if not isinstance(part, str) or part not in PARTS:
        raise unknown_name("part", part, PARTS)
    if not isinstance(loss, str) or loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    is_bool = isinstance(mean_residual_is_zero, bool)
    require(is_bool, "mean_residual_is_zero must be True or False", f"got {mean_residual_is_zero!r}")
    counts = {"input_rank": input_rank, "residual_rank": residual_rank, "centred_input_rank": centred_input_rank}
    for name, count in {**counts, "num_samples": num_samples}.items():
        is_integer = count is None or integer_or_none(count) is not None
        require(is_integer, f"{name} must be an integer", f"got {count!r}")
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    chain = drawn_network(net, field, generator)
    is_softmax = loss == "cross_entropy"
    ranks = generic_ranks(
        chain,
        chain.output_dim - is_softmax,
        input_rank=input_rank,
        centred_input_rank=centred_input_rank,
        residual_rank=residual_rank,
        mean_residual_is_zero=mean_residual_is_zero,
        num_samples=num_samples,
    )
    needed = 16 * ranks.num_samples * max(chain.input_dim, chain.output_dim)
    require_memory(f"{ranks.num_samples} drawn samples", needed, "Use fewer samples")
    inputs = drawn_inputs(ranks, chain.input_dim, field, generator)
    residuals = drawn_residuals(ranks, chain.output_dim, is_softmax, field, generator)
    derivatives = drawn_derivatives(loss, field, generator, residuals)
    evaluation = evaluate(chain, inputs, (None,) * len(chain.activations))
    rank = field_rank(field_hessian(chain, evaluation, derivatives, part), generator)
    origin = provenance(f"GF({field.prime})", seed, notes=(f"{net}, {loss}, {ranks}",))
    size = chain.num_parameters
    return RankCertificate(rank.value, part, field.prime, rank.failure_bound, size, 0, rank.method, origin)
