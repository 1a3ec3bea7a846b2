"""Judging a bundle on rows with labels: of a prepared dataset, or of raw files."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manyhands.bundle.bundle import Bundle, load_bundle
from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.classification import (
    Rating,
    Report,
    evaluate_multi_label,
    evaluate_single_label,
    rates,
    sklearn_rates,
)
from manyhands.evaluation.details import details_of
from manyhands.machine import resources_for
from manyhands.models.model import Classifier, Scores
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import PrepareSettings, option
from manyhands.storage.files import StrPath
from manyhands.text.labelled_rows import LabelledRows


def judge(
    model: Classifier,
    examples: LabelledRows,
    *,
    scores: Scores | None = None,
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    threads: int = 1,
    rating: Rating = rates,
) -> Report:
    """How good the model is on these rows, by the ``scores`` that it gave them."""
    known = examples.with_names(model.labels)
    if scores is None:
        scores = model.scores(known.corpus, threads)
    labels = known.labels
    if labels.multi_label or model.multi_label:
        top = top or (1, 3, 5)
        return evaluate_multi_label(
            scores, labels.ids, labels.offsets, model.labels, threshold=threshold, top=top, rating=rating
        )
    return evaluate_single_label(scores, labels.ids, model.labels, top=top, rating=rating)


def judge_in_detail(model: Classifier, examples: LabelledRows, threads: int) -> tuple[Report, dict[str, Any]]:
    """The same with what a report shows besides: the rates of each label, confusion and calibration."""
    known = examples.with_names(model.labels)
    scores = model.scores(known.corpus, threads)
    report, labels = judge(model, examples, scores=scores, threads=threads), known.labels
    several = labels.multi_label or model.multi_label
    return report, details_of(report, scores, labels.ids, labels.offsets, multi_label=several)


def evaluate(
    bundle: StrPath | Bundle,
    data: StrPath | Sequence[StrPath],
    *,
    split: str | None = None,
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Report:
    """Judge a bundle on a split of a prepared dataset (by default test), or on all rows of raw files."""
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    names = [os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data)]
    resources = resources_for(memory, threads)
    examples = rows_to_judge_by(opened, names, split, reading, resources, progress or Silent())
    _check_labels(examples, opened.labels)
    report = judge(
        opened.classifier,
        examples,
        threshold=threshold,
        top=top,
        threads=resources.threads,
        rating=sklearn_rates,
    )
    return replace(report, left_out=examples.left_out)


def _check_labels(examples: LabelledRows, known: list[str]) -> None:
    """Not one right label is a mistake in the call, and no measure of the model."""
    ids = examples.labels.ids
    found = [examples.labels.names[number] for number in np.unique(ids[ids >= 0])]
    if not {*found} & {*known}:
        ours, theirs = (", ".join(names[:10]) for names in (known, found))
        raise InputError(f"no row has a label of the model, {ours}; the labels of the rows are {theirs}")


def rows_to_judge_by(
    bundle: Bundle,
    names: list[str],
    split: str | None,
    reading: dict[str, Any],
    resources: Resources,
    progress: Progress,
) -> LabelledRows:
    if is_dataset(names):
        for name in reading:
            raise UsageError(f"{option(name)} is for raw files; {names[0]} is prepared already")
        dataset, split = open_dataset(names[0]), split or "test"
        examples = rows_of_split(dataset, split)
        if dataset.manifest.settings.text != bundle.config.text:
            raise InputError(
                f"{names[0]} was prepared with other text settings than the model's; "
                "prepare it with the same, or evaluate on the raw files"
            )
        if not len(examples):
            raise InputError(f"the {split} split of {names[0]} has no rows; choose another with --split")
        return examples
    if split is not None:
        raise UsageError("--split is for prepared datasets; of raw files, all rows are used")
    settings = PrepareSettings.create(
        **{"labels": bundle.config.label_scheme, **reading, "text": bundle.config.text}
    )
    return read_rows(names, settings, resources, progress).examples
