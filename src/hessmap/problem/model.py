"""A private copy of the user's model: checked and prepared for differentiation (``private_copy``), restricted to some
parameters (``chosen_parameters``). Nothing of the user's changes; ``evaluation.py`` calls the copy."""

from __future__ import annotations

import copy
import copyreg
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence, unknown_name
from hessmap.linalg import has_float64, is_out_of_memory

Forward = Callable[[nn.Module, Any], Any]  # (model, inputs) -> what the model returns

LARGEST_IN_FLOAT64 = 1_000_000  # trainable parameters up to which a model is copied in float64
# Where a device waits for its launches: the closed forms of the CPU are faster. Not measured on a GPU.
_MOST_SMALL_PARAMETERS, _MOST_SMALL_DATA = 10_000, 2**20
_FORMATS = (torch.float32, torch.float64)
_INSTANCE_NORM = nn.modules.instancenorm._InstanceNorm
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, _INSTANCE_NORM)


class Modes(NamedTuple):
    """Whether batch norm uses its running statistics, and whether random numbers are allowed because they are fixed."""

    frozen_statistics: bool = True
    may_be_random: bool = False


def private_copy(
    model: nn.Module,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
    modes: Modes | None = None,
) -> tuple[nn.Module, tuple[str, ...]]:
    """Copy a model and prepare the copy for differentiation.

    Args:
        model: The model, which is not changed.
        dtype: Number format of the copy. Defaults to float64.
        device: Device of the copy. Defaults to the model's.
        modes: Whether batch norm uses its running statistics, and whether dropout may be on because its random
            numbers are fixed. Defaults to frozen statistics without dropout.

    Returns:
        The copy, and notes on what differs from the model.

    Raises:
        InvalidInput: If dropout is on, or parameters are not real, finite and initialised.
        UnsupportedNetwork: If the model cannot be copied.
    """
    modes = modes or Modes()
    refuse_what_cannot_be_copied(model, modes.may_be_random)
    notes = []
    if any(_is_compiled(module) for module in model.modules()):
        notes.append("compiled modules are used without torch.compile")
    dtypes = {parameter.dtype for parameter in model.parameters()} - {dtype}
    if dtypes:
        names = ", ".join(sorted(str(other).removeprefix("torch.") for other in dtypes))
        change = "promoted" if dtype == torch.float64 else "converted"
        notes.append(f"the model was {change} from {names} to {str(dtype).removeprefix('torch.')}")
    original = getattr(model, "_orig_mod", model)
    hooked = [name for name, parameter in original.named_parameters() if parameter._backward_hooks]
    if hooked:
        names = ", ".join(f"'{name}'" for name in hooked[:3]) + (" .." if len(hooked) > 3 else "")
        notes.append(f"hooks on the gradients of {names} were left out: derivatives are those of the risk")
    try:
        copied = _uncompiled_model(copy.deepcopy(original, _recomputed_weights(original))).to(device)
        # Not .to(dtype), which would make complex buffers real.
        copied = copied.double() if dtype == torch.float64 else copied.float()
    except Exception as error:
        if is_out_of_memory(error) or not is_raised_in_copying(error):
            error.add_note("raised while the model was copied")
            raise
        must = "the model must be copyable, so that the original is not changed"
        raise UnsupportedNetwork(sentence(must, f"copy.deepcopy failed with: {error}")) from error
    notes += _freeze_statistics(copied, modes.frozen_statistics)
    _prepare_parameters(copied, original)
    return copied, tuple(dict.fromkeys(notes))


def _freeze_statistics(model: nn.Module, frozen_statistics: bool) -> list[str]:
    """Have normalisations use what they have stored, and gradients of embeddings be dense; notes on what was frozen."""
    notes = []
    for module in model.modules():
        if isinstance(module, _INSTANCE_NORM) and module.running_mean is None:
            continue  # it looks at one sample at a time, in both modes
        if isinstance(module, _BATCH_NORMS) and not frozen_statistics:
            module.train()
            notes.append("batch norm uses the statistics of each batch (batch_norm='train')")
        elif isinstance(module, _BATCH_NORMS) and module.training:
            require(
                module.running_mean is not None,
                "batch norm must have running statistics, so that it can be frozen",
                f"{type(module).__name__} has none",
                "Build it with track_running_stats=True and run the data through once, or pass batch_norm='train'",
            )
            module.eval()
            notes.append("batch norm is frozen, with its running statistics")
    for module in [module for module in model.modules() if _has_spectral_norm(module) and module.training]:
        module.eval()
        notes.append("spectral norm is frozen, with its stored singular vectors")
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # another format of the same gradient, which cannot be differentiated again
    return notes


def _prepare_parameters(copied: nn.Module, original: nn.Module) -> None:
    """Refuse weights that are not real and finite; those that were trainable stay so, without gradients."""
    named = original.named_parameters()
    trainable = {name.replace("_orig_mod.", "") for name, parameter in named if parameter.requires_grad}
    for name, parameter in copied.named_parameters():
        must, got = "weights must be real", f"parameter '{name}' is {parameter.dtype}"
        require(not parameter.is_complex(), must, got, "Use torch.view_as_real in the forward pass")
        require(bool(torch.isfinite(parameter).all()), "weights must be finite", f"parameter '{name}' has NaN or inf")
        parameter.grad = None
        parameter.requires_grad_(name in trainable)  # the copy of a scripted module made without gradients has none


def _recomputed_weights(model: nn.Module) -> dict[int, Tensor]:
    """Copies of the weights that pruning and the older weight norm keep as attributes and recompute before every call:
    they are no leaves once the model was run, and cannot be copied as they are."""
    found = {}
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            name = getattr(hook, "name", getattr(hook, "_tensor_name", None))
            weight = module.__dict__.get(name) if isinstance(name, str) else None
            if isinstance(weight, Tensor) and not weight.is_leaf:
                found[id(weight)] = weight.detach().clone()
    return found


def _is_compiled(module: nn.Module) -> bool:
    """Whether ``torch.compile(module)`` made it, or ``module.compile()`` was called."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _uncompiled_model(model: nn.Module) -> nn.Module:
    """A private copy whose modules are called as they were written, under the names that they had."""
    for module in list(model.modules()):
        module._compiled_call_impl = None
        for name, child in list(module.named_children()):
            if hasattr(child, "_orig_mod"):
                setattr(module, name, child._orig_mod)
    return model


def _has_spectral_norm(module: nn.Module) -> bool:
    by_hook = any(type(hook).__name__ == "SpectralNorm" for hook in module._forward_pre_hooks.values())
    return by_hook or type(module).__name__ == "_SpectralNorm"


def refuse_shards(model: nn.Module) -> None:
    """Parameters that other processes have a part of cannot be copied into one."""
    sharding = sys.modules.get("torch.distributed.tensor")  # a second to import: without it nothing is sharded
    for name, parameter in model.named_parameters():
        if sharding is not None and isinstance(parameter, sharding.DTensor):
            must = "a problem copies its model, which needs all of its parameters in this process"
            got = f"parameter '{name}' is sharded (FSDP2 or tensor parallel)"
            remedy = "Use hm.sharded_hessian(model, loss, data), which uses the model in place"
            raise UnsupportedNetwork(sentence(must, got, remedy))


def refuse_what_cannot_be_copied(model: nn.Module, may_be_random: bool) -> None:
    for name, module in model.named_modules():
        is_dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
        if is_dropout and not may_be_random:
            must = "dropout must be off, because it makes the Hessian random"
            got = f"layer '{name}' is {type(module).__name__}(p={module.p}) in train mode"
            raise InvalidInput(sentence(must, got, "Call model.eval() first, or pass randomness='fixed'"))
    for name, parameter in model.named_parameters():
        must = "every parameter must have its values"
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            got = f"parameter '{name}' belongs to a lazy module that has not seen an input"
            raise InvalidInput(sentence(must, got, "Call the model once on a batch first"))
        if parameter.is_meta:
            got = f"parameter '{name}' is on the meta device"
            raise InvalidInput(sentence(must, got, "Load the weights first, for example with model.to_empty"))


def chosen_format(
    model: nn.Module, given: torch.dtype | None, device: torch.device
) -> tuple[torch.dtype, tuple[str, ...]]:
    """float64 up to a million trainable parameters on devices that have it, the model's own format above."""
    if given is not None:
        require(given in _FORMATS, "dtype must be torch.float32 or torch.float64", f"got {given}")
        must, got = "dtype must be one that the device has", f"{device} has no float64"
        require(given == torch.float32 or has_float64(device), must, got, "Use dtype=torch.float32")
        return given, ()
    if not has_float64(device):
        return torch.float32, (f"computed in float32 with compensated sums, because {device} has no float64",)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    count = num_trainable(model)
    if count <= LARGEST_IN_FLOAT64:
        return torch.float64, ()
    own = torch.float64 if trainable[0].dtype == torch.float64 else torch.float32
    name = str(own).removeprefix("torch.")
    return own, (f"computed in {name}, because there are {count:,} trainable parameters; dtype= overrides it",)


def checked_device(model: nn.Module, given: torch.device | str | None) -> torch.device:
    """The model's own device, or the wanted one if it is here."""
    own = next(iter(model.parameters()), torch.empty(0)).device
    try:
        device = own if given is None else torch.device(given)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        got = f"{given!r} gave: {str(error).splitlines()[0]}"
        raise InvalidInput(sentence("device must be available to torch", got)) from error
    return device


def num_trainable(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def is_small_for_its_device(model: object, data: object) -> bool:
    """Whether a model on an accelerator has so few parameters and data that the CPU is faster, by their numbers alone.

    Data that is not in memory (a loader, a data set) counts as large: it may be prepared on the device.
    """
    if not isinstance(model, nn.Module) or checked_device(model, None).type in ("cpu", "meta"):
        return False
    entries = _num_entries(data)
    return entries is not None and entries <= _MOST_SMALL_DATA and num_trainable(model) <= _MOST_SMALL_PARAMETERS


def _num_entries(data: object) -> int | None:
    """Numbers in tensors and arrays, also in tuples, lists and dictionaries of them; None if there is anything else."""
    if data is None or isinstance(data, Tensor | np.ndarray):
        return 0 if data is None else int(np.prod(data.shape))
    if not isinstance(data, tuple | list | Mapping):
        return None
    counts = [_num_entries(part) for part in (data.values() if isinstance(data, Mapping) else data)]
    return None if None in counts else sum(count for count in counts if count is not None)


def selected_names(
    patterns: str | Sequence[str] | None, names: Sequence[str], frozen: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names that one of the patterns means, in their own order: a name, a glob, or a layer that has them.

    Args:
        patterns: Patterns, one pattern, or None for all names.
        names: Names of trainable parameters.
        frozen: Names of other parameters, for errors. Defaults to none.

    Returns:
        The chosen names.

    >>> selected_names(["*.bias", "2"], ["0.weight", "0.bias", "2.weight", "20.weight"])
    ('0.bias', '2.weight')
    """
    if patterns is None:
        return tuple(names)
    wanted = [patterns] if isinstance(patterns, str) or not isinstance(patterns, Sequence) else list(patterns)
    require(bool(wanted), "parameters must name at least one parameter", "the list is empty")
    for pattern in wanted:
        require(isinstance(pattern, str), "parameters must be given by name", f"got a {type(pattern).__name__}")
        if any(_means(pattern, name) for name in names):
            continue
        frozen_matches = [name for name in frozen if _means(pattern, name)]
        must = "parameters must be trainable to be differentiated"
        got = f"'{pattern}' means {', '.join(frozen_matches[:3])}, frozen"
        require(not frozen_matches, must, got, "Set requires_grad=True")
        raise unknown_name("parameters", pattern, list(names) + _layers(names))
    return tuple(name for name in names if any(_means(pattern, name) for pattern in wanted))


class ChosenParameters(NamedTuple):
    """The parameters that are differentiated, and all others, both without gradient."""

    named: dict[str, Tensor]
    fixed: dict[str, Tensor]
    num_left_out: int


def chosen_parameters(model: nn.Module, patterns: str | Sequence[str] | None) -> ChosenParameters:
    """Choose among the trainable parameters of a private copy, and freeze it.

    ``num_left_out`` counts the trainable ones that no pattern means.
    """
    everything = {name: value for name, value in model.named_parameters() if value.numel()}
    trainable = [name for name, value in everything.items() if value.requires_grad]
    must = "the model must have a parameter to differentiate"
    require(bool(trainable), must, "all are frozen, or there is none")
    chosen = selected_names(patterns, trainable, [name for name in everything if name not in trainable])
    for value in everything.values():
        value.requires_grad_(False)
    named = {name: everything[name].detach() for name in chosen}
    fixed = {name: value.detach() for name, value in everything.items() if name not in chosen}
    return ChosenParameters(named, fixed, len(trainable) - len(chosen))


def _means(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _layers(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))


_TORCH = str(Path(torch.__file__).parent)
_COPYING = (copy.__file__, copyreg.__file__)


def is_raised_in_torch(error: BaseException) -> bool:
    """Whether the innermost frame is torch's, of its Python code or of what that calls."""
    last = innermost(error)
    return last is not None and last.tb_frame.f_code.co_filename.startswith(_TORCH)


def is_raised_in_copying(error: BaseException) -> bool:
    """Whether ``copy.deepcopy`` or torch raised it, and not a method of what is copied."""
    last = innermost(error)
    return last is not None and (is_raised_in_torch(error) or last.tb_frame.f_code.co_filename in _COPYING)


def innermost(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
