"""Stable hashes of rows of bytes: the same on every machine, in every process, for ever.

They decide which texts are equal, where a row stands and to which split it belongs, so
changing one changes every dataset. The digest is MurmurHash3 (x64, 128 bits, seed 0).
"""

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Hashes, kernel
from manyhands.text.ragged import Ragged

C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)
FIVE = np.uint64(5)
ADD1 = np.uint64(0x52DCE729)
ADD2 = np.uint64(0x38495AB5)
FINAL1 = np.uint64(0xFF51AFD7ED558CCD)
FINAL2 = np.uint64(0xC4CEB9FE1A85EC53)
B1, B2, B3, B4, B5, B6, B7 = (np.uint64(n) for n in range(1, 8))
R8, R16, R24, R32, R40, R48, R56 = (np.uint64(8 * n) for n in range(1, 8))
R11, R27, R31, R33, R37 = (np.uint64(n) for n in (11, 27, 31, 33, 37))


@kernel
def mix(value: np.uint64) -> np.uint64:
    """A bijection of 64 bits in which every bit of the input moves every bit of the output."""
    value = (value ^ (value >> R33)) * FINAL1
    value = (value ^ (value >> R33)) * FINAL2
    return value ^ (value >> R33)


@kernel
def eight(data: Bytes, i: int | np.uint64) -> np.uint64:
    """Eight bytes as one number, little end first.

    Written out, and with unsigned indices (signed ones might count from the end), LLVM
    makes a single load of it.
    """
    at = np.uint64(i)
    value = np.uint64(data[at]) | np.uint64(data[at + B1]) << R8
    value |= np.uint64(data[at + B2]) << R16 | np.uint64(data[at + B3]) << R24
    value |= np.uint64(data[at + B4]) << R32 | np.uint64(data[at + B5]) << R40
    return value | np.uint64(data[at + B6]) << R48 | np.uint64(data[at + B7]) << R56


@kernel
def few(data: Bytes, start: int, end: int) -> np.uint64:
    """What is left at the end: fewer than eight bytes, or none."""
    value = np.uint64(0)
    for i in range(end - 1, start - 1, -1):
        value = value << R8 | np.uint64(data[i])
    return value


@kernel
def _scramble_one(word: np.uint64) -> np.uint64:
    word *= C1
    return (word << R31 | word >> R33) * C2


@kernel
def _scramble_two(word: np.uint64) -> np.uint64:
    word *= C2
    return (word << R33 | word >> R31) * C1


@kernel
def digest(data: Bytes, start: int, end: int) -> tuple[np.uint64, np.uint64]:
    """128 bits of ``data[start:end]``, in two halves."""
    one = two = np.uint64(0)
    i = start
    while i + 16 <= end:
        one ^= _scramble_one(eight(data, i))
        one = ((one << R27 | one >> R37) + two) * FIVE + ADD1
        two ^= _scramble_two(eight(data, i + 8))
        two = ((two << R31 | two >> R33) + one) * FIVE + ADD2
        i += 16
    two ^= _scramble_two(few(data, i + 8, end))
    one ^= _scramble_one(few(data, i, min(end, i + 8)))
    length = np.uint64(end - start)
    one ^= length
    two ^= length
    one += two
    two += one
    one, two = mix(one), mix(two)
    one += two
    return one, two + one


@kernel
def _digests(data: Bytes, offsets: npt.NDArray[np.int64], high: Hashes, low: Hashes) -> None:
    for row in range(len(offsets) - 1):
        high[row], low[row] = digest(data, offsets[row], offsets[row + 1])


def digests(rows: Ragged) -> tuple[Hashes, Hashes]:
    """128 bits for each row, in two halves."""
    high, low = np.empty(len(rows), np.uint64), np.empty(len(rows), np.uint64)
    _digests(rows.data, rows.offsets, high, low)
    return high, low


def fractions(hashes: Hashes, seed: int) -> npt.NDArray[np.float64]:
    """A number from 0 up to 1 for each hash and seed: evenly spread, the same everywhere."""
    mixed = mix_array(hashes, np.uint64(seed))
    return (mixed >> R11).astype(np.float64) / float(1 << 53)


@kernel
def mix_array(hashes: Hashes, seed: np.uint64) -> Hashes:
    out = np.empty_like(hashes)
    salt = mix(seed + C1)
    for i in range(len(hashes)):
        out[i] = mix(hashes[i] ^ salt)
    return out
