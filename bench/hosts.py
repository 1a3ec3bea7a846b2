"""Two hosts, in network namespaces with a link of 1 Gbit/s: training, a host that
joins later, the link cut for a while, and for good.

Needs root. Each host has a folder and a checkpoint of its own; the one at whose address they meet leads.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measure import save

HOSTS = {"mha": "10.77.0.1", "mhb": "10.77.0.2"}
PORT, CUT_SECONDS, STALL_SECONDS = 29400, 20, 30
TRAIN = [
    *(
        "--model",
        "lstm",
        "--hidden-size",
        "32",
        "--dim",
        "64",
        "--batch-size",
        "128",
        "--early-stopping",
        "99",
        "--json",
    ),
    *("--spread", "allreduce", "--nodes", "1:2", "--checkpoint-seconds", "2"),
    *("--rendezvous", f"{HOSTS['mha']}:{PORT}", "--stall-seconds", str(STALL_SECONDS)),
]


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def link_hosts() -> str:
    """Both hosts and the cable; returns how it is shaped."""
    unlink_hosts()
    ip("link", "add", "mha0", "type", "veth", "peer", "name", "mhb0")
    for host, address in HOSTS.items():
        ip("netns", "add", host)
        ip("link", "set", f"{host}0", "netns", host)
        ip("-n", host, "addr", "add", f"{address}/24", "dev", f"{host}0")
        for device in ("lo", f"{host}0"):
            ip("-n", host, "link", "set", device, "up")
    shapes = {
        "1 Gbit/s, 1 ms there and back": "netem rate 1gbit delay 0.5ms",
        "1 Gbit/s; this kernel cannot delay": "tbf rate 1gbit burst 256kb latency 50ms",
    }
    for said, shape in shapes.items():
        commands = [
            ["tc", "-n", host, "qdisc", "replace", "dev", f"{host}0", "root", *shape.split()]
            for host in HOSTS
        ]
        if all(
            subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in commands
        ):
            return said
    return "not shaped"


def shaped(host: str, shape: str) -> bool:
    command = ["tc", "-n", host, "qdisc", "replace", "dev", f"{host}0", "root", *shape.split()]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unlink_hosts() -> None:
    for host in HOSTS:
        ip("netns", "del", host, check=False)


def reviews(path: Path, rows: int) -> None:
    """Made-up reviews whose label shows in a word."""
    draw = random.Random(0)
    plain = [f"word{number}" for number in range(300)]
    with path.open("w") as file:
        for _ in range(rows):
            label = draw.randrange(2)
            words = [*draw.choices(plain, k=draw.randint(5, 60)), f"telling{label}"]
            file.write(f"__label__{label} {' '.join(words)}\n")


def start(host: str, home: Path, epochs: int, workers: int) -> subprocess.Popen[str]:
    folder = home / host
    folder.mkdir()
    command = ["ip", "netns", "exec", host, sys.executable, "-m", "manyhands", "train"]
    command += [str(home / "reviews.txt"), "--out", "run", "--epochs", str(epochs), *TRAIN]
    command += ["--workers", str(workers)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def play(epochs: int, cut: float | None, *, late: bool = False, workers: int = 1) -> dict[str, Any]:
    """Train on both hosts, one of them may come ``late``; cut the link for so many seconds."""
    with tempfile.TemporaryDirectory() as name:
        home, began = Path(name), time.monotonic()
        reviews(home / "reviews.txt", 6000)
        runs = {host: start(host, home, epochs, workers) for host in list(HOSTS)[: 1 if late else 2]}
        if cut is not None or late:
            while not list(home.glob("mha/.run.checkpoint/checkpoint-*")):
                time.sleep(0.1)
            time.sleep(2)
        if late:
            runs["mhb"] = start("mhb", home, epochs, workers)
        if cut is not None:
            ip("-n", "mhb", "link", "set", "mhb0", "down")
            if cut < float("inf"):
                time.sleep(cut)
                ip("-n", "mhb", "link", "set", "mhb0", "up")
        ended = {}
        for host, run in runs.items():
            out, err = run.communicate(timeout=900)
            ended[host] = {
                "exit": run.returncode,
                "seconds": round(time.monotonic() - began, 1),
                "said": " ".join(line for line in err.splitlines() if line.startswith("manyhands")),
            }
            if run.returncode == 0 and out.startswith("{"):
                record = json.loads(out)
                ended[host] |= {
                    "rows_seen": record["examples_seen"],
                    "rows_asked": record["data"]["rows"] * epochs,
                    "epochs_by_workers": dict(
                        Counter(len(lap["seconds"]["forward"]) for lap in record["laps"])
                    ),
                    "loss": record["scores"]["train"][-1]["loss"],
                }
            else:
                ended[host]["said"] += out.strip()
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["plain", "four", "joined", "cut", "lost"])
    options = parser.parse_args()
    plays = {
        "plain": lambda: play(10, None),
        "four": lambda: play(10, None, workers=2),
        "joined": lambda: play(120, None, late=True, workers=2),
        "cut": lambda: play(60, CUT_SECONDS),
        "lost": lambda: play(60, float("inf")),
    }
    facts: dict[str, Any] = {"link": link_hosts()}
    try:
        for name, played in plays.items():
            if options.only in (None, name):
                facts[name] = played()
                print(name, json.dumps(facts[name], indent=1), flush=True)
                ip("-n", "mhb", "link", "set", "mhb0", "up")
    finally:
        unlink_hosts()
    if not options.only:
        save("hosts", facts)


if __name__ == "__main__":
    main()
