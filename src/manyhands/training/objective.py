"""What is learnt, labels of texts or vectors of words: all that differs between the two around the loop."""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.evaluate import judge, judge_in_detail
from manyhands.models.learner import Learner
from manyhands.models.model import Classifier
from manyhands.settings import TrainingSettings
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Exchange
from manyhands.training.job import Job
from manyhands.training.state import Validate

JUDGED_BY = {False: "accuracy", True: "micro_f1"}


class Tested(NamedTuple):
    """How good a finished model is: {} where the rows say nothing. ``details`` are for a report."""

    scores: dict[str, Any]
    details: dict[str, Any]


class Objective(Protocol):
    labelled: bool  # the rows need labels

    def ready(self, job: Job, examples: LabelledRows) -> LabelledRows:
        """The rows as they are learnt, if anything can be learnt from them."""
        ...

    def judged_by(self, examples: LabelledRows) -> str:
        """The validation score by which epochs are compared; more is better."""
        ...

    def validation(
        self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int
    ) -> Validate: ...

    def test(self, model: Any, test: LabelledRows, threads: int) -> "Tested":
        """The scores of the finished model on the test rows."""
        ...


class Classification:
    """Texts are told apart by their labels."""

    labelled = True

    def ready(self, job: Job, examples: LabelledRows) -> LabelledRows:
        examples.check_trainable(continued=job.previous is not None)
        check_weights(examples)
        weighted = with_class_weights(examples, job.training)
        return with_labels_of(job.previous.classifier, weighted) if job.previous else weighted

    def judged_by(self, examples: LabelledRows) -> str:
        return JUDGED_BY[examples.labels.multi_label]

    def validation(self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int) -> Validate:
        def validate() -> dict[str, float]:
            model = learner.model()
            scores = exchange.gather(
                len(valid), lambda first, last: model.scores(valid.corpus.part(first, last), threads)
            )
            facts = judge(model, valid, scores=scores).facts()
            return {name: facts[name] for name in ("accuracy", "macro_f1", "micro_f1")}

        return validate

    def test(self, model: Any, test: LabelledRows, threads: int) -> Tested:
        report, details = judge_in_detail(model, test, threads)
        facts = report.facts()
        names = ("rows", "accuracy", "macro_f1", "micro_f1", "log_loss")
        return Tested({name: facts[name] for name in names}, details)


class WordVectors:
    """Words are told from negative samples: judged by how likely held-out text is."""

    labelled = False

    def ready(self, job: Job, examples: LabelledRows) -> LabelledRows:
        if job.training.class_weights != "none":
            raise UsageError("--class-weights is for classifiers")
        if not examples.corpus.tokens:
            raise InputError("there is no word to learn from")
        return examples

    def judged_by(self, examples: LabelledRows) -> str:
        return "log_likelihood"

    def validation(self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int) -> Validate:
        feed = learner.model().sampling.held_out(valid.corpus)

        def validate() -> dict[str, float]:
            model = learner.model()
            losses = exchange.gather(len(feed), lambda first, last: model.losses(feed, first, last, threads))
            return _likelihood(losses)

        return validate

    def test(self, model: Any, test: LabelledRows, threads: int) -> Tested:
        feed = model.sampling.held_out(test.corpus)
        found = _likelihood(model.losses(feed, 0, len(feed), threads))
        return Tested({"rows": len(test), **found} if found else {}, {})


def _likelihood(losses: Any) -> dict[str, float]:
    """The mean over all pairs of neighbours, with their negative samples; {} if there are none."""
    total, pairs = losses.sum(axis=0, dtype=float).tolist()
    return {"log_likelihood": -total / pairs} if pairs else {}


OBJECTIVES: dict[str, Objective] = {"labels": Classification(), "words": WordVectors()}


def objective_of(model: str) -> Objective:
    return OBJECTIVES[load(LEARNERS, "model", model).learns]


def with_class_weights(examples: LabelledRows, settings: TrainingSettings) -> LabelledRows:
    """Rows of rare classes count more, if that was asked for."""
    if settings.class_weights == "none":
        return examples
    labels = examples.labels
    counts = np.bincount(labels.ids, minlength=len(labels.names)).astype(np.float64)
    return weighted_by_class(examples, counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)))


def weighted_by_class(examples: LabelledRows, of_class: npt.NDArray[np.float64]) -> LabelledRows:
    """Each row counts so many times more as its class does, or its classes do on average."""
    labels = examples.labels
    sums = np.add.reduceat(np.append(of_class[labels.ids], 0.0), labels.offsets[:-1])
    lengths = np.diff(labels.offsets)
    of_row = np.where(lengths > 0, sums / np.maximum(lengths, 1), 1.0)
    of_row /= max(of_row.mean(), 1e-9)  # the learning rate is meant for rows that count once on average
    return replace(examples, weights=(examples.weights * of_row).astype(np.float32))


def with_labels_of(previous: Classifier, examples: LabelledRows) -> LabelledRows:
    """Labels that an earlier model knew keep their places; new ones follow."""
    known = set(previous.labels)
    new = [name for name in examples.labels.names if name not in known]
    return examples.with_names([*previous.labels, *new])


def check_weights(examples: LabelledRows) -> None:
    if not examples.weights.sum() > 0:
        raise InputError("the weights of all rows to train on are 0")
