"""Gauss rules of an operator's spectral measure, one for each of several starting vectors, by Lanczos side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.lanczos import ParallelLanczos, ScaledProduct


@dataclass(frozen=True)
class GaussRules:
    """Nodes and weights (probes, steps), padded with weight 0; those of half the steps, and of one step less; which are
    of ended spaces, whose rules do not change with the steps."""

    nodes: Tensor
    weights: Tensor
    half_nodes: Tensor
    half_weights: Tensor
    earlier_nodes: Tensor
    earlier_weights: Tensor
    is_exact: Tensor

    def joined_with(self, other: GaussRules) -> GaussRules:
        width = max(self.nodes.shape[1], other.nodes.shape[1])
        half = max(self.half_nodes.shape[1], other.half_nodes.shape[1])
        earlier = max(self.earlier_nodes.shape[1], other.earlier_nodes.shape[1])
        return GaussRules(
            _stacked_rows(width, self.nodes, other.nodes),
            _stacked_rows(width, self.weights, other.weights),
            _stacked_rows(half, self.half_nodes, other.half_nodes),
            _stacked_rows(half, self.half_weights, other.half_weights),
            _stacked_rows(earlier, self.earlier_nodes, other.earlier_nodes),
            _stacked_rows(earlier, self.earlier_weights, other.earlier_weights),
            torch.cat([self.is_exact, other.is_exact]),
        )


def gauss_rules(product: ScaledProduct, starts: Tensor, num_steps: int, keep_basis: bool) -> GaussRules:
    """The rules of the columns of ``starts``, in the unit of the product, which serves all of them in every step.

    With ``keep_basis`` all vectors are stored and kept orthogonal to half of all digits, which leaves the rules right
    to all of them (Simon 1984); without, only three are stored, copies of converged nodes appear, and the sums stay
    right (Greenbaum 1989; Chen, Trogdon & Ubaru 2021).
    """
    process = lanczos_process(product, starts, num_steps, keep_basis)
    matrices, lengths = process.projection, process.num_vectors.tolist()
    is_exact = process.has_ended | (process.num_vectors == product.size)
    halves = [length if is_exact[i] else max(1, length // 2) for i, length in enumerate(lengths)]
    earlier = [length if is_exact[i] else max(1, length - 1) for i, length in enumerate(lengths)]
    rules = [
        _padded_rules([_rule(matrix[:length, :length]) for matrix, length in zip(matrices, some, strict=True)])
        for some in (lengths, halves, earlier)
    ]
    return GaussRules(*rules[0], *rules[1], *rules[2], is_exact)


def lanczos_process(product: ScaledProduct, starts: Tensor, num_steps: int, keep_basis: bool) -> ParallelLanczos:
    """The process of the columns of ``starts`` after so many steps, or when all spaces have ended."""
    num_steps = min(num_steps, product.size)
    process = ParallelLanczos(product, starts.T, num_steps, "semi" if keep_basis else "local")
    while process.dimension < num_steps and process.width:
        process.expand()
    return process


def _rule(tridiagonal: Tensor) -> tuple[Tensor, Tensor]:
    """Golub & Welsch (1969): eigenvalues of the tridiagonal matrix, squares of the first entries of its vectors."""
    values, vectors = torch.linalg.eigh(tridiagonal)
    return values, vectors[0].square()


def _stacked_rows(width: int, *parts: Tensor) -> Tensor:
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])


def _padded_rules(rules: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    width = max(len(nodes) for nodes, _ in rules)
    nodes = torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for part, _ in rules])
    return nodes, torch.stack([torch.nn.functional.pad(part, (0, width - len(part))) for _, part in rules])
