"""Learning from streams: each message counts once in the model that is kept, whatever is killed and when."""

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import BROKERS, LIBRARIES
from tests.conftest import Outcome, need
from tests.stream_runs import (
    BLOCKS,
    LABELS,
    MESSAGES,
    SMALL,
    TESTS,
    finish,
    kept,
    log_of,
    newest,
    same,
    start,
    write_reviews,
)

import manyhands
from manyhands.data.streams.stream import Messages, Stream, open_stream
from manyhands.models.ngram.stream import NgramsPieces
from manyhands.streaming import reader

KILLS = {"ngrams": 8, "skipgram": 5, "fasttext": 3, "charlstm": 2}  # bench/stream.py makes 20
BROKER_MESSAGES, BROKER_KILLS = 30_000, 3


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("stream") / "reviews.jsonl")


GOING_ON = re.compile(r"going on after ([\d,]+) messages")


def check_kills(url: str, folder: Path, model: str, kills: int, **more: Any) -> None:
    """kill -9 again and again: the same weights, counts, ledger and rejected file as without."""
    finish(start(url, folder / "whole", model, **more))
    theirs = kept(folder / "whole")
    ledger = theirs[0]["ledger"]
    assert ledger["read"] == {"messages": MESSAGES, **SMALL[model], **more}["messages"]
    assert ledger["read"] == ledger["learnt"] + ledger["empty"] + ledger["rejected"]
    assert min(ledger.values()) > 20
    draw, out = random.Random(5), folder / "killed"
    for _ in range(kills):
        running, before = start(url, out, model, **more), newest(out)
        while running.is_alive() and newest(out) == before:  # it has learnt a little, if only that
            time.sleep(0.001)
        time.sleep(draw.expovariate(80))
        running.kill()
        running.join()
        assert running.exitcode == -signal.SIGKILL, "the stream is too short for so many kills"
    finish(start(url, out, model, **more))
    said = [int(number.replace(",", "")) for number in GOING_ON.findall(log_of(out).read_text())]
    assert said == sorted(said), "nothing that was kept is lost"
    assert len(said) > kills // 2  # a kill may come between taking up a snapshot and saying so
    mine = kept(out)
    assert mine[0] == theirs[0]
    assert same(mine[1], theirs[1])
    assert same(mine[2], theirs[2])
    assert mine[3] == theirs[3]
    assert len(mine[3].splitlines()) == ledger["rejected"]


@pytest.mark.parametrize("model", SMALL)
def test_kills_at_random_moments(reviews: Path, tmp_path: Path, model: str) -> None:
    check_kills(str(reviews), tmp_path, model, KILLS[model])


@pytest.mark.parametrize("kind", BROKERS)
def test_kills_while_a_real_broker_is_read(reviews: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
    need(f"a server for {kind}, from the extra test", BROKERS[kind].program())
    broker = BROKERS[kind](tmp_path / "broker")
    broker.start()
    try:
        broker.create("reviews")
        broker.send("reviews", reviews.read_bytes().splitlines()[:BROKER_MESSAGES])
        more = {"messages": BROKER_MESSAGES, "snapshot_messages": 500}
        check_kills(broker.url("reviews"), tmp_path, "ngrams", BROKER_KILLS, **more)
    finally:
        broker.kill()


class Dribbling:
    """A stream that hands over a few messages at a time, and now and then none."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._draw = stream, random.Random(9)

    def read(self, most: int, seconds: float) -> Messages | None:
        if self._draw.random() < 0.1:
            return Messages([], [], {})
        return self._stream.read(self._draw.randint(1, min(most, 70)), seconds)

    def close(self) -> None:
        self._stream.close()


def test_batching_of_reads(reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are cut by the number of messages, whatever a stream hands over at once."""
    chosen = {**SMALL["skipgram"], **BLOCKS, "model": "skipgram", "messages": 4000}
    manyhands.stream(str(reviews), tmp_path / "usual", **chosen)
    monkeypatch.setattr(reader, "open_stream", lambda *given: Dribbling(open_stream(*given)))
    manyhands.stream(str(reviews), tmp_path / "dribbling", **chosen)
    usual, dribbling = kept(tmp_path / "usual"), kept(tmp_path / "dribbling")
    assert usual[0] == dribbling[0]
    assert same(usual[1], dribbling[1])


class Source:
    """A followed file, or a stream of a real broker; and who writes to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._path, self._broker = folder / "live.jsonl", None
        self._path.touch()
        self.url = str(self._path)
        if kind in BROKERS:
            pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
            need(f"a server for {kind}, from the extra test", BROKERS[kind].program())
            self._broker = BROKERS[kind](folder / "broker")
            self._broker.start()
            self._broker.create("reviews")
            self.url = self._broker.url("reviews")

    def send(self, lines: list[bytes]) -> None:
        if self._broker is not None:
            self._broker.send("reviews", lines)
            return
        data = b"".join(line + b"\n" for line in lines)
        for part in (data[:100], data[100:]):  # a line is not always whole
            with self._path.open("ab") as file:
                file.write(part)
            time.sleep(0.001)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.kill()


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    with closing(Source(request.param, tmp_path)) as made:
        yield made


every_source = pytest.mark.parametrize("source", ["file", *BROKERS], indirect=True)
TRICKLED, QUICK, BLOCK, THREADS, SLOWER = 200, 1000, 7, 2, 100


def learn_from(url: str, out: Path, messages: int, threads: int = THREADS) -> dict[str, Any]:
    chosen = {"model": "ngrams", "buckets": 4096, "block_messages": BLOCK, "threads": threads}
    record = manyhands.stream(url, out, messages=messages, **chosen).record
    ledger = record["stream"]["ledger"]
    assert ledger["read"] == messages == ledger["learnt"] + ledger["empty"] + ledger["rejected"]
    assert record["stream"]["blocks"] == -(-messages // BLOCK)
    return record


@every_source
def test_slow_producer(reviews: Path, tmp_path: Path, source: Source) -> None:
    """Messages that trickle in, a hundred times slower than they could be learnt: all are learnt, once."""
    lines, began = reviews.read_bytes().splitlines()[:TRICKLED], time.monotonic()

    def produce() -> None:
        for first in range(0, TRICKLED, 2):
            source.send(lines[first : first + 2])
            time.sleep(0.015)

    producer = threading.Thread(target=produce)
    producer.start()
    record = learn_from(source.url, tmp_path / "slow", TRICKLED)
    producer.join()
    slow, whole = time.monotonic() - began, tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(line + b"\n" for line in lines))
    at_once = learn_from(str(whole), tmp_path / "at_once", TRICKLED)
    assert slow > 1.5
    same_parts = ("ledger", "blocks", "layout")
    assert all(record["stream"][part] == at_once["stream"][part] for part in same_parts)


@every_source
def test_slow_consumer(
    reviews: Path, tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who learns a hundred times slower than messages come: all are learnt, and only a few wait in memory."""
    lines, ready = reviews.read_bytes().splitlines()[:QUICK], tmp_path / "ready.jsonl"
    ready.write_bytes(b"".join(line + b"\n" for line in lines))
    quick = min(learn_from(str(ready), tmp_path / f"{k}", QUICK, 1)["learning_seconds"] for k in range(2))
    counts, learn = {"handed over": 0, "learnt": 0, "most waiting": 0}, NgramsPieces.learn

    class Counting:
        def __init__(self, *given: Any) -> None:
            self._stream = open_stream(*given)

        def read(self, most: int, seconds: float) -> Messages | None:
            found = self._stream.read(most, seconds)
            counts["handed over"] += len(found.texts) if found else 0
            counts["most waiting"] = max(counts["most waiting"], counts["handed over"] - counts["learnt"])
            return found

        def close(self) -> None:
            self._stream.close()

    def slowly(self: NgramsPieces, piece: Any, rate: float) -> Any:
        time.sleep(THREADS * SLOWER * quick / QUICK * BLOCK)
        found = learn(self, piece, rate)
        counts["learnt"] += BLOCK
        return found

    monkeypatch.setattr(NgramsPieces, "learn", slowly)
    monkeypatch.setattr(reader, "open_stream", Counting)
    source.send(lines)
    learn_from(source.url, tmp_path / "slow", TRICKLED)
    # Those parsed ahead, those under way, and the ones that are being read, parsed and put aside.
    assert counts["most waiting"] <= (reader.BLOCKS_AHEAD + THREADS + 1 + 3) * BLOCK < TRICKLED


def test_live_model(reviews: Path, tmp_path: Path) -> None:
    """Whoever opens the model while it learns finds a whole one, and what is new in a later one."""
    out = tmp_path / "live"
    running = start(str(reviews), out, "ngrams", snapshot_messages=500, messages=20_000)
    seen, labels = set(), set()
    while running.is_alive():
        if out.exists():
            bundle = manyhands.load_bundle(out)
            [[(label, _)]] = bundle.predict(["a lovely w1"])
            assert label in LABELS
            seen.add(bundle.folder)
            labels.add(tuple(bundle.labels))
    finish(running)
    assert len(seen) > 5
    assert {("bad", "good"), ("bad", "good", "odd")} >= {tuple(sorted(names)) for names in labels}
    bundle = manyhands.load_bundle(out)
    bundle.verify()
    assert sorted(bundle.labels) == sorted(LABELS), "a label that came late was added"
    assert [found[0][0] for found in bundle.predict(list(TESTS))] == list(TESTS.values())


def test_command(reviews: Path, tmp_path: Path, manyhands: Callable[..., Outcome]) -> None:
    """SIGTERM leaves a snapshot, and the command goes on from there; inspect tells all of it."""
    options = ["--model", "fasttext", "--buckets", 4096, "--threads", 2, "--block-messages", 64]
    command = ["stream", reviews, "--out", "live", *options]
    running = subprocess.Popen(
        [sys.executable, "-m", "manyhands", *map(str, command), "--snapshot-seconds", "0.2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not (tmp_path / "live").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.terminate()
    _, err = running.communicate(timeout=100)
    assert running.returncode == 5, err
    assert b"can be resumed" in err
    some = tmp_path / "some.jsonl"
    some.write_bytes(b"".join(reviews.read_bytes().splitlines(keepends=True)[-300:]))
    judged = ["--evaluate-every", "0.5s", "--evaluate-on", some, "--track", "tensorboard"]
    done = manyhands(*command, "--messages", 30_000, *judged, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert "going on after" in done.err
    ledger = record["stream"]["ledger"]
    assert ledger["read"] == 30_000 == ledger["learnt"] + ledger["empty"] + ledger["rejected"]
    assert len((tmp_path / "live.rejected.jsonl").read_text().splitlines()) == ledger["rejected"]
    assert record["scores"]["stream"][-1]["accuracy"] > 0.6
    assert any((tmp_path / "live.events").iterdir())
    again = manyhands("inspect", "live", "--json")
    assert json.loads(again.out)["stream"]["ledger"] == record["stream"]["ledger"]
    shown = manyhands("inspect", "live", "--verify")
    assert shown.code == 0
    for part in ("where the messages went", "position: {", "words/s", "loss", "all checksums match"):
        assert part in shown.out
    other = manyhands("stream", reviews, "--out", "live", "--model", "ngrams")
    assert other.code == 2
    assert "live was learnt with model fasttext, now it is ngrams" in other.err
    assert manyhands("predict", "live", stdin=b"a great place\n").out.startswith("good")
