"""Vectors of words from files that others made: a word and its numbers on each line."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.lines import Floats
from manyhands.models.sequences import Lexicon
from manyhands.storage.files import InputStream, expand
from manyhands.text.corpus import corpus_of
from manyhands.text.ragged import from_strings

LINES_AT_ONCE = 1 << 13
PIECE_BYTES, LONGEST_LINE = 1 << 20, 1 << 24


def fill_from(path: str, lexicon: Lexicon, table: Floats) -> int:
    """Put the vectors of known words into their rows; returns how many. Words that it lacks keep theirs."""
    filled = 0
    for words, numbers in _blocks(path, table.shape[1]):
        corpus = corpus_of(from_strings(words))
        tokens, offsets = corpus.take(np.arange(len(words)))
        single = np.flatnonzero(np.diff(offsets) == 1)
        places = lexicon.numbers(corpus)[tokens[offsets[single]]]
        table[places[places >= 0]] = numbers[single[places >= 0]]
        filled += int(np.count_nonzero(places >= 0))
    if not filled:
        raise InputError(f"{path} has a vector for none of the words to learn")
    return filled


def _blocks(path: str, dim: int) -> Iterator[tuple[list[str], Floats]]:
    words: list[str] = []
    numbers: list[bytes] = []
    for number, line in enumerate(_lines(path), 1):
        word, _, rest = line.rstrip().partition(b" ")
        if number == 1 and len(rest.split()) == 1:  # word2vec says first how many there are
            continue
        if rest.count(b" ") != dim - 1:
            raise UsageError(
                f"{path} line {number} has {len(rest.split())} numbers; --dim is {dim}: make them equal"
            )
        words.append(word.decode("utf-8", "replace"))
        numbers.append(rest)
        if len(words) == LINES_AT_ONCE:
            yield words, _parsed(path, numbers, dim)
            words, numbers = [], []
    if words:
        yield words, _parsed(path, numbers, dim)


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file, which may be packed or stand elsewhere."""
    for file in expand([path]):
        with closing(InputStream(file)) as stream:
            rest = np.empty(0, np.uint8)
            while len(data := stream.read_behind(rest, PIECE_BYTES)) > len(rest):
                if len(data) > LONGEST_LINE:
                    raise InputError(f"{path} has no lines; it is no file of vectors")
                *lines, last = data.tobytes().split(b"\n")
                yield from lines
                rest = np.frombuffer(last, np.uint8)
            if len(rest):
                yield rest.tobytes()


def _parsed(path: str, lines: list[bytes], dim: int) -> Floats:
    try:
        table = np.array(b" ".join(lines).split(), np.float32).reshape(len(lines), dim)
    except ValueError as error:
        raise InputError(f"{path} holds what is no vector: {error}") from None
    if not np.isfinite(table).all():
        raise InputError(f"{path} holds numbers that are not finite")
    return table
