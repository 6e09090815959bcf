"""A product with a vector as a graph of torch's operations: traced once, and what the vector does not enter evaluated.

The gradient is built eagerly and only its derivative is traced, so that a forward pass may do what it likes: branches
and masks that depend on the data are over by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Node, map_arg

from hessmap.curvature.fallbacks import is_answerable

RowProduct = Callable[[Tensor], Tensor]
_aten = torch.ops.aten
_SAME = {_aten.alias.default, _aten.detach.default}
_ZEROS = {_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default}
_LIKE = {
    **dict.fromkeys((_aten.zeros_like.default, _aten.new_zeros.default), 0),
    **dict.fromkeys((_aten.empty_like.default, _aten.new_empty.default, _aten.new_empty_strided.default), 0),
    **dict.fromkeys((_aten.ones_like.default, _aten.new_ones.default), 1),
}
_RESHAPES = {
    *(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default, _aten.expand.default, _aten.t.default),
    *(_aten.transpose.int, _aten.permute.default, _aten.unsqueeze.default, _aten.squeeze.dim, _aten.clone.default),
    *(_aten.neg.default, _aten.select.int, _aten.slice.Tensor, _aten.sum.dim_IntList),
}


class NotTraceable(Exception):
    """Why a product has no graph, in a few words."""


@dataclass(frozen=True)
class FoldedGraph:
    """A product with one row as operations of the row and of constants: ``module(row, *constants)``."""

    module: fx.GraphModule
    constants: tuple[Tensor, ...]

    def __call__(self, row: Tensor) -> Tensor:
        found: Tensor = self.module(row, *self.constants)
        return found

    @property
    def signature(self) -> str:
        """Equal for graphs of the same operations on constants of the same shapes: one serves all batches of a size."""
        shapes = [(tuple(constant.shape), constant.stride(), constant.dtype) for constant in self.constants]
        return f"{self.module.code}{shapes}"

    @property
    def num_operations(self) -> int:
        return sum(node.op == "call_function" for node in self.module.graph.nodes)


def folded_graph(product: RowProduct, row: Tensor) -> FoldedGraph:
    """The graph of a product with one row; raises ``NotTraceable`` where torch cannot trace it or it is no function."""
    try:
        with torch.no_grad(), tracing(TracingContext(FakeTensorMode())):  # else torch makes a mode for every node
            traced = _traced(product, row)
    except Exception as error:  # whatever the model's own backward passes raise under a tracer
        if not is_answerable(error):
            raise
        raise NotTraceable(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    _drop_zeros(traced.graph)
    with torch.no_grad():
        return _folded(traced)


def _traced(product: RowProduct, row: Tensor) -> fx.GraphModule:
    """Without changes in place. Those of autograd functions in Python are found in a second pass: torch does not let
    them into the first."""
    try:
        return make_fx(functionalize(product, remove="mutations"))(row)
    except RuntimeError as error:
        if not is_answerable(error):
            raise
        first = make_fx(product)(row)
        _make_factories(first.graph)
        first.recompile()
        return make_fx(functionalize(first, remove="mutations"))(row)


def _make_factories(graph: fx.Graph) -> None:
    """Buffers that are made in the likeness of a constant, from their shape alone: torch then sees them change."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _LIKE:
            found = node.meta["tensor_meta"]
            node.target, node.args = _aten.full.default, (list(found.shape), _LIKE[node.target])
            node.kwargs = {"dtype": found.dtype, "device": node.meta["val"].device}


def held_bytes(graphs: Iterable[FoldedGraph], own: Iterable[Tensor] = ()) -> int:
    """Of all their constants, storages counted once, without those of ``own``."""
    left_out = {tensor.untyped_storage().data_ptr() for tensor in own}
    storages = (constant.untyped_storage() for graph in graphs for constant in graph.constants)
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(size for place, size in sizes.items() if place not in left_out)


def _drop_zeros(graph: fx.Graph) -> None:
    """What is zero by its making is not added; identities go as well, which have no batched form."""
    zeros: set[Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        tensors = [argument for argument in node.args if isinstance(argument, Node)]
        if node.target in _SAME:
            _replace(node, tensors[0])
        elif _is_zero(node, tensors, zeros):
            zeros.add(node)
        elif node.target is _aten.add.Tensor and len(tensors) == 2 and not node.kwargs:
            left, right = tensors
            if right in zeros and _are_alike(node, left):
                _replace(node, left)
            elif left in zeros and _are_alike(node, right):
                _replace(node, right)


def _is_zero(node: Node, tensors: list[Node], zeros: set[Node]) -> bool:
    are_zero = [tensor in zeros for tensor in tensors]
    if node.target in _RESHAPES:
        return are_zero[0]
    if node.target is _aten.add.Tensor:
        return len(are_zero) == 2 and all(are_zero)
    is_filled = bool(node.target is _aten.full.default and node.args[1] == 0)
    return is_filled or node.target in _ZEROS or (node.target is _aten.mul.Tensor and any(are_zero))


def _replace(node: Node, other: Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def _are_alike(one: Node, other: Node) -> bool:
    first, second = one.meta.get("tensor_meta"), other.meta.get("tensor_meta")
    return first is not None and second is not None and (first.shape, first.dtype) == (second.shape, second.dtype)


def _folded(traced: fx.GraphModule) -> FoldedGraph:
    depends: set[Node] = set()
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or depends.intersection(node.all_input_nodes):
            depends.add(node)
    values = _evaluated(traced, depends)
    graph = fx.Graph()
    places: dict[Node, Any] = {
        node: graph.placeholder("row") for node in traced.graph.nodes if node.op == "placeholder"
    }
    constants: list[Tensor] = []
    for node, value in values.items():
        if isinstance(value, Tensor):
            places[node] = graph.placeholder(f"constant_{len(constants)}")
            constants.append(value.detach())
        else:
            places[node] = value
    for node in traced.graph.nodes:
        if node in depends and node.op != "placeholder":
            places[node] = graph.node_copy(node, lambda given: places[given])
    return FoldedGraph(fx.GraphModule({}, graph), tuple(constants))


def _evaluated(traced: fx.GraphModule, depends: set[Node]) -> dict[Node, Any]:
    """The values that what depends on the vector asks for; all others are freed on the way."""
    values: dict[Node, Any] = {}
    asked = {node for user in depends for node in user.all_input_nodes if node not in depends}
    left = {node: sum(user not in depends for user in node.users) for node in traced.graph.nodes}
    dependent_before: set[int] = set()
    for node in traced.graph.nodes:
        if node in depends:
            given = (values.get(other) for other in node.all_input_nodes)
            dependent_before |= {value.untyped_storage().data_ptr() for value in given if isinstance(value, Tensor)}
            continue
        if node.op == "get_attr":
            values[node] = getattr(traced, str(node.target))
        else:
            _require_no_change(node, values, dependent_before)
            values[node] = _call(node, values)
        for other in node.all_input_nodes:
            left[other] -= 1
            if not left[other] and other not in asked:
                del values[other]
    return {node: values[node] for node in traced.graph.nodes if node in asked}


def _call(node: Node, values: dict[Node, Any]) -> Any:
    assert callable(node.target)
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda other: values[other])
    return node.target(*args, **kwargs)


def _require_no_change(node: Node, values: dict[Node, Any], dependent_before: set[int]) -> None:
    """A constant must not be changed in place once a product has read it, nor what autograd keeps."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    changed = node.args[0]
    assert isinstance(changed, Node)
    was_read = values[changed].untyped_storage().data_ptr() in dependent_before
    if changed.op == "get_attr" or was_read:
        raise NotTraceable(f"{node.target} changes a constant in place")
