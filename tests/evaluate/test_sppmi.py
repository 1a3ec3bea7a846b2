"""Shifted positive PMI beside a count with dictionaries, and its signal beside an exact decomposition."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import InputError, UsageError
from manyhands.evaluation import sppmi as module
from manyhands.evaluation.sppmi import signal, sppmi
from manyhands.text.corpus import Corpus, corpus_of
from manyhands.text.ragged import from_strings

LETTERS = "abcdefg"
TEXTS = st.lists(st.text(LETTERS, max_size=25).map(" ".join), min_size=1, max_size=8)


def numbered(texts: list[str], known: str) -> tuple[Corpus, np.ndarray]:
    corpus = corpus_of(from_strings(texts))
    return corpus, np.array([known.find(word) for word in corpus.words.strings()], np.int64)


def naive(texts: list[str], known: str, window: int, shift: float) -> np.ndarray:
    pairs: Counter[tuple[int, int]] = Counter()
    for text in texts:
        words = [known.index(word) for word in text.split() if word in known]
        for i, word in enumerate(words):
            for j in range(max(0, i - window), min(len(words), i + window + 1)):
                if i != j:
                    pairs[word, words[j]] += (window - abs(i - j) + 1) / window
    whole = sum(pairs.values())
    rows, columns = Counter(), Counter()
    for (word, context), count in pairs.items():
        rows[word] += count
        columns[context] += count
    out = np.zeros((len(known), len(known)))
    for (word, context), count in pairs.items():
        pmi = math.log(count * whole / (rows[word] * columns[context]))
        out[word, context] = max(0.0, pmi - math.log(shift))
    return out


@given(
    TEXTS,
    st.sampled_from(["abcd", "gfedcba", "ax"]),
    st.integers(1, 6),
    st.sampled_from([1, 1.5, 5]),
    st.data(),
)
def test_beside_dictionaries(texts: list[str], known: str, window: int, shift: float, data) -> None:
    corpus, numbers = numbered(texts, known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CELLS_AT_ONCE", data.draw(st.sampled_from([1, 10, 1 << 20])))
        patch.setattr(module, "ROWS_AT_ONCE", data.draw(st.sampled_from([1, 3, 100])))
        try:
            matrix = sppmi(corpus, numbers, len(known), window=window, shift=shift, threads=2)
        except InputError:
            assert all(len([word for word in text.split() if word in known]) < 2 for text in texts)
            return
    assert matrix.toarray() == pytest.approx(naive(texts, known, window, shift), abs=1e-6)
    assert (matrix != matrix.T).nnz == 0 and matrix.dtype == np.float32
    assert (matrix.data > 0).all() and matrix.has_sorted_indices


def test_unknown_words_leave_the_text_first() -> None:
    corpus, numbers = numbered(["a x x x b", "a", "b"], "ab")
    matrix = sppmi(corpus, numbers, 2, window=1, shift=1)
    assert matrix.toarray() == pytest.approx(np.array([[0, math.log(2)], [math.log(2), 0]]))


@pytest.mark.parametrize("texts", [[], [""], ["x y z"], ["x a y"], ["a", "b"]])
def test_too_little_text(texts: list[str]) -> None:
    corpus, numbers = numbered(texts, "ab")
    with pytest.raises(InputError, match=r"known words stand near|fewer than two words"):
        sppmi(corpus, numbers, 2)


def test_wrong_usage() -> None:
    corpus, numbers = numbered(["a b"], "ab")
    for options, message in (
        ({"window": 0}, "window"),
        ({"shift": 0.5}, "negative"),
        ({"shift": math.nan}, "negative"),
    ):
        with pytest.raises(UsageError, match=message):
            sppmi(corpus, numbers, 2, **options)
    with pytest.raises(UsageError, match="2 words but 1 are numbered"):
        sppmi(corpus, numbers[:1], 2)
    for words in (1, 0):
        with pytest.raises(UsageError, match=f"from -1 to {words - 1}"):
            sppmi(corpus, numbers, words)
    with pytest.raises(UsageError, match="1 dimension or more"):
        signal(sppmi(corpus, numbers, 2), 0)


def test_signal_beside_an_exact_decomposition() -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(list("abcdefghijklmnop"), 12)) for _ in range(40)]
    corpus, numbers = numbered(texts, "abcdefghijklmnop")
    matrix = sppmi(corpus, numbers, 16, window=2, shift=1)
    left, strengths, _ = np.linalg.svd(matrix.toarray().astype(np.float64))
    exact = left * np.sqrt(strengths)
    found = signal(matrix, 6)
    assert found.shape == (16, 6) and found.dtype == np.float32
    assert found @ found.T == pytest.approx(exact[:, :6] @ exact[:, :6].T, abs=1e-4)
    assert (signal(matrix, 6) == found).all(), "the same seed"


def test_columns_beyond_the_rank_are_zero() -> None:
    corpus, numbers = numbered(["a b", "c d"], "abcdef")  # each word with one other: rank 4
    matrix = sppmi(corpus, numbers, 6, window=1, shift=1)
    found = signal(matrix, 9)
    assert found.shape == (6, 9)
    assert (found[:, :4] ** 2).sum(axis=0) == pytest.approx([math.log(4)] * 4, rel=1e-5)
    assert not found[:, 4:].any()
    assert not signal(sppmi(corpus, numbers, 6, shift=100), 3).any(), "nothing is positive"
