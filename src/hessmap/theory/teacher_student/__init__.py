"""Teacher and student on Gaussian inputs: population losses and Hessians, their spectra and ranks."""

from hessmap.theory.teacher_student import closed_forms
from hessmap.theory.teacher_student.functions import ActivationFunction
from hessmap.theory.teacher_student.network import TeacherStudent
from hessmap.theory.teacher_student.weights import Weights

__all__ = ["ActivationFunction", "TeacherStudent", "Weights", "closed_forms"]
