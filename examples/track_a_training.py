"""Track the curvature along a training of your own: one line in the loop, a stated share of the time, a figure.

Full-batch gradient descent: the sharpness rises until 2 / learning rate, and stays there (the edge of stability).
"""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm
from hessmap.maps.comparison import track_verdicts
from hessmap.views.plots import track_figure, write_figure

torch.manual_seed(0)
rate = 0.15
inputs, labels = hm.datasets.digits(num_samples=200)
targets = nn.functional.one_hot(labels).double()
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)).double()
optimiser = torch.optim.SGD(model.parameters(), lr=rate)

# Points are stored, as they are made, in the file of all maps and studies: hessmap track show digits-descent.
options = {"name": "digits-descent", "replace": True, "share": 0.4, "count": 3, "max_probes": 16}
with hm.Tracker(model, "squared", (inputs, targets), **options) as tracker:
    for step in range(1500):
        optimiser.zero_grad()
        (0.5 * (model(inputs) - targets).square().sum(1).mean()).backward()
        optimiser.step()
        tracker(step, learning_rate=rate)

for verdict in track_verdicts(tracker.track):
    print("-", verdict)
print("drawn to", write_figure(track_figure(tracker.track), Path("hessmap-runs/track.png"), salt="track"))
