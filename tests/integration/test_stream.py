"""Learning from streams: each message counts once in the model that is kept, whatever is killed and when."""

import json
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.brokers import BROKERS, LIBRARIES
from tests.conftest import Outcome, need

import manyhands
from manyhands.data.streams.stream import Messages, Stream, open_stream
from manyhands.records import Silent
from manyhands.storage.tensors import read_tensors
from manyhands.streaming import reader
from manyhands.streaming.snapshot import STATE

KILLS = {"ngrams": 20, "skipgram": 10, "fasttext": 5, "charlstm": 2}
MESSAGES = 60_000
BROKER_MESSAGES, BROKER_KILLS = 30_000, 5
LABELS = ["bad", "good", "odd"]
TELLING = {"bad": "awful poor broken", "good": "great fine lovely", "odd": "weird strange curious"}
PLAIN = [f"w{number}" for number in range(300)]


def message(draw: random.Random, number: int) -> str:
    """A review whose label shows in a word; now and then one that is empty, or broken, or of a new label."""
    kind = draw.random()
    if kind < 0.01:
        return "{broken"
    label = draw.choice(LABELS[: 2 if number < MESSAGES // 4 else 3])
    if kind < 0.02:
        return json.dumps({"text": "  ", "label": label})
    words = [*draw.choices(PLAIN, k=draw.randint(3, 12)), draw.choice(TELLING[label].split())]
    draw.shuffle(words)
    return json.dumps({"text": " ".join(words), "label": label})


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, path = random.Random(3), tmp_path_factory.mktemp("stream") / "reviews.jsonl"
    path.write_text("".join(message(draw, number) + "\n" for number in range(MESSAGES)))
    return path


# Small tables, and a short half-life: counts decay and words leave while it runs.
SMALL: dict[str, dict[str, Any]] = {
    "ngrams": {"buckets": 4096, "half_life": 5000},
    "fasttext": {"buckets": 4096, "half_life": 5000, "messages": 20_000},
    "skipgram": {"vocabulary_size": 200, "dim": 16, "half_life": 5000},
    "charlstm": {
        **{"vocabulary_size": 200, "dim": 16, "half_life": 500, "hidden_size": 16, "char_dim": 8},
        **{"batch_size": 256, "messages": 3000, "snapshot_messages": 300},
    },
}
BLOCKS = {"block_messages": 100, "threads": 1, "snapshot_messages": 1500}

# Real processes, whose parent has imported everything: a start costs less than what there is to learn.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["manyhands.streaming.stream", "manyhands.models.words.stream", "numba"])


def learn(url: str, out: Path, model: str, more: dict[str, Any], log: Path) -> None:
    class Log(Silent):
        def say(self, sentence: str) -> None:
            with log.open("a") as file:
                file.write(sentence + "\n")

    manyhands.stream(
        url,
        out,
        model=model,
        progress=Log(),
        **{"messages": MESSAGES, **BLOCKS, **SMALL[model], **more},
    )


def start(url: str, out: Path, model: str, **more: Any) -> Any:
    running = processes.Process(target=learn, args=(url, out, model, more, log_of(out)))
    running.start()
    return running


def log_of(out: Path) -> Path:
    return out.with_suffix(".log")


def finish(running: Any) -> None:
    running.join(300)
    assert running.exitcode == 0


def kept(out: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray], bytes]:
    """The ledger and position, what the learner knows, the model, and what was rejected."""
    arrays, facts = read_tensors(out / STATE)
    state = json.loads(facts["facts"])["state"]
    known = {name: state[name] for name in ("ledger", "position", "blocks", "words", "classes", "drift")}
    model, _ = read_tensors(out / "model.safetensors")
    return known, arrays, model, Path(f"{out}.rejected.jsonl").read_bytes()


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


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
        time.sleep(draw.expovariate(20))
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


def newest(out: Path) -> str:
    return str(out.readlink()) if out.is_symlink() else ""


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


def test_slow_producer(reviews: Path, tmp_path: Path) -> None:
    """Messages that come a few at a time, a line not even whole, are all learnt, and nothing else is."""
    lines, slow = reviews.read_bytes().splitlines(keepends=True)[:300], tmp_path / "slow.jsonl"
    slow.touch()

    def produce() -> None:
        data = b"".join(lines)
        for start in range(0, len(data), 997):
            with slow.open("ab") as file:
                file.write(data[start : start + 997])
            time.sleep(0.01)

    producer = threading.Thread(target=produce)
    producer.start()
    streamed = manyhands.stream(
        str(slow), tmp_path / "live", model="ngrams", messages=300, block_messages=7, threads=2, buckets=4096
    )
    producer.join()
    assert streamed.record["stream"]["ledger"]["read"] == 300
    assert streamed.record["stream"]["position"]["line"] == 300
    assert streamed.record["stream"]["blocks"] == -(-300 // 7)


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
    tests = {"a lovely w1": "good", "w5 broken w7": "bad", "w5 weird": "odd"}
    assert [found[0][0] for found in bundle.predict(list(tests))] == list(tests.values())


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
