"""The curvature of a contrastive loss: a scalar of the whole batch, at several temperatures.

Two noisy views of every digit are embedded; the loss compares each with all others of its batch (SimCLR, Chen et al.
2020), so that there is no loss of a single sample. The sharpness is measured for several temperatures of one network.
"""

from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional as F

import hessmap as hm

torch.manual_seed(0)
digits, _ = hm.datasets.digits(num_samples=64)
views = torch.cat([digits + 0.2 * torch.randn_like(digits) for _ in range(2)])
model = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 8)).double()


def contrastive(model, batch, temperature):
    embedded = F.normalize(model(batch), dim=1)
    scores = embedded @ embedded.T / temperature
    scores = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), float("-inf"))
    half = len(batch) // 2
    return F.cross_entropy(scores, torch.arange(len(batch)).roll(half))


optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(150):
    optimiser.zero_grad()
    contrastive(model, views, 0.5).backward()
    optimiser.step()

temperatures = [0.1, 0.2, 0.5, 1.0, 2.0]
found = []
for temperature in temperatures:
    problem = hm.Problem(model, objective=partial(contrastive, temperature=temperature), data=[views])
    found.append(hm.top_eigenpairs(hm.loss_hessian(problem), 5, tolerance=1e-4))
    print(f"temperature {temperature}: sharpness {found[-1].eigenvalues[0]:.3f}, converged {found[-1].converged}")

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
for number in range(5):
    axes.loglog(temperatures, [pairs.eigenvalues[number] for pairs in found], "o-", label=f"eigenvalue {number + 1}")
axes.set(xlabel="temperature", ylabel="eigenvalue", title="The five largest eigenvalues of a contrastive loss")
axes.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/contrastive.png", dpi=150)
