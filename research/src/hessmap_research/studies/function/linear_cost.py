"""What a linear map costs: balanced factors, random factors, and the weights that training finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

_DEPTHS = (1, 2, 3, 4, 6, 8)
_NUM_MAPS, _NUM_FACTORISATIONS = 50, 10
_RIDGE, _STEP, _NUM_STEPS, _EVERY = 0.02, 0.02, 10_000, 250


def cases() -> tuple[Case, ...]:
    factors = grid(item=["factors"], num_layers=_DEPTHS, seed=[0])
    return (*factors, *grid(item=["trained"], num_layers=(2, 3, 5), seed=range(3)))


def measure(case: Case) -> dict[str, Any]:
    return {"factors": _factors, "trained": _train}[case["item"]](case)


def _factors(case: Case) -> dict[str, Any]:
    """Over random maps: the cost of the balanced factors over the closed form, and that of other factors."""
    import numpy as np

    from hessmap.theory.functions import balanced_factors, linear_representation_cost

    depth, generator = case["num_layers"], np.random.default_rng([case["seed"], case["num_layers"]])
    excess, products, others = [], [], []
    for _ in range(_NUM_MAPS):
        matrix = _random_map(generator)
        cost = linear_representation_cost(matrix, depth)
        factors = balanced_factors(matrix, depth)
        excess.append(abs(_squared_norm(factors) / cost - 1))
        products.append(float(np.abs(_product(factors) - matrix).max() / np.abs(matrix).max()))
        others += [_squared_norm(_other_factors(factors, generator)) / cost - 1 for _ in range(_NUM_FACTORISATIONS)]
    return {
        "balanced_excess": max(excess),
        "product_error": max(products),
        "least_other_excess": min(others),
        "median_other_excess": float(np.median(others)),
        "num_maps": len(excess),
        "num_others": len(others),
    }


def _random_map(generator: Any) -> Any:
    """A matrix of 1 to 6 rows, columns and rank, of any size."""
    rows, columns, rank = generator.integers(1, 7, size=3)
    product = generator.normal(size=(rows, rank)) @ generator.normal(size=(rank, columns))
    return product * 10.0 ** generator.uniform(-1, 1)


def _other_factors(factors: Sequence[Any], generator: Any) -> list[Any]:
    """Other factors of the same map: an invertible matrix and its inverse between every two layers, near or far from
    a rotation."""
    import numpy as np

    found = [factor.copy() for factor in factors]
    spread = 10.0 ** generator.uniform(-3, 0.3)
    for place in range(len(found) - 1):
        size = len(found[place])
        left, right = (np.linalg.qr(generator.normal(size=(size, size)))[0] for _ in range(2))
        scales = np.exp(spread * generator.normal(size=size))
        found[place] = left @ (scales[:, None] * (right @ found[place]))
        found[place + 1] = (found[place + 1] @ right.T) / scales @ left.T
    return found


def _train(case: Case) -> dict[str, Any]:
    """Gradient descent on ||W_L .. W_1 - A||^2 + ridge ||W||^2 from random weights of hidden width 6."""
    import numpy as np

    from hessmap.theory.functions import linear_representation_cost

    depth, generator = case["num_layers"], np.random.default_rng([7, case["seed"]])
    target = generator.normal(size=(4, 3)) @ generator.normal(size=(3, 5))
    widths = (5, *(6,) * (depth - 1), 4)
    sizes = zip(widths[1:], widths[:-1], strict=True)
    weights = [generator.normal(size=size) * (2.0 / sum(size)) ** 0.5 for size in sizes]
    steps, norms, costs = [], [], []
    for step in range(_NUM_STEPS + 1):
        if step % _EVERY == 0:
            steps.append(step)
            norms.append(_squared_norm(weights))
            costs.append(linear_representation_cost(_product(weights), depth))
        moved = zip(weights, _gradients(weights, target), strict=True)
        weights = [weight - _STEP * (1 - step / (_NUM_STEPS + 1)) * gradient for weight, gradient in moved]
    ratios = np.array(norms) / np.array(costs)
    error = float(np.linalg.norm(_product(weights) - target) / np.linalg.norm(target))
    return {
        "steps": np.array(steps),
        "squared_norms": np.array(norms),
        "costs": np.array(costs),
        "excess": ratios - 1,
        "first_ratio": float(ratios[0]),
        "last_ratio": float(ratios[-1]),
        "least_ratio": float(ratios.min()),
        "fit_error": error,
    }


def _gradients(weights: Sequence[Any], target: Any) -> list[Any]:
    """Of ||W_L .. W_1 - A||^2 + ridge ||W||^2; a factor 1 / rows of A keeps large maps from stepping too far."""
    residual = 2 * (_product(weights) - target) / len(target)
    found = []
    for place, weight in enumerate(weights):
        above = _product(weights[place + 1 :]) if place + 1 < len(weights) else None
        below = _product(weights[:place]) if place else None
        back = residual if above is None else above.T @ residual
        found.append((back if below is None else back @ below.T) + 2 * _RIDGE * weight)
    return found


def _product(factors: Sequence[Any]) -> Any:
    """W_L .. W_1 of W_1, .., W_L."""
    found = factors[0]
    for factor in factors[1:]:
        found = factor @ found
    return found


def _squared_norm(factors: Sequence[Any]) -> float:
    return float(sum((factor**2).sum() for factor in factors))


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    drawn = [row for row in rows if row["item"] == "factors"]
    if drawn:
        total, others = sum(row["num_maps"] for row in drawn), sum(row["num_others"] for row in drawn)
        worst = max(row["balanced_excess"] for row in drawn)
        yield Claim(
            "balanced-attain", "Balanced factors attain L sum s^(2/L)", worst < 1e-12, f"{total} maps, to {worst:.1e}"
        )
        least = min(row["least_other_excess"] for row in drawn)
        detail = f"{others} factorisations, the least above it by {least:.1e}"
        yield Claim("none-cheaper", "No other factorisation costs less", least > -1e-12, detail)
    trained = [row for row in rows if row["item"] == "trained"]
    if trained:
        first = min(row["first_ratio"] for row in trained)
        last = max(row["last_ratio"] for row in trained)
        detail = f"from at least {first:.2f} times the cost of their own map to at most {last:.6f} times"
        yield Claim("trained-attain", "Trained linear networks come within 0.1 % of the cost", last < 1.001, detail)


STUDY = Study(
    name="function/linear-cost",
    question="Is L times the sum of s^(2/L) what a linear map costs, and does training reach it?",
    reference="Jacot 2023, section 1 (Dai, Karzand & Srebro 2021)",
    cases=cases(),
    measure=measure,
    checks=(
        Check("balanced_excess", 1e-12, "at_most"),
        Check("least_other_excess", -1e-12, "at_least"),
        Check("least_ratio", 1 - 1e-12, "at_least"),
        Check("last_ratio", 1.001, "at_most"),
    ),
    claims=claims,
    view=View(
        figures=(
            Lines(
                title="trained linear networks",
                x="steps",
                series=(Series("{num_layers} layers", points="excess"),),
                split="num_layers",
                where={"item": "trained"},
                y_scale="log",
                y_label="$\\|W\\|^2$ over the cost of the map, minus 1",
            ),
            Lines(
                title="random factorisations",
                x="num_layers",
                series=(Series("median of 500", points="median_other_excess"),),
                where={"item": "factors"},
                y_label="$\\|W\\|^2$ over the cost, minus 1",
                x_label="layers",
                marks=(Mark(0.0, "balanced factors", "y"),),
            ),
        ),
        table=(
            "item",
            Column("num_layers", "layers"),
            "seed",
            Column("balanced_excess", "balanced", ".1e"),
            Column("least_other_excess", "least other", ".1e"),
            Column("median_other_excess", "median", ".2g"),
            Column("first_ratio", "start", ".3f"),
            Column("last_ratio", "end", ".6f"),
        ),
    ),
    seconds=lambda case: 3.0 if case["item"] == "trained" else 0.5,
    answered=Answer(
        "Yes: balanced factors attain it, no other factorisation costs less, and trained linear networks come"
        " within 0.1 % of the cost of their own map.",
        num_claims=3,
        cases="agrees",
    ),
)
