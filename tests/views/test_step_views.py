"""The report of a step as table, sentences and figure."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn, optim

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.records import StepReport
from hessmap.views.plots import step_figure
from hessmap.views.tables import step_summary, step_table, step_view


def report(optimiser: Any = optim.AdamW, **options: Any) -> StepReport:
    torch.manual_seed(0)
    inputs, labels = hm.datasets.digits(num_samples=60)
    model = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10)).double()
    problem = hm.Problem(model, "cross_entropy", inputs, labels)
    return hm.step_report(problem, optimiser(model.parameters(), lr=1e-3), **options)


def test_the_table_has_every_quantity_with_its_error() -> None:
    found = report(batch_size=10)
    lines = {line[0]: line for line in step_table(found).lines}
    assert found.batch_sharpness is not None
    assert lines["batch sharpness"][1] == f"{found.batch_sharpness.value:.6g}"
    assert lines["batch sharpness"][3] == "standard error"
    assert lines["stability threshold"][1:4] == ("38000", "0", "exact")
    undefined = step_table(report(quantities=[])).lines
    assert undefined[0][1:3] == ("–", "–")


def test_a_notebook_shows_every_quantity() -> None:
    page = report(quantities=["sharpness"])._repr_html_()
    assert "<th style='text-align:left'>sharpness</th>" in page
    assert "<td>undefined</td>" in page


def test_sentences_state_stability_change_and_critical_rate() -> None:
    calm = " ".join(step_summary(report()))
    assert "Stable: the preconditioned sharpness is" in calm
    assert "lr) = 38000." in calm
    assert "lowers the loss" in calm
    assert "times the present" in calm
    assert "of the curvature along the step" in calm
    wild = " ".join(step_summary(report(optim.SGD, stability_threshold=None)))
    assert "2 / lr" in wild
    steep = report(lambda parameters, lr: optim.SGD(parameters, lr=1e3))
    assert "Unstable along the sharpest direction" in step_summary(steep)[0]
    assert "raises the loss" in " ".join(step_summary(steep))
    assert "No stability threshold is known for NAdam" in step_summary(report(optim.NAdam))[0]


def test_a_terminal_shows_all_of_it() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(step_view(report(batch_size=10)))
    text = console.export_text()
    assert "AdamW, learning rate 0.001" in text
    assert "decoupled weight decay" in text
    assert "Hessian products" in text


def test_the_figure_shows_the_model_of_the_loss_and_the_layers() -> None:
    found = report()
    figure = found.plot()
    model, layers = figure.axes
    labels = [text.get_text() for text in model.get_legend().get_texts()]
    assert labels == ["quadratic model", "measured at lr 0.001", "critical learning rate"]
    assert found.measured_change is not None
    point = next(line for line in model.lines if line.get_label() == "measured at lr 0.001")
    assert float(point.get_ydata()[0]) == pytest.approx(found.risk + found.measured_change.value)
    assert [text.get_text() for text in layers.get_yticklabels()] == ["0", "2"]
    assert len(step_figure(report(quantities=["layer_terms"], max_layers=0)).axes) == 1
    with pytest.raises(InvalidInput, match="needs quantities along the step"):
        report(quantities=["sharpness"]).plot()
