"""One step of each kernel against the same step in plain numpy."""

import numpy as np
import pytest

from manyhands.kernels.compile import kernel
from manyhands.kernels.simd import LINE, add_line, aligned_zeros, dot_line
from manyhands.models.losses import LOSSES, choose, errors, shuffled
from manyhands.models.ngram import fasttext_kernels, ngrams_kernels

IDS, OFFSETS = np.array([0, 2, 3], np.uint32), np.array([0, 3])
REPEATED, REPEATED_OFFSETS = np.array([0, 2, 3, 2], np.uint32), np.array([0, 4])
ONE_LABEL = np.array([0, 1])
WEIGHT = np.array([1.5], np.float32)


@kernel
def both(target, source, at, scale):
    add_line(target, at, source, at, scale)
    return dot_line(target, at, source, at)


def test_lines():
    target, source = aligned_zeros(2, 2 * LINE), aligned_zeros(2, 2 * LINE)
    assert target.shape == (2, 2 * LINE)
    assert target.ctypes.data % 64 == 0
    draw = np.random.default_rng(3)
    target[...], source[...] = draw.normal(size=(2, 2, 2 * LINE)).astype(np.float32)
    expected = target.copy()
    expected[1, LINE:] += np.float32(0.3) * source[1, LINE:]
    product = both(target, source, 3 * LINE, np.float32(0.3))
    assert np.array_equal(target, expected), "the one line, to the last bit, and no other"
    assert product == pytest.approx(float(expected[1, LINE:] @ source[1, LINE:]), rel=1e-5)


def softmax(scores):
    values = np.exp(scores - scores.max())
    return values / values.sum()


@pytest.mark.parametrize("width", [LINE, 3 * LINE])
@pytest.mark.parametrize("loss", ["softmax", "one-vs-all"])
def test_fasttext(loss, width):
    draw = np.random.default_rng(0)
    vectors, outputs = (draw.normal(size=(n, width)).astype(np.float32) / 4 for n in (5, 3))
    before, weights = vectors.copy(), outputs.copy()
    labels = np.array([1], np.int32)
    total = fasttext_kernels.learn(
        REPEATED,
        REPEATED_OFFSETS,
        labels,
        ONE_LABEL,
        WEIGHT,
        LOSSES[loss],
        np.float32(0.1),
        5,
        np.ones(1),
        7,
        vectors,
        outputs,
    )
    mean = (before[0] + 2 * before[2] + before[3]) / 4
    scores = weights @ mean
    p = softmax(scores) if loss == "softmax" else 1 / (1 + np.exp(-scores))
    error = np.eye(3)[1] - p
    cost = -np.log(p[1]) if loss == "softmax" else -np.log(p[1]) - np.log(1 - p[0]) - np.log(1 - p[2])
    gradient = 0.1 * 1.5 * error @ weights
    assert total == pytest.approx(1.5 * cost, rel=1e-4)
    assert np.allclose(outputs, weights + 0.15 * error[:, None] * mean, atol=1e-5)
    assert np.allclose(vectors[2], before[2] + gradient * 2 / 4, atol=1e-5)
    assert np.allclose(vectors[0], before[0] + gradient / 4, atol=1e-5)
    assert np.array_equal(vectors[[1, 4]], before[[1, 4]])


def ngrams_step(table, bias, labels, loss):
    scale, weights, squares = table[IDS, 0], table[IDS, 1 : 1 + len(bias)], table[IDS, -1]
    x = scale / np.sqrt((scale**2).sum())
    scores = x @ weights + bias
    p = 1 / (1 + np.exp(-scores)) if len(bias) == 1 or loss == "one-vs-all" else softmax(scores)
    truth = np.array([float(labels)]) if len(bias) == 1 else np.eye(len(bias))[labels]
    error = (truth - p) * 1.5
    share = (error**2).sum() / (1 if len(bias) == 1 else 2)
    squares = squares + x**2 * share
    return weights + 0.2 * x[:, None] * error / np.sqrt(squares)[:, None], bias + 0.1 * 0.2 * error


@pytest.mark.parametrize(
    ("columns", "label", "loss"),
    [
        (1, 0, "softmax"),
        (1, 1, "softmax"),
        (3, 2, "softmax"),
        (3, 1, "one-vs-all"),
        (14, 9, "softmax"),
        (20, 19, "one-vs-all"),
    ],
)
def test_ngrams(columns, label, loss):
    draw = np.random.default_rng(1)
    width = 8 if columns < 7 else -(-(columns + 2) // LINE) * LINE
    table = draw.uniform(0.1, 2, size=(5, width)).astype(np.float32)
    bias = draw.normal(size=columns).astype(np.float32)
    weights, biases = ngrams_step(table.astype(np.float64), bias.astype(np.float64), label, loss)
    ngrams_kernels.learn(
        IDS,
        OFFSETS,
        np.array([label], np.int32),
        ONE_LABEL,
        WEIGHT,
        3,
        LOSSES[loss],
        np.float32(0.2),
        table,
        bias,
    )
    assert np.allclose(table[IDS, 1 : 1 + columns], weights, atol=1e-4)
    assert np.allclose(bias, biases, atol=1e-5)


def test_scales_are_the_largest_log_ratio():
    tells, rarity = np.array([np.log(9), 0, np.log(7)]) + 0.05, np.log(21 / np.array([9, 9, 7])) + 1
    for by_classes, by_rarity, wanted in (
        (True, False, tells),
        (False, True, rarity),
        (True, True, tells * rarity),
        (False, False, np.ones(3)),
    ):
        table = np.zeros((3, 4), np.float32)
        table[:, 1:3] = [[8, 0], [4, 4], [0, 6]]
        ngrams_kernels.scale(
            table, np.array([10.0, 10.0]), 20.0, False, 1.0, 0.05, by_classes, by_rarity, 0, 3
        )
        assert np.allclose(table[:, 0], wanted, atol=1e-6)
        assert not table[:, 1:].any()


def test_the_squared_hinge_asks_for_a_margin_on_either_side():
    """Margins are 2: the true class is 1.5 short, another one 2.5, and a third is beyond its own."""
    scores = np.array([0.5, 0.5, -3.0], np.float32)
    cost = errors(scores, LOSSES["squared-hinge"], np.array([0], np.int32), 0, 1)
    assert np.allclose(scores, [1.5, -2.5, 0])
    assert cost == pytest.approx(1.5**2 + 2.5**2)


def test_several_labels_share_the_truth():
    scores = np.zeros(4, np.float32)
    cost = errors(scores, LOSSES["softmax"], np.array([0, 3], np.int32), 0, 2)
    assert np.allclose(scores, [0.25, -0.25, -0.25, 0.25])
    assert cost == pytest.approx(np.log(4))


def test_negative_sampling_moves_only_the_label_and_those_drawn():
    draw = np.random.default_rng(2)
    vectors, outputs = (draw.normal(size=(n, LINE)).astype(np.float32) for n in (5, 2000))
    before = outputs.copy()
    labels, chances = np.array([77], np.int32), np.linspace(0, 1, 2000)
    fasttext_kernels.learn(
        REPEATED, REPEATED_OFFSETS, labels, ONE_LABEL, WEIGHT, LOSSES["negative"], np.float32(0.1),
        5, chances, 7, vectors, outputs,
    )  # fmt: skip
    moved = np.flatnonzero((outputs != before).any(axis=1))
    assert 77 in moved
    assert 2 <= len(moved) <= 6


def test_orders():
    order = shuffled(100, 5).tolist()
    assert sorted(order[:100]) == list(range(100))
    assert order[100] == order[99]
    assert order == shuffled(100, 5).tolist() != shuffled(100, 6).tolist()


def test_many_labels_are_sampled():
    assert choose("auto", 1001, multi_label=False) == "negative"
    assert choose("softmax", 1001, multi_label=False) == "softmax"
