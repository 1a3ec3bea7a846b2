"""``train``: open the rows, have them learnt by a spread, write the bundle and a record of how it went."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from fsspec.core import url_to_fs

from manyhands.bundle.bundle import BUNDLE, RECORD, Bundle, load_bundle, save_bundle
from manyhands.bundle.card import model_card
from manyhands.catalog import SPREADS, TRACKERS, load
from manyhands.kernels.compile import when_compiling
from manyhands.machine import resources_for
from manyhands.records import Progress, Silent
from manyhands.run.record import config_of, record_of
from manyhands.run.unlabelled import check_unlabelled, with_unlabelled
from manyhands.storage.destination import destination
from manyhands.storage.files import reading as errors_of
from manyhands.text.corpus import word_counts
from manyhands.text.vocabulary import Vocabulary, merge_vocabularies, vocabulary_from_counts
from manyhands.training.checkpoint import StoredCheckpoint, alone_in, checkpoint_folder, checkpoint_store
from manyhands.training.choose import with_choice
from manyhands.training.hold_out import with_calibration
from manyhands.training.job import Call, Job, Role, job_for
from manyhands.training.splits import Splits, open_splits
from manyhands.training.trackers import open_tracker

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    bundle: Bundle
    record: dict[str, Any]


def train(
    data: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    model: str = "ngrams",
    spread: str = "single",
    resume: bool = False,
    continue_from: StrPath | None = None,
    checkpoints: StrPath | None = None,
    track: str | None = None,
    overwrite: bool = False,
    rows: int | None = None,
    unlabelled: StrPath | Sequence[StrPath] = (),
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    paid_since: float | None = None,
    chosen: dict[str, Any] | None = None,
    **settings: Any,
) -> Trained | None:
    """Train a model on a prepared dataset, or on raw files as they are, and write it to ``out``.

    ``settings`` are those of the model, of its spread, of training (``TrainingSettings``) and of how raw
    files are read (``ReadingSettings``). ``checkpoints`` is a folder or URL to keep them in. ``rows`` limits
    a prepared dataset to a random sample of so many training rows. ``unlabelled`` texts, in files of any
    format, are learnt from as well, where held-out rows say that it helps. With a ``price``, machines are
    paid for from ``paid_since`` on, a time of day as ``time.time`` gives it: by default from now on.
    ``chosen`` is how settings were chosen by whoever started this worker, for the record.
    Gives None where another worker writes the bundle: of a crew that torchrun has started, or on another
    machine.
    """
    began = time.monotonic()
    watcher = progress or Silent()
    call = Call(
        data=_names(data),
        out=os.fspath(out),
        model=model,
        spread=spread,
        settings=settings,
        continue_from=None if continue_from is None else os.fspath(continue_from),
        resume=resume,
        checkpoints=None if checkpoints is None else os.fspath(checkpoints),
        track=track,
        overwrite=overwrite,
        rows=rows,
        unlabelled=_names(unlabelled),
        paid_since=time.time() if paid_since is None else paid_since,
        chosen=chosen,
    )
    job = job_for(
        model,
        settings,
        resources_for(memory, threads),
        spread=spread,
        previous=None if continue_from is None else load_bundle(continue_from),
        checkpoint=checkpoint_folder(call.out, call.checkpoints),
        resume=resume,
        call=call,
        paid_since=call.paid_since,
    )
    if track is not None:
        load(TRACKERS, "tracker", track)  # a wrong name is told before any work
    if call.unlabelled:
        check_unlabelled(job)
    way = load(SPREADS, "spread", spread)()
    way.check(job)
    if way.launches():
        job = with_choice(job, open_splits(call.data, job, watcher, call.rows).train, watcher)
    role = way.launch(job, threads, watcher)
    if role in (Role.LEADS, Role.FOLLOWS):
        return _learn_and_write(job, call, way, role, watcher, began)
    return _open(call.out) if role is Role.WRITTEN else None


def _names(data: StrPath | Sequence[StrPath]) -> tuple[str, ...]:
    return tuple(os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data))


def _learn_and_write(
    job: Job, call: Call, spread: Any, role: Role, progress: Progress, began: float
) -> Trained | None:
    checkpoints = checkpoint_folder(call.out, call.checkpoints)
    stored: StoredCheckpoint | None = None
    compiled = Event()
    when_compiling(compiled.set)
    with ExitStack() as leading:
        if role is Role.LEADS:
            folder = leading.enter_context(destination(call.out, call.overwrite, BUNDLE))
            leading.enter_context(alone_in(checkpoints))
            stored = _stored_checkpoint(call, checkpoints)
        if stored is not None:
            leading.enter_context(stored.following(progress.say))
        splits, found = open_splits(call.data, job, progress, call.rows), None
        labelled = len(splits.train)
        if call.unlabelled:
            job, splits, found = with_unlabelled(call.unlabelled, job, splits, progress)
        else:
            job = with_choice(job, splits.train, progress)
        if role is Role.FOLLOWS:
            spread.run(job, splits.train, splits.valid, progress)
            return None
        with open_tracker(call.track, checkpoints, folder) as tracker:
            outcome = spread.run(job, splits.train, splits.valid, progress, tracker)
        outcome = with_calibration(job, outcome, splits.train, splits.valid, progress, labelled)
        record = record_of(job, splits, outcome, time.monotonic() - began)
        record["compiled"] = compiled.is_set()
        if found is not None:
            record["unlabelled"] = found
        here = None if "://" in call.out else Path(call.out)
        bundle = Bundle(config_of(job, splits, outcome), outcome.model, here)
        vocabulary = _vocabulary(splits, job.previous, job.resources.threads)
        save_bundle(folder, bundle, vocabulary, model_card(bundle.config, record), record)
    shutil.rmtree(checkpoints, ignore_errors=True)  # not before the bundle stands in its place
    if stored is not None:
        stored.remove(progress.say)
    return Trained(bundle, record)


def _stored_checkpoint(call: Call, checkpoints: Path) -> StoredCheckpoint | None:
    """Where a store keeps the checkpoint of this run; what it has there is fetched, if it is to go on."""
    store = checkpoint_store(call.out, call.checkpoints)
    if store is None:
        return None
    stored = StoredCheckpoint(store, checkpoints)
    if call.resume:
        stored.fetch()
    return stored


def _open(out: str) -> Trained:
    """What processes that were launched have written."""
    with errors_of(out):
        filesystem, place = url_to_fs(out)
        record = json.loads(filesystem.cat_file(f"{place}/{RECORD}"))
    return Trained(load_bundle(out), record)


def _vocabulary(splits: Splits, previous: Bundle | None, threads: int) -> Vocabulary | None:
    """The words of the training rows, and those that an earlier model had seen.

    None of numbers, and none where the model itself keeps its words.
    """
    new, corpus = splits.vocabulary, splits.train.corpus
    if corpus.values is not None or splits.scheme == "none":
        return None
    if new is None:
        new = vocabulary_from_counts(corpus.words, word_counts(corpus, threads))
    if previous is None or not previous.has_vocabulary:
        return new
    return merge_vocabularies(previous.vocabulary, new)
