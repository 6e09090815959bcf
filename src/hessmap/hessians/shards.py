"""The parameters of a model that is used in place, as they are distributed over processes, and the vectors over them.

A process has, of every parameter, a local tensor: its shard of a DTensor (FSDP2, tensor parallel), or the whole tensor.
Local tensors that several processes have a copy of are split among these: every entry of a vector is owned by one
process, so that inner products are sums over the processes. Moving the parameters along a vector first adds the owned
parts up over the copies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence
from hessmap.linalg import Processes, widest_dtype
from hessmap.problem import preserved_random_state, selected_names


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
        must = "a model that is used in place must not act on its gradients"
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
