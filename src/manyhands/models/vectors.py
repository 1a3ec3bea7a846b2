"""Vectors of words to begin with, from files that others made."""

import numpy as np

from manyhands.errors import InputError, UsageError
from manyhands.lines import Floats
from manyhands.models.sequences import Lexicon
from manyhands.models.vector_files import vector_blocks
from manyhands.text.corpus import corpus_of
from manyhands.text.utf8 import valid_utf8


def fill_from(path: str, lexicon: Lexicon, table: Floats) -> int:
    """Put the vectors of known words into their rows; returns how many. Words that it lacks keep theirs."""
    filled, dim = 0, table.shape[1]
    for block in vector_blocks(path):
        found = block.vectors.shape[1]
        if found != dim:
            raise UsageError(f"{path} {block.where(0)} has {found} numbers; --dim is {dim}: make them equal")
        sound = np.flatnonzero(valid_utf8(block.words))
        corpus = corpus_of(block.words.take(sound))
        tokens, offsets = corpus.take(np.arange(len(sound)))
        single = np.flatnonzero(np.diff(offsets) == 1)
        places = lexicon.numbers(corpus)[tokens[offsets[single]]]
        table[places[places >= 0]] = block.vectors[sound[single[places >= 0]]]
        filled += int(np.count_nonzero(places >= 0))
    if not filled:
        raise InputError(f"{path} has a vector for none of the words to learn")
    return filled
