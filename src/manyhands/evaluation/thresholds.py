"""From which probability on a model is right often enough: the rest of the rows it had better not answer.

Thresholds are chosen and measured on the same rows, so the precision on others will be a little less; its
interval says by how much it may differ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.evaluation.classification import Integers, Scores, Weights, best
from manyhands.evaluation.intervals import equal_rows, wilson

Flags = npt.NDArray[np.bool_]


def thresholds_for(
    precision: float,
    scores: Scores,
    truth: Integers,
    offsets: Integers,
    names: Sequence[str],
    *,
    weights: Weights | None = None,
    multi_label: bool = False,
) -> dict[str, Any]:
    """The lowest thresholds at which so many answers are right: one for all labels, and one for each.

    Of one label a row, the answer is the likeliest label; of several, it is every label that is likely
    enough. ``coverage`` is the share of rows that are answered: of a label, of those that it would be the
    answer of. None where no threshold is high enough.
    """
    counted = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    marks = np.zeros(scores.shape, np.bool_)
    known = truth >= 0
    marks[np.repeat(np.arange(len(scores)), np.diff(offsets))[known], truth[known]] = True
    if multi_label:
        likely, right = scores.ravel(), marks.ravel()
        whole = threshold_for(precision, likely, right, np.repeat(counted, scores.shape[1]))
        if whole is not None:
            answered = (scores >= whole["threshold"]).any(axis=1)
            whole["coverage"] = float(counted @ answered / counted.sum())
        each = [threshold_for(precision, scores[:, k], marks[:, k], counted) for k in range(scores.shape[1])]
    else:
        chosen = best(scores, 1)[:, 0]
        every = np.arange(len(scores))
        likely, right = scores[every, chosen], marks[every, chosen]
        whole = threshold_for(precision, likely, right, counted)
        mine = [np.flatnonzero(chosen == k) for k in range(scores.shape[1])]
        each = [threshold_for(precision, likely[rows], right[rows], counted[rows]) for rows in mine]
    return {"precision": precision, "overall": whole, "labels": dict(zip(names, each, strict=True))}


def threshold_for(
    precision: float, likely: Scores, right: Flags, weights: npt.NDArray[np.float64]
) -> dict[str, Any] | None:
    """The lowest probability such that of all answers from there on enough are right.

    From 0.6 on, 3 of 4 answers are right; from 0.7 on, 2 of 3.

    >>> likely = np.array([0.9, 0.8, 0.7, 0.6, 0.5], np.float32)
    >>> right = np.array([True, True, False, True, False])
    >>> found = threshold_for(0.75, likely, right, np.ones(5))
    >>> round(found["threshold"], 2), found["precision"], found["coverage"], found["rows"]
    (0.6, 0.75, 0.8, 4)
    """
    order = np.argsort(-likely, kind="stable")
    likely, right, mass = likely[order], right[order], weights[order]
    answered, good = np.cumsum(mass), np.cumsum(mass * right)
    last_of_equals = np.append(likely[1:] != likely[:-1], True)[: len(likely)]
    enough = np.flatnonzero(last_of_equals & (answered > 0) & (good >= precision * answered * (1 - 1e-12)))
    if not len(enough):
        return None
    at = int(enough[-1])
    found = float(good[at] / answered[at])
    return {
        "threshold": float(likely[at]),
        "precision": found,
        "interval": list(wilson(found, equal_rows(mass[: at + 1]))),
        "coverage": float(answered[at] / answered[-1]),
        "rows": at + 1,
    }
