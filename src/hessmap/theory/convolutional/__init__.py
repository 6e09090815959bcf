"""Hessian ranks of linear convolutional networks.

``one_layer`` has the theorems for one convolution followed by a dense layer. Deeper networks are chains of filters
(``chains``): ``deep_law`` has the rank of the outer-product Hessian, ``deep_columns`` conjectured bounds of the other
two, ``deep_bounds`` bounds that are theorems for all weights.
"""

from hessmap.theory.convolutional import chains, deep_bounds, deep_columns, deep_law, one_layer

__all__ = ["chains", "deep_bounds", "deep_columns", "deep_law", "one_layer"]
