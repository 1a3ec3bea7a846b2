"""The rows of a run, opened: from a prepared dataset, or from raw files as they are."""

import socket
from dataclasses import dataclass, replace
from typing import Any

from manyhands.bundle.bundle import Bundle, load_bundle
from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.models.model import Model
from manyhands.records import SPLITS, Ledger, Progress, Resources, Silent
from manyhands.settings import LabelScheme, PrepareSettings, TextSettings, option
from manyhands.text.labelled_rows import LabelledRows
from manyhands.text.vocabulary import Vocabulary
from manyhands.training.job import Call, Job, job_for
from manyhands.training.objective import objective_of


@dataclass(frozen=True)
class Splits:
    """The rows of a run by split, and how raw text becomes such rows."""

    train: LabelledRows
    valid: LabelledRows | None
    test: LabelledRows | None
    text: TextSettings
    scheme: LabelScheme
    vocabulary: Vocabulary | None  # None where it has yet to be counted
    names: tuple[str, ...] = ()  # of the files or the dataset
    ledger: Ledger | None = None  # None of raw files


def open_splits(names: tuple[str, ...], job: Job, progress: Progress, rows: int | None = None) -> Splits:
    """Open what is trained on: a prepared dataset, or raw files.

    With ``rows``, only so many rows of a dataset are trained on: the first, which are a random sample,
    since rows stand in the order of their digests.
    """
    labelled = objective_of(job.model).labelled
    prepared = is_dataset(list(names))
    check_reading(names, job, prepared)
    if prepared:
        splits = _open_dataset(names[0], job.previous, labelled)
        return splits if rows is None else replace(splits, train=splits.train.first(rows))
    if rows is not None:
        raise UsageError(
            f"{names[0]} is not prepared: its rows stand in no random order, so the first are no sample"
        )
    known: dict[str, Any] = {}
    if job.previous:
        known = {"text": job.previous.config.text, "labels": job.previous.config.label_scheme}
    settings = PrepareSettings.create(**{**known, **job.reading.model_dump(exclude_unset=True)})
    raw = read_rows(list(names), settings, job.resources, progress, labelled=labelled)
    return Splits(raw.examples, None, None, settings.text, raw.scheme, None, names)


def check_reading(names: tuple[str, ...], job: Job, prepared: bool) -> None:
    """Refuse what was said about reading where nothing is read in that way."""
    for name in job.reading.model_dump(exclude_unset=True):
        if not objective_of(job.model).labelled and name in ("labels", "label_field"):
            raise UsageError(f"{option(name)} is for classifiers; {job.model} learns from any text")
        if prepared:
            raise UsageError(f"{option(name)} is for raw files; {names[0]} is prepared already")


@dataclass(frozen=True)
class Reopened:
    """What the driver of a run has opened, opened by a worker elsewhere."""

    job: Job
    train: LabelledRows  # as they are learnt
    previous: Model | None


def reopen(call: Call, fingerprint: str, resources: Resources) -> Reopened:
    """Open the rows of a run in another process, maybe on another machine; they must be the same rows."""
    try:
        previous = load_bundle(call.continue_from) if call.continue_from else None
        job = job_for(call.model, call.settings, resources, previous=previous)
        splits = open_splits(call.data, job, Silent(), call.rows)
    except InputError as error:
        raise InputError(
            f"{error}; all workers need the files under the same name: in a folder that all machines share, "
            "or at an address such as s3://"
        ) from None
    train = objective_of(call.model).ready(job, splits.train)
    if train.fingerprint != fingerprint:
        raise InputError(
            f"{call.data[0]} holds other rows on {socket.gethostname()} than on the driver; "
            "copy it to all machines"
        )
    return Reopened(job, train, previous.model if previous else None)


def _open_dataset(name: str, previous: Bundle | None, labelled: bool) -> Splits:
    dataset = open_dataset(name)
    manifest = dataset.manifest
    if previous and manifest.settings.text != previous.config.text:
        raise InputError(f"{name} was prepared with other text settings than the bundle to continue from")
    if labelled and previous and manifest.labels.scheme != previous.config.label_scheme:
        raise InputError(
            f"the labels of {name} are {manifest.labels.scheme}, those of the bundle to continue "
            f"from {previous.config.label_scheme}; prepare it with --labels {previous.config.label_scheme}"
        )
    by_split = [rows_of_split(dataset, split, labelled=labelled) for split in SPLITS]
    train, valid, test = (rows if len(rows) else None for rows in by_split)
    if train is None:
        raise InputError(f"{name} has no rows to train on")
    scheme: LabelScheme = manifest.labels.scheme if labelled else "none"
    text, vocabulary = manifest.settings.text, dataset.vocabulary
    return Splits(train, valid, test, text, scheme, vocabulary, (name,), manifest.ledger)
