"""Random deep linear networks on random data, what the paper prints for them, and how often a formula is right."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hessmap.errors import unknown_name
from hessmap.records import PARTS
from hessmap_research.formulas import printed_fully_connected as printed
from hessmap_research.runner.claims import Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Column
from hessmap_research.studies.hessian_ranks import NAMES

RIGHT_CHECKS = tuple(Check(f"right.{part}", "num_networks", "equal") for part in PARTS)
_WIDEST = 6
_MOST_LAYERS = 5
_MOST_PARAMETERS = 100


@dataclass(frozen=True)
class Setting:
    """A network, a loss, and ranks of its data that can occur together: what a rank formula is asked about."""

    widths: tuple[int, ...]
    bias: bool
    loss: str
    input_rank: int
    centred_input_rank: int
    residual_rank: int
    mean_residual_is_zero: bool

    @property
    def effective_output_dim(self) -> int:
        return self.widths[-1] - (self.loss == "cross_entropy")

    @property
    def data_ranks(self) -> dict[str, Any]:
        """What is known of the data, as ``generic_rank`` and ``predict_ranks`` take it."""
        names = ("input_rank", "centred_input_rank", "residual_rank", "mean_residual_is_zero")
        return {name: getattr(self, name) for name in names}

    @property
    def num_parameters(self) -> int:
        return sum((before + self.bias) * after for before, after in pairwise(self.widths))

    @property
    def has_bottleneck(self) -> bool:
        """A hidden layer narrower than what the generic residual of these inputs wants to pass."""
        reach = self.centred_input_rank + 1 if self.bias else self.input_rank
        return min(self.widths[1:-1], default=_WIDEST) < min(reach, self.effective_output_dim)


def random_setting(draw: random.Random, family: str, inputs: str, residual: str, loss: str) -> Setting:
    """A setting of a family: "one layer" or "deep", "no bias" or "bias", a deep one with or without "bottleneck".

    ``inputs`` says whether the centred inputs have the rank of the inputs ("rc = r") or one less ("rc = r - 1").
    ``residual`` is "generic", "low rank" (any rank below the generic one) or "zero mean" (any possible rank).
    """
    while True:
        setting = _random_draw(draw, family, inputs, residual, loss)
        if setting is not None and setting.num_parameters <= _MOST_PARAMETERS:
            is_deep = len(setting.widths) > 2
            if not is_deep or setting.has_bottleneck == family.endswith(", bottleneck"):
                return setting


def _random_draw(draw: random.Random, family: str, inputs: str, residual: str, loss: str) -> Setting | None:
    """One draw; None where its residual cannot be of the kind that is asked for."""
    num_layers = 1 if family.startswith("one layer") else draw.randint(2, _MOST_LAYERS)
    widths = tuple(draw.randint(1, _WIDEST) for _ in range(num_layers + 1))
    bias = "no bias" not in family
    rank = draw.randint(1, widths[0])
    centred = rank - (inputs == "rc = r - 1")
    visible = centred if residual == "zero mean" else centred + 1 if bias else rank
    largest = min(visible, widths[-1] - (loss == "cross_entropy"))
    if residual == "low rank" and largest == 0:
        return None
    return Setting(widths, bias, loss, rank, centred, _residual_rank(draw, residual, largest), residual == "zero mean")


def _residual_rank(draw: random.Random, residual: str, largest: int) -> int:
    if residual == "generic":
        return largest
    if residual == "low rank":
        return draw.randint(0, largest - 1)
    if residual == "zero mean":
        return draw.randint(0, largest)
    raise unknown_name("residual", residual, ("generic", "low rank", "zero mean"))


def printed_ranks(setting: Setting) -> dict[str, tuple[int, ...]]:
    """By part of the Hessian, the values that Singh, Bachmann & Hofmann 2021 can be read to give for a setting.

    Without bias: Corollary 4, Corollary 6 (printed as a bound, asked here whether it is met) and Fact 7 with both of
    its meanings of q. With bias: Theorem 12, and S7.2 for one hidden layer, S7.3 and Fact 13 for others; these know
    the rank r of the inputs without centring, and no residual rank.
    """
    widths, rank, outputs = setting.widths, setting.input_rank, setting.effective_output_dim
    if not setting.bias:
        residual = setting.residual_rank
        return {
            "outer_product": (printed.corollary_4(widths, rank, effective_output_dim=outputs),),
            "functional": (printed.corollary_6(widths, rank, residual, effective_output_dim=outputs),),
            "loss": (
                printed.fact_7(widths, rank, effective_output_dim=outputs),
                printed.fact_7(widths, rank, residual, effective_output_dim=outputs),
            ),
        }
    one_hidden = len(widths) == 3
    functional = printed.section_s7_2_functional_rank if one_hidden else printed.section_s7_3_functional_rank
    loss = printed.section_s7_2_loss_rank if one_hidden else printed.fact_13
    return {
        "outer_product": (printed.theorem_12(widths, rank, effective_output_dim=outputs),),
        "functional": (functional(widths, rank, effective_output_dim=outputs),),
        "loss": (loss(widths, rank, effective_output_dim=outputs),),
    }


def all_right_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """One claim for each Hessian: its formula is right on every network of every row."""
    num_networks = sum(row["num_networks"] for row in rows)
    for part, name in NAMES.items():
        claim = f"The formula of {name} is right on every network that was tried"
        right = sum(row["right"][part] for row in rows)
        yield Claim.counted(claim_id("formula", part), claim, right, num_networks)


def right_columns(field: str, label: str) -> tuple[Column, ...]:
    return tuple(Column(f"{field}.{part}", f"{name}, {label}") for part, name in NAMES.items())
