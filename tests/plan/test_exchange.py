"""What goes over the links of a cluster, by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.plan.work import Pattern, Work
from tests.plan.test_timing import parts

LINK = 125e6  # bytes/s of a small machine
# Two exchanges of two workers, which have learnt 5 rows each; the state is 100 MB.
WORK = Work(rows=20, epochs=1, batch=5, exchange_bytes=25e6, state_bytes=100e6)


def seconds(text: str, work: Work, **costs) -> float:
    return parts(text, work, **costs)["exchange"]


def test_means_by_hand():
    """Weights go out once, half of the moves cross the link, and half of the means come back over it."""
    work = replace(WORK, pattern=Pattern.MEANS, weights_bytes=75e6, moves_grow=1.0)
    assert seconds("2x small/1", work) == pytest.approx(2 * (75e6 + 25e6 / 2 + 50e6 / 2) / LINK)
    assert seconds("small/2", work) == 0, "nothing leaves a machine that is alone"


def test_nobody_moves_more_than_there_is():
    work = replace(WORK, pattern=Pattern.MEANS, weights_bytes=75e6, moves_grow=1.0, exchange_bytes=80e6)
    assert seconds("2x small/1", work) == pytest.approx(2 * (75e6 + 80e6 / 2 + 100e6 / 2) / LINK)


def test_shards_by_hand():
    """Of what is pushed and heard, the half that concerns one's own shard stays at home."""
    work = replace(WORK, pattern=Pattern.SHARDS, waits=False)
    two = seconds("2x small/1", replace(work, shards=2))
    assert two == pytest.approx(2 * 25e6 / 2 / LINK)
    assert seconds("2x small/1", work) == pytest.approx(2 * two), "the one that has no shard sends all"
    eight = replace(work, rows=80)
    assert seconds("8x small/1", eight) == pytest.approx(2 * 7 * 25e6 / LINK), "all speak with one machine"
    spread = seconds("8x small/1", replace(eight, shards=8))
    assert spread == pytest.approx(2 * 7 / 8 * 25e6 / LINK)


def test_the_driver_takes_over_what_other_machines_hold():
    work = replace(WORK, pattern=Pattern.SHARDS, exchange_bytes=0, end_bytes=LINK)
    assert [seconds(f"{n}x small/1", work) for n in (1, 2, 4)] == pytest.approx([0, 0.5, 0.75])


def test_moves_grow_more_slowly_than_rows():
    """A ring of two passes on as much as one of them says. Four times the rows move twice as much."""
    work = replace(WORK, exchange_rows=5, moves_grow=0.5)
    once = 25e6 / LINK
    assert seconds("2x small/1", work) == pytest.approx(2 * once)
    assert seconds("2x small/1", replace(work, batch=20, rows=80)) == pytest.approx(2 * 2 * once)


def test_exchanges_are_stretched_until_they_take_half_of_the_time():
    """16,000 turns of 5 ms each, in which 40 ms would be sent: eight times further apart, there are 2,000."""
    work = Work(rows=160_000, epochs=1, batch=5, exchange_bytes=5e6, pattern=Pattern.SHARDS, waits=False)
    assert seconds("2x small/1", work) == pytest.approx(16_000 * 0.04)
    stretched = parts("2x small/1", replace(work, most_stretch=16))
    assert stretched["compute"] == pytest.approx(80)
    # All are further apart only after a while: each makes it a twentieth more, so it takes 43 of them.
    assert stretched["exchange"] == pytest.approx(2000 * 0.04, rel=0.02)
    assert stretched["exchange"] > 2020 * 0.04
    assert seconds("2x small/1", replace(work, most_stretch=4)) == pytest.approx(4000 * 0.04, rel=0.02)


def test_workers_that_learn_in_one_memory_have_nothing_to_exchange():
    work = replace(WORK, in_memory=True, pattern=Pattern.SHARDS)
    for in_place, turns in ((True, 0), (False, 2)):
        found = seconds("small/2", replace(work, in_place=in_place), turn=0.5)
        assert found == pytest.approx(turns * 0.5)


def test_a_part_of_reading_is_not_shared():
    """Of as much as learning takes, 20 ms of one worker: three fourths are for all, one for the first."""
    work = replace(WORK, exchange_bytes=0, passes_before=1)
    assert parts("small/1", work, serial=1 / 3)["load"] == pytest.approx(0.02)
    assert parts("4x small/1", work, serial=1 / 3)["load"] == pytest.approx(0.005 + 0.015 / 4)


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(list(Pattern)), st.floats(1, 16))
def test_more_shards_never_take_longer_and_stretching_never_does(machines, shards, pattern, stretch):
    work = replace(WORK, pattern=pattern, weights_bytes=1e6)
    one = seconds(f"{machines}x small/1", replace(work, shards=1))
    assert seconds(f"{machines}x small/1", replace(work, shards=shards)) <= one * (1 + 1e-9)
    assert seconds(f"{machines}x small/1", replace(work, most_stretch=stretch)) <= one * (1 + 1e-9)
