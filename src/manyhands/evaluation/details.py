"""What a report shows beside the scores of a classifier: the rates of each label, which labels are taken for
which, and whether its probabilities can be believed. All of it is small enough for the record of a run.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.evaluation.classification import Integers, Report, Scores, best

MOST_LABELS = 1000  # the most frequent; nobody looks at more
MOST_CELLS = 10_000  # of the confusion matrix, the largest: all that 100 labels can have
BINS = 10
DECIMALS = 6


def details_of(
    report: Report, scores: Scores, truth: Integers, offsets: Integers, *, multi_label: bool
) -> dict[str, Any]:
    """The details of an evaluation; those of row i are ``truth[offsets[i]:offsets[i + 1]]``."""
    labels = sorted(report.labels.items(), key=lambda item: -item[1]["rows"])[:MOST_LABELS]
    kept = dict(labels)
    found: dict[str, Any] = {
        "labels": {name: _rounded(rates) for name, rates in report.labels.items() if name in kept}
    }
    if not multi_label:
        found["confusion"] = confusion(truth, best(scores, 1)[:, 0], list(report.labels))
    if report.log_loss is not None:  # else the scores are no probabilities
        found["calibration"] = calibration(
            *(_answers(scores, truth, offsets) if multi_label else _choices(scores, truth))
        )
    return found


def confusion(truth: Integers, predicted: Integers, names: list[str]) -> dict[str, dict[str, int]]:
    """Rows by true label and, below it, predicted label; without what never occurs.

    >>> confusion(np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1]), ["good", "bad"])
    {'good': {'good': 1, 'bad': 1}, 'bad': {'bad': 1}}
    """
    known = truth >= 0
    places, counts = np.unique(
        truth[known].astype(np.int64) * len(names) + predicted[known], return_counts=True
    )
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_CELLS])
    found: dict[str, dict[str, int]] = {}
    for place, count in zip(places[kept].tolist(), counts[kept].tolist(), strict=True):
        found.setdefault(names[place // len(names)], {})[names[place % len(names)]] = count
    return found


def calibration(confidence: npt.NDArray[Any], right: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """How often predictions of about the same probability come true, in ten bins of equal width.

    ``ece`` is the expected calibration error: how far the two are apart on average over all predictions.
    Here 0.9 is said twice and true once, 0.6 once and true: (2 · 0.4 + 1 · 0.4) / 3.

    >>> found = calibration(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]))
    >>> round(found["ece"], 6), [(b["low"], b["rows"], b["right"]) for b in found["bins"]]
    (0.4, [(0.6, 1, 1.0), (0.9, 2, 0.5)])
    """
    # A share in single precision may be a hair below the bin that it was meant for.
    bins = np.clip(np.floor(confidence.astype(np.float64) * BINS + 1e-6).astype(np.int64), 0, BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    said = np.bincount(bins, confidence, BINS) / np.maximum(rows, 1)
    true = np.bincount(bins, right, BINS) / np.maximum(rows, 1)
    shown = [
        _rounded(
            {
                "low": number / BINS,
                "high": (number + 1) / BINS,
                "rows": int(rows[number]),
                "confidence": float(said[number]),
                "right": float(true[number]),
            }
        )
        for number in np.flatnonzero(rows).tolist()
    ]
    return {"ece": round(float((rows * np.abs(said - true)).sum() / rows.sum()), DECIMALS), "bins": shown}


def _choices(scores: Scores, truth: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Of each row, the probability of the label that is chosen, and whether it is the right one."""
    chosen = best(scores, 1)[:, 0]
    return scores[np.arange(len(scores)), chosen], chosen == truth


def _answers(
    scores: Scores, truth: Integers, offsets: Integers
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Of each row and label, the probability that the row has it, and whether it has."""
    right = np.zeros(scores.shape, np.bool_)
    rows = np.repeat(np.arange(len(scores)), np.diff(offsets))
    known = truth >= 0
    right[rows[known], truth[known]] = True
    return scores.ravel(), right.ravel()


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, DECIMALS) if isinstance(value, float) else value for name, value in figures.items()
    }
