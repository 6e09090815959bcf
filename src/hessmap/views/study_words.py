"""How the names in records are worded for people."""

from __future__ import annotations


def words(name: str) -> str:
    """A dotted name as words.

    >>> words("predicted.outer_product"), words("num_layers")
    ('predicted outer product', 'number of layers')
    """
    parts = [f"number of {part[4:]}" if part.startswith("num_") else part for part in name.split(".")]
    return " ".join(parts).replace("_", " ")
