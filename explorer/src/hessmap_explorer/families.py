"""The kinds of networks whose ranks can be predicted: for each its fields, in one place.

The page makes its chips and sliders from these descriptions; a new family is a new entry of ``FAMILIES``.
"""

from __future__ import annotations

from typing import Any

from hessmap.errors import InvalidInput, sentence
from hessmap.networks import (
    ACTIVATIONS,
    Architecture,
    Convolutional,
    FullyConnected,
    ImageConvolutional,
    LocallyConnected,
    Polynomial,
    Residual,
    SelfAttention,
)
from hessmap_explorer.fields import Family, Field, Values

_ACTIVATION = Field("activation", "Activation", "choice", "identity", choices=tuple(ACTIVATIONS))
_BIAS = Field("bias", "Bias in every layer", "flag", False)
_DATA = ("loss", "input_rank", "residual_rank", "num_samples")
_ALL = (*_DATA, "centred_input_rank", "mean_residual_is_zero")


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


def _images(values: Values) -> Architecture:
    names = ("channels", "kernels", "strides", "outputs", "bias", "activation")
    return ImageConvolutional(values["side"], **{name: values[name] for name in names})


def _attention(values: Values) -> Architecture:
    outputs = values["outputs"] or None  # 0 is no projection
    flags = {name: values[name] for name in ("merged_query_key", "causal", "read")}
    key_width = None if values["merged_query_key"] else values["key_width"]
    return SelfAttention(
        values["width"], key_width, values["value_width"], heads=values["heads"], outputs=outputs, **flags
    )


def _residual(values: Values) -> Architecture:
    return Residual(
        values["width"],
        values["num_blocks"],
        inner_width=values["inner_width"] or None,  # 0 is none
        input_dim=values["input_dim"],
        output_dim=values["output_dim"],
        train_input=values["trained_input"],
        train_output=values["trained_output"],
        activation=values["activation"],
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
            _DATA,
        ),
        Family(
            "images",
            "Images",
            "Two-dimensional convolutions over square images, then one dense layer.",
            (
                Field("side", "Side of the image", "count", 8, high=32),
                Field("channels", "Channels", "counts", (1, 4), high=32),
                Field("kernels", "Kernels", "counts", (3,), high=7, per_layer_of="channels", fewer=1),
                Field("strides", "Strides", "counts", (1,), high=4, per_layer_of="channels", fewer=1),
                Field("outputs", "Outputs", "count", 10, high=32),
                _BIAS,
                _ACTIVATION,
            ),
            _images,
            _ALL,
        ),
        Family(
            "attention",
            "Self-attention",
            "Linear self-attention: of the tokens X, head by head, X Q Kᵀ Xᵀ X V, without softmax.",
            (
                Field("width", "Width of a token", "count", 16, high=64),
                Field("heads", "Heads", "count", 2, high=8),
                Field("key_width", "Keys of a head", "count", 4, high=32),
                Field("value_width", "Values of a head", "count", 4, high=32),
                Field("outputs", "Outputs, 0 for none", "count", 10, low=0, high=32),
                Field("read", "Tokens that are read", "choice", "all", choices=("all", "last")),
                Field("merged_query_key", "One matrix for Q Kᵀ", "flag", False),
                Field("causal", "Causal", "flag", False),
            ),
            _attention,
            ("loss", "input_rank", "num_samples", "num_tokens"),
        ),
        Family(
            "residual",
            "Residual",
            "Blocks x + W x, or x + U D x with an inner width.",
            (
                Field("width", "Width", "count", 8, high=64),
                Field("num_blocks", "Blocks", "count", 3, high=16),
                Field("inner_width", "Inner width, 0 for none", "count", 0, low=0, high=64),
                Field("input_dim", "Inputs", "count", None, high=64, generic="the width"),
                Field("output_dim", "Outputs", "count", None, high=64, generic="the width"),
                Field("trained_input", "Trained input layer", "flag", False),
                Field("trained_output", "Trained output layer", "flag", False),
                _ACTIVATION,
            ),
            _residual,
            _DATA,
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
