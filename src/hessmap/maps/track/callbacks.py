"""A tracker as a callback of the trainers that people use: it is called after every step of the optimiser.

Every process of a distributed training calls it; the tracker of the first one measures and writes, those of the others
do nothing. Under DDP the model is whole in the first process. Models whose parameters are sharded raise, with the call
that measures them.

The packages are imported when a callback is asked for; hessmap does not need them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from hessmap.errors import InvalidInput, sentence

if TYPE_CHECKING:
    from hessmap.maps.track.tracker import Tracker


def hugging_face_callback(tracker: Tracker) -> Any:
    """A ``transformers.TrainerCallback``: ``Trainer(.., callbacks=[tracker.hugging_face_callback()])``."""
    base = _base("transformers", ("transformers",), "TrainerCallback")
    after_step = _after_step(tracker)

    def on_step_end(callback: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        _adopt(tracker, given.get("optimizer"))
        scheduler = given.get("lr_scheduler")
        after_step(state.global_step, scheduler.get_last_lr()[0] if scheduler is not None else args.learning_rate)

    def on_train_end(callback: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        tracker.close()

    return type("CurvatureCallback", (base,), {"on_step_end": on_step_end, "on_train_end": on_train_end})()


def lightning_callback(tracker: Tracker) -> Any:
    """A ``lightning.pytorch.Callback``: ``Trainer(.., callbacks=[tracker.lightning_callback()])``."""
    base = _base("lightning", ("lightning.pytorch", "pytorch_lightning"), "Callback")
    after_step = _after_step(tracker)

    def on_train_batch_end(callback: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        _adopt(tracker, trainer.optimizers[0] if len(trainer.optimizers) == 1 else None)
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        after_step(trainer.global_step, float(rates[0]) if rates else None)

    def on_train_end(callback: Any, trainer: Any, module: Any) -> None:
        tracker.close()

    methods = {"on_train_batch_end": on_train_batch_end, "on_train_end": on_train_end}
    return type("CurvatureCallback", (base,), methods)()


def _adopt(tracker: Tracker, optimizer: Any) -> None:
    """Let the tracker report the steps of the trainer's optimiser, where it has none and this one trains its model."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if tracker.optimizer is None and isinstance(inner, Optimizer):
        own = {id(parameter) for parameter in tracker.subject.model.parameters()}
        trained = [parameter for group in inner.param_groups for parameter in group["params"]]
        tracker.optimizer = inner if any(id(parameter) in own for parameter in trained) else None


def _after_step(tracker: Tracker) -> Callable[[int, float | None], None]:
    """Call the tracker once for every step: where gradients are accumulated, several batches make one."""
    last = -1

    def call(step: int, learning_rate: float | None) -> None:
        nonlocal last
        if step > last:
            last = step
            tracker(step, learning_rate=learning_rate)

    return call


def _base(package: str, modules: tuple[str, ...], name: str) -> type:
    for module in modules:
        try:
            found: type = getattr(import_module(module), name)
        except ImportError:
            continue
        return found
    must, remedy = f"this callback needs {package}", f"Install it (pip install {package}), or call tracker(step)"
    raise InvalidInput(sentence(must, "it is not installed", remedy))
