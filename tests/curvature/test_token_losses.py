"""Losses over tokens and pixels: every Hessian against autograd of the literal torch loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.layers import layer_factors, layer_hessian
from plain_autograd import plain_hessian

GENERATOR = torch.Generator().manual_seed(4)
CLASSES, TOKENS, SAMPLES = 5, 3, 6
TEXT = torch.randint(0, CLASSES, (SAMPLES, TOKENS), generator=GENERATOR)
LABELS = torch.randint(0, CLASSES, (SAMPLES, TOKENS), generator=GENERATOR)
PADDED = LABELS.clone()
PADDED[0, 1:], PADDED[4] = -100, -100
NUMBERS = torch.randn(SAMPLES, TOKENS, CLASSES, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = torch.rand(CLASSES, generator=GENERATOR, dtype=torch.float64)


class Language(nn.Module):
    """An embedding, attention written out, a norm and a head; ``is_axis_1`` puts the classes first."""

    def __init__(self, is_axis_1: bool = False) -> None:
        super().__init__()
        self.embed, self.query, self.norm = nn.Embedding(CLASSES, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.head, self.is_axis_1 = nn.Linear(4, CLASSES, bias=False), is_axis_1

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.embed(text)
        mixed = torch.softmax(self.query(hidden) @ hidden.mT, -1) @ hidden
        logits = self.head(torch.tanh(self.norm(mixed + hidden)))
        return logits.mT if self.is_axis_1 else logits


def language(is_axis_1: bool = False) -> Language:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Language(is_axis_1).double()


def flat(outputs: Tensor, labels: Tensor, **options: object) -> Tensor:
    return F.cross_entropy(outputs.reshape(-1, CLASSES), labels.reshape(-1), **options)


WEIGHTED = {"weight": WEIGHTS, "label_smoothing": 0.1, "ignore_index": 2}
CASES = {
    "cross_entropy": ("cross_entropy", LABELS, lambda out: flat(out, LABELS)),
    "padded": ("cross_entropy", PADDED, lambda out: flat(out, PADDED)),
    "torch, classes last": (nn.CrossEntropyLoss(), PADDED, lambda out: flat(out, PADDED)),
    "torch, all options": (nn.CrossEntropyLoss(**WEIGHTED), LABELS, lambda out: flat(out, LABELS, **WEIGHTED)),
    "next token": (hm.next_token(), TEXT, lambda out: flat(out[:, :-1], TEXT[:, 1:])),
    "next token, padded": (hm.next_token(), PADDED, lambda out: flat(out[:, :-1], PADDED[:, 1:])),
    "squared": ("squared", NUMBERS, lambda out: 0.5 * (out - NUMBERS).square().sum(-1).mean()),
    "squared, labels": ("squared", LABELS, lambda out: 0.5 * (out - F.one_hot(LABELS, 5)).square().sum(-1).mean()),
    "log_cosh": ("log_cosh", NUMBERS, lambda out: (out - NUMBERS).cosh().log().sum(-1).mean()),
    "torch squared": (nn.MSELoss(), NUMBERS, lambda out: F.mse_loss(out, NUMBERS)),
}


def error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_every_hessian_of_tokens_is_that_of_the_literal_loss(name):
    loss, targets, literal = CASES[name]
    model = language()
    risk = literal(model(TEXT))
    expected = plain_hessian(model, risk)
    problem = hm.Problem(model, loss, TEXT, targets)
    assert problem.risk() == pytest.approx(float(risk.detach()), rel=1e-13)
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    operators = [made(problem) for made in (hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian)]
    whole, outer, functional = (operator @ identity for operator in operators)
    assert error(whole, expected) < 1e-12
    assert error(outer + functional, expected) < 1e-12
    for operator, matrix in zip(operators, (expected, outer, functional), strict=True):
        diagonal = operator.exact_diagonal()
        assert diagonal is not None
        assert error(diagonal, matrix.diagonal()) < 1e-12
        assert error(operator.to_dense(), matrix) < 1e-12
    assert operators[0].dense.method == "lifted"


def jacobian(model: nn.Module) -> Tensor:
    weights = list(model.parameters())
    rows = [torch.autograd.grad(entry, weights, retain_graph=True) for entry in model(TEXT).reshape(-1)]
    return torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])


def test_the_outer_product_and_fisher_are_those_of_the_jacobian():
    model = language()
    problem = hm.Problem(model, "cross_entropy", TEXT, PADDED)
    rows = jacobian(model).reshape(-1, CLASSES, problem.num_parameters)
    shares = model(TEXT).detach().reshape(-1, CLASSES).softmax(1)
    counted = (PADDED.reshape(-1) != -100).double()
    curved = counted[:, None, None] * (torch.diag_embed(shares) - shares[:, :, None] * shares[:, None]) / counted.sum()
    expected = torch.einsum("tcp,tcd,tdq->pq", rows, curved, rows)
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    assert error(hm.outer_product_hessian(problem) @ identity, expected) < 1e-12
    assert error(hm.fisher(problem) @ identity, expected) < 1e-12
    slopes = counted[:, None] * (shares - F.one_hot(PADDED.reshape(-1).clamp(min=0), CLASSES))
    gradients = torch.einsum("tc,tcp->tp", slopes, rows).reshape(SAMPLES, TOKENS, -1).sum(1)
    empirical = gradients.T @ gradients / counted.sum()
    assert error(hm.hessians.empirical_fisher(problem) @ identity, empirical) < 1e-12


def test_layers_of_token_models_are_blocks_of_the_whole():
    model = language()
    problem = hm.Problem(model, "cross_entropy", TEXT, PADDED)
    whole = plain_hessian(model, flat(model(TEXT), PADDED))
    for name in ("query", "head", "norm", "embed"):
        place = dict(problem.layout)[f"{name}.weight"]
        found = layer_hessian(problem, name)
        assert error(found.to_dense(), whole[place, place]) < 1e-12
        assert found.trace == pytest.approx(float(whole[place, place].trace()), rel=1e-12)
    factors = layer_factors(problem, "head")
    shares = model(TEXT).detach().softmax(-1)[PADDED != -100]
    curvature = torch.diag_embed(shares) - shares[:, :, None] * shares[:, None]
    assert error(TOKENS * factors.output_factor, curvature.mean(0)) < 1e-12


def test_classes_on_axis_1_of_images_and_texts():
    image = torch.randn(4, 2, 3, 3, generator=GENERATOR, dtype=torch.float64)
    labels = torch.randint(0, 4, (4, 3, 3), generator=GENERATOR)
    labels[0, 0] = -100
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 4, 1)).double()
    expected = plain_hessian(model, F.cross_entropy(model(image), labels))
    functional = hm.functional_hessian
    for loss in (nn.CrossEntropyLoss(), "cross_entropy"):
        problem = hm.Problem(model, loss, image, labels)
        identity = torch.eye(problem.num_parameters, dtype=torch.float64)
        assert error(hm.loss_hessian(problem) @ identity, expected) < 1e-12
        assert error(hm.outer_product_hessian(problem).to_dense() + functional(problem).to_dense(), expected) < 1e-12
        assert error(hm.loss_hessian(problem).exact_diagonal(), expected.diagonal()) < 1e-12
    text = language(is_axis_1=True)
    found = hm.loss_hessian(hm.Problem(text, nn.CrossEntropyLoss(), TEXT, PADDED)).to_dense()
    assert error(found, plain_hessian(text, nn.CrossEntropyLoss()(text(TEXT), PADDED))) < 1e-12


def test_distributions_over_the_classes_at_every_position():
    model, loss = language(is_axis_1=True), nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2)
    spread = NUMBERS.softmax(-1).mT.contiguous()
    problem = hm.Problem(model, loss, TEXT, spread)
    assert error(hm.loss_hessian(problem).to_dense(), plain_hessian(model, loss(model(TEXT), spread))) < 1e-12


def test_the_mean_is_over_the_counted_tokens_of_all_batches():
    """Batches of different lengths, with different numbers of padded tokens."""
    model = language()
    longer = torch.randint(0, CLASSES, (2, TOKENS + 2), generator=GENERATOR)
    batches = [(TEXT[:1], PADDED[:1]), (TEXT[1:], PADDED[1:]), (longer, longer)]
    every = torch.cat([model(text).reshape(-1, CLASSES) for text, _ in batches])
    risk = F.cross_entropy(every, torch.cat([labels.reshape(-1) for _, labels in batches]))
    problem = hm.Problem(model, "cross_entropy", batches)
    assert problem.risk() == pytest.approx(float(risk.detach()), rel=1e-13)
    expected = plain_hessian(model, risk)
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    assert error(hm.loss_hessian(problem) @ identity, expected) < 1e-12
    outer, functional = hm.outer_product_hessian(problem), hm.functional_hessian(problem)
    assert error(outer @ identity + functional @ identity, expected) < 1e-12
    assert error(hm.loss_hessian(problem).to_dense(), expected) < 1e-12


def test_what_does_not_tell_the_classes_is_refused():
    square = torch.randint(0, CLASSES, (4, CLASSES), generator=GENERATOR)
    with pytest.raises(InvalidInput, match=r"which axis.*fit 'cross_entropy' both ways.*class_axis=-1"):
        hm.Problem(language(), "cross_entropy", square, square)
    last = hm.Problem(language(), "cross_entropy", square, square, class_axis=-1)
    first = hm.Problem(language(), "cross_entropy", square, square, class_axis=1)
    torchs = hm.Problem(language(), nn.CrossEntropyLoss(), square, square)
    outputs = language()(square).detach()
    assert last.risk() == pytest.approx(float(flat(outputs, square)))
    assert first.risk() == pytest.approx(float(F.cross_entropy(outputs, square))) == pytest.approx(torchs.risk())
    with pytest.raises(InvalidInput, match="class_axis must be 1.*or -1.*got 2"):
        hm.Problem(language(), "cross_entropy", TEXT, LABELS, class_axis=2)
    with pytest.raises(InvalidInput, match=r"one label for every position.*\(3, 5\) per sample.*\(2,\) per sample"):
        hm.Problem(language(), "cross_entropy", TEXT, LABELS[:, :2])
    with pytest.raises(InvalidInput, match="shifted labels need a cross-entropy; the loss is 'squared'"):
        hm.next_token("squared")
    with pytest.raises(InvalidInput, match=r"shifted labels need outputs \(samples, tokens, classes\)"):
        hm.Problem(nn.Linear(4, 3).double(), hm.next_token(), NUMBERS[:, 0, :4], LABELS[:, 0] % 3)
    with pytest.raises(InvalidInput, match="real targets must have the shape of the outputs"):
        hm.Problem(language(), "squared", TEXT, NUMBERS[:, :, :2])


def test_fitted_tokens_keep_their_digits():
    """At a margin of 35 the Hessian is of size exp(-35)."""
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([35.0, 0.0, 1.0]))
    inputs, labels = NUMBERS[:, :, :2], torch.zeros(SAMPLES, TOKENS, dtype=torch.long)
    problem = hm.Problem(model, "cross_entropy", inputs, labels, class_axis=-1)
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    products = hm.outer_product_hessian(problem) @ identity + hm.functional_hessian(problem) @ identity
    parts = hm.outer_product_hessian(problem).to_dense() + hm.functional_hessian(problem).to_dense()
    assert error(hm.loss_hessian(problem) @ identity, parts) < 1e-12
    assert error(products, parts) < 1e-12


def peak_bytes(work) -> int:
    """The most that torch held at once while the work ran, beyond what it held before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


@pytest.mark.parametrize(
    "operator", [hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian, hm.hessians.empirical_fisher]
)
def test_a_product_at_the_vocabulary_of_a_language_model_holds_three_tensors_of_its_logits(operator):
    vocabulary, tokens, width = 50_000, 32, 4
    text = torch.randint(0, vocabulary, (1, tokens), generator=GENERATOR)
    layers = nn.Embedding(vocabulary, width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, vocabulary)
    model = nn.Sequential(*layers)
    problem = hm.Problem(model, hm.next_token(), text, text, parameters=["1", "3"], dtype=torch.float32)
    found = operator(problem)
    vector = torch.ones(problem.num_parameters)
    logits, parameters = tokens * vocabulary * 4, problem.num_parameters * 4
    # The first product, which makes all that later ones keep; it also holds some vectors of parameters, among them the
    # two by which symmetry is asked for, and chunks.
    assert peak_bytes(lambda: found @ vector) <= 3 * logits + 8 * parameters + 2**21
