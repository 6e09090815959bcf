"""Why did my training diverge? A learning rate is raised in the middle of a training, and the track shows what happens.

The sharpness passes the stability threshold of the optimiser at the step at which the learning rate is raised; the loss
rises only later. The report of the step names the layers that the curvature is in.
"""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm
from hessmap.maps.comparison import track_summary
from hessmap.views.plots import write_figure
from hessmap.views.tables import step_summary

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=200)
targets = nn.functional.one_hot(labels).double()
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

options = {"name": "diverged", "replace": True, "share": None, "count": 3, "max_probes": 16}
with hm.Tracker(model, "squared", (inputs, targets), optimizer=optimizer, **options) as tracker:
    for step in range(73):
        if step == 60:  # "the loss falls slowly, let us train faster"
            optimizer.param_groups[0]["lr"] = 0.45
            report = hm.step_report(hm.Problem(model, "squared", inputs, targets), optimizer)
        if step % 4 == 0:
            tracker(step)
        optimizer.zero_grad()
        (0.5 * (model(inputs) - targets).square().sum(1).mean()).backward()
        optimizer.step()

for sentence in track_summary(tracker.track):
    print("-", sentence)
print("\nThe step before the loss rose:")
for sentence in step_summary(report):
    print("-", sentence)
print("drawn to", write_figure(tracker.track.plot(), Path("hessmap-runs/diverged.png"), salt="diverged"))
