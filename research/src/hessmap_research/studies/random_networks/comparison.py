"""The loop over random networks, and the counts that a record can hold of it.

A study of random networks is a row of a table: ``networks`` draws them, ``exact`` gives their ranks in exact
arithmetic, ``claimed`` what each side claims of the ranks, and ``fields`` what the record keeps of the comparisons.
A side is named "ours" or "paper", or by the formula where several are compared.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hessmap.records import PARTS, Part, RankValue
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.hessian_ranks import NAMES

OURS = "ours"
_ALL_CERTIFIED_TOGETHER = {"input_rank", "residual_rank", "num_samples", "num_tokens"}
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Drawn:
    """A network, and the ranks and sizes of its data as ``predict_ranks`` and ``generic_rank`` take them.

    ``source`` is what the network was made from, where claims are about that: a chain of filters, a setting, a table.
    """

    network: Any
    known: Mapping[str, Any] = field(default_factory=dict)
    source: Any = None


@dataclass(frozen=True)
class Compared:
    """The exact ranks of a network by part, and by side and part what is claimed: a rank, or several readings."""

    drawn: Drawn
    found: Mapping[str, Any]
    claimed: Mapping[str, Mapping[str, Any]]

    @property
    def exact(self) -> dict[str, Any]:
        return {part: _value(found) for part, found in self.found.items()}


Networks = Callable[[Case, random.Random], Iterable[Drawn]]
Exact = Callable[[Case, Drawn, random.Random], Mapping[str, Any]]
Claimed = Callable[[Case, Drawn], Mapping[str, Mapping[str, Any]]]
Test = Callable[[Any, Any], bool]
Field = Callable[[Sequence[Compared]], Any]
Claims = Callable[[Sequence[Row]], Iterable[Claim]]


def random_networks(
    *,
    name: str,
    question: str,
    reference: str,
    cases: Sequence[Case],
    networks: Networks,
    fields: Mapping[str, Field],
    checks: Sequence[str],
    claims: Sequence[Claims],
    view: View,
    seconds: float | Callable[[Case], float],
    answer: str,
    num_claims: int,
    families: Mapping[str, str] | None = None,
    claimed: Claimed | None = None,
    exact: Exact | None = None,
) -> Study:
    """A study that compares drawn networks with claims.

    Args:
        name: As for ``Study``; so are ``question``, ``reference``, ``cases``, ``view`` and ``seconds``.
        question: Asked of all networks.
        reference: Where the claims are from.
        cases: Batches of networks; a case has its number of networks as ``num_networks``.
        networks: The networks of a case, drawn from a generator that the case seeds.
        fields: What the record of a case keeps of the comparisons, by the name of the field.
        checks: Fields that count networks and have to count all of them.
        claims: Claims about all cases together.
        view: Figures and table.
        seconds: Time of a case.
        answer: Answer while every case agrees and every one of ``num_claims`` claims holds.
        num_claims: Number of claims.
        families: Claims that are shown as one, as for ``Study``.
        claimed: What each side claims of a network; default: what ``predict_ranks`` gives.
        exact: The exact values of a network; default: the ranks of its three Hessians.
    """
    claims_of = claimed or predicted()
    values_of = exact or exact_ranks()

    def measure(case: Case) -> dict[str, Any]:
        draw = random.Random(case_key(case))
        compared = [
            Compared(drawn, values_of(case, drawn, draw), claims_of(case, drawn)) for drawn in networks(case, draw)
        ]
        return {name: value(compared) for name, value in fields.items()}

    return Study(
        name=name,
        question=question,
        reference=reference,
        cases=cases,
        measure=measure,
        view=view,
        checks=tuple(Check(counted, "num_networks", "equal") for counted in checks),
        claims=lambda rows: [claim for some in claims for claim in some(rows)],
        seconds=seconds,
        answered=Answer(answer, num_claims, "agrees"),
        families=families or {},
    )


def repeated(drawn: Callable[[Case, random.Random], Drawn]) -> Networks:
    """As many draws as the case has networks."""

    def networks(case: Case, draw: random.Random) -> Iterator[Drawn]:
        return (drawn(case, draw) for _ in range(case["num_networks"]))

    return networks


def first(draw_one: Callable[[], _Item], is_wanted: Callable[[_Item], bool]) -> _Item:
    """The first draw that is wanted."""
    while not is_wanted(found := draw_one()):
        pass
    return found


def exact_ranks(*parts: Part) -> Exact:
    """Ranks of the generic network in GF(P), of all three Hessians unless parts are given; one seed a network."""

    def ranks(case: Case, drawn: Drawn, draw: random.Random) -> Mapping[str, Any]:
        from hessmap.exact import generic_hessian_ranks, generic_rank

        loss, seed = case.get("loss", "squared"), draw.randrange(2**32)
        if len(parts) == 1 or not set(drawn.known) <= _ALL_CERTIFIED_TOGETHER:
            return {part: generic_rank(drawn.network, part, loss, **drawn.known, seed=seed) for part in parts or PARTS}
        vectorised = generic_hessian_ranks(drawn.network, loss, **drawn.known, seed=seed)
        return {part: vectorised[part] for part in parts or PARTS}

    return ranks


def exact_ranks_of_own_seeds(case: Case, drawn: Drawn, draw: random.Random) -> Mapping[str, Any]:
    """Ranks of the generic network in GF(P), each Hessian with a seed of its own."""
    from hessmap.exact import generic_rank

    loss = case.get("loss", "squared")
    return {part: generic_rank(drawn.network, part, loss, **drawn.known, seed=draw.randrange(2**32)) for part in PARTS}


def predicted(*parts: Part) -> Claimed:
    """What ``predict_ranks`` claims, of all three Hessians unless parts are given."""

    def claimed(case: Case, drawn: Drawn) -> Mapping[str, Mapping[str, Any]]:
        from hessmap.theory import predict_ranks

        prediction = predict_ranks(drawn.network, case.get("loss", "squared"), **drawn.known)
        return {OURS: {part: getattr(prediction, part) for part in parts or PARTS}}

    return claimed


def _value(found: Any) -> Any:
    return getattr(found, "value", found)


def equal(exact: Any, claim: Any) -> bool:
    """The exact value is what is claimed, or one of several readings of the claim."""
    return exact in claim if isinstance(claim, tuple) else bool(exact == _value(claim))


def at_most(exact: Any, claim: Any) -> bool:
    """The exact value does not exceed what is claimed."""
    return bool(exact <= _value(claim))


def allowed(exact: int, claim: RankValue) -> bool:
    """A rank is what is claimed, or not above it where the claim is a bound."""
    return bool(claim.allows(exact))


def count(test: Test = equal, side: str = OURS) -> Field:
    """By part, the number of networks whose claim passes the test."""

    def counted(compared: Sequence[Compared]) -> dict[str, int]:
        parts = compared[0].claimed[side]
        return {part: sum(test(one.exact[part], one.claimed[side][part]) for one in compared) for part in parts}

    return counted


def count_all(test: Test = equal, *sides: str) -> Field:
    """The number of networks of which every claim of these sides (default: ours) passes the test."""

    def counted(compared: Sequence[Compared]) -> int:
        return sum(_passes(one, test, sides or (OURS,)) for one in compared)

    return counted


def _passes(one: Compared, test: Test, sides: Sequence[str]) -> bool:
    return all(test(one.exact[part], claim) for side in sides for part, claim in one.claimed[side].items())


def kinds(compared: Sequence[Compared]) -> dict[str, dict[str, int]]:
    """By part, how many of our claims are exact values, bounds and conjectures."""
    parts = compared[0].claimed[OURS]
    return {part: dict(Counter(one.claimed[OURS][part].kind_text for one in compared)) for part in parts}


def counterexamples(test: Test = equal, *sides: str) -> Field:
    """Every claim of these sides (default: ours) that fails the test, with the network and the exact value."""

    def found(compared: Sequence[Compared]) -> list[dict[str, Any]]:
        return [
            {"network": str(one.drawn.network), **one.drawn.known, "side": side, "part": part}
            | {"exact": one.exact[part], "claim": claim}
            for one in compared
            for side in sides or (OURS,)
            for part, claim in one.claimed[side].items()
            if not test(one.exact[part], claim)
        ]

    return found


# What is kept of the claims of ``predict_ranks``, and the fields that have to count every network.
CLAIM_FIELDS: dict[str, Field] = {
    "kinds": kinds,
    "held": count(allowed),
    "met": count(equal),
    "counterexamples": counterexamples(allowed),
}
HELD = tuple(f"held.{part}" for part in PARTS)


@dataclass(frozen=True)
class Counted:
    """The claim that the field ``counted`` of the records counts every network.

    ``where`` keeps the rows with these values. ``detail`` may name other fields to be summed, as ``beside`` has them.
    """

    id: str
    sentence: str
    counted: str
    where: Mapping[str, Any] = field(default_factory=dict)
    detail: str = "{right:,} of {total:,}"
    beside: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, rows: Sequence[Row]) -> Iterator[Claim]:
        own = [row for row in rows if all(row[name] == value for name, value in self.where.items())]
        total, right = (sum(row[name] for row in own) for name in ("num_networks", self.counted))
        sums = {name: sum(row[other] for row in own) for name, other in self.beside.items()}
        detail = self.detail.format(right=right, total=total, wrong=total - right, **sums)
        yield Claim.counted(self.id, self.sentence, right, total, detail)


def every_claim_holds() -> tuple[Counted, ...]:
    """For each Hessian, that no network contradicts what ``predict_ranks`` claims."""
    return tuple(
        Counted(claim_id("holds", part), f"Every claim of {name} holds", f"held.{part}") for part, name in NAMES.items()
    )


def holds_by_family(rows: Sequence[Row]) -> Iterator[Claim]:
    """For each family, that no network contradicts what ``predict_ranks`` claims; how many claims are the rank."""
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        total = sum(row["num_networks"] for row in own)
        holds = all(sum(row["held"][part] for row in own) == total for part in PARTS)
        met = ", ".join(f"{name} {_share(own, part, total)}" for part, name in NAMES.items())
        detail = f"{total:,} networks; the claimed value is the rank itself of {met}"
        yield Claim(claim_id("holds", family), f"Every claim holds: {family}", holds, detail)


def _share(rows: Sequence[Row], part: str, total: int) -> str:
    """How many claims give the rank itself, and what kinds they were."""
    counts = sum((Counter(row["kinds"][part]) for row in rows), Counter[str]())
    met = sum(row["met"][part] for row in rows)
    return f"{met:,} of {total:,} ({', '.join(f'{count:,} {kind}' for kind, count in counts.most_common())})"


def counts_view(
    by: Sequence[str],
    columns: Mapping[str, str],
    most: int,
    shown: Mapping[str, str],
    x: str = "batch",
    y: str = "",
) -> View:
    """Counts as heat maps over ``x`` and ``y`` (default: the last of ``by``), and a line of a table for each group.

    Args:
        by: Fields of the case that make a line of the table.
        columns: What is counted, and what stands above it.
        most: Number of networks in a case.
        shown: Title and field of each heat map.
        x: Field of the case along the axis.
        y: Field of the case up the axis.
    """
    return View(
        figures=tuple(
            Heatmap(title=title, value=name, x=x, y=y or by[-1], limits=(0, most)) for title, name in shown.items()
        ),
        table=(*by, *(Column(name, label) for name, label in columns.items()), Column("num_networks", "of")),
        group_by=tuple(by),
    )


def claims_view(title: str, by: tuple[str, str], most: int = 50) -> View:
    """How many of the networks of a family meet the claims of ``predict_ranks``."""
    columns = {f"{what}.{part}": f"{name} {what}" for part, name in NAMES.items() for what in ("held", "met")}
    shown = {f"${name}$: {title}": f"met.{part}" for part, name in NAMES.items()}
    return counts_view(by, columns, most, shown, x=by[1], y="family")
