"""How do the seconds and the memory of a Hessian-vector product grow with parameters and with samples?

Fully connected ReLU networks 64-w-w-10, cross-entropy, float64. Parameters from 10^3 to 10^7 with 256 samples; samples
from 10^2 to 5x10^4, with about 55,000 parameters. Every point is a process of its own; its peak is what it held beyond
what it held before the problem was built. Three ways: "fresh", a product of a new operator that linearises the forward
pass, on samples that are generated at every pass; "kept", one more product of an operator on held samples; "traced",
the same with its products traced and compiled. Exponents are slopes of logarithms by least squares over all points,
where what every product costs alike lowers them, and between the last two.

    make bench-peers    # or: python benchmarks/peers/growth.py; with --draw: the picture of the last run
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import numpy as np

WIDTHS = (11, 65, 275, 960, 3115)
SAMPLES = (100, 1000, 10_000, 50_000)
WAYS = ("fresh", "kept", "traced")
SHOWN_WAYS = {
    "fresh": "new: set-up of a new operator and one product, data read again",
    "kept": "kept: one more product, data and linearised pass in memory",
    "traced": "compiled: as kept, products traced and compiled",
}
ROUNDS = {"fresh": 2, "kept": 8, "traced": 8}
MIDDLE_WIDTH, FEW_SAMPLES, BATCH = 200, 256, 100
BUDGETS = {"parameters": 2**28, "samples": 2**24}
HELD_BUDGET = 2**32
RESULT = Path(__file__).parent.parent / "results" / "peers_growth.json"
PICTURE = Path(__file__).parent.parent.parent / "docs" / "pictures" / "growth.png"


class Batches:
    """Samples that exist only while they are used: batch i is drawn from seed i."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        import torch

        for start in range(0, self.count, BATCH):
            generator = torch.Generator().manual_seed(start)
            size = min(BATCH, self.count - start)
            yield (
                torch.randn(size, 64, generator=generator, dtype=torch.float64),
                torch.randint(0, 10, (size,), generator=generator),
            )


def point(axis: str, value: int, way: str) -> dict[str, Any]:
    """One product, in this process."""
    import torch
    from harness import forget_peak, peak_bytes
    from torch import nn

    import hessmap as hm

    width, samples = (value, FEW_SAMPLES) if axis == "parameters" else (MIDDLE_WIDTH, value)
    torch.manual_seed(0)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    model = nn.Sequential(*layers).double()
    size = sum(parameter.numel() for parameter in model.parameters())
    vector = torch.randn(size, 1, dtype=torch.float64)
    tiny = hm.Problem(nn.Linear(64, 10).double(), "cross_entropy", Batches(10))
    hm.loss_hessian(tiny).matmat(torch.ones(650, 1, dtype=torch.float64))  # what is loaded at a first call
    before = forget_peak()
    if way == "fresh":
        problem = hm.Problem(model, "cross_entropy", Batches(samples), memory_budget=BUDGETS[axis])
    else:
        inputs, labels = (torch.cat(parts) for parts in zip(*Batches(samples), strict=True))
        options: dict[str, Any] = {"memory_budget": HELD_BUDGET, "compile": way == "traced"}
        problem = hm.Problem(model, "cross_entropy", inputs, labels, **options)
    kept = hm.loss_hessian(problem)
    if way != "fresh":
        kept.matmat(vector)
    seconds, processor = [], []
    for _ in range(ROUNDS[way]):
        start, used = time.perf_counter(), time.process_time()
        (hm.loss_hessian(problem) if way == "fresh" else kept).matmat(vector)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    return {
        "axis": axis,
        "way": way,
        "notes": [note for note in problem.notes if "traced" in note],
        "num_parameters": size,
        "num_samples": samples,
        "seconds": min(seconds),
        "processor_seconds": min(processor),
        "peak_bytes": peak_bytes() - before,
        "all_bytes": peak_bytes(),
    }


def exponent(points: list[dict[str, Any]], along: str, of: str) -> float:
    return float(np.polyfit(np.log([p[along] for p in points]), np.log([p[of] for p in points]), 1)[0])


def drawn(points: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    from hessmap.views.plots.style import INK, SERIES_COLOURS, dress, new_figure, write_figure

    figure = new_figure(8.0, 6.4)
    panels = figure.subplots(2, 2, squeeze=False)
    for row, (of, label, scale) in enumerate([("seconds", "seconds a product", 1), ("peak_bytes", "peak MB", 1e-6)]):
        for panel, axis in zip(panels[row], ("parameters", "samples"), strict=True):
            for (way, words), colour, size in zip(SHOWN_WAYS.items(), SERIES_COLOURS[2:], (9, 7, 4.5), strict=False):
                along = [p[f"num_{axis}"] for p in points[axis, way]]
                heights = [max(scale * p[of], 1e-6) for p in points[axis, way]]
                ring = {"markersize": size, "markerfacecolor": "none"}  # to be seen around those on it
                panel.loglog(along, heights, "o-", color=colour, linewidth=1.2, label=words, **ring)
            panel.set_xlabel(axis, fontsize=9, color=INK)
            panel.set_ylabel(label, fontsize=9, color=INK)
            dress(panel, f"{FEW_SAMPLES} samples" if axis == "parameters" else "about 55,000 parameters")
    entries = panels[0][0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", frameon=False, fontsize=8.5, labelcolor=INK)
    write_figure(figure, PICTURE, salt="growth", dpi=120)


def stored() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The points of the last run."""
    cases = json.loads(RESULT.read_text())["cases"]
    return {(case["axis"], case["way"]): case["points"] for case in cases if "points" in case}


def main() -> int:
    from harness import environment, write

    where = environment()
    points: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for axis, values in (("parameters", WIDTHS), ("samples", SAMPLES)):
        for way in WAYS:
            for value in values:
                program = [sys.executable, __file__, "--point", axis, str(value), way]
                found = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
                points.setdefault((axis, way), []).append(found)
                told = f"{way}: {found['num_parameters']} parameters, {found['num_samples']} samples"
                print(f"{told}: {found['seconds']:.3g} s, peak {found['peak_bytes'] / 1e6:.0f} MB", flush=True)
    fits = {
        f"{of} in {axis}, {way}{words}": exponent(found[first:], f"num_{axis}", of)
        for (axis, way), found in points.items()
        for of in ("seconds", "peak_bytes")
        if min(p[of] for p in found) > 0
        for words, first in (("", 0), (" (last two points)", -2))
    }
    passes = fits["seconds in parameters, fresh"] <= 1.1 and fits["seconds in samples, fresh"] <= 1.1
    passes = passes and fits["peak_bytes in parameters, fresh"] <= 1.1 and fits["peak_bytes in samples, fresh"] <= 0.1
    for name, value in fits.items():
        print(f"exponent of {name}: {value:.2f}")
    cases: list[dict[str, Any]] = [{"points": found, "axis": axis, "way": way} for (axis, way), found in points.items()]
    write("peers_growth", where, [*cases, {"exponents": fits, "passes": passes}])
    drawn(points)
    return 0 if passes else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        print(json.dumps(point(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
        sys.exit(0)
    if sys.argv[1:] == ["--draw"]:
        drawn(stored())
        sys.exit(0)
    sys.exit(main())
