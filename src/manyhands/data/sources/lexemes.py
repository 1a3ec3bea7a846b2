"""Where the strings, numbers and words of JSON end, and whether they are well formed."""

import numpy as np

from manyhands.kernel import Bytes, kernel
from manyhands.text.hashing import eight

RAW, ESCAPED = 0, 1  # how a value is written: as it is, or with escapes
QUOTE, BACKSLASH, MINUS, POINT = 0x22, 0x5C, 0x2D, 0x2E
ZERO, LETTER_E, LETTER_U = 0x30, 0x65, 0x75
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES, BLANKS = QUOTE * ONES, BACKSLASH * ONES, 0x20 * ONES


@kernel
def skip_blanks(data: Bytes, i: int, end: int) -> int:
    while i < end and data[i] in (0x20, 0x09, 0x0A, 0x0D):
        i += 1
    return i


@kernel
def string_end(data: Bytes, i: int, end: int) -> tuple[int, int]:
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
    code = code_unit(data, i, end)
    if 0xD800 <= code < 0xDC00 and 0xDC00 <= code_unit(data, i + 6, end) < 0xE000:
        return 12
    return 6 if code >= 0 and not 0xD800 <= code < 0xE000 else 0


@kernel
def code_unit(data: Bytes, i: int, end: int) -> int:
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
def scalar_end(data: Bytes, i: int, end: int) -> int:
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
