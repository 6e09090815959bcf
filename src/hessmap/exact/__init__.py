"""Networks over GF(P): exact values, exact Hessians, exact ranks.

A float64 is a dyadic rational, so weights and data map into GF(P) without rounding (``FieldArray``). Every array
carries its ``Height``, a rigorous bound on the numbers it stands for, and the final rank turns that into the
probability that an unlucky prime made it too small (``rank``).
"""

from hessmap.exact.certified import certified_data_ranks, certified_matrix_rank, certified_rank, certified_rank_bounds
from hessmap.exact.evaluation import Evaluation, Mask, Selection, Signs, evaluate, require_outputs, signs
from hessmap.exact.field import FieldArray, PrimeField, field_rank, from_floats, identity, random_prime_field
from hessmap.exact.generic import generic_hessian_ranks, generic_rank
from hessmap.exact.network import (
    Chain,
    Floats,
    LeakyRelu,
    MaxPool,
    gradients_by_inputs,
    in_field,
    layer_outputs,
    layer_patches,
)
from hessmap.exact.reading import read_chain, tensor_inputs

__all__ = [
    "Chain",
    "Evaluation",
    "FieldArray",
    "Floats",
    "LeakyRelu",
    "Mask",
    "MaxPool",
    "PrimeField",
    "Selection",
    "Signs",
    "certified_data_ranks",
    "certified_matrix_rank",
    "certified_rank",
    "certified_rank_bounds",
    "evaluate",
    "field_rank",
    "from_floats",
    "generic_hessian_ranks",
    "generic_rank",
    "gradients_by_inputs",
    "identity",
    "in_field",
    "layer_outputs",
    "layer_patches",
    "random_prime_field",
    "read_chain",
    "require_outputs",
    "signs",
    "tensor_inputs",
]
