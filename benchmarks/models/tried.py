"""Which models of other projects work, and how far is H v from plain double backward of their own loss?

One row a model of ``architectures.py``: what ``hm.Problem`` did with it, the error of the loss Hessian's product with
a random vector against autograd of the literal loss in float64, that of H_o + H_f, and seconds. Attention goes by its
math kernel and casts to float32 are left out. Where torch has no second derivative, or one that differences of
gradients contradict, those are compared with, which reach about 1e-7. Models that cast to float32 in their forward
pass are right to about 1e-7 as well, and their notes say so.

    make test-models    # or: python benchmarks/models/tried.py [part of a name]
"""

from __future__ import annotations

import copy
import itertools
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
from architectures import TRIED
from harness import environment, write
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

import hessmap as hm
from hessmap.errors import HessmapError

ALLOWED = {"autograd": 1e-9, "differences": 1e-5, "float32": 2e-5}


class KeptInDouble(TorchFunctionMode):
    """Casts to float32 in a model or its loss leave float64 as it is, so that double backward is right to rounding."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            args = tuple(torch.float64 if arg is torch.float32 else arg for arg in args)
            kwargs = {key: torch.float64 if value is torch.float32 else value for key, value in kwargs.items()}
        if func is torch._grouped_mm and args[0].dtype == torch.float64:  # its kernel has no float64: row by row
            group = torch.searchsorted(kwargs["offs"].long(), torch.arange(len(args[0])), right=True)
            return torch.einsum("ni,nio->no", args[0], args[1][group])
        return func(*args, **kwargs)


def literal_risk(model: nn.Module, loss: Any, data: Any) -> Tensor:
    """What the user's own training code would compute, over all batches, as torch has it."""
    if loss is None:
        (batch,) = data
        return model(**_double(batch))["loss"].double()
    batches = data if isinstance(data, list) else [data]
    pairs = [(_outputs(model, _double(inputs)), labels) for inputs, labels in batches]
    module = loss if isinstance(loss, nn.Module) else nn.CrossEntropyLoss()
    if isinstance(module, nn.MSELoss):
        return module(pairs[0][0], pairs[0][1].double())
    rows = [outputs if outputs.ndim == 2 else _rows(outputs, labels) for outputs, labels in pairs]
    if getattr(loss, "predicts_next", False):
        return module(pairs[0][0][:, :-1].flatten(0, 1), pairs[0][1][:, 1:].flatten())
    return module(torch.cat(rows), torch.cat([labels.flatten() for _, labels in pairs]))


def _rows(outputs: Tensor, labels: Tensor) -> Tensor:
    """Classes last, one row a position."""
    is_last = outputs.shape[1:-1] == labels.shape[1:]
    return (outputs if is_last else outputs.movedim(1, -1)).reshape(-1, outputs.shape[-1 if is_last else 1])


def _double(values: Any) -> Any:
    if isinstance(values, Tensor):
        return values.double() if values.is_floating_point() else values
    if isinstance(values, Mapping):
        return {key: _double(value) for key, value in values.items()}
    return tuple(_double(value) for value in values)


def _outputs(model: nn.Module, inputs: Any) -> Tensor:
    found = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return found if isinstance(found, Tensor) else next(iter(found.values() if isinstance(found, Mapping) else found))


def expected_product(model: nn.Module, loss: Any, data: Any, vector: Tensor) -> tuple[Tensor, Tensor, str]:
    """The risk and H v by plain autograd on the user's module in float64, or by differences of its gradients."""
    parameters = [value for value in model.parameters() if value.requires_grad]
    with sdpa_kernel(SDPBackend.MATH), KeptInDouble():
        risk = literal_risk(model, loss, data)
        slopes = torch.autograd.grad(risk, parameters, create_graph=True, allow_unused=True)
        differences, are_sure = _differences(model, loss, data, vector, parameters)
        try:
            image = torch.autograd.grad(_flat(slopes, parameters), parameters, vector, allow_unused=True)
        except RuntimeError:
            return risk.detach(), differences, "differences"
    found = _flat(image, parameters)
    if are_sure and float((found - differences).norm()) > ALLOWED["differences"] * float(differences.norm()):
        return risk.detach(), differences, "differences"  # torch's second derivative is wrong
    return risk.detach(), found, "autograd"


def _differences(
    model: nn.Module, loss: Any, data: Any, vector: Tensor, parameters: list[Tensor]
) -> tuple[Tensor, bool]:
    """H v by central differences of the gradient, of the step that agrees best with the one before; whether it does.

    At a kink, and where higher derivatives are large, no two steps agree.
    """
    found = [_difference(model, loss, data, vector, parameters, step) for step in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)]
    changes = [float((one - other).norm() / one.norm()) for one, other in itertools.pairwise(found)]
    best = changes.index(min(changes))
    return found[best], changes[best] < ALLOWED["differences"]


def _difference(
    model: nn.Module, loss: Any, data: Any, vector: Tensor, parameters: list[Tensor], step: float
) -> Tensor:
    found = []
    point = [value.detach().clone() for value in parameters]
    parts = torch.split(vector, [value.numel() for value in parameters])
    for sign in (1, -1):
        for value, own, part in zip(parameters, point, parts, strict=True):
            value.data = own + sign * step * part.reshape(own.shape)
        slopes = torch.autograd.grad(literal_risk(model, loss, data), parameters, allow_unused=True)
        found.append(_flat(slopes, parameters))
    for value, own in zip(parameters, point, strict=True):
        value.data = own
    return (found[0] - found[1]) / (2 * step)


def _flat(parts: Any, parameters: list[Tensor]) -> Tensor:
    pairs = zip(parts, parameters, strict=True)
    return torch.cat([own.new_zeros(own.numel()) if part is None else part.reshape(-1) for part, own in pairs])


def measure(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    start = time.perf_counter()
    try:
        model, loss, data = TRIED[name]()
    except ImportError as error:
        return {"model": name, "outcome": "not installed", "why": str(error)}
    except Exception as error:  # its package took another configuration
        return {"model": name, "outcome": "not built", "why": repr(error)}
    row: dict[str, Any] = {"model": name}
    try:
        problem = hm.Problem(model, loss, data, dtype=torch.float64)
        vector = torch.randn(problem.num_parameters, dtype=torch.float64)
        found = hm.loss_hessian(problem) @ vector
        row |= {"num_parameters": problem.num_parameters, "loss": problem.loss.name}
        row["parts"] = _parts(problem, vector, found)
    except HessmapError as error:
        return row | {"outcome": "refused", "why": str(error), "seconds": time.perf_counter() - start}
    except Exception as error:  # a raw traceback is what this table is to find
        return row | {"outcome": "traceback", "why": "".join(traceback.format_exception(error))[-600:]}
    row["seconds"] = time.perf_counter() - start
    plain = copy.deepcopy(getattr(model, "_orig_mod", model)).double()
    risk, expected, how = expected_product(plain, loss, data, vector)
    is_cast = any("in float32" in note for note in problem.notes)
    row |= {
        "compared_with": how,
        "risk_error": abs(problem.risk() - float(risk)) / max(abs(float(risk)), 1e-12),
        "error": float((found - expected).norm() / expected.norm()),
        "casts_to_float32": is_cast,
    }
    allowed = max(ALLOWED[how], ALLOWED["float32"] if is_cast else 0.0)
    is_right = row["error"] <= allowed and (row["parts"] is None or row["parts"] <= max(1e-9, allowed))
    return row | {"outcome": "right" if is_right else "WRONG"}


def _parts(problem: hm.Problem, vector: Tensor, whole: Tensor) -> float | None:
    """||H_o v + H_f v - H_L v|| over ||H_L v||; None where the parts are refused by name."""
    try:
        parts = hm.outer_product_hessian(problem) @ vector + hm.functional_hessian(problem) @ vector
    except HessmapError:
        return None
    return float((parts - whole).norm() / whole.norm())


def main(part: str = "") -> int:
    warnings.simplefilter("ignore")
    where = environment()
    rows = []
    for name in [name for name in TRIED if part in name]:
        row = measure(name)
        rows.append(row)
        error = f"{row['error']:.1e}" if "error" in row else row.get("why", "")[:150]
        print(f"{name:50s} {row['outcome']:12s} {row.get('seconds', 0):5.1f} s  {error}", flush=True)
    if not part:
        write("models", where, rows)
    bad = [row["model"] for row in rows if row["outcome"] in ("WRONG", "traceback", "not built")]
    print(f"{len(rows)} models, wrong or with a traceback: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
