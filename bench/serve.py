"""``manyhands serve`` beside FastAPI + fastText, by wrk on the same machine; then more load than it can hold.

One text a request: the reviews of IMDB's test set, normalised for both. Each service is one process, trained
on the same rows; they are measured by turns, and the best of several rounds counts. CPU seconds a request are
those of the service's own process, which other programs on the machine hardly change.

Half load: wrk knows no rate, so each of 64 clients waits between an answer and its next request, for a random
time whose mean is chosen so that half as many requests come as the service could answer. Overload: twice as
many clients as the service takes requests at a time, for minutes; four more clients compare every answer with
what the model says, and resident memory is looked at every second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.services import Running, ask

from classification_sets import write_sets
from manyhands.bundle.bundle import load_bundle
from manyhands.run.train import train
from manyhands.serve.settings import LimitSettings
from measure import PAGE_BYTES, save

CLIENTS = (1, 8, 64)
TEXTS = 1000
PEER = Path(__file__).parent / "peers" / "serve_fasttext.py"
SCRIPT = Path(__file__).parent / "serve.lua"
TICKS = os.sysconf("SC_CLK_TCK")
LEAST_RATIO, MOST_P99_MS, MOST_GROWTH = 2.0, 5.0, 0.05
WARM_UP_SECONDS = 60.0
LEAST_HALF = 0.45  # of the most: what still counts as half load
CHECKERS = 4
FAULTS = ("not_2xx", "connect_errors", "read_errors", "write_errors", "timeouts")


class Peer:
    """FastAPI + fastText."""

    def __init__(self, model: Path, port: int) -> None:
        self.port = port
        self.process = subprocess.Popen([sys.executable, str(PEER), str(model), str(port)])

    def wait(self) -> None:
        body = json.dumps({"texts": ["good"]})
        command = ["curl", "-sf", "-d", body, "-H", "Content-Type: application/json"]
        while subprocess.run(
            [*command, f"127.0.0.1:{self.port}/predict"], capture_output=True, check=False
        ).returncode:
            if self.process.poll() is not None:
                raise SystemExit("the peer has ended")
            time.sleep(0.2)


def train_peer(text: Path, out: Path) -> None:
    """fastText with the settings of its own tutorial for reviews."""
    import fasttext

    model = fasttext.train_supervised(str(text), wordNgrams=2, epoch=5, lr=0.25, dim=10, thread=2, verbose=0)
    model.save_model(str(out))


def write_bodies(text: Path, out: Path) -> list[str]:
    lines = text.read_text("utf-8").splitlines()[:TEXTS]
    texts = [line.partition(" ")[2] for line in lines]
    out.write_text("".join(json.dumps({"texts": [one]}) + "\n" for one in texts), "utf-8")
    return texts


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wrk(
    pid: int, port: int, bodies: Path, clients: int, seconds: float, **settings: object
) -> dict[str, Any]:
    before = cpu_seconds(pid)
    environment = {**os.environ, "BODIES": str(bodies), **{k: str(v) for k, v in settings.items()}}
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "10s", "-s", str(SCRIPT)]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    found["requests_per_second"] = found["requests"] / found["seconds"]
    found["cpu_us_per_request"] = 1e6 * (cpu_seconds(pid) - before) / max(found["requests"], 1)
    return found


def compare(
    services: dict[str, tuple[int, int]], bodies: Path, seconds: float, rounds: int
) -> dict[str, Any]:
    """Requests a second and latency of each service at each number of clients: the best of the rounds."""
    best: dict[str, dict[str, Any]] = {name: {} for name in services}
    for turn in range(rounds):
        for clients in CLIENTS:
            for name, (pid, port) in services.items():
                found = wrk(pid, port, bodies, clients, seconds)
                if any(found[fault] for fault in FAULTS):
                    raise SystemExit(f"{name} with {clients} clients: {found}")
                print(f"round {turn + 1}, {clients} clients, {name}: {told(found)}", flush=True)
                old = best[name].get(str(clients))
                if old is None or found["requests_per_second"] > old["requests_per_second"]:
                    best[name][str(clients)] = found
    return best


def told(found: dict[str, Any]) -> str:
    return (
        f"{found['requests_per_second']:,.0f} requests/s, p50 {found['p50_ms']:.2f} ms, "
        f"p99 {found['p99_ms']:.2f} ms, {found['cpu_us_per_request']:.0f} us of CPU a request"
    )


def half_load(pid: int, port: int, bodies: Path, most: float, seconds: float, rounds: int) -> dict[str, Any]:
    """The best of the rounds that came near to half of what the service could answer."""
    clients, found_all = CLIENTS[-1], []
    pause = 1000 * clients / (most / 2)
    for _ in range(rounds):
        found = wrk(pid, port, bodies, clients, seconds, DELAY=pause)
        found["share_of_most"] = found["requests_per_second"] / most
        print(f"half load ({found['share_of_most']:.2f} of the most): {told(found)}", flush=True)
        found_all.append(found)
        pause *= found["share_of_most"] / 0.5  # answers take time too
    near = [found for found in found_all if found["share_of_most"] >= LEAST_HALF]
    if near:
        return min(near, key=lambda found: found["p99_ms"])
    return max(found_all, key=lambda found: found["share_of_most"])


def overload(
    service: Running, bundle: Path, texts: list[str], bodies: Path, minutes: float
) -> dict[str, Any]:
    """Twice as many clients as the service takes requests, for minutes."""
    clients, expected = 2 * LimitSettings().max_requests, load_bundle(bundle).predict(texts)
    stop, checked, wrong, came_back = threading.Event(), [0], [0], [0]
    memory: list[int] = []

    def check(number: int) -> None:
        connection, place = service.connect(), number
        while not stop.is_set():
            reply = ask(connection, "POST", "/predict", {"texts": [texts[place % TEXTS]]})
            if reply.status == 503:
                came_back[0] += 1
                wrong[0] += int(reply.headers["retry-after"]) < 1
                time.sleep(0.05)
                continue
            row, (label, score) = reply.json()["predictions"][0], expected[place % TEXTS][0]
            wrong[0] += row["labels"] != [label] or abs(row["scores"][0] - score) > 1e-5
            checked[0] += 1
            place += CHECKERS

    def watch() -> None:
        while not stop.wait(1.0):
            pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
            memory.append(int(pages) * PAGE_BYTES)

    threads = [threading.Thread(target=check, args=(n,)) for n in range(CHECKERS)]
    threads.append(threading.Thread(target=watch))
    for one in threads:
        one.start()
    found = wrk(service.process.pid, service.port, bodies, clients, 60 * minutes, COUNT=1)
    stop.set()
    for one in threads:
        one.join()
    start = min(int(WARM_UP_SECONDS), len(memory) // 4)
    first, last = max(memory[start : start + 10]), max(memory[-10:])
    return {
        **found,
        "clients": clients,
        "minutes": minutes,
        "checked": checked[0],
        "wrong": wrong[0],
        "checkers_told_to_come_back": came_back[0],
        "memory_bytes": [first, last],
        "growth": last / first - 1,
        "alive": service.process.poll() is None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--peer-port", type=int, default=8097)
    parser.add_argument("--note", default="", help="What the record says of the machine.")
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_sets(chosen.data, folder, ["IMDB"])["IMDB"]
        texts = write_bodies(files["test"], folder / "bodies.jsonl")
        train(files["train"], folder / "imdb", format="labelled", threads=2)
        train_peer(files["train"], folder / "peer.bin")
        service, peer = Running(folder / "imdb"), Peer(folder / "peer.bin", chosen.peer_port)
        try:
            record = measure_all(service, peer, folder, texts, chosen)
        finally:
            service.process.kill()
            peer.process.kill()
    print(json.dumps(record, indent=1))
    if not chosen.no_record:
        save("serve", record)


def measure_all(
    service: Running, peer: Peer, folder: Path, texts: list[str], chosen: argparse.Namespace
) -> dict[str, Any]:
    peer.wait()
    bodies, ours = folder / "bodies.jsonl", (service.process.pid, service.port)
    services = {"manyhands": ours, "fastapi + fasttext": (peer.process.pid, peer.port)}
    found = compare(services, bodies, chosen.seconds, chosen.rounds)
    peer.process.kill()
    top, other = found["manyhands"]["64"], found["fastapi + fasttext"]["64"]
    ratio = top["requests_per_second"] / other["requests_per_second"]
    half = half_load(*ours, bodies, top["requests_per_second"], chosen.seconds, chosen.rounds)
    much = overload(service, folder / "imdb", texts, bodies, chosen.minutes)
    faults = ("wrong", "other", "refused_without_time", "connect_errors", "read_errors", "write_errors")
    sound = much["alive"] and not any(much[fault] for fault in faults)
    bars = {
        f"at least {LEAST_RATIO:g} times the requests/s at 64 clients": ratio >= LEAST_RATIO,
        f"p99 at half load at most {MOST_P99_MS:g} ms": half["p99_ms"] <= MOST_P99_MS,
        "overload: no wrong answer, no crash, every 503 says when to retry": sound,
        f"overload: memory grows by at most {MOST_GROWTH:.0%}": much["growth"] <= MOST_GROWTH,
    }
    return {
        "services": found,
        "ratio_at_64": ratio,
        "cpu_ratio_at_64": other["cpu_us_per_request"] / top["cpu_us_per_request"],
        "half_load": half,
        "overload": much,
        "bars": bars,
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "note": chosen.note,
    }


if __name__ == "__main__":
    main()
