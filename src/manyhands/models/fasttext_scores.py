"""From the mean of a text's rows to a probability for each label, by the loss the model was trained with."""

import math
from typing import NamedTuple

import numpy as np

from manyhands.kernel import Bytes, Ints, frozen, kernel
from manyhands.models.fasttext_features import Features, Scratch, mean_row
from manyhands.models.fasttext_rows import Floats, Rows, dot_row
from manyhands.models.fasttext_tables import Int32s

LOSSES = ("hs", "ns", "softmax", "ova")  # in the order of fastText's numbers, which begin at 1
HS, SOFTMAX = LOSSES.index("hs"), LOSSES.index("softmax")
MOST_COUNTED = 10**15  # fastText's own mark for a node of the tree that is not made yet
EDGE, STEPS_PER_UNIT = np.float32(8), np.float32(32)


def _sigmoids() -> Floats:
    """fastText looks sigmoids up in 512 steps, and its probabilities show the steps."""
    points = np.arange(513, dtype=np.float32) / STEPS_PER_UNIT - EDGE
    table: Floats = (1 / (1 + np.exp(-points).astype(np.float64))).astype(np.float32)
    return table


SIGMOIDS = frozen(_sigmoids())


class Classifier(NamedTuple):
    """The second matrix, and how its products become probabilities."""

    outputs: Rows
    columns: Floats  # the dense rows the other way round: (dim, labels)
    loss: int
    children: Int32s  # (labels - 1, 2), for hierarchical softmax


@kernel
def huffman(counts: Ints) -> Int32s:
    """The two children of each inner node; the leaves are numbered first, the root is last.

    Takes the rarest leaf or the first node not yet taken, whichever was counted less, and a node
    if both were counted alike. That is fastText's tree for counts below ``MOST_COUNTED``.
    """
    leaves = len(counts)
    children = np.zeros((max(leaves - 1, 0), 2), np.int32)
    totals = np.full(max(leaves - 1, 0), MOST_COUNTED)
    leaf, node = leaves - 1, 0
    for made in range(leaves - 1):
        total = 0
        for side in range(2):
            if leaf >= 0 and counts[leaf] < totals[min(node, leaves - 2)]:
                children[made, side] = leaf
                total += counts[leaf]
                leaf -= 1
            else:
                children[made, side] = leaves + node
                total += totals[node]
                node += 1
        totals[made] = total
    return children


@kernel
def _products(classifier: Classifier, hidden: Floats, out: Floats) -> None:
    """Dense ones are summed up for all labels side by side: each in fastText's order, yet fast."""
    if len(classifier.outputs.codes):
        for label in range(len(out)):
            out[label] = dot_row(classifier.outputs, label, hidden)
        return
    out[:] = 0
    for j in range(np.uint64(len(hidden))):
        for label in range(np.uint64(len(out))):
            out[label] += classifier.columns[j, label] * hidden[j]


@kernel
def _finite(out: Floats) -> bool:
    total = np.float32(0)
    for label in range(len(out)):
        total += out[label] * np.float32(0)
    return bool(total == 0)


@kernel
def _softmax(out: Floats) -> None:
    top = out[0]
    for label in range(len(out)):
        top = max(top, out[label])
    total = np.float32(0)
    for label in range(len(out)):
        out[label] = math.exp(out[label] - top)
        total += out[label]
    for label in range(len(out)):
        out[label] /= total


@kernel
def _stepped_sigmoid(out: Floats) -> None:
    for label in range(len(out)):
        value = out[label]
        if value > EDGE:
            out[label] = 1
        elif value >= -EDGE:
            out[label] = SIGMOIDS[np.int64((value + EDGE) * STEPS_PER_UNIT)]
        else:
            out[label] = 0


@kernel
def _down_the_tree(children: Int32s, parts: Floats, out: Floats) -> None:
    """Share a probability of one out from the root down; a child always has the lower number."""
    leaves = len(out)
    for node in range(leaves - 1):
        parts[node] = 1 / (1 + math.exp(-out[node]))
    shares = parts[leaves:]
    if leaves > 1:
        shares[leaves - 2] = 1
    else:
        out[0] = 1
    for node in range(leaves - 2, -1, -1):
        for side in range(2):
            part = parts[node] if side else 1 - parts[node]
            child = children[node, side]
            if child >= leaves:
                shares[child - leaves] = shares[node] * part
            else:
                out[child] = shares[node] * part


@kernel
def score_rows(
    features: Features,
    inputs: Rows,
    classifier: Classifier,
    data: Bytes,
    offsets: Ints,
    room: Scratch,
    out: Floats,
) -> None:
    """A row of probabilities for each text; of zeros if nothing in it is known.

    Of zeros, too, if the weights of a text are not numbers: fastText gives up on it.
    """
    labels = out.shape[1]
    parts = np.empty(2 * labels if classifier.loss == HS else 0, np.float32)
    for row in range(len(offsets) - 1):
        scores = out[row]
        if not mean_row(features, inputs, data, offsets[row], offsets[row + 1], room):
            scores[:] = 0
            continue
        _products(classifier, room.hidden, scores)
        if not _finite(scores):
            scores[:] = 0
        elif classifier.loss == SOFTMAX:
            _softmax(scores)
        elif classifier.loss == HS:
            _down_the_tree(classifier.children, parts, scores)
        else:
            _stepped_sigmoid(scores)
