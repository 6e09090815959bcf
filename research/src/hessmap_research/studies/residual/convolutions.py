"""Convolutional residual blocks: ranks beside those of the padded network without the skips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.hessian_ranks import NAMES

if TYPE_CHECKING:
    from torch import nn

_SAMPLES = 60


def measure(case: Case) -> dict[str, Any]:
    """Measured ranks with the skips; for blocks of one layer the exact ones of the network without, and its claims."""
    import torch

    from hessmap.exact import generic_hessian_ranks
    from hessmap.networks import ImageConvolutional
    from hessmap.problem.problem import Problem
    from hessmap.theory import predict_ranks
    from hessmap_research.studies.hessian_ranks import measured_ranks

    size, channels, blocks, inner = case["size"], case["channels"], case["num_blocks"], case["inner_channels"]
    widths = [channels, *([channels] if inner is None else [inner, channels]) * blocks]
    num_layers = len(widths) - 1
    plain = ImageConvolutional(size, widths, (3,) * num_layers, outputs=case["outputs"], paddings=(1,) * num_layers)
    generator = torch.Generator().manual_seed(case["seed"])
    inputs = torch.randn(_SAMPLES, plain.input_dim, dtype=torch.float64, generator=generator)
    targets = torch.randn(_SAMPLES, case["outputs"], dtype=torch.float64, generator=generator)
    problem = Problem(_with_skips(case), "squared", inputs, targets)
    exact = generic_hessian_ranks(plain)
    prediction = predict_ranks(plain)
    record: dict[str, Any] = {
        "measured": measured_ranks(problem),
        "plain": {part: exact[part].value for part in PARTS},
        "claimed": {part: getattr(prediction, part).value for part in PARTS},
        "parameters": problem.num_parameters,
    }
    return record | ({} if inner else {"expected": record["plain"]})


def _with_skips(case: Case) -> nn.Module:
    """Images, the blocks x + W x or x + U D x of 3 x 3 convolutions with padding 1, a dense layer."""
    import torch
    from torch import nn

    from hessmap.networks import ResidualBlock

    size, channels, inner = case["size"], case["channels"], case["inner_channels"]
    first: dict[str, Any] = {"padding": 1, "bias": False, "dtype": torch.float64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case["seed"])
        blocks = [
            ResidualBlock(
                nn.Conv2d(channels, inner or channels, 3, **first),
                nn.Identity(),
                nn.Conv2d(inner, channels, 3, **first) if inner else None,
            )
            for _ in range(case["num_blocks"])
        ]
        dense = nn.Linear(channels * size**2, case["outputs"], bias=False, dtype=torch.float64)
        return nn.Sequential(nn.Unflatten(1, (channels, size, size)), *blocks, nn.Flatten(), dense)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    two = [row for row in rows if row["inner_channels"] is not None]
    if two:
        pairs = [(row.number("measured.outer_product"), row["plain"]["outer_product"]) for row in two]
        above, least = sum(found > plain for found, plain in pairs), min(found - plain for found, plain in pairs)
        claim = "A skip over two layers never lowers H_o"
        yield Claim(
            "skip-never-lowers", claim, least >= 0, f"higher than without the skips in {above} of {len(pairs)} networks"
        )


STUDY = Study(
    name="residual/convolutions",
    question="Do convolutional residual blocks have the same ranks as the padded network without skip connections?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(
        size=[2, 3], channels=[1, 2], inner_channels=[None, 1], num_blocks=[1, 2], outputs=[1, 3], seed=range(2)
    ),
    measure=measure,
    checks=tuple(Check(f"measured.{part}", f"expected.{part}", "equal") for part in PARTS),
    claims=claims,
    view=View(
        figures=tuple(
            Heatmap(title=f"${name}$ with skips", value=f"measured.{part}", x="num_blocks", y="channels")
            for part, name in NAMES.items()
        ),
        table=(
            "size",
            "channels",
            "inner_channels",
            "num_blocks",
            "outputs",
            *(Column(f"measured.{part}", name) for part, name in NAMES.items()),
            *(Column(f"plain.{part}", f"{name} without skips") for part, name in NAMES.items()),
            "parameters",
        ),
        group_by=("size", "channels", "inner_channels", "num_blocks", "outputs"),
    ),
    seconds=0.6,
    answered=Answer(
        "It depends: blocks of one layer have, by a translation of the kernel; a skip over two layers never"
        " lowers H_o, and raises it in 4 of 32 networks.",
        num_claims=1,
        cases="agrees",
    ),
)
