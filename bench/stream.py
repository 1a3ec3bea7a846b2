"""``stream`` beside ``train``: one pass over a text, learnt as it comes or with its words counted beforehand.

Quality and speed: the 12.6 million words of Wikipedia in lines of 1,000, ``skipgram`` with the defaults of
each, three seeds, two threads. Seconds are those of the whole call in a process of its own, the last snapshot
or the bundle included; kernels were compiled before. Memory: one process at full speed for minutes, the text
again and again, with new words in every pass, so that the vocabulary grows and in the end words leave;
resident memory is looked at every second.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from embed import scores, write_text
from manyhands.catalog import STREAMS
from manyhands.data.streams.stream import Messages, Position
from manyhands.run.train import train
from manyhands.streaming.stream import stream
from measure import PAGE_BYTES, measure, save

SEEDS = (1, 2, 3)
THREADS = 2
JUDGED = ("WS-353", "MEN")
LEAST_QUALITY, LEAST_SPEED, MOST_GROWTH = 0.95, 0.8, 0.05
WARM_UP_SECONDS = 60.0
NEW_WORD = re.compile(rb"pass(\d+)word")
NEW_WORD_LINES = 50  # that a new word stands in: more often than what fills the last rows


class Endless:
    """The lines of a file again and again; every pass has words of its own, each in a few lines."""

    replays = True

    def __init__(self, url: str, position: Position | None, settings: Any) -> None:
        self._lines = Path(url.removeprefix("endless://")).read_bytes().splitlines()
        self._at = 0 if position is None else int(position["at"])

    def read(self, most: int, seconds: float) -> Messages:
        texts = []
        for at in range(self._at, self._at + most):
            turn, line = divmod(at, len(self._lines))
            texts.append(b"%s pass%dword%d" % (self._lines[line], turn, line // NEW_WORD_LINES))
        places = [f"line {at}" for at in range(self._at, self._at + most)]
        self._at += most
        return Messages(texts, places, {"kind": "endless", "at": self._at})

    def close(self) -> None:
        pass


def run_train(job: dict[str, Any]) -> None:
    began = time.perf_counter()
    trained = train(
        job["text"], job["out"], model="skipgram", epochs=1, seed=job["seed"], threads=THREADS, overwrite=True
    )
    learning = trained.record["learning_seconds"]
    print(json.dumps({"seconds": time.perf_counter() - began, "learning_seconds": learning}))


def run_stream(job: dict[str, Any]) -> None:
    began = time.perf_counter()
    streamed = stream(
        job["text"],
        job["out"],
        model="skipgram",
        messages=job["messages"],
        seed=job["seed"],
        threads=THREADS,
        overwrite=True,
    )
    seconds, facts = time.perf_counter() - began, streamed.record
    print(
        json.dumps(
            {"seconds": seconds, "learning_seconds": facts["seconds"], "read": facts["stream"]["ledger"]}
        )
    )


def run_memory(job: dict[str, Any]) -> None:
    STREAMS["endless"] = f"{__name__}:Endless"
    looks: list[tuple[float, int]] = []
    over, began = threading.Event(), time.monotonic()

    def look() -> None:
        while not over.wait(1.0):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            looks.append((time.monotonic() - began, pages * PAGE_BYTES))

    watcher = threading.Thread(target=look)
    watcher.start()
    done = stream(
        f"endless://{job['text']}", job["out"], model="skipgram", minutes=job["minutes"], threads=THREADS
    )
    over.set()
    watcher.join()
    curve = []
    for start in range(0, int(60 * job["minutes"]), 30):
        found = [size for at, size in looks if start <= at < start + 30]
        if found:
            curve.append({"second": start, "median": int(statistics.median(found)), "peak": max(found)})
    words = done.bundle.model.arrays() if done.bundle else {}
    known = words["letters"].tobytes() if words else b""
    passes = sorted({int(number) for number in NEW_WORD.findall(known)})
    print(
        json.dumps(
            {
                "curve": curve,
                "words": done.record["data"]["tokens"],
                "words_per_second": done.record["tokens_per_second"],
                "snapshots": len(done.record["stream"]["history"]),
                "vocabulary": len(words["counts"]) if words else 0,
                "new_words_of_passes": [passes[0], passes[-1]] if passes else [],
            }
        )
    )


def child(kind: str, **job: Any) -> dict[str, Any]:
    return measure([sys.executable, __file__, f"--run-{kind}", json.dumps(job)]).printed


def compare(data: Path, folder: str) -> dict[str, Any]:
    text = f"{folder}/text.txt"
    runs: dict[str, list[dict[str, Any]]] = {"train": [], "stream": []}
    words = write_text(data, Path(text))
    messages = Path(text).read_bytes().count(b"\n")
    for seed in (0, *SEEDS):  # the first compiles
        for kind, found in runs.items():
            out = f"{folder}/{kind}"
            made = child(kind, text=text, out=out, seed=seed, messages=messages)
            if seed:
                judged = {name: score for name, score in scores(out, data).items() if name in JUDGED}
                found.append({**made, "scores": judged})
                print(kind, seed, json.dumps(found[-1]), flush=True)
    record: dict[str, Any] = {"words": words, "messages": messages}
    for kind, found in runs.items():
        seconds, learning = (min(run[name] for run in found) for name in ("seconds", "learning_seconds"))
        record[kind] = {
            "words_per_second": round(words / seconds),
            "learning_words_per_second": round(words / learning),
            "scores": {
                name: round(statistics.mean(run["scores"][name] for run in found), 4) for name in JUDGED
            },
        }
    one, other = record["stream"], record["train"]
    record["quality"] = {name: round(one["scores"][name] / other["scores"][name], 3) for name in JUDGED}
    for name in ("words_per_second", "learning_words_per_second"):
        record[f"{name}_beside_train"] = round(one[name] / other[name], 3)
    return record


def memory(data: Path, folder: str, minutes: float) -> dict[str, Any]:
    text = f"{folder}/text.txt"
    write_text(data, Path(text))
    found = child("memory", text=text, out=f"{folder}/live", minutes=minutes)
    warm = [look for look in found["curve"] if look["second"] >= WARM_UP_SECONDS]
    growth = {
        name: round(max(look[name] for look in warm) / warm[0][name] - 1, 4) for name in ("median", "peak")
    }
    return {"minutes": minutes, "growth_after_warm_up": growth, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=("quality", "memory"), help="measure one again, keep the other")
    for kind in ("train", "stream", "memory"):
        parser.add_argument(f"--run-{kind}", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    for kind, run in {"train": run_train, "stream": run_stream, "memory": run_memory}.items():
        if job := getattr(chosen, f"run_{kind}"):
            return run(job)
    kept = Path(__file__).parent / "records" / "stream.json"
    record = json.loads(kept.read_text()) if chosen.only and kept.is_file() else {}
    record = {name: part for name, part in record.items() if name in ("quality", "memory")}
    with tempfile.TemporaryDirectory() as folder:
        if chosen.only != "memory":
            record["quality"] = compare(chosen.data, folder)
        if chosen.only != "quality":
            record["memory"] = memory(chosen.data, folder, chosen.minutes)
    tell(record)
    save("stream", {"threads": THREADS, **record})
    return None


def tell(record: dict[str, Any]) -> None:
    if "quality" in record:
        found = record["quality"]
        print(f"quality beside train: {found['quality']} (bar {LEAST_QUALITY})")
        print(f"speed beside train: {found['words_per_second_beside_train']} (bar {LEAST_SPEED})")
    if "memory" in record:
        print(f"memory grew by {record['memory']['growth_after_warm_up']} (bar {MOST_GROWTH})")


if __name__ == "__main__":
    main()
