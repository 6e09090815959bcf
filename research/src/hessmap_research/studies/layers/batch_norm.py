"""What batch-norm does to the two factors of a layer: inputs of mean zero have no direction that dominates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers import layer_cases as shared

if TYPE_CHECKING:
    from hessmap.layers import LayerHessian
    from hessmap.records import EigenpairsMeasurement

_NETWORKS = ("F-100^2-BN", "F-200^2-BN")
_NORMALISED_LAYERS = ("fc2", "fc3")  # whose inputs went through batch-norm
_LIMITS = (
    (_NORMALISED_LAYERS, "squared_cosine", "(v1 . E[x])^2", "below", 0.3),
    (_NORMALISED_LAYERS, "eigenvalue_ratio", "lambda_1 / lambda_2", "below", 1.5),
    (_NORMALISED_LAYERS, "overlap_at_9", "overlap with the Kronecker product, k = 9", "below", 0.4),
)
_NUM_MODELS = 3
_PUBLISHED_NETWORK = "LeNet5-BN"
_NEAR = 0.1  # of the outputs, at least one: how far from them a peak may lie


def _plain(data: str) -> tuple[str, int]:
    """The network without batch-norm, trained to the end, that the normalised one is compared with."""
    return {"digits": ("F-100^2", 300), "mnist": ("F-200^2", 60)}.get(data, shared.TRAINED[data][-1])


def cases(data: str) -> tuple[Case, ...]:
    convolutional = [named for named in shared.NORMALISED[data] if named[0] == _PUBLISHED_NETWORK]
    return (
        *shared.layer_cases((_plain(data), *shared.NORMALISED[data]), kinds=("fc",)),
        *shared.layer_cases(convolutional, kinds=("conv",)),
    )


def measure(case: Case) -> dict[str, Any]:
    from hessmap.layers.comparison import autocorrelation
    from hessmap.measurement.overlap import overlap_curve
    from hessmap.theory.layers import growth_end
    from hessmap_research.instruments.matricisation import input_correspondence, rank_one_ratios
    from hessmap_research.studies.layers.measured_layer import hessian_of

    hessian = hessian_of(case)
    found = _eigenpairs(case, hessian)
    neighbour = {**case, "seed": (case["seed"] + 1) % _NUM_MODELS}
    other = _eigenpairs(neighbour, hessian_of(neighbour))
    assert found.eigenvectors is not None
    assert other.eigenvectors is not None
    factors = hessian.factors["uncorrelated_patches"]
    product = hessian.kronecker_approximation()
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    overlap = overlap_curve(found.eigenvectors, product.eigenvectors(product.leading(len(found.eigenvalues))))
    between = overlap_curve(found.eigenvectors, other.eigenvectors).values
    top = found.eigenvectors[:, : shared.NUM_OUTLIERS]
    record: dict[str, Any] = {
        "squared_cosine": inputs.squared_cosine,
        "eigenvalue_ratio": inputs.eigenvalue_ratio,
        "input_eigenvalues": inputs.eigenvalues[:20] / inputs.eigenvalues[0],
        "overlap": overlap.values,
        "overlap_at_9": overlap.at(shared.NUM_OUTLIERS),
        "between_models": between,
        "on_first_input": float(input_correspondence(top, product.input_eigenpairs[1])[0].mean()),
        "rank_one": float(rank_one_ratios(found.eigenvectors[:, :10], hessian.weight_shape).mean()),
        "is_normalised": case["network"].endswith("-BN"),
        "are_all_found": found.converged and other.converged,
    }
    if _has_long_curve(case):
        spectra = (values.numpy() for values, _ in (product.output_eigenpairs, product.input_eigenpairs))
        record["peak"] = {"at": int(between.argmax()) + 1, "value": between.max(), "growth_end": growth_end(*spectra)}
    published = shared.published_moments(case["data"], case["network"], case["layer"])
    return record | ({"published": published} if published else {})


def _has_long_curve(case: Case) -> bool:
    """Hidden layers with twice as many eigenpairs as outputs, to see where the overlap of models peaks."""
    is_chosen = case["data"] == "digits" or case["network"] == _PUBLISHED_NETWORK
    return bool(is_chosen and case["layer"] != shared.layers_of(case["network"])[-1])


def _eigenpairs(case: Case, hessian: LayerHessian) -> EigenpairsMeasurement:
    from hessmap_research.studies.layers.measured_layer import eigenpairs_of, stored_eigenpairs

    if _has_long_curve(case):
        return stored_eigenpairs(hessian, min(2 * hessian.weight_shape[0], hessian.size))
    return eigenpairs_of(case, hessian)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield shared.convergence_claim(rows)
    for network in _NETWORKS:
        yield from shared.limit_claims(rows, network, _LIMITS)
    for data in dict.fromkeys(row["data"] for row in rows):
        deeper = [row for row in rows if row["data"] == data and row["layer"] in _NORMALISED_LAYERS]
        normal = [row.number("overlap_at_9") for row in deeper if row["is_normalised"]]
        plain = [row.number("overlap_at_9") for row in deeper if not row["is_normalised"]]
        if normal and plain:
            detail = f"with batch-norm at most {max(normal):.3f}, without at least {min(plain):.3f}"
            claim = f"{data}: after batch-norm the Kronecker product explains less at k = 9"
            yield Claim(claim_id("kronecker-explains-less", data), claim, max(normal) < min(plain), detail)
    yield from _published_network([row for row in rows if row["network"] == "LeNet5-BN" and "published" in row])
    yield from _peak([row for row in rows if "peak" in row and row["is_normalised"]])
    yield from _short_curves(rows)


def _published_network(rows: Sequence[Row]) -> Iterator[Claim]:
    """The paper's own network with batch-norm: Table 9 and Figure 26."""
    if not rows:
        return
    where = f"LeNet5-BN on {rows[0]['data']}, fc1 to fc3"
    known = shared.PUBLISHED["cifar10", "LeNet5-BN", "fc"]
    for name, words, (mean, least, largest) in (
        ("squared_cosine", "(v1 . E[x])^2", known.squared_cosine),
        ("eigenvalue_ratio", "lambda_1 / lambda_2", known.ratio),
    ):
        values = [row.number(name) for row in rows]
        ours = sum(values) / len(values)
        detail = f"ours {ours:.3f} ({min(values):.3f} to {max(values):.3f}), paper {mean} ({least} to {largest})"
        yield Claim(
            claim_id("published", name),
            f"{where}: the mean {words} lies within the paper's range",
            least <= ours <= largest,
            detail,
        )
    shares = shared.by_layer(rows, "on_first_input")
    claim = f"{where}: the stripe is gone, the top nine lie over v_1 by less than half"
    yield Claim("published-stripe-gone", claim, max(map(max, shares.values())) < 0.5, shared.ranges(shares))


def _peak(rows: Sequence[Row]) -> Iterator[Claim]:
    """Where the overlap of two models is largest, on average over the pairs as in the paper's figures.

    The paper: at the outputs m of the first layer, whose inputs are not normalised, and nowhere behind batch-norm.
    """
    import numpy as np

    for data, network, layer in dict.fromkeys((row["data"], row["network"], row["layer"]) for row in rows):
        chosen = [row for row in rows if (row["data"], row["network"], row["layer"]) == (data, network, layer)]
        mean = np.mean([row.array("between_models") for row in chosen], axis=0)
        at, outputs = int(mean.argmax()) + 1, mean.size // 2
        is_first = layer == shared.layers_of(network)[0]
        near = f"within a tenth of its {outputs} outputs"
        words = f"peaks {near}" if is_first else f"has no peak {near}"
        each = ", ".join(str(row["peak.at"]) for row in chosen)
        detail = f"{mean.max():.3f} at k = {at} of {mean.size}; of each pair at {each}"
        is_near = abs(at - outputs) <= max(1.0, _NEAR * outputs)
        yield Claim(
            claim_id("peak", network, data, layer),
            f"{network} on {data}, {layer}: the mean overlap of models {words}",
            is_near is is_first,
            detail,
        )


def _short_curves(rows: Sequence[Row]) -> Iterator[Claim]:
    """Where the overlap of two models is not known as far as the output dimension, nothing is said of its peak."""
    short = [row for row in rows if row["is_normalised"] and "peak" not in row and row["layer"] != "fc3"]
    if short:
        curves = [row.array("between_models") for row in short]
        rising = sum(int(curve.argmax()) == curve.size - 1 for curve in curves)
        detail = f"the curves end at k = {max(curve.size for curve in curves)} or before, below the outputs; "
        claim = "In the other hidden layers behind a normalisation the overlap of models peaks at the outputs too"
        yield Claim("short-curves", claim, None, f"{detail}{rising} of {len(curves)} still rise there")


def _lines(data: str, network: str, epochs: int) -> tuple[Lines, ...]:
    common: dict[str, Any] = {
        "where": {"data": data, "network": network, "epochs": epochs},
        "x": INDEX,
        "split": "layer",
        "x_label": "k",
    }
    return (
        Lines(
            title=f"{network} on {data}: inputs",
            series=(Series("{layer}", line="input_eigenvalues", points="input_eigenvalues"),),
            y_label="eigenvalue of E[x x$^T$] / largest",
            y_scale="log",
            y_limits=(1e-4, 1.5),
            **common,
        ),
        Lines(
            title=f"{network} on {data}: true and Kronecker",
            series=(Series("{layer}", line="overlap", points="overlap"),),
            y_label="overlap of top-k eigenspaces",
            x_limits=(0.0, 61.0),
            y_limits=(0.0, 1.0),
            marks=(Mark(float(shared.NUM_OUTLIERS), "c - 1"),),
            **common,
        ),
        Lines(
            title=f"{network} on {data}: two models",
            series=(Series("{layer}", line="between_models", points="between_models"),),
            y_label="overlap of top-k eigenspaces",
            # Curves of 12 to 240 dimensions.
            x_scale="log" if network == _PUBLISHED_NETWORK else "linear",
            **common,
        ),
    )


def _figures(data: str) -> tuple[Lines, ...]:
    """All of the smallest data and of the paper's own network, one panel of the others; the table has the rest."""
    if data in ("digits", "cifar10"):
        networks = (_plain(data), *shared.NORMALISED[data])
        return tuple(figure for network in networks for figure in _lines(data, *network))
    return tuple(_lines(data, *network)[1] for network in shared.NORMALISED[data])


STUDY = Study(
    name="layers/batch-norm",
    question="What is left of the structure of layers when their inputs have mean zero?",
    reference="Wu et al. 2022, appendix G.4, Table 9 and Figures 26 to 28",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    claims=claims,
    seconds=shared.seconds_of,
    families={
        "squared-cosine": "After batch-norm (v1 . E[x])^2 is below 0.3",
        "eigenvalue-ratio": "After batch-norm lambda_1 / lambda_2 is below 1.5",
        "overlap-at-9": "After batch-norm the overlap with the Kronecker product, k = 9, is below 0.4",
        "kronecker-explains-less": "After batch-norm the Kronecker product explains less at k = 9",
        "peak": "The mean overlap of models has a peak at the outputs in fc1 of F-100^2-BN and conv1 alone",
    },
    view=View(
        figures=tuple(figure for data in shared.DATA for figure in _figures(data)),
        table=(
            *shared.LAYER,
            Column("squared_cosine", "(v1.Ex)^2", ".4f"),
            Column("published.squared_cosine", "paper", ".3f"),
            Column("eigenvalue_ratio", "lambda_1/lambda_2", ".2f"),
            Column("published.ratio", "paper", ".2f"),
            Column("overlap_at_9", "Kronecker, k=9", ".3f"),
            Column("on_first_input", "1-9 over v_1", ".3f"),
            Column("rank_one", "rank-one ratio", ".3f"),
            Column("peak.at", "peak of two models", ".0f"),
            Column("peak.growth_end", "k*", ".0f"),
        ),
        group_by=shared.LAYER,
        panels_in_a_row=3,
    ),
    answered=Answer(
        "Little on digits and MNIST, where no input direction dominates and the Kronecker product explains less;"
        " more on Fashion-MNIST and in LeNet5 on CIFAR-10.",
        num_claims=24,
        fails=(
            "squared-cosine-f-200-2-bn-fashion-mnist-30-fc2-fc3",
            "eigenvalue-ratio-f-200-2-bn-fashion-mnist-30-fc2-fc3",
            "overlap-at-9-f-200-2-bn-fashion-mnist-30-fc2-fc3",
            "kronecker-explains-less-cifar10",
            "published-stripe-gone",
        ),
        inconclusive=("short-curves",),
    ),
)
