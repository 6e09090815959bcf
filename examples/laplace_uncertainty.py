"""Error bars of a network: Laplace posteriors with the exact curvature, K-FAC and the diagonal.

A small network is fitted to noisy points with a gap. The prior precision is the one with the largest marginal
likelihood; the exact Gauss-Newton posterior widens in the gap and outside, and the approximations are drawn beside it.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm

torch.manual_seed(0)
noise = 0.15
x = torch.cat([torch.linspace(-2, -0.6, 30), torch.linspace(0.7, 2, 30)])[:, None].double()
y = torch.sin(2 * x) + noise * torch.randn_like(x)
model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1)).double()
optimiser = torch.optim.LBFGS(model.parameters(), max_iter=2000, line_search_fn="strong_wolfe")


def closure():
    optimiser.zero_grad()
    penalty = sum(value.square().sum() for value in model.parameters())
    loss = (model(x) - y).square().sum(1).mean() / 2 + 1e-4 * penalty
    loss.backward()
    return loss


optimiser.step(closure)
problem = hm.Problem(model, "squared", x, y)
grid = torch.linspace(-3, 3, 200)[:, None].double()
figure = Figure(figsize=(9.6, 3.2), layout="constrained")
for axes, kind in zip(figure.subplots(1, 3, sharey=True), ("full", "kfac", "diagonal"), strict=True):
    posterior = hm.laplace(problem, kind, noise=noise).optimal_prior()
    evidence = posterior.marginal_likelihood()
    print(f"{kind}: prior precision {posterior.prior_precision:.2g}, log marginal likelihood {evidence.value:.1f}")
    found = posterior.predict(grid)
    width = 2 * found.variance[:, 0] ** 0.5
    axes.fill_between(grid[:, 0], found.mean[:, 0] - width, found.mean[:, 0] + width, alpha=0.25)
    axes.plot(grid[:, 0], found.mean[:, 0])
    axes.plot(x[:, 0], y[:, 0], ".", color="black", markersize=3)
    title = {"full": "exact Gauss-Newton", "kfac": "K-FAC", "diagonal": "diagonal"}[kind]
    axes.set(title=title, ylim=(-3, 3), xlabel="x")
figure.axes[0].set_ylabel("prediction, two standard deviations")
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/laplace.png", dpi=150)
