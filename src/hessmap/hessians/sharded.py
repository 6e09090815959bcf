"""The loss Hessian of a model in place, whose parameters are sharded over processes: FSDP2, tensor parallel, DDP.

Such a model has no copy and, under FSDP2, no second derivative in torch. Its products are central differences of
gradients (``finite_difference.py``): every process moves its own shards along its own part of a vector, runs the
model's own forward and backward pass on its own part of the data, reads its own shards of the gradients, and puts the
shards back bit for bit. No process has more of a vector than of the parameters.

A process has, of every parameter, a local tensor: its shard of a DTensor (FSDP2, tensor parallel), or the whole tensor.
Local tensors that several processes have a copy of are split among these: every entry of a vector is owned by one
process, so that inner products are sums over the processes. Moving the parameters along a vector first adds the owned
parts up over the copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hessmap.errors import (
    InvalidInput,
    NotReproducible,
    UnsupportedNetwork,
    checked_count,
    number_or_none,
    require,
    sentence,
    short_text,
)
from hessmap.hessians.finite_difference import difference_product, difference_step, expected_difference_error
from hessmap.linalg import Processes, ShardedOperator, preserved_random_state, widest_dtype
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
    selected_names,
)
from hessmap.records import Provenance, provenance


def is_dtensor(tensor: object) -> bool:
    """Whether a tensor is sharded by torch.distributed, which is not imported for the question."""
    sharding = sys.modules.get("torch.distributed.tensor")
    return sharding is not None and isinstance(tensor, sharding.DTensor)


def local_tensor(tensor: Any) -> Tensor:
    """The part of a tensor in this process, without a graph: its own memory, not a copy."""
    with torch.no_grad():
        found: Tensor = tensor.to_local() if is_dtensor(tensor) else tensor.detach()
        return found


@dataclass(frozen=True, eq=False)
class Part:
    """One parameter: which processes have copies of the local tensor, and the entries of it that this one owns."""

    name: str
    parameter: nn.Parameter
    copies: Processes | None
    owned: slice

    @property
    def local(self) -> Tensor:
        return local_tensor(self.parameter)

    @property
    def num_owned(self) -> int:
        return int(self.owned.stop - self.owned.start)


_GROUPS: dict[tuple[int, tuple[int, ...]], Any] = {}  # groups of copies, which torch keeps as well


def _shard_key(parameter: Any) -> tuple[Any, ...]:
    """Equal for processes with the same local tensor, whatever meshes they are on."""
    if not is_dtensor(parameter):
        return ()
    mesh = parameter.device_mesh
    places = enumerate(zip(parameter.placements, mesh.get_coordinate(), strict=True))
    return tuple((str(kind), mesh.size(n), place) for n, (kind, place) in places if not kind.is_replicate())


def _require_usable(name: str, parameter: Any) -> None:
    require(not parameter.is_complex(), "weights must be real", f"parameter '{name}' is {parameter.dtype}")
    if getattr(parameter, "_post_accumulate_grad_hooks", None):
        must = "a model that is used in place must not modify or consume its gradients"
        got = f"parameter '{name}' has a hook that runs after its gradient (an optimiser in the backward pass?)"
        raise UnsupportedNetwork(sentence(must, got, "Remove the hook for the measurement"))
    if is_dtensor(parameter) and any(placement.is_partial() for placement in parameter.placements):
        raise InvalidInput(sentence("parameters must be sharded or whole", f"'{name}' is a partial sum"))


def _part(name: str, parameter: nn.Parameter, copies: Processes | None) -> Part:
    length = local_tensor(parameter).numel()
    place, count = (0, 1) if copies is None else (copies.rank, copies.count)
    return Part(name, parameter, copies, slice(length * place // count, length * (place + 1) // count))


class Shards:
    """The differentiated parameters of a model in place.

    Args:
        model: The user's model.
        parameters: Names, globs or layers; None for all trainable ones.
        processes: All processes that have a part of the model.
    """

    def __init__(self, model: nn.Module, parameters: str | Sequence[str] | None, processes: Processes) -> None:
        self.model, self.processes = model, processes
        named = dict(model.named_parameters())
        trainable = [name for name, value in named.items() if value.requires_grad]
        require(bool(trainable), "the model must have a parameter to differentiate", "all are frozen, or there is none")
        chosen = selected_names(parameters, trainable, [name for name in named if name not in trainable])
        for name in chosen:
            _require_usable(name, named[name])
        copies = self._copies([named[name] for name in chosen])
        self.parts = tuple(_part(name, named[name], own) for name, own in zip(chosen, copies, strict=True))
        self.device = self.parts[0].local.device
        widths = [part.parameter.dtype for part in self.parts]
        self.dtype = torch.float64 if torch.float64 in widths else torch.float32
        self.narrowest = max(widths, key=lambda dtype: torch.finfo(dtype).eps)
        self.size = sum(part.parameter.numel() for part in self.parts)
        self.local_size = sum(part.num_owned for part in self.parts)
        counted = int(processes.sum_numbers(torch.tensor([self.local_size], dtype=torch.float64)))
        must, got = "every parameter must be on all processes or sharded over all of them", f"{counted} of {self.size}"
        require(counted == self.size, must, f"{got} entries are owned by a process", "Use a mesh of all processes")
        self.sizes = torch.tensor([part.parameter.numel() for part in self.parts], dtype=torch.float64)

    def _copies(self, parameters: Sequence[nn.Parameter]) -> list[Processes | None]:
        """For every parameter the processes that have the same local tensor; None where it is this one alone."""
        count = self.processes.count
        if count == 1:
            return [None] * len(parameters)
        keys: list[Any] = [None] * count
        with self.processes.noting_losses():
            dist.all_gather_object(keys, [_shard_key(parameter) for parameter in parameters])
        found: list[Processes | None] = []
        for place in range(len(parameters)):
            sets: dict[Any, list[int]] = {}
            for rank in range(count):
                sets.setdefault(keys[rank][place], []).append(rank)
            groups = {ranks: self._group(ranks) for ranks in map(tuple, sets.values()) if len(ranks) > 1}
            found.append(next((group for ranks, group in groups.items() if self.processes.rank in ranks), None))
        return found

    def _group(self, ranks: tuple[int, ...]) -> Processes | None:
        """The group of some processes; all processes make it, once, whether they belong to it or not."""
        if len(ranks) == self.processes.count:
            return self.processes
        key = (id(dist.group.WORLD), ranks)
        if key not in _GROUPS:
            _GROUPS[key] = dist.new_group(list(ranks))
        return Processes(_GROUPS[key], self.processes.timeout) if self.processes.rank in ranks else None

    def point(self) -> Tensor:
        """The parameters as a vector."""
        return self._joined([part.local for part in self.parts])

    def squares(self, vector: Tensor) -> Tensor:
        """Squared norms of a vector in every parameter, over all processes."""
        wide = widest_dtype(vector.device)
        own = torch.stack([piece.square().sum(dtype=wide) for piece in self.pieces(vector)])
        return self.processes.sum_numbers(own.to("cpu", torch.float64))

    def gradients(self, data_groups: Sequence[Processes]) -> Tensor:
        """The gradients as a vector; those of whole tensors are averaged over processes with different data."""
        found = []
        for part in self.parts:
            parameter: Any = part.parameter
            gradient: Any = parameter.grad
            if gradient is None:
                found.append(torch.zeros_like(part.local))
            elif is_dtensor(gradient):
                found.append(local_tensor(gradient.redistribute(placements=parameter.placements)))
            else:
                own = gradient.detach()
                for group in () if is_dtensor(part.parameter) else data_groups:
                    own = group.sum(own / group.count)
                found.append(own)
        return self._joined(found)

    @torch.no_grad()
    def move(self, start: Sequence[Tensor], offset: Tensor) -> None:
        """Set the parameters to ``start``, their local tensors, plus a vector."""
        for part, begin, piece in zip(self.parts, start, self.pieces(offset), strict=True):
            local = part.local
            if part.copies is not None:
                whole = torch.zeros(local.numel(), dtype=piece.dtype, device=piece.device)
                whole[part.owned] = piece
                piece = part.copies.sum(whole)
            moved = begin.to(piece.dtype).flatten() + piece.to(begin.device)
            local.copy_(moved.reshape(local.shape))

    @contextmanager
    def kept(self) -> Iterator[list[Tensor]]:
        """Yield the local tensors of the parameters, and put everything of the model back bit for bit at the end.

        Parameters, gradients, buffers, modes and random states are restored after an exception or an interrupt too:
        what one interrupt breaks off is done by the second ``finally``.
        """
        everything = list(self.model.parameters())
        gradients = [parameter.grad for parameter in everything]
        # Gradients of DDP may be views of memory that the next backward pass writes to.
        is_shared = isinstance(self.model, nn.parallel.DistributedDataParallel)
        values = [gradient.clone() if is_shared and gradient is not None else None for gradient in gradients]
        buffers = [(buffer, local_tensor(buffer).clone()) for buffer in self.model.buffers()]
        modes = [(module, module.training) for module in self.model.modules()]
        start = [part.local.clone() for part in self.parts]
        is_whole = False

        def restore() -> None:
            _reset_fully_sharded(self.model)
            with torch.no_grad():
                for part, begin in zip(self.parts, start, strict=True):
                    part.local.copy_(begin)
                for buffer, before in buffers:
                    local_tensor(buffer).copy_(before)
            for parameter, gradient, value in zip(everything, gradients, values, strict=True):
                parameter.grad = gradient
                if gradient is not None and value is not None:
                    gradient.copy_(value)
            for module, mode in modes:
                module.training = mode

        with preserved_random_state():
            try:
                try:
                    for parameter in everything:
                        parameter.grad = None
                    _freeze_normalisations(self.model)
                    yield start
                finally:
                    restore()
                    is_whole = True
            finally:
                if not is_whole:
                    restore()

    def pieces(self, vector: Tensor) -> tuple[Tensor, ...]:
        """A vector parameter by parameter."""
        return torch.split(vector, [part.num_owned for part in self.parts])

    def _joined(self, locals_: Sequence[Tensor]) -> Tensor:
        owned = [value.flatten()[part.owned] for part, value in zip(self.parts, locals_, strict=True)]
        return torch.cat([value.to(self.device, self.dtype) for value in owned])


def require_deterministic(model: nn.Module) -> None:
    """Dropout must be off: it would make the Hessian a random variable."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0:
            must = "dropout must be off, because it makes the Hessian random"
            got = f"layer '{name}' is {type(module).__name__}(p={module.p}) in train mode"
            raise InvalidInput(sentence(must, got, "Call model.eval() first"))


def _freeze_normalisations(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.training = False


def fully_sharded_modules(model: nn.Module) -> list[Any]:
    """The modules that FSDP2 manages."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return [] if fsdp is None else [module for module in model.modules() if isinstance(module, fsdp.FSDPModule)]


def data_groups(model: nn.Module, processes: Processes) -> tuple[Processes, ...]:
    """The groups over which processes have different samples: those of FSDP2 or DDP. Their product is all data."""
    if processes.count == 1:
        return ()
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return (Processes(model.process_group, processes.timeout),)
    for module in fully_sharded_modules(model):
        for group in module._get_fsdp_state()._fsdp_param_groups:
            mesh = group.mesh_info.mesh
            groups = [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
            return tuple(Processes(own, processes.timeout) for own in groups)
    return ()


def _reset_fully_sharded(model: nn.Module) -> None:
    """Shard what a pass left whole, and forget a pass that was broken off."""
    for module in fully_sharded_modules(model):
        state = module._get_fsdp_state()
        idle = type(state._training_state).IDLE
        state._training_state = idle
        state._state_ctx.iter_forward_root = None
        state._state_ctx.post_backward_final_callback_queued = False
        state._modules_to_run_forward.clear()
        state._comm_ctx.post_forward_order.clear()
        for group in state._fsdp_param_groups:
            group._training_state = idle
            group._all_gather_result = None
            group._post_forward_indices.clear()
            for parameter in group.fsdp_params:
                parameter.unsharded_accumulated_grad = None
                if hasattr(parameter, "_unsharded_param"):
                    parameter._unsharded_param.grad = None
        module.reshard()


@contextmanager
def bounded_wait(groups: Sequence[dist.ProcessGroup | None], seconds: float) -> Iterator[None]:
    """Collectives of torch itself (those of FSDP2) wait no longer than our own, for the time of a block."""
    before: list[tuple[Any, timedelta]] = []
    for group in groups:
        own: Any = dist.group.WORLD if group is None else group
        options = getattr(own._get_backend(own._device_types[0]), "options", None)
        if options is not None:
            before.append((own, options._timeout))
    try:
        for own, _ in before:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), own)
        yield
    finally:
        for own, waiting in before:
            dist.distributed_c10d._set_pg_timeout(waiting, own)


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
        self.last_error = found.error
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
        must = f"the objective '{name}' must return a tensor: a scalar, or one value per sample"
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
        must, got = "processes that share samples must read the same ones", "their numbers of samples differ"
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
                    got = (
                        f"their directional derivative is {found:.3g} where differences of the loss have {expected:.3g}"
                    )
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
