"""The loss Hessian of a model in place, whose parameters are sharded over processes: FSDP2, tensor parallel, DDP.

Such a model has no copy and, under FSDP2, no second derivative in torch. Its products are central differences of
gradients (``finite_difference.py``): every process moves its own shards along its own part of a vector, runs the
model's own forward and backward pass on its own part of the data, reads its own shards of the gradients, and puts the
shards back bit for bit. No process has more of a vector than of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hessmap.errors import InvalidInput, NotReproducible, checked_count, number_or_none, require, sentence, short_text
from hessmap.hessians.finite_difference import difference_product, difference_step, expected_difference_error
from hessmap.hessians.shards import (
    Shards,
    bounded_wait,
    data_groups,
    fully_sharded_modules,
    is_dtensor,
    require_deterministic,
)
from hessmap.linalg import Processes, ShardedOperator
from hessmap.losses import AnyLoss
from hessmap.problem import (
    Forward,
    LossObjective,
    Objective,
    as_samples,
    loss_objective,
    move_to,
    objective_batches,
    objective_name,
)
from hessmap.records import Provenance, provenance

_BATCH = 64  # samples of tensors that are evaluated at once
_SLOPE_TOLERANCE = 0.05  # of the gradient's norm; a wrong factor of a sum over processes is 2 or more
_ROUNDING_UNITS = 64  # of a risk, above which its differences are worth comparing
_Batch = tuple[Any, float]  # a batch and its weight: 0.0 where a process takes part without samples


class ShardedHessian(ShardedOperator):
    """The loss Hessian of a model in place; see ``sharded_hessian``.

    Vectors are tensors of ``local_size`` rows: the entries that this process owns, parameter by parameter.

    Args:
        model: The model, which is used in place.
        objective: Loss or objective of whole batches.
        batches: The batches of this process, readable again.
        sizes: Number of samples of each batch, for an objective without a normaliser of its own.
        parameters: Names, globs or layers to differentiate; None for all trainable ones.
        l2: Coefficient of the squared norm of the parameters.
        timeout: Seconds after which a process that does not answer is an error in the others.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective | LossObjective,
        batches: Callable[[], Iterator[Any]],
        sizes: Sequence[int],
        parameters: str | Sequence[str] | None,
        l2: float,
        timeout: float,
    ) -> None:
        require_deterministic(model)
        is_alone = not (dist.is_available() and dist.is_initialized())
        self.processes = Processes(timeout=timeout, alone=is_alone)
        self.model, self.l2 = model, l2
        self.shards = Shards(model, parameters, self.processes)
        self.dtype, self.device = self.shards.dtype, self.shards.device
        self._objective, self._read, self._sizes = objective, batches, tuple(sizes)
        self._data = data_groups(model, self.processes)
        self._num_parts = 1
        for group in self._data:
            self._num_parts *= group.count
        self._is_checked = False
        self.difference_error = 0.0
        self._narrowest = max([self.shards.narrowest, *_policies(model)], key=lambda dtype: torch.finfo(dtype).eps)
        self.product_error = expected_difference_error(self._narrowest)
        own = sum(float(buffer.double().norm()) for buffer in model.buffers() if not is_dtensor(buffer))
        self._has_equal_buffers = self.processes.all_equal(own)
        self._mass = 1.0
        self._num_batches = int(self.processes.largest(len(self._sizes)))
        self._mass = self._counted_mass()

    @property
    def size(self) -> int:
        return self.shards.size

    @property
    def local_size(self) -> int:
        return self.shards.local_size

    @property
    def block_size(self) -> int:
        return 1

    @property
    def provenance(self) -> Provenance:
        count = self.processes.count
        where = "one process" if count == 1 else f"{count} processes"
        notes = [
            f"the model was used in place on {where}, {self._num_parts} of them with samples of their own"
            if self._num_parts > 1
            else f"the model was used in place on {where}",
            f"products are finite differences of gradients: relative error about {self.difference_error:.0e}",
            *([] if self._has_equal_buffers else ["buffers differ between processes: each one uses its own"]),
            *([f"the loss Hessian includes {2 * self.l2:g} times the identity from l2={self.l2:g}"] if self.l2 else []),
        ]
        return provenance(str(self._narrowest).removeprefix("torch."), notes=tuple(notes))

    @torch.inference_mode(False)
    def matmat(self, vectors: Tensor) -> Tensor:
        """The products with columns of which this process has its own rows; every process must call it."""
        if not self._is_checked:
            self._require_true_gradient()
        columns = [self._product(column.contiguous()) for column in vectors.to(self.device, self.dtype).T]
        return torch.stack(columns, 1) if columns else vectors.clone()

    @torch.inference_mode(False)
    def gradient(self) -> Tensor:
        """The gradient of the risk in the rows of this process."""
        with ExitStack() as stack:
            start = self._entered(stack)
            point = self.shards.point()
            return self._gradient(start, torch.zeros_like(point)) + 2 * self.l2 * point

    @torch.inference_mode(False)
    def risk(self) -> float:
        """The risk on the samples of all processes."""
        with ExitStack() as stack:
            start = self._entered(stack)
            value = self._risk(start, self.shards.point().zero_())
        return value + self.l2 * self.norm(self.shards.point()) ** 2

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The rows of this process of a vector, by the names of the parameters that they belong to."""
        pieces = self.shards.pieces(vector)
        return {part.name: piece for part, piece in zip(self.shards.parts, pieces, strict=True)}

    def _product(self, vector: Tensor) -> Tensor:
        shards, eps = self.shards, float(torch.finfo(self._narrowest).eps)
        step = difference_step(shards.squares(vector), shards.squares(shards.point()), shards.sizes, eps)
        if not step:
            return torch.zeros_like(vector)
        with ExitStack() as stack:
            start = self._entered(stack)
            found = difference_product(lambda offset: self._gradient(start, offset), vector, step, eps, self.norm)
        self.difference_error = max(self.difference_error, found.error)
        return found.product + 2 * self.l2 * vector

    def _entered(self, stack: ExitStack) -> list[Tensor]:
        """The local tensors at the start; when the stack is left everything is as it was."""
        stack.enter_context(self.processes.noting_losses())
        if self.processes.count > 1:
            groups = [self.processes.group, *(group.group for group in self._data)]
            stack.enter_context(bounded_wait(groups, self.processes.timeout))
        return stack.enter_context(self.shards.kept())

    def _gradient(self, start: list[Tensor], offset: Tensor) -> Tensor:
        """The gradient of the risk without the penalty at an offset."""
        self.shards.move(start, offset)
        for parameter in self.model.parameters():
            parameter.grad = None
        for batch, weight in self._batches():
            self._reshard()
            with torch.enable_grad():
                total, _ = self._sum_and_normaliser(batch)
                # FSDP2 and DDP average gradients over the processes with samples of their own.
                torch.autograd.backward(total * (weight * self._num_parts / self._mass))
        groups = () if isinstance(self.model, nn.parallel.DistributedDataParallel) else self._data
        return self.shards.gradients(groups)

    @torch.no_grad()
    def _risk(self, start: list[Tensor], offset: Tensor) -> float:
        self.shards.move(start, offset)
        own = 0.0
        for batch, weight in self._batches():
            self._reshard()
            own += weight * float(self._sum_and_normaliser(batch)[0]) / self._mass
        self._reshard()
        return self._sum_over_data(own)

    def _reshard(self) -> None:
        """FSDP2 may keep whole parameters after a forward pass: those would not be the moved ones."""
        for module in fully_sharded_modules(self.model):
            module.reshard()

    def _sum_over_data(self, own: float) -> float:
        total = torch.tensor([own], dtype=torch.float64)
        for group in self._data:
            total = group.sum_numbers(total)
        return float(total)

    def _batches(self) -> Iterator[_Batch]:
        """The batches of this process; one with fewer than the others repeats its last one with weight 0, because
        every pass of a sharded model is one of all processes."""
        count, batch = 0, None
        for batch in self._read():
            count += 1
            yield batch, 1.0
        for _ in range(self._num_batches - count):
            yield batch, 0.0

    def _sum_and_normaliser(self, batch: Any) -> tuple[Tensor, float]:
        """The sum of the losses of a batch, and what it is divided by in the mean."""
        if isinstance(self._objective, LossObjective):
            total, normaliser = self._objective.sum_and_normaliser(self.model, batch)
            return _whole(total), float(_whole(normaliser))
        value = self._objective(self.model, batch.content)
        name = objective_name(self._objective)
        must = f"the objective '{name}' must return a tensor: a scalar, or one value a sample"
        require(isinstance(value, Tensor) and value.numel() > 0, must, f"it returned {short_text(value)}")
        value = _whole(value)
        return value.mean() * batch.size, float(batch.size)

    def _counted_mass(self) -> float:
        """What the sum of the losses of all processes is divided by: counted samples or tokens."""
        with ExitStack() as stack:
            self._entered(stack)
            own = 0.0
            with torch.no_grad():
                for batch, weight in self._batches():
                    self._reshard()
                    total, normaliser = self._sum_and_normaliser(batch)
                    require(bool(torch.isfinite(total)), "the loss must be finite", f"a batch has {float(total)}")
                    own += weight * normaliser
                self._reshard()
        found = self._sum_over_data(own)
        must, got = "processes that share their samples must have the same ones", "they count different numbers"
        require(bool(self._data) or self.processes.all_equal(found), must, got, "Read the same data on every process")
        require(found > 0, "at least one sample must count", "the loss ignores all of them")
        is_sum = isinstance(self._objective, LossObjective) and self._objective.loss.is_sum
        return 1.0 if is_sum else found

    def _require_true_gradient(self) -> None:
        """The gradient that is read from the shards is that of the risk over all samples: its slope along itself.

        A gradient that FSDP2 scales in its own way, or that is not added up over processes, is off by a factor.
        """
        with ExitStack() as stack:
            start = self._entered(stack)
            point = self.shards.point()
            gradient = self._gradient(start, torch.zeros_like(point))
            slope = self.norm(gradient)
            if slope:
                eps = float(torch.finfo(self._narrowest).eps)
                squares = self.shards.squares(gradient), self.shards.squares(point)
                step = 4 * difference_step(*squares, self.shards.sizes, eps)
                ends = [self._risk(start, sign * step * gradient) for sign in (1, -1)]
                found, expected = (ends[0] - ends[1]) / (2 * step), slope**2
                rounding = _ROUNDING_UNITS * eps * max(abs(end) for end in ends) / (2 * step)
                if abs(found - expected) > _SLOPE_TOLERANCE * expected + rounding:
                    must = "gradients must be those of the mean loss over the samples of all processes"
                    got = f"their slope is {found:.3g} where differences of the loss have {expected:.3g}"
                    remedy = (
                        "Look for gradients that are scaled or not synchronised: set_gradient_divide_factor, no_sync"
                    )
                    raise NotReproducible(sentence(must, got, remedy))
        self._is_checked = True


def _whole(value: Any) -> Tensor:
    """A value of a tensor-parallel model as a plain tensor."""
    found: Tensor = value.full_tensor() if is_dtensor(value) else value
    return found


def _policies(model: nn.Module) -> list[torch.dtype]:
    """Number formats in which FSDP2 computes."""
    found = [module._get_fsdp_state()._mp_policy for module in fully_sharded_modules(model)]
    given = [dtype for policy in found for dtype in (policy.param_dtype, policy.reduce_dtype)]
    return [dtype for dtype in given if dtype is not None]


def sharded_hessian(
    model: nn.Module,
    loss: AnyLoss | None = None,
    data: Any = None,
    targets: Any = None,
    *,
    objective: Objective | None = None,
    forward: Forward | None = None,
    parameters: str | Sequence[str] | None = None,
    class_axis: int | None = None,
    l2: float = 0.0,
    batch_size: int = _BATCH,
    timeout: float = 60.0,
) -> ShardedHessian:
    """The loss Hessian of a model in place, sharded over processes or devices, by finite differences of gradients.

    Args:
        model: A model under FSDP2 (``fully_shard``), tensor parallelism (``parallelize_module``), DDP, with a
            ``device_map``, or none of these. It is used in place; parameters, gradients, buffers, modes and random
            states are put back bit for bit after every product, also after an exception or an interrupt.
        loss: As for ``Problem``: a name, a torch loss, or a function that returns one value per sample.
        data: The data of this process: tensors with ``targets``, a loader, a data set or a list of batches. Processes
            of FSDP2 and DDP read different samples, those of tensor parallelism the same ones.
        targets: Targets of ``data``. Defaults to those that come with the data.
        objective: Function ``(model, batch)`` that returns the mean loss of a batch, instead of a loss. Batches are
            weighted by their size.
        forward: How to call the model, ``(model, inputs)``. Defaults to calling it with the inputs.
        parameters: Names, globs or layers to differentiate. Defaults to all trainable parameters.
        class_axis: Axis of the classes where the shape of the targets does not determine it.
        l2: Coefficient of the squared norm of the parameters. Defaults to 0.
        batch_size: Samples of tensors that are evaluated at once. Defaults to 64.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.

    Returns:
        ShardedHessian: An operator over sharded vectors for ``sharpness``, ``top_eigenpairs``, ``trace_estimate``,
        ``density_estimate`` and ``measurement.krylov_solve``. Every process must make the same calls and gets the same
        numbers.

    Raises:
        InvalidInput: If model, loss and data do not fit each other, or dropout is on.
        NotReproducible: If the gradients are not those of the mean loss over all samples.
        ProcessLost: If a process ended or did not answer in time.

    Notes:
        The mean is over the samples (tokens) of all processes that count, however they are split. A product takes four
        gradients, and one copy of the local parameters while it runs. Its relative error is estimated from two steps
        and is in the notes of every record; about 1e-4 in float32. Tested with gloo on CPUs.

    Example:
        >>> import torch, hessmap as hm
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
        >>> H = sharded_hessian(model, "cross_entropy", torch.eye(2).double(), torch.tensor([0, 1]))
        >>> exact = hm.loss_hessian(hm.Problem(model, "cross_entropy", torch.eye(2), torch.tensor([0, 1])))
        >>> abs(hm.sharpness(H).value / hm.sharpness(exact).value - 1) < 1e-6
        True
    """
    require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
    penalty = number_or_none(l2)
    is_penalty = penalty is not None and 0 <= penalty < float("inf")
    require(is_penalty, "l2 must be finite and not negative", f"got {short_text(l2)}")
    size = checked_count("batch_size", batch_size, 1)
    options = parameters, penalty or 0.0, timeout
    if objective is not None:
        given = {"loss": loss, "targets": targets, "forward": forward, "class_axis": class_axis}
        for name, value in given.items():
            must, got = f"an objective cannot be combined with {name}=", f"both were given ({short_text(value)})"
            require(value is None, must, got)
        whole = objective_batches(data)
        device, dtype = _inputs_of(model)

        def whole_batches() -> Iterator[Any]:
            return (move_to(batch, device, dtype) for batch, _ in whole.batches())

        return ShardedHessian(model, objective, whole_batches, whole.sizes, *options)
    if loss is None:
        must, remedy = "a sharded Hessian needs a loss or an objective", "Pass objective=lambda model, batch: .."
        raise InvalidInput(sentence(must, "both are None", remedy))
    device, dtype = _inputs_of(model)
    samples, _ = as_samples(data, targets, dtype, device, 2**30)
    step = size if samples.is_held else None

    def batches() -> Iterator[Any]:
        return (move_to(pair, device, dtype) for pair in samples.batches(step))

    sizes = [len(pair[1]) for pair in samples.batches(step)]
    return ShardedHessian(model, loss_objective(loss, forward, class_axis), batches, sizes, *options)


def _inputs_of(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where the inputs of a model are, and their number format: those of its first parameter."""
    first = next(model.parameters())
    return first.device, first.dtype
