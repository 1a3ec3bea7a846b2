"""McAuley's loose files: each line the ``repr`` of a Python dict, rewritten here as JSON.

Strings may stand in single or double quotes, with Python's escapes; True, False and None
are words of their own. Whatever else is wrong with a line, the JSON parser will say.
"""

import numpy as np

from manyhands.kernels.compile import Bytes, Flags, Ints, kernel
from manyhands.text.ragged import Ragged

BRACE, DOUBLE, SINGLE, BACKSLASH = 0x7B, 0x22, 0x27, 0x5C
LETTER_U, LETTER_X = 0x75, 0x78


def looks_loose(rows: Ragged) -> Flags:
    """Whether each row begins like the ``repr`` of a dict: its first key in single quotes."""
    out = np.empty(len(rows), np.bool_)
    _looks_loose(rows.data, rows.offsets, out)
    return out


@kernel
def _looks_loose(data: Bytes, rows: Ints, out: Flags) -> None:
    for row in range(len(out)):
        i = rows[row]
        short = rows[row + 1] - i < 4
        out[row] = not short and data[i] == BRACE and (data[i + 1] == SINGLE or data[i + 2] == SINGLE)


def loose_to_json(rows: Ragged, chosen: Flags) -> Ragged:
    """The ``chosen`` rows rewritten; the others stay as they are.

    >>> from manyhands.text.ragged import from_strings
    >>> line = from_strings(["{'a': 'it\\\\'s \\"so\\"', u'b': \\"don't\\", 'c': True, 'd': '\\\\xe9'}"])
    >>> print(loose_to_json(line, np.array([True])).strings()[0])
    {"a": "it's \\"so\\"", "b": "don't", "c": true, "d": "\\u00e9"}
    """
    out = np.empty(2 * rows.size + 1, np.uint8)
    offsets = np.zeros(len(rows) + 1, np.int64)
    _rewrite(rows.data, rows.offsets, chosen, out, offsets)
    return Ragged(out[: offsets[-1]], offsets)


@kernel
def _rewrite(data: Bytes, rows: Ints, chosen: Flags, out: Bytes, offsets: Ints) -> None:
    """Nothing grows to more than twice its length: ``\\xe9`` to ``\\u00e9`` is the most, with quotes."""
    at = 0
    for row in range(len(rows) - 1):
        i, end = rows[row], rows[row + 1]
        quote = 0  # the quote that will end the string we are in; 0 outside
        if not chosen[row]:
            out[at : at + end - i] = data[i:end]
            at, i = at + end - i, end
        while i < end:
            byte = data[i]
            if quote and byte == BACKSLASH and i + 1 < end:
                at, i = _escape(data, i + 1, out, at)
                continue
            if byte == DOUBLE and quote == SINGLE:
                out[at] = BACKSLASH
                at += 1
            elif quote and byte == quote:
                quote, byte = 0, DOUBLE
            elif not quote and byte in (SINGLE, DOUBLE):
                quote, byte = byte, DOUBLE
            elif not quote and byte == LETTER_U and i + 1 < end and data[i + 1] in (SINGLE, DOUBLE):
                i += 1  # Python 2's u'…'
                continue
            elif not quote and byte in (0x54, 0x46, 0x4E):  # True, False, None
                at, i = _constant(data, i, end, out, at)
                continue
            out[at] = byte
            at += 1
            i += 1
        offsets[row + 1] = at


@kernel
def _escape(data: Bytes, i: int, out: Bytes, at: int) -> tuple[int, int]:
    """Write the escape whose letter stands at ``i`` the way JSON does."""
    if data[i] == SINGLE:
        out[at] = SINGLE
        return at + 1, i + 1
    out[at] = BACKSLASH
    if data[i] == LETTER_X:
        out[at + 1] = LETTER_U
        out[at + 2] = 0x30
        out[at + 3] = 0x30
        return at + 4, i + 1
    out[at + 1] = data[i]
    return at + 2, i + 1


@kernel
def _constant(data: Bytes, i: int, end: int, out: Bytes, at: int) -> tuple[int, int]:
    """Write True, False or None as JSON does; any other word stays as it is."""
    if data[i] == 0x4E and i + 4 <= end and data[i + 1] == 0x6F and data[i + 2] == 0x6E:
        for k, letter in enumerate((0x6E, 0x75, 0x6C, 0x6C)):  # null
            out[at + k] = letter
        return at + 4, i + 4
    out[at] = data[i] | 0x20
    return at + 1, i + 1
