"""Nothing of the user's changes: a private copy of the model, checked and made ready to be differentiated."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hessmap.curvature.error_origin import is_raised_in_copying
from hessmap.curvature.memory import is_out_of_memory
from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence

LARGEST_IN_FLOAT64 = 1_000_000  # trainable parameters up to which a model is copied in float64
_FORMATS = (torch.float32, torch.float64)
_INSTANCE_NORM = nn.modules.instancenorm._InstanceNorm
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, _INSTANCE_NORM)


def private_copy(
    model: nn.Module, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy in a number format (float64) and on a device (its own), with frozen batch-norm, and notes on
    what was changed in it.

    Dropout that is switched on is refused: it would make the Hessian a random variable.
    """
    _refuse_what_cannot_be_copied(model)
    notes = []
    if any(_is_compiled(module) for module in model.modules()):
        notes.append("compiled modules were taken as they were before torch.compile")
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
        must = "the model must be copyable, so that the original stays as it is"
        raise UnsupportedNetwork(sentence(must, f"copy.deepcopy failed with: {error}")) from error
    notes += _freeze_statistics(copied)
    _prepare_parameters(copied, original)
    return copied, tuple(dict.fromkeys(notes))


def _freeze_statistics(model: nn.Module) -> list[str]:
    """Have normalisations use what they have stored, and gradients of embeddings be dense; notes on what was frozen."""
    notes = []
    for module in model.modules():
        if isinstance(module, _INSTANCE_NORM) and module.running_mean is None:
            continue  # it looks at one sample at a time, in both modes
        if isinstance(module, _BATCH_NORMS) and module.training:
            require(
                module.running_mean is not None,
                "batch-norm must have running statistics, so that it can be taken frozen",
                f"{type(module).__name__} has none",
                "Build it with track_running_stats=True and run the data through once",
            )
            module.eval()
            notes.append("batch-norm was taken frozen, with its running statistics")
    for module in [module for module in model.modules() if _has_spectral_norm(module) and module.training]:
        module.eval()
        notes.append("spectral norm was taken frozen, with its stored singular vectors")
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
    """Copies of the weights that pruning and the older weight norm keep as attributes and make anew before every call:
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


def _refuse_what_cannot_be_copied(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0:
            must = "dropout must be off, because it makes the Hessian random"
            got = f"layer '{name}' is {type(module).__name__}(p={module.p}) in train mode"
            raise InvalidInput(sentence(must, got, "Call model.eval() first"))
    for name, parameter in model.named_parameters():
        must = "every parameter must have its values"
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            got = f"parameter '{name}' belongs to a lazy module that has not seen an input"
            raise InvalidInput(sentence(must, got, "Call the model once on a batch first"))
        if parameter.is_meta:
            got = f"parameter '{name}' is on the meta device"
            raise InvalidInput(sentence(must, got, "Load the weights first, for example with model.to_empty"))


def chosen_format(model: nn.Module, given: torch.dtype | None) -> tuple[torch.dtype, tuple[str, ...]]:
    """float64 up to a million trainable parameters, the model's own format above."""
    if given is not None:
        require(given in _FORMATS, "dtype must be torch.float32 or torch.float64", f"got {given}")
        return given, ()
    _refuse_what_cannot_be_copied(model)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    count = sum(parameter.numel() for parameter in trainable)
    if count <= LARGEST_IN_FLOAT64:
        return torch.float64, ()
    own = torch.float64 if trainable[0].dtype == torch.float64 else torch.float32
    name = str(own).removeprefix("torch.")
    return own, (f"computed in {name}, because there are {count:,} trainable parameters; dtype= says otherwise",)


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
        raise InvalidInput(sentence("device must be one that torch has here", got)) from error
    return device
