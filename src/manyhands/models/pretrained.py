"""Word vectors from a file, to start a classifier from."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.formats.vectors import read_vector_blocks
from manyhands.kernels.compile import Hashes, Ints
from manyhands.kernels.simd import Floats
from manyhands.text.corpus import corpus_of
from manyhands.text.utf8 import valid_utf8


class Pretrained(NamedTuple):
    """Some words, known by their hashes, and the vector of each."""

    hashes: Hashes
    vectors: Floats


def read_pretrained(path: str, dim: int) -> Iterator[Pretrained]:
    """The words and vectors of a file, a block at a time; what is not a single word is passed over."""
    for block in read_vector_blocks(path):
        found = block.vectors.shape[1]
        if found != dim:
            raise UsageError(f"{path} {block.where(0)} has {found} numbers; --dim is {dim}: make them equal")
        sound = np.flatnonzero(valid_utf8(block.words))
        corpus = corpus_of(block.words.take(sound))
        tokens, offsets = corpus.take(np.arange(len(sound)))
        single = np.flatnonzero(np.diff(offsets) == 1)
        yield Pretrained(corpus.hashes[tokens[offsets[single]]], block.vectors[sound[single]])


def fill_from(blocks: Iterable[tuple[Ints, Floats]], table: Floats) -> int:
    """Put vectors into their rows, a block at a time, but those of a row below 0; returns how many."""
    filled = 0
    for rows, vectors in blocks:
        known = np.flatnonzero(rows >= 0)
        table[rows[known], : vectors.shape[1]] = vectors[known]
        filled += len(known)
    return filled


def check_filled(filled: int, path: str | None) -> None:
    if not filled:
        raise InputError(f"{path} has a vector for none of the words to learn")
