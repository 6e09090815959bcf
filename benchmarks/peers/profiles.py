"""Where does the time of one product go, beside double backward through a stored graph and the matrix products alone?

For each network: the stored graph as PyHessian keeps it, our plain product and our compiled one, timed in turn, then
one of each under torch's profiler: the milliseconds in matrix products, convolutions, copies, sums and elementwise
operations. What the profiler does not see of a compiled product are its compiled loops. The seconds to trace and to
compile are those of a compiler without anything on the disk, if TORCHINDUCTOR_CACHE_DIR is new.

    HESSMAP_DATA=.. TORCHINDUCTOR_CACHE_DIR=$(mktemp -d) python benchmarks/peers/profiles.py [--network ..]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
from floor import floor_seconds
from harness import RESULTS, environment, seconds_in_turn, timed
from libraries import Ours, OursCompiled, PyHessian, ready
from torch.profiler import ProfilerActivity, profile

from cases import CASES, LARGE_CASES, Case, case

ROUNDS = 8
PATH = RESULTS / "peers_profiles.json"
NETWORKS = ("ResNet18, random images", "GPT-2, random tokens", "transformer, digits")
KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "mv", "dot"),
    "convolutions": ("mkldnn_convolution", "convolution_backward", "_convolution", "convolution"),
    "copies": (
        "copy_",
        "cat",
        "fill_",
        "zero_",
        "clone",
        "stack",
        "constant_pad_nd",
        "index",
        "gather",
        "scatter_add_",
    ),
    "sums": ("sum", "mean"),
}
TRIED = {
    "ResNet18, random images": [
        "convolutions as matrix products over patches: for two stacked 3 x 3 convolutions 1.1 to 36 times as fast as "
        "torch at up to 2 x 2 positions (entries of the kernel that meet nothing but padding are left out), 0.8 to 1.2 "
        "at 4 x 4, 0.4 to 1.0 at 8 x 8, slower above, at 8, 32 and 128 images: used up to 2 x 2",
        "patches everywhere in this network: 124 to 131 ms where the stored graph took 158 to 170",
        "batch norm by its formula instead of torch's second derivative of native_batch_norm: used",
        "compiling the product with patches everywhere: 119 ms where it took 129 as it was, after 51 s",
    ],
    "GPT-2, random tokens": [
        "the traced graph compiled: used",
        "vectors of a block together: not faster, the matrix products are large enough",
    ],
    "transformer, digits": [
        "the traced graph compiled, in batches of 64 MiB: used",
        "vectors of a block together, batches of 16 MiB, 128 MiB and of all samples, the compiler without its "
        "patterns: not faster",
    ],
}


def kind_of(name: str) -> str:
    if not name.startswith("aten::"):
        return "calls and compiled loops"
    own = name.removeprefix("aten::")
    return next((kind for kind, names in KINDS.items() if own in names), "elementwise")


def profiled(work: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds of a call by kind, and its ten costliest operations."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    events = [event for event in found.key_averages() if event.self_cpu_time_total > 0]
    kinds: dict[str, float] = {}
    for event in events:
        kind = kind_of(event.key)
        kinds[kind] = kinds.get(kind, 0.0) + event.self_cpu_time_total / 1e3
    events.sort(key=lambda event: -event.self_cpu_time_total)
    costliest = [
        {"operation": event.key, "calls": event.count, "milliseconds": round(event.self_cpu_time_total / 1e3, 2)}
        for event in events[:10]
    ]
    return {"milliseconds": {kind: round(spent, 2) for kind, spent in sorted(kinds.items())}, "costliest": costliest}


def measured(made: Case) -> dict[str, Any]:
    vector = torch.randn(made.num_parameters, generator=torch.Generator().manual_seed(0), dtype=made.dtype)
    with ready(made):
        libraries: dict[str, Any] = {
            "stored graph": PyHessian(made),
            "plain": Ours(made),
            "compiled": OursCompiled(made),
        }
        first = {name: timed(lambda library=library: library.product(vector))[0] for name, library in libraries.items()}
        works = {name: lambda library=library: library.product(vector) for name, library in libraries.items()}
        seconds, values = seconds_in_turn(works, ROUNDS)
        shares = {name: profiled(work) for name, work in works.items()}
    expected = values["stored graph"]
    errors = {name: float((found - expected).abs().max() / expected.abs().max()) for name, found in values.items()}
    return {
        "network": made.name,
        "floor_seconds": floor_seconds(made),
        "seconds": seconds,
        "seconds_of_first": first,
        "errors": errors,
        "notes": [note for note in libraries["compiled"].problem.notes if "traced" in note],
        "profiles": shares,
        "tried": TRIED.get(made.name, []),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=[*CASES, *LARGE_CASES], action="append")
    where = environment()
    held = json.loads(PATH.read_text())["cases"] if PATH.exists() else []
    for name in parser.parse_args().network or NETWORKS:
        row = measured(case(name))
        held = [other for other in held if other["network"] != name] + [row | {"environment": where}]
        PATH.write_text(json.dumps({"cases": held}, indent=1) + "\n")
        told = ", ".join(f"{way} {1e3 * spent['best']:.0f} ms" for way, spent in row["seconds"].items())
        print(f"{name}: {told}, floor {1e3 * row['floor_seconds']:.0f} ms; {'; '.join(row['notes'])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
