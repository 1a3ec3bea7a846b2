"""The matrices of an imported fastText model: rows of floats, or rows of codes for them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Bytes, Ints, frozen, kernel

Floats = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]

CENTROIDS = 256


class Rows(NamedTuple):
    """A matrix, dense or quantised; the arrays of the other kind are empty.

    A code stands for ``dsub`` neighbouring numbers, the last one of a row for what is left. The
    centroids of the first code come first, 256 of them, then those of the second.
    """

    dense: Floats  # (rows, dim)
    codes: Bytes  # (rows, codes in a row)
    centroids: Floats  # (256 * dim,)
    norm_codes: Bytes  # (rows,), or empty if norms were not quantised apart
    norms: Floats  # (256,), or empty
    dsub: int

    @property
    def height(self) -> int:
        return len(self.dense) or len(self.codes)

    @property
    def quantised(self) -> bool:
        return len(self.codes) > 0


NO_BYTES, NO_FLOATS = np.empty(0, np.uint8), np.empty(0, np.float32)


def dense_rows(values: Floats) -> Rows:
    codes = frozen(np.empty((0, 0), np.uint8))
    return Rows(frozen(values), codes, frozen(NO_FLOATS), frozen(NO_BYTES), frozen(NO_FLOATS), 1)


def quantised_rows(codes: Bytes, centroids: Floats, norm_codes: Bytes, norms: Floats, dsub: int) -> Rows:
    dense = frozen(np.empty((0, 0), np.float32))
    return Rows(dense, frozen(codes), frozen(centroids), frozen(norm_codes), frozen(norms), dsub)


def codes_in_row(dim: int, dsub: int) -> int:
    """How many codes a row of ``dim`` numbers takes.

    >>> codes_in_row(10, 2), codes_in_row(10, 3), codes_in_row(1, 1)
    (5, 4, 1)
    """
    return -(-dim // dsub)


@kernel
def largest(values: Floats) -> float:
    """The largest of the numbers without their sign; infinity if one is not a number."""
    most = np.float32(0)
    for i in range(len(values)):
        size = abs(values[i])
        if not size <= most:
            if not np.isfinite(size):
                return np.inf
            most = size
    return float(most)


@kernel
def add_rows(rows: Rows, numbers: Ints, total: Floats) -> None:
    """Add some rows to ``total``, in fastText's order, so that sums round as they do there."""
    if len(rows.dense):
        _add_dense(rows.dense, numbers, total)
        return
    norm = np.float32(1)
    for row in numbers:
        if len(rows.norms):
            norm = rows.norms[rows.norm_codes[row]]
        _add_codes(rows.codes[row], rows.centroids, rows.dsub, norm, total)


@kernel
def _add_dense(dense: Floats, numbers: Ints, total: Floats) -> None:
    """Four rows at a time: their memory is then on its way together."""
    dim, fours = np.uint64(len(total)), len(numbers) // 4 * 4
    for i in range(0, fours, 4):
        a, b = np.uint64(numbers[i]), np.uint64(numbers[i + 1])
        c, d = np.uint64(numbers[i + 2]), np.uint64(numbers[i + 3])
        for j in range(dim):
            total[j] = total[j] + dense[a, j] + dense[b, j] + dense[c, j] + dense[d, j]
    for i in range(fours, len(numbers)):
        a = np.uint64(numbers[i])
        for j in range(dim):
            total[j] += dense[a, j]


@kernel
def _add_codes(codes: Bytes, centroids: Floats, dsub: int, norm: np.float32, total: Floats) -> None:
    dim, base = len(total), 0
    for code in codes:
        width = min(dsub, dim - base)
        first = base * CENTROIDS + np.int64(code) * width
        for j in range(width):
            total[base + j] += norm * centroids[first + j]
        base += width


@kernel
def dot_row(rows: Rows, row: int, vector: Floats) -> np.float32:
    """A quantised row times ``vector``; the norm comes last, as in fastText."""
    dim, dsub, base = len(vector), rows.dsub, 0
    total = np.float32(0)
    for code in range(rows.codes.shape[1]):
        width = min(dsub, dim - base)
        first = base * CENTROIDS + np.int64(rows.codes[row, code]) * width
        for j in range(width):
            total += vector[base + j] * rows.centroids[first + j]
        base += width
    if len(rows.norms):
        total *= rows.norms[rows.norm_codes[row]]
    return total
