"""Ranks of fully connected networks: linear, with bias, with deficient products, piecewise linear."""

from hessmap.theory.fully_connected import prediction

__all__ = ["prediction"]
