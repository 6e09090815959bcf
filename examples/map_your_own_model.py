"""Map the curvature of a model of your own: spectra, one row per layer, findings, figures."""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm
from hessmap.views.plots import layers_figure, save_figure, spectrum_figure

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=400)
model = nn.Sequential(nn.Linear(64, 10), nn.ReLU(), nn.Linear(10, 10)).double()

optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(60):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimiser.step()

curvature = hm.map(model, (inputs, labels), loss="cross_entropy")
for finding in curvature.summary:
    print("-", finding)
for layer in curvature.network.layers:
    print(f"layer {layer.name}: {layer.num_parameters} parameters, {layer.curvature_share:.0%} of the curvature")

folder = Path("hessmap-runs")
save_figure(spectrum_figure(curvature), folder, "spectrum")
save_figure(layers_figure(curvature), folder, "layers")
print("figures in", folder)
