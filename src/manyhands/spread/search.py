"""One search for good settings: where it looks, and how a trial of them goes."""

import hashlib
import json
import time
from importlib.metadata import version
from typing import Any

from manyhands.data.dataset import Dataset, open_dataset
from manyhands.data.lessons import lesson_of
from manyhands.errors import InputError, UsageError
from manyhands.evaluate.judging import is_dataset, judge
from manyhands.models.bundle import VERSION, Bundle, BundleConfig
from manyhands.models.quantize import quantized
from manyhands.records import Progress, Resources
from manyhands.spread import single
from manyhands.spread.job import Job, Outcome, check_weights, job_for
from manyhands.spread.studies import Range, Study, Trial
from manyhands.spread.task import JUDGED_BY
from manyhands.text.lesson import Lesson

RANGES = {
    "ngrams": {
        "ngrams": Range(1, 4),
        "rate": Range(1.0, 30.0, log=True),
        "min_count": Range(1, 5),
        "epochs": Range(2, 8),
    },
    "fasttext": {
        "ngrams": Range(1, 3),
        "rate": Range(0.05, 2.0, log=True),
        "dim": Range(8, 64, log=True),
        "epochs": Range(3, 25, log=True),
        "min_count": Range(1, 3),
    },
}
HOPELESS = 10  # failures, and no success, after which to stop


class Search:
    """What is searched, and how one trial goes."""

    def __init__(
        self, data: str, model: str, fixed: dict[str, Any], size_bytes: int | None, resources: Resources
    ) -> None:
        self.data, self.model, self.fixed, self.size_bytes = data, model, fixed, size_bytes
        self._resources = resources
        defaults = self._job({}).settings.model_dump()  # a wrong setting is told before any work
        if model not in RANGES:
            raise UsageError(f"nothing can be tuned of {model}; choose --model {' or '.join(RANGES)}")
        self.ranges = {name: found for name, found in RANGES[model].items() if name not in fixed}
        self.defaults = {name: defaults[name] for name in self.ranges}
        self.dataset = _dataset(data)
        self._train, self._valid = (lesson_of(self.dataset, split) for split in ("train", "valid"))
        self._train.check_trainable()
        check_weights(self._train)
        self.measure = JUDGED_BY[self._train.labels.several]

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
            score = self._score(job, single.run(job, self._train, self._valid, progress))
        except (UsageError, InputError) as failure:  # too large for memory, or a rate that is too high
            error = str(failure)
        return Trial(settings, score, round(time.monotonic() - began, 3), error)

    def _job(self, settings: dict[str, Any]) -> Job:
        return job_for(self.model, {**self.fixed, **settings}, self._resources)

    def _score(self, job: Job, outcome: Outcome) -> float:
        if self.size_bytes is None:
            return float(outcome.state.history[outcome.state.best_epoch - 1][self.measure])
        small = quantized(self._bundle(job, outcome), self.size_bytes)
        report = judge(small.model, self._valid, threads=self._resources.threads)
        return float(report.facts()[self.measure])

    def _bundle(self, job: Job, outcome: Outcome) -> Bundle:
        manifest, facts = self.dataset.manifest, outcome.model.facts()
        config = BundleConfig(
            version=VERSION,
            model=job.model,
            labels=facts.pop("labels"),
            label_scheme=manifest.labels.scheme,
            text=manifest.settings.text,
            facts=facts,
            settings=job.settings.model_dump(),
        )
        return Bundle(config, outcome.model)

    def judged(self, bundle: Bundle, split: str) -> dict[str, Any] | None:
        """The scores of a finished model, as a record tells them."""
        lesson: Lesson = lesson_of(self.dataset, split)
        if not len(lesson):
            return None
        facts = judge(bundle.model, lesson, threads=self._resources.threads).facts()
        return {name: facts[name] for name in ("rows", "accuracy", "macro_f1", "micro_f1", "log_loss")}


class _Inside:
    """The progress of a trial: it says that work goes on, and stops it if the user wants that."""

    def __init__(self, outside: Progress, study: Study) -> None:
        self._outside, self._study = outside, study

    def stage(self, name: str, total: int | None, unit: str) -> None:
        pass

    def advance(self, done: int, note: str = "") -> None:
        best = self._study.best
        self._outside.advance(len(self._study.trials), f"best {best.score:.4f}" if best else "")


def _dataset(data: str) -> Dataset:
    if not is_dataset([data]):
        raise InputError(f"{data} is no prepared dataset; make one with: manyhands prepare {data} --out …")
    dataset = open_dataset(data)
    if not len(dataset["valid"]):
        raise InputError(f"{data} has no validation rows to tune by; prepare it with --valid 0.1")
    return dataset
