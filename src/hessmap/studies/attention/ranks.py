"""Random layers of linear self-attention against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies import Case, Finding, Row, Study, grid
from hessmap.studies.cnn.claims import claims_of_networks
from hessmap.studies.hessian_ranks import CLAIM_CHECKS, NAMES, claims_view

if TYPE_CHECKING:
    from hessmap.networks import SelfAttention

_BATCH = 50
_FAMILIES = ("one head", "value frozen", "query and key merged", "last token", "heads with a projection")
_BOUNDED = ("fewer tokens than the width", "causal", "a projection and few samples")


def cases() -> tuple[Case, ...]:
    """1,500 layers of one head, 150 of each other kind for which a formula is claimed, 50 where only bounds are."""
    known: dict[str, Any] = {"loss": ["squared"], "num_networks": [_BATCH]}
    first, *others = _FAMILIES
    return (
        *grid(family=[first], **known, batch=range(30)),
        *grid(family=others, **known, batch=range(3)),
        *grid(family=_BOUNDED, **known, batch=range(1)),
    )


def measure(case: Case) -> dict[str, Any]:
    return claims_of_networks(case, lambda draw: _drawn(draw, case["family"]))


def _drawn(draw: random.Random, family: str) -> tuple[SelfAttention, dict[str, Any]]:
    """A layer and its numbers of samples and tokens."""
    from hessmap.networks import SelfAttention

    is_wide = family == "fewer tokens than the width"
    has_projection = "projection" in family
    width = draw.randint(4, 7) if is_wide else draw.randint(1, 3 if has_projection else 5)
    sizes = width, draw.randint(1, width + 1), draw.randint(1, width + 2)
    samples, tokens = draw.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 30)), draw.randint(1, width + 2)
    if is_wide:
        return SelfAttention(*sizes), {"num_samples": draw.choice((2, 3, 4)), "num_tokens": draw.randint(2, width - 1)}
    if has_projection:
        net = SelfAttention(*sizes, heads=draw.randint(1, 4), outputs=draw.randint(1, 5))
        few = family == "a projection and few samples"
        return net, {"num_samples": samples if few else None, "num_tokens": tokens if few else draw.choice((1, 2))}
    if family == "last token":
        many = draw.choice((1, 2, 3, 4, 5, 6, 8, 12, 30, 60))
        return SelfAttention(*sizes, read="last"), {"num_samples": many, "num_tokens": max(2, tokens)}
    net = SelfAttention(
        *sizes,
        causal=family == "causal",
        merged_query_key=family == "query and key merged",
        frozen_value=family == "value frozen",
    )
    return net, {"num_samples": samples, "num_tokens": tokens}


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        total = sum(row["num_networks"] for row in own)
        held = [sum(row["held"][part] for row in own) for part in PARTS]
        met = ", ".join(f"{name} {sum(row['met'][part] for row in own):,}" for part, name in NAMES.items())
        detail = f"{total:,} layers; the claimed value is the rank itself of {met}"
        yield Finding(f"Every claim holds: {family}", all(count == total for count in held), detail)


STUDY = Study(
    name="attention/ranks",
    question="Do the claims about the ranks of linear self-attention survive random layers?",
    reference="docs/attention-residual.md; not in print",
    cases=cases(),
    measure=measure,
    checks=CLAIM_CHECKS,
    findings=findings,
    view=claims_view("met by 50 layers", "loss", ("family",), ("family",)),
    seconds=3.0,
)
