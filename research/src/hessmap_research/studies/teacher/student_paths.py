"""Students near their teacher: under exact gradient flow, and under stochastic descent on fresh normal inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Activation = Callable[[Floats], Floats]


def flow(network: Any, teacher: Any, perturbations: Any, times: Any) -> tuple[Any, Any]:
    """Points (times, students, parameters) and population losses (students, times) of students under the flow."""
    import numpy as np

    from hessmap_research.instruments.gradient_flow import gradient_flow

    def gradient(moved: Any) -> Any:
        return network.population_gradient(network.from_vector(teacher.vector + moved), teacher)

    smallest = 1e-11 * float(np.abs(perturbations).max())
    moved = gradient_flow(gradient, perturbations, times, relative_tolerance=1e-10, absolute_tolerance=smallest)
    points = teacher.vector + moved
    return points, np.stack([population_loss(network, point, teacher) for point in points], axis=1)


def population_loss(network: Any, vectors: Any, teacher: Any) -> Any:
    """The loss of students; of linear ones as |W2 W1 - teacher's|^2 / 2, which keeps its digits when it is tiny."""
    student = network.from_vector(vectors)
    if network.activation != "identity":
        return network.population_loss(student, teacher)
    gap = student.layers[1] @ student.layers[0] - teacher.layers[1] @ teacher.layers[0]
    return (gap**2).sum((-2, -1)) / 2


def _normal_density(t: Floats) -> Floats:
    return np.asarray(np.exp(-t * t / 2) / np.sqrt(2 * np.pi))


def activation_and_slope(name: str) -> tuple[Activation, Activation]:
    """g and g' of "linear", "quadratic" (t + t^2 / 2), "erf" (of t / sqrt 2) and "relu"."""
    from scipy.special import ndtr

    known: dict[str, tuple[Activation, Activation]] = {
        "linear": (lambda t: t, np.ones_like),
        "quadratic": (lambda t: t + t * t / 2, lambda t: 1 + t),
        "erf": (lambda t: 2 * ndtr(t) - 1, lambda t: 2 * _normal_density(t)),
        "relu": (lambda t: np.maximum(t, 0.0), lambda t: (t > 0).astype(np.float64)),
    }
    return known[name]


def descend(
    name: str,
    teacher: tuple[Floats, Floats],
    student: tuple[Floats, Floats],
    *,
    step: float,
    batch: int,
    num_steps: int,
    every: int,
    seed: int,
) -> list[tuple[Floats, Floats]]:
    """The students after 0, every, 2 every, .. steps; each step takes ``batch`` inputs that were never seen before."""
    generator = np.random.default_rng(seed)
    value, slope = activation_and_slope(name)
    (first, second), path = (part.copy() for part in student), [student]
    for count in range(1, num_steps + 1):
        inputs = generator.normal(size=(batch, first.shape[1]))
        sums = inputs @ first.T
        hidden = value(sums)
        residual = hidden @ second - value(inputs @ teacher[0].T) @ teacher[1]
        back = residual[:, None] * slope(sums) * second
        first = first - step / batch * back.T @ inputs
        second = second - step / batch * hidden.T @ residual
        if count % every == 0:
            path.append((first, second))
    return path
