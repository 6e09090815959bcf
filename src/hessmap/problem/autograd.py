"""Products with a batch by autograd: differentiated once, and kept as a graph for vector-Jacobian products.

The parameters are leaves of their own, not slices of a flat vector, whose derivatives would each be as long as all of
them. Vectors are rows. The bytes that a sample takes while a model is differentiated twice are counted where autograd
keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode

from hessmap.linalg import checked_shortcut, empty, full_precision, is_answerable, random_vector, rows_that_fit
from hessmap.problem.data import Inputs, take_rows, tensors_with_paths

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem


RowProduct = Callable[[Tensor], Tensor]
Root = Tensor | GradientEdge  # an edge is the place of a tensor in the graph, without its values
_LONG = 2**20  # entries of a vector from which on new memory costs as much as what is written into it
_FEW = 2  # vectors that are not worth the batching


class BatchGraph:
    """The parameters of a problem as leaves, and the outputs of one batch as a function of them.

    Args:
        problem: Model, data and loss.
        batch: Inputs, targets and weights of the batch.
        vectorised: Whether products with all rows are made in one backward pass, which pays where an operation
            costs less than its call. Otherwise they are made one by one, through rewritten convolutions.
        fast: Whether operations are rewritten for speed. Defaults to whether that changes no product of this
            problem (``may_be_rewritten``), unless ``vectorised``.
        offset: A flat vector that is added to the parameters. Defaults to none.
    """

    def __init__(
        self,
        problem: Problem,
        batch: tuple[Any, Tensor, Tensor],
        vectorised: bool,
        fast: bool | None = None,
        offset: Tensor | None = None,
    ) -> None:
        """``fast`` says whether operations are rewritten for speed: where None, if that was seen to change nothing."""
        self.problem = problem
        self.inputs, self.targets, self.weights = batch
        self.vectorised = vectorised
        values = problem.named
        if offset is not None:
            values = {name: values[name] + part for name, part in problem.unflatten(offset).items()}
        self.named = {name: value.detach().requires_grad_() for name, value in values.items()}
        self.leaves = list(self.named.values())
        fast = not vectorised and may_be_rewritten(problem) if fast is None else fast
        with torch.enable_grad():
            self.outputs = problem.forward(self.named, self.inputs, fast=fast)

    def gradient(self, risk: Tensor) -> list[Tensor | None]:
        """Of a number, in the leaves, to be differentiated again."""
        if not risk.requires_grad:
            return [None] * len(self.leaves)
        with full_precision(risk.device):
            return list(torch.autograd.grad(risk, self.leaves, create_graph=True, allow_unused=True))

    def transposed_jacobian(self, cotangent: Tensor) -> list[Tensor | None]:
        """J^T of a cotangent of the outputs, to be differentiated again."""
        if not self.outputs.requires_grad:
            return [None] * len(self.leaves)
        with torch.enable_grad(), full_precision(self.outputs.device):
            return list(torch.autograd.grad(self.outputs, self.leaves, cotangent, create_graph=True, allow_unused=True))

    def forget_outputs(self) -> None:
        """A vocabulary of outputs is large: a product keeps of them what it needs."""
        self.outputs = self.outputs.new_empty(0)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows as parameters, with the rows as a first axis."""
        parts = torch.split(rows, [leaf.numel() for leaf in self.leaves], dim=1)
        return [part.reshape(-1, *leaf.shape) for part, leaf in zip(parts, self.leaves, strict=True)]

    def flat_rows(self, parts: Sequence[Tensor]) -> Tensor:
        rows = [part.reshape(len(part), -1) for part in parts]
        size = sum(row.shape[1] for row in rows)
        if size < _LONG or rows[0].device.type != "cpu" or _get_current_dispatch_mode() is not None:
            return torch.cat(rows, 1)  # also while a graph is traced
        with torch.no_grad():
            return torch.cat(rows, 1, out=empty((len(rows[0]), size), rows[0].dtype))

    def vjp(self, roots: Sequence[Root | None], places: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Cotangents (first axis: rows) of the roots, in the places; what does not depend on a place gives zero."""
        return vjp_rows(roots, places, cotangents, self.vectorised, problem=self.problem)


def has_slow_convolutions(problem: Problem) -> bool:
    """Check whether convolutions are slow: torch has no fast float64 convolution for CPUs.

    Args:
        problem: Model, data and loss.

    Returns:
        True for a problem in float64 on the CPU.
    """
    return problem.dtype == torch.float64 and problem.device.type == "cpu"


def may_be_rewritten(problem: Problem) -> bool:
    """Whether a product with the operations rewritten for speed agrees with autograd of the model as it is, on two
    samples: a model may read the strides of what a convolution returns. Found once for a problem."""
    return problem.cached("operations may be rewritten", _rewritten_products_agree, problem)


@torch.inference_mode(False)
def _rewritten_products_agree(problem: Problem) -> bool:
    if problem.device.type != "cpu":
        return False
    few = next(iter(problem.batches(2)))
    outputs: dict[bool, Tensor] = {}

    def note(error: Exception) -> None:
        problem.count_fallback("convolutions and batch norms are torch's own, which are slower", error)

    def evaluated(fast: bool) -> Tensor:
        with torch.no_grad():
            outputs[fast] = problem.forward(problem.named, few[0], fast=fast)
        return outputs[fast]

    def product(fast: bool) -> Tensor:
        row = random_vector(problem.num_parameters, problem.dtype)[None].to(problem.device)
        return loss_product(BatchGraph(problem, few, vectorised=False, fast=fast))(row)

    if not checked_shortcut(partial(evaluated, True), partial(evaluated, False), note):
        return False
    is_same = torch.equal(outputs[True], outputs[False])  # nothing to rewrite
    return is_same or checked_shortcut(partial(product, True), partial(product, False), note)


def vjp_rows(
    roots: Sequence[Root | None],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    vectorised: bool,
    *,
    side_by_side: bool = False,
    problem: Problem | None = None,
) -> list[Tensor]:
    """Vector-Jacobian products of roots with rows of cotangents; the graph stays.

    Args:
        roots: Tensors or gradient edges that are differentiated; None for what does not depend on the inputs.
        inputs: Tensors in which they are differentiated.
        cotangents: One per root, with the rows as a first axis.
        vectorised: Whether all rows are taken in one backward pass. Where an operation has no batched derivative
            they are taken one by one, which a note of the problem states.
        side_by_side: Whether the rows of a sample are adjacent in memory; their axis is the first all the same.
            Defaults to False.
        problem: Problem for that note. Defaults to none.

    Returns:
        One tensor per input, with the rows as a first axis; zero where nothing depends on it.
    """
    used = [(root, given) for root, given in zip(roots, cotangents, strict=True) if _has_graph(root)]
    count = len(cotangents[0])
    ends, given = [root for root, _ in used], [cotangent for _, cotangent in used]
    if used and vectorised and count > _FEW:
        images = _batched_images(problem, ends, inputs, given)
        return [_zeros(count, input) if image is None else image for image, input in zip(images, inputs, strict=True)]
    if used and count == 1 and not side_by_side:
        images = _images(ends, inputs, [cotangent[0] for cotangent in given])
        return [_zeros(1, input) if image is None else image[None] for image, input in zip(images, inputs, strict=True)]
    found = [_zeros(count, input, side_by_side) for input in inputs]
    for number in range(count) if used else ():
        images = _images(ends, inputs, [cotangent[number] for cotangent in given])
        for total, image in zip(found, images, strict=True):
            if image is not None:
                total[number] = image
    return found


def _has_graph(root: Root | None) -> TypeGuard[Root]:
    return isinstance(root, GradientEdge) or (root is not None and root.grad_fn is not None)


def _zeros(count: int, input: Tensor, side_by_side: bool = False) -> Tensor:
    if side_by_side:
        return input.new_zeros(len(input), count, *input.shape[1:]).transpose(0, 1)
    return input.new_zeros(count, *input.shape)


def _images(
    ends: list[Any], inputs: Sequence[Tensor], cotangents: Sequence[Tensor], are_batched: bool = False
) -> Sequence[Tensor | None]:
    with full_precision(cotangents[0].device):
        return torch.autograd.grad(
            ends, inputs, cotangents, retain_graph=True, allow_unused=True, is_grads_batched=are_batched
        )


def _batched_images(
    problem: Problem | None, ends: list[Any], inputs: Sequence[Tensor], cotangents: list[Tensor]
) -> Sequence[Tensor | None]:
    try:
        return _images(ends, inputs, cotangents, are_batched=True)
    except RuntimeError as error:  # some operations have no batched derivative (group norm, functions of one's own)
        if not is_answerable(error):
            raise
        failure = error
    single = [_images(ends, inputs, given) for given in zip(*cotangents, strict=True)]
    if problem is not None:
        problem.count_fallback("products with several vectors were made one by one", failure)
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*single, strict=True)]


def loss_product(graph: BatchGraph) -> RowProduct:
    """The Hessian is symmetric: the vjp of the gradient is the product."""
    with torch.enable_grad():
        roots = graph.gradient(graph.problem.loss.risk(graph.outputs, graph.targets, graph.weights))
    graph.forget_outputs()
    return lambda rows: graph.flat_rows(graph.vjp(roots, graph.leaves, graph.split(rows)))


def functional_product(graph: BatchGraph) -> RowProduct:
    roots = graph.transposed_jacobian(_output_gradients(graph, graph.weights))
    graph.forget_outputs()
    return lambda rows: graph.flat_rows(graph.vjp(roots, graph.leaves, graph.split(rows)))


def outer_product(graph: BatchGraph) -> RowProduct:
    def curvature() -> RowProduct:
        with torch.no_grad():
            return graph.problem.loss.hessian_product(graph.outputs.detach(), graph.targets, graph.weights)

    return _through_outputs(graph, curvature)


def empirical_product(graph: BatchGraph) -> RowProduct:
    def curvature() -> RowProduct:
        gradients, weights = _output_gradients(graph), graph.weights
        return lambda pushed: gradients * (weights * torch.einsum("no,...no->...n", gradients, pushed))[..., None]

    return _through_outputs(graph, curvature)


def _output_gradients(graph: BatchGraph, weights: Tensor | None = None) -> Tensor:
    """dloss/doutput, times the weights of the samples where they are given."""
    with torch.no_grad():
        gradients = graph.problem.loss.gradient(graph.outputs.detach(), graph.targets).to(graph.outputs.dtype)
        return gradients if weights is None else weights[:, None] * gradients


def _through_outputs(graph: BatchGraph, curvature: Callable[[], RowProduct]) -> RowProduct:
    """v -> J^T A J v with a curvature A of the outputs, which is found once the graph no longer needs their memory."""
    # J v is the vjp of the vjp: reverse mode only, which every module has. The cotangent that is differentiated is zero
    # everywhere, and takes the memory of one number.
    start = graph.outputs.detach().new_zeros(()).expand(graph.outputs.shape).requires_grad_()
    transposed = graph.transposed_jacobian(start)
    end = [get_gradient_edge(graph.outputs)] if graph.outputs.grad_fn else [None]
    curved = curvature()
    graph.forget_outputs()

    def product(rows: Tensor) -> Tensor:
        if len(rows) > 1 and not graph.vectorised:
            return torch.cat([product(row[None]) for row in rows])
        pushed = graph.vjp(transposed, [start], graph.split(rows))[0]
        return graph.flat_rows(graph.vjp(end, graph.leaves, [curved(pushed)]))

    return product


PRODUCTS: dict[str, Callable[[BatchGraph], RowProduct]] = {
    "loss": loss_product,
    "outer_product": outer_product,
    "functional": functional_product,
    "empirical_fisher": empirical_product,
}


_MIN_BYTES = 256  # of a sample, also where autograd saves none
# Sizes for two CPU cores; set by one product of ResNet18 and of GPT-2 in benchmarks/peers/rows.py.
_LARGE_GRAPH = 2**26  # bytes of a batch's graph
_TIMES_PARAMETERS = 8  # the same of a large network, times the bytes of its parameters
_ROUGHLY = 100  # copies of what enters and leaves a model, where autograd's cannot be counted


def bytes_per_sample(problem: Problem) -> int:
    """What autograd keeps of one more sample for the gradient and its derivative; counted once per problem.

    Args:
        problem: Model, data and loss.

    Returns:
        Number of bytes.
    """
    return problem.cached("bytes_per_sample", _count_bytes_per_sample, problem)


@torch.inference_mode(False)
def _count_bytes_per_sample(problem: Problem) -> int:
    inputs, targets, weights = next(iter(problem.batches(2)))
    try:
        both = _saved_bytes(problem, inputs, targets, weights)
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        # A model that calls torch.func.grad itself does not let the tensors be counted.
        entering = sum(tensor[0].numel() for _, tensor in tensors_with_paths(inputs))
        return max(_MIN_BYTES, _ROUGHLY * problem.dtype.itemsize * (entering + problem.output_dim))
    one = _saved_bytes(problem, take_rows(inputs, slice(1)), targets[:1], weights[:1]) if len(targets) > 1 else 0
    return max(_MIN_BYTES, both - one)


def batch_bytes(problem: Problem) -> int:
    """The size that the graph of a batch should have.

    More is slow to allocate; much less than the parameters themselves would spend the time on these, once per batch.

    Args:
        problem: Model, data and loss.

    Returns:
        Number of bytes.
    """
    return max(_LARGE_GRAPH, _TIMES_PARAMETERS * problem.num_parameters * problem.dtype.itemsize)


def samples_at_once(problem: Problem, columns: int) -> int:
    """Samples whose linearised pass fits into half of the memory budget.

    Args:
        problem: Model, data and loss.
        columns: Vectors multiplied at once; each takes half as much memory again.

    Returns:
        Number of samples, at least 1.
    """
    each = bytes_per_sample(problem) * (1 + columns / 2)
    return rows_that_fit(problem.memory_budget / 2, each, problem.num_samples)


def samples_in_use(problem: Problem) -> int:
    """Samples of a batch of a product with one vector."""
    return rows_that_fit(batch_bytes(problem), bytes_per_sample(problem), samples_at_once(problem, 1))


def _saved_bytes(problem: Problem, inputs: Inputs, targets: Tensor, weights: Tensor) -> int:
    leaves = {name: value.clone().requires_grad_() for name, value in problem.named.items()}
    sizes: dict[int, int] = {}
    own = {value.untyped_storage().data_ptr() for value in leaves.values()}

    def note_size(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = saved_tensors_hooks(note_size, lambda tensor: tensor)
    with torch.enable_grad(), full_precision(problem.device), hooks:
        risk = problem.loss.risk(problem.forward(leaves, inputs), targets, weights)
        if risk.requires_grad:
            # Held until the tensors are counted: storages that were freed would be used again.
            gradient = torch.autograd.grad(risk, list(leaves.values()), create_graph=True, allow_unused=True)
            del gradient
    return sum(sizes.values())
