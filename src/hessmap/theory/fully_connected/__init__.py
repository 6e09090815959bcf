"""Fully connected networks: ranks (linear, any biases or weights; activations), signs of eigenvalues of H_f."""

from hessmap.theory.fully_connected import activations, linear, products, signature

__all__ = ["activations", "linear", "products", "signature"]
