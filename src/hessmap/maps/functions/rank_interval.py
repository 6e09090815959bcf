"""Between what the bottleneck rank of a function lies."""

from __future__ import annotations

from hessmap.curvature.input_output import NetworkFunction, Representation, is_chain, representations
from hessmap.errors import UnsupportedNetwork
from hessmap.maps.functions.bottleneck import centred_singular_values, count_above
from hessmap.results import FunctionRankCertificate, RankInterval
from hessmap.results.functions import SideTruth


def rank_interval(
    function: NetworkFunction, jacobian_rank: int, tolerance: float, certificate: FunctionRankCertificate | None
) -> RankInterval:
    """Jacobian rank <= bottleneck rank <= the dimension of any representation that the function passes through.

    Above: the narrowest width of the architecture, or the affine dimension of a representation over the data where that
    is smaller and the samples are enough to tell: more than it by two, and not less than the Jacobian spans at one of
    them, as where units are active on few samples. Only sequences of layers pass through each.
    Reference: Jacot 2023, Proposition 1.
    """
    lower_kind: SideTruth = "measurement" if certificate is None else "certificate"
    lower = jacobian_rank if certificate is None else certificate.value
    sizes = {"inputs": function.input_dim, "outputs": function.output_dim}
    measured: dict[str, int] = {}
    for layer in _layers(function):
        sizes[layer.name] = layer.after.shape[1]
        dimension = count_above(centred_singular_values(layer.after.numpy()), tolerance)
        if lower <= dimension < function.num_samples - 2:
            measured[layer.name] = dimension
    place = min(sizes, key=sizes.__getitem__)
    best = min(measured, key=measured.__getitem__) if measured else place
    if measured and measured[best] < sizes[place]:
        return RankInterval(lower, lower_kind, measured[best], "measurement", best)
    return RankInterval(lower, lower_kind, sizes[place], "theorem", place)


def _layers(function: NetworkFunction) -> list[Representation]:
    if not is_chain(function):
        return []
    try:
        return representations(function)
    except UnsupportedNetwork:
        return []
