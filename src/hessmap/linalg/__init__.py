"""Linear operators and their numerics, without networks: layout, Lanczos, orthogonalisation, memory."""

from hessmap.linalg.devices import (
    device_random_states,
    has_float64,
    restore_device_random_states,
    seed_devices,
    to_host,
    widest_dtype,
)
from hessmap.linalg.distributed import Processes, ShardedOperator, is_first_process
from hessmap.linalg.lanczos import BlockLanczos, ParallelLanczos, spectral_norm
from hessmap.linalg.layout import Layout
from hessmap.linalg.memory import (
    available_bytes,
    checked_budget,
    empty,
    is_out_of_memory,
    readable_bytes,
    require_memory,
    rows_that_fit,
    storage_address,
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
from hessmap.linalg.operator import (
    KEPT,
    DenseOperator,
    LinearOperator,
    Places,
    PrincipalBlock,
    SymmetricBlock,
    SymmetricOperator,
    as_operator,
)
from hessmap.linalg.orthogonalisation import inner_matrix, orthonormal_columns
from hessmap.linalg.scaled_product import ScaledProduct
from hessmap.linalg.shortcuts import (
    Fallbacks,
    checked_shortcut,
    disagreement,
    is_answerable,
    random_vector,
    reason_of,
    tolerance,
)

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
    "PrincipalBlock",
    "Processes",
    "ScaledProduct",
    "ShardedOperator",
    "SymmetricBlock",
    "SymmetricOperator",
    "as_operator",
    "asymmetry",
    "available_bytes",
    "centred_singular_values",
    "checked_budget",
    "checked_shortcut",
    "column_norms",
    "count_above",
    "device_random_states",
    "disagreement",
    "empty",
    "frobenius_norm",
    "has_float64",
    "inner_matrix",
    "is_answerable",
    "is_first_process",
    "is_out_of_memory",
    "largest_entry",
    "orthonormal_columns",
    "random_vector",
    "readable_bytes",
    "reason_of",
    "require_memory",
    "restore_device_random_states",
    "rows_that_fit",
    "seed_devices",
    "singular_values",
    "spectral_norm",
    "storage_address",
    "to_host",
    "tolerance",
    "widest_dtype",
]
