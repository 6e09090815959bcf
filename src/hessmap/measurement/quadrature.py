"""Gauss rules of an operator's spectral measure, one for each of several starting vectors, by Lanczos side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.measurement.probes import Probed

_SETTLED = 1e-8  # a pass that takes less, of the vector's length, leaves nothing above rounding
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

    One block product a step serves all starts. With ``keep_basis`` every new vector is orthogonalised against all
    earlier ones; without, only three vectors are held, copies of converged nodes appear, and the sums stay right
    (Greenbaum 1989; Chen, Trogdon & Ubaru 2021).
    """
    size, count = starts.shape
    steps = min(num_steps, size)
    current = starts.T / starts.norm(dim=0)[:, None]  # one vector a row
    before, coupling = torch.zeros_like(current), torch.zeros(count, dtype=torch.float64)
    basis = torch.empty(count, steps if keep_basis else 0, size, dtype=torch.float64)
    diagonal = torch.zeros(count, steps, dtype=torch.float64)
    beside = torch.zeros(count, steps, dtype=torch.float64)
    lengths = torch.full((count,), steps)
    alive = torch.ones(count, dtype=torch.bool)
    for step in range(steps):
        if keep_basis:
            basis[:, step] = current
        rest = torch.zeros_like(current)
        rest[alive] = probed.product(current[alive].T).T
        rest -= coupling[:, None] * before
        diagonal[:, step] = (current * rest).sum(1)
        rest -= diagonal[:, step, None] * current
        if keep_basis:
            _clear(rest, basis[:, : step + 1])
        norm = rest.norm(dim=1)
        reference = torch.maximum(diagonal.abs().amax(1), beside.abs().amax(1))
        ended = alive & ((norm <= _EXHAUSTED * reference) | (reference == 0) & (norm == 0))
        lengths[ended] = step + 1
        alive = alive & ~ended
        if not alive.any():
            break
        coupling = torch.where(alive, norm, 0.0)
        beside[:, step] = coupling
        before, current = current, torch.where(alive[:, None], rest / torch.where(alive, norm, 1.0)[:, None], 0.0)
    is_exact = (lengths < steps) | (lengths == size) | ~alive
    whole = [_rule(diagonal[i, :n], beside[i, : n - 1]) for i, n in enumerate(lengths.tolist())]
    halves = [n if is_exact[i] else max(1, n // 2) for i, n in enumerate(lengths.tolist())]
    half = [_rule(diagonal[i, :n], beside[i, : n - 1]) for i, n in enumerate(halves)]
    return GaussRules(*_padded(whole), *_padded(half), is_exact)


def _clear(rest: Tensor, basis: Tensor) -> None:
    """Take each vector's earlier ones out of it, in place, and once more unless that took next to nothing."""
    for _ in range(2):
        inside = torch.bmm(basis, rest[:, :, None])[:, :, 0]
        for row, coefficients, vectors in zip(rest, inside, basis, strict=True):
            row.addmv_(vectors.T, coefficients, alpha=-1)
        if bool((inside.abs().amax(1) <= _SETTLED * rest.norm(dim=1)).all()):
            return


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
