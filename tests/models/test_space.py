"""Features: equal to a slow and plain count of n-grams, whatever the text."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.models.ngram.features import Featuriser, extend, find_features
from manyhands.text.corpus import corpus_of
from manyhands.text.ngrams import NgramHashing
from manyhands.text.ragged import from_strings
from manyhands.training.exchange import Alone

WORDS = st.sampled_from(["a", "b", "not", "good", "ünï", "漢字", "x" * 30])
FEW_SLOTS = NgramHashing(2, 10, 14)  # where n-grams that share a slot do no harm: 2^24 of them take longer
ROWS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=8)


def ngrams(text: str, longest: int) -> list[str]:
    words = text.split()
    return [
        " ".join(words[i:j])
        for i in range(len(words))
        for j in range(i + 1, min(i + longest, len(words)) + 1)
    ]


@given(ROWS, st.integers(1, 4), st.integers(1, 3))
def test_ngrams_once_or_as_often_as_they_stand_there(rows, longest, min_count):
    corpus = corpus_of(from_strings(rows))
    space = find_features(corpus, NgramHashing(longest, 20, 24), min_count, 2, Alone())
    everywhere = Counter(gram for row in rows for gram in ngrams(row, longest))
    known = {gram for gram, count in everywhere.items() if count >= min_count}
    assert len(space) == len(known)
    every = Featuriser(space, corpus, distinct=False).of(np.arange(len(rows)))
    once = Featuriser(space, corpus, distinct=True).of(np.arange(len(rows)))
    for number, row in enumerate(rows):
        ids = every.ids[every.offsets[number] : every.offsets[number + 1]].tolist()
        counts = Counter(gram for gram in ngrams(row, longest) if gram in known)
        assert sorted(Counter(ids).values()) == sorted(counts.values())
        assert once.ids[once.offsets[number] : once.offsets[number + 1]].tolist() == list(dict.fromkeys(ids))


@given(ROWS)
def test_the_most_frequent_come_first(rows):
    corpus = corpus_of(from_strings(rows))
    space = find_features(corpus, FEW_SLOTS, 1, 1, Alone())
    features = Featuriser(space, corpus, distinct=False).of(np.arange(len(rows)))
    counts = np.bincount(features.ids, minlength=len(space))
    assert (np.diff(counts) <= 0).all()


@given(ROWS, ROWS)
def test_an_extended_space_keeps_the_old_numbers(old_rows, new_rows):
    old_corpus, new_corpus = corpus_of(from_strings(old_rows)), corpus_of(from_strings(new_rows))
    old = find_features(old_corpus, FEW_SLOTS, 1, 1, Alone())
    both = extend(old, find_features(new_corpus, FEW_SLOTS, 1, 1, Alone()))
    rows = np.arange(len(old_rows))
    before, after = (
        Featuriser(old, old_corpus, distinct=False).of(rows),
        Featuriser(both, old_corpus, distinct=False).of(rows),
    )
    assert np.array_equal(before.ids, after.ids)
    everything = Featuriser(both, new_corpus, distinct=False).of(np.arange(len(new_rows)))
    assert set(everything.ids.tolist()) <= set(range(len(both)))


def test_how_words_are_numbered_does_not_matter():
    """The same text has the same features in a corpus of its own and among others."""
    alone = corpus_of(from_strings(["not good at all"]))
    among = corpus_of(from_strings(["at all", "other words first", "not good at all"]))
    space = find_features(among, NgramHashing(3, 20, 24, (2, 3), 16), 1, 1, Alone())
    one = Featuriser(space, alone, distinct=False).of(np.array([0]))
    two = Featuriser(space, among, distinct=False).of(np.array([2]))
    assert np.array_equal(one.ids, two.ids)


def test_runs_of_letters():
    corpus = corpus_of(from_strings(["ab"]))
    space = find_features(corpus, NgramHashing(1, 10, 10, (2, 3), 16), 1, 1, Alone())
    features = Featuriser(space, corpus, distinct=False).of(np.array([0]))
    # the word itself, and <a, ab, b>, <ab, ab>
    assert len(features.ids) == 1 + 5


def test_letters_are_not_cut_in_the_middle():
    corpus = corpus_of(from_strings(["é漢"]))
    letters = NgramHashing(1, 10, 10, (1, 2), 16).letters(corpus)
    # é, 漢, <é, é漢, 漢>
    assert len(letters.slots) == 5
