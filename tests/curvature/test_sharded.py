"""Models that are used in place: FSDP2, tensor parallel and DDP on gloo, and one process alone.

The oracle is the Hessian of the same weights in one process, in float64, by double backward on all samples.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput, NotReproducible, ProcessLost, UnsupportedNetwork
from hessmap.hessians.sharded import local_tensor
from patience import PATIENCE
from process_groups import run_processes

NUM_SAMPLES, NUM_INPUTS, NUM_CLASSES = 23, 5, 3
L2 = 0.01
KINDS = ("fsdp", "tensor parallel", "ddp", "hybrid")
NO_TIME = 0  # which is refused


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """With widths that two and three processes share, a batch norm with buffers, and biases of odd sizes."""
    torch.manual_seed(0)
    middle = nn.Sequential(nn.Linear(NUM_INPUTS, 12), nn.Tanh(), nn.Linear(12, 7))
    model = nn.Sequential(middle, nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, NUM_CLASSES)).to(dtype)
    with torch.no_grad():
        model[1].running_var.fill_(0.5)
    return model


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(NUM_CLASSES, (NUM_SAMPLES,), generator=generator)
    labels[::7] = -100  # these do not count
    return torch.randn(NUM_SAMPLES, NUM_INPUTS, generator=generator), labels


def own_samples(kind: str, rank: int, count: int) -> tuple[Tensor, Tensor]:
    """Parts of unequal size, and unequal numbers of batches; tensor parallelism shares all samples."""
    inputs, labels = samples()
    if kind == "tensor parallel":
        return inputs, labels
    place, parts = (rank // 2, count // 2) if kind == "hybrid" else (rank, count)
    bounds = [0, *(NUM_SAMPLES * (2 * part + 3) // (2 * parts + 2) for part in range(parts - 1)), NUM_SAMPLES]
    rows = slice(bounds[place], bounds[place + 1])
    return inputs[rows], labels[rows]


def sharded(kind: str, model: nn.Sequential, count: int) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (count,))
        for layer in (model[0], model[3]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tensor parallel":
        parallelize_module(model[0], init_device_mesh("cpu", (count,)), plan)
    elif kind == "hybrid":
        mesh = init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model[0], mesh["tensor"], plan)
        for layer in (model[1], model[3]):
            parallelize_module(layer, mesh["tensor"], {})
        fully_shard(model, mesh=mesh["data"])
    else:
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model


def state_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Everything that a measurement must leave as it is: values, gradients, buffers, optimiser, modes, random state."""
    found: list[Any] = list(model.parameters())
    found += [parameter.grad for parameter in model.parameters()]
    found += list(model.buffers())
    found += [value for state in optimiser.state.values() for value in state.values() if isinstance(value, Tensor)]
    kept = [local_tensor(tensor).clone() for tensor in found]
    kept.append(torch.tensor([module.training for module in model.modules()]))
    kept.append(torch.tensor(np.random.get_state()[1].astype(np.int64)))  # noqa: NPY002
    return [*kept, torch.get_rng_state()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def whole_rows(hessian: Any, vector: Tensor) -> Tensor:
    """The rows of this process of a vector of all parameters, as the vector of an unsharded problem has them."""
    found, start = [], 0
    for part in hessian.shards.parts:
        parameter: Any = part.parameter
        piece = vector[start : start + parameter.numel()].reshape(parameter.shape)
        start += parameter.numel()
        if hasattr(parameter, "placements"):
            from torch.distributed.tensor import distribute_tensor

            piece = distribute_tensor(piece, parameter.device_mesh, parameter.placements).to_local()
        found.append(piece.flatten()[part.owned])
    return torch.cat(found)


def worker(rank: int, count: int, kind: str, size: str) -> dict[str, Any]:
    """A "short" run makes few products: with gloo, each of them is a few hundred messages between processes."""
    is_short = size == "short"
    model = sharded(kind, network(), count)
    inputs, labels = own_samples(kind, rank, count)
    # One step of an optimiser: with state, and gradients that must not change.
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    (getattr(model, "module", model))[1].eval()  # statistics of different samples would make different models
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimiser.step()
    model.train()
    before = state_of(model, optimiser)
    weights = [local_tensor(p.full_tensor() if hasattr(p, "full_tensor") else p).clone() for p in model.parameters()]
    buffers = [local_tensor(b.full_tensor() if hasattr(b, "full_tensor") else b).clone() for b in model.buffers()]
    # Of two processes one has one batch and the other two: every pass is one of both.
    batches = [(inputs[i : i + 11], labels[i : i + 11]) for i in range(0, len(labels), 11)]
    hessian = hm.sharded_hessian(model, "cross_entropy", batches, l2=L2, timeout=PATIENCE)
    generator = torch.Generator().manual_seed(5)
    given = torch.randn(hessian.size, 2, generator=generator)
    columns = torch.stack([whole_rows(hessian, column) for column in given.T], 1)
    products = hessian.matmat(columns)
    eigen = hm.top_eigenpairs(hessian, 1 if is_short else 5)
    trace = hm.trace_estimate(hessian, relative_error=0.5 if is_short else 0.05)
    generator = hessian.generator(trace.seed)
    signs = torch.cat([hessian.random_signs(1, generator) for _ in range(trace.num_probes)], 1)
    density = hm.density_estimate(hessian, num_steps=4 if is_short else 12, num_probes=2 if is_short else 4)
    solution = hm.measurement.krylov_solve(hessian, columns[:, 0], 1.0)
    found = {
        "weights": weights,
        "buffers": buffers,
        "names": [part.name for part in hessian.shards.parts],
        "size": hessian.size,
        "local_size": hessian.local_size,
        "risk": hessian.risk(),
        "products": hessian.inner(columns, products),  # a Gram matrix: v^T H v of whole vectors
        "lengths": hessian.inner(products, products),
        "gradient": hessian.norm(hessian.gradient()),
        "error": hessian.difference_error,
        "eigenpairs": eigen,
        "trace": trace,
        "density": density,
        "solution": (solution.converged, hessian.norm(torch.tensor(solution.solution))),
        "given": given,
        "rows": whole_rows(hessian, torch.arange(float(hessian.size))).long(),
        "signs": signs,
    }
    found["is_untouched"] = same(before, state_of(model, optimiser))
    if kind in ("fsdp", "tensor parallel") and count == 2:
        found["interrupts"] = interrupted(model, optimiser, batches, hessian, columns, 4 if is_short else 50)
    notes = [note for note in hessian.provenance.notes if "buffers differ" in note]
    if kind == "fsdp":
        with torch.no_grad():
            model[1].running_mean.add_(rank)
        other = hm.sharded_hessian(model, "cross_entropy", batches, timeout=PATIENCE)
        notes += [note for note in other.provenance.notes if "buffers differ" in note]
    found["notes"] = notes
    if kind != "ddp":
        try:
            hm.Problem(model, "cross_entropy", inputs, labels)
        except UnsupportedNetwork as error:
            found["refusal"] = str(error)
    return found


def interrupted(
    model: nn.Module, optimiser: Any, batches: list[Any], hessian: Any, columns: Tensor, count: int
) -> list[Any]:
    """Interrupts before, between and in the passes of both processes, at the same random calls."""
    expected, before = hessian.matmat(columns[:, :1]), state_of(model, optimiser)
    places, found = random.Random(3), []

    def objective(given: nn.Module, batch: Any) -> Tensor:
        nonlocal left
        left -= 1
        if left == 0 and where == "before":
            raise KeyboardInterrupt
        value = nn.functional.cross_entropy(given(batch[0]), batch[1], ignore_index=-100)
        if left == 0 and where == "between":
            raise KeyboardInterrupt
        if left == 0 and value.requires_grad:
            value.register_hook(interrupt)
        return value

    def interrupt(_: Tensor) -> None:
        raise KeyboardInterrupt

    left, where = -1, "before"
    own = hm.sharded_hessian(model, objective=objective, data=batches, timeout=PATIENCE)
    for _ in range(count):
        left, where = places.randrange(1, 8), places.choice(["before", "between", "backward"])
        try:
            own.matmat(columns[:, :1])
            found.append((False, same(before, state_of(model, optimiser))))
        except KeyboardInterrupt:
            found.append((True, same(before, state_of(model, optimiser))))
    return [*found, float((hessian.matmat(columns[:, :1]) - expected).abs().max())]


@pytest.mark.parametrize(
    ("kind", "count", "size"),
    [
        ("fsdp", 2, "short"),
        ("tensor parallel", 2, "short"),
        *(
            pytest.param(kind, count, size, marks=pytest.mark.slow)
            for kind, count, size in (
                ("fsdp", 2, "long"),
                ("fsdp", 3, "long"),
                ("tensor parallel", 2, "long"),
                ("tensor parallel", 3, "long"),
                ("ddp", 2, "short"),
                ("hybrid", 4, "short"),
            )
        ),
    ],
)
def test_a_sharded_model_has_the_curvature_of_the_whole_one(tmp_path: Path, kind: str, count: int, size: str) -> None:
    answers = run_processes(tmp_path, "test_sharded", "worker", count, kind, size)
    model = network()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), answers[0]["weights"], strict=True):
            parameter.copy_(value)
        for buffer, value in zip(model.buffers(), answers[0]["buffers"], strict=True):
            buffer.copy_(value)
    inputs, labels = samples()
    problem = hm.Problem(model, "cross_entropy", inputs, labels, l2=L2)
    exact = hm.loss_hessian(problem)
    dense = exact.to_dense()
    assert [name.removeprefix("module.") for name in answers[0]["names"]] == list(problem.layout.names)
    assert sum(found["local_size"] for found in answers) == problem.num_parameters
    probes = torch.zeros(problem.num_parameters, answers[0]["signs"].shape[1], dtype=torch.float64)
    for found in answers:
        probes[found["rows"]] = found["signs"].double()
    assert bool((probes.abs() == 1).all())  # every row is that of one process
    for found in answers:
        assert found["size"] == problem.num_parameters
        if kind != "ddp":  # no process has more of a vector than its share, up to what sizes do not divide
            assert found["local_size"] <= problem.num_parameters / count + 40
        assert found["risk"] == pytest.approx(problem.risk(), rel=1e-5)
        assert found["gradient"] == pytest.approx(float(problem.gradient().norm()), rel=1e-4)
        given = found["given"].double()
        expected = dense @ given
        scale = float(expected.norm(dim=0).max() * given.norm(dim=0).max())
        assert float((found["products"] - given.T @ expected).abs().max()) < 1e-4 * scale
        lengths = expected.T @ expected
        assert float((found["lengths"] - lengths).abs().max() / lengths.abs().max()) < 2e-4
        assert found["error"] < 3e-4
        eigen = found["eigenpairs"]
        values = torch.linalg.eigvalsh(dense).flip(0)[: len(eigen.eigenvalues)].numpy()
        assert eigen.converged
        assert np.abs(eigen.eigenvalues - values).max() <= eigen.residuals.max()
        assert any("relative error about" in note for note in eigen.provenance.notes)
        trace = found["trace"]  # the estimate of an unsharded Hessian from the same random signs
        images = dense @ probes
        forms = (probes * images).sum(0)
        largest = float((probes.norm(dim=0) * images.norm(dim=0)).max())
        assert trace.num_probes == probes.shape[1]
        assert abs(trace.value - float(forms.mean())) <= 1e-4 * largest
        variance = 2 * float((probes * images).var(1).sum())
        assert trace.standard_error == pytest.approx((variance / trace.num_probes) ** 0.5, rel=1e-2)
        density = found["density"]
        smooth = hm.density_estimate(exact, method="exact", width=density.width)
        truth = np.interp(density.grid, smooth.grid, smooth.density)
        assert np.mean((truth >= density.lower) & (truth <= density.upper)) > 0.85
        shifted = torch.linalg.solve(dense + torch.eye(len(dense)), given[:, 0])
        assert found["solution"][0]
        assert found["solution"][1] == pytest.approx(float(shifted.norm()), rel=1e-3)
        assert found["is_untouched"]
        differ = ["buffers differ between processes: each one uses its own"]  # of statistics that were changed
        assert found["notes"] == (differ if kind == "fsdp" else [])
        if "refusal" in found:
            assert "is sharded (FSDP2 or tensor parallel). Use hm.sharded_hessian" in found["refusal"]
        if "interrupts" in found:
            *interrupts, difference = found["interrupts"]
            assert sum(was_raised for was_raised, _ in interrupts) >= len(interrupts) // 2
            assert all(is_same for _, is_same in interrupts)
            assert difference == 0.0  # products afterwards are those before
    for found in answers[1:]:  # every process has the same record
        assert np.array_equal(found["eigenpairs"].eigenvalues, answers[0]["eigenpairs"].eigenvalues)
        assert found["trace"].value == answers[0]["trace"].value
        assert np.array_equal(found["density"].density, answers[0]["density"].density)


def losing(rank: int, count: int) -> str:
    model = sharded("fsdp", network(), count)
    inputs, labels = own_samples("fsdp", rank, count)
    calls = 0

    def objective(given: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == 8:
            os._exit(0)
        return nn.functional.cross_entropy(given(batch[0]), batch[1])

    hessian = hm.sharded_hessian(model, objective=objective, data=[(inputs, labels)], timeout=PATIENCE)
    try:
        hm.sharpness(hessian)
    except ProcessLost as error:
        weights = torch.cat([local_tensor(parameter).flatten() for parameter in model.parameters()])
        return f"{error} {bool(torch.isfinite(weights).all())}"
    return "no error"


def test_a_killed_process_is_an_error_in_the_others(tmp_path: Path) -> None:
    message, nothing = run_processes(tmp_path, "test_sharded", "losing", 2)
    assert nothing is None
    assert message.startswith("every process must answer within 600 s; in process 0 of 2 the connection to a process")


# One process alone: the same code without collectives.


def in_place(model: nn.Module, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    inputs, labels = samples()
    return hm.sharded_hessian(model, "cross_entropy", inputs.to(dtype), labels, batch_size=8, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_process_needs_no_process_group(dtype: torch.dtype) -> None:
    model = network(dtype)
    hessian = in_place(model, dtype, parameters=["0", "3.bias"])
    problem = hm.Problem(model, "cross_entropy", *samples(), parameters=["0", "3.bias"])
    vector = torch.randn(problem.num_parameters, dtype=dtype)
    expected = hm.loss_hessian(problem) @ vector.double()
    error = float(((hessian @ vector).double() - expected).norm() / expected.norm())
    assert error < (1e-4 if dtype == torch.float32 else 1e-8)
    assert error <= 2 * hessian.difference_error
    assert hessian.named(vector).keys() == set(problem.layout.names)


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
def test_eigenvalues_that_the_first_vectors_do_not_show_are_found(which: str) -> None:
    """The first vectors have no part along the most wanted eigenvectors: a probe must find these."""
    values = torch.cat([torch.tensor([3.0, 3.0, 2.2]), torch.linspace(-1, 1, 60), torch.tensor([-2.0, -4.0])]).double()
    order = {"largest": values, "smallest": -values, "magnitude": values.abs()}[which].argsort(descending=True)

    class Diagonal(hm.linalg.ShardedOperator):
        processes = hm.linalg.Processes(alone=True)
        size = local_size = len(values)
        product_error = 1e-9
        num_drawn = 0

        def matmat(self, vectors: Tensor) -> Tensor:
            return values[:, None] * vectors

        def random_normals(self, count: int, generator: torch.Generator) -> Tensor:
            found = super().random_normals(count, generator)
            self.num_drawn += 1
            if self.num_drawn <= 12:
                found[order[:2]] = 0.0
            return found

    operator = Diagonal()
    first = hm.top_eigenpairs(operator, 3, which=which, max_products=12)
    assert not first.converged
    operator.num_drawn = 9
    found = hm.top_eigenpairs(operator, 3, which=which)
    assert found.converged
    assert found.num_probes > 1
    assert found.eigenvalues == pytest.approx(np.sort(values[order[:3]].numpy())[::-1], abs=1e-5)


def test_the_tolerance_is_what_the_errors_of_products_allow() -> None:
    """Each product has an error of 1e-3 of its norm: residuals of 1e-6 cannot be met, and are not waited for."""
    values = torch.cat([torch.tensor([3.0, 2.0]), torch.linspace(-1, 1, 60)]).double()

    class Noisy(hm.linalg.ShardedOperator):
        processes = hm.linalg.Processes(alone=True)
        size = local_size = len(values)
        product_error = 1e-9

        def __init__(self) -> None:
            self.noise = torch.Generator().manual_seed(0)

        def matmat(self, vectors: Tensor) -> Tensor:
            found = values[:, None] * vectors
            off = torch.randn(found.shape, generator=self.noise, dtype=found.dtype)
            self.last_error = self.difference_error = 1e-3
            return found + 1e-3 * found.norm() / off.norm() * off

    found = hm.top_eigenpairs(Noisy(), 2)
    assert found.converged
    assert found.num_products < 60
    assert 1e-3 < found.tolerance < 1e-2
    assert (np.abs(found.eigenvalues - [3.0, 2.0]) <= found.residuals).all()
    assert any("the errors of products" in note for note in found.provenance.notes)
    wanted = hm.top_eigenpairs(Noisy(), 2, tolerance=1e-6)
    assert (wanted.converged, wanted.tolerance) == (False, 1e-6)
    assert wanted.num_products < 60


def test_an_operator_that_is_sharded_has_no_dense_form_and_no_rank() -> None:
    hessian = in_place(network(torch.float64))
    with pytest.raises(InvalidInput, match="needs whole vectors; those of this operator are sharded. Use sharpness"):
        hm.numerical_rank(hessian)
    with pytest.raises(InvalidInput, match="estimated by Hutchinson's method"):
        hm.trace_estimate(hessian, method="exact")
    with pytest.raises(InvalidInput, match="estimated by quadrature"):
        hm.density_estimate(hessian, method="exact")


def test_gradients_that_are_not_those_of_the_loss_are_found() -> None:
    model = network(torch.float64)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(NotReproducible, match="gradients must be those of the mean loss"):
        hm.sharpness(in_place(model))


def test_what_would_change_the_model_is_refused() -> None:
    model = nn.Sequential(network(torch.float64), nn.Dropout(0.5))
    with pytest.raises(InvalidInput, match="dropout must be off"):
        in_place(model)
    model = network(torch.float64)
    next(model.parameters()).register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(
        UnsupportedNetwork, match="must not modify or consume its gradients; parameter '0.0.weight' has a hook"
    ):
        in_place(model)
    with pytest.raises(InvalidInput, match="needs a loss or an objective"):
        hm.sharded_hessian(network(), data=samples())
    with pytest.raises(InvalidInput, match="timeout must be positive"):
        hm.sharded_hessian(network(), "cross_entropy", *samples(), timeout=NO_TIME)


def after_lines(count: int, call: Callable[[], Any]) -> bool:
    """Raise KeyboardInterrupt at the given line of hessmap's own code; whether it was raised."""
    left = count

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "hessmap/hessians" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_leaves_the_model_as_it_was() -> None:
    model = network(torch.float64)
    optimiser = torch.optim.Adam(model.parameters())
    inputs, labels = samples()
    nn.functional.cross_entropy(model(inputs.double()), labels).backward()
    optimiser.step()
    hessian = in_place(model)
    vector = torch.randn(hessian.size, 1, dtype=torch.float64)
    before, expected = state_of(model, optimiser), hessian.matmat(vector)
    places, num_raised = random.Random(0), 0
    for _ in range(50):
        num_raised += after_lines(places.randrange(1, 500), lambda: hessian.matmat(vector))
        assert same(before, state_of(model, optimiser))
    assert num_raised > 40
    assert torch.equal(hessian.matmat(vector), expected)


def test_an_error_of_the_model_leaves_it_as_it_was() -> None:
    model = network(torch.float64)
    calls = 0

    def objective(given: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise ValueError("of the user")
        return nn.functional.cross_entropy(given(batch[0]), batch[1])

    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    inputs, labels = samples()
    before = state_of(model, optimiser)
    with pytest.raises(ValueError, match="of the user"):
        hm.sharpness(hm.sharded_hessian(model, objective=objective, data=[(inputs.double(), labels)]))
    assert same(before, state_of(model, optimiser))
    assert not dist.is_initialized()
