"""The inequalities behind a generalisation certificate: numbers in, numbers out, rounded so that a bound stays one.

Setting: N independent samples; a prior P chosen before them, a posterior Q chosen after; e(Q) the error of a network
drawn from Q, averaged over draws; e_S(Q) the same on the samples. For P = N(w_0, lambda I), fixed lambda, with
probability at least 1 - delta over the samples, for all Q at once (Langford & Seeger 2001; Dziugaite & Roy 2017):

    kl(e_S(Q) || e(Q)) <= (KL(Q || P) + log(N / delta)) / (N - 1)

The prior variance lambda may be chosen after the samples from a grid that was fixed before (``PriorGrid``), by a union
bound. e_S(Q) is itself estimated from draws and bounded by Chernoff's inequality, at another delta'.

Wu et al. 2022, appendix H, prints the divergence of the prior from the posterior (Eq 277) and allows the grid's point
j = 0, for which the union bound has no weight; both are corrected here.
"""

from hessmap.theory.pac_bayes.bounds import complexity, confidence_of, sampled_error_bound, sampled_error_lower_bound
from hessmap.theory.pac_bayes.divergences import binary_kl, binary_kl_inverse, error_per_divergence, gaussian_kl
from hessmap.theory.pac_bayes.prior_grid import PriorGrid

__all__ = [
    "PriorGrid",
    "binary_kl",
    "binary_kl_inverse",
    "complexity",
    "confidence_of",
    "error_per_divergence",
    "gaussian_kl",
    "sampled_error_bound",
    "sampled_error_lower_bound",
]
