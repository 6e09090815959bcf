"""What holds for the dense form of every operator."""

from __future__ import annotations

import torch

from hessmap.linalg.operator import LinearOperator, SymmetricOperator


def assert_may_be_changed(given: LinearOperator) -> None:
    """Whatever is written into a dense form or a diagonal, the operator stays as it was."""
    vectors = torch.randn(given.shape[1], 3, dtype=torch.float64)
    first = given @ vectors
    dense = given.to_dense()
    expected = dense.clone()
    assert torch.allclose(expected @ vectors, first, rtol=1e-9, atol=1e-12 * float(first.abs().max()))
    dense.mul_(0).sub_(7.0)
    assert torch.equal(given @ vectors, first)
    assert torch.equal(given.to_dense(), expected)
    if isinstance(given, SymmetricOperator):
        diagonal = given.exact_diagonal()
        if diagonal is not None:
            kept = diagonal.clone()
            diagonal.zero_()
            assert torch.equal(given.exact_diagonal(), kept)
            assert torch.equal(given @ vectors, first)
    assert torch.equal(given.to_dense(), expected)
