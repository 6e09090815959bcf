"""Top eigenvectors of the full Hessian from the output factor of all layers and their mean inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers.layer_cases import NUM_OUTLIERS

_COUNT = 50
_PLACES = (1, 5, 9, 30)
_LAST_EPOCH = 300
_MNIST_EPOCHS = 60
_NARROW = ("F-200^2", "F-200^4")
_WIDE = ("F-600^2", "F-600^4")
_DEEPEST: Case = {"network": "F-600^8", "size": "large", "epochs": _MNIST_EPOCHS, "count": _COUNT, "seed": 0}
_SECONDS = {
    "F-32^2": 4.0,
    "F-100^2": 8.0,
    "F-200^2": 100.0,
    "F-200^4": 100.0,
    "F-600^2": 150.0,
    "F-600^4": 500.0,
    "F-600^8": 1500.0,
}


def cases(data: str) -> tuple[Case, ...]:
    """Digits after 100 epochs (loss 0.3) and after 300 (0.08), in between the top eigenvalues come closer together.

    The widest networks of MNIST are trained once each; the deepest is that of layers/published-networks, trained on all
    images until every one is right.
    """
    if data == "digits":
        return grid(network=["F-32^2", "F-100^2"], epochs=[100, _LAST_EPOCH], count=[_COUNT], seed=range(3))
    common = {"epochs": [_MNIST_EPOCHS], "count": [_COUNT]}
    narrow, wide = grid(network=_NARROW, seed=range(3), **common), grid(network=_WIDE, seed=[0], **common)
    return (*narrow, *wide, _DEEPEST)


def measure(case: Case) -> dict[str, Any]:
    """Eigenvalues and overlaps with the true top-k spaces, k = 1 .. count, of the corrected and the printed form."""
    import torch

    from hessmap.hessians.operators import loss_hessian
    from hessmap.measurement import top_eigenpairs
    from hessmap.measurement.overlap import overlap_curve
    from hessmap.theory.layers import full_eigenpairs, printed_full_eigenpairs
    from hessmap_research.instruments.matricisation import full_factors
    from hessmap_research.studies.layers.measured_layer import problem_of
    from hessmap_research.studies.plotted_curves import four_digits

    problem = problem_of(case)
    count = case["count"]
    true = top_eigenpairs(loss_hessian(problem), count, tolerance=1e-5)
    assert true.eigenvectors is not None
    factors = full_factors(problem)
    means = [mean.numpy() for mean in factors.mean_inputs]
    sizes = [layer.num_outputs for layer in factors.layers]
    record: dict[str, Any] = {
        "num_parameters": problem.num_parameters,
        "eigenvalues": four_digits(true.eigenvalues),
        "first_ratio": float(true.eigenvalues[0] / true.eigenvalues[1]),
        "converged": true.converged,
    }
    for name, form in (("corrected", full_eigenpairs), ("printed", printed_full_eigenpairs)):
        found = form(factors.output_factor.numpy(), means, sizes, count)
        guessed = factors.in_layout(problem, torch.from_numpy(found.eigenvectors))
        overlap = overlap_curve(true.eigenvectors, guessed).values
        record[name] = {
            "eigenvalues": four_digits(found.eigenvalues),
            "overlap": four_digits(overlap),
            "largest": float(found.eigenvalues[0] / true.eigenvalues[0]),
            **{f"at_{place}": float(overlap[place - 1]) for place in _PLACES if place <= count},
        }
    return record


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The corrected form beside equations 261 to 263, network by network, in every seed."""
    for data, network, epochs in dict.fromkeys((row["data"], row["network"], row["epochs"]) for row in rows):
        chosen = [row for row in rows if (row["data"], row["network"], row["epochs"]) == (data, network, epochs)]
        how = f"all images of {data}" if "size" in chosen[0] else f"{data} after {epochs} epochs"
        where, setting = f"{network} on {how}", (network, data, epochs)
        has_limits = data == "digits" and epochs == _LAST_EPOCH
        for claim, name, holds in _LIMITS if has_limits else ():
            pairs = _pairs(chosen, name)
            detail = ", ".join(f"{corrected:.3f} and {printed:.3f}" for corrected, printed in pairs)
            yield Claim(
                claim_id("limit", name, *setting), f"{where}, {claim}", all(holds(*pair) for pair in pairs), detail
            )
        for claim, name, holds in _COMPARISONS:
            yield Claim.paired(claim_id("closer", name, *setting), f"{where}, {claim}", _pairs(chosen, name), holds)


def _pairs(rows: Sequence[Row], name: str) -> list[tuple[float, float]]:
    """The values of the corrected and of the printed form."""
    return [(row.number(f"corrected.{name}"), row.number(f"printed.{name}")) for row in rows]


_Claim = tuple[str, str, Callable[[float, float], bool]]

# What must contain of the corrected and the printed value, in this order; the first of networks trained to the end.
_LIMITS: tuple[_Claim, ...] = (
    ("k = 1: the corrected form overlaps by more than 0.9", "at_1", lambda right, _: right > 0.9),
    ("k = 5: the corrected form overlaps by more than 0.92", "at_5", lambda right, _: right > 0.92),
    ("k = 9: both overlap by 0.87 to 0.92, within 0.02", "at_9", lambda right, printed: _nearly_equal(right, printed)),
    ("k = 30: both have lost the space, below 0.4", "at_30", lambda right, printed: max(right, printed) < 0.4),
    (
        "largest eigenvalue: 0.86 to 0.90 of the true one corrected, 0.80 to 0.88 printed",
        "largest",
        lambda right, printed: 0.86 < right < 0.90 and 0.80 < printed < 0.88,
    ),
)
_COMPARISONS: tuple[_Claim, ...] = (
    ("k = 1: the corrected form overlaps more than the printed one", "at_1", lambda right, printed: right > printed),
    ("k = 5: the corrected form overlaps more than the printed one", "at_5", lambda right, printed: right > printed),
    (
        "largest eigenvalue: the corrected one is nearer to the true one",
        "largest",
        lambda right, printed: abs(right - 1) < abs(printed - 1),
    ),
)


def _nearly_equal(corrected: float, printed: float) -> bool:
    return abs(corrected - printed) < 0.02 and all(0.87 < value < 0.92 for value in (corrected, printed))


def _figures(network: str, epochs: int) -> tuple[Lines, Lines]:
    where = {"network": network, "epochs": epochs}
    trained = "all images" if network == _DEEPEST["network"] else f"{epochs} epochs"
    return (
        Lines(
            title=f"{network}, {trained}: overlap with the true space",
            where=where,
            x=INDEX,
            series=(
                Series("corrected", points="corrected.overlap"),
                Series("equations 261 to 263", points="printed.overlap"),
            ),
            x_label="dimension k",
            y_label="overlap",
            y_limits=(0.0, 1.0),
            marks=(Mark(NUM_OUTLIERS, "c - 1"),),
        ),
        Lines(
            title=f"{network}, {trained}: top eigenvalues",
            where=where,
            x=INDEX,
            series=(
                Series("corrected", line="corrected.eigenvalues"),
                Series("equations 261 to 263", line="printed.eigenvalues"),
                Series("true", points="eigenvalues"),
            ),
            y_scale="log",
            x_label="position",
            y_label="eigenvalue",
            marks=(Mark(NUM_OUTLIERS, "c - 1"),),
        ),
    )


STUDY = Study(
    name="layers/full-hessian",
    question="Do mean inputs and the output factor of all layers determine the top eigenvectors of the full Hessian?",
    reference="Wu et al. 2022, Figure 5, equations 261 to 263 (corrected: mean inputs have different norms)",
    cases=cases,
    measure=measure,
    data=("digits", "mnist"),
    claims=claims,
    seconds=lambda case: _SECONDS[case["network"]],
    families={
        "closer-at-1": "k = 1: the corrected form overlaps more than the printed one",
        "closer-at-5": "k = 5: the corrected form overlaps more than the printed one",
        "closer-largest": "Largest eigenvalue: the corrected one is nearer to the true one",
        "limit-at-1": "Digits, 300 epochs, k = 1: the corrected form overlaps by more than 0.9",
        "limit-at-5": "Digits, 300 epochs, k = 5: the corrected form overlaps by more than 0.92",
        "limit-at-9": "Digits, 300 epochs, k = 9: both overlap by 0.87 to 0.92, within 0.02",
        "limit-at-30": "Digits, 300 epochs, k = 30: both have lost the space, below 0.4",
        "limit-largest": "Digits, 300 epochs: largest eigenvalue 0.86 to 0.90 corrected, 0.80 to 0.88 printed",
    },
    answered=Answer(
        "It depends on how many: on the digits the top nine to 0.87 and more; of the top thirty less than 0.4 is left.",
        num_claims=34,
        fails=(
            "limit-at-1-f-32-2-digits-300",
            "limit-largest-f-32-2-digits-300",
            "limit-at-5-f-100-2-digits-300",
            "limit-largest-f-100-2-digits-300",
        ),
        inconclusive=(
            "closer-at-1-f-32-2-digits-100",
            "closer-at-1-f-32-2-digits-300",
            "closer-at-5-f-200-2-mnist-60",
            "closer-at-1-f-200-4-mnist-60",
            "closer-at-5-f-200-4-mnist-60",
            "closer-largest-f-200-4-mnist-60",
            "closer-at-1-f-600-2-mnist-60",
            "closer-at-5-f-600-2-mnist-60",
            "closer-largest-f-600-2-mnist-60",
            "closer-at-1-f-600-4-mnist-60",
            "closer-at-5-f-600-4-mnist-60",
            "closer-largest-f-600-4-mnist-60",
        ),
    ),
    view=View(
        figures=tuple(
            figure
            for shown in (
                *grid(network=["F-32^2", "F-100^2"], epochs=[_LAST_EPOCH]),
                *grid(network=[*_NARROW, *_WIDE, _DEEPEST["network"]], epochs=[_MNIST_EPOCHS]),
            )
            for figure in _figures(**shown)
        ),
        table=(
            "data",
            "network",
            "epochs",
            *(
                Column(f"{form}.at_{place}", f"k = {place} {form}", ".3f")
                for place in _PLACES
                for form in ("corrected", "printed")
            ),
            Column("first_ratio", "lambda1/lambda2", ".3f"),
            Column("corrected.largest", "lambda1 corrected", ".3f"),
            Column("printed.largest", "lambda1 printed", ".3f"),
        ),
        group_by=("data", "network", "epochs"),
        panels_in_a_row=4,
    ),
)
