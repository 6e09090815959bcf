"""Hessian ranks of fully connected networks: linear with any biases, linear with any weights, with activations."""

from hessmap.theory.fully_connected import activations, linear, products

__all__ = ["activations", "linear", "products"]
