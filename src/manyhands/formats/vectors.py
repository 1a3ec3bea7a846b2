"""Reading files of word vectors that other tools made: word2vec's, as text or binary, and GloVe's.

Which of these a file is, its first bytes tell: word2vec's begin with a line that says how many words
there are and how many numbers each has. In GloVe's the words begin at once. Words and vectors come a
block at a time; what a block holds is bounded by the bytes that were read, whatever the header claims.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Bytes, Ints, kernel
from manyhands.kernels.simd import Floats
from manyhands.storage.files import InputFile, InputStream, expand
from manyhands.text.embedding import Embedding
from manyhands.text.ragged import Ragged, concatenate
from manyhands.text.utf8 import valid_utf8
from manyhands.text.vocabulary import Vocabulary

HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*(?:\n|\Z)")
NUMBER = re.compile(rb"[-+.\deEnaifNAIF]+")
CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1f]")
SNIFFED_BYTES = 1 << 16
PIECE_BYTES, LONGEST_LINE, LONGEST_WORD = 1 << 20, 1 << 24, 1 << 16
MOST_NUMBERS = 1 << 20  # of one vector; it has to fit into memory before anything is known of it
NUMBER_BYTES = 4
QUOTED_LENGTH = 60
GROWTH = 1.25
NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Header:
    """What the first line of a word2vec file claims, and the bytes that it takes."""

    rows: int
    dim: int
    size: int

    def __str__(self) -> str:
        return f"{self.rows:,} words of {self.dim:,} numbers"


@dataclass(frozen=True)
class VectorBlock:
    """Some words with their vectors, and where they stand in the file: from a line, or a word, on."""

    words: Ragged
    vectors: Floats
    first: int
    unit: str = "line"

    def where(self, row: int) -> str:
        return f"{self.unit} {self.first + row}"


def read_vector_blocks(path: str) -> Iterator[VectorBlock]:
    """The words and vectors of all files that ``path`` names, compressed or not, here or elsewhere."""
    for file in expand([path]):
        with closing(InputStream(file)) as stream:
            yield from _read_blocks(stream, _read_header(stream))


def read_embedding(path: str) -> Embedding:
    """The words and vectors of a file; anything unsound in it is an error that says where."""
    file, *others = expand([path])
    if others:
        raise UsageError(f"{path} is {len(others) + 1} files; name one file of vectors")
    with closing(InputStream(file)) as stream:
        header = _read_header(stream)
        words, vectors, first = _collect(file, _read_blocks(stream, header))
    if header is not None and header.rows != len(words):
        raise InputError(f"{file.name} says {header} and holds {len(words):,}; fetch it again")
    texts = words.arrow().cast(pa.large_string())
    _refuse_duplicates(file, texts, first)
    return Embedding(Vocabulary(texts, np.zeros(len(words), np.int64)), vectors)


def _collect(file: InputFile, blocks: Iterator[VectorBlock]) -> tuple[Ragged, Floats, VectorBlock]:
    """All words, all vectors, and the first block. Memory follows what was read."""
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{file.name} holds no vectors")
    words, rows = [], 0
    vectors = np.empty((0, first.vectors.shape[1]), np.float32)
    for block in chain([first], blocks):
        sound = valid_utf8(block.words)
        if not sound.all():
            raise InputError(f"{file.name} {block.where(int(sound.argmin()))}: the word is not UTF-8")
        if rows + len(sound) > len(vectors):  # in place, where the system can
            vectors.resize((int(max(rows + len(sound), rows * GROWTH)), vectors.shape[1]), refcheck=False)
        vectors[rows : rows + len(sound)] = block.vectors
        words.append(block.words.take(np.arange(len(sound))))  # a copy as long as the words are
        rows += len(sound)
    vectors.resize((rows, vectors.shape[1]), refcheck=False)
    return concatenate(words), vectors, first


def _refuse_duplicates(file: InputFile, words: pa.Array, first: VectorBlock) -> None:
    """Words are numbered as they first come, so up to the first duplicate each has its place as number."""
    numbers = np.asarray(words.dictionary_encode().indices)
    again = _first_true(numbers != np.arange(len(numbers)))
    if again is not None:
        places = f"{first.where(int(numbers[again]))} and {first.where(again)}"
        raise InputError(f"{file.name} has '{words[again]}' twice, at {places}")


def _read_header(stream: InputStream) -> Header | None:
    found = HEADER.match(stream.head())
    if not found:
        return None
    header = Header(int(found[1]), int(found[2]), found.end())
    if not 1 <= header.dim <= MOST_NUMBERS:
        raise InputError(f"{stream.file.name} says {header}; a vector has 1 to {MOST_NUMBERS:,}")
    return header


def _read_blocks(stream: InputStream, header: Header | None) -> Iterator[VectorBlock]:
    if header is None or _is_text(stream.head()[header.size :], header.dim):
        return _read_text(stream, header)
    return _read_binary(stream, header)


def _is_text(data: bytes, dim: int) -> bool:
    """A line of a word and its numbers comes first, or else there is nothing that no text holds."""
    _, *fields = data.partition(b"\n")[0].split() or [b""]
    if len(fields) == dim and all(NUMBER.fullmatch(field) for field in fields):
        return True
    numbers_end = data.find(b" ") + 1 + 4 * dim
    if data[numbers_end : numbers_end + 1] == b"\n":  # the bytes of numbers may happen to be letters
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:SNIFFED_BYTES])
    except UnicodeDecodeError:
        return False
    return not CONTROL_BYTES.search(data[:SNIFFED_BYTES])


def _read_text(stream: InputStream, header: Header | None) -> Iterator[VectorBlock]:
    """A word and its numbers on each line; empty lines may stand at the end."""
    name, data, gap = stream.file.name, stream.read_behind(NOTHING, PIECE_BYTES), 0
    line, dim, claim = 1, 0, "the lines before it have"
    if header is not None:
        line, dim, claim = 2, header.dim, f"the first line says {header.rows:,} words of"
        data = data[header.size :]
    while len(data):
        found = np.flatnonzero(data == ord("\n"))
        end = int(found[-1]) + 1 if len(found) else 0
        if end:
            block, empty = _parse_lines(name, data[:end], line, dim, claim)
            if len(block.words) and gap:
                raise InputError(f"{name} line {line - gap} is empty; take it out")
            line += len(block.words) + empty
            gap = empty if len(block.words) else gap + empty
            if len(block.words):
                dim = block.vectors.shape[1]
                yield block
        rest = data[end:]
        if len(rest) > LONGEST_LINE:
            raise InputError(f"{name} has no lines; it is not a file of vectors")
        data = stream.read_behind(rest, PIECE_BYTES)
        if len(data) == len(rest) > 0:  # the last line has no end
            data = np.append(data, np.uint8(ord("\n")))


def _parse_lines(name: str, data: Bytes, first: int, dim: int, claim: str) -> tuple[VectorBlock, int]:
    """Whole lines as a block, and how many empty ones follow; if ``dim`` is 0, the first line sets it."""
    words, fields, counts = _split_lines(data)
    lengths = words.lengths()
    filled = np.flatnonzero((lengths > 0) | (counts > 0))
    lines = int(filled[-1]) + 1 if len(filled) else 0
    words, counts = Ragged(words.data, words.offsets[: lines + 1]), counts[:lines]
    wrong = _first_true(lengths[:lines] == 0)
    if wrong is not None:
        what = "begins with a blank where a word should be" if counts[wrong] else "is empty; take it out"
        raise InputError(f"{name} line {first + wrong} {what}")
    if lines and not dim:
        dim = int(counts[0])
        if not dim:
            raise InputError(f"{name} line {first} is not a vector: no number follows '{_quote(words, 0)}'")
    wrong = _first_true(counts != dim)
    if wrong is not None:
        raise InputError(f"{name} line {first + wrong} has {counts[wrong]} numbers; {claim} {dim}")
    block = VectorBlock(words, _parse_numbers(name, fields, first, dim).reshape(lines, dim), first)
    _refuse_if_not_finite(name, block)
    return block, len(lengths) - lines


def _parse_numbers(name: str, fields: Ragged, first: int, dim: int) -> Floats:
    offsets, data = pa.py_buffer(fields.offsets), pa.py_buffer(fields.data)
    try:
        return np.asarray(pa.LargeStringArray.from_buffers(len(fields), offsets, data).cast(pa.float32()))
    except pa.ArrowInvalid:  # it also refuses what is too small to be told from 0, and a plus in front
        return _parse_slowly(name, fields, first, dim)


def _parse_slowly(name: str, fields: Ragged, first: int, dim: int) -> Floats:
    text, starts = fields.data.tobytes(), fields.offsets.tolist()
    numbers = np.empty(len(fields), np.float64)
    for i in range(len(fields)):
        try:
            numbers[i] = float(text[starts[i] : starts[i + 1]])
        except ValueError:
            what = f"'{_quote(fields, i)}' is not a number"
            raise InputError(f"{name} line {first + i // dim} is not a vector: {what}") from None
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _read_binary(stream: InputStream, header: Header) -> Iterator[VectorBlock]:
    """Records of a word, a blank, ``header.dim`` floats, and maybe a line end."""
    name, size, first = stream.file.name, header.dim * NUMBER_BYTES, 1
    claim = f"the first line says {header}"
    data = stream.read_behind(NOTHING, PIECE_BYTES)[header.size :]
    while True:
        most = len(data) // (size + 1) + 1
        words, offsets = np.empty(len(data), np.uint8), np.zeros(most + 1, np.int64)
        numbers = np.empty(most * size, np.uint8)
        rows, used = _split_records(data, size, words, offsets, numbers)
        if rows:
            vectors = numbers[: rows * size].view("<f4").reshape(rows, header.dim)
            block = VectorBlock(Ragged(words, offsets[: rows + 1]), vectors, first, "word")
            empty = _first_true(block.words.lengths() == 0)
            if empty is not None:
                raise InputError(f"{name} {block.where(empty)} is empty; {claim}: is that right?")
            _refuse_if_not_finite(name, block)
            yield block
            first += rows
        rest = data[used:]
        if len(rest) > size + LONGEST_WORD:
            raise InputError(f"{name} word {first} has no end; {claim}: is that right?")
        data = stream.read_behind(rest, PIECE_BYTES)
        if len(data) == len(rest):
            break
    if rest.tobytes().strip():
        raise InputError(f"{name} ends within word {first}; {claim}; fetch it again")


def _refuse_if_not_finite(name: str, block: VectorBlock) -> None:
    wrong = _first_true(np.asarray(~np.isfinite(block.vectors).all(axis=1)))
    if wrong is not None:
        raise InputError(
            f"{name} {block.where(wrong)} holds a number that is not finite, "
            f"in the vector of '{_quote(block.words, wrong)}'"
        )


def _first_true(flags: npt.NDArray[Any]) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def _quote(texts: Ragged, row: int) -> str:
    start, end = texts.offsets[row], texts.offsets[row + 1]
    return texts.data[start:end].tobytes().decode("utf-8", "replace")[:QUOTED_LENGTH]


def _split_lines(data: Bytes) -> tuple[Ragged, Ragged, Ints]:
    """The word of each line, all fields behind these, and how many fields each line has."""
    lines = int(np.count_nonzero(data == ord("\n")))
    words, word_ends = np.empty(len(data), np.uint8), np.zeros(lines + 1, np.int64)
    digits, ends = np.empty(len(data), np.uint8), np.zeros(len(data) // 2 + 1, np.int64)
    counts = np.zeros(lines, np.int64)
    fields = _scan_lines(data, words, word_ends, digits, ends, counts)
    return Ragged(words, word_ends), Ragged(digits, ends[: fields + 1]), counts


@kernel
def _is_blank(byte: int) -> bool:
    return byte == 0x20 or 0x09 <= byte <= 0x0D


@kernel
def _scan_lines(data: Bytes, words: Bytes, word_ends: Ints, digits: Bytes, ends: Ints, counts: Ints) -> int:
    i, word_at, digit_at, fields = 0, 0, 0, 0
    for line in range(len(counts)):
        while not _is_blank(data[i]):
            words[word_at] = data[i]
            word_at += 1
            i += 1
        word_ends[line + 1] = word_at
        while data[i] != 0x0A:
            if _is_blank(data[i]):
                i += 1
                continue
            while not _is_blank(data[i]):
                digits[digit_at] = data[i]
                digit_at += 1
                i += 1
            fields += 1
            ends[fields] = digit_at
            counts[line] += 1
        i += 1
    return fields


@kernel
def _split_records(data: Bytes, size: int, words: Bytes, offsets: Ints, numbers: Bytes) -> tuple[int, int]:
    """How many whole records there are, and the bytes that they take."""
    row, used, at = 0, 0, 0
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
            words[at] = data[i]
            at += 1
        offsets[row + 1] = at
        for i in range(size):
            numbers[row * size + i] = data[blank + 1 + i]
        row += 1
        used = blank + 1 + size
