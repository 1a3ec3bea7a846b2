"""How good the labels of a classifier are: one label a row, or several.

Both cases become the same two sparse tables, true and predicted, of rows by labels. One more column stands
for "a label that the model does not know": it is never predicted, so it counts as missed everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError, UsageError
from manyhands.evaluation.intervals import intervals, marks_of

Scores = npt.NDArray[np.float32]
Weights = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

BLOCK_CELLS = 1 << 18  # one megabyte of scores stays in the cache of a core
LARGEST_CONFUSION = 50  # labels; nobody reads a larger matrix
SUM_TOLERANCE = 0.01  # of a row of probabilities; half precision drifts this far over many labels


class Rates(NamedTuple):
    """Of each label, and of all together."""

    precision: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]
    f1: npt.NDArray[np.float64]
    micro_f1: float
    accuracy: float


def rates(true: Any, predicted: Any, weights: Weights | None) -> Rates:
    """What ``sklearn_rates`` returns, to the last bit: training asks after each epoch, and importing
    scikit-learn takes longer than it takes to train on a few rows."""

    def sums(marks: Any) -> npt.NDArray[Any]:
        each = None if weights is None else np.repeat(weights, np.diff(marks.indptr))
        return np.bincount(marks.indices, each, marks.shape[1])

    right, found, wanted = sums(true.multiply(predicted)), sums(predicted), sums(true)
    (micro,) = _ratio(2 * right.sum(keepdims=True), wanted.sum(keepdims=True) + found.sum(keepdims=True))
    same = np.diff((true - predicted).indptr) == 0
    return Rates(
        _ratio(right, found),
        _ratio(right, wanted),
        _ratio(2 * right, wanted + found),
        float(micro),
        float(np.average(same, weights=weights)),
    )


def _ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """0 where there is nothing to divide by."""
    return np.asarray(np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0))


def sklearn_rates(true: Any, predicted: Any, weights: Weights | None) -> Rates:
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support  # noqa: PLC0415

    options = {"sample_weight": weights, "zero_division": 0}
    precision, recall, f1, _ = precision_recall_fscore_support(true, predicted, **options)
    micro = precision_recall_fscore_support(true, predicted, average="micro", **options)
    accuracy = accuracy_score(true, predicted, sample_weight=weights)
    return Rates(precision, recall, f1, float(micro[2]), float(accuracy))


Rating = Callable[[Any, Any, Weights | None], Rates]


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
    intervals: dict[str, Any]  # of 95 %: of accuracy, macro F1, micro F1, and the F1 of each label
    left_out: int = 0  # rows of the input that had no text or no label to judge by
    ece: float | None = None  # the expected calibration error
    reliability: list[dict[str, Any]] | None = (
        None  # how often predictions of about one probability are right
    )
    answered: dict[str, Any] | None = None  # where a precision was asked for: from which probability on
    against: dict[str, Any] | None = None  # beside another model on the same rows

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_single_label(
    scores: Scores,
    truth: Integers,
    names: Sequence[str],
    *,
    weights: Weights | None = None,
    top: Sequence[int] = (1,),
    rating: Rating = sklearn_rates,
) -> Report:
    """Measure rows that have one label each; a truth of -1 is a label that the model does not know.

    ``weights`` change every rate and the log loss; counts of rows and the confusion matrix stay counts.

    Here 2 of 4 rows are right: one "good" is taken for "bad", and one label is unknown. "good" has 1 right
    of 1 predicted and 2 true ones, "bad" 1 right of 3 predicted and 1 true one.

    >>> scores = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75], [0.25, 0.75]], np.float32)
    >>> report = evaluate_single_label(scores, np.array([0, 0, 1, -1], np.int32), ["good", "bad"])
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
    _check_weights(scores, weights)
    picks = best(scores, max([1, *top]))
    one_each = np.arange(len(scores) + 1)
    return _report(
        table(truth, one_each, len(names)),
        table(picks[:, 0], one_each, len(names)),
        picks,
        names,
        weights=weights,
        top=top,
        rating=rating,
        log_loss=single_label_loss(scores, truth, weights),
        confusion=_confusion(truth, picks[:, 0], len(names)),
        threshold=None,
    )


def evaluate_multi_label(
    scores: Scores,
    truth: Integers,
    truth_offsets: Integers,
    names: Sequence[str],
    *,
    weights: Weights | None = None,
    threshold: float = 0.5,
    top: Sequence[int] = (1, 3, 5),
    rating: Rating = sklearn_rates,
) -> Report:
    """Measure rows that have any number of labels: those of row i are truth[offsets[i]:offsets[i + 1]].

    Predicted are the labels whose score is at least ``threshold``; a row is right if all its labels are
    predicted and no others.

    Here the first row is right; the second has "b" and "c" but only "c" is predicted, so 3 of 3 predicted
    and 3 of 4 true labels are right, and micro F1 is 2 * 3 / (3 + 4).

    >>> scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.7]], np.float32)
    >>> report = evaluate_multi_label(scores, np.array([0, 1, 1, 2]), np.array([0, 2, 4]), ["a", "b", "c"])
    >>> report.accuracy, f"{report.micro_f1:.4f}"
    (0.5, '0.8571')
    >>> f"{report.macro_f1:.4f}"  # (1 + 2/3 + 1) / 3
    '0.8889'
    >>> report.at["1"]
    {'precision': 1.0, 'recall': 0.5}
    """
    _check(scores, truth, names, top)
    if len(truth_offsets) != len(scores) + 1 or truth_offsets[[0, -1]].tolist() != [0, len(truth)]:
        raise InputError(f"the offsets of the true labels do not fit {len(scores):,} rows of scores")
    if (np.diff(truth_offsets) < 0).any():
        raise InputError("the offsets of the true labels go backwards")
    _check_weights(scores, weights)
    return _report(
        table(truth, truth_offsets, len(names)),
        likely_labels(scores, threshold),
        best(scores, max([1, *top])),
        names,
        weights=weights,
        top=top,
        rating=rating,
        log_loss=multi_label_loss(scores, truth, truth_offsets, weights),
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


def _check_weights(scores: Scores, weights: Weights | None) -> None:
    if weights is None:
        return
    if weights.shape != (len(scores),):
        raise InputError(f"there are {len(scores):,} rows of scores but {len(weights):,} weights")
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
    rating: Rating,
    **others: Any,
) -> Report:
    """The figures that both cases have, and the ``others``."""
    rates = rating(true, predicted, weights)
    true_rows, predicted_rows = (np.bincount(t.indices, minlength=len(names) + 1) for t in (true, predicted))
    # Macro F1 is over the labels that occur in truth or prediction: a small test set would otherwise look
    # worse the more labels the model has that nobody asked about. The unknown label is none of them.
    occurs = (true_rows + predicted_rows)[:-1] > 0
    by_label = zip(*(figure.tolist() for figure in (*rates[:3], true_rows)), strict=True)
    keys = ("precision", "recall", "f1", "rows")
    return Report(
        rows=len(picks),
        accuracy=rates.accuracy,
        macro_f1=float(rates.f1[:-1][occurs].mean()) if occurs.any() else 0.0,
        micro_f1=rates.micro_f1,
        labels={name: dict(zip(keys, row, strict=True)) for name, row in zip(names, by_label, strict=False)},
        at=_at(true, picks, weights, sorted({min(k, len(names)) for k in top})),
        unknown_labels=int(true_rows[-1]),
        intervals=intervals(marks_of(true, predicted, weights), list(names)),
        **others,
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
    known = truth >= 0
    places = truth[known].astype(np.int64) * labels + predicted[known]
    return np.bincount(places, minlength=labels * labels).reshape(labels, labels).tolist()


def table(labels: Integers, offsets: Integers, known: int) -> Any:
    """Rows by labels, 1 where a row has the label; the last column is for all that are unknown."""
    from scipy import sparse  # noqa: PLC0415

    columns = np.where(labels < 0, known, labels)
    ones = np.ones(len(columns), np.int8)
    marks = sparse.csr_array((ones, columns, offsets), shape=(len(offsets) - 1, known + 1))
    marks.sum_duplicates()
    marks.data[:] = 1
    return marks


def likely_labels(scores: Scores, threshold: float) -> Any:
    """The table of the labels whose score is at least ``threshold``."""
    chosen = scores >= threshold
    offsets = np.append(0, np.cumsum(np.count_nonzero(chosen, axis=1)))
    return table(np.nonzero(chosen)[1], offsets, scores.shape[1])


def blocks(scores: Scores) -> Iterator[slice]:
    """Slices of rows that are small enough to work on at once."""
    step = max(1, BLOCK_CELLS // scores.shape[1])
    for start in range(0, len(scores), step):
        yield slice(start, start + step)


def best(scores: Scores, count: int) -> Integers:
    """The labels with the best scores of every row, best first; of equal scores the first label wins.

    >>> best(np.array([[0.1, 0.5, 0.4], [0.3, 0.3, 0.3]], np.float32), 2).tolist()
    [[1, 2], [0, 1]]
    """
    picks = np.empty((len(scores), min(count, scores.shape[1])), np.int64)
    for rows in blocks(scores):
        block = scores[rows].copy()
        every = np.arange(len(block))
        # Few are asked for, and so many searches cost less than one sort; they also settle ties.
        for place in range(picks.shape[1]):
            picks[rows, place] = found = block.argmax(axis=1)
            block[every, found] = -np.inf
    return picks


def single_label_loss(scores: Scores, truth: Integers, weights: Weights | None) -> float | None:
    """The mean log loss of the rows whose label is known: an unknown one has no score to judge by."""
    known = np.flatnonzero(truth >= 0)
    weight = None if weights is None else weights[known]
    nothing = len(known) == 0 if weight is None else weight.sum() == 0
    if nothing or not _are_shares(scores) or np.abs(scores.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        return None
    # As scikit-learn clips; it would fill a table of rows by labels, and refuses a model with one label.
    least = np.finfo(np.float64).eps
    right = np.clip(scores[known, truth[known]], least, 1 - least, dtype=np.float64)
    return float(np.average(-np.log(right), weights=weight))


def multi_label_loss(
    scores: Scores, truth: Integers, offsets: Integers, weights: Weights | None = None
) -> float | None:
    """The mean log loss of all yes-or-no questions, one for each row and label that the model knows.

    scikit-learn has no such loss; it is the mean of its log loss over the labels, clipped as there.
    """
    if not _are_shares(scores):
        return None
    least = np.finfo(np.float64).eps
    weight = np.ones(len(scores)) if weights is None else weights.astype(np.float64)
    total, whole = 0.0, float(weight.sum()) * scores.shape[1]
    for rows in blocks(scores):
        no = np.log1p(-np.clip(scores[rows], least, 1 - least, dtype=np.float64))
        total -= float(weight[rows] @ no.sum(axis=1))
    true = table(truth, offsets, scores.shape[1]).tocoo()
    known = true.col < scores.shape[1]
    right = np.clip(scores[true.row[known], true.col[known]], least, 1 - least, dtype=np.float64)
    total += float(weight[true.row[known]] @ (np.log1p(-right) - np.log(right)))
    return float(total / whole)


def _are_shares(scores: Scores) -> bool:
    # A division in single precision may end a little above 1.
    return bool(scores.min() >= 0 and scores.max() <= 1 + 1e-6)
