"""How long a data-parallel product of a ResNet18 takes with one and with two processes.

ResNet18 with random weights (that of ``sharpness_of_resnet.py``), random images of 3 x 32 x 32, cross-entropy, float32,
batch norm frozen. ``hm.distributed(hm.loss_hessian(problem))`` multiplies one vector: each process has its part of the
images, and one all-reduce (gloo) adds the parts up. Settings are processes x threads; every setting starts its own
processes, one setting at a time, and the settings take turns. A round is the time of the slowest process, between two
barriers; an all-reduce of a vector of the same length is timed alone as well. Products of all settings are compared.

    python benchmarks/data_parallel.py [--width 64] [--samples 64] [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from harness import environment, summary, write
from sharpness_of_resnet import resnet18

import hessmap as hm

SETTINGS = ((1, 1), (2, 1), (1, 2))  # processes x threads
TURNS = 2


def worker(rank: int, count: int, threads: int, folder: str, width: int, num_samples: int, rounds: int) -> None:
    """Time the products of one process of a setting; the first one writes what was found."""
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (num_samples,), generator=generator)
    rows = torch.arange(num_samples).tensor_split(count)[rank]
    problem = hm.Problem(resnet18(width), "cross_entropy", inputs[rows], labels[rows], dtype=torch.float32)
    hessian = hm.distributed(hm.loss_hessian(problem), timeout=600)
    vector = torch.randn(hessian.size, 1, generator=generator)
    product = hessian.matmat(vector)  # the first one records the graph
    products, sums = [], []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        hessian.matmat(vector)
        dist.barrier()
        middle = time.perf_counter()
        dist.all_reduce(vector.clone())
        dist.barrier()
        products.append(middle - start)
        sums.append(time.perf_counter() - middle)
    if rank == 0:
        torch.save({"products": products, "all_reduce": sums, "product": product}, f"{folder}/found")
    dist.barrier()
    dist.destroy_process_group()


def timed_setting(count: int, threads: int, *sizes: int) -> dict[str, Any]:
    """Start the processes of a setting and wait for them."""
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        own = [str(number) for number in (count, threads)]
        numbers = [str(number) for number in sizes]
        commands = [[sys.executable, __file__, "--worker", str(rank), *own, folder, *numbers] for rank in range(count)]
        started = [subprocess.Popen(command, env=environ) for command in commands]
        codes = [process.wait() for process in started]
        if any(codes):
            raise SystemExit(f"the processes of {count} x {threads} ended with {codes}")
        found: dict[str, Any] = torch.load(Path(folder, "found"))
    return found


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        rank, count, threads = map(int, sys.argv[2:5])
        width, num_samples, rounds = map(int, sys.argv[6:9])
        worker(rank, count, threads, sys.argv[5], width, num_samples, rounds)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="of each of two turns of every setting")
    parser.add_argument("--output", default="data_parallel")
    given = parser.parse_args()
    where = environment()
    seconds: dict[str, list[float]] = {}
    sums: dict[str, list[float]] = {}
    products: dict[str, torch.Tensor] = {}
    for _ in range(TURNS):
        for count, threads in SETTINGS:
            name = f"{count} x {threads}"
            found = timed_setting(count, threads, given.width, given.samples, given.rounds)
            seconds.setdefault(name, []).extend(found["products"])
            sums.setdefault(name, []).extend(found["all_reduce"])
            products[name] = found["product"]
    first = products["1 x 1"]
    rows = [
        {
            "processes x threads": name,
            "width": given.width,
            "num_samples": given.samples,
            "num_parameters": len(first),
            "seconds": summary(spent),
            "all_reduce_seconds": summary(sums[name]),
            "of_one_process": min(spent) / min(seconds["1 x 1"]),
            "apart": float((products[name] - first).norm() / first.norm()),
        }
        for name, spent in seconds.items()
    ]
    for row in rows:
        best, share = row["seconds"]["best"], row["of_one_process"]
        alone = row["all_reduce_seconds"]["best"]
        name = row["processes x threads"]
        print(f"{name}: {best:.3f} s, {share:.2f} of 1 x 1; all-reduce {alone:.4f} s; apart {row['apart']:.1e}")
    write(given.output, {**where, "rounds": TURNS * given.rounds}, rows)


if __name__ == "__main__":
    main()
