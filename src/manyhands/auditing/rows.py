"""The rows to be audited: all of a prepared dataset, or of raw files, and where each of them stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from manyhands.data.dataset import Dataset, is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.kernels.compile import Ints
from manyhands.records import SPLITS, Progress, Resources
from manyhands.settings import PrepareSettings, ReadingSettings, option
from manyhands.text.corpus import Corpus
from manyhands.text.labelled_rows import LabelledRows, Labels


@dataclass(frozen=True)
class AuditedRows:
    """``place`` gives the file and line of a row; of a dataset, its split and its number there, from 0."""

    examples: LabelledRows
    place: Callable[[int], tuple[str, int]]


def open_rows(
    names: Sequence[str], reading: ReadingSettings, resources: Resources, progress: Progress
) -> AuditedRows:
    """Rows with one label each; others cannot be audited."""
    if is_dataset(list(names)):
        for name in reading.model_dump(exclude_unset=True):
            raise UsageError(f"{option(name)} is for raw files; {names[0]} is prepared already")
        dataset = open_dataset(names[0])
        bounds = np.cumsum([len(dataset[split]) for split in SPLITS])
        rows = AuditedRows(_all_splits(dataset), partial(_split_and_number, bounds))
    else:
        settings = PrepareSettings.create(**reading.model_dump(exclude_unset=True))
        raw = read_rows(list(names), settings, resources, progress)
        if raw.places is None:
            raise InputError(f"{names[0]} is a table of numbers; audit reads texts")
        rows = AuditedRows(raw.examples, raw.places.of)
    if rows.examples.labels.multi_label:
        raise InputError(f"rows of {names[0]} have several labels each; audit judges rows that have one")
    rows.examples.check_trainable()
    return rows


def _split_and_number(bounds: Ints, row: int) -> tuple[str, int]:
    split = int(np.searchsorted(bounds, row, "right"))
    return SPLITS[split], row - (int(bounds[split - 1]) if split else 0)


def _all_splits(dataset: Dataset) -> LabelledRows:
    """The rows of all splits, one after the other: a test row may have a wrong label as well."""
    parts = [rows_of_split(dataset, split) for split in SPLITS]
    first = parts[0]
    labels = Labels.single(np.concatenate([part.labels.ids for part in parts]), first.labels.names)
    if first.labels.multi_label:
        labels = replace(first.labels, multi_label=True)
    corpora = [part.corpus for part in parts]
    bounds = np.cumsum([0, *map(len, corpora)])
    corpus = replace(
        first.corpus,
        take=partial(_take, corpora, bounds),
        rows=int(bounds[-1]),
        tokens=sum(corpus.tokens for corpus in corpora),
        measure=partial(_measure, corpora, bounds),
        counts=None,
    )
    weights = np.concatenate([part.weights for part in parts])
    return replace(first, corpus=corpus, labels=labels, weights=weights, known_as=None)


def _measure(corpora: list[Corpus], bounds: Ints, rows: Ints) -> Ints:
    lengths = np.zeros(len(rows), np.int64)
    for corpus, begin, end in zip(corpora, bounds[:-1], bounds[1:], strict=True):
        mine = (rows >= begin) & (rows < end)
        lengths[mine] = corpus.lengths(rows[mine] - begin)
    return lengths


def _take(corpora: list[Corpus], bounds: Ints, rows: Ints) -> tuple[npt.NDArray[np.integer], Ints]:
    """Rows of several corpora with the same words; each row's tokens go to where the caller wants them."""
    places = np.append(0, np.cumsum(_measure(corpora, bounds, rows)))
    out = np.empty(places[-1], np.uint32)
    for corpus, begin, end in zip(corpora, bounds[:-1], bounds[1:], strict=True):
        mine = np.flatnonzero((rows >= begin) & (rows < end))
        tokens, offsets = corpus.take(rows[mine] - begin)
        within = np.arange(len(tokens)) - np.repeat(offsets[:-1], np.diff(offsets))
        out[np.repeat(places[mine], np.diff(offsets)) + within] = tokens
    return out, places
