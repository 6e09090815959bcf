"""Bytes that measurements hold on a device and move over the bus, counted by the stand-in device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import NAME
from torch import Tensor

import hessmap as hm
from hessmap.errors import TooLarge
from hessmap.linalg import LinearOperator, available_bytes, default_budget, sign_vectors
from hessmap.measurement import (
    block_traces,
    diagonal_estimate,
    effective_dimension_estimate,
    frobenius_norm_estimate,
    krylov_solve,
)

pytestmark = pytest.mark.skipif(NAME != "second", reason="needs the stand-in device")
BLOCKS = WIDTH = 100
SIZE = BLOCKS * WIDTH


class BlockDiagonal(LinearOperator):
    """Symmetric blocks on a device, whose eigenvalues LAPACK computes one by one on the host."""

    makes_new_images = True

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float64) -> None:
        drawn = torch.randn(BLOCKS, WIDTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        drawn = (drawn + drawn.mT) * torch.linspace(0.2, 1.0, BLOCKS, dtype=torch.float64)[:, None, None] ** 4
        drawn = drawn.to(dtype)
        self.eigenvalues = np.sort(np.linalg.eigvalsh(drawn.double().numpy()).ravel())[::-1]
        self.diagonal = drawn.diagonal(0, 1, 2).double().reshape(-1).numpy()
        self.blocks, self.dtype, self.device = drawn.to(device), dtype, device

    @property
    def shape(self) -> tuple[int, int]:
        return SIZE, SIZE

    def matmat(self, vectors: Tensor) -> Tensor:
        assert vectors.device == self.device
        return torch.bmm(self.blocks, vectors.reshape(BLOCKS, WIDTH, -1)).view(vectors.shape)


@pytest.fixture
def stand_in(device: torch.device) -> Iterator[Any]:
    import second_device

    found = second_device.device
    yield found
    found.lacks, found.total_bytes = set(), 2**40


@pytest.mark.parametrize("num_vectors", [4, 8, 16, 64])
@pytest.mark.parametrize("name", ["sharpness", "top_eigenpairs"])
def test_memory_stays_within_the_budget(name: str, num_vectors: int, stand_in: Any, device: torch.device) -> None:
    operator = BlockDiagonal(device)
    options: dict[str, Any] = {"tolerance": 1e-4, "memory_budget": num_vectors * 8 * SIZE}
    before = stand_in.live_bytes()
    if name == "top_eigenpairs" and num_vectors == 4:
        with pytest.raises(TooLarge, match="3 eigenpairs"):
            hm.top_eigenpairs(operator, 3, **options)
        return
    with stand_in.counted() as used:
        found: Any = (
            hm.sharpness(operator, **options) if name == "sharpness" else hm.top_eigenpairs(operator, 3, **options)
        )
    assert found.converged
    values = np.atleast_1d(found.value if name == "sharpness" else found.eigenvalues)
    norm = np.abs(operator.eigenvalues).max()
    np.testing.assert_allclose(values, operator.eigenvalues[: len(values)], atol=1e-4 * norm)
    assert used.peak_bytes - before <= 1.2 * num_vectors * 8 * SIZE


# The recurrence takes 11 vectors, the smallest basis on the device 20, and in float32 eight more: three mixtures of the
# vectors, and sums in float64.
@pytest.mark.parametrize(("dtype", "num_vectors"), [(torch.float64, 13), (torch.float32, 20)])
def test_a_basis_that_only_the_host_holds_is_streamed(
    dtype: torch.dtype, num_vectors: int, stand_in: Any, device: torch.device
) -> None:
    operator, count = BlockDiagonal(device, dtype), 8
    budget = num_vectors * dtype.itemsize * SIZE
    before = stand_in.live_bytes()
    with stand_in.counted() as used:
        found = hm.top_eigenpairs(operator, count, tolerance=1e-4, memory_budget=budget)
    assert used.peak_bytes - before <= 1.2 * budget
    notes = [note for note in found.provenance.notes if "is in host memory, streamed 2 at a time" in note]
    assert len(notes) == 1
    assert found.converged
    norm = np.abs(operator.eigenvalues).max()
    np.testing.assert_allclose(found.eigenvalues, operator.eigenvalues[:count], atol=1e-4 * norm)
    plan = hm.cost_plan(operator, "top_eigenpairs", count=count, tolerance=1e-4, memory_budget=budget)
    assert plan.method == "offloaded_restart"
    assert used.peak_bytes - before <= 1.2 * plan.num_bytes


def test_the_recurrence_comes_before_a_basis_on_the_host_where_it_needs_no_more_products(
    device: torch.device, stand_in: Any
) -> None:
    def method(measurement: str, num_vectors: int, **given: Any) -> str:
        budget = num_vectors * 8 * SIZE
        plan = hm.cost_plan(BlockDiagonal(device), measurement, memory_budget=budget, time_product=False, **given)  # type: ignore[arg-type]
        return plan.method

    assert method("sharpness", 12) == "three_term"
    assert [method("top_eigenpairs", 12 + more, count=8) for more in (-1, 0, 8)] == [
        "three_term",
        "offloaded_restart",
        "thick_restart",
    ]


def test_a_basis_on_the_host_on_request(device: torch.device, stand_in: Any) -> None:
    operator = BlockDiagonal(device)
    found = hm.sharpness(operator, tolerance=1e-4, method="offloaded_restart")
    assert found.converged
    assert any("is in host memory" in note for note in found.provenance.notes)
    assert abs(found.value - operator.eigenvalues[0]) <= 1e-4 * np.abs(operator.eigenvalues).max()
    with pytest.raises(TooLarge, match="the basis must fit the host"):
        hm.sharpness(operator, method="offloaded_restart", memory_budget=8 * 8 * SIZE)


ESTIMATES: dict[str, Callable[..., Any]] = {"trace": hm.trace_estimate, "diagonal": diagonal_estimate}


@pytest.mark.parametrize(
    ("num_vectors", "method"),
    [(4, "auto"), (4, "hutch++"), (8, "auto"), (16, "auto"), (16, "hutch++"), (64, "hutchinson"), (64, "hutch++")],
)
@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_stay_within_the_budget(
    name: Any, num_vectors: int, method: str, stand_in: Any, device: torch.device
) -> None:
    operator = BlockDiagonal(device)
    options: dict[str, Any] = {"method": method, "memory_budget": num_vectors * 8 * SIZE, "max_products": 96}
    before = stand_in.live_bytes()
    with stand_in.counted() as used:
        found = ESTIMATES[name](operator, relative_error=1e-6, **options)
    assert used.peak_bytes - before <= 1.2 * num_vectors * 8 * SIZE
    if method != "hutchinson":  # whose 34 vectors may fit
        assert "within the memory budget" in found.provenance.notes[-1]
    plan = hm.cost_plan(operator, f"{name}_estimate", method=method, memory_budget=options["memory_budget"])  # type: ignore[arg-type]
    assert plan.num_bytes <= options["memory_budget"]
    assert used.peak_bytes - before <= 1.2 * plan.num_bytes
    assert found.num_products <= 96 + 2  # those of the check of symmetry
    if method == "hutch++":
        assert found.method == (method if num_vectors >= 16 else "hutchinson")
    if name == "trace":
        # Three standard errors, and the variance of the theory for the number of probes without a sketch.
        assert abs(found.value - operator.eigenvalues.sum()) <= 3 * found.standard_error
        blocks = operator.blocks.cpu()
        variance = 2 * float(blocks.square().sum() - blocks.diagonal(0, 1, 2).square().sum())
        if found.method == "hutchinson":
            assert found.standard_error == pytest.approx((variance / found.num_probes) ** 0.5, rel=0.1)
    else:
        deviations = (found.values - operator.diagonal) / found.standard_errors
        assert 0.9 <= np.sqrt(np.mean(np.square(deviations))) <= 1.1


@pytest.mark.parametrize("name", ESTIMATES)
def test_a_budget_without_room_for_a_probe_is_an_error(name: str, device: torch.device, stand_in: Any) -> None:
    least = {"trace": 3, "diagonal": 4}[name]
    with pytest.raises(TooLarge, match=rf"the {name} of an operator of size 10,000 .* \({least} vectors\)"):
        ESTIMATES[name](BlockDiagonal(device), method="hutchinson", memory_budget=least * 8 * SIZE - 1)


@pytest.mark.parametrize("num_vectors", [6, 16, 64])
def test_the_frobenius_norm_stays_within_the_budget(num_vectors: int, stand_in: Any, device: torch.device) -> None:
    operator, budget = BlockDiagonal(device), num_vectors * 8 * SIZE
    before = stand_in.live_bytes()
    with stand_in.counted() as used:
        found = frobenius_norm_estimate(operator, relative_error=1e-6, memory_budget=budget, max_products=96)
    assert used.peak_bytes - before <= 1.2 * budget
    assert "within the memory budget" in found.provenance.notes[-1]
    assert found.method == ("hutch++" if num_vectors >= 16 else "hutchinson")
    assert abs(found.value - np.linalg.norm(operator.eigenvalues)) <= 3 * found.standard_error


@pytest.mark.parametrize(("num_vectors", "num_known"), [(8, 0), (16, 0), (16, 6), (64, 6)])
def test_traces_of_blocks_stay_within_the_budget(
    num_vectors: int, num_known: int, stand_in: Any, device: torch.device
) -> None:
    operator, budget = BlockDiagonal(device), num_vectors * 8 * SIZE
    known = hm.top_eigenpairs(operator, num_known, tolerance=1e-3) if num_known else None
    block_of = torch.arange(SIZE) // (SIZE // 4)
    before = stand_in.live_bytes()
    with stand_in.counted() as used:
        found = block_traces(
            operator, block_of, known=known, relative_error=1e-6, max_products=64, memory_budget=budget
        )
    assert used.peak_bytes - before <= 1.2 * budget
    expected = operator.diagonal.reshape(4, -1).sum(1)
    assert np.all(np.abs(found.values - expected) <= 4 * found.standard_errors)
    assert abs(found.whole.value - expected.sum()) <= 3 * found.whole.standard_error


def test_a_budget_without_room_for_two_probes_of_a_norm_is_an_error(device: torch.device, stand_in: Any) -> None:
    with pytest.raises(TooLarge, match=r"the Frobenius norm of an operator of size 10,000 .* \(4 vectors\)"):
        frobenius_norm_estimate(BlockDiagonal(device), memory_budget=4 * 8 * SIZE - 1)
    with pytest.raises(TooLarge, match=r"the traces of the blocks of an operator of size 10,000 .* \(6 vectors\)"):
        block_traces(BlockDiagonal(device), torch.zeros(SIZE).long(), memory_budget=6 * 8 * SIZE - 1)


def test_known_eigenpairs_are_used_as_far_as_they_fit(device: torch.device, stand_in: Any) -> None:
    operator = BlockDiagonal(device)
    pairs = hm.top_eigenpairs(operator, 6, tolerance=1e-4)
    before, budget = stand_in.live_bytes(), 8 * 8 * SIZE
    with stand_in.counted() as used:
        found = hm.trace_estimate(operator, known=pairs, memory_budget=budget, relative_error=1e-6)
    assert used.peak_bytes - before <= 1.2 * budget
    assert "a sketch of 4 columns" in found.provenance.notes[-1]
    assert abs(found.value - operator.eigenvalues.sum()) <= 3 * found.standard_error


MEASUREMENTS: dict[str, Callable[[LinearOperator], Any]] = {
    "top_eigenpairs": lambda operator: hm.top_eigenpairs(operator, 3, tolerance=1e-4),
    "sharpness": lambda operator: hm.sharpness(operator, tolerance=1e-4),
    "sharpness by three terms": lambda operator: hm.sharpness(operator, tolerance=1e-4, method="three_term"),
    "density_estimate": lambda operator: hm.density_estimate(operator, num_probes=2, num_steps=8, method="quadrature"),
    "trace_estimate": lambda operator: hm.trace_estimate(operator, method="hutchinson", relative_error=0.5),
    "hutch++": lambda operator: hm.trace_estimate(operator, method="hutch++", relative_error=0.5),
    "diagonal_estimate": lambda operator: diagonal_estimate(operator, method="hutchinson", max_products=32),
    "effective_dimension_estimate": lambda operator: effective_dimension_estimate(
        operator, 0.1, num_steps=8, max_products=64, method="quadrature"
    ),
    "krylov_solve": lambda operator: krylov_solve(operator + 60.0, torch.ones(SIZE).double(), max_products=60),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "top_eigenpairs": lambda found: found.eigenvalues,
    "density_estimate": lambda found: found.density,
    "diagonal_estimate": lambda found: found.values,
    "krylov_solve": lambda found: found.solution,
}


# Whose every step is one product; those of a density are of two probes, which are cleared one by one.
STEPS = ("top_eigenpairs", "sharpness", "sharpness by three terms", "trace_estimate", "hutch++", "diagonal_estimate")


@pytest.mark.parametrize("lacks_float64", [False, True])
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_vectors_stay_on_the_device(name: str, lacks_float64: bool, stand_in: Any, device: torch.device) -> None:
    dtype = torch.float32 if lacks_float64 else torch.float64
    value = VALUES.get(name, lambda found: found.value)
    expected = value(MEASUREMENTS[name](BlockDiagonal(torch.device("cpu"), dtype)))
    stand_in.lacks = {torch.float64} if lacks_float64 else set()
    operator = BlockDiagonal(device, dtype)
    with stand_in.counted() as moved:
        found = MEASUREMENTS[name](operator)
    rounding = 2e-3 if lacks_float64 else 1e-7
    np.testing.assert_allclose(value(found), expected, rtol=rounding, atol=rounding * np.abs(expected).max())
    if name in STEPS:  # three a step (four without float64, if it is cleared), and those of start and results
        assert (moved.syncs + moved.down) / found.num_products <= (4.5 if lacks_float64 else 3.5)
    moved_vectors = (moved.up_bytes + moved.down_bytes) / (dtype.itemsize * SIZE)
    assert moved_vectors / found.num_products < 0.5


def test_the_same_seed_draws_the_same_signs_everywhere(device: torch.device, stand_in: Any) -> None:
    shape = 1003, 5
    host = sign_vectors(shape, torch.Generator().manual_seed(3), torch.float64, torch.device("cpu"))
    with stand_in.counted() as moved:
        there = sign_vectors(shape, torch.Generator().manual_seed(3), torch.float64, device)
    assert moved.up_bytes <= 1003 * 5 / 8 + 1
    assert torch.equal(host, there.cpu())


def test_the_operators_of_a_problem_share_its_budget(stand_in: Any, device: torch.device) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 4)
    model, inputs = torch.nn.Sequential(*layers).to(device), torch.randn(1_500, 8)
    budget = 2**24
    gc.collect()
    before = stand_in.live_bytes()
    problem = hm.Problem(
        model,
        "cross_entropy",
        inputs.to(device),
        inputs[:, 0].long().abs().to(device),
        device=device,
        memory_budget=budget,
    )
    operators = [hm.loss_hessian(problem), hm.ggn(problem), hm.functional_hessian(problem), hm.fisher(problem)]
    vector = torch.ones(problem.num_parameters, dtype=torch.float64, device=device)
    expected = [operators[0] @ vector]
    alone = stand_in.live_bytes() - before
    with stand_in.counted() as used:
        found = [operator @ vector for operator in operators]
    assert alone > budget / 8  # four graphs would not fit half of the budget
    assert used.peak_bytes - before <= 1.2 * budget
    torch.testing.assert_close(operators[0] @ vector, expected[0], rtol=1e-12, atol=0.0)
    assert torch.allclose(found[0], found[1] + found[2], rtol=1e-9, atol=1e-12)


def test_a_budget_counts_the_memory_of_the_device(stand_in: Any, device: torch.device) -> None:
    stand_in.total_bytes = stand_in.live_bytes() + 2**24
    assert available_bytes(device) <= 2**24
    assert default_budget(device) <= 2**23
    assert default_budget() > 2**23
