"""The features of a model: which slots of the n-grams it knows, and the number of each.

A bit for every slot says whether it is known; the count of the bits before it leads to its
number. That is two megabytes for 16 million slots, where a table of numbers would be 64: it
stays in the processor's cache, and n-grams that are not known cost next to nothing. The most
frequent features have the lowest numbers, so that what is used most lies together.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Bytes, Hashes, Ints, read_only
from manyhands.machine import refuse_if_too_large
from manyhands.models.learner import Crew
from manyhands.models.ngram import feature_kernels as kernels
from manyhands.models.ngram.feature_kernels import MOST_COUNTED, Counts, Numbers
from manyhands.parallel import map_unordered
from manyhands.records import Resources
from manyhands.settings import Buckets, CharNgramSettings, Common, MinCount, ModelSettings, Shapes
from manyhands.text.corpus import Corpus, corpus_of, corpus_once
from manyhands.text.ngram_names import NgramNames
from manyhands.text.ngrams import Letters, NgramHashing, Slots, row_slots, word_slots
from manyhands.text.ragged import Ragged

ROWS_AT_ONCE = 2048
ARENA_FEATURES = 1 << 22
MOST_COUNTERS = 8  # threads that count, each in a table of its own
SLOTS_AT_ONCE = 1 << 20
LEAST_BITS, MOST_WORD_BITS = 10, 24
SLOTS_PER_WORD = 16  # words seldom share a slot

WordNgrams = Annotated[int, Field(ge=1, le=5, description="Longest n-grams of words."), Shapes(), Common()]
NgramMinCount = Annotated[
    MinCount, Field(le=255, description="Ignore words and n-grams that occur fewer times than this.")
]


class NgramSettings(ModelSettings, CharNgramSettings):
    """What the models over hashed n-grams share."""

    ngrams: WordNgrams
    buckets: Buckets
    min_count: NgramMinCount


@dataclass(frozen=True)
class Features:
    """The features of row ``i`` are ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: Numbers
    offsets: Ints


@dataclass(frozen=True)
class FeatureSpace:
    """``bits`` has a bit for each slot; ``numbers`` the number of each known one, in slot order."""

    hashing: NgramHashing
    bits: Hashes
    numbers: Numbers

    def __post_init__(self) -> None:
        if len(self.bits) != (self.hashing.slots + 63) // 64:
            raise InputError("the features do not fit the settings of the model")
        if int(self.index[-1] >> kernels.HALF) != len(self.numbers):
            raise InputError("the features are damaged: another number of them is known than is listed")
        if len(self.numbers) and int(self.numbers.max()) >= len(self.numbers):
            raise InputError("the features are damaged: one of them has no weights")

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def index(self) -> Hashes:
        """As the kernels look slots up; behind the last, how many are known in all."""
        out = np.empty(2 * len(self.bits) + 1, np.uint64)
        kernels.make_index(self.bits, out)
        return read_only(out)

    def facts(self) -> dict[str, Any]:
        return asdict(self.hashing)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"feature_bits": self.bits, "feature_numbers": self.numbers}

    def read(self, normal: Ragged) -> Corpus:
        """Texts to be scored: their words are numbered only if each word's letters are to be taken apart."""
        return corpus_of(normal) if self.hashing.chars[1] else corpus_once(normal)

    def numbers_of(self, slots: Slots) -> Ints:
        """The number of the feature in each slot; -1 where none is known."""
        out = np.empty(len(slots), np.int64)
        kernels.look_up(slots, self.index, self.numbers, out)
        return out

    def slots(self) -> Slots:
        """The slot of each feature, by number."""
        set_bits = np.unpackbits(self.bits.view(np.uint8), bitorder="little")
        out = np.empty(len(self.numbers), np.uint32)
        out[self.numbers] = np.flatnonzero(set_bits)
        return out


def name_features(space: FeatureSpace, corpus: Corpus) -> NgramNames:
    """Names for the features of which the corpus has n-grams; ``words`` are those of the corpus."""
    letters, width = space.hashing.letters(corpus), max(space.hashing.ngrams, 2)
    runs, lengths = np.zeros((len(space), width), np.uint32), np.zeros(len(space), np.uint8)
    votes, arguments = np.zeros(len(space), np.int32), kernel_arguments(space.hashing, corpus, letters)
    for start in range(0, len(corpus), ROWS_AT_ONCE):
        tokens, offsets = corpus.take(np.arange(start, min(start + ROWS_AT_ONCE, len(corpus))))
        room = room_for(space.hashing, tokens, offsets, letters).one_row
        slots, features = np.empty(room, np.uint32), np.empty(room, np.int64)
        work = slots, features, runs, lengths, votes
        kernels.name(tokens, offsets, *arguments, space.index, space.numbers, *work)
    return NgramNames(corpus.words, runs, lengths, space.hashing.chars)


class Featuriser:
    """Makes features of the rows of one corpus: one for each n-gram or, if ``distinct``, each once."""

    def __init__(self, space: FeatureSpace, corpus: Corpus, *, distinct: bool) -> None:
        self._space, self._corpus, self._distinct = space, corpus, distinct
        self._letters = space.hashing.letters(corpus)
        self._local = threading.local()

    def of(self, rows: Ints, *, keep: bool = True) -> Features:
        """The features of some rows of the corpus; if they are not to be kept, only until the next call."""
        tokens, offsets = self._corpus.take(rows)
        room = room_for(self._space.hashing, tokens, offsets, self._letters)
        scratch, arena = self._scratch(room), self._arena(room.all_rows, keep)
        starts = np.zeros(len(rows) + 1, np.int64)
        ids = arena.ids[arena.used :]
        kernels.features(
            tokens,
            offsets,
            *kernel_arguments(self._space.hashing, self._corpus, self._letters),
            self._space.index,
            self._space.numbers,
            self._distinct,
            *scratch,
            ids,
            starts,
        )
        count = int(starts[-1])
        arena.used += count if keep else 0
        return Features(read_only(ids[:count]), starts)

    def _arena(self, count: int, keep: bool) -> "_Arena":
        """This thread's room for features. It is made large, as many small rooms take longer to get."""
        arena: _Arena | None = getattr(self._local, "arena", None)
        if arena is None or len(arena.ids) - arena.used < count:
            size = max(count, ARENA_FEATURES) if keep else count
            arena = self._local.arena = _Arena(np.empty(size, np.uint32))
        return arena

    def numbers(self, row: int) -> Ints:
        """The feature of every n-gram of a row, repeated ones too, in the order of the text; -1 for none."""
        tokens, offsets = self._corpus.take(np.array([row]))
        slots = np.empty(room_for(self._space.hashing, tokens, offsets, self._letters).one_row, np.uint32)
        arguments = kernel_arguments(self._space.hashing, self._corpus, self._letters)
        count = row_slots(tokens, 0, int(offsets[1]), *arguments, slots)
        return self._space.numbers_of(slots[:count])

    def _scratch(self, room: "_Room") -> tuple[Slots, Slots]:
        """This thread's room to work in: fresh memory costs more than what is done in it."""
        kept: _Room | None = getattr(self._local, "room", None)
        if kept is None or not kept.holds(room):
            self._local.room = room
            self._local.scratch = np.empty(room.one_row, np.uint32), np.zeros(room.table, np.uint32)
        found: tuple[Slots, Slots] = self._local.scratch
        return found


@dataclass
class _Arena:
    ids: Numbers
    used: int = 0


@dataclass(frozen=True)
class _Room:
    one_row: int
    all_rows: int
    table: int

    def holds(self, other: "_Room") -> bool:
        return self.one_row >= other.one_row and self.all_rows >= other.all_rows and self.table >= other.table


def room_for(
    hashing: NgramHashing, tokens: npt.NDArray[np.integer], offsets: Ints, letters: Letters
) -> _Room:
    """No row has more n-grams than this, and neither have all of them."""
    most = hashing.ngrams * np.diff(offsets)
    if len(letters.slots):
        ends = np.concatenate([[0], np.cumsum(np.diff(letters.offsets)[tokens])])
        most = most + np.diff(ends[offsets])
    longest = int(most.max(initial=0))
    return _Room(longest, int(most.sum()), 1 << max((4 * longest).bit_length(), 4))


def kernel_arguments(
    hashing: NgramHashing, corpus: Corpus, letters: Letters
) -> tuple[Hashes, Slots, Ints, int, np.uint64, np.uint64, np.uint64]:
    return corpus.hashes, letters.slots, letters.offsets, hashing.ngrams, *_masks(hashing)


def _masks(hashing: NgramHashing) -> tuple[np.uint64, np.uint64, np.uint64]:
    runs, words, _ = hashing.sizes
    return np.uint64(max(runs - 1, 0)), np.uint64(runs), np.uint64(words - 1)


def find_features(
    corpus: Corpus, hashing: NgramHashing, min_count: int, threads: int, crew: Crew
) -> FeatureSpace:
    """The features that stand at least ``min_count`` times in the corpus, the most frequent first."""
    counts = _count(corpus, hashing, threads, crew)
    _sum_counts(counts, min_count, crew)
    bits = np.zeros((hashing.slots + 63) // 64, np.uint64)
    numbers = np.empty(int(np.count_nonzero(counts >= min_count)), np.uint32)
    kernels.rank(counts, min_count, bits, numbers)
    return FeatureSpace(hashing, read_only(bits), read_only(numbers))


def _count(corpus: Corpus, hashing: NgramHashing, threads: int, crew: Crew) -> Counts:
    """How often each slot is met in this worker's share of the rows."""
    letters = hashing.letters(corpus)
    arguments = kernel_arguments(hashing, corpus, letters)
    mine = np.arange(*crew.share(len(corpus)))
    counters = min(threads, MOST_COUNTERS, 1 + len(mine) // ROWS_AT_ONCE)

    def count(first: int) -> Counts:
        counts = np.zeros(hashing.slots, np.uint16)
        for rows in runs_of_rows(mine, first, counters):
            tokens, offsets = corpus.take(rows)
            scratch = np.empty(room_for(hashing, tokens, offsets, letters).one_row, np.uint32)
            kernels.count(tokens, offsets, *arguments, scratch, counts)
        return counts

    counted = list(map_unordered(count, range(counters), counters))
    for other in counted[1:]:
        kernels.add_up(counted[0], other)
    return counted[0]


def _sum_counts(counts: Counts, min_count: int, crew: Crew) -> None:
    """Add up the counts of a crew, in place. Two bytes hold all of them, if each counts less far."""
    most = int(MOST_COUNTED) // crew.workers
    if most >= min_count:
        np.minimum(counts, most, out=counts)
        crew.sum(counts.view(np.int32))  # two in one, as few systems add up numbers of two bytes
        return
    for start in range(0, len(counts), SLOTS_AT_ONCE):  # more workers than that need more room
        part = counts[start : start + SLOTS_AT_ONCE].astype(np.int32)
        crew.sum(part)
        counts[start : start + SLOTS_AT_ONCE] = np.minimum(part, MOST_COUNTED)


def hashing_for(
    settings: NgramSettings, corpus: Corpus, resources: Resources, more_words: int = 0
) -> NgramHashing:
    """As many slots as were asked for, or as the corpus and ``more_words`` fill, whichever is less."""
    if corpus.values is not None:
        raise UsageError("the model reads texts, and these rows are numbers; use --model lstm")
    _, once = np.unique(corpus.hashes, return_index=True)  # threads may have numbered a word twice
    words, letters_in_words = len(once), int(corpus.words.lengths()[once].sum())
    asked = (settings.buckets - 1).bit_length()
    filled = (corpus.tokens * (settings.ngrams - 1)).bit_length()
    letters = settings.char_lengths
    hashing = NgramHashing(
        ngrams=settings.ngrams,
        word_bits=_between(((words + more_words) * SLOTS_PER_WORD).bit_length(), MOST_WORD_BITS),
        ngram_bits=_between(filled, asked),
        chars=letters,
        char_bits=_between((letters_in_words * (letters[1] - letters[0] + 1)).bit_length(), asked),
    )
    refuse_if_too_large(hashing.slots * 2 * min(resources.threads, MOST_COUNTERS), resources)
    return hashing


def _between(bits: int, most: int) -> int:
    return min(max(bits, LEAST_BITS), max(most, LEAST_BITS))


def hashing_from(facts: dict[str, Any]) -> NgramHashing:
    """How texts become slots, as a bundle describes it; checked, as it may come from anywhere."""
    try:
        hashing = NgramHashing(**{**facts, "chars": tuple(facts["chars"])})
        bits = (hashing.word_bits, hashing.ngram_bits, hashing.char_bits)
        numbers = (hashing.ngrams, *bits, *hashing.chars)
        sound = (
            all(type(number) is int for number in numbers)
            and 1 <= hashing.ngrams <= 5
            and all(0 < count <= 28 for count in bits)
            and len(hashing.chars) == 2
            and 0 <= hashing.chars[0] <= hashing.chars[1] <= 10
        )
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise InputError("the features of the model are not described as they should be")
    return hashing


def open_space(facts: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> FeatureSpace:
    """A space as a bundle keeps it, checked."""
    hashing = hashing_from(facts)
    bits, numbers = arrays["feature_bits"], arrays["feature_numbers"]
    if bits.dtype != np.uint64 or numbers.dtype != np.uint32 or bits.ndim != 1 or numbers.ndim != 1:
        raise InputError("the features of the model are of another kind than they should be")
    return FeatureSpace(hashing, read_only(bits), read_only(numbers))


def extend(old: FeatureSpace, new: FeatureSpace) -> FeatureSpace:
    """The features of both: those of ``old`` keep their numbers, and ``new`` ones follow."""
    bits = old.bits | new.bits
    set_bits = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)
    known = np.unpackbits(old.bits.view(np.uint8), bitorder="little").view(np.bool_)[set_bits]
    numbers = np.empty(len(known), np.uint32)
    numbers[known] = old.numbers
    numbers[~known] = len(old) + np.arange(len(known) - len(old), dtype=np.uint32)
    return FeatureSpace(old.hashing, read_only(bits), read_only(numbers))


def with_words(space: FeatureSpace, hashes: Hashes) -> FeatureSpace:
    """The features of a space, and single words that may not be among them."""
    known = np.zeros(64 * len(space.bits), np.uint8)
    known[word_slots(hashes, space.hashing)] = 1
    bits = np.packbits(known, bitorder="little").view(np.uint64)
    numbers = np.arange(int(np.count_nonzero(known)), dtype=np.uint32)
    return extend(space, FeatureSpace(space.hashing, read_only(bits), read_only(numbers)))


def score_rows(
    space: FeatureSpace,
    corpus: Corpus,
    columns: int,
    score: Callable[[Features, npt.NDArray[np.float32]], None],
    threads: int,
    *,
    distinct: bool,
) -> npt.NDArray[np.float32]:
    """Let ``score`` fill a row for every row of the corpus, a few at a time."""
    out = np.empty((len(corpus), columns), np.float32)
    featuriser = Featuriser(space, corpus, distinct=distinct)

    def fill(start: int) -> None:
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(corpus)))
        score(featuriser.of(rows, keep=False), out[start : start + ROWS_AT_ONCE])

    if len(corpus) <= ROWS_AT_ONCE or threads == 1:  # a thread would take longer to start than a text
        for start in range(0, len(corpus), ROWS_AT_ONCE):
            fill(start)
    else:
        for _ in map_unordered(fill, range(0, len(corpus), ROWS_AT_ONCE), threads):
            pass
    return out


TextArguments = tuple[
    Bytes, Ints, int, np.uint64, np.uint64, np.uint64, Hashes, Numbers, bool, Ints, Hashes, Slots, Slots
]


def text_arguments(space: FeatureSpace, normal: Ragged, *, distinct: bool, ranked: bool) -> TextArguments:
    """What the kernels take that go straight from texts to scores, without a corpus between.

    One text at a time goes the whole way, in room that stays in the processor's cache: writing down every
    word of a block, to read it once, takes longer than all that is done with it. If ``ranked``, features are
    the ranks of their slots in place of their numbers.
    """
    # Of one text, as requests bring them, no array is needed to know it.
    longest = (normal.size if len(normal) == 1 else int(normal.lengths().max(initial=0))) // 2 + 1
    room = space.hashing.ngrams * longest
    return (
        normal.data,
        normal.offsets,
        space.hashing.ngrams,
        *_masks(space.hashing),
        space.index,
        space.numbers[: 0 if ranked else None],
        distinct,
        np.empty(longest, np.int64),
        np.empty(longest, np.uint64),
        np.empty(room, np.uint32),
        np.zeros(1 << max((4 * room).bit_length(), 4), np.uint32),
    )


def runs_of_rows(rows: Ints, first: int, step: int) -> Iterable[Ints]:
    """Every ``step``-th run of rows, from the ``first`` on."""
    for start in range(first * ROWS_AT_ONCE, len(rows), step * ROWS_AT_ONCE):
        yield rows[start : start + ROWS_AT_ONCE]
