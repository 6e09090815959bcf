"""Models that compute their own loss when they are called with labels, as those of Hugging Face do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput
from plain_autograd import plain_hessian

GENERATOR = torch.Generator().manual_seed(8)
TEXT = torch.randint(0, 5, (6, 4), generator=GENERATOR)
LABELS = torch.randint(0, 5, (6, 4), generator=GENERATOR)
LABELS[0, 2:] = -100
MASK = torch.ones(6, 4)
MASK[1, 3] = 0


class Speaking(nn.Module):
    """Tokens in, a dictionary with logits out, and a loss with it where labels are given."""

    def __init__(self, kind: str, needs_labels: bool = False) -> None:
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5)
        self.kind, self.needs_labels = kind, needs_labels

    def forward(self, text: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        hidden = self.embed(text) * attention_mask[:, :, None]
        if self.needs_labels:
            assert labels is not None
            hidden = hidden + self.embed(labels.clamp(min=0).roll(1, 1))
        logits = self.head(torch.tanh(self.hidden(hidden)).cumsum(1))
        logits = logits[:, -1] if self.kind in ("classes", "numbers", "cubes", "centred") else logits
        if labels is None:
            return {"logits": logits}
        losses = {
            "tokens": lambda: F.cross_entropy(logits.reshape(-1, 5), labels.reshape(-1)),
            "next": lambda: F.cross_entropy(logits[:, :-1].reshape(-1, 5).float(), labels[:, 1:].reshape(-1)),
            "classes": lambda: F.cross_entropy(logits, labels),
            "numbers": lambda: F.mse_loss(logits, labels),
            "cubes": lambda: (logits - labels).abs().pow(3).mean(),
            "centred": lambda: (logits - logits.mean(0)).square().mean(),
        }
        return {"loss": losses[self.kind](), "logits": logits}


def speaking(kind: str, needs_labels: bool = False) -> Speaking:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return Speaking(kind, needs_labels).double()


def batch(kind: str) -> dict[str, Tensor]:
    targets = {"classes": LABELS[:, 0].clamp(min=0), "tokens": LABELS, "next": LABELS}
    numbers = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {"text": TEXT, "attention_mask": MASK.double(), "labels": targets.get(kind, numbers)}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tokens", "cross_entropy"),
        ("next", "next-token cross_entropy"),
        ("classes", "cross_entropy"),
        ("numbers", "MSELoss"),
    ],
)
@pytest.mark.parametrize("needs_labels", [False, True])
def test_a_loss_that_is_known_is_recognised_by_its_value(kind, name, needs_labels):
    if needs_labels and kind in ("classes", "numbers"):
        pytest.skip("labels of another shape than the text")
    model, data = speaking(kind, needs_labels), batch(kind)
    problem = hm.Problem(model, None, data)
    assert any(f"recognised as '{name}'" in note for note in problem.notes)
    own = model(**data)["loss"]
    expected = plain_hessian(model, own.double())
    rounding = 1e-6 if kind == "next" else 1e-12  # its own loss is in float32
    scale = float(expected.abs().max())
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    assert problem.risk() == pytest.approx(float(own.detach()), rel=rounding)
    assert float((hm.loss_hessian(problem) @ identity - expected).abs().max()) < rounding * scale
    parts = hm.outer_product_hessian(problem) @ identity + hm.functional_hessian(problem) @ identity
    assert float((parts - expected).abs().max()) < rounding * scale


def test_batches_of_a_loader_are_averaged_by_their_counted_tokens():
    model, data = speaking("tokens"), batch("tokens")
    parts = [{key: value[part] for key, value in data.items()} for part in (slice(0, 2), slice(2, 6))]
    problem = hm.Problem(model, None, parts)
    assert problem.risk() == pytest.approx(float(model(**data)["loss"].detach()), rel=1e-12)


def test_a_loss_that_is_not_known_has_its_own_hessian_alone():
    model, data = speaking("cubes"), batch("cubes")
    problem = hm.Problem(model, None, data)
    assert any("the model's own loss was not recognised" in note for note in problem.notes)
    expected = plain_hessian(model, model(**data)["loss"])
    found = hm.loss_hessian(problem) @ torch.eye(problem.num_parameters, dtype=torch.float64)
    assert float((found - expected).abs().max()) < 1e-12 * float(expected.abs().max())
    for refused in (hm.outer_product_hessian, hm.functional_hessian, hm.fisher):
        with pytest.raises(InvalidInput, match="needs a loss that is a known function of the outputs.*its own"):
            refused(problem)


def test_what_is_no_loss_of_samples_is_refused():
    with pytest.raises(InvalidInput, match="own loss must be a mean over its samples"):
        hm.Problem(speaking("centred"), None, batch("numbers"))
    with pytest.raises(InvalidInput, match="without a loss of its own needs one; its forward takes no 'labels'"):
        hm.Problem(nn.Linear(4, 3).double(), None, {"input": MASK.double(), "labels": LABELS[:, 0]})
    with pytest.raises(
        InvalidInput, match="own loss needs data of dictionaries with labels; the loss is None and the data are a tuple"
    ):
        hm.Problem(speaking("tokens"), None, (TEXT, LABELS))
    with pytest.raises(InvalidInput, match="needs batches that are dictionaries.*gave a tuple"):
        hm.Problem(speaking("tokens"), None, [(TEXT, LABELS)])
