"""``scale``: train the same job with different numbers of workers, and compare what they take.

One worker is one process without a crew: what more workers have to beat. Runs take place one after the other,
all numbers of workers once before any of them is repeated, so that a machine that is slow for a while slows
down all of them alike.
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.catalog import SPREADS, load
from manyhands.data.dataset import is_dataset, open_dataset
from manyhands.data.manifest import FILE as MANIFEST
from manyhands.errors import ResumableError, UnderTrainedError, UsageError
from manyhands.machine import cores, examine, resources_for
from manyhands.records import Progress, Silent
from manyhands.report.scaling import Run, run_from
from manyhands.run.train import train
from manyhands.scaling.study import Study, open_study
from manyhands.settings import option
from manyhands.spread.spread import Spread
from manyhands.storage.files import StrPath, expand, sha256
from manyhands.training.choose import with_choice
from manyhands.training.job import Call, Job, job_for
from manyhands.training.objective import objective_of
from manyhands.training.splits import open_splits

ALONE = "single"  # the spread of one worker


def scalable() -> list[str]:
    """The spreads that have workers to count."""
    return [name for name in SPREADS if load(SPREADS, "spread", name).counts]


def scale(
    data: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    workers: Sequence[int],
    model: str = "ngrams",
    spread: str = "allreduce",
    weak: bool = False,
    repeats: int = 1,
    memory: int | str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    **settings: Any,
) -> Study:
    """Train once for each number of workers, in run folders below ``out``, and write ``study.json`` there.

    The same rows for all; ``weak``, rows in proportion to the workers, all rows for the most. ``threads``
    are those of each worker. Repeats have different seeds. ``settings`` are those of ``train``. A study that
    was interrupted goes on where it stopped: runs that are complete are not repeated.
    """
    names = tuple(os.fspath(name) for name in ([data] if isinstance(data, str | os.PathLike) else data))
    _check(workers, repeats)
    call = Call(data=names, out=os.fspath(out), model=model, spread=spread, settings=settings)
    watcher = progress or Silent()
    experiment = _experiment(call, workers[-1], weak, memory, threads, watcher)
    study = open_study(call.out, experiment.facts(), experiment.unit)
    for number in range(1, repeats + 1):
        for count in workers:
            name = f"workers-{count}-run-{number}"
            run = study.complete(name)
            study.kept += run is not None
            study.add(run or experiment.run(name, count, number, watcher))
    return study


def _check(workers: Sequence[int], repeats: int) -> None:
    if not workers or workers[0] < 1 or list(workers) != sorted(set(workers)):
        shown = ",".join(map(str, workers))
        raise UsageError(
            f"--workers must be whole numbers from 1 up, smallest first, like 1,2,4, not '{shown}'"
        )
    if repeats < 1:
        raise UsageError(f"--repeats must be 1 or more, not {repeats}")


def _experiment(
    call: Call, most: int, weak: bool, memory: int | str | None, threads: int, progress: Progress
) -> "_Experiment":
    """Whatever is wrong is told before anything is trained."""
    spread = load(SPREADS, "spread", call.spread)()
    if spread.counts is None:
        choices = " or ".join(scalable())
        raise UsageError(f"--spread {call.spread} has no workers to count; choose --spread {choices}")
    if spread.counts in call.settings:
        raise UsageError(f"{option(spread.counts)} cannot be set here: --workers lists how many there are")
    if threads > 1 and not spread.threaded:
        raise UsageError(f"workers of --spread {call.spread} have one thread each; leave out --threads")
    settings = {**call.settings, spread.counts: most}
    job = job_for(call.model, settings, resources_for(memory, threads), spread=call.spread, call=call)
    spread.check(job)
    # Once, so that all runs train with the same settings and none is timed choosing them.
    job = with_choice(job, open_splits(call.data, job, progress).train, progress)
    rows = _training_rows(call.data) if weak else None
    return _Experiment(job.call or call, job, spread, spread.counts, most, rows, memory)


@dataclass(frozen=True)
class _Experiment:
    """What every run of a study has in common, and how one of them goes."""

    call: Call
    job: Job  # with the most workers
    spread: Spread
    counts: str  # the setting that says how many workers there are
    most: int
    rows: int | None  # of the run with the most workers; None where all runs have the same
    memory: int | str | None

    @property
    def unit(self) -> str:
        return "rows" if objective_of(self.job.model).labelled else "words"

    def facts(self) -> dict[str, Any]:
        """All that must be the same for runs to be compared."""
        machine = examine()
        chosen = {name: value for name, value in self.job.chosen().items() if name != self.counts}
        return {
            "model": self.job.model,
            "spread": self.job.spread,
            "data": _fingerprint(self.call.data),
            "scaling": "strong" if self.rows is None else "weak",
            **({} if self.rows is None else {"most workers": self.most}),
            "threads": self.job.resources.threads,
            "system": machine["system"],
            "cores": cores(),
            "version": machine["manyhands"],
            **chosen,
            **self.job.reading.model_dump(mode="json", exclude_unset=True),
        }

    def run(self, name: str, workers: int, number: int, progress: Progress) -> Run:
        seconds, record = self._train(name, workers, number, progress)
        if record["compiled"]:  # only ever once after an installation: it says nothing of the workers
            seconds, record = self._train(name, workers, number, progress)
        return run_from(
            record,
            folder=name,
            workers=workers,
            number=number,
            seconds=seconds,
            counts_words=self.unit == "words",
            adds_up_bytes=self.spread.adds_up_bytes,
        )

    def _train(
        self, name: str, workers: int, number: int, progress: Progress
    ) -> tuple[float, dict[str, Any]]:
        """The seconds of a run, with the start of its processes, and its record."""
        began = time.monotonic()
        try:
            trained = train(
                self.call.data,
                Path(self.call.out, name),
                model=self.job.model,
                overwrite=True,  # what stands there was not noted as complete
                rows=None if self.rows is None else self.rows * workers // self.most,
                memory=self.memory,
                threads=self.job.resources.threads,
                progress=_Named(progress, f"{workers} worker{'s' if workers > 1 else ''}"),
                **self._settings(workers, number),
            )
        except (ResumableError, UnderTrainedError) as error:
            # The run begins again, as the seconds of two parts are not those of a run.
            raise type(error)(str(error).replace(" with --resume", "")) from None
        if trained is None or trained.record["workers"] != workers:
            raise UsageError(
                f"{name} was not trained by {workers} workers; a study has all its workers on one machine"
            )
        return time.monotonic() - began, trained.record

    def _settings(self, workers: int, number: int) -> dict[str, Any]:
        """What ``train`` is told: a seed for each repeat, and to one worker nothing of crews."""
        settings = {**self.call.settings, "seed": self.job.settings.seed + number - 1}
        if workers > 1:
            return {**settings, "spread": self.job.spread, self.counts: workers}
        of_crews = self.spread.Settings.model_fields
        return {"spread": ALONE, **{name: value for name, value in settings.items() if name not in of_crews}}


class _Named:
    """Progress of one run of several: its stages say whose they are."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name
        self.advance, self.say = progress.advance, progress.say

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._progress.stage(f"{self._name}: {name}", total, unit)


def _training_rows(data: tuple[str, ...]) -> int:
    if not is_dataset(list(data)):
        raise UsageError(
            "--weak takes samples of the rows, for which they must be prepared; "
            f"make a dataset with: manyhands prepare {data[0]} --out …"
        )
    return len(open_dataset(data[0])["train"])


def _fingerprint(data: tuple[str, ...]) -> str:
    """The same for the same dataset; of raw files, for files of the same names and sizes."""
    if is_dataset(list(data)):
        return sha256(open_dataset(data[0]).folder / MANIFEST)[:16]
    files = [(file.name, file.size) for file in expand(data)]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]
