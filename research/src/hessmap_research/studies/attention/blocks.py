"""The blocks of softmax attention: closed forms beside autograd, and their growth with the scale of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from hessmap.records import Part
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Lines, Series, View

if TYPE_CHECKING:
    from torch import Tensor

_SCALES = (1.0, 2.0, 4.0, 8.0)
_BLOCKS = {"qq": ("query", "query"), "qk": ("query", "key"), "qv": ("query", "value"), "vv": ("value", "value")}
# What a legend calls a block; the order gives them the same colours in every study.
BLOCK_NAMES = {
    "qq": "queries",
    "qk": "queries and keys",
    "qv": "queries and values",
    "vv": "values",
    "kk": "keys",
    "kv": "keys and values",
}
# Powers of the scale at a fixed attention matrix and a fixed residual, from the closed forms.
_POWERS: dict[Part, dict[str, int]] = {
    "outer_product": {"qq": 6, "qk": 6, "qv": 4, "vv": 2},
    "functional": {"qq": 5, "qk": 3, "qv": 3},
}
_WIDTH, _KEYS, _VALUES, _TOKENS, _SAMPLES = 6, 3, 4, 5, 8
_SMALL = 1e-4  # times the weights: attention stays even and outputs stay small beside the targets at every scale


def measure(case: Case) -> dict[str, Any]:
    """Norms of the blocks, and how far they are from autograd's."""
    import torch

    from hessmap.hessians.operators import functional_hessian, outer_product_hessian
    from hessmap.networks import SelfAttention
    from hessmap.problem.problem import Problem
    from hessmap_research.formulas.softmax_blocks import softmax_attention_blocks, whole_matrix

    tokens, targets = _drawn(case)
    temperature = _KEYS**0.5
    model = SelfAttention(_WIDTH, _KEYS, _VALUES).build(seed=case["seed"], temperature=temperature)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(case["weight_scale"])
    query, key, value = (parameter.detach().numpy() for parameter in model.parameters())
    blocks = softmax_attention_blocks(tokens.numpy(), query, key, value, targets.numpy(), temperature)
    problem = Problem(model, "squared", tokens, targets)
    record: dict[str, Any] = {}
    for part, hessian in {"outer_product": outer_product_hessian, "functional": functional_hessian}.items():
        expected = hessian(problem).to_dense().numpy()
        found = getattr(blocks, part)
        record[part] = {name: float(np.linalg.norm(found[pair])) for name, pair in _BLOCKS.items()}
        difference = np.abs(whole_matrix(found) - expected).max()
        record[f"{part}_error"] = float(difference / np.abs(expected).max())
    return record


def _drawn(case: Case) -> tuple[Tensor, Tensor]:
    import torch

    generator = torch.Generator().manual_seed(case["seed"])
    tokens = case["scale"] * torch.randn(_SAMPLES, _TOKENS, _WIDTH, dtype=torch.float64, generator=generator)
    if case["layer_norm"]:
        tokens = torch.nn.functional.layer_norm(tokens, (_WIDTH,))
    return tokens, torch.randn(_SAMPLES, _TOKENS, _VALUES, dtype=torch.float64, generator=generator)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for layer_norm in (False, True):
        for part, powers in _POWERS.items():
            own = [row for row in rows if row["layer_norm"] is layer_norm and row["weight_scale"] == _SMALL]
            slopes = {name: _slope(own, part, name) for name in powers}
            wanted = dict.fromkeys(powers, 0) if layer_norm else powers
            holds = all(abs(slopes[name] - power) < 0.1 for name, power in wanted.items())
            where = "with a layer norm before it" if layer_norm else "without normalisation"
            claim = f"Blocks of {part.replace('_', '-')} grow as {_words(wanted)}, {where}"
            yield Claim(
                claim_id("growth", part, "layer-norm" if layer_norm else "plain"),
                claim,
                holds,
                ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items()),
            )


def _words(powers: dict[str, int]) -> str:
    return ", ".join(f"{name} scale^{power}" for name, power in powers.items())


def _slope(rows: Sequence[Row], part: str, name: str) -> float:
    """The mean power of the scale between the smallest and the largest."""
    ends = [[row[part][name] for row in rows if row["scale"] == scale] for scale in (_SCALES[0], _SCALES[-1])]
    return float(np.mean(np.log(ends[1])) - np.mean(np.log(ends[0]))) / log(_SCALES[-1] / _SCALES[0])


STUDY = Study(
    name="attention/blocks",
    question="How do the blocks of softmax attention grow with the scale of its tokens?",
    reference="Ormaniec, Dangel & Singh 2024, blocks of one self-attention layer",
    cases=grid(scale=_SCALES, layer_norm=[False, True], weight_scale=[_SMALL, 1.0], seed=range(3)),
    measure=measure,
    checks=(Check("outer_product_error", 1e-12, "at_most"), Check("functional_error", 1e-12, "at_most")),
    claims=claims,
    view=View(
        figures=tuple(
            Lines(
                title=f"{symbol}, {words}",
                part=part,
                x="scale",
                series=tuple(
                    Series(BLOCK_NAMES[name], line=f"{part}.{name}", points=f"{part}.{name}") for name in powers
                ),
                where={"weight_scale": _SMALL, "layer_norm": layer_norm},
                x_scale="log",
                y_scale="log",
                x_label="scale of the tokens",
                y_label="norm of the block",
            )
            for (part, powers), symbol in zip(_POWERS.items(), ("$H_o$", "$H_f$"), strict=True)
            for layer_norm, words in ((False, "without layer norm"), (True, "behind a layer norm"))
        ),
        table=("layer_norm", "weight_scale", "scale", "outer_product.qq", "outer_product.vv", "functional.qv"),
        group_by=("layer_norm", "weight_scale", "scale"),
    ),
    seconds=0.5,
    answered=Answer(
        "At even attention H_o as scale^6 (queries and keys), scale^4 (with values) and scale^2 (values), H_f as"
        " scale^5 (queries with queries) and scale^3; with a layer norm before it not at all.",
        num_claims=4,
        cases="agrees",
    ),
)
