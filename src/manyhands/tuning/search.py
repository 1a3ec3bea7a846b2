"""One search for good settings: where it looks, and how a trial of them goes."""

import hashlib
import json
import time
from importlib.metadata import version
from typing import Any

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.quantize import quantize
from manyhands.catalog import LEARNERS, load
from manyhands.data.dataset import Dataset, is_dataset, open_dataset
from manyhands.data.labelled_rows import rows_of_split
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.evaluate import judge
from manyhands.records import Progress, Resources, Silent
from manyhands.run.record import config_of
from manyhands.settings import Search
from manyhands.spread.single import Single
from manyhands.training.job import Job, Outcome, job_for
from manyhands.training.objective import Tested, check_weights, measured, objective_of
from manyhands.training.splits import Splits
from manyhands.tuning.study import Study, Trial

HOPELESS = 10  # failures, and no success, after which to stop


def tunable() -> list[str]:
    """The models that have settings to search."""
    return [name for name in LEARNERS if load(LEARNERS, "model", name).Settings.marked(Search)]


class Tuning:
    """What is searched, and how one trial goes."""

    def __init__(
        self, data: str, model: str, fixed: dict[str, Any], size_bytes: int | None, resources: Resources
    ) -> None:
        self.data, self.model, self.fixed, self.size_bytes = data, model, fixed, size_bytes
        self._resources = resources
        job = self._job({})  # a wrong setting is told before any work
        self.fixed = {name: job.chosen()[name] for name in fixed}  # as numbers, where they came as text
        settings = job.settings
        ranges, defaults = settings.marked(Search), settings.model_dump()
        if not ranges:
            raise UsageError(f"no setting of {model} can be tuned; choose --model {' or '.join(tunable())}")
        self.ranges = {name: found for name, found in ranges.items() if name not in fixed}
        self.defaults = {name: defaults[name] for name in self.ranges}
        self.dataset = _dataset(data)
        self._train, self._valid = (rows_of_split(self.dataset, split) for split in ("train", "valid"))
        self._train.check_trainable()
        check_weights(self._train)
        self.measure = objective_of(model).judged_by(job, self._train)

    @property
    def valid_rows(self) -> int:
        return len(self._valid)

    @property
    def fingerprint(self) -> str:
        return f"{self._train.fingerprint}{self._valid.fingerprint}"

    @property
    def name(self) -> str:
        """Equal for searches whose scores can be compared."""
        rest = json.dumps([self.fixed, version("manyhands")], sort_keys=True, default=str)
        digest = hashlib.sha256(rest.encode()).hexdigest()[:16]
        return f"{self.fingerprint}-{self.model}-{self.size_bytes or 'full'}-{digest}"

    def run(self, study: Study, deadline: float, most: int | None, progress: Progress) -> None:
        """Make trials until the time is over; the defaults are tried in any case."""
        progress.stage("tuning", most, "trials")
        inside = _Inside(progress, study)
        inside.advance(0)
        while self._goes_on(study, deadline, most):
            settings = study.suggest() if study.trials else self.defaults
            if settings is None:
                break
            study.add(self._try(settings, inside))
            inside.advance(0)

    def _goes_on(self, study: Study, deadline: float, most: int | None) -> bool:
        if not study.trials:
            return True
        if study.best is None and len(study.trials) >= HOPELESS:
            return False
        return time.monotonic() < deadline and (most is None or len(study.trials) < most)

    def _try(self, settings: dict[str, Any], progress: Progress) -> Trial:
        began = time.monotonic()
        score, error = None, ""
        try:
            job = self._job(settings)
            score = self._score(job, Single().run(job, self._train, self._valid, progress))
        except (UsageError, InputError) as failure:  # too large for memory, or a rate that is too high
            error = str(failure)
        return Trial(settings, score, round(time.monotonic() - began, 3), error)

    def _job(self, settings: dict[str, Any]) -> Job:
        return job_for(self.model, {**self.fixed, **settings}, self._resources)

    def _score(self, job: Job, outcome: Outcome) -> float:
        if self.size_bytes is None:
            return float(outcome.state.history[outcome.state.best_epoch - 1][self.measure])
        manifest = self.dataset.manifest
        splits = Splits(self._train, self._valid, None, manifest.settings.text, manifest.labels.scheme, None)
        small = quantize(Bundle(config_of(job, splits, outcome), outcome.model), self.size_bytes)
        report = judge(small.classifier, self._valid, threads=self._resources.threads)
        return measured(report, self.measure)

    def judged(self, bundle: Bundle, split: str) -> Tested:
        """The scores of a finished model, as a record tells them; {} without rows to judge by."""
        rows = self._valid if split == "valid" else rows_of_split(self.dataset, split)
        test, threads = objective_of(self.model).test, self._resources.threads
        return test(bundle.classifier, rows, threads) if len(rows) else Tested({}, {})


class _Inside(Silent):
    """The progress of a trial: it says that work goes on, and stops it if the user wants that."""

    def __init__(self, outside: Progress, study: Study) -> None:
        self._outside, self._study = outside, study

    def advance(self, done: int, note: str = "") -> None:
        best = self._study.best
        self._outside.advance(len(self._study.trials), f"best {best.score:.4f}" if best else "")


def _dataset(data: str) -> Dataset:
    if not is_dataset([data]):
        raise InputError(f"{data} is not a prepared dataset; make one with: manyhands prepare {data} --out …")
    dataset = open_dataset(data)
    if not len(dataset["valid"]):
        raise InputError(f"{data} has no validation rows to tune by; prepare it with --valid 0.1")
    return dataset
