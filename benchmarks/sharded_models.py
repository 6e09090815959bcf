"""Curvature of sharded models beside that of the whole ones: FSDP2 and tensor parallelism on two and three processes.

A multilayer perceptron and a small transformer with tied embeddings, each with GELU and with ReLU, float32, on gloo
processes; FSDP2 reads parts of unequal size. The reference is the Hessian of the same weights in one process, in
float64, by double backward. Products are compared with ten random vectors and with the top five eigenvectors.

    python benchmarks/sharded_models.py

A setting takes a minute or more, because gloo exchanges hundreds of messages a product. Writes
``results/sharded_models.json``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from harness import environment, write
from torch import Tensor, nn

import hessmap as hm
from hessmap.hessians.sharded import ShardedHessian, local_tensor

MODELS = ("perceptron, GELU", "perceptron, ReLU", "transformer, GELU", "transformer, ReLU")
KINDS = ("fsdp", "tensor parallel")
NUM_SAMPLES, NUM_VECTORS, COUNT = 36, 10, 5
WORDS, LENGTH = 13, 6


class Block(nn.Module):
    def __init__(self, width: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.activation, self.down = nn.Linear(width, 24), activation(), nn.Linear(24, width)

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.mix(self.first(inputs)).chunk(3, -1)
        scores = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
        inputs = inputs + self.out(scores @ value)
        found: Tensor = inputs + self.down(self.activation(self.up(self.second(inputs))))
        return found


class Transformer(nn.Module):
    """A causal mask would not matter here; the embedding is also the last layer."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 12), nn.Embedding(LENGTH, 12)
        self.blocks = nn.ModuleList(Block(12, activation) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.words(words) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        found: Tensor = self.head(self.norm(hidden)).transpose(1, 2)
        return found


def built(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model after some steps of Adam, with its data."""
    torch.manual_seed(0)
    kind, activation = name.split(", ")[0], {"GELU": nn.GELU, "ReLU": nn.ReLU}[name.split(", ")[1]]
    if kind == "perceptron":
        inner = [nn.Linear(24, 36), activation(), nn.Linear(36, 24), activation()]
        model: nn.Module = nn.Sequential(nn.Linear(8, 24), activation(), *inner, nn.Linear(24, 4))
        inputs, targets = torch.randn(NUM_SAMPLES, 8), torch.randint(4, (NUM_SAMPLES,))
    else:
        model = Transformer(activation)
        inputs = torch.randint(WORDS, (NUM_SAMPLES, LENGTH))
        targets = inputs.roll(-1, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    return model, inputs, targets


def shard(kind: str, model: nn.Module, count: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (count,))
    blocks: Any = model.blocks if isinstance(model, Transformer) else [model]
    if kind == "fsdp":
        for block in blocks:
            fully_shard(block, mesh=mesh)
        if isinstance(model, Transformer):
            fully_shard(model, mesh=mesh)
        return
    is_wide = isinstance(model, Transformer)
    plan: Any = (
        {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if is_wide
        else {"2": ColwiseParallel(), "4": RowwiseParallel()}
    )
    for block in blocks:
        parallelize_module(block, mesh, plan)


def own_rows(hessian: ShardedHessian, vector: Tensor) -> Tensor:
    """The rows of this process of a whole vector."""
    found, start = [], 0
    for part in hessian.shards.parts:
        parameter: Any = part.parameter
        piece = vector[start : start + parameter.numel()].reshape(parameter.shape)
        start += parameter.numel()
        if hasattr(parameter, "placements"):
            from torch.distributed.tensor import distribute_tensor

            piece = distribute_tensor(piece, parameter.device_mesh, parameter.placements).to_local()
        found.append(piece.flatten()[part.owned])
    return torch.cat(found)


def state(model: nn.Module, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    tensors: list[Any] = [*model.parameters(), *(p.grad for p in model.parameters()), *model.buffers()]
    tensors += [value for kept in optimiser.state.values() for value in kept.values() if isinstance(value, Tensor)]
    return [*(local_tensor(tensor).clone() for tensor in tensors), torch.get_rng_state()]


def worker(rank: int, count: int, kind: str, name: str, folder: str) -> None:
    """Measure in one process of a setting; the first one writes."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    model, inputs, targets = built(name)
    reference = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, targets))
    shard(kind, model, count)
    if kind == "fsdp":
        bounds = [0, *(NUM_SAMPLES * (2 * part + 3) // (2 * count + 2) for part in range(count - 1)), NUM_SAMPLES]
        inputs, targets = inputs[bounds[rank] : bounds[rank + 1]], targets[bounds[rank] : bounds[rank + 1]]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.0)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimiser.step()
    before = state(model, optimiser)
    hessian = hm.sharded_hessian(model, "cross_entropy", inputs, targets, timeout=600)
    dense = reference.to_dense()
    values, vectors = torch.linalg.eigh(dense)
    generator = torch.Generator().manual_seed(5)
    columns = torch.randn(hessian.size, NUM_VECTORS, generator=generator, dtype=torch.float64)
    columns = torch.cat([columns, vectors[:, -COUNT:]], 1)
    errors = []
    for column in columns.T:
        product = hessian.matmat(own_rows(hessian, column.float())[:, None])
        expected = dense @ column.float().double()
        apart = hessian.norm(product.double()[:, 0] - own_rows(hessian, expected))
        errors.append(apart / float(expected.norm()))
    stated = hessian.difference_error
    sharpness, top = hm.sharpness(hessian), hm.top_eigenpairs(hessian, COUNT)
    trace = hm.trace_estimate(hessian, relative_error=0.1)
    density = hm.density_estimate(hessian, num_steps=20, num_probes=6)
    exact = hm.density_estimate(reference, method="exact", width=density.width)
    truth = np.interp(density.grid, exact.grid, exact.density)
    found = {
        "model": name,
        "kind": kind,
        "processes": count,
        "num_parameters": hessian.size,
        "error_of_random_products": max(errors[:NUM_VECTORS]),
        "error_of_eigenvector_products": max(errors[NUM_VECTORS:]),
        "stated_error": stated,
        "sharpness": [sharpness.value, float(values[-1]), float(sharpness.residual), sharpness.converged],
        "sharpness_products": sharpness.num_products,
        "top": [top.eigenvalues.tolist(), values[-COUNT:].flip(0).tolist(), top.residuals.tolist(), top.converged],
        "top_tolerance": top.tolerance,
        "top_products": top.num_products,
        "trace": [trace.value, float(dense.trace()), trace.standard_error, trace.method_error, trace.reached],
        "density_within_band": float(np.mean((truth >= density.lower) & (truth <= density.upper))),
        "is_untouched": all(torch.equal(a, b) for a, b in zip(before, state(model, optimiser), strict=True)),
        "notes": list(top.provenance.notes),
    }
    if rank == 0:
        torch.save(found, f"{folder}/found")
    dist.barrier()
    dist.destroy_process_group()


def measured(kind: str, name: str, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        commands = [
            [sys.executable, __file__, "--worker", str(rank), str(count), kind, name, folder] for rank in range(count)
        ]
        started = [subprocess.Popen(command, env=environ) for command in commands]
        codes = [process.wait() for process in started]
        if any(codes):
            raise SystemExit(f"the processes of {kind}, {name}, {count} ended with {codes}")
        found: dict[str, Any] = torch.load(Path(folder, "found"), weights_only=False)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        rank, count = map(int, sys.argv[2:4])
        worker(rank, count, *sys.argv[4:7])
        return
    where, rows = environment(), []
    for name in MODELS:
        for kind in KINDS:
            for count in (2, 3):
                rows.append(measured(kind, name, count))
                row = rows[-1]
                print({key: row[key] for key in row if key not in ("notes", "top")}, row["top"][3], flush=True)
    write("sharded_models", where, rows)


if __name__ == "__main__":
    main()
