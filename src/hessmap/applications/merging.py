"""Models and tasks joined by curvature: merged models, and a penalty for what an earlier task needs.

Two losses with minima v_1, v_2 and Hessians K_1, K_2 there have the joint quadratic model ``sum_i (v - v_i)^T K_i (v -
v_i) / 2``, whose minimum is ``(K_1 + K_2)^-1 (K_1 v_1 + K_2 v_2)``: exact for linear models with a squared loss (Matena
& Raffel 2022 with diagonals). Elastic weight consolidation adds one of the terms to the loss of the next task
(Kirkpatrick et al. 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from hessmap.applications.curvatures import Curvature, chosen_curvature
from hessmap.errors import InvalidInput, checked_number, require, sentence, short_text
from hessmap.linalg import Layout, SymmetricOperator, as_operator
from hessmap.measurement import krylov_solve, solve
from hessmap.problem import Problem, require_problem

Curvatures = Mapping[str, Tensor] | SymmetricOperator
_DENSE = 2000  # parameters up to which the sum of the curvatures is formed
_DAMPING = 1e-6  # of the mean eigenvalue, where none is given
_TOLERANCE = 1e-10


class EwcPenalty:
    """A quadratic penalty around trained weights; made by ``ewc_penalty``.

    Args:
        layout: Names and shapes of the parameters.
        centre: The trained parameters, flat.
        curvature: Operator over the parameters.
        strength: Factor of the penalty.

    Attributes:
        layout: Names and shapes of the parameters.
        centre: The trained parameters, flat.
        curvature: Operator over the parameters.
        strength: Factor of the penalty.
    """

    def __init__(self, layout: Layout, centre: Tensor, curvature: Curvature, strength: float) -> None:
        self.layout = layout
        self.centre = centre
        self.curvature = curvature
        self.strength = strength

    def __call__(self, model: nn.Module) -> Tensor:
        """strength / 2 (v - centre)^T K (v - centre) of a model's parameters v, as a scalar to add to its loss.

        Args:
            model: A model with the parameters of the problem.

        Returns:
            Tensor: A scalar with the gradient strength K (v - centre) in the model's parameters.
        """
        change = _flat(model, self.layout).to(self.centre) - self.centre
        fixed = change.detach()
        image = self.curvature @ fixed
        # The gradient of a quadratic form is the product itself: one product, and no derivative of the operator.
        return self.strength * (change @ image - fixed @ image / 2)


def ewc_penalty(problem: Problem, curvature: str | Curvature = "diagonal", *, strength: float = 1.0) -> EwcPenalty:
    """Make a penalty that keeps what a trained network needs for its task (elastic weight consolidation).

    Args:
        problem: The network after the task, the task's loss and data.
        curvature: A kind of ``kronecker_curvature``, such a curvature, or any operator over the parameters. Defaults
            to the exact diagonal.
        strength: Factor of the penalty; 1 weights the earlier task's mean loss as much as the new one's.

    Returns:
        EwcPenalty: A function of a model; ``loss + penalty(model)`` is what the next task minimises.

    Raises:
        InvalidInput: If the strength is negative, or the curvature is not that of the problem's parameters.

    Notes:
        The curvature is the mean over samples of squared derivatives. The square of the gradient of a batch is not: at
        a minimum it is close to zero.

    Example:
        >>> import hessmap as hm
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> penalty = ewc_penalty(hm.Problem(model, "squared", torch.eye(2), torch.zeros(2, 1)))
        >>> moved = torch.nn.Linear(2, 1, bias=False)
        >>> moved.weight.data = model.weight.data + torch.tensor([[2.0, 0.0]])
        >>> round(penalty(moved).item(), 6)  # 2^2 times half of the mean of x^2 = 1/2
        1.0
    """
    require_problem(problem)
    factor = checked_number("strength", strength)
    require(factor >= 0, "strength must not be negative", f"got {factor:g}")
    chosen = chosen_curvature(problem, curvature)
    return EwcPenalty(problem.layout, problem.parameters.clone(), chosen, factor)


def merge(
    models: Sequence[nn.Module],
    curvatures: Sequence[Curvatures],
    *,
    weights: Sequence[float] | None = None,
    damping: float | None = None,
) -> nn.Module:
    """Merge models of one architecture by their curvatures: the minimum of the sum of their quadratic models.

    Args:
        models: Models with the same parameters, each at the minimum of its own loss.
        curvatures: The curvature of each: a dictionary of diagonals (``fisher_diagonal``), a curvature of
            ``kronecker_curvature``, or any operator with a layout such as ``hm.ggn(problem)``.
        weights: Weight of each model, such as its number of samples. Defaults to equal weights.
        damping: Added to every eigenvalue of the weighted sum of curvatures, which pulls the result towards the mean of
            the models. Defaults to 1e-6 of the mean eigenvalue; 0 needs a sum that is not singular.

    Returns:
        A copy of the first model with the merged parameters; parameters without a curvature are averaged, buffers are
        those of the first model.

    Raises:
        InvalidInput: If the models and curvatures do not fit each other, or the sum of the curvatures is singular.

    Notes:
        Exact for linear models with a squared loss and the full curvature. Directions that no curvature covers get the
        mean of the models.

    Example:
        >>> one, two = (torch.nn.Linear(2, 1, bias=False) for _ in range(2))
        >>> _ = one.weight.data.copy_(torch.tensor([[1.0, 0.0]])), two.weight.data.copy_(torch.tensor([[0.0, 1.0]]))
        >>> merged = merge([one, two], [{"weight": torch.tensor([[3.0, 1.0]])}, {"weight": torch.tensor([[1.0, 1.0]])}])
        >>> merged.weight.data.round(decimals=4)  # weighted by 3 : 1 in the first entry
        tensor([[0.7500, 0.5000]])
    """
    for given in (models, curvatures):
        must = "models and curvatures must be lists"
        require(isinstance(given, list | tuple), must, f"got {short_text(given)}")
    must = "merge needs at least one model and a curvature for each"
    require(len(models) == len(curvatures) > 0, must, f"got {len(models)} models and {len(curvatures)} curvatures")
    for model in models:
        require(isinstance(model, nn.Module), "models must be torch modules", f"got {short_text(model)}")
    must = "weights must be a list of numbers"
    require(weights is None or isinstance(weights, list | tuple), must, f"got {short_text(weights)}")
    factors = [1.0] * len(models) if weights is None else [checked_number("weights", one) for one in weights]
    fits = len(factors) == len(models) and all(one >= 0 for one in factors) and sum(factors) > 0
    require(fits, "weights must be one per model, not negative and not all zero", f"got {factors}")
    curvatures = [_without_aliases(one, models[0]) for one in curvatures]
    layouts = [_layout_of(one) for one in curvatures]
    for layout in layouts:
        must = "all curvatures must have the same parameters"
        require(layout == layouts[0], must, "names, shapes or their order differ")
    layout = layouts[0]
    require(layout.size > 0, "a curvature must have at least one parameter", "the dictionaries are empty")
    operators = [_operator_of(one, layout) for one in curvatures]
    like = torch.zeros(0, dtype=torch.float64, device=operators[0].device)
    values = [_flat(model, layout).detach().to(like) for model in models]
    mean = sum(factor * value for factor, value in zip(factors, values, strict=True)) / sum(factors)
    assert isinstance(mean, Tensor)
    right = torch.zeros_like(mean)
    for factor, operator, value in zip(factors, operators, values, strict=True):
        right += factor * (operator @ (value - mean)).to(right)
    total = _Sum(factors, operators, curvatures)
    merged = mean + total.solve(right, damping)
    return _with_parameters(models, factors, layout, merged)


class _Sum:
    """The weighted sum of curvatures: a diagonal, a matrix up to 2,000 parameters, products above."""

    def __init__(
        self, factors: Sequence[float], operators: Sequence[SymmetricOperator], given: Sequence[Curvatures]
    ) -> None:
        self.factors = factors
        self.operators = operators
        self.is_diagonal = all(isinstance(one, Mapping) for one in given)

    @property
    def size(self) -> int:
        return self.operators[0].size

    def matmat(self, vectors: Tensor) -> Tensor:
        return sum(factor * (one @ vectors) for factor, one in zip(self.factors, self.operators, strict=True))  # type: ignore[return-value]

    def solve(self, right: Tensor, damping: float | None) -> Tensor:
        if self.is_diagonal:
            diagonal = self.matmat(torch.ones_like(right)[:, None])[:, 0].to(right)
            damped = diagonal + self._damping(diagonal, damping)
            must, got = "the sum of the curvatures must not be singular", "a diagonal entry is zero"
            require(bool((damped > 0).all()), must, got, "Pass a positive damping")
            return right / damped
        if self.size <= _DENSE:
            dense = sum(factor * one.to_dense() for factor, one in zip(self.factors, self.operators, strict=True))
            assert isinstance(dense, Tensor)
            found = solve(dense, right, shift=self._damping(dense.diagonal(), damping))
            return torch.as_tensor(found.solution).to(right)
        diagonals = [one.exact_diagonal() for one in self.operators]
        known = [factor * one for factor, one in zip(self.factors, diagonals, strict=True) if one is not None]
        must, got = (
            "damping must be given for these operators",
            "its default is set by their mean eigenvalue, which is unknown",
        )
        require(damping is not None or len(known) == len(diagonals), must, got)
        shift = self._damping(torch.stack(known).sum(0) if known else right, damping)
        product = as_operator(self.matmat, self.size, dtype=right.dtype, device=right.device, takes_columns=True)
        iterated = krylov_solve(product, right, shift=shift, tolerance=_TOLERANCE)
        if not iterated.converged:
            got = f"the relative residual stayed at {iterated.relative_residuals.max():.1g}"
            raise InvalidInput(sentence("the sum of the curvatures must be solvable", got, "Increase damping"))
        return torch.as_tensor(iterated.solution).to(right)

    def _damping(self, diagonal: Tensor, damping: float | None) -> float:
        if damping is None:
            return _DAMPING * float(diagonal.mean())
        value = checked_number("damping", damping)
        require(value >= 0, "damping must not be negative", f"got {value:g}")
        return value


def _without_aliases(curvature: Curvatures, model: nn.Module) -> Curvatures:
    """A dictionary without the further names of tied parameters, which a state dict has."""
    if not isinstance(curvature, Mapping):
        return curvature
    first = dict(model.named_parameters())
    further = {name for name, _ in model.named_parameters(remove_duplicate=False) if name not in first}
    return {name: value for name, value in curvature.items() if name not in further}


def _layout_of(curvature: Curvatures) -> Layout:
    if isinstance(curvature, Mapping):
        return Layout(tuple((name, tuple(value.shape)) for name, value in curvature.items()))
    must = "a curvature must be a dictionary of diagonals or an operator with a layout"
    layout = curvature.layout if isinstance(curvature, SymmetricOperator) else None
    if layout is None:
        raise InvalidInput(sentence(must, f"got {type(curvature).__name__}", "Use hm.kronecker_curvature(problem)"))
    return layout


def _operator_of(curvature: Curvatures, layout: Layout) -> SymmetricOperator:
    if not isinstance(curvature, Mapping):
        return curvature
    diagonal = torch.cat([value.detach().flatten().double() for value in curvature.values()])
    device = diagonal.device
    return as_operator(lambda vectors: diagonal[:, None] * vectors, layout.size, device=device, takes_columns=True)


def _flat(model: nn.Module, layout: Layout) -> Tensor:
    """The parameters of a model in the order of a layout; in the graph of the model."""
    named = dict(model.named_parameters())
    for name, shape in layout.shapes:
        must = f"the model must have the parameter '{name}' of shape {shape}"
        found = named.get(name)
        require(
            found is not None and tuple(found.shape) == shape, must, "it has not" if found is None else "it differs"
        )
    return torch.cat([named[name].reshape(-1) for name in layout.names])


def _with_parameters(
    models: Sequence[nn.Module], factors: Sequence[float], layout: Layout, merged: Tensor
) -> nn.Module:
    result, places = deepcopy(models[0]), dict(layout)
    named = [dict(model.named_parameters()) for model in models]
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            if name in places:
                parameter.copy_(merged[places[name]].reshape(parameter.shape))
                continue
            for own in named:
                must = f"every model must have the parameter '{name}' of shape {tuple(parameter.shape)}"
                require(name in own and own[name].shape == parameter.shape, must, "one has not")
            shares = torch.tensor(factors, dtype=parameter.dtype, device=parameter.device) / sum(factors)
            parameter.copy_(torch.tensordot(shares, torch.stack([own[name].detach() for own in named]), 1))
    return result
