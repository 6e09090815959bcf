"""Any operator or matrix in, a record out; never a network."""

from hessmap.measurement.ball_eigenvalue import smallest_eigenvalue_enclosure
from hessmap.measurement.certified_rank import certified_data_ranks, certified_matrix_rank, certified_rank
from hessmap.measurement.dense_spectrum import spectrum
from hessmap.measurement.effective_dimension import effective_dimension
from hessmap.measurement.generic_rank import generic_rank
from hessmap.measurement.numerical_rank import numerical_rank
from hessmap.measurement.overlap import subspace_overlap
from hessmap.measurement.reconstruction import reconstruction_error
from hessmap.measurement.reduced_spectrum import reduced_spectrum
from hessmap.measurement.shifted_solve import solve
from hessmap.measurement.top_eigenpairs import top_eigenpairs

__all__ = [
    "certified_data_ranks",
    "certified_matrix_rank",
    "certified_rank",
    "effective_dimension",
    "generic_rank",
    "numerical_rank",
    "reconstruction_error",
    "reduced_spectrum",
    "smallest_eigenvalue_enclosure",
    "solve",
    "spectrum",
    "subspace_overlap",
    "top_eigenpairs",
]
