"""Streams learnt by workers on a real Ray: whoever is killed, every message counts once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Outcome
from tests.stream_runs import SMALL, TESTS, WORKERS, check_shared_kills, kept, write_reviews

import manyhands
from manyhands.errors import UsageError
from manyhands.streaming.stream import stream

pytest.importorskip("ray", reason="workers of a stream need Ray")


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[str]:
    """Of one for all: starting Ray takes longer than a test."""
    from manyhands.engines.ray import ray

    with ray(None, WORKERS, 0) as library:
        yield library.get_runtime_context().gcs_address


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("stream") / "reviews.jsonl")


@pytest.mark.parametrize("model", SMALL)
def test_workers_learn_what_threads_learn(reviews: Path, tmp_path: Path, model: str) -> None:
    """The same messages, words and labels are counted, bit for bit; the weights are as good."""
    chosen: dict[str, Any] = {"model": model, **SMALL[model], "threads": WORKERS, "block_messages": 100}
    chosen["messages"] = min(chosen.get("messages", 20_000), 20_000)
    one = manyhands.stream(str(reviews), tmp_path / "one", **chosen)
    two = manyhands.stream(str(reviews), tmp_path / "two", spread="server", **chosen)
    assert (two.record["spread"], two.record["workers"]) == ("server", WORKERS)
    mine, theirs = kept(tmp_path / "two"), kept(tmp_path / "one")
    assert {**mine[0], "drift": None} == {**theirs[0], "drift": None}
    assert mine[3] == theirs[3]
    counted = {"ngrams": ["counts", "classes", "of_class"], "fasttext": ["counts", "of_label"]}
    for name in counted.get(model, ["row_counts", "row_hashes", "hash_counts", "keep", "chances"]):
        assert np.array_equal(mine[1][name], theirs[1][name]), name
    losses = [run.record["stream"]["history"][-1]["loss"] for run in (two, one)]
    assert abs(losses[0] - losses[1]) < 0.1 * losses[1] + 0.01, losses
    if two.bundle is not None and "classify" in two.bundle.model.can:
        assert [found[0][0] for found in two.bundle.predict(list(TESTS))] == list(TESTS.values())


def test_another_spread_goes_on(reviews: Path, tmp_path: Path) -> None:
    """What workers on Ray have learnt, threads go on with."""
    chosen: dict[str, Any] = {"model": "skipgram", **SMALL["skipgram"], "block_messages": 100, "threads": 2}
    spreads: list[dict[str, Any]] = [{"spread": "server", "workers": 1}, {"spread": "single"}]
    for turn, spread in enumerate(spreads, 1):
        run = manyhands.stream(str(reviews), tmp_path / "live", messages=2000 * turn, **chosen, **spread)
        assert run.record["stream"]["ledger"]["read"] == 2000 * turn


KILLS = 3  # of the reader and of workers; bench/stream.py makes more


def test_kills_of_workers_and_of_the_reader(reviews: Path, tmp_path: Path, address: str) -> None:
    check_shared_kills(reviews, tmp_path, address, KILLS)


def test_what_cannot_be(manyhands: Callable[..., Outcome]) -> None:
    alone = manyhands("stream", "x.txt", "--out", "out", "--workers", 2)
    assert alone.code == 2
    assert "--workers is for --spread server, not for single" in alone.err
    with pytest.raises(
        UsageError, match="--spread allreduce cannot learn from a stream; there are: single, server"
    ):
        stream("x.txt", "out", spread="allreduce")
    with pytest.raises(UsageError, match="start it on a machine of the cluster, with --address auto"):
        stream("x.txt", "out", spread="server", address="ray://host:10001")
    with pytest.raises(UsageError, match="--deterministic is not for --spread server"):
        stream("x.txt", "out", spread="server", deterministic=True)
