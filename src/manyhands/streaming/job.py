"""What is learnt from a stream, and how: frozen, with every setting checked by its owner."""

from dataclasses import dataclass
from typing import Any

from manyhands.bundle.bundle import VERSION
from manyhands.catalog import LEARNERS, SPREADS, STREAM_LEARNERS, load
from manyhands.data.streams.stream import describe
from manyhands.errors import UsageError
from manyhands.models.learner import StreamLearner
from manyhands.records import Resources
from manyhands.settings import PrepareSettings, ReadingSettings, Settings, nearest, option
from manyhands.spread.stream_crew import StreamCrew
from manyhands.streaming.settings import StreamingSettings


@dataclass(frozen=True)
class StreamJob:
    """What is learnt, from where and how: with the messages, all that decides what comes out."""

    url: str
    model: str
    learner: type[StreamLearner]
    settings: Any
    stream: StreamingSettings
    reading: PrepareSettings
    resources: Resources
    spread: str
    spread_settings: Any

    @property
    def labelled(self) -> bool:
        return self.learner.learns == "labels"

    @property
    def threads(self) -> int:
        return 1 if self.stream.deterministic else self.resources.threads

    def crew(self) -> StreamCrew:
        """Those who learn; nothing is started yet."""
        kind, deterministic = crew_of(self.spread), self.stream.deterministic
        return kind(self.spread_settings, self.resources, deterministic=deterministic)

    def chosen(self) -> dict[str, Any]:
        """All settings with their values, as a record keeps them."""
        own = self.settings.model_dump(exclude=set(self.learner.without))
        return {**own, **self.stream.model_dump(), **self.spread_settings.model_dump()}

    def identity(self) -> dict[str, Any]:
        """A snapshot fits this and nothing else; another spread may go on with it."""
        chosen = self.settings.model_dump(exclude=set(self.learner.without))
        reading = self.reading.model_dump(mode="json", include=set(ReadingSettings.model_fields))
        about = {"version": VERSION, "stream": describe(self.url), "model": self.model}
        return {**about, **reading, **self.stream.deciding(), **chosen}


def crew_of(spread: str) -> type[StreamCrew]:
    """Who learns from a stream under a spread; an error names the spreads under which someone does."""
    found: type[StreamCrew] | None = load(SPREADS, "spread", spread).Streaming
    if found is None:
        raise UsageError(
            f"--spread {spread} cannot learn from a stream; there are: {', '.join(stream_crews())}"
        )
    return found


def stream_crews() -> dict[str, type[StreamCrew]]:
    """All that can learn from streams, by the name of their spread."""
    every = {name: load(SPREADS, "spread", name).Streaming for name in SPREADS}
    return {name: crew for name, crew in every.items() if crew is not None}


def whose_setting(name: str, model: str, spread: str) -> str:
    """A sentence that says which other models or spreads have a setting for streams; empty if none has."""
    learners = {other: load(STREAM_LEARNERS, "model", other) for other in STREAM_LEARNERS}
    of_models = {other: one.Settings.model_fields.keys() - one.without for other, one in learners.items()}
    of_spreads = {other: crew.Settings.model_fields.keys() for other, crew in stream_crews().items()}
    for kind, mine, every in (("model", model, of_models), ("spread", spread, of_spreads)):
        others = [other for other, names in every.items() if name in names]
        if others:
            return f"{option(name)} is for --{kind} {' or '.join(others)}, not for {mine}"
    return ""


def job_for(
    url: str, model: str, settings: dict[str, Any], resources: Resources, spread: str = "single"
) -> StreamJob:
    """Check all settings, each by its owner."""
    if model in LEARNERS and model not in STREAM_LEARNERS:
        raise UsageError(f"{model} cannot learn from a stream; there are: {', '.join(STREAM_LEARNERS)}")
    learner = load(STREAM_LEARNERS, "model", model)
    owners: list[type[Settings]] = [
        *(learner.Settings, StreamingSettings, ReadingSettings),
        crew_of(spread).Settings,
    ]
    parts: list[dict[str, Any]] = [{} for _ in owners]
    for name, value in settings.items():
        owner = next((n for n, kind in enumerate(owners) if name in kind.model_fields), None)
        if name in learner.without:
            raise UsageError(f"{option(name)} is not for streams")
        if owner is None:
            known = [field for kind in owners for field in kind.model_fields]
            raise UsageError(f"there is no setting '{name}'; {nearest(name, known)}")
        parts[owner][name] = value
    own, streaming, reading, shared = (kind.create(**part) for kind, part in zip(owners, parts, strict=True))
    if learner.learns == "words":
        for name in ("labels", "label_field"):
            if name in parts[2]:
                raise UsageError(f"{option(name)} is for classifiers; {model} learns from any text")
        reading = reading.model_copy(update={"labels": "none"})
    elif reading.labels == "none":  # type: ignore[attr-defined]
        raise UsageError(f"{model} is a classifier and needs labels; leave out --labels none")
    full = PrepareSettings(**reading.model_dump())
    return StreamJob(url, model, learner, own, streaming, full, resources, spread, shared)  # type: ignore[arg-type]
