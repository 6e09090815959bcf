"""A part of a map that fails is reported with its reason, and the rest of the map stays; wrong input raises at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput, TooLarge
from hessmap.hessians.operators import Hessian
from hessmap.records import CurvatureMap, Record, whole_of

MAP = "hessmap.maps.curvature_map"
FAILURES: dict[str, Callable[[], Exception]] = {
    "too large": lambda: TooLarge("the part would need 3 TiB; 2 GiB are free."),
    "memory of the device": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 TiB"),
    "memory of the host": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 3 TiB"),
    "the user's own": lambda: ZeroDivisionError("division by zero"),
}
WORDS = {
    "too large": "would need 3 TiB",
    "memory of the device": "OutOfMemoryError: CUDA out of memory",
    "memory of the host": "can't allocate memory",
    "the user's own": "ZeroDivisionError: division by zero",
}


def failing(name: str) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise FAILURES[name]()

    return fail


def problem(loss: str = "cross_entropy") -> hm.Problem:
    generator = torch.Generator().manual_seed(0)
    model = hm.FullyConnected((6, 5, 3), activation="tanh").build(seed=1)
    return hm.Problem(model, loss, torch.randn(20, 6, generator=generator, dtype=torch.float64), torch.arange(20) % 3)


def numbers(found: CurvatureMap) -> tuple[float, float, list[float | None]]:
    whole = whole_of(found.network)
    return whole.sharpness.value, whole.trace.value, [layer.top_eigenvalue for layer in found.network.layers]


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("dense.measured_data_ranks", lambda network: network.prediction_gap),
        ("dense.predict_ranks", lambda network: network.prediction_gap),
        ("layers.layer_factors", lambda network: network.factors_gap),
        ("layers.require_logits", lambda network: network.factors_gap),
        ("curvature_map.linear_counterpart", lambda network: " ".join(network.notes)),
        ("dense.Problem", lambda network: " ".join(network.notes)),
    ],
)
def test_a_dense_map_stays_without_a_part(
    part: str, told: Callable[[Any], str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = hm.map(problem(), ranks=True)
    module, _, name = part.rpartition(".")  # a function of the package has the name of a module
    monkeypatch.setattr(sys.modules[f"{MAP}.{module}"], name, failing(kind))
    found = hm.map(problem(), ranks=True)
    assert found.network.is_dense
    assert numbers(found) == numbers(whole)
    assert WORDS[kind] in told(found.network)
    assert Record.from_json(found.to_json()) == found


@pytest.mark.parametrize("kind", FAILURES)
def test_a_certificate_that_fails_leaves_a_note(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.exact.certified_rank", failing(kind))
    found = hm.map(problem("squared"), certify=True)
    assert any(WORDS[kind] in note for note in found.network.notes)
    assert found.network.is_dense


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize(
    "part", ["outer_product_hessian", "top_eigenpairs", "exact_diagonal", "effective dimension", "factors", "density"]
)
def test_estimates_stay_without_a_part(part: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hm.map(problem(), dense=False)
    if part in ("outer_product_hessian", "top_eigenpairs"):
        monkeypatch.setattr(f"{MAP}.estimates.{part}", failing(kind))
    elif part == "exact_diagonal":
        monkeypatch.setattr(Hessian, part, failing(kind))
    elif part == "factors":
        monkeypatch.setattr(f"{MAP}.estimates.measured_factors", failing(kind))
    else:
        fail_densities(monkeypatch, kind, "outer_product" if part == "effective dimension" else "loss")
    found = hm.map(problem(), dense=False)
    assert [layer.top_eigenvalue for layer in found.network.layers] == pytest.approx(
        [layer.top_eigenvalue for layer in whole.network.layers], rel=0.02
    )
    assert whole_of(found.network).sharpness.value == pytest.approx(whole_of(whole.network).sharpness.value, rel=0.02)
    told = (*found.network.notes, found.network.factors_gap, whole_of(found.network).gap, *found.summary)
    if part != "exact_diagonal":  # which probes stand in for
        assert any(WORDS[kind] in text for text in told)
    if part in ("outer_product_hessian", "effective dimension"):
        assert whole_of(found.network).effective_dimension is None
        assert whole_of(found.network).rows()[4][1].startswith("not available (")
    assert Record.from_json(found.to_json()) == found


def fail_densities(monkeypatch: pytest.MonkeyPatch, kind: str, part: str) -> None:
    """Those of one of the Hessians, unless they need hardly any memory."""
    from hessmap.maps.curvature_map import estimates

    estimate = estimates.density_estimate

    def some(matrix: Any, **options: Any) -> Any:
        if matrix.part == part and options.get("memory_budget") != 0:
            raise FAILURES[kind]()
        return estimate(matrix, **options)

    monkeypatch.setattr(estimates, "density_estimate", some)


@pytest.mark.parametrize("kind", ["too large", "memory of the device", "memory of the host"])
def test_hessians_that_do_not_fit_are_estimated_unless_they_were_asked_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MAP}.dense.outer_product_hessian", failing(kind))
    found = hm.map(problem())
    assert not found.network.is_dense
    assert WORDS[kind] in found.network.reason
    with pytest.raises(type(FAILURES[kind]())):
        hm.map(problem(), dense=True)


def test_an_error_of_the_model_itself_is_raised() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.calls = 0

        def forward(self, inputs: Tensor) -> Tensor:
            raise ZeroDivisionError("of the user")

    with pytest.raises((ZeroDivisionError, HessmapError), match="of the user"):
        hm.map(Broken(), (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": -1.0}, "seconds must be positive"),
        ({"seconds": "long"}, "seconds must be a number"),
        ({"loss": "sqared"}, "loss must be one of"),
        ({"data": (torch.zeros(4, 3), torch.zeros(5, dtype=torch.long))}, "."),
    ],
)
def test_wrong_input_raises_at_once(options: dict[str, Any], words: str) -> None:
    given = {"data": (torch.zeros(4, 6), torch.zeros(4, dtype=torch.long)), **options}
    with pytest.raises(InvalidInput, match=words):
        hm.map(hm.FullyConnected((6, 3)).build(seed=0), **given)


class Tokens(nn.Module):
    """An embedding, with an output at every token or one for all of them."""

    def __init__(self, per_token: bool = False) -> None:
        super().__init__()
        self.table, self.last, self.per_token = nn.Embedding(7, 4), nn.Linear(4, 3), per_token

    def forward(self, tokens: Tensor) -> Tensor:
        found = torch.tanh(self.table(tokens))
        return self.last(found if self.per_token else found.mean(1))


class Masked(nn.Module):
    """Token ids and a boolean mask, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.last(torch.tanh((self.table(tokens) * mask[..., None]).sum(1)))


class Two(nn.Module):
    """Two tensors, one of them of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.table, self.last = nn.Linear(3, 4), nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, numbers: Tensor, tokens: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(numbers) + self.table(tokens)))


class Cast(nn.Module):
    """Takes numbers of any format and converts them itself."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(size, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(inputs.flatten(1).to(self.first.weight.dtype) / 255)))


def padded() -> Tensor:
    """Targets of tokens, of which some are ignored, all of the first sample."""
    targets = torch.arange(75).reshape(15, 5) % 3
    targets[0], targets[3, 2:], targets[7, 4:] = -100, -100, -100
    return targets


IDS = torch.randint(7, (15, 5), generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(15) % 3
INTEGERS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "tokens": lambda: (Tokens(), (IDS, CLASSES)),
    "tokens of 32 bits": lambda: (Tokens(), (IDS.int(), CLASSES)),
    "an output at every token": lambda: (Tokens(per_token=True), (IDS, torch.arange(75).reshape(15, 5) % 3)),
    "padding": lambda: (Tokens(per_token=True), (IDS, padded())),
    "a dictionary with a mask": lambda: (Masked(), {"tokens": IDS, "mask": IDS > 2, "labels": CLASSES}),
    "numbers and tokens": lambda: (Two(), ((torch.ones(15, 3), IDS[:, 0]), CLASSES)),
    "truths": lambda: (Cast(5), (IDS > 3, CLASSES)),
    "images of bytes": lambda: (Cast(12), (IDS[:, :3].repeat(1, 4).reshape(15, 3, 2, 2).to(torch.uint8), CLASSES)),
    "a loader": lambda: (
        Tokens(),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(IDS, CLASSES), batch_size=4),
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_inputs_that_are_no_numbers_have_a_map_without_ranks_of_the_data(name: str) -> None:
    torch.manual_seed(0)
    model, data = INTEGERS[name]()
    found = hm.map(model, data, "cross_entropy", ranks=True)
    assert found.network.is_dense
    assert found.network.data_ranks is None
    assert found.network.prediction is None
    assert "inputs in one tensor of floating-point numbers; got" in found.network.prediction_gap
    estimated = hm.map(model, data, "cross_entropy", dense=False)
    for layer, known in zip(estimated.network.layers, found.network.layers, strict=True):
        assert layer.top_eigenvalue == pytest.approx(known.top_eigenvalue, rel=0.02, abs=1e-9)


def test_sequences_of_numbers_with_padding_have_ranks_of_the_data() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    found = hm.map(model, (torch.randn(15, 5, 4), padded()), "cross_entropy", ranks=True)
    assert found.network.data_ranks is not None
    assert found.network.data_ranks.input_rank.value == 14  # the first sample is ignored
