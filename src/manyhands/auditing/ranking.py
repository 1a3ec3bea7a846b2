"""From probabilities to suspicion: which rows have not their likeliest label, and in which order.

Rows are ranked by the probability of the label that they have. With planted errors this finds more of them
than the margin to the likeliest label does, wherever there are more than two.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints

Probabilities = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Ranked:
    """Suspicious rows, the most suspicious first, with what was said of each."""

    rows: Ints
    labels: Ints
    suggested: Ints
    probabilities: Probabilities  # of their own labels
    suggested_probabilities: Probabilities


def rank(probabilities: Probabilities, labels: Ints, judged: Mask) -> Ranked:
    """The ``judged`` rows of which another label is likelier.

    >>> likely = np.array([[0.9, 0.1], [0.3, 0.7], [0.1, 0.9]], np.float32)
    >>> rank(likely, np.array([0, 0, 0]), np.ones(3, bool)).rows.tolist()
    [2, 1]
    """
    own = probabilities[np.arange(len(labels)), labels]
    likeliest = probabilities.argmax(axis=1)
    rows = np.flatnonzero((likeliest != labels) & judged)
    rows = rows[np.argsort(own[rows], kind="stable")]
    return Ranked(rows, labels[rows], likeliest[rows], own[rows], probabilities[rows, likeliest[rows]])


def confidently_wrong(probabilities: Probabilities, labels: Ints) -> Mask:
    """Rows that another label fits best, and as well as it fits the rows that have it, on average.

    Such are the thresholds by which confident learning (arXiv 1911.00068) counts wrong labels: of a label
    that is hard to tell, less is asked.

    >>> likely = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.25, 0.75], [0.15, 0.85]], np.float32)
    >>> confidently_wrong(likely, np.array([0, 0, 1, 1, 0])).tolist()
    [False, False, False, False, True]
    """
    rows = np.arange(len(labels))
    own, likeliest = probabilities[rows, labels], probabilities.argmax(axis=1)
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    fits = np.bincount(labels, own, minlength=len(counts)) / np.maximum(counts, 1)
    found: Mask = (likeliest != labels) & (probabilities[rows, likeliest] >= fits[likeliest])
    return found
