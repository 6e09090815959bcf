"""Arguments of every wrong kind, and the check that a function answers each with a sentence or a result."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import HessmapError
from hessmap.linalg import DenseOperator, LinearOperator, SymmetricOperator
from known_spectra import random_orthogonal, rotated

SIZE = 12
MATRIX = rotated(np.linspace(-1, 3, SIZE))


# Wrong for an architecture, a module, a shape, a seed or a name.
ODD_ARGUMENTS = [
    *(None, -1, 2.5, "a", "", [], {}, float("nan"), 2**70, -(2**70), 1j, object(), len),
    *(np.array([1.5, 2]), torch.zeros(2, 2), (1, "a"), (1, 2.5), (0, 3), (-1, 3), [[1, 2], [3]]),
    *(nn.Linear, hm.FullyConnected((3, 2))),
]


def vectors(count: int = 3) -> np.ndarray:
    return random_orthogonal(SIZE, 1)[:, :count]


@cache
def problem() -> hm.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)).double()
    return hm.Problem(model, "cross_entropy", torch.randn(20, 3).double(), torch.arange(20) % 3)


class Broken(SymmetricOperator):
    """An operator whose products are wrong in one of many ways."""

    size = SIZE

    def __init__(self, images: Callable[[Tensor], Any], dtype: Any = torch.float64, size: Any = SIZE) -> None:
        self.images, self.dtype = images, dtype
        self.size = size

    def matmat(self, vectors: Tensor) -> Any:
        return self.images(vectors)


class Rectangular(LinearOperator):
    shape = (SIZE, SIZE + 1)

    def matmat(self, vectors: Tensor) -> Tensor:
        return torch.zeros(SIZE, vectors.shape[1], dtype=torch.float64)


def odd_values() -> dict[str, Any]:
    """Wrong for a matrix, a vector, a number, a count, a seed or a name; some are right for one of them."""
    skewed = MATRIX.copy()
    skewed[2, 5] += 1e-3
    bad = MATRIX.copy()
    bad[1, 2] = bad[2, 1] = np.nan
    return {
        "None": None,
        "text": "text",
        "bytes": b"text",
        "2.5": 2.5,
        "True": True,
        "-1": -1,
        "0": 0,
        "1": 1,
        "huge integer": 10**400,
        "2^63": 2**63,
        "nan": float("nan"),
        "inf": float("inf"),
        "-inf": -float("inf"),
        "complex": 1 + 2j,
        "numpy 2.5": np.float64(2.5),
        "numpy bool": np.bool_(True),
        "tensor 2": torch.tensor(2),
        "list": [1.0, 2.0],
        "nested list": [[1.0, 0.0], [0.0, 1.0]],
        "list of text": ["a"],
        "dictionary": {"a": 1},
        "empty tuple": (),
        "object": object(),
        "class": np.ndarray,
        "function": len,
        "problem": problem(),
        "model": problem().model,
        "empty array": np.zeros((0, 0)),
        "0 by 3": np.zeros((0, 3)),
        "3 by 0": np.zeros((3, 0)),
        "no dimensions": np.array(3.0),
        "vector": np.ones(SIZE),
        "short vector": np.ones(3),
        "three dimensions": np.ones((2, SIZE, SIZE)),
        "rectangular": np.ones((SIZE, SIZE + 1)),
        "not symmetric": skewed,
        "not finite": bad,
        "zeros": np.zeros((SIZE, SIZE)),
        "integers": np.eye(SIZE, dtype=np.int8),
        "bools": np.eye(SIZE, dtype=bool),
        "float32": MATRIX.astype(np.float32),
        "float16": MATRIX.astype(np.float16),
        "complex array": MATRIX * 1j,
        "objects": np.array([[None] * SIZE] * SIZE),
        "texts": np.array([["a"] * SIZE] * SIZE),
        "dates": np.zeros((SIZE, SIZE), dtype="datetime64[s]"),
        "structured": np.zeros((SIZE, SIZE), dtype=[("a", float)]),
        "masked": np.ma.masked_array(MATRIX, MATRIX > 100),
        "masked in places": np.ma.masked_array(MATRIX, mask=np.eye(SIZE, dtype=bool)),
        "reversed": MATRIX[::-1, ::-1],
        "read only": np.broadcast_to(np.float64(1.0), (SIZE, SIZE)),
        "scipy sparse": scipy.sparse.csr_matrix(MATRIX),
        "torch sparse": torch.from_numpy(MATRIX).to_sparse(),
        "torch csr": torch.eye(SIZE, dtype=torch.float64).to_sparse_coo(),
        "meta": torch.empty(SIZE, SIZE, dtype=torch.float64, device="meta"),
        "bfloat16": torch.eye(SIZE, dtype=torch.bfloat16),
        "complex tensor": torch.eye(SIZE, dtype=torch.complex128),
        "conjugate": torch.eye(SIZE, dtype=torch.complex128).conj(),
        "with gradient": torch.eye(SIZE, dtype=torch.float64, requires_grad=True),
        "parameter": nn.Parameter(torch.eye(SIZE, dtype=torch.float64)),
        "operator": DenseOperator(torch.from_numpy(MATRIX)),
        "operator in float32": DenseOperator(torch.from_numpy(MATRIX).float()),
        "operator that is not symmetric": DenseOperator(torch.from_numpy(skewed)),
        "operator of nothing": DenseOperator(torch.zeros(0, 0, dtype=torch.float64)),
        "operator that is not square": Rectangular(),
        "operator to None": Broken(lambda vectors: None),
        "operator to arrays": Broken(lambda vectors: vectors.numpy()),
        "operator to one vector": Broken(lambda vectors: vectors[:, 0]),
        "operator to nan": Broken(lambda vectors: vectors * torch.nan),
        "operator to complex": Broken(lambda vectors: vectors * 1j),
        "operator to integers": Broken(lambda vectors: 2 * torch.ones_like(vectors, dtype=torch.int64)),
        "operator of a named dtype": Broken(lambda vectors: vectors, dtype="float64"),
        "operator of integers": Broken(lambda vectors: vectors, dtype=torch.int64),
        "operator of size 2.5": Broken(lambda vectors: vectors, size=2.5),
        "operator of size -1": Broken(lambda vectors: vectors, size=-1),
        "operator of size None": Broken(lambda vectors: vectors, size=None),
    }


def assert_sentence_or_result(function: Callable[..., Any], question: dict[str, Any], argument: str) -> None:
    """Replace one argument of a question that has an answer by every odd value in turn."""
    refused = 0
    for description, value in odd_values().items():
        try:
            found = function(**{**question, argument: value})
        except HessmapError as error:
            text = str(error)
            refused += 1
            assert text.endswith((".", "?")), description
            assert len(text.splitlines()) == 1, description
            assert len(text) < 400, description
        except Exception as error:
            if "raised in log" in getattr(error, "__notes__", ()):
                continue  # the caller's own function
            pytest.fail(f"{function.__name__}({argument}={description}) raised {type(error).__name__}: {error}")
        else:
            assert found is not None
    assert refused > (5 if argument not in ("vectors", "log") else -1)
