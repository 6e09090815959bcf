"""Public names of the top and of one level down, called with odd arguments: a result or one sentence, no traceback."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import HessmapError

INPUTS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(12) % 3
NET = hm.FullyConnected((4, 3, 3), activation="relu", bias=True)


def network() -> nn.Module:
    return NET.build(seed=1)


@cache
def problem() -> hm.Problem:
    return hm.Problem(network(), "cross_entropy", INPUTS, LABELS)


@cache
def linear_problem() -> hm.Problem:
    return hm.Problem(hm.FullyConnected((2, 2, 2)).build(seed=0), "squared", torch.eye(2), torch.ones(2, 2))


@cache
def map_of() -> Any:
    return hm.map(network(), (INPUTS, LABELS), loss="cross_entropy")


# A call that works for every name; each of its arguments is then replaced by odd ones.
CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "Convolutional": lambda: {
        "input_length": 6,
        "channels": (1, 2),
        "kernels": (2,),
        "strides": (1,),
        "outputs": 2,
        "bias": True,
        "activation": "relu",
        "paddings": (0,),
    },
    "FullyConnected": lambda: {"widths": (4, 3, 2), "bias": True, "activation": "relu"},
    "networks.LocallyConnected": lambda: {
        "patches": 2,
        "patch_size": 2,
        "filters": 2,
        "outputs": 2,
        "shared_weights": True,
    },
    "networks.Residual": lambda: {
        "width": 3,
        "num_blocks": 2,
        "inner_width": 2,
        "input_dim": 3,
        "train_input": True,
        "train_output": False,
    },
    "networks.SelfAttention": lambda: {
        "width": 3,
        "key_width": 2,
        "value_width": 2,
        "heads": 2,
        "outputs": 2,
        "read": "all",
    },
    "theory.teacher_student.TeacherStudent": lambda: {
        "inputs": 4,
        "hidden": 3,
        "activation": "relu",
        "outputs": 1,
        "hidden_bias": False,
    },
    "maps.functions.bottleneck_view": lambda: {"model": network(), "inputs": INPUTS},
    "certified_rank": lambda: {"problem": linear_problem(), "part": "loss", "seed": 0},
    "exact.certified_rank_bounds": lambda: {"problem": problem(), "part": "loss", "seed": 0},
    "compare_maps": lambda: {"old": map_of(), "new": map_of(), "old_name": "a"},
    "compression_plan": lambda: {
        "problem": problem(),
        "bits": (2, 4),
        "mean_bits": 3,
        "layers": ["0.weight"],
        "per": "tensor",
        "prediction": "diagonal",
        "part": "loss",
        "sparsity": 0.5,
        "seed": 0,
    },
    "curvature_projection": lambda: {"problem": problem(), "layer": "0", "keep": 0.5, "curvature": "kfac"},
    "density_estimate": lambda: {"matrix": hm.loss_hessian(problem()), "num_steps": 4, "num_probes": 2, "seed": 0},
    "describe": lambda: {"module": network()},
    "effective_dimension": lambda: {"matrix": np.eye(3), "epsilon": 0.1},
    "effective_parameters": lambda: {"inputs": 4, "hidden": 3, "activation": "relu", "bias": "none", "outputs": 1},
    "fisher": lambda: {"problem": problem()},
    "function_rank": lambda: {"model": network(), "inputs": INPUTS},
    "functional_hessian": lambda: {"problem": problem()},
    "ggn": lambda: {"problem": problem()},
    "generic_rank": lambda: {"net": hm.FullyConnected((2, 2, 2)), "part": "loss", "loss": "squared", "seed": 0},
    "kronecker_approximation": lambda: {"problem": problem(), "name": "0"},
    "kronecker_curvature": lambda: {"problem": problem(), "kind": "kfac", "sharing": "expand", "seed": 0},
    "kronecker_error": lambda: {"problem": problem(), "curvature": hm.kronecker_curvature(problem()), "count": 1},
    "layer_eigenpairs": lambda: {"hessian": hm.layer_hessian(problem(), "0"), "count": 2},
    "layer_factors": lambda: {"problem": problem(), "name": "0"},
    "layer_hessian": lambda: {"problem": problem(), "name": "0"},
    "layer_names": lambda: {"problem": problem()},
    "learning_coefficient": lambda: {"network": hm.FullyConnected((3, 2, 2)), "rank": 1},
    "loss_hessian": lambda: {"problem": problem()},
    "loss_plane": lambda: {
        "problem": problem(),
        "directions": "random",
        "dimensions": 1,
        "extent": 0.1,
        "num_points": 3,
        "seed": 0,
    },
    "map": lambda: {"model": network(), "data": (INPUTS, LABELS), "loss": "cross_entropy", "seed": 0},
    "numerical_rank": lambda: {"matrix": np.eye(3), "scale": 1.0, "relative_tolerance": 1e-6},
    "outer_product_hessian": lambda: {"problem": problem()},
    "output_jacobian": lambda: {"problem": problem()},
    "predict_spectrum": lambda: {"network": hm.FullyConnected((4, 3, 2)), "singular_values": [1.0]},
    "predict_ranks": lambda: {
        "network": hm.FullyConnected((4, 3, 2), bias=True),
        "loss": "squared",
        "input_rank": 3,
        "residual_rank": 2,
        "centred_input_rank": 3,
        "mean_residual_is_zero": False,
        "num_samples": 9,
    },
    "pruning_plan": lambda: {
        "problem": problem(),
        "sparsity": 0.5,
        "method": "obs",
        "scope": "layer",
        "layers": ["0.weight"],
        "part": "outer_product",
        "damping": 0.1,
        "seed": 0,
    },
    "ewc_penalty": lambda: {"problem": problem(), "curvature": "diagonal", "strength": 1.0},
    "fisher_diagonal": lambda: {"problem": problem(), "fisher": "exact", "seed": 0},
    "influence": lambda: {"problem": problem(), "queries": problem(), "curvature": "kfac", "damping": 0.1},
    "laplace": lambda: {"problem": problem(), "curvature": "kfac", "prior_precision": 1.0, "noise": 1.0},
    "merge": lambda: {
        "models": [network(), network()],
        "curvatures": [hm.fisher_diagonal(problem())] * 2,
        "weights": [1.0, 2.0],
        "damping": 0.1,
    },
    "sample_gradients": lambda: {"problem": problem()},
    "cost_plan": lambda: {"problem": problem(), "measurement": "sharpness"},
    "sharpness": lambda: {"matrix": hm.loss_hessian(problem()), "tolerance": 0.1, "max_products": 50, "seed": 0},
    "solve": lambda: {"matrix": np.eye(3), "right_side": np.ones(3), "shift": 1.0},
    "spectrum": lambda: {"matrix": np.eye(3), "vectors": True, "scale": 1.0},
    "measurement.subspace_overlap": lambda: {"first": np.eye(4)[:, :2], "second": np.eye(4)[:, :2]},
    "hessians.tangent_kernel": lambda: {"problem": problem(), "kind": "full", "output": 0},
    "top_eigenpairs": lambda: {"matrix": hm.loss_hessian(problem()), "count": 2, "which": "largest", "seed": 0},
    "trace_estimate": lambda: {"matrix": np.eye(3), "relative_error": 0.1, "method": "auto", "seed": 0},
    "train": lambda: {"model": network(), "data": (INPUTS, LABELS), "epochs": 1, "seed": 0},
}
ODD: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "text": lambda: "loss ",
    "negative": lambda: -1,
    "zero": lambda: 0,
    "fraction": lambda: 2.5,
    "whole float": lambda: 2.0,
    "huge": lambda: 2**70,
    "NaN": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "yes": lambda: True,
    "complex": lambda: 1 + 2j,
    "empty list": lambda: [],
    "list of text": lambda: ["a", "b"],
    "dictionary": lambda: {"a": 1},
    "object": object,
    "class": lambda: int,
    "empty tensor": lambda: torch.empty(0),
    "narrow tensor": lambda: torch.ones(12, 2),
    "whole tensor": lambda: torch.ones(12, 4, dtype=torch.long),
    "complex tensor": lambda: torch.ones(12, 4, dtype=torch.complex64),
    "sparse tensor": lambda: torch.eye(4).to_sparse(),
    "meta tensor": lambda: torch.ones(4, 4, device="meta"),
    "NaN array": lambda: np.full((4, 4), np.nan),
    "array of objects": lambda: np.array([None, "a"], dtype=object),
    "module": lambda: nn.Linear(4, 2),
    "lazy module": lambda: nn.LazyLinear(2),
    "problem": problem,
    "network": lambda: NET,
}


ENDLESS = {("train", "epochs", "huge"), ("loss_plane", "num_points", "huge")}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_give_a_result_or_a_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    function, raw = attrgetter(name)(hm), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(**CALLS[name]())
        for argument in CALLS[name]():
            for kind, odd in ODD.items():
                if (name, argument, kind) in ENDLESS:
                    continue
                try:
                    function(**(CALLS[name]() | {argument: odd()}))
                except HessmapError as error:
                    if "\n" in str(error).strip() or not str(error).strip():
                        raw.append(f"{argument}={kind}: more than a sentence")
                except Exception as error:
                    raw.append(f"{argument}={kind}: {type(error).__name__}: {str(error)[:80]}")
    assert not raw, "\n".join(raw)


def test_every_public_function_is_called_or_has_a_test_of_its_own() -> None:
    elsewhere = {
        "Certificate",
        "Problem",
        "as_operator",
        "distributed",
        "load",
        "sharded_hessian",
        "step_report",
        "Tracker",
        "certify",
        "certify_from_data",
        "next_token",
        "plot",
        "progress",
    }
    packages = {name for name in hm.__all__ if type(getattr(hm, name)).__name__ == "module"}
    assert set(hm.__all__) - packages - elsewhere <= set(CALLS)


@pytest.mark.parametrize("given", [None, 3, "0", np.eye(2)])
def test_a_measurement_of_a_layer_says_what_it_needs(given: object) -> None:
    with pytest.raises(
        HessmapError, match=r"a measurement of a layer needs its Hessian; got .*layer_hessian\(problem, name\)"
    ):
        hm.layers.decoupling(given, 1)
