"""Faster methods that fail: never on ordinary models, counted in the notes elsewhere, and never for want of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.functions import NetworkFunction, input_jacobians
from hessmap.hessians import dense as engine
from hessmap.hessians.products import BlockProducts
from hessmap.linalg import Fallbacks, checked_shortcut, is_answerable
from hessmap.linalg.devices import is_out_of_memory
from hessmap.problem import evaluation
from hessmap.problem.trace import recording_of

KINDS = ("loss", "outer_product", "functional", "empirical_fisher")
Error = Callable[[], BaseException]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.recurrent, self.last = kind(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.recurrent(inputs)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, per_token: bool) -> None:
        super().__init__()
        self.embedding, self.norm, self.last = nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)
        self.block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True, norm_first=True)
        self.per_token = per_token

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.norm(self.block(self.embedding(tokens)))
        return self.last(found if self.per_token else found.mean(1))


def convolutional(**options: Any) -> nn.Module:
    first = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*first, nn.Conv2d(4, 4, 3, **options), nn.GELU(), nn.Flatten(), nn.Linear(16, 3)).eval()


def token_data() -> Tensor:
    return torch.arange(20).reshape(5, 4) % 7 % 3


def images() -> Tensor:
    return torch.randn(5, 2, 8, 8, dtype=torch.float64)


def vectors() -> Tensor:
    return torch.randn(5, 3, dtype=torch.float64)


def texts() -> Tensor:
    return torch.randn(5, 4, 3, dtype=torch.float64)


def quartic(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).pow(4).sum(1)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)), vectors),
    "swish": (
        lambda: nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 4), nn.Hardswish(), nn.Linear(4, 3)),
        vectors,
    ),
    "convolutional": (convolutional, images),
    "grouped": (lambda: convolutional(groups=2), images),
    "transformer": (lambda: Transformer(per_token=False), token_data),
    "LSTM": (lambda: Recurrent(nn.LSTM), texts),
    "GRU": (lambda: Recurrent(nn.GRU), texts),
}
LABELS = torch.arange(5) % 3
LOSSES: dict[str, tuple[Any, Callable[[], Tensor]]] = {
    "cross_entropy": ("cross_entropy", lambda: LABELS),
    "squared": ("squared", lambda: LABELS),
    "log_cosh": ("log_cosh", lambda: LABELS),
    "module": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1), lambda: LABELS),
    "distributions": (nn.CrossEntropyLoss(), lambda: torch.randn(5, 3).double().softmax(1)),
    "function": (quartic, vectors),
}
TOKEN_LOSSES: dict[str, tuple[Any, Callable[[], Tensor], dict[str, Any]]] = {
    "next token": (hm.next_token(), token_data, {}),
    "positions": ("cross_entropy", token_data, {"class_axis": -1}),
    "squared positions": ("squared", texts, {}),
    "log_cosh positions": ("log_cosh", texts, {}),
}


def fallbacks(problem: hm.Problem) -> list[str]:
    return [note for note in problem.notes if note in problem._fallbacks.notes]


@pytest.fixture
def num_batched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each batched derivative was asked for."""
    plain, counts = torch.autograd.grad, list[int]()

    def grad(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        if kwargs.get("is_grads_batched"):
            counts.append(len(args[2][0]))
        return found

    monkeypatch.setattr(torch.autograd, "grad", grad)
    return counts


def require_batched(problem: hm.Problem, num_batched: list[int]) -> None:
    """Every kind of product with five vectors at once is that with each alone, and nothing falls back."""
    given = torch.randn(problem.num_parameters, 5, dtype=torch.float64)
    for kind in KINDS:
        num_batched.clear()
        together = BlockProducts(problem, kind, ("autograd",))(given)
        assert 5 in num_batched, kind
        single = [BlockProducts(problem, kind, ("autograd",))(column[:, None]) for column in given.T]
        alone = torch.cat(single, 1)
        assert torch.allclose(together, alone, rtol=1e-10, atol=1e-13 * float(alone.abs().max())), kind
    hm.loss_hessian(problem).exact_diagonal()
    hm.loss_hessian(problem).to_dense()
    if not isinstance(
        problem.model, Recurrent
    ):  # torch's recurrent cells add in place, which vmap over samples refuses
        hm.output_jacobian(problem)
    assert fallbacks(problem) == []


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_products_with_several_vectors_run_batched(model: str, loss: str, num_batched: list[int]) -> None:
    build, inputs = MODELS[model]
    function, targets = LOSSES[loss]
    require_batched(hm.Problem(build().double(), function, inputs(), targets()), num_batched)


@pytest.mark.parametrize("loss", TOKEN_LOSSES)
def test_products_of_token_losses_run_batched(loss: str, num_batched: list[int]) -> None:
    function, targets, options = TOKEN_LOSSES[loss]
    model = Transformer(per_token=True).double()
    require_batched(hm.Problem(model, function, token_data(), targets(), **options), num_batched)


def test_many_rows_of_classes_go_in_parts(num_batched: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.losses.cross_entropy._CHUNK", 6)  # two rows at a time, the last one alone
    require_batched(made(MODELS["perceptron"][0]()), num_batched)


def is_transformed() -> bool:
    """Whether a transform of torch.func is at work."""
    return torch._C._functorch.maybe_current_level() is not None


is_batched = torch._C._functorch.is_legacy_batchedtensor  # by a batched derivative of autograd


class Fails(nn.Module):
    """tanh(W x), which raises an error where ``when(values)`` holds: in the forward pass, or in its derivatives."""

    def __init__(self, error: Error, when: Callable[[Tensor], bool], in_forward: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)
        self.error, self.when, self.in_forward = error, when, in_forward

    def check(self, values: Tensor) -> None:
        if self.when(values):
            raise self.error()

    def forward(self, inputs: Tensor) -> Tensor:
        found = torch.tanh(self.first(inputs))
        if self.in_forward:
            self.check(found)
        elif not is_transformed():
            found = Watched.apply(found, self.check)
        return self.last(found)


class Watched(torch.autograd.Function):
    """The identity, whose derivative looks at what it is given."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, check: Callable[[Tensor], None]) -> Tensor:
        ctx.check = check
        return values.clone()

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> Any:
        ctx.check(given)
        return Watched.apply(given, ctx.check), None


def made(model: nn.Module, loss: Any = "cross_entropy") -> hm.Problem:
    return hm.Problem(model.double(), loss, vectors(), LABELS)


def batched_product(error: Error) -> hm.Problem:
    problem = made(Fails(error, is_batched, in_forward=False))
    BlockProducts(problem, "loss")(torch.randn(problem.num_parameters, 5, dtype=torch.float64))
    return problem


def dense_form(error: Error) -> hm.Problem:
    problem = made(Fails(error, lambda values: is_transformed()))
    dense = hm.loss_hessian(problem).dense
    assert dense.method == "autograd"
    return problem


def jacobian(error: Error) -> hm.Problem:
    problem = made(Fails(error, lambda values: is_transformed()))
    assert hm.output_jacobian(problem).shape == (5, 3, problem.num_parameters)
    return problem


def diagonal(error: Error) -> hm.Problem:
    model = Fails(error, lambda values: False)
    problem = made(model)
    recording_of(problem)
    problem.model.when = lambda values: True  # from the next pass on
    hm.loss_hessian(problem).exact_diagonal()
    return problem


def single_precision(error: Error) -> hm.Problem:
    problem = made(Fails(error, lambda values: values.dtype == torch.float32))
    assert problem.in_single_precision() is None
    return problem


def rewritten(error: Error) -> hm.Problem:
    def raising(*args: Any, **kwargs: Any) -> Tensor:
        raise error()

    problem = hm.Problem(convolutional().double(), "squared", images(), LABELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluation.FASTER, torch.conv2d, raising)
        hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=torch.float64)
    return problem


PLACES = {
    "products with several vectors": batched_product,
    "dense Hessians": dense_form,
    "derivatives of single samples": jacobian,
    "diagonals": diagonal,
    "float64": single_precision,
    "convolutions": rewritten,
}
PASSING: dict[str, Error] = {
    "device": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "Python": MemoryError,
    "processor": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    "interrupt": KeyboardInterrupt,
    "stream": lambda: hm.errors.NotReproducible("every pass must give the same samples"),
    "process": lambda: hm.errors.ProcessLost("every process must answer"),
    "size": lambda: hm.errors.TooLarge("it must fit the memory"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_method_that_fails_is_counted(place: str) -> None:
    problem = PLACES[place](lambda: RuntimeError("no rule for this operation\nand more"))
    (note,) = [note for note in fallbacks(problem) if place in note]
    assert note.endswith("no rule for this operation)")
    assert "times: " in note or "once: " in note


@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize("place", PLACES)
def test_missing_memory_and_own_errors_pass_through(place: str, error: str) -> None:
    given = PASSING[error]
    with pytest.raises(type(given())):
        PLACES[place](given)


def test_one_note_tells_how_often() -> None:
    problem = made(Fails(lambda: RuntimeError("no rule"), is_batched, in_forward=False))
    given = torch.randn(problem.num_parameters, 5, dtype=torch.float64)
    products = BlockProducts(problem, "loss")
    for _ in range(3):
        found = products(given)
    assert fallbacks(problem) == ["products with several vectors were made one by one (3 times: no rule)"]
    alone = torch.cat([BlockProducts(problem, "loss")(column[:, None]) for column in given.T], 1)
    assert torch.allclose(found, alone, rtol=1e-10)


def test_products_through_group_norms_are_right_in_any_case() -> None:
    """torch's own fails for some shapes: the products go one by one, and are right."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    problem = hm.Problem(model.double(), "squared", images(), LABELS)
    given = torch.randn(problem.num_parameters, 4, dtype=torch.float64)
    together = BlockProducts(problem, "loss")(given)
    alone = torch.cat([BlockProducts(problem, "loss")(column[:, None]) for column in given.T], 1)
    assert torch.allclose(together, alone, rtol=1e-10)


class Labelled(nn.Module):
    """A model that computes its own loss, and raises an error when it is called without labels."""

    def __init__(self, error: Error) -> None:
        super().__init__()
        self.last, self.error = nn.Linear(3, 3), error

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if labels is None:
            raise self.error()
        logits = self.last(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_a_model_that_fails_without_its_labels_keeps_them() -> None:
    data = {"inputs": vectors(), "labels": LABELS}
    problem = hm.Problem(Labelled(lambda: KeyError("labels")).double(), None, data)
    assert any("it is called with its labels, because it fails without them ('labels')" in n for n in problem.notes)
    for error in ("device", "Python", "processor", "interrupt"):
        with pytest.raises(type(PASSING[error]())):
            hm.Problem(Labelled(PASSING[error]).double(), None, data)


@pytest.mark.parametrize("widths", [(3, 3), (3, 5)])
def test_input_jacobians_count_too(widths: tuple[int, int]) -> None:
    class Own(nn.Module):
        def __init__(self, error: Error) -> None:
            super().__init__()
            self.last, self.error = nn.Linear(*widths), error

        def forward(self, inputs: Tensor) -> Tensor:
            def check(values: Tensor) -> None:
                if is_batched(values):
                    raise self.error()

            if is_transformed():
                raise self.error()
            return self.last(Watched.apply(inputs, check))

    function = NetworkFunction(Own(lambda: RuntimeError("no rule")), vectors())
    expected = function.model.last.weight.expand(5, -1, -1)
    assert torch.allclose(input_jacobians(function), expected)
    assert any(note.endswith("no rule)") for note in function.provenance.notes)
    for error in ("device", "processor", "stream"):
        with pytest.raises(type(PASSING[error]())):
            input_jacobians(NetworkFunction(Own(PASSING[error]), vectors()))


class Changing:
    """Batches whose samples change in one of the passes that are counted once it is armed."""

    def __init__(self) -> None:
        self.batches = [(vectors(), LABELS), (vectors(), LABELS)]
        self.left: int | None = None
        self.num_passes = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        is_changed = self.left == 0
        self.left = None if self.left is None else self.left - 1
        self.num_passes += 1
        for inputs, labels in self.batches:
            yield inputs + is_changed, labels


@pytest.mark.parametrize("operator", [hm.loss_hessian, hm.functional_hessian, hm.fisher, hm.hessians.empirical_fisher])
def test_other_samples_in_any_pass_of_the_dense_engine_are_refused(operator: Callable[..., Any]) -> None:
    def fresh() -> tuple[hm.Problem, Changing]:
        data = Changing()
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)).double()
        return hm.Problem(model, "cross_entropy", data), data

    problem, data = fresh()
    before = data.num_passes
    assert operator(problem).dense.method == "lifted"
    num_passes, num_whole = data.num_passes - before, 0
    for number in range(num_passes):
        problem, data = fresh()
        data.left = number
        try:
            operator(problem).to_dense()
        except hm.errors.NotReproducible:
            num_whole += 1  # a pass that stops after a few samples does not see all of them
        assert not any("could not trace" in note for note in problem.notes)
    assert num_whole >= 2


@pytest.mark.parametrize("error", [TypeError("wrong"), IndexError("wrong"), ValueError("wrong"), RuntimeError("wrong")])
def test_an_error_of_the_assembly_is_not_the_models(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*args: object) -> None:
        raise error

    monkeypatch.setattr(engine, "add_pair", raising)
    with pytest.raises((type(error), hm.errors.UnsupportedNetwork), match="wrong"):
        hm.loss_hessian(made(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))).to_dense()


def test_which_errors_a_slower_method_answers() -> None:
    explained = hm.errors.InvalidInput("the inputs must fit the model")
    explained.__cause__ = RuntimeError("vmap: no")
    lost = hm.errors.InvalidInput("the inputs must fit the model")
    lost.__cause__ = torch.OutOfMemoryError("CUDA out of memory, size 3")
    assert all(is_answerable(error) for error in (RuntimeError("no rule"), KeyError("name"), explained))
    assert not is_answerable(lost)
    assert is_out_of_memory(lost)
    assert not any(is_answerable(error()) for error in PASSING.values())
    refused = hm.errors.UnsupportedNetwork("no such network")
    assert not is_answerable(refused)
    assert is_answerable(refused, refusals=True)
    found = Fallbacks()
    found.add("slow", ValueError())
    assert found.notes == ("slow (once: ValueError)",)


@pytest.mark.parametrize(
    ("found", "agrees"), [(1.0, True), (1.0 + 5e-11, True), (1.0 + 2e-10, False), (-1.0, False), (None, False)]
)
def test_a_shortcut_must_reproduce_the_reference(found: float | None, agrees: bool) -> None:
    expected = torch.tensor([1.0, 0.5], dtype=torch.float64)
    assert checked_shortcut(lambda: None if found is None else found * expected, lambda: expected) is agrees


def test_an_error_of_a_shortcut_is_handed_on_or_raised() -> None:
    def fail(error: Exception) -> torch.Tensor:
        raise error

    seen: list[Exception] = []
    broken, full = RuntimeError("no batching rule"), MemoryError()
    assert checked_shortcut(lambda: fail(broken), lambda: torch.ones(1), seen.append) is False
    assert seen == [broken]
    with pytest.raises(RuntimeError, match="no batching rule"):
        checked_shortcut(lambda: fail(broken), lambda: torch.ones(1))
    with pytest.raises(MemoryError):
        checked_shortcut(lambda: fail(full), lambda: torch.ones(1), seen.append)
