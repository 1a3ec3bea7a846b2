"""The fused network against the four gate equations in plain numpy, and its gradient against differences."""

import numpy as np
import pytest

from manyhands.models.losses import LOSSES
from manyhands.models.lstm_layers import Network, Work, gradients, scores_of
from manyhands.models.sequences import Batch, Lexicon, Packed, SequenceFeed, Sequences, find_words
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings
from tests.tasks import lesson

TEXTS = [[3, 1, 4, 1, 5], [2, 6], [], [5, 3, 5, 0, 2, 1, 1]]
LABELS = np.array([2, 0, 1, 1], np.int32)
WEIGHTS = np.array([1, 0.5, 2, 1], np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(arrays, layers, texts, pool):
    """The scores of each text, word by word, in double precision."""
    out = []
    for text in texts:
        states = [arrays["embedding"][word] for word in text]
        for number in range(layers):
            inputs, recurrent, bias = (arrays[f"layer{number}.{n}"] for n in ("inputs", "recurrent", "bias"))
            width = recurrent.shape[1]
            h, c, above = np.zeros(width), np.zeros(width), []
            for x in states:
                gates = inputs @ x + recurrent @ h + bias
                i, f, o = (sigmoid(gates[k * width : (k + 1) * width]) for k in range(3))
                c = f * c + i * np.tanh(gates[3 * width :])
                h = o * np.tanh(c)
                above.append(h)
            states = above
        pooled = {"max": np.max, "mean": np.mean, "last": lambda h, axis: h[-1]}[pool]
        vector = pooled(np.array(states), axis=0) if text else np.zeros(width)
        out.append(arrays["output"] @ vector + arrays["output_bias"])
    return np.array(out)


def loss_of(arrays, layers, pool):
    scores = reference(arrays, layers, TEXTS, pool)
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -(WEIGHTS * logs[np.arange(len(TEXTS)), LABELS]).sum()


def packed(texts):
    """Numbers of words stand for words here, so that a lexicon of their hashes gives the same numbers."""
    corpus = corpus_of(from_strings([" ".join(f"w{word}" for word in text) for text in texts]))
    names = corpus.words.strings()
    hashes = np.zeros(7, np.uint64)
    for number, name in enumerate(names):
        hashes[int(name[1:])] = corpus.hashes[number]
    return Sequences(corpus, Lexicon(hashes), 100).pack(np.arange(len(texts)))


def network(layers):
    net = Network.at_random(7, [5] + [16] * layers, 3, seed=1)
    net.output_bias[:] = [0.1, -0.2, 0.3]
    return net


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("pool", ["max", "mean", "last"])
def test_scores_are_those_of_the_equations(pool, layers):
    net, batch = network(layers), packed(TEXTS)
    found = np.empty((len(TEXTS), 3))
    found[batch.rows] = scores_of(Work(net, LOSSES["softmax"], pool), batch)
    arrays = {name: array.astype(np.float64) for name, array in net.arrays().items()}
    scores = np.exp(reference(arrays, layers, TEXTS, pool))
    assert np.allclose(found, scores / scores.sum(axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("pool", ["max", "mean", "last"])
def test_the_gradient_is_that_of_the_loss(pool, layers):
    net, texts = network(layers), packed(TEXTS)
    order = texts.rows
    batch = Batch(texts, LABELS[order], np.arange(len(TEXTS) + 1), WEIGHTS[order])
    found = gradients(Work(net, LOSSES["softmax"], pool), batch)
    arrays = {name: array.astype(np.float64) for name, array in net.arrays().items()}
    assert found.cost == pytest.approx(loss_of(arrays, layers, pool), rel=1e-5)
    draw = np.random.default_rng(0)
    for name, (rows, values) in found.named().items():
        array = arrays[name].reshape(-1, arrays[name].shape[-1])
        for _ in range(6):
            i, k = draw.integers(len(rows)), draw.integers(array.shape[1])
            before, step = array[rows[i], k], 1e-5
            array[rows[i], k] = before + step
            more = loss_of(arrays, layers, pool)
            array[rows[i], k] = before - step
            less = loss_of(arrays, layers, pool)
            array[rows[i], k] = before
            assert -values[i, k] == pytest.approx((more - less) / (2 * step), abs=2e-4), name


def test_a_batch_in_which_nothing_is_known_moves_the_output_alone():
    net = network(1)
    none = packed([[1]])
    empty = Packed(none.words[:0], none.counts[:0], none.starts[:0], np.zeros(1, np.int64), none.rows)
    batch = Batch(empty, np.array([1], np.int32), np.array([0, 1]), np.ones(1, np.float32))
    found = gradients(Work(net, LOSSES["softmax"], "max"), batch)
    assert not any(array.any() for name, array in found.rest.items() if name.startswith("layer"))
    assert found.rest["output_bias"][1] > 0 > found.rest["output_bias"][0]


def test_every_row_comes_once_and_like_lengths_together():
    rows = lesson(1000)
    lexicon = find_words(rows.corpus, 1000, 1, 2, None)
    feed = SequenceFeed(rows, lexicon, 12, 50, seed=3)
    assert sum(feed.rows(block) for block in range(len(feed))) == 1000
    assert sorted(np.concatenate(feed._rows).tolist()) == list(range(1000))
    lengths = [part.packed.lengths for block in range(len(feed)) for part in feed.block(block)]
    assert max(int(length.max()) for length in lengths) == 12, "no text is longer than asked for"
    padded = sum(len(length) * int(length.max()) for length in lengths)
    assert padded < 1.1 * sum(int(length.sum()) for length in lengths)


def test_words_by_frequency_and_known_ones_first():
    corpus = corpus_of(from_strings(["a b b c c c", "rare"]))
    words = corpus.words.strings()
    found = find_words(corpus, 2, 2, 1, None)
    assert [words[corpus.hashes.tolist().index(h)] for h in found.hashes] == ["c", "b"]
    more = find_words(corpus, 3, 1, 1, Lexicon(found.hashes[1:]))
    assert more.hashes[0] == found.hashes[1]
    assert sorted(words[corpus.hashes.tolist().index(h)] for h in more.hashes) == ["a", "b", "c"]
