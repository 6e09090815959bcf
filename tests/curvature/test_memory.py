"""The peak of the engine, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from torch import nn
import hessmap as hm

torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if sys.argv[2] == "dense":
    model, num_samples = hm.FullyConnected(widths=(49, 32, 28, 20, 10), activation="tanh").build(seed=0), 3000
else:
    first, second = nn.Conv1d(1, 8, 5, stride=2), nn.Conv1d(8, 16, 5, stride=2)
    rest = nn.Tanh(), nn.Flatten(), nn.Linear(160, 10)
    model, num_samples = nn.Sequential(nn.Unflatten(1, (1, 49)), first, nn.Tanh(), second, *rest), 200
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(num_samples, 49, generator=generator, dtype=torch.float64)
targets = torch.randn(num_samples, 10, generator=generator, dtype=torch.float64)
problem = hm.Problem(model, "squared", inputs, targets, memory_budget=int(sys.argv[1]))
before = peak()
dense = hm.loss_hessian(problem).dense
print(dense.method, peak() - before - 8 * problem.num_parameters**2)
"""


@pytest.mark.parametrize(("network", "budget"), [("dense", 2**27), ("dense", 2**26), ("convolutional", 2**27)])
def test_temporaries_stay_inside_the_budget(network, budget):
    """Unchunked, the sweeps alone would take 0.28 GiB for p = 3,314 and 3,000 samples, and 1 GiB for the convolutions
    on 200."""
    program = [sys.executable, "-c", SCRIPT, str(budget), network]
    method, temporaries = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert method == "lifted"
    assert int(temporaries) < budget + 2**26
