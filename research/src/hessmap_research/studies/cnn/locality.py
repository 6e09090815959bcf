"""Locality and weight sharing: fully connected, locally connected and shared filters over disjoint patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from hessmap.networks import LocallyConnected, parse_network
from hessmap.records import PARTS
from hessmap_research.formulas import printed_convolutional as printed
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Lines, Series, View
from hessmap_research.studies.cnn import ranks
from hessmap_research.studies.hessian_ranks import NAMES, RANK_CHECKS, SYMBOLS, decidability_claims

FULL, LOCAL, SHARED = "fully connected", "locally connected", "shared weights"
_NUM_INPUTS = 24  # of the 25 pixels of 5x5 images: eight patch sizes divide it
_PATCH_SIZES = (1, 2, 3, 4, 6, 8, 12, 24)
# Filters on each patch and outputs: at most 1,392 parameters on the embedded data, 3,264 elsewhere. The fully connected
# network has as many hidden units as the others, filters times patches, and is there for the fewest filters.
_SMALL = ((2, 8), 5)
_LARGE = ((4, 12), 10)


def network_text(kind: str, patch_size: int, filters: int, outputs: int) -> str:
    """A network of 24 inputs in patches of this size, as text."""
    patches = _NUM_INPUTS // patch_size
    if kind == FULL:
        return f"{_NUM_INPUTS}-{patches * filters}-{outputs}"
    return f"local-{patches}x{patch_size}-{filters}-{outputs}{' shared' if kind == SHARED else ''}"


def cases(data: str) -> tuple[Case, ...]:
    counts, outputs = _sizes(data)
    return tuple(
        {
            "kind": kind,
            "patch_size": size,
            "filters": filters,
            "activation": activation,
            "loss": "squared",
            "network": network_text(kind, size, filters, outputs) + ranks.network_suffix(activation),
            "seed": 0,
        }
        for activation, filters, kind, size in product(ranks.ACTIVATIONS, counts, (FULL, LOCAL, SHARED), _PATCH_SIZES)
        if kind != FULL or filters == min(counts)
    )


def _sizes(data: str) -> tuple[tuple[int, int], int]:
    return _SMALL if data in ranks.EMBEDDED else _LARGE


def measure(case: Case) -> dict[str, Any]:
    """Predicted, printed and measured ranks."""
    return ranks.rank_record(*ranks.network_and_problem(case))


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from decidability_claims(rows)
    linear = ranks.rows_with_activation(rows, "identity")
    local, shared = ([row for row in linear if row["kind"] == kind] for kind in (LOCAL, SHARED))
    for part in ("outer_product", "functional"):
        claim = f"Linear: Theorems 9 and 10 are equalities for {NAMES[part]}"
        is_printed = ranks.is_equal(f"measured.{part}", f"printed.{part}")
        yield Claim.about(claim_id("theorems-9-10", part), claim, local + shared, is_printed, ranks.RIGHT)
    yield Claim.about("fact-13", "Linear: Fact 13 is right", local, _is_fact, ranks.RIGHT)
    yield Claim.about("fact-14-fails", "Linear: Fact 14 is wrong", shared, _is_fact, ranks.RIGHT, needs="not every")
    yield _order_claim(linear)
    yield ranks.above_linear_bounds_claim(rows)


def _is_fact(row: Row) -> bool:
    """The rank of H_L is what Fact 13 prints of local weights, Fact 14 of shared ones (of one patch too)."""
    network = parse_network(row["network"])
    assert isinstance(network, LocallyConnected)
    fact = printed.fact_14 if row["kind"] == SHARED else printed.fact_13
    rank = fact(network.patches, network.patch_size, network.filters, network.outputs)
    return bool(row.number("measured.loss") == rank)


def _order_claim(linear: Sequence[Row]) -> Claim:
    """Fewer connections leave less rank, and fewer free weights still less, for every patch size."""
    by_size: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in linear:
        key = row["data"], row["filters"], row["patch_size"]
        by_size.setdefault(key, {})[row["kind"]] = row.number("measured.loss")
    ordered = [kinds[FULL] >= kinds[LOCAL] >= kinds[SHARED] for kinds in by_size.values() if len(kinds) == 3]
    claim = "Linear: the rank of H_L falls from fully connected to local to shared"
    detail = "for {right} of {total} patch sizes"
    return Claim.about("rank-falls-with-locality", claim, ordered, bool, detail)


def _figures() -> Iterator[Lines]:
    for data, (activation, name), part in product(ranks.DATA, ranks.ACTIVATIONS.items(), PARTS):
        is_linear = activation == "identity"
        line, dashed = (f"predicted.{part}", "") if is_linear else ("", f"printed.{part}")
        yield Lines(
            title=f"{SYMBOLS[part]}, {name}, {data.replace('_', '-')}",
            part=part,
            where={"data": data, "activation": activation, "filters": min(_sizes(data)[0])},
            split="kind",
            x="patch_size",
            series=(Series("{kind}", line=line, points=f"measured.{part}", dashed=dashed),),
            x_label="patch size",
            y_label="rank",
            x_scale="log",
            reading=ranks.READING,
        )


STUDY = Study(
    name="cnn/locality",
    question="How do local connectivity and weight sharing change the ranks?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figures 5, 12, 13, 14; Theorems 9 and 10, Facts 13 and 14",
    cases=cases,
    measure=measure,
    data=ranks.DATA,
    checks=RANK_CHECKS,
    claims=claims,
    seconds=ranks.seconds,
    view=View(tuple(_figures()), ranks.COLUMNS),
    answered=Answer(
        "Less with every constraint in linear networks: the rank of H_L falls from fully connected to local to"
        " shared; under ReLU H_f stays within the bounds of linear networks and H_o is above them.",
        num_claims=8,
        cases="undecidable",
    ),
)
