"""Seconds and memory to build K-FAC factors and to solve with them: hessmap beside curvlinops and kronfluence.

A ResNet18, a GPT-2 of ten million random weights and an MLP in float32, the same linear and convolutional layers for
all, the empirical Fisher (one gradient per sample). Builds are processes of their own; those of the libraries alternate
for three rounds, on a machine that does nothing else: ``load_before`` far above zero spoils it. Of each row the best,
the median and the spread of the rounds are kept, the sizes that they belong to (samples, parameters of the layers,
bytes of their factors), and the error of a peer that raises.

- "build first": from the model to the factors, in a process that has built those of a small network before, so that
  imports and the start of threads are no part of it. hessmap checks samples and first derivatives; curvlinops checks
  determinism (its default); kronfluence checks nothing.
- "build again": the factors alone. hessmap with the Problem that was checked; curvlinops without its check; kronfluence
  as it is. kronfluence keeps its factors in files, which its seconds include; eigenvectors are part of no build.
- "solve": with eigenvectors at hand, by both operators in turn in one process. kronfluence has no solve.
- "peak memory": the most that the process held during the first build, less what it held before.

A row that is in the results is not measured again.

    make bench-peers                                           # with all other peers
    python benchmarks/peers/kronecker_speed.py                 # all rows that are missing
    python benchmarks/peers/kronecker_speed.py --only ResNet18 # one network
    python benchmarks/peers/kronecker_speed.py --again         # rows that were measured before, too
    python benchmarks/peers/kronecker_speed.py --small         # few samples, one round: does everything run?
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
from harness import RESULTS, environment, forget_peak, peak_bytes, seconds_in_turn, speedups, summary, timed, write
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import hessmap as hm
from cases import LARGE_CASES, Case

NAME = "peers_kronecker_speed"
DAMPING = 1e-3
NUM_ROUNDS = 3
LIBRARIES = ("hessmap", "curvlinops", "kronfluence")
NUM_SAMPLES = {"ResNet18": 128, "GPT-2": 32, "MLP": 4096}  # of tokens: sequences of 128
SMALL = 4
WIDTHS = (784, 1024, 1024, 10)


def mlp_case(num_samples: int) -> Case:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [part for sizes in pairwise(WIDTHS) for part in (nn.Linear(*sizes), nn.ReLU())]
        model = nn.Sequential(*layers[:-1]).eval()
    inputs = torch.randn(num_samples, WIDTHS[0], generator=generator)
    return Case("MLP", model, inputs, torch.randint(WIDTHS[-1], (num_samples,), generator=generator))


def network(name: str, num_samples: int) -> Case:
    """One of the networks, with so many random samples."""
    if name == "MLP":
        return mlp_case(num_samples)
    full = next(key for key in LARGE_CASES if key.startswith(name))
    build, draw, _ = LARGE_CASES[full]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Case(name, build().float().eval(), *draw(num_samples))


def sizes_of(name: str, num_samples: int) -> dict[str, Any]:
    """What the seconds and bytes of a network belong to."""
    made = network(name, num_samples)
    covered = layer_parameters(made.model)
    weights = {key: value for key, value in covered.items() if value.ndim > 1}
    biased = {key: value[0].numel() + (key.replace("weight", "bias") in covered) for key, value in weights.items()}
    return {
        "num_samples": num_samples,
        "sample_shape": list(made.inputs.shape[1:]),
        "num_parameters": sum(value.numel() for value in covered.values()),
        "num_layers": len(weights),
        "factor_bytes": 4 * sum(len(value) ** 2 + biased[key] ** 2 for key, value in weights.items()),
    }


def layer_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Weights and biases of linear and convolutional layers, in the order of the model."""
    layers = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    return {name: value for name, value in model.named_parameters() if name.rpartition(".")[0] in layers}


def hessmap_problem(made: Case) -> hm.Problem:
    names = list(layer_parameters(made.model))
    return hm.Problem(made.model, "cross_entropy", made.inputs, made.labels, parameters=names, dtype=torch.float32)


def hessmap_factors(problem: hm.Problem) -> Any:
    return hm.kronecker_curvature(problem, "kfac", fisher="empirical")


def curvlinops_build(made: Case, is_checked: bool) -> Any:
    from curvlinops import KFACLinearOperator

    options: dict[str, Any] = {"fisher_type": "empirical", "separate_weight_and_bias": False}
    options["check_deterministic"] = is_checked
    parameters = list(layer_parameters(made.model).values())
    data = [(made.inputs, made.labels)]
    operator = KFACLinearOperator(made.model, nn.CrossEntropyLoss(), parameters, data, **options)
    operator @ torch.zeros(operator.shape[0])  # factors are computed at the first product
    return operator


def kronfluence_build(made: Case) -> Any:
    from kronfluence import Analyzer, FactorArguments, Task, prepare_model

    class Classification(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return self.compute_train_loss(batch, model)

    task = Classification()
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {"cpu": True, "output_dir": folder, "disable_tqdm": True, "log_level": logging.ERROR}
        analyzer = Analyzer("speed", prepare_model(made.model, task), task, **options)
        factors = FactorArguments(strategy="kfac", use_empirical_fisher=True)
        data = TensorDataset(made.inputs, made.labels)
        analyzer.fit_covariance_matrices("kfac", data, per_device_batch_size=len(made.inputs), factor_args=factors)


BUILDS: dict[str, Callable[[Case], Any]] = {
    "hessmap": lambda made: hessmap_factors(hessmap_problem(made)),
    "curvlinops": lambda made: curvlinops_build(made, is_checked=True),
    "kronfluence": kronfluence_build,
}


def measured_build(library: str, name: str, num_samples: int) -> dict[str, float]:
    """One process: the first build with its memory, and another build."""
    BUILDS[library](mlp_case(SMALL))
    made = network(name, num_samples)
    before = forget_peak()
    first = timed(lambda: BUILDS[library](made))[0]
    peak = peak_bytes() - before
    if library == "kronfluence":
        made = network(name, num_samples)  # it has changed the modules of the model
    problem = hessmap_problem(made) if library == "hessmap" else None
    if problem is not None:
        hessmap_factors(problem)
    again: dict[str, Callable[[], Any]] = {
        "hessmap": lambda: hessmap_factors(problem),
        "curvlinops": lambda: curvlinops_build(made, is_checked=False),
        "kronfluence": lambda: kronfluence_build(made),
    }
    return {"build first": first, "build again": timed(again[library])[0], "peak memory": peak}


def measured_solves(name: str, num_samples: int) -> dict[str, list[float]]:
    """Solves with both operators in turn, after one that computes the eigenvectors."""
    from curvlinops import KFACInverseLinearOperator

    made = network(name, num_samples)
    ours = hessmap_factors(hessmap_problem(made))
    vector = torch.randn(ours.size, generator=torch.Generator().manual_seed(0))
    works: dict[str, Callable[[], Any]] = {"hessmap": lambda: ours.solve(vector, damping=DAMPING)}
    works["hessmap"]()
    theirs = curvlinops_build(made, is_checked=False)
    try:
        inverse = KFACInverseLinearOperator(theirs, damping=DAMPING, use_exact_damping=True)
        inverse @ vector
        works["curvlinops"] = lambda: inverse @ vector
    except RuntimeError as error:  # eigenvectors that LAPACK does not find in float32 are a result
        print(f"curvlinops: {error}"[:300], file=sys.stderr)
    found, _ = seconds_in_turn(works, 6 * NUM_ROUNDS)
    return {library: one["rounds"] for library, one in found.items()}


def in_own_process(*wanted: str) -> Any:
    """What a process measured, or the error of a library that does not take the network, which is a result."""
    command = [sys.executable, __file__, "--measure", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else f"exit code {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def rows(name: str, num_samples: int, num_rounds: int) -> list[dict[str, Any]]:
    """The four rows of a network."""
    seen: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
    errors: dict[str, str] = {}
    for _ in range(num_rounds):
        for library in (one for one in LIBRARIES if one not in errors):
            found = in_own_process(library, name, str(num_samples))
            if isinstance(found, str):
                errors[library] = found
            else:
                seen[library].append(found)
    rounds = {
        quantity: {library: [one[quantity] for one in own] for library, own in seen.items() if library not in errors}
        for quantity in ("build first", "build again", "peak memory")
    }
    solves = in_own_process("solve", name, str(num_samples))
    rounds["solve"] = {} if isinstance(solves, str) else solves
    made, sizes = [], sizes_of(name, num_samples)
    for quantity, by_library in rounds.items():
        values = {library: summary(own) for library, own in by_library.items()}
        row = {"network": name, "quantity": quantity, "sizes": sizes, "libraries": values}
        row["unit"] = "bytes" if quantity == "peak memory" else "seconds"
        row["errors"] = {"solve": solves} if quantity == "solve" and isinstance(solves, str) else errors
        if "hessmap" in values:
            row["times_ours"] = {peer: speedups(values, "hessmap", peer) for peer in values if peer != "hessmap"}
        made.append(row)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=list(NUM_SAMPLES), action="append")
    parser.add_argument("--again", action="store_true", help="also rows that were measured before")
    parser.add_argument("--small", action="store_true", help="few samples, one round, no file")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "NETWORK", "SAMPLES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.measure:
        what, name, count = given.measure
        found = measured_solves(name, int(count)) if what == "solve" else measured_build(what, name, int(count))
        print(json.dumps(found))
        return
    path, where = RESULTS / f"{NAME}.json", environment() | {"rounds": 1 if given.small else NUM_ROUNDS}
    is_known = path.exists() and not given.again and not given.small
    known: list[dict[str, Any]] = json.loads(path.read_text())["cases"] if is_known else []
    for name in given.only or list(NUM_SAMPLES):
        if any(row["network"] == name for row in known):
            continue
        load = environment()["load_before"]
        made = rows(name, SMALL if given.small else NUM_SAMPLES[name], where["rounds"])
        known += [row | {"load_before": load} for row in made]
        if not given.small:
            write(NAME, where, known)
        for row in made:
            best = {library: f"{value['best']:.3g}" for library, value in row["libraries"].items()}
            spread = {library: f"{value['spread']:.0%}" for library, value in row["libraries"].items()}
            print(f"{name}, {row['quantity']} ({row['unit']}): best {best}, spread {spread}, {row['errors'] or ''}")


if __name__ == "__main__":
    main()
