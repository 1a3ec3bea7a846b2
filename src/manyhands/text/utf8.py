"""UTF-8: checks of raw bytes before they are taken for text, and single characters."""

import numpy as np

from manyhands.kernels.compile import Bytes, Flags, Ints, kernel
from manyhands.text.hashing import eight
from manyhands.text.ragged import Ragged

TOPS = np.uint64(0x8080808080808080)


def valid_utf8(rows: Ragged) -> Flags:
    """For each row, whether it is well-formed UTF-8.

    >>> from manyhands.text.ragged import from_strings
    >>> valid_utf8(from_strings(["né", b"n\\xe9", b"\\xed\\xa0\\x80", b"\\xf0\\x9f"])).tolist()
    [True, False, False, False]
    """
    out = np.empty(len(rows), np.bool_)
    _valid(rows.data, rows.offsets, out)
    return out


def blank(rows: Ragged) -> Flags:
    """For each row, whether it holds nothing but ASCII blanks and line ends."""
    out = np.empty(len(rows), np.bool_)
    _blank(rows.data, rows.offsets, out)
    return out


@kernel
def _blank(data: Bytes, offsets: Ints, out: Flags) -> None:
    for row in range(len(out)):
        i, end = offsets[row], offsets[row + 1]
        while i < end and data[i] <= 0x20:
            i += 1
        out[row] = i == end


@kernel
def _valid(data: Bytes, offsets: Ints, out: Flags) -> None:
    for row in range(len(out)):
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            if i + 8 <= end and not eight(data, i) & TOPS:
                i += 8
                continue
            length = _character(data, i, end)
            if not length:
                break
            i += length
        out[row] = i == end


@kernel
def _character(data: Bytes, i: int, end: int) -> int:
    """The length of the well-formed character at ``i``; 0 if it is none."""
    lead = data[i]
    if lead < 0x80:
        return 1
    length = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0
    if not length or i + length > end:
        return 0
    for k in range(1, length):
        if data[i + k] & 0xC0 != 0x80:
            return 0
    second = data[i + 1]  # no overlong forms, no surrogates, nothing past U+10FFFF
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second >= 0xA0):
        return 0
    if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second >= 0x90):
        return 0
    return length


@kernel
def decode(data: Bytes, i: int) -> tuple[int, int]:
    """The code point at ``i`` of valid UTF-8, and where the next one begins."""
    lead = int(data[i])
    if lead < 0x80:
        return lead, i + 1
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | int(data[i + 1]) & 0x3F, i + 2
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | (int(data[i + 1]) & 0x3F) << 6 | int(data[i + 2]) & 0x3F, i + 3
    high = (lead & 0x07) << 18 | (int(data[i + 1]) & 0x3F) << 12
    return high | (int(data[i + 2]) & 0x3F) << 6 | int(data[i + 3]) & 0x3F, i + 4


@kernel
def encode(code: int, out: Bytes, at: int) -> int:
    """Write ``code`` as UTF-8 at ``at``; returns where the next one goes."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4
