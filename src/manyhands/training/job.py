"""A training job: frozen, so that any worker can be given it and come to the same start."""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig
from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.errors import UsageError
from manyhands.evaluation.calibration import Calibrated
from manyhands.models.model import Model
from manyhands.records import Resources, Traffic
from manyhands.settings import (
    ModelSettings,
    ReadByAll,
    ReadingSettings,
    Secret,
    Settings,
    Shapes,
    TrainingSettings,
    nearest,
    option,
)
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.money import Account
from manyhands.training.state import State


@dataclass(frozen=True)
class Call:
    """The arguments of ``train``, as plain values: what another process needs to do the same."""

    data: tuple[str, ...]
    out: str
    model: str
    spread: str
    settings: dict[str, Any]
    continue_from: str | None = None
    resume: bool = False
    checkpoints: str | None = None
    track: str | None = None
    overwrite: bool = False
    rows: int | None = None
    unlabelled: tuple[str, ...] = ()
    paid_since: float | None = None
    chosen: dict[str, Any] | None = None  # how settings were chosen, for the record

    def arguments(self) -> dict[str, Any]:
        """As JSON has them."""
        plain: dict[str, Any] = to_jsonable_python(asdict(self))
        settings = plain.pop("settings")
        return {**plain, **settings}


@dataclass(frozen=True)
class Job:
    """What is learnt and how. The rows themselves come apart."""

    model: str
    settings: ModelSettings
    resources: Resources
    training: TrainingSettings = field(default_factory=TrainingSettings)
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    spread: str = "single"
    spread_settings: Settings = field(default_factory=Settings)
    previous: Bundle | None = None
    checkpoint: Path | None = None
    resume: bool = False
    run: str | None = None  # of a crew that begins again: the run that it goes on with
    call: Call | None = None  # None where nobody else could open the same rows
    paid_since: float = field(default_factory=time.time)

    def chosen(self) -> dict[str, Any]:
        """All settings with their values, as a record keeps them; none that may hold secrets."""
        spread = self.spread_settings.model_dump(exclude=set(self.spread_settings.marked(Secret)))
        return {**self.settings.model_dump(), **self.training.model_dump(), "spread": self.spread, **spread}

    def identity(self, examples: LabelledRows, valid: LabelledRows | None) -> dict[str, Any]:
        """All that decides what comes out: a checkpoint fits this and nothing else.

        What was chosen by effort stands among the settings.
        """
        training = self.training.model_dump(
            exclude={"checkpoint_seconds", "price", "budget", "effort", "calibrate"}
        )
        decides = load(SPREADS, "spread", self.spread).decides
        return {
            "version": VERSION,
            "model": self.model,
            "data": examples.fingerprint,
            "validation rows": None if valid is None else valid.fingerprint,
            "continued bundle": None if self.previous is None else _digest(self.previous.model),
            **training,
            **self.spread_settings.model_dump(include=decides),
            **self.settings.model_dump(),
        }


class Role(Enum):
    """What a process has to do in a run, after its spread has launched whatever it launches."""

    LEADS = "learns, and writes the bundle"
    FOLLOWS = "learns; another one writes"
    WRITTEN = "nothing: processes that it launched have written the bundle on this machine"
    WRITTEN_ELSEWHERE = "nothing: the bundle was written on another machine"


@dataclass(frozen=True)
class Outcome:
    """What a spread gives back."""

    model: Model
    state: State
    traffic: Traffic
    spread: str
    workers: int
    account: Account
    state_bytes: int  # of all that the learner keeps in memory and changes
    calibrated: Calibrated | None = None  # how held-out rows set the probabilities right

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "spread": self.spread,
            "workers": self.workers,
            "examples_seen": self.state.seen,
            "state_bytes": self.state_bytes,
            "traffic": asdict(self.traffic),
        }


def job_for(
    model: str,
    settings: Mapping[str, Any],
    resources: Resources,
    *,
    spread: str = "single",
    previous: Bundle | None = None,
    **rest: Any,
) -> Job:
    """Check all settings, each by its owner: the model, the training, the reader or the spread."""
    learner = load(LEARNERS, "model", model)
    owners: list[type[Settings]] = [
        learner.Settings,
        TrainingSettings,
        ReadingSettings,
        load(SPREADS, "spread", spread).Settings,
    ]
    if previous is not None:
        settings = _with_shape_of(previous.config, model, learner.Settings, settings)
    parts: list[dict[str, Any]] = [{} for _ in owners]
    for name, value in settings.items():
        owner = next((number for number, kind in enumerate(owners) if name in kind.model_fields), None)
        if owner is None:
            known = [field for kind in owners for field in kind.model_fields]
            raise UsageError(
                whose_setting(name, model, spread) or f"there is no setting '{name}'; {nearest(name, known)}"
            )
        parts[owner][name] = value
    own, training, reading, spreading = (
        kind.create(**part) for kind, part in zip(owners, parts, strict=True)
    )
    return Job(
        model=model,
        settings=own,  # type: ignore[arg-type]
        resources=resources,
        training=training,  # type: ignore[arg-type]
        reading=reading,  # type: ignore[arg-type]
        spread=spread,
        spread_settings=spreading,
        previous=previous,
        **rest,
    )


def call_elsewhere(job: Job) -> Call:
    """What processes elsewhere need to open the same rows and to begin the same learner."""
    call = job.call
    if call is None:
        raise TypeError("nobody else could open the rows of this job")
    settings = {**job.settings.model_dump(mode="json"), **job.training.model_dump(mode="json")}
    vectors = settings.pop("pretrained_vectors", None)  # the weights that they are given hold them already
    if vectors and "pretrained_vectors" in job.settings.marked(ReadByAll):
        settings["pretrained_vectors"] = _absolute(vectors)
    settings |= {"price": None, "budget": None}  # the driver keeps the account
    settings |= job.reading.model_dump(mode="json", exclude_unset=True)
    return Call(
        data=tuple(_absolute(name) for name in call.data),
        out=call.out,
        model=call.model,
        spread="single",
        settings={name: value for name, value in settings.items() if value is not None},
        continue_from=call.continue_from and _absolute(call.continue_from),
        rows=call.rows,
    )


def _absolute(name: str) -> str:
    return name if "://" in name else os.path.abspath(name)  # noqa: PTH100 - a pattern is no Path


def whose_setting(name: str, model: str, spread: str) -> str:
    """A sentence that says which other models or spreads have a setting; empty if none has."""
    for catalog, kind, mine in ((LEARNERS, "model", model), (SPREADS, "spread", spread)):
        others = [other for other in catalog if name in load(catalog, kind, other).Settings.model_fields]
        if others:
            return f"{option(name)} is for --{kind} {' or '.join(others)}, not for {mine}"
    return ""


def _with_shape_of(
    previous: BundleConfig, model: str, kind: type[Settings], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What shapes a model cannot be changed when it is continued."""
    if previous.model not in LEARNERS:
        raise UsageError(f"{previous.model} models cannot be continued; train a new one")
    if previous.model != model:
        raise UsageError(
            f"the bundle to continue from is a {previous.model} model, not {model}; "
            f"pass --model {previous.model}"
        )
    shape = {name: previous.settings[name] for name in kind.marked(Shapes) if name in previous.settings}
    for name, value in shape.items():
        if str(settings.get(name, value)) != str(value):
            raise UsageError(
                f"the bundle to continue from has {option(name)} {value}, which cannot become "
                f"{settings[name]}; leave out {option(name)}"
            )
    return {**settings, **shape}


def _digest(model: Model) -> str:
    """The same for the same weights."""
    sums = hashlib.sha256()
    for name, array in sorted(model.arrays().items()):
        sums.update(name.encode())
        sums.update(np.ascontiguousarray(array).data)
    return sums.hexdigest()[:16]
