"""Two-layer networks whose activation is no polynomial: no parameter is superfluous but for known symmetries.

The network is f(x) = sum_h v_h g(l_h) (+ c), l_h = w_h . x (+ b_h), with ``inputs`` Ni and ``hidden`` Nh; generic means
v_h != 0 and l_h, l_k not proportional. Its derivatives are g(l_h), g'(l_h) x_i, and g'(l_h), 1 with biases.
"""

from __future__ import annotations

from hessmap.errors import InvalidInput, sentence
from hessmap.theory.conditions import checked_count
from hessmap.theory.polynomial.two_layers import Rank

HOMOGENEOUS = ("relu", "leaky_relu")


def independent_rank(
    inputs: int, hidden: int, activation: str, hidden_bias: bool = False, output_bias: bool = False
) -> Rank:
    """Every parameter counts for erf, tanh, gelu and elu; one less in each neuron for relu and leaky relu.

    Formula: Nh (Ni + 1) [+ Nh with a hidden bias] [+ 1 with an output bias]; minus Nh for relu and leaky relu.

    Kind of truth: theorem for generic weights. Proof: on a line x = x_0 + t u the l_h are a_h t + d_h, with different
    |a_h| for almost every direction u. Suppose sum_h (alpha_h g(l_h) + (beta_h . x + gamma_h) g'(l_h)) + c = 0 on it.
    erf: differentiate by t. The Gaussians exp(-l_h^2 / 2) of different |a_h| are independent over the polynomials, so
    alpha_h a_h + a_h beta_h . u - (beta_h . x + gamma_h) a_h l_h = 0 for each h: from t^2 beta_h . u = 0, then
    gamma_h + beta_h . x_0 = 0, then alpha_h = 0; for all u: beta_h = 0.
    tanh: the pole nearest to the real axis belongs to the largest |a_h| alone; its double pole gives the factor of
    g'(l_h), its simple one alpha_h; then the next one. gelu: t (1 + erf(t / sqrt 2)) / 2, as erf with one degree more.
    relu, leaky relu: g' jumps across the hyperplane l_h = 0, and only there if no other neuron shares it, so the factor
    of g'(l_h) vanishes on it and is a multiple of l_h: that is g(l_h) itself again (the scaling symmetry), whose slope
    jumps too. elu: the same with g'' and g'''.
    Without hidden bias and with one input all hyperplanes are x = 0: for relu the rank then depends on the signs.

    The paper saw full rank for erf, numerically; in float64 it cannot be seen when Nh is much larger than Ni.

    >>> independent_rank(3, 4, "erf").value, independent_rank(3, 4, "relu").value
    (16, 12)
    """
    ni, nh = checked_count("inputs", inputs, at_least=1), checked_count("hidden", hidden, at_least=1)
    every = nh * (ni + 1 + hidden_bias) + output_bias
    if activation in HOMOGENEOUS:
        if ni == 1 and not hidden_bias:
            must = f"the rank of a {activation} network without hidden bias is one number only for two inputs or more"
            remedy = "Use numerical_rank on a Problem: it is that of the signs of the weights"
            raise InvalidInput(sentence(must, "inputs is 1", remedy))
        return Rank(every - nh, "exact", "independence of neurons with different kinks; one scaling symmetry each")
    return Rank(every, "exact", "independence of neurons (for tanh: Fukumizu 1996)")
