"""The map in one call: the whole network in numbers, its layers, spectra, ranks and verdicts, of any size."""

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
from hessmap.maps.curvature_map.estimates import curvature_estimates, seconds_per_product
from hessmap.maps.curvature_map.linear_twin import linear_twin
from hessmap.maps.curvature_map.network import network_curvature
from hessmap.maps.curvature_map.plan import MapPlan, optional_part, reason_of
from hessmap.maps.curvature_map.verdicts import verdicts
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
    seconds: float | None = _SECONDS,
    dense: bool | None = None,
    twin: bool = True,
    certify: bool | None = None,
    title: str = "",
    progress: Say | None = None,
    seed: int = 0,
) -> CurvatureMap:
    """The curvature of a model on data, or of a Problem: the whole network first (largest eigenvalue, largest stable
    step, trace, negative share, effective dimension, density), then a row for every layer, then ranks where they can
    be had.

    Where three dense Hessians fit the memory and are expected to take no longer than ``seconds``, they are formed, in
    float64: everything is exact, and ranks stand beside what theory predicts of them. Else (or with ``dense=False``)
    all numbers are estimates from products with random vectors of ``seed``, with their errors, and the products are
    planned so that the time suffices: the largest eigenvalues of the whole and of every layer come first. A number
    that the products do not resolve is a range or a bound. ``seconds=None`` sets no limit; ``dense=True`` forms the
    Hessians in any case. The plan is shown before the work starts where progress is shown. A part that fails, such as
    the ranks of data that are no floating-point tensor, is reported with its reason, and the rest of the map stays.

    Where the model is a chain of linear layers with activations, its linear twin (same weights and data, no
    activations) is mapped too unless ``twin`` is False: the ranks of the twin are a theorem, and the measured
    ones must equal them.

    ``certify`` asks for ranks in exact arithmetic as well, which networks of linear layers with identity, ReLU
    or polynomial activations under squared loss have: True for all, None for those whose measured value is not
    decidable while the network is small, False for none.
    ``data`` is all that a Problem takes; the ``loss`` is cross-entropy unless another is given. ``progress`` gets in
    words what is done next, in the place of what shows it in a terminal.

    >>> import hessmap as hm
    >>> model = hm.FullyConnected((6, 4, 3)).build(seed=0)
    >>> made = hm.map(model, hm.datasets.gaussian(30, 6, output_dim=3), loss="squared")
    >>> [part.rank == part.prediction.value for part in made.network.parts]
    [True, True, True]
    """
    limit = None if seconds is None else checked_number("seconds", seconds)
    require(limit is None or limit > 0, "seconds must be positive, or None for no limit", f"got {seconds}")
    problem = _problem(model, data, loss)
    start = time.perf_counter()
    with shown_work("map of the curvature") as work:
        say: Say = progress or work.start
        may_be_dense = dense is not False and problem.dtype == torch.float64 and problem.has_parts
        twin_problem, why_no_twin = optional_part(lambda: linear_twin(problem)) if twin and may_be_dense else (None, "")
        plan = _dense_plan(problem, 1 if twin_problem is None else 2, limit)
        reason = _why_not_dense(problem, plan, dense, limit)
        announce = progress or work.shown.remark
        if not reason:
            expected = plan.seconds
            if progress is not None or expected > PATIENCE_SECONDS:
                announce(f"{plan}, {expected:.2g} s")
            try:
                network = network_curvature(problem, "network", say, certify)
            except (MemoryError, RuntimeError) as error:
                if dense or not (isinstance(error, TooLarge) or is_out_of_memory(error)):
                    raise
                reason = f"dense Hessians did not fit the memory ({reason_of(error).removesuffix('.')})"
        if reason:
            found = curvature_estimates(problem, reason, say, announce, limit, seed)
            return _finished_map(title, problem, found.network, None, found.work)
        other = None
        if twin_problem is not None:
            other, why_no_twin = optional_part(
                lambda: network_curvature(twin_problem, "linear twin", say, certify, with_factors=False)
            )
    if why_no_twin:
        network = replace(network, notes=(*network.notes, f"no map of the linear twin: {why_no_twin}"))
    took = time.perf_counter() - start
    return _finished_map(title, problem, network, other, MapWork("dense", 0, 0, plan.num_bytes, limit, expected, took))


def _finished_map(
    title: str, problem: Problem, network: NetworkCurvature, twin: NetworkCurvature | None, work: MapWork
) -> CurvatureMap:
    return CurvatureMap(
        title=title or f"{network.description}, {network.loss} loss, {network.num_samples:,} samples",
        network=network,
        linear_twin=twin,
        verdicts=verdicts(network, twin),
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


def _dense_plan(problem: Problem, num_networks: int, seconds: float | None) -> MapPlan:
    """Columns of a chain of layers come from matrix products; those of any other model may each take a product, which
    is timed unless the plan is too large without it."""
    plan = MapPlan(problem.num_parameters, problem.num_samples, num_networks)
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
        return f"H_o and H_f, and so their ranks, are not defined for {whose}"
    if dense:
        remedy = "Build the problem with dtype=torch.float64, or leave dense out"
        require(problem.dtype == torch.float64, "dense Hessians need a problem in float64", narrow, remedy)
        return ""
    if dense is False:
        return "as asked for"
    if problem.dtype != torch.float64:
        return narrow
    return plan.excess(seconds)
