"""From a torch model with convolutions or patches back to its architecture."""

from __future__ import annotations

from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork, sentence
from hessmap.networks.activations import Activation
from hessmap.networks.convolutional import Convolutional
from hessmap.networks.locally_connected import LocallyConnected
from hessmap.networks.module_tree import Named, Rules

_RULES = Rules(
    "a convolutional network is nn.Unflatten(1, (channels, length)), nn.Conv1d layers with one activation after each,"
    " nn.Flatten and one nn.Linear",
    "Such a network can be measured (Problem, loss_hessian, certified_rank), but has no formula by its sizes",
)


def describe_patches(layers: list[Named]) -> Convolutional | LocallyConnected:
    """The architecture of a chain of layers that holds an nn.Conv1d or an nn.Unflatten."""
    shape, (*hidden, dense), following = _stages(layers)
    _RULES.refuse_shared([*hidden, dense])
    biases = [layer.bias is not None for _, layer in (*hidden, dense)]
    activation = _RULES.shared_activation(following)
    (name, first), *others = hidden
    is_local = isinstance(first, nn.Linear) or (isinstance(first, nn.Conv1d) and first.groups > 1)
    if not is_local:
        return _convolutional(shape, hidden, dense, biases, activation)
    if others:
        _RULES.refuse(*others[0], "follows filters on patches, which are described as a first layer only")
    for (place, layer), bias in zip((*hidden, dense), biases, strict=True):
        if bias:
            _RULES.refuse(place, layer, "has a bias, and a locally connected network has none")
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
                _RULES.refuse(name, layer, f"gives dimension {layer.dim} the shape {tuple(layer.unflattened_size)}")
            shape = tuple(int(size) for size in layer.unflattened_size)
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and weighted and not is_flat:
            is_flat = True
        elif (type(layer) is nn.Conv1d and not is_flat) or (type(layer) is nn.Linear and (is_flat or not weighted)):
            weighted.append((name, layer))
            following.append([])
        elif type(layer) is nn.Linear:
            _RULES.refuse(name, layer, "has no nn.Flatten before it")
        elif (activation := _RULES.activation(name, layer)) != "identity":
            if not weighted:
                _RULES.refuse(
                    name, layer, "stands before the first layer with weights", "Apply it to the inputs instead"
                )
            following[-1].append((f"{name} ({type(layer).__name__})", activation))
    if not is_flat or len(weighted) < 2 or [type(layer) for _, layer in weighted[1:]].count(nn.Linear) != 1:
        kinds = ", ".join(type(layer).__name__ for _, layer in weighted)
        flat = "an" if is_flat else "no"
        got = f"the layers with weights are {kinds or 'none'}, with {flat} nn.Flatten between"
        raise UnsupportedNetwork(sentence(_RULES.must, got, _RULES.otherwise))
    _RULES.refuse_final(following.pop())
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
            _RULES.refuse(name, layer, got)
        if channels and channels[-1] != layer.in_channels:
            mismatch = f"takes {layer.in_channels} channels, the layer before gives {channels[-1]}"
            _RULES.refuse(name, layer, mismatch, "The model cannot run as it stands")
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
        _RULES.refuse(*dense, got, "The model cannot run as it stands")
    if shape[0] != channels[0] or net.widths[-2] != dense[1].in_features:
        got = f"takes {dense[1].in_features} inputs, inputs of shape {shape} arrive with {net.widths[-2]}"
        _RULES.refuse(*dense, got, "The model cannot run as it stands")
    return net


def _padding(name: str, layer: nn.Conv1d) -> int:
    """The zeros on either side; torch's "valid" and, for an odd kernel, "same" are such numbers."""
    if not isinstance(layer.padding, str):
        return int(layer.padding[0])
    if layer.padding == "same" and layer.kernel_size[0] % 2 == 0:
        _RULES.refuse(name, layer, "has padding 'same' and an even kernel: more zeros on one side")
    return layer.kernel_size[0] // 2 if layer.padding == "same" else 0


def _length(
    hidden: list[Named], dense: Named, filters: int, kernels: list[int], strides: list[int], paddings: list[int]
) -> int:
    """The input length that follows from the dense layer, where all strides are 1."""
    assert isinstance(dense[1], nn.Linear)
    for (name, layer), stride in zip(hidden, strides, strict=True):
        if stride > 1:
            got = "has a stride, so the length of the inputs does not follow from the layers"
            _RULES.refuse(name, layer, got, "Begin the model with nn.Unflatten(1, (channels, length))")
    lost = sum(kernel - 1 - 2 * padding for kernel, padding in zip(kernels, paddings, strict=True))
    return dense[1].in_features // filters + lost


def _locally_connected(
    shape: tuple[int, ...] | None, first: Named, dense: Named, activation: Activation
) -> LocallyConnected:
    name, layer = first
    assert isinstance(dense[1], nn.Linear)
    if shape is None:
        _RULES.refuse(
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
        _RULES.refuse(name, layer, got)
    shared = isinstance(layer, nn.Linear)
    return LocallyConnected(patches, size, filters, dense[1].out_features, shared, activation)
