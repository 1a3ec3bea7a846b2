"""What is learnt, labels of texts or vectors of words: all that differs between the two around the loop."""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manyhands.catalog import LEARNERS, load
from manyhands.errors import InputError, UsageError
from manyhands.evaluation.calibration import Calibrated, calibration_for
from manyhands.evaluation.classification import Report
from manyhands.evaluation.evaluate import judge, judge_in_detail
from manyhands.models.learner import Learner
from manyhands.models.model import Scorer
from manyhands.settings import F1_OF, TrainingSettings, nearest, option, weights_by_class
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.exchange import Exchange
from manyhands.training.job import Job
from manyhands.training.state import Validate

JUDGED_BY = {False: "accuracy", True: "micro_f1"}
TOLD = ("accuracy", "macro_f1", "micro_f1", "log_loss")  # of the validation rows, after each epoch


class Tested(NamedTuple):
    """How good a finished model is: {} where the rows say nothing. ``details`` are for a report."""

    scores: dict[str, Any]
    details: dict[str, Any]


class Objective(Protocol):
    labelled: bool  # the rows need labels

    def ready(self, job: Job, examples: LabelledRows) -> LabelledRows:
        """The rows as they are learnt, if anything can be learnt from them."""
        ...

    def judged_by(self, job: Job, examples: LabelledRows) -> str:
        """The validation score by which epochs are compared."""
        ...

    def validation(
        self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int, judged_by: str
    ) -> Validate: ...

    def calibrated(self, job: Job, model: Any, held_out: LabelledRows) -> Calibrated | None:
        """How to set the probabilities of the finished model right, by rows that it has not learnt from."""
        ...

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

    def judged_by(self, job: Job, examples: LabelledRows) -> str:
        chosen, labels = job.training.judge_by, examples.labels
        if chosen.startswith(F1_OF) and (label := chosen.removeprefix(F1_OF)) not in labels.names:
            raise UsageError(
                f"--judge-by {chosen}: no row has the label '{label}'; {nearest(label, labels.names)}"
            )
        if chosen != "auto":
            return chosen
        balanced = job.training.class_weights == "balanced"
        return "macro_f1" if balanced and not labels.multi_label else JUDGED_BY[labels.multi_label]

    def validation(
        self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int, judged_by: str
    ) -> Validate:
        def validate() -> dict[str, float]:
            model = learner.model()
            scores = exchange.gather(
                len(valid), lambda first, last: model.scores(valid.corpus.part(first, last), threads)
            )
            report = judge(model, valid, scores=scores)
            found = {name: value for name in TOLD if (value := getattr(report, name)) is not None}
            found[judged_by] = measured(report, judged_by)
            return found

        return validate

    def calibrated(self, job: Job, model: Any, held_out: LabelledRows) -> Calibrated | None:
        if job.training.calibrate == "none":
            return None
        known = held_out.with_names(model.labels)
        scores = model.scores(known.corpus, job.resources.threads)
        return calibration_for(scores, known, multi_label=model.multi_label, method=job.training.calibrate)

    def test(self, model: Any, test: LabelledRows, threads: int) -> Tested:
        report, details = judge_in_detail(model, test, threads)
        facts = report.facts()
        scores = {name: facts[name] for name in ("rows", *TOLD, "ece")}
        # Those of labels would make the record long; ``evaluate`` tells them.
        bounds = {name: found for name, found in report.intervals.items() if name in TOLD}
        return Tested({**scores, "intervals": bounds}, details)


def measured(report: Report, measure: str) -> float:
    """The score that ``--judge-by`` names."""
    if measure.startswith(F1_OF):
        return report.labels[measure.removeprefix(F1_OF)]["f1"]
    found: float | None = getattr(report, measure)
    if found is None:
        raise UsageError(
            f"--judge-by {measure} needs probabilities that add up to 1, and the loss of this model has each "
            "label for itself; choose another score"
        )
    return found


class WordVectors:
    """Words are told from negative samples: judged by how likely held-out text is."""

    labelled = False

    def ready(self, job: Job, examples: LabelledRows) -> LabelledRows:
        for name in ("class_weights", "judge_by", "calibrate"):
            if getattr(job.training, name) != TrainingSettings.model_fields[name].default:
                raise UsageError(f"{option(name)} is for classifiers")
        if not examples.corpus.tokens:
            raise InputError("there is no word to learn from")
        return examples

    def judged_by(self, job: Job, examples: LabelledRows) -> str:
        return "log_likelihood"

    def validation(
        self, learner: Learner, valid: LabelledRows, exchange: Exchange, threads: int, judged_by: str
    ) -> Validate:
        feed = learner.model().sampling.held_out(valid.corpus)

        def validate() -> dict[str, float]:
            model = learner.model()
            losses = exchange.gather(len(feed), lambda first, last: model.losses(feed, first, last, threads))
            return _likelihood(losses)

        return validate

    def calibrated(self, job: Job, model: Any, held_out: LabelledRows) -> Calibrated | None:
        return None

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
    """Rows of some classes count more, if that was asked for."""
    if settings.class_weights == "none":
        return examples
    labels = examples.labels
    if settings.class_weights != "balanced":
        given = weights_by_class(settings.class_weights)
        for name in given:
            if name not in labels.names:
                raise UsageError(
                    f"--class-weights: no row has the label '{name}'; {nearest(name, labels.names)}"
                )
        return weighted_by_class(examples, np.array([given.get(name, 1.0) for name in labels.names]))
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


def with_labels_of(previous: Scorer, examples: LabelledRows) -> LabelledRows:
    """Labels that an earlier model knew keep their places; new ones follow."""
    known = set(previous.labels)
    new = [name for name in examples.labels.names if name not in known]
    return examples.with_names([*previous.labels, *new])


def check_weights(examples: LabelledRows) -> None:
    if not examples.weights.sum() > 0:
        raise InputError("the weights of all rows to train on are 0")
