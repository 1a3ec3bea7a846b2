"""How many planted label errors ``audit`` finds: of the rows that it lists, as many as were planted.

Five in a hundred rows get another label, drawn at random. How ``audit`` judges was chosen on other sets:
see docs/explanation/decisions/0024-audit.md.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from classification_sets import write_sets
from manyhands.auditing.audit import audit
from measure import save

SETS = ("IMDB", "AG News")
SEEDS = (1, 2, 3)
PLANTED_SHARE, LEAST_PRECISION = 0.05, 0.75


def plant(lines: list[str], seed: int) -> tuple[list[str], set[int]]:
    """The same rows with some labels changed, and the numbers of the lines, from 1, on which they stand."""
    pairs = [line.split(" ", 1) for line in lines]
    names = sorted({label for label, _ in pairs})
    random = np.random.default_rng(seed)
    rows = random.choice(len(lines), round(PLANTED_SHARE * len(lines)), replace=False)
    for row, step in zip(rows.tolist(), random.integers(1, len(names), len(rows)).tolist(), strict=True):
        pairs[row][0] = names[(names.index(pairs[row][0]) + step) % len(names)]
    return [" ".join(pair) for pair in pairs], {row + 1 for row in rows.tolist()}


def listed(path: Path, count: int) -> tuple[set[int], float]:
    found = audit(path)
    return {suspect.line for suspect in found.suspicious.listed({}, count)}, found.seconds


def measured(clean: Path, folder: Path) -> dict[str, Any]:
    """What is found with every seed."""
    lines, noisy = clean.read_text("utf-8").splitlines(), folder / "noisy.txt"
    runs = []
    for seed in SEEDS:
        changed, planted = plant(lines, seed)
        noisy.write_text("\n".join(changed) + "\n", "utf-8")
        found, seconds = listed(noisy, len(planted))
        runs.append(
            {
                "seed": seed,
                "planted": len(planted),
                "found": len(found & planted),
                "seconds": round(seconds, 1),
            }
        )
        print(json.dumps(runs[-1]), flush=True)
    return {
        "rows": len(lines),
        "precision": mean(run["found"] / run["planted"] for run in runs),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real review sets")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"the real review sets are not here (looked in {options.data})")
    results = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tiny = Path(folder) / "tiny.txt"  # compiles the kernels
        tiny.write_text("".join(f"__label__{n % 2} word{n % 7} word{n % 2}\n" for n in range(200)))
        audit(tiny)
        for name in SETS:
            files = write_sets(options.data, Path(folder), [name])[name]
            results[name] = measured(files["train"], Path(folder))
            reached = results[name]["precision"] >= LEAST_PRECISION
            print("reached" if reached else "MISSED ", name, f"{results[name]['precision']:.3f}", flush=True)
    save("audit", {"planted_share": PLANTED_SHARE, "results": results})


if __name__ == "__main__":
    main()
