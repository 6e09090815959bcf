"""One network on its data: the three Hessians measured, and what theory says of them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from hessmap.curvature import Problem, functional_hessian, loss_hessian, outer_product_hessian
from hessmap.maps.curvature_map.certificates import certified_parts
from hessmap.maps.curvature_map.factors import measured_factors
from hessmap.maps.curvature_map.layers import layer_rows, layer_spectra
from hessmap.maps.curvature_map.plan import MapPlan
from hessmap.maps.curvature_map.prediction import description, predicted_ranks
from hessmap.maps.data_ranks import measured_data_ranks
from hessmap.measurement import effective_dimension, numerical_rank, spectrum
from hessmap.results import PARTS, Part, Spectrum
from hessmap.results.maps import FactorCurvature, LayerCurvature, NetworkCurvature, PartCurvature

Progress = Callable[[str], None]


def network_curvature(
    problem: Problem, name: str, say: Progress, certify: bool | None = None, with_factors: bool = True
) -> NetworkCurvature:
    """Everything the map holds of one network; ``say`` is told in words what is done next."""
    plan = MapPlan(problem.num_parameters, problem.num_samples)
    plan.require_room()
    say(f"{name}: {plan}")
    spectra, layers, factors_gap, notes = _measured(problem, lambda text: say(f"{name}: {text}"), with_factors)
    ranks = measured_data_ranks(problem)
    prediction, gap = predicted_ranks(problem, ranks)
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    certificates, refusal = certified_parts(problem, measured, certify, lambda text: say(f"{name}: {text}"))
    return NetworkCurvature(
        name=name,
        description=description(problem.model),
        loss=problem.loss.name,
        num_samples=problem.num_samples,
        num_parameters=problem.num_parameters,
        risk=problem.risk(),
        gradient_norm=float(problem.gradient().norm()),
        parts=tuple(
            PartCurvature(
                part,
                measured[part],
                spectra[part],
                None if prediction is None else getattr(prediction, part),
                certificates.get(part),
            )
            for part in PARTS
        ),
        layers=layers,
        effective_dimension=effective_dimension(spectra["outer_product"], 1 / problem.num_samples),
        data_ranks=ranks,
        prediction=prediction,
        prediction_gap=gap,
        notes=notes + ((refusal,) if refusal else ()),
        factors_gap=factors_gap,
    )


def _measured(
    problem: Problem, say: Progress, with_factors: bool
) -> tuple[dict[Part, Spectrum], tuple[LayerCurvature, ...], str, tuple[str, ...]]:
    """The three spectra, the layers, why there are no factors where there are none, and how the matrices were found;
    one dense Hessian is held at a time."""
    say("spectrum of H_L and of its layers")
    hessian = loss_hessian(problem)
    loss = spectrum(hessian.to_dense())
    blocks = layer_spectra(problem.layout, hessian.to_dense(), loss.norm)
    factors, factors_gap = _factors(problem, hessian.to_dense(), say) if with_factors else ({}, "")
    notes = hessian.notes
    say("spectrum of H_o")
    hessian = outer_product_hessian(problem)
    diagonal = hessian.to_dense().diagonal().clone()
    outer_product = spectrum(hessian.to_dense(), scale=loss.norm or None)
    say("spectrum of H_f")
    hessian = functional_hessian(problem)
    functional = spectrum(hessian.to_dense(), scale=loss.norm or None)
    spectra: dict[Part, Spectrum] = {"outer_product": outer_product, "functional": functional, "loss": loss}
    return spectra, tuple(layer_rows(problem.layout, blocks, diagonal, factors)), factors_gap, notes


def _factors(problem: Problem, loss: Tensor, say: Progress) -> tuple[dict[str, FactorCurvature], str]:
    say("factors of the layers")
    return measured_factors(problem, loss)
