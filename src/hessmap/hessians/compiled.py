"""Products by traced graphs, run as they are or compiled, for problems with ``compile=True``.

The gradient is built eagerly and only its derivative is traced, so that data-dependent control flow is allowed:
branches and masks that depend on the data are over by then. What the vector does not enter is evaluated once.

Apart from matrix products and convolutions, nothing in a product needs to take long: a compiler fuses the small
operations between them into a few loops. Compiling takes half a minute to minutes, so it is for many products.
"""

from __future__ import annotations

import copy
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Node, map_arg

from hessmap.linalg import checked_shortcut, is_answerable, random_vector, readable_bytes
from hessmap.problem import PRODUCTS, BatchGraph, HeldSamples, batch_bytes, bytes_per_sample, take_rows

if TYPE_CHECKING:
    from hessmap.problem import Problem


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


@dataclass(frozen=True)
class TracedProducts:
    """Products of all batches, one row at a time, and what is to be said of them."""

    products: list[RowProduct]
    note: str
    is_compiled: bool


def has_compiler() -> bool:
    """Whether torch finds a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)


def why_not_traceable(problem: Problem) -> str | None:
    """Why tracing is ruled out beforehand, or None."""
    if not isinstance(problem.samples, HeldSamples):
        return "the data are streamed"
    if problem.device.type != "cpu":
        return f"the device is {problem.device.type}"
    needed = problem.num_samples * bytes_per_sample(problem)
    if needed > problem.memory_budget // 2:
        return f"its constants need about {readable_bytes(needed)}, more than half of the memory budget"
    return None


def traced_products(problem: Problem, kind: str) -> TracedProducts:
    """Trace every batch, compile the graph of the first, check it against autograd.

    Raises ``NotTraceable`` with the reason where one of these fails.
    """
    reason = why_not_traceable(problem)
    if reason is not None:
        raise NotTraceable(reason)
    start = time.perf_counter()
    graphs = _folded_batches(problem, kind)
    seconds_traced = time.perf_counter() - start
    held = held_bytes(graphs, problem.named.values())
    if held > problem.memory_budget // 2:
        raise NotTraceable(f"its constants need {readable_bytes(held)}, more than half of the memory budget")
    start = time.perf_counter()
    function, why = _compiled(problem, graphs[0])
    seconds_compiled = time.perf_counter() - start
    row = random_vector(problem.num_parameters, problem.dtype)[None].to(problem.device)
    products = [_product(graph, function if graph.signature == graphs[0].signature else None) for graph in graphs]
    if not checked_shortcut(lambda: products[0](row), lambda: _plain_product(problem, kind, len(graphs))(row)):
        raise NotTraceable("the traced product disagrees with autograd's")
    how = f"compiled in {seconds_compiled:.1f} s" if function else f"not compiled ({why})"
    what = f"{graphs[0].num_operations} operations, constants of {readable_bytes(held)}"
    note = f"products of the {kind} curvature: traced in {seconds_traced:.1f} s, {how} ({what})"
    return TracedProducts(products, note, function is not None)


def _batches(problem: Problem, count: int) -> list[tuple[Any, Tensor, Tensor]]:
    """The held samples in batches of one size: the last one takes samples again, with a weight of zero."""
    samples = problem.samples
    assert isinstance(samples, HeldSamples)
    size = -(-problem.num_samples // count)
    batches = []
    for start in range(0, problem.num_samples, size):
        first = min(start, problem.num_samples - size)
        place = slice(first, first + size)
        weights = problem.weights[place].clone()
        weights[: start - first] = 0
        batches.append((take_rows(samples.inputs, place), samples.targets[place], weights))
    return batches


def _num_batches(problem: Problem) -> int:
    most = min(batch_bytes(problem), problem.memory_budget // 4)
    return min(problem.num_samples, -(-problem.num_samples * bytes_per_sample(problem) // most))


def _plain_product(problem: Problem, kind: str, num_batches: int) -> RowProduct:
    return PRODUCTS[kind](BatchGraph(problem, _batches(problem, num_batches)[0], vectorised=False))


def _folded_batches(problem: Problem, kind: str) -> list[FoldedGraph]:
    row = random_vector(problem.num_parameters, problem.dtype)[None].to(problem.device)
    batches = _batches(problem, _num_batches(problem))
    return [folded_graph(PRODUCTS[kind](BatchGraph(problem, batch, vectorised=False)), row) for batch in batches]


def _compiled(problem: Problem, graph: FoldedGraph) -> tuple[Callable[..., Any] | None, str]:
    """The graph as one function of the row and the constants, or why there is none; once for a problem."""
    if not has_compiler():
        return None, "there is no C++ compiler"

    def compile_graph() -> tuple[Callable[..., Any] | None, str]:
        import torch._inductor

        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given: list[Any] = [problem.parameters[None].detach(), *graph.constants]
                module = copy.deepcopy(graph.module)  # which the compiler rewrites
                function: Callable[..., Any] = torch._inductor.compile(module, given)
                function(*given)
        except Exception as error:  # a compiler that is broken, or an operation that it has no code for
            if not is_answerable(error):
                raise
            return None, f"the compiler failed, {type(error).__name__}"
        return function, ""

    return problem.cached(f"compiled {graph.signature}", compile_graph)


def _product(graph: FoldedGraph, function: Callable[..., Any] | None) -> RowProduct:
    run = graph.module if function is None else function
    constants = graph.constants
    kept = {constant.untyped_storage().data_ptr() for constant in constants}

    @torch.no_grad()
    def product(rows: Tensor) -> Tensor:
        images = [run(row[None], *constants) for row in rows]
        images = [image[0] if isinstance(image, list | tuple) else image for image in images]
        place = images[0].untyped_storage().data_ptr() if len(images) == 1 else None
        is_new = place is not None and place not in kept and place != rows.untyped_storage().data_ptr()
        return images[0] if is_new else torch.cat(images)  # a copy of ten million entries takes its time

    return product
