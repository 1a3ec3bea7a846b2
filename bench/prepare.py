"""`manyhands prepare` beside other ways to do the same job, on the same reviews, in one run.

The whole job: read, normalise, de-duplicate with the mode of the ratings, count words, number
them, split, store. Of every contender, the time to start Python or Spark is left out.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from manyhands import sample
from measure import Measured, measure, save

PEERS = Path(__file__).parent / "peers"
OURS = "manyhands prepare"
SEED_WAY = "in the manner of Hadoop streaming: Python mapper, sort, reducer, h5py"
SPARK = "PySpark, local[*]"
LEAST_MB_PER_SECOND, LEAST_OVER_SEED, LEAST_OVER_SPARK = 80, 20, 10


def contenders(python: str, raw: Path, out: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Each way, as a command and its environment."""

    def peer(script: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        return [python, str(PEERS / script), str(raw), str(out)], environment

    return {
        OURS: ([sys.executable, str(PEERS / "manyhands_way.py"), str(raw), str(out)], {}),
        SEED_WAY: peer("seed_way.py", PROCESSES="1"),
        f"{SEED_WAY}; in two processes": peer("seed_way.py", PROCESSES="2"),
        SPARK: peer("spark_way.py"),
        "polars and Python tokens": peer("polars_way.py"),
        "polars alone": peer("polars_native_way.py"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True, help="the Python that has the peers' libraries")
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=2, help="rounds; the best of each contender counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        raw, out = Path(folder) / "raw.jsonl", Path(folder) / "out"
        sample(options.rows, raw)
        megabytes = raw.stat().st_size / 1e6
        print(f"{options.rows:,} reviews, {megabytes:.0f} MB", flush=True)
        best: dict[str, Measured] = {}
        rates: dict[str, float] = {}
        for _ in range(options.rounds):
            for name, (command, environment) in contenders(options.peers, raw, out).items():
                measured = measure(command, environment)
                shutil.rmtree(out)
                rate = megabytes / measured.printed["seconds"]
                if rate > rates.get(name, 0):
                    rates[name], best[name] = rate, measured
                print(f"{rate:8.1f} MB/s {measured.peak_bytes / 1e9:5.2f} GB  {name}", flush=True)
    report(options.rows, megabytes, rates, best)


def report(rows: int, megabytes: float, rates: dict[str, float], best: dict[str, Measured]) -> None:
    ours = rates[OURS]
    results = [
        {
            "way": name,
            "mb_per_second": round(rate, 1),
            "ours_is_faster_by": round(ours / rate, 1),
            "seconds": round(best[name].printed["seconds"], 2),
            "startup_seconds": round(best[name].printed["startup_seconds"], 2),
            "peak_gb": round(best[name].peak_bytes / 1e9, 2),
            "rows": best[name].printed["rows"],
        }
        for name, rate in rates.items()
    ]
    bars = {
        f"at least {LEAST_MB_PER_SECOND} MB/s": ours >= LEAST_MB_PER_SECOND,
        f"at least {LEAST_OVER_SEED} x the seed's way": ours >= LEAST_OVER_SEED * rates[SEED_WAY],
        f"at least {LEAST_OVER_SPARK} x PySpark": ours >= LEAST_OVER_SPARK * rates[SPARK],
    }
    if len({result["rows"] for result in results}) > 1:
        raise SystemExit(f"the contenders do not agree on the rows: {results}")
    for bar, reached in bars.items():
        print(f"{'reached' if reached else 'MISSED '}  {bar}")
    save("prepare", {"reviews": rows, "megabytes": round(megabytes), "results": results, "bars": bars})


if __name__ == "__main__":
    main()
