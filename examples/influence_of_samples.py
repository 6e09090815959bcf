"""Which training samples a prediction rests on: influence scores, checked by training again.

One label in ten is wrong. Samples with a large influence on themselves are candidates for wrong labels; the predicted
effect of removing a sample is compared with the effect of removing it and training again, for the exact Gauss-Newton
matrix and for EK-FAC.
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm
from hessmap.applications import linear_datamodelling_score, retraining_effects

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=140)
inputs, chosen = inputs[:, 8:40:2], slice(100)  # 16 pixels of each image
wrong = torch.arange(0, 100, 10)
given = labels[chosen].clone()
given[wrong] = (given[wrong] + 3) % 10
model = nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 10)).double()
l2 = 1e-2
optimiser = torch.optim.LBFGS(model.parameters(), max_iter=800, line_search_fn="strong_wolfe", tolerance_change=1e-12)


def closure():
    optimiser.zero_grad()
    penalty = sum(value.square().sum() for value in model.parameters())
    loss = nn.functional.cross_entropy(model(inputs[chosen]), given) + l2 * penalty
    loss.backward()
    return loss


optimiser.step(closure)
training = hm.Problem(model, "cross_entropy", inputs[chosen], given, l2=l2)
queries = hm.Problem(model, "cross_entropy", inputs[100:], labels[100:], l2=l2)

removed = list(range(0, 100, 8))
measured = retraining_effects(training, queries, removed, tolerance=1e-6)
print(f"retrained {len(removed)} times, all converged: {measured.converged}")
figure = Figure(figsize=(7.2, 3.6), layout="constrained")
for axes, curvature in zip(figure.subplots(1, 2, sharey=True), ("full", "ekfac"), strict=True):
    found = hm.influence(training, queries, curvature=curvature, self_influence=True)
    score = linear_datamodelling_score(found, [[one] for one in removed], measured)
    suspects = np.argsort(-found.self_influence)[:10]
    hits = len(set(suspects.tolist()) & set(wrong.tolist()))
    name = {"full": "exact Gauss-Newton", "ekfac": "EK-FAC"}[curvature]
    print(f"{name}: rank correlation with retraining {score.value:.2f} +- {score.standard_error:.2f}")
    print(f"{name}: {hits} of the 10 samples with the largest self-influence have a wrong label")
    predicted = found.predicted_effects([[one] for one in removed])
    axes.plot(predicted.ravel(), measured.effects.ravel(), ".", markersize=4)
    limit = float(np.abs(measured.effects).max())
    axes.plot([-limit, limit], [-limit, limit], color="grey", linewidth=1)
    axes.set(xlabel="predicted change of the loss", title=f"{name}: rank correlation {score.value:.2f}")
figure.axes[0].set_ylabel("change after retraining")
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/influence.png", dpi=150)
