"""The map of a model of any size in one call: the whole network in five numbers, its layers, and ranks on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from hessmap.errors import TooLarge, UnsupportedNetwork, checked_number, require
from hessmap.hessians import loss_hessian
from hessmap.linalg import is_out_of_memory
from hessmap.losses import AnyLoss
from hessmap.maps.curvature_map.dense import linear_counterpart, network_curvature
from hessmap.maps.curvature_map.estimates import curvature_estimates, seconds_per_product
from hessmap.maps.curvature_map.plan import MapPlan, optional_part, reason_of
from hessmap.maps.curvature_map.summary import summary
from hessmap.networks import describe
from hessmap.problem import Problem
from hessmap.progress import PATIENCE_SECONDS, shown_work
from hessmap.records import CurvatureMap, MapWork, NetworkCurvature

Say = Callable[[str], object]
_SECONDS = 60.0
_SMALL = 400  # parameters up to which no product is timed


def curvature_map(
    model: nn.Module | Problem,
    data: Any = None,
    loss: AnyLoss | None = None,
    *,
    ranks: bool = False,
    certify: bool | None = None,
    seconds: float | None = _SECONDS,
    dense: bool | None = None,
    title: str = "",
    progress: Say | None = None,
    seed: int = 0,
) -> CurvatureMap:
    """Map the curvature of a model on data: the whole network in five numbers, then its layers.

    The five numbers are the largest eigenvalue of the loss Hessian H_L (sharpness), the largest stable learning rate
    of gradient descent, the trace, the share of negative curvature, and the effective dimension.

    Args:
        model: An ``nn.Module``, or a ``Problem``, which has its own data and loss.
        data: Anything that a ``Problem`` takes: ``(inputs, targets)`` or a loader. Default: that of the problem.
        loss: A loss of a ``Problem``. Default: cross-entropy, or that of the problem.
        ranks: Also compute the ranks of the three Hessians H_o (GGN), H_f and H_L, compare them with theory where a
            theorem, bound or conjecture covers the network, and do the same for the network without activations
            (same weights), where the rank formulas are theorems. Three to six times the work. Defaults to False.
        certify: Compute the ranks in exact arithmetic, which linear layers with identity, ReLU or polynomial
            activations under squared loss allow. True: all, and ``ranks`` is implied; False: none. Default: with
            ``ranks``, those that the spectrum of a small network does not decide.
        seconds: Time limit; None for none. Dense Hessians that would take longer are not formed, and the products of
            estimates are planned to fit. Defaults to 60.
        dense: True: form the Hessians; False: use products only. Default: form them if memory and time suffice.
        title: Title of the map. Default: network, loss and number of samples.
        progress: Called with the next step in words. Default: progress is shown in the terminal.
        seed: Seed of the random vectors of estimates. Defaults to 0.

    Returns:
        CurvatureMap: ``network.whole`` has the five numbers, ``network.layers`` a row per layer, ``summary`` at most
        five findings in words. Numbers are exact where the Hessians were formed (float64); otherwise they are
        estimates with standard errors, ranges or bounds.

    Raises:
        InvalidInput: If data are missing or given twice, or ``dense=True`` for a problem without dense Hessians.

    Notes:
        A part that fails, such as the ranks of data that are not a floating-point tensor, is reported in
        ``network.notes`` with the reason; the rest of the map is kept.

    Example:
        >>> import hessmap as hm
        >>> model = hm.FullyConnected((6, 4, 3)).build(seed=0)
        >>> made = hm.map(model, hm.datasets.gaussian(30, 6, output_dim=3), loss="squared", ranks=True)
        >>> [part.rank == part.prediction.value for part in made.network.parts]
        [True, True, True]
    """
    limit = None if seconds is None else checked_number("seconds", seconds)
    require(limit is None or limit > 0, "seconds must be positive, or None for no limit", f"got {seconds}")
    problem = _problem(model, data, loss)
    with_ranks = ranks or bool(certify)
    start = time.perf_counter()
    with shown_work("map of the curvature") as work:
        say: Say = progress or work.start
        may_be_dense = dense is not False and problem.dtype == torch.float64 and problem.has_parts
        linear, gap = optional_part(lambda: linear_counterpart(problem)) if with_ranks and may_be_dense else (None, "")
        plan = _dense_plan(problem, 2 if not with_ranks else 3 if linear is None else 6, limit)
        reason = _why_not_dense(problem, plan, dense, limit)
        announce = progress or work.shown.remark
        if not reason:
            expected = plan.seconds
            if progress is not None or expected > PATIENCE_SECONDS:
                announce(f"{plan}, {expected:.2g} s")
            try:
                network = network_curvature(problem, "network", say, with_ranks, certify)
            except (MemoryError, RuntimeError) as error:
                if dense or not (isinstance(error, TooLarge) or is_out_of_memory(error)):
                    raise
                reason = f"dense Hessians did not fit in memory ({reason_of(error).removesuffix('.')})"
        if reason:
            found = curvature_estimates(problem, reason, say, announce, limit, seed)
            return _finished_map(title, problem, found.network, None, found.work)
        counterpart = None
        if linear is not None:
            name = "network without activations"
            counterpart, gap = optional_part(
                lambda: network_curvature(linear, name, say, True, certify, with_factors=False)
            )
    if gap:
        network = replace(network, notes=(*network.notes, f"no map of the network without activations: {gap}"))
    took = time.perf_counter() - start
    done = MapWork("dense", 0, 0, plan.num_bytes, limit, expected, took)
    return _finished_map(title, problem, network, counterpart, done)


def _finished_map(
    title: str, problem: Problem, network: NetworkCurvature, counterpart: NetworkCurvature | None, work: MapWork
) -> CurvatureMap:
    return CurvatureMap(
        title=title or f"{network.description}, {network.loss} loss, {network.num_samples:,} samples",
        network=network,
        linear_counterpart=counterpart,
        summary=summary(network, counterpart),
        provenance=problem.provenance,
        work=work,
    )


def _problem(model: nn.Module | Problem, data: Any, loss: AnyLoss | None) -> Problem:
    if not isinstance(model, Problem):
        require(data is not None, "a map needs a Problem, or a model and data", "data is missing")
        return Problem(model, "cross_entropy" if loss is None else loss, data)
    given = " and ".join(name for name, value in (("data", data), ("loss", loss)) if value is not None)
    require(not given, "a Problem has its own data and loss", f"{given} was given as well", "Leave it out")
    return model


def _dense_plan(problem: Problem, num_matrices: int, seconds: float | None) -> MapPlan:
    """Columns of a sequential network come from matrix products; those of any other model may each take a product,
    which is timed unless the plan is too large without it."""
    plan = MapPlan(problem.num_parameters, problem.num_samples, num_matrices)
    if problem.num_parameters <= _SMALL or problem.dtype != torch.float64 or plan.excess(seconds):
        return plan
    try:
        describe(problem.model)
    except UnsupportedNetwork:
        return replace(plan, seconds_per_product=seconds_per_product(loss_hessian(problem)))
    return plan


def _why_not_dense(problem: Problem, plan: MapPlan, dense: bool | None, seconds: float | None) -> str:
    """Why the Hessians are not formed; empty where they are."""
    number_format = str(problem.dtype).removeprefix("torch.")
    narrow = f"the problem is in {number_format}, and dense Hessians are in float64"
    if not problem.has_parts:
        whose = "this objective" if problem.is_objective else "a loss that the model computes itself"
        must = "dense maps need a loss of single outputs and targets"
        require(not dense, must, f"H_o and H_f are not defined for {whose}", "Leave dense out")
        return f"the GGN (H_o) and H_f are not defined for {whose}"
    if dense:
        remedy = "Build the problem with dtype=torch.float64, or leave dense out"
        require(problem.dtype == torch.float64, "dense Hessians need a problem in float64", narrow, remedy)
        return ""
    if dense is False:
        return "requested by dense=False"
    if problem.dtype != torch.float64:
        return narrow
    return plan.excess(seconds)
