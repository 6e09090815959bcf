"""How fast are products, top eigenvalues, densities and traces, beside curvlinops, hessian-eigenthings and PyHessian?

Four networks in float64 and two of ten million parameters in float32, all libraries in one process, at equal accuracy:
eigenvalues to 1e-6 relative (1e-3 in float32), 64 steps x 16 probes, the trace to a standard error of 1 %. "hessmap" is
the default, from the model on; "hessmap, compiled" is compile=True after tracing and compiling, whose seconds stand
in its notes. Every row is a JSON file of its own in results/peers; those that are there already
are not run again unless --again. Rows whose data are absent are skipped, and say so.

    make bench-peers    # or: HESSMAP_DATA=.. python benchmarks/peers/rows.py [--small] [--only trace] [--again]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import numpy as np
import torch
from floor import floor_seconds
from harness import RESULTS, environment, forget_peak
from libraries import LIBRARIES, Answer, Ours, OursCompiled, ready
from questions import (
    ACCURACIES,
    LARGE,
    QUESTIONS,
    Reference,
    Sizes,
    density_error,
    eigenvalue_error,
    lanczos_setting,
    product_error,
    reference,
    scipy_setting,
    trace_allowance,
    trace_error,
)

import hessmap as hm
from cases import CASES, LARGE_CASES, Case, case
from hessmap.errors import HessmapError
from hessmap.records import data_hash

FOLDER = RESULTS / "peers"
SMALL = Sizes(count=5, steps=8, probes=2, standard_error=0.2, block=4)
SMALL_SAMPLES = 60
SHORT, TURNS = 5.0, 4  # seconds of a library up to which all take so many turns
PRODUCT_ERRORS = {torch.float64: 1e-10, torch.float32: 1e-3}
SETTINGS = {"lanczos": ("hessian-eigenthings", lanczos_setting), "eigsh": ("curvlinops", scipy_setting)}
# Least speedup over every peer that is asked for, by network and question; anything else: not slower.
WANTED = {
    "MLP": {"block product": 5, "top eigenvalues": 5, "density": 5, "trace": 5},
    "LeNet5": {
        "one product": 2.6,
        "block product": 1.7,
        "top eigenvalues": 3.6,
        "density": 3.2,
        "trace": 90,
    },
    "transformer": {
        "one product": 1.5,
        "block product": 1.5,
        "top eigenvalues": 2.5,
        "density": 1.5,
        "trace": 1.5,
    },
    "F-200^2": {"top eigenvalues": 1.5, "density": 1.5, "trace": 1.5},
    "ResNet18": {"one product": 1.3, "top eigenvalues": 2, "density": 2, "trace": 2},
    "GPT-2": {"one product": 1.3, "top eigenvalues": 2, "density": 2, "trace": 2},
}


def slug(*words: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else "-" for letter in word.lower()) for word in words)


def wanted_speedup(made: Case, question: str) -> float:
    return float(WANTED[made.name.partition(",")[0]].get(question, 1.0))


def allowed_error(made: Case, question: str) -> float:
    if "product" in question:
        return PRODUCT_ERRORS[made.dtype]
    return {"top eigenvalues": ACCURACIES[made.dtype], "density": 1e-2}.get(question, 0.0)


def known_reference(made: Case, sizes: Sizes, folder: Path, with_top: bool) -> Reference:
    """That of all questions; without the top eigenvalues the largest alone, which is enough for the others."""
    count = sizes.count if with_top else 1
    path = folder / f"reference-{slug(made.name)}.json"
    weights = data_hash(*(parameter.detach().numpy() for parameter in made.model.parameters()))
    held = json.loads(path.read_text()) if path.exists() else {"eigenvalues": []}
    is_enough = held.pop("num_samples", len(made.inputs)) == len(made.inputs) and len(held["eigenvalues"]) >= count
    if held.pop("weights", None) != weights or not is_enough:  # trainings on other numbers of threads end elsewhere
        with ready(made):
            found = reference(made, replace(sizes, count=count))
            for name, (library, setting) in SETTINGS.items() if with_top else ():
                is_asked = name == "lanczos" or made.num_parameters <= LARGE
                if is_asked and _product_errors(made)[library] <= PRODUCT_ERRORS[made.dtype]:
                    found.settings[name] = setting(made, sizes, found)
        held = asdict(found) | {"eigenvalues": found.eigenvalues.tolist()}
        path.write_text(json.dumps(held | {"weights": weights, "num_samples": len(made.inputs)}, indent=1) + "\n")
    return Reference(**held | {"eigenvalues": np.array(held["eigenvalues"])})


def measured(question: str, made: Case, sizes: Sizes, known: Reference) -> dict[str, Any]:
    """One row. Where no library takes more than a few seconds, all take their turn again, and the best counts."""
    row = _measured_once(question, made, sizes, known)
    libraries = row["libraries"]
    if (
        max((library.get("seconds", 0.0) for library in libraries.values()), default=0.0) > SHORT
        or "product" in question
    ):
        return row
    for _ in range(TURNS - 1):
        for name, library in _measured_once(question, made, sizes, known)["libraries"].items():
            if "seconds" in library and library["seconds"] < libraries[name].get("seconds", 0.0):
                libraries[name] = library
    return _judged(question, made, sizes, libraries) | {"turns": TURNS}


def _measured_once(question: str, made: Case, sizes: Sizes, known: Reference) -> dict[str, Any]:
    """Every library's answer, with why it is wrong where it is."""
    libraries: dict[str, Any] = {}
    expected = _expected(question, made, sizes)
    off_products = {} if "product" in question else _product_errors(made)
    for name, library in LIBRARIES.items():
        if off_products.get(name, 0.0) > PRODUCT_ERRORS[made.dtype]:
            libraries[name] = {"right": False, "why": f"its products are off by {off_products[name]:.1e}"}
            continue
        forget_peak()  # what the library before gave back would be this one's for free
        try:
            with ready(made):
                answer = QUESTIONS[question](library, made, sizes, known)
        except Exception as error:
            libraries[name] = {"right": False, "why": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
            continue
        off, allowed = None, allowed_error(made, question)
        if answer.is_measured:
            off, allowed = _error(question, answer, expected, known, made)
        right = off is None or bool(off <= allowed * (20 if sizes == SMALL else 1))
        libraries[name] = {
            "seconds": answer.seconds,
            "processor_seconds": answer.processor_seconds,
            "products": answer.products,
            "error": off,
            "right": right,
            "part": answer.part,
            "peak_bytes": answer.peak_bytes,
            "notes": answer.notes,
        }
        if not right:
            libraries[name]["why"] = f"its error is {off:.1e}, allowed is {allowed:g}"
    return _judged(question, made, sizes, libraries)


def _error(
    question: str, answer: Answer, expected: torch.Tensor | None, known: Reference, made: Case
) -> tuple[float, float]:
    """How far off an answer is, and how far it may be."""
    if question == "top eigenvalues":
        return eigenvalue_error(answer.value, known), allowed_error(made, question)
    if question == "density":
        return density_error(answer.value, known, made.num_parameters), allowed_error(made, question)
    if question == "trace":
        return trace_error(answer.value, known), trace_allowance(answer.value, known)
    assert expected is not None
    return product_error(answer, expected), allowed_error(made, question)


@lru_cache(maxsize=1)
def _product_errors(made: Case) -> dict[str, float]:
    """How far off one product of each peer is: where a part is timed, the rest of its answer is built on this."""
    vector = torch.randn(made.num_parameters, generator=torch.Generator().manual_seed(0), dtype=made.dtype)
    expected = _expected("one product", made, Sizes())
    assert expected is not None
    errors = {}
    for name, library in LIBRARIES.items():
        if library is OursCompiled:
            continue
        with ready(made):
            errors[name] = float((library(made).product(vector) - expected[:, 0]).abs().max() / expected.abs().max())
    return errors


def _expected(question: str, made: Case, sizes: Sizes) -> torch.Tensor | None:
    """Products by autograd of the risk as one writes it down, without a library."""
    if "product" not in question:
        return None
    width = 1 if question == "one product" else sizes.block
    vectors = torch.randn(made.num_parameters, width, generator=torch.Generator().manual_seed(0), dtype=made.dtype)
    parameters = list(made.model.parameters())
    with ready(made):
        risk = torch.nn.functional.cross_entropy(made.model(made.inputs), made.labels)
        slope = torch.autograd.grad(risk, parameters, create_graph=True)
        flat = torch.cat([part.reshape(-1) for part in slope])
        columns = min(width, 2)  # two of a block are enough to see that it is right
        images = [
            torch.autograd.grad(flat, parameters, vectors[:, i].contiguous(), retain_graph=True) for i in range(columns)
        ]
    return torch.stack([torch.cat([part.reshape(-1) for part in image]) for image in images], 1)


def _judged(question: str, made: Case, sizes: Sizes, libraries: dict[str, Any]) -> dict[str, Any]:
    own = [name for name in (Ours.name, OursCompiled.name) if name in libraries]
    ours = min(
        (libraries[name] for name in own), key=lambda library: library["seconds"] if library["right"] else float("inf")
    )
    other = (*own, "hessmap, never compiled")  # in rows stored when compiling was automatic
    peers = {name: library for name, library in libraries.items() if name not in other and library["right"]}
    speedups, processor = (
        ({}, {})
        if not ours["right"]
        else (
            {name: library[key] / ours[key] for name, library in peers.items()}
            for key in ("seconds", "processor_seconds")
        )
    )
    wanted = wanted_speedup(made, question)
    return {
        "network": made.name,
        "num_parameters": made.num_parameters,
        "num_samples": len(made.inputs),
        "question": question,
        "sizes": asdict(sizes),
        "libraries": libraries,
        "floor_seconds_per_product": floor_seconds(made),
        "speedups": speedups,
        "processor_speedups": processor,
        "wanted_speedup": wanted,
        "passes": bool(ours["right"]) and all(value >= wanted for value in speedups.values()),
    }


def told_error(error: float | None) -> str:
    return "error not measured" if error is None else f"error {error:.0e}"


def line(row: dict[str, Any]) -> str:
    told = "; ".join(
        f"{name} {library['seconds']:.3g} s ({library['products']} products, {told_error(library['error'])})"
        if library["right"]
        else f"{name} WRONG: {library['why']}"
        for name, library in row["libraries"].items()
    )
    speed = ", ".join(
        f"{value:.1f}x ({row['processor_speedups'][name]:.1f}x CPU) over {name}"
        for name, value in row["speedups"].items()
    )
    verdict = "passes" if row["passes"] else "FAILS"
    return f"{row['network']}, {row['question']}: {told}; {speed}; {row['wanted_speedup']:g}x wanted: {verdict}"


def warm_up() -> None:
    """Load what libraries load at their first call."""
    small = np.diag(np.arange(1.0, 80.0))
    hm.top_eigenpairs(small, 1)
    hm.density_estimate(small, num_steps=4, num_probes=2)
    hm.trace_estimate(small, relative_error=0.5)
    made = case("MLP, digits", 20)
    for library in LIBRARIES.values():
        if library is OursCompiled:
            continue
        with ready(made):
            library(made).product(torch.ones(made.num_parameters, dtype=torch.float64))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--again", action="store_true", help="also rows that were measured before")
    parser.add_argument("--only", choices=list(QUESTIONS), action="append")
    parser.add_argument("--network", choices=[*CASES, *LARGE_CASES], action="append")
    parser.add_argument("--plain", action="store_true", help="without compiled products")
    parser.add_argument("--samples", type=int, help="fewer samples for all libraries, which the row says")
    parser.add_argument("--references", action="store_true", help="only the references, which need no quiet machine")
    given = parser.parse_args()
    if given.plain:
        LIBRARIES.pop(OursCompiled.name)
    sizes, folder = (SMALL, FOLDER / "small") if given.small else (Sizes(), FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    passed = True
    warm_up()
    for name in given.network or [*CASES, *LARGE_CASES]:
        try:
            made = case(name, SMALL_SAMPLES if given.small else given.samples)
        except HessmapError as error:
            print(f"{name}: skipped, {error}")
            continue
        questions = [] if given.references else given.only or list(QUESTIONS)
        asked = given.only or list(QUESTIONS)
        needs, with_top = any("product" not in question for question in asked), "top eigenvalues" in asked
        known = known_reference(made, sizes, folder, with_top) if needs else Reference(np.zeros(0), 0.0, 0.0, 0, 0.0)
        for question in questions:
            path = folder / f"{slug(name, question)}.json"
            if given.again or not path.exists():
                where = environment()
                row = measured(question, made, sizes, known)
                path.write_text(json.dumps({"environment": where, **row}, indent=1) + "\n")
            row = json.loads(path.read_text())
            passed = passed and row["passes"]
            print(line(row), flush=True)
    return 0 if passed or given.small else 1


if __name__ == "__main__":
    sys.exit(main())
