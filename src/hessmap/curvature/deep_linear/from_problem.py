"""From a Problem whose model is a linear chain to its closed form."""

from __future__ import annotations

from hessmap.curvature.deep_linear.network import DeepLinear
from hessmap.curvature.problem import Problem
from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.networks import describe


def deep_linear_of(problem: Problem) -> DeepLinear:
    """The deep linear network of a problem: no activation, squared loss, every parameter free, no l2."""
    architecture = describe(problem.model)
    if not architecture.is_linear:
        raise UnsupportedNetwork(
            sentence(
                "closed forms hold for linear networks",
                f"this one has activation '{architecture.activation}'",
                "Use loss_hessian(problem)",
            )
        )
    require(
        problem.loss.name == "squared",
        "closed forms hold for the squared loss",
        f"the loss is '{problem.loss.name}'",
        "Use loss_hessian(problem)",
    )
    require(problem.l2 == 0, "closed forms leave out the penalty", f"l2 is {problem.l2:g}", "Set l2 to 0")
    require(
        problem.num_parameters == architecture.num_parameters,
        "closed forms need every parameter free",
        f"{architecture.num_parameters - problem.num_parameters} of them are frozen",
    )
    named = problem.unflatten(problem.parameters)
    weights = [named[name] for name in problem.layout.names if name.endswith("weight")]
    biases = [named[name] for name in problem.layout.names if name.endswith("bias")] if architecture.bias else None
    ((inputs, targets, sample_weights),) = problem.batches()
    return DeepLinear.from_data(weights, biases, inputs.flatten(1), targets, sample_weights)
