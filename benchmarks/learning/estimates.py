"""Do hessmap and devinterp estimate the same learning coefficient, with the same settings, and how long does each take?

Both walk chains of stochastic gradient Langevin dynamics on all samples, with the same step, n beta, localisation,
burn-in and draws, in float64; where a linear network has an exact coefficient it stands beside them.
`make bench-learning`.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from devinterp.optim.sgld import SGLD
from devinterp.slt.sampler import estimate_learning_coeff_with_summary
from harness import environment, timed, write
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm

NUM_CHAINS, NUM_BURN_IN, NUM_DRAWS = 8, 1000, 2000


@dataclass(frozen=True)
class Setting:
    """One model at an optimum, with what both samplers are told."""

    name: str
    model: nn.Module
    loss: str
    inputs: Tensor
    targets: Tensor
    num_observations: float
    step_size: float
    localisation: float = 1.0
    exact: float | None = None


def linear(widths: tuple[int, ...], rank: int) -> Setting:
    """Weights whose products all have the rank of the truth, on inputs of second moment one."""
    network = hm.FullyConnected(widths)
    model = network.build(seed=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
            weight[range(rank), range(rank)] = 1.0
    inputs = widths[0] ** 0.5 * torch.eye(widths[0], dtype=torch.float64)
    exact = float(hm.learning_coefficient(network, rank=rank).value)
    name = f"{network}, rank {rank}"
    return Setting(name, model, "squared", inputs, model(inputs).detach(), 1e4, 2e-5, exact=exact)


def relu() -> Setting:
    """A ReLU network on the outputs of its own weights."""
    model = hm.FullyConnected((4, 4, 2), activation="relu").build(seed=0)
    inputs = torch.randn(120, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Setting("4-4-2 relu, its own teacher", model, "squared", inputs, model(inputs).detach(), 1e4, 5e-5)


def digits() -> Setting:
    """A small classifier after training."""
    inputs, labels = hm.datasets.digits()
    inputs, labels = inputs[:300].double(), labels[:300]
    model = hm.FullyConnected((64, 10, 10), activation="relu", bias=True).build(seed=0, init="kaiming")
    hm.train(
        model, (inputs, labels), "cross_entropy", optimiser="adam", learning_rate=3e-3, batch_size=64, epochs=60, seed=0
    )
    return Setting(
        "64-10-10 relu bias, digits", model, "cross_entropy", inputs, labels, 300.0, 2e-4, localisation=100.0
    )


def ours(setting: Setting) -> dict[str, Any]:
    problem = hm.Problem(setting.model, setting.loss, setting.inputs, setting.targets)
    found = hm.maps.learning.learning_coefficient_estimate(
        problem,
        num_chains=NUM_CHAINS,
        num_burn_in=NUM_BURN_IN,
        num_draws=NUM_DRAWS,
        num_observations=setting.num_observations,
        step_size=setting.step_size,
        localisation=setting.localisation,
        check_settings=False,
        seed=1,
    )
    failed = [check.name for check in found.checks if check.outcome == "failed"]
    return {"value": found.value, "error": found.standard_error, "verdict": found.verdict, "failed_checks": failed}


def theirs(setting: Setting) -> dict[str, Any]:
    def evaluate(model: nn.Module, batch: Any) -> Tensor:
        outputs, targets = model(batch[0]), batch[1]
        if setting.loss == "cross_entropy":
            return nn.functional.cross_entropy(outputs, targets)
        return 0.5 * (outputs - targets).square().sum(1).mean()

    n_beta = setting.num_observations / math.log(setting.num_observations)
    loader = DataLoader(TensorDataset(setting.inputs, setting.targets), batch_size=len(setting.inputs), shuffle=False)
    found = estimate_learning_coeff_with_summary(
        setting.model,
        loader,
        evaluate=evaluate,
        sampling_method=SGLD,
        optimizer_kwargs={"lr": setting.step_size, "localization": setting.localisation, "nbeta": n_beta},
        num_chains=NUM_CHAINS,
        num_draws=NUM_DRAWS,
        num_burnin_steps=NUM_BURN_IN,
        seed=1,
        verbose=False,
    )
    by_chain = np.array([found[f"llc-chain/{chain}"] for chain in range(NUM_CHAINS)])
    return {"value": float(by_chain.mean()), "error": float(by_chain.std(ddof=1) / math.sqrt(NUM_CHAINS))}


def case(setting: Setting) -> dict[str, Any]:
    seconds, mine = timed(lambda: ours(setting))
    peer_seconds, peer = timed(lambda: theirs(setting))
    z = (mine["value"] - peer["value"]) / math.hypot(mine["error"], peer["error"])
    parameters = sum(parameter.numel() for parameter in setting.model.parameters())
    row = {
        "setting": setting.name,
        "num_parameters": parameters,
        "step_size": setting.step_size,
        "num_observations": setting.num_observations,
        "localisation": setting.localisation,
        "chains_burn_in_draws": [NUM_CHAINS, NUM_BURN_IN, NUM_DRAWS],
        "exact": setting.exact,
        "hessmap": {**mine, "seconds": seconds},
        "devinterp": {**peer, "seconds": peer_seconds},
        "difference_in_standard_errors": z,
    }
    print(
        f"{setting.name}: {mine['value']:.3f} and {peer['value']:.3f}, {seconds:.1f} s and {peer_seconds:.1f} s",
        flush=True,
    )
    return row


def main() -> None:
    warnings.simplefilter("ignore")
    hm.progress(False)
    where = environment()
    settings = [
        linear((5, 5, 5), 0),
        linear((5, 5, 5), 2),
        linear((5, 5, 5), 5),
        linear((4, 4, 4, 4), 0),
        relu(),
        digits(),
    ]
    write("learning_estimates", where, [case(setting) for setting in settings])


if __name__ == "__main__":
    main()
