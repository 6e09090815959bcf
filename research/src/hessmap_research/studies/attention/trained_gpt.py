"""The blocks of attention inside a trained character GPT, over the scale of what enters it, with and without norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any

from hessmap.records import Part
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Lines, Series, View
from hessmap_research.studies.attention.blocks import BLOCK_NAMES

if TYPE_CHECKING:
    from torch import Tensor, nn

_CONTEXT, _WIDTH, _STEPS, _SEQUENCES = 16, 12, 600, 24
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
_LAYERS = {"q": "query.weight", "k": "key.weight", "v": "value.weight"}
_BLOCKS = ("qq", "kk", "vv", "qk", "qv", "kv")
# Powers of the scale where attention is even and the residual fixed (study attention/blocks).
_EVEN = {"qq": 6.0, "kk": 6.0, "qk": 6.0, "qv": 4.0, "kv": 4.0, "vv": 2.0}
_PARTS: dict[Part, str] = {"outer_product": "$H_o$", "functional": "$H_f$"}


def measure(case: Case) -> dict[str, Any]:
    """Norms of the blocks of the first attention layer, its tokens multiplied by the scale."""
    import torch

    from hessmap.hessians.operators import functional_hessian, outer_product_hessian
    from hessmap.problem.problem import Problem

    model, risk, sequences = _trained(case["layer_norm"], case["seed"])
    model.scale = case["scale"]
    names = [f"attention.{layer}" for layer in _LAYERS.values()]
    problem = Problem(model, "cross_entropy", *sequences, parameters=names, dtype=torch.float64)
    record: dict[str, Any] = {"trained_risk": risk, "risk": problem.risk()}
    for part, hessian in {"outer_product": outer_product_hessian, "functional": functional_hessian}.items():
        whole = hessian(problem).to_dense()
        size = len(whole) // 3
        places = {name: slice(at * size, (at + 1) * size) for at, name in enumerate(_LAYERS)}
        record[part] = {pair: float(whole[places[pair[0]], places[pair[1]]].norm()) for pair in _BLOCKS}
    return record


@lru_cache(maxsize=1)
def _trained(layer_norm: bool, seed: int) -> tuple[nn.Module, float, tuple[Tensor, Tensor]]:
    """A GPT of one block after its steps of Adam on Python's own help, its risk, and the sequences to differentiate."""
    from pydoc_data.topics import topics

    import torch
    from torch.nn.functional import cross_entropy

    text = "\n".join(topics.values())[:200_000]
    alphabet = sorted(set(text))
    characters = torch.tensor([alphabet.index(character) for character in text])
    generator = torch.Generator().manual_seed(seed)

    def sequences(count: int) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(characters) - _CONTEXT - 1, (count, 1), generator=generator)
        pieces = characters[starts + torch.arange(_CONTEXT + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    model = _character_gpt(len(alphabet), layer_norm, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    risk = 0.0
    for _ in range(_STEPS):
        inputs, targets = sequences(32)
        optimiser.zero_grad()
        value = cross_entropy(model(inputs).mT, targets)
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        risk = value.item()
    return model, risk, sequences(_SEQUENCES)


def _character_gpt(vocabulary: int, layer_norm: bool, seed: int) -> nn.Module:
    """Embeddings, one block of one head and an MLP, a linear head; norms before both parts or nowhere."""
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    def norm() -> nn.Module:
        return nn.LayerNorm(_WIDTH) if layer_norm else nn.Identity()

    class CharacterGPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0
            self.characters, self.places = nn.Embedding(vocabulary, _WIDTH), nn.Embedding(_CONTEXT, _WIDTH)
            layers = {name: nn.Linear(_WIDTH, _WIDTH, bias=False) for name in ("query", "key", "value", "output")}
            self.attention = nn.ModuleDict({"norm": norm(), **layers})
            mlp = nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
            self.mlp = nn.Sequential(norm(), *mlp)
            self.head = nn.Sequential(norm(), nn.Linear(_WIDTH, vocabulary))

        def forward(self, inputs: Tensor) -> Tensor:
            stream = self.characters(inputs) + self.places.weight
            tokens = self.attention["norm"](self.scale * stream)
            query, key, value = (self.attention[name](tokens)[:, None] for name in ("query", "key", "value"))
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)[:, 0]
            stream = stream + self.attention["output"](mixed)
            logits: Tensor = self.head(stream + self.mlp(stream))
            return logits

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CharacterGPT()


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    normed, plain = ([row for row in rows if row["layer_norm"] is flag] for flag in (True, False))
    if normed:
        slopes = [abs(slope) for part in _PARTS for name in _BLOCKS for slope in _slopes(normed, part, name)]
        claim = "With a layer norm before the attention no block depends on the scale of what enters it"
        yield Claim(
            "layer-norm-removes-scale", claim, max(slopes) < 0.05, f"largest power of the scale {max(slopes):.3f}"
        )
    if plain:
        powers = {name: _mean(_slopes(plain, "outer_product", name)) for name in _BLOCKS}
        claim = "Without it H_o grows over a factor 16 of the scale by powers within 1 of those at even attention"
        holds = all(abs(powers[name] - power) < 1 for name, power in _EVEN.items())
        yield Claim("powers-near-even-attention", claim, holds, f"{_words(powers)}; {_words(_EVEN)} at even attention")
        claim = "Without it blocks of queries and keys grow faster than those with values, and these than values alone"
        slowest, fastest = min(powers[name] for name in ("qq", "kk", "qk")), max(powers["qv"], powers["kv"])
        yield Claim("queries-grow-fastest", claim, slowest > fastest > powers["vv"], _words(powers))


def _words(powers: dict[str, float]) -> str:
    return ", ".join(f"{name} {power:.2f}" for name, power in powers.items())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _slopes(rows: Sequence[Row], part: str, name: str) -> list[float]:
    """The power of the scale from the smallest to the largest, a number for each seed."""
    found, ends = [], (_SCALES[0], _SCALES[-1])
    for seed in dict.fromkeys(row["seed"] for row in rows):
        norms = {row["scale"]: row[part][name] for row in rows if row["seed"] == seed}
        if set(ends) <= set(norms):
            found.append(log(norms[ends[-1]] / norms[ends[0]]) / log(ends[-1] / ends[0]))
    return found


STUDY = Study(
    name="attention/trained-gpt",
    question="How do the attention blocks of a trained GPT grow with the scale of what enters it?",
    reference="Ormaniec, Dangel & Singh 2024: blocks of one self-attention layer, and pre-layer-norm",
    cases=grid(layer_norm=[False, True], seed=range(2), scale=_SCALES),
    measure=measure,
    claims=claims,
    view=View(
        figures=tuple(
            Lines(
                title=f"{symbol} of a trained GPT, {words}",
                part=part,
                x="scale",
                series=tuple(
                    Series(label, line=f"{part}.{name}", points=f"{part}.{name}") for name, label in BLOCK_NAMES.items()
                ),
                where={"seed": 0, "layer_norm": layer_norm},
                x_scale="log",
                y_scale="log",
                x_label="scale of the tokens",
                y_label="norm of the block",
            )
            for part, symbol in _PARTS.items()
            for layer_norm, words in ((False, "without layer norm"), (True, "behind a layer norm"))
        ),
        table=("layer_norm", "seed", "scale", "risk", "outer_product.qq", "outer_product.vv", "functional.qv"),
        group_by=("layer_norm", "seed", "scale"),
    ),
    seconds=4.0,
    answered=Answer(
        "Nearly as at even attention, two trainings: H_o by powers within 1 of 6.00 (queries and keys), 4.00 (with"
        " values) and 2.00 (values); with a layer norm before the attention not at all.",
        num_claims=3,
    ),
)
