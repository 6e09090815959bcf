"""A block-diagonal curvature matrix as an operator with its inverse.

Functions of a block are those of its eigenvalues: Kronecker products, dense matrices and diagonals have one form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import scipy.linalg
import torch
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, sentence
from hessmap.linalg import Layout, SymmetricOperator, require_memory, to_host
from hessmap.records import register_reader, save_archive


@dataclass(frozen=True, eq=False)
class CurvatureBlock:
    """A block of the curvature by its eigenvectors and eigenvalues.

    Attributes:
        names: Parameters covered by the block.
        form: "kronecker", "kronecker, corrected eigenvalues", "dense" or "diagonal".
        entries: Positions of the block's coordinates in the flat parameter vector.
        values: Eigenvalues: (outputs, inputs) of a Kronecker product, else a vector.
        bases: Eigenvectors of the output and the input factor, of the dense block, or none for a diagonal.
    """

    names: tuple[str, ...]
    form: str
    entries: Tensor
    values: Tensor
    bases: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        return self.entries.numel()

    @property
    def num_outputs(self) -> int:
        """Rows of the coordinates as a matrix: 1 unless the block is a Kronecker product."""
        return self.values.shape[0] if self.values.ndim == 2 else 1

    def apply(self, function: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        """Multiply columns by a function of the block, given on its eigenvalues."""
        factors = function(self.values)
        if not self.bases:
            return factors[:, None] * vectors
        if len(self.bases) == 1:
            (basis,) = self.bases
            return basis @ (factors[:, None] * (basis.T @ vectors))
        left, right = self.bases
        matrices = vectors.T.reshape(-1, *self.values.shape)
        rotated = factors * (left.T @ matrices @ right)
        return (left @ rotated @ right.T).reshape(len(matrices), -1).T

    def multiply(self, vectors: Tensor) -> Tensor:
        """Multiply columns by the block."""
        return self.apply(lambda values: values, vectors)

    def diagonal(self) -> Tensor:
        """The diagonal of the block."""
        squares = [basis.square() for basis in self.bases]
        if len(squares) == 2:
            return (squares[0] @ self.values @ squares[1].T).flatten()
        return squares[0] @ self.values if squares else self.values

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> CurvatureBlock:
        """The block on another device, its numbers in another dtype."""
        bases = tuple(basis.to(device, dtype) for basis in self.bases)
        return CurvatureBlock(self.names, self.form, self.entries.to(device), self.values.to(device, dtype), bases)

    def tensors(self) -> dict[str, Tensor]:
        """What determines the block beside its names, for a file."""
        bases = {f"basis{place}": basis for place, basis in enumerate(self.bases)}
        return {"entries": self.entries, "values": self.values, **bases}


class FactoredBlock(CurvatureBlock):
    """A block by its matrix, or by the two factors of a Kronecker product.

    Products use the factors. Eigenvectors are computed when another function of the block is asked for the first time.

    Args:
        names: Parameters covered by the block.
        form: As of a CurvatureBlock.
        entries: Positions of the block's coordinates in the flat parameter vector.
        factors: The matrix, or the output and the input factor.
        shift: Multiple of the identity that is added to the product. Defaults to 0.
    """

    factors: tuple[Tensor, ...]
    shift: float

    def __init__(
        self, names: tuple[str, ...], form: str, entries: Tensor, factors: Sequence[Tensor], shift: float = 0.0
    ) -> None:
        fields = {"names": names, "form": form, "entries": entries, "factors": tuple(factors), "shift": shift}
        self.__dict__.update(fields)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        pairs = [eigenpairs_of(factor) for factor in self.factors]
        values = pairs[0][0] if len(pairs) == 1 else torch.outer(pairs[0][0], pairs[1][0])
        return values + self.shift, tuple(vectors for _, vectors in pairs)

    @property
    def num_outputs(self) -> int:
        return len(self.factors[0]) if len(self.factors) == 2 else 1

    @property
    def values(self) -> Tensor:
        return self._spectrum[0]

    @property
    def bases(self) -> tuple[Tensor, ...]:
        return self._spectrum[1]

    def multiply(self, vectors: Tensor) -> Tensor:
        if len(self.factors) == 1:
            found = self.factors[0] @ vectors
        else:
            left, right = self.factors
            matrices = vectors.T.reshape(-1, len(left), len(right))
            found = (left @ matrices @ right).reshape(len(matrices), -1).T
        return found + self.shift * vectors if self.shift else found

    def diagonal(self) -> Tensor:
        parts = [factor.diagonal() for factor in self.factors]
        return (parts[0] if len(parts) == 1 else torch.outer(*parts).flatten()) + self.shift

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> FactoredBlock:
        factors = [factor.to(device, dtype) for factor in self.factors]
        return FactoredBlock(self.names, self.form, self.entries.to(device), factors, self.shift)

    def tensors(self) -> dict[str, Tensor]:
        factors = {f"factor{place}": factor for place, factor in enumerate(self.factors)}
        return {"entries": self.entries, "shift": torch.tensor(self.shift, dtype=torch.float64), **factors}


class KroneckerCurvature(SymmetricOperator):
    """A block-diagonal curvature matrix with its inverse; made by ``kronecker_curvature``.

    Attributes:
        layout: Names, shapes and order of the parameters.
        blocks: The blocks in the order of the parameters; ``block.form`` states what covers which parameters.
        kind: "kfac", "ekfac", "best", "diagonal", "block" or "full".
        part: "outer_product" or "loss".
        fisher: "exact", "sampled" or "empirical".
        dtype: dtype of the products.
    """

    def __init__(
        self, layout: Layout, blocks: Sequence[CurvatureBlock], *, kind: str, part: str, fisher: str, dtype: torch.dtype
    ) -> None:
        self.layout: Layout = layout
        self.blocks = tuple(blocks)
        self.kind = kind
        self.part = part
        self.fisher = fisher
        self.dtype = dtype
        if self.blocks:
            self.device = self.blocks[0].entries.device

    @property
    def size(self) -> int:
        return self.layout.size

    def matmat(self, vectors: Tensor) -> Tensor:
        return self._by_block(lambda block, columns: block.multiply(columns), vectors)

    def solve(self, vectors: Tensor, *, damping: float, relative: bool = False) -> Tensor:
        """Compute (K + damping I)^-1 b.

        Args:
            vectors: Vector or columns b.
            damping: Positive number added to every eigenvalue.
            relative: Multiply the damping by the mean eigenvalue of each block.

        Returns:
            The solution, in the shape of ``vectors`` and on their device.

        Raises:
            InvalidInput: If the damping is not positive, or leaves an eigenvalue that is not (``part="loss"``).
        """
        return self._apply(self._damped(damping, relative, torch.reciprocal), vectors)

    def inverse_sqrt(self, vectors: Tensor, *, damping: float, relative: bool = False) -> Tensor:
        """Compute (K + damping I)^-1/2 b; arguments as of ``solve``."""
        return self._apply(self._damped(damping, relative, torch.rsqrt), vectors)

    def log_determinant(self, *, damping: float, relative: bool = False) -> float:
        """Compute log det(K + damping I); arguments as of ``solve``."""
        function = self._damped(damping, relative, torch.log)
        return float(sum(function(block.values.double()).sum() for block in self.blocks))

    def sample(self, generator: torch.Generator, *, damping: float, relative: bool = False) -> Tensor:
        """Draw from the Gaussian with mean 0 and covariance (K + damping I)^-1.

        Args:
            generator: Source of randomness, on the host: the same seed gives the same draw on every device.
            damping: As of ``solve``.
            relative: As of ``solve``.

        Returns:
            A flat vector of parameters.
        """
        noise = torch.randn(self.size, generator=generator, dtype=torch.float64)
        return self.inverse_sqrt(noise.to(self.device, self.dtype), damping=damping, relative=relative)

    def eigenvalues(self) -> Tensor:
        """All eigenvalues in descending order."""
        return torch.cat([block.values.flatten() for block in self.blocks]).sort(descending=True).values

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        diagonal = torch.zeros(self.size, dtype=torch.float64)
        for block in self.blocks:
            diagonal[block.entries.flatten().cpu()] = block.diagonal().to("cpu", torch.float64)
        return diagonal

    def to_dense(self) -> Tensor:
        require_memory("the dense form", 8 * self.size**2, "Use products, or block by block")
        return self.matmat(torch.eye(self.size, dtype=self.dtype, device=self.device))

    def save(self, path: str | Path) -> None:
        """Write the curvature to a file, which ``hm.load`` reads.

        Args:
            path: File to write. Missing folders are created; an existing file is replaced.

        Example:
            >>> import tempfile, hessmap as hm
            >>> problem = hm.Problem(torch.nn.Linear(2, 1), "squared", torch.eye(2), torch.zeros(2, 1))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     hm.kronecker_curvature(problem).save(f"{folder}/kfac.npz")
            ...     hm.load(f"{folder}/kfac.npz")
            kfac curvature of size 3 (outer_product, exact Fisher; blocks: 1 kronecker)
        """
        blocks, arrays = list[dict[str, Any]](), dict[str, Any]()
        for number, block in enumerate(self.blocks):
            parts = block.tensors()
            blocks.append({"names": block.names, "form": block.form, "tensors": list(parts)})
            arrays |= {f"{number}.{name}": part.cpu().numpy() for name, part in parts.items()}
        about = {"kind": self.kind, "part": self.part, "fisher": self.fisher}
        about["dtype"] = str(self.dtype).removeprefix("torch.")
        save_archive(path, "KroneckerCurvature", {**about, "shapes": self.layout.shapes, "blocks": blocks}, arrays)

    def to(self, device: torch.device | str) -> KroneckerCurvature:
        """The same curvature on another device.

        Args:
            device: Where its tensors are placed.

        Returns:
            A new curvature.
        """
        blocks = [block.to(device) for block in self.blocks]
        about = {"kind": self.kind, "part": self.part, "fisher": self.fisher}
        return KroneckerCurvature(self.layout, blocks, dtype=self.dtype, **about)

    def _damped(
        self, damping: float, relative: bool, function: Callable[[Tensor], Tensor]
    ) -> Callable[[Tensor], Tensor]:
        shift = checked_number("damping", damping)
        require(shift > 0, "damping must be positive", f"got {shift:g}")

        def of_values(values: Tensor) -> Tensor:
            damped = values + shift * (values.mean() if relative else 1.0)
            if float(damped.min()) <= 0:
                must = "K + damping I must be positive definite"
                raise InvalidInput(
                    sentence(must, f"it has the eigenvalue {float(damped.min()):.3g}", "Increase damping")
                )
            return function(damped)

        return of_values

    def _apply(self, function: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        return self._by_block(lambda block, columns: block.apply(function, columns), vectors)

    def _by_block(self, product: Callable[[CurvatureBlock, Tensor], Tensor], vectors: Tensor) -> Tensor:
        columns = vectors.reshape(len(vectors), -1).to(self.device)
        result = torch.zeros_like(columns)
        for block, spans in zip(self.blocks, self._spans, strict=True):
            if spans is None:
                result[block.entries] = product(block, columns[block.entries]).to(result.dtype)
                continue
            parts = [columns[span.place].view(span.rows, -1, columns.shape[1]) for span in spans]
            joined = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
            found = product(block, joined.flatten(0, 1)).view(joined.shape)
            for span, part in zip(spans, torch.split(found, [part.shape[1] for part in parts], 1), strict=True):
                result[span.place].view(part.shape).copy_(part)
        return result.reshape(vectors.shape).to(vectors.device)

    @cached_property
    def _spans(self) -> list[list[_Span] | None]:
        """Of every block its coordinates as slices of a vector, which are moved faster than single entries."""
        return [_spans_of(block) for block in self.blocks]

    def __repr__(self) -> str:
        forms = [block.form for block in self.blocks]
        counts = ", ".join(f"{forms.count(form)} {form}" for form in dict.fromkeys(forms))
        return f"{self.kind} curvature of size {self.size} ({self.part}, {self.fisher} Fisher; blocks: {counts})"


@dataclass(frozen=True)
class _Span:
    """A slice of the flat parameters: some columns of the coordinates of a block, as a matrix of so many rows."""

    place: slice
    rows: int


def _spans_of(block: CurvatureBlock) -> list[_Span] | None:
    """The coordinates as slices that stand side by side, for example [W, b] by output; None if they are in another
    order."""
    rows = block.num_outputs
    entries = block.entries.view(rows, -1)
    starts = [0, *((entries[0].diff() != 1).nonzero().flatten() + 1).tolist(), entries.shape[1]]
    found = []
    for start, stop in pairwise(starts):
        part = entries[:, start:stop]
        first = int(part[0, 0])
        if not torch.equal(part.flatten(), torch.arange(first, first + part.numel(), device=part.device)):
            return None
        found.append(_Span(slice(first, first + part.numel()), rows))
    return found


def _restored(header: dict[str, Any], arrays: dict[str, Any]) -> KroneckerCurvature:
    blocks = list[CurvatureBlock]()
    for number, about in enumerate(header["blocks"]):
        entries, second, *others = (torch.from_numpy(arrays[f"{number}.{name}"]) for name in about["tensors"])
        names, form = tuple(about["names"]), about["form"]
        if "shift" in about["tensors"]:
            blocks.append(FactoredBlock(names, form, entries, others, float(second)))
        else:
            blocks.append(CurvatureBlock(names, form, entries, second, tuple(others)))
    layout = Layout(tuple((name, tuple(shape)) for name, shape in header["shapes"]))
    given = {name: header[name] for name in ("kind", "part", "fisher")}
    return KroneckerCurvature(layout, blocks, dtype=getattr(torch, header["dtype"]), **given)


register_reader("KroneckerCurvature", _restored)


def eigenpairs_of(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """In the matrix's own format; or in float64 on the host, by another method, where LAPACK's divide and conquer does
    not converge: it can fail for large factors of low rank, which few samples give."""
    symmetric = (matrix + matrix.T) / 2
    try:
        values, vectors = torch.linalg.eigh(symmetric)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        pair = scipy.linalg.eigh(to_host(symmetric).numpy(), driver="evr")
        values, vectors = (torch.from_numpy(found).to(matrix) for found in pair)
    return values, vectors
