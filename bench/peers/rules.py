"""What all peers of `manyhands prepare` share: the rules of the job, the command line and the clock.

The rules are here once so that the peers differ only in how they do the work, and so that their row and
token counts must agree. The Spark peer cannot run Python per token and states the same rules in its own
expressions; its counts against the others are the check.
"""

import argparse
import json
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import AnyStr

TOKEN = re.compile(r"\w+(?:'\w+)*|[^\w\s]")
RATINGS = (1, 2, 3, 4, 5)
LOWEST_GOOD_RATING = 4
SPLITS = ("train", "valid", "test")
PAD_ID, UNKNOWN_ID, FIRST_WORD_ID = 1, 2, 3
VOCABULARY_SIZE = 10_000


@dataclass(frozen=True)
class Stored:
    """What a peer left on disk; `tokens_before_cut` differs from `tokens` only where rows are cut."""

    rows: int
    tokens: int
    tokens_before_cut: int


def normalise(text: str) -> str:
    """The words and marks of a text, lower-case, with one space between: equal reviews become equal strings.

    >>> normalise("Don’t go.Bad!")
    "don't go . bad !"
    """
    return " ".join(TOKEN.findall(text.lower().replace("’", "'")))


def split_of(text: bytes) -> int:
    """The split (0 train, 1 valid, 2 test) of a normalised text: 80/10/10, the same in every process."""
    return max(zlib.crc32(text) % 10 - 7, 0)


def mode(ratings: list[int]) -> int:
    """The most frequent rating; of equally frequent ones the nearest to the mean, then the lower.

    >>> mode([5, 1, 5]), mode([1, 4, 5]), mode([5, 1])
    (5, 4, 1)
    """
    # Distances are multiplied by the count, so they stay whole numbers and equal ones compare equal.
    count, total = len(ratings), sum(ratings)
    return min(set(ratings), key=lambda rating: (-ratings.count(rating), abs(rating * count - total), rating))


def vocabulary(counts: Counter[AnyStr]) -> dict[AnyStr, int]:
    """Ids of the most frequent words; of equally frequent ones the first in the order of code points."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:VOCABULARY_SIZE]
    return {word: number for number, word in enumerate(ranked, FIRST_WORD_ID)}


def seconds_since_start() -> float:
    """Seconds since the operating system started this process: imports cannot be timed from inside them."""
    # The process name in brackets may hold spaces; the start time is the 20th field after it.
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def arguments(description: str | None) -> tuple[Path, Path]:
    """The input file and the output folder from the command line; the folder exists afterwards."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("input", type=Path, help="reviews, one JSON object a line")
    parser.add_argument("output", type=Path, help="folder for the prepared rows")
    parsed = parser.parse_args()
    if not parsed.input.is_file():
        parser.error(f"{parsed.input} is not a file; give the path of a JSON-lines file of reviews")
    parsed.output.mkdir(parents=True, exist_ok=True)
    return parsed.input, parsed.output


def timed(job: Callable[[], Stored]) -> dict[str, float]:
    """Run a job; what it stored and the seconds it took, apart from those of starting up."""
    startup_seconds = seconds_since_start()
    began = time.perf_counter()
    stored = job()
    seconds = time.perf_counter() - began
    return {**asdict(stored), "seconds": round(seconds, 3), "startup_seconds": round(startup_seconds, 3)}


def report(result: dict[str, float]) -> None:
    """Print a result as the last line of stdout."""
    sys.stdout.write(json.dumps(result) + "\n")
