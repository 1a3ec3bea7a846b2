"""The log loss of scores that are probabilities; None where they are not."""

import numpy as np
from sklearn.metrics import log_loss

from manyhands.evaluate.tables import Integers, Scores, Weights, blocks, table

SUM_TOLERANCE = 0.01  # of a row of probabilities; half precision drifts this far over many labels


def loss_single(scores: Scores, truth: Integers, weights: Weights | None) -> float | None:
    """The mean log loss of the rows whose label is known: an unknown one has no score to judge by."""
    known = np.flatnonzero(truth >= 0)
    weight = None if weights is None else weights[known]
    nothing = len(known) == 0 if weight is None else weight.sum() == 0
    if nothing or not _are_shares(scores) or np.abs(scores.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        return None
    # Only the score of the true label counts, so two columns stand for all: scikit-learn would fill a
    # dense table of rows by labels, and refuses a model with one label.
    right = np.clip(scores[known, truth[known]], 0, 1, dtype=np.float64)
    two = np.column_stack([1 - right, right])
    return float(log_loss(np.ones(len(known), np.int8), two, labels=[0, 1], sample_weight=weight))


def loss_several(scores: Scores, truth: Integers, offsets: Integers) -> float | None:
    """The mean log loss of all yes-or-no questions, one for each row and label that the model knows.

    scikit-learn has no such loss; it is the mean of its log loss over the labels, clipped as there.
    """
    if not _are_shares(scores):
        return None
    least = np.finfo(np.float64).eps
    total = 0.0
    for rows in blocks(scores):
        total -= float(np.log1p(-np.clip(scores[rows], least, 1 - least, dtype=np.float64)).sum())
    true = table(truth, offsets, scores.shape[1]).tocoo()
    known = true.col < scores.shape[1]
    right = np.clip(scores[true.row[known], true.col[known]], least, 1 - least, dtype=np.float64)
    total += float((np.log1p(-right) - np.log(right)).sum())
    return total / scores.size


def _are_shares(scores: Scores) -> bool:
    # A division in single precision may end a little above 1.
    return bool(scores.min() >= 0 and scores.max() <= 1 + 1e-6)
