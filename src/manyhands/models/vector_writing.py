"""Words and their vectors in the files of others; a block of rows at a time."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.errors import InputError, UsageError
from manyhands.kernel import Flags
from manyhands.lines import Floats
from manyhands.models.embedding import Embedding
from manyhands.models.gensim_files import write_keyed_vectors
from manyhands.storage.destination import Kind, destination
from manyhands.storage.files import STDIN, flush, refuse_to_replace, writing
from manyhands.text.ragged import Ragged, from_arrow

NUMBERS_AT_ONCE = 1 << 20  # as text they take about twelve bytes each
BLANK, TAB = " ", "\t"
BLANKS, LINE_ENDS = r"[\t\n\v\f\r ]", r"[\t\n\r]"
VECTORS, METADATA = "vectors.tsv", "metadata.tsv"


def write_embedding(embedding: Embedding, to: str, out: str, *, overwrite: bool = False) -> list[str]:
    """Write words and vectors to ``out``, in the format ``to``; returns the files written.

    Words that the format cannot hold are left out: a blank inside a word would end it there.
    """
    if to not in WRITERS:
        raise UsageError(f"there is no format '{to}' for word vectors; there are: {', '.join(WRITERS)}")
    if not overwrite:
        refuse_to_replace(out)
    if out == STDIN and to in SEVERAL_FILES:
        raise UsageError(f"{to} is several files, which standard output cannot hold; name an --out")
    return WRITERS[to](embedding, out)


def _to_word2vec(embedding: Embedding, out: str) -> list[str]:
    kept = holdable(embedding.vocabulary.words)
    with writing(out) as file:
        file.write(_first_line(kept, embedding.dim))
        for words, vectors in _pieces(embedding, kept):
            file.write(as_text(words, vectors))
    return [out]


def _to_word2vec_binary(embedding: Embedding, out: str) -> list[str]:
    kept = holdable(embedding.vocabulary.words)
    with writing(out) as file:
        file.write(_first_line(kept, embedding.dim))
        for words, vectors in _pieces(embedding, kept):
            numbers = np.ascontiguousarray(vectors, "<f4").view(np.uint8).ravel()
            starts = np.arange(len(vectors) + 1, dtype=np.int64) * vectors.shape[1] * 4
            file.write(_lines(words.arrow(), Ragged(numbers, starts).arrow(), BLANK))
    return [out]


def _to_glove(embedding: Embedding, out: str) -> list[str]:
    with writing(out) as file:
        for words, vectors in _pieces(embedding, holdable(embedding.vocabulary.words)):
            file.write(as_text(words, vectors))
    return [out]


def _to_projector(embedding: Embedding, out: str) -> list[str]:
    """A column alone has no heading there: the first line of both files is that of a word."""
    kept = holdable(embedding.vocabulary.words, LINE_ENDS)
    with destination(out, True, PROJECTOR) as folder:
        with (folder / VECTORS).open("wb") as vectors_file, (folder / METADATA).open("wb") as words_file:
            for words, vectors in _pieces(embedding, kept):
                _project(words, vectors, words_file, vectors_file)
        for name in (VECTORS, METADATA):
            flush(folder / name)
    return [f"{out.rstrip('/')}/{name}" for name in (VECTORS, METADATA)]


def _project(words: Ragged, vectors: Floats, words_file: IO[bytes], vectors_file: IO[bytes]) -> None:
    nothing = pa.nulls(len(words), pa.large_binary()).fill_null(b"")
    words_file.write(_lines(words.arrow(), nothing, ""))
    vectors_file.write(_lines(_joined(vectors, TAB), nothing, ""))


def _check_projector(folder: Path) -> None:
    if not all((folder / name).is_file() for name in (VECTORS, METADATA)):
        raise InputError(f"{folder} is not whole")


PROJECTOR = Kind(
    "folder for the projector", METADATA, re.compile(r"vectors\.tsv|metadata\.tsv"), _check_projector
)
WRITERS = {
    "word2vec": _to_word2vec,
    "word2vec-binary": _to_word2vec_binary,
    "glove": _to_glove,
    "keyedvectors": write_keyed_vectors,
    "projector": _to_projector,
}
SEVERAL_FILES = ("keyedvectors", "projector")


def holdable(words: pa.Array, forbidden: str = BLANKS) -> Flags:
    """Which words a file can hold that ends them at what is ``forbidden``."""
    found = pc.or_(pc.equal(words, ""), pc.match_substring_regex(words, forbidden))
    return np.asarray(pc.invert(found))


def as_text(words: Ragged, vectors: Floats) -> Any:
    """``word v1 v2 …`` a line, every number with as many digits as tell it from all others."""
    return _lines(words.arrow(), _joined(vectors, BLANK), BLANK)


def _first_line(kept: Flags, dim: int) -> bytes:
    return f"{np.count_nonzero(kept)} {dim}\n".encode()


def _pieces(embedding: Embedding, kept: Flags) -> Iterator[tuple[Ragged, Floats]]:
    words = from_arrow(embedding.vocabulary.words)
    step = max(NUMBERS_AT_ONCE // embedding.dim, 1)
    for start in range(0, len(words), step):
        rows = start + np.flatnonzero(kept[start : start + step])
        yield words.take(rows), np.asarray(embedding.vectors[rows], np.float32)


def _joined(vectors: Floats, between: str) -> pa.Array:
    numbers = pa.array(vectors.ravel()).cast(pa.large_string())
    starts = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1], pa.int32())
    rows = pa.ListArray.from_arrays(starts, numbers)
    return pc.binary_join(rows, pa.scalar(between, pa.large_string())).cast(pa.large_binary())


def _lines(firsts: pa.Array, seconds: pa.Array, between: str) -> Any:
    """The bytes of ``first``, ``between`` and ``second`` on a line each."""
    nothing, end = (pa.scalar(text, pa.large_binary()) for text in (b"", b"\n"))
    lines = pc.binary_join_element_wise(firsts, seconds, pa.scalar(between.encode(), pa.large_binary()))
    lines = from_arrow(pc.binary_join_element_wise(lines, nothing, end))
    return lines.data[: lines.size].data
