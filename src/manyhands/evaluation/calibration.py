"""Whether probabilities can be believed, and how to make them so: by rows that the model has not learnt from.

A temperature divides all scores by one number; an isotonic curve says, after that, how often the likeliest
label was right. The choice falls on what gives held-out rows the smallest log loss in
cross-validation; doing nothing takes part in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.bundle.calibration import Isotonic, Temperature
from manyhands.errors import UsageError
from manyhands.models.model import Scores
from manyhands.settings import CalibrationMethod
from manyhands.text.labelled_rows import LabelledRows

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

BINS = 15
DECIMALS = 6
FOLDS = 5
FEWEST_ROWS = 50  # of fewer, not even one number can be learnt
FEWEST_FOR_CURVE = 1000
FEWEST_OF_LABEL = 20  # rows with a label, and rows without, for a temperature of its own
MOST_CELLS = 1 << 20  # rows by labels that are looked at: more would take seconds, and change no digit
COLDEST, HOTTEST = 0.05, 20.0
SUM_TOLERANCE = 0.01
LEAST = float(np.finfo(np.float32).tiny)


def reliability(confidence: npt.NDArray[Any], right: Flags, weights: Doubles | None = None) -> dict[str, Any]:
    """How often predictions of about the same probability come true, in 15 bins of equal width.

    ``ece`` is the expected calibration error: how far the two are apart on average over all predictions.
    Here 0.9 is said twice and true once, 0.6 once and true: (2 · 0.4 + 1 · 0.4) / 3.

    >>> found = reliability(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]))
    >>> round(found["ece"], 6), [(round(b["low"], 2), b["rows"], b["right"]) for b in found["bins"]]
    (0.4, [(0.6, 1, 1.0), (0.87, 2, 0.5)])
    """
    # A share in single precision may be a hair below the bin that it was meant for.
    bins = np.clip(np.floor(confidence.astype(np.float64) * BINS + 1e-6).astype(np.int64), 0, BINS - 1)
    counted = np.ones(len(bins)) if weights is None else weights
    rows, mass = np.bincount(bins, minlength=BINS), np.bincount(bins, counted, BINS)
    whole = np.where(mass > 0, mass, 1.0)
    said = np.bincount(bins, confidence * counted, BINS) / whole
    true = np.bincount(bins, right * counted, BINS) / whole
    shown = [
        {
            "low": round(number / BINS, DECIMALS),
            "high": round((number + 1) / BINS, DECIMALS),
            "rows": int(rows[number]),
            "confidence": round(float(said[number]), DECIMALS),
            "right": round(float(true[number]), DECIMALS),
        }
        for number in np.flatnonzero(rows).tolist()
    ]
    ece = float((mass * np.abs(said - true)).sum() / max(mass.sum(), 1e-300))
    return {"ece": round(ece, DECIMALS), "bins": shown}


@dataclass(frozen=True)
class Calibrated:
    """What was found; None: the model's own probabilities are best. ``facts`` are for the record of a run."""

    calibration: Temperature | Isotonic | None
    facts: dict[str, Any]


def calibration_for(
    scores: Scores, rows: LabelledRows, *, multi_label: bool = False, method: CalibrationMethod = "auto"
) -> Calibrated | None:
    """The calibration that suits held-out rows best, by the ``scores`` that a model gave them.

    The labels of ``rows`` are numbered as the columns of the scores; labels that the model does not know are
    left out. None if there is nothing to learn from, or if ``method`` is none.
    """
    if method == "none":
        return None
    seen = _Seen.of(scores, rows, multi_label or rows.labels.multi_label)
    if method == "isotonic" and seen.link != "softmax":
        raise UsageError(
            "--calibrate isotonic is for probabilities that add up to 1; the loss of this model has each "
            "label for itself: choose --calibrate temperature"
        )
    if scores.shape[1] < 2 or len(seen.scores) < (FEWEST_ROWS if method == "auto" else FOLDS):
        return None
    ways: dict[str, Way] = {"temperature": _temperature}
    if seen.link == "softmax" and (method == "isotonic" or len(seen.scores) >= FEWEST_FOR_CURVE):
        ways["isotonic"] = _isotonic
    held_out = {"none": seen.scores} | {name: _held_out(seen, way) for name, way in ways.items()}
    each = {name: seen.losses(found) for name, found in held_out.items()}
    losses = {name: float(np.average(found, weights=seen.weights)) for name, found in each.items()}
    chosen = _best(each, losses, seen.weights) if method == "auto" else method
    facts = {
        "method": chosen,
        "rows": len(seen.scores),
        "log_loss": {name: round(loss, DECIMALS) for name, loss in losses.items()},
        "ece_before": seen.ece(seen.scores),
        "ece_after": seen.ece(held_out[chosen]),
    }
    return Calibrated(None if chosen == "none" else ways[chosen](seen), facts)


def _best(each: dict[str, Doubles], losses: dict[str, float], weights: Doubles) -> str:
    """The smallest loss; a curve has many numbers, so it has to win by more than its standard error."""
    simple = min(set(losses) - {"isotonic"}, key=lambda name: losses[name])
    if "isotonic" not in losses:
        return simple
    gain = each[simple] - each["isotonic"]
    mean = float(np.average(gain, weights=weights))
    error = float(np.sqrt((weights**2) @ (gain - mean) ** 2) / weights.sum())
    return "isotonic" if mean > error else simple


class _Seen(NamedTuple):
    """Rows with their probabilities, and what is true of them: a label each, or a table of yes and no."""

    scores: Scores
    truth: npt.NDArray[np.int64]  # of one label a row
    marks: Flags  # rows by labels; empty where one label a row is all that is asked
    weights: Doubles
    link: str

    @classmethod
    def of(cls, scores: Scores, rows: LabelledRows, multi_label: bool) -> "_Seen":
        step = max(1, -(-scores.size // MOST_CELLS))
        picked = np.arange(0, len(scores), step)
        labels, weights = rows.labels.take(picked), rows.weights[picked].astype(np.float64)
        scores = scores[picked]
        adds_up = bool(len(scores)) and float(np.abs(scores.sum(axis=1) - 1).max()) <= SUM_TOLERANCE
        link = "softmax" if adds_up and not multi_label else "sigmoid"
        marks = np.zeros(scores.shape if link == "sigmoid" else (len(scores), 0), np.bool_)
        if link == "sigmoid":
            known = labels.ids >= 0
            marks[np.repeat(np.arange(len(labels)), np.diff(labels.offsets))[known], labels.ids[known]] = True
        truth = np.full(len(scores), -1) if multi_label else labels.ids.astype(np.int64)
        seen = cls(scores, truth, marks, weights, link)
        return seen.some(np.flatnonzero((weights > 0) & ((truth >= 0) | multi_label)))

    @property
    def multi_label(self) -> bool:
        return bool((self.truth < 0).any())

    def some(self, rows: npt.NDArray[Any]) -> "_Seen":
        return _Seen(self.scores[rows], self.truth[rows], self.marks[rows], self.weights[rows], self.link)

    def losses(self, scores: Scores) -> Doubles:
        """The log loss of each row by these probabilities; by sigmoid, the mean of every yes and no."""
        if self.link == "softmax":
            right = scores[np.arange(len(scores)), self.truth].astype(np.float64)
            return -np.log(np.maximum(right, LEAST))
        likely = np.where(self.marks, scores, 1 - scores.astype(np.float64))
        return np.asarray(-np.log(np.maximum(likely, LEAST)).mean(axis=1))

    def ece(self, scores: Scores) -> float:
        if self.multi_label:
            each = np.repeat(self.weights, scores.shape[1])
            return float(reliability(scores.ravel(), self.marks.ravel(), each)["ece"])
        best = scores.argmax(axis=1)
        said = scores[np.arange(len(scores)), best]
        return float(reliability(said, best == self.truth, self.weights)["ece"])


Way = Callable[[_Seen], Temperature | Isotonic]


def _held_out(seen: _Seen, way: Way) -> Scores:
    """The probabilities of each row, set right by what the other folds teach."""
    out, fold = np.empty_like(seen.scores), np.arange(len(seen.scores)) % FOLDS
    for number in range(FOLDS):
        apart = fold == number
        found = way(seen.some(np.flatnonzero(~apart)))
        out[apart] = found.apply(seen.scores[apart])
    return out


def _temperature(seen: _Seen) -> Temperature:
    if seen.link == "softmax":
        logs = np.log(np.maximum(seen.scores, LEAST).astype(np.float64))
        inverse = _minimum(lambda beta: _softmax_slopes(logs, seen.truth, seen.weights, beta), 1)
        return Temperature(link="softmax", temperatures=(1 / inverse).tolist())
    likely = np.clip(seen.scores.astype(np.float64), LEAST, 1 - 1e-12)
    odds = np.log(likely) - np.log1p(-likely)
    together = _minimum(lambda beta: _sums(_sigmoid_slopes(odds, seen.marks, seen.weights, beta)), 1)
    if not seen.multi_label:  # one number for all labels, so that the likeliest stays the likeliest
        return Temperature(link="sigmoid", temperatures=(1 / together).tolist())
    labels = seen.scores.shape[1]
    each = _minimum(lambda beta: _sigmoid_slopes(odds, seen.marks, seen.weights, beta), labels)
    with_label = seen.marks.sum(axis=0)
    many = np.minimum(with_label, len(odds) - with_label) >= FEWEST_OF_LABEL
    return Temperature(link="sigmoid", temperatures=(1 / np.where(many, each, together)).tolist())


Slopes = tuple[Doubles, Doubles]  # the first and second derivative of a loss, by each number


def _softmax_slopes(logs: Doubles, truth: npt.NDArray[Any], weights: Doubles, beta: Doubles) -> Slopes:
    shares = np.exp(beta * (logs - logs.max(axis=1, keepdims=True)))
    shares /= shares.sum(axis=1, keepdims=True)
    mean = (shares * logs).sum(axis=1)
    spread = (shares * logs**2).sum(axis=1) - mean**2
    doubt = _doubt(len(logs))
    wanted = (1 - doubt) * logs[np.arange(len(logs)), truth] + doubt * logs.mean(axis=1)
    return np.array([weights @ (mean - wanted)]), np.array([weights @ spread])


def _sigmoid_slopes(odds: Doubles, marks: Flags, weights: Doubles, beta: Doubles) -> Slopes:
    likely = 1 / (1 + np.exp(-np.clip(beta * odds, -500, 500)))
    doubt = _doubt(len(odds))
    wanted = (1 - doubt) * marks + doubt / 2
    return weights @ (odds * (likely - wanted)), weights @ (odds**2 * likely * (1 - likely))


def _doubt(rows: int) -> float:
    """As in Platt's scaling: rows that are all right are no proof that the next one will be."""
    return 1 / (rows + 2)


def _sums(slopes: Slopes) -> Slopes:
    first, second = slopes
    return first.sum(keepdims=True), second.sum(keepdims=True)


def _minimum(slopes: Callable[[Doubles], Slopes], count: int) -> Doubles:
    """Where convex losses of one number each are least: Newton's steps inside a bracket that closes."""
    low, high, at = np.full(count, 1 / HOTTEST), np.full(count, 1 / COLDEST), np.ones(count)
    for _ in range(60):
        first, second = slopes(at)
        low, high = np.where(first < 0, at, low), np.where(first > 0, at, high)
        step = at - first / np.maximum(second, LEAST)
        new = np.where((step > low) & (step < high), step, (low + high) / 2)
        if (np.abs(new - at) <= 1e-6 * at).all():
            break
        at = np.where(first == 0, at, new)
    return at


def _isotonic(seen: _Seen) -> Isotonic:
    """Rising blocks, each by its middle: lines between them rise everywhere, where steps would tie."""
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415 - slow to import

    first = _temperature(seen)
    scores = first.apply(seen.scores)
    best = scores.argmax(axis=1)
    said = scores[np.arange(len(best)), best].astype(np.float64)
    right = (best == seen.truth).astype(np.float64)
    weights = seen.weights / seen.weights.mean()
    levels = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit_transform(
        said, right, sample_weight=weights
    )
    _, block = np.unique(levels, return_inverse=True)
    rows = np.bincount(block, weights)
    middle = np.bincount(block, said * weights) / rows
    # Half a row more on either side: a block of few rows that are all right is no certainty.
    share = (np.bincount(block, right * weights) + 0.5) / (rows + 1)
    rises = share > np.maximum.accumulate(np.append(0.0, share[:-1]))
    places, values = _open_ends(middle[rises], share[rises])
    return Isotonic(said=places.tolist(), right=values.tolist(), first=first)


def _open_ends(places: Doubles, values: Doubles) -> tuple[Doubles, Doubles]:
    """Lines from nothing to the first block, and on behind the last, where they still rise a little."""
    if places[0] > 0:
        places, values = np.append(0.0, places), np.append(0.0, values)
    if places[-1] < 1:
        places, values = np.append(places, 1.0), np.append(values, values[-1] + 1e-4 * (1 - values[-1]))
    return places, values
