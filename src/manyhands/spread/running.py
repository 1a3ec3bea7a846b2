"""One worker's run, from rows to a trained model: all of it that is the same however the work is spread."""

import secrets
from collections.abc import Callable

from manyhands.catalog import MODELS, load
from manyhands.errors import ResumableError
from manyhands.evaluate.judging import judge
from manyhands.models.learner import Learner
from manyhands.records import Progress
from manyhands.spread.job import Job, Outcome, check_weights, continued_labels, with_class_weights
from manyhands.text.lesson import Lesson
from manyhands.train.checkpoint import Keeper
from manyhands.train.exchange import Exchange
from manyhands.train.fit import fit
from manyhands.train.schedule import Schedule
from manyhands.train.state import Plan, State, Validate

JUDGED_BY = {False: "accuracy", True: "micro_f1"}

Watch = Callable[[State], None]


def learn(
    job: Job,
    lesson: Lesson,
    valid: Lesson | None,
    exchange: Exchange,
    progress: Progress,
    watch: Watch | None = None,
    *,
    keeps: bool = True,
) -> Outcome:
    """Train, and give back the best epoch's model. ``watch`` is told of every round.

    Of a crew, only who ``keeps`` writes checkpoints.
    """
    lesson.check_trainable(continued=job.previous is not None)
    check_weights(lesson)
    lesson = continued_labels(with_class_weights(lesson, job.frame), job.previous)
    kind: type[Learner] = load(MODELS, "model", job.model)
    learner, feed = kind.begin(job.settings, lesson, job.previous, job.resources, progress)
    identity = job.identity(lesson, valid)
    exchange.meet(identity, len(lesson))
    keeper = None
    if job.checkpoint is not None:
        keeper = Keeper(job.checkpoint, identity, learner, job.frame.checkpoint_seconds)
    state = State()
    if keeper and (job.resume or job.run):
        state = keeper.restore(job.run)
    state.run = state.run or secrets.token_hex(8)

    def keep(state: State) -> None:
        if watch is not None:
            watch(state)
        if keeper and keeps:
            keeper.save(state) if exchange.stopping else keeper(state)
        if exchange.stopping:
            raise ResumableError("interrupted; go on with the same command and --resume")

    validate = None
    if valid is not None and len(valid):
        validate = _validation(learner, valid, exchange, job.resources.threads)
    try:
        traffic = fit(
            learner,
            feed,
            _plan(job, lesson),
            exchange,
            state,
            validate=validate,
            keep=keep,
            progress=progress,
        )
    except BaseException as error:  # an interrupt above all: what was learnt is not lost
        saved = isinstance(error, ResumableError)
        if keeper and keeps and state.seen and state.whole and not saved:
            keeper.save(state)
        raise
    for name, array in learner.weights().items():
        if state.best_epoch not in (0, state.epoch):
            array[...] = state.best[name]
    return Outcome(learner.model(), state, traffic, job.spread.spread, exchange.workers)


def _plan(job: Job, lesson: Lesson) -> Plan:
    rows = len(lesson) * job.settings.epochs
    return Plan(
        epochs=job.settings.epochs,
        schedule=Schedule(job.settings.rate, rows, job.frame.schedule, job.frame.warm_up),
        seed=job.settings.seed,
        threads=1 if job.frame.deterministic else job.resources.threads,
        patience=job.frame.patience,
        judged_by=JUDGED_BY[lesson.labels.several],
    )


def _validation(learner: Learner, valid: Lesson, exchange: Exchange, threads: int) -> Validate:
    def validate() -> dict[str, float]:
        model = learner.model()
        with exchange.clock.on("validate"):
            scores = exchange.made_together(
                len(valid), lambda first, last: model.scores(valid.corpus.part(first, last), threads)
            )
            facts = judge(model, valid, scores=scores).facts()
        return {name: facts[name] for name in ("accuracy", "macro_f1", "micro_f1")}

    return validate
