"""The parts of the server without Ray: what shards make of pushes, who is given which rows."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from manyhands.catalog import LEARNERS, load
from manyhands.evaluation.evaluate import judge
from manyhands.models.learner import StateArray
from manyhands.records import Resources, Silent
from manyhands.spread.server.emulated import LocalShards, emulate
from manyhands.spread.server.journal import Claim, remove_abandoned
from manyhands.spread.server.memory import Memory, can_share
from manyhands.spread.server.messages import Moves, Push, table_of, widen
from manyhands.spread.server.pace import Pace
from manyhands.spread.server.replica import Replica
from manyhands.spread.server.server import ServerSettings, _nodes
from manyhands.spread.server.shard import Shard
from manyhands.spread.server.work import Work
from manyhands.spread.single import Single
from manyhands.training.job import job_for
from manyhands.training.schedule import Schedule
from tests.conftest import need
from tests.tasks import examples

EVERY_MACHINE = {"labels": 0, "words": 0}  # learns, however few rows there are


def table(rows=10, width=4, *, squares=None, apart=False):
    draw = np.random.default_rng(0)
    array = draw.normal(size=(rows, width + (squares is not None))).astype(np.float32)
    if squares is not None:
        array[:, squares] = 1.0
    return StateArray(array, last=width, squares=squares, by_frequency=True, apart=apart)


def shards_of(part, count, replicas, wait_seconds=60.0):
    """Shards that hold a table, and as many replicas that begin equal to them."""
    shards = LocalShards(count, wait_seconds)
    for number, shard in enumerate(shards.all):
        mine = part.array[number::count]
        squares = mine[:, part.squares].copy() if part.squares is not None else np.zeros(0, np.float32)
        values = {"t.weights": mine[:, : part.last].copy(), "t.squares": squares}
        shard.begin([table_of("t", part)], replicas, values)
    parts = [part._replace(array=part.array.copy()) for _ in range(replicas)]
    found = [Replica(n, 1, {"t": one}, shards, in_place=True) for n, one in enumerate(parts)]
    return shards, found, [one.array for one in parts]


def exchange_together(*replicas):
    """All push, and each waits for the others."""
    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(lambda replica: replica.exchange(whole=True, pull=True), replicas))


def agreed(shards, part):
    out = np.empty_like(part.array[:, : part.last])
    for number, shard in enumerate(shards.all):
        out[number :: len(shards)] = shard.state()["t.weights"]
    return out


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_one_replica_moves_arrives_whole(count):
    part = table()
    shards, (replica,), (array,) = shards_of(part, count, 1)
    array[3, :4] += 0.1234567
    array[9, :4] -= 7.0
    found = replica.exchange(whole=True, pull=False)
    assert found.bytes == 2 * (4 + 4 * 2), (
        "two rows: their numbers, and half of the bits of four weights each"
    )
    assert np.allclose(agreed(shards, part), array, rtol=0, atol=0.1234567 * 2**-8)
    for _ in range(8):
        array[:, :4] += 0.001  # what is rounded away each time is not lost, nor what is too little to be sent
        replica.exchange(whole=True, pull=False)
    assert (np.abs(agreed(shards, part) - array) < 2**-9 * np.abs(array) + 1e-5).all()


def test_moves_of_two_become_the_mean_and_the_rest_is_owed():
    part = table()
    shards, (one, two), (first, second) = shards_of(part, 2, 2)
    for _ in range(6):
        first[0, :4] += 1.0
        second[0, :4] += 1.0
        first[1, :4] += 1.0  # which only one of them moves
        assert [found.behind for found in exchange_together(one, two)] == [1, 1]
    moved = agreed(shards, part) - part.array
    assert np.allclose(moved[1], 6.0, atol=0.02)
    assert (moved[0] > 6.0).all(), "more than the mean of the two"
    owed = shards.all[0].state()["t.owed"][:-1].reshape(-1, 4)
    assert np.allclose(moved[0] + owed[0], 12.0, atol=0.05), "and nothing of the sum is lost"
    for array in (first, second):
        assert np.allclose(array[:, :4], agreed(shards, part), rtol=2**-10, atol=1e-6)


def test_one_who_is_late_is_not_waited_for_and_counts_all_the_same():
    part = table()
    shards, (one, two), (first, second) = shards_of(part, 1, 2, wait_seconds=0.0)
    for array, replica in ((first, one), (second, two)):  # they do not meet
        array[0, :4] += 1.0
        assert replica.exchange(whole=True, pull=True).seconds < 5
    moved = agreed(shards, part)[0] - part.array[0]
    owed = shards.all[0].state()["t.owed"][:-1].reshape(-1, 4)[0]
    assert np.allclose(moved + owed, 2.0, atol=0.02), "nothing of the sum is lost"
    assert (moved < 1.7).all(), "nor does all of it count at once, as if each were alone"


def test_whoever_missed_a_turn_is_expected_when_it_has_come_again():
    part = table()
    shards, (one, two), _ = shards_of(part, 1, 2, wait_seconds=0.5)
    assert exchange_together(one, two)[0].seconds < 0.5
    assert one.exchange(whole=True, pull=True).seconds >= 0.5, "waits for the other"
    assert one.exchange(whole=True, pull=True).seconds < 0.5, "which it no longer does"
    assert exchange_together(one, two)[1].behind == 3
    assert shards.all[0].tell_all(0, 0).clock == 6


def test_squares_are_added_up():
    part = table(squares=4)
    shards, (one, two), (first, second) = shards_of(part, 1, 2, wait_seconds=0.0)
    for array, replica in ((first, one), (second, two), (first, one)):
        array[5, :4] += 0.5
        array[5, 4] += 3.0
        replica.exchange(whole=True, pull=True)
    assert shards.all[0].state()["t.squares"][5] == pytest.approx(10.0, rel=0.01)


def test_a_push_that_comes_again_changes_nothing_twice():
    part = table()
    shards, _, _ = shards_of(part, 1, 2, wait_seconds=0.0)
    moves = Moves(10, np.array([2], np.int32), np.full((1, 4), 0x3F80, np.uint16))  # by one
    assert widen(moves.values).tolist() == [[1.0] * 4]
    push = Push(0, 1, 0, 0, 1.0, True, (moves,))
    shard = shards.all[0]
    shard.exchange(push)
    once = agreed(shards, part)
    again = shard.exchange(push)
    assert np.array_equal(agreed(shards, part), once)
    assert len(again.news[0].rows) == 10, "whoever asks again has not heard the answer: it is told all"
    late = shard.exchange(replace(push, life=0, sequence=9))  # of a replica that has begun again since
    assert np.array_equal(agreed(shards, part), once)
    assert late.clock == 1


def test_a_shard_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("manyhands.spread.server.shard.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("manyhands.spread.server.shard.LOG_BYTES", 500)  # so that there are snapshots as well
    monkeypatch.setattr("manyhands.spread.server.shard.LOG_SHARE", 0)
    part, draw = table(40, squares=4), np.random.default_rng(1)
    values = {"t.weights": part.array[:, :4].copy(), "t.squares": part.array[:, 4].copy()}
    quiet, killed = Shard(0, 1, least_seconds=0), Shard(0, 1, "test", 0)
    for shard in (quiet, killed):
        shard.begin([table_of("t", part)], 2, values)
    for sequence in range(25):
        rows = np.sort(draw.choice(40, 8, replace=False)).astype(np.int32)
        bits = draw.integers(0x3C00, 0x3D00, (8, 5)).astype(np.uint16)
        push = Push(sequence % 2, 1, sequence, sequence, 1.0, True, (Moves(40, rows, bits),))
        if sequence % 3 == 0:  # the process ends and another one begins, in the middle of a push
            with (tmp_path / "manyhands-test" / "0" / "log").open("ab") as log:
                log.write(b"\x40\0\0\0\0\0\0\0{")
            killed = Shard(0, 1, "test", 0)
            killed.begin([table_of("t", part)], 2, values)  # which is asked again, and changes nothing
        expected, found = quiet.exchange(push), killed.exchange(push)
        assert found.clock == expected.clock
    for name, array in quiet.state().items():
        assert np.array_equal(killed.state()[name], array), name
    killed.end()
    assert not (tmp_path / "manyhands-test").exists()


def test_journals_that_nobody_holds_are_removed(tmp_path, monkeypatch):
    """Those of a killed driver at once; if the driver is elsewhere, a killed shard may be on its way back."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = """
import os, signal, sys
from pathlib import Path
from manyhands.spread.server.journal import Claim, Journal
if sys.argv[2] == "driver":
    claim = Claim("shards-" + sys.argv[1])
journal = Journal(Path(os.environ["TMPDIR"]) / f"manyhands-shards-{sys.argv[1]}" / "0")
os.kill(os.getpid(), signal.SIGKILL)
"""
    for name, who in (("killed", "driver"), ("old", "shard"), ("new", "shard")):
        command, variables = [sys.executable, "-c", program, name, who], {"TMPDIR": str(tmp_path)}
        assert subprocess.run(command, env={**os.environ, **variables}, check=False).returncode == -9
    for path in [*(tmp_path / "manyhands-shards-old").rglob("*"), tmp_path / "manyhands-shards-old"]:
        os.utime(path, (0, 0))
    mine = Claim("shards-mine")
    remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == {"manyhands-shards-new", "manyhands-shards-mine"}
    mine.release()
    assert {path.name for path in tmp_path.iterdir()} == {"manyhands-shards-new"}


class Blocks:
    unit, between_exchanges = "rows", (1, 10)

    def __init__(self, sizes):
        self._sizes = sizes

    def __len__(self):
        return len(self._sizes)

    def rows(self, block):
        return self._sizes[block]


def covered(leases):
    """How often each row of each block was learnt, by epoch."""
    found = {}
    for lease in leases:
        for piece in lease.pieces:
            for row in range(piece.first, piece.last):
                key = (lease.epoch, piece.block, row)
                found[key] = found.get(key, 0) + 1
    return found


def test_every_row_is_given_out_once_an_epoch_whoever_is_lost():
    sizes = [7, 10, 3, 12, 9]
    work = Work(Blocks(sizes), 3, 1, Schedule(1.0, 3 * 41), epoch=0, epochs=3)
    draw, held, done = np.random.default_rng(5), [], []
    while True:
        lease = work.take(int(draw.integers(3)), int(draw.integers(1, 15)), 0)
        if lease is None and not held:
            break
        if lease:
            held.append(lease)
        if lease is None or draw.random() < 0.7:
            one = held.pop(int(draw.integers(len(held))))
            if draw.random() < 0.3:
                work.give_back(one)
            else:
                work.commit(one)
                done.append(one)
    found = covered(done)
    assert set(found.values()) == {1}
    assert len(found) == 3 * sum(sizes)
    assert all(work.is_over(epoch) for epoch in range(3))
    assert work.given == 3 * sum(sizes)


def test_what_a_checkpoint_knows_is_not_given_out_again():
    sizes = [7, 10, 3]
    first = Work(Blocks(sizes), 2, 1, Schedule(1.0, 40), epoch=1, epochs=2)
    leases = [first.take(0, 4, 0), first.take(1, 5, 0)]
    for lease in leases:
        first.commit(lease)
    rest = Work(
        Blocks(sizes),
        2,
        1,
        Schedule(1.0, 40),
        epoch=1,
        epochs=2,
        learnt=json.loads(json.dumps(first.learnt())),
    )
    assert rest.given == 20 + sum(lease.rows for lease in leases)
    while (lease := rest.take(0, 6, 0)) is not None:
        rest.commit(lease)
        leases.append(lease)
    assert set(covered(leases).values()) == {1}
    assert len(covered(leases)) == 20
    assert rest.is_over(1)


def test_the_rate_follows_what_was_given_to_all():
    work = Work(Blocks([10, 10]), 2, 1, Schedule(1.0, 20), epoch=0, epochs=1)
    rates = [work.take(n % 2, 5, 0).rates[0] for n in range(4)]
    assert rates == [1.0, 0.75, 0.5, 0.25]


def test_batches_are_not_cut():
    work = Work(Blocks([10, 10, 10]), 1, 1, Schedule(1.0, 30), epoch=0, epochs=1, whole=True)
    assert [work.take(0, 14, 0).rows for _ in range(3)] == [10, 10, 10]


def test_another_process_takes_over_tables():
    need("memory that processes share", can_share())
    mine = Memory()
    one = mine.zeros(5, 8)
    one[3] = 7.0
    program = """
import json, sys
from manyhands.spread.server.memory import Memory
process, files = json.loads(sys.argv[1])
memory = Memory()
table = memory.zeros(5, 8)
table[:] = -1.0
kept = table[3]
memory.take_over(process, files)
assert kept.tolist() == [7.0] * 8, kept
table[4] = 9.0
"""
    given = json.dumps([os.getpid(), mine.files])
    subprocess.run([sys.executable, "-c", program, given], check=True)
    assert one[4].tolist() == [9.0] * 8
    assert one[0].tolist() == [0.0] * 8, "what it began with was its own"


@pytest.mark.parametrize("name", ["ngrams", "fasttext"])
@pytest.mark.parametrize("workers", [2, 4])
def test_emulated_machines_are_as_good_as_one(name, workers):
    rows, held_out = examples(3000, 3), examples(600, 3, seed=9)
    job = job_for(name, {"epochs": 3, "seed": 1}, Resources(1, 1 << 30))
    alone = Single().run(job, rows, None, Silent())
    crew = emulate(job, rows, None, workers, enough=EVERY_MACHINE)
    assert crew.state.seen == alone.state.seen == 9000
    assert [epoch["examples"] for epoch in crew.state.history] == [3000.0] * 3
    found, usual = (judge(run.model, held_out).accuracy for run in (crew, alone))
    assert usual > 0.97
    assert found > usual - 0.005
    assert crew.traffic.bytes > 0
    assert crew.traffic.staleness > 0


def test_sync_rounds_are_learnt_as_well():
    rows, held_out = examples(2000, 3), examples(600, 3, seed=9)
    job = job_for("fasttext", {"epochs": 3, "seed": 1}, Resources(1, 1 << 30))
    crew = emulate(job, rows, None, 3, sync=True, enough=EVERY_MACHINE)
    assert crew.state.seen == 6000
    assert judge(crew.model, held_out).accuracy > 0.97
    assert crew.traffic.staleness < 2.1, "a round behind, but for the last pushes of an epoch"


def test_few_rows_are_given_to_the_machines_with_most_cores():
    settings = ServerSettings(workers=6, address="auto")
    machines = {"small": 2, "large": 8, "medium": 4, "tiny": 1}
    kind = load(LEARNERS, "model", "ngrams")
    nodes, said = _nodes(settings, 2, machines, kind, range(25_000))
    assert nodes == ["large"] * 4 + ["medium"] * 2
    assert said == "25,000 rows are too few for 3 machines: 2 will learn them"
    assert _nodes(settings, 2, machines, kind, range(36_000)) == ([""] * 6, "")
    assert _nodes(settings, 1, {"only": 8}, kind, range(100)) == ([""] * 6, ""), "they share its memory"
    later, said = _nodes(settings, 4, {"only": 8}, kind, range(25_000))
    assert later == ["only", "only", ""], "another machine may join, and no more than that"
    assert said == "25,000 rows are too few for 5 machines: 2 will learn them"
    batches = load(LEARNERS, "model", "lstm")
    assert _nodes(settings, 2, machines, batches, range(100)) == ([""] * 6, "")
    few, _ = _nodes(ServerSettings(workers=9, address="auto"), 2, machines, kind, range(12_000))
    assert few == ["large"] * 4, "more have no room there"


def test_exchanges_that_take_most_of_the_time_come_further_apart():
    pace = Pace(most_stretch=16)
    for _ in range(300):
        pace.note(0.1, 1.0, whole=False)
    assert pace.stretch == 1
    for _ in range(300):  # a slow link: 0.9 s, however much is learnt
        pace.note(0.9, 0.9 + 0.1 * pace.stretch, whole=False)
    assert 6 < pace.stretch < 16, "until learning takes half of the time"
    for _ in range(300):
        pace.note(0.9, 1.0, whole=False)
    assert pace.stretch == 16
    for _ in range(300):
        pace.note(0.01, 1.0, whole=False)
    assert pace.stretch == 1
    assert pace.affords_whole(0)
    pace.note(10.0, 11.0, whole=True)
    assert pace.stretch == 1
    assert not pace.affords_whole(1), "no epoch took fifty seconds"


def test_a_push_of_an_earlier_life_comes_too_late():
    part = table()
    shards, (before,), (array,) = shards_of(part, 1, 1)
    again = Replica(0, 2, {"t": part._replace(array=part.array.copy())}, shards, in_place=True)
    again.begin_from_shards(keep=False)
    array[0, :4] += 1.0
    before.exchange(whole=True, pull=False)  # of a process that is thought to be lost
    assert np.array_equal(agreed(shards, part), part.array[:, : part.last])
