"""K-FAC and its relatives of a small convolutional network, and how far each is from the exact curvature.

The exact blocks of every layer are known for networks of this size: the error of K-FAC, EK-FAC, the nearest Kronecker
product and the diagonal is measured, not assumed. The step (K + damping I)^-1 gradient is compared with the exact one.
"""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=200)
images = inputs.reshape(-1, 1, 8, 8)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(), nn.Flatten()
)
model = nn.Sequential(model, nn.Linear(6, 10)).to(images.dtype)
hm.train(model, (images, labels), epochs=30, learning_rate=0.05)
problem = hm.Problem(model, "cross_entropy", images, labels)

for kind in ("kfac", "ekfac", "best", "diagonal", "block"):
    curvature = hm.kronecker_curvature(problem, kind)
    error = hm.kronecker_error(problem, curvature)
    print(f"{kind}: Frobenius error {100 * error.frobenius_error:.0f} %, error of the step {error.solve_error:.2f}")

error = hm.kronecker_error(problem, hm.kronecker_curvature(problem, "kfac"))
print(error.table())
print(error.summary)
Path("hessmap-runs").mkdir(exist_ok=True)
error.plot().savefig("hessmap-runs/kfac-error.png", dpi=150)
