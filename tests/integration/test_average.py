"""Averages on a real Spark: the same bits as they must be, whatever happens on the way."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import examples, running_text, write_labelled

from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.evaluate import judge
from manyhands.models.learner import arrays_of
from manyhands.records import Resources, Silent
from manyhands.run.train import train
from manyhands.spread import partition
from manyhands.training.exchange import Alone
from manyhands.training.job import job_for
from manyhands.training.learn import schedule_of
from manyhands.training.loop import fit
from manyhands.training.splits import open_splits
from manyhands.training.state import Plan, State

pyspark = pytest.importorskip("pyspark", reason="averages need Spark")

SMALL = {
    "lstm": {"hidden_size": 8, "dim": 8, "batch_size": 64},
    "skipgram": {"dim": 10, "sample": 1.0},
    "charlstm": {"dim": 10, "sample": 1.0, "hidden_size": 8, "char_dim": 8, "learning_rate": 0.02},
}


@pytest.fixture(scope="module", autouse=True)
def session():
    """One for all: starting Spark takes longer than a test. Tasks may fail, and are tried again."""
    from manyhands.engines.spark import spark
    from manyhands.spread.average import CONF

    with spark("local[2,4]", CONF, "tests") as session:
        yield session


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return write_labelled(tmp_path_factory.mktemp("rows") / "rows.txt", 2000, 3)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(running_text(800)))
    return path


def learnt_from(name, rows, text):
    return rows if load(LEARNERS, "model", name).learns == "labels" else text


def averaged(data, out, name, **settings):
    return train(data, out, model=name, spread="average", **SMALL.get(name, {}), **settings)


def same(one, two) -> bool:
    one, two = one.bundle.model.arrays(), two.bundle.model.arrays()
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("name", LEARNERS)
def test_one_partition_learns_what_one_process_does(tmp_path, rows, text, name):
    data = learnt_from(name, rows, text)
    alone = train(data, tmp_path / "alone", model=name, epochs=2, deterministic=True, **SMALL.get(name, {}))
    one = averaged(data, tmp_path / "one", name, epochs=2, partitions=1, rounds=3)
    assert same(alone, one)
    assert one.record["examples_seen"] == alone.record["examples_seen"]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_model_learns(tmp_path, rows, text, name):
    data = learnt_from(name, rows, text)
    run = averaged(data, tmp_path / "run", name, epochs=4, partitions=2, rounds=2, seed=1)
    losses = [turn["loss"] for turn in run.record["scores"]["train"]]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert (run.record["spread"], run.record["workers"]) == ("average", 2)
    assert run.record["traffic"]["bytes"] > 0


def apart(data, name, number, **settings):
    """What a partition learns, by the plain loop and without Spark; and what it began from."""
    job = job_for(name, {**SMALL.get(name, {}), **settings}, Resources(1, 1 << 30))
    whole = open_splits((str(data),), job, Silent()).train
    share = partition.share_of(len(whole), 3, job.settings.seed, number)
    kind = load(LEARNERS, "model", name)
    learner = kind.begin(job.settings, whole, None, job.resources, Silent(), Alone())
    before = {key: array.copy() for key, array in arrays_of(learner).items()}
    seed = partition.seed_of(job.settings.seed, number)
    feed = learner.feed(whole.take(share), seed, job.resources, Silent(), Alone())
    epochs = job.settings.epochs
    plan = Plan(epochs, schedule_of(job, feed), seed, threads=1, patience=99)
    state = State()
    fit(learner, feed, plan, Alone(), state, validate=None, keep=lambda s: None, progress=Silent())
    return before, learner, state.seen


def test_one_round_is_the_mean_of_separate_trainings(tmp_path, rows):
    run = averaged(rows, tmp_path / "run", "lstm", epochs=2, partitions=3, rounds=1)
    trainings = [apart(rows, "lstm", number, epochs=2) for number in range(3)]
    before, seen = trainings[0][0], np.array([seen for _, _, seen in trainings], float)
    assert seen.tolist() == [2 * 666, 2 * 667, 2 * 667]
    for key, got in run.bundle.model.arrays().items():
        if key in before:  # a row of a word that one share lacks is the mean of the others'
            first = before[key].reshape(len(got), -1)
            each = np.stack([arrays_of(learner)[key].reshape(first.shape) for _, learner, _ in trainings])
            weights = seen[:, None] * (each != first).any(axis=2)
            means = (weights[..., None] * each).sum(axis=0) / np.maximum(weights.sum(axis=0), 1)[:, None]
            expected = np.where(weights.any(axis=0)[:, None], means, first)
            assert np.allclose(got.reshape(first.shape), expected, rtol=1e-6, atol=1e-9)


class StopAfter(Silent):
    """Progress of a user who has had enough."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def stage(self, name, total, unit):
        pass

    def advance(self, done, note=""):
        self.left -= note != ""
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_run_that_was_stopped_goes_on_from_its_last_round(tmp_path, rows):
    settings = {"epochs": 2, "partitions": 2, "rounds": 4}
    whole = averaged(rows, tmp_path / "whole", "fasttext", **settings)
    with pytest.raises(KeyboardInterrupt):
        averaged(rows, tmp_path / "run", "fasttext", **settings, progress=StopAfter(2))
    with pytest.raises(UsageError, match="partitions was 2, now it is 3"):
        averaged(rows, tmp_path / "run", "fasttext", **{**settings, "partitions": 3}, resume=True)
    rest = averaged(rows, tmp_path / "run", "fasttext", **settings, resume=True)
    assert same(whole, rest), "what is owed to the weights is kept with them"
    assert rest.record["scores"] == whole.record["scores"]
    assert rest.record["examples_seen"] == 2 * 2000


def test_a_python_that_dies_is_replaced_and_changes_nothing(tmp_path, rows, monkeypatch):
    settings = {"epochs": 2, "partitions": 2, "rounds": 2}
    quiet = averaged(rows, tmp_path / "quiet", "fasttext", **settings)
    marker = tmp_path / "died"

    def train_share(this, counted, weights, batches):
        if this.number == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return partition.train_share(this, counted, weights, batches)

    monkeypatch.setattr("manyhands.spread.average.train_share", train_share)
    again = averaged(rows, tmp_path / "again", "fasttext", **settings)
    assert marker.exists()
    assert same(quiet, again)


@pytest.mark.parametrize("name", ["ngrams", "fasttext"])
def test_with_rounds_it_is_as_good_as_alone(tmp_path, rows, name):
    held_out = examples(600, 3, seed=9)
    held_out = replace(held_out, labels=replace(held_out.labels, names=["0", "1", "2"]))
    run = averaged(rows, tmp_path / "run", name, epochs=6, partitions=4, rounds=6)
    alone = train(rows, tmp_path / "alone", model=name, epochs=6)
    found, usual = (judge(one.bundle.model, held_out).accuracy for one in (run, alone))
    assert usual > 0.97
    assert found > usual - 0.005


def test_what_goes_wrong_on_an_executor_is_told_as_what_it_is(tmp_path, rows, text, monkeypatch):
    moved = tmp_path / "rows.txt"
    moved.write_bytes(rows.read_bytes())
    from manyhands.spread import average

    begin = average.begin

    def read_and_begin(*arguments):
        moved.unlink()  # the driver has read it; executors have not
        return begin(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(average, "begin", read_and_begin)
        with pytest.raises(InputError, match=r"on an executor: .*rows\.txt does not exist.*machines share"):
            averaged(moved, tmp_path / "run", "ngrams", partitions=2)
    with pytest.raises(InputError, match=r"^the loss became nan .*; lower --learning-rate"):
        averaged(text, tmp_path / "run", "skipgram", partitions=2, learning_rate=100.0)
    with pytest.raises(InputError, match="2000 rows are too few for 3000 partitions; lower --partitions"):
        averaged(rows, tmp_path / "run", "ngrams", partitions=3000)
    with pytest.raises(UsageError, match="--rounds 500 is more than there are blocks of rows; lower it"):
        averaged(rows, tmp_path / "run", "ngrams", partitions=2, rounds=500)


def test_from_the_command_line(tmp_path, rows, manyhands):
    prepared = manyhands("prepare", rows, "--out", "data")
    assert prepared.code == 0, prepared.err
    average = ["--spread", "average", "--partitions", "3", "--rounds", "2", "--master", "local[2]"]
    done = manyhands("train", "data", "--out", "run", *average, "--spark-conf", "spark.driver.memory=1g")
    assert done.code == 0, done.err
    assert "after the best round" in done.out
    assert "test: accuracy" in done.out
    ours = re.compile(
        r"(round \d of 2|starting Spark|counting|features|choosing settings): |chosen of \d+: "
    )  # where it took long
    assert all(ours.match(line) for line in done.err.splitlines()), done.err
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["spread"], record["workers"]) == ("average", 3)
    assert record["settings"]["rounds"] == 2
    assert "spark_conf" not in record["settings"]
    assert len(record["scores"]["valid"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]
