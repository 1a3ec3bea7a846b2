"""Scores and labels as tables of rows by labels, and the best labels of every row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

Scores = npt.NDArray[np.float32]
Weights = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

BLOCK_CELLS = 1 << 18  # one megabyte of scores stays in the cache of a core


def table(labels: Integers, offsets: Integers, known: int) -> Any:
    """Rows by labels, 1 where a row has the label; the last column is for all that are unknown."""
    columns = np.where(labels < 0, known, labels)
    ones = np.ones(len(columns), np.int8)
    marks = sparse.csr_array((ones, columns, offsets), shape=(len(offsets) - 1, known + 1))
    marks.sum_duplicates()
    marks.data[:] = 1
    return marks


def blocks(scores: Scores) -> Iterator[slice]:
    """Slices of rows that are small enough to work on at once."""
    step = max(1, BLOCK_CELLS // scores.shape[1])
    for start in range(0, len(scores), step):
        yield slice(start, start + step)


def best(scores: Scores, count: int) -> Integers:
    """The labels with the best scores of every row, best first; of equal scores the first label wins.

    >>> best(np.array([[0.1, 0.5, 0.4], [0.3, 0.3, 0.3]], np.float32), 2).tolist()
    [[1, 2], [0, 1]]
    """
    picks = np.empty((len(scores), min(count, scores.shape[1])), np.int64)
    for rows in blocks(scores):
        block = scores[rows].copy()
        every = np.arange(len(block))
        # Few are asked for, and so many searches cost less than one sort; they also settle ties.
        for place in range(picks.shape[1]):
            picks[rows, place] = found = block.argmax(axis=1)
            block[every, found] = -np.inf
    return picks
