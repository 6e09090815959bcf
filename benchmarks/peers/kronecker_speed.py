"""Seconds and memory to build K-FAC factors and to solve with them: hessmap beside curvlinops and kronfluence.

A ResNet18 and a GPT-2 of ten million random weights in float32, the same linear and convolutional layers for all, the
empirical Fisher (one gradient per sample), five rounds in turn in one process on a machine that does nothing else:
``load_before`` far above zero spoils it. A peer that raises has its error in the row.

``first_build_seconds`` start from the model: hessmap's Problem, its checks of samples and derivatives and the factors;
curvlinops with its own check of determinism (its default); kronfluence as it is, which checks nothing.
``build_seconds`` are those of the factors alone: a Problem that was checked, curvlinops without the check, the same of
kronfluence. kronfluence keeps its factors in files, which its seconds include; eigenvectors are part of no build.
``solve_seconds`` are those with eigenvectors at hand; kronfluence has no solve.

    python benchmarks/peers/kronecker_speed.py            # both networks
    python benchmarks/peers/kronecker_speed.py ResNet18   # one of them
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
from harness import environment, forget_peak, peak_bytes, seconds_in_turn, speedups, write
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import hessmap as hm
from cases import LARGE_CASES, Case, case

DAMPING = 1e-3
NUM_ROUNDS = 5


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


FIRST_BUILDS: dict[str, Callable[[Case], Any]] = {
    "hessmap": lambda made: hessmap_factors(hessmap_problem(made)),
    "curvlinops": lambda made: curvlinops_build(made, is_checked=True),
    "kronfluence": kronfluence_build,
}


def solves(operators: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """One solve with each operator, after a first one that computes the eigenvectors."""
    size = operators["hessmap"].size
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0))
    found: dict[str, Callable[[], Any]] = {"hessmap": lambda: operators["hessmap"].solve(vector, damping=DAMPING)}
    if operators.get("curvlinops") is not None:
        from curvlinops import KFACInverseLinearOperator

        options: dict[str, Any] = {"damping": DAMPING, "use_exact_damping": True}
        inverse = KFACInverseLinearOperator(operators["curvlinops"], **options)
        inverse @ vector  # eigenvectors are computed at the first product, as by the first solve of hessmap
        operators["hessmap"].solve(vector, damping=DAMPING)
        found["curvlinops"] = lambda: inverse @ vector
    return found


def row(name: str) -> dict[str, Any]:
    made, errors, peaks = case(name), dict[str, str](), dict[str, int]()
    for library, build in FIRST_BUILDS.items():
        before = forget_peak()
        try:
            build(case(name))
        except Exception as error:  # a peer that does not take the network is a result
            errors[library] = f"{type(error).__name__}: {error}"[:300]
            continue
        peaks[library] = peak_bytes() - before
    problem = hessmap_problem(made)
    hessmap_factors(problem)
    works: dict[str, Callable[[], Any]] = {
        "hessmap": lambda: hessmap_factors(problem),
        "curvlinops": lambda: curvlinops_build(made, is_checked=False),
        "kronfluence": lambda: kronfluence_build(case(name)),  # it changes the modules of the model
    }
    first: dict[str, Callable[[], Any]] = {
        "hessmap": lambda: FIRST_BUILDS["hessmap"](made),
        "curvlinops": lambda: FIRST_BUILDS["curvlinops"](made),
        "kronfluence": works["kronfluence"],
    }
    works, first = ({peer: some[peer] for peer in peaks} for some in (works, first))
    found: dict[str, Any] = {"network": name, "errors": errors, "first_build_peak_bytes": peaks}
    found["first_build_seconds"], _ = seconds_in_turn(first, NUM_ROUNDS)
    found["build_seconds"], operators = seconds_in_turn(works, NUM_ROUNDS)
    found["num_layer_parameters"] = operators["hessmap"].size
    found["solve_seconds"], _ = seconds_in_turn(solves(operators), NUM_ROUNDS)
    for part in ("first_build_seconds", "build_seconds", "solve_seconds"):
        peers = [peer for peer in found[part] if peer != "hessmap"]
        found[part.replace("seconds", "speedups")] = {peer: speedups(found[part], "hessmap", peer) for peer in peers}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    where = environment() | {"rounds": NUM_ROUNDS}
    chosen = [name for name in LARGE_CASES if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    write("peers_kronecker_speed", where, [row(name) for name in chosen])
