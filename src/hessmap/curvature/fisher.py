"""The Fisher information of a model's distribution, and what is often called so."""

from __future__ import annotations

from hessmap.curvature.hessians import Hessian
from hessmap.curvature.losses import require_parts
from hessmap.curvature.problem import Problem, require_problem
from hessmap.errors import InvalidInput, sentence


def fisher(problem: Problem) -> Hessian:
    """E_x E_y[grad log p(y|x) grad log p(y|x)^T], y drawn from the MODEL's own distribution, not from the data.

    The loss must be minus the logarithm of such a distribution whose natural parameters are the outputs: softmax
    cross-entropy, or squared (a Gaussian of unit variance). There it equals the outer-product Hessian, for any targets
    (Martens 2020, "New insights and perspectives on the natural gradient method", section 9): this is that operator,
    with its dense engine and its scale.

    >>> import torch, hessmap as hm
    >>> problem = hm.Problem(torch.nn.Linear(2, 2), "cross_entropy", torch.eye(2), torch.tensor([0, 1]))
    >>> outer = hm.outer_product_hessian(problem).to_dense()
    >>> bool(torch.allclose(fisher(problem).to_dense(), outer))  # of cross-entropy it is the outer-product Hessian
    True
    """
    require_problem(problem)
    require_parts(problem.loss, "the Fisher information")
    if not problem.loss.is_log_likelihood:
        must = "the Fisher information needs a loss that is minus a log-likelihood with the outputs as parameters"
        remedy = "Use outer_product_hessian(problem), or empirical_fisher(problem)"
        raise InvalidInput(sentence(must, f"'{problem.loss.name}' is not known to be one", remedy))
    return Hessian(problem, "outer_product")


def empirical_fisher(problem: Problem) -> Hessian:
    """E[g g^T] of the gradients g of each sample's loss at its GIVEN target: not the Fisher information, and no
    approximation of the Hessian away from a well-specified optimum (Kunstner, Balles & Hennig 2019).

    >>> import torch, hessmap as hm
    >>> problem = hm.Problem(torch.nn.Linear(2, 2), "cross_entropy", torch.eye(2), torch.tensor([0, 1]))
    >>> empirical_fisher(problem).to_dense().shape
    torch.Size([6, 6])
    """
    require_problem(problem)
    return Hessian(problem, "empirical_fisher")
