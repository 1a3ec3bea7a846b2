"""The kernel of skip-gram with negative sampling: words learn to tell their neighbours from words drawn.

Sixteen words of the text, one after the other, are learnt together. Their vectors, those of all their
neighbours and those of the words drawn against them are copied side by side, all products are of few
rows with few rows (see ``rows``), and every vector is moved once. Words drawn are shared by the
sixteen, and count as much more as they are fewer than ``negatives`` for every neighbour.
"""

import math

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Ints, kernel
from manyhands.kernels.products import add_rows, dots
from manyhands.kernels.simd import LINE, Floats, add_line, copy_line, logistic_line

TOGETHER = 16
FOURTH = 8
DRAWN_TOGETHER = 4 * FOURTH  # with their vectors, all that is worked on at once stays in the nearest cache
ZERO, ONE = np.float32(0), np.float32(1)
LEAST = np.float32(1e-7)  # of a probability, so that it has a logarithm
LEAST_PRODUCT = 1e-290  # of many of them; one more can still be multiplied

Words = npt.NDArray[np.int32]
Reaches = npt.NDArray[np.uint8]


@kernel
def learn(
    words: Words,
    firsts: Words,
    lasts: Words,
    reaches: Reaches,
    reach: int,
    begin: int,
    end: int,
    drawn: Words,
    draws: int,
    negatives: np.float32,
    parts: Words,
    part_offsets: Ints,
    inputs: Floats,
    outputs: Floats,
    rate: np.float32,
    by_inputs: Floats,
    by_outputs: Floats,
) -> tuple[float, float]:
    """Learn the words from ``begin`` up to ``end``; gives the loss and how many pairs there were.

    A word's neighbours reach from ``firsts`` to ``lasts``, where its text ends, and ``reaches`` to
    either side, which is ``reach`` at most. Its vector is the mean of its ``parts`` among the
    ``inputs``; moves are added to ``by_inputs`` and ``by_outputs``, which may be the same arrays.
    Without a rate, nothing moves.
    """
    width, room, most = inputs.shape[1], -(-(2 * reach + 1) // LINE) * LINE, TOGETHER + 2 * reach
    x, moves = np.empty((TOGETHER, width), np.float32), np.empty((TOGETHER, width), np.float32)
    y, z = np.empty((most, width), np.float32), np.empty((DRAWN_TOGETHER, width), np.float32)
    near, near_turned = np.zeros((TOGETHER, room), np.float32), np.zeros((most, TOGETHER), np.float32)
    far = np.zeros((TOGETHER, DRAWN_TOGETHER), np.float32)
    far_turned, weights = np.zeros((DRAWN_TOGETHER, TOGETHER), np.float32), np.empty(TOGETHER, np.float32)
    loss, pairs = 0.0, 0.0
    for group in range(begin // TOGETHER, -(-end // TOGETHER)):
        start = max(begin, group * TOGETHER)
        count = min(end, (group + 1) * TOGETHER) - start
        low, high = max(0, start - reach), min(len(words), start + count + reach)
        gather_means(words, start, count, parts, part_offsets, inputs, x)
        _gather(words, low, high - low, outputs, y)
        near_turned[:] = ZERO
        moves[:] = ZERO
        for t in range(count):
            at = start + t
            first = max(np.int64(firsts[at]), at - reaches[at])
            last = min(np.int64(lasts[at]), at + reaches[at] + 1)
            loss += _near(x, t, y, first - low, last - first, at - first, rate, near, near_turned)
            add_rows(moves, t, near, t * room, y, first - low, last - first, width)
            weights[t] = negatives * np.float32(last - first - 1) / np.float32(draws)
            pairs += last - first - 1
        if rate != ZERO:  # without one, the loss is all that is asked for
            _move_neighbours(words, low, high, start - reach, count, reach, near_turned, x, by_outputs)
        for first in range(group * draws, (group + 1) * draws, DRAWN_TOGETHER):
            _gather(drawn, first, DRAWN_TOGETHER, outputs, z)
            for t in range(count):
                loss += _far(x, t, z, weights[t], rate, far, far_turned)
                add_rows(moves, t, far, t * DRAWN_TOGETHER, z, 0, DRAWN_TOGETHER, width)
            if rate != ZERO:
                _move_drawn(drawn, first, count, far_turned, x, by_outputs)
        if rate != ZERO:
            _move_parts(words, start, count, parts, part_offsets, moves, by_inputs)
        loss += 0.0 * float(moves[0].sum())  # a sigmoid hides what is not finite: the loss must not
    return loss, pairs


@kernel
def _move_neighbours(
    words: Words,
    low: int,
    high: int,
    begin: int,
    count: int,
    reach: int,
    moves: Floats,
    x: Floats,
    table: Floats,
) -> None:
    """Move the neighbours from ``low`` up to ``high`` towards those words that look so far."""
    for at in range(low, high):
        first = max(0, at - begin - 2 * reach)
        last = min(count, at - begin + 1)
        start = (at - low) * TOGETHER + first
        add_rows(table, np.int64(words[at]), moves, start, x, first, last - first, x.shape[1])


@kernel
def _move_drawn(drawn: Words, first: int, count: int, moves: Floats, x: Floats, table: Floats) -> None:
    for k in range(DRAWN_TOGETHER):
        add_rows(table, np.int64(drawn[first + k]), moves, k * TOGETHER, x, 0, count, x.shape[1])


@kernel
def _near(
    x: Floats,
    t: int,
    y: Floats,
    first: int,
    count: int,
    own: int,
    rate: np.float32,
    near: Floats,
    turned: Floats,
) -> float:
    """How much to move towards each neighbour; gives the loss."""
    room = near.shape[1]
    dots(near, t * room, x, t, y, first, count, x.shape[1])
    for k in range(0, count, LINE):
        logistic_line(near, t * room + k, ONE, ONE, ZERO)
    product, lost = 1.0, 0.0
    for k in range(count):
        chance = near[t, k]
        product *= 1.0 if k == own else float(max(chance, LEAST))
        move = ZERO if k == own else rate * (ONE - chance)
        near[t, k] = move
        turned[first + k, t] = move
        if product < LEAST_PRODUCT:
            lost -= math.log(product)
            product = 1.0
    return lost - math.log(product)


@kernel
def _far(
    x: Floats, t: int, z: Floats, weight: np.float32, rate: np.float32, far: Floats, turned: Floats
) -> float:
    """How much to move away from each word drawn; gives the loss."""
    dots(far, t * DRAWN_TOGETHER, x, t, z, 0, DRAWN_TOGETHER, x.shape[1])
    for k in range(0, DRAWN_TOGETHER, LINE):
        logistic_line(far, t * DRAWN_TOGETHER + k, ONE, ONE, ZERO)
    product = 1.0
    for k in range(FOURTH):  # four at a time in short numbers: one long product would wait for itself
        four = max(ONE - far[t, k], LEAST) * max(ONE - far[t, k + FOURTH], LEAST)
        four *= max(ONE - far[t, k + 2 * FOURTH], LEAST) * max(ONE - far[t, k + 3 * FOURTH], LEAST)
        product *= float(four)
    away = -weight * rate
    for k in range(DRAWN_TOGETHER):
        far[t, k] *= away
        turned[k, t] = far[t, k]
    return -float(weight) * math.log(product)


@kernel
def _gather(words: Words, start: int, count: int, table: Floats, out: Floats) -> None:
    width = table.shape[1]
    for row in range(count):
        word = np.int64(words[start + row])
        for d in range(0, width, LINE):
            copy_line(out, row * width + d, table, word * width + d)


@kernel
def gather_means(
    words: Words, start: int, count: int, parts: Words, offsets: Ints, table: Floats, out: Floats
) -> None:
    width = table.shape[1]
    for row in range(count):
        word = np.int64(words[start + row])
        first, last = offsets[word], offsets[word + 1]
        scale = ONE / np.float32(max(last - first, 1))
        for d in range(width):
            out[row, d] = ZERO
        for k in range(first, last):
            part = np.int64(parts[k])
            for d in range(0, width, LINE):
                add_line(out, row * width + d, table, part * width + d, scale)


@kernel
def _move_parts(
    words: Words, start: int, count: int, parts: Words, offsets: Ints, moves: Floats, table: Floats
) -> None:
    """Every part moves as far as the word should: a mean of many would hardly move otherwise."""
    width = table.shape[1]
    for row in range(count):
        word = np.int64(words[start + row])
        for k in range(offsets[word], offsets[word + 1]):
            for d in range(0, width, LINE):
                add_line(table, np.int64(parts[k]) * width + d, moves, row * width + d, ONE)
