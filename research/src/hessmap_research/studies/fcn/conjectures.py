"""Random networks against the rank formulas, the printed and the corrected ones, in exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.records import PARTS, Part
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.fcn.random_settings import Setting, printed_ranks, random_setting
from hessmap_research.studies.hessian_ranks import NAMES

_LOSSES = ("squared", "cross_entropy", "log_cosh")
_RESIDUALS = ("generic", "low rank", "zero mean")
_INPUTS = ("rc = r", "rc = r - 1")
_DEEP = ("deep, no bias", "deep, no bias, bottleneck", "deep, bias", "deep, bias, bottleneck")
_ONE_LAYER = ("one layer, no bias", "one layer, bias")


def cases() -> tuple[Case, ...]:
    """Batches of random networks: six for each deep family and kind of data, one for each of a single layer."""
    kinds: dict[str, Any] = {"inputs": _INPUTS, "residual": _RESIDUALS, "loss": _LOSSES, "num_networks": [50]}
    return (*grid(family=_DEEP, **kinds, batch=range(6)), *grid(family=_ONE_LAYER, **kinds, batch=range(1)))


def measure(case: Case) -> dict[str, Any]:
    """How many networks each side gets right, every counterexample of ours, the smallest of each printed formula."""
    draw = random.Random(case_key(case))
    kind = [case[name] for name in ("family", "inputs", "residual", "loss")]
    settings = [random_setting(draw, *kind) for _ in range(case["num_networks"])]
    ours_right, paper_right = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    wrong: dict[str, list[dict[str, Any]]] = {"ours": [], "paper": []}
    doubt = 0.0
    for setting in sorted(settings, key=lambda setting: setting.num_parameters):
        ours, paper = _predicted_ranks(setting), printed_ranks(setting)
        for part in PARTS:
            exact, bound = _exact_rank(setting, part, draw.randrange(2**32))
            doubt = max(doubt, bound)
            ours_right[part] += ours[part] == exact
            paper_right[part] += exact in paper[part]
            if ours[part] != exact:
                wrong["ours"].append(_counterexample(setting, part, exact, (ours[part],)))
            if exact not in paper[part]:
                wrong["paper"].append(_counterexample(setting, part, exact, paper[part]))
    return {
        "ours_right": ours_right,
        "paper_right": paper_right,
        "counterexamples_of_ours": wrong["ours"],
        "counterexamples_of_paper": _smallest_of_each_part(wrong["paper"]),
        "failure_bound": doubt,
    }


def _predicted_ranks(setting: Setting) -> dict[str, int]:
    from hessmap.networks import FullyConnected
    from hessmap.theory import predict_ranks

    network = FullyConnected(setting.widths, bias=setting.bias)
    prediction = predict_ranks(network, setting.loss, **setting.data_ranks)
    return {part: int(getattr(prediction, part)) for part in PARTS}


def _exact_rank(setting: Setting, part: Part, seed: int) -> tuple[int, float]:
    from hessmap.exact import generic_rank
    from hessmap.networks import FullyConnected

    network = FullyConnected(setting.widths, bias=setting.bias)
    certificate = generic_rank(network, part, setting.loss, **setting.data_ranks, seed=seed)
    return certificate.value, certificate.failure_bound


def _counterexample(setting: Setting, part: str, exact: int, claimed: tuple[int, ...]) -> dict[str, Any]:
    return {
        "part": part,
        "widths": setting.widths,
        "r_rc_residual": (setting.input_rank, setting.centred_input_rank, setting.residual_rank),
        "exact": exact,
        "claimed": claimed,
    }


def _smallest_of_each_part(examples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of each part; the examples come from small networks to large ones."""
    return list({example["part"]: example for example in reversed(examples)}.values())[::-1]


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Ours are right everywhere; the paper's in the families that its proofs and measurements had in view."""
    num_networks = sum(row["num_networks"] for row in rows)
    for part, name in NAMES.items():
        right = sum(row["ours_right"][part] for row in rows)
        detail = f"{right:,} of {num_networks:,}"
        yield Claim.counted(
            claim_id("formula", part),
            f"Our formula of {name} is right on every network that was tried",
            right,
            num_networks,
            detail,
        )
    wrong = [_num_wrong_in_paper(row) for row in rows if _is_in_view_of_paper(row)]
    if wrong:
        claim = "Deep, generic residual, bias only without bottleneck and with rc = r: the paper is right"
        yield Claim(
            "paper-in-view", claim, sum(wrong) == 0, f"{sum(wrong):,} of {3 * sum(_sizes(rows, True)):,} ranks wrong"
        )
    others: dict[tuple[str, ...], int] = {}
    for row in rows:
        if row["family"] in _DEEP and not _is_in_view_of_paper(row):
            group = row["family"], row["inputs"], row["residual"]
            others[group] = others.get(group, 0) + _num_wrong_in_paper(row)
    if others:
        total, fewest = sum(others.values()), min(others.values())
        detail = f"{total:,} of {3 * sum(_sizes(rows, False)):,} ranks wrong, at least {fewest:,} in each family"
        yield Claim("paper-elsewhere", "Every other deep family holds counterexamples of the paper", fewest > 0, detail)


def _is_in_view_of_paper(row: Row) -> bool:
    if row["family"] not in _DEEP or row["residual"] != "generic":
        return False
    return "no bias" in row["family"] or (row["family"] == "deep, bias" and row["inputs"] == "rc = r")


def _sizes(rows: Sequence[Row], is_in_view: bool) -> Iterator[int]:
    return (row["num_networks"] for row in rows if row["family"] in _DEEP and _is_in_view_of_paper(row) == is_in_view)


def _num_wrong_in_paper(row: Row) -> int:
    return len(PARTS) * int(row["num_networks"]) - int(sum(row["paper_right"].values()))


_WHO = {"paper": "the paper: right of 50", "ours": "ours: right of 50"}

STUDY = Study(
    name="fcn/conjectures",
    question="Which rank formulas survive random networks in exact arithmetic, the printed or the corrected ones?",
    reference="Singh, Bachmann & Hofmann 2021, Corollaries 4 and 6, Facts 7 and 13, Theorem 12, S7.2 and S7.3",
    cases=cases(),
    measure=measure,
    checks=tuple(Check(f"ours_right.{part}", "num_networks", "equal") for part in PARTS),
    claims=claims,
    view=View(
        figures=tuple(
            Heatmap(
                title=f"${name}$, {words}",
                value=f"{who}_right.{part}",
                x="residual",
                y="family",
                limits=(0, 50),
            )
            for who, words in _WHO.items()
            for part, name in NAMES.items()
        ),
        table=(
            "family",
            "inputs",
            "residual",
            *(Column(f"{who}_right.{part}", f"{name}, {who}") for part, name in NAMES.items() for who in _WHO),
            Column("num_networks", "of"),
        ),
        group_by=("family", "inputs", "residual"),
    ),
    seconds=4.0,
    answered=Answer(
        "The corrected ones, all of them on 23,400 of 23,400 networks; the printed ones only for generic"
        " residuals, and with a bias only where no layer is narrow and centring costs no rank.",
        num_claims=5,
        cases="agrees",
    ),
)
