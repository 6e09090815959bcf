"""Nothing of the user's changes: a private copy of the model, and random states that are put back."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence

_INSTANCE_NORM = nn.modules.instancenorm._InstanceNorm
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm, _INSTANCE_NORM)


@contextmanager
def random_state_kept(seed: int | None = None, generator: torch.Generator | None = None) -> Iterator[None]:
    """Run with the global random states (seeded if asked) and put python's, numpy's and torch's back afterwards."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one is meant
    own_state = generator.get_state() if generator is not None else None
    with torch.random.fork_rng(devices=[]):
        try:
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
                torch.manual_seed(seed)
                if generator is not None:
                    generator.manual_seed(seed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            if generator is not None and own_state is not None:
                generator.set_state(own_state)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """weight * (gain / norm); with dim=-1 one norm for the whole weight."""
    norm: Tensor = torch.linalg.vector_norm(v, dim=[axis for axis in range(v.ndim) if axis != dim], keepdim=True)
    return v * (g / norm)


def _silu(input: Tensor, inplace: bool = False) -> Tensor:
    return input * torch.sigmoid(input)


# What torch differentiates twice wrongly (weight_norm: not symmetric) or not in forward mode (silu).
_WRITTEN_OUT: dict[Callable[..., Any], Callable[..., Any]] = {torch._weight_norm: _weight_norm, F.silu: _silu}


_ATTENTION = (F.scaled_dot_product_attention, F.multi_head_attention_forward)
_ATTENTION_NOTE = "attention was taken by torch's math kernel, because the fused ones have no second derivative"


class _WrittenOut(TorchFunctionMode):
    """Some operations of torch by their formulas; what is worth a note is added to ``said``."""

    def __init__(self, said: set[str] | None = None) -> None:
        super().__init__()
        self.said = said

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.said is not None and func in _ATTENTION:
            self.said.add(_ATTENTION_NOTE)
        return _WRITTEN_OUT.get(func, func)(*args, **(kwargs or {}))


@contextmanager
def twice_differentiable(said: set[str] | None = None) -> Iterator[None]:
    """Attention by torch's math kernel, because the fused ones have no second derivative, and some operations written
    out; a note on attention is added to ``said``."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _WrittenOut(said):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def private_copy(
    model: nn.Module, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy in a number format (float64) and on a device (its own), with frozen batch-norm, and notes on
    what was changed in it.

    Dropout that is switched on is refused: it would make the Hessian a random variable.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0:
            must = "dropout must be off, because it makes the Hessian random"
            got = f"layer '{name}' is {type(module).__name__}(p={module.p}) in train mode"
            raise InvalidInput(sentence(must, got, "Call model.eval() first"))
    notes = []
    dtypes = {parameter.dtype for parameter in model.parameters()} - {dtype}
    if dtypes:
        names = ", ".join(sorted(str(other).removeprefix("torch.") for other in dtypes))
        change = "promoted" if dtype == torch.float64 else "converted"
        notes.append(f"the model was {change} from {names} to {str(dtype).removeprefix('torch.')}")
    try:
        twin = copy.deepcopy(model).to(device)
        # Not .to(dtype), which would make complex buffers real.
        twin = twin.double() if dtype == torch.float64 else twin.float()
    except (RuntimeError, TypeError) as error:
        must = "the model must be copyable, so that the original stays untouched"
        raise UnsupportedNetwork(sentence(must, f"copy.deepcopy failed with: {error}")) from error
    for module in twin.modules():
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
    for name, parameter in twin.named_parameters():
        must, got = "weights must be real", f"parameter '{name}' is {parameter.dtype}"
        require(not parameter.is_complex(), must, got, "Use torch.view_as_real in the forward pass")
        require(bool(torch.isfinite(parameter).all()), "weights must be finite", f"parameter '{name}' has NaN or inf")
        parameter.grad = None
    return twin, tuple(dict.fromkeys(notes))
