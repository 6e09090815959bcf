"""Products by traced graphs, run as they are or compiled, where that pays: predicted from one product, then measured.

Nothing of a product but its matrix products and convolutions needs to take long: a compiler makes a few loops of all
the small operations between them. That takes it from half a minute to minutes, so it is for many products.
"""

from __future__ import annotations

import copy
import os
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hessmap.curvature.agreement import disagreement, random_vector, tolerance
from hessmap.curvature.batch_graph import PRODUCTS, BatchGraph, RowProduct
from hessmap.curvature.fallbacks import is_answerable
from hessmap.curvature.graph_memory import batch_bytes, bytes_per_sample
from hessmap.curvature.memory import readable_bytes
from hessmap.curvature.nested_tensors import take_rows
from hessmap.curvature.samples import HeldSamples
from hessmap.curvature.traced_graph import FoldedGraph, NotTraceable, folded_graph, held_bytes

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

# Seconds for each operation of a product, on two quiet cores; the margin is for others.
_SECONDS_TO_TRACE, _SECONDS_TO_COMPILE, _SECONDS_AT_FIRST = 0.0025, 0.035, 5.0
_SAVED = 0.7  # of the seconds between the matrix products
_MARGIN = 1.5  # by which the seconds saved must exceed those spent
_HEAVY = {
    *(torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm, torch.ops.aten.baddbmm),
    *(torch.ops.aten.convolution, torch.ops.aten.convolution_backward),
}


@dataclass(frozen=True)
class TracedProducts:
    """Products of all batches, one row at a time, and what is to be said of them."""

    products: list[RowProduct]
    note: str
    is_compiled: bool


class OperationTimes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The seconds of matrix products and convolutions, and those of everything else, while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heavy = self.light = 0.0
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.perf_counter()
        found = func(*args, **(kwargs or {}))
        spent = time.perf_counter() - start
        self.count += 1
        if getattr(func, "overloadpacket", None) in _HEAVY:
            self.heavy += spent
        else:
            self.light += spent
        return found


def pays(product: Callable[[], object], num_batches: int, num_products: int) -> bool:
    """Whether so many products, each like this one over that many batches, save more by a compiler than it takes."""
    if not has_compiler():
        return False
    with OperationTimes() as times:
        product()
    operations = times.count / num_batches
    spent = _SECONDS_AT_FIRST + operations * (_SECONDS_TO_COMPILE + num_batches * _SECONDS_TO_TRACE)
    return bool(num_products * _SAVED * times.light > _MARGIN * spent)


def least_seconds() -> float:
    """What products must take together to be worth asking whether a compiler pays."""
    return _MARGIN * _SECONDS_AT_FIRST / _SAVED


def has_compiler() -> bool:
    """Whether torch finds a C++ compiler."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)


def why_not_traceable(problem: Problem) -> str | None:
    """The reason for which a problem keeps to the plain way, if there is one that is seen without trying."""
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
    row = random_vector(problem.num_parameters)[None].to(problem.parameters)
    expected = _plain_product(problem, kind, len(graphs))(row)
    products = [_product(graph, function if graph.signature == graphs[0].signature else None) for graph in graphs]
    if disagreement(products[0](row), expected) > tolerance(problem.dtype):
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
    return PRODUCTS[kind](BatchGraph(problem, _batches(problem, num_batches)[0], together=False))


def _folded_batches(problem: Problem, kind: str) -> list[FoldedGraph]:
    row = random_vector(problem.num_parameters)[None].to(problem.parameters)
    batches = _batches(problem, _num_batches(problem))
    return [folded_graph(PRODUCTS[kind](BatchGraph(problem, batch, together=False)), row) for batch in batches]


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

    return problem.find_once(f"compiled {graph.signature}", compile_graph)


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
