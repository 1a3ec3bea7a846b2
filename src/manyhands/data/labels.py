"""From the labels as they stand in the input to classes: star schemes, names as they are, or none."""

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from manyhands.data.sources.source import SEPARATOR, Source
from manyhands.errors import InputError
from manyhands.kernels.compile import Ints
from manyhands.settings import LabelScheme

LabelIds = npt.NDArray[np.int32]

MOST_LABELS = 1 << 20
NO_LABEL = "no label"
NEUTRAL = "3 stars, left out by polarity-strict"  # asked for: does not count against --max-rejected
NO_STARS = "the label is not a whole number of stars from 1 to 5"
UNLABELLED = -1
WHOLE_NUMBER = re.compile(r"^(-?[0-9]+)\.0+$")
NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]+)?")


@dataclass(frozen=True)
class Classes:
    """The classes of a dataset, and those of every label in the input (several, where it had several)."""

    names: list[str]
    of_label: list[list[int]]

    @property
    def multi_label(self) -> bool:
        return any(len(classes) > 1 for classes in self.of_label)

    def flatten(self) -> tuple[LabelIds, Ints]:
        """The classes of all labels one after the other, and where each label's begin."""
        flat = np.array([number for classes in self.of_label for number in classes], np.int32)
        return flat, np.cumsum([0] + [len(classes) for classes in self.of_label])


def resolve_scheme(asked: LabelScheme, source: Source) -> LabelScheme:
    """What labels mean: the scheme asked for, or the one that fits the (first) file."""
    if asked != "auto":
        return asked
    return "none" if not source.labelled else "polarity" if source.rates_stars else "as-is"


class LabelEncoder:
    """Numbers the distinct labels of the input while it is read; safe to share between threads."""

    def __init__(self, scheme: LabelScheme, keys: Iterable[str] = ()) -> None:
        self.scheme = scheme
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {key: number for number, key in enumerate(keys)}
        self._refuse_too_many()
        if scheme == "none":
            self._ids[""] = 0

    def encode(self, labels: pa.Array | None, count: int) -> tuple[LabelIds, dict[int, str]]:
        """An id for each row, and the reason for each row whose label cannot be used."""
        if self.scheme == "none":
            return np.zeros(count, np.int32), {}
        if labels is None:
            return np.full(count, UNLABELLED, np.int32), dict.fromkeys(range(count), NO_LABEL)
        if isinstance(labels, pa.ChunkedArray):
            labels = labels.combine_chunks()
        encoded = labels if isinstance(labels, pa.DictionaryArray) else labels.dictionary_encode()
        known = [self._id(label) for label in encoded.dictionary.to_pylist()]
        indices = encoded.indices.fill_null(len(known)).to_numpy().astype(np.int64)
        ids = np.array([number for number, _ in known] + [UNLABELLED], np.int32)[indices]
        reasons = [reason for _, reason in known] + [NO_LABEL]
        return ids, {row: reasons[indices[row]] for row in np.flatnonzero(ids == UNLABELLED).tolist()}

    def _id(self, label: bytes | str | None) -> tuple[int, str]:
        """The id of a label, or UNLABELLED and why."""
        try:
            name = label.decode() if isinstance(label, bytes) else label or ""
        except UnicodeDecodeError:
            return UNLABELLED, "the label is not valid UTF-8"
        key = SEPARATOR.join(sorted({_plain(part) for part in name.split(SEPARATOR)} - {""}))
        if not key:
            return UNLABELLED, NO_LABEL
        if self.scheme != "as-is":
            if key not in ("1", "2", "3", "4", "5"):
                return UNLABELLED, NO_STARS
            if key == "3" and self.scheme == "polarity-strict":
                return UNLABELLED, NEUTRAL
        with self._lock:
            number = self._ids.setdefault(key, len(self._ids))
            self._refuse_too_many()
            return number, ""

    def _refuse_too_many(self) -> None:
        if len(self._ids) > MOST_LABELS:
            raise InputError(f"more than {MOST_LABELS:,} different labels; is the label field the right one?")

    def keys(self) -> list[str]:
        """The labels in order of their ids."""
        return list(self._ids)

    @property
    def numeric(self) -> bool:
        """All labels are numbers."""
        return all(_is_number(key) for key in self._ids)

    def order(self, numeric: bool = True) -> tuple[LabelIds, npt.NDArray[np.float64]]:
        """For each id, its place among all labels, and its value (0 where labels are not numbers).

        Who knows only some of the labels says whether all of them are ``numeric``.
        """
        keys = self.keys()
        numeric = numeric and self.numeric
        ranked = sorted(keys, key=(lambda key: (float(key), key)) if numeric else None)
        place = {key: rank for rank, key in enumerate(ranked)}
        values = [float(key) if numeric else 0.0 for key in keys]
        return np.array([place[key] for key in keys], np.int32), np.array(values, np.float64)

    def classes(self, rates_stars: bool) -> Classes:
        """What every label becomes. ``rates_stars``: the labels were found to be ratings."""
        keys = self.keys()
        if self.scheme == "none":
            return Classes([], [[] for _ in keys])
        if self.scheme == "stars":
            return Classes(["1", "2", "3", "4", "5"], [[int(key) - 1] for key in keys])
        if self.scheme in ("polarity", "polarity-strict"):
            # Zhang's polarity files hold classes, 1 and 2, and not stars: 2 is the positive one.
            least_positive = 2 if not rates_stars and set(keys) <= {"1", "2"} else 4
            return Classes(["negative", "positive"], [[int(int(key) >= least_positive)] for key in keys])
        names = {name for key in keys for name in key.split(SEPARATOR)}
        numeric = all(_is_number(name) for name in names)
        ordered = sorted(names, key=(lambda name: (float(name), name)) if numeric else None)
        place = {name: number for number, name in enumerate(ordered)}
        return Classes(ordered, [[place[name] for name in key.split(SEPARATOR)] for key in keys])


def _plain(label: str) -> str:
    """The label without blanks around it, and a whole number without its point: 5.0 is 5."""
    return WHOLE_NUMBER.sub(r"\1", label.strip())


def _is_number(label: str) -> bool:
    return NUMBER.fullmatch(label) is not None
