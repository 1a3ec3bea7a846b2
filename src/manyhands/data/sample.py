"""Synthetic reviews of any size, for tests and for trying things at scale.

Words follow Zipf's law, lengths are natural (100 words cover 88 % of the reviews), opinions
follow the stars, some texts stand twice with clashing stars, and some lines are broken. Every
review depends on the seed and its number alone, however many are made.
"""

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from manyhands.errors import UsageError
from manyhands.kernels.compile import Bytes, Ints, kernel
from manyhands.records import Progress, Silent
from manyhands.storage.files import writing
from manyhands.text.hashing import C1, mix
from manyhands.text.ragged import Ragged, from_strings

Tickets = npt.NDArray[np.int32]
Shares = npt.NDArray[np.float64]

POSITIVE = "great good excellent love perfect best wonderful amazing easy happy comfortable favorite".split()
NEGATIVE = "bad poor terrible broken waste worst awful cheap disappointed useless refund horrible".split()
COMMON = "the and a to it of is i this for in was that with my on but have as so they you be not very".split()
OPINIONS = len(POSITIVE)  # and as many negative ones
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
WORDS = 50_000
LOTTERY = 1 << 20  # tickets, shared out among the words by their frequency
ROWS_A_BATCH = 20_000
LONGEST_WORDS = 1_000
ROW_BYTES = 256  # all of a line but its text

STAR_TICKETS = np.array([0.08, 0.14, 0.24, 0.44, 1.0])  # a fifth or so of the ratings are low, as on Amazon
PRAISE = np.array([0.08, 0.22, 0.50, 0.80, 0.93])  # how often an opinion is a good one, by stars
OPINION = 0.08
NEGATED = 0.15
BEFORE_TEXT = np.frombuffer(b'{"reviewerID": "A', np.uint8)
ASIN = np.frombuffer(b'", "asin": "B', np.uint8)
TEXT = np.frombuffer(b'", "reviewText": "', np.uint8)
STARS = np.frombuffer(b'", "overall": ', np.uint8)
TIME = np.frombuffer(b'.0, "unixReviewTime": ', np.uint8)


def sample(
    rows: int,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    duplicates: float = 0.03,
    broken: float = 0.0005,
    progress: Progress | None = None,
) -> None:
    """Write ``rows`` reviews as JSON lines to a file, a URL or ``-`` for standard output."""
    if not 1 <= rows < 2**53 or not 0 <= seed < 2**63:
        raise UsageError("rows must be at least 1, and the seed at least 0 and below 2^63")
    watch = progress or Silent()
    watch.stage("writing", rows, "rows")
    with writing(os.fspath(out)) as file:
        for done, lines in batches(rows, seed, duplicates, broken):
            file.write(lines)
            watch.advance(done)


def batches(rows: int, seed: int, duplicates: float, broken: float) -> Iterator[tuple[int, memoryview]]:
    """The lines, a few megabytes at a time, with how many rows there are so far."""
    words, tickets = _words(), _tickets()
    for first in range(0, rows, ROWS_A_BATCH):
        count = min(ROWS_A_BATCH, rows - first)
        plan = np.empty((count, 4), np.int64)
        length = _plan(plan, first, np.uint64(seed), duplicates, broken, STAR_TICKETS)
        out = np.empty(length * (int(words.lengths().max()) + 2) + count * ROW_BYTES, np.uint8)
        used = _write(plan, first, words.data, words.offsets, tickets, PRAISE, out)
        yield first + count, out[:used].data


def _words() -> Ragged:
    """Opinions first, then the commonest real words, then made-up ones that can be spoken."""
    syllables = [c + v for c in CONSONANTS for v in VOWELS]
    made = []
    for number in range(WORDS):
        word, rest = "", number + len(syllables)
        while rest:
            rest, digit = divmod(rest, len(syllables))
            word += syllables[digit]
        made.append(word)
    return from_strings(POSITIVE + NEGATIVE + COMMON + made)


def _tickets() -> Tickets:
    """Zipf's law as a table: draw a ticket, get a word (opinions are drawn apart)."""
    shares = np.cumsum(1 / (np.arange(len(COMMON) + WORDS) + 2.7) ** 1.05)
    drawn = np.searchsorted(shares, (np.arange(LOTTERY) + 0.5) / LOTTERY * shares[-1])
    return np.asarray(drawn + len(POSITIVE) + len(NEGATIVE), np.int32)


@kernel
def _draw(state: np.uint64) -> tuple[np.uint64, float]:
    """The next state, and a number from 0 up to 1."""
    state += C1
    return state, float(mix(state) >> np.uint64(11)) / 9007199254740992.0


@kernel
def _plan(
    plan: Ints, first: int, seed: np.uint64, duplicates: float, broken: float, star_tickets: Shares
) -> int:
    """For each row: the state its text is made from, its stars, its text's stars, whether it is broken."""
    total = 0
    for k in range(len(plan)):
        row = first + k
        state, chance = _draw(mix(seed) ^ np.uint64(row))
        origin = row
        if chance < duplicates and row:  # the text of one of the thousand rows before
            state, back = _draw(state)
            origin = row - 1 - int(back * min(row, 1000))
        text_state = mix(mix(seed) + np.uint64(origin))
        _, drawn = _draw(text_state)
        text_stars = 1 + np.searchsorted(star_tickets, drawn, "right")
        stars = text_stars
        state, chance = _draw(state)
        if origin != row and chance < 0.5:
            stars = 6 - text_stars
        state, chance = _draw(state)
        plan[k, 0] = np.int64(text_state)
        plan[k, 1] = stars
        plan[k, 2] = text_stars
        plan[k, 3] = chance < broken
        total += _length(text_state)
    return total


@kernel
def _length(text_state: np.uint64) -> int:
    """Log-normal around 40 words; 100 words are the 88th percentile."""
    state, one = _draw(text_state ^ C1)
    state, two = _draw(state)
    normal = np.sqrt(-2 * np.log(1 - one)) * np.cos(2 * np.pi * two)
    return min(LONGEST_WORDS, 1 + int(40 * np.exp(0.78 * normal)))


@kernel
def _put(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    for i in range(start, end):
        out[at] = data[i]
        at += 1
    return at


@kernel
def _put_number(out: Bytes, at: int, number: int, digits: int) -> int:
    for k in range(digits - 1, -1, -1):
        out[at + k] = 0x30 + number % 10
        number //= 10
    return at + digits


@kernel
def _write_text(
    state: np.uint64,
    stars: int,
    words: Bytes,
    offsets: Ints,
    tickets: Tickets,
    praise: Shares,
    out: Bytes,
    at: int,
) -> int:
    """Sentences of a dozen words, capitals first; opinions good or bad as the stars are."""
    count = _length(state)
    opens = True
    for k in range(count):
        state, chance = _draw(state)
        state, drawn = _draw(state)
        word = tickets[int(drawn * LOTTERY)]
        if chance < OPINION:
            state, turn = _draw(state)
            good = chance < OPINION * praise[stars - 1]
            negated = turn < NEGATED
            word = int(drawn * OPINIONS) + (0 if good != negated else OPINIONS)
            if negated:
                for letter in (0x6E, 0x6F, 0x74, 0x20):  # "not "
                    out[at] = letter
                    at += 1
        start = at
        at = _put(out, at, words, offsets[word], offsets[word + 1])
        if opens:
            out[start] -= 0x20
        opens = k == count - 1 or chance > 0.92
        if opens:
            out[at] = 0x21 if chance > 0.985 else 0x2E  # ! or .
            at += 1
        elif chance > 0.86:
            out[at] = 0x2C
            at += 1
        out[at] = 0x20
        at += 1
    return at - 1


@kernel
def _write(
    plan: Ints, first: int, words: Bytes, offsets: Ints, tickets: Tickets, praise: Shares, out: Bytes
) -> int:
    at = 0
    for k in range(len(plan)):
        state, stars, text_stars, broken = plan[k]
        begin = at
        at = _put(out, at, BEFORE_TEXT, 0, len(BEFORE_TEXT))
        at = _put_number(out, at, first + k, 12)
        at = _put(out, at, ASIN, 0, len(ASIN))
        at = _put_number(out, at, (first + k) % 99991, 9)
        at = _put(out, at, TEXT, 0, len(TEXT))
        at = _write_text(np.uint64(state), text_stars, words, offsets, tickets, praise, out, at)
        at = _put(out, at, STARS, 0, len(STARS))
        at = _put_number(out, at, stars, 1)
        at = _put(out, at, TIME, 0, len(TIME))
        at = _put_number(out, at, 1_100_000_000 + (first + k) % 300_000_000, 10)
        out[at] = 0x7D
        at += 1
        if broken:
            at = begin + (at - begin) // 2
        out[at] = 0x0A
        at += 1
    return at
