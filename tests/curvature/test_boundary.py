"""The same mistake gets the same sentence everywhere; what the user's own code raises passes through with a note."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import InvalidInput

INPUTS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(10) % 3


NESTED = torch.nested.nested_tensor([INPUTS[0], INPUTS[1]], layout=torch.jagged)


def spoiled_in_eight_bits() -> torch.Tensor:
    values = INPUTS.clone()
    values[3] = torch.nan
    return values.to(torch.float8_e4m3fn)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def problem(**options: object) -> hm.Problem:
    given = {"model": network(), "loss": "squared", "data": INPUTS, "targets": LABELS} | options
    return hm.Problem(**given)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": None}, "model must be a torch.nn.Module; got NoneType"),
        ({"data": None, "targets": None}, "data must be tensors with targets, a data set.*; got a NoneType"),
        ({"data": "mnist", "targets": None}, "data must be tensors with targets, a data set.*; got a str"),
        ({"targets": "labels"}, "targets must be a tensor or an array; got a str"),
        ({"data": INPUTS.to_sparse()}, "inputs must be plain dense tensors; got torch.sparse_coo"),
        ({"data": NESTED}, "inputs must be plain dense tensors; got a nested tensor"),
        ({"data": np.ma.masked_array(INPUTS.numpy(), INPUTS.numpy() > 0)}, "inputs must not contain masked entries"),
        ({"data": spoiled_in_eight_bits()}, "inputs must be finite; sample 3 has NaN or inf"),
        ({"data": INPUTS.to(torch.complex64)}, "the inputs must fit the model; inputs of shape .* type complex64"),
        ({"data": INPUTS > 0}, "the inputs must fit the model; inputs of shape .* type bool"),
        (
            {"loss": None},
            "own loss needs data of dictionaries with labels; the loss is None and the data are a Tensor with t",
        ),
        ({"loss": nn.MSELoss}, r"a loss must be an instance, not a class; got the class MSELoss. Write MSELoss\(\)"),
        ({"loss": lambda out, target: out.sum(1) * float("nan")}, "the loss must be finite"),
        ({"l2": "a"}, "l2 must be finite and not negative; got 'a'"),
        ({"memory_budget": "1GB"}, "memory_budget must be at least 1 MiB; got '1GB'"),
        ({"device": "cuda:99"}, "device must be available to torch; 'cuda:99' gave"),
        ({"device": 3.5}, "device must be available to torch; 3.5 gave"),
        ({"dtype": "float32"}, "dtype must be torch.float32 or torch.float64; got float32"),
        ({"model": nn.Sequential(nn.LazyLinear(3))}, "belongs to a lazy module that has not seen an input"),
        ({"model": nn.Linear(4, 3, device="meta")}, "parameter 'weight' is on the meta device"),
        ({"parameters": 3}, "parameters must be given by name; got a int"),
        ({"weights": "a"}, "weights must be a tensor or an array; got a str"),
        ({"weights": [None] * 10}, "weights must be a tensor or an array; got a list"),
        ({"forward": "x"}, r"forward must be a function \(model, inputs\); got 'x'"),
    ],
)
def test_bad_input_gets_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        problem(**options)


@pytest.mark.parametrize(
    "function",
    [
        *(hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian, hm.fisher, hm.hessians.empirical_fisher),
        *(hm.output_jacobian, hm.hessians.tangent_kernel, hm.layer_names),
        *(lambda given: hm.layer_factors(given, "0"), lambda given: hm.layer_hessian(given, "0")),
        lambda given: hm.kronecker_approximation(given, "0"),
    ],
)
@pytest.mark.parametrize("given", [None, INPUTS, network()], ids=["None", "tensor", "model"])
def test_what_is_no_problem_is_refused(function, given: object) -> None:
    with pytest.raises(InvalidInput, match=rf"this needs a Problem; got a {type(given).__name__}"):
        function(given)


class Raising(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        raise KeyError("mine")


class Broken:
    def __iter__(self):
        yield INPUTS[:4], LABELS[:4]
        raise OSError("the disk is gone")


def dividing(outputs: Tensor, targets: Tensor) -> Tensor:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("options", "error", "note"),
    [
        ({"model": Raising(4, 3)}, KeyError, "raised in the forward pass of the model, on inputs of shape"),
        ({"loss": dividing}, ZeroDivisionError, r"raised in the loss 'dividing', on outputs of shape \(10, 3\)"),
        ({"data": Broken(), "targets": None}, OSError, "raised while the data were read, after 1 batches"),
    ],
)
def test_the_users_own_exceptions_pass_through_with_a_note(options, error: type[Exception], note: str) -> None:
    with pytest.raises(error, match=note) as caught:
        problem(**options)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("vectors", "sentence"),
    [
        ("a", "an operator multiplies tensors, arrays and operators; got str"),
        (torch.zeros(43, dtype=torch.complex64), "real, dense vectors; got torch.complex64"),
        (torch.zeros(43).to_sparse(), "real, dense vectors; got torch.float32, torch.sparse_coo"),
        (torch.zeros(42), "needs vectors with 43 entries"),
    ],
)
def test_vectors_that_cannot_be_multiplied_are_refused(vectors: object, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        hm.loss_hessian(problem()) @ vectors


def test_empty_parameters_are_left_out() -> None:
    model = network()
    model.register_parameter("empty", nn.Parameter(torch.zeros(0)))
    model.register_parameter("flat", nn.Parameter(torch.zeros(0, 3)))
    found = hm.loss_hessian(problem(model=model))
    assert found.to_dense().shape == (43, 43)
    assert (found @ torch.ones(43)).shape == (43,)


def test_everything_works_under_inference_mode() -> None:
    outside = problem()
    expected = hm.loss_hessian(outside).to_dense()
    with torch.inference_mode():
        inside = problem(model=outside.model.requires_grad_())
        assert torch.equal(hm.loss_hessian(inside).to_dense(), expected)
        vector = torch.ones(43, dtype=torch.float64)
        torch.testing.assert_close(hm.loss_hessian(inside) @ vector, expected @ vector)
        assert hm.layer_hessian(inside, "0").size == 20
        assert hm.layer_factors(inside, "2").output_factor.shape == (3, 3)
        torch.testing.assert_close(hm.loss_hessian(inside).exact_diagonal(), expected.diagonal())
        torch.testing.assert_close(inside.gradient(), outside.gradient())
        assert hm.output_jacobian(inside).shape == (10, 3, 43)


def test_threads_leave_the_states_of_the_process_alone_and_agree() -> None:
    model = network()
    expected = hm.loss_hessian(problem(model=model)).to_dense()
    before = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    wrong: list[object] = []

    def work() -> None:
        for _ in range(3):
            loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=4, shuffle=True)
            try:
                found = hm.loss_hessian(hm.Problem(model, "squared", loader)).to_dense()
            except Exception as error:
                wrong.append(error)
            else:
                if not torch.allclose(found, expected, atol=1e-12):
                    wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    after = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def switches() -> tuple[object, ...]:
    """What products of attention may have to switch for a moment, and the random states of the process."""
    cuda = torch.backends.cuda
    kernels = (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled())
    states = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    return (torch.backends.mha.get_fastpath_enabled(), *kernels, *states)


def test_threads_with_attention_leave_kernels_and_random_states_alone_and_agree() -> None:
    """Problems of a transformer, with products and matrices, and one whose model fails, in four threads at a time."""
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 4), layer, nn.Flatten(), nn.Linear(8, 3)).eval()
    model = nn.Sequential(nn.Linear(4, 4), *model)
    size = sum(parameter.numel() for parameter in model.parameters())
    vector = torch.linspace(-1, 1, size, dtype=torch.float64)
    expected = hm.loss_hessian(hm.Problem(model, "squared", INPUTS, LABELS)) @ vector
    before, wrong = switches(), []

    def work(number: int) -> None:
        try:
            problem = hm.Problem(model, "squared", TensorDataset(INPUTS, LABELS), dtype=torch.float64)
            found = hm.loss_hessian(problem) @ vector
            if not torch.allclose(found, expected, atol=1e-10):
                wrong.append(found)
            if number % 2:
                hm.numerical_rank(hm.loss_hessian(problem).block("5.weight"))
            with pytest.raises(ValueError, match="mine"):
                hm.Problem(nn.Sequential(model, Failing()), "squared", INPUTS, LABELS)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert switches() == before


class Failing(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise ValueError("mine")


def test_large_models_keep_their_own_precision_and_say_so() -> None:
    model = nn.Sequential(nn.Linear(4, 130_000), nn.Linear(130_000, 3))
    found = hm.Problem(model, "squared", INPUTS, LABELS)
    assert found.dtype == torch.float32
    assert any("computed in float32, because there are 1,040,003 trainable parameters" in note for note in found.notes)
    assert hm.Problem(model, "squared", INPUTS, LABELS, dtype=torch.float64).dtype == torch.float64


def test_the_memory_budget_is_shared_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.linalg.devices.available_bytes", lambda device=None: 2**34)
    alone = problem()
    assert alone.memory_budget == 2**32
    monkeypatch.setenv("HESSMAP_WORKERS", "4")
    assert problem().memory_budget == 2**30
