"""One search for good settings: where it looks, and how a trial of them goes."""

import hashlib
import json
import time
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from manyhands.bundle.bundle import Bundle
from manyhands.bundle.quantize import quantize
from manyhands.bundle.word_vectors import embedding_of
from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.evaluate import judge
from manyhands.evaluation.similarity import evaluate_similarity
from manyhands.evaluation.wordsets import SimilaritySet, find_sets
from manyhands.models.model import QUANTIZE
from manyhands.records import Progress, Resources, Silent
from manyhands.run.record import config_of
from manyhands.settings import ChangesTask, ModelSettings, Search
from manyhands.spread.single import Single
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.choose import Chosen, choose
from manyhands.training.job import Job, Outcome, job_for
from manyhands.training.objective import Tested, measured, objective_of
from manyhands.tuning.rows import TuningRows, open_rows
from manyhands.tuning.study import Study, Trial

HOPELESS = 10  # failures, and no success, after which to stop
NEVER = 10_000  # epochs without a better one, after which training stops
SPEARMAN = "spearman"


def tunable() -> list[str]:
    """The models that have settings to search."""
    return [name for name in LEARNERS if load(LEARNERS, "model", name).Settings.marked(Search)]


def ranges_of(settings: type[ModelSettings], *, by_word_sets: bool) -> dict[str, Search]:
    """What is searched: settings that change what held-out text asks for, only where that is not asked."""
    apart = {} if by_word_sets else settings.marked(ChangesTask)
    return {name: found for name, found in settings.marked(Search).items() if name not in apart}


class Tuning:
    """What is searched, and how one trial goes."""

    def __init__(
        self,
        data: tuple[str, ...],
        model: str,
        fixed: dict[str, Any],
        size_bytes: int | None,
        sets: str | None,
        resources: Resources,
        progress: Progress,
    ) -> None:
        self.data, self.model, self.fixed, self.size_bytes = data, model, fixed, size_bytes
        self._resources, self._objective = resources, objective_of(model)
        job = self._job({})  # a wrong setting is told before any work
        known = {**job.chosen(), **job.reading.model_dump()}
        self.fixed = {name: known[name] for name in fixed}  # as numbers, where they came as text
        self._sets = self._word_sets(sets)
        ranges, defaults = (
            ranges_of(type(job.settings), by_word_sets=bool(self._sets)),
            job.settings.model_dump(),
        )
        if not ranges:
            raise UsageError(f"no setting of {model} can be tuned; choose --model {' or '.join(tunable())}")
        if size_bytes is not None and QUANTIZE not in load(LEARNERS, "model", model).Model.can:
            raise UsageError(f"{model} models cannot be quantised; leave out --size")
        self.ranges = {name: found for name, found in ranges.items() if name not in fixed}
        self.defaults = {name: type(found.low)(defaults[name]) for name, found in self.ranges.items()}
        self.rows: TuningRows = open_rows(data, job, progress)
        self._objective.ready(job, self.rows.train)
        self._begin_with(choose(job, self.rows.train, progress))
        self.measure = SPEARMAN if self._sets else self._objective.judged_by(job, self.rows.train)

    def _begin_with(self, chosen: Chosen | None) -> None:
        """Search from where training would begin by itself; what has no range stays as it was chosen."""
        if chosen is None:
            return
        for name, value in chosen.settings.items():
            (self.defaults if name in self.ranges else self.fixed)[name] = value
        self.fixed["effort"] = 0

    def _word_sets(self, folder: str | None) -> list[SimilaritySet]:
        if folder is None:
            return []
        if self._objective.labelled:
            raise UsageError("--sets is for word vectors")
        found = find_sets(folder).similarity
        if not found:
            raise InputError(f"{folder} has no similarity set; give a folder of files with: word word score")
        return found

    @property
    def judged_rows(self) -> int:
        """How many rows, or pairs of words, decide about a score."""
        return sum(len(some) for some in self._sets) or len(self.rows.valid)

    @property
    def fingerprint(self) -> str:
        return self.rows.fingerprint

    @property
    def name(self) -> str:
        """Equal for searches whose scores can be compared."""
        sets = [some.name for some in self._sets]
        rest = json.dumps([self.fixed, version("manyhands"), self.measure, sets], sort_keys=True, default=str)
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
            score = self._score(self._job(settings), progress)
        except (UsageError, InputError) as failure:  # too large for memory, or a rate that is too high
            error = str(failure)
        return Trial(settings, score, round(time.monotonic() - began, 3), error)

    def _job(self, settings: dict[str, Any]) -> Job:
        return job_for(self.model, {**self.fixed, **settings}, self._resources)

    def _score(self, job: Job, progress: Progress) -> float:
        outcome = self._trained(job, progress)
        if self.size_bytes is None and not self._sets:
            epoch = outcome.state.best_epoch - 1 if self.rows.dataset else -1
            return float(outcome.state.history[epoch][self.measure])
        bundle = Bundle(config_of(job, self.rows.splits, outcome), outcome.model)
        if self._sets:
            return self._by_word_sets(bundle)
        small = quantize(bundle, self.size_bytes or 0)
        report = judge(small.classifier, self.rows.valid, threads=self._resources.threads)
        return measured(report, self.measure)

    def _trained(self, job: Job, progress: Progress) -> Outcome:
        """A trial. On raw files, as a training of all their rows goes: none of them says when to stop."""
        train, valid = self.rows.train, self.rows.valid
        if self.rows.dataset:
            return Single().run(job, train, valid, progress)
        if self.size_bytes is not None:  # it is judged when it has been made small
            return Single().run(job, train, None, progress)
        on = job.training.model_copy(update={"early_stopping": NEVER})
        return Single().run(replace(job, training=on), train, valid, progress)

    def _by_word_sets(self, bundle: Bundle) -> float:
        """The mean over all sets of the correlation with what people say, of words without a vector too."""
        embedding = embedding_of(bundle)
        found = [evaluate_similarity(embedding, some).spearman_all or 0.0 for some in self._sets]
        return sum(found) / len(found)

    def judged(self, bundle: Bundle, rows: LabelledRows | None) -> Tested:
        """The scores of a finished model, as a record tells them; {} without rows to judge by."""
        if rows is None or not len(rows):
            return Tested({}, {})
        model = bundle.classifier if self._objective.labelled else bundle.model
        return self._objective.test(model, rows, self._resources.threads)


class _Inside(Silent):
    """The progress of a trial: it says that work goes on, and stops it if the user wants that."""

    def __init__(self, outside: Progress, study: Study) -> None:
        self._outside, self._study = outside, study

    def advance(self, done: int, note: str = "") -> None:
        best = self._study.best
        self._outside.advance(len(self._study.trials), f"best {best.score:.4f}" if best else "")
