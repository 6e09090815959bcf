"""Quantise a convolutional network layer by layer: predicted and measured costs, and the best bit widths.

A small network for the digits is trained; for every layer and bit width the increase of the loss is predicted from
gradient and curvature, and measured. The plan gives few bits to layers that do not need more.
"""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm
from hessmap.views.plots import write_figure

inputs, labels = hm.datasets.digits(num_samples=500)
images = inputs.reshape(-1, 1, 8, 8)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.ReLU(),
    nn.Conv2d(4, 8, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(128, 16),
    nn.ReLU(),
    nn.Linear(16, 10),
).double()
hm.train(model, (images, labels), epochs=30, optimiser="adam", learning_rate=3e-3, batch_size=50)

problem = hm.Problem(model, "cross_entropy", images, labels)
plan = hm.compression_plan(problem, bits=(2, 3, 4, 8), mean_bits=4, sparsity=0.5)
print(f"{problem.num_parameters} parameters, risk {plan.risk:.4f}, gradient norm {plan.gradient_norm:.1e}")
print(f"{'layer':<12}{'bits':>5}" + "".join(f"{f'{bits} bits':>21}" for bits in plan.bits) + f"{'half pruned':>21}")
for layer in plan.layers:
    assert layer.pruning is not None
    pairs = [(cost.predicted_increase, cost.measured_increase) for cost in (*layer.costs, layer.pruning)]
    print(f"{layer.name:<12}{layer.bits:>5}" + "".join(f"{f'{one:.1e} / {two:.1e}':>21}" for one, two in pairs))
print(
    f"plan: {plan.used_mean_bits:.2f} bits, predicted {plan.joint_increase:.1e}, measured {plan.measured_increase:.1e}"
)
print(f"{plan.uniform_bits} bits in every layer: measured {plan.uniform_measured_increase:.1e}")
print(f"rank correlation of predicted and measured costs: {plan.rank_correlation():.3f}")

for method in ("obd", "obs"):
    pruned = hm.pruning_plan(problem, 0.5, method, layers=["7.weight"])
    print(f"half of {len(pruned.scores)} weights removed by {method.upper()}: measured {pruned.measured_increase:.1e}")
print("drawn to", write_figure(plan.plot(), Path("hessmap-runs/compress.png"), salt="compress"))
