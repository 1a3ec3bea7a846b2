"""What ``plan`` predicts beside what is measured: every spread, one and two workers, and over a slow link.

Each prediction is made from a probe of this machine alone, before anything is measured; runs are in turn, and
the best of several counts. On a link there are two machines in network namespaces, of one worker and one
thread each, and the loop alone is compared: how long engines take to start on several machines, a probe of
one cannot tell. Needs root.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.clusters import spark_home

from classification_sets import write_sets
from hosts import HOSTS, PORT, link_hosts, shaped, unlink_hosts
from links import LINKS
from manyhands.data.prepare.prepare import prepare
from manyhands.machine import cores
from manyhands.plan.calibrate import Calibration, Run
from manyhands.plan.choose import frontier, options_of
from manyhands.plan.cluster import Cluster, Group
from manyhands.plan.costs import CPU
from manyhands.plan.plan import PROBED
from manyhands.plan.probe import Probe, probe, this_machine
from manyhands.plan.work import Work
from manyhands.run.train import train
from measure import save
from server_links import cluster as ray_cluster
from server_links import over

SLOW = "100 Mbit/s"
SLOW_GBPS = 0.1
MODELS: dict[str, tuple[int, dict[str, Any]]] = {  # rows, and settings
    "fasttext": (200_000, {"epochs": 4}),
    "lstm": (20_000, {"epochs": 1, "max_length": 100}),
}
SPREADS = {
    "single": "threads",
    "allreduce": "workers",
    "server": "workers",
    "average": "partitions",
}
WITHIN, MOST = 0.15, 0.35
START_SECONDS = 120


def datasets(data: Path, folder: Path) -> dict[str, Path]:
    """Of each model, so many rows of hotel reviews, prepared, without rows to validate by."""
    text = write_sets(data, folder, ["TripAdvisor"])["TripAdvisor"]["train"]
    lines = text.read_text("utf-8").splitlines(keepends=True)
    out = {}
    for model, (rows, _) in MODELS.items():
        part = folder / f"{model}.txt"
        part.write_text("".join(lines[:rows]), "utf-8")
        out[model] = folder / model
        prepare(str(part), out[model], valid=0, test=0)
    return out


def here(workers: int, threads: int) -> Cluster:
    return Cluster((Group(this_machine(), 1, workers, CPU, threads),))


def apart() -> Cluster:
    """Two machines of one core, over the slow link."""
    one = replace(this_machine(), name="half of this machine", vcpus=1, network_gbps=SLOW_GBPS)
    return Cluster((Group(one, 2),))


def run_here(data: Path, model: str, spread: str, count: int, settings: dict[str, Any]) -> float:
    """Seconds of a training on this machine."""
    threads = count if spread == "single" else 1
    counted = {} if spread == "single" else {SPREADS[spread]: count}
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        train(data, Path(folder, "run"), model=model, spread=spread, threads=threads, **counted, **settings)
        return time.monotonic() - began


def options(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def crew_apart(data: Path, home: Path, model: str, number: int, settings: dict[str, Any]) -> float:
    """Seconds of the loop of two machines of a crew."""
    runs = []
    for host in HOSTS:
        command = ["ip", "netns", "exec", host, sys.executable, "-m", "manyhands", "train", str(data)]
        command += ["--out", str(home / f"{host}-{number}"), "--overwrite", "--json", "--model", model]
        command += [*options(settings), "--spread", "allreduce", "--workers", "1", "--nodes", "2"]
        command += ["--threads", "1", "--rendezvous", f"{HOSTS['mha']}:{PORT + number}"]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=1800) for process in runs]
    written = [out for out, _ in said if out.startswith("{")]
    if not written:
        raise SystemExit("\n".join(err[-2000:] for _, err in said))
    return float(json.loads(written[0])["learning_seconds"])


def server_apart(data: Path, home: Path, model: str, address: str, settings: dict[str, Any]) -> float:
    words = [*options(settings), "--threads", "1", "--spread", "server", "--workers", "2"]
    words += ["--shards", str(len(HOSTS))]
    found = over(SLOW, data, home / "server", model, [*words, "--address", address])
    return float(found["learning"])


def average_apart(data: Path, home: Path, model: str, settings: dict[str, Any]) -> float:
    """Spark's own cluster on both machines, its driver on the first."""
    program, deploy = str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy"
    address = f"spark://{HOSTS['mha']}:7077"
    started = []
    os.environ |= {"SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    try:
        master = [program, f"{deploy}.master.Master", "--host", HOSTS["mha"], "--port", "7077"]
        started.append(start_on("mha", [*master, "--webui-port", "0"], home / "master.log"))
        wait_for(home / "master.log", "I have been elected leader", 1)
        for host, ip in HOSTS.items():
            worker = [program, f"{deploy}.worker.Worker", "--host", ip, "-c", "1", "-m", "2g"]
            worker += ["--work-dir", str(home / host), "--webui-port", "0", address]
            started.append(start_on(host, worker, home / f"{host}.log"))
        wait_for(home / "master.log", "Registering worker", len(HOSTS))
        command = ["ip", "netns", "exec", "mha", sys.executable, "-m", "manyhands", "train", str(data)]
        command += ["--out", str(home / "average"), "--overwrite", "--json", "--model", model]
        command += [*options(settings), "--spread", "average", "--partitions", "2", "--master", address]
        command += ["--spark-conf", f"spark.driver.host={HOSTS['mha']}"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=1800, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        return float(json.loads(done.stdout)["learning_seconds"])
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_for(log: Path, words: str, times: int) -> None:
    """Until a log has these words so often: on a busy machine that takes its time."""
    ends = time.monotonic() + START_SECONDS
    while log.read_text().count(words) < times:
        if time.monotonic() > ends:
            raise SystemExit(f"{log.name} did not say '{words}' in {START_SECONDS} s")
        time.sleep(0.5)


def start_on(host: str, command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen(["ip", "netns", "exec", host, *command], stdout=file, stderr=file)


def catalogue_seconds() -> float:
    """Seconds to predict 64 sizes of 1,000 kinds of machines, and to find the frontier."""
    work = Work(rows=1e6, epochs=5, batch=1000, exchange_bytes=1e6)
    kinds = [
        replace(this_machine(), name=f"kind {n}", price=0.1 + n / 1000, vcpus=2 + n % 64) for n in range(1000)
    ]
    known = Calibration([Run(work, here(1, 1), 5000.0)], PROBED)
    began = time.monotonic()
    frontier(options_of(known, work, kinds, range(1, 65), on_devices=False))
    return time.monotonic() - began


class Cases:
    """What was predicted, and what was then measured."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def note(self, name: str, predicted: Any, measured: list[float]) -> None:
        best = min(measured)
        case = {
            "case": name,
            "predicted": round(predicted.seconds, 2),
            "from": round(predicted.low, 2),
            "to": round(predicted.high, 2),
            "measured": round(best, 2),
            "off": round(predicted.seconds / best - 1, 3),
        }
        self.found.append(case)
        print(json.dumps(case), flush=True)

    def summary(self) -> dict[str, Any]:
        off = [abs(case["off"]) for case in self.found]
        return {
            "cases": len(off),
            "within_15_percent": round(sum(each <= WITHIN for each in off) / len(off), 3),
            "worst": max(off),
            "mean": round(statistics.mean(off), 3),
            "in_range": round(
                sum(case["from"] <= case["measured"] <= case["to"] for case in self.found) / len(off), 3
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--spreads", nargs="+", default=list(SPREADS), choices=list(SPREADS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--link-repeats", type=int, default=1, help="0: no links")
    given = parser.parse_args()
    cases, probes, catalogue = Cases(), {}, round(catalogue_seconds(), 2)
    print(f"a catalogue of 1,000 kinds and 64 sizes: {catalogue} s", flush=True)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        data = datasets(given.data, home)
        for model in given.models:
            settings = MODELS[model][1]
            for spread in given.spreads:
                made = probe(str(data[model]), model=model, spread=spread, **settings)
                print(f"{model}, {spread}: probe took {made.seconds:.1f} s", flush=True)
                probes[model, spread] = made, Calibration(made.runs, PROBED)
                for count in sorted({1, cores()}):
                    threads = count if spread == "single" else 1
                    where = here(1 if spread == "single" else count, threads)
                    predicted = probes[model, spread][1].predict(made.work, [where])[0]
                    taken = [
                        run_here(data[model], model, spread, count, settings) for _ in range(given.repeats)
                    ]
                    cases.note(f"{model}, {spread}, {count}", predicted, taken)
        if given.link_repeats:
            _links(given, home, data, probes, cases)
    probing = {f"{m}, {s}": round(made.seconds, 1) for (m, s), (made, _) in probes.items()}
    print(json.dumps(cases.summary()))
    facts = {"repeats": given.repeats, "link_repeats": given.link_repeats, **cases.summary()}
    save("plan", {**facts, "catalogue_seconds": catalogue, "probes": probing, "runs": cases.found})


def _links(
    given: Any, home: Path, data: dict[str, Path], probes: dict[Any, tuple[Probe, Calibration]], cases: Cases
) -> None:
    link_hosts()
    try:
        if not all(shaped(host, LINKS[SLOW]) for host in HOSTS):
            raise SystemExit(f"this kernel cannot shape a link: {LINKS[SLOW]}")
        number = 0
        for model in given.models:
            settings = MODELS[model][1]
            for spread in [spread for spread in given.spreads if spread != "single"]:
                made, calibration = probes[model, spread]
                work = replace(made.work, loop_only=True, shards=len(HOSTS))
                predicted = calibration.predict(work, [apart()])[0]
                taken = []
                for _ in range(given.link_repeats):
                    number += 1
                    if spread == "allreduce":
                        taken.append(crew_apart(data[model], home, model, number, settings))
                    elif spread == "server":
                        with ray_cluster() as address:
                            taken.append(server_apart(data[model], home, model, address, settings))
                    else:
                        taken.append(average_apart(data[model], home, model, settings))
                cases.note(f"{model}, {spread}, 2 machines, {SLOW}", predicted, taken)
    finally:
        unlink_hosts()


if __name__ == "__main__":
    main()
