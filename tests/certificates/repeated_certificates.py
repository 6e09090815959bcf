"""Whole certificates, repeated where the error on unseen data is known; and broken ones, which the same count catches.

Inputs are standard normal in two dimensions, and a label is the sign of the first coordinate, flipped with probability
``flipped``. A network that decides by the sign of a score d . x errs with probability flipped + (1 - 2 flipped)
angle(d, e_1) / pi; the error of a law of weights is the mean of that over draws from numpy, spelled out from the arrays
of the certificate alone.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor, nn

from hessmap.certificates import Certificate, PriorGrid, certify
from hessmap.datasets import Data
from hessmap.theory.pac_bayes import held_out_bound, tightest_bound

DELTA, SAMPLING_DELTA = 0.06, 0.04
FLIPPED = 0.3
NUM_SAMPLES = 60
WIDE = PriorGrid(1.0, 1, num_points=4)
ONE_POINT = PriorGrid(1.0, 1, num_points=1)
_TRUTH_DRAWS = 4000
Outcome = tuple[float, float]  # the bound, and the true error
STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "certificate_coverage.json"


def drawn_data(seed: int, num_samples: int, flipped: float, num_tokens: int) -> Data:
    """Samples of the known law; as tokens, each is split into parts that have it as their mean."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, 2, generator=generator)
    is_flipped = torch.rand(num_samples, generator=generator) < flipped
    labels = ((inputs[:, 0] > 0) ^ is_flipped).long()
    if num_tokens:
        parts = 0.1 * torch.randn(num_samples, num_tokens, 2, generator=generator)
        inputs = inputs[:, None] + parts - parts.mean(1, keepdim=True)
    return Data(inputs, labels)


class Plain(nn.Module):
    """Scores W x."""

    num_tokens = 0

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.a(inputs)


class Shared(Plain):
    """Scores W W x: one layer, called twice."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.a(self.a(inputs))


class SharedWithoutNoise(Plain):
    """What a careless draw makes of it: the second use is that of the mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.a(inputs) @ self.mean.T.to(inputs.dtype)


class Tokens(Plain):
    """Scores W x of the mean of three tokens, which are folded into the batch."""

    num_tokens = 3

    def forward(self, inputs: Tensor) -> Tensor:
        return self.a(inputs.reshape(-1, 2)).reshape(len(inputs), 3, 2).mean(1)


class TokensWithNoiseOfTheirOwn(Tokens):
    """What a careless draw makes of it: three layers, whose noise cancels."""

    def forward(self, inputs: Tensor) -> Tensor:
        return sum(layer(inputs[:, place]) for place, layer in enumerate((self.a, *self.others))) / 3


def score_directions(found: Certificate, network: type[Plain], seed: int) -> np.ndarray[Any, Any]:
    """The vectors d of networks drawn from a posterior, as its arrays spell them out."""
    arrays, numbers = found.posterior, np.random.default_rng(seed)
    noise = numbers.standard_normal((_TRUTH_DRAWS, 2, 2)) * np.exp(arrays["a/log_deviations"])
    weights = arrays["a/weight"] + arrays["a/output_basis"] @ noise @ arrays["a/input_basis"].T
    if issubclass(network, Shared):
        weights = weights @ weights
    directions: np.ndarray[Any, Any] = weights[:, 1] - weights[:, 0]
    return directions


def true_error(found: Certificate, network: type[Plain], flipped: float, seed: int) -> float:
    """Of the posterior of a certificate on unseen data, for the network that it is to be about."""
    directions = score_directions(found, network, seed)
    angles = np.arccos(directions[:, 0] / np.linalg.norm(directions, axis=1))
    return float(flipped + (1 - 2 * flipped) * (angles / np.pi).mean())


def error_on_samples(found: Certificate, network: type[Plain], seed: int) -> float:
    """Of the posterior of a certificate on the samples it was made from: what its draws estimate."""
    data = drawn_data(seed, NUM_SAMPLES, FLIPPED, network.num_tokens)
    inputs, labels = data.inputs.double().numpy(), data.targets.numpy()
    inputs = inputs.mean(1) if network.num_tokens else inputs
    scores = score_directions(found, network, seed) @ inputs.T
    return float(((scores > 0) != labels).mean())


def learnt(network: type[Plain], data: Data, seed: int, steps: int = 25) -> tuple[nn.Module, nn.Module]:
    """A network after some steps of gradients, and as it was before."""
    start = network()
    with torch.no_grad():
        start.a.weight.copy_(torch.randn(2, 2, generator=torch.Generator().manual_seed(10**6 + seed)))
    model = copy.deepcopy(start)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(data.inputs), data.targets))
        optimiser.step()
    return model, start


def certificate(
    seed: int,
    network: type[Plain] = Plain,
    prior_share: float = 0.0,
    num_samples: int = NUM_SAMPLES,
    flipped: float = FLIPPED,
    draw_seed: int | None = None,
    changed: Callable[[nn.Module], nn.Module] = lambda model: model,
    **options: Any,
) -> Certificate:
    """A certificate from fresh samples, at a confidence of 90 %."""
    data = drawn_data(seed, num_samples, flipped, network.num_tokens)
    quick = {"iterations": 8, "num_draws": 300, "batch_size": 32, "refresh_every": 4, "basis_samples": 30}
    promise = {"delta": DELTA, "sampling_delta": SAMPLING_DELTA, "grid": WIDE}
    common: dict[str, Any] = quick | promise | {"seed": seed if draw_seed is None else draw_seed} | options
    if not prior_share:
        return certify(*learnt(network, data, seed), data, **common)
    cut = round(prior_share * num_samples)
    seen, rest = (Data(data.inputs[some], data.targets[some]) for some in (slice(cut), slice(cut, None)))
    prior = changed(learnt(network, seen, seed)[0])
    return certify(prior, prior, rest, prior_data=seen, **common)


def outcome(seed: int, network: type[Plain] = Plain, **options: Any) -> Outcome:
    found = certificate(seed, network, **options)
    return found.bound, true_error(found, network, options.get("flipped", FLIPPED), seed)


HALF: dict[str, Any] = {"prior_share": 0.5}
CLEAR: dict[str, Any] = HALF | {"posterior": "prior", "num_samples": 600, "flipped": 0.0, "grid": ONE_POINT}
FORMS: dict[str, Callable[[int], Outcome]] = {
    "blind, fitted": outcome,
    "blind, standard basis": lambda seed: outcome(seed, basis="standard"),
    "blind, usual grid": lambda seed: outcome(seed, grid=PriorGrid()),
    "blind, shared weights": lambda seed: outcome(seed, Shared),
    "blind, tokens": lambda seed: outcome(seed, Tokens),
    "blind, prior": lambda seed: outcome(seed, posterior="prior"),
    "half, prior": lambda seed: outcome(seed, posterior="prior", **HALF),
    "half, fitted": lambda seed: outcome(seed, **HALF),
    "half, fitted on all": lambda seed: outcome(seed, fit_on="all", **HALF),
    "half, tightest": lambda seed: outcome(seed, posterior="tightest", **HALF),
    "half, shared weights, prior": lambda seed: outcome(seed, Shared, **CLEAR),
    "half, tokens, prior": lambda seed: outcome(seed, Tokens, **CLEAR),
}


def second_use_without_noise(seed: int) -> Outcome:
    def with_mean(model: nn.Module) -> nn.Module:
        made = SharedWithoutNoise()
        made.a, made.mean = model.a, model.a.weight.detach().clone()
        return made

    found = certificate(seed, Shared, changed=with_mean, **CLEAR)
    return found.bound, true_error(found, Shared, 0.0, seed)


def noise_for_every_token(seed: int) -> Outcome:
    def with_layers(model: nn.Module) -> nn.Module:
        made = TokensWithNoiseOfTheirOwn()
        made.a, made.others = model.a, nn.ModuleList([copy.deepcopy(model.a) for _ in range(2)])
        return made

    found = certificate(seed, Tokens, changed=with_layers, **CLEAR)
    return found.bound, true_error(found, Tokens, 0.0, seed)


def grid_chosen_afterwards(seed: int) -> Outcome:
    """The best of eight grids, each of one point and with all of the deltas."""
    best = (inf, 0.0)
    for place in range(8):
        grid = PriorGrid(float(np.exp(3 + 0.3 * place)), 1, num_points=1)
        best = min(best, outcome(seed, posterior="prior", grid=grid, draw_seed=100 * seed + place, **HALF))
    return best


def coins_by_heart(seed: int) -> tuple[nn.Module, Data, Data]:
    """A network that knows 40 coin flips by heart (as many coordinates as samples), those flips, and other flips."""
    generator = torch.Generator().manual_seed(seed)
    known, others = (
        Data(torch.randn(40, 40, generator=generator), torch.randint(2, (40,), generator=generator)) for _ in range(2)
    )
    model = nn.Linear(40, 2, bias=False)
    with torch.no_grad():
        scores = torch.linalg.solve(known.inputs, 10.0 * (2.0 * known.targets - 1))
        model.weight.copy_(torch.stack([-scores, scores]))
    return model, known, others


COINS: dict[str, Any] = {"delta": DELTA, "sampling_delta": SAMPLING_DELTA, "basis": "standard", "num_draws": 300}


def certified_samples_in_the_prior(seed: int) -> Outcome:
    """Parts that overlap: the prior has learnt the certified samples, and others are named in their place."""
    prior, known, others = coins_by_heart(seed)
    return certify(prior, prior, known, posterior="prior", prior_data=others, seed=seed, **COINS).bound, 0.5


def divergence_left_out(seed: int) -> Outcome:
    """Learnt by heart from a start that knows nothing, and nothing paid for it."""
    model, known, others = coins_by_heart(seed)
    start = copy.deepcopy(model)
    nn.init.zeros_(start.weight)
    found = certify(model, start, known, prior_data=others, iterations=1, seed=seed, **COINS)
    return tightest_bound(found.sampled_error_bound, 0.0, 40, 0.0, DELTA).value, 0.5


BROKEN: dict[str, Callable[[int], Outcome]] = {
    "a second use without noise": second_use_without_noise,
    "noise for every token": noise_for_every_token,
    "certified samples in the prior": certified_samples_in_the_prior,
    "the divergence left out": divergence_left_out,
    "a grid chosen afterwards": grid_chosen_afterwards,
}


def sampled(seed: int, network: type[Plain] = Plain, **options: Any) -> Outcome:
    """The bound on the error of the stochastic network on the samples themselves, and that error."""
    found = certificate(seed, network, **options)
    return found.sampled_error_bound, error_on_samples(found, network, seed)


def answers_counted_as_draws(seed: int) -> Outcome:
    """Ten networks that answer 60 samples each are taken for 600 draws."""
    found = certificate(seed, Shared, num_draws=10)
    errors = sum(place * count for place, count in enumerate(found.draw_counts))
    return held_out_bound(errors, 10 * NUM_SAMPLES, SAMPLING_DELTA), error_on_samples(found, Shared, seed)


# The bound on the sampled error alone, at its own delta: binomial for pairs, where it is tight; a wager for networks.
SAMPLED: dict[str, Callable[[int], Outcome]] = {
    "pairs": sampled,
    "networks": lambda seed: sampled(seed, Shared),
    "networks, tokens": lambda seed: sampled(seed, Tokens),
}
SAMPLED_BROKEN: dict[str, Callable[[int], Outcome]] = {"answers counted as draws": answers_counted_as_draws}


def num_misses(form: Callable[[int], Outcome], repetitions: int) -> int:
    """How often the bound is below the true error."""
    return sum(bound < truth for bound, truth in map(form, range(repetitions)))


def most_misses(repetitions: int, delta: float = DELTA + SAMPLING_DELTA) -> int:
    """As many as a promise of this confidence exceeds once in a thousand times."""
    return int(binom.ppf(0.999, repetitions, delta))


COUNTED = {"sampled_broken": SAMPLED_BROKEN, "sampled": SAMPLED, "forms": FORMS, "broken": BROKEN}


def main(repetitions: int, names: Sequence[str]) -> None:
    """Count the forms and the broken variants of these names, or all, that are not stored; written after each."""
    for kind, forms in COUNTED.items():
        for name in [name for name in forms if not names or name in names]:
            if name in stored_counts(repetitions)[kind]:
                continue
            count = num_misses(forms[name], repetitions)
            found = stored_counts(repetitions)
            found[kind][name] = count
            STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {count} of {repetitions}", flush=True)


def stored_counts(repetitions: int) -> dict[str, Any]:
    """What was counted with as many repetitions before."""
    found: dict[str, Any] = {
        "command": f"python tests/certificates/repeated_certificates.py {repetitions}",
        "repetitions": repetitions,
        "at_most": most_misses(repetitions),
        "sampled_at_most": most_misses(repetitions, SAMPLING_DELTA),
    }
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    is_same = stored.get("repetitions") == repetitions
    return found | {kind: stored.get(kind, {}) if is_same else {} for kind in COUNTED}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500, sys.argv[2:])
