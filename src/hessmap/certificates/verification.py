"""A certificate, made again from what it stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from hessmap.certificates.bases import mean_model
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.certify import ASSUMPTIONS, posterior_arrays, posterior_of_arrays
from hessmap.certificates.evaluation import classification_error, price, sampled_bound
from hessmap.certificates.inputs import checked_data, checked_pair
from hessmap.certificates.posterior import Posterior, posterior_means
from hessmap.certificates.stochastic import StochasticNetwork, require_only_layers
from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, require, sentence
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import PriorGrid


def verified(
    certificate: Certificate,
    model: nn.Module,
    data: Data | tuple[Any, Any],
    initial_model: nn.Module | None,
    seed: int | None,
) -> Certificate:
    """Divergence, complexity, draws and bound anew, from the stored posterior and the samples."""
    require_only_layers(model)
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
    _require_shapes(certificate, network.posterior())
    posterior, prior = posterior_of_arrays(certificate.posterior, list(network.layers))
    if initial_model is not None:
        _require_prior(prior, StochasticNetwork(checked_pair(model, initial_model), torch.Generator()).posterior())
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
        confidence=1 - certificate.delta - certificate.sampling_delta,
        kl=paid.kl,
        complexity=paid.complexity,
        grid_index=paid.grid_index,
        prior_variance=paid.prior_variance,
        sampled_error=drawn.num_errors / drawn.num_draws,
        sampled_error_bound=drawn.error_bound,
        num_samples=len(samples.inputs),
        num_parameters=sum(layer.means.numel() for layer in posterior.values()),
        training_error=classification_error(mean_model(network, model), samples),
        assumptions=ASSUMPTIONS,
    )


def _require_shapes(certificate: Certificate, expected: Posterior) -> None:
    """The stored arrays are those of this architecture, in single precision, no more and no fewer."""
    wanted = {name: (array.shape, array.dtype) for name, array in posterior_arrays(expected, expected).items()}
    found = {name: (array.shape, array.dtype) for name, array in certificate.posterior.items()}
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            broken = f"{name} is {_described(found.get(name))}, the network wants {_described(wanted.get(name))}"
            raise InvalidInput(sentence("a certificate is verified with the architecture it was made for", broken))


def _described(array: tuple[tuple[int, ...], Any] | None) -> str:
    return "absent" if array is None else f"{array[1]} of shape {array[0]}"


def _require_prior(prior: Posterior, given: Posterior) -> None:
    is_same = torch.equal(posterior_means(prior), posterior_means(given))
    broken = "the certificate was made with others"
    require(is_same, "the prior of a certificate must stand at the initial weights", broken)
