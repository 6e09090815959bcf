"""Pairs of weights and samples, drawn quickly where that is right: every sample with weights of its own.

The recording of the network must show each parameter in one use, as weight or bias of its layer, over samples. Then the
network answers one sample, and ``torch.vmap`` maps that over the samples; so no sample can see another, and no path
through the program can depend on a sample. Within it every layer must be called once, on one row, and nothing else may
read a weight. A network that does not run so, for whatever reason, is drawn as a whole instead.

Networks that can be drawn have copies that answer every sample by itself, from their own weights alone. Guards watch
which tensors a network reads while it runs, by the operations that receive them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hessmap.certificates.model_copies import in_format, state_tensors
from hessmap.certificates.stochastic import StochasticLayer, StochasticNetwork
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.linalg import storage_address
from hessmap.problem import LayerUse, Operation, OperationReader, Problem, recording_of

_TINY = 1e-30  # below every variance that matters; keeps the derivative of the root finite at zero
_PROOF_SAMPLES = 4  # on which pairs without noise are compared with the mean network
_TOLERANCE = 1e-3  # of single precision, between the mean network and the pairs without noise

Noise = dict[str, tuple[Tensor, ...]]


class NotPlain(Exception):
    """A weight is not used by one call of its own layer on one sample."""


@dataclass(frozen=True)
class KnownSquares:
    """(V^T x)^2 of the very tensor ``inputs``, as long as it was not written to."""

    inputs: Tensor
    version: int
    squares: Tensor

    @classmethod
    def of(cls, inputs: Tensor, squares: Tensor) -> KnownSquares:
        return cls(inputs, inputs._version, squares)

    def are_of(self, inputs: Tensor) -> bool:
        return inputs is self.inputs and inputs._version == self.version


def squared_coordinates(inputs: Tensor, basis: Tensor) -> Tensor:
    """(V^T x)^2 of every row x, zero where rounding is all there is.

    Directions that no sample has leave squares near the smallest float, with which products are several times slower.
    """
    squares = (inputs @ basis).square()
    noise = torch.finfo(squares.dtype).eps ** 2 * squares.detach().amax() if squares.numel() else 0.0
    return torch.where(squares > noise, squares, 0.0)


class PairLayer(nn.Module):
    """In the place of a layer: every row has weights of its own, from the noise that was set before the call.

    The outputs have the law of W x, but their derivatives in x are not those of W x. Where answers are counted the
    layer is opaque to derivatives, so that a network that takes some in its forward pass is found out.
    """

    def __init__(self, law: StochasticLayer, num_axes: int) -> None:
        super().__init__()
        self.law, self.num_axes = law, num_axes
        self.drawn_noise: tuple[Tensor, ...] = ()
        self.num_rows = self.num_calls = 0
        self.is_opaque = False

    def forward(self, inputs: Tensor) -> Tensor:
        self.num_calls += 1
        if self.num_calls > 1 or inputs.ndim != self.num_axes or len(inputs) != self.num_rows:
            shape = tuple(inputs.shape)
            raise NotPlain(f"call {self.num_calls} of a layer has inputs {shape} for {self.num_rows} samples")
        return self.outputs(inputs.detach() if self.is_opaque else inputs, self.drawn_noise)

    def noise(self, count: int) -> tuple[Tensor, ...]:
        return self.law.noise(count)

    def outputs(self, inputs: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        raise NotImplementedError


class PairLinear(PairLayer):
    """Outputs drawn directly, in the basis of the outputs."""

    def __init__(self, law: StochasticLayer) -> None:
        super().__init__(law, num_axes=2)
        self.known_squares: KnownSquares | None = None  # of the samples at hand, where the caller has them

    def noise(self, count: int) -> tuple[Tensor, ...]:
        return (self.law.normal(count, len(self.law.weight)),)

    def outputs(self, inputs: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        law = self.law
        variances = self._squares(inputs) @ (2 * law.log_deviations).exp().T
        if law.bias_log_deviations is not None:
            variances = variances + (2 * law.bias_log_deviations).exp()
        scaled = noise[0] * variances.clamp_min(_TINY).sqrt()
        shifts = scaled if law.output_basis is None or not law.is_rotated else scaled @ law.output_basis.T
        return nn.functional.linear(inputs, law.weight, law.bias) + shifts

    def _squares(self, inputs: Tensor) -> Tensor:
        known, basis = self.known_squares, self.law.input_basis
        if known is not None and known.are_of(inputs):
            return known.squares
        return inputs.square() if basis is None or not self.law.is_rotated else squared_coordinates(inputs, basis)


class PairConvolution(PairLayer):
    """One draw of weights for all positions of a sample."""

    def __init__(self, law: StochasticLayer, layer: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__(law, num_axes=layer.weight.ndim)
        self.convolution, self.shape = layer._conv_forward, layer.weight.shape

    def outputs(self, inputs: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        weights = self.law.weights(noise)
        if len(inputs) == 1:
            return self._of_one(inputs[0], *(values[0] for values in weights))[None]
        mapped: Tensor = torch.vmap(self._of_one)(inputs, *weights)
        return mapped

    def _of_one(self, sample: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        outputs: Tensor = self.convolution(sample[None], weight.reshape(self.shape), bias)
        return outputs[0]


class PairNetwork:
    """A copy of a network in which every layer draws weights for every sample; ``proved_pairs`` makes one."""

    def __init__(self, network: StochasticNetwork, originals: tuple[nn.Module, ...]) -> None:
        self.network = copy.deepcopy(network.model)
        models = (self.network, network.model, *originals)
        self.forbidden = [parameter for model in models for parameter in model.parameters()]
        self.layers: dict[str, PairLayer] = {}
        for name, place in network.places.items():
            layer = self.network.get_submodule(name) if place.weight != name else None
            if layer is None or not _is_plain(layer):
                raise NotPlain(f"{name} is no plain linear or convolutional layer")
            law = network.layers[name]
            if isinstance(layer, nn.Conv1d | nn.Conv2d):
                self.layers[name] = PairConvolution(law, layer)
            else:
                self.layers[name] = PairLinear(law)
            self.network = _replaced(self.network, name, self.layers[name])

    def answers(self, inputs: Tensor) -> Tensor:
        """Outputs of pairs of weights and samples, with every use of a weight looked at."""
        return self._mapped(inputs, {name: layer.noise(len(inputs)) for name, layer in self.layers.items()})

    def outputs(self, inputs: Tensor) -> Tensor:
        """The same in one batch, differentiable in means and deviations."""
        return self._batch(inputs, {name: layer.noise(len(inputs)) for name, layer in self.layers.items()})

    def _mapped(self, inputs: Tensor, noise: Noise) -> Tensor:
        def answer(sample: Tensor, noise: Noise) -> Tensor:
            rows = {name: tuple(values[None] for values in one) for name, one in noise.items()}
            return self._batch(sample[None], rows, is_opaque=True)[0]

        with conversion_guard(self.forbidden), OperationGuard(self.forbidden):
            found: Tensor = torch.vmap(answer)(inputs, noise)
        return found

    def _batch(self, inputs: Tensor, noise: Noise, is_opaque: bool = False) -> Tensor:
        for name, layer in self.layers.items():
            layer.is_opaque = is_opaque
            layer.drawn_noise, layer.num_rows, layer.num_calls = noise[name], len(inputs), 0
        outputs: Tensor = self.network(inputs)
        for name, layer in self.layers.items():
            layer.drawn_noise = ()
            if layer.num_calls != 1:
                raise NotPlain(f"{name} is called {layer.num_calls} times")
        return outputs

    @torch.no_grad()
    def require_proof(self, network: StochasticNetwork, inputs: Tensor) -> None:
        """Sample by sample and in one batch the answers agree, and without noise they are those of the network."""
        noise = {name: layer.noise(len(inputs)) for name, layer in self.layers.items()}
        with torch.enable_grad():  # backwards too: checkpoints call a layer again there
            outputs = self._batch(inputs.clone(), noise)
            torch.autograd.grad(outputs.sum(), [layer.law.weight for layer in self.layers.values()], allow_unused=True)
        none = {name: tuple(map(torch.zeros_like, values)) for name, values in noise.items()}
        mean = network.mean_model()(in_format(inputs, torch.float64))
        for found, wanted in (
            (outputs.detach(), self._mapped(inputs.clone(), noise)),
            (self._mapped(inputs.clone(), none), mean),
        ):
            close = torch.allclose(found.double(), wanted.double(), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
            if found.shape != wanted.shape or not close:
                raise NotPlain("the outputs are not those of the network")


def proved_pairs(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> PairNetwork | None:
    """The network that draws pairs, where that is right; None where it is not known to be.

    ``inputs`` are some samples, ``originals`` the models of the caller, whose own weights a copy may not read.
    """
    state = network.generator.get_state()
    try:
        few = inputs[:_PROOF_SAMPLES]
        pairs = PairNetwork(network, originals)
        _require_single_uses(network, few)
        pairs.require_proof(network, few)
    except Exception:  # whatever torch.vmap or the network itself cannot do: whole networks are always right
        return None
    finally:
        network.generator.set_state(state)
    return pairs


def _require_single_uses(network: StochasticNetwork, inputs: Tensor) -> None:
    labels = torch.zeros(len(inputs), dtype=torch.long)
    problem = Problem(network.mean_model().requires_grad_(), "cross_entropy", in_format(inputs, torch.float64), labels)
    recording = recording_of(problem)
    for name in recording.names:
        uses = recording.uses_of(name)
        if not (recording.is_fixed and len(uses) == 1 and _is_of_one_row(uses[0])):
            raise NotPlain(f"{name} has {len(uses)} uses, or one that is no layer on one sample")


def _is_of_one_row(use: LayerUse) -> bool:
    rows = use.images_per_sample if use.kind == "convolution" else use.num_positions
    whole = all(part is None or part.index is None for part in (use.weight, use.bias))
    return use.is_structured and use.kind in ("linear", "convolution") and rows == 1 and whole


def _is_plain(layer: nn.Module) -> bool:
    """Nothing was put around the layer that its replacement would lack."""
    own = ("forward", "_conv_forward")
    return not (layer._forward_hooks or layer._forward_pre_hooks or any(name in vars(layer) for name in own))


def _replaced(network: nn.Module, name: str, made: nn.Module) -> nn.Module:
    if not name:
        return made
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, made)
    return network


SAMPLES_TOGETHER = 100  # that a whole network answers at once, here and wherever an error is counted
_COPY_TOLERANCE = 1e-4  # relative
_ROUNDINGS = 30  # of the weights together: sums that are taken otherwise differ by a few of them
_REMEDY = "Keep modules and parameters as attributes, not in closures or global variables"
# What python may ask of a parameter without reading its values.
_FACTS = frozenset(
    ["shape", "dtype", "device", "layout", "requires_grad", "grad_fn", "_version", "size", "dim", "ndim", "numel"]
) | {"stride", "__len__", "__hash__", "is_leaf", "is_contiguous", "is_floating_point", "is_complex", "is_nested"}


@torch.no_grad()
def require_drawable(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> tuple[str, ...]:
    """Refuse a network whose copies do not answer from their own weights and the sample alone.

    Returns doubts: tensors that it reads and that belong neither to the network nor to the samples.
    """
    before = copy.deepcopy(network.model)
    doubts = _foreign_tensors(network, inputs[:4], originals)
    for _ in range(2):  # the second weights find answers that were kept with the samples
        _require_own_answers(network, copy.deepcopy(before), inputs)
    return doubts


def _foreign_tensors(network: StochasticNetwork, inputs: Tensor, originals: tuple[nn.Module, ...]) -> tuple[str, ...]:
    """The tensors from elsewhere that a drawn network reads, in words; the weights of the originals are refused."""
    weights = [parameter for model in originals for parameter in model.parameters()]
    given, drawn = inputs.clone(), network.draw()
    guard = OperationGuard(weights, [*network.model.parameters(), *state_tensors(network.model), given])
    try:
        with conversion_guard(weights), guard:
            drawn(given)
    except RuntimeError as error:
        broken = f"it raised {error}".splitlines()[0].rstrip(".")
        raise UnsupportedNetwork(sentence("the network must run in single precision", broken)) from error
    except ForbiddenUse as error:
        broken = f"a copy reads the weights of the original ({error})"
        raise UnsupportedNetwork(sentence("the network must use its own weights", broken, _REMEDY)) from error
    if any(tensor.requires_grad for tensor in guard.foreign):
        broken = "it reads trainable tensors that are not among its parameters"
        raise UnsupportedNetwork(sentence("the weights of a network must be its parameters", broken, _REMEDY))
    shapes = sorted({str(tuple(tensor.shape)) for tensor in guard.foreign})
    return tuple(f"it reads a tensor of shape {one} from elsewhere: changes of it cannot be detected" for one in shapes)


def _require_own_answers(network: StochasticNetwork, fresh: nn.Module, inputs: Tensor) -> None:
    """The same weights give the same answers: again, in a copy that was never called, and to every sample alone."""
    drawn = network.draw()
    for parameter, value in zip(fresh.parameters(), drawn.parameters(), strict=True):
        parameter.copy_(value)
    first = drawn(inputs.clone())
    if not (_is_same(first, drawn(inputs.clone())) and _is_same(first, fresh(inputs.clone()))):
        broken = "two evaluations with the same weights on the same samples differ"
        rule = "Outputs must not depend on random numbers or on earlier calls"
        raise UnsupportedNetwork(sentence("the outputs must depend only on the weights and the samples", broken, rule))
    alone = _answers_alone(drawn, inputs)
    if not (_is_same(first, alone) or _differ_by_rounding(drawn, inputs, first, alone)):
        broken = "its outputs depend on the other samples of a batch"
        raise UnsupportedNetwork(sentence("the network must treat samples independently", broken))


def _answers_alone(network: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([network(sample.clone()) for sample in torch.split(inputs, 1)])


def _differ_by_rounding(drawn: nn.Module, inputs: Tensor, together: Tensor, alone: Tensor) -> bool:
    """Whether answers in a batch and alone are one answer whose digits single precision does not have: large terms that
    cancel, added up in another order. They agree in float64 then, and weights that are rounded otherwise, in their last
    digits, move them as far."""
    wide = copy.deepcopy(drawn).double()
    given = inputs.double() if inputs.is_floating_point() else inputs
    try:
        exact, exact_alone = wide(given.clone()), _answers_alone(wide, given)
        for parameter in wide.parameters():
            signs = torch.randint(2, parameter.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
            parameter.mul_(1 + torch.finfo(torch.float32).eps * signs)
        moved = float((wide(given.clone()) - exact).abs().max())
    except RuntimeError:  # the network is made for one format
        return False
    return _is_same(exact, exact_alone) and float((together - alone).abs().max()) <= _ROUNDINGS * moved


def _is_same(one: Tensor, other: Tensor) -> bool:
    """To what single precision loses in a deep network."""
    size = float(one.abs().nan_to_num().max())
    return torch.allclose(one, other, rtol=_COPY_TOLERANCE, atol=_COPY_TOLERANCE * size, equal_nan=True)


class ForbiddenUse(Exception):
    """A tensor was read that the network at hand must not use."""


class OperationGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises ``ForbiddenUse`` where an operation receives the memory of a forbidden tensor, also by a view of it.

    With ``known`` tensors it collects in ``foreign`` those that are neither known nor results of the operations seen.
    """

    def __init__(self, forbidden: Iterable[Tensor], known: Iterable[Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forbidden = {address for tensor in forbidden if (address := storage_address(tensor))}
        self.known = None if known is None else {storage_address(tensor) for tensor in known}
        self.results: list[Any] = []  # alive, so that their memory is not given to somebody else
        self.foreign: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            address = storage_address(tensor)
            if address in self.forbidden:
                raise ForbiddenUse(f"{func} receives a weight")
            is_constant = "lift_fresh" in str(func)  # receives the numbers of torch.tensor([..])
            if self.known is not None and address not in self.known and not is_constant:
                self.foreign.append(tensor)
        found = func(*args, **(kwargs or {}))
        if self.known is not None:
            self.results.append(found)
            self.known |= {storage_address(tensor) for tensor in _tensors(found)}
        return found


def conversion_guard(forbidden: Iterable[Tensor]) -> OperationReader:
    """Raises where python takes the values of a forbidden tensor by a way that is no operation: ``.data``, numpy."""
    known = {id(tensor): tensor for tensor in forbidden}

    def read(func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The getter of a property is a method of the property, which has the name.
        name = getattr(getattr(func, "__self__", None), "__name__", None) or getattr(func, "__name__", "")
        if name not in _FACTS and any(id(tensor) in known for tensor in _tensors((args, kwargs))):
            raise ForbiddenUse(f"{name} receives a weight")
        return func(*args, **kwargs)

    return OperationReader(read)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]
