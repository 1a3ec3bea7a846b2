"""The dataset on disk: HDF5 parts that readers map into memory, and a manifest that is written last.

A split is one or more parts. Each part holds ``tokens``, ``offsets`` (one more than rows,
counted over the whole split), ``labels`` and ``weights``; with several labels a row, ``labels``
is ragged too, under ``label_offsets``. All are contiguous and uncompressed, so a reader needs
HDF5 only to learn where each array lies. ``dataset.h5`` shows all parts as one file.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

PART_TOKENS = 1 << 26
MOST_PARTS = 512  # of a split: all are open at once while they are written
ALIGNMENT = 4096  # bytes: every array begins on a page of its own
WHOLE = "dataset.h5"
OFFSETS = ("offsets", "label_offsets")


@dataclass(frozen=True)
class PartPlan:
    """One part before it is written: its arrays by name, and where in its split each begins."""

    name: str
    split: str
    shapes: dict[str, int]
    dtypes: dict[str, str]
    starts: dict[str, int]


def parts_needed(tokens: int) -> int:
    """A power of two, so that the leading bits of a row's digest name its part."""
    return min(MOST_PARTS, 1 << max(0, (tokens - 1) // PART_TOKENS).bit_length())


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """A new HDF5 file of a format that does not change with the library's version."""
    try:
        with h5py.File(path, "w", libver="v110", alignment_threshold=1, alignment_interval=ALIGNMENT) as file:
            yield file
    except (RuntimeError, OSError) as error:  # HDF5 tells a full disk as text
        number = re.search(r"errno = (\d+)", str(error))
        if not number:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


class PartWriter:
    """An HDF5 file whose arrays are laid out first and filled in any order, from any thread."""

    def __init__(self, folder: Path, plan: PartPlan) -> None:
        self.plan = plan
        self.path = folder / plan.name
        self._places: dict[str, int] = {}
        with new_hdf5(self.path) as file:
            for name, length in plan.shapes.items():
                self._places[name] = _lay_out(file, name, length, plan.dtypes[name])
        self._descriptor = os.open(self.path, os.O_WRONLY)

    def write(self, name: str, start: int, values: npt.NDArray[np.generic]) -> None:
        """Put ``values`` into the array ``name``, from element ``start`` of this part."""
        dtype = np.dtype(self.plan.dtypes[name])
        data = np.ascontiguousarray(values, dtype).data.cast("B")
        at = self._places[name] + start * dtype.itemsize
        while data:
            written = os.pwrite(self._descriptor, data, at)
            data, at = data[written:], at + written

    def close(self) -> None:
        os.close(self._descriptor)


def _lay_out(file: h5py.File, name: str, length: int, dtype: str) -> int:
    """Make a contiguous dataset and allocate it now; returns where in the file it lies."""
    creation = _creation(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return _create(file, name, length, dtype, creation).get_offset() or 0


def _creation(layout: int) -> h5py.h5p.PropDCID:
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(layout)
    creation.set_obj_track_times(False)  # or no two runs would give the same bytes
    return creation


def _create(
    group: h5py.Group, name: str, length: int, dtype: str, creation: h5py.h5p.PropDCID
) -> h5py.h5d.DatasetID:
    kind, space = h5py.h5t.py_create(np.dtype(dtype)), h5py.h5s.create_simple((length,))
    return h5py.h5d.create(group.id, name.encode(), kind, space, dcpl=creation)


def write_whole(folder: Path, plans: list[PartPlan]) -> None:
    """``dataset.h5``: a group for each split, in which every array of its parts stands as one."""
    with new_hdf5(folder / WHOLE) as file:
        for split in dict.fromkeys(plan.split for plan in plans):
            group = file.create_group(split)
            parts = [plan for plan in plans if plan.split == split]
            for name in parts[0].shapes:
                _join(group, name, parts)


def _join(group: h5py.Group, name: str, parts: list[PartPlan]) -> None:
    last = parts[-1]
    whole = h5py.h5s.create_simple((last.starts[name] + last.shapes[name],))
    creation = _creation(h5py.h5d.VIRTUAL)
    for part in parts:
        # A part's offsets end where the next one's begin: that value is shown once.
        shown = part.shapes[name] - (name in OFFSETS and part is not last)
        if shown:
            source = h5py.h5s.create_simple((part.shapes[name],))
            source.select_hyperslab((0,), (shown,))
            whole.select_hyperslab((part.starts[name],), (shown,))
            creation.set_virtual(whole, part.name.encode(), name.encode(), source)
    _create(group, name, last.starts[name] + last.shapes[name], last.dtypes[name], creation)
