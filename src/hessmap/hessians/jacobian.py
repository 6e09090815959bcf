"""The output Jacobian and the tangent kernels made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.func import vjp, vmap

from hessmap.errors import checked_count, require, require_name
from hessmap.linalg import full_precision, is_answerable, require_memory, rows_that_fit
from hessmap.problem import Inputs, Problem, map_tensors, num_rows, require_samples, take_rows, vjp_rows

Kernel = Literal["full", "trace", "single_output"]


@torch.inference_mode(False)
def output_jacobian(problem: Problem) -> Tensor:
    """The derivative of every sample's outputs in the parameters.

    Args:
        problem: Model, data and loss.

    Returns:
        Tensor: Shape (num_samples, output_dim, num_parameters).

    Raises:
        TooLarge: If it does not fit the available memory.

    Notes:
        One vector-Jacobian product per output and sample, in the sample's own copy of the parameters.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 3), "squared", torch.eye(2), torch.zeros(2, 3))
        >>> output_jacobian(problem).shape  # samples, outputs, parameters
        torch.Size([2, 3, 9])
    """
    require_samples(problem, "the output Jacobian")
    size = problem.dtype.itemsize * problem.num_samples * problem.output_dim * problem.num_parameters
    require_memory("the output Jacobian", size, "Use fewer samples, or products with outer_product_hessian")
    rows = [_rows(problem, inputs) for inputs, _, _ in problem.ordered_batches(_samples_at_once(problem))]
    return torch.cat(rows)


def tangent_kernel(problem: Problem, kind: Kernel = "full", output: int = 0) -> Tensor:
    """The empirical neural tangent kernel J J^T.

    Args:
        problem: Model, data and loss.
        kind: "full" (default): num_samples * output_dim square, rows ordered (sample, output). "trace": num_samples
            square, summed over the outputs. "single_output": num_samples square, of one output.
        output: Index of the output for "single_output". Defaults to 0.

    Returns:
        Tensor: A positive semidefinite matrix.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 1, bias=False), "squared", torch.eye(2), torch.zeros(2, 1))
        >>> tangent_kernel(problem)  # x^T x' of orthogonal samples
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    require_name("kind", kind, get_args(Kernel))
    jacobian = output_jacobian(problem)
    if kind == "full":
        flat = jacobian.flatten(0, 1)
        return flat @ flat.T
    if kind == "trace":
        flat = jacobian.flatten(1)
        return flat @ flat.T
    count, index = problem.output_dim, checked_count("output", output, 0)
    require(index < count, f"output must be in 0..{count - 1}", f"got {index}")
    return jacobian[:, index] @ jacobian[:, index].T


def _rows(problem: Problem, inputs: Inputs) -> Tensor:
    units = torch.eye(problem.output_dim, dtype=problem.dtype, device=problem.device)
    return jacobian_rows(problem, inputs, units.expand(num_rows(inputs), -1, -1))


def jacobian_rows(problem: Problem, inputs: Inputs, cotangents: Tensor, names: Sequence[str] | None = None) -> Tensor:
    """Vector-Jacobian products of single samples: cotangents_n @ doutput_n / dparameters.

    Args:
        problem: Model, data and loss.
        inputs: Inputs of some samples.
        cotangents: Rows in the outputs of each sample, shape (samples, rank, output_dim).
        names: Parameters to differentiate. Defaults to all of ``problem.layout``.

    Returns:
        Tensor: Shape (samples, rank, entries), in the order of the names.
    """
    chosen = {name: problem.named[name] for name in names or problem.layout.names}

    def one(sample: Inputs, rows: Tensor) -> Tensor:
        alone = map_tensors(lambda values: values[None], sample)
        linearised: Any = vjp(lambda own: problem.forward({**problem.named, **own}, alone), chosen)
        found = vmap(linearised[1])(rows[:, None])[0]
        return torch.cat([found[name].flatten(1) for name in chosen], 1)

    try:
        with full_precision(problem.device):
            rows: Tensor = vmap(one)(inputs, cotangents)
        return rows.detach()
    except Exception as error:  # modules that write in place or branch on values, functions of one's own
        if not is_answerable(error):
            raise
        problem.count_fallback("derivatives of single samples were computed sample by sample", error)
    return torch.stack([_rows_of_one(problem, chosen, inputs, cotangents, number) for number in range(len(cotangents))])


def _rows_of_one(
    problem: Problem, chosen: dict[str, Tensor], inputs: Inputs, cotangents: Tensor, number: int
) -> Tensor:
    leaves = {name: value.detach().requires_grad_() for name, value in chosen.items()}
    with torch.enable_grad():
        outputs = problem.forward({**problem.named, **leaves}, take_rows(inputs, slice(number, number + 1)))
    given = [row[None, None] for row in cotangents[number]]
    parts = [vjp_rows([outputs], list(leaves.values()), [row], vectorised=False) for row in given]
    return torch.stack([torch.cat([part.flatten() for part in own]) for own in parts])


def _samples_at_once(problem: Problem) -> int:
    per_sample = problem.dtype.itemsize * 3 * problem.output_dim * problem.num_parameters
    return rows_that_fit(problem.working_bytes, per_sample, problem.num_samples)
