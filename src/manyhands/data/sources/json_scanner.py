"""Finding a few fields in JSON objects, one a line, without building anything else.

A line is accepted only if all of it is JSON that this scanner understands; any other (broken,
keys with escapes, nested more than 60 deep, half of a surrogate pair) is left to Python's own
parser, which has the last word. Every line has been checked to be UTF-8 before.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manyhands.kernels.compile import Bytes, Flags, Ints, kernel
from manyhands.text.hashing import eight
from manyhands.text.ragged import Ragged, from_strings
from manyhands.text.utf8 import encode

ABSENT, RAW, ESCAPED = -1, 0, 1  # a value is not there (or null), written as it is, or with escapes
DEEPEST = 60
QUOTE, BACKSLASH, COMMA, COLON, MINUS, POINT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2E
ZERO, LETTER_E, LETTER_U = 0x30, 0x65, 0x75
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D
KEY_OR_END, KEY, VALUE_OR_END, VALUE, AFTER = range(5)
ONE = np.uint64(1)
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, BLANKS = QUOTE * ONES, BACKSLASH * ONES, 0x20 * ONES

Kinds = npt.NDArray[np.int8]


class FieldPlaces(NamedTuple):
    """For each line and wanted field, where the value begins and ends and how it is written."""

    accepted: Flags
    starts: Ints
    ends: Ints
    kinds: Kinds


def find_fields(rows: Ragged, usable: Flags, names: list[str]) -> FieldPlaces:
    """Look for ``names`` in the objects on the usable lines; of equal keys the last counts."""
    shape = (len(rows), len(names))
    places = FieldPlaces(
        np.zeros(len(rows), np.bool_),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.full(shape, ABSENT, np.int8),
    )
    keys = from_strings(names)
    _find(rows.data, rows.offsets, usable, keys.data, keys.offsets, *places)
    return places


def field_values(rows: Ragged, places: FieldPlaces, field: int) -> Ragged:
    """The values of one field, with escapes undone; empty where there is none."""
    lengths = places.ends[:, field] - places.starts[:, field]
    out = np.empty(int(lengths.sum()), np.uint8)
    offsets = np.zeros(len(rows) + 1, np.int64)
    _copy(rows.data, places.starts[:, field], places.ends[:, field], places.kinds[:, field], out, offsets)
    return Ragged(out, offsets)


@kernel
def _find(
    data: Bytes,
    rows: Ints,
    usable: Flags,
    keys: Bytes,
    key_offsets: Ints,
    accepted: Flags,
    starts: Ints,
    ends: Ints,
    kinds: Kinds,
) -> None:
    for row in range(len(usable)):
        if usable[row]:
            accepted[row] = _object(
                data, rows[row], rows[row + 1], keys, key_offsets, starts[row], ends[row], kinds[row]
            )
            if not accepted[row]:
                starts[row, :] = ends[row, :] = 0
                kinds[row, :] = ABSENT


@kernel
def _object(
    data: Bytes, i: int, end: int, keys: Bytes, key_offsets: Ints, starts: Ints, ends: Ints, kinds: Kinds
) -> bool:
    """Scan one line, which must be an object; notes the wanted fields at its first level."""
    i = _skip_blanks(data, i, end)
    if i == end or data[i] != OPEN_BRACE:
        return False
    # A bit a level says whether it is an object (1) or a list; ``field`` is the wanted one whose
    # value is being read, or -1.
    depth, nesting, state, field, i = 1, ONE, KEY_OR_END, -1, i + 1
    while depth:
        i = _skip_blanks(data, i, end)
        if i == end:
            return False
        byte = data[i]
        closes = byte == (CLOSE_BRACE if nesting & ONE else CLOSE_BRACKET)
        if closes and state in (KEY_OR_END, VALUE_OR_END, AFTER):
            depth, nesting, state, i = depth - 1, nesting >> ONE, AFTER, i + 1
            if depth == 1 and field >= 0:
                ends[field], field = i, -1
        elif state == AFTER:
            if byte != COMMA:
                return False
            state, i = KEY if nesting & ONE else VALUE, i + 1
        elif state in (KEY_OR_END, KEY):
            key, i = _key(data, i, end, keys, key_offsets)
            if i < 0:
                return False
            field, state = key if depth == 1 else field, VALUE
        elif byte in (OPEN_BRACE, OPEN_BRACKET):
            if depth == DEEPEST:
                return False
            if depth == 1 and field >= 0:
                starts[field], kinds[field] = i, RAW
            depth, nesting = depth + 1, nesting << ONE | np.uint64(byte == OPEN_BRACE)
            state, i = KEY_OR_END if byte == OPEN_BRACE else VALUE_OR_END, i + 1
        else:
            start, stop, kind, i = _leaf(data, i, end)
            if i < 0:
                return False
            if depth == 1 and field >= 0:
                starts[field], ends[field], kinds[field], field = start, stop, kind, -1
            state = AFTER
    return _skip_blanks(data, i, end) == end


@kernel
def _key(data: Bytes, i: int, end: int, keys: Bytes, key_offsets: Ints) -> tuple[int, int]:
    """Which wanted key stands at ``i``, -1 for any other, and where its value begins; -1 if it is no key."""
    close, kind = _string_end(data, i, end)
    if close < 0 or kind == ESCAPED:
        return -1, -1
    colon = _skip_blanks(data, close + 1, end)
    if colon == end or data[colon] != COLON:
        return -1, -1
    return _which(data, i + 1, close, keys, key_offsets), colon + 1


@kernel
def _leaf(data: Bytes, i: int, end: int) -> tuple[int, int, int, int]:
    """The beginning, end and kind of the string, number or word at ``i``; then where to go on, or -1."""
    if data[i] == QUOTE:
        close, kind = _string_end(data, i, end)
        return i + 1, close, kind, close + 1 if close >= 0 else -1
    after = _scalar_end(data, i, end)
    if data[i] == 0x6E:  # null
        return i, i, ABSENT, after
    return i, after, RAW, after


@kernel
def _which(data: Bytes, start: int, end: int, keys: Bytes, key_offsets: Ints) -> int:
    """The number of the wanted key that stands here; -1 if it is none of them."""
    for key in range(len(key_offsets) - 1):
        first = key_offsets[key]
        if key_offsets[key + 1] - first == end - start:
            k = 0
            while k < end - start and data[start + k] == keys[first + k]:
                k += 1
            if k == end - start:
                return key
    return -1


@kernel
def _copy(data: Bytes, starts: Ints, ends: Ints, kinds: Kinds, out: Bytes, offsets: Ints) -> None:
    at = 0
    for row in range(len(starts)):
        i, end = starts[row], ends[row]
        if kinds[row] == RAW:
            start, length, to = np.uint64(i), np.uint64(end - i), np.uint64(at)
            for k in range(length):
                out[to + k] = data[start + k]
            at += end - i
        elif kinds[row] == ESCAPED:
            while i < end:
                if data[i] == BACKSLASH:
                    at, i = _undo(data, i, end, out, at)
                else:
                    out[at] = data[i]
                    at += 1
                    i += 1
        offsets[row + 1] = at


@kernel
def _undo(data: Bytes, i: int, end: int, out: Bytes, at: int) -> tuple[int, int]:
    """Write the character of the escape at ``i``; returns where to go on writing and reading."""
    letter = data[i + 1]
    if letter != LETTER_U:
        out[at] = letter
        for name, code in ((0x62, 0x08), (0x66, 0x0C), (0x6E, 0x0A), (0x72, 0x0D), (0x74, 0x09)):
            if letter == name:
                out[at] = code
        return at + 1, i + 2
    code = _code_unit(data, i, end)
    if code < 0xD800 or code >= 0xE000:
        return encode(code, out, at), i + 6
    low = _code_unit(data, i + 6, end)
    return encode(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00, out, at), i + 12


# Where the strings, numbers and words of JSON end, and whether they are well formed.


@kernel
def _skip_blanks(data: Bytes, i: int, end: int) -> int:
    while i < end and data[i] in (0x20, 0x09, 0x0A, 0x0D):
        i += 1
    return i


@kernel
def _string_end(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """Where the string that begins at ``i`` closes, and how it is written; -1 if it is none."""
    if data[i] != QUOTE:
        return -1, RAW
    i += 1
    kind = RAW
    while i < end:
        if i + 8 <= end:  # eight bytes at a time while none is a quote, a backslash or a control
            letters = eight(data, i)
            quote, backslash = letters ^ QUOTES, letters ^ BACKSLASHES
            special = (
                (quote - ONES) & ~quote | (backslash - ONES) & ~backslash | (letters - BLANKS) & ~letters
            )
            if not special & TOPS:
                i += 8
                continue
        byte = data[i]
        if byte == QUOTE:
            return i, kind
        if byte < 0x20:
            return -1, kind
        if byte == BACKSLASH:
            length = _escape_length(data, i, end)
            if not length:
                return -1, kind
            kind = ESCAPED
            i += length
        else:
            i += 1
    return -1, kind


@kernel
def _escape_length(data: Bytes, i: int, end: int) -> int:
    """The length of the escape at ``i``; 0 if it is wrong, or half of a surrogate pair."""
    if i + 1 >= end:
        return 0
    letter = data[i + 1]
    if letter in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):  # " \ / b f n r t
        return 2
    code = _code_unit(data, i, end)
    if 0xD800 <= code < 0xDC00 and 0xDC00 <= _code_unit(data, i + 6, end) < 0xE000:
        return 12
    return 6 if code >= 0 and not 0xD800 <= code < 0xE000 else 0


@kernel
def _code_unit(data: Bytes, i: int, end: int) -> int:
    """The code that the escape of u and four hexadecimal digits at ``i`` stands for; -1 if there is none."""
    if i + 6 > end or data[i] != BACKSLASH or data[i + 1] != LETTER_U:
        return -1
    code = 0
    for k in range(i + 2, i + 6):
        byte = data[k]
        lower = byte | 0x20
        if 0x30 <= byte <= 0x39:
            code = code * 16 + byte - 0x30
        elif 0x61 <= lower <= 0x66:
            code = code * 16 + lower - 0x57
        else:
            return -1
    return code


@kernel
def _digits_end(data: Bytes, i: int, end: int) -> int:
    while i < end and 0x30 <= data[i] <= 0x39:
        i += 1
    return i


@kernel
def _scalar_end(data: Bytes, i: int, end: int) -> int:
    """Where the number, true, false or null at ``i`` ends; -1 if it is none of them."""
    if data[i] in (0x74, 0x66, 0x6E):
        return _literal_end(data, i, end)
    if data[i] == MINUS:
        i += 1
    whole = _digits_end(data, i, end)
    if whole == i or (data[i] == ZERO and whole > i + 1):
        return -1
    i = whole
    if i < end and data[i] == POINT:
        after = _digits_end(data, i + 1, end)
        if after == i + 1:
            return -1
        i = after
    if i < end and data[i] | 0x20 == LETTER_E:
        i += 1
        if i < end and data[i] in (0x2B, MINUS):
            i += 1
        after = _digits_end(data, i, end)
        if after == i:
            return -1
        i = after
    return i


@kernel
def _literal_end(data: Bytes, i: int, end: int) -> int:
    for word in ((0x74, 0x72, 0x75, 0x65, 0), (0x66, 0x61, 0x6C, 0x73, 0x65), (0x6E, 0x75, 0x6C, 0x6C, 0)):
        length = 5 if word[4] else 4
        if i + length <= end:
            k = 0
            while k < length and data[i + k] == word[k]:
                k += 1
            if k == length:
                return i + length
    return -1
