"""What a report shows beside the scores of a classifier: the rates of each label, which labels are taken for
which, and whether its probabilities can be believed. All of it is small enough for the record of a run.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.evaluation.calibration import reliability
from manyhands.evaluation.classification import Integers, Report, Scores, Weights, best

MOST_LABELS = 1000  # the most frequent; nobody looks at more
MOST_CELLS = 10_000  # of the confusion matrix, the largest: all that 100 labels can have
DECIMALS = 6


def details_of(report: Report, scores: Scores, truth: Integers, *, multi_label: bool) -> dict[str, Any]:
    """The details of an evaluation; ``truth`` is the label of each row, unless it may have several."""
    labels = sorted(report.labels.items(), key=lambda item: -item[1]["rows"])[:MOST_LABELS]
    kept = dict(labels)
    found: dict[str, Any] = {
        "labels": {name: _rounded(rates) for name, rates in report.labels.items() if name in kept}
    }
    if not multi_label:
        found["confusion"] = confusion(truth, best(scores, 1)[:, 0], list(report.labels))
    if report.ece is not None:  # else the scores are no probabilities
        found["calibration"] = {"ece": report.ece, "bins": report.reliability}
    return found


def with_reliability(
    report: Report, scores: Scores, truth: Integers, offsets: Integers, weights: Weights | None, several: bool
) -> Report:
    """The report with how far its probabilities can be believed; as it was where they are none.

    Of one label a row, the probability of the chosen label counts; of several, that of each label.
    """
    if report.log_loss is None:
        return report
    said, right = _answers(scores, truth, offsets) if several else _choices(scores, truth)
    each = None if weights is None else np.repeat(weights.astype(np.float64), len(said) // len(scores))
    found = reliability(said, right, each)
    return replace(report, ece=found["ece"], reliability=found["bins"])


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
