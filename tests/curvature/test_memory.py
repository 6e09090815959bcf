"""The peak of the engine, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
import hessmap as hm

torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
net = hm.FullyConnected(widths=(49, 50, 40, 30, 10), activation="tanh")
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(3000, 49, generator=generator, dtype=torch.float64)
targets = torch.randn(3000, 10, generator=generator, dtype=torch.float64)
problem = hm.Problem(net.build(seed=0), "squared", inputs, targets, memory_budget=int(sys.argv[1]))
before = peak()
dense = hm.loss_hessian(problem).dense
print(dense.road, peak() - before - 8 * problem.num_parameters**2)
"""


@pytest.mark.parametrize("budget", [2**30, 2**27])
def test_temporaries_stay_inside_the_budget(budget):
    """p = 5,950 and 3,000 samples: unchunked, the sweep alone would take 2.5 GiB."""
    made = subprocess.run([sys.executable, "-c", SCRIPT, str(budget)], capture_output=True, text=True, check=True)
    road, temporaries = made.stdout.split()
    assert road == "lifted"
    assert int(temporaries) < budget + 2**26
