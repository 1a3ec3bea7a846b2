"""Every model of the catalog under every spread of it: as good as alone, every row seen once an epoch."""

from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec

import pytest
from tests.conftest import need
from tests.tasks import running_text, told_apart, write_labelled

from manyhands.bundle.word_vectors import embedding_of
from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.engines.ray import ray
from manyhands.engines.spark import spark
from manyhands.run.train import train

# What each spread needs to run, and how two are asked to share the work.
NEEDS = {"allreduce": "torch", "average": "pyspark", "server": "ray"}
TWO = {
    "allreduce": {"workers": 2},
    "allreduce, each with its own memory": {"workers": 2, "deterministic": True},
    "average": {"partitions": 2, "master": "local[2]"},
    "server": {"workers": 2, "shards": 2},
    "server, each with its own memory": {"workers": 2, "shards": 2, "apart": True},
}
ENGINES = {"average": partial(spark, "local[2]", (), "tests"), "server": partial(ray, None, 2, 0)}


@pytest.fixture(scope="module", params=TWO)
def two(request):
    """One after the other; Spark and Ray start once for all that they run."""
    spread = request.param.partition(",")[0]
    need(NEEDS[spread], find_spec(NEEDS[spread]))
    asked = {"spread": spread, **TWO[request.param]}
    with ENGINES.get(spread, nullcontext)():
        yield asked


def test_every_spread_is_tried():
    assert {name.partition(",")[0] for name in TWO} == set(SPREADS) - {"single"}


def sends(two, name):
    """Whether anything has to leave a worker's memory."""
    in_place = not load(LEARNERS, "model", name).shares_batches
    return two["spread"] in ("average", "server") or (in_place and "deterministic" in two)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("rows") / "rows.txt", 6000, 3)


def those_that_learn(what):
    return [name for name in LEARNERS if load(LEARNERS, "model", name).learns == what]


@pytest.mark.parametrize("name", those_that_learn("labels"))
def test_a_crew_is_as_good_as_one(tmp_path, rows, name, two):
    alone = train(rows, tmp_path / "alone", model=name, epochs=3)
    crew = train(rows, tmp_path / "crew", model=name, epochs=3, **two)
    assert crew.record["spread"] == two["spread"]
    assert crew.record["workers"] == 2
    assert crew.record["examples_seen"] == alone.record["examples_seen"] == 18_000
    assert (crew.record["traffic"]["bytes"] > 0) == sends(two, name)
    losses = [run.record["scores"]["train"][-1]["loss"] for run in (alone, crew)]
    assert losses[1] < losses[0] + 0.05
    texts = ["awful broken food", "a great lovely day", "fine and decent"]
    likeliest = [[row[0][0] for row in run.bundle.predict(texts)] for run in (alone, crew)]
    assert likeliest[0] == likeliest[1] == ["0", "2", "1"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", those_that_learn("words"))
def test_a_crew_learns_words_as_well_as_one(tmp_path, name, two):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(running_text(6000)))
    settings = {"model": name, "epochs": 3, "dim": 20, "sample": 1.0}
    if name == "charlstm":
        settings |= {"hidden_size": 32, "batch_size": 512, "learning_rate": 0.02}
    alone = train(text, tmp_path / "alone", **settings)
    crew = train(text, tmp_path / "crew", **settings, **two)
    assert crew.record["examples_seen"] == alone.record["examples_seen"] == 3 * alone.record["data"]["tokens"]
    assert (crew.record["traffic"]["bytes"] > 0) == sends(two, name)
    pairs = [[epoch["examples"] for epoch in run.record["scores"]["train"]] for run in (alone, crew)]
    if (
        two["spread"] == "average"
    ):  # whose partitions look as far as their own seeds say, in rounds and not epochs
        assert sum(pairs[1]) == pytest.approx(sum(pairs[0]), rel=0.02)
    else:
        assert pairs[0] == pairs[1]
    losses = [run.record["scores"]["train"][-1]["loss"] for run in (alone, crew)]
    # Workers of a server that share batches are some batches behind each other, more on a busy machine.
    assert losses[1] < losses[0] + (0.2 if two["spread"] == "server" else 0.1)
    assert all(told_apart(embedding_of(run.bundle)) > 0.3 for run in (alone, crew))
