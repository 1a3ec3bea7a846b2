"""The models that fastText itself saves, ``.bin`` and quantised ``.ftz``: reading and checking them.

All numbers are little-endian. A file holds, one after the other, a magic number and the version of the
format, the arguments of the training, the dictionary (words, then labels), the n-grams that a pruned
model has kept, the input matrix, and the output matrix. Models of word vectors have no labels.

Files may come from anyone. Every count is compared with the bytes that are left before memory is
allocated for it, so neither memory nor time exceeds a small multiple of the file's size. Once
``check_model`` has passed a model, no kernel can reach outside an array. Its input matrix may hold
anything, even NaN: fastText 0.9.3 initialises a tenth of it per thread and leaves tenths without a
thread as the memory was, which is what words that training never met then keep.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernels.compile import Bytes, Ints, Item, kernel, read_only
from manyhands.kernels.simd import Floats
from manyhands.text.ragged import Ragged

MAGIC = 793712314
VERSIONS = (11, 12)
MAGIC_LAYOUT, ARGS_LAYOUT, COUNTS_LAYOUT = "2i", "12id", "3i2q"
SUPERVISED = 3
WORD_VECTORS = (1, 2)  # cbow and skipgram
LOSSES = ("hs", "ns", "softmax", "ova")  # in the order of fastText's numbers, which begin at 1
LABEL_PREFIX = "__label__"
CENTROIDS = 256  # as many as a code, which is a byte, tells apart
ENTRY_TAIL_BYTES = 9  # how often an entry was counted, and whether it is a label
LEAST_ENTRY_BYTES = 1 + ENTRY_TAIL_BYTES
FIRST_READ_BYTES = 1 << 20

MOST_DIM = 1 << 16
LONGEST_NGRAM = 100
MOST_BUCKETS = MOST_ENTRIES = (1 << 31) - 1
COUNT_LIMIT = 10**15  # with it fastText marks nodes of its tree that are not built yet
LARGEST_WEIGHT = 1e8  # beyond, even the products of sound texts might not be finite

Int32s = npt.NDArray[np.int32]
NO_FLOATS, NO_BYTES = read_only(np.empty(0, np.float32)), read_only(np.empty(0, np.uint8))


class FastTextArgs(NamedTuple):
    """The arguments of the training that prediction depends on, by fastText's names."""

    dim: int
    word_ngrams: int
    loss: str
    bucket: int
    minn: int
    maxn: int

    @property
    def uses_ngrams(self) -> bool:
        return self.word_ngrams > 1 or self.maxn > 0


class FastTextMatrix(NamedTuple):
    """A matrix, dense or quantised; the arrays of the other kind are empty.

    A code stands for ``dsub`` neighbouring numbers, the last one of a row for what is left. The
    centroids of the first code come first, 256 of them, then those of the second.
    """

    dense: Floats = NO_FLOATS.reshape(0, 0)  # (rows, dim)
    codes: Bytes = NO_BYTES.reshape(0, 0)  # (rows, codes in a row)
    centroids: Floats = NO_FLOATS  # (256 * dim,)
    norm_codes: Bytes = NO_BYTES  # (rows,), or empty if norms were not quantised apart
    norms: Floats = NO_FLOATS  # (256,), or empty
    dsub: int = 1

    @property
    def height(self) -> int:
        return len(self.dense) or len(self.codes)

    @property
    def quantised(self) -> bool:
        return len(self.codes) > 0


@dataclass(frozen=True)
class FastTextFile:
    """All that a fastText file says about classifying; its arrays are read-only."""

    where: str
    args: FastTextArgs
    labels: list[str]
    label_counts: Ints
    entries: Ragged  # the words, then the labels with their prefix
    pruned: bool
    kept_buckets: Int32s
    kept_rows: Int32s
    inputs: FastTextMatrix
    outputs: FastTextMatrix

    @property
    def word_count(self) -> int:
        return len(self.entries) - len(self.labels)


@dataclass(frozen=True)
class FastTextVectors:
    """All that a fastText file says about the vectors of words.

    The first rows of ``inputs`` are those of the words, the others those of character n-grams.
    """

    where: str
    args: FastTextArgs
    words: Ragged
    counts: Ints
    inputs: Floats


def corrupt_file_error(where: str, what: str) -> InputError:
    """The error for a model that cannot be used.

    >>> print(corrupt_file_error("a.bin", "it has no labels"))
    a.bin is not a usable fastText model: it has no labels; fetch or save it again
    """
    return InputError(f"{where} is not a usable fastText model: {what}; fetch or save it again")


def read_fasttext(path: str | os.PathLike[str]) -> FastTextFile:
    """Read a supervised model that fastText saved; anything else is an ``InputError``."""
    with _reading(path) as reader:
        model = _read_model(reader)
    check_model(model)
    return model


def read_fasttext_vectors(path: str | os.PathLike[str]) -> FastTextVectors:
    """Read the word vectors, of cbow or skipgram, that fastText saved; anything else is an ``InputError``."""
    with _reading(path) as reader:
        model = _read_vectors(reader)
    for fault in vectors_faults(model):
        raise corrupt_file_error(model.where, fault)
    return model


def holds_word_vectors(path: str | os.PathLike[str]) -> bool:
    """Whether a file of fastText's was trained without labels."""
    with _reading(path) as reader:
        return _read_args(reader)[1] in WORD_VECTORS


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator["_Reader"]:
    name = os.fspath(path)
    # Opening a pipe would wait for its other end.
    if not Path(name).is_file():
        raise InputError(f"{name} is not a file; give the path of a model that fastText saved")
    try:
        with Path(name).open("rb") as file:
            yield _Reader(name, file)
    except OSError as error:
        raise InputError(
            f"{name} cannot be read: {error.strerror}; check the file and its permissions"
        ) from error


class _Reader:
    """Reads forward, and never more than there is."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._file = file
        self.left = os.fstat(file.fileno()).st_size

    def error(self, what: str) -> InputError:
        return corrupt_file_error(self.name, what)

    def need(self, size: int, what: str) -> None:
        if not 0 <= size <= self.left:
            raise self.error(f"the file ends before {what} does")

    def numbers(self, layout: str, what: str) -> tuple[int, ...]:
        size = struct.calcsize("<" + layout)
        return struct.unpack("<" + layout, self.array(np.uint8, size, what).tobytes())

    def flag(self, what: str) -> bool:
        (value,) = self.numbers("B", what)
        if value > 1:
            raise self.error(f"the flag for {what} is {value}, neither 0 nor 1")
        return value == 1

    def array(self, kind: type[Item], count: int, what: str) -> npt.NDArray[Item]:
        """The next ``count`` numbers, read-only."""
        stored = np.dtype(kind).newbyteorder("<")
        self.need(count * stored.itemsize if count >= 0 else -1, what)
        values = np.empty(count, stored)
        got = self._file.readinto(values.view(np.uint8).data)  # type: ignore[attr-defined]
        if got != values.nbytes:
            raise self.error(f"the file became shorter while {what} was read")
        self.left -= values.nbytes
        return read_only(values.astype(kind, copy=False))

    def peek(self, size: int) -> Bytes:
        """The next bytes, to be looked at; ``skip`` those that were used."""
        at = self._file.tell()
        head = np.frombuffer(self._file.read(min(size, self.left)), np.uint8)
        self._file.seek(at)
        return head

    def skip(self, size: int) -> None:
        self._file.seek(size, os.SEEK_CUR)
        self.left -= size


def _read_model(reader: _Reader) -> FastTextFile:
    args, kind = _read_args(reader)
    if kind in WORD_VECTORS:
        raise InputError(
            f"{reader.name} holds word vectors (cbow or skipgram), which classify nothing; "
            "give a model of fastText's supervised training"
        )
    size, words, labels, _, kept = reader.numbers(COUNTS_LAYOUT, "the count of its words")
    if words < 0 or labels < 1 or size != words + labels:
        raise reader.error(f"{size} words and labels cannot be {words} words and {labels} labels")
    entries, counts = _read_dictionary(reader, size, words)
    pairs = reader.array(np.int32, 2 * max(kept, 0), "its list of kept n-grams").reshape(-1, 2)
    quantised = reader.flag("a quantised input")
    inputs = _read_matrix(reader, "its input matrix", args.dim, quantised)
    quantised_output = reader.flag("a quantised output")
    outputs = _read_matrix(reader, "its output matrix", args.dim, quantised and quantised_output)
    if reader.left:
        raise reader.error(f"{reader.left} bytes follow the end of the model")
    try:
        names = Ragged(entries.data, entries.offsets[words:]).strings()
    except UnicodeDecodeError:
        raise reader.error("the name of a label is not UTF-8") from None
    return FastTextFile(
        where=reader.name,
        args=args,
        labels=[name.removeprefix(LABEL_PREFIX) for name in names],
        label_counts=read_only(counts[words:]),
        entries=entries,
        pruned=kept >= 0,
        kept_buckets=read_only(pairs[:, 0].copy()),
        kept_rows=read_only(pairs[:, 1].copy()),
        inputs=inputs,
        outputs=outputs,
    )


def _read_vectors(reader: _Reader) -> FastTextVectors:
    args, kind = _read_args(reader)
    if kind not in WORD_VECTORS:
        raise InputError(f"{reader.name} holds a classifier, and no model of cbow or skipgram")
    size, words, labels, _, kept = reader.numbers(COUNTS_LAYOUT, "the count of its words")
    if words < 1 or labels or size != words or kept > 0:
        raise reader.error(f"{size} words cannot be {words} words and {labels} labels")
    entries, counts = _read_dictionary(reader, size, words)
    if reader.flag("a quantised input"):
        raise reader.error("its word vectors are quantised, which fastText does to classifiers only")
    inputs = _read_matrix(reader, "its input matrix", args.dim, quantised=False)
    reader.flag("a quantised output")
    height, width = reader.numbers("2q", "its output matrix")
    rest = height * width * 4  # what words are as neighbours, which no vector of theirs depends on
    if min(height, width) < 0 or rest != reader.left:
        raise reader.error("its output matrix is not where the file ends")
    return FastTextVectors(reader.name, args, entries, read_only(counts), inputs.dense)


def vectors_faults(model: FastTextVectors) -> Iterator[str]:
    """What is wrong with word vectors; the first fault counts."""
    yield from _args_faults(model.args)
    offsets = model.words.offsets
    if offsets[0] != 0 or offsets[-1] != len(model.words.data) or (offsets[1:] < offsets[:-1]).any():
        yield "its words do not follow one after the other"
    if len(model.counts) != len(model.words) or (model.counts < 0).any():
        yield "the counts of its words are out of bounds"
    if model.inputs.ndim != 2 or model.inputs.shape[1] != model.args.dim:
        yield f"its vectors do not have {model.args.dim} numbers"
    needed = len(model.words) + (model.args.bucket if model.args.maxn else 0)
    if len(model.inputs) < needed:
        yield f"its input has {len(model.inputs)} rows where it needs {needed}"


def _read_args(reader: _Reader) -> tuple[FastTextArgs, int]:
    """The arguments of the training, and of which kind it was."""
    if reader.left < struct.calcsize(MAGIC_LAYOUT) or (found := reader.numbers(MAGIC_LAYOUT, ""))[0] != MAGIC:
        raise InputError(f"{reader.name} is not a model of fastText; give a .bin or .ftz file that it saved")
    version = found[1]
    if version not in VERSIONS:
        raise InputError(
            f"{reader.name} has version {version} of fastText's format, and only 11 and 12 can be read; "
            "save it again with fastText 0.9"
        )
    values = reader.numbers(ARGS_LAYOUT, "its settings")
    dim, _, _, _, _, ngrams, loss, model, bucket, minn, maxn, _, _ = values
    if model not in (SUPERVISED, *WORD_VECTORS) or not 1 <= loss <= len(LOSSES):
        raise reader.error(f"its settings name model {model} and loss {loss}, which do not exist")
    if version == VERSIONS[0] and model == SUPERVISED:
        maxn = 0  # fastText, too, takes no character n-grams from files so old
    args = FastTextArgs(dim, ngrams, LOSSES[loss - 1], bucket, minn, maxn)
    for fault in _args_faults(args):
        raise reader.error(fault)
    return args, model


def _read_dictionary(reader: _Reader, size: int, words: int) -> tuple[Ragged, Ints]:
    """The entries, and how often each was counted."""
    reader.need(size * LEAST_ENTRY_BYTES, "the list of its words")
    offsets, counts = np.zeros(size + 1, np.int64), np.empty(size, np.int64)
    kinds = np.empty(size, np.uint8)
    ahead = max(FIRST_READ_BYTES, 2 * size * LEAST_ENTRY_BYTES)
    while True:
        # Where the list ends is only known at its end: look twice as far until it is in sight.
        head = read_only(reader.peek(ahead))
        data = np.empty(len(head), np.uint8)
        used = _split_entries(head, data, offsets, counts, kinds)
        if used:
            break
        if len(head) >= reader.left:
            raise reader.error("the file ends before the list of its words does")
        ahead *= 2
    reader.skip(used)
    if kinds[:words].any() or (kinds[words:] != 1).any():
        raise reader.error("its labels do not follow its words")
    return Ragged(data[: offsets[-1]].copy(), offsets), counts


@kernel
def _split_entries(head: Bytes, data: Bytes, offsets: Ints, counts: Ints, kinds: Bytes) -> int:
    """An entry is its bytes, a zero, eight bytes of count, one of kind. Returns the bytes that all take."""
    i, at = 0, 0
    for entry in range(len(counts)):
        while i < len(head) and head[i]:
            data[at] = head[i]
            i, at = i + 1, at + 1
        if i + 1 + ENTRY_TAIL_BYTES > len(head):
            return 0
        count = np.uint64(0)
        for byte in range(8):
            count |= np.uint64(head[i + 1 + byte]) << np.uint64(8 * byte)
        counts[entry], kinds[entry] = np.int64(count), head[i + ENTRY_TAIL_BYTES]
        i += 1 + ENTRY_TAIL_BYTES
        offsets[entry + 1] = at
    return i


def _read_matrix(reader: _Reader, what: str, dim: int, quantised: bool) -> FastTextMatrix:
    if quantised:
        return _read_quantised(reader, what, dim)
    height, width = reader.numbers("2q", what)
    if height < 1 or width != dim:
        raise reader.error(f"{what} has {height} rows of {width} numbers where rows of {dim} should be")
    return FastTextMatrix(reader.array(np.float32, height * width, what).reshape(height, width))


def _read_quantised(reader: _Reader, what: str, dim: int) -> FastTextMatrix:
    has_norms = reader.flag("norms quantised apart")
    height, width, size = reader.numbers("2qi", what)
    if height < 1 or width != dim or size < height or size % height:
        raise reader.error(f"{what} has {height} rows of {width} numbers in {size} codes")
    codes = reader.array(np.uint8, size, what).reshape(height, -1)
    centroids, dsub = _read_centroids(reader, what, dim, codes.shape[1])
    matrix = FastTextMatrix(codes=codes, centroids=centroids, dsub=dsub)
    if has_norms:
        norm_codes = reader.array(np.uint8, height, what)
        matrix = matrix._replace(norm_codes=norm_codes, norms=_read_centroids(reader, what, 1, 1)[0])
    return matrix


def _read_centroids(reader: _Reader, what: str, dim: int, codes: int) -> tuple[Floats, int]:
    """What the codes stand for, and how many numbers each of them does."""
    width, subquantisers, dsub, last = reader.numbers("4i", what)
    if width != dim or subquantisers != codes or not 1 <= dsub <= dim or last != dim - (codes - 1) * dsub:
        raise reader.error(f"the codes of {what} do not add up to {dim} numbers")
    return reader.array(np.float32, CENTROIDS * dim, what), dsub


def check_model(model: FastTextFile) -> None:
    """Raise an ``InputError`` that says what is wrong with a model, if anything is."""
    for fault in _faults(model):
        raise corrupt_file_error(model.where, fault)


def _faults(model: FastTextFile) -> Iterator[str]:
    """What is wrong; whatever comes after a fault relies on there being none, so the first one counts."""
    yield from _args_faults(model.args)
    yield from _dictionary_faults(model)
    yield from _pruning_faults(model)
    yield from _matrix_faults("input", model.inputs, model.args.dim)
    yield from _matrix_faults("output", model.outputs, model.args.dim)
    buckets = model.args.bucket if model.args.uses_ngrams and not model.pruned else 0
    needed = max(model.word_count + buckets, 1)
    if model.inputs.height < needed:
        yield f"its input has {model.inputs.height} rows where it needs {needed}"
    if model.outputs.height != len(model.labels):
        yield f"its output has {model.outputs.height} rows for {len(model.labels)} labels"
    weights = (model.outputs.dense, model.outputs.centroids, model.outputs.norms)
    if max(_largest_magnitude(values.reshape(-1)) for values in weights) > LARGEST_WEIGHT:
        yield "its output has weights that are not finite, or far too large"


def _args_faults(args: FastTextArgs) -> Iterator[str]:
    bounds = {
        "dim": (1, MOST_DIM),
        "word_ngrams": (0, LONGEST_NGRAM),
        "bucket": (0, MOST_BUCKETS),
        "minn": (0, LONGEST_NGRAM),
        "maxn": (0, LONGEST_NGRAM),
    }
    for name, (low, high) in bounds.items():
        value = getattr(args, name)
        if not low <= value <= high:
            yield f"its {name} is {value}, not from {low} to {high}"
    if args.loss not in LOSSES:
        yield f"its loss is {args.loss}, not one of {', '.join(LOSSES)}"
    if 0 < args.maxn < args.minn:
        yield f"its minn is {args.minn}, above its maxn of {args.maxn}"
    if args.uses_ngrams and not args.bucket:
        yield "it uses n-grams but has no buckets for them"


def _dictionary_faults(model: FastTextFile) -> Iterator[str]:
    labels, counts, offsets = model.labels, model.label_counts, model.entries.offsets
    if not labels or len(set(labels)) != len(labels):
        yield "two of its labels are the same" if labels else "it has no labels"
    if len(counts) != len(labels):
        yield f"it has {len(labels)} labels but counts of {len(counts)}"
    # The sum of huge counts might wrap round, so each is looked at first.
    if counts.min() < 0 or counts.max() >= COUNT_LIMIT:
        yield "a label's count is out of bounds"
    if counts.astype(np.float64).sum() >= COUNT_LIMIT:
        yield "the counts of its labels are out of bounds"
    if not len(labels) < len(offsets) <= MOST_ENTRIES:
        yield "it has fewer words and labels than it should, or too many"
    if offsets[0] != 0 or offsets[-1] != len(model.entries.data) or (offsets[1:] < offsets[:-1]).any():
        yield "its words do not follow one after the other"


def _pruning_faults(model: FastTextFile) -> Iterator[str]:
    buckets, rows = model.kept_buckets, model.kept_rows
    if len(buckets) != len(rows) or (len(rows) and not model.pruned):
        yield "its list of kept n-grams is incomplete"
    if len(buckets) and (buckets.min() < 0 or buckets.max() >= model.args.bucket):
        yield "it keeps n-grams of buckets that it does not have"
    if len(rows) and (rows.min() < 0 or rows.max() >= model.inputs.height - model.word_count):
        yield "it keeps n-grams in rows that it does not have"
    if model.pruned and not model.inputs.quantised:
        yield "it is pruned but not quantised, which only early versions of fastText wrote"


def _matrix_faults(name: str, matrix: FastTextMatrix, dim: int) -> Iterator[str]:
    if not matrix.quantised:
        if matrix.dense.shape[1] != dim:
            yield f"its {name} has {matrix.dense.shape[1]} columns where it needs {dim}"
        return
    if not 1 <= matrix.dsub <= dim:
        yield f"the codes of its {name} stand for {matrix.dsub} numbers each, not for 1 to {dim}"
    codes = -(-dim // matrix.dsub)
    if matrix.codes.shape[1] != codes or len(matrix.centroids) != CENTROIDS * dim:
        yield f"the codes of its {name} do not fit {dim} columns"
    norms = len(matrix.norms)
    if norms not in (0, CENTROIDS) or len(matrix.norm_codes) != (matrix.height if norms else 0):
        yield f"the norms of its {name} are incomplete"


@kernel
def _largest_magnitude(values: Floats) -> float:
    """Infinity if one of the numbers is not finite."""
    most = np.float32(0)
    for i in range(len(values)):
        size = abs(values[i])
        if not size <= most:
            if not np.isfinite(size):
                return np.inf
            most = size
    return float(most)
