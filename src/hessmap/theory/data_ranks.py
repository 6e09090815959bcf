"""What rank formulas require of data and loss: integers, completed with generic values and checked against each other.

Only ranks enter a formula: that of the inputs, of the centred inputs and of the residual moments, and the number of
output directions in which the loss curves. ``RankQuestion`` holds what a caller specifies, ``RankInputs`` the complete
and consistent integers that the formulas use.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from hessmap.errors import (
    InvalidInput,
    integer_or_none,
    require,
    require_name,
    sentence,
    short_text,
    unknown_name,
)
from hessmap.records import ClaimKind

KINDS: tuple[str, ...] = get_args(ClaimKind)

# Output directions in which the loss never curves.
_FLAT_OUTPUT_DIRECTIONS = {"squared": 0, "log_cosh": 0, "positive_definite": 0, "cross_entropy": 1}

LOSSES: tuple[str, ...] = tuple(_FLAT_OUTPUT_DIRECTIONS)


class Widths(tuple[int, ...]):
    """Validated widths, so that one formula can call another without validating them again."""

    __slots__ = ()


def checked_widths(widths: Iterable[int]) -> Widths:
    """The widths as plain integers, input first and output last, each at least 1.

    >>> checked_widths([64, 30, 10])
    (64, 30, 10)
    """
    if isinstance(widths, Widths):
        return widths
    must = "widths must be integers of at least 1, input first and output last"
    try:
        checked = Widths(map(operator.index, widths))
    except TypeError:
        raise InvalidInput(sentence(must, f"got {short_text(widths)}")) from None
    require(len(checked) >= 2, "widths must contain an input and an output", f"got {checked}")
    if min(checked) < 1:
        position = next(index for index, width in enumerate(checked) if width < 1)
        raise InvalidInput(sentence(must, f"widths[{position}] is {checked[position]}"))
    return checked


def checked_count(name: str, value: int, at_least: int = 0, at_most: int | None = None, why: str = "") -> int:
    """An integer between two bounds; ``why`` names the upper one.

    >>> checked_count("input_rank", 3, at_most=4, why="the input dimension")
    3
    """
    count = operator.index(value) if isinstance(value, bool) else integer_or_none(value)
    if count is None:
        raise InvalidInput(sentence(f"{name} must be an integer", f"got {short_text(value)}"))
    require(count >= at_least, f"{name} must be at least {at_least}", f"got {count}")
    if at_most is not None:
        require(count <= at_most, f"{name} must be at most {at_most}, {why}", f"got {count}")
    return count


def checked_output(widths: Widths, effective_output_dim: int | None) -> int:
    """The output directions in which the loss curves: all of them by default.

    >>> checked_output(checked_widths((4, 3)), None), checked_output(checked_widths((4, 3)), 2)
    (3, 2)
    """
    if effective_output_dim is None:
        return widths[-1]
    return checked_count("effective_output_dim", effective_output_dim, at_most=widths[-1], why="the output dimension")


def checked_input_rank(input_dim: int, input_rank: int, name: str = "input_rank") -> int:
    return checked_count(name, input_rank, at_most=input_dim, why="the input dimension")


def checked_residual_rank(residual_rank: int, at_most: int, why: str) -> int:
    return checked_count("residual_rank", residual_rank, at_most=at_most, why=why)


def effective_output_dim(output_dim: int, loss: str = "squared") -> int:
    """Rank formulas use K outputs, or K - 1 under softmax cross-entropy.

    Args:
        output_dim: Number of outputs K of the network.
        loss: "squared", "log_cosh", "cross_entropy" (softmax), or "positive_definite" for any other loss whose second
            derivative with respect to the outputs is positive definite at every sample, such as binary cross-entropy
            per output. Defaults to "squared".

    Returns:
        K; K - 1 for "cross_entropy", which does not change when all logits of a sample are shifted together.

    Raises:
        InvalidInput: If the loss is unknown or ``output_dim`` is less than 1.

    Notes:
        Assumptions: softmax probabilities strictly between 0 and 1; the last layer is linear. The number of parameters
        keeps K: only ranks use K - 1.

        Reference: Singh, Bachmann & Hofmann 2021, S9.1.2 (cross-entropy) and S9.1.3 (cosh).

    Example:
        >>> effective_output_dim(10, "log_cosh"), effective_output_dim(10, "cross_entropy")
        (10, 9)
    """
    require_name("loss", loss, LOSSES)
    return checked_count("output_dim", output_dim, at_least=1) - _FLAT_OUTPUT_DIRECTIONS[loss]


def outer_product_sample_upper_bound(num_samples: int, effective_output_dim: int) -> int:
    """The outer-product Hessian of any network has rank at most N K.

    Args:
        num_samples: Number of samples N.
        effective_output_dim: Number of output directions K in which the loss curves.

    Returns:
        N K.

    Raises:
        InvalidInput: If an argument is not an integer of at least 0.

    Notes:
        Theorem without assumptions: the Hessian is a sum of N terms J^T (d2 loss / d outputs^2) J, each of rank at
        most K (K - 1 under cross-entropy).

        Reference: Jacot, Gabriel & Hongler 2019, discussed in Singh, Bachmann & Hofmann 2021, Section 5.3.

    Example:
        >>> outer_product_sample_upper_bound(num_samples=300, effective_output_dim=10)
        3000
    """
    samples = checked_count("num_samples", num_samples)
    return samples * checked_count("effective_output_dim", effective_output_dim)


def generic_residual_rank(
    input_rank: int, effective_output_dim: int, *, has_bias: bool = False, mean_residual_is_zero: bool = False
) -> int:
    """A residual in general position has the largest possible rank: min(r, K), with bias min(rc + 1, K).

    Args:
        input_rank: Rank r of the inputs; the centred rank rc with bias, or if the residuals sum to zero.
        effective_output_dim: Number of output directions K in which the loss curves.
        has_bias: Whether a constant one is appended to the inputs. Defaults to False.
        mean_residual_is_zero: Whether the residuals sum to zero over the samples, so that the constant adds nothing.
            Defaults to False.

    Returns:
        The rank of sum residual x^T, with bias that of sum residual (x, 1)^T.

    Example:
        >>> generic_residual_rank(61, effective_output_dim=10), generic_residual_rank(3, 5, has_bias=True)
        (10, 4)
    """
    return min(input_rank + (has_bias and not mean_residual_is_zero), effective_output_dim)


@dataclass(frozen=True)
class RankQuestion:
    """What a caller specifies about loss and data; ``None`` stands for the generic value.

    Args:
        loss: Name of the loss, one of ``LOSSES``. Defaults to "squared".
        input_rank: Rank of sum x x^T.
        residual_rank: Rank of sum residual x^T; with bias, x with a one appended.
        centred_input_rank: Rank of the centred inputs.
        mean_residual_is_zero: Whether the residuals sum to zero over the samples. Defaults to False.
        kind: Kind of result to give, one of ``KINDS``. Defaults to the strongest claim.
        num_samples: Number of samples.
        uncentred_residual_rank: For a bias in some layers: rank of sum residual x^T without the one.
        num_tokens: For self-attention: tokens of a sample.

    Raises:
        InvalidInput: If ``loss`` or ``kind`` is unknown or ``mean_residual_is_zero`` is not a bool.
    """

    loss: str = "squared"
    input_rank: int | None = None
    residual_rank: int | None = None
    centred_input_rank: int | None = None
    mean_residual_is_zero: bool = False
    kind: ClaimKind | None = None
    num_samples: int | None = None
    uncentred_residual_rank: int | None = None
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        require_name("loss", self.loss, LOSSES)
        if self.kind is not None and self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        is_bool = isinstance(self.mean_residual_is_zero, bool)
        require(is_bool, "mean_residual_is_zero must be True or False", f"got {self.mean_residual_is_zero!r}")


@dataclass(frozen=True)
class RankInputs:
    """The integers of data and loss that rank formulas use, complete and consistent.

    Attributes:
        input_rank: Rank r of sum x x^T; None where only the centred rank is known, which suffices with bias.
        centred_input_rank: Rank rc of the centred inputs: r or r - 1.
        residual_rank: Rank of sum residual x^T (s); with bias, x with a one appended (t).
        effective_output_dim: Number of output directions K in which the loss curves.
        mean_residual_is_zero: Whether the residuals sum to zero over the samples.
        uncentred_residual_rank: With bias: rank s of sum residual x^T without the one.
        has_bias: Whether the formulas use the centred input rank.
        num_samples: Number of samples, None if not known.
        notes: The generic values that were assumed.
    """

    input_rank: int | None
    centred_input_rank: int
    residual_rank: int
    effective_output_dim: int
    mean_residual_is_zero: bool = False
    uncentred_residual_rank: int | None = None
    has_bias: bool = False
    num_samples: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def entering_rank(self) -> int:
        """The input rank that enters the formulas: the centred one with bias."""
        return self.centred_input_rank if self.has_bias or self.input_rank is None else self.input_rank


def data_ranks(input_dim: int, output_dim: int, has_bias: bool, question: RankQuestion) -> RankInputs:
    """The integers of a question, missing ones generic, all of them checked against each other.

    >>> data = data_ranks(5, 3, True, RankQuestion("cross_entropy", input_rank=4))
    >>> data.centred_input_rank, data.residual_rank, data.effective_output_dim
    (4, 2, 2)
    """
    outputs = effective_output_dim(output_dim, question.loss)
    num_samples = question.num_samples
    if num_samples is not None:
        num_samples = checked_count("num_samples", num_samples, at_least=1)
    input_rank, centred, notes = _input_ranks(input_dim, has_bias, question, num_samples)
    is_zero = question.mean_residual_is_zero
    rank = centred if has_bias or is_zero or input_rank is None else input_rank
    largest = generic_residual_rank(rank, outputs, has_bias=has_bias, mean_residual_is_zero=is_zero)
    if question.residual_rank is None:
        residual_rank = largest
        notes.append(f"residual_rank is the generic value {largest}")
    else:
        why = "the largest for these inputs, outputs and this loss"
        residual_rank = checked_residual_rank(question.residual_rank, largest, why)
    if is_zero:
        notes.append("the residuals sum to zero over the samples")
    if outputs < output_dim:
        notes.append("softmax probabilities strictly between 0 and 1")
    return RankInputs(
        input_rank,
        centred,
        residual_rank,
        outputs,
        is_zero,
        question.uncentred_residual_rank,
        has_bias,
        num_samples,
        tuple(notes),
    )


def _input_ranks(
    input_dim: int, has_bias: bool, question: RankQuestion, samples: int | None
) -> tuple[int | None, int, list[str]]:
    """Rank and centred rank of the inputs, and the generic values that were assumed."""
    rank, centred = question.input_rank, question.centred_input_rank
    if rank is not None:
        rank = checked_input_rank(input_dim, rank)
    if centred is not None:
        centred = checked_input_rank(input_dim, centred, "centred_input_rank")
    if samples is not None:
        checked_count("input_rank", rank or 0, at_most=samples, why="the number of samples")
        checked_count("centred_input_rank", centred or 0, at_most=samples - 1, why="the number of samples minus one")
    if rank is None and centred is not None and has_bias:
        return None, centred, []
    notes = []
    if rank is None:
        rank = input_dim if samples is None else min(input_dim, samples)
        notes.append(
            f"input_rank is the input dimension {rank}, as for {rank} or more samples in general position"
            if rank == input_dim
            else f"input_rank is the number of samples {rank}, as in general position"
        )
    if centred is not None:
        must, remedy = "input_rank must be centred_input_rank or one more", "Give both as measured"
        require(centred <= rank <= centred + 1, must, f"input_rank is {rank}, centred_input_rank {centred}", remedy)
        return rank, centred, notes
    centred = rank if samples is None else min(rank, samples - 1)
    if has_bias or question.mean_residual_is_zero:
        notes.append(
            f"centred_input_rank is input_rank {rank}, as for more than {rank} samples in general position"
            " (it is one less if all inputs lie on a hyperplane that misses the origin)"
            if centred == rank
            else f"centred_input_rank is one less than the {samples} samples, as in general position"
        )
    return rank, centred, notes
