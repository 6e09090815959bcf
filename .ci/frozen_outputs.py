"""The main calls on about fifty models and the outcomes of the claims of all stored studies, to compare with.

    python .ci/frozen_outputs.py write       # store what differs in this tree in .ci/frozen_outputs.json
    python .ci/frozen_outputs.py compare     # compare this tree with them; exit code 1 if anything differs

A change that only moves or renames code must not change an output: floating-point numbers agree to 1e-7 of the largest
number beside them (products may be rounded in another order), everything else is equal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hessmap as hm

STORED = Path(__file__).with_name("frozen_outputs.json")
TOLERANCE = 1e-7
Case = tuple[Callable[[], nn.Module], Any, torch.Tensor, torch.Tensor, dict[str, Any]]


class Block(nn.Module):
    """A transformer block over token embeddings, with a class for every sequence."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.hidden = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embedding(tokens))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.back(nn.functional.gelu(self.hidden(x)))
        return self.head(x.mean(1))


class Skip(nn.Module):
    """Two layers with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.second(torch.tanh(self.first(x))))


class Tied(nn.Module):
    """One weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(4, 4, bias=False)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.sigmoid(self.weight(torch.sigmoid(self.weight(x)))))


class Recurrent(nn.Module):
    """An LSTM whose last state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, -1])


def mlp(widths: tuple[int, ...], activation: type[nn.Module], bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


def cnn(pool: bool, norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU()]
    layers += [nn.BatchNorm2d(3)] if norm else []
    layers += [nn.MaxPool2d(2)] if pool else [nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Conv2d(3, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))


def cases() -> Iterator[tuple[str, Case]]:
    """Name -> model, loss, inputs, targets, further arguments of Problem."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def labels(count: int, *shape: int) -> torch.Tensor:
        return torch.randint(count, shape, generator=draw)

    x, y, r = normal(24, 5), labels(3, 24), normal(24, 3)
    for name, activation in {
        "tanh": nn.Tanh,
        "relu": nn.ReLU,
        "gelu": nn.GELU,
        "sigmoid": nn.Sigmoid,
        "identity": nn.Identity,
        "softplus": nn.Softplus,
        "elu": nn.ELU,
        "silu": nn.SiLU,
        "leaky": nn.LeakyReLU,
    }.items():
        for loss, targets in (("cross_entropy", y), ("squared", r)):
            for depth, bias in ((2, True), (3, False)):
                widths = (5, *[4] * (depth - 1), 3)
                yield (
                    f"mlp-{name}-{loss}-{depth}",
                    (
                        lambda w=widths, a=activation, b=bias: mlp(w, a, b),
                        loss,
                        x,
                        targets,
                        {},
                    ),
                )
    images = normal(10, 1, 6, 6)
    for pool in (False, True):
        for norm in (False, True):
            yield (
                f"cnn-{pool}-{norm}",
                (
                    lambda p=pool, n=norm: cnn(p, n),
                    "cross_entropy",
                    images,
                    labels(3, 10),
                    {},
                ),
            )
    yield "transformer", (lambda: Block(11, 4, 3), "cross_entropy", labels(11, 8, 5), labels(3, 8), {})
    yield "skip", (Skip, "squared", normal(12, 5), normal(12, 3), {})
    yield "tied", (Tied, "squared", normal(12, 4), normal(12, 2), {})
    yield "lstm", (Recurrent, "cross_entropy", normal(7, 4, 3), labels(3, 7), {})
    yield (
        "weights",
        (
            lambda: mlp((5, 4, 3), nn.Tanh),
            "cross_entropy",
            x,
            y,
            {"weights": torch.linspace(0.5, 2, 24, dtype=torch.float64)},
        ),
    )
    yield "l2", (lambda: mlp((5, 4, 3), nn.Tanh), "cross_entropy", x, y, {"l2": 0.1})
    yield "some", (lambda: mlp((5, 4, 3), nn.Tanh), "cross_entropy", x, y, {"parameters": ["2.weight", "2.bias"]})
    yield "module-loss", (lambda: mlp((5, 4, 3), nn.Tanh), nn.SmoothL1Loss(), x, r, {})
    yield "huber", (lambda: mlp((5, 4, 3), nn.ReLU), nn.HuberLoss(delta=0.3), x, r, {})
    yield "smoothed", (lambda: mlp((5, 4, 3), nn.ReLU), nn.CrossEntropyLoss(label_smoothing=0.1), x, y, {})
    yield (
        "binary",
        (
            lambda: mlp((5, 4, 3), nn.Tanh),
            nn.BCEWithLogitsLoss(),
            x,
            labels(2, 24, 3).double(),
            {},
        ),
    )
    yield "float32", (lambda: mlp((5, 4, 3), nn.Tanh), "cross_entropy", x, y, {"dtype": torch.float32})


def array_of(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return np.asarray(array, dtype=np.float64)


def numbers(value: Any) -> list[float]:
    return [float(f"{number:.12g}") for number in array_of(value).reshape(-1)]


def fingerprint(value: Any) -> list[float]:
    """The norm and four projections of a vector or of the rows of a matrix: a wrong entry changes them."""
    array = array_of(value)
    for _ in range(array.ndim):
        places = np.arange(array.shape[-1])
        array = np.stack([array @ np.cos(frequency * places) for frequency in (0.3, 1.0, 1.7, 2.9)])
    return numbers([float(np.linalg.norm(array_of(value))), *array.reshape(-1)])


def attempt(function: Callable[[], Any]) -> Any:
    """What a call gives, or the kind of error that it raises."""
    try:
        return function()
    except hm.errors.HessmapError as error:
        return {"error": type(error).__name__}


def curvature(case: Case) -> dict[str, Any]:
    build, loss, inputs, targets, further = case
    torch.manual_seed(0)
    model = build().double()
    problem = hm.Problem(model, loss, inputs, targets, **further)
    vector = torch.cos(torch.arange(problem.num_parameters, dtype=torch.float64))
    found: dict[str, Any] = {"risk": float(problem.risk()), "gradient": fingerprint(problem.gradient())}
    for name in ("loss_hessian", "outer_product_hessian", "functional_hessian", "fisher"):
        operator = attempt(lambda name=name: getattr(hm, name)(problem))
        if isinstance(operator, dict):
            found[name] = operator
            continue
        found[name] = attempt(lambda operator=operator: fingerprint(operator @ vector.to(problem.dtype)))
        found[f"{name} dense"] = attempt(lambda operator=operator: fingerprint(operator.to_dense()))
    hessian = hm.loss_hessian(problem)
    found["top"] = numbers(hm.top_eigenpairs(hessian, 3).eigenvalues)
    found["sharpness"] = float(hm.sharpness(hessian).value)
    found["rank"] = attempt(lambda: int(hm.numerical_rank(hessian).value))
    found["certified"] = attempt(lambda: str(hm.certified_rank(problem, "loss").value))
    found["jacobian"] = attempt(lambda: fingerprint(hm.output_jacobian(problem).reshape(-1, problem.num_parameters)))
    for layer in hm.layer_names(problem):
        factors = attempt(lambda layer=layer: hm.layer_factors(problem, layer))
        if isinstance(factors, dict):
            found[f"factors {layer}"] = factors
        else:
            found[f"factors {layer}"] = fingerprint(factors.input_factor) + fingerprint(factors.output_factor)
    return found


def predictions() -> dict[str, Any]:
    found = {}
    for text in ("10-8-6", "10-8-8-6 bias", "12-9-9-9-4", "8-3-8-2 relu", "6-6-6-6-6 bias"):
        network = hm.networks.parse_network(text)
        for input_rank in (None, 5):
            prediction = attempt(lambda network=network, rank=input_rank: hm.predict_ranks(network, input_rank=rank))
            found[f"{text} {input_rank}"] = (
                prediction
                if isinstance(prediction, dict)
                else [str(getattr(prediction, part).value) for part in ("loss", "outer_product", "functional")]
            )
    return found


def maps_and_certificates() -> dict[str, Any]:
    data = hm.datasets.digits()
    torch.manual_seed(0)
    model = mlp((64, 8, 10), nn.Tanh)
    inputs, targets = data.inputs[:200], data.targets[:200]
    network = hm.map(model, (inputs, targets)).network
    found: dict[str, Any] = {"map layers": [layer.name for layer in network.layers]}
    found["map tops"] = [float(layer.top_eigenvalue) for layer in network.layers]
    found["map traces"] = [float(layer.trace) for layer in network.layers]
    found["map risk"] = float(network.risk)
    torch.manual_seed(1)
    start = mlp((64, 8, 10), nn.Tanh)
    made = hm.certify(model, start, (inputs, targets), iterations=20, num_draws=50)
    found["certificate"] = [float(made.bound), float(made.kl)]
    return found


def studies() -> dict[str, Any]:
    """Outcome of every claim of every stored study."""
    from study_outcomes import study_outcomes

    return study_outcomes()


def outputs() -> dict[str, Any]:
    found: dict[str, Any] = {f"model {name}": curvature(case) for name, case in cases()}
    found["predictions"] = predictions()
    found["maps"] = maps_and_certificates()
    found["studies"] = studies()
    return found


def differences(stored: Any, made: Any, place: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(made, dict):
        for key in sorted({*stored, *made}):
            if key not in stored or key not in made:
                yield f"{place}/{key}: only {'now' if key in made else 'before'}"
            else:
                yield from differences(stored[key], made[key], f"{place}/{key}")
    elif isinstance(stored, list) and isinstance(made, list) and all(isinstance(one, float) for one in stored + made):
        scale = max(map(abs, stored), default=0.0)
        tolerance = 1e-4 if "float32" in place else TOLERANCE
        if len(stored) != len(made) or not np.allclose(stored, made, rtol=0, atol=tolerance * scale, equal_nan=True):
            yield f"{place}: differs"
    elif isinstance(stored, float) and isinstance(made, float):
        yield from differences([stored], [made], place)
    elif stored != made:
        yield f"{place}: {stored!r} before, {made!r} now"


def updated(stored: Any, made: Any, place: str = "") -> Any:
    """What was made, but what agrees stays as it was stored."""
    if isinstance(stored, dict) and isinstance(made, dict):
        return {key: updated(stored[key], one, f"{place}/{key}") if key in stored else one for key, one in made.items()}
    return made if any(differences(stored, made, place)) else stored


def main() -> None:
    stored, made = json.loads(STORED.read_text()), json.loads(json.dumps(outputs()))
    if sys.argv[1:] == ["write"]:
        STORED.write_text(json.dumps(updated(stored, made), indent=0, sort_keys=True) + "\n")
        return
    found = list(differences(stored, made))
    print("\n".join(found) or "All outputs agree.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
