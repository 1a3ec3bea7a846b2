"""Writing a label and a probability behind every row of a block of bytes, without touching the rest."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manyhands.data.sources.source import Records, Wording
from manyhands.kernels.compile import Bytes, Ints, kernel, read_only
from manyhands.text.ragged import Ragged, from_strings

DIGITS = 6
NUMBER_BYTES = 2 + DIGITS  # 0.123456
ZERO, POINT = 0x30, 0x2E
NONE = -1  # the label of a row that has none


@dataclass(frozen=True)
class Inserter:
    """Puts the words of a format into its blocks.

    ``words`` are those of each label, of no label, and of the header, in this order.
    """

    words: Ragged
    close: Bytes

    @classmethod
    def of(cls, wording: Wording) -> "Inserter":
        close = read_only(np.frombuffer(wording.close, np.uint8))
        return cls(from_strings([*wording.labels, wording.none, wording.header]), close)

    def __call__(self, records: Records, labels: Ints, probabilities: npt.NDArray[np.float32]) -> Bytes:
        """The bytes of a piece with a label and its probability in each row; ``NONE`` for no label."""
        if records.raw is None or records.ends is None:
            raise AssertionError("the source was not asked for whole rows")
        none = len(self.words) - 2
        chosen = np.where(labels == NONE, none, labels)
        ends, numbers = records.ends, probabilities
        if records.header_end is not None:
            ends, chosen = np.append(records.header_end, ends), np.append(none + 1, chosen)
            numbers = np.append(np.float32(0), numbers)
        into = chosen[ends >= 0]
        more = self.words.lengths()[into].sum() + (into < none).sum() * (NUMBER_BYTES + len(self.close))
        out = np.empty(len(records.raw) + int(more), np.uint8)
        words = self.words.data, self.words.offsets, self.close
        _insert(read_only(records.raw), ends, chosen, numbers, *words, out)
        return out


@kernel
def _insert(
    data: Bytes,
    ends: Ints,
    chosen: Ints,
    probabilities: npt.NDArray[np.float32],
    words: Bytes,
    offsets: Ints,
    close: Bytes,
    out: Bytes,
) -> None:
    labels = len(offsets) - 3
    done, at = np.uint64(0), np.uint64(0)
    for row in range(len(ends)):
        if ends[row] < 0:
            continue
        end = np.uint64(ends[row])
        at = _copy(data, done, end, out, at)
        done = end
        word = chosen[row]
        at = _copy(words, np.uint64(offsets[word]), np.uint64(offsets[word + 1]), out, at)
        if word < labels:
            at = _put_number(probabilities[row], out, at)
            at = _copy(close, np.uint64(0), np.uint64(len(close)), out, at)
    _copy(data, done, np.uint64(len(data)), out, at)


@kernel
def _copy(data: Bytes, start: np.uint64, end: np.uint64, out: Bytes, at: np.uint64) -> np.uint64:
    length = end - start
    for i in range(length):
        out[at + i] = data[start + i]
    return at + length


@kernel
def _put_number(probability: np.float32, out: Bytes, at: np.uint64) -> np.uint64:
    """Six digits behind the point, rounded."""
    rest = np.uint64(np.float64(probability) * 1e6 + 0.5)
    for place in range(NUMBER_BYTES - 1, 1, -1):
        out[at + np.uint64(place)] = ZERO + rest % np.uint64(10)
        rest //= np.uint64(10)
    out[at] = ZERO + rest
    out[at + np.uint64(1)] = POINT
    return at + np.uint64(NUMBER_BYTES)
