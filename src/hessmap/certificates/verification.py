"""A certificate, made again from what it stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from hessmap.certificates.certificate import Certificate
from hessmap.certificates.certify import posterior_of_arrays
from hessmap.certificates.evaluation import price, sampled_bound
from hessmap.certificates.inputs import checked_data
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, require, sentence
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import PriorGrid


def verified(
    certificate: Certificate, model: nn.Module, data: Data | tuple[Any, Any], seed: int | None
) -> Certificate:
    """Divergence, complexity, draws and bound anew, from the stored posterior and the samples."""
    samples = checked_data(model, data, "data")
    found = data_hash(samples.inputs.numpy(), samples.targets.numpy())
    if found != certificate.data_hash:
        broken = f"these samples hash to {found}, those of the certificate to {certificate.data_hash}"
        raise InvalidInput(sentence("a certificate is verified on the samples it was made from", broken))
    require(bool(certificate.posterior), "a certificate is verified from its posterior", "it holds none")
    broken = "the arrays differ from those it was made with"
    is_whole = data_hash(*certificate.posterior.values()) == certificate.posterior_hash
    require(is_whole, "a certificate is verified from its own posterior", broken)
    network = StochasticNetwork(model, torch.Generator())
    posterior, prior = posterior_of_arrays(certificate.posterior, list(network.layers))
    network.take(posterior)
    grid = PriorGrid(**dict(certificate.settings["grid"]))  # type: ignore[call-overload]
    paid = price(posterior, prior, certificate.prior_variance, len(samples.inputs), grid, certificate.delta)
    first_seed = int(str(certificate.settings["seed"])) + 1
    drawn = sampled_bound(
        network,
        samples,
        certificate.num_draws,
        first_seed if seed is None else seed,
        paid.complexity,
        certificate.sampling_delta,
    )
    return dataclasses.replace(
        certificate,
        bound=drawn.bound,
        kl=paid.kl,
        complexity=paid.complexity,
        grid_index=paid.grid_index,
        prior_variance=paid.prior_variance,
        sampled_error=drawn.num_errors / drawn.num_draws,
        sampled_error_bound=drawn.error_bound,
    )
