"""Numbering words beside a Python dict, and the vocabulary on disk."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhands.text.ragged import from_strings
from manyhands.text.vocabulary import UNKNOWN, Vocabulary, vocabulary_from_counts
from manyhands.text.words import Numbered, WordTable, hash_word, hash_words, next_number

words = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters=" "), min_size=1, max_size=20)
rows_of_words = st.lists(st.lists(words, max_size=12), min_size=1, max_size=12)


def numbers_of(numbered: Numbered) -> list[int]:
    numbers, i = [], 0
    while i < len(numbered.units):
        number, i = next_number(numbered.units, i)
        numbers.append(int(number))
    return numbers


@given(rows_of_words)
def test_numbers_are_those_of_a_dict(rows: list[list[str]]) -> None:
    table = WordTable()
    numbered = table.number(from_strings([" ".join(row) for row in rows]))
    expected: dict[str, int] = {}
    flat = [expected.setdefault(word, len(expected)) for row in rows for word in row]
    assert numbers_of(numbered) == flat
    assert numbered.lengths.tolist() == [len(row) for row in rows]
    assert table.words().strings() == list(expected)


def test_a_table_grows_past_its_first_size() -> None:
    many = [f"word{n}" for n in range(300_000)]
    table = WordTable()
    first = numbers_of(table.number(from_strings([" ".join(many)])))
    again = numbers_of(table.number(from_strings(many[::-1])))
    assert first == list(range(300_000))
    assert again == first[::-1]
    assert table.words().strings() == many


def test_vocabulary_round_trip(tmp_path: Path) -> None:
    words = from_strings(['"', "é", "b", "a", "日", "rare"])
    vocabulary = vocabulary_from_counts(words, np.array([9, 7, 5, 5, 3, 1]), limit=5, min_count=2)
    assert vocabulary.words.to_pylist() == ['"', "é", "a", "b", "日"]
    vocabulary.save(tmp_path)
    opened = Vocabulary.load(tmp_path)
    assert opened.words.to_pylist() == vocabulary.words.to_pylist()
    assert opened.counts.tolist() == [9, 7, 5, 5, 3]
    assert opened.ids_of(from_strings(["a", "rare", '"', "zzz"])).tolist() == [5, UNKNOWN, 3, UNKNOWN]
    assert opened.word(5) == "a" and opened.word(7) == "日" and opened.ids == 8


def test_a_limit_cuts_what_would_be_the_whole_vocabulary() -> None:
    random = np.random.default_rng(0)
    words = from_strings([f"w{number}" for number in random.integers(0, 500, 2_000)])
    counts = random.integers(0, 4, 2_000)
    every = vocabulary_from_counts(words, counts)
    for limit in (1, 100, 250, 499, 1_000):
        some = vocabulary_from_counts(words, counts, limit, min_count=5)
        kept = min(limit, int((every.counts >= 5).sum()))
        assert some.words.to_pylist() == every.words.to_pylist()[:kept]
        assert some.counts.tolist() == every.counts.tolist()[:kept]


@given(rows_of_words, st.integers(0, 9))
def test_words_are_hashed_alike_one_by_one_and_all_at_once(rows: list[list[str]], spare: int) -> None:
    """Also at the very end of memory, where eight bytes cannot be loaded any more."""
    texts = from_strings([" ".join(row) for row in rows])
    data = np.append(texts.data, np.full(spare, 0x41, np.uint8))
    room = len(data) + 1
    ends, hashes = np.empty(room, np.int64), np.empty(room, np.uint64)
    for start, end in pairwise(texts.offsets.tolist()):
        expected, i = [], start
        while i < end:
            value, stop = hash_word(data, i, end)
            expected.append(int(value))
            i = stop + 1
        count = hash_words(data, start, end, ends, hashes)
        assert hashes[:count].tolist() == expected
