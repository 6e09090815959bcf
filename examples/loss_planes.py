"""The loss around a trained network: along its sharpest directions, in random directions, and towards a second one.

The quadratic model explains the loss near a minimum; how far that reaches depends on the direction. Between two
networks that were trained from different initial weights the loss has a barrier.
"""

from pathlib import Path

import hessmap as hm
from hessmap.views.plots import write_figure

inputs, labels = hm.datasets.digits(num_samples=500)
models = [hm.FullyConnected((64, 16, 16, 10), activation="relu").build(seed=seed) for seed in (0, 1)]
for model in models:
    hm.train(model, (inputs, labels), epochs=40)

problem = hm.Problem(models[0], "cross_entropy", inputs, labels)
for name, plane in {
    "sharpest": hm.loss_plane(problem, "sharpest"),
    "random": hm.loss_plane(problem, "random"),
    "near": hm.loss_plane(problem, "random", extent=0.5),
    "between": hm.loss_plane(problem, models[1]),
}.items():
    assert plane.explained is not None
    print(f"{name}: the quadratic model explains {100 * plane.explained:.1f} % of the variance of the loss")
    if plane.barrier is not None:
        print(f"barrier {plane.barrier.height:.2f} at {plane.barrier.position:.2f} of the way")
    print("drawn to", write_figure(plane.plot(), Path(f"hessmap-runs/{name}.png"), salt=name))
