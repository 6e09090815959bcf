"""Two digit classifiers become one: merged by their curvatures, or trained in turn with a penalty.

One network is trained on the digits 0 to 4 and one on 5 to 9, from the same weights. The mean of their weights is
compared with merging by the diagonal and by K-FAC; then the first network is trained on the second task without and
with the penalty of elastic weight consolidation.
"""

from copy import deepcopy
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=600)
first, second = labels < 5, labels >= 5
start = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10)).to(inputs.dtype)


def trained(model, chosen, penalty=None, steps=200):
    model = deepcopy(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
        (loss if penalty is None else loss + penalty(model)).backward()
        optimiser.step()
    return model


def accuracies(model):
    right = model(inputs).argmax(1) == labels
    return [float(right[chosen].double().mean()) for chosen in (first, second)]


start = trained(start, slice(None), steps=15)
models = [trained(start, chosen) for chosen in (first, second)]
problems = [
    hm.Problem(model, "cross_entropy", inputs[chosen], labels[chosen])
    for model, chosen in zip(models, (first, second), strict=True)
]
found = {"first task": models[0], "second task": models[1]}
equal = {name: torch.ones_like(value) for name, value in start.named_parameters()}
found["mean"] = hm.merge(models, [equal, equal])
found["diagonal"] = hm.merge(models, [hm.fisher_diagonal(problem) for problem in problems])
found["K-FAC"] = hm.merge(models, [hm.kronecker_curvature(problem) for problem in problems])
found["EWC, diagonal"] = trained(models[0], second, hm.ewc_penalty(problems[0], strength=30))
found["EWC, K-FAC"] = trained(models[0], second, hm.ewc_penalty(problems[0], "kfac", strength=30))
shares = {name: accuracies(model) for name, model in found.items()}
for name, (old, new) in shares.items():
    print(f"{name}: digits 0 to 4 {100 * old:.0f} %, digits 5 to 9 {100 * new:.0f} %")

figure = Figure(figsize=(7.2, 3.4), layout="constrained")
axes = figure.subplots()
for number, task in enumerate(("digits 0 to 4", "digits 5 to 9")):
    axes.bar([place + 0.38 * number for place in range(len(shares))], [pair[number] for pair in shares.values()], 0.36,
             label=task)  # fmt: skip
axes.set_xticks([place + 0.19 for place in range(len(shares))], list(shares), rotation=20)
axes.set_ylabel("share of correct classes")
axes.set_ylim(0, 1.2)
axes.legend(ncols=2, loc="upper left")
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/merging.png", dpi=150)
