"""Features of a stream: n-grams enter by count, leave with it, and a model knows just these."""

from contextlib import nullcontext

import numpy as np

from manyhands.machine import resources_for
from manyhands.models.ngram.features import Featuriser
from manyhands.models.ngram.growing import GrowingFeatures
from manyhands.models.ngram.stream import StreamNgrams, StreamNgramsSettings
from manyhands.text.corpus import Corpus, corpus_once
from manyhands.text.labelled_rows import LabelledRows, Labels
from manyhands.text.ragged import from_strings

SETTINGS = StreamNgramsSettings(ngrams=2, min_count=2, buckets=1 << 16)


def corpus(*texts: str) -> Corpus:
    return corpus_once(from_strings(texts))


def test_enter_and_leave() -> None:
    growing = GrowingFeatures(SETTINGS, half_life=100)
    first = growing.of(corpus("a b", "a b a", "c"), distinct=True)
    # Met once: nothing. Then a, b and "a b" are met again, and a once more.
    assert np.diff(first.offsets).tolist() == [0, 3, 0]
    assert len(growing.known()) == 3
    assert growing.age(50) is None
    left = growing.age(50)  # a was met 3 times, b and "a b" twice: half of that is too little
    assert left is not None
    assert len(left) == 3
    assert len(growing.known()) == 0
    assert np.diff(growing.of(corpus("a"), distinct=True).offsets).tolist() == [1], "one more is enough for a"


def test_space_is_that_of_a_model() -> None:
    growing = GrowingFeatures(SETTINGS, half_life=1e9)
    texts = corpus("good food", "good food here", "bad food")
    growing.of(texts, distinct=True)
    space = growing.space()
    found = Featuriser(space, texts, distinct=True).of(np.arange(3))
    again = growing.of(texts, distinct=True)  # now all were met twice
    assert len(space) < len(growing.known())
    assert np.diff(found.offsets).tolist() == [3, 3, 1]
    assert np.diff(again.offsets).tolist() == [3, 5, 3]


def test_two_labels_make_one_column() -> None:
    """Of two classes a model has one weight, their difference: its scores are those of both."""
    learner = StreamNgrams(SETTINGS, 1e9, resources_for(None, 1))
    texts, ids = ["good food"] * 8 + ["bad food"] * 8, np.repeat([0, 1], 8).astype(np.int32)
    labels = Labels.single(ids, ["yes", "no"])
    rows = LabelledRows(corpus(*texts), labels, np.ones(16, np.float32))
    assert learner.model() is None, "it knows no labels yet"
    for block in range(5):
        for piece in learner.read(rows, block, 16):
            learner.Pieces(SETTINGS, learner.tables(), 1, nullcontext()).learn(piece, 8.0)
    model = learner.model()
    assert model is not None
    scores = model.scores(corpus("good food", "bad food", "unknown"))
    assert scores[0, 0] > 0.95
    assert scores[1, 1] > 0.95
    assert np.allclose(scores.sum(axis=1), 1)
    third = LabelledRows(
        corpus("odd food"),
        Labels.single(np.array([2], np.int32), ["yes", "no", "odd"]),
        np.ones(1, np.float32),
    )
    learner.read(third, 5, 1)
    again = learner.model()
    assert again is not None
    assert again.labels == ["yes", "no", "odd"]
    assert again.scores(corpus("good food"))[0].argmax() == 0, "what was learnt is still there"
