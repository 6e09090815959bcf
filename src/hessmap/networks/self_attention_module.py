"""One layer of self-attention as a torch module, without softmax or with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, checked_number, checked_seed, require, sentence
from hessmap.networks.construction import initialised_layer, real_format
from hessmap.networks.self_attention import SelfAttention


class AttentionModule(nn.Module):
    """The layer that ``architecture`` describes; ``temperature`` is None for linear attention.

    Weights have the names and orientation of ``nn.MultiheadAttention``: rows are outputs, heads one after another. A
    merged query and key has the rows of head i in i * width .. (i + 1) * width of ``qk_proj_weight``.

    >>> model = SelfAttention(3, 2).build(seed=0)
    >>> tokens = torch.ones(5, 4, 3, dtype=torch.float64)
    >>> model(tokens).shape
    torch.Size([5, 4, 2])
    """

    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    qk_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter
    out_proj: nn.Linear | None

    def __init__(self, architecture: SelfAttention, temperature: float | None = None) -> None:
        super().__init__()
        self.architecture = architecture
        self.temperature = temperature

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = (self._by_heads(tokens, name) for name in ("q_proj", "k_proj", "v_proj"))
        if self.architecture.read == "last":
            queries = queries[..., -1:, :]
        scores = queries @ keys.mT
        seen = torch.ones_like(scores, dtype=torch.bool)
        seen = seen.tril() if self.architecture.causal else seen
        if self.temperature is None:
            attention = scores * seen
        else:
            attention = torch.softmax((scores / self.temperature).masked_fill(~seen, -torch.inf), dim=-1)
        heads = (attention @ values).transpose(-3, -2).flatten(-2)
        outputs: Tensor = heads if self.out_proj is None else self.out_proj(heads)
        return outputs[..., 0, :] if self.architecture.read == "last" else outputs

    def _by_heads(self, tokens: Tensor, name: str) -> Tensor:
        """(num_samples, heads, num_tokens, size of a head); the keys of a merged matrix are the tokens themselves."""
        heads = self.architecture.heads
        if self.architecture.merged_query_key and name == "k_proj":
            return tokens.unsqueeze(-3).expand(*tokens.shape[:-2], heads, *tokens.shape[-2:])
        merged = self.architecture.merged_query_key and name == "q_proj"
        weight: Tensor = getattr(self, "qk_proj_weight" if merged else f"{name}_weight")
        projected = tokens @ weight.mT
        return projected.reshape(*tokens.shape[:-1], heads, -1).transpose(-3, -2)

    def extra_repr(self) -> str:
        softmax = "" if self.temperature is None else f", softmax at temperature {self.temperature:g}"
        return f"{self.architecture}{softmax}"


def build_self_attention(
    net: SelfAttention,
    seed: int = 0,
    init: str = "gaussian",
    dtype: torch.dtype | None = None,
    temperature: float | None = None,
) -> AttentionModule:
    """The module with parameters of its own; a frozen V is a parameter that needs no gradient.

    >>> build_self_attention(SelfAttention(3, 2, frozen_value=True)).v_proj_weight.requires_grad
    False
    """
    if temperature is not None:
        temperature = checked_number("temperature", temperature)
        if not 0 < temperature < float("inf"):
            got = f"it is {temperature}"
            raise InvalidInput(sentence("the temperature of a softmax must be positive", got, "None is no softmax"))
    require(isinstance(net, SelfAttention), "a SelfAttention can be built here", f"got a {type(net).__name__}")
    generator = torch.Generator().manual_seed(checked_seed(seed))
    module = AttentionModule(net, temperature)
    shapes = net.parameter_shapes
    shapes.setdefault("v_proj_weight", (net.heads * net.value_width, net.width))
    for name in ("qk_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"):
        linear = None
        if name in shapes:
            after, before = shapes[name]
            empty = nn.Linear(before, after, bias=False, device="meta", dtype=real_format(dtype))
            linear = initialised_layer(empty, init, generator)
        if name == "out_proj.weight":
            module.out_proj = linear
        else:
            module.register_parameter(name, None if linear is None else nn.Parameter(linear.weight.detach()))
    module.v_proj_weight.requires_grad_(not net.frozen_value)
    return module
