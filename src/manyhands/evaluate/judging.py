"""Judging a bundle on rows with labels: of a prepared dataset, or of raw files."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fsspec.core import url_to_fs

from manyhands.data.dataset import open_dataset
from manyhands.data.lessons import lesson_of, read_lesson
from manyhands.data.manifest import FILE as MANIFEST
from manyhands.errors import InputError
from manyhands.evaluate.classification import Report, evaluate_several, evaluate_single
from manyhands.machine import resources_for
from manyhands.models.bundle import Bundle
from manyhands.models.learner import Model, Scores
from manyhands.models.saving import load_bundle
from manyhands.records import Progress, Resources, Silent
from manyhands.settings import PrepareSettings
from manyhands.storage.files import reading as errors_of
from manyhands.text.lesson import Lesson

StrPath = str | os.PathLike[str]


def judge(
    model: Model,
    lesson: Lesson,
    *,
    scores: Scores | None = None,
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    threads: int = 1,
) -> Report:
    """How good the model is on these rows, by the ``scores`` that it gave them."""
    known = lesson.with_names(model.labels)
    if scores is None:
        scores = model.scores(known.corpus, threads)
    labels = known.labels
    if labels.several or model.several:
        return evaluate_several(
            scores, labels.ids, labels.offsets, model.labels, threshold=threshold, top=top or (1, 3, 5)
        )
    return evaluate_single(scores, labels.ids, model.labels, top=top)


def evaluate(
    bundle: StrPath | Bundle,
    data: StrPath | Sequence[StrPath],
    *,
    split: str = "test",
    threshold: float = 0.5,
    top: tuple[int, ...] = (),
    memory: int | str | None = None,
    threads: int | None = None,
    reading: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge a bundle on a split of a prepared dataset, or on all rows of raw files."""
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    names = [os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data)]
    resources = resources_for(memory, threads)
    lesson = rows_to_judge_by(opened, names, split, reading or {}, resources, progress or Silent())
    report = judge(opened.model, lesson, threshold=threshold, top=top, threads=resources.threads)
    return replace(report, left_out=lesson.left_out)


def rows_to_judge_by(
    bundle: Bundle,
    names: list[str],
    split: str,
    reading: dict[str, Any],
    resources: Resources,
    progress: Progress,
) -> Lesson:
    if is_dataset(names):
        dataset = open_dataset(names[0])
        lesson = lesson_of(dataset, split)
        if dataset.manifest.settings.text != bundle.config.text:
            raise InputError(
                f"{names[0]} was prepared with other text settings than the model's; "
                "prepare it with the same, or evaluate on the raw files"
            )
        if not len(lesson):
            raise InputError(f"the {split} split of {names[0]} has no rows; choose another with --split")
        return lesson
    settings = PrepareSettings.checked(
        **{"labels": bundle.config.label_scheme, **reading, "text": bundle.config.text}
    )
    return read_lesson(names, settings, resources, progress).lesson


def is_dataset(names: list[str]) -> bool:
    """Whether a single name stands for what ``prepare`` made."""
    if len(names) != 1 or names[0] == "-":
        return False
    with errors_of(names[0]):
        filesystem, path = url_to_fs(names[0])
        return bool(filesystem.isfile(f"{path.rstrip('/')}/{MANIFEST}"))
