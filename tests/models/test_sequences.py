"""Batches of like length: each row once an epoch, and every batch from all parts of the corpus."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.models.learner import Piece
from manyhands.models.recurrent.sequences import POOL_BATCHES, STRATA, Lexicon, SequenceFeed, Sequences
from manyhands.spread.balance import cut, equal
from tests.tasks import examples

EVERY = examples(6000)


def feed_of(rows, batch, seed=0):
    lesson = EVERY.take(np.arange(rows))
    sequences = Sequences(lesson.corpus, Lexicon(np.unique(lesson.corpus.hashes)), 300)
    return SequenceFeed(lesson, sequences, batch, seed)


def batches(feed, epoch=0, first=0, last=None):
    """The rows of each batch, or of a part of it."""
    pieces = [Piece(n, first, feed.rows(n) if last is None else last) for n in range(len(feed))]
    slices = [feed.piece(piece, epoch).slices for piece in pieces]
    return [np.concatenate([part.rows for part in some]) for some in slices]


@given(st.integers(1, 700), st.sampled_from([1, 3, 16, 48, 64, 100, 128]), st.integers(0, 3))
def test_each_row_comes_once_an_epoch(rows, batch, epoch):
    feed = feed_of(rows, batch)
    found = batches(feed, epoch)
    assert [len(some) for some in found] == [feed.rows(n) for n in range(len(feed))]
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(rows))


def test_epochs_and_seeds_put_other_rows_together():
    first, second, other = batches(feed_of(2000, 64), 0), batches(feed_of(2000, 64), 1), feed_of(2000, 64, 1)
    assert set(first[0]) != set(second[0])
    assert not np.array_equal(np.sort(first[0]), np.sort(batches(other)[0]))


def test_rows_of_a_batch_are_of_like_length():
    feed = feed_of(6000, 64)
    lengths = EVERY.corpus.lengths(np.arange(6000))
    spread = np.mean([np.std(lengths[rows]) for rows in batches(feed)[:POOL_BATCHES]])
    assert spread < 0.4 * np.std(lengths)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_worker_reads_its_part_of_the_corpus(workers):
    """Each of so many workers, whose parts of every batch are as large, and nothing else of it."""
    feed, bounds = feed_of(6000, 128), cut(128, equal(workers))
    for worker in range(workers):
        full = batches(feed, 0, bounds[worker], bounds[worker + 1])[:-1]
        assert all(len(rows) == 128 // workers for rows in full)
        mine = np.concatenate(full)
        assert mine.min() >= 6000 * worker // workers - STRATA
        assert mine.max() <= 6000 * (worker + 1) // workers
