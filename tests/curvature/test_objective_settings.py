"""Objectives f(model, batch) that people train, against double backward of the weighted mean over batches."""

from __future__ import annotations

import copy
import itertools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput, NotReproducible, UnsupportedNetwork
from plain_autograd import plain_hessian

D = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed + sum(shape)))


def labels(count: int, classes: int) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(count))


def mlp(*widths: int, seed: int = 0) -> nn.Sequential:
    pairs = list(itertools.pairwise(widths))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [layer for a, b in pairs for layer in (nn.Linear(a, b), nn.Tanh())][:-1]
    return nn.Sequential(*layers).double()


class Tied(nn.Module):
    """An autoencoder whose decoder uses the weight of its encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = mlp(5, 3, seed=1)[0], mlp(3, 3, seed=2)[0]
        self.again = self.encoder

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.decoder(self.encoder(x))) @ self.again.weight


class Buffered(nn.Module):
    """A model that counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(4, 5, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.body(x)


Pair = namedtuple("Pair", "left right")


@dataclass
class Graph:
    nodes: Tensor
    edges: Tensor
    label: Tensor
    name: str = "graph"


class Box:
    """An object of no known kind."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.parts = {"x": x, "y": [y]}


TEACHER, CRITIC = mlp(4, 6, 3, seed=5), mlp(3, 4, 1, seed=6)


def gradient_penalty(m: nn.Module, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    slope = torch.autograd.grad(m(x).sum(), x, create_graph=True)[0]
    return m(x).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()


def vat(m: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        p = m(x).softmax(1)
    d = (0.1 * torch.ones_like(x)).requires_grad_()
    inner = F.kl_div(m(x + d).log_softmax(1), p, reduction="batchmean")
    direction = F.normalize(torch.autograd.grad(inner, d)[0], dim=1)
    return F.kl_div(m(x + 0.5 * direction.detach()).log_softmax(1), p, reduction="batchmean")


def cox(m: nn.Module, b: Any) -> Tensor:
    x, times, events = b
    score = m(x)[:, 0]
    at_risk = times[None, :] >= times[:, None]
    log_sum = torch.logsumexp(score[None].masked_fill(~at_risk, float("-inf")), 1)
    return -((score - log_sum) * events).sum() / events.sum()


def sinkhorn(m: nn.Module, b: Any) -> Tensor:
    x, y = m(b[0]), b[1]
    cost = (x[:, None] - y[None]).square().sum(-1)
    f, g = torch.zeros(len(x), dtype=D), torch.zeros(len(y), dtype=D)
    for _ in range(10):
        f = -0.5 * torch.logsumexp((g - cost) / 0.5, 1)
        g = -0.5 * torch.logsumexp((f[:, None] - cost) / 0.5, 0)
    return f.mean() + g.mean()


def deq(m: nn.Module, x: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    for _ in range(8):
        z = 0.5 * m(z) + x
    return z.square().mean()


def policy_gradient(m: nn.Module, b: Any) -> Tensor:
    states, actions, returns = b
    return -(m(states).log_softmax(1).gather(1, actions[:, None])[:, 0] * (returns - returns.mean()))


def laplacian(m: nn.Module, x: Tensor) -> Tensor:
    parameters = dict(m.named_parameters())

    def one(point: Tensor) -> Tensor:
        return functional_call(m, parameters, (point[None],)).sum()

    return vmap(lambda point: jacrev(grad(one))(point).diagonal().sum())(x).square()


def graph_loss(m: nn.Module, g: Graph) -> Tensor:
    h = m(g.nodes)
    h = h.index_add(0, g.edges[1], h[g.edges[0]])
    return F.cross_entropy(h.mean(0)[None], g.label[None])


def ragged(m: nn.Module, b: Any) -> Tensor:
    return torch.stack([m(sequence).mean().square() for sequence in b]).mean()


def contrastive(m: nn.Module, x: Tensor) -> Tensor:
    z = F.normalize(m(x), dim=1)
    return F.cross_entropy(z @ z.T / 0.5, torch.arange(len(x)).roll(1))


def ce(m: nn.Module, b: Any) -> Tensor:
    return F.cross_entropy(m(b[0]), b[1])


def ce_each(m: nn.Module, b: Any) -> Tensor:
    return F.cross_entropy(m(b[0]), b[1], reduction="none")


def maml(m: nn.Module, b: Any) -> Tensor:
    (xs, ys), (xq, yq) = b
    p = dict(m.named_parameters())
    inner = torch.autograd.grad(F.mse_loss(functional_call(m, p, (xs,)), ys), list(p.values()), create_graph=True)
    moved = {name: value - 0.1 * step for (name, value), step in zip(p.items(), inner, strict=True)}
    return F.mse_loss(functional_call(m, moved, (xq,)), yq)


def fisher_trace(m: nn.Module, b: Any) -> Tensor:
    parameters = dict(m.named_parameters())

    def loss(given: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(m, given, (x[None],)), y[None])

    slopes = vmap(grad(loss), (None, 0, 0))(parameters, *b)
    return sum(value.square().sum() for value in slopes.values()) / len(b[1])


CLASSES = [(draw(9, 4), labels(9, 3)), (draw(5, 4, seed=1), labels(5, 3))]
ROWS = [draw(7, 4), draw(4, 4, seed=2)]

# model, batches, f
CASES: dict[str, tuple[nn.Module, list[Any], Callable[..., Tensor]]] = {
    "scalar, unequal batches": (mlp(4, 5, 3), CLASSES, ce),
    "vector, unequal batches": (mlp(4, 5, 3), CLASSES, ce_each),
    "contrastive": (mlp(4, 5, 3), ROWS, contrastive),
    "gradient penalty": (mlp(4, 5, 1), ROWS, gradient_penalty),
    "virtual adversarial": (mlp(4, 5, 3), ROWS, vat),
    "Cox": (mlp(4, 5, 1), [(draw(8, 4), draw(8).abs(), (draw(8, seed=3) > 0).double() + 0.0)], cox),
    "Sinkhorn": (mlp(4, 5, 2), [(draw(6, 4), draw(5, 2))], sinkhorn),
    "equilibrium": (mlp(4, 4), ROWS, deq),
    "policy gradient": (mlp(4, 5, 3), [(draw(9, 4), labels(9, 3), draw(9))], policy_gradient),
    "torch.func inside": (mlp(3, 4, 1), [draw(4, 3)], laplacian),
    "torch.func over parameters": (mlp(4, 3, 3), CLASSES[:1], fisher_trace),
    "graph, dataclass": (
        mlp(3, 4, 2),
        [Graph(draw(5, 3), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor(1))],
        graph_loss,
    ),
    "ragged list": (mlp(3, 4, 2), [[draw(2, 3), draw(5, 3), draw(3, 3)], [draw(4, 3, seed=9), draw(1, 3)]], ragged),
    "named tuple": (
        mlp(4, 5, 3),
        [Pair(draw(6, 4), draw(6, 4, seed=4))],
        lambda m, b: F.mse_loss(m(b.left), m(b.right)),
    ),
    "object": (
        mlp(4, 5, 3),
        [Box(*CLASSES[0])],
        lambda m, b: F.cross_entropy(m(b.parts["x"]), b.parts["y"][0]),
    ),
    "meta-learning": (mlp(3, 4, 1), [((draw(6, 3), draw(6, 1)), (draw(5, 3), draw(5, 1)))], maml),
    "distillation": (
        mlp(4, 5, 3),
        ROWS,
        lambda m, x: F.kl_div(m(x).log_softmax(1), TEACHER(x).softmax(1).detach(), reduction="batchmean"),
    ),
    "generator": (mlp(4, 5, 3), ROWS, lambda m, z: -F.logsigmoid(CRITIC(m(z))).mean()),
    "critic": (
        mlp(3, 4, 1),
        [(draw(6, 3), draw(6, 3, seed=8))],
        lambda m, b: F.softplus(-m(b[0])).mean() + F.softplus(m(b[1])).mean(),
    ),
    "submodules": (mlp(4, 5, 3), ROWS, lambda m, x: m[0](x).square().mean() + m[2](torch.relu(m[0](x))).mean()),
    "weight penalty": (
        mlp(4, 5, 3),
        CLASSES,
        lambda m, b: ce(m, b) + 0.1 * sum(p.abs().pow(1.5).sum() for p in m.parameters()),
    ),
    "spectral penalty": (mlp(4, 5, 3), ROWS, lambda m, x: m(x).square().mean() + torch.linalg.svdvals(m[0].weight)[0]),
    "parameters alone": (mlp(4, 5, 3), [None], lambda m, b: sum(p.pow(4).sum() for p in m.parameters())),
    "shared weights": (Tied().double(), [draw(6, 5)], lambda m, x: (m(x) - x).square().sum(1)),
    "buffers": (Buffered().double(), ROWS, lambda m, x: (m(x) + m(2 * x)).square().mean()),
    "ranking": (
        mlp(4, 5, 1),
        [(draw(6, 4), draw(6, 4, seed=7))],
        lambda m, b: F.softplus(m(b[1]) - m(b[0]))[:, 0],
    ),
    "dictionary": (
        mlp(4, 5, 3),
        [{"x": CLASSES[0][0], "y": CLASSES[0][1], "name": "first"}],
        lambda m, b: F.cross_entropy(m(b["x"]), b["y"], reduction="none"),
    ),
    "tensor of length one": (mlp(4, 5, 3), ROWS, lambda m, x: m(x).square().mean().reshape(1)),
    "mode switched inside": (mlp(4, 5, 3), ROWS, lambda m, x: m.train()(x).square().mean() + m.eval()(x).mean() ** 2),
    "in place on the batch": (mlp(4, 5, 3), ROWS, lambda m, x: m(x.mul_(2)).square().mean()),
    "stop gradient": (mlp(4, 5, 3), ROWS, lambda m, x: (m(x) - m(x + 0.1).detach()).square().mean()),
    "quantile": (mlp(4, 5, 1), [(draw(9, 4), draw(9, 1))], lambda m, b: F.huber_loss(m(b[0]), b[1], delta=0.3)),
    "sum over the batch": (mlp(4, 5, 3), CLASSES[:1], lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="sum")),
}


def size(batch: Any) -> int:
    """Of the cases above: the first dimension of the first tensor, 1 for graphs, ragged lists and nested tuples."""
    if isinstance(batch, Tensor):
        return len(batch)
    if isinstance(batch, dict):
        return len(batch["x"])
    is_flat = isinstance(batch, tuple) and isinstance(batch[0], Tensor)
    return len(batch[0]) if is_flat and len({len(part) for part in batch}) == 1 else 1


def double_backward(model: nn.Module, f: Callable[..., Tensor], batches: list[Any], vector: Tensor) -> tuple[Any, ...]:
    """Risk, gradient and product of the mean over batches, weighted by their sizes."""
    own = copy.deepcopy(model).double()
    parameters = [p for p in own.parameters() if p.requires_grad]
    sizes = [size(batch) for batch in batches]
    total = sum(n * f(own, copy.deepcopy(b)).mean() for n, b in zip(sizes, batches, strict=True)) / sum(sizes)
    slopes = torch.autograd.grad(total, parameters, create_graph=True, materialize_grads=True)
    flat = torch.cat([slope.reshape(-1) for slope in slopes])
    images = torch.autograd.grad(flat @ vector, parameters, materialize_grads=True)
    return total.item(), flat.detach(), torch.cat([image.reshape(-1) for image in images])


@pytest.mark.parametrize("name", CASES)
def test_products_gradient_and_risk_are_those_of_double_backward(name: str) -> None:
    model, batches, f = CASES[name]
    problem = hm.Problem(model, objective=f, data=batches)
    vector = draw(problem.num_parameters)
    risk, gradient, product = double_backward(model, f, batches, vector)
    assert problem.risk() == pytest.approx(risk, rel=1e-10)
    assert torch.allclose(problem.gradient(), gradient, rtol=1e-8, atol=1e-10)
    hessian = hm.loss_hessian(problem)
    assert float((hessian @ vector - product).norm()) <= 1e-8 * float(product.norm())
    block = draw(problem.num_parameters, 3)
    columns = torch.stack([double_backward(model, f, batches, column)[2] for column in block.T], 1)
    assert float((hessian.matmat(block) - columns).norm()) <= 1e-8 * float(columns.norm())


def test_measurements_of_an_objective() -> None:
    model, batches, f = CASES["contrastive"]
    hessian = hm.loss_hessian(hm.Problem(model, objective=f, data=batches, l2=0.01))
    size = hessian.size
    dense = torch.stack([double_backward(model, f, batches, unit)[2] for unit in torch.eye(size, dtype=D)])
    dense = dense + 0.02 * torch.eye(size, dtype=D)
    assert torch.allclose(hessian.to_dense(), dense, atol=1e-12)
    expected = torch.linalg.eigvalsh(dense).flip(0)
    assert torch.allclose(torch.as_tensor(hm.top_eigenpairs(hessian, 3).eigenvalues), expected[:3], rtol=1e-6)
    found = hm.map(hm.Problem(model, objective=f, data=batches, l2=0.01), seconds=20)
    assert found.network.whole.sharpness.value == pytest.approx(float(expected[0]), rel=1e-2)
    assert found.network.whole.effective_dimension is None
    assert "not defined for this objective" in found.network.whole.gap


def test_a_batch_counts_by_its_size_or_equally() -> None:
    model, batches, f = CASES["scalar, unequal batches"]
    means = [float(f(copy.deepcopy(model), batch).detach()) for batch in batches]
    by_size = hm.Problem(model, objective=f, data=batches)
    equally = hm.Problem(model, objective=f, data=batches, batch_weights="equal")
    assert by_size.risk() == pytest.approx((9 * means[0] + 5 * means[1]) / 14)
    assert equally.risk() == pytest.approx(sum(means) / 2)
    assert any("equal weights" in note for note in equally.notes)
    vector = hm.Problem(model, objective=ce_each, data=batches, batch_weights="equal")
    assert vector.risk() == pytest.approx(sum(means) / 2)


IGNORED = -100
CLASS_WEIGHTS = torch.tensor([1.0, 0.25, 3.0], dtype=D)


def normalised() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()


def batches_with_ignored_labels() -> list[tuple[Tensor, Tensor]]:
    """9 samples of which 7 labels are ignored, and 5 samples of which none is."""
    first, second = labels(9, 3), labels(5, 3)
    first[2:] = IGNORED
    return [(draw(9, 4), first), (draw(5, 4), second)]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [None, CLASS_WEIGHTS], ids=["plain", "class weights"])
def test_batches_of_a_loss_count_by_the_labels_that_it_does_not_ignore(reduction: str, weight: Tensor | None) -> None:
    model, batches = normalised(), batches_with_ignored_labels()
    loss = nn.CrossEntropyLoss(weight, ignore_index=IGNORED, reduction=reduction)
    problem = hm.Problem(model, loss, batches, batch_norm="train")
    own = copy.deepcopy(model).train()
    total = sum(F.cross_entropy(own(x), y, weight, ignore_index=IGNORED, reduction="sum") for x, y in batches)
    counted = torch.cat([y for _, y in batches])
    counted = counted[counted != IGNORED]
    divisor = 1.0 if reduction == "sum" else len(counted) if weight is None else weight[counted].sum()
    assert problem.risk() == pytest.approx(float(total.detach() / divisor), rel=1e-12)
    expected = plain_hessian(own, total / divisor)
    assert torch.allclose(hm.loss_hessian(problem).to_dense(), expected, atol=1e-11)


def test_a_batch_without_a_counted_label_is_an_error() -> None:
    batches = [*batches_with_ignored_labels(), (draw(3, 4), torch.full((3,), IGNORED))]
    with pytest.raises(InvalidInput, match=r"the loss ignores all targets of batch 2"):
        hm.Problem(normalised(), "cross_entropy", batches, batch_norm="train")


def test_batches_of_an_objective_count_by_given_numbers() -> None:
    """The own loss of a language model is a mean over the labels that count: their numbers are its weights."""
    model, batches = mlp(4, 5, 3), batches_with_ignored_labels()

    def own_loss(given: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(given(batch[0]), batch[1], ignore_index=IGNORED)

    problem = hm.Problem(model, objective=own_loss, data=batches, batch_weights=[2, 5])
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    expected = plain_hessian(model, F.cross_entropy(model(inputs), targets, ignore_index=IGNORED))
    assert torch.allclose(hm.loss_hessian(problem).to_dense(), expected, atol=1e-12)
    assert any("with the given weights" in note for note in problem.notes)
    for wrong in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("inf")]):
        with pytest.raises(InvalidInput, match=r"batch_weights must be 'size', 'equal' or 2 finite numbers"):
            hm.Problem(model, objective=own_loss, data=batches, batch_weights=wrong)


def test_only_some_parameters_are_differentiated() -> None:
    model, batches, f = CASES["meta-learning"]
    whole = hm.loss_hessian(hm.Problem(model, objective=f, data=batches)).to_dense()
    part = hm.Problem(model, objective=f, data=batches, parameters="0")
    count = part.num_parameters
    assert torch.allclose(hm.loss_hessian(part).to_dense(), whole[:count, :count], atol=1e-12)


def test_frozen_parameters_are_left_out() -> None:
    model = mlp(4, 5, 3)
    model[0].requires_grad_(False)
    problem = hm.Problem(model, objective=ce, data=CLASSES)
    vector = draw(problem.num_parameters)
    expected = double_backward(model, ce, CLASSES, vector)[2]
    assert torch.allclose(hm.loss_hessian(problem) @ vector, expected, atol=1e-12)


def test_the_hessian_in_float32() -> None:
    model, batches, f = CASES["scalar, unequal batches"]
    problem = hm.Problem(model, objective=f, data=batches, dtype=torch.float32)
    vector = draw(problem.num_parameters)
    expected = double_backward(model, f, batches, vector)[2]
    found = (hm.loss_hessian(problem) @ vector.float()).double()
    assert float((found - expected).norm()) <= 1e-4 * float(expected.norm())


@pytest.mark.parametrize("kind", ["tensor", "tuple", "loader", "shuffled loader", "bfloat16 model"])
def test_data_as_people_have_them(kind: str) -> None:
    x, y = CLASSES[0]
    model, f, data, batches = mlp(4, 5, 3), ce, (x, y), [(x, y)]
    if kind == "tensor":
        f, data, batches = contrastive, x, [x]
    elif "loader" in kind:
        f = ce_each
        data = DataLoader(TensorDataset(x, y), batch_size=4, shuffle="shuffled" in kind)
    elif kind == "bfloat16 model":
        model = model.bfloat16()
    problem = hm.Problem(model, objective=f, data=data)
    vector = draw(problem.num_parameters)
    assert torch.allclose(hm.loss_hessian(problem) @ vector, double_backward(model, f, batches, vector)[2], atol=1e-10)


def noisy(m: nn.Module, x: Tensor) -> Tensor:
    return (m(x + 0.1 * torch.randn_like(x))).square().mean()


def raises(m: nn.Module, x: Tensor) -> Tensor:
    m.train()
    m(x).sum().backward()
    raise KeyError("of the user's own")


OUTSIDE = mlp(4, 5, 3)
REFUSED: dict[str, tuple[Callable[..., Any], Any, type[HessmapError], str]] = {
    "one-shot iterator": (ce, iter(CLASSES), InvalidInput, "more than once"),
    "generator": (ce, (batch for batch in CLASSES), InvalidInput, "more than once"),
    "no batch": (ce, [], InvalidInput, "at least one batch"),
    "no data": (ce, None, InvalidInput, "needs data"),
    "random": (noisy, ROWS, NotReproducible, "randomness='fixed'"),
    "number": (lambda m, x: 1.0, ROWS, InvalidInput, "returned a float"),
    "tuple": (lambda m, x: (m(x).mean(), {}), ROWS, InvalidInput, "returned a tuple"),
    "matrix": (lambda m, x: m(x), ROWS, InvalidInput, "it returned shape"),
    "no graph": (lambda m, x: m(x).mean().detach(), ROWS, InvalidInput, "must depend on the parameters"),
    "integer": (lambda m, x: m(x).argmax(), ROWS, InvalidInput, "must return a tensor"),
    "NaN": (lambda m, x: m(x).mean() * float("nan"), ROWS, InvalidInput, "finite"),
    "another model": (lambda m, x: OUTSIDE(x).square().mean(), ROWS, UnsupportedNetwork, "from elsewhere"),
    "float32 inside": (lambda m, x: mlp(3, 1).float()(m(x)).mean(), ROWS, InvalidInput, "same dtype"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_an_objective_raises_one_sentence(name: str) -> None:
    f, data, kind, words = REFUSED[name]
    with pytest.raises(kind) as caught:
        hm.Problem(OUTSIDE, objective=f, data=data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["loss", "targets", "forward", "weights", "class_axis"])
def test_an_objective_replaces_the_loss(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"cannot be combined with {name}="):
        hm.Problem(mlp(4, 5, 3), objective=ce, data=CLASSES, **{name: "squared"})


def test_what_is_not_defined_for_an_objective() -> None:
    problem = hm.Problem(mlp(4, 5, 3), objective=ce, data=CLASSES)
    asked = (
        *(hm.outer_product_hessian, hm.functional_hessian, hm.fisher, hm.hessians.empirical_fisher, hm.output_jacobian),
        *(lambda problem: hm.layer_hessian(problem, "0"), lambda problem: problem.outputs(), lambda p: p.residuals()),
    )
    for function in asked:
        with pytest.raises(InvalidInput, match="not defined for this objective"):
            function(problem)


def test_the_model_stays_as_it_is_also_when_the_objective_raises() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double().eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    with pytest.raises(KeyError):
        hm.Problem(model, objective=raises, data=ROWS)
    hm.loss_hessian(hm.Problem(model, objective=noisy, data=ROWS, randomness="fixed")) @ torch.ones(53, dtype=D)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[0].bias.grad is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("num_draws", [1, 3])
def test_fixed_randomness_is_one_draw_or_the_mean_of_several(num_draws: int) -> None:
    model, rows = mlp(4, 5, 3), ROWS[:1]
    options = {"randomness": "fixed", "seed": 3, "num_draws": num_draws}
    problem = hm.Problem(model, objective=noisy, data=rows, **options)
    again = hm.Problem(model, objective=noisy, data=rows, **options)
    singles = [
        hm.Problem(model, objective=noisy, data=rows, **options | {"seed": 3 + n, "num_draws": 1})
        for n in range(num_draws)
    ]
    vector = draw(problem.num_parameters)
    product = hm.loss_hessian(problem) @ vector
    assert torch.equal(product, hm.loss_hessian(again) @ vector)
    mean = sum(hm.loss_hessian(single) @ vector for single in singles) / num_draws
    assert torch.allclose(product, mean, atol=1e-12)
    assert len({single.risk() for single in singles}) == num_draws


def test_dropout_of_a_loss_is_fixed() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    with pytest.raises(InvalidInput, match="randomness='fixed'"):
        hm.Problem(model, "cross_entropy", CLASSES[0])
    problem = hm.Problem(model, "cross_entropy", CLASSES[0], randomness="fixed")
    still = hm.Problem(copy.deepcopy(model).eval(), "cross_entropy", CLASSES[0])
    vector = draw(problem.num_parameters)
    product = hm.loss_hessian(problem) @ vector
    assert torch.equal(product, hm.loss_hessian(problem) @ vector)
    assert not torch.allclose(product, hm.loss_hessian(still) @ vector, rtol=1e-3)


def test_batch_norm_is_frozen_or_differentiated_through() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    frozen = hm.Problem(model, "cross_entropy", CLASSES[0])
    train = hm.Problem(model, "cross_entropy", CLASSES[0], batch_norm="train")
    assert "batch norm frozen" in repr(frozen)
    assert "batch norm of each batch" in repr(train)
    vector = draw(train.num_parameters)
    for problem, mode in ((frozen, False), (train, True)):
        expected = double_backward(model.train(mode), ce, CLASSES[:1], vector)[2]
        assert torch.allclose(hm.loss_hessian(problem) @ vector, expected, atol=1e-12)
