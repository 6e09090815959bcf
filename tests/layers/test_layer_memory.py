"""The memory that is said before is the memory that is taken, in a process of its own.

Said are what is held and, beside it, the larger of the problem's budget while it is built and of what is iterated with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
import sys
import torch
from pathlib import Path
from torch import nn
from hessmap.layers import layer_eigenpairs, layer_eigenpairs_bytes, layer_hessian, plan_layer_hessian
from hessmap.problem import Problem

def connected(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, 10)), "0", (inputs,)

def convolutional(first, second):
    layers = nn.Conv2d(1, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(first, second, 5), nn.ReLU()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36 * second, 10)), "3", (1, 20, 20)

def made(samples, budget, model, name, shape):
    data = torch.rand(samples, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Problem(model, "cross_entropy", data, torch.arange(samples) % 10, memory_budget=budget), name

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

network, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
torch.manual_seed(0)
samples, budget, few, many = {
    "connected": (1500, 2**25, connected(4, 5), connected(700, 300)),
    "convolutional": (500, 2**24, convolutional(2, 2), convolutional(6, 16)),
}[network]
layer_eigenpairs(layer_hessian(*made(50, budget, *few)), 3)  # what is loaded with the first use
problem, name = made(samples, budget, *many)
ctypes.CDLL(None).malloc_trim(0)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, which a process inherits from its parent
before = peak()
plan = plan_layer_hessian(problem, name)
assert plan.form == {"connected": "patches", "convolutional": "jacobians"}[network]
hessian = layer_hessian(problem, name)
said = plan.stored_bytes + max(budget, layer_eigenpairs_bytes(hessian, 50, tolerance=1e-3))
assert hessian.stored_bytes == plan.stored_bytes
layer_eigenpairs(hessian, 50, tolerance=1e-3)
print((peak() - before) / said)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from Linux")
@pytest.mark.parametrize(("network", "threads"), [("connected", 1), ("convolutional", 2)])
def test_memory_of_layer_eigenpairs_is_within_a_fifth_of_what_was_said(network: str, threads: int) -> None:
    command = [sys.executable, "-c", PROGRAM, network, str(threads)]
    settings = {
        "OMP_WAIT_POLICY": "passive",  # threads that spin are slow where others work too
        "MALLOC_MMAP_THRESHOLD_": str(2**20),  # what is freed goes back: the peak is of what lives at once
    }
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | settings)
    assert 0.8 <= float(done.stdout) <= 1.2
