"""The map of a model of any size in one call: the whole network in five numbers, its layers, and ranks on request.

Its findings are at most five sentences, none of which repeats a number of its tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from hessmap.errors import TooLarge, UnsupportedNetwork, checked_number, require
from hessmap.hessians import loss_hessian
from hessmap.linalg import is_out_of_memory
from hessmap.losses import AnyLoss
from hessmap.maps.curvature_map.dense import linear_counterpart, network_curvature
from hessmap.maps.curvature_map.estimates import curvature_estimates, seconds_per_product
from hessmap.maps.curvature_map.plan import MapPlan, optional_part, reason_of
from hessmap.networks import describe
from hessmap.problem import Problem
from hessmap.progress import PATIENCE_SECONDS, shown_work
from hessmap.records import HESSIAN_SYMBOLS, CurvatureMap, MapWork, NetworkCurvature, PartCurvature, RankValue

Say = Callable[[str], object]
_SECONDS = 60.0
_SMALL = 400  # parameters up to which no product is timed
# A gradient below this fraction of the norm of H_L marks a point that may be stationary: weights trained that
# far are not generic, and the formulas need not apply.
_NEARLY_STATIONARY = 1e-6
_NEARLY_ALL = 0.9999  # of the curvature, above which no more digits are shown
_EVEN = 2.0  # a ratio between layers below which it is not reported


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
        model: An ``nn.Module``, or a ``Problem``, which has its own data and loss; of all processes, if it is a
            ``distributed`` problem.
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
    must, remedy = "ranks of a map need all samples in one process", "Leave ranks and certify out"
    require(not with_ranks or problem.local is problem, must, "the data are split over processes", remedy)
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
    made = CurvatureMap(
        title=title or f"{network.description}, {network.loss} loss, {network.num_samples:,} samples",
        network=network,
        linear_counterpart=counterpart,
        summary=summary(network, counterpart),
        provenance=problem.provenance,
        work=work,
    )
    return problem.agreed(made)  # with the times and notes of the first process


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
    if problem.num_parameters <= _SMALL or problem.dtype != torch.float64 or problem.agreed(plan.excess(seconds)):
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
    return problem.agreed(plan.excess(seconds))


def summary(network: NetworkCurvature, counterpart: NetworkCurvature | None) -> tuple[str, ...]:
    """The findings of a map, most important first; ``counterpart`` is the network without activations."""
    findings = [negative_curvature(network), uneven_layers(network), kronecker_fit(network)]
    if network.has_ranks:
        findings += [rank_agreement(counterpart) if counterpart is not None else ""]
        findings += [rank_agreement(network) or linear_formula(network)]
    return tuple(text for text in findings if text)


def negative_curvature(network: NetworkCurvature) -> str:
    """How many eigenvalues are negative, and how large the lowest is; empty where they were not computed."""
    if not network.is_dense:
        return ""
    part = network["loss"]
    eigenvalues = part.spectrum.eigenvalues
    negative = int((eigenvalues < -part.measurement.threshold).sum())
    if negative == 0:
        return "No eigenvalue of the Hessian is negative beyond rounding."
    lowest = float(eigenvalues.min())
    are, verb = ("eigenvalues are", "the lowest is") if negative > 1 else ("eigenvalue is", "it is")
    return (
        f"{negative:,} of {len(eigenvalues):,} {are} negative ({verb} {lowest:.2g}, "
        f"{abs(lowest) / part.measurement.scale:.1%} of the spectral norm), so the weights are not at a minimum."
    )


def uneven_layers(network: NetworkCurvature) -> str:
    """Which layer the sharpest direction is in, and how unevenly the layers are curved."""
    if len(network.layers) < 2:
        return ""
    texts = []
    shares = {layer.name: layer.direction_share for layer in network.layers if layer.direction_share is not None}
    if len(shares) == len(network.layers):
        most = max(shares, key=lambda name: shares[name])
        texts.append(f"{shares[most]:.0%} of the sharpest direction (squared norm) is in layer {most}")
    found = network.spread
    if found is not None and found.ratio >= _EVEN:
        texts.append(
            f"per parameter, layer {found.most} is curved {found.ratio:.2g} times as much as layer {found.least} "
            "(mean diagonal of the GGN)"
        )
    text = "; ".join(texts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def kronecker_fit(network: NetworkCurvature) -> str:
    """How well the product of the two Kronecker factors of a layer finds its sharpest directions."""
    known = [(layer.name, layer.factors) for layer in network.layers if layer.factors and layer.curvature_share]
    overlaps = {name: found.kronecker_overlap for name, found in known if found.kronecker_overlap is not None}
    if not overlaps:
        return ""
    few = known[0][1].num_classes - 1
    worst, best = (pick(overlaps, key=lambda name: overlaps[name]) for pick in (min, max))
    overlap = f"{overlaps[worst]:.0%}"
    if len(overlaps) == 1:
        overlap += f" (layer {worst})"
    elif f"{overlaps[best]:.0%}" != overlap:
        overlap += f" (layer {worst}) to {overlaps[best]:.0%} (layer {best})"
    if few == 1:
        return f"The top K-FAC eigenvector of a layer overlaps by {overlap} with that of its exact block."
    return f"The top {few} K-FAC eigenvectors of a layer overlap by {overlap} with those of its exact block."


def rank_agreement(network: NetworkCurvature) -> str:
    """Whether every rank is what a theorem, bound or conjecture claims; empty where none applies."""
    judged = [(part, part.prediction) for part in network.parts if part.prediction is not None]
    if not judged:
        return ""
    where = "" if network.name == "network" else "Without activations (same weights), "
    departing = [(part, claim) for part, claim in judged if not part.agrees]
    if departing:
        texts = [f"{HESSIAN_SYMBOLS[part.part]} has rank {part.rank:,}, {_claim(claim)}" for part, claim in departing]
        claims = [claim for _, claim in departing]
        text = f"{where}the measured ranks contradict the {_sources(claims)}: {'; '.join(texts)}"
        return f"{text[0].upper()}{text[1:]}. {_likely_cause(network, claims)}"
    ranks = ", ".join(f"{HESSIAN_SYMBOLS[part.part]} {part.rank:,}" for part, _ in judged)
    has_bounds = any(claim.relation == "at_most" for _, claim in judged)
    agree = "are within the bounds of" if has_bounds else "match"
    sources = _sources([claim for _, claim in judged])
    text = f"{where}the measured ranks {agree} the {sources}: {ranks} of {network.num_parameters:,}"
    return f"{text[0].upper()}{text[1:]}{_reliability([part for part, _ in judged])}."


def _claim(prediction: RankValue) -> str:
    word = "conjectured" if prediction.kind == "conjecture" else "predicted"
    return f"{word}{' to be at most' if prediction.relation == 'at_most' else ''} {prediction.value:,}"


def _sources(predictions: Sequence[RankValue]) -> str:
    """Whether theorems apply, or conjectures, or both."""
    is_conjecture = {prediction.kind == "conjecture" for prediction in predictions}
    if is_conjecture == {True}:
        return "conjecture"
    return "theorem" if is_conjecture == {False} else "theorem and the conjecture"


def _reliability(judged: Sequence[PartCurvature]) -> str:
    undecided = [part for part in judged if not part.measurement.decidable]
    if not undecided:
        return ""
    if all(part.certificate is not None for part in undecided):
        return ", confirmed in exact arithmetic where the spectrum has no clear gap"
    return ", although not every spectrum has a clear gap"


def _likely_cause(network: NetworkCurvature, predictions: Sequence[RankValue]) -> str:
    """The likely cause of a disagreement, from what was measured."""
    if any(not part.measurement.decidable and part.certificate is None for part in network.parts):
        return "Its spectrum has no clear gap there, so the measured rank depends on the threshold."
    if network.gradient_norm <= _NEARLY_STATIONARY * network["loss"].measurement.scale:
        return "Its gradient is nearly zero, and the prediction is for generic weights."
    tried = [prediction.num_cases for prediction in predictions if prediction.num_cases is not None]
    if len(tried) == len(predictions):
        before = f"the first after {min(tried):,} networks without one"
        return f"Unless its weights are special, this is a counterexample to the conjecture, {before}."
    cut = network["loss"].measurement
    return (
        "The theorem is about generic weights, products of consecutive weight matrices of maximal rank, and counts "
        f"every nonzero eigenvalue; those below {cut.threshold / (cut.scale or 1.0):.0e} of the largest are not "
        "counted here."
    )


def linear_formula(network: NetworkCurvature) -> str:
    """The rank of the network without activations as a comparison, where no theorem covers the network itself."""
    if network.prediction is None or network.prediction.loss.kind != "numerical":
        return ""
    part, formula = network["loss"], network.prediction.loss.value
    none = "No theorem covers the ranks of this network"
    if formula >= part.rank:
        return f"{none}; the rank of H_L is at most that of a linear network of this shape, {formula:,}."
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1]
    covered = float(magnitudes[:formula].sum() / magnitudes.sum())
    share = f"{covered:.2%}" if covered < _NEARLY_ALL else f"over {_NEARLY_ALL:.2%}"
    return (
        f"{none}; a linear one of this shape has rank {formula:,}, and here the {formula:,} largest eigenvalues carry "
        f"{share} of the curvature (sum of magnitudes)."
    )
