"""A classifier that fastText trained, computed here: the same probabilities for the same bytes.

A text becomes words and n-grams; these find their rows of the input matrix, the mean of which is
multiplied by the output matrix; the loss that the model was trained with makes probabilities of the
products. Sums are made in fastText's order, so that they round as they do there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.formats.fasttext import (
    CENTROIDS,
    COUNT_LIMIT,
    LABEL_PREFIX,
    LONGEST_NGRAM,
    LOSSES,
    FastTextArgs,
    FastTextFile,
    FastTextMatrix,
    Int32s,
    check_model,
    corrupt_file_error,
)
from manyhands.kernels.compile import Bytes, Flags, Hashes, Ints, Item, kernel, read_only
from manyhands.kernels.simd import Floats
from manyhands.machine import cores
from manyhands.parallel import map_unordered
from manyhands.text.corpus import Corpus, corpus_once
from manyhands.text.embedding import Embedding
from manyhands.text.hashing import mix
from manyhands.text.ragged import Ragged, from_strings
from manyhands.text.utf8 import valid_utf8
from manyhands.text.vocabulary import Vocabulary

FNV_START, FNV_PRIME = np.uint64(2166136261), np.uint64(16777619)
LOW_HALF, SIGN_BITS, HALF_BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFF00), np.uint64(32)
NGRAM_PRIME = np.uint64(116049371)
ONE = np.uint64(1)
EMPTY_SLOT = np.uint64(0xFFFFFFFFFFFFFFFF)  # no word has the last number
# Half-full tables of honest words stay below a hundred; only made-up collisions come so far.
LONGEST_PROBE = 1024
COLLISIONS = "more of its words or n-grams collide than by chance"

LINE_END = np.frombuffer(b"</s>", np.uint8)  # fastText's word for it
PREFIX = np.frombuffer(LABEL_PREFIX.encode(), np.uint8)
BLANK, FIRST_CONTROL, LAST_CONTROL = np.uint8(0x20), np.uint8(0x09), np.uint8(0x0D)
OPEN, CLOSE = np.uint8(0x3C), np.uint8(0x3E)
HIGH_BIT, HIGH_TWO_BITS = np.uint8(0x80), np.uint8(0xC0)  # with 10 on top, a byte continues a character

ENOUGH_ROWS = 1024
TEXTS_AT_ONCE = 2048
HS, SOFTMAX = LOSSES.index("hs"), LOSSES.index("softmax")
SIGMOID_LIMIT, SIGMOID_STEPS = np.float32(8), np.float32(32)  # to which argument, and how many to a unit
SIDES = ("input", "output")
Arrays = dict[str, npt.NDArray[Any]]


# Hash tables of words and of kept buckets, by open addressing in numpy arrays. fastText's own hash of a
# word is kept (32 bits of FNV-1a): word n-grams are made of it, so a text is hashed once for both.


class DictionaryTable(NamedTuple):
    """The words, then the labels; a slot holds an entry's hash above its number."""

    data: Bytes
    offsets: Ints
    slots: Hashes
    word_count: int  # the entries behind these are labels


class KeptTable(NamedTuple):
    """Slots with the buckets of n-grams that a pruned model has kept; none if it kept all."""

    buckets: Int32s
    rows: Int32s


@kernel
def _fnv(value: np.uint64, byte: np.uint8) -> np.uint64:
    """One more byte for the hash; fastText widens it with its sign."""
    wide = np.uint64(byte)
    if byte >= HIGH_BIT:
        wide |= SIGN_BITS
    return ((value ^ wide) * FNV_PRIME) & LOW_HALF


@kernel
def _hash(data: Bytes, start: int, end: int) -> np.uint64:
    value = FNV_START
    for i in range(start, end):
        value = _fnv(value, data[i])
    return value


@kernel
def _equal(one: Bytes, start: int, end: int, two: Bytes, other: int, other_end: int) -> bool:
    if end - start != other_end - other:
        return False
    while start < end and one[start] == two[other]:
        start, other = start + 1, other + 1
    return start == end


@kernel
def _fill_words(data: Bytes, offsets: Ints, slots: Hashes) -> bool:
    """Of equal entries the last one is found, as in fastText; false if too many collide."""
    last = np.uint64(len(slots) - 1)
    for entry in range(len(offsets) - 1):
        start, end = offsets[entry], offsets[entry + 1]
        value = _hash(data, start, end)
        slot, probes = mix(value) & last, 0
        while slots[slot] != EMPTY_SLOT:
            other = int(slots[slot] & LOW_HALF)
            if slots[slot] >> HALF_BITS == value and _equal(
                data, start, end, data, offsets[other], offsets[other + 1]
            ):
                break
            slot, probes = (slot + ONE) & last, probes + 1
            if probes > LONGEST_PROBE:
                return False
        slots[slot] = value << HALF_BITS | np.uint64(entry)
    return True


@kernel
def _find_word(
    data: Bytes, offsets: Ints, slots: Hashes, value: np.uint64, text: Bytes, start: int, end: int
) -> int:
    """The number of the word ``text[start:end]`` that hashes to ``value``; -1 if there is none."""
    last = np.uint64(len(slots) - 1)
    slot = mix(value) & last
    while slots[slot] != EMPTY_SLOT:
        if slots[slot] >> HALF_BITS == value:
            entry = int(slots[slot] & LOW_HALF)
            if _equal(text, start, end, data, offsets[entry], offsets[entry + 1]):
                return entry
        slot = (slot + ONE) & last
    return -1


@kernel
def _fill_kept(buckets: Int32s, rows: Int32s, slots: Int32s, targets: Int32s) -> bool:
    last = np.uint64(len(slots) - 1)
    for i in range(len(buckets)):
        slot, probes = mix(np.uint64(buckets[i])) & last, 0
        while slots[slot] >= 0 and slots[slot] != buckets[i]:
            slot, probes = (slot + ONE) & last, probes + 1
            if probes > LONGEST_PROBE:
                return False
        slots[slot], targets[slot] = buckets[i], rows[i]
    return True


@kernel
def _find_kept(slots: Int32s, targets: Int32s, bucket: int) -> int:
    """The row of a bucket among those of the n-grams; -1 if it was pruned away."""
    last = np.uint64(len(slots) - 1)
    slot = mix(np.uint64(bucket)) & last
    while slots[slot] >= 0:
        if slots[slot] == bucket:
            return int(targets[slot])
        slot = (slot + ONE) & last
    return -1


def _table_size(entries: int) -> int:
    return 1 << max(2, (2 * entries).bit_length())


def _build_dictionary_table(model: FastTextFile) -> DictionaryTable:
    entries = model.entries
    slots = np.full(_table_size(len(entries)), EMPTY_SLOT)
    if not _fill_words(entries.data, entries.offsets, slots):
        raise corrupt_file_error(model.where, COLLISIONS)
    return DictionaryTable(entries.data, entries.offsets, read_only(slots), model.word_count)


def _build_kept_table(model: FastTextFile) -> KeptTable:
    buckets, rows = model.kept_buckets, model.kept_rows
    if not len(buckets):
        return KeptTable(buckets, rows)
    size = _table_size(len(buckets))
    slots, targets = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    if not _fill_kept(buckets, rows, slots, targets):
        raise corrupt_file_error(model.where, COLLISIONS)
    return KeptTable(read_only(slots), read_only(targets))


# Rows of a matrix, dense or quantised.


@kernel
def _add_rows(matrix: FastTextMatrix, rows: Ints, total: Floats) -> None:
    if len(matrix.dense):
        _add_dense(matrix.dense, rows, total)
        return
    norm = np.float32(1)
    for row in rows:
        if len(matrix.norms):
            norm = matrix.norms[matrix.norm_codes[row]]
        _add_quantised(matrix.codes[row], matrix.centroids, matrix.dsub, norm, total)


@kernel
def _add_dense(dense: Floats, rows: Ints, total: Floats) -> None:
    """Four rows at a time: their memory is then on its way together."""
    dim, fours = np.uint64(len(total)), len(rows) // 4 * 4
    for i in range(0, fours, 4):
        a, b = np.uint64(rows[i]), np.uint64(rows[i + 1])
        c, d = np.uint64(rows[i + 2]), np.uint64(rows[i + 3])
        for j in range(dim):
            total[j] = total[j] + dense[a, j] + dense[b, j] + dense[c, j] + dense[d, j]
    for i in range(fours, len(rows)):
        a = np.uint64(rows[i])
        for j in range(dim):
            total[j] += dense[a, j]


@kernel
def _add_quantised(codes: Bytes, centroids: Floats, dsub: int, norm: np.float32, total: Floats) -> None:
    dim, base = len(total), 0
    for code in codes:
        width = min(dsub, dim - base)
        first = base * CENTROIDS + np.int64(code) * width
        for j in range(width):
            total[base + j] += norm * centroids[first + j]
        base += width


@kernel
def _dot_quantised(matrix: FastTextMatrix, row: int, vector: Floats) -> np.float32:
    """A row times ``vector``; the norm comes last, as in fastText."""
    dim, dsub, base = len(vector), matrix.dsub, 0
    total = np.float32(0)
    for code in range(matrix.codes.shape[1]):
        width = min(dsub, dim - base)
        first = base * CENTROIDS + np.int64(matrix.codes[row, code]) * width
        for j in range(width):
            total += vector[base + j] * matrix.centroids[first + j]
        base += width
    if len(matrix.norms):
        total *= matrix.norms[matrix.norm_codes[row]]
    return total


# From a text to the mean of the rows of its words and n-grams. Rows are added about a thousand at a
# time, so n-grams take no more memory however many there are. The functions in the middle get plain
# arrays, as handing on tuples of arrays took more than half of all time.


class FeatureLookup(NamedTuple):
    """How the words and n-grams of a text find their rows."""

    words: DictionaryTable
    kept: KeptTable
    word_ngrams: int
    bucket: int
    minn: int
    maxn: int


class TokenBuffer(NamedTuple):
    """Room for the words of a text: where each stands, its hash, and its number or -1."""

    begins: Ints
    ends: Ints
    hashes: Int32s
    numbers: Int32s


class Scratch(NamedTuple):
    """Room for the longest text, and for the rows that wait until there are enough to add."""

    tokens: TokenBuffer
    bracketed: Bytes
    waiting: Ints
    hidden: Floats


def _new_scratch(longest: int, dim: int) -> Scratch:
    """Every other byte may be a word, and the end of the line is one more."""
    most = longest // 2 + 2
    places, numbers = np.empty((2, most), np.int64), np.empty((2, most), np.int32)
    tokens = TokenBuffer(places[0], places[1], numbers[0], numbers[1])
    waiting = np.empty(ENOUGH_ROWS + LONGEST_NGRAM + 1, np.int64)
    return Scratch(tokens, np.empty(longest + 2, np.uint8), waiting, np.empty(dim, np.float32))


@kernel
def _is_blank(byte: np.uint8) -> bool:
    if byte > BLANK:
        return False
    return bool(byte == BLANK or byte == 0 or FIRST_CONTROL <= byte <= LAST_CONTROL)


@kernel
def _has_prefix(text: Bytes, begin: int, end: int) -> bool:
    size = len(PREFIX)
    return end - begin >= size and _equal(text, begin, begin + size, PREFIX, 0, size)


@kernel
def _tokenise(
    text: Bytes, i: int, end: int, data: Bytes, offsets: Ints, slots: Hashes, words: int, out: TokenBuffer
) -> int:
    """Fill ``out`` with the words of ``text[i:end]`` and return how many there are.

    Labels are no words. What reads like the end of the line ends it, as it does in fastText, and
    the end of the text is one, too; it stands nowhere, as it has no character n-grams.
    """
    begins, ends, hashes, numbers = out.begins, out.ends, out.hashes, out.numbers
    size = 0
    while True:
        while i < end and _is_blank(text[i]):
            i += 1
        begin, value = i, FNV_START
        while i < end and not _is_blank(text[i]):
            value = _fnv(value, text[i])
            i += 1
        if begin == i or _equal(text, begin, i, LINE_END, 0, len(LINE_END)):
            break
        number = _find_word(data, offsets, slots, value, text, begin, i)
        if number < words and (number >= 0 or not _has_prefix(text, begin, i)):
            begins[size], ends[size] = begin, i
            hashes[size], numbers[size] = np.int32(value), number
            size += 1
    value = _hash(LINE_END, 0, len(LINE_END))
    number = _find_word(data, offsets, slots, value, LINE_END, 0, len(LINE_END))
    if number >= words:
        return size
    begins[size] = ends[size] = 0
    hashes[size], numbers[size] = np.int32(value), number
    return size + 1


@kernel
def _bracket(text: Bytes, begin: int, end: int, out: Bytes) -> int:
    """Put ``<word>`` into ``out`` and return its length."""
    out[0] = OPEN
    for i in range(end - begin):
        out[i + 1] = text[begin + i]
    out[end - begin + 1] = CLOSE
    return end - begin + 2


@kernel
def _hash_character_ngrams(
    word: Bytes, size: int, first: int, minn: int, maxn: int, bucket: int, offset: int, out: Ints, filled: int
) -> tuple[int, int]:
    """The n-grams of ``<word>`` from ``first`` on, neither bracket by itself.

    Returns how far it came until there are enough, and how many there are.
    """
    buckets = np.uint64(bucket)
    while first < size and filled < ENOUGH_ROWS:
        value, i, length = FNV_START, first, 1
        if word[first] & HIGH_TWO_BITS == HIGH_BIT:
            i = size
        while i < size and length <= maxn:
            value = _fnv(value, word[i])
            i += 1
            while i < size and word[i] & HIGH_TWO_BITS == HIGH_BIT:
                value = _fnv(value, word[i])
                i += 1
            bracket = length == 1 and (first == 0 or i == size)
            if length >= minn and not bracket:
                out[filled] = offset + int(value % buckets)
                filled += 1
            length += 1
        first += 1
    return first, filled


@kernel
def _hash_word_ngrams(
    hashes: Int32s, size: int, first: int, longest: int, bucket: int, offset: int, out: Ints, filled: int
) -> tuple[int, int]:
    """As for characters: how far it came until there are enough, and how many there are."""
    buckets = np.uint64(bucket)
    while first < size and filled < ENOUGH_ROWS:
        value = np.uint64(np.int64(hashes[first]))
        for i in range(first + 1, min(size, first + longest)):
            value = value * NGRAM_PRIME + np.uint64(np.int64(hashes[i]))
            out[filled] = offset + int(value % buckets)
            filled += 1
        first += 1
    return first, filled


@kernel
def _add_waiting(
    kept: KeptTable, inputs: FastTextMatrix, words: int, waiting: Ints, filled: int, hidden: Floats
) -> int:
    """Add the rows that wait, but those of pruned n-grams; returns how many were added."""
    if len(kept.buckets):
        left = 0
        for i in range(filled):
            row = waiting[i]
            if row >= words:
                bucket = _find_kept(kept.buckets, kept.rows, row - words)
                row = words + bucket if bucket >= 0 else -1
            if row >= 0:
                waiting[left] = row
                left += 1
        filled = left
    _add_rows(inputs, waiting[:filled], hidden)
    return filled


@kernel
def _average_rows(
    lookup: FeatureLookup, inputs: FastTextMatrix, text: Bytes, i: int, end: int, room: Scratch
) -> bool:
    """Set ``room.hidden`` to the mean of the rows of ``text[i:end]``; false if there are none."""
    table, kept, bucket = lookup.words, lookup.kept, lookup.bucket
    tokens, waiting, hidden, words = room.tokens, room.waiting, room.hidden, table.word_count
    size = _tokenise(text, i, end, table.data, table.offsets, table.slots, words, tokens)
    hidden[:] = 0
    added = filled = first = 0
    for token in range(size):
        if tokens.numbers[token] >= 0:
            waiting[filled] = tokens.numbers[token]
            filled += 1
        first = length = 0
        if lookup.maxn > 0 and tokens.begins[token] < tokens.ends[token]:
            length = _bracket(text, tokens.begins[token], tokens.ends[token], room.bracketed)
        while first < length or filled >= ENOUGH_ROWS:
            if filled >= ENOUGH_ROWS:
                added += _add_waiting(kept, inputs, words, waiting, filled, hidden)
                filled = 0
            first, filled = _hash_character_ngrams(
                room.bracketed, length, first, lookup.minn, lookup.maxn, bucket, words, waiting, filled
            )
    first = size if lookup.word_ngrams < 2 else 0
    while first < size:
        if filled >= ENOUGH_ROWS:
            added += _add_waiting(kept, inputs, words, waiting, filled, hidden)
            filled = 0
        first, filled = _hash_word_ngrams(
            tokens.hashes, size, first, lookup.word_ngrams, bucket, words, waiting, filled
        )
    added += _add_waiting(kept, inputs, words, waiting, filled, hidden)
    if added:
        hidden *= np.float32(1.0 / added)
    return added > 0


# From a word to its vector.


class NgramLookup(NamedTuple):
    """How the character n-grams of a word find their rows, which come behind those of the words."""

    kept: KeptTable
    words: int
    bucket: int
    minn: int
    maxn: int  # 0 where there are none


@kernel
def _average_words(
    lookup: NgramLookup,
    inputs: FastTextMatrix,
    data: Bytes,
    offsets: Ints,
    rows: Ints,
    room: Scratch,
    out: Floats,
) -> None:
    """The mean of each word's own row, if ``rows`` has one for it, and those of its character n-grams.

    NaN where a word has neither.
    """
    waiting, hidden = room.waiting, room.hidden
    for word in range(len(rows)):
        hidden[:] = 0
        added = filled = first = length = 0
        begin, end = offsets[word], offsets[word + 1]
        if rows[word] >= 0:
            waiting[0], filled = rows[word], 1
        if lookup.maxn > 0 and not _equal(data, begin, end, LINE_END, 0, len(LINE_END)):
            length = _bracket(data, begin, end, room.bracketed)
        while first < length:
            first, filled = _hash_character_ngrams(
                room.bracketed,
                length,
                first,
                lookup.minn,
                lookup.maxn,
                lookup.bucket,
                lookup.words,
                waiting,
                filled,
            )
            added += _add_waiting(lookup.kept, inputs, lookup.words, waiting, filled, hidden)
            filled = 0
        added += _add_waiting(lookup.kept, inputs, lookup.words, waiting, filled, hidden)
        out[word] = hidden * np.float32(1.0 / added) if added else hidden * np.float32(np.nan)


def vectors_of_words(
    lookup: NgramLookup, inputs: FastTextMatrix, words: Ragged, rows: Ints, dim: int
) -> Floats:
    """The vector that fastText gives each word; ``rows`` are those of the words themselves, -1 for none."""
    out, data = np.empty((len(words), dim), np.float32), read_only(words.data)

    def fill(start: int) -> None:
        part = slice(start, min(start + TEXTS_AT_ONCE, len(words)))
        offsets = words.offsets[part.start : part.stop + 1]
        room = _new_scratch(int(np.diff(offsets).max(initial=0)), dim)
        _average_words(lookup, inputs, data, read_only(offsets), rows[part], room, out[part])

    for _ in map_unordered(fill, range(0, len(words), TEXTS_AT_ONCE), cores()):
        pass
    return out


def fasttext_embedding(
    words: Ragged, counts: Ints, vectors: Floats, spell: Callable[[Ragged], Floats] | None
) -> Embedding:
    """Words as others look them up. Those that are not UTF-8 cannot be asked for, and are left out.

    What a word is made of depends on its capital letters, so where words can be spelled they are taken as
    they are written.
    """

    def spelled(some: Sequence[str]) -> tuple[Floats, Flags]:
        found = spell(from_strings(some)) if spell else np.empty((len(some), vectors.shape[1]), np.float32)
        known: Flags = np.asarray(~np.isnan(found).all(axis=1))
        found[~known] = 0
        return found, known

    sound = valid_utf8(words)
    if not sound.all():
        rows = np.flatnonzero(sound)
        words, counts, vectors = words.take(rows), counts[rows], vectors[rows]
    vocabulary = Vocabulary(words.arrow().cast(pa.large_string()), counts)
    return Embedding(vocabulary, vectors, spelled if spell else None, as_written=spell is not None)


# From the mean of a text's rows to a probability for each label, by the loss of the training.


# fastText looks sigmoids up in 512 steps, and its probabilities show the steps.
_POINTS = np.arange(513, dtype=np.float32) / SIGMOID_STEPS - SIGMOID_LIMIT
SIGMOIDS: Floats = read_only((1 / (1 + np.exp(-_POINTS).astype(np.float64))).astype(np.float32))


class OutputLayer(NamedTuple):
    """The output matrix, and how its products become probabilities."""

    outputs: FastTextMatrix
    columns: Floats  # the dense rows the other way round: (dim, labels)
    loss: int
    children: Int32s  # (labels - 1, 2), for hierarchical softmax


@kernel
def _build_huffman_tree(counts: Ints) -> Int32s:
    """The two children of each inner node; the leaves are numbered first, the root is last.

    Takes the rarest leaf or the first node not yet taken, whichever was counted less, and a node
    if both were counted alike. That is fastText's tree for counts below ``COUNT_LIMIT``.
    """
    leaves = len(counts)
    children = np.zeros((max(leaves - 1, 0), 2), np.int32)
    totals = np.full(max(leaves - 1, 0), COUNT_LIMIT)
    leaf, node = leaves - 1, 0
    for built in range(leaves - 1):
        total = 0
        for side in range(2):
            if leaf >= 0 and counts[leaf] < totals[min(node, leaves - 2)]:
                children[built, side] = leaf
                total += counts[leaf]
                leaf -= 1
            else:
                children[built, side] = leaves + node
                total += totals[node]
                node += 1
        totals[built] = total
    return children


@kernel
def _multiply(layer: OutputLayer, hidden: Floats, out: Floats) -> None:
    """Dense products are summed up for all labels side by side: each in fastText's order, yet fast."""
    if len(layer.outputs.codes):
        for label in range(len(out)):
            out[label] = _dot_quantised(layer.outputs, label, hidden)
        return
    out[:] = 0
    for j in range(np.uint64(len(hidden))):
        for label in range(np.uint64(len(out))):
            out[label] += layer.columns[j, label] * hidden[j]


@kernel
def _is_finite(out: Floats) -> bool:
    total = np.float32(0)
    for label in range(len(out)):
        total += out[label] * np.float32(0)
    return bool(total == 0)


@kernel
def _softmax(out: Floats) -> None:
    top = out[0]
    for label in range(len(out)):
        top = max(top, out[label])
    total = np.float32(0)
    for label in range(len(out)):
        out[label] = math.exp(out[label] - top)
        total += out[label]
    for label in range(len(out)):
        out[label] /= total


@kernel
def _sigmoid(out: Floats) -> None:
    for label in range(len(out)):
        value = out[label]
        if value > SIGMOID_LIMIT:
            out[label] = 1
        elif value >= -SIGMOID_LIMIT:
            out[label] = SIGMOIDS[np.int64((value + SIGMOID_LIMIT) * SIGMOID_STEPS)]
        else:
            out[label] = 0


@kernel
def _hierarchical_softmax(children: Int32s, parts: Floats, out: Floats) -> None:
    """Share a probability of one out from the root down; a child always has the lower number."""
    leaves = len(out)
    for node in range(leaves - 1):
        parts[node] = 1 / (1 + math.exp(-out[node]))
    shares = parts[leaves:]
    if leaves > 1:
        shares[leaves - 2] = 1
    else:
        out[0] = 1
    for node in range(leaves - 2, -1, -1):
        for side in range(2):
            part = parts[node] if side else 1 - parts[node]
            child = children[node, side]
            if child >= leaves:
                shares[child - leaves] = shares[node] * part
            else:
                out[child] = shares[node] * part


@kernel
def _score_texts(
    lookup: FeatureLookup,
    inputs: FastTextMatrix,
    layer: OutputLayer,
    data: Bytes,
    offsets: Ints,
    room: Scratch,
    out: Floats,
) -> None:
    """A row of probabilities for each text; of zeros if nothing in it is known.

    Of zeros, too, if the weights of a text are not numbers: fastText gives up on it.
    """
    labels = out.shape[1]
    parts = np.empty(2 * labels if layer.loss == HS else 0, np.float32)
    for row in range(len(offsets) - 1):
        scores = out[row]
        if not _average_rows(lookup, inputs, data, offsets[row], offsets[row + 1], room):
            scores[:] = 0
            continue
        _multiply(layer, room.hidden, scores)
        if not _is_finite(scores):
            scores[:] = 0
        elif layer.loss == SOFTMAX:
            _softmax(scores)
        elif layer.loss == HS:
            _hierarchical_softmax(layer.children, parts, scores)
        else:
            _sigmoid(scores)


class ImportedFastText:
    """Scores raw texts as fastText's ``predict`` does; ``arrays`` and ``facts`` are all of its state."""

    can: ClassVar[frozenset[str]] = frozenset({"classify", "embed"})
    multi_label = False
    reads_numbers = False

    def __init__(self, model: FastTextFile) -> None:
        check_model(model)
        self._model, args = model, model.args
        ngrams = not model.pruned or len(model.kept_rows) > 0
        self._lookup = FeatureLookup(
            _build_dictionary_table(model),
            _build_kept_table(model),
            args.word_ngrams if ngrams else 1,
            max(args.bucket, 1),
            args.minn,
            args.maxn if ngrams else 0,
        )
        counts = model.label_counts if args.loss == LOSSES[HS] else model.label_counts[:1]
        columns = read_only(np.ascontiguousarray(model.outputs.dense.T))
        children = read_only(_build_huffman_tree(read_only(counts)))
        self._layer = OutputLayer(model.outputs, columns, LOSSES.index(args.loss), children)

    @property
    def labels(self) -> list[str]:
        """The names of the labels, without fastText's prefix."""
        return list(self._model.labels)

    def read(self, normal: Ragged) -> Corpus:
        return corpus_once(normal)

    def score_texts(self, normal: Ragged) -> Floats:
        return self.scores_of(normal)

    def scores(self, corpus: Corpus, threads: int = 1) -> Floats:
        """The probability of each label for each row, its words joined by blanks."""
        out = np.empty((len(corpus), len(self._model.labels)), np.float32)

        def fill(start: int) -> None:
            rows = np.arange(start, min(start + TEXTS_AT_ONCE, len(corpus)))
            out[start : start + TEXTS_AT_ONCE] = self.scores_of(corpus.texts(rows))

        for _ in map_unordered(fill, range(0, len(corpus), TEXTS_AT_ONCE), threads):
            pass
        return out

    def scores_of(self, texts: Ragged) -> Floats:
        """The probability of each label for each text; a text in which nothing is known has zeros.

        Texts are taken as they are, but for line ends, which count as blanks.
        """
        out = np.empty((len(texts), len(self._model.labels)), np.float32)
        room = _new_scratch(int(texts.lengths().max(initial=0)), self._model.args.dim)
        _score_texts(self._lookup, self._model.inputs, self._layer, texts.data, texts.offsets, room, out)
        return out

    def embedding(self, vocabulary: Vocabulary | None) -> Embedding:
        """The words that it was trained with, and the vectors that fastText gives them."""
        model, lookup = self._model, self._lookup
        ngrams = NgramLookup(lookup.kept, model.word_count, lookup.bucket, lookup.minn, lookup.maxn)

        def vectors(words: Ragged, rows: Ints) -> Floats:
            return vectors_of_words(ngrams, model.inputs, words, rows, model.args.dim)

        own = model.entries.take(np.arange(model.word_count))
        spell = (lambda some: vectors(some, np.full(len(some), -1))) if lookup.maxn else None
        counts = np.zeros(len(own), np.int64)  # a classifier keeps those of its labels only
        return fasttext_embedding(own, counts, vectors(own, np.arange(len(own))), spell)

    def facts(self) -> dict[str, Any]:
        """What is not an array, fit for JSON."""
        model = self._model
        return {
            "args": model.args._asdict(),
            "labels": list(model.labels),
            "pruned": model.pruned,
            "dsub": [model.inputs.dsub, model.outputs.dsub],
        }

    def arrays(self) -> Arrays:
        """The arrays by the names that bundles know; the empty ones are left out."""
        model = self._model
        arrays: Arrays = {
            "letters": model.entries.data,
            "starts": model.entries.offsets,
            "label_counts": model.label_counts,
            "kept_buckets": model.kept_buckets,
            "kept_rows": model.kept_rows,
        }
        for side, matrix in zip(SIDES, (model.inputs, model.outputs), strict=True):
            for field in FastTextMatrix._fields[:-1]:
                arrays[f"{side}_{field}"] = getattr(matrix, field)
        return {name: array for name, array in arrays.items() if array.size}

    @classmethod
    def from_parts(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], where: str = "the stored model"
    ) -> "ImportedFastText":
        """The model that gave these ``facts`` and ``arrays``; both may come from anywhere."""
        stored = _StoredArrays(where, arrays)
        args, labels, pruned, dsub = _parse_facts(where, facts)
        return cls(
            FastTextFile(
                where=where,
                args=args,
                labels=labels,
                label_counts=stored.get("label_counts", np.int64),
                entries=Ragged(stored.get("letters", np.uint8), stored.get("starts", np.int64, least=2)),
                pruned=pruned,
                kept_buckets=stored.get("kept_buckets", np.int32),
                kept_rows=stored.get("kept_rows", np.int32),
                inputs=stored.matrix(SIDES[0], dsub[0]),
                outputs=stored.matrix(SIDES[1], dsub[1]),
            )
        )


class _StoredArrays:
    """Takes arrays out of a mapping that may hold anything."""

    def __init__(self, where: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._where = where
        self._arrays = arrays

    def get(self, name: str, kind: type[Item], dimensions: int = 1, least: int = 0) -> npt.NDArray[Item]:
        empty = np.empty((0,) * dimensions, kind)
        array = self._arrays.get(name, empty)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != dimensions:
            what = f"{name} should be {kind.__name__} numbers in {dimensions} dimensions"
            raise corrupt_file_error(self._where, what)
        if len(array) < least:
            raise corrupt_file_error(self._where, f"{name} is missing or too short")
        # Kernels are compiled for one kind of array: in order, in place, read only.
        return read_only(np.require(np.asarray(array), kind, ["C", "A"]))

    def matrix(self, side: str, dsub: int) -> FastTextMatrix:
        dense = self.get(f"{side}_dense", np.float32, 2)
        codes = self.get(f"{side}_codes", np.uint8, 2)
        if bool(len(dense)) == bool(len(codes)):
            raise corrupt_file_error(self._where, f"its {side} should be either dense or quantised")
        if len(dense):
            return FastTextMatrix(dense)
        return FastTextMatrix(
            codes=codes,
            centroids=self.get(f"{side}_centroids", np.float32),
            norm_codes=self.get(f"{side}_norm_codes", np.uint8),
            norms=self.get(f"{side}_norms", np.float32),
            dsub=dsub,
        )


def _parse_facts(where: str, facts: Mapping[str, Any]) -> tuple[FastTextArgs, list[str], bool, list[int]]:
    args, labels = facts.get("args"), facts.get("labels")
    pruned, dsub = facts.get("pruned"), facts.get("dsub")
    if not isinstance(args, dict) or set(args) != set(FastTextArgs._fields):
        raise corrupt_file_error(where, f"its args should be {', '.join(FastTextArgs._fields)}")
    for name, kind in FastTextArgs.__annotations__.items():
        if type(args[name]) is not kind:
            raise corrupt_file_error(where, f"its {name} should be of type {kind.__name__}")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise corrupt_file_error(where, "its labels should be a list of names")
    if not isinstance(pruned, bool):
        raise corrupt_file_error(where, "pruned should be true or false")
    if not isinstance(dsub, list) or len(dsub) != len(SIDES) or any(type(part) is not int for part in dsub):
        raise corrupt_file_error(where, "dsub should be two numbers")
    return FastTextArgs(**args), list(labels), pruned, dsub
