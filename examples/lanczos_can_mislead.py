"""How Lanczos can mislead: ghosts of an eigenvalue that exists once, and missed copies of one that exists twice.

The plain process, as many tools have it, beside `top_eigenpairs`, on a matrix whose eigenvalues are known.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import hessmap as hm

eigenvalues = np.sort(np.concatenate([[10.0, 6.0, 6.0, 3.0], np.linspace(1.0, 0.0, 196)]))[::-1]
matrix = np.diag(eigenvalues)


def plain_lanczos(num_steps):
    """Eigenvalues of the tridiagonal matrix; nothing keeps the vectors orthogonal but the recurrence itself."""
    vector = np.random.default_rng(0).standard_normal(len(matrix))
    vector, before, beta = vector / np.linalg.norm(vector), np.zeros(len(matrix)), 0.0
    diagonal, beside = [], []
    for _ in range(num_steps):
        image = matrix @ vector - beta * before
        diagonal.append(vector @ image)
        image -= diagonal[-1] * vector
        beta = np.linalg.norm(image)
        beside.append(beta)
        before, vector = vector, image / beta
    small = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    return np.linalg.eigvalsh(small)[::-1]


plain = plain_lanczos(30)[:6]
found = hm.top_eigenpairs(matrix, 6)
print("true:           ", ", ".join(f"{value:.3f}" for value in eigenvalues[:6]))
print("plain Lanczos:  ", ", ".join(f"{value:.3f}" for value in plain))
print("top_eigenpairs: ", ", ".join(f"{value:.3f}" for value in found.eigenvalues), f"(converged: {found.converged})")
assert np.isclose(plain[:2], 10.0).all()  # a ghost: 10 exists once
assert np.allclose(found.eigenvalues, eigenvalues[:6])

figure = Figure(figsize=(6.4, 3.2), layout="constrained")
axes = figure.subplots()
shown = {"true": eigenvalues[:6], "plain Lanczos": plain, "hessmap": found.eigenvalues}
for place, (name, values) in enumerate(shown.items()):
    axes.plot(np.arange(1, 7) + 0.12 * (place - 1), values, "o", label=name)
axes.set(xlabel="place", ylabel="eigenvalue", title="The six largest eigenvalues of one matrix")
axes.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/ghosts.png", dpi=150)
