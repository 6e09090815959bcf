"""Teacher and student on Gaussian inputs: population losses and Hessians, their spectra and ranks."""

from hessmap.theory.teacher_student import two_layers as closed_forms
from hessmap.theory.teacher_student.network import TeacherStudent
from hessmap.theory.teacher_student.orthonormal import (
    SpectralBlock,
    orthonormal_quadratic_blocks,
    orthonormal_quadratic_spectrum,
)
from hessmap.theory.teacher_student.quadrature import ActivationFunction
from hessmap.theory.teacher_student.spectral_law import (
    LinearSpectrumLaw,
    MarchenkoPastur,
    OneTeacherLaw,
    exact_moments,
    linear_eigenvalues,
)
from hessmap.theory.teacher_student.weights import Weights

__all__ = [
    "ActivationFunction",
    "LinearSpectrumLaw",
    "MarchenkoPastur",
    "OneTeacherLaw",
    "SpectralBlock",
    "TeacherStudent",
    "Weights",
    "closed_forms",
    "exact_moments",
    "linear_eigenvalues",
    "orthonormal_quadratic_blocks",
    "orthonormal_quadratic_spectrum",
]
