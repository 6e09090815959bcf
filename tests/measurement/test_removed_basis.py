"""A basis is taken out of rows in their own format, and no copy of it is made for that."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hessmap.linalg.orthogonalisation import remove_basis

SIZE, NUM_VECTORS, NUM_NEAR, NUM_ROWS = 2**17, 40, 32, 3


class LargestResult(TorchDispatchMode):
    """The bytes of the largest tensor that an operation inside returns and that holds memory of its own."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage().data_ptr() for one in tree_leaves(args) if isinstance(one, Tensor)}
        results = func(*args, **(kwargs or {}))
        for one in tree_leaves(results):
            if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in given:
                self.num_bytes = max(self.num_bytes, one.untyped_storage().nbytes())
        return results


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_near_vectors_go_in_the_format_of_the_rows_without_a_copy_of_the_basis(precision: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(SIZE, NUM_VECTORS, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(drawn)[0].T.contiguous().to(precision)
    exact = basis.double()
    parts = torch.randn(NUM_ROWS, NUM_VECTORS, generator=generator, dtype=torch.float64)
    parts[:, :-NUM_NEAR] *= 1e-9  # a Lanczos process has hardly any of these to take
    beside = torch.randn(NUM_ROWS, SIZE, generator=generator, dtype=torch.float64)
    beside -= beside @ exact.T @ exact
    rows = parts @ exact + 1e-9 * beside  # of which float32 leaves a rounding far below that of the near vectors
    before = rows.clone()
    with LargestResult() as largest:
        taken = remove_basis(rows, basis, NUM_NEAR)
    assert float((before - taken.T @ exact - rows).norm()) < 1e-13
    assert float((exact @ rows.T).abs().max()) < 1e-12
    assert largest.num_bytes <= max(8 * NUM_VECTORS * 2**15, rows.nbytes)
