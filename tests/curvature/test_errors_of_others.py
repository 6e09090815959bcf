"""Exceptions of the user's code and of the machine stay what they are, whatever words they use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.problem.derivative_checks import twice_differentiable

INPUTS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(10) % 3


class Own(RuntimeError):
    """A user's own exception."""


ERRORS = [
    RuntimeError("the buffer has the wrong size"),
    ValueError("unexpected shape of the mask"),
    TypeError("this dtype is not mine"),
    KeyError("size"),
    IndexError("no such shape"),
    OSError("expected a file of another size"),
    Own("shape and size"),
    NotImplementedError("no dtype of this size"),
    MemoryError("Unable to allocate an array with shape (9, 9)"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB; the size of the GPU is 8 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: of size 9"),
]


class Raising(nn.Module):
    """Raises in the forward pass, from a call on: the first one, or one that comes later."""

    def __init__(self, error: Exception, after: int = 0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        self.errors, self.left = [error], after

    def forward(self, inputs: Tensor) -> Tensor:
        if self.left == 0:
            raise self.errors[0]
        self.left -= 1
        return self.layers(inputs)

    def __deepcopy__(self, memo: dict[int, object]) -> Raising:
        """Copies raise the very object."""
        other = Raising(self.errors[0], self.left)
        other.layers.load_state_dict(self.layers.state_dict())
        return other


def names(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:20]}"


@pytest.mark.parametrize("error", ERRORS, ids=names)
@pytest.mark.parametrize("after", [0, 1, 4])
def test_what_a_model_raises_passes_as_it_is(error: Exception, after: int) -> None:
    with pytest.raises(type(error)) as caught:
        hm.loss_hessian(hm.Problem(Raising(error, after), "cross_entropy", INPUTS, LABELS)) @ torch.ones(43)
    assert caught.value is error
    assert Path(caught.traceback[-1].path) == Path(__file__)


@pytest.mark.parametrize("error", ERRORS, ids=names)
def test_what_a_model_raises_while_it_is_differentiated_passes_as_it_is(error: Exception) -> None:
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values.clone()

        @staticmethod
        def backward(ctx, slope):
            raise error

    class Model(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return Backward.apply(super().forward(inputs))

    problem = hm.Problem(Model(4, 3), "cross_entropy", INPUTS, LABELS)
    for ask in (problem.gradient, lambda: hm.loss_hessian(problem) @ torch.ones(15)):
        with pytest.raises(type(error)) as caught:
            ask()
        assert caught.value is error


@pytest.mark.parametrize("error", ERRORS, ids=names)
def test_what_a_loss_raises_passes_as_it_is(error: Exception) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise error

    with pytest.raises(type(error)) as caught:
        hm.Problem(nn.Linear(4, 3), loss, INPUTS, LABELS)
    assert caught.value is error


@pytest.mark.parametrize("error", ERRORS, ids=names)
def test_what_a_copy_raises_passes_as_it_is(error: Exception) -> None:
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo: dict[int, object]) -> nn.Module:
            raise error

    with pytest.raises(type(error)) as caught:
        hm.Problem(nn.Sequential(Uncopied(4, 3)), "cross_entropy", INPUTS, LABELS)
    assert caught.value is error


@pytest.mark.parametrize("error", ERRORS, ids=names)
def test_what_a_function_of_inputs_raises_passes_as_it_is(error: Exception) -> None:
    for after in (0, 1, 3):
        with pytest.raises(type(error)) as caught:
            hm.function_rank(Raising(error, after), INPUTS)
        assert caught.value is error


def test_what_numpy_says_of_shapes_is_not_torchs() -> None:
    class WithNumpy(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) + torch.from_numpy(np.ones((3, 3)) + np.ones((5, 3)))

    with pytest.raises(ValueError, match="operands could not be broadcast together with shapes") as caught:
        hm.Problem(WithNumpy(4, 3), "cross_entropy", INPUTS, LABELS)
    assert type(caught.value) is ValueError


class Lock(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)
        import threading

        self.lock = threading.Lock()


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(UnsupportedNetwork, match="must be copyable.*cannot pickle '_thread.lock' object"):
        hm.Problem(Lock(), "cross_entropy", INPUTS, LABELS)
    model = nn.Linear(4, 3)
    model.kept = model(INPUTS.float())  # no leaf
    with pytest.raises(UnsupportedNetwork, match="must be copyable.*support the deepcopy protocol"):
        hm.Problem(model, "cross_entropy", INPUTS, LABELS)


class InOperators(nn.Module):
    """The product is written with an operator: torch's error has no frame of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


MISFITS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "operator": (InOperators, INPUTS[:, :3]),
    "linear": (lambda: nn.Linear(5, 3), INPUTS),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(3)), INPUTS),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(4, 3)), INPUTS),
    "integers": (lambda: nn.Linear(4, 3), INPUTS.long()),
    "unflatten": (lambda: nn.Sequential(nn.Unflatten(1, (3, 3)), nn.Flatten(), nn.Linear(4, 3)), INPUTS),
}


@pytest.mark.parametrize("name", MISFITS)
def test_inputs_that_do_not_fit_are_still_explained(name: str) -> None:
    make, inputs = MISFITS[name]
    model = make()
    if name == "convolution":
        model[2] = nn.Linear(8, 3)
    with pytest.raises(InvalidInput, match=r"the inputs must fit the model; inputs of shape \(\d+, \d\)") as caught:
        hm.Problem(model, "cross_entropy", inputs, LABELS)
    assert caught.value.__cause__ is not None


def test_a_second_derivative_that_torch_lacks_is_still_refused() -> None:
    class Pooled(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return torch.segment_reduce(super().forward(inputs), "prod", lengths=torch.ones(len(inputs)).long())

    with pytest.raises(UnsupportedNetwork, match="torch must be able to differentiate the model and its loss twice"):
        hm.loss_hessian(hm.Problem(Pooled(4, 3), "cross_entropy", INPUTS, LABELS)) @ torch.ones(15)


@pytest.mark.parametrize("error", [error for error in ERRORS if "llocat" in str(error)], ids=names)
def test_memory_that_runs_out_inside_of_torch_stays_that(error: Exception) -> None:
    """The engine of autograd raises from a frame of torch's, as this code pretends to."""
    program = compile("raise error", str(Path(torch.__file__).parent / "autograd" / "graph.py"), "exec")
    with pytest.raises(type(error)) as caught, twice_differentiable():
        exec(program, {"error": error})
    assert caught.value is error
    with pytest.raises(UnsupportedNetwork, match="torch raised: no derivative"), twice_differentiable():
        exec(program, {"error": RuntimeError("no derivative")})
