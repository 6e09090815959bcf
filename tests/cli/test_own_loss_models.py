"""``hessmap map --loss own``: models that compute their own loss, with the calls of Hugging Face models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.records import CurvatureMap
from plain_autograd import plain_hessian

SOURCE = """
from dataclasses import dataclass
import torch
import torch.nn.functional as F
from torch import Tensor, nn

@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor

class LanguageModel(nn.Module):
    # The next token from the one before: forward(input_ids, labels) as in transformers, labels of -100 do not count.
    def __init__(self, own_term=0.0):
        super().__init__()
        self.embedding, self.head, self.own_term = nn.Embedding(7, 3), nn.Linear(3, 7), own_term

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.head(torch.tanh(self.embedding(input_ids)))
        if labels is None:
            return Output(None, logits)
        shifted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        loss = F.cross_entropy(*shifted, ignore_index=-100) + self.own_term * logits.square().mean()
        return Output(loss, logits)

def made(own_term=0.0):
    torch.manual_seed(0)
    return LanguageModel(own_term)

def recognised():
    return made()

def unknown():
    return made(0.3)

def tokens(sizes, ignored):
    generator = torch.Generator().manual_seed(1)
    batches = []
    for size in sizes:
        ids = torch.randint(7, (size, 6), generator=generator)
        labels = ids.clone()
        if ignored:
            labels[: size // 2, 2:] = -100
        batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return batches

def data():
    return tokens([8, 3], True)

def whole():
    return tokens([8, 3], False)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_language_model.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with torch.random.fork_rng():
        yield tmp_path
    sys.modules.pop("own_language_model", None)


def mapped(model: str, data: str) -> CurvatureMap:
    common = ["--loss", "own", "--no-files", "--json", "--seconds", "300"]  # more than a loaded machine needs
    given = ["map", f"own_language_model:{model}", "--data", f"own_language_model:{data}", *common]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    return CurvatureMap.from_json(done.stdout)


def joined(batches: list[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
    ids, labels = (torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    return ids, labels


def sharpness(found: CurvatureMap) -> float:
    assert found.network.whole.sharpness is not None
    return found.network.whole.sharpness.value


def test_the_own_loss_of_a_language_model_is_the_mean_over_all_labels_that_count() -> None:
    import own_language_model as own  # type: ignore[import-not-found]

    found = mapped("recognised", "data")
    model = own.recognised().double()
    ids, labels = joined(own.data())
    risk = F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
    top = float(torch.linalg.eigvalsh(plain_hessian(model, risk))[-1])
    assert sharpness(found) == pytest.approx(top, rel=1e-6)
    assert any("recognised as" in note for note in found.provenance.notes)


def test_an_own_loss_that_is_not_recognised_is_its_mean_over_the_samples() -> None:
    import own_language_model as own

    found = mapped("unknown", "whole")
    model = own.unknown().double()
    ids, labels = joined(own.whole())
    risk = torch.stack([model(ids[n : n + 1], labels=labels[n : n + 1]).loss for n in range(len(ids))]).mean()
    top = float(torch.linalg.eigvalsh(plain_hessian(model, risk))[-1])
    assert sharpness(found) == pytest.approx(top, rel=1e-6)


def test_an_own_loss_that_is_no_mean_over_samples_is_an_error() -> None:
    """It weights samples by their counted labels, and is no loss that is known: its value on a batch shows it."""
    given = ["map", "own_language_model:unknown", "--data", "own_language_model:data", "--loss", "own", "--no-files"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    assert "must be a mean over its samples" in done.stderr
