"""Ranks of locally connected networks."""

from hessmap.theory.locally_connected import prediction

__all__ = ["prediction"]
