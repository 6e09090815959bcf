"""Formulas: integers and small arrays in, records out; nothing is measured.

Three functions cover every network: ``predict_ranks`` (the ranks of the three Hessians), ``effective_parameters`` (the
rank at a teacher) and ``learning_coefficient`` (of linear networks). The formulas that they use are grouped by kind of
network (``fully_connected``, ``convolutional``, ``locally_connected``, ``attention``, ``residual``, ``polynomial``) and
by subject: ``layers`` (one layer), ``learning`` (the volume of near-optimal weights), ``functions`` (the rank of a
function), ``teacher_student`` (Gaussian inputs) and ``pac_bayes``.

``INDEX`` lists the rank formulas: network, Hessian, function, kind of result, reference. ``find_formulas`` searches it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hessmap.theory import attention, convolutional, fully_connected, locally_connected, residual
from hessmap.theory.attention.heads import self_attention_ranks
from hessmap.theory.convolutional.prediction import convolutional_ranks, image_convolutional_ranks
from hessmap.theory.data_ranks import (
    LOSSES,
    RankInputs,
    RankQuestion,
    effective_output_dim,
    outer_product_sample_upper_bound,
)
from hessmap.theory.fully_connected.linear import HessianRanks
from hessmap.theory.fully_connected.prediction import fully_connected_ranks
from hessmap.theory.locally_connected import locally_connected_network_ranks
from hessmap.theory.prediction import INDEX, Formula, find_formulas, predict_ranks, rank_rule
from hessmap.theory.residual import residual_ranks

if TYPE_CHECKING:
    from hessmap.theory import functions, layers, learning, pac_bayes, polynomial, teacher_student
    from hessmap.theory.fully_connected.signature import predict_spectrum
    from hessmap.theory.learning import learning_coefficient
    from hessmap.theory.teacher_student.two_layers import effective_parameters

# Modules that predictions of ranks do not need are loaded when they are first used.
_FOLDERS = ("functions", "layers", "learning", "pac_bayes", "polynomial", "teacher_student")
_HOME_OF = {
    "effective_parameters": "teacher_student.two_layers",
    "learning_coefficient": "learning",
    "predict_spectrum": "fully_connected.signature",
}

# The rules of ``predict_ranks``; each registers itself where it is defined.
RANK_RULES = (
    fully_connected_ranks,
    convolutional_ranks,
    image_convolutional_ranks,
    locally_connected_network_ranks,
    self_attention_ranks,
    residual_ranks,
)

__all__ = [
    "INDEX",
    "LOSSES",
    "RANK_RULES",
    "Formula",
    "HessianRanks",
    "RankInputs",
    "RankQuestion",
    "attention",
    "convolutional",
    "effective_output_dim",
    "effective_parameters",
    "find_formulas",
    "fully_connected",
    "functions",
    "layers",
    "learning",
    "learning_coefficient",
    "locally_connected",
    "outer_product_sample_upper_bound",
    "pac_bayes",
    "polynomial",
    "predict_ranks",
    "predict_spectrum",
    "rank_rule",
    "residual",
    "teacher_student",
]


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return import_module(f"{__name__}.{name}")
    if name in _HOME_OF:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
