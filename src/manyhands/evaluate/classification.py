"""How good the labels of a classifier are: one label a row, or several.

Both cases become the same two sparse tables, true and predicted, of rows by labels. One more column stands
for "a label that the model does not know": it is never predicted, so it counts as missed everywhere.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from manyhands.errors import InputError, UsageError
from manyhands.evaluate.losses import loss_several, loss_single
from manyhands.evaluate.tables import Integers, Scores, Weights, best, table

LARGEST_CONFUSION = 50  # labels; nobody reads a larger matrix


@dataclass(frozen=True)
class Report:
    """The figures of one evaluation; ``facts`` has them ready for JSON.

    ``log_loss`` is None where the scores are not probabilities, or where no row has a label that is known.
    """

    rows: int
    accuracy: float
    macro_f1: float
    micro_f1: float
    log_loss: float | None
    labels: dict[str, dict[str, float]]
    confusion: list[list[int]] | None
    at: dict[str, dict[str, float]]
    unknown_labels: int
    threshold: float | None
    left_out: int = 0  # rows of the input that had no text or no label to judge by

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_single(
    scores: Scores,
    truth: Integers,
    names: Sequence[str],
    *,
    weights: Weights | None = None,
    top: Sequence[int] = (1,),
) -> Report:
    """Measure rows that have one label each; a truth of -1 is a label that the model does not know.

    ``weights`` change every rate and the log loss; counts of rows and the confusion matrix stay counts.

    Here 2 of 4 rows are right: one "good" is taken for "bad", and one label is unknown. "good" has 1 right
    of 1 predicted and 2 true ones, "bad" 1 right of 3 predicted and 1 true one.

    >>> scores = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75], [0.25, 0.75]], np.float32)
    >>> report = evaluate_single(scores, np.array([0, 0, 1, -1], np.int32), ["good", "bad"])
    >>> report.accuracy, report.micro_f1, report.unknown_labels
    (0.5, 0.5, 1)
    >>> for name, figures in report.labels.items():
    ...     print(name, *(f"{figure:.2f}" for figure in figures.values()))
    good 1.00 0.50 0.67 2.00
    bad 0.33 1.00 0.50 1.00
    >>> f"{report.macro_f1:.4f}", report.confusion  # (2/3 + 1/2) / 2
    ('0.5833', [[1, 1], [0, 1]])
    """
    _check(scores, truth, names, top)
    if len(truth) != len(scores):
        raise InputError(f"there are {len(scores):,} rows of scores but {len(truth):,} true labels")
    if weights is not None:
        _check_weights(weights, len(scores))
    picks = best(scores, max([1, *top]))
    one_each = np.arange(len(scores) + 1)
    return _report(
        table(truth, one_each, len(names)),
        table(picks[:, 0], one_each, len(names)),
        picks,
        names,
        weights=weights,
        top=top,
        loss=loss_single(scores, truth, weights),
        confusion=_confusion(truth, picks[:, 0], len(names)),
        threshold=None,
    )


def evaluate_several(
    scores: Scores,
    truth: Integers,
    truth_offsets: Integers,
    names: Sequence[str],
    *,
    threshold: float = 0.5,
    top: Sequence[int] = (1, 3, 5),
) -> Report:
    """Measure rows that have any number of labels: those of row i are truth[offsets[i]:offsets[i + 1]].

    Predicted are the labels whose score is at least ``threshold``; a row is right if all its labels are
    predicted and no others.

    Here the first row is right; the second has "b" and "c" but only "c" is predicted, so 3 of 3 predicted
    and 3 of 4 true labels are right, and micro F1 is 2 * 3 / (3 + 4).

    >>> scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.7]], np.float32)
    >>> report = evaluate_several(scores, np.array([0, 1, 1, 2]), np.array([0, 2, 4]), ["a", "b", "c"])
    >>> report.accuracy, f"{report.micro_f1:.4f}"
    (0.5, '0.8571')
    >>> f"{report.macro_f1:.4f}"  # (1 + 2/3 + 1) / 3
    '0.8889'
    >>> report.at["1"]
    {'precision': 1.0, 'recall': 0.5}
    """
    _check(scores, truth, names, top)
    rows = len(scores)
    starts = truth_offsets[:1].tolist()
    if len(truth_offsets) != rows + 1 or starts != [0] or truth_offsets[-1] != len(truth):
        raise InputError(f"the offsets of the true labels do not fit {rows:,} rows of scores")
    if (np.diff(truth_offsets) < 0).any():
        raise InputError("the offsets of the true labels go backwards")
    chosen = scores >= threshold
    predicted_offsets = np.append(0, np.cumsum(np.count_nonzero(chosen, axis=1)))
    return _report(
        table(truth, truth_offsets, len(names)),
        table(np.nonzero(chosen)[1], predicted_offsets, len(names)),
        best(scores, max([1, *top])),
        names,
        weights=None,
        top=top,
        loss=loss_several(scores, truth, truth_offsets),
        confusion=None,
        threshold=float(threshold),
    )


def _check(scores: Scores, truth: Integers, names: Sequence[str], top: Sequence[int]) -> None:
    if len(scores) == 0:
        raise InputError("there are no rows to evaluate")
    if not names or scores.shape != (len(scores), len(names)):
        shape = " x ".join(map(str, scores.shape))
        raise InputError(f"scores of shape {shape} do not fit a model with {len(names):,} labels")
    if not np.isfinite(scores).all():
        raise InputError("some scores are not finite numbers; the model has probably diverged in training")
    if len(truth) and not -1 <= truth.min() <= truth.max() < len(names):
        raise InputError(f"true labels must lie from -1 to {len(names) - 1:,}, the last label of the model")
    if min(top, default=1) < 1:
        raise UsageError("the first k labels can be measured for k from 1 on only")


def _check_weights(weights: Weights, rows: int) -> None:
    if weights.shape != (rows,):
        raise InputError(f"there are {rows:,} rows of scores but {len(weights):,} weights")
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() == 0:
        raise InputError("weights of rows must be finite, not negative, and not all zero")


def _report(
    true: Any,
    predicted: Any,
    picks: Integers,
    names: Sequence[str],
    *,
    weights: Weights | None,
    top: Sequence[int],
    loss: float | None,
    confusion: list[list[int]] | None,
    threshold: float | None,
) -> Report:
    figures = precision_recall_fscore_support(true, predicted, sample_weight=weights, zero_division=0)[:3]
    micro = precision_recall_fscore_support(
        true, predicted, average="micro", sample_weight=weights, zero_division=0
    )
    true_rows, predicted_rows = (np.bincount(t.indices, minlength=len(names) + 1) for t in (true, predicted))
    # Macro F1 is over the labels that occur in truth or prediction: a small test set would otherwise look
    # worse the more labels the model has that nobody asked about. The unknown label is none of them.
    occurs = (true_rows + predicted_rows)[:-1] > 0
    by_label = zip(*(figure.tolist() for figure in (*figures, true_rows)), strict=True)
    keys = ("precision", "recall", "f1", "rows")
    return Report(
        rows=len(picks),
        accuracy=float(accuracy_score(true, predicted, sample_weight=weights)),
        macro_f1=float(figures[2][:-1][occurs].mean()) if occurs.any() else 0.0,
        micro_f1=float(micro[2]),
        log_loss=loss,
        labels={name: dict(zip(keys, row, strict=True)) for name, row in zip(names, by_label, strict=False)},
        confusion=confusion,
        at=_at(true, picks, weights, sorted({min(k, len(names)) for k in top})),
        unknown_labels=int(true_rows[-1]),
        threshold=threshold,
    )


def _at(true: Any, picks: Integers, weights: Weights | None, top: list[int]) -> dict[str, dict[str, float]]:
    """Of the first k labels of all rows, how many are true; of all true labels, how many are among them.

    Both are shares of labels, not means over rows: so fastText counts, and rows without a label are no
    special case.
    """
    weight = np.ones(len(picks)) if weights is None else weights.astype(np.float64)
    hits = true[np.arange(len(picks))[:, None], picks].toarray().cumsum(axis=1, dtype=np.int64)
    wanted = float(weight @ np.diff(true.indptr))
    found = {k: float(weight @ hits[:, k - 1]) for k in top}
    return {
        str(k): {
            "precision": found[k] / (k * float(weight.sum())),
            "recall": found[k] / wanted if wanted else 0.0,
        }
        for k in top
    }


def _confusion(truth: Integers, predicted: Integers, labels: int) -> list[list[int]] | None:
    """Rows by true label (down) and predicted label (across); unknown labels have no place in it."""
    if labels > LARGEST_CONFUSION:
        return None
    # With the unknown label among them: scikit-learn warns of one label, and refuses a truth with none.
    counts = confusion_matrix(truth, predicted, labels=[*range(labels), -1])[:labels, :labels]
    whole: list[list[int]] = counts.tolist()
    return whole
