"""Objectives on whole batches, structured losses and sums: products beside double backward of the literal risk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput, NotReproducible, UnsupportedNetwork

DOUBLE = torch.float64


def mlp(*widths: int) -> nn.Sequential:
    layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(count))


class Case(NamedTuple):
    model: nn.Module
    objective: Callable[[nn.Module, Any], Tensor]
    batches: list[Any]
    weights: tuple[float, ...] = (1.0,)


@dataclass
class Pairs:
    left: Tensor
    right: Tensor
    margin: float


class Named(NamedTuple):
    x: Tensor
    y: Tensor


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(5, 6), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.body(x))
        return self.mean(hidden), F.softplus(self.spread(hidden)) + 0.1


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = mlp(2, 5, 3), mlp(3, 5, 1)


def contrastive(model: nn.Module, x: Tensor) -> Tensor:
    z = F.normalize(model(x), dim=1)
    similarity = z @ z.T / 0.5
    half = len(z) // 2
    masked = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    return F.cross_entropy(masked, (torch.arange(len(z)) + half) % len(z))


def gradient_penalty(model: nn.Module, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).square()


def burgers(model: nn.Module, points: Tensor) -> Tensor:
    points = points.detach().requires_grad_()
    u = model(points)
    first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
    return (first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second).square()


def cox(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, times = batch
    order = times.argsort(descending=True)
    risk = model(x)[order, 0]
    return (torch.logcumsumexp(risk, 0) - risk).mean()


def sinkhorn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    cost = (model(x)[:, None] - y[None]).square().sum(2)
    f, g = torch.zeros(len(x), dtype=cost.dtype), torch.zeros(len(y), dtype=cost.dtype)
    for _ in range(5):
        f = -torch.logsumexp(g[None] - cost, 1)
        g = -torch.logsumexp(f[:, None] - cost, 0)
    return (cost * (f[:, None] + g[None] - cost).exp()).sum()


def ranking(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, relevance = batch
    scores = model(x)[:, 0]
    difference = scores[:, None] - scores[None]
    return (F.softplus(-difference) * (relevance[:, None] > relevance[None])).mean()


def critic_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    noise, real = batch
    fake = model.generator(noise)
    return F.softplus(-model.critic(real)).mean() + F.softplus(model.critic(fake)).mean()


def adversarial(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        clean = model(x).log_softmax(1)
    direction = (1e-2 * draw(*x.shape, seed=3)).requires_grad_()
    divergence = F.kl_div(model(x + direction).log_softmax(1), clean, log_target=True, reduction="batchmean")
    (slope,) = torch.autograd.grad(divergence, direction)
    shifted = x + 0.5 * F.normalize(slope.detach(), dim=1)
    return F.kl_div(model(shifted).log_softmax(1), clean, log_target=True, reduction="batchmean")


def policy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    chosen = model(batch["state"]).log_softmax(1).gather(1, batch["action"][:, None])[:, 0]
    return -(chosen * batch["advantage"])


def maml(model: nn.Module, batch: Any) -> Tensor:
    (support, given), (query, wanted) = batch
    weights = dict(model.named_parameters())
    inner = F.mse_loss(torch.func.functional_call(model, weights, (support,)), given)
    slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
    moved = {name: value - 0.1 * slope for (name, value), slope in zip(weights.items(), slopes, strict=True)}
    return F.mse_loss(torch.func.functional_call(model, moved, (query,)), wanted)


def functional_gradient(model: nn.Module, x: Tensor) -> Tensor:
    weights = dict(model.named_parameters())
    laplacian = torch.func.vmap(
        lambda point: torch.func.hessian(lambda p: torch.func.functional_call(model, weights, (p,))[0])(point).trace()
    )(x)
    return laplacian.square()


TEACHER = mlp(5, 4, 3).double().requires_grad_(False)
X, Y = draw(20, 5), labels(20, 3)

CASES: dict[str, Callable[[], Case]] = {
    "contrastive": lambda: Case(mlp(6, 8, 4), contrastive, [draw(12, 6)]),
    "contrastive, two batches": lambda: Case(mlp(6, 8, 4), contrastive, [draw(12, 6), draw(4, 6, seed=1)], (12.0, 4.0)),
    "vector, unequal batches": lambda: Case(
        mlp(5, 6, 3),
        lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="none"),
        [(X[:13], Y[:13]), (X[13:], Y[13:])],
        (13.0, 7.0),
    ),
    "scalar of a single tensor": lambda: Case(mlp(6, 8, 1), lambda m, x: m(x).square().mean(), [draw(9, 6)]),
    "physics-informed": lambda: Case(mlp(2, 8, 8, 1), burgers, [draw(15, 2)]),
    "gradient penalty": lambda: Case(mlp(4, 6, 1), gradient_penalty, [draw(11, 4)]),
    "survival": lambda: Case(mlp(4, 6, 1), cox, [(draw(14, 4), draw(14, seed=2))]),
    "transport": lambda: Case(mlp(3, 6, 2), sinkhorn, [(draw(8, 3), draw(7, 2, seed=4))]),
    "ranking": lambda: Case(mlp(4, 6, 1), ranking, [(draw(9, 4), draw(9, seed=5))]),
    "two networks": lambda: Case(Gan(), critic_loss, [(draw(9, 2), draw(9, 3, seed=6))]),
    "virtual adversary": lambda: Case(mlp(5, 6, 3), adversarial, [X]),
    "policy gradient": lambda: Case(
        mlp(5, 6, 3), policy, [{"state": X, "action": Y, "advantage": draw(20, seed=7)}]
    ),
    "meta-learning": lambda: Case(
        mlp(3, 6, 1), maml, [((draw(8, 3), draw(8, 1, seed=1)), (draw(8, 3, seed=2), draw(8, 1, seed=3)))]
    ),
    "torch.func inside": lambda: Case(mlp(2, 5, 1), functional_gradient, [draw(7, 2)]),
    "distillation": lambda: Case(
        mlp(5, 4, 3),
        lambda m, x: F.kl_div(m(x).log_softmax(1), TEACHER(x).log_softmax(1), log_target=True, reduction="batchmean"),
        [X],
    ),
    "penalty of a submodule": lambda: Case(
        mlp(5, 6, 3),
        lambda m, b: F.cross_entropy(m(b[0]), b[1]) + 0.1 * (m[0].weight.T @ m[0].weight - torch.eye(5)).square().sum(),
        [(X, Y)],
    ),
    "penalty of all parameters": lambda: Case(
        mlp(5, 6, 3),
        lambda m, b: F.cross_entropy(m(b[0]), b[1]) + sum(p.abs().pow(3).sum() for p in m.parameters()),
        [(X, Y)],
    ),
    "intermediate layer": lambda: Case(mlp(5, 6, 3), lambda m, x: m[2](m[1](m[0](x))).var(0).sum(), [X]),
    "several calls": lambda: Case(mlp(4, 4), lambda m, x: (m(m(m(x))) - x).square().sum(1), [draw(9, 4)]),
    "dataclass": lambda: Case(
        mlp(5, 4),
        lambda m, b: F.softplus((m(b.left) - m(b.right)).square().sum(1) - b.margin),
        [Pairs(X[:10], X[10:], 0.5)],
    ),
    "named tuple": lambda: Case(mlp(5, 6, 3), lambda m, b: F.cross_entropy(m(b.x), b.y), [Named(X, Y)]),
    "ragged list": lambda: Case(
        mlp(5, 4, 1), lambda m, b: torch.stack([m(part).mean().square() for part in b["sets"]]),
        [{"sets": [X[:3], X[3:9], X[9:]], "names": ["a", "b", "c"]}], (3.0,),
    ),
    "numpy arrays": lambda: Case(mlp(5, 6, 3), lambda m, b: F.cross_entropy(m(b[0]), b[1]), [(X.numpy(), Y.numpy())]),
    "shared weights": lambda: Case(
        mlp(4, 4), lambda m, x: (torch.tanh(m(x)) @ m[0].weight.T - x).square().sum(1), [draw(9, 4)]
    ),
    "cosine embedding by hand": lambda: Case(
        mlp(5, 4),
        lambda m, b: F.cosine_embedding_loss(m(b[0]), m(b[1]), b[2]),
        [(X[:10], X[10:], torch.tensor([1.0, -1.0] * 5, dtype=DOUBLE))],
    ),
    "numbers in a batch": lambda: Case(
        mlp(3, 5, 1), lambda m, b: m(b["x"]).mean() * b["scale"], [{"x": draw(6, 3), "scale": 2.0}]
    ),
    "fixed point": lambda: Case(
        mlp(4, 4),
        lambda m, x: _fixed_point(m, x).square().sum(1),
        [0.1 * draw(6, 4)],
    ),
}  # fmt: skip


def _fixed_point(model: nn.Module, x: Tensor) -> Tensor:
    state = torch.zeros_like(x)
    for _ in range(8):
        state = torch.tanh(0.3 * model(state) + x)
    return state


def literal(case: Case, vector: Tensor, l2: float = 0.0) -> tuple[float, Tensor]:
    """The mean over the batches and its product, as plain autograd gives them."""
    model = copy.deepcopy(case.model).double()
    parameters = list(model.parameters())
    batches = [tuple(map(torch.as_tensor, b)) if isinstance(b, tuple) and isinstance(b[0], np.ndarray) else b
               for b in case.batches]  # fmt: skip
    values = [weight * case.objective(model, batch).mean() for weight, batch in zip(case.weights, batches, strict=True)]
    total = sum(values) / sum(case.weights) + l2 * sum(p.square().sum() for p in parameters)
    slopes = torch.autograd.grad(total, parameters, create_graph=True, materialize_grads=True)
    gradient = torch.cat([slope.reshape(-1) for slope in slopes])
    parts = torch.autograd.grad(gradient @ vector, parameters, materialize_grads=True)
    return float(total.detach()), torch.cat([part.reshape(-1) for part in parts])


@pytest.mark.parametrize("name", list(CASES))
def test_products_of_objectives_are_those_of_double_backward(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    before = copy.deepcopy(case.model.state_dict())
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches)
    vector = draw(problem.num_parameters, seed=9)
    value, product = literal(case, vector)
    assert problem.risk() == pytest.approx(value, rel=1e-12)
    found = hm.loss_hessian(problem) @ vector
    assert float((found - product).norm()) <= 1e-8 * float(product.norm())
    assert all(torch.equal(value, before[key]) for key, value in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())


def test_l2_and_chosen_parameters_combine_with_objectives() -> None:
    torch.manual_seed(0)
    case = CASES["contrastive"]()
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches, l2=0.3)
    vector = draw(problem.num_parameters, seed=9)
    assert torch.allclose(hm.loss_hessian(problem) @ vector, literal(case, vector, 0.3)[1], rtol=1e-9)
    last = hm.Problem(case.model, objective=case.objective, data=case.batches, parameters="2")
    whole = hm.loss_hessian(hm.Problem(case.model, objective=case.objective, data=case.batches)).to_dense()
    assert torch.allclose(hm.loss_hessian(last).to_dense(), whole[-last.num_parameters :, -last.num_parameters :])


def test_equal_weights_ignore_the_sizes_of_batches() -> None:
    torch.manual_seed(0)
    case = CASES["contrastive, two batches"]()
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches, batch_weights="equal")
    vector = draw(problem.num_parameters, seed=9)
    value, product = literal(case._replace(weights=(1.0, 1.0)), vector)
    assert problem.risk() == pytest.approx(value)
    assert torch.allclose(hm.loss_hessian(problem) @ vector, product, rtol=1e-9)
    assert any("equal weights" in note for note in problem.notes)


@pytest.mark.parametrize("shuffle", [False, True])
def test_loaders_give_the_same_batches_at_every_pass(shuffle: bool) -> None:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(X, Y), batch_size=6, shuffle=shuffle)
    model = mlp(5, 6, 3)
    problem = hm.Problem(model, objective=lambda m, b: F.cross_entropy(m(b[0]), b[1]), data=loader)
    whole = hm.Problem(model, "cross_entropy", X, Y)  # a mean over samples does not depend on the batches
    assert problem.risk() == pytest.approx(whole.risk(), rel=1e-12)
    assert torch.allclose(hm.loss_hessian(problem).to_dense(), hm.loss_hessian(whole).to_dense(), atol=1e-12)


def test_float32_objectives_stay_in_float32() -> None:
    torch.manual_seed(0)
    case = CASES["contrastive"]()
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches, dtype=torch.float32)
    vector = draw(problem.num_parameters, seed=9)
    product = literal(case, vector)[1]
    found = hm.loss_hessian(problem) @ vector.float()
    assert found.dtype == torch.float32
    assert float((found.double() - product).norm()) < 1e-4 * float(product.norm())


def test_measurements_of_an_objective() -> None:
    torch.manual_seed(0)
    case = CASES["contrastive"]()
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches)
    hessian = hm.loss_hessian(problem)
    eigenvalues = torch.linalg.eigvalsh(hessian.to_dense()).flip(0)
    assert hm.sharpness(hessian).value == pytest.approx(float(eigenvalues[0]), rel=1e-6)
    assert hm.top_eigenpairs(hessian, 3).eigenvalues == pytest.approx(eigenvalues[:3].numpy(), rel=1e-6)
    assert hm.trace_estimate(hessian, method="exact").value == pytest.approx(float(eigenvalues.sum()), rel=1e-9)
    made = hm.map(problem)
    assert not made.network.is_dense
    assert "not defined for this objective" in made.network.reason
    assert made.network.whole.sharpness.value == pytest.approx(float(eigenvalues[0]), rel=1e-2)


@pytest.mark.parametrize(
    "ask",
    [
        hm.outer_product_hessian,
        hm.functional_hessian,
        hm.fisher,
        hm.hessians.empirical_fisher,
        hm.output_jacobian,
        hm.layer_names,
        lambda problem: hm.layer_factors(problem, "0"),
        lambda problem: hm.layer_hessian(problem, "0"),
        hm.kronecker_curvature,
        lambda problem: problem.residuals(),
    ],
)
def test_what_needs_single_samples_is_not_defined(ask: Callable[[hm.Problem], Any]) -> None:
    torch.manual_seed(0)
    case = CASES["contrastive"]()
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches)
    with pytest.raises(InvalidInput, match="not defined for this objective"):
        ask(problem)


def test_tracker_of_an_objective(tmp_path: Any) -> None:
    torch.manual_seed(0)
    case = CASES["contrastive"]()
    store = tmp_path / "tracks.sqlite"
    with hm.Tracker(
        case.model, objective=case.objective, data=case.batches, store=store, share=None, count=1
    ) as tracker:
        tracker(0)
    problem = hm.Problem(case.model, objective=case.objective, data=case.batches)
    expected = hm.sharpness(hm.loss_hessian(problem)).value
    assert tracker.track.points[0].sharpness == pytest.approx(expected, rel=2e-2)


MODEL = mlp(5, 6, 3).double()
WRONG: dict[str, tuple[dict[str, Any], type[HessmapError], str]] = {
    "with a loss": ({"loss": "squared"}, InvalidInput, "cannot be combined with loss="),
    "with targets": ({"targets": Y}, InvalidInput, "cannot be combined with targets="),
    "no function": ({"objective": 3}, InvalidInput, "must be a function"),
    "another model": ({"objective": lambda m, b: TEACHER(b).sum()}, InvalidInput, "must depend on the parameters"),
    "the user's own model": ({"objective": lambda m, b: MODEL(b).sum()}, UnsupportedNetwork, "from elsewhere"),
    "detached": ({"objective": lambda m, b: m(b).sum().detach()}, InvalidInput, "must depend on the parameters"),
    "a float": ({"objective": lambda m, b: 1.0}, InvalidInput, "must return a tensor"),
    "random": ({"objective": lambda m, b: (m(b) * torch.rand(())).sum()}, NotReproducible, "randomness='fixed'"),
    "read once": ({"data": iter([X])}, InvalidInput, "readable more than once"),
    "empty": ({"data": []}, InvalidInput, "at least one batch"),
    "no data": ({"data": None}, InvalidInput, "needs data"),
    "infinite data": ({"data": [X / 0]}, InvalidInput, "must be finite"),
    "wrong weights": ({"batch_weights": "mass"}, InvalidInput, "batch_weights must be one of"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_objectives_are_answered_in_a_sentence(name: str) -> None:
    options, error, sentence = WRONG[name]
    given: dict[str, Any] = {"objective": lambda m, b: m(b).square().mean(), "data": [X]}
    with pytest.raises(error, match=sentence):
        hm.Problem(MODEL, **(given | options))


def test_batches_that_change_are_found() -> None:
    class Changing:
        def __init__(self) -> None:
            self.is_changed = False

        def __iter__(self) -> Any:
            return iter([X + self.is_changed])

    data = Changing()
    problem = hm.Problem(MODEL, objective=lambda m, b: m(b).square().mean(), data=data)
    data.is_changed = True
    with pytest.raises(NotReproducible, match="same batches at every pass"):
        problem.risk()


# Losses with structured outputs or targets, as torch's modules and users' functions take them.
class Triple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(5, 6, 4)

    def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.body(part) for part in parts)


class Frames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(3, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.body(x).log_softmax(-1).transpose(0, 1)
        return outputs


SIGNS = torch.tensor([1.0, -1.0] * 5, dtype=DOUBLE)
STRUCTURED: dict[str, tuple[nn.Module, Any, Any, Any, Callable[[nn.Module], Tensor]]] = {
    "triplet": (
        Triple(), nn.TripletMarginLoss(margin=9.0), (X[:6], X[6:12], X[12:18]), None,
        lambda m: nn.TripletMarginLoss(margin=9.0)(*m(X[:6], X[6:12], X[12:18])),
    ),
    "cosine": (
        Triple(), nn.CosineEmbeddingLoss(), (X[:10], X[10:]), SIGNS,
        lambda m: nn.CosineEmbeddingLoss()(*m(X[:10], X[10:]), SIGNS),
    ),
    "margin ranking of sums": (
        Triple(), lambda out, target: F.margin_ranking_loss(out[0].sum(1), out[1].sum(1), target, margin=9.0),
        (X[:10], X[10:]), SIGNS,
        lambda m: F.margin_ranking_loss(*(part.sum(1) for part in m(X[:10], X[10:])), SIGNS, margin=9.0),
    ),
    "Gaussian": (
        Heads(), nn.GaussianNLLLoss(), X, draw(20, 2, seed=3),
        lambda m: F.gaussian_nll_loss(m(X)[0], draw(20, 2, seed=3), m(X)[1]),
    ),
    "function of two outputs": (
        Heads(), lambda out, target: (out[0] - target).square().sum(1) / out[1].sum(1), X, draw(20, 2, seed=3),
        lambda m: ((m(X)[0] - draw(20, 2, seed=3)).square().sum(1) / m(X)[1].sum(1)).mean(),
    ),
    "targets in a dictionary": (
        mlp(5, 6, 3),
        lambda out, target: F.cross_entropy(out, target["y"], reduction="none") * target["w"], X,
        {"y": Y, "w": draw(20, seed=4).abs()},
        lambda m: (F.cross_entropy(m(X), Y, reduction="none") * draw(20, seed=4).abs()).mean(),
    ),
    "divergence, batchmean": (
        nn.Sequential(mlp(5, 6, 3), nn.LogSoftmax(1)), nn.KLDivLoss(reduction="batchmean"), X,
        draw(20, 3, seed=5).softmax(1),
        lambda m: F.kl_div(m(X), draw(20, 3, seed=5).softmax(1), reduction="batchmean"),
    ),
    "sum of squares": (
        mlp(5, 6, 3), nn.MSELoss(reduction="sum"), X, draw(20, 3, seed=5),
        lambda m: F.mse_loss(m(X), draw(20, 3, seed=5), reduction="sum"),
    ),
    "sum of cross-entropies": (
        mlp(5, 6, 3), nn.CrossEntropyLoss(reduction="sum"), X, Y,
        lambda m: F.cross_entropy(m(X), Y, reduction="sum"),
    ),
    "function of torch": (mlp(5, 6, 3), F.cross_entropy, X, Y, lambda m: F.cross_entropy(m(X), Y)),
    "mse by function": (
        mlp(5, 6, 3), F.mse_loss, X, draw(20, 3, seed=5), lambda m: F.mse_loss(m(X), draw(20, 3, seed=5)),
    ),
    "mse by name": (mlp(5, 6, 3), "mse", X, draw(20, 3, seed=5), lambda m: F.mse_loss(m(X), draw(20, 3, seed=5))),
    "l1 by name": (mlp(5, 6, 3), "l1", X, draw(20, 3, seed=5), lambda m: F.l1_loss(m(X), draw(20, 3, seed=5))),
    "bce by name": (
        mlp(5, 6, 3), "bce", X, F.one_hot(Y, 3).to(DOUBLE),
        lambda m: F.binary_cross_entropy_with_logits(m(X), F.one_hot(Y, 3).to(DOUBLE)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(STRUCTURED))
def test_losses_of_structured_outputs_targets_and_sums(name: str) -> None:
    model, loss, inputs, targets, risk = STRUCTURED[name]
    problem = hm.Problem(model, loss, inputs, targets)
    vector = draw(problem.num_parameters, seed=9)
    value, product = literal(Case(model, lambda m, _: risk(m), [None]), vector)
    assert problem.risk() == pytest.approx(value, rel=1e-12)
    found = hm.loss_hessian(problem) @ vector
    assert float((found - product).norm()) <= 1e-8 * float(product.norm()) + 1e-14


def test_sums_keep_all_hessians_and_say_so() -> None:
    model = mlp(5, 6, 3)
    mean = hm.Problem(model, nn.CrossEntropyLoss(), X, Y)
    total = hm.Problem(model, nn.CrossEntropyLoss(reduction="sum"), X, Y)
    for part in (hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian):
        assert torch.allclose(part(total).to_dense(), 20 * part(mean).to_dense(), rtol=1e-10, atol=1e-12)
    assert any("summed over the samples" in note for note in total.notes)


def test_ctc_goes_by_differences_and_says_how_well() -> None:
    torch.manual_seed(0)
    x, spoken = draw(6, 12, 3), torch.randint(1, 4, (6, 4))
    lengths = torch.full((6,), 12), torch.tensor([4, 3, 4, 2, 4, 3])
    model = Frames()
    with pytest.raises(UnsupportedNetwork, match="products='finite_difference'"):
        hm.loss_hessian(hm.Problem(model, nn.CTCLoss(), x, (spoken, *lengths))).to_dense()
    problem = hm.Problem(model, nn.CTCLoss(), x, (spoken, *lengths), products="finite_difference")
    hessian = hm.loss_hessian(problem)
    vector = draw(problem.num_parameters, seed=9)
    exact = _ctc_product(model, x, spoken, lengths, vector)
    error = float((hessian @ vector - exact).norm() / exact.norm())
    assert error < 1e-7
    noted = next(note for note in problem.notes if "finite differences" in note)
    assert error <= 2 * float(noted.rpartition(" ")[2])
    assert hm.sharpness(hessian, tolerance=1e-3).converged


def _ctc_product(model: nn.Module, x: Tensor, spoken: Tensor, lengths: Any, vector: Tensor) -> Tensor:
    """Double backward of CTC written out: the forward recursion of Graves et al. 2006 over the padded labels."""
    own = copy.deepcopy(model).double()
    parameters = list(own.parameters())
    logits = own(x)
    losses = []
    for sample, (steps, size) in enumerate(zip(*lengths, strict=True)):
        padded = [0]
        for label in spoken[sample, :size].tolist():
            padded += [label, 0]
        alpha = [logits[0, sample, padded[0]], logits[0, sample, padded[1]]]
        alpha += [torch.tensor(-torch.inf, dtype=DOUBLE)] * (len(padded) - 2)
        for step in range(1, int(steps)):
            new = []
            for place, label in enumerate(padded):
                ways = [alpha[place]] + ([alpha[place - 1]] if place else [])
                if place > 1 and label and label != padded[place - 2]:
                    ways.append(alpha[place - 2])
                finite = [way for way in ways if bool(torch.isfinite(way))]
                total = torch.logsumexp(torch.stack(finite), 0) if finite else ways[0]
                new.append(total + logits[step, sample, label])
            alpha = new
        losses.append(-torch.logsumexp(torch.stack(alpha[-2:]), 0) / int(size))
    slopes = torch.autograd.grad(torch.stack(losses).mean(), parameters, create_graph=True)
    gradient = torch.cat([slope.reshape(-1) for slope in slopes])
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(gradient @ vector, parameters)])


def test_batch_norm_in_train_mode_uses_the_statistics_of_each_batch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double().train()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    trained = hm.Problem(model, "cross_entropy", X, Y, batch_norm="train")
    frozen = hm.Problem(model, "cross_entropy", X, Y)
    vector = draw(trained.num_parameters, seed=9)
    product = literal(Case(model, lambda m, b: F.cross_entropy(m(b[0]), b[1]), [(X, Y)]), vector)[1]
    assert torch.allclose(hm.loss_hessian(trained) @ vector, product, rtol=1e-9, atol=1e-12)
    other = hm.loss_hessian(frozen) @ vector
    assert float((other - product).norm()) > 0.1 * float(product.norm())
    assert any("batch_norm='train'" in note for note in trained.notes)
    assert all(torch.equal(value, buffers[name]) for name, value in model.named_buffers())


@pytest.mark.parametrize("num_draws", [1, 3])
def test_fixed_randomness_is_the_mean_of_its_draws(num_draws: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 3)).double().train()
    state = torch.get_rng_state()
    problem = hm.Problem(model, "cross_entropy", X, Y, randomness="fixed", seed=5, num_draws=num_draws)
    assert torch.equal(torch.get_rng_state(), state)

    def drawn(given: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        values = []
        for seed in range(5, 5 + num_draws):
            torch.manual_seed(seed)
            values.append(F.cross_entropy(given(batch[0]), batch[1]))
        return torch.stack(values).mean()

    vector = draw(problem.num_parameters, seed=9)
    value, product = literal(Case(model, drawn, [(X, Y)]), vector)
    assert problem.risk() == pytest.approx(value, rel=1e-12)
    assert torch.allclose(hm.loss_hessian(problem) @ vector, product, rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidInput, match="randomness='fixed'"):
        hm.Problem(model, "cross_entropy", X, Y)


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float64, 1e-7), (torch.float32, 2e-2)])
def test_differences_beside_autograd(dtype: torch.dtype, allowed: float) -> None:
    torch.manual_seed(0)
    model = mlp(5, 8, 8, 3)
    exact = hm.loss_hessian(hm.Problem(model, "cross_entropy", X, Y))
    problem = hm.Problem(model, "cross_entropy", X, Y, dtype=dtype, products="finite_difference", l2=0.1)
    worse = 0
    for seed in range(20):
        vector = draw(problem.num_parameters, seed=seed)
        found = (hm.loss_hessian(problem) @ vector.to(dtype)).double()
        expected = exact @ vector + 0.2 * vector
        error = float((found - expected).norm() / expected.norm())
        noted = next(note for note in problem.notes if "finite differences" in note)
        worse += error > 2 * float(noted.rpartition(" ")[2])
        assert error < allowed
    assert worse <= 1
