"""How long does the population Hessian of a teacher with 2,550 parameters take in closed form?

50 inputs and 50 hidden units under the error function, relu and t + t^2, against what samples give: the mean of J^T J
over 5,000 Gaussian inputs, written as one matrix product, and how far it is from the closed form.

    make bench    # or: python benchmarks/teacher_hessian.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from harness import best_seconds, environment, write
from scipy.special import erf

from hessmap.theory.teacher_student import TeacherStudent, Weights

SIZE, NUM_SAMPLES, WANTED_SECONDS = 50, 5000, 1.0
ACTIVATIONS: dict[str, Any] = {"erf": "erf", "relu": "relu", "t + t^2": (0, 1, 1.0)}
FUNCTIONS: dict[str, Any] = {
    "erf": (lambda t: erf(t / np.sqrt(2)), lambda t: np.sqrt(2 / np.pi) * np.exp(-(t**2) / 2)),
    "relu": (lambda t: np.maximum(t, 0), lambda t: (t > 0).astype(float)),
    "t + t^2": (lambda t: t + t**2, lambda t: 1 + 2 * t),
}


def sampled_hessian(weights: Weights, name: str) -> Any:
    """The mean of J^T J over samples, J written out."""
    value, slope = FUNCTIONS[name]
    inputs = np.random.default_rng(1).normal(size=(NUM_SAMPLES, SIZE))
    units = inputs @ weights.layers[0].T
    inner = (weights.layers[1] * slope(units))[:, :, None] * inputs[:, None, :]
    jacobian = np.concatenate([inner.reshape(NUM_SAMPLES, -1), value(units)], axis=1)
    return jacobian.T @ jacobian / NUM_SAMPLES


def measure(name: str) -> dict[str, Any]:
    network = TeacherStudent(SIZE, SIZE, ACTIVATIONS[name])
    weights = network.draw(0)
    closed = network.population_hessian(weights)
    seconds = best_seconds(lambda: network.population_hessian(weights))
    sampled_seconds = best_seconds(lambda: sampled_hessian(weights, name))
    error = np.linalg.norm(sampled_hessian(weights, name) - closed) / np.linalg.norm(closed)
    return {
        "activation": name,
        "num_parameters": network.num_parameters,
        "seconds": seconds,
        "sampled_seconds": sampled_seconds,
        "num_samples": NUM_SAMPLES,
        "relative_error_of_samples": float(error),
        "wanted_seconds": WANTED_SECONDS,
        "passes": seconds <= WANTED_SECONDS,
    }


def main() -> int:
    where = environment()
    rows = [measure(name) for name in ACTIVATIONS]
    for row in rows:
        print(
            f"{row['activation']}, {row['num_parameters']} parameters: {row['seconds']:.2f} s in closed form "
            f"(wanted {row['wanted_seconds']:g} s); {row['num_samples']} samples take {row['sampled_seconds']:.2f} s "
            f"and are off by {row['relative_error_of_samples']:.0%}, {'passes' if row['passes'] else 'FAILS'}"
        )
    write("teacher_hessian", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
