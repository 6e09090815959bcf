"""A trained network with its data, and its certificate, once for all tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
from certificate_cases import QUICK, trained
from torch import nn

from hessmap.certificates import Certificate, certify
from hessmap.datasets import Data, gaussian_mixture


@pytest.fixture(scope="session")
def problem() -> tuple[nn.Module, nn.Module, Data]:
    data = gaussian_mixture(600, 5, num_classes=3, separation=5.0)
    return *trained(data, (5, 6, 3), epochs=2), data


@pytest.fixture(scope="session")
def certificate(problem) -> Certificate:
    return certify(*problem, **QUICK)


@pytest.fixture(scope="session")
def fit_in(problem, certificate) -> Callable[[str], Certificate]:
    """The certificate of the same network and data in a basis, fitted once."""
    return cache(lambda basis: certificate if basis == certificate.basis else certify(*problem, basis, **QUICK))


@pytest.fixture(scope="session")
def knowing(problem) -> Certificate:
    """A certificate whose initial weights are the trained ones."""
    model, _, data = problem
    return certify(model, copy.deepcopy(model), data, **QUICK)
