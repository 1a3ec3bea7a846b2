"""What is learnt, labels of texts or vectors of words: all that differs between the two around the loop."""

from typing import Any, Protocol

from manyhands.catalog import MODELS, load
from manyhands.errors import InputError, UsageError
from manyhands.evaluate.judging import judge
from manyhands.models.learner import Learner
from manyhands.spread.job import Job, check_weights, continued_labels, with_class_weights
from manyhands.text.lesson import Lesson
from manyhands.train.exchange import Exchange
from manyhands.train.state import Validate

JUDGED_BY = {False: "accuracy", True: "micro_f1"}


class Task(Protocol):
    labelled: bool  # the rows need labels

    def ready(self, job: Job, lesson: Lesson) -> Lesson:
        """The lesson as it is learnt, if anything can be learnt from it."""
        ...

    def judged_by(self, lesson: Lesson) -> str:
        """The validation score by which epochs are compared; more is better."""
        ...

    def validation(self, learner: Learner, valid: Lesson, exchange: Exchange, threads: int) -> Validate: ...

    def tested(self, model: Any, test: Lesson, threads: int) -> dict[str, Any]:
        """The scores of the finished model on the test rows; {} if they say nothing."""
        ...


class Labels:
    """Texts are told apart."""

    labelled = True

    def ready(self, job: Job, lesson: Lesson) -> Lesson:
        lesson.check_trainable(continued=job.previous is not None)
        check_weights(lesson)
        return continued_labels(with_class_weights(lesson, job.frame), job.previous)

    def judged_by(self, lesson: Lesson) -> str:
        return JUDGED_BY[lesson.labels.several]

    def validation(self, learner: Learner, valid: Lesson, exchange: Exchange, threads: int) -> Validate:
        def validate() -> dict[str, float]:
            model = learner.model()
            scores = exchange.made_together(
                len(valid), lambda first, last: model.scores(valid.corpus.part(first, last), threads)
            )
            facts = judge(model, valid, scores=scores).facts()
            return {name: facts[name] for name in ("accuracy", "macro_f1", "micro_f1")}

        return validate

    def tested(self, model: Any, test: Lesson, threads: int) -> dict[str, Any]:
        facts = judge(model, test, threads=threads).facts()
        return {name: facts[name] for name in ("rows", "accuracy", "macro_f1", "micro_f1", "log_loss")}


class Words:
    """Words are told from words drawn at random: judged by how likely held-out text is."""

    labelled = False

    def ready(self, job: Job, lesson: Lesson) -> Lesson:
        if job.frame.class_weights != "none":
            raise UsageError("--class-weights is for models of labels")
        if not lesson.corpus.tokens:
            raise InputError("there is no word to learn from")
        return lesson

    def judged_by(self, lesson: Lesson) -> str:
        return "log_likelihood"

    def validation(self, learner: Learner, valid: Lesson, exchange: Exchange, threads: int) -> Validate:
        feed = learner.model().hood.held_out(valid.corpus)

        def validate() -> dict[str, float]:
            model = learner.model()
            losses = exchange.made_together(
                len(feed), lambda first, last: model.losses(feed, first, last, threads)
            )
            return _likelihood(losses)

        return validate

    def tested(self, model: Any, test: Lesson, threads: int) -> dict[str, Any]:
        feed = model.hood.held_out(test.corpus)
        found = _likelihood(model.losses(feed, 0, len(feed), threads))
        return {"rows": len(test), **found} if found else {}


def _likelihood(losses: Any) -> dict[str, float]:
    """The mean over all pairs of neighbours, with the words drawn against each; {} if there are none."""
    total, pairs = losses.sum(axis=0, dtype=float).tolist()
    return {"log_likelihood": -total / pairs} if pairs else {}


TASKS: dict[str, Task] = {"labels": Labels(), "words": Words()}


def task_of(model: str) -> Task:
    return TASKS[load(MODELS, "model", model).learns]
