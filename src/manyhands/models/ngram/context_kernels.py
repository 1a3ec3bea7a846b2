"""The kernels of ``context``: some n-grams of a text tell others of the same text from n-grams drawn."""

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Ints, kernel, prefetch
from manyhands.kernels.simd import LINE, Floats, add_line, dot_line
from manyhands.models.losses import Classes, sigmoid
from manyhands.models.ngram.feature_kernels import Numbers
from manyhands.text.hashing import mix

ONE, STEP = np.uint64(1), np.uint64(LINE)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
HALF_BITS, SHORT_BITS = np.uint64(32), np.uint64(40)
SHORT = np.float32(1 << 24)
LEAST_LENGTH = np.float32(1e-9)
DRAWN = 32  # n-grams drawn against those of a text, all of which share them
NEGATIVES = np.float32(5)  # as much they count beside each that was to be told
MOST_TOLD = 64  # of a text; more say the same again

Counts = npt.NDArray[np.float64]


@kernel
def count_classes(
    ids: Numbers, offsets: Ints, labels: Classes, label_offsets: Ints, weights: Floats, counts: Counts
) -> None:
    """Add up the rows of each class that have a feature; labels of a row share it."""
    for row in range(len(offsets) - 1):
        first, last = label_offsets[row], label_offsets[row + 1]
        for k in range(first, last):
            part = weights[row] / (last - first)
            for i in range(offsets[row], offsets[row + 1]):
                counts[ids[i], labels[k]] += part


@kernel
def tell(counts: Counts, rows: Counts, scales: Floats, sureness: Floats) -> None:
    """How much each feature tells of the classes: the largest logarithm of how much likelier it is in one.

    ``sureness`` is that logarithm by its standard error.
    """
    total = rows.sum()
    for feature in range(len(counts)):
        everywhere = counts[feature].sum()
        for k in range(len(rows)):
            inside, outside = counts[feature, k] + 1, everywhere - counts[feature, k] + 1
            ratio = np.log(inside / (rows[k] + 2)) - np.log(outside / (total - rows[k] + 2))
            if ratio > scales[feature]:
                scales[feature] = ratio
                sureness[feature] = ratio / np.sqrt(1 / inside + 1 / outside)


@kernel
def learn(
    ids: Numbers,
    offsets: Ints,
    scales: Floats,
    kept: Floats,
    draw: Numbers,
    seed: int,
    rate: np.float32,
    inputs: Floats,
    outputs: Floats,
    squares: Floats,
) -> tuple[float, float]:
    """One pass over some texts; gives the loss, and how many n-grams were to be told.

    Half of a text's n-grams, drawn anew each time, make its vector. Of the other half, those that are
    ``kept`` are told by it from the ``draw``. ``squares`` are AdaGrad's, of inputs and of outputs.
    """
    width = np.uint64(inputs.shape[1])
    vector, move = np.zeros(width, np.float32), np.zeros(width, np.float32)
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    given, told = np.empty(longest, np.uint32), np.empty(longest + DRAWN, np.uint32)
    state, total, count = np.uint64(seed), 0.0, 0.0
    for row in range(len(offsets) - 1):
        n_given, n_told, length = 0, 0, LEAST_LENGTH
        for i in range(offsets[row], offsets[row + 1]):
            state = mix(state + GOLDEN)
            feature = ids[i]
            if state & ONE:
                given[n_given] = feature
                n_given += 1
                length += scales[feature] * scales[feature]
            elif np.float32(state >> SHORT_BITS) < kept[feature] * SHORT:
                told[n_told] = feature
                n_told += 1
        if n_given == 0 or n_told == 0:
            continue
        for i in range(min(n_told, MOST_TOLD) if n_told > MOST_TOLD else 0):
            state = mix(state + GOLDEN)
            other = i + np.int64(((state >> HALF_BITS) * np.uint64(n_told - i)) >> HALF_BITS)
            told[i], told[other] = told[other], told[i]
        n_told = min(n_told, MOST_TOLD)
        for i in range(n_told, n_told + DRAWN):
            state = mix(state + GOLDEN)
            told[i] = draw[((state >> HALF_BITS) * np.uint64(len(draw))) >> HALF_BITS]
        _mean(given, 0, n_given, scales, length, inputs, vector)
        total += _tell_apart(told, n_told, rate, vector, move, outputs, squares)
        count += n_told
        _move_inputs(given, n_given, scales, length, rate, move, inputs, squares)
    return total, count


@kernel
def _mean(
    ids: Numbers, start: int, end: int, scales: Floats, length: np.float32, inputs: Floats, vector: Floats
) -> None:
    """The sum of the vectors of some features, each times its scale, by the length of the scales."""
    width, last = np.uint64(inputs.shape[1]), np.uint64(max(end - 1, 0))
    inverse = np.float32(1) / np.sqrt(length)
    vector[:] = 0
    for i in range(np.uint64(start), np.uint64(end)):
        feature, ahead = np.uint64(ids[i]), np.uint64(ids[min(i + AHEAD, last)]) * width
        scale = scales[feature] * inverse
        for line in range(np.uint64(0), width, STEP):
            prefetch(inputs, ahead + line)
            add_line(vector, line, inputs, feature * width + line, scale)


@kernel
def _tell_apart(
    told: Numbers,
    positive: int,
    rate: np.float32,
    vector: Floats,
    move: Floats,
    outputs: Floats,
    squares: Floats,
) -> float:
    """Move the outputs; ``move`` becomes what the text's vector should move by."""
    width, total = np.uint64(len(vector)), 0.0
    share = NEGATIVES * np.float32(positive) / np.float32(DRAWN)
    move[:] = 0
    for i in range(positive + DRAWN):
        feature, score = np.uint64(told[i]), np.float32(0)
        for line in range(np.uint64(0), width, STEP):
            score += dot_line(vector, line, outputs, feature * width + line)
        probability = sigmoid(score)
        if i < positive:
            error = np.float32(1) - probability
            total -= np.log(max(probability, LEAST_LENGTH))
        else:
            error = -share * probability
            total -= share * np.log(max(np.float32(1) - probability, LEAST_LENGTH))
        squares[feature, ONE] += error * error
        step = rate * error / np.sqrt(squares[feature, ONE])
        for line in range(np.uint64(0), width, STEP):
            add_line(move, line, outputs, feature * width + line, error)
            add_line(outputs, feature * width + line, vector, line, step)
    return total


@kernel
def _move_inputs(
    given: Numbers,
    count: int,
    scales: Floats,
    length: np.float32,
    rate: np.float32,
    move: Floats,
    inputs: Floats,
    squares: Floats,
) -> None:
    width, square = np.uint64(len(move)), np.float32(0)
    for line in range(np.uint64(0), width, STEP):
        square += dot_line(move, line, move, line)
    square /= np.float32(width) * length
    inverse = np.float32(1) / np.sqrt(length)
    for i in range(count):
        feature = np.uint64(given[i])
        scale = scales[feature]
        squares[feature, 0] += scale * scale * square
        step = rate * scale * inverse / np.sqrt(squares[feature, 0])
        for line in range(np.uint64(0), width, STEP):
            add_line(inputs, feature * width + line, move, line, step)


@kernel
def vectors(ids: Numbers, offsets: Ints, scales: Floats, inputs: Floats, out: Floats) -> None:
    """The vector of each text, of all its n-grams."""
    for row in range(len(offsets) - 1):
        length = LEAST_LENGTH
        for i in range(offsets[row], offsets[row + 1]):
            length += scales[ids[i]] * scales[ids[i]]
        _mean(ids, offsets[row], offsets[row + 1], scales, length, inputs, out[row])
