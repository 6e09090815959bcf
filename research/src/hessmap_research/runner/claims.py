"""What a study claims and what comes of it: checks of single cases, claims about all of them, and their outcomes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, TypeVar

from hessmap.errors import InvalidInput, require, sentence, unknown_name
from hessmap.records import Record
from hessmap_research.runner.row import Row

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
    """What must contain between a measured and a predicted value of a record (names, or a number for the prediction).

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

    def judge(self, row: Row) -> CaseOutcome:
        measured = row.number(self.measured)
        predicted = row.number(self.predicted) if isinstance(self.predicted, str) else float(self.predicted)
        source, kind = row[self.measured], self._kind(row)
        is_decidable = not (isinstance(source, Mapping) and source.get("decidable") is False)
        gap = float(source["gap"]) if isinstance(source, Mapping) and "gap" in source else None
        relation = self.relation if self.relation != "by_kind" else _BY_KIND[kind]
        holds = self._holds(measured, predicted, relation)
        outcome: Agreement = ("agrees" if holds else "disagrees") if is_decidable else "undecidable"
        is_conjecture = kind.startswith("conjecture")
        return CaseOutcome(dict(row.case), self.measured, outcome, measured, predicted, gap, is_conjecture)

    def _kind(self, row: Row) -> str:
        """The kind of the prediction; a conjecture is one of a value or of a bound."""
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


Agreement = Literal["agrees", "disagrees", "undecidable"]
ClaimOutcome = Literal["holds", "does not hold", "inconclusive"]
Needs = Literal["every", "some", "not every", "agreement"]
FEWEST = 3  # trainings that decide a claim about all of them
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MOST_CLAIMS = 12  # that are shown unless all are asked for
_MOST_NAMED = 3  # claims in a sentence
_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False, repr=False)
class CaseOutcome(Record):
    """One check of one case; what disagrees with a conjecture is a counterexample of it."""

    case: dict[str, Any]
    measured_name: str
    outcome: Agreement
    measured: float
    predicted: float
    gap: float | None = None
    is_conjecture: bool = False

    @property
    def word(self) -> str:
        """The outcome in words."""
        is_counterexample = self.is_conjecture and self.outcome == "disagrees"
        return "counterexample of a conjecture" if is_counterexample else self.outcome


def claim_id(*parts: object) -> str:
    """The id of one claim of a family: its name, and the fields of the case that tell the claim from the others.

    >>> claim_id("peak", "F-200^2", "fashion_mnist", None, 0.5)
    'peak-f-200-2-fashion-mnist-0-5'
    """
    words = (re.sub(r"[^a-z0-9]+", "-", str(part).lower()).strip("-") for part in parts if part is not None)
    return "-".join(word for word in words if word)


@dataclass(frozen=True, eq=False, repr=False)
class Claim(Record):
    """A claim about all cases together (a trend, a correlation), and whether it holds.

    Attributes:
        id: Name of the claim, unique in its study: small letters and digits with hyphens. The registry of the papers,
            answers and tests refer to a claim by its id; the sentence may be reworded.
        sentence: What is claimed.
        holds: None where the records do not decide it: curves that end too early, differences within the spread of
            the seeds, one training where several are needed.
        detail: The numbers that decide it.
        right: Number of cases, networks or pairs for which the claim is right, where it is a matter of counting.
        total: Number that were looked at. A claim about none is not listed.
    """

    id: str
    sentence: str
    holds: bool | None
    detail: str = ""
    right: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        must = "the id of a claim must be small letters and digits with hyphens between them"
        require(_ID.fullmatch(self.id) is not None, must, f"got {self.id!r}")

    @property
    def outcome(self) -> ClaimOutcome:
        if self.holds is None:
            return "inconclusive"
        return "holds" if self.holds else "does not hold"

    @classmethod
    def counted(
        cls,
        id: str,
        sentence: str,
        right: int,
        total: int,
        detail: str = "{right:,} of {total:,}",
        needs: Needs = "every",
    ) -> Self:
        """A claim that is decided by counting.

        Args:
            id: Name of the claim.
            sentence: What is claimed.
            right: Number for which the claim is right.
            total: Number that were looked at.
            detail: Text, in which ``{right}``, ``{wrong}`` and ``{total}`` stand for the counts.
            needs: "every", "some" or "not every" of them; or "agreement": decided where at least three were looked at
                and all are right or all are wrong, as for trainings with different seeds.

        Example:
            >>> claim = Claim.counted("theorem-1", "The formula is right", 2999, 3000)
            >>> claim.outcome, claim.detail
            ('does not hold', '2,999 of 3,000')
        """
        decided: dict[Needs, bool | None] = {
            "every": right == total,
            "some": right > 0,
            "not every": right < total,
            "agreement": right > 0 if total >= FEWEST and right in (0, total) else None,
        }
        said = detail.format(right=right, wrong=total - right, total=total)
        return cls(id, sentence, decided[needs], said, int(right), total)

    @classmethod
    def about(
        cls,
        id: str,
        sentence: str,
        items: Sequence[_Item],
        is_right: Callable[[_Item], Any],
        detail: str = "in {right:,} of {total:,} cases",
        needs: Needs = "every",
        said: Callable[[_Item], str] | None = None,
    ) -> Self:
        """A claim about each of some rows, pairs or numbers; ``said`` follows the detail with a text of each item.

        Args:
            id: Name of the claim.
            sentence: What is claimed.
            items: What it is about.
            is_right: Whether it is right for one of them.
            detail: Text with the counts, as for ``counted``.
            needs: How many have to be right, as for ``counted``.
            said: Text of an item; the different ones are listed behind the detail.

        Example:
            >>> Claim.about("positive", "All are positive", [1, 2], lambda item: item > 0, "", said=str).detail
            '1, 2'
        """
        listed = ", ".join(dict.fromkeys(map(said, items))) if said else ""
        text = detail + listed.replace("{", "{{").replace("}", "}}")
        return cls.counted(id, sentence, sum(bool(is_right(item)) for item in items), len(items), text, needs)

    @classmethod
    def paired(
        cls,
        id: str,
        sentence: str,
        pairs: Sequence[tuple[float, float]],
        is_right: Callable[[float, float], bool],
        spec: str = ".3f",
    ) -> Self:
        """A claim that a relation holds between the two values of every pair (of one seed, or of one network).

        Three pairs that agree are no proof; fewer of them, or pairs that differ, do not even decide the direction.

        Example:
            >>> from operator import lt
            >>> Claim.paired("larger", "b is larger", [(1, 2), (1, 3), (2, 3)], lt, "g").detail
            '3 of 3: 1 and 2, 1 and 3, 2 and 3'
            >>> Claim.paired("larger", "b is larger", [(1, 2), (1, 3), (3, 2)], lt).outcome
            'inconclusive'
        """
        values = ", ".join(f"{first:{spec}} and {second:{spec}}" for first, second in pairs)
        right = sum(is_right(*pair) for pair in pairs)
        return cls.counted(id, sentence, right, len(pairs), f"{{right}} of {{total}}: {values}", "agreement")


@dataclass(frozen=True)
class Answer:
    """The answer of a study in one sentence, and the outcomes for which it was written.

    Attributes:
        sentence: The answer. It is not shown where the outcomes are others.
        num_claims: Number of claims that were judged; those that are not named below hold.
        cases: Outcome of the single cases taken together, "" where none is judged by itself.
        fails: Ids of the claims that do not hold.
        inconclusive: Ids of the claims that are not decided.
    """

    sentence: str
    num_claims: int = 0
    cases: Agreement | Literal[""] = ""
    fails: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()

    def fits(self, outcome: StudyOutcome) -> bool:
        """Whether the outcomes of a study are those for which the answer was written."""
        named = {**dict.fromkeys(self.fails, "does not hold"), **dict.fromkeys(self.inconclusive, "inconclusive")}
        found = {claim.id: claim.outcome for claim in outcome.claims if claim.outcome != "holds"}
        return (self.cases, self.num_claims, named) == (outcome.cases, len(outcome.claims), found)


@dataclass(frozen=True, eq=False, repr=False)
class StudyOutcome(Record):
    """A case agrees when all its checks do, disagrees when one does not, and is undecidable otherwise.

    Attributes:
        study: Name of the study.
        num_cases: Number of cases with a record, of which ``data`` gives those on each data set ("" for none).
        num_agree: Number of cases that agree with the prediction; not every case need be checked.
        num_disagree: Number of cases that do not.
        num_undecidable: Number of cases whose ranks are not decided.
        num_failed: Number of cases without a record, because of an error.
        num_counterexamples: Number of checks that contradict a conjecture.
        data: Number of cases by data set.
        claims: Claims about all cases together.
        disagreements: The checks that disagree; not stored.
        undecidable: The checks that are not decided; not stored.
    """

    study: str
    num_cases: int
    num_agree: int = 0
    num_disagree: int = 0
    num_undecidable: int = 0
    num_failed: int = 0
    num_counterexamples: int = 0
    data: dict[str, int] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    disagreements: tuple[CaseOutcome, ...] = ()
    undecidable: tuple[CaseOutcome, ...] = ()
    summary_fields: ClassVar[tuple[str, ...]] = (
        "study",
        "num_cases",
        "num_agree",
        "num_disagree",
        "num_undecidable",
        "num_failed",
    )

    def __post_init__(self) -> None:
        ids = [claim.id for claim in self.claims]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        require(
            not twice, f"every claim of study {self.study} must have an id of its own", f"twice: {', '.join(twice)}"
        )

    @property
    def holds(self) -> bool:
        """Something was judged, and nothing contradicts the prediction."""
        is_judged = self.num_agree > 0 or any(claim.holds for claim in self.claims)
        return is_judged and not self.fails

    @property
    def fails(self) -> bool:
        """Something contradicts the prediction."""
        return self.num_disagree > 0 or bool(self.failing)

    @property
    def failing(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.holds is False)

    def shown(self, families: Mapping[str, str]) -> tuple[Claim, ...]:
        """The claims as they are shown: families gathered, those that do not hold before the others.

        Args:
            families: First words of the ids of a family -> what all of its claims say, of different cases.
        """
        gathered: dict[str, list[Claim]] = {}
        for claim in self.claims:
            gathered.setdefault(_family(claim.id, families), []).append(claim)
        every = [
            _gathered(name, families[name], own) if name in families and len(own) > 1 else own[0]
            for name, own in gathered.items()
        ]
        return tuple(sorted(every, key=lambda claim: claim.holds is not False))

    def claim(self, id: str) -> Claim:
        """The claim with an id."""
        for claim in self.claims:
            if claim.id == id:
                return claim
        raise unknown_name(f"a claim of study {self.study}", id, [claim.id for claim in self.claims])

    @property
    def num_judged(self) -> int:
        """Number of cases that were checked."""
        return self.num_agree + self.num_disagree + self.num_undecidable

    @property
    def cases(self) -> Agreement | Literal[""]:
        """The outcome of the single cases taken together; "" where none was checked."""
        if not self.num_judged:
            return ""
        return "disagrees" if self.num_disagree else "undecidable" if self.num_undecidable else "agrees"

    @property
    def against(self) -> str:
        """The claims that do not hold, by name; the first of many, and "" where there are none."""
        names = [claim.sentence for claim in self.failing]
        more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"Does not hold: {'; '.join(names[:_MOST_NAMED])}{more}." if names else ""

    @property
    def sentence(self) -> str:
        """The counts in a sentence."""
        if not self.num_cases and not self.num_failed:
            return "No case has been run."
        counts = {"disagree": self.num_disagree, "undecidable": self.num_undecidable, "failed": self.num_failed}
        parts = [f"{self.num_agree} of {self.num_judged} cases agree with the prediction"] if self.num_judged else []
        parts += [f"{number} {what}" for what, number in counts.items() if number]
        if self.num_counterexamples:
            ranks = "ranks are" if self.num_counterexamples > 1 else "rank is"
            parts.append(f"{self.num_counterexamples} {ranks} against a conjecture")
        if self.claims:
            outcomes = [claim.outcome for claim in self.claims]
            parts.append(f"{outcomes.count('holds')} of {len(outcomes)} claims hold")
            num_open = outcomes.count("inconclusive")
            parts += [f"{num_open} {'is' if num_open == 1 else 'are'} inconclusive"] if num_open else []
        return ", ".join(parts or [f"{self.num_cases} cases recorded, nothing to compare"]) + "."

    def stored(self) -> dict[str, Any]:
        """What a results file and the registry of the papers keep of it: the counts, and every claim by its id."""
        claims = {}
        for claim in self.claims:
            counts = {} if claim.total is None else {"right": claim.right, "total": claim.total}
            claims[claim.id] = {"outcome": claim.outcome, **counts, "sentence": claim.sentence}
        return {**{name: getattr(self, name) for name in _COUNTS}, "claims": claims}

    @classmethod
    def from_stored(cls, study: str, content: Mapping[str, Any]) -> Self:
        """The outcome that ``stored`` describes; the details of claims and the single checks are not stored."""
        try:
            claims = tuple(
                Claim(name, kept["sentence"], _HOLDS[kept["outcome"]], "", kept.get("right"), kept.get("total"))
                for name, kept in content["claims"].items()
            )
            return cls(study, **{name: content[name] for name in _COUNTS}, claims=claims)
        except (KeyError, TypeError, AttributeError) as error:
            must = f"the stored outcome of study {study} must have the fields {', '.join((*_COUNTS, 'claims'))}"
            raise InvalidInput(sentence(must, f"got {error!r}", "make papers writes it again")) from error


def _family(id: str, families: Mapping[str, str]) -> str:
    """The longest family that the id of a claim begins with; its own id where there is none."""
    found = [name for name in families if id == name or id.startswith(f"{name}-")]
    return max(found, key=len, default=id)


def _gathered(name: str, sentence: str, claims: Sequence[Claim]) -> Claim:
    """One claim that all of a family hold; the cases of those that do not are named by the rest of their ids."""
    holds = None if any(claim.holds is None for claim in claims) else True
    if any(claim.holds is False for claim in claims):
        holds = False
    details = [f"{sum(bool(claim.holds) for claim in claims)} of {len(claims)}"]
    for outcome in ("does not hold", "inconclusive"):
        others = [claim.id.removeprefix(f"{name}-") for claim in claims if claim.outcome == outcome]
        details += [f"{outcome} for {', '.join(others)}"] if others else []
    return Claim(name, sentence, holds, "; ".join(details), sum(bool(claim.holds) for claim in claims), len(claims))


def stored_text(content: Mapping[str, Any]) -> str:
    """What ``StudyOutcome.stored`` gives, as JSON with one claim a line."""
    counts = json.dumps({name: value for name, value in content.items() if name != "claims"})
    claims = ",\n".join(f"  {json.dumps(name)}: {json.dumps(claim)}" for name, claim in content["claims"].items())
    return f'{counts[:-1]}, "claims": {{\n{claims}\n }}}}' if claims else f'{counts[:-1]}, "claims": {{}}}}'


_HOLDS: dict[str, bool | None] = {"holds": True, "does not hold": False, "inconclusive": None}
_COUNTS = tuple(one.name for one in fields(StudyOutcome) if one.name.startswith("num_") or one.name == "data")


def study_outcome(
    study: str, checks: Sequence[Check], rows: Sequence[Row], claims: Sequence[Claim], num_failed: int
) -> StudyOutcome:
    """The outcome of checks and claims; a row that lacks the names of a check is not judged by it."""
    for check in checks:
        for name in check.names:
            if rows and not any(name in row for row in rows):
                raise unknown_name("a name of a check", name, rows[0].names())
    by_case = [[check.judge(row) for check in checks if all(name in row for name in check.names)] for row in rows]
    agreements = [_agreement(judged) for judged in by_case if judged]
    every = [one for judged in by_case for one in judged]
    disagreements = tuple(one for one in every if one.outcome == "disagrees")
    names = [str(row.case.get("data", "")) for row in rows]
    return StudyOutcome(
        study=study,
        num_cases=len(rows),
        num_agree=agreements.count("agrees"),
        num_disagree=agreements.count("disagrees"),
        num_undecidable=agreements.count("undecidable"),
        num_failed=num_failed,
        num_counterexamples=sum(one.is_conjecture for one in disagreements),
        data={name: names.count(name) for name in dict.fromkeys(names)},
        claims=tuple(claim for claim in claims if claim.total != 0),
        disagreements=disagreements,
        undecidable=tuple(one for one in every if one.outcome == "undecidable"),
    )


def _agreement(judged: Sequence[CaseOutcome]) -> Agreement:
    outcomes = {one.outcome for one in judged}
    if "disagrees" in outcomes:
        return "disagrees"
    return "undecidable" if "undecidable" in outcomes else "agrees"
