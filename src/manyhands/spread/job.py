"""A training job: frozen, so that any worker can be given it and come to the same start."""

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.catalog import MODELS, load
from manyhands.errors import InputError, UsageError
from manyhands.models.bundle import IMPORTED, VERSION, Bundle, BundleConfig
from manyhands.models.learner import Model
from manyhands.records import Resources, Traffic
from manyhands.settings import FrameSettings, ModelSettings, SpreadSettings
from manyhands.text.lesson import Lesson
from manyhands.train.state import State

SHAPE = (
    "ngrams",
    "chars",
    "buckets",
    "dim",
    "loss",
    "cell",
    "hidden",
    "layers",
    "ways",
    "pool",
    "length",
    "letter_dim",
)

SETTINGS_OF = {
    "allreduce": ("crews", ("workers", "balance", "nodes", "rendezvous", "restarts", "stall_seconds")),
    "average": ("averages", ("partitions", "rounds", "master", "outer_momentum", "spark_conf")),
}
DECIDE = {"average": {"partitions", "rounds", "outer_momentum"}}  # what comes out; elsewhere, only how fast


@dataclass(frozen=True)
class Job:
    """What is learnt and how; the rows themselves come as a lesson."""

    model: str
    settings: ModelSettings
    frame: FrameSettings
    resources: Resources
    spread: SpreadSettings = field(default_factory=SpreadSettings)
    previous: Model | None = None
    checkpoint: Path | None = None
    resume: bool = False
    run: str | None = None  # of a crew that begins again: the run that it goes on with
    call: dict[str, Any] | None = None  # what other machines need to open the same rows: plain values only

    def given(self) -> dict[str, Any]:
        """All settings that were chosen, as JSON has them."""
        parts = (self.settings, self.frame, self.spread)
        return {k: v for part in parts for k, v in part.model_dump(mode="json", exclude_unset=True).items()}

    def identity(self, lesson: Lesson, valid: Lesson | None) -> dict[str, Any]:
        """All that decides what comes out: a checkpoint fits this and nothing else."""
        frame = self.frame.model_dump(exclude={"checkpoint_seconds"})
        continued = None if self.previous is None else _digest(self.previous)
        held_out = None if valid is None else valid.fingerprint
        origin = {"data": lesson.fingerprint, "validation rows": held_out, "continued bundle": continued}
        spread = self.spread.model_dump(include=DECIDE.get(self.spread.spread, set()))
        settings = {**frame, **spread, **self.settings.model_dump()}
        return {"version": VERSION, "model": self.model, **origin, **settings}


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
    previous: Bundle | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    run: str | None = None,
    call: dict[str, Any] | None = None,
) -> Job:
    """Check all settings, and who each belongs to: the model or the frame around it."""
    if previous is not None:
        settings = _inherited(model, settings, previous.config)
    frame = {name: value for name, value in settings.items() if name in FrameSettings.model_fields}
    spread = {name: value for name, value in settings.items() if name in SpreadSettings.model_fields}
    own = {name: value for name, value in settings.items() if name not in {**frame, **spread}}
    return Job(
        model=model,
        settings=load(MODELS, "model", model).Settings.checked(**own),
        frame=FrameSettings.checked(**frame),
        spread=SpreadSettings.checked(**spread),
        resources=resources,
        previous=previous.model if previous else None,
        checkpoint=checkpoint,
        resume=resume,
        run=run,
        call=call,
    )


def refuse_settings_of_others(spread: str, settings: dict[str, Any]) -> None:
    """What only another spread can do must not be taken for done."""
    for right, (what, names) in SETTINGS_OF.items():
        for name in names:
            if right != spread and name in settings:
                instead = f"add --spread {right}" if spread == "single" else f"that is --spread {right}"
                raise UsageError(f"--{name.replace('_', '-')} is for {what}; {instead}")


def _inherited(model: str, settings: dict[str, Any], previous: BundleConfig) -> dict[str, Any]:
    """What shapes a model cannot be changed when it is continued."""
    if previous.model == IMPORTED:
        raise UsageError("an imported model cannot be continued; train a new one")
    if previous.model != model:
        raise UsageError(
            f"the bundle to continue from is a {previous.model} model, not {model}; "
            f"pass --model {previous.model}"
        )
    shape = {name: previous.settings[name] for name in SHAPE if name in previous.settings}
    for name, value in shape.items():
        if str(settings.get(name, value)) != str(value):
            raise UsageError(
                f"the bundle to continue from has {name} {value}, which cannot become {settings[name]}; "
                f"leave out --{name.replace('_', '-')}"
            )
    return {**settings, **shape}


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


def _digest(model: Model) -> str:
    """The same for the same weights."""
    sums = hashlib.sha256()
    for name, array in sorted(model.arrays().items()):
        sums.update(name.encode())
        sums.update(np.ascontiguousarray(array).data)
    return sums.hexdigest()[:16]
