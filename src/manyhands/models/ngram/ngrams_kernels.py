"""The kernels of ``ngrams``. A row of the table: a feature's scale, its weights, its squares last."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch
from manyhands.kernels.simd import LINE, Floats, add_line
from manyhands.models.losses import (
    LEAST,
    MARGIN,
    ONE_VS_ALL,
    ROWS_BETWEEN_MERGES,
    SQUARED_HINGE,
    Classes,
    errors,
    merge,
    probabilities,
    shuffled,
    sigmoid,
)
from manyhands.models.ngram.feature_kernels import Numbers, add_row, look_ahead, text_features, whole_lines

LEAST_LENGTH = np.float32(1e-9)
BIAS_SHARE = np.float32(0.1)  # every row moves the bias: it needs smaller steps
ONE, STEP = np.uint64(1), np.uint64(LINE)
LINE_BITS = np.uint64(4)  # sixteen features, which may share a line of the cache, go to the same thread


@kernel
def count_classes(
    ids: Numbers,
    offsets: Ints,
    labels: Classes,
    label_offsets: Ints,
    weights: Floats,
    share: int,
    shares: int,
    several: bool,
    table: Floats,
) -> None:
    """Count the rows of each class that have a feature, for one share of the features.

    Where rows have ``several`` labels, the last column counts the rows themselves. Otherwise the labels of a
    row share it.

    Every thread goes through all features and leaves those of the others alone by adding nothing to
    a row of its own instead: which features are whose, no processor could foresee. ``shares`` is a
    power of two, and every share has a line at least. The counts stand where the weights will be:
    fresh memory for them would take longer to get than the counting.
    """
    width, mask, mine = np.uint64(table.shape[1]), np.uint64(shares - 1), np.uint64(share)
    own, last = mine << LINE_BITS, np.uint64(len(ids) - 1)
    for row in range(len(offsets) - 1):
        first = (
            np.uint64(labels[label_offsets[row]])
            if label_offsets[row] < label_offsets[row + 1]
            else np.uint64(0)
        )
        count = label_offsets[row + 1] - label_offsets[row]
        part = np.float32(1) if several else np.float32(1) / np.float32(max(count, 1))
        for i in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
            ahead = np.uint64(ids[min(i + AHEAD, last)])
            prefetch(table, (ahead if ahead >> LINE_BITS & mask == mine else own) * width + ONE + first)
            feature = np.uint64(ids[i])
            is_mine = feature >> LINE_BITS & mask == mine
            feature = feature if is_mine else own
            weight = weights[row] * part if is_mine else np.float32(0)
            for k in range(label_offsets[row], label_offsets[row + 1]):
                table[feature, ONE + np.uint64(labels[k])] += weight
            if several:
                table[feature, width - ONE] += weight


@kernel
def scale(
    table: Floats,
    rows: npt.NDArray[np.float64],
    all_rows: float,
    several: bool,
    smoothing: float,
    least: float,
    by_classes: bool,
    by_rarity: bool,
    first: int,
    last: int,
) -> None:
    """Scale features by what they tell of the classes (naive Bayes), by how rare they are (idf), or by both.

    The first is, of all classes, the largest logarithm of how much likelier a feature is in it than outside
    of it. The counts are taken from the places of the weights, which are 0 then.
    """
    for feature in range(first, last):
        total = 0.0
        for k in range(len(rows)):
            total += table[feature, 1 + k]
        if several:  # a row of two classes is no row outside of either
            total = table[feature, table.shape[1] - 1]
        most = 1.0
        for k in range(len(rows)):
            count = table[feature, 1 + k]
            table[feature, 1 + k] = 0
            if rows[k] == 0:  # a class that has yet to come tells nothing of any feature
                continue
            inside = (count + smoothing) / (rows[k] + 2 * smoothing)
            outside = (max(total - count, 0.0) + smoothing) / (max(all_rows - rows[k], 0.0) + 2 * smoothing)
            most = max(most, inside / outside)
        tells = np.log(most) + least if by_classes else 1.0
        rarity = np.log((1 + all_rows) / (1 + total)) + 1 if by_rarity else 1.0
        table[feature, 0] = tells * rarity


@kernel
def _add_up(ids: Numbers, start: int, end: int, following: int, table: Floats, sums: Floats) -> Any:
    """Sum the rows of the features, each times its scale; returns one by the length of the row's vector.

    The scale stands in the first column, so that the first sum is the square of that length.
    """
    columns, width, last = np.uint64(len(sums)), np.uint64(table.shape[1]), np.uint64(len(ids) - 1)
    sums[:] = 0
    for i in range(np.uint64(start), np.uint64(end)):
        ahead, feature = np.uint64(ids[look_ahead(i, end, following, last)]) * width, np.uint64(ids[i])
        x = table[feature, np.uint64(0)]
        if width % STEP:
            prefetch(table, ahead)
            for k in range(columns):
                sums[k] += x * table[feature, k]
        else:
            for line in range(np.uint64(0), width, STEP):
                prefetch(table, ahead + line)
                add_line(sums, line, table, feature * width + line, x)
    return np.float32(1) / np.sqrt(sums[0] + LEAST_LENGTH)


@kernel
def _add_up_one(
    ids: Numbers, start: int, end: int, following: int, table: Floats
) -> tuple[np.float32, np.float32]:
    """The same for a single column."""
    squares, last = LEAST_LENGTH, np.uint64(len(ids) - 1)
    width = np.uint64(table.shape[1])
    score = np.float32(0)
    for i in range(np.uint64(start), np.uint64(end)):
        prefetch(table, np.uint64(ids[look_ahead(i, end, following, last)]) * width)
        feature = np.uint64(ids[i])
        x = table[feature, np.uint64(0)]
        squares += x * x
        score += x * table[feature, ONE]
    return score, np.float32(1) / np.sqrt(squares)


@kernel
def learn(
    ids: Numbers,
    offsets: Ints,
    labels: Classes,
    label_offsets: Ints,
    weights: Floats,
    seed: int,
    loss: int,
    rate: np.float32,
    table: Floats,
    bias: Floats,
) -> float:
    """One pass over a block of rows; returns the sum of their losses."""
    total, width = 0.0, table.shape[1]
    scores, mine, before = np.empty(len(bias), np.float32), bias.copy(), bias.copy()
    sums, moves = np.zeros(width, np.float32), np.zeros(width, np.float32)
    single = len(bias) == 1 and loss != ONE_VS_ALL
    order = shuffled(len(weights), seed)
    for number in range(len(weights)):
        if number % ROWS_BETWEEN_MERGES == 0:
            merge(bias, mine, before)
        row, following = order[number], offsets[order[number + 1]]
        start, end = offsets[row], offsets[row + 1]
        first, last = label_offsets[row], label_offsets[row + 1]
        if single:
            total += weights[row] * _learn_one(
                ids, start, end, following, labels, first, last, weights[row], loss, rate, table, mine
            )
            continue
        inverse = _add_up(ids, start, end, following, table, sums)
        for k in range(len(bias)):
            scores[k] = sums[k + 1] * inverse + mine[k]
        total += weights[row] * errors(scores, loss, labels, first, last)
        squares = np.float32(0)
        for k in range(len(bias)):
            scores[k] *= weights[row]
            mine[k] += BIAS_SHARE * rate * scores[k]
            moves[k + 1] = scores[k] * inverse
            squares += moves[k + 1] * moves[k + 1]
        _update(ids, start, end, squares / np.float32(2), rate, moves, table)
    merge(bias, mine, before)
    return total


@kernel
def _update(
    ids: Numbers, start: int, end: int, squares: np.float32, rate: np.float32, moves: Floats, table: Floats
) -> None:
    """AdaGrad, with one sum of squares for all classes of a feature. ``moves`` has 0 for all but weights."""
    width = np.uint64(table.shape[1])
    for i in range(np.uint64(start), np.uint64(end)):
        feature = np.uint64(ids[i])
        x = table[feature, np.uint64(0)]
        table[feature, width - ONE] += x * x * squares
        step = rate * x / np.sqrt(table[feature, width - ONE])
        if width % STEP:
            for k in range(width - ONE):
                table[feature, k] += step * moves[k]
        else:
            for line in range(np.uint64(0), width, STEP):
                add_line(table, feature * width + line, moves, line, step)


@kernel
def _learn_one(
    ids: Numbers,
    start: int,
    end: int,
    following: int,
    labels: Classes,
    first: int,
    last: int,
    weight: np.float32,
    loss: int,
    rate: np.float32,
    table: Floats,
    bias: Floats,
) -> Any:
    """Two classes, one column: the second class is the positive one."""
    score, inverse = _add_up_one(ids, start, end, following, table)
    truth = np.float32(0)
    for i in range(first, last):
        truth += np.float32(labels[i]) / np.float32(last - first)
    error, cost = _error_of_one(score * inverse + bias[0], truth, loss)
    error *= weight
    bias[0] += BIAS_SHARE * rate * error
    error *= inverse
    column = np.uint64(table.shape[1] - 1)
    for k in range(np.uint64(start), np.uint64(end)):
        feature = np.uint64(ids[k])
        gradient = error * table[feature, np.uint64(0)]
        squares = table[feature, column] + gradient * gradient
        table[feature, column] = squares
        table[feature, ONE] += rate * gradient / np.sqrt(squares)
    return cost


@kernel
def _error_of_one(score: np.float32, truth: np.float32, loss: int) -> Any:
    """How far the score of the positive class is from what it should be, and the loss."""
    if loss == SQUARED_HINGE:
        sign = np.float32(2) * truth - np.float32(1)
        short = max(MARGIN - sign * score, np.float32(0))
        return sign * short, short * short
    probability = sigmoid(score)
    likely = probability if truth > np.float32(0.5) else np.float32(1) - probability
    return truth - probability, -np.log(max(likely, LEAST))


@kernel
def score(ids: Numbers, offsets: Ints, table: Floats, bias: Floats, loss: int, out: Floats) -> None:
    """The probability of each label for each row."""
    sums = np.empty(table.shape[1], np.float32)
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        if len(bias) == 1 and loss != ONE_VS_ALL:
            total, inverse = _add_up_one(ids, start, end, end, table)
            _score_two(total * inverse + bias[0], out, row)
        else:
            inverse = _add_up(ids, start, end, end, table, sums)
            _score_many(sums, inverse, bias, loss, out, row)


@kernel
def _score_two(score: np.float32, out: Floats, row: int) -> None:
    out[row, 1] = sigmoid(score)
    out[row, 0] = np.float32(1) - out[row, 1]


@kernel
def _score_many(sums: Floats, inverse: np.float32, bias: Floats, loss: int, out: Floats, row: int) -> None:
    scores = out[row]
    for k in range(len(bias)):
        scores[k] = sums[k + 1] * inverse + bias[k]
    probabilities(scores, loss)


@kernel
def score_texts(
    data: Bytes,
    rows: Ints,
    ngrams: int,
    ngram_mask: np.uint64,
    word_base: np.uint64,
    word_mask: np.uint64,
    index: Hashes,
    numbers: Numbers,
    distinct: bool,
    ends: Ints,
    hashes: Hashes,
    ids: Numbers,
    seen: Numbers,
    table: Floats,
    bias: Floats,
    loss: int,
    out: Floats,
) -> None:
    """As ``score``, straight from normalised texts."""
    sums = np.empty(whole_lines(table.shape[1]), np.float32)
    for row in range(len(rows) - 1):
        n = text_features(
            data,
            rows[row],
            rows[row + 1],
            ngrams,
            ngram_mask,
            word_base,
            word_mask,
            index,
            numbers,
            distinct,
            ends,
            hashes,
            ids,
            seen,
            table,
        )
        if len(bias) == 1 and loss != ONE_VS_ALL:
            squares, score = LEAST_LENGTH, np.float32(0)
            for k in range(n):
                feature = np.uint64(ids[k])
                x = table[feature, np.uint64(0)]
                squares += x * x
                score += x * table[feature, ONE]
            _score_two(score * (np.float32(1) / np.sqrt(squares)) + bias[0], out, row)
        else:
            sums[:] = 0
            for k in range(n):
                add_row(sums, table, np.uint64(ids[k]), table[np.uint64(ids[k]), np.uint64(0)])
            inverse = np.float32(1) / np.sqrt(sums[0] + LEAST_LENGTH)
            _score_many(sums, inverse, bias, loss, out, row)
