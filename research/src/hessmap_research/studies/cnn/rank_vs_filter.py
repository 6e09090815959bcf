"""Rank against filter size: one convolution, its filters from one tap to the whole input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import View
from hessmap_research.studies.cnn import ranks
from hessmap_research.studies.hessian_ranks import RANK_CHECKS, decidability_claims

# Inputs, filter sizes and numbers of filters: at most 1,449 parameters on the embedded data, 3,012 elsewhere.
_SMALL = (16, tuple(range(1, 17)), (2, 4, 9))
_LARGE = (25, tuple(range(1, 26, 2)), (3, 6, 12))
_MANY = 100  # filters: where Figure 9 calls the slack of the sum negligible


def cases(data: str) -> tuple[Case, ...]:
    length, kernels, filters = _SMALL if data in ranks.EMBEDDED else _LARGE
    return tuple(
        {
            "filter_size": kernel,
            "filters": count,
            **setting,
            "network": f"conv-1x{length}-{count}x{kernel}-10{ranks.network_suffix(setting['activation'])}",
            "seed": 0,
        }
        for setting, count, kernel in product(ranks.settings(data), filters, kernels)
    )


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from decidability_claims(rows)
    linear, relu = ranks.rows_with_activation(rows, "identity"), ranks.rows_with_activation(rows, "relu")
    yield ranks.printed_bounds_claim(rows)
    is_theorem_8 = ranks.is_equal("measured.functional", "printed.functional")
    yield Claim.about("theorem-8-linear", "Linear: Theorem 8 is an equality", linear, is_theorem_8, ranks.RIGHT)
    yield from _theorem_7_claims(linear)
    yield from _slack_claims(linear)
    yield ranks.above_linear_bounds_claim(rows)
    yield Claim.about("theorem-8-relu", "ReLU: Theorem 8 is an equality", relu, is_theorem_8, ranks.RIGHT)


def _theorem_7_claims(linear: Sequence[Row]) -> Iterator[Claim]:
    """Section 6.1 calls it exact."""
    if linear:
        loose = [row for row in linear if row.number("measured.outer_product") < row["printed.outer_product"]]
        where = ", ".join(sorted({f"{row['network']} ({row['loss']})" for row in loose}))
        detail = f"right in {len(linear) - len(loose)} of {len(linear)} cases" + (f", not in {where}" if loose else "")
        yield Claim(
            "theorem-7-not-exact", "Linear: Theorem 7, called exact, is not always an equality", bool(loose), detail
        )


def _slack_claims(linear: Sequence[Row]) -> Iterator[Claim]:
    """Figure 9: the sum of both theorems exceeds the rank of H_L, and less so for many filters."""
    if linear:
        slack = max(row["printed.loss"] / row.number("measured.loss") - 1 for row in linear)
        many = max(_slack_of_many(row["network"], row["loss"]) for row in linear)
        detail = f"by up to {100 * slack:.2g} % here, by the formulas up to {100 * many:.2g} % with {_MANY} filters"
        claim = "Linear: the sum of Theorems 7 and 8 exceeds the rank of H_L, less so for many filters"
        yield Claim("sum-exceeds-loss-rank", claim, slack > many, detail)


def _slack_of_many(text: str, loss: str) -> float:
    """By how much the sum exceeds our exact rank for this network with many filters, relative to that rank."""
    from hessmap.networks import Convolutional
    from hessmap.theory import predict_ranks

    network = Convolutional.parse(text)
    wide = Convolutional(network.input_length, (1, _MANY), network.kernels, outputs=network.outputs)
    return ranks.printed_bounds(wide, loss).loss / predict_ranks(wide, loss).loss.value - 1


STUDY = Study(
    name="cnn/rank-vs-filter",
    question="Do the ranks of a network with one convolution follow the formulas for every filter size?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figures 2b, 2c, 9, 10, 11; Theorems 7 and 8",
    cases=cases,
    measure=ranks.measure,
    data=ranks.DATA,
    checks=RANK_CHECKS,
    claims=claims,
    seconds=ranks.seconds,
    view=View(
        tuple(
            figure
            for filters in (2, 9)
            for figure in ranks.sweep_figures(
                "filter_size", "filter size", ranks.SERIES, {"filters": filters}, f", {filters} filters"
            )
        ),
        ranks.COLUMNS,
    ),
    answered=Answer(
        "It depends on the activation: linear networks follow the formulas exactly; under ReLU H_f does, H_o is"
        " above in 378 of 378 cases and H_L in 270.",
        num_claims=8,
        cases="agrees",
    ),
)
