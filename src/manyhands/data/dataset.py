"""A prepared dataset, open for reading: arrays mapped from disk, nothing copied until asked for."""

import hashlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from manyhands.data.manifest import DATASET, LARGEST_BYTES, Manifest, PartFacts
from manyhands.data.manifest import FILE as MANIFEST_FILE
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints, kernel
from manyhands.records import SPLITS
from manyhands.storage.cache import local_copy
from manyhands.storage.files import STDIN, reading
from manyhands.text.normalise import Normaliser
from manyhands.text.vocabulary import Vocabulary

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

# The arrays of a part, and the types that each may have.
ARRAYS = {
    "tokens": ("<u2", "<u4"),
    "offsets": ("<i8",),
    "labels": ("<i4",),
    "weights": ("<f4",),
    "label_offsets": ("<i8",),
}


def open_dataset(path: str | os.PathLike[str]) -> "Dataset":
    """Open what ``prepare`` made; a remote one is fetched once and kept."""
    folder = _local_copy(os.fspath(path))
    return Dataset(folder, Manifest.load(folder))


def is_dataset(names: list[str]) -> bool:
    """Whether a single name stands for what ``prepare`` made."""
    if len(names) != 1 or names[0] == STDIN:
        return False
    with reading(names[0]):
        filesystem, path = url_to_fs(names[0])
        return bool(filesystem.isfile(f"{path.rstrip('/')}/{MANIFEST_FILE}"))


def _local_copy(path: str) -> Path:
    """The folder itself if it is local, else its copy, named by the manifest's checksum.

    Only local files can be mapped, so a remote dataset is fetched once into the user's cache folder.
    """
    with reading(path):
        filesystem, remote = url_to_fs(path)
        if isinstance(filesystem, LocalFileSystem):
            return Path(path.removeprefix("file://"))
        if not filesystem.exists(f"{remote}/{MANIFEST_FILE}"):
            raise InputError(f"{path} is not a complete dataset (it has no manifest); prepare it first")
        if filesystem.size(f"{remote}/{MANIFEST_FILE}") > LARGEST_BYTES:
            raise InputError(f"{path}/{MANIFEST_FILE} is too large to be a manifest")
        stored = filesystem.cat_file(f"{remote}/{MANIFEST_FILE}")

        def fetch(folder: Path) -> None:
            (folder / MANIFEST_FILE).write_bytes(stored)
            manifest = Manifest.load(folder)
            for name in [part.name for part in manifest.parts] + list(manifest.files):
                filesystem.get_file(f"{remote}/{name}", str(folder / name))
            manifest.verify(folder)

        return local_copy("datasets", hashlib.sha256(stored).hexdigest()[:32], DATASET, fetch)


class Dataset:
    """The splits, labels and words of a prepared dataset."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        parts = {split: [p for p in manifest.parts if p.split == split] for split in SPLITS}
        if not all(parts.values()) or sum(part.rows for part in manifest.parts) != manifest.rows:
            raise InputError(f"the manifest of {folder} does not fit its parts; prepare the dataset again")
        self._splits = {split: Split([_map(folder, part) for part in parts[split]]) for split in SPLITS}

    def __len__(self) -> int:
        return self.manifest.rows

    def __getitem__(self, split: str) -> "Split":
        if split not in self._splits:
            raise InputError(f"there is no split '{split}'; there are: {', '.join(SPLITS)}")
        return self._splits[split]

    def __repr__(self) -> str:
        counts = ", ".join(f"{split} {len(rows):,}" for split, rows in self._splits.items())
        return f"<dataset {self.folder}: {counts}>"

    @property
    def label_names(self) -> list[str]:
        return self.manifest.labels.names

    @cached_property
    def vocabulary(self) -> Vocabulary:
        vocabulary = Vocabulary.load(self.folder)
        if len(vocabulary) != self.manifest.vocabulary:
            raise InputError(f"the vocabulary of {self.folder} is incomplete; prepare the dataset again")
        return vocabulary

    @cached_property
    def normaliser(self) -> Normaliser:
        """The way from raw text to this dataset's tokens."""
        return Normaliser(self.manifest.settings.text)

    def verify(self) -> None:
        """Read every file and compare it with its checksum."""
        self.manifest.verify(self.folder)


@dataclass(frozen=True)
class MappedPart:
    """The arrays of one part, as they lie in the file."""

    tokens: Tokens
    offsets: Ints  # within the split; the first is where this part's tokens begin
    labels: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    label_offsets: Ints | None


class Split:
    """Rows of tokens with their labels and weights: ``split[5]`` is a view of the sixth row."""

    def __init__(self, parts: list[MappedPart]) -> None:
        self.parts = parts
        self._first_rows = np.cumsum([0] + [len(part.weights) for part in parts])
        self._only = parts[0] if len(parts) == 1 else None

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    @property
    def tokens(self) -> int:
        """How many tokens all rows have."""
        return int(self.parts[-1].offsets[-1])

    @overload
    def __getitem__(self, row: int) -> Tokens: ...

    @overload
    def __getitem__(self, row: slice) -> list[Tokens]: ...

    def __getitem__(self, row: int | slice) -> Tokens | list[Tokens]:
        """The tokens of a row, as they lie in the file; of several for a slice."""
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        if self._only is not None:
            part = self._only
        else:
            number = int(np.searchsorted(self._first_rows, row, "right")) - 1
            part, row = self.parts[number], row - int(self._first_rows[number])
        base = part.offsets[0]
        return part.tokens[part.offsets[row] - base : part.offsets[row + 1] - base]

    def __iter__(self) -> Iterator[Tokens]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> tuple[Tokens, Ints]:
        """The tokens of any rows, one after the other, and where each row begins among them."""
        wanted = np.asarray(rows, np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"rows from {wanted.min()} to {wanted.max()} of {len(self)}")
        offsets = np.append(0, np.cumsum(self.lengths(wanted)))
        out = np.empty(offsets[-1], self.parts[0].tokens.dtype)
        for part, first in zip(self.parts, self._first_rows, strict=False):
            _gather(part.tokens, part.offsets, wanted, first, offsets, out)
        return out, offsets

    def lengths(self, rows: npt.NDArray[np.integer[Any]] | None = None) -> Ints:
        """How many tokens each row has; of all rows if none are named."""
        if rows is None:
            return np.concatenate([np.diff(part.offsets) for part in self.parts])
        out = np.zeros(len(rows), np.int64)
        for part, first in zip(self.parts, self._first_rows, strict=False):
            if not _measure(part.offsets, len(part.tokens), np.asarray(rows, np.int64), first, out):
                raise InputError("the dataset is damaged: a row lies outside of its part; prepare it again")
        return out

    @cached_property
    def labels(self) -> npt.NDArray[np.int32]:
        """The class of each row; of rows with several labels, all of them (see ``label_offsets``)."""
        return _joined([part.labels for part in self.parts])

    @cached_property
    def weights(self) -> npt.NDArray[np.float32]:
        return _joined([part.weights for part in self.parts])

    @cached_property
    def label_offsets(self) -> Ints | None:
        """Where each row's labels begin, if rows have several; else None."""
        offsets = [part.label_offsets for part in self.parts]
        if offsets[0] is None:
            return None
        return np.concatenate([o[:-1] for o in offsets if o is not None] + [offsets[-1][-1:]])  # type: ignore[index]


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _map(folder: Path, facts: PartFacts) -> MappedPart:
    """Check the part's size and map its arrays."""
    path = folder / facts.name
    if not path.is_file():
        raise InputError(f"part {facts.name} of {folder} is missing; prepare the dataset again")
    if path.stat().st_size != facts.bytes:
        raise InputError(
            f"part {facts.name} of {folder} has {path.stat().st_size:,} bytes, not {facts.bytes:,}; "
            "prepare the dataset again"
        )
    import h5py  # noqa: PLC0415

    try:
        with h5py.File(path, "r") as file, path.open("rb") as raw:
            memory = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)
            arrays = {name: _view(memory, file, name) for name in ARRAYS if name in file}
        label_offsets = arrays.pop("label_offsets", None)
        lengths = {name: len(array) for name, array in arrays.items()}
        labels = facts.rows if label_offsets is None else lengths.get("labels")
        rows = {"offsets": facts.rows + 1, "labels": labels, "weights": facts.rows}
        if lengths != {"tokens": facts.tokens, **rows}:
            raise ValueError("its arrays are not as long as the manifest says")
        if label_offsets is not None and len(label_offsets) != facts.rows + 1:
            raise ValueError("its labels are not as many as the manifest says")
        part = MappedPart(**arrays, label_offsets=label_offsets)
        if part.offsets[-1] - part.offsets[0] != facts.tokens:
            raise ValueError("its rows do not fit its tokens")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"part {facts.name} of {folder} is damaged ({error}); prepare the dataset again"
        ) from None
    return part


def _view(memory: mmap.mmap, file: Any, name: str) -> npt.NDArray[Any]:
    dataset = file[name]
    if getattr(dataset, "ndim", 0) != 1 or dataset.dtype.str not in ARRAYS[name]:  # a group has none
        raise ValueError(f"its {name} are of another kind")
    if not dataset.size:
        return np.empty(0, dataset.dtype)
    place = dataset.id.get_offset()
    if place is None:
        raise ValueError(f"its {name} are not contiguous")
    return np.frombuffer(memory, dataset.dtype, dataset.size, place)


@kernel
def _measure(offsets: Ints, tokens: int, rows: Ints, first: int, out: Ints) -> bool:
    """Fill ``out`` with the lengths of the rows of this part; False if one is not within its tokens."""
    for k in range(len(rows)):
        row = rows[k] - first
        if 0 <= row < len(offsets) - 1:
            start, end = offsets[row] - offsets[0], offsets[row + 1] - offsets[0]
            if not 0 <= start <= end <= tokens:
                return False
            out[k] = end - start
    return True


@kernel
def _gather(tokens: Tokens, offsets: Ints, rows: Ints, first: int, places: Ints, out: Tokens) -> None:
    for k in range(len(rows)):
        row = rows[k] - first
        if 0 <= row < len(offsets) - 1:
            start, at = offsets[row] - offsets[0], places[k]
            for i in range(places[k + 1] - at):
                out[at + i] = tokens[start + i]
