"""How many bits each layer needs: predicted and measured costs of rounding it, and the best widths under a budget.

Rounding the weights of a layer changes them by d, and the loss by g.d + d^T H d / 2 to second order. The quadratic form
takes one Hessian-vector product per layer and bit width, with a vector that is zero outside of the layer; it contains
the layer's whole block of H, not only its diagonal. The bit widths are then a multiple-choice knapsack problem, solved
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hessmap.applications.curvatures import HessianPart, SecondOrderModel, Terms
from hessmap.applications.pruning import checked_sparsity, compressed_names, curvature_diagonal, obd_layers
from hessmap.errors import checked_count, checked_number, list_of, require, require_name, short_text
from hessmap.problem import Problem, require_problem
from hessmap.records import CompressionPlan, LayerCompression, LayerPruning, QuantisationCost

Sharing = Literal["tensor", "channel"]
Prediction = Literal["block", "diagonal"]
_MOST_BITS = 24  # of the integers that float32 represents exactly
_SLACK = 1e-12  # relative rounding of sums of costs, by which a bound may be off


def quantise(weight: Tensor, bits: int, per: Sharing = "channel") -> Tensor:
    """Round weights to the nearest of 2^bits - 1 equidistant values, symmetric about zero.

    Args:
        weight: Any tensor with at least one axis.
        bits: Bits per weight, at least 2: the values are -(2^(bits - 1) - 1), .., 2^(bits - 1) - 1 times a scale.
        per: "channel" (default): one scale for each slice along the first axis. "tensor": one scale. The scale maps the
            largest magnitude to the largest value, so that nothing is clipped.

    Returns:
        The rounded weights, in the shape, dtype and device of ``weight``.

    Raises:
        InvalidInput: If ``bits`` is below 2 or above 24, or ``per`` is unknown.

    Example:
        >>> quantise(torch.tensor([[1.0, 0.4, -0.6], [10.0, 4.0, -6.0]]), 2)
        tensor([[  1.,   0.,  -1.],
                [ 10.,   0., -10.]])
    """
    require_name("per", per, get_args(Sharing))
    top = 2 ** (_checked_bits(bits) - 1) - 1
    rows = weight.detach().reshape(len(weight) if per == "channel" else 1, -1)
    largest = rows.abs().amax(1, keepdim=True)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest)) / top
    rounded: Tensor = (rows / scale).round() * scale
    return rounded.reshape(weight.shape)


def quantised_parameters(problem: Problem, bits: Mapping[str, int], per: Sharing = "channel") -> Tensor:
    """Round some of a problem's weights, each to its own bit width.

    Args:
        problem: Model, loss and data.
        bits: Bit width by name of the weight, as in ``plan.chosen_bits``.
        per: "channel" (default) or "tensor": what shares a scale.

    Returns:
        All parameters, flat, in the order of ``problem.layout``.

    Raises:
        InvalidInput: If a name or a bit width is not valid.

    Example:
        >>> import hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2)).build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> quantised_parameters(problem, {"0.weight": 2})[:12].unique().numel() <= 9
        True
    """
    require_problem(problem)
    made = problem.parameters.clone()
    for name, width in bits.items():
        place = problem.layout[name]
        made[place] = quantise(problem.named[name], width, per).reshape(-1)
    return made


def compression_plan(
    problem: Problem,
    bits: Sequence[int] = (2, 3, 4, 8),
    mean_bits: float = 4,
    *,
    layers: Sequence[str] | None = None,
    per: Sharing = "channel",
    prediction: Prediction = "block",
    part: HessianPart = "loss",
    interactions: bool = True,
    sparsity: float | None = None,
    measure: bool = True,
    seed: int = 0,
) -> CompressionPlan:
    """Choose the bit width of every layer so that the predicted increase of the loss is smallest under a budget.

    Args:
        problem: Model, loss (or objective) and data. Batch norm is used as in the problem (frozen by default).
        bits: Bit widths to choose from. Defaults to 2, 3, 4 and 8.
        mean_bits: Budget: bits per weight, averaged over the compressed weights. Defaults to 4.
        layers: Names of the weights to compress, as in ``problem.layout``. Default: all parameters with two or more
            axes; biases and the scales of normalisations stay as they are.
        per: "channel" (default): one scale for each slice along a weight's first axis. "tensor": one scale per weight.
        prediction: "block" (default): the quadratic form with the layer's whole block, one product per layer and bit
            width. "diagonal": with the diagonal alone, which all layers and widths share.
        part: "loss" (default): the Hessian of the loss. "outer_product": its Gauss-Newton part, which makes no
            curvature term negative. An objective has "loss" alone.
        interactions: Whether the plan counts d_k^T H d_l of two layers k and l as well, which the products of "block"
            contain. Defaults to True; it has no effect for "diagonal".
        sparsity: Share of each layer's weights, those with the lowest OBD scores, whose removal is priced as well.
            Default: none.
        measure: Also measure every cost, by one pass over the data per layer and bit width. Defaults to True.
        seed: Seed of the probes, where a diagonal has to be estimated. Defaults to 0.

    Returns:
        CompressionPlan: the chosen widths (``chosen_bits``), predicted beside measured costs of every layer
        (``table()``), the increase of the whole plan and that of the best single width, ``rank_correlation()``.

    Raises:
        InvalidInput: If the arguments do not fit the problem, or the budget is below the smallest width.

    Notes:
        Costs contain the gradient term g.d: away from a minimum it decides at 8 bits, where d is small. Without
        interactions the plan is optimal for the sum of the layers' separate costs (a multiple-choice knapsack, solved
        by dynamic programming over undominated states with the bound of the linear relaxation). With interactions that
        plan and the uniform one are improved by changing the widths of one or two layers as long as the predicted
        increase of the whole falls: a local optimum, never above either. A second-order prediction is too small or too
        large for steps that leave the region where the loss is quadratic (2 bits): compare it with the measured
        column. Dong et al. 2019 (HAWQ), LeCun et al. 1990 (OBD).

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> plan = compression_plan(hm.Problem(model, "cross_entropy", inputs, labels), mean_bits=3)
        >>> plan.used_mean_bits <= 3, list(plan.chosen_bits)
        (True, ['0.weight', '2.weight'])
    """
    require_problem(problem)
    widths = tuple(sorted({_checked_bits(width) for width in list_of("bits", bits)}))
    require(bool(widths), "bits must contain at least one bit width", "got none")
    budget = checked_number("mean_bits", mean_bits)
    must = "mean_bits must not be below the smallest of bits"
    require(budget >= widths[0], must, f"got {budget:g} with bits {widths}")
    require_name("per", per, get_args(Sharing))
    require_name("prediction", prediction, get_args(Prediction))
    require_name("part", part, get_args(HessianPart))
    if sparsity is not None:
        checked_sparsity(sparsity)
    names = compressed_names(problem, layers)
    model = SecondOrderModel(problem, part)
    sizes = {name: problem.named[name].numel() for name in names}

    def step(name: str, width: int) -> Tensor:
        return quantised_parameters(problem, {name: width}, per) - problem.parameters

    choices = [(name, width) for name in names for width in widths]
    error: float | None = None
    forms: _Forms | None = None
    if prediction == "block":
        forms = _second_order_forms(model, names, widths, step)
        terms = forms.terms()
    else:
        diagonal, error = curvature_diagonal(model.hessian, seed)
        terms = list(_diagonal_terms(model, diagonal, (step(*choice) for choice in choices)))
    costs = {
        (name, width): QuantisationCost(
            width,
            float((change := step(name, width)).norm()),
            *own,
            model.measured(change) if measure else None,
        )
        for (name, width), own in zip(choices, terms, strict=True)
    }
    predicted = np.array([[costs[name, width].predicted_increase for width in widths] for name in names])
    must = "predicted costs must be finite"
    require(bool(np.isfinite(predicted).all()), must, "the gradient or a product with the Hessian is not")
    total = sum(sizes.values())
    bit_counts = np.array([[sizes[name] * width for width in widths] for name in names], dtype=np.int64)
    capacity = int(Fraction(min(budget, widths[-1])) * total)
    chosen = cheapest_choice(predicted, bit_counts, capacity)
    uniform = max(width for width in widths if width <= budget)
    even = (widths.index(uniform),) * len(names)
    if forms is not None and interactions:
        improved = [forms.improved_choice(start, bit_counts, capacity) for start in (chosen, even)]
        chosen = min(improved, key=forms.increase)
    planned = {name: widths[place] for name, place in zip(names, chosen, strict=True)}
    whole = quantised_parameters(problem, planned, per) - problem.parameters
    joint = sum(next(model.terms([whole]))) if forms is None else forms.increase(chosen)
    uniform_step = quantised_parameters(problem, dict.fromkeys(names, uniform), per) - problem.parameters
    removals: dict[str, LayerPruning] = {}
    if sparsity is not None:
        removals, diagonal_error = obd_layers(model, names, sparsity, measure, seed)
        error = diagonal_error if error is None else max(error, diagonal_error)
    return CompressionPlan(
        layers=tuple(
            LayerCompression(
                name,
                sizes[name],
                planned[name],
                tuple(costs[name, width] for width in widths),
                removals.get(name),
            )
            for name in names
        ),
        bits=widths,
        mean_bits=budget,
        used_mean_bits=sum(sizes[name] * planned[name] for name in names) / total,
        per=per,
        prediction=prediction,
        part=part,
        interactions=forms is not None and bool(interactions),
        risk=model.risk,
        gradient_norm=float(model.gradient.norm()),
        separate_increase=sum(costs[name, planned[name]].predicted_increase for name in names),
        joint_increase=joint,
        measured_increase=model.measured(whole) if measure else None,
        uniform_bits=uniform,
        uniform_measured_increase=model.measured(uniform_step) if measure else None,
        sparsity=None if sparsity is None else float(sparsity),
        diagonal_error=error,
        num_products=model.num_products,
        num_samples=problem.num_samples,
        provenance=problem.provenance,
    )


def _diagonal_terms(model: SecondOrderModel, diagonal: Tensor, steps: Iterator[Tensor]) -> Iterator[Terms]:
    for change in steps:
        yield Terms(float(model.gradient @ change), float(diagonal @ change.square()) / 2)


@dataclass(frozen=True, eq=False)
class _Forms:
    """g.d and d^T H e of the steps d, e of all layers and widths: (layers, widths) and twice that."""

    linear: npt.NDArray[np.float64]
    quadratic: npt.NDArray[np.float64]

    def terms(self) -> list[Terms]:
        size = self.linear.size
        squares = self.quadratic.reshape(size, size).diagonal()
        return [Terms(*pair) for pair in zip(self.linear.ravel().tolist(), (squares / 2).tolist(), strict=True)]

    def increase(self, choice: Sequence[int]) -> float:
        """Second-order increase of the loss with a width in every layer, interactions included."""
        rows = np.arange(len(choice))
        inner = self.quadratic[rows, choice][:, rows, choice]
        return float(self.linear[rows, choice].sum() + inner.sum() / 2)

    def improved_choice(self, start: Sequence[int], sizes: npt.NDArray[np.int64], capacity: int) -> tuple[int, ...]:
        """Change the widths of one or two layers, the best change first, as long as the increase falls and it fits."""
        rows, choice = np.arange(len(start)), np.array(start)
        own = np.einsum("kiki->ki", self.quadratic)
        scale = _SLACK * float(np.abs(self.linear).sum() + np.abs(own).sum())
        is_pair = ~np.eye(len(rows), dtype=bool)[:, None, :, None]
        while True:
            towards = self.quadratic[:, :, rows, choice]  # of every step with the chosen step of every layer
            alone = self.linear + own / 2 + towards.sum(2) - towards[rows, :, rows]
            single = alone - alone[rows, choice][:, None]
            pairs = (
                single[:, :, None, None]
                + single[None, None]
                + self.quadratic
                - towards[:, :, :, None]
                - np.moveaxis(towards, 2, 0)[:, None, :, :]
                + towards[rows, choice][:, None, :, None]
            )
            added = sizes - sizes[rows, choice][:, None]
            room = capacity - int(sizes[rows, choice].sum())
            fits = added[:, :, None, None] + added[None, None] <= room
            pairs = np.where(fits & is_pair, pairs, np.inf)
            best = np.unravel_index(int(pairs.argmin()), pairs.shape)
            lone = np.where(added <= room, single, np.inf)
            first = np.unravel_index(int(lone.argmin()), lone.shape)
            if min(pairs[best], lone[first]) >= -scale:
                return tuple(choice.tolist())
            if lone[first] <= pairs[best]:
                choice[first[0]] = first[1]
            else:
                choice[best[0]], choice[best[2]] = best[1], best[3]


def _second_order_forms(
    model: SecondOrderModel, names: Sequence[str], widths: Sequence[int], step: Callable[[str, int], Tensor]
) -> _Forms:
    """All forms from one product per layer and width; a step is zero outside of its layer."""
    places = {name: model.problem.layout[name] for name in names}
    own = {name: torch.stack([step(name, width)[place] for width in widths]) for name, place in places.items()}
    linear, quadratic = [], []
    changes = (step(name, width) for name in names for width in widths)
    for change, product in model.products(changes):
        linear.append(float(model.gradient @ change))
        quadratic.append(torch.stack([own[name] @ product[place] for name, place in places.items()]))
    shape = len(names), len(widths)
    matrix = torch.stack(quadratic).cpu().double().numpy().reshape(*shape, *shape)
    return _Forms(np.array(linear).reshape(shape), (matrix + matrix.transpose(2, 3, 0, 1)) / 2)


def _checked_bits(bits: object) -> int:
    width = checked_count("bits", bits, 2)
    require(width <= _MOST_BITS, f"bits must be at most {_MOST_BITS}", f"got {short_text(bits)}")
    return width


def cheapest_choice(costs: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64], capacity: int) -> tuple[int, ...]:
    """Choose one option in every row so that the sum of costs is smallest and the sum of sizes fits (exact).

    Args:
        costs: Cost of every option, (rows, options); any sign.
        sizes: Size of every option, integers that ascend along each row.
        capacity: Largest sum of sizes.

    Returns:
        The index of the chosen option of every row.

    Raises:
        InvalidInput: If even the smallest options do not fit.

    Notes:
        The multiple-choice knapsack problem by dynamic programming over the rows: of the partial choices those are kept
        that no other beats in size and cost, and whose cost plus the linear relaxation of the rows that are left does
        not exceed the best known choice. Optimal up to the rounding of sums in float64. Kellerer, Pferschy & Pisinger
        2004, chapter 11.

    Example:
        >>> cheapest_choice(np.array([[3.0, 0.0], [2.0, 0.0]]), np.array([[1, 2], [1, 2]]), 3)
        (1, 0)
    """
    smallest = int(sizes[:, 0].sum())
    require(smallest <= capacity, f"the capacity must be at least {smallest}", f"got {capacity}")
    order = np.argsort(-sizes[:, -1], kind="stable")  # large rows first: the bound gets tight early
    relaxed = [_Relaxation(costs[order[row:]], sizes[order[row:]]) for row in range(len(order) + 1)]
    best = relaxed[0].feasible_cost(capacity)
    slack = _SLACK * float(np.abs(costs).max(axis=1).sum())
    used, spent = np.zeros(1, dtype=np.int64), np.zeros(1)
    history: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for stage, row in enumerate(order):
        parents, options = np.divmod(np.arange(len(used) * costs.shape[1]), costs.shape[1])
        new_used = used[parents] + sizes[row][options]
        new_spent = spent[parents] + costs[row][options]
        rest = relaxed[stage + 1]
        fits = new_used + rest.smallest <= capacity
        parents, options, new_used, new_spent = (part[fits] for part in (parents, options, new_used, new_spent))
        promising = new_spent + rest.bound(capacity - new_used) <= best + slack
        parents, options, new_used, new_spent = (part[promising] for part in (parents, options, new_used, new_spent))
        by_size = np.lexsort((new_spent, new_used))
        kept = by_size[_is_first_minimum(new_spent[by_size])]
        used, spent = new_used[kept], new_spent[kept]
        history.append((parents[kept], options[kept]))
    place = int(np.argmin(spent))
    chosen = np.zeros(len(order), dtype=np.int64)
    for (parents, options), row in zip(reversed(history), reversed(order), strict=True):
        chosen[row], place = options[place], int(parents[place])
    return tuple(chosen.tolist())


def _is_first_minimum(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which values are below all that come before."""
    before = np.concatenate([[np.inf], np.minimum.accumulate(values)[:-1]])
    return values < before


class _Relaxation:
    """The linear relaxation over some rows: each on the lower convex hull of its options, steepest savings first."""

    def __init__(self, costs: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> None:
        self.smallest = int(sizes[:, 0].sum()) if len(sizes) else 0
        self.start = float(costs[:, 0].sum()) if len(sizes) else 0.0
        steps = [step for row in zip(costs, sizes, strict=True) for step in _hull_steps(*row)]
        steps.sort(key=lambda step: step[1] / step[0])
        self.sizes = np.cumsum([0] + [size for size, _ in steps])
        self.costs = self.start + np.cumsum([0.0] + [cost for _, cost in steps])

    def bound(self, capacity: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The cost of the relaxation, a lower bound on that of any choice within each capacity."""
        found: npt.NDArray[np.float64] = np.interp(capacity - self.smallest, self.sizes, self.costs)
        return found

    def feasible_cost(self, capacity: int) -> float:
        """The cost of the whole steps that fit, one row after the other: a choice that exists."""
        fitting = int(np.searchsorted(self.sizes, capacity - self.smallest, side="right")) - 1
        return float(self.costs[fitting])


def _hull_steps(costs: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, float]]:
    """Steps (size, change of cost) along the lower convex hull from the smallest option down to the cheapest."""
    place = 0
    while True:
        later = [other for other in range(place + 1, len(costs)) if costs[other] < costs[place]]
        if not later:
            return
        slopes = [(costs[other] - costs[place]) / float(sizes[other] - sizes[place]) for other in later]
        following = later[int(np.argmin(slopes))]
        yield int(sizes[following] - sizes[place]), float(costs[following] - costs[place])
        place = following
