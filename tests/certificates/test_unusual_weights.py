"""Weights that act in unusual ways: drawn as they are, or refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from certificate_cases import TINY, Composed, started, tokens, two, vectors
from hand_drawn_networks import generator, require_errors_of_networks_drawn_by_hand
from repeated_certificates import coins_by_heart
from torch import Tensor, nn

from hessmap.certificates import certify, certify_from_data
from hessmap.certificates.draws import Sampler, mean_loss
from hessmap.certificates.model_checks import shared_weight
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.errors import HessmapError, UnsupportedNetwork

Parts = Any


class TiedEmbedding(nn.Module):
    """Tokens are read by the matrix that they are written with."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write, self.last = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False), nn.Linear(7, 2)
        self.write.weight = self.read.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.write(self.read(inputs).mean(1)).relu())


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).T


class SecondUse(nn.Linear):
    """A layer that adds its product once more."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + inputs @ self.weight.T


def symmetric() -> nn.Module:
    layer = nn.Linear(6, 6)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(6, 2))


def shared_bias() -> nn.Module:
    model = Composed(lambda m, x: m.a(x) + m.b(x.flip(1)), a=nn.Linear(6, 2), b=nn.Linear(6, 2))
    model.b.bias = model.a.bias
    return model


def hook_before() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] @ module.weight.T @ module.weight,))
    return model


def used_without_gradient(model: Parts, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        gate = model.a(inputs)
    return model.b(model.a(inputs) * gate)


def by_storage(model: Parts, inputs: Tensor) -> Tensor:
    weight = torch.empty(0, dtype=inputs.dtype).set_(model.a.weight.untyped_storage(), 0, (2, 6), (6, 1))
    return model.a(inputs) + inputs @ weight.T


def derivative_of_the_inputs(model: Parts, inputs: Tensor) -> Tensor:
    def answer(point: Tensor) -> Tensor:
        return model.b(model.a(point).tanh())

    return torch.func.jvp(answer, (inputs,), (inputs.flip(1),))[1]


def gradient_of_an_energy(model: Parts, inputs: Tensor) -> Tensor:
    def energy(point: Tensor) -> Tensor:
        return model.b(model.a(point).tanh()).square().sum()

    return torch.func.grad(energy)(inputs)[:, :2]


def from_one_vector(model: Parts, inputs: Tensor) -> Tensor:
    hidden = F.linear(inputs, model.flat[:24].view(4, 6)).relu()
    return F.linear(hidden, model.flat[24:32].view(2, 4), model.flat[32:])


WHOLE: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "einsum alone": (
        lambda: two(lambda m, x: m.b(torch.einsum("bi,oi->bo", x, m.a.weight)), inputs=4),
        vectors,
    ),
    "slices of one layer": (
        lambda: Composed(
            lambda m, x: F.linear(F.linear(x, m.a.weight[:4]).relu(), m.a.weight[4:, :4], m.a.bias[4:]),
            a=nn.Linear(6, 6),
        ),
        vectors,
    ),
    "tied embedding": (TiedEmbedding, tokens),
    "bag of embeddings": (
        lambda: Composed(lambda m, x: m.b(m.a(x)), a=nn.EmbeddingBag(7, 3), b=nn.Linear(3, 2)),
        tokens,
    ),
    "symmetric": (symmetric, vectors),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2)),
        vectors,
    ),
    "shared bias": (shared_bias, vectors),
    "hook before": (hook_before, vectors),
    "a use without gradient": (lambda: two(used_without_gradient, inputs=4), vectors),
    "subclass of a layer": (lambda: nn.Sequential(SecondUse(6, 4), nn.ReLU(), nn.Linear(4, 2)), vectors),
    "storage": (lambda: Composed(by_storage, a=nn.Linear(6, 2)), vectors),
    "a number of it": (lambda: Composed(lambda m, x: m.a(x) * m.a.weight[0, 0].item(), a=nn.Linear(6, 2)), vectors),
    "lists of numbers": (
        lambda: two(lambda m, x: m.b(m.a(x) + x @ torch.tensor(m.a.weight.tolist(), dtype=x.dtype).T), inputs=4),
        vectors,
    ),
    "one vector for all layers": (lambda: Composed(from_one_vector, flat=nn.Parameter(torch.zeros(34))), vectors),
    "a derivative in the inputs": (lambda: two(derivative_of_the_inputs, inputs=4), vectors),
    "the gradient of an energy": (lambda: two(gradient_of_an_energy, inputs=4), vectors),
    "bilinear": (lambda: Composed(lambda m, x: m.a(x, x), a=nn.Bilinear(6, 6, 2)), vectors),
    "functional call": (
        lambda: Composed(
            lambda m, x: torch.func.functional_call(m.a, {"weight": m.b.weight}, (x,)),
            a=nn.Linear(6, 2),
            b=nn.Linear(6, 2),
        ),
        vectors,
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_unusual_uses_are_drawn_as_whole_networks(name: str) -> None:
    make, samples = WHOLE[name]
    require_errors_of_networks_drawn_by_hand(make(), samples(), "networks")


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.b(m.a(x) - (m.a(x).mean(0) if len(x) > 20 else 0)),
        lambda m, x: m.b(m.a(x.roll(1, 0) if len(x) > 20 else x)),
        lambda m, x: m.b(m.a(x.roll(1, 0) if x.dtype == torch.float32 else x)),
    ],
)
def test_samples_that_meet_in_large_batches_only_are_found(function: Callable[[Any, Tensor], Tensor]) -> None:
    model, data = two(function, inputs=4), vectors(60)

    with pytest.raises(UnsupportedNetwork, match="its outputs depend on the other samples of a batch"):
        Sampler(StochasticNetwork(model, generator()), data.inputs, model)


@pytest.mark.parametrize("seed", [339, 445, 448, 460])
def test_large_weights_that_cancel_are_no_meeting_of_samples(seed: int) -> None:
    """Weights that solve a nearly singular system: what is left of the sums is rounding, which a batch of another size
    has otherwise. It is no answer of other samples, and was refused as one."""
    model, known, _ = coins_by_heart(seed)
    assert float(model.weight.detach().abs().max()) > 1e3
    Sampler(StochasticNetwork(model, generator()), known.inputs, model)


def test_errors_are_counted_in_batches_of_the_size_that_was_looked_at() -> None:
    sizes = []
    model = Composed(lambda m, x: sizes.append(len(x)) or m.a(x), a=nn.Linear(6, 2))

    mean_loss(model, vectors(450))

    assert max(sizes) == 100


class CopiedAsItself(nn.Linear):
    def __deepcopy__(self, memo: object) -> CopiedAsItself:
        return self


@pytest.mark.parametrize(
    "model", [CopiedAsItself(6, 2), Composed(lambda m, x: m.c(x) + m.a(x), a=nn.Linear(6, 2), c=CopiedAsItself(6, 2))]
)
def test_network_whose_copy_is_itself_is_refused_before_anything_is_written(model: nn.Module) -> None:
    before = [parameter.detach().clone() for parameter in model.train().parameters()]

    with pytest.raises(UnsupportedNetwork, match="its copy shares .* with it. Leave out __deepcopy__"):
        StochasticNetwork(model, generator())

    assert model.training
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.b(m.a(x)).detach(),
        torch.no_grad()(lambda m, x: m.b(m.a(x))),
        lambda m, x: F.one_hot(m.b(m.a(x)).argmax(1), 2).to(x.dtype),
    ],
)
def test_outputs_without_gradient_have_no_fitted_posterior(function: Callable[[Any, Tensor], Tensor]) -> None:
    model, initial = started(two(function, inputs=4))

    with pytest.raises(UnsupportedNetwork, match='fitted by gradients; the outputs have none .* posterior="prior"'):
        certify(model, initial, vectors(), **TINY)

    assert certify(model, initial, vectors(), posterior="prior").kl == 0


@pytest.mark.parametrize("outputs", [dict, tuple, list])
def test_outputs_that_are_no_table_are_refused(outputs: type) -> None:
    model, initial = started(two(lambda m, x: outputs([("logits", m.b(m.a(x)))]), inputs=4))

    with pytest.raises(HessmapError, match=f"one vector of outputs per sample; it gave a {outputs.__name__} for 8"):
        certify(model, initial, vectors(), **TINY)


def twice(**attributes: Any) -> Parts:
    """A layer whose weight is to act again through something else that is kept."""
    return Composed(lambda m, x: m.a(x) + x @ torch.as_tensor(m.kept, dtype=x.dtype).T, a=nn.Linear(6, 2), **attributes)


def with_buffer() -> nn.Module:
    model = twice()
    model.register_buffer("kept", model.a.weight.data)
    return model


def with_attribute_in_a_list() -> nn.Module:
    model = twice(held=[])
    model.held.append({"kept": model.a.weight.detach()[:1]})
    return model


def with_array() -> nn.Module:
    model = twice()
    model.kept = model.a.weight.detach().numpy()
    return model


def with_second_parameter() -> nn.Module:
    model = Composed(lambda m, x: m.a(x) + m.b(x), a=nn.Linear(6, 2), b=nn.Linear(6, 2))
    model.b.weight = nn.Parameter(model.a.weight.data)
    return model


def with_overlap() -> nn.Module:
    model, numbers = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False)), torch.ones(30)
    model[0].weight, model[1].weight = nn.Parameter(numbers[:24].view(4, 6)), nn.Parameter(numbers[22:].view(2, 4))
    return model


def with_one_row_for_all() -> nn.Module:
    model = nn.Linear(6, 2)
    model.weight = nn.Parameter(torch.ones(1, 6).expand(2, 6))
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (with_buffer, r"a tensor of shape \(2, 6\) shares memory with a.weight"),
        (with_attribute_in_a_list, r"a tensor of shape \(1, 6\) shares memory with a.weight"),
        (with_array, r"a tensor of shape \(2, 6\) shares memory with a.weight"),
        (with_second_parameter, "the parameter b.weight shares memory with a.weight"),
        (with_overlap, "the parameter 1.weight shares memory with 0.weight"),
        (with_one_row_for_all, "entries of weight share memory with each other"),
    ],
)
def test_weight_whose_memory_something_else_has_is_refused(make: Callable[[], nn.Module], words: str) -> None:
    """A copy of such a network takes the mean in the second place: its draws were without noise there."""
    for certified in (
        lambda: certify(make(), make(), vectors(), posterior="prior"),
        lambda: certify_from_data(make, vectors(), train=lambda model, part: None),
    ):
        with pytest.raises(UnsupportedNetwork, match=f"must not share memory; {words}. Use the same parameter object"):
            certified()


def test_parameter_that_is_kept_in_two_places_has_its_own_memory() -> None:
    model = Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2), b=nn.LSTM(2, 3))
    model.again, model.held = model.a.weight, [model.a.weight, {"bias": model.a.bias}]

    assert shared_weight(model) is None


def remembering(model: Parts, inputs: Tensor) -> Tensor:
    """Answers by the first weights that saw these samples."""
    return model.answers.setdefault(inputs.double().numpy().tobytes(), model.a(inputs).detach())


def test_answers_that_are_kept_with_the_samples_are_found() -> None:
    model = Composed(remembering, a=nn.Linear(6, 2), answers={})

    with pytest.raises(UnsupportedNetwork, match="two evaluations with the same weights on the same samples differ"):
        Sampler(StochasticNetwork(model, generator()), vectors().inputs, model)


@pytest.mark.parametrize("last", [nn.Hardtanh(-1, 1), nn.ReLU(), nn.Threshold(1e9, 0.0)])
def test_answers_that_are_cut_off_are_supported(last: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 2), last)

    assert Sampler(StochasticNetwork(model, generator()), vectors().inputs, model).doubts == ()
