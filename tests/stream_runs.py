"""Learning from a stream in processes that can be killed, and what they leave behind."""

import json
import multiprocessing
import os
import random
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
BLOCKS = {"block_messages": 100, "threads": 1, "snapshot_messages": 1500}

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
