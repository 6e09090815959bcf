"""From what the caller knows of loss and data to a full, consistent set of integers."""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.errors import require
from hessmap.theory.conditions import checked_count
from hessmap.theory.fully_connected import linear, linear_with_bias
from hessmap.theory.losses_and_data.losses import effective_output_dim
from hessmap.theory.prediction import RankQuestion


@dataclass(frozen=True)
class DataFacts:
    """The integers that the formulas of fully connected networks take, and the notes on how they came about.

    ``input_rank`` is None where only the centred rank is known, which is all that a network with bias needs.
    ``entering_rank`` is the one of the two that enters the formulas: with bias the centred one.
    """

    input_rank: int | None
    centred_input_rank: int
    entering_rank: int
    residual_rank: int
    mean_residual_is_zero: bool
    effective_output_dim: int
    notes: tuple[str, ...]
    num_samples: int | None = None
    uncentred_residual_rank: int | None = None


def data_facts(input_dim: int, output_dim: int, bias: bool, question: RankQuestion) -> DataFacts:
    """The question's integers, the missing ones generic, all of them checked against each other.

    >>> facts = data_facts(5, 3, True, RankQuestion("cross_entropy", input_rank=4))
    >>> facts.centred_input_rank, facts.residual_rank, facts.effective_output_dim
    (4, 2, 2)
    """
    outputs = effective_output_dim(output_dim, question.loss)
    num_samples = question.num_samples
    if num_samples is not None:
        num_samples = checked_count("num_samples", num_samples, at_least=1)
    input_rank, centred_input_rank, input_notes = _input_ranks(input_dim, bias, question, num_samples)
    entering_rank = centred_input_rank if bias or input_rank is None else input_rank
    is_zero = question.mean_residual_is_zero
    if bias:
        largest = linear_with_bias.generic_residual_rank(centred_input_rank, outputs, mean_residual_is_zero=is_zero)
    else:
        largest = linear.generic_residual_rank(centred_input_rank if is_zero else entering_rank, outputs)
    residual_rank, residual_notes = _residual_rank(largest, question.residual_rank)
    notes = [*input_notes, *residual_notes]
    if is_zero:
        notes.append("the residuals sum to zero over the samples")
    if outputs < output_dim:
        notes.append("softmax probabilities strictly between 0 and 1")
    return DataFacts(
        input_rank,
        centred_input_rank,
        entering_rank,
        residual_rank,
        is_zero,
        outputs,
        tuple(notes),
        num_samples,
        question.uncentred_residual_rank,
    )


def _input_ranks(
    input_dim: int, bias: bool, question: RankQuestion, samples: int | None
) -> tuple[int | None, int, list[str]]:
    """Rank and centred rank of the inputs, and what had to be assumed of them."""
    rank = _checked_rank("input_rank", question.input_rank, input_dim)
    centred = _checked_rank("centred_input_rank", question.centred_input_rank, input_dim)
    if samples is not None:
        checked_count("input_rank", rank or 0, at_most=samples, why="the number of samples")
        checked_count("centred_input_rank", centred or 0, at_most=samples - 1, why="one less than the samples")
    if rank is None and centred is not None and bias:
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
    if bias or question.mean_residual_is_zero:
        notes.append(
            f"centred_input_rank is input_rank {rank}, as for more than {rank} samples in general position"
            " (it is one less if all inputs lie on a hyperplane that misses the origin)"
            if centred == rank
            else f"centred_input_rank is one less than the {samples} samples, as in general position"
        )
    return rank, centred, notes


def _checked_rank(name: str, value: int | None, input_dim: int) -> int | None:
    return None if value is None else checked_count(name, value, at_most=input_dim, why="the input dimension")


def _residual_rank(largest: int, given: int | None) -> tuple[int, list[str]]:
    if given is None:
        return largest, [f"residual_rank is the generic value {largest}"]
    why = "the largest for these inputs, outputs and this loss"
    return checked_count("residual_rank", given, at_most=largest, why=why), []
