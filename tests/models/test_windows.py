"""How running text becomes windows: what is thinned out, who is whose neighbour, and what is drawn."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from manyhands.models.learner import Piece
from manyhands.models.words.windows import AliasTable, WindowFeed
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings

SETTINGS = {"window": 4, "negatives": 5, "sample": 1.0, "seed": 3}


def feed_of(rows, block_words=50, **settings):
    """Words are w0, w1, …, and their numbers those in their names."""
    corpus = corpus_of(from_strings(rows))
    numbers = np.array([int(word[1:]) if word[0] == "w" else -1 for word in corpus.words.strings()], np.int32)
    counts = np.ones(max(int(numbers.max()) + 1, 2), np.int64)
    for row in rows:
        for word in row.split():
            if word[0] == "w":
                counts[int(word[1:])] += 1
    return WindowFeed(corpus, numbers, counts, block_words=block_words, **{**SETTINGS, **settings})


def whole(feed, block, epoch=0):
    return feed.piece(Piece(block, 0, feed.rows(block)), epoch)


ROWS = st.lists(
    st.lists(st.sampled_from([f"w{n}" for n in range(9)] + ["x"]), min_size=1, max_size=40).map(" ".join),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.integers(1, 60))
def test_every_known_word_is_fed_once_in_its_order(rows, block_words):
    feed = feed_of(rows, block_words)
    pieces = [whole(feed, block) for block in range(len(feed))]
    fed = [f"w{word}" for piece in pieces for word in piece.words.tolist()]
    assert fed == [word for row in rows for word in row.split() if word != "x"]
    assert sum(feed.rows(block) for block in range(len(feed))) == sum(len(row.split()) for row in rows)


@given(ROWS, st.integers(1, 60), st.integers(0, 5))
def test_neighbours_stand_in_the_same_row_and_within_reach(rows, block_words, epoch):
    feed = feed_of(rows, block_words)
    for block in range(len(feed)):
        piece = whole(feed, block, epoch)
        count = len(piece.words)
        assert (piece.firsts <= np.arange(count)).all()
        assert (piece.lasts > np.arange(count)).all()
        assert piece.begin == 0
        assert piece.end == count
        assert ((piece.reaches >= 1) & (piece.reaches <= piece.reach)).all()
        starts = np.unique(piece.firsts)
        assert np.array_equal(np.unique(piece.lasts), [*starts[1:], count] if count else [])


@given(ROWS, st.lists(st.integers(0, 60), min_size=1, max_size=4))
def test_the_parts_of_a_block_are_the_block(rows, cuts):
    """Whoever learns a part sees the same windows, and every word is learnt by one."""
    feed = feed_of(rows, 60)
    bounds = [0, *sorted(min(cut, feed.rows(0)) for cut in cuts), feed.rows(0)]
    parts = [feed.piece(Piece(0, first, last), 0) for first, last in pairwise(bounds)]
    assert [part.begin for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert parts[0].begin == 0
    assert parts[-1].end == len(parts[0].words)
    for part in parts[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(part[:4], parts[0][:4], strict=True))
        assert np.array_equal(part.drawn, parts[0].drawn)


def test_epochs_and_blocks_differ_and_repeat():
    rows = [" ".join(f"w{n % 9}" for n in range(200))]
    feed, again = feed_of(rows), feed_of(rows)
    assert np.array_equal(whole(feed, 1, 2).drawn, whole(again, 1, 2).drawn)
    assert not np.array_equal(whole(feed, 1, 2).drawn, whole(feed, 1, 3).drawn)
    assert not np.array_equal(whole(feed, 1, 2).reaches, whole(feed, 2, 2).reaches)


def test_tokens_are_thinned_out_and_never_words():
    """A word that is 90 % of the text keeps the share that word2vec's rule says; a rare one keeps all."""
    rows = [" ".join(["w0"] * 9 + ["w1"]) for _ in range(20_000)]
    sample = 0.01
    feed = feed_of(rows, 1 << 20, sample=sample)
    words = whole(feed, 0).words
    for word, share in ((0, 0.9), (1, 0.1)):
        expected = np.sqrt(sample / share) + sample / share
        kept = np.count_nonzero(words == word) / (200_000 * share)
        assert kept == pytest.approx(expected, abs=0.01)


def test_reaches_are_even():
    rows = [" ".join(f"w{n % 9}" for n in range(100_000))]
    reaches = whole(feed_of(rows, 1 << 20), 0).reaches
    assert chisquare(np.bincount(reaches)[1:]).pvalue > 1e-4


def test_words_are_drawn_by_their_counts_to_the_three_quarters():
    counts = np.array([1000, 100, 100, 10, 1])
    rows = [" ".join(f"w{n % 5}" for n in range(50_000))]
    corpus = corpus_of(from_strings(rows))
    numbers = np.array([int(word[1:]) for word in corpus.words.strings()], np.int32)
    feed = WindowFeed(corpus, numbers, counts, block_words=1 << 20, **SETTINGS)
    drawn = np.bincount(whole(feed, 0).drawn, minlength=5)
    expected = counts**0.75 / (counts**0.75).sum() * drawn.sum()
    assert chisquare(drawn, expected).pvalue > 1e-4


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_an_urn_holds_every_share_exactly(counts):
    alias_table = AliasTable.of(np.array(counts))
    shares = np.zeros(len(counts))
    np.add.at(shares, np.arange(len(counts)), alias_table.chances)
    np.add.at(shares, alias_table.others, 1 - alias_table.chances)
    weights = np.array(counts, float) ** 0.75
    assert np.allclose(shares / len(counts), weights / weights.sum(), atol=1e-5)
