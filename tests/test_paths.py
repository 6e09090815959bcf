"""The main paths through the library: how many of its files they enter, how deep, and how often they read the data.

``docs/project/architecture.md`` draws them. A limit is what the path takes today: lower it where a path becomes
shorter, and do not raise it without a reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm

SOURCE = str(Path(hm.__file__).parent)
VIEWS = str(Path(hm.__file__).parent / "views")
MANY = 64  # samples from which on a pass over them counts


class Skip(nn.Module):
    """Two layers with a residual connection: a module that is not torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs + torch.tanh(self.inner(inputs)))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)), (1, 6, 6)),
    "skip": (Skip, (6,)),
}


@dataclass
class Trail:
    """What a call went through."""

    files: set[str]
    depth: int
    passes: int


def problem(name: str) -> hm.Problem:
    build, shape = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs = build(), torch.randn(200, *shape)
    return hm.Problem(model, "cross_entropy", inputs, torch.arange(200) % 3)


def traced(work: Callable[[], object]) -> Trail:
    """The files and the deepest stack of hessmap's own frames during a call, and its passes over many samples."""
    found, depth = Trail(set(), 0, 0), 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        name = frame.f_code.co_filename
        if not name.startswith(SOURCE) or name.startswith(VIEWS):  # progress is drawn where a machine is slow
            return
        if event == "call":
            depth += 1
            found.depth = max(found.depth, depth)
            found.files.add(name)
            if frame.f_code.co_qualname == "Problem.forward":
                found.passes += len(frame.f_locals["inputs"]) > MANY
        elif event == "return":
            depth -= 1

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def first_product(given: hm.Problem) -> Callable[[], object]:
    hessian = hm.loss_hessian(given)
    return lambda: hessian @ torch.ones(hessian.size, dtype=torch.float64)


def second_product(given: hm.Problem) -> Callable[[], object]:
    first_product(given)()
    hessian = hm.loss_hessian(given)
    vector = torch.ones(hessian.size, dtype=torch.float64)
    hessian @ vector
    return lambda: hessian @ vector


def eigenpairs(given: hm.Problem) -> Callable[[], object]:
    find, hessian = hm.top_eigenpairs, hm.loss_hessian  # the package may look names up at their first use
    return lambda: find(hessian(given), 5)


def whole_map(given: hm.Problem) -> Callable[[], object]:
    find = hm.map
    return lambda: find(given)


def layer_factors(given: hm.Problem) -> Callable[[], object]:
    find, names = hm.layer_factors, hm.layers.layer_names
    return lambda: find(given, next(iter(names(given))))


PATHS: dict[str, Callable[[hm.Problem], Callable[[], object]]] = {
    "first product": first_product,
    "second product": second_product,
    "dense": lambda given: hm.loss_hessian(given).to_dense,
    "eigenpairs": eigenpairs,
    "layer factors": layer_factors,
    "map": whole_map,
}

LIMITS = {  # files, frames, passes over more than MANY samples
    ("first product", "mlp"): (15, 17, 0),
    ("first product", "cnn"): (15, 19, 1),
    ("first product", "skip"): (16, 14, 5),
    ("second product", "mlp"): (8, 7, 0),
    ("second product", "cnn"): (9, 13, 0),
    ("second product", "skip"): (9, 13, 0),
    ("dense", "mlp"): (18, 19, 1),
    ("dense", "cnn"): (19, 26, 5),
    ("dense", "skip"): (19, 23, 9),
    ("eigenpairs", "mlp"): (28, 22, 1),
    ("eigenpairs", "cnn"): (24, 28, 1),
    ("eigenpairs", "skip"): (25, 24, 5),
    ("layer factors", "mlp"): (18, 19, 2),
    ("layer factors", "cnn"): (19, 22, 2),
    ("layer factors", "skip"): (19, 19, 6),
    ("map", "mlp"): (52, 25, 7),
    ("map", "cnn"): (50, 29, 13),
    ("map", "skip"): (50, 26, 17),
}


@pytest.mark.parametrize(("path", "model"), LIMITS)
def test_a_path_does_not_grow(path: str, model: str) -> None:
    PATHS[path](problem(model))()  # what is imported or cached at a first call is no part of a path
    found = traced(PATHS[path](problem(model)))
    files, depth, passes = LIMITS[path, model]
    names = sorted(name.removeprefix(SOURCE) for name in found.files)
    assert len(found.files) <= files, names
    assert found.depth <= depth
    assert found.passes <= passes
