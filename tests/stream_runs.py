"""Learning from a stream in processes that can be killed, and what they leave behind."""

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import manyhands
from manyhands.records import Silent
from manyhands.storage.tensors import read_tensors
from manyhands.streaming.snapshot import STATE

MESSAGES = 60_000
LABELS = ["bad", "good", "odd"]
TELLING = {"bad": "awful poor broken", "good": "great fine lovely", "odd": "weird strange curious"}
TESTS = {"a lovely w1": "good", "w5 broken w7": "bad", "w5 weird": "odd"}  # once all were learnt
WORKERS = 2
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


def write_reviews(path: Path) -> Path:
    draw = random.Random(3)
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
BLOCKS = {"block_messages": 100, "threads": 1, "snapshot_messages": 600}

# Real processes, whose parent has imported everything: a start costs less than what there is to learn.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["manyhands.streaming.stream", "manyhands.models.words.stream", "numba"])


def learn(
    url: str, out: Path, model: str, more: dict[str, Any], log: Path, environment: dict[str, str]
) -> None:
    os.environ.update(environment)  # the parent of all may have been started before it was set

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
    running = processes.Process(target=learn, args=(url, out, model, more, log_of(out), {**os.environ}))
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


def newest(out: Path) -> str:
    return str(out.readlink()) if out.is_symlink() else ""


def check_shared_kills(reviews: Path, folder: Path, address: str, kills: int) -> dict[str, int]:
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
