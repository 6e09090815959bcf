"""The curvature of a physics-informed network: the equation and its boundary values, each term on its own.

A network is trained on the Poisson equation u'' = -sin(x) with zero boundary values. The residual of the equation takes
derivatives in the inputs inside of the objective; the Hessian of each term is measured on its own.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)).double()
inner = torch.linspace(0, torch.pi, 64, dtype=torch.float64)[1:-1, None]
ends = torch.tensor([[0.0], [torch.pi]], dtype=torch.float64)


def equation(model, points):
    points = points.detach().requires_grad_()
    first = torch.autograd.grad(model(points).sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), points, create_graph=True)[0]
    return (second + points.sin()).square()[:, 0]


def boundary(model, points):
    return model(points).square()[:, 0]


def whole(model, batch):
    return equation(model, batch[0]).mean() + boundary(model, batch[1]).mean()


optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(600):
    optimiser.zero_grad()
    whole(model, (inner, ends)).backward()
    optimiser.step()

terms = {
    "equation": hm.Problem(model, objective=equation, data=inner),
    "boundary": hm.Problem(model, objective=boundary, data=ends),
    "both": hm.Problem(model, objective=whole, data=(inner, ends)),
}
spectra = {name: hm.spectrum(hm.loss_hessian(problem)).eigenvalues for name, problem in terms.items()}
for name, eigenvalues in spectra.items():
    print(f"{name:9s} loss {terms[name].risk():.1e}, sharpness {eigenvalues[0]:8.3f}, trace {eigenvalues.sum():8.3f}")

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
for name, eigenvalues in spectra.items():
    axes.semilogy(range(1, 41), abs(eigenvalues[:40]), ".-", label=name)
axes.set(xlabel="number", ylabel="eigenvalue", title="The 40 largest eigenvalues of each term")
axes.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/physics-informed.png", dpi=150)
