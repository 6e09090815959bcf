"""From a layer of linear self-attention on given data to its exact Hessian, or a refusal that says why."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from hessmap.curvature.chain import tensor_inputs
from hessmap.curvature.finite_field.attention import MATRICES, attention_hessian, attention_rows
from hessmap.curvature.finite_field.chain import Floats
from hessmap.curvature.finite_field.drawn_attention import output_selection, trained_matrices
from hessmap.curvature.finite_field.field_array import FieldArray, concatenate, from_floats, identity
from hessmap.curvature.finite_field.hessian import OutputDerivatives
from hessmap.curvature.finite_field.model_reading import RULES
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.curvature.problem import Problem
from hessmap.errors import InvalidInput, UnsupportedNetwork, sentence
from hessmap.networks import AttentionModule
from hessmap.networks.module_tree import sequential_layers
from hessmap.records import Part

_NAMES = {"query": "q_proj_weight", "key": "k_proj_weight", "value": "v_proj_weight", "output": "out_proj.weight"}


def exact_attention_hessian(problem: Problem, part: Part, field: PrimeField) -> FieldArray:
    """A multiple of the Hessian of the risk, of the parameters of the problem, head by head."""
    model = problem.model
    assert isinstance(model, AttentionModule)
    _require_readable(problem, model)
    net = model.architecture
    samples = from_floats(field, _numbers(tensor_inputs(problem, RULES)))
    rows = attention_rows(net, samples)
    heads = _heads(model, field)
    outputs = _outputs(heads, rows.tokens, rows.moments)
    targets = from_floats(field, _numbers(problem.targets)).reshape(*outputs.shape)
    names = _NAMES | ({"query": "qk_proj_weight"} if net.merged_query_key else {})
    trained = [name for name in trained_matrices(net) if names[name] in problem.layout.names]
    derivatives = OutputDerivatives(outputs - targets, None, _row_weights(problem, len(outputs), field))
    return attention_hessian(heads, trained, rows, derivatives, part)


def _require_readable(problem: Problem, model: AttentionModule) -> None:
    """Nothing that may change what the layer computes, and no penalty: its weight against the risk is not read."""
    for child in (model, *model.children()):
        sequential_layers(child, RULES)
    must = "exact arithmetic needs linear self-attention, without softmax"
    remedy = "Use numerical_rank, or build the layer without a temperature"
    if model.temperature is not None:
        raise UnsupportedNetwork(sentence(must, f"the model is {model.extra_repr()}", remedy))
    is_plain = model.out_proj is None or (type(model.out_proj) is nn.Linear and model.out_proj.bias is None)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    has_its_sizes = all(shapes.get(name) == shape for name, shape in model.architecture.parameter_shapes.items())
    if not (is_plain and has_its_sizes):
        raise UnsupportedNetwork(sentence(must, f"the weights are not those of {model.architecture}", remedy))
    if problem.l2 != 0:
        raise InvalidInput(sentence("the exact rank of self-attention needs l2 = 0", f"it is {problem.l2}"))


def _heads(model: AttentionModule, field: PrimeField) -> list[dict[str, FieldArray]]:
    net = model.architecture
    weights = {name: from_floats(field, _numbers(value)) for name, value in model.named_parameters()}
    found = []
    for place in range(net.heads):
        keys = slice(place * net.key_width, (place + 1) * net.key_width)
        values = slice(place * net.value_width, (place + 1) * net.value_width)
        query = weights["qk_proj_weight" if net.merged_query_key else "q_proj_weight"][keys]
        key = identity(field, net.width) if net.merged_query_key else weights["k_proj_weight"][keys].mT
        output = weights["out_proj.weight"][:, values].mT if net.outputs else output_selection(net, place, field)
        found.append(dict(zip(MATRICES, (query.mT, key, weights["v_proj_weight"][values].mT, output), strict=True)))
    return found


def _outputs(heads: list[dict[str, FieldArray]], tokens: FieldArray, moments: FieldArray) -> FieldArray:
    """(num_rows, outputs), summed over the heads."""
    parts = [
        (tokens @ head["query"] @ head["key"].mT)[:, None, :] @ moments @ head["value"] @ head["output"]
        for head in heads
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total[:, 0]


def _row_weights(problem: Problem, num_rows: int, field: PrimeField) -> FieldArray | None:
    """The weights of the samples, one for each row; None where they are equal."""
    weights = _numbers(problem.weights)
    if bool((weights == weights[0]).all()):
        return None
    return concatenate([from_floats(field, weights)[:, None]] * (num_rows // len(weights)), axis=1).reshape(-1)


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.detach().cpu().double().numpy())
