"""What a worker of a crew does before it learns, and what it takes: with one, two and four workers.

Bytes of the dataset that a worker reads are the pages of its files that it has touched after an epoch; memory
is what belongs to it alone, without the tables of the model, which the workers of a machine share.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from classification_sets import write_sets
from manyhands.data.prepare.prepare import prepare
from manyhands.engines import local
from manyhands.engines.crew import FOLDER, STARTER, Crew
from manyhands.records import Resources, Silent
from manyhands.spread.allreduce import AllReduceExchange
from manyhands.spread.balance import Policy
from manyhands.spread.group import Group
from manyhands.training import learn as learning
from manyhands.training.job import job_for
from manyhands.training.splits import open_splits
from measure import RECORDS, save

WORKERS = (1, 2, 4)
MODELS = ("ngrams", "fasttext", "lstm")
SETTINGS: dict[str, dict[str, Any]] = {"lstm": {"max_length": 100}}
FACTS = ("cpu_seconds_before_first_step", "dataset_bytes_read", "private_peak_bytes")


def touched(name: str) -> int:
    """Bytes of mapped files of a folder that this process has touched."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = name in line
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def private_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


def work(model: str, data: str) -> None:
    """A worker's part."""
    facts: dict[str, Any] = {}
    began, fit = time.process_time(), learning.fit
    peak = [private_bytes()]

    def watched(*arguments: Any, **named: Any) -> Any:
        facts["cpu_seconds_before_first_step"] = round(time.process_time() - began, 3)
        return fit(*arguments, **named)

    learning.fit = watched
    job = job_for(model, {"epochs": 1, **SETTINGS.get(model, {})}, Resources(1, 8 << 30))
    splits = open_splits((data,), job, Silent())
    with Group(600.0) as group:
        exchange = AllReduceExchange(group, Policy())
        learning.learn(job, splits.train, None, exchange, Silent(), lambda _: peak.append(private_bytes()))
        facts["dataset_bytes_read"] = touched(data)
        facts["private_peak_bytes"] = max(peak)
        facts["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    Path(f"{data}.{os.environ['RANK']}.json").write_text(json.dumps(facts))


def crew(model: str, data: Path, workers: int) -> dict[str, Any]:
    """The most that any of the workers took."""
    module = Path(__file__)
    command = [*local.command(Crew(workers, "1", None, 0)), "-m", module.stem]
    command += ["--worker", model, "--data", str(data)]
    told = {FOLDER: str(data.parent), STARTER: str(os.getpid()), "PYTHONPATH": str(module.parent)}
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", **told})
    said = [json.loads(Path(f"{data}.{rank}.json").read_text()) for rank in range(workers)]
    return {name: max(facts[name] for facts in said) for name in FACTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--worker", choices=MODELS, help="be a worker of a crew")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, str(given.data))
        return 0
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_sets(given.data, folder, ["TripAdvisor"])["TripAdvisor"]["train"]
        prepare(str(source), folder / "dataset", valid=0, test=0)
        for model in given.models:
            crew(model, folder / "dataset", 1)  # compiles
            runs = {str(workers): crew(model, folder / "dataset", workers) for workers in WORKERS}
            for workers, facts in runs.items():
                facts["of_one"] = {name: round(facts[name] / max(runs["1"][name], 1e-9), 3) for name in FACTS}
                print(model, workers, json.dumps(facts), flush=True)
            found[model] = runs
    path = RECORDS / "crew_work.json"  # models that were not asked for keep what was measured before
    before = json.loads(path.read_text())["models"] if path.is_file() else {}
    save("crew_work", {"models": {**before, **found}})
    return 0


if __name__ == "__main__":
    main()
