"""Formulas: integers and small arrays in, records out. One theorem a function, one setting a file; nothing is measured.

Three questions have one answer for every network: ``predict_ranks`` (the ranks of the three Hessians),
``effective_parameters`` (the rank at a teacher) and ``learning_coefficient`` (of linear networks). Behind them and
beside them stand the formulas, by what they describe: ``fully_connected``, ``convolutional``, ``locally_connected``,
``attention``, ``residual``, ``polynomial``, ``losses_and_data``, ``layers`` (of one layer), ``learning`` (the volume of
near-optimal weights), ``functions`` (the rank of a function), ``teacher_student`` (Gaussian inputs) and ``pac_bayes``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hessmap.theory import attention, convolutional, fully_connected, locally_connected, losses_and_data, residual
from hessmap.theory.attention.prediction import self_attention_ranks
from hessmap.theory.convolutional.prediction import convolutional_ranks, image_convolutional_ranks
from hessmap.theory.fully_connected.hessian_ranks import (
    HessianRanks,
    linear_hessian_ranks,
    linear_hessian_ranks_with_bias,
)
from hessmap.theory.fully_connected.prediction import fully_connected_ranks
from hessmap.theory.locally_connected import locally_connected_network_ranks
from hessmap.theory.losses_and_data.losses import LOSSES, effective_output_dim
from hessmap.theory.prediction import RankQuestion, predict_ranks, rank_rule
from hessmap.theory.residual import residual_ranks

if TYPE_CHECKING:
    from hessmap.theory import functions, layers, learning, pac_bayes, polynomial, teacher_student
    from hessmap.theory.learning import learning_coefficient
    from hessmap.theory.parameter_count import effective_parameters

# What predictions of ranks do not need is loaded when it is first used.
_FOLDERS = ("functions", "layers", "learning", "pac_bayes", "polynomial", "teacher_student")
_HOME_OF = {"effective_parameters": "parameter_count", "learning_coefficient": "learning"}

# The rules that ``predict_ranks`` knows; each registers itself where it is defined.
RANK_RULES = (
    fully_connected_ranks,
    convolutional_ranks,
    image_convolutional_ranks,
    locally_connected_network_ranks,
    self_attention_ranks,
    residual_ranks,
)

__all__ = [
    "LOSSES",
    "RANK_RULES",
    "HessianRanks",
    "RankQuestion",
    "attention",
    "convolutional",
    "effective_output_dim",
    "effective_parameters",
    "fully_connected",
    "functions",
    "layers",
    "learning",
    "learning_coefficient",
    "linear_hessian_ranks",
    "linear_hessian_ranks_with_bias",
    "locally_connected",
    "losses_and_data",
    "pac_bayes",
    "polynomial",
    "predict_ranks",
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
