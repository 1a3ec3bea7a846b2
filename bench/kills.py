"""A crew whose workers are killed again and again, at random moments: it ends with the same weights.

Every worker is killed with SIGKILL so many times. Then the bundle is compared, byte by byte, with
that of a crew that nobody disturbed.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import save

TRAIN = [
    *("--model", "lstm", "--hidden-size", "32", "--dim", "32", "--batch-size", "64", "--epochs", "40"),
    *("--spread", "allreduce", "--max-restarts", "1000", "--deterministic"),
    *("--checkpoint-seconds", "0.2", "--json"),
]  # fmt: skip
RAN_AGAIN_SECONDS = (3.0, 9.0)  # after a kill, until the next one: before, in and after the restart


def reviews(path: Path) -> None:
    """Made-up reviews whose label shows in a word."""
    draw = random.Random(0)
    telling, plain = (
        ["bad awful poor", "good great fine"],
        "the a of it was and room food staff place".split(),
    )
    with path.open("w") as file:
        for _ in range(12_000):
            label = draw.randrange(2)
            words = [*draw.choices(plain, k=draw.randint(5, 40)), draw.choice(telling[label].split())]
            draw.shuffle(words)
            file.write(f"__label__{label} {' '.join(words)}\n")


def start(folder: Path, data: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "manyhands", "train", str(data), "--out", str(folder / "run"), *TRAIN]
    command += ["--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def pids(rank: int) -> list[int]:
    """The processes of one worker, of crews on this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text().strip() == f"worker {rank}":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def finished(run: subprocess.Popen[bytes], folder: Path) -> tuple[dict, str]:  # type: ignore[type-arg]
    out, err = run.communicate(timeout=900)
    if run.returncode:
        raise SystemExit(f"the crew ended with {run.returncode}: {err.decode()[-2000:]}")
    digest = hashlib.sha256((folder / "run" / "model.safetensors").read_bytes()).hexdigest()
    return json.loads(out), digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of all workers together")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    facts = {str(workers): disturb(workers, options.kills) for workers in options.workers}
    save("kills", {"workers": facts})


def disturb(workers: int, most: int) -> dict[str, Any]:
    """Kill workers of a crew so often, each as often as the others, and compare what it ends with."""
    draw, kills = random.Random(1), []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        reviews(home / "reviews.txt")
        record, whole = finished(start(home / "whole", home / "reviews.txt", workers), home / "whole")
        run = start(home / "killed", home / "reviews.txt", workers)
        ranks = [kill % workers for kill in range(most)]
        draw.shuffle(ranks)
        while ranks and run.poll() is None:
            time.sleep(draw.uniform(*RAN_AGAIN_SECONDS))
            for pid in pids(ranks[-1])[:1]:
                os.kill(pid, signal.SIGKILL)
                kills.append(ranks.pop())
                print(f"killed worker {kills[-1]}, process {pid}", flush=True)
        again, digest = finished(run, home / "killed")
    facts = {
        "kills": [kills.count(rank) for rank in range(workers)],
        "rows_seen": again["examples_seen"],
        "rows_seen_undisturbed": record["examples_seen"],
        "same_bytes": digest == whole,
    }
    print(workers, json.dumps(facts, indent=1), flush=True)
    return facts


if __name__ == "__main__":
    main()
