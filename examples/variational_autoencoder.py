"""The curvature of a variational autoencoder: one value a sample, from several outputs and fixed noise.

The objective is the negative evidence bound; its noise is part of the batch, so that every pass gives the same value.
The sharpness of encoder and decoder is followed along a training.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm

torch.manual_seed(0)
digits, _ = hm.datasets.digits(num_samples=200)
noise = torch.randn(200, 4, dtype=torch.float64)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 64))

    def forward(self, images, noise):
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def negative_bound(model, batch):
    images, noise = batch
    drawn, mean, log_variance = model(images, noise)
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
    return (drawn - images).square().sum(1) / 2 + divergence


model = Autoencoder().double()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
steps, sharpness = [], {"encoder": [], "decoder": []}
for step in range(201):
    if step % 40 == 0:
        steps.append(step)
        for part, values in sharpness.items():
            problem = hm.Problem(model, objective=negative_bound, data=[(digits, noise)], parameters=part)
            values.append(hm.sharpness(hm.loss_hessian(problem), tolerance=1e-2).value)
        print(f"step {step}: encoder {sharpness['encoder'][-1]:.2f}, decoder {sharpness['decoder'][-1]:.2f}")
    optimiser.zero_grad()
    negative_bound(model, (digits, noise)).mean().backward()
    optimiser.step()

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
for part, values in sharpness.items():
    axes.plot(steps, values, "o-", label=part)
axes.set(xlabel="step", ylabel="sharpness", title="Sharpness of encoder and decoder along a training", ylim=(0, None))
axes.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/autoencoder.png", dpi=150)
