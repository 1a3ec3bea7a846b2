"""From scores to errors: what every linear output layer shares."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.text.hashing import mix

Classes = npt.NDArray[np.int32]

SOFTMAX, ONE_VS_ALL, NEGATIVE, SQUARED_HINGE = 0, 1, 2, 3
LOSSES = {
    "softmax": SOFTMAX,
    "one-vs-all": ONE_VS_ALL,
    "negative": NEGATIVE,
    "squared-hinge": SQUARED_HINGE,
}
MANY_LABELS = 1000
ROWS_BETWEEN_MERGES = 16
ROWS_TOGETHER = 4
# Of the squared hinge. With it, a sigmoid is as steep at 0 as the probability that this loss estimates, and a
# learning rate means about as much as with softmax.
MARGIN = np.float32(2)
LEAST = np.float32(1e-9)  # below every probability, so that no logarithm is infinite


def choose(loss: str, labels: int, multi_label: bool) -> str:
    """The loss that fits, where none was asked for.

    >>> choose("auto", 5, False), choose("auto", 5, True), choose("auto", 5000, False)
    ('softmax', 'one-vs-all', 'negative')
    """
    if loss != "auto":
        return loss
    if labels > MANY_LABELS:
        return "negative"
    return "one-vs-all" if multi_label else "softmax"


@kernel
def sigmoid(score: np.float32) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-score))


@kernel
def softmax(scores: Floats) -> None:
    """Scores to probabilities that add up to 1, in place."""
    most = scores[0]
    for k in range(len(scores)):
        most = max(most, scores[k])
    total = np.float32(0)
    for k in range(len(scores)):
        scores[k] = np.exp(scores[k] - most)
        total += scores[k]
    for k in range(len(scores)):
        scores[k] /= total


@kernel
def probabilities(scores: Floats, loss: int) -> None:
    """Scores to what a user reads, in place."""
    if loss in (SOFTMAX, SQUARED_HINGE):
        softmax(scores)
    else:
        for k in range(len(scores)):
            scores[k] = sigmoid(scores[k])


@kernel
def errors(scores: Floats, loss: int, labels: Classes, first: int, last: int) -> float:
    """Scores to truth minus probability, in place; returns the loss. Several labels share the truth.

    The row's labels are given by where they begin and end: a slice would count references, and two
    threads that count at the same place wait for each other.
    """
    if loss == SQUARED_HINGE:
        return _short_of_margin(scores, labels, first, last)
    probabilities(scores, loss)
    total = 0.0
    share = np.float32(1) / np.float32(max(last - first, 1)) if loss == SOFTMAX else np.float32(1)
    if loss == SOFTMAX:
        for i in range(first, last):
            total -= np.log(max(scores[labels[i]], LEAST)) * share
    else:
        for k in range(len(scores)):
            total -= np.log(max(np.float32(1) - scores[k], LEAST))
        for i in range(first, last):
            likely = scores[labels[i]]
            total += np.log(max(np.float32(1) - likely, LEAST)) - np.log(max(likely, LEAST))
    for k in range(len(scores)):
        scores[k] = -scores[k]
    for i in range(first, last):
        scores[labels[i]] += share
    return total


@kernel
def _short_of_margin(scores: Floats, labels: Classes, first: int, last: int) -> float:
    """The errors of the squared hinge, each class against all others: how far a score is from its margin."""
    total = 0.0
    for k in range(len(scores)):
        sign = np.float32(-1)
        for i in range(first, last):
            if labels[i] == k:
                sign = np.float32(1)
        short = max(MARGIN - sign * scores[k], np.float32(0))
        scores[k] = sign * short
        total += short * short
    return total


@kernel
def probabilities_of_rows(scores: Floats, loss: int) -> None:
    for row in range(len(scores)):
        probabilities(scores[row], loss)


@kernel
def errors_of_rows(scores: Floats, loss: int, labels: Classes, label_offsets: Ints, weights: Floats) -> float:
    """Scores to truth minus probability, by the weight of each row; returns the sum of the losses."""
    total = 0.0
    for row in range(len(scores)):
        total += weights[row] * errors(scores[row], loss, labels, label_offsets[row], label_offsets[row + 1])
        for k in range(scores.shape[1]):
            scores[row, k] *= weights[row]
    return total


@kernel
def merge(shared: Floats, mine: Floats, before: Floats) -> None:
    """Add what this thread has learnt since ``before`` to what all share, and take that over.

    Every row moves these few numbers. Written in place by all threads, they would go from core to
    core with every row.
    """
    for k in range(len(shared)):
        shared[k] += mine[k] - before[k]
        mine[k] = before[k] = shared[k]


@kernel
def shuffled(rows: int, seed: int) -> Ints:
    """The numbers from 0 up to ``rows`` in an order that the seed decides, and the last one again.

    Neighbours stay together in short runs: what lies together is read faster. Without any change of
    order, rows were learnt a little worse.
    """
    runs = (rows + ROWS_TOGETHER - 1) // ROWS_TOGETHER
    starts = np.arange(runs)
    state = np.uint64(seed)
    for last in range(runs - 1, 0, -1):
        state = mix(state + np.uint64(0x9E3779B97F4A7C15))
        other = np.int64(((state >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32))
        starts[last], starts[other] = starts[other], starts[last]
    order, at = np.zeros(rows + 1, np.int64), 0
    for run in range(runs):
        first = int(starts[run]) * ROWS_TOGETHER
        for row in range(first, min(first + ROWS_TOGETHER, rows)):
            order[at] = row
            at += 1
    order[rows] = order[max(rows - 1, 0)]
    return order
