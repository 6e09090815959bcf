"""Gauss rules of an operator's spectral measure, one for each of several starting vectors, by Lanczos side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.measurement.probes import Probed
from hessmap.measurement.semi_orthogonal import SemiOrthogonalBasis, dots

_EXHAUSTED = 1e-12  # of the largest coupling: what is left of a Krylov space that has ended is rounding


@dataclass(frozen=True)
class GaussRules:
    """Nodes and weights (probes, steps), padded with weight 0; those of half the steps; which are exhausted."""

    nodes: Tensor
    weights: Tensor
    half_nodes: Tensor
    half_weights: Tensor
    is_exact: Tensor

    def joined(self, other: GaussRules) -> GaussRules:
        width = max(self.nodes.shape[1], other.nodes.shape[1])
        half = max(self.half_nodes.shape[1], other.half_nodes.shape[1])
        return GaussRules(
            _stacked(width, self.nodes, other.nodes),
            _stacked(width, self.weights, other.weights),
            _stacked(half, self.half_nodes, other.half_nodes),
            _stacked(half, self.half_weights, other.half_weights),
            torch.cat([self.is_exact, other.is_exact]),
        )


def gauss_rules(probed: Probed, starts: Tensor, num_steps: int, keep_basis: bool) -> GaussRules:
    """The rules of the columns of ``starts``, in the units of ``probed``.

    One block product a step serves all starts. With ``keep_basis`` all vectors are held and kept orthogonal to half of
    all digits, which leaves the rules right to all of them (Simon 1984); without, only three are held, copies of
    converged nodes appear, and the sums stay right (Greenbaum 1989; Chen, Trogdon & Ubaru 2021).
    """
    size, count = starts.shape
    steps = min(num_steps, size)
    current = starts.T / starts.norm(dim=0)[:, None]  # one vector a row
    before, coupling = torch.zeros_like(current), torch.zeros(count, dtype=torch.float64)
    basis = SemiOrthogonalBasis(count, steps, size) if keep_basis else None
    diagonal = torch.zeros(count, steps, dtype=torch.float64)
    beside = torch.zeros(count, steps, dtype=torch.float64)
    lengths = torch.full((count,), steps)
    alive = torch.ones(count, dtype=torch.bool)
    for step in range(steps):
        rest = _images(probed, current, alive)
        rest.addcmul_(coupling[:, None], before, value=-1)
        diagonal[:, step] = dots(current, rest)
        rest.addcmul_(diagonal[:, step, None], current, value=-1)
        norm = basis.cleared(current, rest, diagonal, beside) if basis else rest.norm(dim=1)
        reference = torch.maximum(diagonal.abs().amax(1), beside.abs().amax(1))
        ended = alive & ((norm <= _EXHAUSTED * reference) | (reference == 0) & (norm == 0))
        lengths[ended] = step + 1
        alive = alive & ~ended
        if not alive.any():
            break
        coupling = torch.where(alive, norm, 0.0)
        beside[:, step] = coupling
        rest[~alive] = 0.0
        before, current = current, rest.div_(torch.where(alive, norm, 1.0)[:, None])
    is_exact = (lengths < steps) | (lengths == size) | ~alive
    whole = [_rule(diagonal[i, :n], beside[i, : n - 1]) for i, n in enumerate(lengths.tolist())]
    halves = [n if is_exact[i] else max(1, n // 2) for i, n in enumerate(lengths.tolist())]
    half = [_rule(diagonal[i, :n], beside[i, : n - 1]) for i, n in enumerate(halves)]
    return GaussRules(*_padded(whole), *_padded(half), is_exact)


def _images(probed: Probed, rows: Tensor, alive: Tensor) -> Tensor:
    """The products of the rows that are still of use, to be written into; zero for the others."""
    if alive.all():
        images = probed.product(rows.T).T
        return images.contiguous() if probed.unit else images.clone()  # without a unit they are the operator's own
    images = torch.zeros_like(rows)
    images[alive] = probed.product(rows[alive].T).T
    return images


def _rule(diagonal: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
    """Golub & Welsch (1969): eigenvalues of the tridiagonal matrix, squares of the first entries of its vectors."""
    tridiagonal = torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    return values, vectors[0].square()


def _stacked(width: int, *parts: Tensor) -> Tensor:
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])


def _padded(rules: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    width = max(len(nodes) for nodes, _ in rules)
    nodes = torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part, _ in rules])
    return nodes, torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for _, part in rules])
