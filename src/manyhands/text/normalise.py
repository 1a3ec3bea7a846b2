"""Raw text to normalised text: tokens in lower case with one space between them.

A word is a run of letters and digits, with the apostrophes inside it ("don't"). Every other
visible character is a token of its own or, with ``punctuation="drop"``, a gap: words are
never glued together, and no word is ever left out.
"""

from dataclasses import dataclass

import numpy as np

from manyhands.kernels.compile import Bytes, Hashes, Ints, kernel
from manyhands.kernels.simd import MASK_BYTES, bytes_between, copy_letters, leading_zeros, trailing_zeros
from manyhands.settings import TextSettings
from manyhands.text.characters import (
    MARK,
    SIGN,
    SINGLE,
    SKIP,
    SPACE,
    WORD,
    Codes,
    characters,
    entities,
    name_hash,
)
from manyhands.text.ragged import Ragged, from_strings
from manyhands.text.utf8 import decode, encode

# Code points 0x80 to 0x9F of Windows-1252; the five that it lacks stay as they are.
WINDOWS = tuple(
    ord(bytes([byte]).decode("cp1252", "replace").replace("\ufffd", chr(byte))) for byte in range(0x80, 0xA0)
)
LONGEST_WORD = 128  # bytes; a longer run is cut, so that no input makes a word of megabytes
BLANK = 0x20
SPARE = MASK_BYTES  # bytes behind the last text, so that so many may be read or written anywhere
CHUNK, ONE, TWO = np.uint64(MASK_BYTES), np.uint64(1), np.uint64(2)
AT_AN_EVENT = 2  # bytes that are handled one by one: a sign, and the blank behind it
LONGEST_ENTITY = 33  # the longest name HTML knows, and room for & and ;


@dataclass(frozen=True)
class Normaliser:
    """The way from raw text to tokens, saved with every dataset and model.

    >>> Normaliser(TextSettings())("It's GOOD.Bad<br />&amp; not 4.5!")
    "it's good . bad & not 4 . 5 !"
    >>> Normaliser(TextSettings(punctuation="drop"))("Don't! (ever) 'quote' good.bad")
    "don't ever quote good bad"
    """

    settings: TextSettings

    def __call__(self, text: str) -> str:
        return self.ragged(from_strings([text])).strings()[0]

    def ragged(self, texts: Ragged) -> Ragged:
        """Normalise many texts (valid UTF-8) at once, without the GIL."""
        lower, html, signs = self.settings.lower, self.settings.html, self.settings.punctuation
        out = np.empty((1 if signs == "keep" else 2) * texts.size + 1 + SPARE, np.uint8)
        offsets = np.empty(len(texts) + 1, np.int64)
        if signs == "keep":
            _single_blanks(texts.data, texts.offsets, out, offsets)
        else:
            tables = (*characters(lower), *entities())
            _normalise(texts.data, texts.offsets, *tables, html, signs == "drop", out, offsets)
        return Ragged(out[: offsets[-1] + SPARE], offsets)


@kernel
def _single_blanks(data: Bytes, starts: Ints, out: Bytes, offsets: Ints) -> None:
    """Texts that are tokens already: only the gaps between them become one blank each."""
    at = 0
    offsets[0] = 0
    for text in range(len(starts) - 1):
        begin = at
        for i in range(starts[text], starts[text + 1]):
            byte = data[i]
            blank = byte == 0x20 or 0x09 <= byte <= 0x0D or byte == 0
            if not blank:
                out[at] = byte
                at += 1
            elif at > begin and out[at - 1] != 0x20:
                out[at] = 0x20
                at += 1
        at -= at > begin and out[at - 1] == 0x20
        offsets[text + 1] = at


@kernel
def _line_break_end(data: Bytes, i: int, end: int) -> int:
    """Where the ``<br>``, ``<BR/>`` or ``<br />`` that begins at ``i`` ends; ``i`` if none does."""
    if i + 3 >= end or data[i + 1] | 0x20 != 0x62 or data[i + 2] | 0x20 != 0x72:
        return i
    j = i + 3
    while j < end and data[j] == 0x20:
        j += 1
    if j < end and data[j] == 0x2F:
        j += 1
    return j + 1 if j < end and data[j] == 0x3E else i


@kernel
def _numbered_entity(data: Bytes, start: int, end: int) -> int:
    """The code point of ``39`` or ``x27``, between ``&#`` and ``;``; -1 if it is none."""
    base = 16 if start < end and data[start] | 0x20 == 0x78 else 10
    if base == 16:
        start += 1
    code = 0
    for i in range(start, end):
        byte, lower = data[i], data[i] | 0x20
        if 0x30 <= byte <= 0x39:
            code = code * base + byte - 0x30
        elif base == 16 and 0x61 <= lower <= 0x66:
            code = code * base + lower - 0x57
        else:
            return -1
        if code > 0x10FFFF:
            return -1
    if 0x80 <= code < 0xA0:  # HTML reads these as Windows did: &#146; is an apostrophe
        code = WINDOWS[code - 0x80]
    return code if start < end and code > 0 and not 0xD800 <= code < 0xE000 else -1


@kernel
def _entity(
    data: Bytes, i: int, end: int, names: Hashes, first: Codes, second: Codes
) -> tuple[int, int, int]:
    """The one or two code points of the entity at ``i`` and where it ends; ``i`` if it is none."""
    stop = min(end, i + LONGEST_ENTITY)
    j = i + 1
    while j < stop and data[j] != 0x3B:
        j += 1
    if j >= stop:
        return 0, 0, i
    if data[i + 1] == 0x23:
        code = _numbered_entity(data, i + 2, j)
        return (code, 0, j + 1) if code >= 0 else (0, 0, i)
    wanted = name_hash(data, i + 1, j)
    at = np.searchsorted(names, wanted)
    if at < len(names) and names[at] == wanted:
        return int(first[at]), int(second[at]), j + 1
    return 0, 0, i


@kernel
def _begins_word(data: Bytes, i: int, end: int, kinds: Bytes) -> bool:
    return i < end and kinds[decode(data, i)[0]] == WORD


@kernel
def _normalise(
    data: Bytes,
    starts: Ints,
    kinds: Bytes,
    lower: Codes,
    names: Hashes,
    first: Codes,
    second: Codes,
    html: bool,
    drop_signs: bool,
    out: Bytes,
    offsets: Ints,
) -> None:
    """Write the normalised texts one after the other to ``out``, which must hold 2 n + 1 bytes."""
    plain, small = _byte_tables(kinds, lower, html, drop_signs)
    shift = np.uint8(lower[0x41] - 0x41)
    at = 0
    offsets[0] = 0
    for text in range(len(starts) - 1):
        begin = at
        run = 0  # bytes of the word being written; at 0, what was written ends in a space or is empty
        i, end = starts[text], starts[text + 1]
        while i < end:
            at, i, run = _copy_plain(data, i, end, plain, shift, drop_signs, out, at, run)
            at, i, run = _put_plain(data, i, min(end, i + AT_AN_EVENT), plain, small, out, at, run)
            if run >= LONGEST_WORD:
                at, run = _close(out, at, run)
            if i == end:
                break
            byte = data[i]
            if plain[byte] <= WORD or plain[byte] == SIGN:
                continue
            if html and byte == 0x3C:  # <
                stop = _line_break_end(data, i, end)
                if stop > i:
                    at, run = _close(out, at, run)
                    i = stop
                    continue
            code, then, after = 0, 0, i
            if html and byte == 0x26:  # &
                code, then, after = _entity(data, i, end, names, first, second)
            if after == i:
                code, after = decode(data, i)
            i = after
            if code == 0x2019:  # ’ is an apostrophe too
                code = 0x27
            inside = code == 0x27 and run > 0 and _begins_word(data, i, end, kinds)
            at, run = _put(lower[code], WORD if inside else kinds[code], drop_signs, out, at, run)
            if then:
                at, run = _put(lower[then], kinds[then], drop_signs, out, at, run)
        at -= at > begin and run == 0
        offsets[text + 1] = at


@kernel
def _copy_plain(
    data: Bytes,
    i: int,
    end: int,
    plain: Bytes,
    shift: np.uint8,
    drop_signs: bool,
    out: Bytes,
    at: int,
    run: int,
) -> tuple[int, int, int]:
    """Copy what is normal already, but for its case, 64 bytes at a time and up to the first that is not.

    That are ASCII letters and digits, apostrophes between them, single blanks behind these, and signs
    between blanks.
    """
    start, stop, to, most = np.uint64(i), np.uint64(end), np.uint64(at), np.uint64(len(data))
    while start < stop and start + CHUNK <= most and run < LONGEST_WORD - MASK_BYTES:
        small, big = bytes_between(data, start, 0x61, 0x7A), bytes_between(data, start, 0x41, 0x5A)
        mine = ONE << (stop - start) if stop - start < CHUNK else np.uint64(0)
        mine -= ONE  # what lies behind is of the next text
        word = (small | big | bytes_between(data, start, 0x30, 0x39)) & mine
        blank = bytes_between(data, start, BLANK, BLANK) & mine
        quote = bytes_between(data, start, 0x27, 0x27)
        inside = np.uint64(run > 0)
        behind_word = word << ONE | inside
        good = word | quote & behind_word & word >> ONE
        run_on = good
        if not drop_signs:
            special = quote | bytes_between(data, start, 0x26, 0x26) | bytes_between(data, start, 0x3C, 0x3C)
            sign = bytes_between(data, start, 0x21, 0x7E) & ~word & ~special
            sign &= (blank << ONE | (inside ^ ONE)) & blank >> ONE
            good |= sign
            behind_word |= sign << ONE
        good |= blank & behind_word
        count = min(trailing_zeros(~good), stop - start)
        copy_letters(out, to, data, start, shift)
        gaps = ~run_on << (CHUNK - count) if count else np.uint64(0)
        run = int(np.int64(leading_zeros(gaps))) if gaps else run + int(np.int64(count))
        start += count
        to += count
        if count == CHUNK or start == stop:
            continue
        byte = data[start]
        kind = plain[byte]
        if kind != SIGN and kind != SPACE:
            break
        out[to] = BLANK
        to += np.uint64(run > 0)
        out[to], out[to + ONE] = byte, BLANK
        to += TWO if kind == SIGN else np.uint64(0)
        start += ONE
        run = 0
    return int(np.int64(to)), int(np.int64(start)), run


@kernel
def _put_plain(
    data: Bytes, i: int, end: int, plain: Bytes, small: Bytes, out: Bytes, at: int, run: int
) -> tuple[int, int, int]:
    """Write letters, blanks and signs, up to anything else or a word of full length.

    There is no branch for where a word ends: mispredicting that cost a third of the time. A blank
    is written, and overwritten if it is the second.
    """
    word, inside = at - run, np.uint8(run > 0)
    while i < end:
        byte = data[np.uint64(i)]  # unsigned: a signed index might count from the end
        kind = plain[byte]
        if kind <= WORD:
            out[np.uint64(at)] = small[byte]
            at += int(kind | inside)
            inside = kind
            word = word if kind else at
            i += 1
            if at - word >= LONGEST_WORD:
                break
            continue
        if kind != SIGN:
            break
        out[np.uint64(at)] = BLANK
        at += int(inside)
        out[np.uint64(at)] = byte
        out[np.uint64(at + 1)] = BLANK
        at += 2
        word, inside = at, np.uint8(0)
        i += 1
    return at, i, at - word


@kernel
def _close(out: Bytes, at: int, run: int) -> tuple[int, int]:
    """End the word being written, if there is one."""
    if run > 0:
        out[at] = BLANK
        at += 1
    return at, 0


@kernel
def _put(code: int, kind: int, drop_signs: bool, out: Bytes, at: int, run: int) -> tuple[int, int]:
    """Write one character as its kind asks; returns where to write next and the word's length."""
    if kind == SKIP or (kind == MARK and run == 0):
        return at, run
    if kind in (WORD, MARK):
        after = encode(code, out, at)
        run += after - at
        return _close(out, after, run) if run >= LONGEST_WORD else (after, run)
    at, run = _close(out, at, run)
    if kind == SINGLE or (kind == SIGN and not drop_signs):
        return _close(out, encode(code, out, at), 1)
    return at, run


@kernel
def _byte_tables(kinds: Bytes, lower: Codes, html: bool, drop_signs: bool) -> tuple[Bytes, Bytes]:
    """Kind and lower case of the bytes that stand for themselves; all others are ``SKIP``."""
    plain = np.full(256, SKIP, np.uint8)
    small = np.zeros(256, np.uint8)
    for byte in range(128):
        special = byte == 0x27 or (html and byte in (0x26, 0x3C))  # ' & <
        if not special:
            plain[byte] = SPACE if kinds[byte] == SIGN and drop_signs else kinds[byte]
        small[byte] = BLANK if plain[byte] == SPACE else lower[byte]
    return plain, small
