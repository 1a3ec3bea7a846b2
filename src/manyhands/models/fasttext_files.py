"""Reading the models that fastText itself writes: ``.bin``, and quantised ``.ftz``.

The layout, all numbers with their little end first: two numbers that tell the format, the settings,
the words and labels, the kept n-grams of a pruned model, the input matrix, the output matrix. Every
count is held against the bytes that are left before anything is made for it, so neither memory nor
time can exceed a small multiple of the file.
"""

import os
import struct
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernel import Bytes, Item, frozen, kernel
from manyhands.models.fasttext_parts import (
    LABEL_PREFIX,
    FastTextArgs,
    FastTextFile,
    broken,
    check_args,
    checked,
)
from manyhands.models.fasttext_rows import CENTROIDS, NO_BYTES, NO_FLOATS, Rows, dense_rows, quantised_rows
from manyhands.models.fasttext_scores import LOSSES

MAGIC = 793712314
VERSIONS = (11, 12)
SUPERVISED = 3
WORD_VECTORS = (1, 2)  # cbow and skipgram
ARGS = "12id"
COUNTS = "3i2q"
ENTRY_TAIL_BYTES = 9  # how often a word was counted, and whether it is a label
LEAST_ENTRY_BYTES = 1 + ENTRY_TAIL_BYTES
FIRST_READ_BYTES = 1 << 20


def read_fasttext(path: str | os.PathLike[str]) -> FastTextFile:
    """Read a supervised model that fastText wrote; anything else is an ``InputError``."""
    name = os.fspath(path)
    # Opening a pipe would wait for its other end.
    if not Path(name).is_file():
        raise InputError(f"{name} is not a file; give the path of a model that fastText saved")
    try:
        with Path(name).open("rb") as file:
            return checked(_read(_Reader(name, file)))
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}; check the file and its rights") from error


class _Reader:
    """Reads forward, and never more than there is."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._file = file
        self.left = os.fstat(file.fileno()).st_size

    def fault(self, what: str) -> InputError:
        return broken(self.name, what)

    def need(self, size: int, what: str) -> None:
        if not 0 <= size <= self.left:
            raise self.fault(f"the file ends before {what} does")

    def numbers(self, layout: str, what: str) -> tuple[int, ...]:
        size = struct.calcsize("<" + layout)
        return struct.unpack("<" + layout, self.array(np.uint8, size, what).tobytes())

    def flag(self, what: str) -> bool:
        (value,) = self.numbers("B", what)
        if value > 1:
            raise self.fault(f"{value} stands where it should say yes or no to {what}")
        return value == 1

    def array(self, kind: type[Item], count: int, what: str) -> npt.NDArray[Item]:
        wide = np.dtype(kind).newbyteorder("<")
        self.need(count * wide.itemsize if count >= 0 else -1, what)
        values = np.empty(count, wide)
        got = self._file.readinto(values.view(np.uint8).data)  # type: ignore[attr-defined]
        if got != values.nbytes:
            raise self.fault(f"{what} became shorter while it was read")
        self.left -= values.nbytes
        return values.astype(kind, copy=False)

    def ahead(self, size: int) -> Bytes:
        """The next bytes, to be looked at; ``skip`` those that were used."""
        at = self._file.tell()
        head = np.frombuffer(self._file.read(min(size, self.left)), np.uint8)
        self._file.seek(at)
        return head

    def skip(self, size: int) -> None:
        self._file.seek(size, os.SEEK_CUR)
        self.left -= size


def _read(reader: _Reader) -> FastTextFile:
    args = _read_args(reader)
    size, words, labels, _, kept = reader.numbers(COUNTS, "the count of its words")
    if words < 0 or labels < 1 or size != words + labels:
        raise reader.fault(f"{size} words and labels cannot be {words} words and {labels} labels")
    letters, starts, counts = _read_words(reader, size, words)
    pairs = reader.array(np.int32, 2 * max(kept, 0), "its list of kept n-grams").reshape(-1, 2)
    quantised = reader.flag("a quantised input")
    inputs = _read_rows(reader, "input", args.dim, quantised)
    quantised_output = reader.flag("a quantised output")
    outputs = _read_rows(reader, "output", args.dim, quantised and quantised_output)
    if reader.left:
        raise reader.fault(f"{reader.left} bytes follow where the model has ended")
    return FastTextFile(
        where=reader.name,
        args=args,
        labels=_label_names(reader, letters[starts[words] :], starts[words:] - starts[words]),
        label_counts=frozen(counts[words:]),
        letters=frozen(letters),
        starts=frozen(starts),
        pruned=kept >= 0,
        kept_buckets=frozen(pairs[:, 0].copy()),
        kept_rows=frozen(pairs[:, 1].copy()),
        inputs=inputs,
        outputs=outputs,
    )


def _read_args(reader: _Reader) -> FastTextArgs:
    if reader.left < struct.calcsize("<2i") or (told := reader.numbers("2i", ""))[0] != MAGIC:
        raise InputError(f"{reader.name} is not a model of fastText; give a .bin or .ftz file that it saved")
    if told[1] not in VERSIONS:
        raise InputError(
            f"{reader.name} has version {told[1]} of fastText's format, and only 11 and 12 can be read; "
            "save it again with fastText 0.9"
        )
    values = reader.numbers(ARGS, "its settings")
    dim, _, _, _, _, ngrams, loss, model, bucket, minn, maxn, _, _ = values
    if model in WORD_VECTORS:
        raise InputError(
            f"{reader.name} holds word vectors (cbow or skipgram), which classify nothing; "
            "give a model of fastText's supervised training"
        )
    if model != SUPERVISED or not 1 <= loss <= len(LOSSES):
        raise reader.fault(f"its settings name model {model} and loss {loss}, which do not exist")
    if told[1] == VERSIONS[0]:
        maxn = 0  # fastText, too, takes no character n-grams from files so old
    args = FastTextArgs(dim, ngrams, LOSSES[loss - 1], bucket, minn, maxn)
    if what := check_args(args):
        raise reader.fault(what)
    return args


def _read_words(
    reader: _Reader, size: int, words: int
) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The letters of all entries, where each begins, and how often each was counted."""
    reader.need(size * LEAST_ENTRY_BYTES, "the list of its words")
    starts, counts = np.zeros(size + 1, np.int64), np.empty(size, np.int64)
    labelled = np.empty(size, np.uint8)
    ahead = max(FIRST_READ_BYTES, 2 * size * LEAST_ENTRY_BYTES)
    while True:
        # Where the list ends is only known at its end: look twice as far until it is in sight.
        head = frozen(reader.ahead(ahead))
        letters = np.empty(len(head), np.uint8)
        used = _cut_entries(head, letters, starts, counts, labelled)
        if used:
            break
        if len(head) >= reader.left:
            raise reader.fault("the file ends before the list of its words does")
        ahead *= 2
    reader.skip(used)
    if labelled[:words].any() or (labelled[words:] != 1).any():
        raise reader.fault("its labels do not follow its words")
    return letters[: starts[-1]].copy(), starts, counts


@kernel
def _cut_entries(
    head: Bytes,
    letters: Bytes,
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    labelled: Bytes,
) -> int:
    """Entries are letters, a zero, eight bytes of count, one of kind. Returns the bytes that all take."""
    i, at = 0, 0
    for entry in range(len(counts)):
        while i < len(head) and head[i]:
            letters[at] = head[i]
            i, at = i + 1, at + 1
        if i + 1 + ENTRY_TAIL_BYTES > len(head):
            return 0
        count = np.uint64(0)
        for byte in range(8):
            count |= np.uint64(head[i + 1 + byte]) << np.uint64(8 * byte)
        counts[entry], labelled[entry] = np.int64(count), head[i + ENTRY_TAIL_BYTES]
        i += 1 + ENTRY_TAIL_BYTES
        starts[entry + 1] = at
    return i


def _label_names(reader: _Reader, letters: Bytes, starts: npt.NDArray[np.int64]) -> list[str]:
    text, ends = letters.tobytes(), starts.tolist()
    try:
        names = [text[start:end].decode() for start, end in pairwise(ends)]
    except UnicodeDecodeError:
        raise reader.fault("the name of a label is not UTF-8") from None
    return [name.removeprefix(LABEL_PREFIX) for name in names]


def _read_rows(reader: _Reader, name: str, dim: int, quantised: bool) -> Rows:
    what = f"its {name} matrix"
    if quantised:
        return _read_codes(reader, what, dim)
    height, width = reader.numbers("2q", what)
    if height < 1 or width != dim:
        raise reader.fault(f"{what} has {height} rows of {width} numbers where rows of {dim} should be")
    return dense_rows(reader.array(np.float32, height * width, what).reshape(height, width))


def _read_codes(reader: _Reader, what: str, dim: int) -> Rows:
    apart = reader.flag("norms quantised apart")
    height, width, size = reader.numbers("2qi", what)
    if height < 1 or width != dim or size < height or size % height:
        raise reader.fault(f"{what} has {height} rows of {width} numbers in {size} codes")
    codes = reader.array(np.uint8, size, what).reshape(height, -1)
    centroids, dsub = _read_centroids(reader, what, dim, codes.shape[1])
    norm_codes, norms = NO_BYTES, NO_FLOATS
    if apart:
        norm_codes = reader.array(np.uint8, height, what)
        norms, _ = _read_centroids(reader, what, 1, 1)
    return quantised_rows(codes, centroids, norm_codes, norms, dsub)


def _read_centroids(reader: _Reader, what: str, dim: int, codes: int) -> tuple[npt.NDArray[np.float32], int]:
    """What the codes stand for, and how many numbers each of them does."""
    width, parts, dsub, last = reader.numbers("4i", what)
    if width != dim or parts != codes or not 1 <= dsub <= dim or last != dim - (parts - 1) * dsub:
        raise reader.fault(f"the codes of {what} do not add up to {dim} numbers")
    return reader.array(np.float32, CENTROIDS * dim, what), dsub
