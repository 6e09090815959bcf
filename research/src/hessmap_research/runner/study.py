"""A study: a question with a name, a grid of cases, a function from case to record, a view, and claims."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hessmap.errors import DataFileError, HessmapError, InvalidInput, require, sentence, unknown_name
from hessmap_research.runner.claims import Answer, Check, Claim, StudyOutcome, study_outcome
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import View

Case = Mapping[str, Any]
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)+")


def grid(**axes: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the values, the last axis running fastest.

    >>> grid(width=[2, 3], seed=range(2))[1:3]
    ({'width': 2, 'seed': 1}, {'width': 3, 'seed': 0})
    """
    return tuple(dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


@dataclass(frozen=True, eq=False)
class Study:
    """One question that a computer can answer case by case.

    ``cases`` is a grid, or a function from the name of a data set to one; ``measure`` makes the record of a case and
    runs in a process of its own. ``data`` names the data sets of `hessmap.datasets` that the study can use, its
    default first; the chosen one stands in each case under ``"data"``. ``seconds`` predicts the time of a case on
    one core, ``threads`` is how many cores a case wants. ``answered`` is the answer, for as long as the records say
    what they said when it was written. ``families`` gathers claims that say the same of different cases where they are
    shown: first words of their ids -> what they say. Raise ``version`` when the meaning of a record changes: stored
    records of other versions are kept, and not used.
    """

    name: str
    question: str
    reference: str
    cases: Sequence[Case] | Callable[[str], Sequence[Case]]
    measure: Callable[[Case], Mapping[str, Any]]
    view: View
    checks: tuple[Check, ...] = ()
    claims: Callable[[Sequence[Row]], Iterable[Claim]] | None = None
    data: tuple[str, ...] = ()
    seconds: float | Callable[[Case], float] = 1.0
    threads: int = 1
    version: int = 1
    answered: Answer | None = None
    families: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        must = "the name of a study must be family/question in small letters, digits and hyphens"
        require(_NAME.fullmatch(self.name) is not None, must, f"got {self.name!r}")
        require(self.version >= 1, "the version of a study must be at least 1", f"got {self.version}")
        require(self.threads >= 1, "the threads of a study must be at least 1", f"got {self.threads}")

    def data_choice(self, wanted: str | None) -> str:
        """The data set to use: the wanted one if the study can use it, its default, or "" where it uses none."""
        if wanted is None:
            return self.data[0] if self.data else ""
        if not self.data:
            raise InvalidInput(sentence(f"study {self.name} uses no data", f"got data {wanted!r}", "Leave it out"))
        if wanted not in self.data:
            raise unknown_name(f"data of study {self.name}", wanted, self.data)
        return wanted

    def cases_on(self, data: str) -> tuple[dict[str, Any], ...]:
        """The cases on a data set, in the order in which they are run and listed."""
        cases = self.cases(data) if callable(self.cases) else self.cases
        must = f"the cases of study {self.name} must be a sequence of dictionaries"
        is_sequence = isinstance(cases, Sequence)
        require(is_sequence and all(isinstance(case, Mapping) for case in cases), must, f"got {cases!r:.80}")
        return tuple({"data": data, **case} if data else dict(case) for case in cases)

    def seconds_of(self, case: Case) -> float:
        """The predicted seconds of a case on one core."""
        seconds = self.seconds(case) if callable(self.seconds) else self.seconds
        is_number = isinstance(seconds, int | float) and math.isfinite(seconds)
        require(is_number, f"the seconds of a case of study {self.name} must be a number", f"got {seconds!r}")
        return float(seconds)

    def outcome(self, rows: Sequence[Row], num_failed: int = 0) -> StudyOutcome:
        """How far these rows agree with what was predicted, and which claims hold."""
        try:
            claims = tuple(self.claims(rows)) if self.claims and rows else ()
            return study_outcome(self.name, self.checks, rows, claims, num_failed)
        except HessmapError:
            raise
        except Exception as error:  # values of other types and shapes, or a mistake in the study's own lines
            must = f"the records of study {self.name} must contain what its checks and claims read"
            got = f"{type(error).__name__}: {error}"
            remedy = f"hessmap study run {self.name} --again recomputes them"
            raise DataFileError(sentence(must, got, remedy)) from error

    def answer(self, outcome: StudyOutcome) -> str:
        """The question answered in a sentence: that of the study while the outcomes are those it was written for.

        Otherwise in a word: yes, no, it depends, or open; questions that begin with how, what, which or why are
        answered by how many of the claims hold.
        """
        if self.answered is not None and self.answered.fits(outcome):
            return self.answered.sentence
        claims = outcome.claims
        some_hold = outcome.num_agree > 0 or any(claim.holds for claim in claims)
        is_open = bool(claims) and all(claim.holds is None for claim in claims)
        if not outcome.fails and (is_open or not some_hold):
            return "Open."
        is_yes_or_no = self.question.split(" ", 1)[0] in ("Do", "Does", "Is", "Are")
        if outcome.fails and some_hold:
            return "It depends." if is_yes_or_no else "Some of what is claimed holds, some does not."
        if outcome.fails:
            return "No." if is_yes_or_no else "Nothing of what is claimed holds."
        num_decided = sum(claim.holds is not None for claim in claims)
        if 2 * num_decided < len(claims) and not outcome.num_agree:
            return f"Mostly open: {num_decided} of {len(claims)} claims are decided, and hold."
        if num_decided < len(claims):
            return "Yes as far as it is decided." if is_yes_or_no else "All that is decided holds."
        return "Yes." if is_yes_or_no else "All that is claimed holds."
