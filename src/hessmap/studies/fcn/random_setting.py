"""Random deep linear networks on random data, drawn from the families in which the rank formulas differ."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hessmap.errors import unknown_name

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
        setting = _drawn(draw, family, inputs, residual, loss)
        if setting is not None and setting.num_parameters <= _MOST_PARAMETERS:
            is_deep = len(setting.widths) > 2
            if not is_deep or setting.has_bottleneck == family.endswith(", bottleneck"):
                return setting


def _drawn(draw: random.Random, family: str, inputs: str, residual: str, loss: str) -> Setting | None:
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
