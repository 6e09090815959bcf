"""A model measured in place, by finite differences of gradients, as sharded models are.

For every product the estimated error is compared with the true one: the distance to the exact product in float64.
Here one process has the whole model; under FSDP2 or tensor parallelism the calls are the same.
"""

import copy
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import hessmap as hm

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=200)
model = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 10)).double()
hm.train(model, (inputs.double(), labels), epochs=20)
exact = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels))
probes = torch.randn(exact.size, 20, dtype=torch.float64)

figure = Figure(figsize=(5, 3.6), layout="constrained")
axis = figure.subplots()
for dtype in (torch.float64, torch.float32):
    moved = copy.deepcopy(model).to(dtype)
    reported, true = [], []
    for probe in probes.T:
        # One operator per vector: an operator reports the largest error so far.
        H = hm.sharded_hessian(moved, "cross_entropy", inputs.to(dtype), labels)
        product, wanted = (H @ probe.to(dtype)).double(), exact @ probe
        true.append(float((product - wanted).norm() / wanted.norm()))
        reported.append(H.difference_error)
    name = str(dtype).removeprefix("torch.")
    print(f"{name}: true errors at most {max(true):.0e}, reported at most {max(reported):.0e}")
    axis.loglog(reported, true, "o", label=name)
low, high = axis.get_xlim()
axis.plot([low, high], [low, high], "--", color="0.4", label="reported = true")
axis.set(xlabel="reported relative error", ylabel="true relative error", title="20 products per precision")
axis.legend()
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/measured-in-place.png", dpi=150)
