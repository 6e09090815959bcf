"""The floor: the matrix products that a Hessian-vector product cannot do without, and nothing else.

With activations and their gradients at hand, a bilinear operation (a weight with its input, queries with keys) takes
six products: two for its tangent, two for each of the tangents of its two derivatives. A weight that meets the data
takes two: its input has no tangent. Patches of convolutions are taken as unfolded already.
"""

from __future__ import annotations

import torch
from harness import best_seconds
from language_model import GPT2
from torch import Tensor, nn

from cases import Case, TokenEncoder

Shape = tuple[int, int, int, int, int]  # batch, rows, inner, columns, how often


def floor_seconds(case: Case) -> float:
    """For one vector, by torch's own matrix products."""
    total = 0.0
    for batch, rows, inner, columns, times in products(case):
        left = torch.randn(batch, rows, inner, dtype=case.dtype)
        right = torch.randn(batch, inner, columns, dtype=case.dtype)
        product = (lambda a=left[0], b=right[0]: a @ b) if batch == 1 else (lambda a=left, b=right: a @ b)
        total += times * best_seconds(product)
    return total


def products(case: Case) -> list[Shape]:
    found: list[Shape] = []

    def seen(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        times = 6 if found else 2
        if isinstance(module, nn.Linear):
            found.append((1, given[0].numel() // module.in_features, module.in_features, module.out_features, times))
        elif isinstance(module, nn.Conv2d):
            patch = module.weight[0].numel()
            found.append((1, made.numel() // module.out_channels, patch, module.out_channels, times))

    hooks = [module.register_forward_hook(seen) for module in case.model.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        case.model(case.inputs)
    torch.backends.mha.set_fastpath_enabled(fast)
    for hook in hooks:
        hook.remove()
    if isinstance(case.model, GPT2):
        found += _causal_attention(case.model, *case.inputs.shape)
    return found + (_attention(case.model, len(case.inputs)) if isinstance(case.model, TokenEncoder) else [])


def _causal_attention(model: GPT2, num_samples: int, length: int) -> list[Shape]:
    """What hooks do not see: two products for each head, and the tied embedding as the last layer."""
    vocabulary, width = model.tokens.weight.shape
    heads, times = model.blocks[0].num_heads, 6 * len(model.blocks)
    scores = (num_samples * heads, length, width // heads, length, times)
    mixing = (num_samples * heads, length, length, width // heads, times)
    return [scores, mixing, (1, num_samples * length, width, vocabulary, 6)]


def _attention(model: TokenEncoder, num_samples: int) -> list[Shape]:
    """What hooks do not see: the projections, and two products for each head."""
    width, tokens, heads = model.head.in_features, 8, 4
    layers = len(model.layers)
    projections = [(1, num_samples * tokens, width, part * width, 6 * layers) for part in (3, 1)]
    scores = (num_samples * heads, tokens, width // heads, tokens, 6 * layers)
    mixing = (num_samples * heads, tokens, tokens, width // heads, 6 * layers)
    return [*projections, scores, mixing]
