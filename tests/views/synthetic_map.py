"""A map of curvature made up from a seed: what views are tested with, no network needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hessmap.records import (
    PARTS,
    CurvatureMap,
    DataRankMeasurement,
    EffectiveDimension,
    LayerCurvature,
    NetworkCurvature,
    Part,
    PartCurvature,
    RankMeasurement,
    RankPrediction,
    RankValue,
    Spectrum,
)

RANKS: dict[Part, int] = {"outer_product": 54, "functional": 80, "loss": 110}
SIZE = 160


def rank_measurement(value: int, size: int, gap: float = 1e6, decidable: bool = True) -> RankMeasurement:
    return RankMeasurement(value, 1e-12, 1.0, 1e-12 * gap**0.5, 1e-12 / gap**0.5, gap, decidable, size)


def part_curvature(part: Part, noise: float, kind: str) -> PartCurvature:
    random = np.random.default_rng(RANKS[part])
    values = np.logspace(0, -7, RANKS[part])
    rest = noise * np.abs(random.standard_normal(SIZE - RANKS[part]))
    spectrum = Spectrum(np.sort(np.concatenate([values, rest]))[::-1], "dense", True, np.array([]), 1.0)
    measured = int((spectrum.eigenvalues > 1e-12).sum())
    return PartCurvature(
        part=part,
        measurement=rank_measurement(measured, SIZE, decidable=noise < 1e-14),
        spectrum=spectrum,
        prediction=RankValue(RANKS[part], kind, "Singh et al. 2021, Theorem 3"),  # type: ignore[arg-type]
    )


def network_curvature(name: str, noise: float, kind: str) -> NetworkCurvature:
    parts = tuple(part_curvature(part, noise, kind) for part in PARTS)
    sizes, shares = (96, 48, 16), (0.25, 0.35, 0.4)
    layers = tuple(
        LayerCurvature(f"{2 * i}", f"{size // 8}×8", size, rank_measurement(size - 3, size), 2.5, 7.0, part)
        for i, (size, part) in enumerate(zip(sizes, shares, strict=True))
    )
    values = tuple(part.prediction for part in parts)
    assert all(value is not None for value in values)
    return NetworkCurvature(
        name=name,
        description="8-12-4-4 relu",
        loss="cross_entropy",
        num_samples=100,
        num_parameters=SIZE,
        risk=0.01,
        gradient_norm=2e-4,
        parts=parts,
        layers=layers,
        effective_dimension=EffectiveDimension(33.3, 0.01, 4.0, 0, 1e-9, SIZE),
        data_ranks=DataRankMeasurement(*(rank_measurement(3, 8) for _ in range(4)), False),
        prediction=RankPrediction(*values, SIZE),  # type: ignore[arg-type]
    )


def curvature_map(with_counterpart: bool = True) -> CurvatureMap:
    linear = network_curvature("network without activations", 1e-17, "exact") if with_counterpart else None
    network = network_curvature("network", 1e-11, "numerical")
    parts = tuple(replace(part, prediction=None) for part in network.parts)
    return CurvatureMap("made up", replace(network, parts=parts), linear, ("The first finding.", "A <second> one."))
