"""Where the peers go wrong, and whether hessmap does: one row a trap, every library run on it.

A library passes if its answer is within 1e-6 of an answer found without any library (a dense matrix by plain autograd,
or a matrix that was built with its spectrum); refusing with an error that names the cause is not a pass, except where
hessmap's documentation says that the input has no answer. Libraries without a way to be handed a matrix (PyHessian)
meet the spectral rows as the Hessian of a quadratic function.

    make bench-peers    # or: python benchmarks/peers/correctness.py
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import numpy as np
import torch
from harness import environment, write
from libraries import Adapter, cross_entropy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from cases import Case, TokenEncoder

ALLOWED = 1e-6
LIBRARIES = ("hessmap", "curvlinops", "hessian-eigenthings", "PyHessian")
_Loader = list[tuple[Tensor, Tensor]] | DataLoader[Any]


def products(library: str, model: nn.Module, batches: _Loader, vector: Tensor) -> Tensor:
    """H v of the mean cross-entropy, the library asked as its documentation says."""
    if library == "hessmap":
        return hm.loss_hessian(hm.Problem(model, "cross_entropy", batches)) @ vector
    if library == "curvlinops":
        from curvlinops import HessianLinearOperator

        parameters = list(model.parameters())
        return (HessianLinearOperator(model, nn.CrossEntropyLoss(), parameters, batches) @ vector).detach()
    if library == "hessian-eigenthings":
        import hessian_eigenthings as peer

        return peer.HessianOperator(model, batches, cross_entropy).matvec(vector)
    from pyhessian import hessian

    operator = hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=False)
    split = torch.split(vector, [parameter.numel() for parameter in operator.params])
    parts = [part.reshape(parameter.shape) for part, parameter in zip(split, operator.params, strict=True)]
    return torch.cat([part.reshape(-1) for part in operator.dataloader_hv_product(parts)[1]])


def expected_product(model: nn.Module, inputs: Tensor, labels: Tensor, vector: Tensor) -> Tensor:
    """By plain autograd over all samples at once, attention by its math kernel."""
    from libraries import ready

    with ready(Case("", TokenEncoder(), inputs, labels)):
        parameters = [value for value in model.parameters() if value.requires_grad]
        risk = nn.functional.cross_entropy(model(inputs), labels)
        slope = torch.autograd.grad(risk, parameters, create_graph=True, allow_unused=True)
        image = torch.autograd.grad(_flat(slope, parameters), parameters, vector, allow_unused=True)
    return _flat(image, parameters)


def _flat(parts: Any, parameters: list[nn.Parameter]) -> Tensor:
    """One vector, zero where the loss does not depend on a parameter."""
    pairs = zip(parts, parameters, strict=True)
    return torch.cat([torch.zeros(own.numel()) if part is None else part.reshape(-1) for part, own in pairs])


def top_values(library: str, matrix: Tensor, count: int, steps: int) -> np.ndarray:
    """The largest eigenvalues of a given matrix; ``steps`` for those that must be told."""
    size = len(matrix)
    if library == "hessmap":
        found = hm.top_eigenpairs(matrix.numpy(), count)
        assert found.converged
        return np.array(found.eigenvalues)
    adapter = Adapter(lambda vector: matrix @ vector, size)
    if library == "curvlinops":
        from scipy.sparse.linalg import eigsh

        start = np.random.default_rng(0).standard_normal(size)
        return np.sort(eigsh(adapter.scipy(), k=count, which="LA", tol=1e-8, v0=start)[0])[::-1]
    if library == "hessian-eigenthings":
        import hessian_eigenthings as peer

        return peer.lanczos(adapter, k=count, max_iter=steps, which="LA", seed=0).eigenvalues.numpy()
    from pyhessian import hessian

    quadratic = Quadratic(matrix)
    operator = hessian(quadratic, lambda outputs, _: outputs.sum(), data=(torch.ones(1), torch.ones(1)), cuda=False)
    torch.manual_seed(0)
    return np.sort(operator.eigenvalues(maxIter=1000, tol=1e-10, top_n=count)[0])[::-1]


class Quadratic(nn.Module):
    """x^T A x / 2, at a point where its gradient is not zero."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix
        self.point = nn.Parameter(torch.ones(len(matrix)))

    def forward(self, _: Tensor) -> Tensor:
        return 0.5 * self.point @ self.matrix @ self.point


def of_spectrum(values: Tensor, seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues."""
    normal = torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    basis = torch.linalg.qr(normal).Q
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


def spectral(values: Tensor, count: int, steps: int) -> Callable[[str], float]:
    """A row about eigenvalues: the error relative to the norm."""

    def error(library: str) -> float:
        expected = values.sort(descending=True).values[:count].numpy()
        found = top_values(library, of_spectrum(values), count, steps)
        assert len(found) == count, f"it found {len(found)} of {count}"
        return float(np.abs(found - expected).max() / values.abs().max())

    return error


def about_products(
    made: Callable[[], nn.Module], batch_size: int = 100, shuffle: bool = False, frozen_norm: bool = False
) -> Callable[[str], float]:
    """A row about a model and its data: the error of one product, relative to its largest entry; parameters, buffers
    and mode must be as they were."""

    def error(library: str) -> float:
        torch.manual_seed(0)
        model = made() if frozen_norm else made().eval()
        inputs, labels = torch.randn(100, 64), torch.arange(100) % 10
        data: _Loader = list(zip(inputs.split(batch_size), labels.split(batch_size), strict=True))
        if shuffle:
            data = DataLoader(TensorDataset(inputs, labels), batch_size=batch_size, shuffle=True)
        vector = torch.randn(sum(value.numel() for value in model.parameters()))
        was_training, buffers = model.training, {name: value.clone() for name, value in model.named_buffers()}
        found = products(library, model, data, vector)
        assert model.training == was_training, "it left the model in another mode"
        changed = [name for name, value in model.named_buffers() if not torch.equal(value, buffers[name])]
        assert not changed, f"it changed the buffer {changed[0]}"
        if frozen_norm:
            model.eval()
        wanted = expected_product(model, inputs, labels, vector)
        return float((found - wanted).abs().max() / wanted.abs().max())

    return error


def network(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 12), nn.Tanh(), *more, nn.Linear(12, 10))


class Unused(nn.Module):
    """Some parameters that the loss never sees."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = network(), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.used(inputs)


def decaying(size: int) -> Tensor:
    return torch.logspace(0, -3, size)


def rows() -> dict[str, Callable[[str], float]]:
    zeros = torch.zeros(150)
    return {
        "ragged last batch (64 + 36 samples)": about_products(network, batch_size=64),
        "shuffled loader, ragged": about_products(network, batch_size=64, shuffle=True),
        "ghosts: top 20 of 300, 100 steps": spectral(torch.cat([torch.tensor([100.0, 50.0]), decaying(298)]), 20, 100),
        "30-fold eigenvalue: top 40 of 300": spectral(torch.cat([torch.full((30,), 2.0), decaying(270)]), 40, 200),
        "rank 5 of 200: top 8": spectral(torch.cat([torch.arange(1.0, 6.0), torch.zeros(195)]), 8, 40),
        "scaled by 1e-14: top 10 of 200": spectral(1e-14 * decaying(200), 10, 100),
        "a zero block: top 10 of 300": spectral(torch.cat([-decaying(145), torch.ones(5), zeros]), 10, 100),
        "parameters that the loss never sees": about_products(Unused),
        "attention": about_products(lambda: TokenEncoder(16, 1)),
        "layer-norm": about_products(lambda: network(nn.LayerNorm(12))),
        "batch-norm in train mode, by batches": about_products(
            lambda: network(nn.BatchNorm1d(12)), batch_size=50, frozen_norm=True
        ),
    }


def judged(name: str, error: Callable[[str], float], library: str) -> dict[str, Any]:
    try:
        found = error(library)
    except Exception as failure:
        return {"passes": False, "why": f"{type(failure).__name__}: {str(failure).splitlines()[0][:140]}"}
    return {"passes": bool(found <= ALLOWED), "error": found}


def told(library: str, verdict: dict[str, Any]) -> str:
    why = verdict.get("why") or f"{verdict['error']:.1e}"
    return f"{library} {'passes' if verdict['passes'] else 'FAILS'} ({why})"


def main() -> int:
    torch.set_default_dtype(torch.float64)
    where, cases = environment(), []
    warnings.simplefilter("ignore")
    for name, error in rows().items():
        verdicts = {library: judged(name, error, library) for library in LIBRARIES}
        cases.append({"row": name, "allowed": ALLOWED, "libraries": verdicts, "passes": verdicts["hessmap"]["passes"]})
        print(f"{name}: {'; '.join(told(library, verdict) for library, verdict in verdicts.items())}", flush=True)
    write("peers_correctness", where, cases)
    return 0 if all(row["passes"] for row in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
