"""Spot machines: traces as people have them, and runs that live through them."""

import json
import math
import time

import numpy as np
import pytest

from manyhands.errors import InputError, UsageError
from manyhands.plan.spot import (
    Trace,
    best_checkpoint_hours,
    daly_hours,
    hours_between_interruptions,
    read_traces,
    replay,
    simulated_traces,
)


def trace(available: str, gap: float = 1.0, price=None) -> Trace:
    """One character an hour: ``-`` where there is no machine."""
    free = np.array([letter != "-" for letter in available])
    return Trace("trace", np.arange(len(free) + 1) * gap, free, price)


def written(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_machine_that_is_never_taken_away_takes_what_the_work_takes():
    calm = replay(30.0, 1.0, 0.5, [trace("11111")], save_hours=0.1)
    takes = 0.5 + 30 + 29 * 0.1
    assert calm.hours == pytest.approx((takes, takes, takes))
    assert calm.paid_hours == pytest.approx((takes, takes, takes))
    assert calm.interruptions == (0, 0, 0)
    assert calm.cost is None


def brute_force(work, checkpoint, restart, save, free, began, step):
    """The same, a small step at a time."""
    kept = done = ready = paid = 0.0
    now, learning, stops, has = began, 0.0, 0, False
    while True:
        machine = free[math.floor(now + 1e-9) % len(free)]
        if not machine and has:
            stops, learning, has = stops + 1, 0.0, False
        if machine:
            if not has:
                has, ready = True, restart
            paid += step
            if ready > 1e-9:
                ready -= step
            else:
                learning += step
                rounds, part = divmod(learning + 1e-9, checkpoint + save)
                done = min(part, checkpoint) + rounds * checkpoint
                if kept + done >= work - 1e-6:
                    return now + step - began, paid, stops
        now += step
        if has and not free[math.floor(now + 1e-9) % len(free)]:
            kept += math.floor((learning + 1e-9) / (checkpoint + save)) * checkpoint


@pytest.mark.parametrize("pattern", ["111-11--1111", "-1-11-1111111-", "1--------11111", "11-111"])
@pytest.mark.parametrize(
    ("work", "checkpoint", "restart", "save"), [(7.0, 1.0, 0.5, 0.0), (3.0, 0.5, 0.25, 0.25)]
)
def test_a_replay_is_what_happens_step_by_step(pattern, work, checkpoint, restart, save):
    free = [letter == "1" for letter in pattern]
    found = replay(work, checkpoint, restart, [trace(pattern)], save_hours=save, starts=len(pattern))
    each = [brute_force(work, checkpoint, restart, save, free, n + 0.5, 0.125) for n in range(len(pattern))]
    hours, paid, stops = np.array(each).T
    assert found.expected_hours == pytest.approx(hours.mean(), abs=1e-6)
    assert found.expected_paid_hours == pytest.approx(paid.mean(), abs=1e-6)
    assert found.interruptions.middle == np.median(stops)


def test_only_hours_with_a_machine_are_paid_for_at_their_price():
    price = np.array([1.0, 100.0, 3.0])
    found = replay(2.0, 0.25, 0.0, [trace("1-1", price=price)], starts=3)
    assert found.paid_hours == pytest.approx((2, 2, 2))
    # Started at 0.5: half an hour at 1, an hour at 3, and half an hour at 1 in the next round.
    assert found.cost.low == pytest.approx(np.quantile([4, 4, 5], 0.1))
    assert found.cost.high <= 5


def test_random_interruptions_take_what_daly_calculated():
    between, restart, save, work, checkpoint = 5.0, 0.2, 0.05, 40.0, 0.7
    found = replay(work, checkpoint, restart, simulated_traces(between), save_hours=save)
    segment = between * math.exp(restart / between) * (math.exp((checkpoint + save) / between) - 1)
    assert found.expected_hours == pytest.approx(segment * work / checkpoint, rel=0.05)
    assert found.hours.low < found.hours.middle < found.hours.high
    waits = replay(work, checkpoint, restart, simulated_traces(between, 2.0), save_hours=save)
    assert waits.expected_paid_hours == pytest.approx(found.expected_paid_hours, rel=0.1)
    assert waits.expected_hours > found.expected_hours * 1.3


def test_the_best_interval_is_near_dalys_and_beats_its_neighbours():
    traces = simulated_traces(6.0)
    assert hours_between_interruptions(traces) == pytest.approx(6, rel=0.05)
    best = best_checkpoint_hours(50.0, 0.05, 0.1, traces)
    assert 0.4 < best / daly_hours(0.05, 6.0) < 2.5
    hours = [
        replay(50.0, interval, 0.1, traces, save_hours=0.05).expected_hours
        for interval in (best / 8, best, best * 8)
    ]
    assert hours[1] == min(hours)


def test_skypilots_traces_are_read_in_folders(tmp_path):
    found = {"metadata": {"gap_seconds": 600}, "data": [4, 4, 1, 0, 4, 4]}
    written(tmp_path, "4-node/aws/us-east-1f_v100_1.json", found)
    written(tmp_path, "1-node/b.json", {"metadata": {"gap_seconds": 300}, "data": [1, 0, 1]})
    written(tmp_path, "README.md", "not a trace")
    one, four = read_traces(str(tmp_path), machines=4)
    assert (one.hours, four.hours) == (0.25, 1.0)
    assert four.available.tolist() == [True, True, False, False, True, True]
    assert one.available.tolist() == [True, False, True]  # it was asked for one machine only
    assert read_traces(str(tmp_path / "4-node"))[0].available.tolist() == [
        True,
        True,
        True,
        False,
        True,
        True,
    ]
    assert four.share_available == pytest.approx(4 / 6)


def test_plain_csv_with_dates_and_prices(tmp_path):
    rows = ["2026-01-01T00:00:00Z,1,0.3", "2026-01-01T02:00:00Z,0,0.9", "2026-01-01 03:00,yes,0.4"]
    text = "\n".join(["time,available,price", *rows, ""])
    (found,) = read_traces(written(tmp_path, "a.csv", text))
    assert found.begins.tolist() == [0, 2, 3, 4.5]
    assert found.available.tolist() == [True, False, True]
    assert found.price.tolist() == [0.3, 0.9, 0.4]
    (plain,) = read_traces(written(tmp_path, "b.csv", "time,available\n0,1\n3600,0\n"))
    assert plain.begins.tolist() == [0, 1, 2]
    assert plain.price is None


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", "[]", "is no trace"),
        ("a.json", "{", "is no trace"),
        ("a.json", {"metadata": {}, "data": [1, 0]}, "'gap_seconds' is missing"),
        ("a.json", {"metadata": {"gap_seconds": 0}, "data": [1, 0]}, "gap_seconds must be more than 0"),
        ("a.json", {"metadata": {"gap_seconds": 60}, "data": [1]}, "needs two or more"),
        ("a.json", {"metadata": {"gap_seconds": 60}, "data": [1, -1]}, "-1.0 available machines"),
        ("a.csv", "when,available\n1,1\n", "no column time"),
        ("a.csv", "time,available\nsoon,1\nlater,0\n", "line 2 has 'soon' as time"),
        ("a.csv", "time,available\n5,1\n4,0\n", "line 3 is not later"),
        ("a.csv", "time,available,price\n5,1,-2\n6,0,1\n", "line 2 has '-2' as price"),
        ("a.csv", "", "cannot be read as CSV"),
        ("a.txt", "x", "holds no traces"),
    ],
)
def test_bad_traces_are_told_in_one_sentence(tmp_path, name, content, sentence):
    written(tmp_path, name, content)
    with pytest.raises(InputError) as told:
        read_traces(str(tmp_path))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_what_can_never_be_done_is_told():
    with pytest.raises(InputError, match="never has as many machines"):
        replay(1.0, 1.0, 0.0, [trace("---")])
    with pytest.raises(InputError, match="never ends"):
        replay(9.0, 2.0, 0.5, [trace("11-11-")])
    with pytest.raises(UsageError, match="more than 0"):
        replay(0.0, 1.0, 0.0, [trace("11")])
    with pytest.raises(UsageError, match="more than 0 hours"):
        simulated_traces(0.0)
    with pytest.raises(InputError, match=r"does not exist|holds no traces"):
        read_traces("nowhere")


def test_a_year_is_replayed_quickly():
    draw = np.random.default_rng(0)
    free = np.repeat(draw.random(8760) < 0.7, 12)  # changes by the hour, in steps of five minutes
    year = Trace("year", np.arange(len(free) + 1) / 12, free)
    began = time.monotonic()
    replay(100.0, 0.5, 0.1, [year], save_hours=0.01)
    assert time.monotonic() - began < 10  # it ends what crawls; it is no stopwatch
