"""Running a contender: its wall time, the peak memory of all its processes, and what it printed last."""

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.machine import examine

RECORDS = Path(__file__).parent / "records"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_LOOKS = 0.25  # a look costs milliseconds, which the contender would miss


@dataclass(frozen=True)
class Measured:
    """One run of a program."""

    seconds: float
    peak_bytes: int
    printed: dict[str, Any]


def measure(command: list[str], environment: dict[str, str] | None = None) -> Measured:
    """Run ``command`` in a group of its own; it prints a JSON object as its last line."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak))
    watcher.start()
    out, err = process.communicate()
    seconds = time.monotonic() - began
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{err.decode()[-2000:]}")
    lines = out.decode().strip().splitlines()
    return Measured(seconds, peak[0], json.loads(lines[-1]))


def _watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], _group_bytes(process.pid))
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _group_bytes(group: int) -> int:
    """Resident bytes of every process of a group."""
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    total += int((folder / "statm").read_text().split()[1]) * PAGE_BYTES
            except (OSError, IndexError):  # it ended while we looked
                continue
    return total


def save(name: str, record: dict[str, Any]) -> None:
    """Keep what a benchmark found, with the machine it ran on."""
    facts = examine()
    machine = {key: facts[key] for key in ("python", "system", "cores", "memory_bytes")}
    versions = {part["name"]: part["version"] for part in facts["parts"] if not part["extra"]}
    RECORDS.mkdir(exist_ok=True)
    text = json.dumps({**record, "machine": machine, "versions": versions}, indent=1)
    (RECORDS / f"{name}.json").write_text(text + "\n")
    print(f"kept in {RECORDS.name}/{name}.json")
