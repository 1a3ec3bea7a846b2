"""`manyhands prepare --engine spark` beside other ways to do the same with Spark on two cores, in one run.

The whole job: read, normalise, de-duplicate with the mode of the ratings, count words, number them, split,
store. Of every contender, the time to start Python and Spark is left out. Then the same bytes: the local
engine beside Spark with several numbers of partitions, on these reviews and, where they are, on real ones.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from manyhands import prepare, sample
from manyhands.data.prepare.spark import ranges
from manyhands.engines.spark import spark
from measure import Measured, measure, save

PEERS = Path(__file__).parent / "peers"
OURS = "manyhands prepare --engine spark"
SEED_WAY = "Python mapper and reducer over an RDD"
WAYS = {
    OURS: "manyhands_spark_way.py",
    SEED_WAY: "spark_rdd_way.py",
    "DataFrames with Python UDFs": "spark_udf_way.py",
    "DataFrames, all in the JVM but the ids": "spark_way.py",
    "manyhands prepare, without Spark": "manyhands_way.py",
}
PARTITIONS = (1, 2, 7, 64)
SMALL_ROWS = 100_000
LEAST_OVER_SEED = 5
REAL = ("reviews/tripadvisor_60k.jsonl.zst", "reviews/amazon/*.json.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_500_000)
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the best of each contender counts")
    parser.add_argument("--data", type=Path, help="folder with real reviews")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        raw, out = Path(name) / "raw.jsonl", Path(name) / "out"
        sample(options.rows, raw)
        megabytes = raw.stat().st_size / 1e6
        print(f"{options.rows:,} reviews, {megabytes:.0f} MB", flush=True)
        best = race(raw, out, megabytes, options.rounds)
        sample(SMALL_ROWS, small := Path(name) / "small.jsonl")
        identical = {"synthetic": same_bytes([str(small)], Path(name))}
        real = (
            [str(path) for pattern in REAL for path in sorted(options.data.glob(pattern))]
            if options.data
            else []
        )
        if real:
            identical["real"] = same_bytes(real, Path(name))
    report(options.rows, megabytes, best, identical)


def race(raw: Path, out: Path, megabytes: float, rounds: int) -> dict[str, Measured]:
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        for name, script in WAYS.items():
            # Executors import the peers' rules from there.
            command = [sys.executable, str(PEERS / script), str(raw), str(out)]
            measured = measure(command, {"PYTHONPATH": str(PEERS)})
            shutil.rmtree(out)
            if name not in best or measured.printed["seconds"] < best[name].printed["seconds"]:
                best[name] = measured
            rate = megabytes / measured.printed["seconds"]
            print(f"{rate:8.1f} MB/s {measured.peak_bytes / 1e9:5.2f} GB  {name}", flush=True)
    return best


def same_bytes(sources: list[str], folder: Path) -> dict[str, bool]:
    """Whether every file is the same, for each number of partitions."""
    settings = {"max_rejected": 1.0, "overwrite": True}
    local = prepare(sources, folder / "local", **settings).folder
    ranges.LEAST_BYTES = 1 << 16  # so that small files are cut as well
    found = {}
    with spark("local[2]", [], "bench"):
        for partitions in PARTITIONS:
            made = prepare(
                sources, folder / "spark", engine="spark", partitions=partitions, **settings
            ).folder
            names = sorted(path.name for path in local.iterdir())
            same = names == sorted(path.name for path in made.iterdir()) and all(
                (local / name).read_bytes() == (made / name).read_bytes() for name in names
            )
            found[str(partitions)] = same
            print(f"{'same bytes' if same else 'DIFFERENT '}  {partitions} partitions", flush=True)
    return found


def report(
    rows: int, megabytes: float, best: dict[str, Measured], identical: dict[str, dict[str, bool]]
) -> None:
    ours = best[OURS].printed["seconds"]
    results = [
        {
            "way": name,
            "mb_per_second": round(megabytes / run.printed["seconds"], 1),
            "ours_is_faster_by": round(run.printed["seconds"] / ours, 1),
            "seconds": round(run.printed["seconds"], 2),
            "startup_seconds": round(run.printed["startup_seconds"], 2),
            "peak_gb": round(run.peak_bytes / 1e9, 2),
            "rows": run.printed["rows"],
        }
        for name, run in best.items()
    ]
    if len({result["rows"] for result in results}) > 1:
        raise SystemExit(f"the contenders do not agree on the rows: {results}")
    bars = {
        f"at least {LEAST_OVER_SEED} x the seed's way": best[SEED_WAY].printed["seconds"]
        >= LEAST_OVER_SEED * ours,
        "the same bytes in any number of partitions": all(
            all(found.values()) for found in identical.values()
        ),
    }
    for bar, reached in bars.items():
        print(f"{'reached' if reached else 'MISSED '}  {bar}")
    record = {"reviews": rows, "megabytes": round(megabytes), "results": results}
    save("spark", {**record, "identical": identical, "bars": bars})


if __name__ == "__main__":
    main()
