"""Writing words and their vectors to the files of other tools, a block of rows at a time."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyhands.errors import InputError, UsageError
from manyhands.formats.gensim import write_keyed_vectors
from manyhands.kernels.compile import Flags
from manyhands.kernels.simd import Floats
from manyhands.storage.destination import Kind, destination
from manyhands.storage.files import STDIN, flush, refuse_to_replace, writing
from manyhands.text.embedding import Embedding
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
    refuse_to_replace(out, overwrite)
    if out == STDIN and to in SEVERAL_FILES:
        raise UsageError(f"{to} is several files, which standard output cannot hold; name an --out")
    return WRITERS[to](embedding, out)


def _write_file(
    embedding: Embedding, out: str, *, rows: Callable[[Ragged, Floats], Any], header: bool = True
) -> list[str]:
    fits = fits_format(embedding.vocabulary.words)
    with writing(out) as file:
        if header:
            file.write(f"{np.count_nonzero(fits)} {embedding.dim}\n".encode())
        for words, vectors in _batches(embedding, fits):
            file.write(rows(words, vectors))
    return [out]


def _write_projector(embedding: Embedding, out: str) -> list[str]:
    """TensorBoard's: a column alone has no heading, so the first line of both files is that of a word."""
    with destination(out, True, PROJECTOR) as folder:
        with (folder / VECTORS).open("wb") as vectors_file, (folder / METADATA).open("wb") as words_file:
            for words, vectors in _batches(embedding, fits_format(embedding.vocabulary.words, LINE_ENDS)):
                words_file.write(_join_lines(words.arrow()))
                vectors_file.write(_join_lines(_join_numbers(vectors, TAB)))
        for name in (VECTORS, METADATA):
            flush(folder / name)
    return [f"{out.rstrip('/')}/{name}" for name in (VECTORS, METADATA)]


def _check_projector(folder: Path) -> None:
    if not all((folder / name).is_file() for name in (VECTORS, METADATA)):
        raise InputError(f"{folder} is incomplete")


def format_lines(words: Ragged, vectors: Floats) -> Any:
    """``word v1 v2 …`` a line, every number with as many digits as tell it from all others."""
    return _join_lines(words.arrow(), _join_numbers(vectors, BLANK))


def _format_binary(words: Ragged, vectors: Floats) -> Any:
    numbers = np.ascontiguousarray(vectors, "<f4").view(np.uint8).ravel()
    starts = np.arange(len(vectors) + 1, dtype=np.int64) * vectors.shape[1] * 4
    return _join_lines(words.arrow(), Ragged(numbers, starts).arrow())


PROJECTOR = Kind(
    "folder for the projector", METADATA, re.compile(r"vectors\.tsv|metadata\.tsv"), _check_projector
)
WRITERS: dict[str, Callable[[Embedding, str], list[str]]] = {
    "word2vec": partial(_write_file, rows=format_lines),
    "word2vec-binary": partial(_write_file, rows=_format_binary),
    "glove": partial(_write_file, rows=format_lines, header=False),
    "keyedvectors": write_keyed_vectors,
    "projector": _write_projector,
}
SEVERAL_FILES = ("keyedvectors", "projector")


def fits_format(words: pa.Array, forbidden: str = BLANKS) -> Flags:
    """Which words a file can hold that ends them at what is ``forbidden``."""
    found = pc.or_(pc.equal(words, ""), pc.match_substring_regex(words, forbidden))
    return np.asarray(pc.invert(found))


def _batches(embedding: Embedding, fits: Flags) -> Iterator[tuple[Ragged, Floats]]:
    words = from_arrow(embedding.vocabulary.words)
    step = max(NUMBERS_AT_ONCE // embedding.dim, 1)
    for start in range(0, len(words), step):
        rows = start + np.flatnonzero(fits[start : start + step])
        yield words.take(rows), np.asarray(embedding.vectors[rows], np.float32)


def _join_numbers(vectors: Floats, between: str) -> pa.Array:
    numbers = pa.array(vectors.ravel()).cast(pa.large_string())
    starts = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1], pa.int32())
    rows = pa.ListArray.from_arrays(starts, numbers)
    return pc.binary_join(rows, pa.scalar(between, pa.large_string())).cast(pa.large_binary())


def _join_lines(*columns: pa.Array) -> Any:
    """The bytes of a line for each row: its columns with a blank between them."""
    blank, nothing, end = (pa.scalar(text.encode(), pa.large_binary()) for text in (BLANK, "", "\n"))
    lines = pc.binary_join_element_wise(*columns, blank)
    lines = from_arrow(pc.binary_join_element_wise(lines, nothing, end))
    return lines.data[: lines.size].data
