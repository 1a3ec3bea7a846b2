"""Rows of packed texts (see ``lstm_kernels``): moved, dropped, and pooled to one vector a text."""

import numpy as np

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.text.hashing import mix

POOLS = ("max", "mean", "last")
COLUMNS_A_HASH, BITS = 4, 16  # a hash decides about four numbers, by 16 of its bits each


@kernel
def gather(words: Ints, table: Floats, out: Floats) -> None:
    for i in range(len(words)):
        for k in range(table.shape[1]):
            out[i, k] = table[words[i], k]


@kernel
def scatter(words: Ints, rows: Floats, table: Floats) -> None:
    """Add every row to that of its word."""
    for i in range(len(words)):
        for k in range(table.shape[1]):
            table[words[i], k] += rows[i, k]


@kernel
def drop(rows: Floats, share: float, seed: int, texts: Ints, counts: Ints, starts: Ints) -> None:
    """Set a share of all numbers to 0 and raise the others as much; the same numbers for the same seed.

    Which ones depends on the text's number in ``texts``, the step and the column, and not on who
    computes the text, or together with which others.
    """
    limit, factor = np.uint64(share * (1 << BITS)), np.float32(1 / (1 - share))
    for t in range(len(counts)):
        for row in range(counts[t]):
            state = mix(mix(np.uint64(seed) + np.uint64(texts[row])) + np.uint64(t))
            at = starts[t] + row
            for k in range(rows.shape[1]):
                if k % COLUMNS_A_HASH == 0:
                    state = mix(state)
                drawn = (state >> np.uint64(BITS * (k % COLUMNS_A_HASH))) & np.uint64((1 << BITS) - 1)
                rows[at, k] = rows[at, k] * factor if drawn >= limit else np.float32(0)


@kernel
def pool_max(h: Floats, counts: Ints, starts: Ints, out: Floats, where: Ints) -> None:
    """The largest of each text's states, column by column, and the row in which it stands."""
    for t in range(len(counts)):
        for row in range(counts[t]):
            for k in range(h.shape[1]):
                if t == 0 or h[starts[t] + row, k] > out[row, k]:
                    out[row, k] = h[starts[t] + row, k]
                    where[row, k] = starts[t] + row


@kernel
def unpool_max(where: Ints, gradient: Floats, dh: Floats) -> None:
    for row in range(len(where)):
        for k in range(where.shape[1]):
            dh[where[row, k], k] += gradient[row, k]


@kernel
def pool_mean(h: Floats, counts: Ints, starts: Ints, lengths: Ints, out: Floats) -> None:
    for t in range(len(counts)):
        for row in range(counts[t]):
            for k in range(h.shape[1]):
                out[row, k] += h[starts[t] + row, k] / np.float32(lengths[row])


@kernel
def unpool_mean(counts: Ints, starts: Ints, lengths: Ints, gradient: Floats, dh: Floats) -> None:
    for t in range(len(counts)):
        for row in range(counts[t]):
            for k in range(dh.shape[1]):
                dh[starts[t] + row, k] = gradient[row, k] / np.float32(lengths[row])
