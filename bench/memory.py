"""Four gigabytes of input within one gigabyte of memory: the same dataset, byte for byte, as with eight."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from manyhands import open_dataset, sample
from measure import save

BYTES_A_ROW = 409  # of synthetic reviews
MOST_RESIDENT_BYTES = 1.6e9


def run(raw: Path, out: Path, memory: str) -> tuple[float, int]:
    """Seconds, and the peak of resident bytes as the system counted them."""
    command = [sys.executable, "-m", "manyhands", "prepare", str(raw), "--out", str(out), "--memory", memory]
    began = time.monotonic()
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"prepare --memory {memory} failed")
    return time.monotonic() - began, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        raw = Path(folder) / "raw.jsonl"
        sample(int(options.gigabytes * 1e9 / BYTES_A_ROW) + 1, raw)
        size = raw.stat().st_size
        results, contents = [], []
        for memory in ("1GB", "8GB"):
            out = Path(folder) / memory
            seconds, peak = run(raw, out, memory)
            open_dataset(out).verify()
            contents.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
            results.append(
                {
                    "memory": memory,
                    "peak_gb": round(peak / 1e9, 2),
                    "seconds": round(seconds, 1),
                    "mb_per_second": round(size / 1e6 / seconds, 1),
                }
            )
            print(results[-1], flush=True)
    bars = {
        "4 GB within 1.6 GB resident": results[0]["peak_gb"] * 1e9 <= MOST_RESIDENT_BYTES,
        "the same bytes with 1 GB and with 8 GB": contents[0] == contents[1],
    }
    for bar, reached in bars.items():
        print(f"{'reached' if reached else 'MISSED '}  {bar}")
    save("memory", {"gigabytes": round(size / 1e9, 2), "results": results, "bars": bars})


if __name__ == "__main__":
    main()
