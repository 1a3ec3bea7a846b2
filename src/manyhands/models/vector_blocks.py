"""The words and vectors of a file a block at a time, as bytes come in: lines of text, or binary records.

What a block holds is bounded by the bytes that were read, whatever the head of the file claims.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.errors import InputError
from manyhands.kernel import Bytes, Ints, kernel
from manyhands.lines import Floats
from manyhands.storage.files import InputStream
from manyhands.text.ragged import Ragged

PIECE_BYTES, LONGEST_LINE, LONGEST_WORD = 1 << 20, 1 << 24, 1 << 16
SHOWN_LETTERS = 60
NOTHING: Bytes = np.empty(0, np.uint8)
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Block:
    """Some words with their vectors, and where they stand in the file: from a line, or a word, on."""

    words: Ragged
    vectors: Floats
    first: int
    unit: str = "line"

    def where(self, row: int) -> str:
        return f"{self.unit} {self.first + row}"


def text_blocks(stream: InputStream, skip: int, first: int, dim: int, said: str) -> Iterator[Block]:
    """The lines behind the first ``skip`` bytes, the next of which is line ``first``.

    ``said`` is where it is said that there are ``dim`` numbers on a line; if ``dim`` is 0, the first
    line says it. Empty lines may stand at the end.
    """
    data, line, gap = stream.read_behind(NOTHING, PIECE_BYTES)[skip:], first, 0
    while len(data):
        found = np.flatnonzero(data == ord("\n"))
        end = int(found[-1]) + 1 if len(found) else 0
        if end:
            block, empty = _parsed(stream.file.name, data[:end], line, dim, said)
            if len(block.words) and gap:
                raise InputError(f"{stream.file.name} line {line - gap} is empty; take it out")
            line += len(block.words) + empty
            gap = empty if len(block.words) else gap + empty
            if len(block.words):
                dim = block.vectors.shape[1]
                yield block
        rest = data[end:]
        if len(rest) > LONGEST_LINE:
            raise InputError(f"{stream.file.name} has no lines; it is no file of vectors")
        data = stream.read_behind(rest, PIECE_BYTES)
        if len(data) == len(rest) > 0:  # the last line has no end
            data = np.append(data, np.uint8(ord("\n")))


def _parsed(name: str, data: Bytes, first: int, dim: int, said: str) -> tuple[Block, int]:
    """Whole lines as a block, and how many empty ones follow."""
    words, fields, counts = _split_lines(data)
    lengths = words.lengths()
    filled = np.flatnonzero((lengths > 0) | (counts > 0))
    lines = int(filled[-1]) + 1 if len(filled) else 0
    words, counts = Ragged(words.data, words.offsets[: lines + 1]), counts[:lines]
    wrong = _first(lengths[:lines] == 0)
    if wrong is not None:
        what = "begins with a blank where a word should be" if counts[wrong] else "is empty; take it out"
        raise InputError(f"{name} line {first + wrong} {what}")
    if lines and not dim:
        dim = int(counts[0])
        if not dim:
            raise InputError(
                f"{name} line {first} is no vector: '{_shown(words, 0)}' stands there and no number behind it"
            )
    wrong = _first(counts != dim)
    if wrong is not None:
        raise InputError(f"{name} line {first + wrong} has {counts[wrong]} numbers; {said} {dim}")
    block = Block(words, _numbers(name, words, fields, first, dim), first)
    _refuse_if_not_finite(name, block)
    return block, len(lengths) - lines


def _numbers(name: str, words: Ragged, fields: Ragged, first: int, dim: int) -> Floats:
    offsets, letters = pa.py_buffer(fields.offsets), pa.py_buffer(fields.data)
    texts = pa.LargeStringArray.from_buffers(len(fields), offsets, letters)
    try:
        numbers = np.asarray(texts.cast(pa.float32()))
    except pa.ArrowInvalid:  # it also refuses what is too small to be told from 0, and a plus in front
        numbers = np.empty(len(fields), np.float32)
        for row in range(len(words)):
            some = Ragged(fields.data, fields.offsets[row * dim : (row + 1) * dim + 1])
            numbers[row * dim : (row + 1) * dim] = _slowly(some, name, f"line {first + row}")
    return numbers.reshape(len(words), dim)


def _slowly(fields: Ragged, name: str, where: str) -> Floats:
    text, starts = fields.data.tobytes(), fields.offsets.tolist()
    numbers = np.empty(len(fields), np.float64)
    for i in range(len(fields)):
        field = text[starts[i] : starts[i + 1]]
        try:
            numbers[i] = float(field)
        except ValueError:
            shown = field[:SHOWN_LETTERS].decode("utf-8", "replace")
            raise InputError(f"{name} {where} is no vector: '{shown}' is no number") from None
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def binary_blocks(stream: InputStream, skip: int, dim: int, said: str) -> Iterator[Block]:
    """The records behind the first ``skip`` bytes: a word, a blank, ``dim`` floats, maybe a line end."""
    name, size, first = stream.file.name, dim * NUMBER_BYTES, 1
    data = stream.read_behind(NOTHING, PIECE_BYTES)[skip:]
    while True:
        most = len(data) // (size + 1) + 1
        words, offsets = np.empty(len(data), np.uint8), np.zeros(most + 1, np.int64)
        numbers = np.empty(most * size, np.uint8)
        rows, used = _split_records(data, size, words, offsets, numbers)
        if rows:
            vectors = numbers[: rows * size].view("<f4").reshape(rows, dim)
            block = Block(Ragged(words, offsets[: rows + 1]), vectors, first, "word")
            empty = _first(block.words.lengths() == 0)
            if empty is not None:
                raise InputError(f"{name} {block.where(empty)} has no letters; {said}: is that right?")
            _refuse_if_not_finite(name, block)
            yield block
            first += rows
        rest = data[used:]
        if len(rest) > size + LONGEST_WORD:
            raise InputError(f"{name} word {first} has no end; {said}: is that right?")
        data = stream.read_behind(rest, PIECE_BYTES)
        if len(data) == len(rest):
            break
    if rest.tobytes().strip():
        raise InputError(f"{name} ends within word {first}; {said}; fetch it again")


def _refuse_if_not_finite(name: str, block: Block) -> None:
    wrong = _first(np.asarray(~np.isfinite(block.vectors).all(axis=1)))
    if wrong is not None:
        word = _shown(block.words, wrong)
        raise InputError(
            f"{name} {block.where(wrong)} holds a number that is not finite, in the vector of '{word}'"
        )


def _first(flags: npt.NDArray[Any]) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def _shown(words: Ragged, row: int) -> str:
    start, end = words.offsets[row], words.offsets[row + 1]
    return words.data[start:end].tobytes().decode("utf-8", "replace")[:SHOWN_LETTERS]


def _split_lines(data: Bytes) -> tuple[Ragged, Ragged, Ints]:
    """The word of each line, all fields behind these, and how many fields each line has."""
    lines = int(np.count_nonzero(data == ord("\n")))
    words, word_ends = np.empty(len(data), np.uint8), np.zeros(lines + 1, np.int64)
    digits, ends = np.empty(len(data), np.uint8), np.zeros(len(data) // 2 + 1, np.int64)
    counts = np.zeros(lines, np.int64)
    fields = _scan_lines(data, words, word_ends, digits, ends, counts)
    return Ragged(words, word_ends), Ragged(digits, ends[: fields + 1]), counts


@kernel
def _is_blank(letter: int) -> bool:
    return letter == 0x20 or 0x09 <= letter <= 0x0D


@kernel
def _scan_lines(data: Bytes, words: Bytes, word_ends: Ints, digits: Bytes, ends: Ints, counts: Ints) -> int:
    i, letters, at, fields = 0, 0, 0, 0
    for line in range(len(counts)):
        while not _is_blank(data[i]):
            words[letters] = data[i]
            letters += 1
            i += 1
        word_ends[line + 1] = letters
        while data[i] != 0x0A:
            if _is_blank(data[i]):
                i += 1
                continue
            while not _is_blank(data[i]):
                digits[at] = data[i]
                at += 1
                i += 1
            fields += 1
            ends[fields] = at
            counts[line] += 1
        i += 1
    return fields


@kernel
def _split_records(data: Bytes, size: int, words: Bytes, offsets: Ints, numbers: Bytes) -> tuple[int, int]:
    """How many whole records there are, and the bytes that they take."""
    row, used, letters = 0, 0, 0
    while True:
        start = used
        while start < len(data) and data[start] == 0x0A:
            start += 1
        blank = start
        while blank < len(data) and data[blank] != 0x20:
            blank += 1
        if blank + 1 + size > len(data):
            return row, used
        for i in range(start, blank):
            words[letters] = data[i]
            letters += 1
        offsets[row + 1] = letters
        for i in range(size):
            numbers[row * size + i] = data[blank + 1 + i]
        row += 1
        used = blank + 1 + size
