"""From a text to the mean of its rows, as fastText's ``predict`` does it: words and n-grams of both kinds.

Little is kept but a text's words: rows are added about a thousand at a time, so n-grams take no more
memory however many there are. Sums are made in fastText's order. The functions in the middle get plain
arrays, as handing on tuples of arrays took more than half of all time.
"""

from typing import NamedTuple

import numpy as np

from manyhands.kernel import Bytes, Hashes, Ints, kernel
from manyhands.models.fasttext_rows import Floats, Int32s, Rows, add_rows
from manyhands.models.fasttext_tables import FNV_START, Kept, Words, find_word, fnv, row_of_bucket

LONGEST_NGRAM = 100
ENOUGH_ROWS = 1024
END = np.frombuffer(b"</s>", np.uint8)  # fastText's word for the end of a line
PREFIX = np.frombuffer(b"__label__", np.uint8)
NGRAM = np.uint64(116049371)
BLANK, FIRST_CONTROL, LAST_CONTROL = np.uint8(0x20), np.uint8(0x09), np.uint8(0x0D)
OPEN, CLOSE = np.uint8(0x3C), np.uint8(0x3E)
CONTINUES, TOP_TWO = np.uint8(0x80), np.uint8(0xC0)


class Features(NamedTuple):
    """What becomes of a text before the first matrix."""

    words: Words
    kept: Kept
    word_ngrams: int
    bucket: int
    minn: int
    maxn: int


class Tokens(NamedTuple):
    """Room for the words of a text: where each stands, its hash, and its number or -1."""

    begins: Ints
    ends: Ints
    hashes: Int32s
    numbers: Int32s


class Scratch(NamedTuple):
    """Room for the longest text, and for the rows that wait until there are enough to add."""

    tokens: Tokens
    letters: Bytes
    waiting: Ints
    hidden: Floats


def scratch(longest: int, dim: int) -> Scratch:
    """Every other byte may be a word, and the end of the line is one more."""
    most = longest // 2 + 2
    places, numbers = np.empty((2, most), np.int64), np.empty((2, most), np.int32)
    tokens = Tokens(places[0], places[1], numbers[0], numbers[1])
    waiting = np.empty(ENOUGH_ROWS + LONGEST_NGRAM + 1, np.int64)
    return Scratch(tokens, np.empty(longest + 2, np.uint8), waiting, np.empty(dim, np.float32))


@kernel
def _blank(letter: np.uint8) -> bool:
    if letter > BLANK:
        return False
    return bool(letter == BLANK or letter == 0 or FIRST_CONTROL <= letter <= LAST_CONTROL)


@kernel
def _begins(text: Bytes, start: int, end: int, head: Bytes) -> bool:
    if end - start < len(head):
        return False
    i = 0
    while i < len(head) and text[start + i] == head[i]:
        i += 1
    return i == len(head)


@kernel
def _tokens(
    text: Bytes, i: int, end: int, letters: Bytes, starts: Ints, slots: Hashes, known: int, out: Tokens
) -> int:
    """Fill ``out`` with the words of ``text[i:end]`` and return how many there are.

    Labels are no words. What reads like the end of the line ends it, as it does in fastText, and
    the end of the text is one, too; it stands nowhere, as it has no character n-grams.
    """
    begins, ends, hashes, numbers = out.begins, out.ends, out.hashes, out.numbers
    size = 0
    while True:
        while i < end and _blank(text[i]):
            i += 1
        begin, value = i, FNV_START
        while i < end and not _blank(text[i]):
            value = fnv(value, text[i])
            i += 1
        if begin == i or (i - begin == len(END) and _begins(text, begin, i, END)):
            break
        number = find_word(letters, starts, slots, value, text, begin, i)
        if number < known and (number >= 0 or not _begins(text, begin, i, PREFIX)):
            begins[size], ends[size] = begin, i
            hashes[size], numbers[size] = np.int32(value), number
            size += 1
    value = FNV_START
    for letter in END:
        value = fnv(value, letter)
    number = find_word(letters, starts, slots, value, END, 0, len(END))
    if number >= known:
        return size
    begins[size] = ends[size] = 0
    hashes[size], numbers[size] = np.int32(value), number
    return size + 1


@kernel
def _bracketed(text: Bytes, begin: int, end: int, out: Bytes) -> int:
    out[0] = OPEN
    for i in range(end - begin):
        out[i + 1] = text[begin + i]
    out[end - begin + 1] = CLOSE
    return end - begin + 2


@kernel
def _character_ngrams(
    word: Bytes, size: int, first: int, minn: int, maxn: int, bucket: int, offset: int, out: Ints, filled: int
) -> tuple[int, int]:
    """The n-grams of ``<word>`` from ``first`` on, neither bracket by itself.

    Returns how far it came until there are enough, and how many there are.
    """
    buckets = np.uint64(bucket)
    while first < size and filled < ENOUGH_ROWS:
        value, i, length = FNV_START, first, 1
        if word[first] & TOP_TWO == CONTINUES:
            i = size
        while i < size and length <= maxn:
            value = fnv(value, word[i])
            i += 1
            while i < size and word[i] & TOP_TWO == CONTINUES:
                value = fnv(value, word[i])
                i += 1
            bracket = length == 1 and (first == 0 or i == size)
            if length >= minn and not bracket:
                out[filled] = offset + int(value % buckets)
                filled += 1
            length += 1
        first += 1
    return first, filled


@kernel
def _word_ngrams(
    hashes: Int32s, size: int, first: int, longest: int, bucket: int, offset: int, out: Ints, filled: int
) -> tuple[int, int]:
    """As for characters: how far it came until there are enough, and how many there are."""
    buckets = np.uint64(bucket)
    while first < size and filled < ENOUGH_ROWS:
        value = np.uint64(np.int64(hashes[first]))
        for i in range(first + 1, min(size, first + longest)):
            value = value * NGRAM + np.uint64(np.int64(hashes[i]))
            out[filled] = offset + int(value % buckets)
            filled += 1
        first += 1
    return first, filled


@kernel
def _add_waiting(kept: Kept, inputs: Rows, known: int, waiting: Ints, filled: int, hidden: Floats) -> int:
    """Add the rows that wait, but those of pruned n-grams; returns how many were added."""
    if len(kept.buckets):
        left = 0
        for i in range(filled):
            row = waiting[i]
            if row >= known:
                bucket = row_of_bucket(kept.buckets, kept.rows, row - known)
                row = known + bucket if bucket >= 0 else -1
            if row >= 0:
                waiting[left] = row
                left += 1
        filled = left
    add_rows(inputs, waiting[:filled], hidden)
    return filled


@kernel
def mean_row(features: Features, inputs: Rows, text: Bytes, i: int, end: int, room: Scratch) -> bool:
    """Set ``room.hidden`` to the mean of the rows of ``text[i:end]``; false if there are none."""
    words, kept, bucket = features.words, features.kept, features.bucket
    tokens, waiting, hidden, known = room.tokens, room.waiting, room.hidden, words.known
    size = _tokens(text, i, end, words.letters, words.starts, words.slots, known, tokens)
    hidden[:] = 0
    added = filled = first = 0
    for token in range(size):
        if tokens.numbers[token] >= 0:
            waiting[filled] = tokens.numbers[token]
            filled += 1
        first = length = 0
        if features.maxn > 0 and tokens.begins[token] < tokens.ends[token]:
            length = _bracketed(text, tokens.begins[token], tokens.ends[token], room.letters)
        while first < length or filled >= ENOUGH_ROWS:
            if filled >= ENOUGH_ROWS:
                added += _add_waiting(kept, inputs, known, waiting, filled, hidden)
                filled = 0
            first, filled = _character_ngrams(
                room.letters, length, first, features.minn, features.maxn, bucket, known, waiting, filled
            )
    first = size if features.word_ngrams < 2 else 0
    while first < size:
        if filled >= ENOUGH_ROWS:
            added += _add_waiting(kept, inputs, known, waiting, filled, hidden)
            filled = 0
        first, filled = _word_ngrams(
            tokens.hashes, size, first, features.word_ngrams, bucket, known, waiting, filled
        )
    added += _add_waiting(kept, inputs, known, waiting, filled, hidden)
    if added:
        hidden *= np.float32(1.0 / added)
    return added > 0
