"""Random layers of linear self-attention against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.study import Case, grid
from hessmap_research.studies.random_networks import (
    CLAIM_FIELDS,
    HELD,
    Drawn,
    claims_view,
    first,
    holds_by_family,
    random_networks,
    repeated,
)

if TYPE_CHECKING:
    from hessmap.networks import SelfAttention

# What is drawn in place of the sizes of one head, any number of samples, and the outputs of all tokens.
_FAMILIES: dict[str, dict[str, Any]] = {
    "one head": {},
    "fewer tokens than the width": {"tokens": "few"},
    "many samples": {"samples": "many"},
    "value frozen": {"frozen_value": True},
    "query and key merged": {"merged_query_key": True},
    "query and key merged, value frozen": {"merged_query_key": True, "frozen_value": True},
    "last token": {"read": "last", "tokens": "two"},
    "last token, fewer samples than the width": {"read": "last", "tokens": "two", "samples": "few"},
    "last token, value frozen": {"read": "last", "tokens": "two", "frozen_value": True},
    "last token, query and key merged": {"read": "last", "tokens": "two", "merged_query_key": True},
    "causal": {"causal": True, "tokens": "two"},
    "causal, value frozen": {"causal": True, "tokens": "two", "frozen_value": True},
    "causal, query and key merged": {"causal": True, "tokens": "two", "merged_query_key": True},
    "heads side by side": {"heads": 3},
    "projection": {"heads": 5, "outputs": 6, "samples": "many"},
    "projection, more outputs than the width": {"heads": 8, "outputs": 8, "samples": "many", "is_wide": True},
    "projection, query and key merged": {"heads": 4, "outputs": 6, "samples": "many", "merged_query_key": True},
    "projection, value frozen": {"heads": 4, "outputs": 5, "frozen_value": True},
    "projection, few samples": {"heads": 4, "outputs": 5},
    "any kind, sizes at the edges": {"is_at_edges": True},
}
_COUNTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 30)
_OPTIONS = ("frozen_value", "merged_query_key", "causal", "read")


def _layer(case: Case, draw: random.Random) -> Drawn:
    """A layer and its numbers of samples and tokens; edges such as 1, and more of all than the width, are frequent."""
    family = _FAMILIES[case["family"]]
    net, samples, tokens = first(lambda: _any_size(draw, family), lambda found: found[0].num_parameters <= 130)
    return Drawn(net, {"num_samples": samples, "num_tokens": tokens})


def _edge_sizes(draw: random.Random) -> tuple[SelfAttention, int, int]:
    """A layer of any kind whose sizes are one, the width, one less or more, or twice as much."""
    from hessmap.networks import SelfAttention

    width = draw.choice((1, 1, 2, 2, 3, 4, 5))

    def near(*others: int) -> int:
        return max(1, draw.choice((1, 2, width - 1, width, width + 1, 2 * width, *others)))

    options: dict[str, Any] = {name: True for name in _OPTIONS[:3] if draw.random() < 0.3}
    if draw.random() < 0.3:
        options["read"] = "last"
    if draw.random() < 0.3:
        options["heads"] = draw.randint(1, 4)
        options["outputs"] = draw.choice((None, near()))
    return SelfAttention(width, near(), near(), **options), near(1, width**2), near(20)


def _any_size(draw: random.Random, family: dict[str, Any]) -> tuple[SelfAttention, int | None, int]:
    from hessmap.networks import SelfAttention

    if "is_at_edges" in family:
        return _edge_sizes(draw)
    is_many, is_few = (family.get("samples") == which for which in ("many", "few"))
    few_tokens = family.get("tokens") == "few"
    largest = 3 if "outputs" in family else 4 if is_many else 6
    width = draw.randint(3, 7) if few_tokens else draw.randint(1 + is_few, largest)
    sizes = width, draw.choice((1, draw.randint(1, width + 2))), draw.choice((1, 2, draw.randint(1, width + 3)))
    options = {name: family[name] for name in _OPTIONS if name in family}
    if "heads" in family:
        options["heads"] = draw.randint(1 + ("is_wide" in family), family["heads"])
    if "outputs" in family:
        options["outputs"] = draw.randint(min(width, 7) + 1 if "is_wide" in family else 1, family["outputs"])
    samples = None if is_many else draw.randint(1, width - 1) if is_few else draw.choice(_COUNTS)
    tokens = draw.choice((1, 2, draw.randint(1, width + 2), draw.randint(1, width + 2), 3 * width))
    if "tokens" in family:
        tokens = draw.randint(2, width - 1) if few_tokens else max(2, tokens)
    return SelfAttention(*sizes, **options), samples, min(tokens, 4) if is_many else tokens


RANKS = random_networks(
    name="attention/ranks",
    question="Do the claims about the ranks of linear self-attention survive random layers?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(batch=range(10), loss=["squared"], num_networks=[200], family=list(_FAMILIES))
    + grid(batch=[0], loss=["cross_entropy"], num_networks=[200], family=list(_FAMILIES)),
    networks=repeated(_layer),
    fields=CLAIM_FIELDS,
    checks=HELD,
    claims=(holds_by_family,),
    view=claims_view("met by 200 layers", ("family", "loss"), most=200),
    seconds=3.0,
    answer=(
        "Yes: none of the 2,200 random layers of each kind contradicts a claim; what is claimed as a bound is not"
        " always the rank."
    ),
    num_claims=20,
    families={"holds": "Every claim holds, for every kind of layer"},
)
