"""A dataset as one HDF5 file of equally long rows: ids cut or padded, the label last.

This is the layout that fixed-width trainers expect: datasets ``0``, ``1``, … each of
(rows, length + 1). Ours are contiguous, so that they can be mapped too.
"""

import os
from pathlib import Path

import h5py
import numpy as np

from manyhands.data.dataset import Dataset, Tokens
from manyhands.data.store import new_hdf5
from manyhands.errors import UsageError
from manyhands.kernels.compile import Ints, kernel
from manyhands.records import SPLITS, Progress, Silent
from manyhands.storage.files import cannot_write, new_path
from manyhands.text.vocabulary import PAD

ROWS_AT_ONCE = 4_096
LONGEST = 100_000


def export(
    dataset: Dataset,
    to: str | os.PathLike[str],
    *,
    length: int = 100,
    parts: int = 8,
    progress: Progress | None = None,
) -> int:
    """Write all splits, train first, to the file ``to``; returns how many rows there are.

    Where each split begins stands in the file's attributes.
    """
    if "://" in os.fspath(to):
        raise UsageError(f"{os.fspath(to)}: export writes local files only; name one, then copy it")
    target = Path(to)
    if not (1 <= length <= LONGEST and 1 <= parts <= LONGEST):
        raise UsageError(f"length and parts must be at least 1 and at most {LONGEST:,}")
    if dataset.manifest.labels.multi_label:
        raise UsageError("rows with several labels do not fit the fixed-width layout, which has room for one")
    if target.exists():
        raise UsageError(f"{target} exists already; choose another file")
    try:
        with new_path(target) as place:
            _write(dataset, place, length, parts, progress or Silent())
    except OSError as error:
        raise cannot_write(str(target), error) from None
    return len(dataset)


def _write(dataset: Dataset, path: Path, length: int, parts: int, progress: Progress) -> None:
    bounds = [len(dataset) * part // parts for part in range(parts + 1)]
    largest = max(dataset.vocabulary.ids, len(dataset.label_names))
    dtype = np.dtype("<u2" if largest <= 1 << 16 else "<u4")
    progress.stage("writing", len(dataset), "rows")
    with new_hdf5(path) as file:
        tables = [
            file.create_dataset(str(part), (bounds[part + 1] - bounds[part], length + 1), dtype)
            for part in range(parts)
        ]
        first = 0
        for split in SPLITS:
            file.attrs[f"{split}_begins"] = first
            rows = dataset[split]
            for start in range(0, len(rows), ROWS_AT_ONCE):
                numbers = np.arange(start, min(start + ROWS_AT_ONCE, len(rows)))
                tokens, offsets = rows.take(numbers)
                block = np.full((len(numbers), length + 1), PAD, dtype)
                _fill(tokens, offsets, length, block)
                block[:, length] = np.maximum(rows.labels[numbers], 0)
                _spread(block, first + start, bounds, tables)
                progress.advance(first + start + len(numbers))
            first += len(rows)


def _spread(block: Tokens, row: int, bounds: list[int], tables: list[h5py.Dataset]) -> None:
    """Put rows that begin at ``row`` of all rows into the datasets they belong to."""
    for part, table in enumerate(tables):
        start, end = max(row, bounds[part]), min(row + len(block), bounds[part + 1])
        if start < end:
            table[start - bounds[part] : end - bounds[part]] = block[start - row : end - row]


@kernel
def _fill(tokens: Tokens, offsets: Ints, length: int, block: Tokens) -> None:
    for row in range(len(offsets) - 1):
        for i in range(min(length, offsets[row + 1] - offsets[row])):
            block[row, i] = tokens[offsets[row] + i]
