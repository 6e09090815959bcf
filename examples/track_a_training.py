"""Track the curvature along a training of your own: one line in the loop, and a figure.

Full-batch gradient descent: the sharpness rises above 2 / learning rate, and comes back to it (the edge of stability).
"""

from pathlib import Path

import torch
from torch import nn

import hessmap as hm
from hessmap.maps.comparison import track_summary
from hessmap.views.plots import write_figure

torch.manual_seed(0)
rate = 0.15
inputs, labels = hm.datasets.digits(num_samples=200)
targets = nn.functional.one_hot(labels).double()
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)).double()
optimiser = torch.optim.SGD(model.parameters(), lr=rate)

# Points are stored, as they are made, in the file of all maps and studies: hessmap tracks show digits-descent.
# Without share, every call measures; share=0.1 measures at those calls that keep it to a tenth of the time.
options = {"name": "digits-descent", "replace": True, "share": None, "count": 3, "max_probes": 16}
with hm.Tracker(model, "squared", (inputs, targets), optimizer=optimiser, **options) as tracker:
    for step in range(1001):
        if step % 20 == 0:
            tracker(step)
        optimiser.zero_grad()
        (0.5 * (model(inputs) - targets).square().sum(1).mean()).backward()
        optimiser.step()

for finding in track_summary(tracker.track):
    print("-", finding)
print("drawn to", write_figure(tracker.track.plot(), Path("hessmap-runs/track.png"), salt="track"))
