"""Stores and apps that the tests of the explorer share."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from hessmap.records import (
    CurvatureTrack,
    MapOptions,
    SpectralEstimate,
    StepQuantity,
    StepReport,
    Store,
    TrackPoint,
    add_map,
    add_track,
)
from hessmap_explorer.app import explorer_app
from hessmap_explorer.functions import kept_result
from hessmap_explorer.settings import Explorer
from patience import PATIENCE
from views.synthetic_map import curvature_map

RESULTS = Path(__file__).parents[2] / "research" / "results"
PORT = 8642
OWN = f"http://127.0.0.1:{PORT}"


def point(step: int, sharpness: float) -> TrackPoint:
    values = np.array([sharpness, sharpness / 2])
    return TrackPoint(
        step=step,
        risk=1.0 / (1 + step),
        gradient_norm=0.1,
        eigenvalues=values,
        residuals=np.zeros(2),
        converged=True,
        trace=SpectralEstimate.of_known("trace", 3 * sharpness, 160),
        gradient_overlap=None,
        learning_rate=0.1,
        num_products=12,
        is_warm=step > 0,
        weights_hash=f"{step:04x}",
        seconds=float(step),
        cost=0.1,
        spent=0.1 * step,
        step_report=_descent(sharpness),
    )


def _descent(sharpness: float) -> StepReport:
    """The report of a step of descent with the learning rate 0.1."""
    found = StepQuantity(sharpness, 0.0, "residual")
    undefined = dict.fromkeys(
        (
            "batch_sharpness",
            "gradient_noise_scale",
            "directional_sharpness",
            "layer_terms",
            "first_order_change",
            "predicted_change",
            "measured_change",
            "critical_learning_rate",
            "batch_size",
        )
    )
    return StepReport(
        optimizer="SGD",
        learning_rate=0.1,
        risk=1.0,
        gradient_norm=0.1,
        step_norm=0.01,
        sharpness=found,
        preconditioned_sharpness=found,
        stability_threshold=StepQuantity(20.0, 0.0, "exact"),
        threshold_formula="2 / lr",
        num_batches=0,
        num_samples=100,
        num_products=12,
        num_passes=1,
        seed=0,
        notes=(),
        **undefined,
    )


def track(name: str, steps: list[int]) -> CurvatureTrack:
    points = tuple(point(step, 10.0 + step / 10) for step in steps)
    return CurvatureTrack(
        name, "8-12-4-4 relu", "squared", "loss", 160, 100, "hash", None, 10.0, 1.0, {"count": 2}, points
    )


def filled_store(path: Path) -> Path:
    """Two maps and two tracks, made up from seeds."""
    with Store(path, create=True) as store:
        for name in ("before", "after"):
            add_map(store, name, curvature_map(), MapOptions(widths="8-12-4-4"))
        add_track(store, track("run1", [0, 10, 20, 30, 200, 210, 220]))
        add_track(store, track("run2", [0, 10, 20]))
    return path


def keep_results(folder: Path) -> None:
    """A function, a loss plane and a certificate, each with the name "one", of a network of 39 parameters."""
    import hessmap as hm
    from hessmap.certificates import certify

    network = hm.FullyConnected((5, 4, 3), bias=True, activation="relu")
    inputs, labels = hm.datasets.gaussian_mixture(60, 5, num_classes=3, separation=5.0)
    records = {
        "function_rank": hm.function_rank(network.build(seed=0), inputs),
        "bottleneck_view": hm.maps.functions.bottleneck_view(network.build(seed=0), inputs),
        "representation_cost": hm.maps.functions.representation_cost(network.build(seed=0), inputs),
    }
    kept_result(folder, "function", "one", {name: record.to_dict() for name, record in records.items()})
    problem = hm.Problem(network.build(seed=0), "cross_entropy", inputs, labels)
    kept_result(folder, "plane", "one", hm.loss_plane(problem, num_points=4).to_dict())
    both = network.build(seed=0), network.build(seed=1)
    kept_result(folder, "plane", "line", hm.loss_plane(problem, both[1], num_points=4).to_dict())
    certificate = certify(*both, (inputs, labels), iterations=10, num_draws=100, seed=0)
    kept_result(folder, "certificate", "one", certificate.to_dict())


def client(explorer: Explorer, **headers: str) -> TestClient:
    """A browser that has the token, on the explorer's own page."""
    made = TestClient(
        explorer_app(explorer), base_url=f"http://127.0.0.1:{explorer.port}", raise_server_exceptions=False
    )
    made.cookies.set(explorer.cookie, explorer.token)
    made.headers.update({"origin": f"http://127.0.0.1:{explorer.port}", **headers})
    return made


def refused(answer: Any, status: int) -> str:
    """The sentence of a refusal, which must be one and no trace."""
    assert answer.status_code == status, answer.text
    text = answer.json()["error"] if "json" in answer.headers["content-type"] else answer.text
    assert isinstance(text, str)
    assert text.rstrip().endswith((".", "?")), text
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
    return text


@dataclass
class Served:
    link: str
    store: Path

    @property
    def base(self) -> str:
        return self.link.partition("/?")[0]


@contextmanager
def running_explorer(program: Sequence[str], folder: Path) -> Iterator[Served]:
    """``hessmap serve`` in a process of its own, with maps, tracks and kept results; ``program`` starts hessmap."""
    store = filled_store(folder / "store.sqlite")
    keep_results(Explorer(store=store).folder)
    words = ["serve", "--port", "0", "--store", str(store), "--results", str(RESULTS)]
    with subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        try:
            yield Served(found[0], store)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
