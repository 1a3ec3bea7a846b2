"""A scaling study in figures: what more workers gain and what they cost, from the records of its runs."""

from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from manyhands.report.profile import from_record


@dataclass(frozen=True)
class Run:
    """One run of a study. ``seconds`` is the whole run, including the start of its processes."""

    folder: str
    workers: int
    number: int  # of the repeats, from 1
    seconds: float
    learning_seconds: float
    rows: int
    rate: float  # rows or words learnt in a second
    bytes_per_worker: float
    wait_seconds: float  # of a worker, on average
    measure: str | None  # None where no rows were held out to judge by
    score: float | None


@dataclass(frozen=True)
class Point:
    """All runs with the same number of workers: the figures of the fastest, and the mean score."""

    workers: int
    runs: int
    rows: int
    seconds: float
    learning_seconds: float
    rate: float
    speedup: float  # by rate, relative to the fewest workers
    efficiency: float  # the rate of a worker, relative to the same
    bytes_per_worker: float
    wait_seconds: float
    score: float | None
    score_difference: float | None


def run_from(
    record: dict[str, Any],
    *,
    folder: str,
    workers: int,
    number: int,
    seconds: float,
    counts_words: bool,
    adds_up_bytes: bool,
) -> Run:
    """A run from its record. ``adds_up_bytes``: the record's traffic is that of all workers together."""
    waits = from_record(record).seconds.get("wait", [0.0])
    measure, score = score_of(record["scores"])
    return Run(
        folder=folder,
        workers=workers,
        number=number,
        seconds=round(seconds, 3),
        learning_seconds=record["learning_seconds"],
        rows=record["data"]["rows"],
        rate=record["tokens_per_second" if counts_words else "rows_per_second"],
        bytes_per_worker=record["traffic"]["bytes"] / (workers if adds_up_bytes else 1),
        wait_seconds=round(fmean(waits), 3),
        measure=measure,
        score=score,
    )


def score_of(scores: dict[str, Any]) -> tuple[str, float] | tuple[None, None]:
    """The score on the test rows, or that of the best epoch on the validation rows.

    >>> score_of({"valid": [{"accuracy": 0.7}, {"accuracy": 0.8}], "best_epoch": 2})
    ('validation accuracy', 0.8)
    """
    found = {"test": scores.get("test")}
    if "best_epoch" in scores:
        found["validation"] = scores["valid"][scores["best_epoch"] - 1]
    for split, judged in found.items():
        for measure in ("accuracy", "log_likelihood"):
            if judged and measure in judged:
                return f"{split} {measure.replace('_', ' ')}", judged[measure]
    return None, None


def points_of(runs: list[Run]) -> list[Point]:
    """A point for each number of workers; speed-up and efficiency are relative to the smallest."""
    ordered = sorted(runs, key=lambda run: run.workers)
    points: list[Point] = []
    for workers, same in groupby(ordered, key=lambda run: run.workers):
        some = list(same)
        best = max(some, key=lambda run: run.rate)
        scores = [run.score for run in some if run.score is not None]
        score = fmean(scores) if scores else None
        first = points[0] if points else None
        speedup = best.rate / first.rate if first else 1.0
        reference = first.score if first else score
        points.append(
            Point(
                workers=workers,
                runs=len(some),
                rows=best.rows,
                seconds=best.seconds,
                learning_seconds=best.learning_seconds,
                rate=best.rate,
                speedup=speedup,
                efficiency=speedup / (workers / first.workers) if first else 1.0,
                bytes_per_worker=best.bytes_per_worker,
                wait_seconds=best.wait_seconds,
                score=score,
                score_difference=None if score is None or reference is None else score - reference,
            )
        )
    return points
