"""``train``: from rows to a bundle, with a record of how it went."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from pydantic_core import to_jsonable_python

from manyhands.catalog import SPREADS, load
from manyhands.errors import WrittenElsewhereError
from manyhands.machine import examine, resources_for
from manyhands.models.bundle import BUNDLE, RECORD, VERSION, Bundle, BundleConfig, save_bundle
from manyhands.models.card import model_card
from manyhands.models.saving import load_bundle
from manyhands.records import Progress, Silent
from manyhands.spread import allreduce, group
from manyhands.spread.crew import check_crew, run_crew
from manyhands.spread.job import Job, Outcome, job_for, refuse_settings_of_others
from manyhands.spread.material import Material, material_of
from manyhands.spread.status import known_run
from manyhands.spread.task import task_of
from manyhands.storage.destination import destination
from manyhands.storage.files import reading as errors_of
from manyhands.text.corpus import word_counts
from manyhands.text.vocabulary import Vocabulary, counted, together
from manyhands.train.checkpoint import alone_in, checkpoint_folder
from manyhands.train.track import Tracker

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
    resume: bool = False,
    continue_from: StrPath | None = None,
    track: str | None = None,
    overwrite: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    reading: dict[str, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Trained:
    """Train a model on a prepared dataset, or on raw files as they are, and write it to ``out``.

    ``settings`` are those of the model and of ``FrameSettings``; ``reading`` says how raw files
    are read, as for ``prepare``.
    """
    began = time.monotonic()
    watcher = progress or Silent()
    names = [os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data)]
    resources = resources_for(memory, threads)
    previous = load_bundle(continue_from) if continue_from is not None else None
    folder = checkpoint_folder(os.fspath(out))
    call = {
        "data": names,
        "model": model,
        "continue_from": None if continue_from is None else os.fspath(continue_from),
        "reading": to_jsonable_python(reading or {}),
    }
    job = job_for(
        model,
        settings,
        resources,
        previous=previous,
        checkpoint=folder,
        resume=resume,
        run=known_run(),
        call=call,
    )
    run = load(SPREADS, "spread", job.spread.spread)
    refuse_settings_of_others(job.spread.spread, settings)
    in_crew = run is allreduce.run
    if in_crew and not group.inside():
        check_crew(job.spread, names)
        rest = {"out": os.fspath(out), "resume": resume, "track": track, "overwrite": overwrite}
        whole = {**call, **rest, "settings": job.given()}
        return _finished(os.fspath(out), run_crew(whole, job.spread, resources, threads, watcher))
    if in_crew and group.rank():  # of a crew, the first worker writes what all have made
        material = material_of(names, reading or {}, job, previous, watcher)
        run(job, material.train, material.valid, watcher)
        raise WrittenElsewhereError("trained; worker 0 writes the bundle")
    with destination(os.fspath(out), overwrite, BUNDLE) as place, alone_in(folder):
        material = material_of(names, reading or {}, job, previous, watcher)
        with Tracker(track, folder, place) as tracker:
            outcome = run(job, material.train, material.valid, watcher, tracker)
        record = record_of(job, material, outcome, time.monotonic() - began)
        here = None if "://" in os.fspath(out) else Path(out)
        bundle = Bundle(config_of(job, material, outcome), outcome.model, here)
        vocabulary = _vocabulary(material, previous, resources.threads)
        save_bundle(place, bundle, vocabulary, model_card(bundle.config, record), record)
    shutil.rmtree(folder, ignore_errors=True)  # not before the bundle stands in its place
    return Trained(bundle, record)


def _finished(out: str, here: bool) -> Trained:
    """What a crew has written."""
    if not here:
        raise WrittenElsewhereError(f"trained; worker 0, on another machine, has written {out} there")
    with errors_of(out):
        filesystem, place = url_to_fs(out)
        record = json.loads(filesystem.cat_file(f"{place}/{RECORD}"))
    return Trained(load_bundle(out), record)


def _vocabulary(material: Material, previous: Bundle | None, threads: int) -> Vocabulary | None:
    """The words of the training rows, and those that an earlier model had seen.

    None of numbers, and none where the model itself keeps its words.
    """
    new = material.vocabulary
    if material.train.corpus.values is not None or material.scheme == "none":
        return None
    if new is None:
        new = counted(material.train.corpus.words, word_counts(material.train.corpus, threads))
    if previous is None or not previous.has_vocabulary:
        return new
    return together(previous.vocabulary, new)


def config_of(job: Job, material: Material, outcome: Outcome) -> BundleConfig:
    """What a bundle of this run says of itself."""
    facts = outcome.model.facts()
    return BundleConfig(
        version=VERSION,
        model=job.model,
        labels=facts.pop("labels", []),
        label_scheme=material.scheme,
        text=material.text,
        facts=facts,
        settings=job.settings.model_dump(),
    )


def record_of(job: Job, material: Material, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The facts of a run, as other tools read them."""
    state, corpus = outcome.state, material.train.corpus
    machine = examine()
    learning = max(state.seconds, 1e-9)
    task = task_of(job.model)
    # Of running text, words are counted as they are seen; otherwise rows are.
    epochs = state.seen / (len(corpus) if task.labelled else corpus.tokens)
    shown = ("epoch", "loss", "examples")
    scores: dict[str, Any] = {"train": [{name: e[name] for name in shown} for e in state.history]}
    if state.best_epoch:
        scores["valid"] = [
            {k: v for k, v in epoch.items() if k not in ("loss", "examples")} for epoch in state.history
        ]
        scores["best_epoch"] = state.best_epoch
    spread = job.spread.model_dump(exclude={"spark_conf"})  # which may hold secrets
    tested = material.test and task.tested(outcome.model, material.test, job.resources.threads)
    if tested:
        scores["test"] = tested
    return {
        "model": job.model,
        **outcome.facts,
        "settings": {**job.settings.model_dump(), **job.frame.model_dump(), **spread},
        "data": {
            "fingerprint": material.train.fingerprint,
            "from": material.names,
            "reading": to_jsonable_python(material.reading),
            "rows": len(material.train),
            "tokens": corpus.tokens,
            "left_out": material.train.left_out,
        },
        "seconds": round(seconds, 3),
        "learning_seconds": round(state.seconds, 3),
        "threads": job.resources.threads,
        "rows_per_second": round(epochs * len(corpus) / learning, 1),
        "tokens_per_second": round(epochs * corpus.tokens / learning, 1),
        "scores": scores,
        "laps": state.laps,
        "machine": {name: machine[name] for name in ("system", "cores", "memory_bytes")},
        "versions": {"manyhands": machine["manyhands"], "python": machine["python"]}
        | {
            part["name"]: part["version"]
            for part in machine["parts"]
            if part["version"] and not part["extra"]
        },
    }
