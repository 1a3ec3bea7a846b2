"""Two machines, in network namespaces, that learn in place and merge: how fast over links of several speeds.

Needs root. Each machine has one worker of one thread; both read the same prepared files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crew_speed import MODELS, datasets
from hosts import HOSTS, PORT, link_hosts, shaped, unlink_hosts
from measure import save

LINKS = {
    "no limit": "pfifo limit 10000",
    "1 Gbit/s": "tbf rate 1gbit burst 256kb latency 50ms",
    "100 Mbit/s": "tbf rate 100mbit burst 64kb latency 50ms",
}
BARS = {"1 Gbit/s": 0.8, "100 Mbit/s": 0.5}
CREW = ["--spread", "allreduce", "--workers", "1", "--nodes", "2", "--threads", "1", "--balance", "off"]
LEARNERS = ("ngrams", "fasttext", "skipgram", "lstm")


def run(data: Path, home: Path, model: str, number: int) -> dict[str, Any]:
    """One training on both machines; what the first, which writes the bundle, says of it."""
    runs = []
    for host in HOSTS:
        command = ["ip", "netns", "exec", host, sys.executable, "-m", "manyhands", "train", str(data)]
        command += ["--out", str(home / f"{host}-{number}"), "--overwrite", "--json", "--model", model]
        command += [*MODELS[model][1], *CREW, "--rendezvous", f"{HOSTS['mha']}:{PORT + number}"]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=1800) for process in runs]
    written = [out for out, _ in said if out.startswith("{")]
    if not written:
        raise SystemExit("\n".join(err[-2000:] for _, err in said))
    record = json.loads(written[0])
    epochs = len(record["scores"]["train"])
    return {
        "learning_seconds": record["learning_seconds"],
        "bytes_an_epoch": record["traffic"]["bytes"] // epochs,
        "loss": round(record["scores"]["train"][-1]["loss"], 5),
    }


def _seconds(run: dict[str, Any]) -> float:
    return float(run["learning_seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    link_hosts()
    try:
        with tempfile.TemporaryDirectory() as name:
            home, number = Path(name), 0
            data = datasets(given.data, home, {MODELS[model][0] for model in given.models})
            for model in given.models:
                runs: dict[str, list[dict[str, Any]]] = {link: [] for link in LINKS}
                for _ in range(given.repeats):
                    for link, shape in LINKS.items():
                        if not all(shaped(host, shape) for host in HOSTS):
                            raise SystemExit(f"this kernel cannot shape a link: {shape}")
                        number += 1
                        runs[link].append(run(data[MODELS[model][0]], home, model, number))
                best = {
                    link: min(every, key=lambda one: one["learning_seconds"]) for link, every in runs.items()
                }
                for link, bar in BARS.items():
                    ratio = best["no limit"]["learning_seconds"] / best[link]["learning_seconds"]
                    best[link] |= {"of_no_limit": round(ratio, 2), "bar": bar}
                found[model] = best
                print(model, json.dumps(best, indent=1), flush=True)
    finally:
        unlink_hosts()
    save("links", {"repeats": given.repeats, "models": found})


if __name__ == "__main__":
    main()
