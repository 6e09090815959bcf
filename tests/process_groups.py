"""Some processes of torch.distributed on this machine, with gloo and a file as their meeting point."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen
from typing import Any

import torch

from patience import PATIENCE


def run_processes(folder: Path, module: str, worker: str, count: int, *given: str) -> list[Any]:
    """Call ``worker(rank, count, *given)`` of a test module in every process; what each returned, or None."""
    tests = Path(__file__).parent
    paths = [str(tests), *(str(tests / folder) for folder in ("curvature", "layers", "map", "track"))]
    code = f"""
import sys; sys.path[:0] = {paths!r}
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://{folder}/store", rank=int(sys.argv[1]), world_size={count})
import {module} as module
found = module.{worker}(int(sys.argv[1]), {count}, *sys.argv[2:])
torch.save(found, "{folder}/answer-" + sys.argv[1])
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    commands = [[sys.executable, "-c", code, str(rank), *given] for rank in range(count)]
    workers = [Popen(command, env=environment) for command in commands]
    try:
        for process in workers:
            process.wait(PATIENCE)
    finally:
        for process in workers:
            process.kill()
    files = [folder / f"answer-{rank}" for rank in range(count)]
    return [torch.load(file, weights_only=False) if file.exists() else None for file in files]
