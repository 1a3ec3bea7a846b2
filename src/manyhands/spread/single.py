"""``single``: one process, whose threads learn side by side in the same memory, without locks."""

from collections.abc import Callable

from manyhands.catalog import MODELS, load
from manyhands.evaluate.judging import judge
from manyhands.models.learner import Learner
from manyhands.records import Progress
from manyhands.spread.job import Job, Outcome, check_weights, continued_labels, with_class_weights
from manyhands.text.lesson import Lesson
from manyhands.train.checkpoint import Keeper
from manyhands.train.exchange import Alone
from manyhands.train.fit import Plan, State, Validate, fit
from manyhands.train.schedule import Schedule

JUDGED_BY = {False: "accuracy", True: "micro_f1"}


Watch = Callable[[State], None]


def run(
    job: Job, lesson: Lesson, valid: Lesson | None, progress: Progress, watch: Watch | None = None
) -> Outcome:
    """Train, and give back the best epoch's model. ``watch`` is told of every round."""
    lesson.check_trainable(continued=job.previous is not None)
    check_weights(lesson)
    lesson = continued_labels(with_class_weights(lesson, job.frame), job.previous)
    kind: type[Learner] = load(MODELS, "model", job.model)
    learner, feed = kind.begin(job.settings, lesson, job.previous, job.resources, progress)
    keeper = _keeper(job, lesson, valid, learner)
    state = keeper.restore() if keeper and job.resume else State()
    plan = Plan(
        epochs=job.settings.epochs,
        schedule=Schedule(
            job.settings.rate, len(lesson) * job.settings.epochs, job.frame.schedule, job.frame.warm_up
        ),
        seed=job.settings.seed,
        threads=1 if job.frame.deterministic else job.resources.threads,
        patience=job.frame.patience,
        judged_by=JUDGED_BY[lesson.labels.several],
    )
    validate = (
        _validation(learner, valid, job.resources.threads) if valid is not None and len(valid) else None
    )
    try:
        traffic = fit(
            learner,
            feed,
            plan,
            Alone(),
            state,
            validate=validate,
            keep=lambda state: _tell(state, keeper, watch),
            progress=progress,
        )
    except BaseException:  # an interrupt above all: what was learnt is not lost
        if keeper and state.seen and state.whole:
            keeper.save(state)
        raise
    for name, array in learner.weights().items():
        if state.best_epoch not in (0, state.epoch):
            array[...] = state.best[name]
    return Outcome(learner.model(), state, traffic, "single", 1)


def _keeper(job: Job, lesson: Lesson, valid: Lesson | None, learner: Learner) -> Keeper | None:
    if job.checkpoint is None:
        return None
    return Keeper(job.checkpoint, job.identity(lesson, valid), learner, job.frame.checkpoint_seconds)


def _tell(state: State, *listeners: Watch | None) -> None:
    for listener in listeners:
        if listener is not None:
            listener(state)


def _validation(learner: Learner, valid: Lesson, threads: int) -> Validate:
    def validate() -> dict[str, float]:
        facts = judge(learner.model(), valid, threads=threads).facts()
        return {name: facts[name] for name in ("accuracy", "macro_f1", "micro_f1")}

    return validate
