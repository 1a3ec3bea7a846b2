"""Texts with their labels: what a model is trained on and judged by."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from manyhands.errors import InputError
from manyhands.kernels.compile import Hashes, Ints, kernel
from manyhands.machine import cores
from manyhands.parallel import map_ordered
from manyhands.text.corpus import Corpus, joined
from manyhands.text.hashing import fractions, mix
from manyhands.text.ragged import places_of

Tokens = npt.NDArray[np.integer]
LabelIds = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]

FINGERPRINT_ROWS = 1 << 14
UNKNOWN = -1  # a label that the model does not know
SHARES = 16  # of a row whose label is not sure: so many parts go to its labels


@dataclass(frozen=True)
class Labels:
    """The classes of row ``i`` are ``ids[offsets[i]:offsets[i + 1]]``: one, or several."""

    ids: LabelIds
    offsets: Ints
    names: list[str]
    multi_label: bool = False

    @classmethod
    def single(cls, ids: LabelIds, names: list[str]) -> "Labels":
        return cls(ids, np.arange(len(ids) + 1), names)

    @classmethod
    def shared(cls, probabilities: npt.NDArray[np.floating], names: list[str]) -> "Labels":
        """Rows that are of several classes to a part: each of ``SHARES`` equal parts goes to one class.

        The labels of a row share what it counts, so a class that stands there more often gets more of it.

        >>> Labels.shared(np.array([[0.9, 0.1], [0.5, 0.5]]), ["bad", "good"]).take(np.array([0])).ids
        array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], dtype=int32)
        """
        ends = np.round(np.cumsum(probabilities, axis=1, dtype=np.float64) * SHARES).astype(np.int64)
        ends[:, -1] = SHARES
        parts = np.diff(ends, axis=1, prepend=0)
        ids = np.repeat(np.tile(np.arange(len(names), dtype=np.int32), len(parts)), parts.ravel())
        return cls(ids, np.arange(len(parts) + 1) * SHARES, names)

    @classmethod
    def none(cls, rows: int) -> "Labels":
        """Rows without any."""
        return cls(np.zeros(0, np.int32), np.zeros(rows + 1, np.int64), [])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def joined(self, others: "Labels") -> "Labels":
        """With those of other rows behind them; both number the same names."""
        offsets = np.concatenate([self.offsets, others.offsets[1:] + self.offsets[-1]])
        return Labels(np.concatenate([self.ids, others.ids]), offsets, self.names, self.multi_label)

    def take(self, rows: Ints) -> "Labels":
        places, offsets = places_of(self.offsets, rows)
        return Labels(self.ids[places], offsets, self.names, self.multi_label)


@dataclass(frozen=True)
class LabelledRows:
    """All that a model is trained on: texts, their labels, and how much each row counts."""

    corpus: Corpus
    labels: Labels
    weights: Weights
    left_out: int = 0  # rows of the input without a text or a label that could be used
    shuffled: bool = False  # they stand in random order
    known_as: str | None = None  # the fingerprint, where whoever opened the rows had it at hand

    def check_trainable(self, continued: bool = False) -> None:
        """Two labels at least; ``continued``, one will do, as the model has met the others before."""
        if not len(self):
            raise InputError("there is no row to train on")
        if continued:
            return
        counts = np.bincount(self.labels.ids, minlength=len(self.labels.names))
        if np.count_nonzero(counts) < 2:
            only = f"'{self.labels.names[int(counts.argmax())]}'" if counts.any() else "none"
            raise InputError(f"all rows to train on have the same label, {only}; at least two are needed")

    def with_names(self, names: list[str]) -> "LabelledRows":
        """The same rows, labelled by their places among ``names``; UNKNOWN where a label is not there."""
        place = {name: number for number, name in enumerate(names)}
        new = np.array([place.get(name, UNKNOWN) for name in self.labels.names] + [UNKNOWN], np.int32)
        labels = Labels(new[self.labels.ids], self.labels.offsets, names, self.labels.multi_label)
        return replace(self, labels=labels)

    def take(self, rows: Ints) -> "LabelledRows":
        """These rows only."""
        return replace(
            self,
            corpus=self.corpus.some(rows),
            labels=self.labels.take(rows),
            weights=self.weights[rows],
            known_as=None,
        )

    def joined(self, others: "LabelledRows") -> "LabelledRows":
        """With other rows behind them."""
        return LabelledRows(
            joined(self.corpus, others.corpus),
            self.labels.joined(others.labels),
            np.concatenate([self.weights, others.weights]),
            self.left_out,
            known_as=f"{self.fingerprint}+{others.fingerprint}",
        )

    def first(self, rows: int) -> "LabelledRows":
        """So many rows, or all if there are no more."""
        if rows >= len(self):
            return self
        return replace(self.take(np.arange(rows)), known_as=self.known_as and f"{self.known_as}-{rows}")

    @property
    def unequal_weights(self) -> Weights | None:
        """How much each row counts; None if all count alike."""
        return None if len(self) == 0 or (self.weights == self.weights[0]).all() else self.weights

    def held_out(self, share: float, seed: int = 0) -> "tuple[LabelledRows, LabelledRows]":
        """All but a share of the rows, and that share: drawn by their texts, so equal ones stay together."""
        parts = [
            np.arange(start, min(start + FINGERPRINT_ROWS, len(self)))
            for start in range(0, len(self), FINGERPRINT_ROWS)
        ]
        digests = [self._digests(rows) for rows in parts]
        drawn = fractions(np.concatenate([np.empty(0, np.uint64), *digests]), seed) < share
        return self.take(np.flatnonzero(~drawn)), self.take(np.flatnonzero(drawn))

    def _digests(self, rows: Ints) -> Hashes:
        out = np.empty(len(rows), np.uint64)
        _digest(*self.corpus.take(rows), self.corpus.hashes, out)
        return out

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same rows in the same order, however their words are numbered."""
        if self.known_as is not None:
            return self.known_as
        parts = map_ordered(self._fingerprint_of, range(0, len(self), FINGERPRINT_ROWS), cores())
        return hashlib.sha256(b"".join(part.to_bytes(8, "little") for part in parts)).hexdigest()[:16]

    def _fingerprint_of(self, start: int) -> int:
        rows = np.arange(start, min(start + FINGERPRINT_ROWS, len(self)))
        tokens, offsets = self.corpus.take(rows)
        labels = self.labels.take(rows)
        return int(_fold(np.uint64(0), tokens, offsets, self.corpus.hashes, labels.ids, self.weights[rows]))


@kernel
def _digest(tokens: Tokens, offsets: Ints, hashes: Hashes, out: Hashes) -> None:
    for row in range(len(out)):
        value = np.uint64(0)
        for i in range(offsets[row], offsets[row + 1]):
            value = mix(value + hashes[tokens[i]])
        out[row] = value


@kernel
def _fold(
    value: np.uint64, tokens: Tokens, offsets: Ints, hashes: Hashes, labels: LabelIds, weights: Weights
) -> np.uint64:
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            value = (value ^ hashes[tokens[i]]) * np.uint64(0x100000001B3)
        value = mix(value + np.uint64(weights[row] * np.float32(1024)))
    for label in labels:
        value = mix(value + np.uint64(label))
    return value
