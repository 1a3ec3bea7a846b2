"""Shares: whole rows, never none, and after a few measurements everyone is ready at the same time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.spread.balance import Policy, by_speed, cut, equal

SHARES = st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=12).map(lambda s: np.array(s) / np.sum(s))


@given(st.integers(0, 5000), SHARES)
def test_parts_add_up_and_nobody_is_left_out(rows, shares):
    bounds = cut(rows, shares)
    counts = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == rows
    assert counts.min() >= (1 if rows >= len(shares) else 0)
    if rows >= 10 * len(shares) / shares.min():
        assert np.abs(counts - shares * rows).max() <= 1


@given(st.lists(st.floats(0.02, 1.0), min_size=2, max_size=6), st.floats(0, 0.02))
def test_after_three_measurements_all_are_ready_together(speeds, fixed):
    """A step costs each worker a time for every row and, ``fixed``, one for the step."""
    speed, batch = np.array(speeds), 5000
    shares = equal(len(speed))
    for _ in range(3):
        rows = np.diff(cut(batch, shares)).astype(float)
        seconds = rows / (1000 * speed) + fixed
        shares = by_speed(shares, rows, seconds)
    rows = np.diff(cut(batch, shares))
    seconds = rows / (1000 * speed) + fixed
    best = (batch / 1000 + fixed * speed.sum()) / speed.sum()
    assert seconds.max() < best / 0.9


def test_a_worker_that_did_nothing_keeps_its_share():
    shares = by_speed(np.array([0.5, 0.25, 0.25]), np.array([100.0, 0, 50]), np.array([1.0, 0, 1]))
    assert np.allclose(shares, [0.5, 0.25, 0.25])


def test_when_shares_are_measured():
    assert [Policy.parse("steps:3").after_step(n) for n in range(1, 7)] == [False, False, True] * 2
    assert [Policy.parse("every:2").after_epoch(n) for n in range(1, 5)] == [False, True, False, True]
    assert [Policy.parse("once").after_epoch(n) for n in range(1, 4)] == [True, False, False]
    assert not Policy.parse("off").after_epoch(1)
    assert not Policy.parse("every:1").after_step(1)
