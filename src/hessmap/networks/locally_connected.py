"""Locally connected networks, with and without shared weights, as plain, frozen descriptions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import BaseArchitecture, read_words

if TYPE_CHECKING:
    import torch
    from torch import nn

_SHAPE = "a locally connected network must be written as 'local-5x4-3-10' or 'local-5x4-3-10 relu shared'"
_MEANING = "That is 5 patches of 4 inputs, 3 filters on each patch, 10 outputs"


@dataclass(frozen=True, init=False)
class LocallyConnected(BaseArchitecture):
    """Filters on disjoint patches of the inputs, then one dense layer.

    The activation follows the filters; there is no bias. Inputs are flat, (num_samples, patches * patch_size), patch
    by patch.

    Args:
        patches: Number of patches.
        patch_size: Inputs of a patch.
        filters: Filters on each patch.
        outputs: Number of outputs of the dense layer.
        shared_weights: Whether all patches have the same filters. Defaults to False, which is also stored for one
            patch, so that equal functions are equal objects.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".

    Example:
        >>> net = LocallyConnected(patches=5, patch_size=4, filters=3, outputs=10)
        >>> print(net)
        local-5x4-3-10
        >>> net.num_parameters, LocallyConnected(5, 4, 3, 10, shared_weights=True).num_parameters
        (210, 162)
    """

    patches: int
    patch_size: int
    filters: int
    outputs: int
    shared_weights: bool
    activation: Activation

    def __init__(
        self,
        patches: int,
        patch_size: int,
        filters: int,
        outputs: int,
        shared_weights: bool = False,
        activation: Activation = "identity",
    ) -> None:
        is_bool = isinstance(shared_weights, bool)
        require(is_bool, "shared_weights must be True or False", f"got {shared_weights!r}")
        object.__setattr__(self, "patches", checked_count("patches", patches))
        object.__setattr__(self, "patch_size", checked_count("patch_size", patch_size))
        object.__setattr__(self, "filters", checked_count("filters", filters))
        object.__setattr__(self, "outputs", checked_count("outputs", outputs))
        object.__setattr__(self, "shared_weights", shared_weights and self.patches > 1)
        object.__setattr__(self, "activation", activation_of(activation))

    @property
    def input_dim(self) -> int:
        return self.patches * self.patch_size

    @property
    def output_dim(self) -> int:
        return self.outputs

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of input, hidden layer and output."""
        return (self.input_dim, self.patches * self.filters, self.outputs)

    @property
    def num_layers(self) -> int:
        """Layers with weights: the filters and the dense one."""
        return 2

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """The number of parameters of each layer."""
        num_patches_with_own_filters = 1 if self.shared_weights else self.patches
        return (
            num_patches_with_own_filters * self.filters * self.patch_size,
            self.outputs * self.patches * self.filters,
        )

    @property
    def num_parameters(self) -> int:
        return sum(self.layer_parameters)

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Unflatten, filters, activation, Flatten, Linear, its parameters drawn from ``seed`` alone.

        The filters are an ``nn.Conv1d`` with one group per patch or, if shared (or the only patch's), one ``nn.Linear``
        applied to every patch; either way the hidden units stand patch by patch. ``init`` and ``dtype`` as for
        ``FullyConnected.build``.

        >>> model = LocallyConnected(patches=5, patch_size=4, filters=3, outputs=10).build(seed=0)
        >>> [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
        [('1.weight', (15, 1, 4)), ('4.weight', (10, 15))]
        """
        from hessmap.networks.build import build_locally_connected

        return build_locally_connected(self, seed=seed, init=init, dtype=dtype)

    def __str__(self) -> str:
        words = [f"local-{self.patches}x{self.patch_size}-{self.filters}-{self.outputs}"]
        if not self.is_linear:
            words.append(str(self.activation))
        if self.shared_weights:
            words.append("shared")
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> LocallyConnected:
        """The network that a text names as ``str`` prints it.

        >>> LocallyConnected.parse("local-5x4-3-10 shared") == LocallyConnected(5, 4, 3, 10, shared_weights=True)
        True
        """
        first, activation, flags = read_words(text, flags=("shared",))
        sizes = re.fullmatch(r"local-(\d+)x(\d+)-(\d+)-(\d+)", first)
        if sizes is None:
            raise InvalidInput(sentence(_SHAPE, f"got {text!r}", _MEANING))
        patches, patch_size, filters, outputs = (int(size) for size in sizes.groups())
        return cls(patches, patch_size, filters, outputs, shared_weights="shared" in flags, activation=activation)
