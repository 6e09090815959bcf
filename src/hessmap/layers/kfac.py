"""Block-diagonal curvature of a whole network with its inverse: K-FAC, EK-FAC, nearest Kronecker products, diagonals.

For a layer with inputs x_p and output gradients g_p at the positions p of a sample, the Gauss-Newton block is
``sum_n sum_pq (g_p g_q^T) (x) (x_p x_q^T)`` over samples n and the columns of the loss Hessian's root. K-FAC replaces
it by ``E[g g^T] (x) E[x x^T]`` (Martens & Grosse 2015), with weights that are shared over positions treated by "expand"
or "reduce" (Eschenhagen et al. 2023); EK-FAC keeps the eigenvectors and computes the exact second moments along them
(George et al. 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import (
    InvalidInput,
    MissingExtra,
    checked_seed,
    require,
    require_name,
    sentence,
)
from hessmap.hessians import (
    Hessian,
    LayerGraph,
    empirical_fisher,
    exact_diagonal,
    jacobian_rows,
    layer_graph,
    outer_product_hessian,
)
from hessmap.layers.comparison import best_kronecker_product
from hessmap.layers.curvature_operator import (
    CurvatureBlock,
    FactoredBlock,
    KroneckerCurvature,
    Span,
    spans_of,
)
from hessmap.layers.factors import layer_factors
from hessmap.layers.hessian import layer_hessian
from hessmap.layers.kronecker import eigenpairs_of
from hessmap.layers.layer import factored_weights, find_layer, layer_names, name_of_layer
from hessmap.linalg import Layout, require_memory, rows_that_fit
from hessmap.losses import output_roots, require_parts
from hessmap.problem import (
    Batch,
    DistributedProblem,
    Problem,
    UseOnBatch,
    batch_bytes,
    recording_of,
    require_problem,
    require_separate_rows,
    require_true_derivatives,
    vjp_rows,
)

CurvatureKind = Literal["kfac", "ekfac", "best", "diagonal", "block", "full"]
FisherKind = Literal["exact", "sampled", "empirical"]
Sharing = Literal["expand", "reduce"]

_FACTORED = ("kfac", "ekfac", "best")
_MOST_OUTPUTS = 100  # up to which all columns of the loss Hessian's root are propagated by default
_BATCH_BYTES = 2**26  # of output gradients and per-sample rows held at once
_ROWS_AT_ONCE = 16  # columns of the loss Hessian's root that are propagated together
_BLOCK = 256  # columns of a second moment at once: half of it is computed, the other half is its transpose
_MAX_STEPS = 200  # power iterations of the nearest Kronecker product


def kronecker_curvature(
    problem: Problem,
    kind: CurvatureKind = "kfac",
    *,
    part: Literal["outer_product", "loss"] = "outer_product",
    fisher: FisherKind | None = None,
    sharing: Sharing = "expand",
    seed: int = 0,
    distributed: bool = False,
) -> KroneckerCurvature:
    """Approximate the curvature of all parameters block by block, with a cheap inverse.

    Args:
        problem: Model, loss and data; of all processes, if it is a ``distributed`` problem.
        kind: "kfac": E[g g^T] (x) E[x x^T] per layer. "ekfac": the same eigenvectors with exact second moments.
            "best": the Kronecker product nearest to each layer's block in Frobenius norm. "diagonal": the exact
            diagonal. "block": the exact dense block of every layer. "full": the exact matrix, for small networks.
        part: "outer_product" (Gauss-Newton) or "loss" (the full Hessian block, which can be indefinite).
        fisher: "exact" propagates every column of the loss Hessian's root, "sampled" one random combination of them per
            sample, "empirical" the gradients at the given targets. Default: "exact" up to 100 outputs; above that it
            must be chosen.
        sharing: How positions that share a weight (convolutions, tokens) are combined: "expand" treats them as
            independent, "reduce" averages inputs and sums gradients. The second moments of "ekfac" are those of the
            true gradients under both.
        seed: Seed of the samples of ``fisher="sampled"``.
        distributed: Whether the problem has the share of the data of this process of torch.distributed. The curvature
            is then that of the data of all processes, on every one of them. Defaults to False.

    Returns:
        KroneckerCurvature: an operator with ``@``, ``solve``, ``inverse_sqrt``, ``log_determinant``, ``sample``,
        ``eigenvalues`` and ``to_dense``. Biases belong to the block of their layer. Parameters without Kronecker
        factors (norms, embeddings, weights used more than once) get their exact diagonal; ``blocks`` lists the form.

    Raises:
        InvalidInput: If an argument is not one of its values, or ``fisher`` must be chosen.
        TooLarge: If a dense block does not fit in memory.

    Notes:
        Martens & Grosse 2015 (K-FAC); Grosse & Martens 2016 (convolutions); George et al. 2018 (EK-FAC); Eschenhagen
        et al. 2023 (weight sharing); Van Loan & Pitsianis 1993 (nearest Kronecker product).

    Example:
        >>> import torch, hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> model = hm.FullyConnected((64, 8, 10), bias=True, activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", inputs, labels)
        >>> curvature = kronecker_curvature(problem, "ekfac")
        >>> step = curvature.solve(problem.gradient(), damping=1e-3)
        >>> [(block.names, block.form) for block in curvature.blocks][0]
        (('0.weight', '0.bias'), 'kronecker, corrected eigenvalues')
    """
    require_problem(problem)
    require_name("kind", kind, get_args(CurvatureKind))
    require_name("part", part, ("outer_product", "loss"))
    require_name("sharing", sharing, get_args(Sharing))
    fisher = _chosen_fisher(problem, fisher, part, kind)
    must = "curvature over several processes needs part='outer_product'"
    is_split = distributed or problem.local is not problem
    require(part == "outer_product" or not is_split, must, f"got part={part!r}")
    problem = DistributedProblem(problem.local) if distributed and problem.local is problem else problem
    if part == "loss":
        like = problem.parameters
        blocks = [block.to(like.device, like.dtype) for block in _loss_blocks(problem, kind, sharing)]
    else:
        blocks = _Rows(problem, fisher, checked_seed(seed)).blocks(kind, sharing)
    ordered = sorted(blocks, key=lambda block: block.spans[0].start)
    return KroneckerCurvature(
        problem.layout, ordered, kind=kind, part=part, fisher=fisher, dtype=problem.parameters.dtype
    )


def fisher_diagonal(
    problem: Problem, *, fisher: FisherKind | None = None, path: str | Path | None = None, seed: int = 0
) -> dict[str, Tensor]:
    """Compute the diagonal of the Fisher information as a dictionary with the names and shapes of the state dict.

    Args:
        problem: Model, loss and data.
        fisher: "exact" (the diagonal of the outer-product Hessian, which is that of the Fisher information of a
            log-likelihood), "sampled" (targets drawn from the model, one per sample: unbiased) or "empirical" (the mean
            over the samples of squared gradients at the given targets). Default: "exact" up to 100 outputs; above that
            it must be chosen.
        path: File to write the dictionary to: ``.safetensors``, or any other name for torch's format. Default: none.
        seed: Seed of the draws of ``fisher="sampled"``.

    Returns:
        The diagonal by parameter name, each tensor in the shape of its parameter, in the order of the state dict. A
        tied parameter has every name that the state dict gives it, with one tensor. Buffers and parameters that are
        not differentiated have no entry.

    Raises:
        InvalidInput: If ``fisher`` is unknown or must be chosen.
        MissingExtra: If the file is a ``.safetensors`` file and that package is not installed.

    Notes:
        No gradient of a batch is squared: the square of a mean of gradients is not the mean of their squares, and is
        close to zero at a minimum.

    Example:
        >>> import torch, hessmap as hm
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> problem = hm.Problem(model, "squared", torch.tensor([[1.0, 0.0], [3.0, 2.0]]), torch.zeros(2, 1))
        >>> fisher_diagonal(problem)  # the mean of x^2
        {'weight': tensor([[5., 2.]], dtype=torch.float64)}
    """
    require_problem(problem)
    chosen = _chosen_fisher(problem, fisher, "outer_product", "diagonal")
    writes_safetensors = path is not None and Path(path).suffix == ".safetensors"
    if writes_safetensors:
        _require_safetensors()
    block = _Rows(problem, chosen, checked_seed(seed)).diagonal(problem.layout.names)
    diagonal = _as_state_dict(problem, problem.unflatten(block.values))
    if writes_safetensors:
        save_file: Callable[..., None] = import_module("safetensors.torch").save_file
        save_file({name: values.clone() for name, values in diagonal.items()}, path)  # it refuses shared memory
    elif path is not None:
        torch.save(diagonal, path)
    return diagonal


def _as_state_dict(problem: Problem, diagonal: dict[str, Tensor]) -> dict[str, Tensor]:
    """By every name of a parameter, in the order of the state dict."""
    named = list(problem.model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in named if name in diagonal}
    found = {name: diagonal[first[id(parameter)]] for name, parameter in named if id(parameter) in first}
    ordered = {name: found[name] for name in problem.model.state_dict() if name in found}
    return ordered | {name: values for name, values in diagonal.items() if name not in ordered}


def _require_safetensors() -> None:
    if find_spec("safetensors") is None:
        remedy = "Install it with: pip install safetensors, or write a .pt file"
        raise MissingExtra(sentence("a .safetensors file needs the package safetensors", "it is not installed", remedy))


def _chosen_fisher(problem: Problem, fisher: FisherKind | None, part: str, kind: CurvatureKind) -> FisherKind:
    if fisher is not None:
        require_name("fisher", fisher, get_args(FisherKind))
    must = 'part="loss" has no sampled or empirical form'
    require(part == "outer_product" or fisher in (None, "exact"), must, f"got fisher={fisher!r}")
    require_parts(problem.loss, "Kronecker-factored curvature")
    if fisher is None and part == "outer_product" and problem.output_dim > _MOST_OUTPUTS:
        must = f"fisher must be chosen above {_MOST_OUTPUTS} outputs"
        count, size = problem.output_dim, _num_entries(problem.local, kind) * problem.dtype.itemsize
        got = (
            f'the model has {count:,}: "exact" propagates {count:,} gradients per sample, "sampled" and "empirical" '
            f"one; the {'factors' if kind in _FACTORED else 'entries'} of each take {size:,} bytes"
        )
        raise InvalidInput(sentence(must, got, 'Pass fisher="sampled", "empirical" or "exact"'))
    return fisher or "exact"


def _num_entries(problem: Problem, kind: CurvatureKind) -> int:
    """Numbers that a curvature consists of: entries of its factors, blocks and diagonals."""
    if kind not in _FACTORED:
        groups = [(name,) for name in problem.layout.names] if kind == "diagonal" else _groups(problem, kind)
        power = 1 if kind == "diagonal" else 2
        return sum(problem.layout.restricted_to(names).size ** power for names in groups)
    uses = [recording_of(problem).uses[number] for number in _factored_uses(problem)]
    covered = {name for use in uses for name in use.parameters}
    others = sum(problem.layout.restricted_to((name,)).size for name in problem.layout.names if name not in covered)
    return others + sum(use.num_outputs**2 + use.num_features**2 for use in uses)


class _Rows:
    """Output gradients of all layers, batch by batch, and the blocks that are accumulated from them."""

    def __init__(self, problem: Problem, fisher: FisherKind, seed: int) -> None:
        self._sum = problem.mean_over_processes
        self.problem = problem.local
        self.fisher = fisher
        self.seed = seed + (problem.processes.rank if isinstance(problem, DistributedProblem) else 0)
        self.uses = _factored_uses(problem.local)
        covered = {name for number in self.uses for name in recording_of(problem).uses[number].parameters}
        self.others = tuple(name for name in problem.layout.names if name not in covered)

    def blocks(self, kind: CurvatureKind, sharing: Sharing) -> list[CurvatureBlock]:
        if kind == "diagonal":
            return [self.diagonal(self.problem.layout.names)]
        if kind in ("block", "full"):
            return [self._dense(names) for names in _groups(self.problem, kind)]
        found = self._kronecker(kind, sharing) if self.uses else []
        return found + ([self.diagonal(self.others)] if self.others else [])

    def _kronecker(self, kind: str, sharing: Sharing) -> list[CurvatureBlock]:
        factors = self._factors(sharing)
        if kind == "best":
            factors = self._nearest_factors(factors)
        coordinates = self._coordinates()
        if kind != "ekfac":
            pairs = zip(coordinates, factors, strict=True)
            return [FactoredBlock(names, "kronecker", spans, pair) for (names, spans), pair in pairs]
        bases = list[tuple[Tensor, Tensor]]()
        while factors:  # which are given up one by one: eigenvectors take the same memory
            left, right = factors.pop(0)
            bases.append((eigenpairs_of(left)[1], eigenpairs_of(right)[1]))
        found = zip(coordinates, self._second_moments(bases), bases, strict=True)
        form = "kronecker, corrected eigenvalues"
        return [CurvatureBlock(names, form, spans, values, basis) for (names, spans), values, basis in found]

    def _coordinates(self) -> list[tuple[tuple[str, ...], tuple[Span, ...]]]:
        """Of every layer its parameters, and where [W, b] lies, by output."""
        starts = {name: place.start for name, place in self.problem.layout}
        found = []
        for number in self.uses:
            use = recording_of(self.problem).uses[number]
            spans = []
            for piece in use.pieces:
                columns = piece.features.stop - piece.features.start
                is_transposed = piece.entries is not None and columns > 1
                spans.append(Span(starts[piece.name], use.num_outputs, columns, is_transposed))
            found.append((tuple(piece.name for piece in use.pieces), tuple(spans)))
        return found

    def _factors(self, sharing: Sharing) -> list[tuple[Tensor, Tensor]]:
        """(sum g g^T, mean x x^T) of every layer."""
        sums: list[tuple[Tensor, Tensor]] = []
        total, is_new = float(self.problem.weights.sum()), True
        for layers in self._layers():
            if is_new:
                like = self.problem.parameters
                sizes = [(layer.use.num_outputs, layer.use.num_features) for layer, _ in layers.uses]
                sums = [(like.new_empty(outputs, outputs), like.new_empty(inputs, inputs)) for outputs, inputs in sizes]
            for (outputs, inputs), (layer, rows) in zip(sums, layers.uses, strict=True):
                if layers.is_first:
                    features = layer.features_of(slice(None))[0]
                    if sharing == "reduce":
                        features = features.mean(1, keepdim=True)
                    _add_moment(inputs, features, layers.weights / (total * features.shape[1]), is_new)
                flat = rows.sum(3) if sharing == "reduce" else rows.transpose(2, 3).flatten(1, 2)
                _add_moment(outputs, flat, None, is_new)
            is_new = False
        for pair in sums:
            for moment in pair:
                _mirror(moment)
        # Inputs are averaged by samples, of which some can be ignored in part by the loss.
        return [(self._sum(outputs), self._sum(inputs, total)) for outputs, inputs in sums]

    def _second_moments(self, bases: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """sum (u_i^T G v_j)^2 over the gradients G = sum_p g_p x_p^T of all samples and rows."""
        sums = [left.new_zeros(len(left), len(right)) for left, right in bases]
        for layers in self._layers():
            for total, (left, right), (layer, rows) in zip(sums, bases, layers.uses, strict=True):
                features = layer.features_of(slice(None))[0] @ right  # (samples, positions, columns)
                rotated = torch.einsum("oi,nrop->nrip", left, rows)
                if rows.shape[3] == 1:
                    total += rotated[..., 0].square().sum(1).T @ features[:, 0].square()
                    continue
                step = max(1, _BATCH_BYTES // (8 * rows.shape[1] * total.numel()))
                for some in torch.split(torch.arange(len(rows), device=rows.device), step):
                    total += torch.einsum("nrip,npj->nrij", rotated[some], features[some]).square_().sum((0, 1))
        return [self._sum(total) for total in sums]

    def _nearest_factors(self, start: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """The leading singular pair of the rearranged blocks, by the power method on contractions of the gradients."""
        rights = [_unit(right) for _, right in start]
        lefts = [torch.zeros_like(left) for left, _ in start]
        sizes = [0.0] * len(rights)
        for _ in range(_MAX_STEPS):
            lefts = [_unit(left) for left in self._contractions(rights, over_inputs=True)]
            contracted = self._contractions(lefts, over_inputs=False)
            before, sizes = sizes, [float(right.norm()) for right in contracted]
            new = [_unit(right) for right in contracted]
            change = max(float((one - other).norm()) for one, other in zip(new, rights, strict=True))
            rights = new
            settled = all(abs(one - other) <= 1e-12 * one for one, other in zip(sizes, before, strict=True))
            if settled and change <= 1e-6:
                break
        return [(size * left, right) for size, left, right in zip(sizes, lefts, rights, strict=True)]

    def _contractions(self, factors: Sequence[Tensor], *, over_inputs: bool) -> list[Tensor]:
        """sum G F G^T (over the inputs) or sum G^T F G over the gradients G of all samples and rows."""
        sums: list[Tensor] = []
        for layers in self._layers():
            found = []
            for factor, (layer, rows) in zip(factors, layers.uses, strict=True):
                features = layer.features_of(slice(None))[0]
                if over_inputs:  # g_p (x_p^T F x_q) g_q^T
                    kernel = features @ factor @ features.mT  # (samples, positions, positions)
                    found.append(torch.einsum("nrap,npq,nrbq->ab", rows, kernel, rows))
                else:
                    kernel = torch.einsum("nrap,ab,nrbq->npq", rows, factor, rows)
                    found.append(torch.einsum("npi,npq,nqj->ij", features, kernel, features))
            sums = found if not sums else [total + own for total, own in zip(sums, found, strict=True)]
        return [self._sum(total) for total in sums]

    def diagonal(self, names: tuple[str, ...]) -> CurvatureBlock:
        problem, values = self.problem, None
        if self.fisher != "sampled" and names == problem.layout.names:
            values = exact_diagonal(problem, "outer_product" if self.fisher == "exact" else "empirical_fisher")
        if values is None:
            values = problem.parameters.new_zeros(problem.layout.restricted_to(names).size)
            for rows in self._parameter_rows(names):
                values += rows.square().sum(0)
        values = self._sum(values.to(problem.parameters))
        return CurvatureBlock(names, "diagonal", spans_of(problem.layout, names), values, ())

    def _dense(self, names: tuple[str, ...]) -> CurvatureBlock:
        problem, size = self.problem, self.problem.layout.restricted_to(names).size
        names = problem.layout.restricted_to(names).names  # the order of the rows
        require_memory(f"the dense block of {size:,} parameters", 24 * size**2, 'Use kind="ekfac"')
        if self.fisher == "sampled":
            matrix = problem.parameters.new_zeros(size, size)
            for rows in self._parameter_rows(names):
                matrix += rows.T @ rows
        else:
            make = outer_product_hessian if self.fisher == "exact" else empirical_fisher
            matrix = _own(make(problem), names)
        return FactoredBlock(names, "dense", spans_of(problem.layout, names), (self._sum(matrix),))

    def _layers(self) -> Iterator[_LayerRows]:
        """Output gradients (samples, rows, outputs, positions) of every factored layer, batch by batch; the rows of one
        batch of samples can come in several groups, of which the first is marked."""
        problem = self.problem
        generator = torch.Generator().manual_seed(self.seed)
        uses = [recording_of(problem).uses[number] for number in self.uses]
        ranks = min(problem.output_dim, _ROWS_AT_ONCE) if self.fisher == "exact" else 1
        gradients = sum(use.num_positions * use.num_outputs for use in uses)
        patches = [use.num_positions * use.num_inputs for use in uses]  # of one layer at a time
        entering = sum(use.input_size for use in uses)
        held = ranks * gradients + entering + 2 * max(patches)
        each = problem.dtype.itemsize * (gradients + entering + sum(patches))
        most = min(batch_bytes(problem), problem.working_bytes)
        for batch in problem.batches(rows_that_fit(most, problem.dtype.itemsize * held, problem.num_samples)):
            graph = layer_graph(problem, batch, vectorised=each * len(batch[1]) <= 2**18, uses=self.uses)
            assert graph is not None
            if len(batch[1]) < problem.num_samples:  # all of them were evaluated when the problem was made
                key = f"separate samples in batches of {len(batch[1])}"
                problem.cached(key, _require_separate, problem, batch, graph)
            roots = self._roots(graph.outputs.detach(), batch, generator)
            for start in range(0, roots.shape[1], _ROWS_AT_ONCE):
                given = [roots[:, start : start + _ROWS_AT_ONCE].transpose(0, 1)]
                found = vjp_rows([graph.outputs], graph.leaving, given, graph.vectorised, problem=problem)
                rows = [use.by_output(part) for use, part in zip(graph.uses, found, strict=True)]
                yield _LayerRows(list(zip(graph.uses, rows, strict=True)), batch[2], start == 0)

    def _roots(self, outputs: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """Rows (samples, rank, output_dim) whose squares sum to the loss Hessian of each sample, or estimate it."""
        _, targets, weights = batch
        loss = self.problem.loss
        if self.fisher == "exact":
            roots, signs = output_roots(loss, outputs, targets, weights)
            must, got = "the loss must be convex in the outputs", f"'{loss.name}' is not"
            require(signs is None, must, got, 'Use part="loss", or kind="block"')
            return roots
        if self.fisher == "empirical":
            gradient = loss.gradient(outputs, targets)
        else:
            gradient = loss.random_gradient(outputs, targets, generator)
        return (weights.sqrt()[:, None] * gradient).to(outputs.dtype)[:, None]

    def _parameter_rows(self, names: tuple[str, ...]) -> Iterator[Tensor]:
        """Rows (samples * rank, entries) of the derivative in some parameters, whatever they are used for."""
        problem, layout = self.problem, self.problem.layout.restricted_to(names)
        generator = torch.Generator().manual_seed(self.seed)
        ranks = problem.output_dim if self.fisher == "exact" else 1
        most = rows_that_fit(_BATCH_BYTES, problem.dtype.itemsize * layout.size, ranks * problem.num_samples)
        for batch in problem.batches(max(1, most // ranks)):
            with torch.no_grad():
                outputs = problem.forward(problem.named, batch[0])
            roots = self._roots(outputs.detach(), batch, generator)
            for some in torch.split(roots, max(1, most), 1):
                yield jacobian_rows(problem, batch[0], some, names).flatten(0, 1)


def _require_separate(problem: Problem, batch: Batch, graph: LayerGraph) -> bool:
    """Samples have in this batch the outputs that they have in a smaller one."""
    inputs, targets, _ = batch
    outputs = graph.outputs.detach()
    require_separate_rows(problem, (inputs, targets), outputs, problem.loss.value(outputs, targets))
    return True


@dataclass(frozen=True, eq=False)
class _LayerRows:
    uses: list[tuple[UseOnBatch, Tensor]]
    weights: Tensor
    is_first: bool


def _loss_blocks(problem: Problem, kind: CurvatureKind, sharing: Sharing) -> list[CurvatureBlock]:
    """Blocks of the full Hessian, layer by layer, from the exact second derivative in each layer's outputs."""
    hessian, layout = Hessian(problem, "loss"), problem.layout
    if kind == "diagonal":
        return [_loss_diagonal(hessian, layout, layout.names)]
    groups = _groups(problem, kind)
    if kind in ("block", "full"):
        return [FactoredBlock(names, "dense", spans_of(layout, names), (_own(hessian, names),)) for names in groups]
    require(kind != "ekfac", 'part="loss" has no EK-FAC form', "got kind='ekfac'", 'Use "kfac", "best" or "block"')
    known, blocks = layer_names(problem), []
    for names in groups:
        layer = name_of_layer(names[0])
        if layer not in known or not find_layer(problem, layer).has_factors:
            blocks.append(_loss_diagonal(hessian, layout, names))
            continue
        with_bias = len(names) == 2
        own = find_layer(problem, layer, with_bias)
        if kind == "kfac":
            rule: Any = "uncorrelated_patches" if sharing == "expand" else "mean_patch"
            factors = layer_factors(problem, layer, with_bias=with_bias, patch_rule=rule)
            pair, penalty = (factors.output_factor, factors.input_factor), 2 * problem.l2
        else:
            product = best_kronecker_product(layer_hessian(problem, layer, with_bias=with_bias)).product
            pair, penalty = (product.output_factor, product.input_factor), 0.0  # nearest to a block that has it
            pair = pair[::-1] if own.is_transposed else pair  # of the weight as it is stored
        places = dict(layout)
        spans = [Span(places[names[0]].start, own.num_outputs, own.num_inputs, own.is_transposed)]
        spans += [Span(places[name].start, own.num_outputs, 1) for name in names[1:]]
        blocks.append(FactoredBlock(names, "kronecker", tuple(spans), pair, penalty))
    return blocks


def _own(hessian: Hessian, names: tuple[str, ...]) -> Tensor:
    """The dense block of some parameters."""
    layout = dict(hessian.problem.layout)
    entries = torch.cat([torch.arange(layout[name].start, layout[name].stop) for name in names])
    require_memory("a dense block", 24 * len(entries) ** 2, 'Use kind="kfac"')
    return hessian.dense_block(entries, entries)


def _loss_diagonal(hessian: Hessian, layout: Layout, names: tuple[str, ...]) -> CurvatureBlock:
    places, whole = dict(layout), hessian.exact_diagonal()
    if whole is None:
        values = _own(hessian, names).diagonal().clone()
    else:
        values = torch.cat([whole[places[name]] for name in names])
    return CurvatureBlock(names, "diagonal", spans_of(layout, names), values, ())


def _factored_uses(problem: Problem) -> tuple[int, ...]:
    """Numbers of the uses that have Kronecker factors: one linear map or ungrouped convolution per weight."""
    require_true_derivatives(problem, order=1)
    recording, factored, numbers = recording_of(problem), factored_weights(problem), []
    for number, use in enumerate(recording.uses):
        if use.weight is None or use.weight.name not in factored:
            continue
        if use.bias is None or (
            len(recording.uses_of(use.bias.name)) == 1 and use.bias.entries((use.num_outputs, 1)) is None
        ):
            numbers.append(number)
    return tuple(numbers)


def _groups(problem: Problem, kind: CurvatureKind) -> list[tuple[str, ...]]:
    """The parameters of every layer together, others one by one; or all of them."""
    if kind == "full":
        return [problem.layout.names]
    recording, groups = recording_of(problem), dict[str, tuple[str, ...]]()
    for use in recording.uses:
        if use.weight is not None and use.bias is not None and len(recording.uses_of(use.bias.name)) == 1:
            groups[use.weight.name] = (use.weight.name, use.bias.name)
    biases = {names[1] for names in groups.values()}
    return [groups.get(name, (name,)) for name in problem.layout.names if name not in biases]


def _add_moment(total: Tensor, rows: Tensor, weights: Tensor | None, is_new: bool) -> None:
    """Add sum_n weight_n rows_n^T rows_n to the lower blocks of a matrix, or write it there."""
    scale = 1.0
    if weights is not None and bool((weights == weights[0]).all()):
        scale = float(weights[0])
    elif weights is not None:
        rows = rows * weights.sqrt().to(rows.dtype)[:, None, None]
    flat = rows.flatten(0, 1)
    for start in range(0, len(total), _BLOCK):
        part = total[start:, start : start + _BLOCK]
        part.addmm_(flat[:, start:].T, flat[:, start : start + _BLOCK], beta=0.0 if is_new else 1.0, alpha=scale)


def _mirror(total: Tensor) -> None:
    """Fill the blocks above the diagonal with the transposes of those below it."""
    for stop in range(_BLOCK, len(total), _BLOCK):
        total[stop - _BLOCK : stop, stop:] = total[stop:, stop - _BLOCK : stop].T


def _unit(matrix: Tensor) -> Tensor:
    size = float(matrix.norm())
    return matrix / size if size else matrix
