"""Whether the top eigenvectors of a layer's Hessian, as matrices of the weight's shape, are nearly of rank one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared

_NETWORK = "F-100^2"
_LIMITS = ((("fc1", "fc2", "fc3"), "mean_of_10", "mean ratio of the top 10", "above", 0.9),)
_PRINTED = 0.5  # "usually much larger than 0.5"
_COUNT_OF_FIGURE = 200  # eigenvectors in the paper's figure of images


def cases(data: str) -> tuple[Case, ...]:
    more = {"count": _COUNT_OF_FIGURE} if data == "cifar10" else {}
    small = shared.layer_cases(shared.TRAINED[data])
    some = (*small, *shared.cases_on_all_images(data), *shared.cases_by_own_recipe(data))
    return tuple({**case, **more} for case in some)


def measure(case: Case) -> dict[str, Any]:
    from hessmap_research.instruments.matricisation import rank_one_ratios
    from hessmap_research.studies.layers.measured_layer import eigenpairs_of, hessian_of, stored_eigenpairs

    hessian = hessian_of(case)
    is_small = "count" in case and "size" not in case
    found = stored_eigenpairs(hessian, case["count"]) if is_small else eigenpairs_of(case, hessian)
    assert found.eigenvectors is not None
    ratios = rank_one_ratios(found.eigenvectors[:, : case.get("count")], hessian.weight_shape)
    return {
        "ratios": ratios,
        "mean_of_10": float(ratios[:10].mean()),
        "mean_of_all": float(ratios.mean()),
        "least": float(ratios.min()),
        "by_chance": _ratio_of_random(hessian.weight_shape),
        "are_all_found": found.converged,
    }


def _ratio_of_random(shape: tuple[int, int]) -> float:
    """What a matrix with independent normal entries has: (sqrt m + sqrt n) / sqrt(m n), for large m and n."""
    rows, columns = shape
    return float((rows**0.5 + columns**0.5) / (rows * columns) ** 0.5)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield shared.convergence_claim(rows)
    yield from shared.limit_claims(rows, _NETWORK, _LIMITS)
    for data, network, chosen in shared.by_network(rows):
        means = shared.by_layer(chosen, "mean_of_all")
        claim = f"{network} on {data}: over all eigenvectors that were found the ratio is above {_PRINTED} on average"
        yield Claim(
            claim_id("mean-ratio", shared.training_id(chosen[0])),
            claim,
            min(map(min, means.values())) > _PRINTED,
            shared.ranges(means),
        )


def _ratios(data: str, network: str, epochs: int, more: str = "") -> Lines:
    return Lines(
        title=f"{data}, {network}, {epochs} epochs{more}",
        where={"data": data, "network": network, "epochs": epochs},
        x=INDEX,
        series=(Series("{layer}", line="ratios", points="ratios"),),
        split="layer",
        x_label="eigenvector",
        y_label="largest singular value / Frobenius norm",
        y_limits=(0.0, 1.04),
        marks=(Mark(9.5, "c - 1"), Mark(_PRINTED, "one half", axis="y")),
    )


STUDY = Study(
    name="layers/rank-one",
    question="Are the top eigenvectors of a layer's Hessian nearly products u (x) v?",
    reference="Wu et al. 2022, appendix G.2 and Figure 21",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    claims=claims,
    seconds=shared.seconds_of,
    view=View(
        figures=(
            *(_ratios(*shown) for shown in shared.SHOWN),
            _ratios("cifar10", "LeNet5", 90, ", all images"),
            _ratios("cifar10", "LeNet5", shared.OWN_RECIPE["epochs"], ", all, as the paper"),
        ),
        table=(
            *shared.LAYER,
            Column("size", "images", said={"long": "all"}),
            Column("mean_of_10", "mean of top 10", ".3f"),
            Column("mean_of_all", "of all found", ".3f"),
            Column("least", "least", ".3f"),
            Column("by_chance", "random matrix", ".3f"),
        ),
        group_by=(*shared.LAYER, "size"),
    ),
    answered=Answer(
        "It depends: on digits the top 10 are, by more than 0.9 except in fc1 after 300 epochs; the mean of all"
        " that were found is above 0.5 everywhere except in some layers of LeNet5 on CIFAR-10.",
        num_claims=10,
        fails=(
            "mean-of-10-f-100-2-digits-300-fc1-fc2-fc3",
            "mean-ratio-lenet5-cifar10",
            "mean-ratio-lenet5-cifar10-long",
            "mean-ratio-lenet5-cifar10-published",
        ),
    ),
)
