"""A vocabulary that grows within fixed memory, beside a plain count of all words."""

import random
from collections import Counter

import numpy as np
import pytest

from manyhands.text.corpus import corpus_once
from manyhands.text.growing import CLEARLY_MORE, GrowingVocabulary
from manyhands.text.ragged import from_strings


def count(growing: GrowingVocabulary, text: str) -> list[int]:
    return growing.count(corpus_once(from_strings([text])))[0].tolist()


def words_of(growing: GrowingVocabulary) -> dict[str, int]:
    vocabulary, _ = growing.vocabulary()
    return dict(zip(vocabulary.words.to_pylist(), vocabulary.counts.tolist(), strict=True))


def texts(blocks: int, words: int, seed: int = 0) -> list[list[str]]:
    """Blocks of words as frequent as in running text: the second half as often as the first, and so on."""
    draw = random.Random(seed)
    names, weights = [f"word{k}é" for k in range(words)], [1 / (k + 1) for k in range(words)]
    return [draw.choices(names, weights, k=500) for _ in range(blocks)]


def test_exact_where_there_is_room() -> None:
    growing, seen = GrowingVocabulary(rows=2000, min_count=3), Counter[str]()
    for block in texts(40, 3000):
        numbers = count(growing, " ".join(block))
        seen.update(block)
        vocabulary, rows = growing.vocabulary()
        names = dict(zip(rows.tolist(), vocabulary.words.to_pylist(), strict=True))
        assert [names.get(number) for number in numbers] == [w if seen[w] >= 3 else None for w in block]
    assert words_of(growing) == {word: times for word, times in seen.items() if times >= 3}
    vocabulary, _ = growing.vocabulary()
    assert (np.diff(vocabulary.counts) <= 0).all(), "the most frequent first"


def test_flat_memory_and_frequent_words_stay() -> None:
    """Hundred times more distinct words than there is room for: those that are frequent have a row."""
    growing, seen, draw = GrowingVocabulary(rows=50, min_count=2), Counter[str](), random.Random(1)
    sizes = [len(table) for table in vars(growing).values() if isinstance(table, np.ndarray)]
    for number in range(300):
        block = [f"once{number}x{k}" for k in range(2000)] + draw.choices(
            [f"often{k}" for k in range(30)], k=100
        )
        draw.shuffle(block)
        count(growing, " ".join(block))
        seen.update(block)
        growing.look(1.0)
    assert sizes == [len(table) for table in vars(growing).values() if isinstance(table, np.ndarray)]
    found = words_of(growing)
    for word in (f"often{k}" for k in range(30)):
        assert found[word] <= seen[word], "a count is never too high"
        assert found[word] > 0.9 * seen[word]


def test_words_leave_for_clearly_more_frequent_ones() -> None:
    growing = GrowingVocabulary(rows=2, min_count=1)
    count(growing, "old old old older older older older")
    growing.look(1.0)
    count(growing, " ".join(["new"] * 3))
    assert words_of(growing) == {"older": 4, "old": 3}, "as frequent is not enough"
    count(growing, "new")
    assert 3 * CLEARLY_MORE < 4
    assert words_of(growing) == {"older": 4, "new": 4}
    numbers, entered = growing.count(corpus_once(from_strings(["old new"])))
    assert numbers.tolist() == [-1, 0], "the row of the one that left"
    assert entered.tolist() == []
    growing.look(0.5)
    count(growing, "old old old old")  # it was not forgotten: half of four, and four more
    assert words_of(growing)["old"] == 4 + 2


@pytest.mark.parametrize("at", [1, 7, 19])
def test_state(at: int) -> None:
    """Restored in the middle, it goes on as if nothing had happened."""
    whole, first, second = (GrowingVocabulary(rows=100, min_count=2) for _ in range(3))
    for number, block in enumerate(texts(20, 5000, seed=2)):
        if number == at:
            second.restore({name: array.copy() for name, array in first.state().items()})
        numbers = count(whole, " ".join(block))
        assert count(first if number < at else second, " ".join(block)) == numbers
        for growing in (whole, first if number < at else second):
            growing.look(0.9)
    assert words_of(whole) == words_of(second)
