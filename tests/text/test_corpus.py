"""Texts as numbered words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.settings import TextSettings
from manyhands.text.corpus import corpus_of, corpus_once
from manyhands.text.normalise import Normaliser
from manyhands.text.ragged import from_strings


@given(st.lists(st.text("ab é'. \N{OLD ITALIC LETTER A}", max_size=30), max_size=8), st.randoms())
def test_words_that_are_not_looked_up_are_the_same_words(texts, random):
    normal = Normaliser(TextSettings()).ragged(from_strings(texts))
    numbered, once = corpus_of(normal), corpus_once(normal)
    rows = np.array(random.sample(range(len(texts)), len(texts)), np.int64)
    (some, places), (others, same) = numbered.take(rows), once.take(rows)
    assert numbered.tokens == once.tokens
    assert np.array_equal(places, same)
    assert np.array_equal(numbered.hashes[some], once.hashes[others])
    assert numbered.texts(rows).strings() == once.texts(rows).strings()


def test_hashes_use_all_their_bits():
    corpus = corpus_of(from_strings([" ".join(f"w{n}" for n in range(2000))]))
    ones = np.unpackbits(corpus.hashes.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    assert (abs(ones - 0.5) < 0.06).all()
