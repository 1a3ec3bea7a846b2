"""Plain text without labels, a document a line: what word vectors are learned from."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from manyhands.data.sources.blocks import NEWLINE, RecordBlock, blocks, cut_lines
from manyhands.data.sources.source import Records, Source, SourcePiece
from manyhands.kernels.compile import Bytes, Ints, kernel

# A longer line is cut into documents at a blank: text8 is one line of 100 MB, and rows of a
# megabyte could be neither shuffled nor split.
LONGEST_DOCUMENT_BYTES = 64 << 10


class PlainText(Source):
    suffixes = (".txt", ".text")
    labelled = False

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return True

    def pieces(self) -> Iterator[SourcePiece]:
        cut, too_long = cut_documents, "no blank in 8 MiB"
        if self.fields.whole_lines:
            cut, too_long = cut_lines, "the line is longer than 8 MiB"
        for block in blocks(self._stream, cut, too_long):
            yield partial(self.parse, block)

    def parse(self, block: RecordBlock) -> Records:
        """The records of a block of lines."""
        whole = block.whole_rows() if self.fields.all_columns else {}
        return Records(block.file, block.lines, block.rows, lost=block.rejected, **whole)


@kernel
def cut_documents(data: Bytes, final: bool) -> tuple[Ints, Ints]:
    """Records are lines, and long lines are cut at the first blank past the limit."""
    most = len(data) // LONGEST_DOCUMENT_BYTES + np.sum(data == NEWLINE) + 2
    starts, lines = np.zeros(most, np.int64), np.zeros(most, np.int64)
    at, line = 1, 0
    for i in range(len(data)):
        line += data[i] == NEWLINE
        long = data[i] <= 0x20 and i - starts[at - 1] >= LONGEST_DOCUMENT_BYTES
        if data[i] == NEWLINE or long:
            starts[at], lines[at] = i + 1, line
            at += 1
    if final and starts[at - 1] < len(data):
        starts[at], lines[at] = len(data), line + 1
        at += 1
    return starts[:at], lines[:at]
