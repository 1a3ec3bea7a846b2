"""Random rows from the store, on one core, beside rows in the seed's chunks of one row each."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from manyhands import prepare, sample
from manyhands.data.export import export
from measure import save

ROWS = 400_000
BATCH = 1024
LEAST_PER_SECOND = 500_000
LENGTH = 100


def rate(function: Callable[[np.ndarray], object], orders: list[np.ndarray]) -> float:  # type: ignore[type-arg]
    """Rows a second; the best of the orders, the first of which also warms up."""
    best = 0.0
    for order in orders:
        began = time.perf_counter()
        for start in range(0, len(order), BATCH):
            function(order[start : start + BATCH])
        best = max(best, len(order) / (time.perf_counter() - began))
    return best


def main() -> None:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        raw = Path(folder) / "raw.jsonl"
        sample(ROWS, raw)
        dataset = prepare(str(raw), Path(folder) / "data", vocabulary_size=10_000)
        train = dataset["train"]
        orders = [random.permutation(len(train)) for _ in range(4)]
        export(dataset, Path(folder) / "wide.h5", length=LENGTH, parts=1)
        with h5py.File(Path(folder) / "wide.h5") as wide, h5py.File(Path(folder) / "seed.h5", "w") as seed:
            chunked = seed.create_dataset("rows", data=wide["0"][:20_000], chunks=(1, LENGTH + 1))
            few = [random.integers(0, 20_000, 2_000) for _ in range(2)]
            rates = {
                "batches gathered: split.take(rows)": rate(train.take, orders),
                "views, nothing copied: split[row]": rate(
                    lambda rows: [train[row] for row in rows.tolist()], orders
                ),
                "h5py, chunks of one row": rate(lambda rows: [chunked[row] for row in rows.tolist()], few),
            }
    for name, found in rates.items():
        print(f"{found:12,.0f} rows/s  {name}")
    ours = list(rates.values())[:2]
    reached = min(ours) >= LEAST_PER_SECOND
    print(f"{'reached' if reached else 'MISSED '}  at least {LEAST_PER_SECOND:,} rows a second a core")
    results = [{"way": name, "rows_per_second": round(found)} for name, found in rates.items()]
    save("rows", {"results": results, "bars": {f"at least {LEAST_PER_SECOND:,} a second a core": reached}})


if __name__ == "__main__":
    main()
