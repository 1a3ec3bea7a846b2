"""fastText's own files: ``__label__x __label__y text``, also ``__label__1 , text``."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from manyhands.data.sources.blocks import RecordBlock, blocks, cut_lines
from manyhands.data.sources.source import SEPARATOR, Records, Source, SourcePiece, map_distinct
from manyhands.kernels.compile import Bytes, Ints, kernel
from manyhands.text.ragged import Ragged, from_arrow

PREFIX = b"__label__"
_PREFIX = np.frombuffer(PREFIX, np.uint8)
COMMA, BLANK = 0x2C, 0x20


class Labelled(Source):
    """A line's labels are the words at its head that begin with ``__label__``."""

    suffixes = (".txt",)

    @classmethod
    def knows(cls, head: bytes) -> bool:
        return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(PREFIX)

    def pieces(self) -> Iterator[SourcePiece]:
        for block in blocks(self._stream, cut_lines, "the line is longer than 8 MiB"):
            yield partial(self.parse, block)

    def parse(self, block: RecordBlock) -> Records:
        """The records of a block of lines."""
        rows = block.rows
        splits = np.empty(2 * len(rows) + 1, np.int64)
        _split_labels(rows.data, rows.offsets, _PREFIX, splits)
        halves = Ragged(rows.data, splits).arrow()
        heads, texts = (halves.take(np.arange(k, 2 * len(rows), 2)) for k in (0, 1))
        labels = map_distinct(heads, _label_key, pa.binary()) if self.fields.labelled else None
        whole = block.whole_rows() if self.fields.all_columns else {}
        return Records(block.file, block.lines, from_arrow(texts), labels, lost=block.rejected, **whole)


def _label_key(head: bytes) -> bytes | None:
    """``__label__a __label__b`` as one key; None where there is no label."""
    names = [word.removeprefix(PREFIX) for word in head.split() if word.startswith(PREFIX)]
    return SEPARATOR.encode().join(names) if names else None


@kernel
def _split_labels(data: Bytes, rows: Ints, prefix: Bytes, splits: Ints) -> None:
    """Cut every row in two, labels and text: ``splits`` has both beginnings, and the end of all."""
    for row in range(len(rows) - 1):
        i, end = rows[row], rows[row + 1]
        splits[2 * row] = i
        while True:
            while i < end and (data[i] <= BLANK or data[i] == COMMA):
                i += 1
            k = 0
            while k < len(prefix) and i + k < end and data[i + k] == prefix[k]:
                k += 1
            if k < len(prefix):
                break
            while i < end and data[i] > BLANK:
                i += 1
        splits[2 * row + 1] = i
    splits[-1] = rows[-1]
