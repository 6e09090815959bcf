"""Whether K-FAC, influence scores and Laplace posteriors equal those of the libraries that are made for them.

curvlinops (K-FAC and EK-FAC matrices), kronfluence (EK-FAC influence scores) and laplace-torch (predictive variances,
probabilities, marginal likelihoods), each on an MLP and a CNN in float64, asked as their documentation says. A row has
the largest difference relative to the largest entry, and what it had to stay below. No times are taken.

laplace-torch keeps weights and biases in blocks of their own, so that its K-FAC rows are those of networks without
biases. Its K-FAC of convolutions is that of its ASDL backend ("expand"); its BackPACK backend sums gradients over
positions as well as inputs, which is neither "expand" nor "reduce".

    make bench-peers    # or: python benchmarks/peers/kronecker.py
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
from harness import environment, write
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm

DOUBLE = torch.float64
CLASSES = 4
SAMPLES, QUERIES = 120, 7


def mlp(bias: bool = True) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5, bias=bias), nn.Tanh(), nn.Linear(5, CLASSES, bias=bias))
    return model.double(), torch.randn(SAMPLES + QUERIES, 6, dtype=DOUBLE)


def cnn(bias: bool = True) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    layers = [nn.Conv2d(2, 3, 3, padding=1, bias=bias), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 2, bias=bias)]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES, bias=bias))
    return model.double(), torch.randn(SAMPLES + QUERIES, 2, 6, 6, dtype=DOUBLE)


MODELS = {"MLP": mlp, "CNN": cnn}


def labels_of(inputs: Tensor) -> Tensor:
    return (inputs.flatten(1)[:, :CLASSES] + 0.3 * inputs.flatten(1)[:, -CLASSES:]).argmax(1)


def error(found: Any, expected: Any) -> float:
    one, other = (torch.as_tensor(value).detach().double() for value in (found, expected))
    return float((one - other).abs().max() / other.abs().max())


def row(peer: str, model: str, what: str, found: float, allowed: float) -> dict[str, Any]:
    print(f"{peer:14} {model:4} {what:45} {found:.1e} (allowed {allowed:.0e}){'' if found <= allowed else '  FAILED'}")
    return {"peer": peer, "model": model, "what": what, "error": found, "allowed": allowed, "passed": found <= allowed}


def curvlinops_rows() -> Iterator[dict[str, Any]]:
    from curvlinops import EKFACLinearOperator, KFACLinearOperator

    kinds = {"kfac": KFACLinearOperator, "ekfac": EKFACLinearOperator}
    fishers = {"exact": "type-2", "empirical": "empirical"}
    for name, make in MODELS.items():
        for separate in (False, True):
            model, inputs = make(bias=not separate)
            inputs, labels = inputs[:SAMPLES], labels_of(inputs[:SAMPLES])
            problem = hm.Problem(model, "cross_entropy", inputs, labels)
            for kind, peer in kinds.items():
                for fisher, their_name in fishers.items():
                    for sharing in ("expand", "reduce") if kind == "kfac" else ("expand",):
                        options = {
                            "fisher_type": their_name,
                            "kfac_approx": sharing,
                            "separate_weight_and_bias": separate,
                        }
                        data = [(inputs, labels)]
                        theirs = peer(model, nn.CrossEntropyLoss(), list(model.parameters()), data, **options)
                        ours = hm.kronecker_curvature(problem, kind, fisher=fisher, sharing=sharing).to_dense()
                        dense = theirs @ torch.eye(problem.num_parameters, dtype=DOUBLE)
                        what = f"{kind}, {fisher} Fisher, {sharing}{', no biases' if separate else ''}"
                        yield row("curvlinops", name, what, error(ours, dense), 1e-10)


def kronfluence_rows() -> Iterator[dict[str, Any]]:
    from kronfluence import Analyzer, FactorArguments, ScoreArguments, Task, prepare_model

    class Classification(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    formats = ("activation_covariance", "gradient_covariance", "eigendecomposition", "per_sample_gradient", "lambda")
    for name, make in MODELS.items():
        for bias in (True, False):
            model, inputs = make(bias=bias)
            labels, damping = labels_of(inputs), 1e-3
            training, queries = (
                hm.Problem(model, "cross_entropy", inputs[part], labels[part])
                for part in (slice(SAMPLES), slice(SAMPLES, None))
            )
            curvature = hm.kronecker_curvature(training, "ekfac", fisher="empirical")
            ours = hm.influence(training, queries, curvature=curvature, damping=damping, self_influence=True)
            with TemporaryDirectory() as folder:
                task = Classification()
                prepared = prepare_model(model, task)
                analyzer = Analyzer(
                    "agreement", prepared, task, cpu=True, output_dir=folder, disable_tqdm=True, log_level=logging.ERROR
                )
                options = {f"{one}_dtype": DOUBLE for one in formats}
                factors = FactorArguments(strategy="ekfac", use_empirical_fisher=True, **options)
                train_set = TensorDataset(inputs[:SAMPLES], labels[:SAMPLES])
                query_set = TensorDataset(inputs[SAMPLES:], labels[SAMPLES:])
                analyzer.fit_all_factors("ekfac", train_set, per_device_batch_size=SAMPLES, factor_args=factors)
                precise = {f"{one}_dtype": DOUBLE for one in ("per_sample_gradient", "precondition", "score")}
                scoring = ScoreArguments(damping_factor=damping, **precise)
                analyzer.compute_pairwise_scores(
                    "pairs", "ekfac", query_set, train_set, QUERIES, SAMPLES, score_args=scoring
                )
                theirs = analyzer.load_pairwise_scores("pairs")["all_modules"]
                analyzer.compute_self_scores("own", "ekfac", train_set, SAMPLES, score_args=scoring)
                own = analyzer.load_self_scores("own")["all_modules"]
            suffix = "" if bias else ", no biases"
            yield row("kronfluence", name, f"scores on queries{suffix}", error(ours.scores, theirs), 1e-6)
            yield row("kronfluence", name, f"self-influence{suffix}", error(ours.self_influence, own), 1e-6)


def laplace_rows() -> Iterator[dict[str, Any]]:
    from laplace import Laplace
    from laplace.curvature import AsdlGGN, BackPackGGN

    structures = {"full": "full", "kfac": "kron", "diagonal": "diag"}
    for name, make in MODELS.items():
        for kind, structure in structures.items():
            for bias in (True, False) if kind != "kfac" else (False,):
                for likelihood in ("classification", "regression"):
                    model, inputs = make(bias=bias)
                    labels, asked = labels_of(inputs)[:SAMPLES], inputs[SAMPLES:]
                    targets = labels if likelihood == "classification" else F.one_hot(labels, CLASSES).to(DOUBLE)
                    noise = 1.0 if likelihood == "classification" else 0.6
                    loss = "cross_entropy" if likelihood == "classification" else "squared"
                    problem = hm.Problem(model, loss, inputs[:SAMPLES], targets)
                    ours = hm.laplace(problem, kind, prior_precision=0.7, noise=noise)
                    theirs = Laplace(
                        model,
                        likelihood,
                        subset_of_weights="all",
                        hessian_structure=structure,
                        prior_precision=0.7,
                        sigma_noise=noise,
                        backend=AsdlGGN if structure == "kron" else BackPackGGN,
                    )
                    theirs.fit(DataLoader(TensorDataset(inputs[:SAMPLES], targets), batch_size=SAMPLES))
                    _, covariance = theirs._glm_predictive_distribution(asked)
                    found = ours.predict(asked)
                    what = f"{kind}, {likelihood}{'' if bias else ', no biases'}"
                    yield row("laplace-torch", name, f"{what}: covariance", error(found.covariance, covariance), 1e-6)
                    evidence = abs(float(theirs.log_marginal_likelihood()) - ours.marginal_likelihood().value)
                    relative = evidence / abs(ours.marginal_likelihood().value)
                    yield row("laplace-torch", name, f"{what}: marginal likelihood", relative, 1e-6)
                    if likelihood == "classification":
                        probabilities = theirs(asked, link_approx="probit")
                        found_error = error(found.probabilities, probabilities)
                        yield row("laplace-torch", name, f"{what}: probit probabilities", found_error, 1e-6)


def main() -> None:
    warnings.simplefilter("ignore")
    where = environment()
    rows = [*curvlinops_rows(), *kronfluence_rows(), *laplace_rows()]
    write("peers_kronecker", where, rows)
    failed = [one for one in rows if not one["passed"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} rows agree")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
