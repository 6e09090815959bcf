"""Orthogonalisation of new vectors against a basis, and of what is left among itself.

Vectors are rows. "Full" orthogonality takes the whole basis out of every new vector. "Semi" orthogonality does so only
where inner products are about to exceed the root of the rounding unit: as long as they stay below it, the coefficients
of the Lanczos recurrence are right to all digits (Simon 1984, "The Lanczos algorithm with partial
reorthogonalization").

A recurrence estimates whether new Lanczos vectors are still orthogonal to a float32 basis, without reading it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hessmap.linalg.devices import device_sums, read_sums, summed_on_host, widest_dtype

_SHORT = 1e-3  # of the reference: dividing a shorter direction by its length lifts what rounding left of the basis
_UNEVEN = 0.1  # of the longest direction of a block: the same for a basis in float32
_SETTLED = 0.5  # of a row: a pass that takes less leaves nothing above the rounding of what is left
_SURVIVING = 0.5  # of a direction: what loses more when the basis is taken out once more was rounding
_EPS = torch.finfo(torch.float64).eps
_ROUNDING = 10 * _EPS  # of the norm, in a step of the recurrence
_SEMI = _EPS**0.5
_VISIBLE = 1e-9  # in an inner product with the mixture of earlier vectors
_MIXED = 8  # vectors that join the mixture at a time; the first ones are always cleared
_FEW = 8  # rows whose pieces are faster in one call; of forty it took three times as long
_DEVICE_PIECE = 2**20  # entries in a call on an accelerator, which adds them up pairwise
STREAMED = 2  # vectors of a basis in host memory that are on the device at a time
_PIECE = 2**15  # entries that float32 adds up by itself; sums of ten million were seen to lose a hundredth


def pieces(size: int, length: int = _PIECE) -> list[slice]:
    """Consecutive slices of at most ``length`` entries."""
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


def inner_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Compute left right^T of rows, on the host in float64.

    Rows in float32 are multiplied piece by piece and the pieces added in float64: a matrix product adds up all entries
    in the format of its factors.

    Args:
        left: Rows, on any device.
        right: Rows of the same length on the same device.

    Returns:
        The matrix of shape (len(left), len(right)).
    """
    right = right.to(left.dtype)
    if left.dtype == torch.float64:
        return (left @ right.T).cpu()
    if len(left) <= _FEW or left.device.type != "cpu":
        return read_sums(_inner_sums(left, right))[0]
    found = torch.zeros(len(left), len(right), dtype=torch.float64)
    for piece in pieces(left.shape[1]):
        found += left[:, piece] @ right[:, piece].T
    return found


def _inner_sums(left: Tensor, right: Tensor) -> Tensor:
    """Terms of left right^T on the device (see ``device_sums``), of rows in one format."""
    if left.dtype == torch.float64:
        return (left @ right.T)[None]
    parts = zip(_in_pieces(left), _in_pieces(right), strict=True)
    products = [torch.bmm(one.transpose(0, 1), other.permute(1, 2, 0)) for one, other in parts]
    return device_sums(torch.cat(products), 0)


def _inner_matrix_and_squares(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """left right^T and the squared lengths of the rows of ``right``; from an accelerator in one transfer."""
    if right.device.type == "cpu":
        return inner_matrix(left, right), row_lengths(right).square()
    squares = [(part * part).sum(-1) for part in _in_pieces(right)]
    matrix, found = read_sums(_inner_sums(left, right.to(left.dtype)), device_sums(torch.cat(squares, -1), -1))
    return matrix, found


def row_lengths(rows: Tensor) -> Tensor:
    """Compute the lengths of the last axis, on the host in float64, adding up float32 piece by piece as well.

    Args:
        rows: Tensor on any device, whose last axis is measured.

    Returns:
        The lengths, without the last axis.
    """
    if rows.dtype == torch.float64:
        whole: Tensor = torch.linalg.vector_norm(rows, dim=-1)
        return whole.cpu()
    lengths = torch.cat([torch.linalg.vector_norm(pieces, dim=-1) for pieces in _in_pieces(rows)], -1)
    if rows.device.type == "cpu":
        found: Tensor = torch.linalg.vector_norm(lengths.double(), dim=-1)
        return found
    largest = lengths.amax(-1, keepdim=True)  # squares of tiny lengths would vanish
    relative = lengths / torch.where(largest > 0, largest, torch.ones_like(largest))
    sums = device_sums(relative.square(), -1)
    squares, scale = read_sums(sums, largest[..., 0][None].to(sums.dtype))
    return squares.sqrt() * scale


def _in_pieces(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The last axis as (pieces, entries), without a copy, and what is left of it as one more piece."""
    count = rows.shape[-1] // _PIECE
    whole = rows[..., : count * _PIECE]
    return whole.view(*rows.shape[:-1], count, _PIECE), rows[..., None, count * _PIECE :]


def remove_basis(rows: Tensor, basis: Tensor, num_near: int = 0) -> Tensor:
    """Take the basis out of some rows, in place, and return what was taken, (len(basis), len(rows)).

    The ``num_near`` last vectors go first: in a Lanczos process they are all there is to take in exact arithmetic. Then
    the whole basis. What a pass leaves of it is rounding of the row before the pass, so it is made again where that was
    much longer ("twice is enough": Parlett 1980, The Symmetric Eigenvalue Problem, section 6-9).

    Args:
        rows: Vectors, changed in place.
        basis: Orthonormal rows; those on another device are streamed in blocks, which are removed one by one.
        num_near: Last vectors of the basis that are removed before the whole of it. Defaults to 0.

    Returns:
        The coefficients that were removed, of shape (len(basis), len(rows)), on the host in float64.
    """
    if not basis.shape[0] or not rows.shape[0]:
        return torch.zeros(basis.shape[0], rows.shape[0], dtype=torch.float64)
    taken = torch.zeros(basis.shape[0], rows.shape[0], dtype=torch.float64)
    if 0 < num_near < basis.shape[0]:
        near = basis[-num_near:].to(rows.device)
        taken[-num_near:] = _inner_matrix_like(rows, near)
        _take_out(rows, near, taken[-num_near:], rows.dtype)
        del near  # a copy, of a basis elsewhere
    for _ in range(3):
        inside, squares = torch.zeros_like(taken), None
        for part, vectors in streamed_rows(basis, rows.device):
            inside[part], now = _inner_matrix_and_squares(vectors, rows)
            squares = now if squares is None else squares  # before the pass
            _take_out(rows, vectors, inside[part], basis.dtype)
        taken += inside
        lost = inside.square().sum(0)
        if squares is not None and bool((lost <= _SETTLED**2 * (squares - lost)).all()):
            break
    return taken


def streamed_rows(rows: Tensor, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    """All rows at once where they are on a device, else a few at a time.

    Args:
        rows: Matrix on any device.
        device: Where they are needed.

    Returns:
        Places and rows, on the device.
    """
    if rows.device == device:
        yield slice(0, len(rows)), rows
        return
    for start in range(0, len(rows), STREAMED):
        part = slice(start, min(start + STREAMED, len(rows)))
        yield part, rows[part].to(device)


def _inner_matrix_like(rows: Tensor, vectors: Tensor) -> Tensor:
    """vectors rows^T in the format of the rows, without a copy of all vectors in it."""
    if vectors.dtype == rows.dtype:
        return inner_matrix(vectors, rows)
    parts = ((vectors[:, piece].to(rows.dtype) @ rows[:, piece].T).cpu() for piece in pieces(rows.shape[1]))
    return sum(parts, torch.zeros(()))


def _take_out(rows: Tensor, vectors: Tensor, shares: Tensor, dtype: torch.dtype) -> None:
    """rows - shares^T vectors, in place; multiplied in a format, without a copy of all vectors in it."""
    if vectors.dtype == rows.dtype:
        rows.addmm_(shares.T.to(rows), vectors, alpha=-1)
        return
    shares = shares.T.to(rows.device, dtype)
    for piece in pieces(rows.shape[1]):
        rows[:, piece] -= shares @ vectors[:, piece].to(dtype)


def orthonormal_directions(
    rows: Tensor, basis: Tensor, reference: float, most: int, negligible: float
) -> tuple[Tensor, Tensor]:
    """Orthonormal directions of rows without a part in the basis; coefficients with coefficients^T directions = rows.
    A single row may be divided in place.

    Directions that are ``negligible`` beside the reference, or beside the largest of them, are dropped, and those
    beyond the ``most`` that there can be: in a basis of float32 the rounding of rows that are dependent is far above
    any bound for float64.
    """
    if not len(rows) or most <= 0:
        return rows[:0], torch.zeros(0, len(rows), dtype=torch.float64)
    length = float(row_lengths(rows)) if len(rows) == 1 else 0.0
    if length >= _SHORT * reference and length > 0:
        return rows.div_(length), torch.full((1, 1), length, dtype=torch.float64)
    found, triangle = orthonormal_columns(rows.T)
    left, sizes, right = torch.linalg.svd(triangle, full_matrices=False)
    reference = max(reference, float(sizes[0]))
    kept = sizes > negligible * reference
    kept[most:] = False
    if not kept.all():
        found, triangle = found @ left[:, kept].to(found), sizes[kept, None] * right[kept]
    found = found.T.contiguous()
    short = max(_SHORT * reference, 0.0 if basis.dtype == torch.float64 else _UNEVEN * float(sizes[0]))
    if len(found) and float(sizes[kept].min()) < short:
        remove_basis(found, basis)
        found = _surviving_directions(found)
        triangle = inner_matrix(found, rows)
    return found, triangle


def _surviving_directions(directions: Tensor) -> Tensor:
    """Orthonormal rows for directions that were orthonormal before the basis was taken out of them."""
    columns, triangle = torch.linalg.qr(directions.T)
    left, sizes, _ = torch.linalg.svd(triangle.cpu())
    kept = sizes > _SURVIVING
    found: Tensor = (columns if kept.all() else columns @ left[:, kept].to(columns)).T.contiguous()
    return found


def orthonormal_columns(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Q and R, in float64, with Q R = columns: Cholesky twice where these are far from dependent, else Householder.

    Args:
        columns: Matrix with more rows than columns.

    Returns:
        Q, on the device of the columns, and R on the host.
    """
    rows = columns.T
    found, triangle = rows, torch.eye(len(rows), dtype=torch.float64)
    for _ in range(2):
        factor, info = torch.linalg.cholesky_ex(inner_matrix(found, found))
        sizes = factor.diagonal()
        if int(info) or float(sizes.min()) < _SHORT * float(sizes.max()):
            found, upper = torch.linalg.qr(columns)
            return found, upper.cpu().double()
        found = torch.linalg.solve_triangular(factor.to(found), found, upper=False)
        triangle = factor.T @ triangle
    return found.T, triangle


class OrthogonalityEstimate:
    """How far the Lanczos vectors q of several spaces, one vector a step, are from orthogonal, by Simon's recurrence

        b_j w[j+1, k] = b_k w[j, k+1] + (a_k - a_j) w[j, k] + b_(k-1) w[j, k-1] - b_(j-1) w[j-1, k] + rounding

    with w[j, k] = q_j . q_k and the coefficients a, b of the process. Products whose own rounding is larger, as in
    float32, show in an inner product with a random mixture of earlier vectors. ``num_cleared`` counts vectors.
    """

    def __init__(self, num_spaces: int, num_steps: int, size: int, device: torch.device | str = "cpu") -> None:
        self.num_cleared = 0
        wide = widest_dtype(torch.device(device))
        self._mixture = torch.zeros(num_spaces, 1, size, dtype=wide, device=device)
        self._generator = torch.Generator().manual_seed(0)
        self._now = torch.zeros(num_spaces, num_steps + 1, dtype=torch.float64)  # w[j, :], estimated
        self._before = torch.zeros_like(self._now)  # w[j-1, :]
        self._now[:, 0] = 1.0
        self._again = torch.zeros(num_spaces, dtype=torch.bool)

    def spaces_to_clear(
        self, vectors: Tensor, rest: Tensor, lengths: Tensor, norms: Tensor, diagonal: Tensor, beside: Tensor
    ) -> list[int]:
        """The spaces whose next vector must be cleared of all earlier ones, shape (spaces, dimension, size); a space
        that was cleared is cleared once more in the step after.

        ``rest`` (spaces, size) is what the recurrence left, of these lengths; ``norms`` are the largest coefficients so
        far. ``diagonal`` holds a up to the current vector, ``beside`` b up to the one before.
        """
        dimension = vectors.shape[1]
        if dimension % _MIXED == 0:
            weights = torch.randn(len(vectors), 1, _MIXED, generator=self._generator, dtype=torch.float64)
            self._mixture.baddbmm_(weights.to(self._mixture), vectors[:, -_MIXED:])
        safe_lengths = torch.where(lengths > 0, lengths, 1.0)
        estimate = self._next_estimate(diagonal, beside, safe_lengths, norms)
        visible = inner_products(self._mixture[:, 0], rest.to(self._mixture.dtype)).abs() / safe_lengths
        is_due = (estimate > _SEMI) | (visible > _VISIBLE)
        chosen = (is_due | self._again | (dimension < _MIXED)) & (lengths > 0)
        self._again = is_due & ~self._again
        self._now[chosen, :dimension] = _ROUNDING
        self.num_cleared += int(chosen.sum())
        places: list[int] = chosen.nonzero()[:, 0].tolist()
        return places

    def _next_estimate(self, diagonal: Tensor, beside: Tensor, lengths: Tensor, norms: Tensor) -> Tensor:
        """The largest |w[j+1, k]| of every space, one step of the recurrence."""
        j = diagonal.shape[1] - 1
        now, before, new = self._now, self._before, torch.zeros_like(self._now)
        rounding = (_ROUNDING * norms / lengths)[:, None]
        if j:
            later = beside * now[:, 1 : j + 1] + (diagonal[:, :j] - diagonal[:, j:]) * now[:, :j]
            later -= beside[:, j - 1 :] * before[:, :j]
            later[:, 1:] += beside[:, : j - 1] * now[:, : j - 1]
            later /= lengths[:, None]
            new[:, :j] = later + torch.where(later < 0, -rounding, rounding)
        new[:, j], new[:, j + 1] = rounding[:, 0], 1.0
        self._before, self._now = now, new
        return new[:, : j + 1].abs().amax(1)


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """Compute the inner products of rows with rows, without a copy of either, in float64 (see ``inner_matrix``).

    Args:
        left: Rows, on any device.
        right: As many rows of the same length on the same device.

    Returns:
        One number for each pair, on the host.
    """
    if left.dtype == torch.float64:
        return torch.bmm(left[:, None], right[:, :, None])[:, 0, 0].cpu()
    parts = pieces(left.shape[1], _PIECE if left.device.type == "cpu" else _DEVICE_PIECE)
    if not parts:
        return torch.zeros(len(left), dtype=torch.float64)
    products = [torch.bmm(left[:, None, part], right[:, part, None])[:, 0, 0] for part in parts]
    return summed_on_host(torch.stack(products), 0)


# Of float32, half of all digits are 3e-4. A step can multiply what is lost by the norm over the length of the next
# vector, so it is caught well before; sums of rounding alone stay below 1e-6.
_LOST = 1e-5
_NUM_MIXTURES = 3  # a mixture misses a tenth of what there is in one case of twelve, all three in one of 2,000
_JOINING = 8  # vectors that join the mixtures at a time


class MeasuredOrthogonality:
    """Inner products with a few random mixtures of all earlier vectors, which are as large as the root of the sum of
    the squared inner products with these, on average. Nothing is assumed of the process or of its rounding.
    """

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.num_cleared = 0  # times that the basis was taken out because of it
        self._mixtures = torch.zeros(_NUM_MIXTURES, size, dtype=torch.float32, device=device)
        self._num_mixed = 0
        self._again = False
        self._generator = torch.Generator().manual_seed(0)

    def forget(self) -> None:
        """The basis is another one."""
        self._num_mixed = 0
        self._again = False

    def is_lost(self, basis: Tensor, rest: Tensor) -> bool:
        """Whether new rows must be cleared of the whole basis; those of the step after are cleared as well, since the
        recurrence takes from both."""
        self._mix(basis)
        is_due = False
        if self._num_mixed:
            overlaps, squares = _inner_matrix_and_squares(self._mixtures, rest)
            is_due = bool((overlaps.abs().amax(0) > _LOST * squares.sqrt()).any())
        is_lost = is_due or self._again
        self._again = is_due and not self._again
        self.num_cleared += is_lost
        return is_lost

    def _mix(self, basis: Tensor) -> None:
        """Let the vectors join that are not among them yet, when they are many enough."""
        if len(basis) - self._num_mixed < _JOINING:
            return
        new, device = basis[self._num_mixed :], self._mixtures.device
        weights = torch.randn(_NUM_MIXTURES, len(new), generator=self._generator, dtype=torch.float32)
        if not self._num_mixed:
            self._mixtures.zero_()
        for part, vectors in streamed_rows(new, device):
            self._mixtures.addmm_(weights[:, part].to(device), vectors)
        self._num_mixed = len(basis)
