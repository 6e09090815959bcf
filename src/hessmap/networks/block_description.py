"""From a torch model of residual blocks, or of one layer of self-attention, back to its architecture."""

from __future__ import annotations

from torch import nn

from hessmap.networks.activations import Activation
from hessmap.networks.module_tree import Named, Rules, sequential_layers
from hessmap.networks.residual import End, Residual
from hessmap.networks.residual_module import ResidualBlock
from hessmap.networks.self_attention import SelfAttention
from hessmap.networks.self_attention_module import AttentionModule

BLOCKS = (AttentionModule, ResidualBlock)
_RULES = Rules(
    "the networks of blocks that are known are one layer of linear self-attention, and equal residual blocks of linear"
    " layers without bias, between such layers",
    "Such a network can be measured (Problem, loss_hessian), but has no formula by its widths",
)


def describe_blocks(layers: list[Named]) -> SelfAttention | Residual:
    """The architecture of layers some of which are blocks; a refusal for all else.

    >>> print(describe_blocks(sequential_layers(SelfAttention(4, 2).build(), _RULES)))
    attention-4-2-2
    """
    name, first = layers[0]
    if isinstance(first, AttentionModule):
        if len(layers) > 1 or first.temperature is not None:
            _RULES.refuse(name, first, "has a softmax, or layers behind it")
        return first.architecture
    return _describe_residual(layers)


def _describe_residual(layers: list[Named]) -> Residual:
    _RULES.refuse_shared(layers)
    blocks = [layer for _, layer in layers if isinstance(layer, ResidualBlock)]
    places = [place for place, (_, layer) in enumerate(layers) if type(layer) is ResidualBlock]
    if not blocks or places != list(range(places[0], places[0] + len(blocks))):
        _RULES.refuse(*layers[0], "is part of a network with something between its blocks")
    kinds = {_block_kind(*layers[place]) for place in places}
    if len(kinds) > 1:
        _RULES.refuse(*layers[places[0]], "is not like the other blocks")
    ((width, inner, activation),) = kinds
    before, behind = layers[: places[0]], layers[places[-1] + 1 :]
    input_dim, output_dim = (_end(end, is_first, width) for end, is_first in ((before, True), (behind, False)))
    trained: dict[End, bool] = {"input": _is_trained(before), "output": _is_trained(behind)}
    return Residual(
        width,
        len(blocks),
        inner_width=inner,
        input_dim=input_dim,
        output_dim=output_dim,
        trained_ends=[end for end, is_trained in trained.items() if is_trained],
        activation=activation,
    )


def _block_kind(name: str, block: nn.Module) -> tuple[int, int | None, Activation]:
    """Width, inner width and activation of a block."""
    assert isinstance(block, ResidualBlock)
    down, up = block.down, block.up
    for layer in (down, block.activation, up):
        if layer is not None:
            sequential_layers(layer, _RULES)
    if not _is_plain(down) or not (up is None or _is_plain(up)):
        _RULES.refuse(name, block, "holds more than linear layers without bias")
    assert isinstance(down, nn.Linear)
    last = down if up is None else up
    assert isinstance(last, nn.Linear)
    if down.in_features != last.out_features or (up is not None and down.out_features != last.in_features):
        _RULES.refuse(name, block, "has layers that do not fit", "The model cannot run as it stands")
    activation = _RULES.activation(f"{name}.activation", block.activation)
    return down.in_features, None if up is None else down.out_features, activation


def _end(layers: list[Named], is_first: bool, width: int) -> int:
    """The width of an end: that of the blocks, or of the linear layer that is there."""
    if not layers:
        return width
    name, layer = layers[0]
    if len(layers) > 1 or not _is_plain(layer):
        _RULES.refuse(name, layer, "is no single linear layer without bias")
    assert isinstance(layer, nn.Linear)
    inside, outside = layer.in_features, layer.out_features
    inside, outside = (outside, inside) if is_first else (inside, outside)
    if inside != width:
        _RULES.refuse(name, layer, f"meets blocks of width {width}", "The model cannot run as it stands")
    if outside == width and not layer.weight.requires_grad:
        _RULES.refuse(name, layer, "is frozen and square")
    return outside


def _is_plain(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and type(layer) is nn.Linear and layer.bias is None


def _is_trained(layers: list[Named]) -> bool:
    return any(parameter.requires_grad for _, layer in layers for parameter in layer.parameters())
