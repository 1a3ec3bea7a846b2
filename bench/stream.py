"""``stream`` beside ``train``: one pass over a text, learnt as it comes or with its words counted beforehand.

Quality and speed: the 12.6 million words of Wikipedia in lines of 1,000, ``skipgram`` with the defaults of
each, three seeds, two threads. Seconds are those of the whole call in a process of its own, the last snapshot
or the bundle included; kernels were compiled before. Memory: one process at full speed for minutes, the text
again and again, with words that were never there before in it, so that the vocabulary grows until the end;
resident memory is looked at every second. Brokers: the same text in messages of 100 words, from a file and
from real servers that run on the same two cores, beside ``train`` on that file. Kills: two workers on Ray,
any of which, or the process that reads, is killed at random moments; the ledger must be exact.
"""

import argparse
import json
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
from manyhands.text.growing import GrowingVocabulary
from measure import PAGE_BYTES, measure, save

SEEDS = (1, 2, 3)
THREADS = 2
JUDGED = ("WS-353", "MEN")
LEAST_QUALITY, LEAST_SPEED, MOST_GROWTH = 0.95, 0.8, 0.05
WARM_UP_SECONDS = 60.0
# A word that is new stands in so many lines, and never again; what is counted of the text comes to rest,
# as it decays by half with every pass over it.
NEW_WORD_LINES = 20
ROWS_OF_MEMORY = 200_000
WORDS_A_MESSAGE = 100
ROUNDS = 3
KILLS = 20
PARTS = ("quality", "memory", "brokers", "kills")


class Endless:
    """The lines of a file again and again, with words in them that were never there before."""

    replays = True

    def __init__(self, url: str, position: Position | None, settings: Any) -> None:
        self._lines = Path(url.removeprefix("endless://")).read_bytes().splitlines()
        self._at = 0 if position is None else int(position["at"])

    def read(self, most: int, seconds: float) -> Messages:
        texts = []
        for at in range(self._at, self._at + most):
            line = self._lines[at % len(self._lines)]
            texts.append(b"%s new%d" % (line, at // NEW_WORD_LINES))
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
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time()}
    print(json.dumps({**seconds, "learning_seconds": learning}))


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
    seconds, facts = {"seconds": time.perf_counter() - began}, streamed.record
    seconds |= {"cpu_seconds": time.process_time(), "learning_seconds": facts["seconds"]}
    print(json.dumps({**seconds, "read": facts["stream"]["ledger"]}))


def run_memory(job: dict[str, Any]) -> None:
    STREAMS["endless"] = f"{__name__}:Endless"
    looks: list[tuple[float, int, int, int]] = []
    over, began = threading.Event(), time.monotonic()
    entered, count = [0], GrowingVocabulary.count

    def counting(self: GrowingVocabulary, corpus: Any) -> Any:
        found = count(self, corpus)
        entered[0] += len(found[1])
        return found

    GrowingVocabulary.count = counting  # type: ignore[method-assign]

    def look() -> None:
        while not over.wait(1.0):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            lines = Path("/proc/self/status").read_text().splitlines()
            most = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
            Path("/proc/self/clear_refs").write_text("5")  # the kernel begins to look for the most anew
            looks.append((time.monotonic() - began, pages * PAGE_BYTES, most, entered[0]))

    watcher = threading.Thread(target=look)
    watcher.start()
    done = stream(
        f"endless://{job['text']}",
        job["out"],
        model="skipgram",
        minutes=job["minutes"],
        threads=THREADS,
        vocabulary_size=ROWS_OF_MEMORY,
        half_life=job["messages"],
    )
    over.set()
    watcher.join()
    curve = []
    for start in range(0, int(60 * job["minutes"]), 30):
        found = [look for look in looks if start <= look[0] < start + 30]
        if found:
            median = int(statistics.median(size for _, size, _, _ in found))
            size = {"median": median, "peak": max(most for _, _, most, _ in found)}
            curve.append({"second": start, **size, "words_that_entered": found[-1][3]})
    words = done.bundle.model.arrays() if done.bundle else {}
    print(
        json.dumps(
            {
                "curve": curve,
                "words": done.record["data"]["tokens"],
                "words_per_second": done.record["tokens_per_second"],
                "snapshots": len(done.record["stream"]["history"]),
                "vocabulary": len(words["counts"]) if words else 0,
                "vocabulary_size": ROWS_OF_MEMORY,
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
    messages = Path(text).read_bytes().count(b"\n")
    found = child("memory", text=text, out=f"{folder}/live", minutes=minutes, messages=messages)
    warm = [look for look in found["curve"] if look["second"] >= WARM_UP_SECONDS]
    first = warm[:2]  # a minute, in which there was a snapshot
    growth = {
        name: round(max(look[name] for look in warm) / max(look[name] for look in first) - 1, 4)
        for name in ("median", "peak")
    }
    return {"minutes": minutes, "growth_after_warm_up": growth, **found}


def brokers(data: Path, folder: str, rounds: int, most_words: int | None) -> dict[str, Any]:
    """Words a second of ``stream`` from each broker, beside ``train`` and ``stream`` from a file."""
    from tests.brokers import BROKERS, Broker

    whole, text = Path(folder) / "whole.txt", Path(folder) / "messages.txt"
    words = write_text(data, whole, most_words)
    every = whole.read_text().split()
    starts = range(0, words, WORDS_A_MESSAGE)
    lines = [" ".join(every[start : start + WORDS_A_MESSAGE]).encode() for start in starts]
    text.write_bytes(b"".join(line + b"\n" for line in lines))
    started: list[Broker] = []
    urls = {"train": str(text), "file": str(text)}
    runs: dict[str, list[dict[str, Any]]] = {}
    try:
        for kind, make in BROKERS.items():
            started.append(make(Path(folder) / kind))
            started[-1].start()
            started[-1].create("words")
            started[-1].send("words", lines)
            urls[kind] = started[-1].url("words")
        for turn in range(rounds + 1):  # the first compiles
            for kind, url in urls.items():
                verb, job = "train" if kind == "train" else "stream", {"text": url, "messages": len(lines)}
                made = child(verb, **job, out=f"{folder}/of-{kind}", seed=1)
                print(kind, turn, json.dumps(made), flush=True)
                if turn:
                    runs.setdefault(kind, []).append(made)
    finally:
        for broker in started:
            broker.kill()
    record: dict[str, Any] = {"words": words, "messages": len(lines), "rounds": rounds, "runs": {}}
    for kind, found in runs.items():
        seconds, learning = (min(run[name] for run in found) for name in ("seconds", "learning_seconds"))
        record["runs"][kind] = {
            "words_per_second": round(words / seconds),
            "learning_words_per_second": round(words / learning),
            "cpu_seconds": round(min(run["cpu_seconds"] for run in found), 2),  # without those of the broker
        }
    trained = record["runs"]["train"]["words_per_second"]
    for found in record["runs"].values():
        found["beside_train"] = round(found["words_per_second"] / trained, 3)
    return record


def kills(folder: str, count: int) -> dict[str, Any]:
    from tests.stream_runs import MESSAGES, WORKERS, check_shared_kills, write_reviews

    from manyhands.engines.ray import ray

    with ray(None, WORKERS, 0) as library:
        address = library.get_runtime_context().gcs_address
        reviews = write_reviews(Path(folder) / "reviews.jsonl")
        killed = check_shared_kills(reviews, Path(folder), address, count)
    return {"messages": MESSAGES, "workers": WORKERS, "killed": killed, "ledger_exact": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=PARTS, help="measure one again, keep the others")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each broker")
    parser.add_argument("--words", type=int, help="of the text that brokers hold; by default all")
    parser.add_argument("--kills", type=int, default=KILLS)
    for kind in ("train", "stream", "memory"):
        parser.add_argument(f"--run-{kind}", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    for kind, run in {"train": run_train, "stream": run_stream, "memory": run_memory}.items():
        if job := getattr(chosen, f"run_{kind}"):
            return run(job)
    kept = Path(__file__).parent / "records" / "stream.json"
    record = json.loads(kept.read_text()) if chosen.only and kept.is_file() else {}
    record = {name: part for name, part in record.items() if name in PARTS}
    with tempfile.TemporaryDirectory() as folder:
        if chosen.only in (None, "quality"):
            record["quality"] = compare(chosen.data, folder)
        if chosen.only in (None, "memory"):
            record["memory"] = memory(chosen.data, folder, chosen.minutes)
        if chosen.only in (None, "brokers"):
            record["brokers"] = brokers(chosen.data, folder, chosen.rounds, chosen.words)
        if chosen.only in (None, "kills"):
            record["kills"] = kills(folder, chosen.kills)
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
    if "brokers" in record:
        found = {kind: one["beside_train"] for kind, one in record["brokers"]["runs"].items()}
        print(f"speed beside train, messages of {WORDS_A_MESSAGE} words: {found} (bar {LEAST_SPEED})")
    if "kills" in record:
        print(f"ledger exact after kills of {record['kills']['killed']} (bar {KILLS} of them)")


if __name__ == "__main__":
    main()
