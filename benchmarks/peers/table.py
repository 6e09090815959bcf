"""The measured rows as the tables of docs/benchmarks.md, between its two marks, and as the figure of the README.

python benchmarks/peers/table.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "pictures" / "speed.png"
START, END = "<!-- peers: start -->", "<!-- peers: end -->"
PEERS = ("curvlinops", "hessian-eigenthings", "PyHessian")
LIBRARIES = ("hessmap", *PEERS)
COMPILED = "hessmap, compiled"
QUESTIONS = ("one product", "block product", "top eigenvalues", "density", "trace")


def number(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.2g} ms"


def answer(library: dict[str, Any] | None) -> str:
    if library is None:
        return "not run"
    if "seconds" not in library:
        return "fails"
    told = number(library["seconds"]) + (" ‡" if library["part"] < 1 else "")
    told += f", {library['products']}" if library["products"] else ""
    return told if library["right"] else f"wrong by {library['error']:.0e} ({told})"


def measured_rows() -> list[dict[str, Any]]:
    rows = [json.loads(path.read_text()) for path in sorted((RESULTS / "peers").glob("*.json"))]
    rows = [row for row in rows if "question" in row]
    return sorted(rows, key=lambda row: (row["num_parameters"], row["network"], QUESTIONS.index(row["question"])))


def speed_table() -> list[str]:
    rows = measured_rows()
    if not rows:
        return ["No row was measured yet: `make bench-peers`."]
    names = ("hessmap", COMPILED, *PEERS)
    lines = [
        "| network | question | "
        + " | ".join(names)
        + " | to trace and compile | floor | least speedup | wanted | processor |",
        "| --- " * (len(names) + 7) + "|",
    ]
    for row in rows:
        least = min(row["speedups"].values(), default=float("nan"))
        products = row["libraries"]["hessmap"].get("products") or 1
        cells = [row["network"], row["question"], *(answer(row["libraries"].get(name)) for name in names)]
        cells.append(seconds_to_compile(row["network"]) if COMPILED in row["libraries"] else "")
        cells += [number(products * row["floor_seconds_per_product"]), f"{least:.1f}x", f"{row['wanted_speedup']:g}x"]
        cells.append(processor(row))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def processor(row: dict[str, Any]) -> str:
    """A speedup is within one row: those of two processors cannot be set side by side."""
    return re.sub(r"\((R|TM)\)| Processor", "", row["environment"]["processor"])


def seconds_to_compile(network: str) -> str:
    """Of tracing and of compiling without anything on the disk, as the profile of the network has it."""
    path = RESULTS / "peers_profiles.json"
    for row in json.loads(path.read_text())["cases"] if path.exists() else ():
        found = re.findall(r"(?:traced|compiled) in ([0-9.]+) s", " ".join(row["notes"]))
        if row["network"] == network and found:
            return " + ".join(f"{float(seconds):.3g}" for seconds in found[:2]) + " s"
    return ""


def memory_table() -> list[str]:
    """Peaks beyond what was held before: of setting up and of the first product, of the other questions while timed."""
    rows = [json.loads(path.read_text()) for path in sorted((RESULTS / "peers").glob("*.json"))]
    rows = [row for row in rows if "question" in row and "peak_bytes" in row["libraries"]["hessmap"]]
    rows.sort(key=lambda row: (row["num_parameters"], row["network"], QUESTIONS.index(row["question"])))
    names = ("hessmap", COMPILED, *PEERS)
    lines = ["| network | peak memory of | " + " | ".join(names) + " |", "| --- " * (len(names) + 2) + "|"]
    for row in rows:
        peaks = (row["libraries"].get(name, {}).get("peak_bytes") for name in names)
        told = ["" if peak is None else f"{peak / 1e6:.0f} MB" for peak in peaks]
        lines.append("| " + " | ".join([row["network"], row["question"], *told]) + " |")
    return lines if rows else []


def jax_table() -> list[str]:
    """One product by jax, beside ours."""
    path = RESULTS / "peers_jax.json"
    if not path.exists():
        return []
    ways = ("forward over reverse", "linearize")
    heads = [f"jax, {way} | to compile" for way in ways]
    lines = ["| one product | " + " | ".join(heads) + " |", "| --- " * 5 + "|"]
    for row in json.loads(path.read_text())["cases"]:
        cells = [f"{number(row[way]['seconds'])} | {row[way]['seconds_to_compile']:.2g} s" for way in ways]
        lines.append("| " + " | ".join([row["network"], *cells]) + " |")
    return lines


def correctness_table() -> list[str]:
    path = RESULTS / "peers_correctness.json"
    if not path.exists():
        return []
    lines = ["| trap | " + " | ".join(LIBRARIES) + " |", "| --- " * (len(LIBRARIES) + 1) + "|"]
    cases = json.loads(path.read_text())["cases"]
    cells = ([row["row"], *(verdict(row["libraries"][name]) for name in LIBRARIES)] for row in cases)
    return [*lines, *("| " + " | ".join(line) + " |" for line in cells)]


def verdict(told: dict[str, Any]) -> str:
    if told["passes"]:
        return f"{told['error']:.0e}"
    return f"**{told['error']:.0e}**" if "error" in told else f"**fails**: {reason(told['why'])}"


def reason(why: str) -> str:
    """The error in a few words."""
    kind, _, text = why.partition(": ")
    return text if kind == "AssertionError" else text[:60].rsplit(" ", 1)[0] + " .."


def growth_table() -> list[str]:
    """Fitted exponents of all points, and between the last two."""
    path = RESULTS / "peers_growth.json"
    if not path.exists():
        return []
    fits = json.loads(path.read_text())["cases"][-1]["exponents"]
    heads = [(of, axis) for axis in ("parameters", "samples") for of in ("seconds", "peak_bytes")]
    names = [f"{'memory' if of == 'peak_bytes' else of} in {axis}" for of, axis in heads]
    lines = ["| exponent of all points (last two) | " + " | ".join(names) + " |", "| --- " * (len(heads) + 1) + "|"]
    for way in ("fresh", "kept", "traced"):
        keys = [f"{of} in {axis}, {way}" for of, axis in heads]
        cells = [f"{fits[key]:.2f} ({fits[key + ' (last two points)']:.2f})" if key in fits else "" for key in keys]
        lines.append("| " + " | ".join([way, *cells]) + " |")
    return lines


def speed_figure() -> None:
    """Speed relative to the fastest correct peer: a point for each network, a line for each question."""
    from matplotlib.figure import Figure

    rows = measured_rows()
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for index, network in enumerate(networks):
        found = {row["question"]: min(row["speedups"].values()) for row in rows if row["network"] == network}
        heights = [len(QUESTIONS) - 1 - QUESTIONS.index(question) + 0.1 * (index - 2.5) for question in found]
        axes.plot(list(found.values()), heights, "o", label=network, markersize=6)
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set(xscale="log", xlim=(0.7, 600), xlabel="times as fast as the fastest other library with a correct answer")
    axes.set_xticks([1, 3, 10, 30, 100, 300], ["1x", "3x", "10x", "30x", "100x", "300x"])
    axes.set_yticks(range(len(QUESTIONS)), QUESTIONS[::-1])
    axes.minorticks_off()
    axes.grid(axis="x", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    figure.savefig(FIGURE, dpi=120)


def main() -> int:
    page = PAGE.read_text()
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    tables = [*speed_table(), "", *jax_table(), "", *memory_table()]
    parts = [START, "", *tables, "", *correctness_table(), "", *growth_table(), "", END]
    PAGE.write_text(before + "\n".join(parts) + after)
    speed_figure()
    print(f"written to {PAGE.relative_to(ROOT)} and {FIGURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
