"""An operator of your own: a product is enough for extreme eigenvalues and the density.

The matrix of second differences is never formed. Its eigenvalues 2 - 2 cos(k pi / (n + 1)) and their density are known,
so both measurements are compared with the closed form.
"""

import math
from pathlib import Path

import torch

import hessmap as hm
from hessmap.linalg import SymmetricOperator


class SecondDifference(SymmetricOperator):
    """The matrix of second differences, by its product with a block of vectors."""

    size = 500
    dtype = torch.float64

    def matmat(self, block: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(block, (0, 0, 1, 1))
        return 2 * block - padded[:-2] - padded[2:]


operator = SecondDifference()
angles = torch.arange(1, operator.size + 1, dtype=torch.float64) * math.pi / (operator.size + 1)
exact = 2 - 2 * angles.cos()

found = hm.top_eigenpairs(operator, 3, tolerance=1e-6)
print(f"largest eigenvalues {found.eigenvalues}, exact {exact.flip(0)[:3].numpy()}")
density = hm.density_estimate(operator, num_steps=40, num_probes=10, seed=0)
figure = density.plot()
axis = figure.axes[0]
axis.hist(exact.numpy(), bins=40, density=True, histtype="step", color="black", label="exact")
axis.set(xscale="linear", yscale="linear", xlim=(-0.4, 4.4), ylim=(0, 1), xlabel="eigenvalue")
axis.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/own-operator.png", dpi=150)
