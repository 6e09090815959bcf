"""How fast is a Hessian-vector product in jax, which a user may write instead? Columns of their own, not a bar.

The MLP, LeNet5 and the transformer of ``cases.py`` written in jax.numpy with the same weights and samples, float64:
forward over reverse, jvp(grad), and the linearised gradient, linearize(grad), which keeps what does not depend on the
vector, as our stored and traced graphs do. Both are compiled by jax.jit; the seconds of compiling (for linearize: also
of linearising) stand apart. Each product is held against torch's double backward.

    HESSMAP_DATA=.. python benchmarks/peers/jax_rows.py [--network ..]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
import torch
from harness import environment, write

from cases import Case, case

jax.config.update("jax_enable_x64", True)
Parameters = dict[str, Any]
ROUNDS, LIMIT = 8, 40.0  # as many, or what fits so many seconds
WAYS = ("forward over reverse", "linearize")


def mlp(weights: Parameters, inputs: Any) -> Any:
    hidden = jnp.tanh(inputs @ weights["0.weight"].T)
    return jnp.tanh(hidden @ weights["2.weight"].T) @ weights["4.weight"].T


def lenet(weights: Parameters, flat: Any) -> Any:
    """Convolution, ReLU and pool twice, then three linear layers, in the order of their parameters."""
    names = weights_order(weights)
    images = flat.reshape(-1, 3, 32, 32)
    for name in names[:2]:
        images = jax.lax.conv_general_dilated(images, weights[f"{name}.weight"], (1, 1), "VALID")
        images = jax.nn.relu(images + weights[f"{name}.bias"][:, None, None])
        count, channels, height, width = images.shape
        images = images.reshape(count, channels, height // 2, 2, width // 2, 2).max((3, 5))
    hidden = images.reshape(len(images), -1)
    for name in names[2:]:
        hidden = hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        hidden = hidden if name == names[-1] else jax.nn.relu(hidden)
    return hidden


def weights_order(weights: Parameters) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in weights))


def transformer(weights: Parameters, images: Any) -> Any:
    hidden = _linear(weights, "embedding", images.reshape(len(images), 8, 8)) + weights["position"]
    for layer in ("layers.0", "layers.1"):
        attended = _attention(weights, f"{layer}.self_attn", hidden)
        hidden = _norm(weights, f"{layer}.norm1", hidden + attended)
        inside = jax.nn.gelu(_linear(weights, f"{layer}.linear1", hidden), approximate=False)
        hidden = _norm(weights, f"{layer}.norm2", hidden + _linear(weights, f"{layer}.linear2", inside))
    return _linear(weights, "head", hidden.mean(1))


def _linear(weights: Parameters, name: str, inputs: Any) -> Any:
    return inputs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(weights: Parameters, name: str, inputs: Any) -> Any:
    centred = inputs - inputs.mean(-1, keepdims=True)
    scaled = centred / jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _attention(weights: Parameters, name: str, hidden: Any, heads: int = 4) -> Any:
    count, tokens, width = hidden.shape
    parts = hidden @ weights[f"{name}.in_proj_weight"].T + weights[f"{name}.in_proj_bias"]
    queries, keys, values = parts.reshape(count, tokens, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scores = jax.nn.softmax(queries @ keys.swapaxes(-2, -1) * (width // heads) ** -0.5, -1)
    mixed = (scores @ values).transpose(0, 2, 1, 3).reshape(count, tokens, width)
    return _linear(weights, f"{name}.out_proj", mixed)


MODELS: dict[str, Callable[[Parameters, Any], Any]] = {
    "MLP, digits": mlp,
    "LeNet5, CIFAR-10": lenet,
    "transformer, digits": transformer,
}


def measured(made: Case, model: Callable[[Parameters, Any], Any]) -> dict[str, Any]:
    weights = {name: jnp.asarray(value.detach().numpy()) for name, value in made.model.named_parameters()}
    inputs, labels = jnp.asarray(made.inputs.numpy()), jnp.asarray(made.labels.numpy())

    def risk(given: Parameters) -> Any:
        logits = jax.nn.log_softmax(model(given, inputs))
        return -logits[jnp.arange(len(labels)), labels].mean()

    vector = torch.randn(made.num_parameters, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected, tangent = _expected(made, vector)
    start = time.perf_counter()
    forward = jax.jit(lambda point, along: jax.jvp(jax.grad(risk), (point,), (along,))[1])
    jax.block_until_ready(forward(weights, tangent))
    seconds_forward = time.perf_counter() - start
    start = time.perf_counter()
    linear = jax.jit(jax.linearize(jax.grad(risk), weights)[1])
    jax.block_until_ready(linear(tangent))
    seconds_linear = time.perf_counter() - start
    return {
        "network": made.name,
        "num_parameters": made.num_parameters,
        "num_samples": len(made.inputs),
        "forward over reverse": _timed(lambda: forward(weights, tangent), expected, seconds_forward),
        "linearize": _timed(lambda: linear(tangent), expected, seconds_linear),
    }


def _expected(made: Case, vector: torch.Tensor) -> tuple[dict[str, np.ndarray], Parameters]:
    """Double backward by torch, and the vector as jax takes it."""
    named = dict(made.model.named_parameters())
    split = torch.split(vector, [value.numel() for value in named.values()])
    parts = [part.reshape(value.shape) for part, value in zip(split, named.values(), strict=True)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        risk = torch.nn.functional.cross_entropy(made.model(made.inputs), made.labels)
        slopes = torch.autograd.grad(risk, list(named.values()), create_graph=True)
        images = torch.autograd.grad(slopes, list(named.values()), parts)
    tangent = {name: jnp.asarray(part.numpy()) for name, part in zip(named, parts, strict=True)}
    return {name: image.numpy() for name, image in zip(named, images, strict=True)}, tangent


def _timed(product: Callable[[], Any], expected: dict[str, np.ndarray], seconds_to_compile: float) -> dict[str, Any]:
    seconds: list[float] = []
    while len(seconds) < ROUNDS and sum(seconds) < LIMIT:
        start = time.perf_counter()
        found = jax.block_until_ready(product())
        seconds.append(time.perf_counter() - start)
    largest = max(float(np.abs(part).max()) for part in expected.values())
    error = max(float(np.abs(np.asarray(found[name]) - part).max()) for name, part in expected.items()) / largest
    return {
        "seconds": min(seconds),
        "median": median(seconds),
        "rounds": len(seconds),
        "seconds_to_compile": seconds_to_compile,
        "error": error,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=list(MODELS), action="append")
    parser.add_argument("--samples", type=int, help="fewer of them, to see that everything runs")
    given = parser.parse_args()
    where, cases = environment() | {"jax": jax.__version__}, []
    torch.backends.mha.set_fastpath_enabled(False)
    for name in given.network or MODELS:
        found = measured(case(name, given.samples), MODELS[name])
        cases.append(found)
        for way in WAYS:
            told = found[way]
            words = f"compiled in {told['seconds_to_compile']:.2g} s, error {told['error']:.0e}"
            print(f"{name}, {way}: {told['seconds']:.3g} s, {words}")
    if not given.samples:
        write("peers_jax", where, cases)
    return 0 if all(found[way]["error"] <= 1e-10 for found in cases for way in WAYS) else 1


if __name__ == "__main__":
    sys.exit(main())
