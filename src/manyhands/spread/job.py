"""A training job: frozen, so that any worker can be given it and come to the same start."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.catalog import MODELS, load
from manyhands.errors import InputError, UsageError
from manyhands.models.learner import Model
from manyhands.records import Resources, Traffic
from manyhands.settings import FrameSettings, ModelSettings
from manyhands.text.lesson import Lesson
from manyhands.train.fit import State


@dataclass(frozen=True)
class Job:
    """What is learnt and how; the rows themselves come as a lesson."""

    model: str
    settings: ModelSettings
    frame: FrameSettings
    resources: Resources
    previous: Model | None = None
    checkpoint: Path | None = None
    resume: bool = False

    def identity(self, lesson: Lesson) -> dict[str, Any]:
        """All that decides what comes out: a checkpoint fits this and nothing else."""
        frame = self.frame.model_dump(exclude={"checkpoint_seconds"})
        return {"model": self.model, "data": lesson.fingerprint, **frame, **self.settings.model_dump()}


@dataclass(frozen=True)
class Outcome:
    """What a spread gives back."""

    model: Model
    state: State
    traffic: Traffic
    spread: str
    workers: int

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "spread": self.spread,
            "workers": self.workers,
            "examples_seen": self.state.seen,
            "traffic": asdict(self.traffic),
        }


def job_for(
    model: str,
    settings: dict[str, Any],
    resources: Resources,
    *,
    previous: tuple[str, Model] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Job:
    """Check all settings, and who each belongs to: the model or the frame around it."""
    if previous is not None and previous[0] != model:
        raise UsageError(
            f"the bundle to continue from is a {previous[0]} model, not {model}; pass --model {previous[0]}"
        )
    frame = {name: value for name, value in settings.items() if name in FrameSettings.model_fields}
    own = {name: value for name, value in settings.items() if name not in frame}
    return Job(
        model=model,
        settings=load(MODELS, "model", model).Settings.checked(**own),
        frame=FrameSettings.checked(**frame),
        resources=resources,
        previous=previous[1] if previous else None,
        checkpoint=checkpoint,
        resume=resume,
    )


def with_class_weights(lesson: Lesson, frame: FrameSettings) -> Lesson:
    """Rows of rare classes count more, if that was asked for."""
    if frame.class_weights == "none":
        return lesson
    labels = lesson.labels
    counts = np.bincount(labels.ids, minlength=len(labels.names)).astype(np.float64)
    return weighted_by_class(lesson, counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)))


def weighted_by_class(lesson: Lesson, of_class: npt.NDArray[np.float64]) -> Lesson:
    """Each row counts so many times more as its class does, or its classes do on average."""
    labels = lesson.labels
    sums = np.add.reduceat(np.append(of_class[labels.ids], 0.0), labels.offsets[:-1])
    lengths = np.diff(labels.offsets)
    of_row = np.where(lengths > 0, sums / np.maximum(lengths, 1), 1.0)
    of_row /= max(of_row.mean(), 1e-9)  # the rate is meant for rows that count once on average
    return Lesson(lesson.corpus, labels, (lesson.weights * of_row).astype(np.float32))


def continued_labels(lesson: Lesson, previous: Model | None) -> Lesson:
    """Labels that an earlier model knew keep their places; new ones follow."""
    if previous is None:
        return lesson
    known = set(previous.labels)
    new = [name for name in lesson.labels.names if name not in known]
    return lesson.with_names([*previous.labels, *new])


def check_weights(lesson: Lesson) -> None:
    if not lesson.weights.sum() > 0:
        raise InputError("the weights of all rows to train on are 0")
