"""Files of word vectors that others made: word2vec's, as text or binary, and GloVe's.

Which of these a file is, its first bytes tell: word2vec's begin with a line that says how many words
there are and how many numbers each has. In GloVe's the words begin at once.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyhands.errors import InputError, UsageError
from manyhands.lines import Floats
from manyhands.models.embedding import Embedding
from manyhands.models.vector_blocks import Block, binary_blocks, text_blocks
from manyhands.storage.files import InputFile, InputStream, expand
from manyhands.text.ragged import Ragged, joined
from manyhands.text.utf8 import valid_utf8
from manyhands.text.vocabulary import Vocabulary

FIRST_LINE = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*(?:\n|\Z)")
NUMBER = re.compile(rb"[-+.\deEnaifNAIF]+")
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")
LOOKED_AT_BYTES = 1 << 16
MOST_NUMBERS = 1 << 20  # of one vector; it has to fit into memory before anything is known of it
GROWTH = 1.25


@dataclass(frozen=True)
class Head:
    """What the first line of a word2vec file claims, and the bytes that it takes."""

    rows: int
    dim: int
    size: int

    def __str__(self) -> str:
        return f"{self.rows:,} words of {self.dim:,} numbers"


def vector_blocks(path: str) -> Iterator[Block]:
    """The words and vectors of all files that ``path`` names, packed or not, here or elsewhere."""
    for file in expand([path]):
        with closing(InputStream(file)) as stream:
            yield from _blocks(stream, _head_of(stream))


def read_embedding(path: str) -> Embedding:
    """The words and vectors of a file; anything unsound in it is an error that says where."""
    file, *others = expand([path])
    if others:
        raise UsageError(f"{path} is {len(others) + 1} files; name one file of vectors")
    with closing(InputStream(file)) as stream:
        head = _head_of(stream)
        words, vectors, first = _gathered(file, _blocks(stream, head))
    if head is not None and head.rows != len(words):
        raise InputError(f"{file.name} says {head} and holds {len(words):,}; fetch it again")
    texts = words.arrow().cast(pa.large_string())
    _refuse_duplicates(file, texts, first)
    return Embedding(Vocabulary(texts, np.zeros(len(words), np.int64)), vectors)


def _gathered(file: InputFile, blocks: Iterator[Block]) -> tuple[Ragged, Floats, Block]:
    """All words, all vectors, and the first block. Memory follows what was read."""
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{file.name} holds no vectors")
    words, rows = [], 0
    vectors = np.empty((0, first.vectors.shape[1]), np.float32)
    block: Block | None = first
    while block is not None:
        sound = valid_utf8(block.words)
        if not sound.all():
            raise InputError(f"{file.name} {block.where(int(sound.argmin()))} begins with no UTF-8 word")
        if rows + len(sound) > len(vectors):  # in place, where the system can
            vectors.resize((int(max(rows + len(sound), rows * GROWTH)), vectors.shape[1]), refcheck=False)
        vectors[rows : rows + len(sound)] = block.vectors
        words.append(block.words.take(np.arange(len(sound))))  # a copy as long as the words are
        rows += len(sound)
        block = next(blocks, None)
    vectors.resize((rows, vectors.shape[1]), refcheck=False)
    return joined(words), vectors, first


def _refuse_duplicates(file: InputFile, words: pa.Array, first: Block) -> None:
    """Words are numbered as they first come, so up to the first duplicate each has its place as number."""
    numbers = np.asarray(words.dictionary_encode().indices)
    twice = numbers != np.arange(len(numbers))
    if twice.any():
        again = int(twice.argmax())
        before = int(numbers[again])
        raise InputError(
            f"{file.name} has '{words[again]}' twice, at {first.where(before)} and {first.where(again)}"
        )


def _head_of(stream: InputStream) -> Head | None:
    found = FIRST_LINE.match(stream.head())
    if not found:
        return None
    head = Head(int(found[1]), int(found[2]), found.end())
    if not 1 <= head.dim <= MOST_NUMBERS:
        raise InputError(f"{stream.file.name} says {head}; a vector has 1 to {MOST_NUMBERS:,}")
    return head


def _blocks(stream: InputStream, head: Head | None) -> Iterator[Block]:
    if head is None:
        return text_blocks(stream, 0, 1, 0, "the lines before it have")
    if _is_text(stream.head()[head.size :], head.dim):
        return text_blocks(stream, head.size, 2, head.dim, f"the first line says {head.rows:,} words of")
    return binary_blocks(stream, head.size, head.dim, f"the first line says {head}")


def _is_text(data: bytes, dim: int) -> bool:
    """A line of a word and its numbers comes first, or else there is nothing that no text holds."""
    _, *fields = data.partition(b"\n")[0].split() or [b""]
    if len(fields) == dim and all(NUMBER.fullmatch(field) for field in fields):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:LOOKED_AT_BYTES])
    except UnicodeDecodeError:
        return False
    return not NO_TEXT.search(data[:LOOKED_AT_BYTES])
