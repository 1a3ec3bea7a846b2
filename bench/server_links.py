"""The parameter server on two machines, in network namespaces: how fast over links of several speeds.

Each machine is a node of Ray with one core: one worker of one thread and one shard. Beside them stands one
process with two threads, on the same cores. The best of several, in turn, by the training loop; scores are
means. Needs root.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from classification_sets import write_sets
from crew_speed import datasets
from crews import read
from hosts import HOSTS, link_hosts, shaped, unlink_hosts
from links import LINKS
from server import CASES, ONE, WAYS, keep, run, scores_of

BARS = {"1 Gbit/s": 0.75, "100 Mbit/s": 0.5}
HEAD, OTHER = HOSTS
PORT, START_SECONDS, STORE_BYTES = 6399, 15, 600 << 20
END_SECONDS = 90  # Ray drains a node before it ends
NO_LIMIT = next(iter(LINKS))
SERVER = ["--threads", "1", "--spread", "server", "--workers", "2", "--shards", "2"]


def inside(host: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", host, sys.executable, "-m", *words]


@contextmanager
def cluster() -> Iterator[str]:
    """Ray on both machines; gives the address of its head."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    address, nodes = f"{HOSTS[HEAD]}:{PORT}", []
    for host, ip in HOSTS.items():
        head = ["--head", "--port", str(PORT), "--include-dashboard", "false"]
        where = head if host == HEAD else ["--address", address]
        command = inside(host, "ray.scripts.scripts", "start", *where, "--node-ip-address", ip, "--block")
        command += ["--num-cpus", "1", "--object-store-memory", str(STORE_BYTES)]
        nodes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        time.sleep(START_SECONDS)
    try:
        yield address
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait(END_SECONDS)


def over(link: str, data: Path, out: Path, model: str, options: list[str]) -> dict[str, Any]:
    """One training from the head, with the link as it is asked for."""
    if not all(shaped(host, LINKS[link]) for host in HOSTS):
        raise SystemExit(f"this kernel cannot shape a link: {LINKS[link]}")
    command = inside(HEAD, "manyhands", "train", str(data), "--out", str(out), "--overwrite", "--json")
    done = subprocess.run(
        [*command, "--model", model, *options], capture_output=True, check=False, timeout=1800
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-2000:])
    record = json.loads(done.stdout)
    return {
        "learning": record["learning_seconds"],
        "bytes": record["traffic"]["bytes"],
        "wait_seconds": record["traffic"]["wait_seconds"],
        "staleness": record["traffic"]["staleness"],
        "exchanges": sum(lap["rounds"] for lap in record["laps"]),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    best = dict(min(runs, key=lambda one: one["learning"]))
    for key in ("WS-353", "MEN", "accuracy"):
        if key in best:
            best[key] = round(statistics.mean(one[key] for one in runs), 4)
    return best


def play(
    name: str, given: Any, address: str, folder: Path, data: dict[str, Path], test: Any
) -> dict[str, Any]:
    of, model, options = CASES[name]
    runs: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(given.repeats):
        seed, out = ["--seed", str(repeat + 1)], folder / "run"
        one = run(data[of], out, model, [*options, *WAYS[ONE], *seed])
        runs.setdefault(ONE, []).append(
            {"learning": one["learning"]} | scores_of(out, model, given.data, test)
        )
        print(f"{name}, {ONE}: {runs[ONE][-1]}", flush=True)
        for link in given.links:
            found = over(link, data[of], out, model, [*options, *SERVER, *seed, "--address", address])
            runs.setdefault(link, []).append(found | scores_of(out, model, given.data, test))
            print(f"{name}, {link}: {runs[link][-1]}", flush=True)
    best = {way: summary(every) for way, every in runs.items()}
    for link in given.links:
        best[link]["of_one_process"] = round(best[ONE]["learning"] / best[link]["learning"], 3)
        if NO_LIMIT in best and link in BARS:
            ratio = best[NO_LIMIT]["learning"] / best[link]["learning"]
            best[link] |= {"of_no_limit": round(ratio, 3), "bar": BARS[link]}
    print(name, json.dumps(best, indent=1), flush=True)
    return {"repeats": given.repeats, **best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=["skipgram, dim 50", "fasttext"], choices=list(CASES))
    parser.add_argument("--links", nargs="+", default=list(LINKS), choices=list(LINKS))
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    link_hosts()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            data = datasets(given.data, folder, {CASES[case][0] for case in given.cases})
            test = None
            if "fasttext" in given.cases:
                test = read(write_sets(given.data, folder, ["TripAdvisor"])["TripAdvisor"]["test"])
            with cluster() as address:
                for case in given.cases:
                    keep({"links": {case: play(case, given, address, folder, data, test)}})
    finally:
        unlink_hosts()


if __name__ == "__main__":
    main()
