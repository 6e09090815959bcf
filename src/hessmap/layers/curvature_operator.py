"""A block-diagonal curvature matrix as an operator with its inverse.

Functions of a block are those of its eigenvalues: Kronecker products, dense matrices and diagonals have one form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, sentence
from hessmap.layers.kronecker import eigenpairs_of
from hessmap.linalg import Layout, SymmetricOperator, require_memory
from hessmap.records import register_reader, save_archive


@dataclass(frozen=True)
class Span:
    """Where some columns of a block's coordinates, a matrix (rows, columns), lie in the flat parameter vector.

    Attributes:
        start: Position of the first one.
        rows: Rows of the matrix: outputs of the layer, or 1 where the coordinates are a vector.
        columns: Columns.
        is_transposed: Whether the parameter is stored as columns x rows. Defaults to False.
    """

    start: int
    rows: int
    columns: int
    is_transposed: bool = False

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def of(self, vectors: Tensor) -> Tensor:
        """A view of its entries of flat vectors (size, count) as (rows, columns, count)."""
        part = vectors[self.start : self.start + self.size]
        if self.is_transposed:
            return part.view(self.columns, self.rows, -1).transpose(0, 1)
        return part.view(self.rows, self.columns, -1)


def spans_of(layout: Layout, names: Sequence[str]) -> tuple[Span, ...]:
    """The entries of some parameters as a vector; parameters that follow each other are one span."""
    places, found = dict(layout), list[Span]()
    for name in names:
        start, size = places[name].start, places[name].stop - places[name].start
        if found and found[-1].start + found[-1].columns == start:
            start, size = found[-1].start, found.pop().columns + size
        found.append(Span(start, 1, size))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class CurvatureBlock:
    """A block of the curvature by its eigenvectors and eigenvalues.

    Attributes:
        names: Parameters covered by the block.
        form: "kronecker", "kronecker, corrected eigenvalues", "dense" or "diagonal".
        spans: Where the block's coordinates lie in the flat parameter vector, side by side: [W, b] by output.
        values: Eigenvalues: (outputs, inputs) of a Kronecker product, else a vector.
        bases: Eigenvectors of the output and the input factor, of the dense block, or none for a diagonal.
    """

    names: tuple[str, ...]
    form: str
    spans: tuple[Span, ...]
    values: Tensor
    bases: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        return sum(span.size for span in self.spans)

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def entries(self) -> Tensor:
        """Positions of the block's coordinates in the flat parameter vector."""
        stop = max(span.start + span.size for span in self.spans)
        return self.read(torch.arange(stop, device=self.device)[:, None])[:, 0]

    def read(self, vectors: Tensor) -> Tensor:
        """The block's coordinates of flat vectors (size, count)."""
        parts = [span.of(vectors) for span in self.spans]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).reshape(-1, vectors.shape[1])

    def write(self, coordinates: Tensor, vectors: Tensor) -> None:
        """Put the block's coordinates into flat vectors (size, count)."""
        parts = coordinates.view(self.spans[0].rows, -1, vectors.shape[1])
        columns = [span.columns for span in self.spans]
        for span, part in zip(self.spans, torch.split(parts, columns, 1), strict=True):
            span.of(vectors).copy_(part)

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

    def diagonal_of(self, layout: Layout, names: tuple[str, ...]) -> CurvatureBlock:
        """The block of some parameters of a diagonal."""
        whole = self.values.new_zeros(layout.size, 1)
        self.write(self.values, whole)
        values = torch.cat([whole[dict(layout)[name], 0] for name in names])
        return CurvatureBlock(names, self.form, spans_of(layout, names), values, ())

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> CurvatureBlock:
        """The block on another device, its numbers in another dtype."""
        bases = tuple(basis.to(device, dtype) for basis in self.bases)
        return CurvatureBlock(self.names, self.form, self.spans, self.values.to(device, dtype), bases)

    def tensors(self) -> dict[str, Tensor]:
        """What determines the block beside its names and spans, for a file."""
        return {"values": self.values, **{f"basis{place}": basis for place, basis in enumerate(self.bases)}}


class FactoredBlock(CurvatureBlock):
    """A block by its matrix, or by the two factors of a Kronecker product.

    Products use the factors. Eigenvectors are computed when another function of the block is asked for the first time.

    Args:
        names: Parameters covered by the block.
        form: As of a CurvatureBlock.
        spans: As of a CurvatureBlock.
        factors: The matrix, or the output and the input factor.
        shift: Multiple of the identity that is added to the product. Defaults to 0.
    """

    factors: tuple[Tensor, ...]
    shift: float

    def __init__(
        self,
        names: tuple[str, ...],
        form: str,
        spans: tuple[Span, ...],
        factors: Sequence[Tensor],
        shift: float = 0.0,
    ) -> None:
        fields = {"names": names, "form": form, "spans": spans, "factors": tuple(factors), "shift": shift}
        self.__dict__.update(fields)

    @property
    def device(self) -> torch.device:
        return self.factors[0].device

    @cached_property
    def _spectrum(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        values, vectors = zip(*(eigenpairs_of(factor) for factor in self.factors), strict=True)
        return values, vectors

    @property
    def values(self) -> Tensor:
        values, _ = self._spectrum  # their products are as many as parameters: made when needed, and not kept
        product = values[0] if len(values) == 1 else torch.outer(*values)
        return product + self.shift if self.shift else product

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
        return FactoredBlock(self.names, self.form, self.spans, factors, self.shift)

    def tensors(self) -> dict[str, Tensor]:
        factors = {f"factor{place}": factor for place, factor in enumerate(self.factors)}
        return {"shift": torch.tensor(self.shift, dtype=torch.float64), **factors}


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
            self.device = self.blocks[0].device

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
        diagonal = torch.zeros(self.size, 1, dtype=torch.float64)
        for block in self.blocks:
            block.write(block.diagonal().to("cpu", torch.float64), diagonal)
        return diagonal[:, 0]

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
            spans = [astuple(span) for span in block.spans]
            blocks.append({"names": block.names, "form": block.form, "spans": spans, "tensors": list(parts)})
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
        columns = vectors.reshape(len(vectors), -1).to(self.device).contiguous()
        result = torch.zeros_like(columns)
        for block in self.blocks:
            block.write(product(block, block.read(columns)).to(result.dtype), result)
        return result.reshape(vectors.shape).to(vectors.device)

    def __repr__(self) -> str:
        forms = [block.form for block in self.blocks]
        counts = ", ".join(f"{forms.count(form)} {form}" for form in dict.fromkeys(forms))
        return f"{self.kind} curvature of size {self.size} ({self.part}, {self.fisher} Fisher; blocks: {counts})"


def _restored(header: dict[str, Any], arrays: dict[str, Any]) -> KroneckerCurvature:
    blocks = list[CurvatureBlock]()
    for number, about in enumerate(header["blocks"]):
        first, *others = (torch.from_numpy(arrays[f"{number}.{name}"]) for name in about["tensors"])
        names, form, spans = tuple(about["names"]), about["form"], tuple(Span(*span) for span in about["spans"])
        if "shift" in about["tensors"]:
            blocks.append(FactoredBlock(names, form, spans, others, float(first)))
        else:
            blocks.append(CurvatureBlock(names, form, spans, first, tuple(others)))
    layout = Layout(tuple((name, tuple(shape)) for name, shape in header["shapes"]))
    given = {name: header[name] for name in ("kind", "part", "fisher")}
    return KroneckerCurvature(layout, blocks, dtype=getattr(torch, header["dtype"]), **given)


register_reader("KroneckerCurvature", _restored)
