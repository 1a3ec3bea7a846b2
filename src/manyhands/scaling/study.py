"""The folder of a scaling study: a folder for each run, ``study.json`` and ``study.svg``."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from manyhands.errors import InputError, UsageError
from manyhands.report.scaling import Point, Run, points_of
from manyhands.report.scaling_picture import draw_scaling
from manyhands.storage.destination import MARKERS
from manyhands.storage.files import cannot_write, writing

FACTS, PICTURE = "study.json", "study.svg"
VERSION = 1


@dataclass
class Study:
    """The runs of one job with different numbers of workers.

    ``job`` is all that must be the same for runs to be compared; ``unit`` is what rates count.
    ``known`` are all runs of the folder, ``runs`` those that were asked for now.
    """

    folder: Path
    job: dict[str, Any]
    unit: str
    known: dict[str, Run] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    kept: int = 0  # of the runs: complete from an earlier call, and not repeated

    @property
    def points(self) -> list[Point]:
        return points_of(self.runs)

    @property
    def title(self) -> str:
        return f"{self.job['model']}, {self.job['spread']}, {self.job['scaling']} scaling"

    def complete(self, name: str) -> Run | None:
        """A run that need not be repeated."""
        return self.known.get(name) if (self.folder / name / MARKERS["bundle"]).is_file() else None

    def add(self, run: Run) -> None:
        self.runs.append(run)
        self.known[run.folder] = run
        self.save()

    def save(self) -> None:
        """Write the facts and, once there is a run, the picture; each appears whole or not at all."""
        with writing(str(self.folder / FACTS)) as file:
            file.write(json.dumps(self.facts(), indent=1, ensure_ascii=False).encode() + b"\n")
        if self.runs:
            picture = draw_scaling(f"{self.title}: {self.unit}/s", self.runs, self.points)
            with writing(str(self.folder / PICTURE)) as file:
                file.write(picture.encode())

    def facts(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "job": self.job,
            "unit": self.unit,
            "points": [asdict(point) for point in self.points],
            "runs": [asdict(run) for run in self.known.values()],
        }


def open_study(out: str, job: dict[str, Any], unit: str) -> Study:
    """A new study, or the one of the same job that was begun in the folder."""
    if "://" in out:
        raise UsageError(f"{out} is not on this machine; give a local folder as --out")
    study = Study(Path(out), job, unit)
    path = study.folder / FACTS
    try:
        if path.is_file():
            study.known = _known(path, job)
        elif study.folder.exists() and (not study.folder.is_dir() or any(study.folder.iterdir())):
            raise UsageError(f"{out} exists already and is not a scaling study; choose another --out")
    except OSError as error:
        raise cannot_write(out, error) from None
    study.save()  # whoever takes it up again finds whose folder it is
    return study


def _known(path: Path, job: dict[str, Any]) -> dict[str, Run]:
    """The runs that an earlier call has made, if it was of the same job."""
    try:
        facts = json.loads(path.read_text("utf-8"))
        if facts["version"] != VERSION:
            raise ValueError(f"version {facts['version']}, not {VERSION}")
        then, known = dict(facts["job"]), {run["folder"]: Run(**run) for run in facts["runs"]}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); choose another --out") from None
    now = json.loads(json.dumps(job))
    for name in {**now, **then}:
        if then.get(name) != now.get(name):
            raise UsageError(
                f"{path.parent} holds a study of another job: {name} was {then.get(name)}, now it is "
                f"{now.get(name)}; choose another --out"
            )
    return known
