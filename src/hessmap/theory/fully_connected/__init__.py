"""Ranks of fully connected networks: linear, with bias, with deficient products, piecewise linear."""
