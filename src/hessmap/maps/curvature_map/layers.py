"""The layers of a map: which parameters belong to each, its block of the loss Hessian, its Kronecker factors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import ProcessLost, TooLarge, sentence
from hessmap.layers import (
    KroneckerProduct,
    autocorrelation,
    class_outliers,
    find_layer,
    full_curvature_work,
    layer_factors,
    layer_names,
    product_of_factors,
    require_logits,
)
from hessmap.linalg import Layout, to_host
from hessmap.maps.curvature_map.plan import optional_part, reason_of
from hessmap.measurement import (
    EPS,
    Floats,
    Matrix,
    ProbedOperator,
    numerical_rank,
    overlap_curve,
    spectrum,
    top_eigenpairs,
)
from hessmap.problem import Problem
from hessmap.records import CurvatureSpread, FactorCurvature, LayerCurvature, Spectrum

_QUERY_KEY_VALUE = ("query", "key", "value")
# Names of weights in which query, key and value lie one after the other, as torch, GPT-2 and timm have them. (Those in
# which they alternate head by head, as "query_key_value" of GPT-NeoX, are one row.)
_FUSED = re.compile(r"(^|[._])(c_attn|qkv|in_proj(_weight|_bias)?|Wqkv)$")
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("query", re.compile(r"^(query|q|q_?proj|to_q|wq|q_lin|q_proj_weight|bias_q)$", re.IGNORECASE)),
    ("key", re.compile(r"^(key|k|k_?proj|to_k|wk|k_lin|k_proj_weight|bias_k)$", re.IGNORECASE)),
    ("value", re.compile(r"^(value|v|v_?proj|to_v|wv|v_lin|v_proj_weight|bias_v)$", re.IGNORECASE)),
)
_EMBEDDING = re.compile(r"embed|^wte$|^wpe$|position|cls_token", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln(_|\d|$)", re.IGNORECASE)
_MLP = re.compile(
    r"(^|[._])(mlp|ffn|feed_?forward|fc1|fc2|c_fc|gate_proj|up_proj|down_proj|intermediate|linear[12]|wi|wo)([._]|$)",
    re.IGNORECASE,
)
_HEAD = re.compile(r"(^|[._])(lm_head|head|classifier|score|qa_outputs)([._]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """One row: what it is called, what it does, its shapes, and where its parameters lie in the flat vector."""

    name: str
    kind: str
    shape: str
    places: Tensor

    @property
    def num_parameters(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class _Piece:
    """A parameter, or a third of one."""

    block: str
    kind: str
    shape: tuple[int, ...]
    places: Tensor


def blocks_of(problem: Problem) -> tuple[Block, ...]:
    """The blocks of a problem in the order of its parameters."""
    return blocks_of_model(problem.model, problem.layout)


def blocks_of_model(model: nn.Module, layout: Layout) -> tuple[Block, ...]:
    """The blocks of the parameters in a layout.

    >>> model = nn.Sequential(nn.Linear(1, 2), nn.LayerNorm(2))
    >>> layout = Layout(tuple((name, tuple(value.shape)) for name, value in model.named_parameters()))
    >>> [(block.name, block.kind, block.shape, block.places.tolist()) for block in blocks_of_model(model, layout)]
    [('0', 'linear', '2×1 + 2', [0, 1, 2, 3]), ('1', 'norm', '2 + 2', [4, 5, 6, 7])]
    """
    gathered: dict[str, list[_Piece]] = {}
    for name, place in layout:
        for piece in _pieces(model, name, layout.shape(name), place):
            gathered.setdefault(piece.block, []).append(piece)
    return tuple(
        Block(
            name=name,
            kind=pieces[0].kind,
            shape=" + ".join("×".join(map(str, piece.shape)) or "1" for piece in pieces),
            places=torch.cat([piece.places for piece in pieces]),
        )
        for name, pieces in gathered.items()
    )


def block_numbers(blocks: tuple[Block, ...], size: int) -> Tensor:
    """The number of the block that each parameter belongs to."""
    numbers = torch.empty(size, dtype=torch.int64)
    for number, block in enumerate(blocks):
        numbers[block.places] = number
    return numbers


def _pieces(model: nn.Module, name: str, shape: tuple[int, ...], place: slice) -> Iterator[_Piece]:
    module_name, _, own_name = name.rpartition(".")
    block = module_name or name
    places = torch.arange(place.start, place.stop)
    axis = _fused_axis(block if own_name in ("weight", "bias") else name, shape)
    if axis is None:
        yield _Piece(block, _kind(model, module_name, own_name), shape, places)
        return
    for kind, third in zip(_QUERY_KEY_VALUE, places.reshape(shape).chunk(3, axis), strict=True):
        yield _Piece(f"{block} ({kind})", kind, tuple(third.shape), third.reshape(-1))


def _fused_axis(name: str, shape: tuple[int, ...]) -> int | None:
    """The axis along which query, key and value follow each other; None where they do not."""
    if not _FUSED.search(name) or not prod(shape):
        return None
    if len(shape) == 1:
        return 0 if shape[0] % 3 == 0 else None
    axes = [axis for axis in (0, 1) if shape[axis] == 3 * shape[1 - axis]]
    return axes[0] if len(shape) == 2 and axes else None


def _kind(model: nn.Module, module_name: str, own_name: str) -> str:
    """What the parameter's module does, by its type and, inside of transformers, by its name."""
    module = model.get_submodule(module_name)
    last = module_name.rpartition(".")[2] if own_name in ("weight", "bias") else own_name
    type_name = type(module).__name__
    if isinstance(module, nn.Embedding) or _EMBEDDING.search(last):
        return "embedding"
    if _NORM.search(type_name) or _NORM.search(last):
        return "norm"
    for kind, pattern in _KINDS:
        if pattern.search(last):
            return kind
    if isinstance(module, nn.modules.conv._ConvNd):
        return "convolution"
    if _ATTENTION.search(module_name):
        return "attention output" if re.search(r"out|proj|dense|^wo$|^o$", last) else "attention"
    if _MLP.search(module_name):
        return "mlp"
    if _HEAD.search(module_name):
        return "output"
    return "linear" if isinstance(module, nn.Linear | nn.Bilinear) else type_name.lower()


LEAST_STEPS = 3  # that every block makes: a small residual before may be that of a start near another eigenvector
_NOISE = 0.1  # beside the start, so that no direction is left out
_TOGETHER = 2**28  # bytes of vectors that are multiplied at once


@dataclass(frozen=True, eq=False)
class BlockTops:
    """For every block: the largest Ritz value, which is never above the largest eigenvalue of the block by more than
    rounding, how far an eigenvalue is from it at most, and whether that is within the tolerance."""

    values: Floats
    residuals: Floats
    converged: NDArray[np.bool_]
    num_products: int


def block_tops(
    matrix: Matrix,
    block_of: Tensor,
    *,
    start: Tensor | None = None,
    max_products: int,
    max_steps: int = 16,
    tolerance: float = 1e-2,
    seed: int = 0,
) -> BlockTops:
    """Lanczos in all blocks at once, one step after the other, as far as the products go.

    Blocks share no entries, so one vector of the full size holds the current vector of every block, and a step of all
    of them takes one product each: the vector within the block, zero elsewhere. Blocks that have converged make no more
    products, and when there are too few products left for all others the step is left out.

    Args:
        matrix: The whole symmetric operator.
        block_of: The number of the block of each row, from 0 on.
        start: A vector whose part in a block is near to the block's top eigenvector, such as that of the whole
            operator; random numbers are added to it.
        max_products: Products of all blocks together; ``LEAST_STEPS`` steps of every block are made in any case.
        max_steps: Steps of one block at most; as many vectors of the full size are stored.
        tolerance: The residual relative to the value at which a block has converged.
        seed: Of the random numbers.

    Returns:
        BlockTops: values and residuals in the order of the blocks.

    >>> found = block_tops(np.diag([3.0, 1.0, -2.0]), torch.tensor([0, 0, 1]), max_products=6)
    >>> found.values.round(12).tolist(), found.converged.tolist()
    ([3.0, -2.0], [True, True])
    """
    operator = ProbedOperator(matrix, seed)
    sizes = torch.bincount(block_of)
    num_blocks = len(sizes)
    drawn = operator.normals(1)[:, 0]
    block_of = block_of.to(drawn.device)  # vectors stay there; numbers of blocks are on the host
    noise = _unit(drawn, block_of, num_blocks)
    vector = noise if start is None else _unit(start.to(drawn), block_of, num_blocks) + _NOISE * noise
    vector = _unit(vector, block_of, num_blocks)
    basis: list[Tensor] = []
    projections = torch.zeros(num_blocks, max_steps, max_steps, dtype=torch.float64)
    values, residuals = torch.zeros(2, num_blocks, dtype=torch.float64)
    is_done = sizes == 0
    for step in range(max_steps):
        active = torch.nonzero(~is_done)[:, 0]
        if not len(active) or (step >= LEAST_STEPS and operator.num_products + len(active) > max_products):
            break
        basis.append(vector)
        rest = _block_images(operator, vector, block_of, active)
        for _ in range(2):  # the second time for what rounding left
            for place, earlier in enumerate(basis):
                shares = _sums(earlier * rest, block_of, num_blocks)
                rest -= shares.to(rest)[block_of] * earlier
                projections[:, place, step] += shares
        lengths = _sums(rest.square(), block_of, num_blocks).sqrt()
        found, vectors = torch.linalg.eigh(projections[:, : step + 1, : step + 1], UPLO="U")
        values[active] = found[active, -1]
        residuals[active] = (lengths * vectors[:, -1, -1].abs())[active]
        has_ended = (sizes == step + 1) | (lengths <= sizes * EPS * found.abs().amax(1))
        is_close = (residuals <= tolerance * values.abs()) & (step + 1 >= LEAST_STEPS)
        is_done |= has_ended | is_close
        vector = torch.where(is_done | (lengths == 0), 0.0, 1 / lengths).to(rest)[block_of] * rest
    scale = operator.scale
    return BlockTops(scale * values.numpy(), scale * residuals.numpy(), is_done.numpy(), operator.num_products)


def _block_images(operator: ProbedOperator, vector: Tensor, block_of: Tensor, active: Tensor) -> Tensor:
    """The product of every active block with its part of the vector; zero in the others."""
    images = torch.zeros_like(vector)
    for some in torch.split(active, max(1, min(16, _TOGETHER // (8 * max(1, len(vector)))))):
        is_own = block_of[:, None] == some.to(block_of.device)
        images += (operator.product(vector[:, None] * is_own) * is_own).sum(1)
    return images


def _unit(vector: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    """Every part over its own norm; zeros where it has none."""
    lengths = _sums(vector.square(), block_of, num_blocks).sqrt()
    return vector / torch.where(lengths > 0, lengths, 1.0).to(vector)[block_of]


def _sums(entries: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    return to_host(entries.new_zeros(num_blocks).index_add_(0, block_of, entries))


def curvature_spread(layers: Sequence[LayerCurvature], trace: float) -> CurvatureSpread | None:
    """Over the layers; ``trace`` is what their shares are of. Layers whose share is within two standard errors of zero
    are left out. None where fewer than two are curved."""
    means = {layer.name: layer.curvature_share * trace / layer.num_parameters for layer in layers}
    is_known = {layer.name: layer.curvature_share > 2 * layer.share_error for layer in layers}
    curved = {name: mean for name, mean in means.items() if mean > 0 and is_known[name]}
    if len(curved) < 2:
        return None
    most, least = max(curved, key=lambda name: curved[name]), min(curved, key=lambda name: curved[name])
    return CurvatureSpread(
        most=most,
        least=least,
        ratio=curved[most] / curved[least],
        log_deviation=float(np.std(np.log10(list(curved.values())))),
        num_layers=len(means),
        num_flat=sum(mean <= 0 for mean in means.values()),
    )


def layer_spectra(blocks: Sequence[Block], loss: Tensor, scale: float) -> list[Spectrum]:
    """The spectrum of each block of the dense loss Hessian, ranks being relative to ``scale``."""
    return [spectrum(loss[block.places][:, block.places], scale=scale or None) for block in blocks]


def layer_rows(
    blocks: Sequence[Block],
    spectra: Sequence[Spectrum],
    outer_diagonal: Tensor,
    direction: Floats | None,
    factors: Mapping[str, FactorCurvature],
) -> Iterator[LayerCurvature]:
    """A row per block; the share of the curvature is read off the diagonal of the outer-product Hessian, and
    ``direction`` is the sharpest one of the whole network."""
    whole = float(outer_diagonal.sum())
    for block, found in zip(blocks, spectra, strict=True):
        yield LayerCurvature(
            name=block.name,
            shape=block.shape,
            num_parameters=block.num_parameters,
            rank=numerical_rank(found),
            top_eigenvalue=float(found.eigenvalues[0]),
            trace=float(found.eigenvalues.sum()),
            curvature_share=float(outer_diagonal[block.places].sum()) / whole if whole > 0 else 0.0,
            factors=factors.get(block.name),
            kind=block.kind,
            top_residual=found.eigenvalue_error,
            top_converged=found.converged,
            direction_share=None if direction is None else direction_share(direction, block),
        )


def direction_share(direction: Floats, block: Block) -> float:
    """The part of the squared norm of a direction that lies in a block."""
    squares = np.square(direction)
    return float(squares[block.places.numpy()].sum() / squares.sum())


_TOLERANCE = 1e-6  # of the eigenvectors, relative to the norm of the block
_MOST_WORK = 2e10  # samples times cubed outputs of a layer, up to which its factors take seconds


def measured_factors(
    problem: Problem, loss: Tensor | None, has_time: Callable[[], bool] = lambda: True
) -> tuple[dict[str, FactorCurvature], str]:
    """The factors of every linear and convolutional layer by name, or why there are none.

    ``loss`` is the dense loss Hessian; without it the sharpest directions of a layer are not known, and nothing is
    compared with them. Factors are those of the weight alone, as in Wu et al. (2022). When ``has_time`` says no, the
    layers that are left have none; nor has a layer with many outputs at many positions whose second derivative is that
    of more than a piecewise linear network: its matrices, one a sample, would fit neither the time nor the memory.
    """
    names, gap = problem.agreed(optional_part(lambda: _names_of_layers(problem.local)))
    found: dict[str, FactorCurvature] = {}
    gap = gap or "there is no linear layer or convolution whose weight is used once"
    for name in names or ():
        if not has_time():
            return found, "the time limit was reached"
        try:
            block = None if loss is None else _block(problem, name, loss)
            if block is None or bool(block.abs().max() > 0):  # a dead layer has no directions to compare
                found[name] = _factor_curvature(problem, name, block)
        except ProcessLost:
            raise
        except Exception as error:  # a weight that acts in a way that is not seen: the other layers have factors
            gap = reason_of(error)
    return found, "" if found else gap


def _names_of_layers(problem: Problem) -> Sequence[str]:
    require_logits(problem)
    return layer_names(problem)


def _block(problem: Problem, name: str, loss: Tensor) -> Tensor:
    place = problem.layout[find_layer(problem, name).weight]
    return loss[place, place]


def _factor_curvature(problem: Problem, name: str, block: Tensor | None) -> FactorCurvature:
    layer = find_layer(problem, name)
    is_short = full_curvature_work(problem.local, layer) <= _MOST_WORK
    if not problem.least(int(is_short)):
        size = f"the eigenvalues of {problem.num_samples:,} matrices of size {layer.output_size:,}"
        must = "the factors of a layer must be found in seconds"
        raise TooLarge(sentence(must, f"those of '{name}' need {size}"))
    num_classes = problem.num_outputs
    factors = layer_factors(problem, name)
    product = product_of_factors(factors)
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    outputs = product.input_eigenpairs[0] if factors.layer.is_transposed else product.output_eigenpairs[0]
    outliers = class_outliers(outputs, num_classes) if len(outputs) >= num_classes else None
    overlap, chance = (None, None) if block is None else _overlap(product, block, num_classes - 1)
    return FactorCurvature(
        num_classes=num_classes,
        input_ratio=inputs.eigenvalue_ratio,
        mean_alignment=inputs.squared_cosine,
        outlier_share=None if outliers is None else outliers.share,
        outlier_ratio=None if outliers is None else outliers.ratio,
        kronecker_overlap=overlap,
        chance=chance,
    )


def _overlap(product: KroneckerProduct, block: Tensor, most: int) -> tuple[float, float]:
    """Of the sharpest directions of the block with those of the product, and what chance would have."""
    count = min(most, len(block))
    top = top_eigenpairs(block, count, tolerance=_TOLERANCE)
    assert top.eigenvectors is not None
    curve = overlap_curve(top.eigenvectors, product.eigenvectors(product.leading(count)))
    return curve.at(count), float(curve.chance[count - 1])
