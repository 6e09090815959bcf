"""Threads are those of the free cores, unless the user said otherwise."""

from __future__ import annotations

import os

import pytest

from hessmap.cli.program import leave_busy_cores_alone

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cores and nothing set; what the test sets is taken back."""
    monkeypatch.setattr(os, "environ", {"PATH": "anything"})
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    return monkeypatch


@pytest.mark.parametrize(("load", "threads"), [(0.3, None), (1.2, "7"), (6.6, "1"), (40.0, "1")])
def test_threads_are_the_free_cores(machine: pytest.MonkeyPatch, load: float, threads: str | None) -> None:
    machine.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    leave_busy_cores_alone()
    assert [os.environ.get(name) for name in VARIABLES] == [threads] * 3


@pytest.mark.parametrize("name", VARIABLES)
def test_the_users_own_setting_stays_alone(machine: pytest.MonkeyPatch, name: str) -> None:
    machine.setattr(os, "getloadavg", lambda: (40.0, 0.0, 0.0))
    os.environ[name] = "5"
    leave_busy_cores_alone()
    assert {key: os.environ.get(key) for key in VARIABLES} == dict.fromkeys(VARIABLES) | {name: "5"}
