"""The rule by which workers' moves become one: all of them count, and never too many at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.models.learner import Piece, StateArray
from manyhands.spread.balance import cut, cut_evenly, side_by_side
from manyhands.spread.merge import HOTTEST, MOST_PAID, Merge, exchanges, merge_moved, reach


class Crew:
    """Workers that each have an array, in one thread: what they say is added up when all have said it."""

    def __init__(self, start, workers, **columns):
        self.arrays = [start.copy() for _ in range(workers)]
        self.merges = [Merge(StateArray(array, **columns), workers) for array in self.arrays]

    def exchange(self, rows=None):
        """As ``merge_moved``, of all workers."""
        rows = len(self.arrays[0]) if rows is None else rows
        movers = sum(merge.moved(rows).astype(np.float32) for merge in self.merges)
        moved = np.flatnonzero(movers)
        totals = sum(merge.lines(moved, movers[moved]) for merge in self.merges)
        for merge in self.merges:
            merge.agree(movers, totals, merge.share(movers, totals))


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_in_the_end_all_moves_count_as_in_one_process(workers, seed):
    draw = np.random.default_rng(seed)
    start = draw.normal(size=(20, 3)).astype(np.float32)
    crew, alone = Crew(start, workers), start.astype(np.float64)
    for _ in range(5):
        for array in crew.arrays:
            move = (draw.normal(size=array.shape) * (draw.random((20, 1)) < 0.4)).astype(np.float32)
            array[...] += move
            alone += move
        crew.exchange()
    for _ in range(40 * workers):  # nothing more is learnt, and what is owed is paid
        crew.exchange()
    for array in crew.arrays:
        assert np.array_equal(array, crew.arrays[0])
        assert np.allclose(array, alone, atol=1e-4)


def test_the_mean_counts_at_once_and_a_share_of_the_rest():
    crew = Crew(np.zeros((3, 1), np.float32), 4)
    for array in crew.arrays:
        array[0] += 1.0  # all workers move the first row, one of them the second, none the third
    crew.arrays[2][1] += 1.0
    crew.exchange()
    assert crew.arrays[0][:, 0] == pytest.approx([1.0 + 3.0 / 5, 1.0, 0.0])
    assert crew.merges[0].owed[:3] == pytest.approx([3.0 * 4 / 5, 0.0, 0.0])
    crew.exchange()
    assert crew.arrays[3][0, 0] == pytest.approx(4.0 - 3.0 * 16 / 25), "a fifth of what is owed"


def test_rare_rows_that_are_learnt_apart_get_the_sum():
    crew = Crew(np.zeros((HOTTEST + 1, 1), np.float32), 3, by_frequency=True, apart=True)
    for array in crew.arrays:
        array[...] += 1.0
    crew.exchange()
    assert crew.arrays[0][HOTTEST - 1 :, 0] == pytest.approx([1.0 + 2.0 / 4, 3.0])


def test_the_share_grows_while_workers_go_on_and_falls_when_they_turn_back():
    crew, shares = Crew(np.zeros((3, 2), np.float32), 4), []
    for direction in (1, 1, 1, 1, 1, -1):
        for array in crew.arrays:
            array[...] += direction
        crew.exchange()
        shares.append(float(crew.merges[0].owed[-1]))
    assert shares[0] == pytest.approx(1 / 5), "nothing was owed yet"
    assert shares[0] < shares[1] < shares[4]
    assert shares[4] == pytest.approx(MOST_PAID)
    assert shares[5] < shares[4]


@given(st.integers(0, 10**7), st.integers(1, 10**5), st.integers(1, 100), st.integers(0, 10**4))
def test_exchanges_are_ever_further_apart_and_the_last_ends_the_round(seen, rows, least, more):
    points = exchanges(seen, rows, least, least + more)
    apart = np.diff([0.0, *points]) * rows
    assert points[-1] == 1.0
    assert (apart > 0).all()
    assert (apart[:-1] >= min(least, rows) - 1e-6).all()
    assert (apart <= 1.5 * (least + more) + 1e-6).all()
    assert (np.diff(apart[:-1]) >= -1e-6).all()


@given(st.integers(1, 300), st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_every_block_is_in_one_round_and_workers_go_through_it_together(blocks, weights):
    shares = np.array(weights) / sum(weights)
    bounds = cut(blocks, shares)
    mine = [np.arange(first, last) for first, last in pairwise(bounds)]
    order = side_by_side(mine)
    assert sorted(order.tolist()) == list(range(blocks))
    for own in filter(len, mine):
        places = np.flatnonzero(np.isin(order, own))
        assert abs(places.mean() - (blocks - 1) / 2) <= len(shares), "in the middle on average"


def test_squares_add_up_and_correct_the_moves():
    start = np.array([[0.5, 0.0, 0.0, 1.0]], np.float32)  # a scale, a weight, padding, and its squares
    crew = Crew(start, 3, first=1, last=2, squares=3)
    for array in crew.arrays:
        array[0, 1] += 0.6
        array[0, 3] += 1.0
    crew.exchange()
    # The squares of one are 2, those of all 4: each move was too long by the root of their ratio.
    corrected = 0.6 * np.sqrt(2 / 4)
    expected = np.array([0.5, corrected * (1 + 2 / 4), 0.0, 4.0])
    assert np.allclose(crew.arrays[0][0], expected, atol=1e-6)


def test_only_rows_that_anyone_moved_are_sent():
    array, sent = np.zeros((1000, 4), np.float32), []
    merge = Merge(StateArray(array, last=3), 2)
    array[[3, 700], 0] = 1.0

    def note(message):
        sent.append(message.size)

    merge_moved([merge], [1000], 2, note, note)
    assert sent == [1000, 2 * 3], "a byte for each row, and the weights of two"


@given(st.integers(1, 100_000), st.integers(1, 300))
def test_every_row_is_reached_the_sooner_the_more_it_moves(rows, exchanges):
    table = StateArray(np.zeros((rows, 1)), by_frequency=True)
    reached = [reach(number, table) for number in range(1, exchanges + 1)]
    assert all(0 < rows_now <= rows for rows_now in reached)
    assert reached == [reach(number, table) for number in range(1, exchanges + 1)]
    last = StateArray(np.zeros((rows, 1)))
    assert reach(16, last) == rows


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(1, 30))
def test_steps_hold_every_row_once_and_in_order(sizes, count):
    pieces = [Piece(block, 0, size) for block, size in enumerate(sizes)]
    steps = cut_evenly(pieces, count)
    assert len(steps) == count
    found = [(p.block, row) for step in steps for p in step for row in range(p.first, p.last)]
    assert found == [(block, row) for block, size in enumerate(sizes) for row in range(size)]


def test_a_single_worker_is_left_alone():
    start = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    crew = Crew(start, 1)
    crew.arrays[0] += 0.25
    crew.exchange()
    assert crew.arrays[0] == pytest.approx(start + 0.25, abs=1e-6)
    assert not crew.merges[0].owed[:-1].any()
