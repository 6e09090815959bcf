"""Is what a network memorised in directions of low curvature?

Of the training digits a tenth gets random labels, and the network is trained until it has memorised them. Each weight
is then split in the eigenbasis of its curvature: with the part of the largest eigenvalues alone the network keeps the
true labels and loses the random ones first.
"""

from pathlib import Path

import torch

import hessmap as hm
from hessmap.views.plots import write_figure

inputs, labels = hm.datasets.digits(num_samples=600)
generator = torch.Generator().manual_seed(0)
is_random = torch.rand(len(labels), generator=generator) < 0.1
given = torch.where(is_random, torch.randint(10, labels.shape, generator=generator), labels)
is_random &= given != labels

model = hm.FullyConnected((64, 100, 100, 10), bias=True, activation="relu").build(seed=0)
hm.train(model, (inputs, given), epochs=150, optimiser="adam", learning_rate=2e-3, batch_size=100)
problem = hm.Problem(model, "cross_entropy", inputs, given)
curvature = hm.kronecker_curvature(problem, "kfac")


def accuracies(parameters: torch.Tensor) -> tuple[float, float]:
    """Share of right answers: true labels of untouched samples, and the random labels that were memorised."""
    outputs = problem.function(problem.inputs)(parameters)
    is_right = outputs.argmax(1) == given
    return float(is_right[~is_random].double().mean()), float(is_right[is_random].double().mean())


print(f"{int(is_random.sum())} of {len(labels)} labels are random")
print("all components: true labels {:.3f}, random labels {:.3f}".format(*accuracies(problem.parameters)))
for keep in (0.999, 0.99, 0.95, 0.9, 0.8):
    found = hm.curvature_projection(problem, "2", keep, curvature=curvature)
    parameters = problem.parameters.clone()
    for part in found.parts:
        parameters[problem.layout[part.name]] = torch.as_tensor(part.kept).flatten()
    true, memorised = accuracies(parameters)
    print(
        f"{keep:g} of the curvature, {found.num_kept} of {found.num_components} components: "
        f"true labels {true:.3f}, random labels {memorised:.3f}"
    )
print("drawn to", write_figure(found.plot(), Path("hessmap-runs/memorised.png"), salt="memorised"))
