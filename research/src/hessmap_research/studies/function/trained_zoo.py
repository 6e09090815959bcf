"""How many dimensions the functions of trained networks have: of every network that the other studies have cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import FEWEST, Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Cloud, Column, View
from hessmap_research.studies.trained_networks import FAMILIES

if TYPE_CHECKING:
    from hessmap_research.studies.trained_networks import StoredNetwork

_COARSE = 0.1
_MOST = 60  # networks of a family, evenly from the sorted cache


def measure(case: Case) -> dict[str, Any]:
    """Ranks of each network of a family that is in the cache; some are trained here, so that there are always some."""
    import numpy as np

    from hessmap_research.studies.trained_networks import stored_networks

    {
        "fully connected": _train_dense,
        "convolutional": _train_convolutional,
        "zoo": _train_zoo,
        "penalised": _train_penalised,
    }[case["family"]]()
    cached = list(stored_networks(case["family"]))
    every = [network for network in cached if network is not None]
    chosen = every[:: -(-len(every) // _MOST)]
    found = [_ranks(network) for network in chosen]
    names = {f"n{place}": _words(network) for place, network in enumerate(chosen)}
    columns = {name: np.array([each[name] for each in found]) for name in found[0]}
    return {
        "num_cached": len(cached),
        "num_left_out": len(cached) - len(every),
        "num_measured": len(chosen),
        "names": names,
        **columns,
        "num_contradictions": int((columns["jacobian_rank"] > columns["upper_bound"]).sum()),
        "median_share": float(np.median(columns["coarse_rank"] / columns["full_rank"])),
        "median_narrowest_share": float(np.median(columns["narrowest_rank"] / columns["narrowest_width"])),
        "num_decided": int((columns["jacobian_rank"] == columns["upper_bound"]).sum()),
    }


def _words(network: StoredNetwork) -> str:
    return f"{network.architecture}, seed {network.seed}, {network.key[:8]}"


def _ranks(network: StoredNetwork) -> dict[str, int]:
    """The largest Jacobian rank, strict and at a tenth of the largest singular value, and the narrowest layer."""
    from hessmap.maps.functions import bottleneck_view, function_rank

    rank = function_rank(network.model, network.inputs)
    view = bottleneck_view(network.model, network.inputs, relative_tolerance=_COARSE)
    hidden = view.layers[:-1] or view.layers
    narrowest = min(hidden, key=lambda layer: layer.centred_rank)
    values = rank.singular_values
    assert rank.bottleneck is not None
    return {
        "jacobian_rank": rank.value,
        "coarse_rank": int((values > _COARSE * values[:, :1]).sum(axis=1).max()),
        "full_rank": min(rank.input_dim, rank.output_dim),
        "upper_bound": rank.bottleneck.upper,
        "narrowest_rank": narrowest.centred_rank,
        "narrowest_width": narrowest.width,
        "num_identities": len(view.identities),
    }


def _train_dense() -> None:
    from hessmap.datasets import digits
    from hessmap.networks import FullyConnected
    from hessmap_research.studies.trained_networks import trained_network

    options: dict[str, Any] = {"init": "kaiming", "epochs": 30, "learning_rate": 0.02, "record_every": 30}
    for activation in ("identity", "relu", "tanh"):
        network = FullyConnected((64, 30, 20, 10), bias=True, activation=activation)
        trained_network(network, digits(num_samples=1000), **options)


def _train_convolutional() -> None:
    from hessmap.datasets import digits
    from hessmap.networks import Convolutional
    from hessmap_research.studies.trained_networks import trained_network

    for filters in (2, 8):
        network = Convolutional(input_length=16, channels=(1, filters), kernels=(4,), strides=(1,), outputs=10)
        data = digits(num_samples=1000, side=4)
        trained_network(network, data, init="glorot", epochs=30, learning_rate=0.1, record_every=30)


def _train_zoo() -> None:
    from hessmap_research.studies.layers.trained_layers import recipe_for, trained_layers

    for name in ("F-100^2", "F-200^2-BN"):
        trained_layers(name, "digits", recipe=recipe_for(name, "digits", epochs=60))


def _train_penalised() -> None:
    """As function/schatten and function/rank-recovery have them."""
    from hessmap_research.studies.function import schatten

    schatten.trained_on_rank(2, seed=0)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total = sum(row["num_measured"] for row in rows)
    wrong = sum(row["num_contradictions"] for row in rows)
    claim = "The rank of the Jacobian never exceeds the upper bound on the bottleneck rank"
    yield Claim("jacobian-below-bottleneck", claim, wrong == 0, f"{wrong} of {total} networks do")
    penalised = [row for row in rows if row["family"] == "penalised"]
    others = [row for row in rows if row["family"] != "penalised"]
    if penalised and others:
        counted = [f"{row['family']} {row['median_share']:.2f} ({row['num_measured']})" for row in rows]
        claim = "Penalised networks have the smallest share of the full Jacobian rank, at a tenth of the largest value"
        is_least = penalised[0]["median_share"] < min(row["median_share"] for row in others)
        # The families differ in their data too, and a median of two networks is no law of a family.
        are_enough = min(row["num_measured"] for row in rows) >= FEWEST
        yield Claim(
            "penalised-smallest",
            claim,
            is_least if are_enough else None,
            f"medians (of networks): {', '.join(counted)}",
        )


STUDY = Study(
    name="function/trained-zoo",
    question="What ranks have the functions of the networks that the other studies have trained?",
    reference="Jacot 2023, section 3; Ansuini et al. 2019 on the dimension of representations",
    cases=grid(family=FAMILIES),
    measure=measure,
    checks=(Check("num_contradictions", 0, "equal"),),
    claims=claims,
    view=View(
        figures=(
            Cloud(
                title="cached networks (zoo: F-100^2, F-200^2-BN)",
                x="narrowest_rank",
                y="coarse_rank",
                colour="family",
                x_scale="log",
                y_scale="log",
                x_limits=(0.8, 100.0),
                y_limits=(0.8, 100.0),
                x_label="centred rank of the narrowest layer",
                y_label="largest Jacobian rank, above a tenth",
                diagonal="Jacobian rank = rank of the narrowest layer",
            ),
        ),
        table=(
            "family",
            Column("num_cached", "cached"),
            Column("num_left_out", "not built"),
            Column("num_measured", "measured"),
            Column("num_decided", "closed"),
            Column("median_share", "Jacobian", ".2f"),
            Column("median_narrowest_share", "narrowest", ".2f"),
        ),
    ),
    seconds=20.0,
    answered=Answer(
        "Median shares of the full Jacobian rank from 0.13 (penalised) to 1.00, at a tenth of the largest value;"
        " none is above the upper bound on the bottleneck rank.",
        num_claims=2,
        cases="agrees",
        inconclusive=("penalised-smallest",),
    ),
)
