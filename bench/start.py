"""What starting costs: CPU seconds of whole commands on a few rows, of a wheel in a new environment.

The wheel is built and installed here, so that no kernel and no bytecode of an earlier run is found. The
first round is cold; then each command is run some times more, and the best counts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import save

ROOT = Path(__file__).parents[1]
ROWS = 100
MOST_COLD = 6.0
MOST_WARM = {"help": 0.3, "predict": 0.9, "prepare": 1.5, "train": 1.5}


def cpu_seconds(command: list[str], folder: Path) -> float:
    """Of a process and all that it started and waited for."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "numba"), "PYTHONPATH": ""}
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=folder,
            env=environment,
        )
        if process.stdin:
            process.stdin.write(b"good book\n")
            process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'errors').read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def install(folder: Path, wheel: Path | None) -> Path:
    """The program of a new environment that has the wheel."""
    constraints = str(ROOT / "constraints.txt")
    pip = [sys.executable, "-m", "pip"]
    if wheel is None:
        command = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
        subprocess.run(command, check=True, env={**os.environ, "PIP_CONSTRAINT": constraints})
        (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    new = str(folder / "venv" / "bin" / "python")
    subprocess.run([new, "-m", "pip", "install", "--quiet", "-c", constraints, str(wheel)], check=True)
    return folder / "venv" / "bin" / "manyhands"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--wheel", type=Path, help="one that is built already")
    arguments.add_argument("--times", type=int, default=5)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = str(install(folder, chosen.wheel))
        reviews = folder / "reviews.jsonl"
        subprocess.run([program, "sample", "--rows", str(ROWS), "--out", str(reviews)], check=True)
        # Of what ``sample`` has compiled, nothing may be left.
        commands = {
            "prepare": [program, "prepare", str(reviews), "--out", "data", "--overwrite"],
            "train": [program, "train", "data", "--out", "model", "--overwrite"],
            "predict": [program, "predict", "model"],
            "help": [program, "--help"],
        }
        subprocess.run(["rm", "-rf", str(folder / "numba")], check=True)
        cold = {name: cpu_seconds(command, folder) for name, command in commands.items()}
        warm = {
            name: min(cpu_seconds(command, folder) for _ in range(chosen.times))
            for name, command in commands.items()
        }
        compiled = len(list(folder.glob("numba/**/*.nbc")))
    together = sum(cold[name] for name in ("prepare", "train", "predict"))
    for name, seconds in warm.items():
        print(f"{name:8} warm {seconds:5.2f} s (bar {MOST_WARM[name]}), cold {cold[name]:5.2f} s")
    print(f"cold prepare + train + predict: {together:.2f} s (bar {MOST_COLD}); compiled here: {compiled}")
    save(
        "start",
        {
            "rows": ROWS,
            "cold_cpu_seconds": cold,
            "cold_together_cpu_seconds": together,
            "warm_cpu_seconds": warm,
            "bars": {"cold_together": MOST_COLD, "warm": MOST_WARM},
            "kernels_compiled": compiled,
        },
    )


if __name__ == "__main__":
    main()
