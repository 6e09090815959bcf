"""Linear operators and their numerics, without networks: layout, Lanczos, orthogonalisation, memory."""

from hessmap.linalg.agreement import disagreement, random_vector, tolerance
from hessmap.linalg.fallbacks import Fallbacks, is_answerable, reason_of
from hessmap.linalg.lanczos import BlockLanczos, ParallelLanczos, spectral_norm
from hessmap.linalg.layout import Layout
from hessmap.linalg.memory import (
    available_bytes,
    checked_budget,
    is_out_of_memory,
    readable_bytes,
    require_memory,
    storage_address,
    touched_memory,
    unwritten,
)
from hessmap.linalg.norms import (
    Floats,
    asymmetry,
    centred_singular_values,
    column_norms,
    count_above,
    frobenius_norm,
    largest_entry,
    singular_values,
)
from hessmap.linalg.operator import KEPT, DenseOperator, LinearOperator, Places, SymmetricBlock, SymmetricOperator
from hessmap.linalg.orthogonalisation import inner_matrix, orthonormal_columns
from hessmap.linalg.scaled_product import ScaledProduct

__all__ = [
    "KEPT",
    "BlockLanczos",
    "DenseOperator",
    "Fallbacks",
    "Floats",
    "Layout",
    "LinearOperator",
    "ParallelLanczos",
    "Places",
    "ScaledProduct",
    "SymmetricBlock",
    "SymmetricOperator",
    "asymmetry",
    "available_bytes",
    "centred_singular_values",
    "checked_budget",
    "column_norms",
    "count_above",
    "disagreement",
    "frobenius_norm",
    "inner_matrix",
    "is_answerable",
    "is_out_of_memory",
    "largest_entry",
    "orthonormal_columns",
    "random_vector",
    "readable_bytes",
    "reason_of",
    "require_memory",
    "singular_values",
    "spectral_norm",
    "storage_address",
    "tolerance",
    "touched_memory",
    "unwritten",
]
