"""Seconds and memory to build K-FAC factors and to solve with them: hessmap beside curvlinops and kronfluence.

A ResNet18 and a GPT-2 of ten million random weights in float32, the same linear and convolutional layers for all, the
empirical Fisher (one gradient per sample), rounds in turn in one process on a machine that does nothing else:
``load_before`` far above zero spoils it. A peer that raises has its error in the row. kronfluence keeps its factors in
files, which its seconds include.

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


def layer_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Weights and biases of linear and convolutional layers, in the order of the model."""
    layers = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    return {name: value for name, value in model.named_parameters() if name.rpartition(".")[0] in layers}


def hessmap_build(made: Case) -> Any:
    names = list(layer_parameters(made.model))
    problem = hm.Problem(made.model, "cross_entropy", made.inputs, made.labels, parameters=names, dtype=torch.float32)
    return hm.kronecker_curvature(problem, "kfac", fisher="empirical")


def curvlinops_build(made: Case) -> Any:
    from curvlinops import KFACLinearOperator

    options: dict[str, Any] = {"fisher_type": "empirical", "separate_weight_and_bias": False}
    options["check_deterministic"] = False
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
        analyzer.perform_eigendecomposition("kfac", factor_args=factors)


BUILDS: dict[str, Callable[[Case], Any]] = {
    "hessmap": hessmap_build,
    "curvlinops": curvlinops_build,
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
    made, errors, peaks, works = case(name), dict[str, str](), dict[str, int](), dict[str, Callable[[], Any]]()
    for library, build in BUILDS.items():
        before = forget_peak()
        try:
            build(case(name))
        except Exception as error:  # a peer that does not take the network is a result
            errors[library] = f"{type(error).__name__}: {error}"[:300]
            continue
        peaks[library] = peak_bytes() - before
        works[library] = lambda build=build: build(made if build is not kronfluence_build else case(name))
    seconds, operators = seconds_in_turn(works)
    found: dict[str, Any] = {"network": name, "num_layer_parameters": operators["hessmap"].size, "errors": errors}
    found |= {"build_seconds": seconds, "build_peak_bytes": peaks}
    found["solve_seconds"], _ = seconds_in_turn(solves(operators))
    for part in ("build_seconds", "solve_seconds"):
        peers = [peer for peer in found[part] if peer != "hessmap"]
        found[part.replace("seconds", "speedups")] = {peer: speedups(found[part], "hessmap", peer) for peer in peers}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    where = environment()
    chosen = [name for name in LARGE_CASES if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    write("peers_kronecker_speed", where, [row(name) for name in chosen])
