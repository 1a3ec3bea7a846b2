"""The rows of a run, opened: from a prepared dataset, or from raw files as they are."""

from dataclasses import dataclass, field
from typing import Any

from manyhands.data.dataset import open_dataset
from manyhands.data.lessons import lesson_of, read_lesson
from manyhands.errors import InputError, UsageError
from manyhands.evaluate.judging import is_dataset
from manyhands.models.bundle import Bundle
from manyhands.records import SPLITS, Progress
from manyhands.settings import LabelScheme, PrepareSettings, TextSettings
from manyhands.spread.job import Job
from manyhands.spread.task import task_of
from manyhands.text.lesson import Lesson
from manyhands.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Material:
    """The rows of a run by split, and how raw text becomes such rows."""

    train: Lesson
    valid: Lesson | None
    test: Lesson | None
    text: TextSettings
    scheme: LabelScheme
    vocabulary: Vocabulary | None  # None where it has yet to be counted
    names: tuple[str, ...] = ()  # of the files or the dataset
    reading: dict[str, Any] = field(default_factory=dict)  # how raw files were read


def material_of(
    names: list[str],
    reading: dict[str, Any],
    job: Job,
    previous: Bundle | None,
    progress: Progress,
) -> Material:
    """Open what is trained on: a prepared dataset, or raw files."""
    labelled = task_of(job.model).labelled
    for name in ("labels", "label_field"):
        if not labelled and name in reading:
            raise UsageError(
                f"--{name.replace('_', '-')} is for models of labels; {job.model} learns from any text"
            )
    if not is_dataset(names):
        text = previous.config.text if previous else TextSettings()
        known = {"labels": previous.config.label_scheme} if previous else {}
        settings = PrepareSettings.checked(**{"text": text, **known, **reading})
        raw = read_lesson(names, settings, job.resources, progress, labelled=labelled)
        return Material(raw.lesson, None, None, settings.text, raw.scheme, None, tuple(names), reading)
    if reading:
        raise UsageError(
            f"--{next(iter(reading)).replace('_', '-')} is for raw files; {names[0]} is prepared already"
        )
    dataset = open_dataset(names[0])
    text = dataset.manifest.settings.text
    if previous and text != previous.config.text:
        raise InputError(f"{names[0]} was prepared with other text settings than the bundle to continue from")
    if labelled and previous and dataset.manifest.labels.scheme != previous.config.label_scheme:
        raise InputError(
            f"the labels of {names[0]} are {dataset.manifest.labels.scheme}, those of the bundle to continue "
            f"from {previous.config.label_scheme}; prepare it with --labels {previous.config.label_scheme}"
        )
    lessons = [lesson_of(dataset, split, labelled=labelled) for split in SPLITS]
    train_rows, valid, test = (lesson if len(lesson) else None for lesson in lessons)
    if train_rows is None:
        raise InputError(f"{names[0]} has no rows to train on")
    scheme: LabelScheme = dataset.manifest.labels.scheme if labelled else "none"
    return Material(train_rows, valid, test, text, scheme, dataset.vocabulary, tuple(names))
