"""The verdict of a study: which cases agree with the prediction, which do not, and which cannot be decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hessmap.errors import unknown_name
from hessmap.results import Record
from hessmap.runs.row import Row

Relation = Literal["by_kind", "equal", "at_most", "at_least", "close"]
_BY_KIND: dict[str, Relation] = {
    "exact": "equal",
    "conjectured value": "equal",
    "upper_bound": "at_most",
    "conjectured bound": "at_most",
    "numerical": "close",
}


@dataclass(frozen=True)
class Check:
    """What must hold between a measured and a predicted value of a record (names, or a number for the prediction).

    "by_kind" follows the kind of a predicted rank: exact values must be equal, upper bounds at least the measurement,
    numerical ones close, conjectures as they claim; a plain number must be equal. "close" means within ``tolerance``
    relative to the prediction. A measurement that says it is not ``decidable`` is listed with its gap and counts
    neither way.
    """

    measured: str
    predicted: str | float
    relation: Relation = "by_kind"
    tolerance: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.measured, self.predicted) if isinstance(self.predicted, str) else (self.measured,)

    def judge(self, row: Row) -> Judgement:
        measured = row.number(self.measured)
        predicted = row.number(self.predicted) if isinstance(self.predicted, str) else float(self.predicted)
        source, kind = row[self.measured], self._kind(row)
        is_decidable = not (isinstance(source, Mapping) and source.get("decidable") is False)
        gap = float(source["gap"]) if isinstance(source, Mapping) and "gap" in source else None
        relation = self.relation if self.relation != "by_kind" else _BY_KIND[kind]
        holds = self._holds(measured, predicted, relation)
        outcome: Outcome = ("agrees" if holds else "disagrees") if is_decidable else "undecidable"
        is_conjecture = kind.startswith("conjecture")
        return Judgement(dict(row.case), self.measured, outcome, measured, predicted, gap, is_conjecture)

    def _kind(self, row: Row) -> str:
        """The kind of truth of the prediction; a conjecture is one of a value or of a bound."""
        source = row[self.predicted] if isinstance(self.predicted, str) else None
        if not isinstance(source, Mapping) or "kind" not in source:
            return "exact"
        return f"conjectured {source['conjectured']}" if source["kind"] == "conjecture" else str(source["kind"])

    def _holds(self, measured: float, predicted: float, relation: Relation) -> bool:
        if relation == "at_most":
            return measured <= predicted
        if relation == "at_least":
            return measured >= predicted
        slack = self.tolerance * abs(predicted) if relation == "close" else 0.0
        return abs(measured - predicted) <= slack


Outcome = Literal["agrees", "disagrees", "undecidable"]


@dataclass(frozen=True, eq=False, repr=False)
class Judgement(Record):
    """One check of one case; what disagrees with a conjecture is a counterexample of it."""

    case: dict[str, Any]
    measured_name: str
    outcome: Outcome
    measured: float
    predicted: float
    gap: float | None = None
    is_conjecture: bool = False

    @property
    def word(self) -> str:
        """The outcome in words."""
        is_counterexample = self.is_conjecture and self.outcome == "disagrees"
        return "counterexample of a conjecture" if is_counterexample else self.outcome


@dataclass(frozen=True, eq=False, repr=False)
class Finding(Record):
    """A claim about all cases together (a trend, a correlation): whether it holds, and the numbers that say so.

    ``holds`` is None where the records do not decide it: curves that end too early, differences within the spread of
    the seeds, one training where several are needed.
    """

    claim: str
    holds: bool | None
    detail: str = ""

    @property
    def outcome(self) -> Literal["holds", "does not hold", "inconclusive"]:
        if self.holds is None:
            return "inconclusive"
        return "holds" if self.holds else "does not hold"


@dataclass(frozen=True)
class Answer:
    """The answer of a study in one sentence, and the outcomes for which it was written, as `Verdict.outcomes` has them.

    Where the outcomes are others the sentence is not shown.
    """

    sentence: str
    outcomes: str


_SIGNS: dict[bool | None, str] = {True: "+", False: "-", None: "?"}
_MOST_NAMED = 3  # claims in a sentence


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Record):
    """A case agrees when all its checks do, disagrees when one does not, and is undecidable otherwise."""

    study: str
    num_cases: int
    num_agree: int
    num_disagree: int
    num_undecidable: int
    num_failed: int
    disagreements: tuple[Judgement, ...] = ()
    undecidable: tuple[Judgement, ...] = ()
    findings: tuple[Finding, ...] = ()
    summary_fields: ClassVar[tuple[str, ...]] = (
        "study",
        "num_cases",
        "num_agree",
        "num_disagree",
        "num_undecidable",
        "num_failed",
    )

    @property
    def holds(self) -> bool:
        """There is something judged, and nothing of it speaks against the prediction."""
        is_judged = self.num_agree > 0 or any(finding.holds for finding in self.findings)
        return is_judged and not self.fails

    @property
    def fails(self) -> bool:
        """Something speaks against the prediction."""
        return self.num_disagree > 0 or bool(self.failing)

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The claims that do not hold."""
        return tuple(finding for finding in self.findings if finding.holds is False)

    @property
    def outcomes(self) -> str:
        """A sign for all cases, a bar, and a sign for each claim: + holds, - does not, ? is not decided.

        No sign stands before the bar where no case is judged by itself: "+|++-" has cases and three claims, "|+" one
        claim and no cases.
        """
        claims = "".join(_SIGNS[finding.holds] for finding in self.findings)
        if not self.num_agree + self.num_disagree + self.num_undecidable:
            return f"|{claims}"
        return f"{'-' if self.num_disagree else '?' if self.num_undecidable else '+'}|{claims}"

    @property
    def against(self) -> str:
        """The claims that do not hold, by name; the first of many, and "" where there are none."""
        names = [finding.claim for finding in self.failing]
        more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"Does not hold: {'; '.join(names[:_MOST_NAMED])}{more}." if names else ""

    @property
    def sentence(self) -> str:
        if not self.num_cases and not self.num_failed:
            return "No case has been run."
        num_judged = self.num_agree + self.num_disagree + self.num_undecidable
        counts = {"disagree": self.num_disagree, "undecidable": self.num_undecidable, "failed": self.num_failed}
        parts = [f"{self.num_agree} of {num_judged} cases agree with the prediction"] if num_judged else []
        parts += [f"{number} {what}" for what, number in counts.items() if number]
        counterexamples = sum(judgement.is_conjecture for judgement in self.disagreements)
        if counterexamples:
            parts.append(f"{counterexamples} {'ranks are' if counterexamples > 1 else 'rank is'} against a conjecture")
        if self.findings:
            outcomes = [finding.outcome for finding in self.findings]
            parts.append(f"{outcomes.count('holds')} of {len(outcomes)} claims hold")
            num_open = outcomes.count("inconclusive")
            parts += [f"{num_open} {'is' if num_open == 1 else 'are'} inconclusive"] if num_open else []
        return ", ".join(parts or [f"{self.num_cases} cases recorded, nothing to compare"]) + "."


def verdict_on(
    study: str, checks: Sequence[Check], rows: Sequence[Row], findings: tuple[Finding, ...], num_failed: int
) -> Verdict:
    """The verdict on rows under checks; a row that lacks the names of a check is not judged by it."""
    for check in checks:
        for name in check.names:
            if rows and not any(name in row for row in rows):
                raise unknown_name("a name of a check", name, rows[0].names())
    by_case = [[check.judge(row) for check in checks if all(name in row for name in check.names)] for row in rows]
    outcomes = [_case_outcome(judgements) for judgements in by_case if judgements]
    every = [judgement for judgements in by_case for judgement in judgements]
    return Verdict(
        study=study,
        num_cases=len(rows),
        num_agree=outcomes.count("agrees"),
        num_disagree=outcomes.count("disagrees"),
        num_undecidable=outcomes.count("undecidable"),
        num_failed=num_failed,
        disagreements=tuple(judgement for judgement in every if judgement.outcome == "disagrees"),
        undecidable=tuple(judgement for judgement in every if judgement.outcome == "undecidable"),
        findings=findings,
    )


def _case_outcome(judgements: Sequence[Judgement]) -> Outcome:
    outcomes = {judgement.outcome for judgement in judgements}
    if "disagrees" in outcomes:
        return "disagrees"
    return "undecidable" if "undecidable" in outcomes else "agrees"
