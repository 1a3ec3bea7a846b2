"""From scores to errors: what every linear output layer shares."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernel import Ints, kernel
from manyhands.text.hashing import mix

Floats = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int32]

SOFTMAX, ONE_VS_ALL, NEGATIVE = 0, 1, 2
LOSSES = {"softmax": SOFTMAX, "one-vs-all": ONE_VS_ALL, "negative": NEGATIVE}
MANY_LABELS = 1000
LEAST = np.float32(1e-9)  # below every probability, so that no logarithm is infinite


def choose(loss: str, labels: int, several: bool) -> str:
    """The loss that fits, where none was asked for.

    >>> choose("auto", 5, False), choose("auto", 5, True), choose("auto", 5000, False)
    ('softmax', 'one-vs-all', 'negative')
    """
    if loss != "auto":
        return loss
    if labels > MANY_LABELS:
        return "negative"
    return "one-vs-all" if several else "softmax"


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
    if loss == SOFTMAX:
        softmax(scores)
    else:
        for k in range(len(scores)):
            scores[k] = sigmoid(scores[k])


@kernel
def errors(scores: Floats, loss: int, labels: Classes) -> float:
    """Scores to truth minus probability, in place; returns the loss. Several labels share the truth."""
    probabilities(scores, loss)
    total = 0.0
    share = np.float32(1) / np.float32(max(len(labels), 1)) if loss == SOFTMAX else np.float32(1)
    if loss == SOFTMAX:
        for label in labels:
            total -= np.log(max(scores[label], LEAST)) * share
    else:
        for k in range(len(scores)):
            total -= np.log(max(np.float32(1) - scores[k], LEAST))
        for label in labels:
            total += np.log(max(np.float32(1) - scores[label], LEAST)) - np.log(max(scores[label], LEAST))
    for k in range(len(scores)):
        scores[k] = -scores[k]
    for label in labels:
        scores[label] += share
    return total


@kernel
def shuffled(rows: int, seed: int) -> Ints:
    """The numbers from 0 up to ``rows`` in an order that the seed decides."""
    order = np.arange(rows)
    state = np.uint64(seed)
    for last in range(rows - 1, 0, -1):
        state = mix(state + np.uint64(0x9E3779B97F4A7C15))
        other = np.int64((state >> np.uint64(33)) % np.uint64(last + 1))
        order[last], order[other] = order[other], order[last]
    return order
