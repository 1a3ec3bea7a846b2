"""How many slots a model over n-grams takes, and whether it fits into memory."""

import numpy as np

from manyhands.errors import UsageError
from manyhands.records import Resources
from manyhands.settings import NgramSettings
from manyhands.text.corpus import Corpus
from manyhands.text.ngrams import Slotting

LEAST_BITS, MOST_WORD_BITS = 10, 24
SLOTS_PER_WORD = 16  # words seldom share a slot


def slotting_for(settings: NgramSettings, corpus: Corpus, resources: Resources) -> Slotting:
    """As many slots as were asked for, or as the corpus can fill, whichever is less."""
    if corpus.values is not None:
        raise UsageError("the model reads texts, and these rows are numbers; use --model lstm")
    _, once = np.unique(corpus.hashes, return_index=True)  # threads may have numbered a word twice
    words, letters_in_words = len(once), int(corpus.words.lengths()[once].sum())
    asked = (settings.buckets - 1).bit_length()
    filled = (corpus.tokens * (settings.ngrams - 1)).bit_length()
    letters = settings.letters
    slotting = Slotting(
        ngrams=settings.ngrams,
        word_bits=_between((words * SLOTS_PER_WORD).bit_length(), MOST_WORD_BITS),
        ngram_bits=_between(filled, asked),
        chars=letters,
        char_bits=_between((letters_in_words * (letters[1] - letters[0] + 1)).bit_length(), asked),
    )
    refuse_if_too_large(slotting.slots * min(resources.threads, 8), resources)
    return slotting


def _between(bits: int, most: int) -> int:
    return min(max(bits, LEAST_BITS), max(most, LEAST_BITS))


def refuse_if_too_large(
    model_bytes: int, resources: Resources, lower: str = "--buckets or --ngrams, raise --min-count"
) -> None:
    """Stop before memory runs out, and say what to lower.

    >>> refuse_if_too_large(3 << 30, Resources(threads=2, memory_bytes=1 << 30))
    Traceback (most recent call last):
    manyhands.errors.UsageError: the model needs about 3.0 GB and training may use 1.0 GB; lower --buckets \
or --ngrams, raise --min-count, or allow more with --memory
    """
    if model_bytes > resources.memory_bytes:
        needs, may = model_bytes / (1 << 30), resources.memory_bytes / (1 << 30)
        raise UsageError(
            f"the model needs about {needs:.1f} GB and training may use {may:.1f} GB; lower {lower}, "
            "or allow more with --memory"
        )
