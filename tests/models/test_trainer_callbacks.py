"""The tracker in the trainers of Hugging Face and Lightning themselves (make test-models)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm

# Their own warnings are not ours.
pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("default")]


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(24, 3, generator=generator), torch.arange(24) % 2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def tracker(model: nn.Module, folder: Path, **options: Any) -> hm.Tracker:
    given: dict[str, Any] = {"count": 2, "max_probes": 4, "share": None, "store": folder / "store.sqlite", **options}
    return hm.Tracker(model, "cross_entropy", samples(), **given)


class Classifier(nn.Module):
    """As Trainer calls a model: with a dictionary, for a loss and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(inputs)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_hugging_face_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = Classifier()
    inputs, labels = samples()
    data = [{"inputs": row, "labels": label} for row, label in zip(inputs, labels, strict=True)]
    made = tracker(model.net, tmp_path)
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    callbacks = [made.hugging_face_callback()]
    transformers.Trainer(model=model, args=args, train_dataset=data, callbacks=callbacks).train()
    points = made.track.points
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6]
    assert all(point.learning_rate == pytest.approx(0.1) for point in points)
    assert points[0].weights_hash != points[-1].weights_hash
    assert points[-1].risk == pytest.approx(float(nn.functional.cross_entropy(model.net(inputs), labels)), rel=1e-5)


def test_lightning_trainer(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    made = tracker(module.net, tmp_path)
    trainer = lightning.Trainer(
        max_epochs=1,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[made.lightning_callback()],
        default_root_dir=str(tmp_path),
    )
    trainer.fit(module, DataLoader(TensorDataset(*samples()), batch_size=4))
    points = made.track.points
    assert [point.step for point in points] == [0, 1, 2, 3]
    assert {point.learning_rate for point in points} == {0.1}
    assert points[0].weights_hash != points[-1].weights_hash
