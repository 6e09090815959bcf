"""Linear teachers whose weights are not normal: how far their spectra are from the law, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Histogram, Lines, Series, View

_FOURTH_MOMENTS = {"normal": 3.0, "uniform": 1.8, "laplace": 6.0, "two-point": 1.0, "student": 4.0}
_NUM_NORMS = 20_000
_SIZES = ((5, 5), (10, 20), (30, 10), (30, 60), (90, 30), (90, 180))


def cases() -> tuple[Case, ...]:
    return tuple(
        {"inputs": inputs, "hidden": hidden, **case}
        for inputs, hidden in _SIZES
        for case in grid(distribution=_FOURTH_MOMENTS, num_teachers=[6000 if hidden < inputs else 60_000 // inputs])
    )


def measure(case: Case) -> dict[str, Any]:
    """Distances of the spectra from the law for normal weights, and from that with the true law of ||W2||^2."""
    import numpy as np

    from hessmap.theory.teacher_student import LinearSpectrumLaw
    from hessmap_research.studies.teacher.simulated_law import grid_of, random_weights, squared_singular_values

    inputs, hidden, name, count = case["inputs"], case["hidden"], case["distribution"], case["num_teachers"]
    law = LinearSpectrumLaw(inputs, hidden)
    squares = squared_singular_values(inputs, hidden, count, seed=inputs, distribution=name)
    norms = (random_weights(name, (_NUM_NORMS, hidden), np.random.default_rng(hidden)) ** 2).mean(1)
    values = np.sort((norms[:count, None] + squares).ravel())
    points = grid_of(law)
    simulated = np.searchsorted(values, points, side="right") / values.size
    own = np.mean([law.of_teacher(norm).cdf(points) for norm in norms[: min(count, 1000)]], axis=0)
    predicted = (_FOURTH_MOMENTS[name] - 1) / hidden
    squared = (norms - 1) ** 2
    error = max(float(squared.std() / np.sqrt(_NUM_NORMS)), 1e-15)
    at = np.linspace(0.01, law.mean + 4 * np.sqrt(law.variance), 300)
    return {
        "shape": f"Ni {'<' if inputs < hidden else '>' if inputs > hidden else '='} Nh",
        "distance": float(np.abs(simulated - law.cdf(points)).max()),
        "own_norms_distance": float(np.abs(simulated - own).max()),
        "norm_variance": float(squared.mean()),
        "predicted_norm_variance": predicted,
        "norm_variance_in_errors": abs(float(squared.mean()) - predicted) / error,
        "values": values[:: max(1, values.size // 1000)],
        "at": at,
        "density": law.pdf(at),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for name in _FOURTH_MOMENTS:
        wide = {
            row["inputs"]: row["distance"]
            for row in rows
            if row["distribution"] == name and row["hidden"] > row["inputs"]
        }
        if len(wide) > 1:
            smallest, largest = min(wide), max(wide)
            detail = (
                f"{wide[smallest]:.4f} at (10, 20), {wide[largest]:.4f} at (90, 180)" if largest == 90 else str(wide)
            )
            yield Claim(
                claim_id("wide-nearer", name),
                f"For Ni < Nh the largest teachers are nearer to the law than the smallest, {name}",
                wide[largest] < wide[smallest],
                detail,
            )
    for name in _FOURTH_MOMENTS:
        kept = [row for row in rows if row["distribution"] == name != "normal" and row["inputs"] > row["hidden"]]
        if len(kept) > 1:
            near, far = min(kept, key=lambda row: row["inputs"]), max(kept, key=lambda row: row["inputs"])
            limit = _limit(near)
            closes_in = abs(far["distance"] - limit) < abs(near["distance"] - limit)
            detail = f"{near['distance']:.3f}, {far['distance']:.3f}, limit {limit:.3f}"
            yield Claim(
                claim_id("narrow-limit", name),
                f"For Ni > Nh the larger teachers are nearer to the distance of the atoms, which is not zero, {name}",
                closes_in,
                detail,
            )
    small = [row for row in rows if (row["inputs"], row["hidden"]) == (30, 10) and row["distribution"] != "normal"]
    if small:
        worst = max(small, key=lambda row: row["distance"])
        detail = (
            f"{worst['distribution']}: {worst['distance']:.3f}, with its own norms {worst['own_norms_distance']:.3f}"
        )
        claim = (
            "At (30, 10) the difference is that of ||W2||^2: with the right law of the norm less than a third is left"
        )
        yield Claim("norm-explains", claim, worst["own_norms_distance"] < worst["distance"] / 3, detail)


def _limit(row: Row) -> float:
    """(1 - Nh/Ni) sup |Phi(x / sqrt(m4 - 1)) - Phi(x / sqrt 2)|: the distance of the atoms for large Ni > Nh."""
    import numpy as np
    from scipy.special import ndtr

    width, x = np.sqrt(_FOURTH_MOMENTS[row["distribution"]] - 1), np.linspace(1e-9, 8, 4001)
    other = ndtr(x / width) if width > 0 else np.ones_like(x)
    return float((1 - row["hidden"] / row["inputs"]) * np.abs(other - ndtr(x / np.sqrt(2))).max())


_ATOM = {(9, "two-point"): " (the atom at 1 goes to 17)"}

STUDY = Study(
    name="teacher/distributions",
    question="Do linear teachers with weights that are not normal follow the same law?",
    reference="A Teacher-Student Perspective on .. Learning Near the Optimal Point, Appendix E, Figures 8 and 9",
    cases=cases(),
    measure=measure,
    checks=(Check("norm_variance_in_errors", 5.0, "at_most"),),
    claims=claims,
    view=View(
        figures=(
            *(
                Histogram(
                    title=f"Figure {number}, {name}, {inputs} inputs, {hidden} hidden",
                    values="values",
                    density="density",
                    density_at="at",
                    where={"inputs": inputs, "hidden": hidden, "distribution": name},
                    x_label="non-zero eigenvalue" + _ATOM.get((number, name), ""),
                    y_limits=(0.0, 0.45 if number == 8 else 1.1),
                )
                for number, inputs, hidden in ((8, 10, 20), (9, 30, 10))
                for name in ("uniform", "two-point", "laplace")
            ),
            *(
                Lines(
                    title=f"distance from the law, {shape}",
                    where={"shape": shape},
                    x="hidden",
                    series=(Series("{distribution}", points="distance", line="distance"),),
                    split="distribution",
                    y_scale="log",
                    x_label="hidden units",
                    y_label="Kolmogorov-Smirnov distance",
                )
                for shape in ("Ni < Nh", "Ni > Nh")
            ),
        ),
        table=(
            "inputs",
            "hidden",
            "distribution",
            Column("distance", "distance", ".4f"),
            Column("own_norms_distance", "with the right norms", ".4f"),
            Column("norm_variance", "variance of the norm", ".4f"),
            Column("predicted_norm_variance", "predicted", ".4f"),
        ),
    ),
    seconds=3.0,
    answered=Answer(
        "It depends on the shape: with fewer inputs than hidden units the larger teachers come near the law; with"
        " more they keep a distance from it, that of the laws of ||W2||^2.",
        num_claims=10,
        cases="agrees",
    ),
)
