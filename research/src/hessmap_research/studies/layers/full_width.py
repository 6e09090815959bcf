"""The paper's widest networks: one layer's top 200 eigenpairs, as far as two cores go.

VGG11-W200 and ResNet18-W80 at their initialisation on 1,000 images: the last convolution of each, whose Hessian
has 360,000 and 57,600 rows. A case takes minutes of one core; cases that are stored are not run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers.layer_cases import NUM_CLASSES, NUM_OUTLIERS

_COUNT = 200
_TOLERANCE = 1e-6
_NUM_SAMPLES = 1000
_LAYERS = {"VGG11-W200": "conv8", "ResNet18-W80": "conv17"}
_SECONDS = {"VGG11-W200": 400.0, "ResNet18-W80": 450.0}
_FIT = 0.75  # of the overlap at k = c - 1, as for the first layers of trained networks


def cases(data: str) -> tuple[Case, ...]:
    return tuple({"network": network, "layer": layer, "epochs": 0, "seed": 0} for network, layer in _LAYERS.items())


def measure(case: Case) -> dict[str, Any]:
    from hessmap.layers import layer_hessian
    from hessmap.layers.comparison import class_outliers
    from hessmap.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
    from hessmap.measurement.overlap import overlap_curve
    from hessmap_research.studies.layers.trained_layers import Recipe, trained_layers, untrained_layers

    how = Recipe(case.get("num_samples", _NUM_SAMPLES), case["epochs"], case.get("num_samples", _NUM_SAMPLES))
    given: dict[str, Any] = {"seed": case["seed"], "recipe": how}
    if case["epochs"]:
        problem = trained_layers(case["network"], case["data"], **given).problem
    else:
        problem = untrained_layers(case["network"], case["data"], **given)
    hessian = layer_hessian(problem, case["layer"])
    count = min(case.get("count", _COUNT), hessian.size)
    found = layer_eigenpairs(hessian, count, tolerance=_TOLERANCE)
    assert found.eigenvectors is not None
    product = hessian.kronecker_approximation()
    leading = product.leading(count)
    overlap = overlap_curve(found.eigenvectors, product.eigenvectors(leading))
    outliers = class_outliers(found.eigenvalues, NUM_CLASSES)
    return {
        "eigenvalues": found.eigenvalues,
        "of_product": leading.eigenvalues.numpy(),
        "overlap": overlap.values,
        "overlap_at": {f"k{k}": overlap.at(k) for k in (NUM_OUTLIERS, count)},
        "gap": outliers.ratio,
        "num_outliers": outliers.num_outliers,
        "worst_residual": float(found.residuals.max() / found.norm),
        "is_converged": found.converged,
        "num_products": found.num_products,
        "num_weights": hessian.size,
        "held_bytes": hessian.stored_bytes,
        "predicted_bytes": hessian.plan.stored_bytes + layer_eigenpairs_bytes(hessian, count, tolerance=_TOLERANCE),
        "risk": problem.risk(),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for row in rows:
        setting = (row["network"], row["layer"], row["epochs"])
        where = f"{row['network']}, {row['layer']}, {row['epochs']} epochs"
        count = row.array("eigenvalues").size
        detail = f"worst residual {row['worst_residual']:.1e} of the norm, {row['num_products']} products"
        claim = f"{where}: the top {count} eigenpairs of {row['num_weights']:,} are found to {_TOLERANCE:.0e}"
        yield Claim(
            claim_id("eigenpairs-found", *setting),
            claim,
            bool(row["is_converged"]) and row["worst_residual"] <= _TOLERANCE,
            detail,
        )
        detail = f"the largest is after eigenvalue {row['num_outliers']}; after {NUM_OUTLIERS} it is {row['gap']:.3g}"
        claim = f"{where}: the largest fall of the spectrum is after c - 1 eigenvalues"
        yield Claim(claim_id("falls-after-outliers", *setting), claim, row["num_outliers"] == NUM_OUTLIERS, detail)
        fit = row.number(f"overlap_at.k{NUM_OUTLIERS}")
        claim = f"{where}: the Kronecker product finds the space of the c - 1 largest to {_FIT} or better"
        yield Claim(claim_id("kronecker-finds-space", *setting), claim, fit >= _FIT, f"overlap {fit:.3f}")


STUDY = Study(
    name="layers/full-width",
    question="Do the paper's widest networks show the same outliers, and does the Kronecker product find them?",
    reference="Wu et al. 2022, appendix E.2: VGG11-W200 and ResNet18-W80",
    cases=cases,
    measure=measure,
    data=("cifar10",),
    claims=claims,
    seconds=lambda case: _SECONDS.get(case["network"], 60.0),
    view=View(
        figures=(
            Lines(
                title="top eigenvalues",
                x=INDEX,
                split="network",
                series=(Series("{network}", points="eigenvalues", line="of_product"),),
                x_label="place; lines: of the Kronecker product",
                y_label="eigenvalue",
                x_scale="log",
                y_scale="log",
                marks=(Mark(float(NUM_OUTLIERS), "c - 1"),),
            ),
            Lines(
                title="overlap with the Kronecker product",
                x=INDEX,
                split="network",
                series=(Series("{network}", line="overlap", points="overlap"),),
                x_label="k",
                y_label="overlap of top-k eigenspaces",
                y_limits=(0.0, 1.0),
                marks=(Mark(float(NUM_OUTLIERS), "c - 1"),),
            ),
        ),
        table=(
            "network",
            "layer",
            "epochs",
            Column("num_weights", "weights", ","),
            Column("num_products", "products", ","),
            Column("worst_residual", "residual", ".1e"),
            Column("gap", "λ9 / λ10", ".3g"),
            Column(f"overlap_at.k{NUM_OUTLIERS}", "overlap, k=9", ".3f"),
            Column(f"overlap_at.k{_COUNT}", "k=200", ".3f"),
        ),
    ),
    answered=Answer(
        "It depends: before training both have c - 1 outliers, whose space the product finds in ResNet18-W80"
        " (overlap 0.977) and not in VGG11-W200 (0.307).",
        num_claims=6,
        fails=("kronecker-finds-space-vgg11-w200-conv8-0",),
    ),
)
