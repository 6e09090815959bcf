"""What the Predict screen asks for, as data: fields of a kind of network, and questions about loss and data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

FieldKind = Literal["count", "counts", "choice", "flag", "text"]
Values = Mapping[str, Any]


def is_count(text: str) -> bool:
    """Whether a text from outside is a whole number of at most nine ordinary digits.

    >>> is_count("12"), is_count("-1"), is_count("\u00b2"), is_count("9" * 5000)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= 9


@dataclass(frozen=True)
class Field:
    """One thing to choose. ``counts`` are one number for each layer, of which a chip adds or removes one.

    ``default`` is None where theory has a generic value of its own, which ``generic`` then says in words; ``low`` and
    ``high`` are the ends of a slider, not limits of what can be typed. ``per_layer_of`` names the counts that this one
    has as many entries as (fewer by ``fewer``); ``needs`` names the flag without which it means nothing.
    """

    name: str
    label: str
    kind: FieldKind
    default: Any
    low: int = 1
    high: int = 100
    choices: tuple[str, ...] = ()
    generic: str = ""
    help: str = ""
    per_layer_of: str = ""
    fewer: int = 0
    needs: str = ""


@dataclass(frozen=True)
class Family:
    """A kind of network. ``asks`` says which of the questions about loss and data (``QUESTIONS``) it takes."""

    name: str
    label: str
    help: str
    fields: tuple[Field, ...]
    network: Callable[[Values], Any]
    asks: tuple[str, ...]
    is_teacher: bool = False

    def described(self) -> dict[str, Any]:
        """For the page: everything but the function."""
        fields = [asdict(field) for field in self.fields]
        return {"name": self.name, "label": self.label, "help": self.help, "fields": fields, "asks": self.asks}


QUESTIONS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("loss", "Loss", "choice", "squared", choices=("squared", "cross_entropy", "log_cosh")),
        Field("input_rank", "Input rank", "count", None, generic="all inputs", help="Rank of the sum of x xᵀ."),
        Field(
            "centred_input_rank",
            "Centred input rank",
            "count",
            None,
            generic="as inputs",
            help="Rank of the covariance of the inputs.",
            needs="bias",
        ),
        Field(
            "residual_rank",
            "Residual rank",
            "count",
            None,
            low=0,
            generic="largest",
            help="Rank of the sum of (dloss/doutput) xᵀ; with a bias, x with a 1 appended.",
        ),
        Field(
            "num_samples", "Samples", "count", None, high=2000, generic="enough", help="Bounds the ranks of the data."
        ),
        Field("num_tokens", "Tokens", "count", None, high=64, generic="enough", help="Of a sample, for attention."),
        Field(
            "mean_residual_is_zero",
            "Mean residual is zero",
            "flag",
            False,
            help="The gradient of the last bias is 0.",
            needs="bias",
        ),
    )
}
