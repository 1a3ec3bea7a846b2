"""Judging a bundle on rows with labels: of a prepared dataset, or of raw files."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from manyhands.bundle.bundle import Bundle, load_bundle, load_classifier
from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.labelled_rows import read_rows, rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.classification import (
    Rating,
    Report,
    best,
    evaluate_multi_label,
    evaluate_single_label,
    likely_labels,
    rates,
    sklearn_rates,
    table,
)
from manyhands.evaluation.details import details_of, with_reliability
from manyhands.evaluation.intervals import compare_pairs, macro_f1, marks_of
from manyhands.evaluation.thresholds import thresholds_for
from manyhands.machine import resources_for
from manyhands.models.model import Scorer, Scores
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import PrepareSettings, option
from manyhands.storage.files import StrPath
from manyhands.text.labelled_rows import LabelledRows


def judge(
    model: Scorer,
    examples: LabelledRows,
    *,
    scores: Scores | None = None,
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    threads: int = 1,
    rating: Rating = rates,
) -> Report:
    """How good the model is on these rows, by the ``scores`` that it gave them and by the weights of rows."""
    known = examples.with_names(model.labels)
    if scores is None:
        scores = model.scores(known.corpus, threads)
    labels, weights = known.labels, known.unequal_weights
    if labels.multi_label or model.multi_label:
        return evaluate_multi_label(
            scores,
            labels.ids,
            labels.offsets,
            model.labels,
            weights=weights,
            threshold=threshold,
            top=top or (1, 3, 5),
            rating=rating,
        )
    return evaluate_single_label(scores, labels.ids, model.labels, weights=weights, top=top, rating=rating)


def judge_in_detail(
    model: Scorer, examples: LabelledRows, threads: int, scores: Scores | None = None, **options: Any
) -> tuple[Report, dict[str, Any]]:
    """The same with what a report shows besides: the rates of each label, confusion and calibration."""
    known = examples.with_names(model.labels)
    if scores is None:
        scores = model.scores(known.corpus, threads)
    report, labels = judge(model, examples, scores=scores, **options), known.labels
    several = labels.multi_label or model.multi_label
    report = with_reliability(report, scores, labels.ids, labels.offsets, known.unequal_weights, several)
    return report, details_of(report, scores, labels.ids, multi_label=several)


def evaluate(
    bundle: StrPath | Bundle,
    data: StrPath | Sequence[StrPath],
    *,
    split: str | None = None,
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    precision: float | None = None,
    against: StrPath | Bundle | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Report:
    """Judge a bundle on a split of a prepared dataset (by default test), or on all rows of raw files.

    With ``precision``, also tell from which probability on so many answers are right. ``against`` is another
    bundle, to be compared with on the same rows.
    """
    if precision is not None and not 0 < precision <= 1:
        raise UsageError(f"--precision must be above 0 and at most 1, not {precision:g}")
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    names = [os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data)]
    resources, watcher = resources_for(memory, threads), progress or Silent()
    examples = rows_to_judge_by(opened, names, split, reading, resources, watcher)
    _check_labels(examples, opened.labels)
    model = opened.classifier
    known = examples.with_names(model.labels)
    scores = model.scores(known.corpus, resources.threads)
    report, _ = judge_in_detail(
        model, examples, resources.threads, scores, threshold=threshold, top=top, rating=sklearn_rates
    )
    report = replace(report, left_out=examples.left_out)
    if precision is not None:
        labels = known.labels
        several = labels.multi_label or model.multi_label
        weights = known.unequal_weights
        found = thresholds_for(
            precision, scores, labels.ids, labels.offsets, model.labels, weights=weights, multi_label=several
        )
        report = replace(report, answered=found)
    if against is not None:
        other = against if isinstance(against, Bundle) else load_classifier(against)
        rows = rows_to_judge_by(other, names, split, reading, resources, watcher)
        others = other.classifier.scores(rows.corpus, resources.threads)
        both = (_Judged(model, examples, scores), _Judged(other.classifier, rows, others))
        compared = _compare(*both, threshold)
        name = str(other.folder) if isinstance(against, Bundle) else os.fspath(against)
        report = replace(report, against={"bundle": name, **compared})
    return report


class _Judged(NamedTuple):
    """A model, rows, and the scores that it gave them."""

    model: Scorer
    rows: LabelledRows
    scores: Scores

    def predicted(self, names: list[str], threshold: float) -> Any:
        """What it says of each row, as a table of rows by the labels of ``names``."""
        several = self.rows.labels.multi_label or self.model.multi_label
        if several:
            marks = likely_labels(self.scores, threshold)
            ids, offsets = marks.indices, marks.indptr
        else:
            ids, offsets = best(self.scores, 1)[:, 0], np.arange(len(self.scores) + 1)
        place = {name: number for number, name in enumerate(names)}
        return table(np.array([place[name] for name in self.model.labels])[ids], offsets, len(names))


def _compare(first: _Judged, second: _Judged, threshold: float) -> dict[str, Any]:
    names = list(dict.fromkeys([*first.model.labels, *second.model.labels]))
    one, other = (judged.rows.with_names(names).labels for judged in (first, second))
    if not (np.array_equal(one.ids, other.ids) and np.array_equal(one.offsets, other.offsets)):
        raise InputError(
            "the two models do not read the same rows and labels of this data, because their text or label "
            "settings differ; compare models that were trained with the same"
        )
    true = table(one.ids, one.offsets, len(names))
    weights = first.rows.unequal_weights
    marks = [marks_of(true, judged.predicted(names, threshold), weights) for judged in (first, second)]
    found = compare_pairs(*marks)
    found["accuracy"] |= {"of_other": marks[1].accuracy}
    found["macro_f1"] |= {"of_other": macro_f1(marks[1]).value}
    return found


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
