"""Ranks of convolutional networks: one convolution, deep ones as chains of filters, with bias and activations."""
