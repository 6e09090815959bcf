"""Whether outputs are piecewise linear in a tensor, read off the nodes of autograd's graph.

Behind a layer whose outputs enter nothing but such operations, second derivatives of the network are zero wherever they
exist, whatever the data.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

# Nodes of torch's own operations. Piecewise linear in all tensors that enter, together:
_LINEAR = """
    Abs AdaptiveAvgPool2D AdaptiveMaxPool2D Add Alias Amax AsStrided AvgPool2D AvgPool3D Cat Clamp ClampMax ClampMin
    Clone ConstantPadNd Cumsum Diagonal Expand Flip Gather Hardshrink Hardsigmoid Hardtanh Im2Col Index IndexSelect
    LeakyRelu MaskedFill Max MaxPool2DWithIndices MaxPool3DWithIndices Maximum Mean Median Min Minimum Neg Permute
    PixelShuffle ReflectionPad1D ReflectionPad2D Relu Repeat ReplicationPad1D ReplicationPad2D ReshapeAlias Roll Rsub
    Select Slice Softshrink Sort Split SplitWithSizes Squeeze Stack Sub Sum T Threshold ToCopy Transpose Unbind Unfold
    UnsafeView Unsqueeze UpsampleBilinear2D UpsampleNearest2D View Where
"""
# Piecewise linear in any one of the tensors that enter:
_PRODUCTS = "Addmm Addmv Baddbmm Bmm Convolution Dot Linear Mm Mul Mv PreluKernel"
# Linear in the first tensor that enters:
_QUOTIENTS = "Div NativeBatchNorm"


def is_piecewise_linear(outputs: Tensor, place: Tensor) -> bool:
    """Whether every operation between a leaf and the outputs is known to be piecewise linear in it.

    False where that is not known, which says nothing.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> is_piecewise_linear(2 * torch.relu(x).sum(), x), is_piecewise_linear((x * torch.relu(x)).sum(), x)
    (True, False)
    """
    depends = _dependent_nodes(outputs.grad_fn, place)
    return all(
        _is_linear(node, [depends.get(child, False) for child, _ in node.next_functions])
        for node, is_dependent in depends.items()
        if is_dependent and getattr(node, "variable", None) is not place
    )


def _dependent_nodes(root: Any, place: Tensor) -> dict[Any, bool]:
    """Of every node before the outputs, whether it depends on a leaf; children first, without recursion."""
    depends: dict[Any, bool] = {}
    waiting = [] if root is None else [root]
    while waiting:
        node = waiting[-1]
        children = [child for child, _ in node.next_functions if child is not None]
        missing = [child for child in children if child not in depends]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        is_place = getattr(node, "variable", None) is place
        depends[node] = is_place or any(depends[child] for child in children)
    return depends


def _is_linear(node: Any, depends: list[bool]) -> bool:
    """Whether an operation is piecewise linear in the tensors that enter it and depend on the leaf."""
    name = node.name().rstrip("0123456789")
    if name == node.name():  # a user's autograd.Function, whose node has no number
        return False
    name = name.removesuffix("Backward")
    if name in _QUOTIENTS.split():
        is_frozen = name == "Div" or node._saved_training is False
        return is_frozen and not any(depends[1:])
    return name in _LINEAR.split() or (name in _PRODUCTS.split() and sum(depends) == 1)
