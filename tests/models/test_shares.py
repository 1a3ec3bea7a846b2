"""Workers that count in their own shares of the rows begin with what one process would begin with."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from manyhands.models.learner import Piece
from manyhands.models.ngram.fasttext import FastText, FastTextSettings
from manyhands.models.ngram.feature_kernels import MOST_COUNTED
from manyhands.models.ngram.features import _sum_counts
from manyhands.models.ngram.ngrams import Ngrams, NgramsSettings
from manyhands.records import Silent
from manyhands.spread.allreduce import AllReduceExchange
from manyhands.spread.balance import Policy
from manyhands.spread.emulated import EmulatedGroup, Lines
from tests.tasks import RESOURCES, begin, examples, multi_label


def begin_together(kind, settings, rows, workers):
    """The learner of each of so many workers, its feed and its exchange."""
    lines = Lines(workers)

    def one(rank):
        crew = AllReduceExchange(EmulatedGroup(lines, rank), Policy())
        learner = kind.begin(settings, rows, None, RESOURCES, Silent(), crew)
        return learner, learner.feed(rows, settings.seed, RESOURCES, Silent(), crew), crew

    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(one, range(workers)))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(("kind", "settings"), [(Ngrams, NgramsSettings()), (FastText, FastTextSettings())])
def test_features_are_those_of_one_process(kind, settings, workers):
    rows = examples(1500, 3)
    alone, _ = begin(kind, settings, rows)
    for learner, _, _ in begin_together(kind, settings, rows, workers)[:2]:
        assert sorted(learner._space.slots().tolist()) == sorted(alone._space.slots().tolist())


class Alike:
    """So many workers that all have counted the same."""

    def __init__(self, workers):
        self.workers = workers

    def sum(self, numbers):
        numbers *= self.workers


@pytest.mark.parametrize("workers", [1, 2, 16, 400])  # the last are too many for two bytes to hold all counts
def test_counts_of_a_crew_keep_their_order_and_the_least_is_exact(workers):
    counted = np.array([0, 1, 2, 50, 100, 101, 4000, 65535], np.uint16)
    counts = counted.copy()
    _sum_counts(counts, 200, Alike(workers))
    total = counted.astype(int) * workers
    assert np.array_equal(counts >= 200, total >= 200)
    assert np.array_equal(np.argsort(counts, kind="stable"), np.argsort(total, kind="stable"))
    assert np.array_equal(counts[total <= MOST_COUNTED], total[total <= MOST_COUNTED])


@pytest.mark.parametrize("rows", [examples(1500, 3), multi_label(1500)], ids=["one label", "several"])
def test_classes_are_counted_over_all_shares(rows):
    alone, _ = begin(Ngrams, NgramsSettings(), rows)
    known = dict(zip(alone._space.slots().tolist(), alone._table[:, 0].tolist(), strict=True))
    for learner, _, _ in begin_together(Ngrams, NgramsSettings(), rows, 3):
        scales = dict(zip(learner._space.slots().tolist(), learner._table[:, 0].tolist(), strict=True))
        assert scales == pytest.approx(known, rel=1e-5)
        assert learner._rate_share == pytest.approx(alone._rate_share)
        assert np.array_equal(np.unique(learner._table[:, -1]), np.unique(alone._table[:, -1]))


def test_a_worker_makes_features_of_its_own_blocks_only():
    rows = examples(4000)
    for _, feed, crew in begin_together(FastText, FastTextSettings(), rows, 3):
        first, last = crew.share(len(feed))
        assert sorted(feed._kept) == list(range(first, last))
        other = last % len(feed)  # a block that moves here is made when it is asked for
        assert len(feed.piece(Piece(other, 0, feed.rows(other)), 0).weights) == feed.rows(other)
