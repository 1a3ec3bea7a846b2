"""Averages without Spark: means of moved rows, shares; where a partition's training stands."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.catalog import LEARNERS, load
from manyhands.errors import UsageError
from manyhands.models.learner import Loss, Piece, arrays_of
from manyhands.records import Silent
from manyhands.spread.average import Average, rounds_of_patience
from manyhands.spread.chunks import mean_of, pack, parts_of, put, rows_of, slices, unpack
from manyhands.spread.counted import Counted, Counting
from manyhands.spread.partition import learn_blocks, seed_of, share_of
from manyhands.training.exchange import Alone
from manyhands.training.job import Call, job_for
from manyhands.training.loop import fit
from manyhands.training.schedule import Schedule
from manyhands.training.state import Plan, State
from tests.tasks import RESOURCES, begin, examples, running_text, unlabelled


def merged(before, learnt, weights, order=None):
    """What comes of partitions that each learnt something, in whatever order they come back."""
    count = len(learnt)
    parts = [
        part
        for number in order or range(count)
        for part in parts_of(before, learnt[number], number, count, weights[number])
    ]
    out = {name: array.copy() for name, array in before.items()}
    for chunk, where in enumerate(slices(before, count)):
        some = [part for part in parts if part.chunk == chunk]
        if some:
            put(mean_of(some), where, out)
    return out


weights_of = st.lists(st.integers(1, 10**9), min_size=1, max_size=6)


@given(weights_of, st.integers(0, 2**32))
def test_what_all_moved_is_the_mean_by_examples(weights, seed):
    draw = np.random.default_rng(seed)
    before = {"table": draw.normal(size=(7, 3)).astype(np.float32), "bias": np.zeros(4, np.float32)}
    learnt = [
        {
            name: (array + draw.normal(size=array.shape) + 9).astype(np.float32)
            for name, array in before.items()
        }
        for _ in weights
    ]
    out = merged(before, learnt, weights)
    for name in before:
        mean = np.average([one[name].astype(np.float64) for one in learnt], axis=0, weights=weights)
        assert out[name].dtype == np.float32
        assert np.allclose(out[name], mean, rtol=2e-7)


@given(weights_of, st.integers(0, 2**32))
def test_a_row_is_the_mean_over_those_who_moved_it(weights, seed):
    draw = np.random.default_rng(seed)
    before = {"table": draw.normal(size=(20, 3)).astype(np.float32)}
    moved = draw.random((len(weights), 20)) < 0.4
    learnt = []
    for rows in moved:
        mine = before["table"].copy()
        mine[rows] += draw.normal(size=(int(rows.sum()), 3)).astype(np.float32)
        learnt.append({"table": mine})
    out = merged(before, learnt, weights)["table"]
    for row in range(20):
        movers = np.flatnonzero(moved[:, row])
        if not len(movers):
            assert np.array_equal(out[row], before["table"][row])
        elif len(movers) == 1:  # to the bit
            assert np.array_equal(out[row], learnt[movers[0]]["table"][row])
        else:
            values = [learnt[mover]["table"][row].astype(np.float64) for mover in movers]
            mean = np.average(values, axis=0, weights=np.array(weights)[movers])
            assert np.allclose(out[row], mean, rtol=2e-6, atol=1e-7)


@given(st.permutations(range(5)), st.integers(0, 2**32))
def test_the_order_in_which_partitions_come_back_changes_no_bit(order, seed):
    draw = np.random.default_rng(seed)
    before = {"table": draw.normal(size=(9, 5)).astype(np.float32), "steps": np.array([10])}
    learnt = [
        {"table": draw.normal(size=(9, 5)).astype(np.float32), "steps": np.array([20 + number])}
        for number in range(5)
    ]
    weights = draw.integers(1, 1000, 5).tolist()
    one, two = merged(before, learnt, weights), merged(before, learnt, weights, order)
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)
    assert one["steps"].dtype == np.int64
    assert 20 <= one["steps"][0] <= 24


def test_a_zero_that_changed_its_sign_has_moved():
    before, after = {"a": np.zeros(3, np.float32)}, {"a": np.array([0, -0.0, 0], np.float32)}
    assert merged(before, [after], [5])["a"].tobytes() == after["a"].tobytes()


def test_chunks_hold_every_row_once_and_get_smaller_with_more_partitions():
    arrays = {"large": np.zeros((300_000, 16), np.float32), "small": np.zeros(5), "none": np.zeros((0, 4))}
    for partitions in (1, 100):
        found = slices(arrays, partitions)
        assert sum(where.last - where.first for where in found if where.name == "large") == 300_000
        assert max(rows_of(arrays, where).nbytes for where in found) <= min(8 << 20, (64 << 20) // partitions)
    again = unpack(pack(arrays), arrays)
    assert {name: array.shape for name, array in again.items()} == {n: a.shape for n, a in arrays.items()}


@given(st.integers(1, 400), st.integers(1, 30), st.integers(0, 2**62))
def test_shares_are_near_equal_and_hold_every_row_once(rows, partitions, seed):
    shares = [share_of(rows, partitions, seed, number) for number in range(partitions)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(rows))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
    assert all((np.diff(share) > 0).all() for share in shares)


def test_seeds_of_partitions_differ_and_the_first_is_the_runs_own():
    assert seed_of(7, 0) == 7
    assert len({seed_of(7, number) for number in range(1000)}) == 1000
    assert all(0 <= seed_of(2**63 - 1, number) < 2**63 for number in range(1000))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_feed_of_some_rows_leaves_the_learner_as_it_is(name):
    kind = load(LEARNERS, "model", name)
    rows = examples(700) if kind.learns == "labels" else unlabelled(running_text(400))
    learner, feed = begin(kind, kind.Settings(**({"hidden_size": 8} if "lstm" in name else {})), rows)
    before = {key: array.copy() for key, array in arrays_of(learner).items()}
    some = rows.take(np.arange(len(rows))[::3])
    share = learner.feed(some, 0, RESOURCES, Silent(), Alone())
    assert all(np.array_equal(before[key], array) for key, array in arrays_of(learner).items())
    total = len(some) if feed.unit == "rows" else some.corpus.tokens
    assert sum(share.rows(block) for block in range(len(share))) == total
    assert len(learner.feed(rows.take(np.arange(0)), 0, RESOURCES, Silent(), Alone())) == 0


class Blocks:
    """Blocks of unlike length."""

    unit = "rows"

    def __len__(self):
        return 7

    def rows(self, block):
        return 10 + block

    def piece(self, piece: Piece, epoch):
        return piece.block, epoch


class Noting:
    """A learner that notes what it is given."""

    shares_batches = False

    def __init__(self):
        self.calls = []

    def learn(self, rows, rate, seed, crew):
        self.calls.append((rows, rate, seed))
        return Loss(0.0, 1.0)

    def state(self):
        return {}


JOB = job_for("ngrams", {"epochs": 3, "learning_rate": 1.0, "seed": 5}, RESOURCES)


def parts(stops):
    """The same training in parts, each begun anew from where the one before must have come to."""
    learner, at = Noting(), 0
    for stop in stops:
        learn_blocks(JOB, learner, Blocks(), 5, at, stop)
        at = stop
    return learner.calls


@pytest.mark.parametrize("stops", [[21], [7, 14, 21], [1, 2, 9, 21], [20, 21], list(range(1, 22))])
def test_training_in_parts_is_the_same_training_as_the_loops(stops):
    whole, plan = Noting(), Plan(3, Schedule(1.0, 3 * 91), seed=5, threads=1, patience=9)
    fit(whole, Blocks(), plan, Alone(), State(), validate=None, keep=lambda s: None, progress=Silent())
    assert parts(stops) == whole.calls
    assert len(whole.calls) == 21


@pytest.mark.parametrize(
    ("spread", "name", "said"),
    [
        ("single", "partitions", "--partitions is for --spread average, not for single"),
        ("single", "workers", "--workers is for --spread allreduce or server, not for single"),
        ("allreduce", "rounds", "--rounds is for --spread average, not for allreduce"),
        ("average", "stall_seconds", "--stall-seconds is for --spread allreduce or server, not for average"),
    ],
)
def test_settings_of_another_spread_are_refused(spread, name, said):
    with pytest.raises(UsageError, match=said):
        job_for("ngrams", {name: 1}, RESOURCES, spread=spread)


def test_rows_that_executors_cannot_open_are_refused_before_spark_starts():
    with pytest.raises(UsageError, match="standard input"):
        Average().check(job_for("ngrams", {}, RESOURCES, spread="average"))
    call = Call(("-",), "out", "ngrams", "average", {})
    with pytest.raises(UsageError, match="standard input"):
        Average().check(job_for("ngrams", {}, RESOURCES, spread="average", call=call))


@pytest.mark.parametrize(("rounds", "patience"), [(5, 2), (20, 8), (1, 1), (4, 2)])
def test_patience_is_counted_in_epochs_however_many_rounds_they_take(rounds, patience):
    job = job_for("fasttext", {"epochs": 5, "early_stopping": 2}, RESOURCES)
    assert rounds_of_patience(job, rounds) == patience


@pytest.mark.parametrize("name", list(LEARNERS))
def test_who_is_told_what_was_counted_begins_the_same_without_reading(name):
    kind = load(LEARNERS, "model", name)
    rows = examples(600, 3) if kind.learns == "labels" else unlabelled(running_text(300))
    driver = Counting(4)
    first = kind.begin(kind.Settings(), rows, None, RESOURCES, Silent(), driver)
    read = []

    def take(some):
        read.append(len(some))
        return rows.corpus.take(some)

    told = replace(rows, corpus=replace(rows.corpus, take=take))
    other = kind.begin(kind.Settings(), told, None, RESOURCES, Silent(), Counted(4, driver.sums))
    for key, array in arrays_of(first).items():
        assert np.array_equal(array, arrays_of(other)[key]), key
    if name in ("ngrams", "fasttext"):  # the others take counts of words, which a dataset knows
        assert sum(read) == 0
