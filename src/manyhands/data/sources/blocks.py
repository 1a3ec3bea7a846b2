"""Cutting a stream of bytes into blocks of whole records, a few megabytes each.

One thread cuts; the blocks are then parsed side by side. A record is a line, or for
delimited files a row, whose quoted fields may hold line ends.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from manyhands.kernels.compile import Bytes, Ints, kernel, read_only
from manyhands.records import Rejection
from manyhands.storage.files import InputStream
from manyhands.text.hashing import eight
from manyhands.text.ragged import Ragged

BLOCK_BYTES = 4 << 20
LONGEST_RECORD_BYTES = 8 << 20
BOM = b"\xef\xbb\xbf"
NEWLINE, RETURN, QUOTE = 0x0A, 0x0D, 0x22
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
NONE = np.zeros(1, np.int64)  # no records: their only offset


@dataclass(frozen=True)
class RecordBlock:
    """Whole records of one file, their line ends included.

    ``raw`` are all bytes of the file that the block covers, also those of rejected records: one after the
    other, those of all blocks are the file. Of messages, which are no file, there are none.
    """

    file: str
    rows: Ragged
    lines: Ints  # the line of the stream on which each record begins, counted from 1
    rejected: list[Rejection] = field(default_factory=list)
    raw: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    starts: Ints = field(default_factory=lambda: NONE[:0])  # where each record begins in ``raw``

    def whole_rows(self) -> dict[str, Any]:
        """What ``Records`` hold of whole rows: the bytes, and where each ends, its line end left out."""
        ends = self.starts + self.rows.lengths()
        _before_line_ends(read_only(self.raw), self.starts, ends)
        return {"raw": self.raw, "ends": ends}


# A cutter finds the whole records at the head of its bytes: where each begins, then where the
# rest begins; and how many lines stand before each of these. ``final``: no more bytes follow.
Cutter = Callable[[Bytes, bool], tuple[Ints, Ints]]


def blocks(stream: InputStream, cut: Cutter, too_long: str) -> Iterator[RecordBlock]:
    """Cut the whole stream; a record that never ends is rejected for the reason ``too_long``."""
    name, line, rest = stream.file.name, 1, np.empty(0, np.uint8)
    first, skipping = stream.begins, False
    while True:
        raw = data = stream.read_behind(rest, BLOCK_BYTES)
        final = len(data) == len(rest)
        if first and data[:3].tobytes() == BOM:
            data = data[3:]
        first = False
        if skipping:  # inside a record that was too long: go on behind its line
            end = _line_end(data)
            if not end and not final:
                yield RecordBlock(name, Ragged(data, NONE), NONE[:0], raw=raw)
                continue
            data, line, skipping = data[end:] if end else data[:0], line + 1, False
        starts, before = cut(read_only(data), final)
        places = starts[:-1] + (len(raw) - len(data))
        lines = before + line
        rest, line = data[starts[-1] :], int(lines[-1])
        rejected = []
        if len(rest) > (0 if final else LONGEST_RECORD_BYTES):
            rejected.append(Rejection(name, line, too_long))
            end = _line_end(rest)
            rest, skipping = rest[end:] if end else rest[:0], not end
            line += not skipping
        raw = raw[: len(raw) - len(rest)]
        if len(raw):
            block = RecordBlock(name, Ragged(data, starts), lines[:-1], rejected, raw, places)
            yield _without_long_ones(block, too_long)
        if final and not len(rest):
            return


def _without_long_ones(block: RecordBlock, too_long: str) -> RecordBlock:
    """Leave out whole records past the limit: where a record stands must not decide its fate."""
    long = block.rows.lengths() > LONGEST_RECORD_BYTES
    if not long.any():
        return block
    rejected = [Rejection(block.file, line, too_long) for line in block.lines[long].tolist()]
    kept = np.flatnonzero(~long)
    return replace(
        block,
        rows=block.rows.take(kept),
        lines=block.lines[kept],
        starts=block.starts[kept],
        rejected=block.rejected + rejected,
    )


@kernel
def _before_line_ends(data: Bytes, starts: Ints, ends: Ints) -> None:
    """Move each end to before the line end that stands there."""
    for row in range(len(ends)):
        end = ends[row]
        while end > starts[row] and (data[end - 1] == NEWLINE or data[end - 1] == RETURN):
            end -= 1
        ends[row] = end


@kernel
def _line_end(data: Bytes) -> int:
    """Where the first line ends; 0 if it does not."""
    for i in range(len(data)):
        if data[i] == NEWLINE:
            return i + 1
    return 0


@kernel
def cut_lines(data: Bytes, final: bool) -> tuple[Ints, Ints]:
    """Records are lines."""
    count = 2
    for i in range(len(data)):
        count += data[i] == NEWLINE
    starts = np.empty(count, np.int64)
    starts[0] = 0
    at, i = 1, 0
    while i < len(data):
        if i + 8 <= len(data):  # eight bytes at a time while there is no line end among them
            differ = eight(data, i) ^ NEWLINES
            if not (differ - ONES) & ~differ & TOPS:
                i += 8
                continue
        for _ in range(min(8, len(data) - i)):
            starts[at] = i + 1
            at += data[i] == NEWLINE
            i += 1
    if final and starts[at - 1] < len(data):
        starts[at] = len(data)
        at += 1
    return starts[:at], np.arange(at)


@kernel
def cut_delimited(data: Bytes, final: bool, delimiter: int) -> tuple[Ints, Ints]:
    """Records are rows in which a field that begins with a quote runs to its closing quote."""
    count = 2
    for i in range(len(data)):
        count += data[i] in (NEWLINE, RETURN)
    starts, lines = np.zeros(count, np.int64), np.zeros(count, np.int64)
    at, line = 1, 0
    quoted, field_begins = False, True
    for i in range(len(data)):
        byte = data[i]
        line += byte == NEWLINE
        if quoted:
            quoted = byte != QUOTE  # a doubled quote closes and at once opens again
            field_begins = byte == QUOTE and i + 1 < len(data) and data[i + 1] == QUOTE
        elif byte == QUOTE and field_begins:
            quoted, field_begins = True, False
        elif byte == NEWLINE or (byte == RETURN and i + 1 < len(data) and data[i + 1] != NEWLINE):
            starts[at], lines[at] = i + 1, line  # Arrow ends rows at a lone return too
            at += 1
            field_begins = True
        else:
            field_begins = byte == delimiter
    if final and not quoted and starts[at - 1] < len(data):
        starts[at], lines[at] = len(data), line + 1
        at += 1
    return starts[:at], lines[:at]
