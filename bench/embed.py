"""Our ``skipgram`` beside gensim's and fastText's: the same text, the same threads, the same judge.

Each learns from the raw text, one after the other for every seed, with its own learning rate and all else
alike. Seconds are from the text to the vectors in memory and the best of the seeds count; scores are the
mean over the seeds. gensim reads by ``corpus_file``, its quick way; fastText learns words without letters.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyhands.evaluation.words import evaluate_words
from manyhands.run.train import train
from measure import RECORDS, measure, save

PEERS = Path(__file__).parent / "peers"
SEEDS = (1, 2, 3)
THREADS = 2
JOB = {"dim": 100, "window": 5, "negatives": 5, "sample": 1e-4, "min_count": 5, "epochs": 5}
WORDS_A_LINE = 1000  # gensim and fastText read lines, and cut longer ones short
SETS = ("WS-353", "SimLex-999", "MEN", "RW")
LEAST_RATIO, SLACK, SLACK_POINTS = 4.0, 0.01, 1.0


def write_text(data: Path, out: Path, most: int | None = None) -> int:
    """Wikipedia's words, all or the first, in lines; returns how many."""
    packed = pa.OSFile(str(data / "corpus" / "fil8_text8_prefix.txt.zst"))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        words = stream.read().decode().split()[:most]
    lines = (" ".join(words[start : start + WORDS_A_LINE]) for start in range(0, len(words), WORDS_A_LINE))
    out.write_text("\n".join(lines) + "\n")
    return len(words)


def ours(text: str, out: str, seed: int) -> dict[str, Any]:
    """In a process of its own, as the others are; the kernels were compiled before."""
    job = json.dumps({"text": text, "out": out, "seed": seed})
    return measure([sys.executable, __file__, "--ours", job]).printed


def run_ours(job: dict[str, Any]) -> None:
    began = time.perf_counter()
    trained = train(
        job["text"], job["out"], model="skipgram", seed=job["seed"], threads=THREADS, overwrite=True, **JOB
    )
    learning = trained.record["learning_seconds"]
    print(json.dumps({"seconds": time.perf_counter() - began, "learning_seconds": learning}))


def peer(python: str, name: str, text: str, out: str, seed: int) -> dict[str, Any]:
    job = {**JOB, "peer": name, "text": text, "out": out, "threads": THREADS, "seed": seed}
    return measure([python, str(PEERS / "words_of_peers.py"), json.dumps(job)]).printed


def scores(vectors: str, sets: Path) -> dict[str, float]:
    report = evaluate_words(vectors, sets=sets, against=vectors).facts()
    found = {name: report["similarity"][name]["spearman"] for name in SETS}
    return {**found, "Google": 100 * report["analogies"]["Google"]["total"]["accuracy"]["add"]}


def summary(runs: list[dict[str, Any]], words: int) -> dict[str, Any]:
    whole, learning = (min(run[name] for run in runs) for name in ("seconds", "learning_seconds"))
    means = {name: statistics.mean(run["scores"][name] for run in runs) for name in runs[0]["scores"]}
    return {
        "seconds": round(whole, 1),
        "words_per_second": round(words * JOB["epochs"] / whole),
        "learning_words_per_second": round(words * JOB["epochs"] / learning),
        "scores": {name: round(mean, 4 if name != "Google" else 2) for name, mean in means.items()},
        "seeds": [{name: round(value, 4) for name, value in run["scores"].items()} for run in runs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--peers", help="a Python that has gensim and fastText")
    parser.add_argument(
        "--only", choices=("ours", "gensim", "fastText"), help="measure one again, keep the others"
    )
    parser.add_argument("--ours", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.ours:
        return run_ours(chosen.ours)
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "gensim": [], "fastText": []}
    if chosen.only:
        runs = {chosen.only: []}
    with tempfile.TemporaryDirectory() as folder:
        text, out = f"{folder}/text.txt", f"{folder}/vectors"
        words = write_text(chosen.data, Path(text))
        ours(text, out, 0)
        for seed in SEEDS:
            for name, found in runs.items():
                made = ours(text, out, seed) if name == "ours" else None
                if made is None:
                    made = peer(chosen.peers, name, text, f"{out}.bin", seed)
                judged = out if name == "ours" else f"{out}.bin"
                found.append({**made, "scores": scores(judged, chosen.data)})
                print(name, seed, json.dumps(found[-1]), flush=True)
    record = {name: summary(found, words) for name, found in runs.items()}
    if chosen.only:
        record = {**json.loads((RECORDS / "embed.json").read_text())["contenders"], **record}
    tell(record)
    peers = {"gensim": "4.4.0", "fastText": "0.9.3"}
    facts = {"words": words, "threads": THREADS, "job": JOB, "versions_of_peers": peers}
    save("embed", {**facts, "contenders": record})
    return None


def tell(record: dict[str, Any]) -> None:
    mine = record["ours"]
    for name in ("gensim", "fastText"):
        theirs = record[name]
        ratio = mine["words_per_second"] / theirs["words_per_second"]
        lower = [
            kind
            for kind, score in theirs["scores"].items()
            if mine["scores"][kind] < score - (SLACK_POINTS if kind == "Google" else SLACK)
        ]
        print(f"{name}: {ratio:.1f} x as fast (bar {LEAST_RATIO}); lower: {', '.join(lower) or 'nothing'}")


if __name__ == "__main__":
    main()
