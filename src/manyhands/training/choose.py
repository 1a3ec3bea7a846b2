"""Settings that are chosen from the training rows: one axis after the other, by cross-validation.

A model's settings name the alternatives (``ModelSettings.choices``). Those of an axis are trained on folds of
some of the rows and judged on the rest; the best goes into the next axis. An alternative that is clearly
behind after a fold is not tried on the others. Every training here is that of one thread, so the same rows
give the same choice on any machine. No validation or test row takes part.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from manyhands.evaluation.evaluate import judge
from manyhands.kernels.compile import Ints
from manyhands.models.model import Scores
from manyhands.parallel import map_ordered
from manyhands.records import Progress, Silent
from manyhands.settings import Alternative, ModelSettings, option
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Alone
from manyhands.training.job import Job
from manyhands.training.learn import learn
from manyhands.training.objective import measured, objective_of
from manyhands.training.state import LESS_IS_BETTER, worth

# Words to choose by, for each level of effort: for all axes, and again for those that depend on how many
# rows there are.
FIRST_WORDS = {1: 600_000, 2: 3_000_000, 3: 10_000_000}
AGAIN_WORDS = {1: 3_000_000, 2: 12_000_000, 3: 50_000_000}
ROUNDS = {1: 1, 2: 2, 3: 4}
COLUMNS = 64  # so many classes take as long again as looking up the n-grams does
FEW_ROWS, FEW_FOLDS, FOLDS = 2000, 5, 3
HELD_OUT = 4  # of the rows to choose by again, every so manieth
LEAST_ROWS = 20
BEHIND = 2.0  # standard errors: then the difference is hardly chance
WORTH = 1.0  # standard errors by which an alternative must be better


@dataclass
class Candidate:
    """Some settings, and how well they did on the folds so far."""

    settings: dict[str, Any]
    hits: npt.NDArray[np.bool_]
    scores: Scores
    folds: int = 0
    score: float = float("-inf")


@dataclass(frozen=True)
class Chosen:
    """The settings that did best, and what a record says of how they were found."""

    settings: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """A line for people."""
        said = " ".join(f"{option(name)} {value}" for name, value in self.settings.items())
        measure, rows = self.facts["judged_by"].replace("_", " "), self.facts["held_out"]
        found = f"{measure} {self.facts['score']:.4f} on {rows:,} rows held out"
        return f"chosen of {self.facts['tried']}: {said or 'the defaults'} ({found}; --effort 0 skips this)"


def with_choice(job: Job, examples: LabelledRows, progress: Progress) -> Job:
    """The job with the best settings for these rows, also for the processes that it starts."""
    chosen = choose(job, examples, progress)
    if chosen is None:
        return job
    progress.say(chosen.summary)
    settings = type(job.settings).create(**{**job.settings.model_dump(exclude_unset=True), **chosen.settings})
    call = job.call and replace(
        job.call, settings={**job.call.settings, **chosen.settings, "effort": 0}, chosen=chosen.facts
    )
    return replace(job, settings=settings, call=call)


def choose(job: Job, examples: LabelledRows, progress: Progress) -> Chosen | None:
    """The best of the alternatives that the user left open; None where there is nothing to choose."""
    effort = job.training.effort
    axes = _axes(job.settings, effort, examples.labels.multi_label)
    if not axes or job.previous is not None or len(examples) < LEAST_ROWS:
        return None
    began, sample = time.monotonic(), _sample(examples, FIRST_WORDS[effort], job)
    search = _Search(job, sample, _folds(sample, job.settings.seed), progress)
    best = search.run([{}], [alternatives for alternatives, _ in axes], ROUNDS[effort])
    tried = len(search.tried)
    if len(sample) < len(examples):
        sample = _sample(examples, AGAIN_WORDS[effort], job)
        search = _Search(job, sample, [np.arange(0, len(sample), HELD_OUT)], progress)
        best = search.run([{}, best.settings], [alternatives for alternatives, again in axes if again], 1)
        tried += len(search.tried)
    facts = {
        "effort": effort,
        "rows": len(sample),
        "held_out": int(sum(len(fold) for fold in search.folds)),
        "tried": tried,
        "judged_by": search.judged_by,
        "score": round(abs(best.score), 6),  # a log loss is turned round while candidates are compared
        "settings": best.settings,
        "seconds": round(time.monotonic() - began, 3),
    }
    return Chosen(best.settings, facts)


def _axes(settings: ModelSettings, effort: int, multi_label: bool) -> list[tuple[list[dict[str, Any]], bool]]:
    """What is open on each axis, nothing that the user has set; and whether it is looked at again."""
    axes = []
    for alternatives, again in settings.choices:
        fitting = [a for a in alternatives if a.effort <= effort and not (multi_label and a.for_one_label)]
        found = [_open(alternative, settings) for alternative in fitting]
        distinct = [one for i, one in enumerate(found) if one and one not in found[:i]]
        if distinct:
            axes.append((distinct, again))
    return axes


def _open(alternative: Alternative, settings: ModelSettings) -> dict[str, Any]:
    """The settings of an alternative; {} if it contradicts what the user has set."""
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    wanted = alternative.settings
    if any(name in given and given[name] != value for name, value in wanted.items()):
        return {}
    return {name: value for name, value in wanted.items() if name not in given}


def _sample(examples: LabelledRows, most_words: int, job: Job) -> LabelledRows:
    """A random part of the rows, as large as it may be; all of them if they are few."""
    words, columns = max(examples.corpus.tokens, 1), len(examples.labels.names)
    count = int(len(examples) * most_words / (1 + columns / COLUMNS) / words)
    order = np.random.default_rng([job.settings.seed, len(examples)]).permutation(len(examples))
    rows = examples.take(order[: max(count, FEW_ROWS)])
    # Words of other rows would be looked at in each training.
    return replace(rows, corpus=rows.corpus.compact())


class _Search:
    """Trains and judges candidates on the same folds of the same rows."""

    def __init__(self, job: Job, rows: LabelledRows, folds: list[Ints], progress: Progress) -> None:
        self.rows, self.folds, self._progress = rows, folds, progress
        alone = job.training.model_copy(update={"deterministic": True, "price": None, "budget": None})
        self._threads = job.resources.threads
        self._job = replace(
            job, training=alone, resources=replace(job.resources, threads=1), checkpoint=None, resume=False
        )
        self.judged_by = objective_of(job.model).judged_by(job, rows)
        self.tried: list[Candidate] = []
        self._model: Any = None

    def run(self, first: list[dict[str, Any]], axes: list[list[dict[str, Any]]], rounds: int) -> Candidate:
        """Begin with the best of the ``first`` settings, and go through the axes."""
        total = len(first) + rounds * sum(len(axis) for axis in axes)
        self._progress.stage("choosing settings", total, "trials")
        best = self._candidate(first[0])
        self._race([best])
        best = self._best_of(best, first[1:])
        for _ in range(rounds):
            before = best
            for axis in axes:
                best = self._best_of(best, axis)
                self._progress.advance(min(len(self.tried), total), f"{self.judged_by} {abs(best.score):.4f}")
            if best is before:
                break
        return best

    def _best_of(self, best: Candidate, axis: list[dict[str, Any]]) -> Candidate:
        """The best so far, or what becomes of it with one of the alternatives."""
        known = [candidate.settings for candidate in self.tried]
        wanted = [{**best.settings, **alternative} for alternative in axis]
        new = [self._candidate(settings) for settings in wanted if settings not in known]
        self._race([best, *new])
        whole = [candidate for candidate in new if candidate.folds == len(self.folds)]
        for candidate in sorted(whole, key=lambda candidate: -candidate.score):
            if candidate.score > best.score + WORTH * self._error(best, candidate):
                return candidate
        return best

    def _error(self, one: Candidate, other: Candidate) -> float:
        """The standard error of the difference: only rows on which they differ tell anything."""
        if self.rows.labels.multi_label or self.judged_by == LESS_IS_BETTER:
            return 0.0
        seen = np.concatenate(self.folds)
        return float(np.sqrt((one.hits[seen] != other.hits[seen]).sum())) / len(seen)

    def _candidate(self, settings: dict[str, Any]) -> Candidate:
        rows, columns = len(self.rows), len(self.rows.labels.names)
        candidate = Candidate(settings, np.zeros(rows, np.bool_), np.zeros((rows, columns), np.float32))
        self.tried.append(candidate)
        return candidate

    def _race(self, candidates: list[Candidate]) -> None:
        """Fold by fold, with those that are still in it."""
        for number in range(len(self.folds)):
            running = [c for c in candidates if c.folds == number]
            for _ in map_ordered(partial(self._learn_fold, number), running, self._threads):
                pass
            candidates = list(self._in_the_race(candidates, number))
        seen = np.concatenate(self.folds)
        for candidate in candidates:
            report = judge(self._model, self.rows.take(seen), scores=candidate.scores[seen])
            candidate.score = worth({self.judged_by: measured(report, self.judged_by)}, self.judged_by)

    def _learn_fold(self, number: int, candidate: Candidate) -> None:
        held_out = self.folds[number]
        others = np.setdiff1d(np.arange(len(self.rows)), held_out, assume_unique=True)
        settings = type(self._job.settings).create(
            **{**self._job.settings.model_dump(exclude_unset=True), **candidate.settings}
        )
        outcome = learn(
            replace(self._job, settings=settings), self.rows.take(others), None, Alone(), Silent()
        )
        model: Any = outcome.model
        self._model = model
        scores = model.scores(self.rows.corpus.some(held_out), 1)
        labels = self.rows.labels.take(held_out)
        candidate.scores[held_out] = scores
        if not labels.multi_label:
            candidate.hits[held_out] = scores.argmax(axis=1) == labels.ids
        candidate.folds += 1

    def _in_the_race(self, candidates: list[Candidate], number: int) -> Iterator[Candidate]:
        """Those that are not clearly worse than the leader, by the rows on which one of the two is right."""
        seen = np.concatenate(self.folds[: number + 1])
        leader = max(candidates, key=lambda c: (c.hits[seen].sum(), -candidates.index(c)))
        for candidate in candidates:
            only_leader = int((leader.hits[seen] & ~candidate.hits[seen]).sum())
            only_other = int((candidate.hits[seen] & ~leader.hits[seen]).sum())
            apart = BEHIND * np.sqrt(only_leader + only_other)
            if self.judged_by != "accuracy" or only_leader - only_other <= apart:
                yield candidate


def _folds(rows: LabelledRows, seed: int) -> list[Ints]:
    """Every row in one fold, each class evenly over all of them."""
    count = FEW_FOLDS if len(rows) < FEW_ROWS else FOLDS
    order = np.random.default_rng([seed, count]).permutation(len(rows))
    labels, offsets = rows.labels.ids, rows.labels.offsets
    first = np.append(labels, -1)[np.where(np.diff(offsets) > 0, offsets[:-1], len(labels))]
    order = order[np.argsort(first[order], kind="stable")]
    return [np.sort(order[number::count]) for number in range(count)]
