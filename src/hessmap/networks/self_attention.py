"""One layer of linear self-attention as a plain, frozen description."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hessmap.errors import InvalidInput, checked_count, require, require_name, sentence
from hessmap.networks.arguments import BaseArchitecture

if TYPE_CHECKING:
    import torch

    from hessmap.networks.build import AttentionModule

Read = Literal["all", "last"]
READS: tuple[Read, ...] = ("all", "last")

_SHAPE = "self-attention must be written as 'attention-16-4', 'attention-16-4-8' or 'attention-16-2x4-8-10 causal'"
_MEANING = (
    "That is width 16, 2 heads of key width 4 and value width 8, 10 outputs; the words merged, frozen_value, causal"
    " and last may follow"
)
_WORDS = ("merged", "frozen_value", "causal", "last")


@dataclass(frozen=True, init=False)
class SelfAttention(BaseArchitecture):
    """Linear self-attention: for tokens X (num_tokens, width), head by head, X Q K^T X^T X V.

    Without softmax the outputs are polynomials of the weights, so that ranks are exact; ``build(temperature=..)``
    makes the layer with softmax. Heads are concatenated.

    Args:
        width: Entries of a token.
        key_width: Width of queries and keys of a head. Required unless ``merged_query_key``, which has none.
        value_width: Width of the values of a head. Defaults to ``key_width``.
        heads: Number of heads. Defaults to 1.
        outputs: Outputs of a projection of all heads. Defaults to None: no projection.
        merged_query_key: Whether one matrix (width, width) stands for Q K^T; the key width is then stored as the
            width. Defaults to False.
        frozen_value: Whether V is not trained. Defaults to False.
        causal: Whether a token attends only to itself and to those before it. Defaults to False.
        read: "all" for the outputs of all tokens, "last" for those of the last one, for which causal attention is
            the same as any and is stored as False. Defaults to "all".

    Example:
        >>> net = SelfAttention(16, 4, heads=2, outputs=10)
        >>> print(net)
        attention-16-2x4-4-10
        >>> net.num_parameters, net.output_dim
        (464, 10)
    """

    width: int
    key_width: int
    value_width: int
    heads: int
    outputs: int | None
    merged_query_key: bool
    frozen_value: bool
    causal: bool
    read: Read

    def __init__(
        self,
        width: int,
        key_width: int | None = None,
        value_width: int | None = None,
        *,
        heads: int = 1,
        outputs: int | None = None,
        merged_query_key: bool = False,
        frozen_value: bool = False,
        causal: bool = False,
        read: Read = "all",
    ) -> None:
        flags = {"merged_query_key": merged_query_key, "frozen_value": frozen_value, "causal": causal}
        for name, flag in flags.items():
            require(isinstance(flag, bool), f"{name} must be True or False", f"got {flag!r}")
        require_name("read", read, READS)
        require(
            key_width is not None or merged_query_key,
            "self-attention needs a key_width",
            "it is None",
            "Give the number of queries and keys of a head, or merged_query_key=True",
        )
        width = checked_count("width", width)
        key_width = width if key_width is None else checked_count("key_width", key_width)
        value_width = key_width if value_width is None else checked_count("value_width", value_width)
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "key_width", width if merged_query_key else key_width)
        object.__setattr__(self, "value_width", value_width)
        object.__setattr__(self, "heads", checked_count("heads", heads))
        object.__setattr__(self, "outputs", None if outputs is None else checked_count("outputs", outputs))
        object.__setattr__(self, "merged_query_key", merged_query_key)
        object.__setattr__(self, "frozen_value", frozen_value)
        object.__setattr__(self, "causal", causal and read == "all")
        object.__setattr__(self, "read", read)

    @property
    def input_dim(self) -> int:
        """The width of a token."""
        return self.width

    @property
    def output_dim(self) -> int:
        """The outputs of a token."""
        return self.heads * self.value_width if self.outputs is None else self.outputs

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, int]]:
        """The trained matrices by the names and in the orientation of ``nn.MultiheadAttention``."""
        keys, values = self.heads * self.key_width, self.heads * self.value_width
        shapes = {"q_proj_weight": (keys, self.width), "k_proj_weight": (keys, self.width)}
        if self.merged_query_key:
            shapes = {"qk_proj_weight": (keys, self.width)}
        if not self.frozen_value:
            shapes["v_proj_weight"] = (values, self.width)
        if self.outputs is not None:
            shapes["out_proj.weight"] = (self.outputs, values)
        return shapes

    @property
    def num_parameters(self) -> int:
        """Trained parameters: a frozen V does not count."""
        return sum(rows * columns for rows, columns in self.parameter_shapes.values())

    @property
    def num_layers(self) -> int:
        """The trained matrices of a head, in each of which the outputs are linear."""
        return len(self.parameter_shapes)

    def build(
        self,
        seed: int = 0,
        init: str = "gaussian",
        dtype: torch.dtype | None = None,
        temperature: float | None = None,
    ) -> AttentionModule:
        """The layer as a module, (num_samples, num_tokens, width) in, its parameters drawn from ``seed`` alone.

        Out come (num_samples, num_tokens, output_dim) or, of the last token, (num_samples, output_dim). ``init`` and
        ``dtype`` as for ``FullyConnected.build``. With a ``temperature`` the scores, divided by it, pass a softmax over
        the tokens that are attended to; sqrt(key_width) is the usual one.

        >>> model = SelfAttention(3, 2, 4, outputs=5).build(seed=0)
        >>> [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
        [('q_proj_weight', (2, 3)), ('k_proj_weight', (2, 3)), ('v_proj_weight', (4, 3)), ('out_proj.weight', (5, 4))]
        """
        from hessmap.networks.build import build_self_attention

        return build_self_attention(self, seed=seed, init=init, dtype=dtype, temperature=temperature)

    def __str__(self) -> str:
        heads = f"{self.heads}x" if self.heads > 1 else ""
        outputs = "" if self.outputs is None else f"-{self.outputs}"
        words = [f"attention-{self.width}-{heads}{self.key_width}-{self.value_width}{outputs}"]
        chosen = (self.merged_query_key, self.frozen_value, self.causal, self.read == "last")
        return " ".join(words + [word for word, is_chosen in zip(_WORDS, chosen, strict=True) if is_chosen])

    @classmethod
    def parse(cls, text: str) -> SelfAttention:
        """The layer that a text names as ``str`` prints it; the value width may be left out.

        >>> SelfAttention.parse("attention-16-4-8 last") == SelfAttention(16, 4, 8, read="last")
        True
        """
        require(isinstance(text, str), _SHAPE, f"got {text!r}", _MEANING)
        first, *words = text.split() or [""]
        sizes = re.fullmatch(r"attention-(\d+)-(?:(\d+)x)?(\d+)(?:-(\d+))?(?:-(\d+))?", first, re.ASCII)
        if sizes is None:
            raise InvalidInput(sentence(_SHAPE, f"got {text!r}", _MEANING))
        for word in words:
            require(word in _WORDS and words.count(word) == 1, _SHAPE, f"got {word!r} in {text!r}", _MEANING)
        width, heads, key_width, value_width, outputs = (None if size is None else int(size) for size in sizes.groups())
        assert width is not None
        return cls(
            width,
            key_width,
            value_width,
            heads=1 if heads is None else heads,
            outputs=outputs,
            merged_query_key="merged" in words,
            frozen_value="frozen_value" in words,
            causal="causal" in words,
            read="last" if "last" in words else "all",
        )
