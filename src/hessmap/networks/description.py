"""From a torch model back to its architecture, of any kind that has one."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork, sentence
from hessmap.networks.activations import Activation
from hessmap.networks.architecture import Architecture
from hessmap.networks.build import AttentionModule, ResidualBlock
from hessmap.networks.convolutional import Convolutional, LocallyConnected
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.module_tree import Named, Rules, sequential_layers
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

BLOCKS = (AttentionModule, ResidualBlock)
_BLOCK_RULES = Rules(
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
            _BLOCK_RULES.refuse(name, first, "has a softmax, or layers after it")
        return first.architecture
    return _describe_residual(layers)


def _describe_residual(layers: list[Named]) -> Residual:
    _BLOCK_RULES.refuse_shared(layers)
    blocks = [layer for _, layer in layers if isinstance(layer, ResidualBlock)]
    places = [place for place, (_, layer) in enumerate(layers) if type(layer) is ResidualBlock]
    if not blocks or places != list(range(places[0], places[0] + len(blocks))):
        _BLOCK_RULES.refuse(*layers[0], "is part of a network with something between its blocks")
    kinds = {_block_kind(*layers[place]) for place in places}
    if len(kinds) > 1:
        _BLOCK_RULES.refuse(*layers[places[0]], "is not like the other blocks")
    ((width, inner, activation),) = kinds
    before, behind = layers[: places[0]], layers[places[-1] + 1 :]
    input_dim, output_dim = (_end(end, is_first, width) for end, is_first in ((before, True), (behind, False)))
    return Residual(
        width,
        len(blocks),
        inner_width=inner,
        input_dim=input_dim,
        output_dim=output_dim,
        train_input=_is_trained(before),
        train_output=_is_trained(behind),
        activation=activation,
    )


def _block_kind(name: str, block: nn.Module) -> tuple[int, int | None, Activation]:
    """Width, inner width and activation of a block."""
    assert isinstance(block, ResidualBlock)
    down, up = block.down, block.up
    for layer in (down, block.activation, up):
        if layer is not None:
            sequential_layers(layer, _BLOCK_RULES)
    if not _is_plain(down) or not (up is None or _is_plain(up)):
        _BLOCK_RULES.refuse(name, block, "holds more than linear layers without bias")
    assert isinstance(down, nn.Linear)
    last = down if up is None else up
    assert isinstance(last, nn.Linear)
    if down.in_features != last.out_features or (up is not None and down.out_features != last.in_features):
        _BLOCK_RULES.refuse(name, block, "has layers that do not fit", "The model cannot run as it stands")
    activation = _BLOCK_RULES.activation(f"{name}.activation", block.activation)
    return down.in_features, None if up is None else down.out_features, activation


def _end(layers: list[Named], is_first: bool, width: int) -> int:
    """The width of an end: that of the blocks, or of the linear layer that is there."""
    if not layers:
        return width
    name, layer = layers[0]
    if len(layers) > 1 or not _is_plain(layer):
        _BLOCK_RULES.refuse(name, layer, "is no single linear layer without bias")
    assert isinstance(layer, nn.Linear)
    inside, outside = layer.in_features, layer.out_features
    inside, outside = (outside, inside) if is_first else (inside, outside)
    if inside != width:
        _BLOCK_RULES.refuse(name, layer, f"is followed by blocks of width {width}", "The model cannot run as it stands")
    if outside == width and not layer.weight.requires_grad:
        _BLOCK_RULES.refuse(name, layer, "is frozen and square")
    return outside


def _is_plain(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and type(layer) is nn.Linear and layer.bias is None


def _is_trained(layers: list[Named]) -> bool:
    return any(parameter.requires_grad for _, layer in layers for parameter in layer.parameters())


_CONVOLUTION_RULES = Rules(
    "a convolutional network is nn.Unflatten(1, (channels, length)), nn.Conv1d layers with one activation after each,"
    " nn.Flatten and one nn.Linear",
    "Such a network can be measured (Problem, loss_hessian, certified_rank), but has no formula by its sizes",
)


def describe_patches(layers: list[Named]) -> Convolutional | LocallyConnected:
    """The architecture of a chain of layers that holds an nn.Conv1d or an nn.Unflatten."""
    shape, (*hidden, dense), following = _stages(layers)
    _CONVOLUTION_RULES.refuse_shared([*hidden, dense])
    biases = [layer.bias is not None for _, layer in (*hidden, dense)]
    activation = _CONVOLUTION_RULES.shared_activation(following)
    (name, first), *others = hidden
    is_local = isinstance(first, nn.Linear) or (isinstance(first, nn.Conv1d) and first.groups > 1)
    if not is_local:
        return _convolutional(shape, hidden, dense, biases, activation)
    if others:
        _CONVOLUTION_RULES.refuse(*others[0], "follows filters on patches, which are described as a first layer only")
    for (place, layer), bias in zip((*hidden, dense), biases, strict=True):
        if bias:
            _CONVOLUTION_RULES.refuse(place, layer, "has a bias, and a locally connected network has none")
    return _locally_connected(shape, (name, first), dense, activation)


def _stages(
    layers: list[Named],
) -> tuple[tuple[int, ...] | None, list[Named], list[list[tuple[str, Activation]]]]:
    """The shape that the inputs are given, the layers with weights, and the activations after each hidden one."""
    shape: tuple[int, ...] | None = None
    weighted: list[Named] = []
    following: list[list[tuple[str, Activation]]] = []
    is_flat = False
    for name, layer in layers:
        if type(layer) is nn.Unflatten and not weighted and shape is None:
            if layer.dim != 1 or len(layer.unflattened_size) != 2:
                _CONVOLUTION_RULES.refuse(
                    name, layer, f"gives dimension {layer.dim} the shape {tuple(layer.unflattened_size)}"
                )
            shape = tuple(int(size) for size in layer.unflattened_size)
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and weighted and not is_flat:
            is_flat = True
        elif (type(layer) is nn.Conv1d and not is_flat) or (type(layer) is nn.Linear and (is_flat or not weighted)):
            weighted.append((name, layer))
            following.append([])
        elif type(layer) is nn.Linear:
            _CONVOLUTION_RULES.refuse(name, layer, "has no nn.Flatten before it")
        elif (activation := _CONVOLUTION_RULES.activation(name, layer)) != "identity":
            if not weighted:
                _CONVOLUTION_RULES.refuse(
                    name, layer, "stands before the first layer with weights", "Apply it to the inputs instead"
                )
            following[-1].append((f"{name} ({type(layer).__name__})", activation))
    if not is_flat or len(weighted) < 2 or [type(layer) for _, layer in weighted[1:]].count(nn.Linear) != 1:
        kinds = ", ".join(type(layer).__name__ for _, layer in weighted)
        flat = "an" if is_flat else "no"
        got = f"the layers with weights are {kinds or 'none'}, with {flat} nn.Flatten between"
        raise UnsupportedNetwork(sentence(_CONVOLUTION_RULES.must, got, _CONVOLUTION_RULES.otherwise))
    _CONVOLUTION_RULES.refuse_final(following.pop())
    return shape, weighted, following


def _convolutional(
    shape: tuple[int, ...] | None, hidden: list[Named], dense: Named, biases: list[bool], activation: Activation
) -> Convolutional:
    channels: list[int] = []
    kernels, strides, paddings = [], [], []
    for name, layer in hidden:
        assert isinstance(layer, nn.Conv1d)
        padding = _padding(name, layer)
        if layer.groups > 1 or layer.dilation != (1,) or (padding and layer.padding_mode != "zeros"):
            got = f"has groups={layer.groups}, dilation={layer.dilation[0]}, padding_mode={layer.padding_mode!r}"
            _CONVOLUTION_RULES.refuse(name, layer, got)
        if channels and channels[-1] != layer.in_channels:
            mismatch = f"takes {layer.in_channels} channels, the layer before gives {channels[-1]}"
            _CONVOLUTION_RULES.refuse(name, layer, mismatch, "The model cannot run as it stands")
        channels = [*(channels or [layer.in_channels]), layer.out_channels]
        kernels.append(layer.kernel_size[0])
        strides.append(layer.stride[0])
        paddings.append(padding)
    assert isinstance(dense[1], nn.Linear)
    given_channels, length = (-1, -1) if shape is None else shape  # -1 is what torch would infer
    if length < 0:
        length = _length(hidden, dense, channels[-1], kernels, strides, paddings)
    shape = (channels[0] if given_channels < 0 else given_channels, length)
    outputs = dense[1].out_features
    try:
        net = Convolutional(shape[1], channels, kernels, strides, outputs, biases, activation, paddings)
    except InvalidInput as error:
        got = f"takes {dense[1].in_features} inputs, and so {error}".rstrip(".")
        _CONVOLUTION_RULES.refuse(*dense, got, "The model cannot run as it stands")
    if shape[0] != channels[0] or net.widths[-2] != dense[1].in_features:
        got = f"takes {dense[1].in_features} inputs, inputs of shape {shape} arrive with {net.widths[-2]}"
        _CONVOLUTION_RULES.refuse(*dense, got, "The model cannot run as it stands")
    return net


def _padding(name: str, layer: nn.Conv1d) -> int:
    """The zeros on either side; torch's "valid" and, for an odd kernel, "same" are such numbers."""
    if not isinstance(layer.padding, str):
        return int(layer.padding[0])
    if layer.padding == "same" and layer.kernel_size[0] % 2 == 0:
        _CONVOLUTION_RULES.refuse(name, layer, "has padding 'same' and an even kernel: more zeros on one side")
    return layer.kernel_size[0] // 2 if layer.padding == "same" else 0


def _length(
    hidden: list[Named], dense: Named, filters: int, kernels: list[int], strides: list[int], paddings: list[int]
) -> int:
    """The input length that follows from the dense layer, where all strides are 1."""
    assert isinstance(dense[1], nn.Linear)
    for (name, layer), stride in zip(hidden, strides, strict=True):
        if stride > 1:
            got = "has a stride, so the length of the inputs does not follow from the layers"
            _CONVOLUTION_RULES.refuse(name, layer, got, "Begin the model with nn.Unflatten(1, (channels, length))")
    lost = sum(kernel - 1 - 2 * padding for kernel, padding in zip(kernels, paddings, strict=True))
    return dense[1].in_features // filters + lost


def _locally_connected(
    shape: tuple[int, ...] | None, first: Named, dense: Named, activation: Activation
) -> LocallyConnected:
    name, layer = first
    assert isinstance(dense[1], nn.Linear)
    if shape is None:
        _CONVOLUTION_RULES.refuse(
            name,
            layer,
            "works on patches of inputs whose number is not given",
            "Begin the model with nn.Unflatten(1, (patches, patch_size))",
        )
    patches, size = shape  # -1 is what torch would infer
    if isinstance(layer, nn.Linear):
        patches = dense[1].in_features // layer.out_features if patches < 0 else patches
        size = layer.in_features if size < 0 else size
        filters, fits = layer.out_features, layer.in_features == size
    else:
        assert isinstance(layer, nn.Conv1d)
        patches = layer.in_channels if patches < 0 else patches
        size = layer.kernel_size[0] if size < 0 else size
        filters = layer.out_channels // patches
        fits = (layer.in_channels, layer.groups, layer.kernel_size[0]) == (patches, patches, size)
        fits = fits and layer.padding in ((0,), "valid")
    if not fits or dense[1].in_features != patches * filters:
        got = f"does not apply {filters} filters to each of {patches} patches of {size} inputs"
        _CONVOLUTION_RULES.refuse(name, layer, got)
    shared = isinstance(layer, nn.Linear)
    return LocallyConnected(patches, size, filters, dense[1].out_features, shared, activation)


_RULES = Rules(
    "a fully connected network is a chain of nn.Linear layers with one activation after each but the last",
    "Such a network can be measured (Problem, loss_hessian), but has no formula by its widths",
)


def describe(module: nn.Module) -> Architecture:
    """Find the architecture of a module.

    Nested Sequentials are walked; an nn.Flatten at the start, nn.Identity and dropout that is switched off are
    skipped.

    Args:
        module: An ``nn.Sequential``, or a layer of linear self-attention.

    Returns:
        The architecture; its ``build`` makes a module of the same shape.

    Raises:
        UnsupportedNetwork: If a layer is of another kind, tied, parametrised or hooked, so that its widths alone do
            not determine what it computes; the error names the layer.

    Example:
        >>> describe(nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10)))
        FullyConnected(widths=(64, 30, 10), bias=True, activation='relu')
        >>> print(describe(nn.Sequential(nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10, bias=False))))
        64-30b-10 relu
        >>> print(describe(nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 18, 10))))
        conv-1x20-8x3-10 relu bias
        >>> from hessmap.networks import Residual
        >>> print(describe(Residual(8, 3, inner_width=2, output_dim=4, train_output=True).build()))
        residual-8x3/2-4 trained_output
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedNetwork(sentence("describe needs a torch.nn.Module", f"got a {type(module).__name__}"))
    layers = sequential_layers(module, _RULES)
    if any(type(layer) in BLOCKS for _, layer in layers):
        return describe_blocks(layers)
    if any(type(layer) in (nn.Conv1d, nn.Unflatten) for _, layer in layers):
        return describe_patches(layers)
    return _describe_fully_connected(layers)


def _describe_fully_connected(layers: list[Named]) -> FullyConnected:
    linears: list[tuple[str, nn.Linear]] = []
    activations: list[list[tuple[str, Activation]]] = []
    for name, layer in layers:
        if type(layer) is nn.Linear:
            linears.append((name, layer))
            activations.append([])
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and not linears:
            continue
        elif (activation := _RULES.activation(name, layer)) != "identity":
            if not linears:
                _RULES.refuse(name, layer, "stands before the first nn.Linear", "Apply it to the inputs instead")
            activations[-1].append((f"{name} ({type(layer).__name__})", activation))
    if not linears:
        raise UnsupportedNetwork(sentence(_RULES.must, "the model holds no nn.Linear", _RULES.otherwise))
    for (before_name, before), (name, layer) in pairwise(linears):
        if before.out_features != layer.in_features:
            mismatch = f"takes {layer.in_features} inputs, layer {before_name} gives {before.out_features}"
            _RULES.refuse(name, layer, mismatch, "The model cannot run as it stands")
    _RULES.refuse_shared(linears)
    _RULES.refuse_final(activations.pop())
    return FullyConnected(
        (linears[0][1].in_features, *(layer.out_features for _, layer in linears)),
        bias=[layer.bias is not None for _, layer in linears],
        activation=_RULES.shared_activation(activations),
    )
