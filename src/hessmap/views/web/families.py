"""The kinds of networks whose ranks can be predicted: for each its fields, in one place.

The page makes its chips and sliders from these descriptions; a new family is a new entry of ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hessmap.errors import InvalidInput, sentence
from hessmap.networks import ACTIVATIONS, Architecture, Convolutional, FullyConnected, LocallyConnected, Polynomial

FieldKind = Literal["count", "counts", "choice", "flag", "text"]
Values = Mapping[str, Any]
MOST_LAYERS = 32
MOST_UNITS = 100_000


@dataclass(frozen=True)
class Field:
    """One thing to choose. ``counts`` are one number for each layer, of which a chip adds or removes one.

    ``default`` is None where theory has a generic value of its own, which ``generic`` then says in words; ``low`` and
    ``high`` are the ends of a slider, not limits of what can be typed. ``per_layer_of`` names the counts that this one
    has as many entries as (fewer by ``fewer``).
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


_ACTIVATION = Field("activation", "Activation", "choice", "identity", choices=ACTIVATIONS)
_BIAS = Field("bias", "Bias in every layer", "flag", False)
_SAMPLES = "num_samples"
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
            generic="as the input rank",
            help="With a bias: rank of the covariance of the inputs.",
        ),
        Field(
            "residual_rank",
            "Residual rank",
            "count",
            None,
            low=0,
            generic="the largest possible",
            help="Rank of the sum of (dloss/doutput) xᵀ; with a bias, x with a 1 appended.",
        ),
        Field(_SAMPLES, "Samples", "count", None, high=2000, generic="enough", help="Bounds the ranks of the data."),
        Field("mean_residual_is_zero", "Mean residual is zero", "flag", False, help="With a bias: its gradient is 0."),
    )
}
_ALL = tuple(QUESTIONS)


def _fully_connected(values: Values) -> Architecture:
    return FullyConnected(values["widths"], bias=values["bias"], activation=values["activation"])


def _convolutional(values: Values) -> Architecture:
    return Convolutional(
        values["input_length"],
        values["channels"],
        values["kernels"],
        values["strides"],
        values["outputs"],
        values["bias"],
        values["activation"],
    )


def _locally_connected(values: Values) -> Architecture:
    names = ("patches", "patch_size", "filters", "outputs", "shared_weights", "activation")
    return LocallyConnected(**{name: values[name] for name in names})


def _teacher_student(values: Values) -> dict[str, Any]:
    """The arguments of ``theory.effective_parameters``."""
    if values["activation"] == "polynomial":
        activation: Any = Polynomial(_coefficients(values["coefficients"]))
    else:
        activation = values["activation"]
    chosen = {name: values[name] for name in ("inputs", "hidden", "bias", "num_extra", "extra")}
    return {**chosen, "activation": activation}


def _coefficients(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in str(text).split(","))
    except ValueError as error:
        must = "coefficients must be numbers with commas between, the constant first, as 0,1,1"
        raise InvalidInput(sentence(must, f"got {text!r:.80}")) from error


_PLACES_OF_BIAS = ("none", "hidden", "output", "both")
_TEACHERS = ("polynomial", "identity", "erf", "relu")
_EXTRA = ("zero", "split", "output_zero", "input_zero")
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "fully_connected",
            "Fully connected",
            "Linear layers from input to output, one activation after each hidden layer.",
            (Field("widths", "Widths", "counts", (64, 30, 20, 10), high=128), _BIAS, _ACTIVATION),
            _fully_connected,
            _ALL,
        ),
        Family(
            "convolutional",
            "Convolutional",
            "One-dimensional convolutions, then one dense layer.",
            (
                Field("input_length", "Input length", "count", 20, high=64),
                Field("channels", "Channels", "counts", (1, 8, 16), high=32),
                Field("kernels", "Kernels", "counts", (3, 3), high=9, per_layer_of="channels", fewer=1),
                Field("strides", "Strides", "counts", (1, 1), high=4, per_layer_of="channels", fewer=1),
                Field("outputs", "Outputs", "count", 10, high=32),
                _BIAS,
                _ACTIVATION,
            ),
            _convolutional,
            _ALL,
        ),
        Family(
            "locally_connected",
            "Locally connected",
            "Filters on disjoint patches, their own or shared, then one dense layer.",
            (
                Field("patches", "Patches", "count", 5, high=20),
                Field("patch_size", "Inputs of a patch", "count", 4, high=20),
                Field("filters", "Filters", "count", 3, high=20),
                Field("outputs", "Outputs", "count", 10, high=32),
                Field("shared_weights", "Shared weights", "flag", False),
                _ACTIVATION,
            ),
            _locally_connected,
            tuple(name for name in _ALL if name not in ("centred_input_rank", "mean_residual_is_zero")),
        ),
        Family(
            "teacher_student",
            "Teacher-student",
            "A student at its teacher's function, on Gaussian inputs: the rank is the effective number of parameters.",
            (
                Field("inputs", "Inputs", "count", 5, high=20),
                Field("hidden", "Hidden units of the teacher", "count", 3, high=30),
                Field(
                    "activation",
                    "Activation",
                    "choice",
                    "polynomial",
                    choices=("polynomial", "identity", "erf", "relu"),
                ),
                Field("coefficients", "Coefficients", "text", "0,1,1", help="Of the polynomial, the constant first."),
                Field("bias", "Bias", "choice", "none", choices=_PLACES_OF_BIAS),
                Field("num_extra", "Extra units of the student", "count", 0, low=0, high=10),
                Field("extra", "What extra units do", "choice", "zero", choices=_EXTRA),
            ),
            _teacher_student,
            (),
            is_teacher=True,
        ),
    )
}
