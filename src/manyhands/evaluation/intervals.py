"""How far a measured score may be from the true one by chance, and whether two models differ by more.

All intervals are of 95 % and after Wilson, of which a share and a number of rows is all that is to be known.
Where rows have weights, or where the score is no share of rows, the number is that of rows of equal weight
that would be as uncertain.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Interval = tuple[float, float]

Z_95 = 1.959963984540054  # standard deviations on either side that hold 95 % of a normal distribution


def wilson(share: float, rows: float) -> Interval:
    """The 95 % interval of a share of rows, after Wilson: it holds for few rows and near 0 and 1, too.

    >>> [round(bound, 4) for bound in wilson(0.9, 100)]
    [0.8256, 0.9448]
    >>> [round(bound, 4) for bound in wilson(1.0, 10)]
    [0.7225, 1.0]
    """
    square = Z_95 * Z_95 / rows
    centre = (share + square / 2) / (1 + square)
    half = Z_95 * math.sqrt(max(share * (1 - share), 0.0) / rows + square / (4 * rows)) / (1 + square)
    return max(0.0, centre - half), min(1.0, centre + half)


def equal_rows(weights: npt.NDArray[Any]) -> float:
    """As many rows of equal weight are as uncertain as these, after Kish.

    >>> equal_rows(np.array([1.0, 1.0, 1.0, 1.0])), equal_rows(np.array([3.0, 1.0]))
    (4.0, 1.6)
    """
    weights = np.asarray(weights, np.float64)
    return float(weights.sum() ** 2 / max((weights**2).sum(), 1e-300))


@dataclass(frozen=True)
class Marks:
    """What rows have and what a model says that they have: sparse tables of rows by labels.

    The last column is for labels that the model does not know.
    """

    true: Any
    predicted: Any
    weights: Doubles

    @cached_property
    def same(self) -> npt.NDArray[np.bool_]:
        """Of each row, whether all is right."""
        return np.asarray(np.diff((self.true - self.predicted).indptr) == 0)

    @cached_property
    def both(self) -> Any:
        """The marks that are true and predicted."""
        return self.true.multiply(self.predicted).tocsr()

    @cached_property
    def all(self) -> Any:
        """The marks that are true, and once more those that are predicted."""
        return self.true + self.predicted

    @property
    def accuracy(self) -> float:
        return float(np.average(self.same, weights=self.weights))


def marks_of(true: Any, predicted: Any, weights: npt.NDArray[Any] | None) -> Marks:
    ones = np.ones(true.shape[0]) if weights is None else weights.astype(np.float64)
    return Marks(true, predicted, ones)


def intervals(marks: Marks, names: list[str]) -> dict[str, Any]:
    """Of accuracy, macro F1 and micro F1, and of the F1 of each label that occurs."""
    rows = equal_rows(marks.weights)
    macro, micro = macro_f1(marks), micro_f1(marks)
    return {
        "accuracy": list(wilson(marks.accuracy, rows)),
        "macro_f1": list(_interval(macro, rows)),
        "micro_f1": list(_interval(micro, rows)),
        "labels": _label_intervals(marks, names),
    }


class Estimate(NamedTuple):
    """A score, and by how much each row would move it (its influence), in the order of rows."""

    value: float
    influence: Doubles

    @property
    def variance(self) -> float:
        return float((self.influence**2).sum())


def macro_f1(marks: Marks) -> Estimate:
    """The mean F1 of the labels that occur, by the delta method.

    F1 of a label is 2 · right / (true + predicted). Here both labels have 2 · 1 / 3, and the row that is
    wrong moves each by -2/3 · 1/3, the right ones their own by (2 - 2 · 2/3) / 3.

    >>> from manyhands.evaluation.classification import table
    >>> true, said = (table(np.array(ids), np.arange(4), 2) for ids in ([0, 0, 1], [0, 1, 1]))
    >>> found = macro_f1(marks_of(true, said, None))
    >>> round(found.value, 4), found.influence.round(4).tolist()
    (0.6667, [0.1111, -0.2222, 0.1111])
    """
    right, all_marks = (_sums(m, marks.weights) for m in (marks.both, marks.all))
    right[-1] = all_marks[-1] = 0  # what the model does not know is none of its labels
    occurs = all_marks > 0
    count = max(int(occurs.sum()), 1)
    each = np.divide(2 * right, all_marks, out=np.zeros(len(right)), where=occurs)
    share = np.divide(1.0, all_marks, out=np.zeros(len(right)), where=occurs) / count
    moves = marks.both @ (2 * share) - marks.all @ (each * share)
    return Estimate(float(each.sum() / count), moves * marks.weights)


def micro_f1(marks: Marks) -> Estimate:
    """F1 of all marks together, in the same way."""
    right = np.asarray(marks.both.sum(axis=1), np.float64).ravel()
    all_marks = np.asarray(marks.all.sum(axis=1), np.float64).ravel()
    whole = max(float(marks.weights @ all_marks), 1e-300)
    value = float(2 * (marks.weights @ right) / whole)
    return Estimate(value, marks.weights * (2 * right - value * all_marks) / whole)


def _interval(found: Estimate, rows: float) -> Interval:
    """As wide as that of a share of as many rows as have its variance."""
    spread = found.value * (1 - found.value)
    return wilson(found.value, spread / found.variance if found.variance > 0 and spread > 0 else rows)


def _label_intervals(marks: Marks, names: list[str]) -> dict[str, list[float]]:
    """F1 is 2s / (1 + s) of the share s that is right among the rows with the label, true or predicted."""
    right = _sums(marks.both, marks.weights)
    either = marks.all > 0
    any_of, squares = _sums(either, marks.weights), _sums(either, marks.weights**2)
    found = {}
    for number in np.flatnonzero(any_of[:-1] > 0).tolist():
        rows = any_of[number] ** 2 / squares[number]
        low, high = wilson(right[number] / any_of[number], rows)
        found[names[number]] = [2 * low / (1 + low), 2 * high / (1 + high)]
    return found


def _sums(table: Any, weights: Doubles) -> Doubles:
    """Of each column, the weights of its rows."""
    return np.asarray(weights @ table, np.float64).ravel()


def compare_pairs(first: Marks, second: Marks) -> dict[str, dict[str, Any]]:
    """Two models on the same rows: by how much the first is better, between what bounds, and how often chance
    alone would make as large a difference (``p``).

    The accuracy is tested by the rows that only one of them has right (McNemar's test, exact where rows count
    alike), macro F1 by the influence of each row on the difference.
    """
    difference = first.same.astype(np.float64) - second.same
    whole = first.weights.sum()
    mean = float(first.weights @ difference / whole)
    accuracy = Estimate(mean, first.weights * (difference - mean) / whole)
    one, other = macro_f1(first), macro_f1(second)
    macro = Estimate(one.value - other.value, one.influence - other.influence)
    return {
        "accuracy": _difference(accuracy)
        | {
            "only_first_right": int((difference > 0).sum()),
            "only_second_right": int((difference < 0).sum()),
            "p": mcnemar(difference, first.weights),
        },
        "macro_f1": _difference(macro),
    }


def _difference(found: Estimate) -> dict[str, Any]:
    deviation = math.sqrt(found.variance)
    half = Z_95 * deviation
    return {
        "difference": found.value,
        "interval": [found.value - half, found.value + half],
        "p": math.erfc(abs(found.value) / deviation / math.sqrt(2)) if deviation > 0 else 1.0,
    }


def mcnemar(difference: Doubles, weights: Doubles) -> float:
    """How likely chance alone would be as uneven: each row with a difference is a toss of a coin.

    Of 6 rows, 5 are for one side: 2 · (1 + 6) / 2⁶.

    >>> round(mcnemar(np.array([1, 1, 1, 1, 1, -1, 0.0]), np.ones(7)), 6)
    0.21875
    """
    decided = difference != 0
    if not decided.any():
        return 1.0
    weights, signs = weights[decided], difference[decided]
    if (weights == weights[0]).all():
        from scipy.stats import binomtest  # noqa: PLC0415 - slow to import

        return float(binomtest(int((signs > 0).sum()), len(signs)).pvalue)
    return math.erfc(abs(float(weights @ signs)) / math.sqrt(2 * float(weights @ weights)))
