"""The architectures there are, and the one that a text names."""

from __future__ import annotations

from hessmap.networks.convolutional import Convolutional, ImageConvolutional, LocallyConnected
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

Architecture = FullyConnected | Convolutional | ImageConvolutional | LocallyConnected | SelfAttention | Residual


def parse_network(text: str) -> Architecture:
    """Read an architecture of any kind from the text that ``str`` prints of it.

    Args:
        text: For example "64-30-10 relu", "conv-1x20-8x3-16x3-10" or "attention-16-4-8 causal".

    Returns:
        The architecture.

    Raises:
        InvalidInput: If the text is not that of an architecture.

    Example:
        >>> parse_network("64-30-10 relu")
        FullyConnected(widths=(64, 30, 10), bias=False, activation='relu')
        >>> print(parse_network("conv-1x20-8x3-16x3-10"), "|", parse_network("local-5x4-3-10 shared"))
        conv-1x20-8x3-16x3-10 | local-5x4-3-10 shared
        >>> parse_network("conv-3x32x32-16x3x3-10").input_size
        (32, 32)
        >>> print(parse_network("attention-16-4-8 causal"), "|", parse_network("residual-8x3/2"))
        attention-16-4-8 causal | residual-8x3/2
    """
    start = text.lstrip() if isinstance(text, str) else ""
    if start.startswith("conv"):
        is_image = start.split("-")[1:2] != [] and start.split("-")[1].count("x") == 2
        return ImageConvolutional.parse(text) if is_image else Convolutional.parse(text)
    if start.startswith("local"):
        return LocallyConnected.parse(text)
    if start.startswith("attention"):
        return SelfAttention.parse(text)
    if start.startswith("residual"):
        return Residual.parse(text)
    return FullyConnected.parse(text)
