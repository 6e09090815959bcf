"""A report leaves everything of the user's as it is, also when it is interrupted; what it accepts and refuses."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from step_problems import Interrupted, OperationCount, flat, half_squares, network, quadratic, report, snapshot, train
from torch import Tensor, nn, optim
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

import hessmap as hm
from hessmap.applications import PreconditionedHessian
from hessmap.errors import InvalidInput


class WithBuffer(nn.Module):
    """A network with a buffer that every call writes to, and a dropout that is switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()[0]
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.drop(self.body(x))  # type: ignore[no-any-return]


def trained(kind: Any = optim.AdamW) -> tuple[nn.Module, optim.Optimizer, hm.Problem]:
    _, x, y = network()
    model = WithBuffer().eval()
    optimizer = kind(model.parameters(), lr=1e-2)
    train(model, optimizer, F.cross_entropy, x, y, 2)
    return model, optimizer, hm.Problem(model, "cross_entropy", x, y)


def test_nothing_changes() -> None:
    for kind in (optim.AdamW, optim.SGD, optim.LBFGS, optim.Adafactor):
        model, x, y = network()
        optimizer = kind(model.parameters(), lr=1e-2)
        problem = hm.Problem(model, "cross_entropy", x, y)
        before = snapshot(model, optimizer)
        hm.step_report(problem, optimizer, batch_size=3)
        assert snapshot(model, optimizer) == before


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_random_interruptions_change_nothing(count: int) -> None:
    model, optimizer, problem = trained()
    options: dict[str, Any] = {"batch_size": 3, "num_batches": 1, "max_products": 4}
    hm.step_report(problem, optimizer, **options)  # what is found once per problem
    before = snapshot(model, optimizer)
    with OperationCount() as clean:
        hm.step_report(problem, optimizer, **options)
    assert clean.count > 500
    draw, seen = random.Random(0), set()
    for _ in range(count):
        error = draw.choice([Interrupted, KeyboardInterrupt, RuntimeError])
        try:
            with OperationCount(draw.randint(1, clean.count), error):
                hm.step_report(problem, optimizer, **options)
        except (Interrupted, KeyboardInterrupt, RuntimeError) as raised:
            seen.add(type(raised))
        assert snapshot(model, optimizer) == before
    assert seen == {Interrupted, KeyboardInterrupt, RuntimeError}
    assert hm.step_report(problem, optimizer, batch_size=3) == hm.step_report(problem, optimizer, batch_size=3)


def test_training_goes_on_to_the_same_bits() -> None:
    _, x, y = network()
    plain, measured = (copy.deepcopy(network()[0]) for _ in range(2))
    first, second = (optim.Adam(one.parameters(), lr=1e-2) for one in (plain, measured))
    train(plain, first, F.cross_entropy, x, y, 6)
    for _ in range(6):
        hm.step_report(hm.Problem(measured, "cross_entropy", x, y), second, batch_size=4)
        train(measured, second, F.cross_entropy, x, y, 1)
    assert torch.equal(flat(plain), flat(measured))


def test_hooks_and_schedulers_of_the_optimiser_do_not_run() -> None:
    model, x, y = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    handle = register_optimizer_step_pre_hook(lambda *_: calls.append("of all"))
    try:
        report(model, optimizer, "cross_entropy", x, y)
    finally:
        handle.remove()
    assert calls == []
    assert scheduler.last_epoch == 0
    assert not getattr(optimizer, "_opt_called", False)


def test_stored_gradients_are_those_of_the_next_step() -> None:
    model, x, y = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InvalidInput, match=r"gradient='stored' needs the gradients of a backward pass"):
        report(model, optimizer, "cross_entropy", x, y, gradient="stored")
    F.cross_entropy(model(x[:4]), y[:4]).backward()
    found = report(model, optimizer, "cross_entropy", x, y, gradient="stored")
    before = flat(model)
    optimizer.step()
    assert found.step_norm == pytest.approx(float((flat(model) - before).norm()), rel=1e-12)
    with pytest.raises(InvalidInput, match="LBFGS evaluates the loss itself"):
        report(model, optim.LBFGS(model.parameters()), "cross_entropy", x, y, gradient="stored")


def test_the_optimiser_must_train_the_model_of_the_problem_at_its_weights() -> None:
    model, x, y = network()
    other = copy.deepcopy(model)
    with pytest.raises(InvalidInput, match="none of its 4 parameters is one of the 4 of Sequential"):
        report(model, optim.SGD(other.parameters(), lr=0.1), "cross_entropy", x, y)
    problem, optimizer = hm.Problem(model, "cross_entropy", x, y), optim.SGD(other.parameters(), lr=0.1)
    assert hm.step_report(problem, optimizer, model=other).step_norm > 0
    train(other, optimizer, F.cross_entropy, x, y, 1)
    with pytest.raises(InvalidInput, match="4 of 4 have changed"):
        hm.step_report(problem, optimizer, model=other)
    with pytest.raises(InvalidInput, match=r"optimizer must be a torch\.optim\.Optimizer; got a dict"):
        hm.step_report(problem, {})
    with pytest.raises(InvalidInput, match="model must be"):
        hm.step_report(problem, optimizer, model=3)  # type: ignore[arg-type]


def test_a_model_that_is_gone_must_be_passed() -> None:
    model, x, y = network()
    parameters, problem = list(model.parameters()), hm.Problem(model, "cross_entropy", x, y)
    del model
    with pytest.raises(InvalidInput, match="no longer exists"):
        hm.step_report(problem, optim.SGD(parameters, lr=0.1))


def test_an_optimiser_inside_of_a_wrapper_is_found() -> None:
    model, x, y = network()
    inner = optim.AdamW(model.parameters())
    found = report(model, SimpleNamespace(optimizer=inner), "cross_entropy", x, y, quantities=[])
    assert found.optimizer == "AdamW"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_models_have_the_names_of_their_originals() -> None:
    model, x, y = network()
    compiled = torch.compile(model, backend="eager")
    found = report(compiled, optim.SGD(compiled.parameters(), lr=0.1), "cross_entropy", x, y, quantities=[])
    assert found.notes == ()


def test_parameters_on_one_side_only_are_noted() -> None:
    model, x, y = network()
    part = optim.SGD(model[2].parameters(), lr=0.1)  # type: ignore[index]
    found = report(model, part, "cross_entropy", x, y, tolerance=1e-10)
    assert any("2 of the problem's 4 parameter tensors are not moved" in note for note in found.notes)
    hessian = hm.loss_hessian(hm.Problem(model, "cross_entropy", x, y)).to_dense()[25:, 25:]
    assert found.preconditioned_sharpness is not None
    expected = float(torch.linalg.eigvalsh(hessian)[-1])
    assert found.preconditioned_sharpness.value == pytest.approx(expected, rel=1e-8)
    problem = hm.Problem(model, "cross_entropy", x, y, parameters="2")
    notes = hm.step_report(problem, optim.SGD(model.parameters(), lr=0.1)).notes
    assert any("2 parameter tensors of the optimiser are not part of the problem" in note for note in notes)


def test_float32_models_step_in_the_precision_of_the_problem() -> None:
    model, x, y = network()
    single = copy.deepcopy(model).float()
    optimizer = optim.AdamW(single.parameters(), lr=1e-2, fused=True)
    train(single, optimizer, F.cross_entropy, x.float(), y, 2)
    found = report(single, optimizer, "cross_entropy", x, y, quantities=[])
    before = flat(single)
    train(single, optimizer, F.cross_entropy, x.float(), y, 1)
    assert found.step_norm == pytest.approx(float((flat(single) - before).norm()), rel=1e-4)
    assert found.provenance is not None
    assert found.provenance.dtype == "float64"


def kronecker_root(optimizer: optim.Optimizer) -> Any:
    """P = (G G^T)^1/2 (x) I of a matrix of weights, and the diagonal |G| of a vector: what a hook may return."""
    found: dict[Tensor, Any] = {}
    for parameter in optimizer.param_groups[0]["params"]:
        gradient = parameter.grad
        if gradient.ndim == 1:
            found[parameter] = gradient.abs() + 0.1
            continue
        values, vectors = torch.linalg.eigh(gradient @ gradient.T + torch.eye(len(gradient)))
        root = vectors @ torch.diag(values**-0.25) @ vectors.T
        found[parameter] = lambda vector, root=root: root @ vector
    return found


def test_a_hook_gives_the_preconditioner_of_any_optimiser() -> None:
    model, x, y = quadratic()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    options = {"preconditioner": kronecker_root, "tolerance": 1e-11, "quantities": ["preconditioned_sharpness"]}
    found = report(model, optimizer, "squared", x, y, **options)
    half_squares(model(x), y).backward()
    weight, bias = (parameter.grad for parameter in model.parameters())
    assert weight is not None
    assert bias is not None
    values, vectors = torch.linalg.eigh(weight @ weight.T + torch.eye(2))
    root = torch.block_diag(
        torch.kron(vectors @ torch.diag(values**-0.25) @ vectors.T, torch.eye(5)),
        torch.diag((bias.abs() + 0.1) ** -0.5),
    )
    hessian = hm.loss_hessian(hm.Problem(model, "squared", x, y)).to_dense()
    expected = float(torch.linalg.eigvalsh(root @ hessian @ root)[-1])
    assert found.preconditioned_sharpness is not None
    assert found.preconditioned_sharpness.value == pytest.approx(expected, rel=1e-8)
    muon = optim.Muon([next(model.parameters())], lr=0.1)
    given = report(model, muon, "squared", x, y, stability_threshold=7.0, **options)
    assert given.stability_threshold is not None
    assert given.stability_threshold.value == 7.0
    assert given.threshold_formula == "given"
    assert given.preconditioned_sharpness is not None


@pytest.mark.parametrize(
    ("hook", "match"),
    [
        (lambda optimizer: 3, "must return a dictionary"),
        (lambda optimizer: {}, "nothing for weight, bias"),
        (lambda o: {p: torch.ones(1) for p in o.param_groups[0]["params"]}, r"must have shape \(2, 5\)"),
        (lambda o: {p: lambda v: v[:1] for p in o.param_groups[0]["params"]}, "must return a tensor of shape"),
        (3, "preconditioner must be a function"),
    ],
)
def test_a_hook_must_return_one_preconditioner_for_each_parameter(hook: Any, match: str) -> None:
    model, x, y = quadratic()
    with pytest.raises(InvalidInput, match=match):
        report(model, optim.SGD(model.parameters(), lr=0.1), "squared", x, y, preconditioner=hook)


def test_preconditioning_takes_two_vector_operations_a_product() -> None:
    model, x, y = network()
    hessian = hm.loss_hessian(hm.Problem(model, "cross_entropy", x, y))
    root = torch.rand(hessian.size).double() + 0.5
    scaled, vectors = PreconditionedHessian(hessian, root), torch.randn(hessian.size, 1).double()
    scaled.matmat(vectors)
    with OperationCount() as plain:
        hessian.matmat(vectors)
    with OperationCount() as both:
        found = scaled.matmat(vectors)
    assert both.count - plain.count <= 2
    assert torch.allclose(found, root[:, None] * (hessian.to_dense() @ (root[:, None] * vectors)))


def test_a_step_that_is_not_finite_raises() -> None:
    model, x, y = quadratic()
    x[:, 0] = 0  # no gradient of the first column: 0 / 0
    with pytest.raises(InvalidInput, match="the step must be finite"):
        report(model, optim.Adagrad(model.parameters(), eps=0.0), "squared", x, y)


def test_entries_of_p_that_are_not_positive_leave_the_sharpness_undefined() -> None:
    model, x, y = quadratic()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    options: dict[str, Any] = {
        "preconditioner": lambda o: {p: torch.zeros_like(p) for p in o.param_groups[0]["params"]}
    }
    found = report(model, optimizer, "squared", x, y, **options)
    assert found.preconditioned_sharpness is None
    assert any("not positive and finite in 'weight'" in note for note in found.notes)


def test_learning_rates_of_zero_leave_the_threshold_undefined() -> None:
    model, x, y = quadratic()
    found = report(model, optim.SGD(model.parameters(), lr=0.0), "squared", x, y)
    assert found.stability_threshold is None
    assert found.directional_sharpness is None
    assert found.learning_rate is None
    assert any("the step is zero" in note for note in found.notes)
