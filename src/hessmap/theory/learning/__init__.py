"""Learning coefficients: how fast the volume of near-optimal weights shrinks, for linear networks."""

from hessmap.theory.learning.components import largest_component_codimension
from hessmap.theory.learning.global_coefficient import Coefficient, linear_learning_coefficient
from hessmap.theory.learning.local_coefficient import (
    LocalCoefficient,
    local_learning_coefficient,
    two_layer_coefficient,
)
from hessmap.theory.learning.of_network import learning_coefficient

__all__ = [
    "Coefficient",
    "LocalCoefficient",
    "largest_component_codimension",
    "learning_coefficient",
    "linear_learning_coefficient",
    "local_learning_coefficient",
    "two_layer_coefficient",
]
