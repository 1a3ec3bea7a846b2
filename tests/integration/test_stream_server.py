"""Streams learnt by workers on a real Ray: whoever is killed, every message counts once."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream_runs import SMALL, finish, kept, newest, start, write_reviews

import manyhands
from manyhands.errors import UsageError

pytest.importorskip("ray", reason="workers of a stream need Ray")

WORKERS = 2
TESTS = {"a lovely w1": "good", "w5 broken w7": "bad", "w5 weird": "odd"}


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
    chosen: dict[str, Any] = {"model": "skipgram", **SMALL["skipgram"], "block_messages": 100}
    for turn, spread in enumerate(["server", "single"], 1):
        run = manyhands.stream(str(reviews), tmp_path / "live", spread=spread, messages=2000 * turn, **chosen)
        assert run.record["stream"]["ledger"]["read"] == 2000 * turn


KILLS = 5


def test_kills_of_workers_and_of_the_reader(reviews: Path, tmp_path: Path, address: str) -> None:
    check_kills(reviews, tmp_path, address, KILLS)


def check_kills(reviews: Path, folder: Path, address: str, kills: int) -> dict[str, int]:
    """kill -9 of a worker or of the process that reads, at random moments; how many there were of each."""
    more = {"block_messages": 50, "snapshot_messages": 1000}
    finish(start(str(reviews), folder / "whole", "ngrams", **more))
    shared = {**more, "spread": "server", "address": address, "threads": WORKERS}
    draw, out, killed = random.Random(7), folder / "killed", {"worker": 0, "reader": 0}
    running = None
    for number in range(kills):
        if running is None:
            running = start(str(reviews), out, "ngrams", **shared)
        before = newest(out)
        while running.is_alive() and newest(out) == before:  # it has learnt a little, if only that
            time.sleep(0.001)
        time.sleep(draw.expovariate(20))
        assert running.is_alive(), "the stream is too short for so many kills"
        victims = workers_of(running.pid)
        if victims and number % 3:
            os.kill(draw.choice(victims), signal.SIGKILL)
            killed["worker"] += 1
        else:
            running.kill()
            running.join()
            running, killed["reader"] = None, killed["reader"] + 1
    finish(running or start(str(reviews), out, "ngrams", **shared))
    mine, theirs = kept(out), kept(folder / "whole")
    assert {**mine[0], "drift": None} == {**theirs[0], "drift": None}
    assert mine[3] == theirs[3], "the list of rejected messages"
    for name in ("counts", "classes", "of_class"):
        assert np.array_equal(mine[1][name], theirs[1][name]), name
    bundle = manyhands.load_bundle(out)
    assert [found[0][0] for found in bundle.predict(list(TESTS))] == list(TESTS.values())
    assert min(killed.values()) > 0
    return killed


def workers_of(reader: int) -> list[int]:
    """The processes of Ray that have mapped memory of this one."""
    found = []
    names = {path.stat().st_ino for path in Path(f"/proc/{reader}/fd").iterdir() if _is_table(path)}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == reader:
            continue
        try:
            if not (folder / "cmdline").read_bytes().startswith(b"ray::PieceWorker"):
                continue
            mapped = [line.split() for line in (folder / "maps").read_text().splitlines()]
        except OSError:  # it has ended
            continue
        if names & {int(line[4]) for line in mapped if "manyhands" in line[-2]}:
            found.append(int(folder.name))
    return found


def _is_table(path: Path) -> bool:
    try:
        return "memfd:manyhands" in str(path.readlink())
    except OSError:  # it was closed
        return False


def test_what_cannot_be() -> None:
    with pytest.raises(
        UsageError, match="--spread allreduce cannot learn from a stream; use one of: single,"
    ):
        manyhands.stream("x.txt", "out", spread="allreduce")
    with pytest.raises(UsageError, match="start it on a machine of the cluster, with --address auto"):
        manyhands.stream("x.txt", "out", spread="server", address="ray://host:10001")
    with pytest.raises(UsageError, match="--deterministic is not for --spread server"):
        manyhands.stream("x.txt", "out", spread="server", deterministic=True)
