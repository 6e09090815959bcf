"""Ranks of convolutional networks: one layer exactly, deep ones by bounds and a law."""

from hessmap.theory.convolutional import prediction

__all__ = ["prediction"]
