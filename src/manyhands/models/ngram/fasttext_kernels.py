"""The kernels of ``fasttext``."""

from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import AHEAD, Bytes, Hashes, Ints, kernel, prefetch
from manyhands.kernels.simd import LINE, Floats, add_line, dot_line
from manyhands.models.losses import (
    LEAST,
    NEGATIVE,
    ROWS_BETWEEN_MERGES,
    Classes,
    errors,
    merge,
    probabilities,
    shuffled,
    sigmoid,
)
from manyhands.models.ngram.feature_kernels import Numbers, add_row, look_ahead, text_features, whole_lines
from manyhands.text.hashing import mix

Rows = npt.NDArray[np.int32]

ONE, STEP = np.uint64(1), np.uint64(LINE)
FEW_LABELS = 64
EASY = 0.01  # a row whose loss is less teaches next to nothing: its vectors are left alone
TO_FRACTION = 1.0 / (1 << 53)
R11 = np.uint64(11)


@kernel
def first_vectors(vectors: Floats, first: int, last: int, dim: int, seed: np.uint64) -> None:
    """Small random numbers, each by its place and the seed: the same however the work is spread."""
    for row in range(first, last):
        start = mix(seed + np.uint64(row) * np.uint64(0x9E3779B97F4A7C15))
        for k in range(dim):
            start = start * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            vectors[row, k] = ((start >> R11) * TO_FRACTION * 2 - 1) / dim


@kernel
def first_vectors_of(vectors: Floats, rows: Rows, keys: Hashes, dim: int, seed: np.uint64) -> None:
    """The same for some rows, each by its key."""
    for k in range(len(rows)):
        start = mix(seed + keys[k] * np.uint64(0x9E3779B97F4A7C15))
        for d in range(dim):
            start = start * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            vectors[rows[k], d] = ((start >> R11) * TO_FRACTION * 2 - 1) / dim


@kernel
def _mean(ids: Numbers, start: int, end: int, vectors: Floats, dim: int, out: Floats) -> None:
    """Write the mean of the row's vectors to ``out``."""
    columns, width, last = np.uint64(dim), np.uint64(vectors.shape[1]), np.uint64(len(ids) - 1)
    for k in range(columns):
        out[k] = 0
    for i in range(np.uint64(start), np.uint64(end)):
        prefetch(vectors, np.uint64(ids[min(i + AHEAD, last)]) * width)
        feature = np.uint64(ids[i])
        for k in range(columns):
            out[k] += vectors[feature, k]
    for k in range(columns):
        out[k] /= np.float32(max(end - start, 1))


@kernel
def learn(
    ids: Numbers,
    offsets: Ints,
    labels: Classes,
    label_offsets: Ints,
    weights: Floats,
    loss: int,
    rate: np.float32,
    negatives: int,
    draw: npt.NDArray[np.float64],
    seed: int,
    vectors: Floats,
    outputs: Floats,
) -> float:
    """One pass over a block of rows; returns the sum of their losses. Vectors are padded to whole lines."""
    width = vectors.shape[1]
    mean, gradient = np.zeros(width, np.float32), np.zeros(width, np.float32)
    scores = np.empty(len(outputs), np.float32)
    few = len(outputs) <= FEW_LABELS
    mine = outputs.copy() if few else outputs
    before, total = mine.copy() if few else mine, 0.0
    order = shuffled(len(weights), seed)
    for number in range(len(weights)):
        if few and number % ROWS_BETWEEN_MERGES == 0:
            merge(outputs.reshape(-1), mine.reshape(-1), before.reshape(-1))
        row, following = order[number], offsets[order[number + 1]]
        start, end = offsets[row], offsets[row + 1]
        if start == end:
            continue
        first, last = label_offsets[row], label_offsets[row + 1]
        _mean_of_lines(ids, start, end, following, vectors, mean)
        gradient[:] = 0
        step = rate * weights[row]
        if loss == NEGATIVE:
            state = mix(np.uint64(seed) + np.uint64(row))
            cost = _sampled(labels, first, last, negatives, draw, state, step, mean, mine, gradient)
        else:
            cost = _all(labels, first, last, loss, step, mean, mine, scores, gradient)
        total += weights[row] * cost
        if cost > EASY:
            _spread(ids, start, end, gradient, vectors)
    if few:
        merge(outputs.reshape(-1), mine.reshape(-1), before.reshape(-1))
    return total


@kernel
def _mean_of_lines(ids: Numbers, start: int, end: int, following: int, vectors: Floats, out: Floats) -> None:
    """As ``_mean``, for vectors that are padded to whole lines; the row at ``following`` comes next."""
    width, last, one = np.uint64(len(out)), np.uint64(len(ids) - 1), np.float32(1)
    out[:] = 0
    for line in range(np.uint64(0), width, STEP):
        for i in range(np.uint64(start), np.uint64(end)):
            prefetch(vectors, np.uint64(ids[look_ahead(i, end, following, last)]) * width + line)
            add_line(out, line, vectors, np.uint64(ids[i]) * width + line, one)
    for k in range(len(out)):
        out[k] /= np.float32(end - start)


@kernel
def _spread(ids: Numbers, start: int, end: int, gradient: Floats, vectors: Floats) -> None:
    """Move the vector of each n-gram by its share."""
    width, share = np.uint64(len(gradient)), np.float32(1) / np.float32(end - start)
    for line in range(np.uint64(0), width, STEP):
        for i in range(np.uint64(start), np.uint64(end)):
            add_line(vectors, np.uint64(ids[i]) * width + line, gradient, line, share)


@kernel
def _all(
    labels: Classes,
    first: int,
    last: int,
    loss: int,
    step: np.float32,
    mean: Floats,
    outputs: Floats,
    scores: Floats,
    gradient: Floats,
) -> float:
    """Learn from every label's score."""
    for label in range(len(outputs)):
        scores[label] = _score(mean, outputs, label)
    cost = errors(scores, loss, labels, first, last)
    for label in range(len(outputs)):
        _move(step * scores[label], mean, outputs, label, gradient)
    return cost


@kernel
def _score(mean: Floats, outputs: Floats, label: Any) -> np.float32:
    score, width = np.float32(0), np.uint64(len(mean))
    for line in range(np.uint64(0), width, STEP):
        score += dot_line(mean, line, outputs, np.uint64(label) * width + line)
    return score


@kernel
def _move(step: np.float32, mean: Floats, outputs: Floats, label: Any, gradient: Floats) -> None:
    width = np.uint64(len(mean))
    for line in range(np.uint64(0), width, STEP):
        output = np.uint64(label) * width + line
        add_line(gradient, line, outputs, output, step)
        add_line(outputs, output, mean, line, step)


@kernel
def _sampled(
    labels: Classes,
    first: int,
    last: int,
    negatives: int,
    draw: npt.NDArray[np.float64],
    state: np.uint64,
    step: np.float32,
    mean: Floats,
    outputs: Floats,
    gradient: Floats,
) -> float:
    """Learn from the row's labels and, for each, a few others drawn by how frequent they are."""
    cost = 0.0
    for i in range(first, last):
        mine = labels[i]
        for sample in range(negatives + 1):
            label = np.int64(mine)
            if sample:
                state = mix(state + ONE)
                label = np.searchsorted(draw, (state >> R11) * TO_FRACTION)
                label = min(label, np.int64(len(outputs) - 1))
                wrong = True
                for other in range(first, last):
                    wrong = wrong and labels[other] != label
                if not wrong:
                    continue
            probability = sigmoid(_score(mean, outputs, label))
            likely = np.float32(1) - probability if sample else probability
            cost -= np.log(max(likely, LEAST))
            truth = np.float32(0) if sample else np.float32(1)
            _move(step * (truth - probability), mean, outputs, label, gradient)
    return cost


@kernel
def means(ids: Numbers, offsets: Ints, vectors: Floats, dim: int, out: Floats) -> None:
    mean = np.zeros(dim, np.float32)
    for row in range(len(offsets) - 1):
        _mean(ids, offsets[row], offsets[row + 1], vectors, dim, mean)
        for k in range(dim):
            out[row, k] = mean[k]


@kernel
def score(
    ids: Numbers,
    offsets: Ints,
    vectors: Floats,
    outputs: Floats,
    dim: int,
    loss: int,
    out: Floats,
) -> None:
    """The probability of each label for each row."""
    mean = np.zeros(outputs.shape[1], np.float32)
    for row in range(len(offsets) - 1):
        _mean(ids, offsets[row], offsets[row + 1], vectors, dim, mean)
        _score_mean(mean, outputs, dim, loss, out, row)


@kernel
def _score_mean(mean: Floats, outputs: Floats, dim: int, loss: int, out: Floats, row: int) -> None:
    scores = out[row]
    for label in range(len(outputs)):
        total = np.float32(0)
        for k in range(dim):
            total += outputs[label, k] * mean[k]
        scores[label] = total
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
    vectors: Floats,
    outputs: Floats,
    dim: int,
    loss: int,
    out: Floats,
) -> None:
    """As ``score``, straight from normalised texts."""
    mean = np.empty(whole_lines(vectors.shape[1]), np.float32)
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
            vectors,
        )
        _mean_of_rows(ids, n, vectors, mean)
        _score_mean(mean, outputs, dim, loss, out, row)


@kernel
def score_parts(
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
    parts: Floats,
    loss: int,
    out: Floats,
) -> None:
    """As ``score_texts``, from what each n-gram adds to the score of each label."""
    labels = parts.shape[1]
    mean = np.empty(whole_lines(labels), np.float32)
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
            parts,
        )
        if labels == 2:  # both sums stay in the processor
            first, second = np.float32(0), np.float32(0)
            for k in range(n):
                first += parts[np.uint64(ids[k]), np.uint64(0)]
                second += parts[np.uint64(ids[k]), ONE]
            mean[0], mean[1] = first / np.float32(max(n, ONE)), second / np.float32(max(n, ONE))
        else:
            _mean_of_rows(ids, n, parts, mean)
        scores = out[row]
        for k in range(labels):
            scores[k] = mean[k]
        probabilities(scores, loss)


@kernel
def _mean_of_rows(ids: Numbers, n: np.uint64, rows: Floats, out: Floats) -> None:
    """As ``_mean``, of rows that were asked for before; ``out`` has room for whole lines."""
    out[:] = 0
    for k in range(n):
        add_row(out, rows, np.uint64(ids[k]), np.float32(1))
    for k in range(rows.shape[1]):
        out[k] /= np.float32(max(n, ONE))
