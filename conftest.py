"""What every test shares."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.testing
from hypothesis import register_random, settings


def pytest_configure(config: pytest.Config) -> None:
    """Choose the hypothesis profile: "quick" by default, "long" by ``--hypothesis-profile=long`` (``make test-slow``).

    Every run draws the same examples, unless a seed is given, as by the rows of the matrix. The profile reaches every
    test: one that needs more or fewer examples states a share of them (tests/example_shares.py).
    """
    is_seeded = config.getoption("--hypothesis-seed", None) is not None
    for name, max_examples in (("quick", 40), ("long", 1000)):
        # No deadline: it would make tests depend on the clock.
        settings.register_profile(name, deadline=None, derandomize=not is_seeded, max_examples=max_examples)
    settings.load_profile(config.getoption("--hypothesis-profile", None) or "quick")
    typer.testing._get_command = cache(typer.testing._get_command)  # else every command line of a test builds them all


class TorchRandom:
    """torch's generator as hypothesis knows Python's and numpy's: every example starts from the same state."""

    def seed(self, number: int) -> None:
        torch.default_generator.manual_seed(number)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


TORCH_RANDOM = TorchRandom()  # hypothesis holds it weakly
register_random(TORCH_RANDOM)

# What tests share is imported by its plain name.
for folder in ("explorer/tests", "research/tests", "tests"):
    sys.path.insert(0, str(Path(__file__).parent / folder))


def fix_random_state() -> None:
    """``torch.manual_seed`` would keep a stack trace for every kind of device: a millisecond and more for each test."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.default_generator.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests stays to their end: the collector of garbage need not walk it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report() -> None:
    """What a module of tests draws while it is imported does not depend on the modules before it."""
    fix_random_state()


@pytest.fixture(autouse=True)
def _fixed_random_state() -> None:
    """A test that draws from a global generator draws the same numbers alone, in any order and in any process."""
    fix_random_state()
