"""One worker's run, from rows to a trained model: all of it that is the same however the work is spread."""

import secrets
from collections.abc import Callable

from manyhands.catalog import MODELS, load
from manyhands.errors import ResumableError
from manyhands.models.learner import Feed, Learner
from manyhands.records import Progress
from manyhands.spread.job import Job, Outcome
from manyhands.spread.task import TASKS
from manyhands.text.lesson import Lesson
from manyhands.train.checkpoint import Keeper
from manyhands.train.exchange import Course, Exchange
from manyhands.train.fit import fit
from manyhands.train.schedule import Schedule
from manyhands.train.state import Plan, State, Validate

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
    kind: type[Learner] = load(MODELS, "model", job.model)
    task = TASKS[kind.learns]
    lesson = task.ready(job, lesson)
    learner, feed = kind.begin(job.settings, lesson, job.previous, job.resources, progress, exchange.share)
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
        validate = _timed(task.validation(learner, valid, exchange, job.resources.threads), exchange)
    course = exchange.course(feed, job.settings.epochs)
    try:
        traffic = fit(
            learner,
            course.feed,
            plan_of(job, course, task.judged_by(lesson)),
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


def plan_of(job: Job, course: Course, judged_by: str) -> Plan:
    return Plan(
        epochs=course.turns,
        schedule=schedule_of(job, course.feed, course.turns),
        seed=job.settings.seed,
        threads=1 if job.frame.deterministic else job.resources.threads,
        patience=-(-job.frame.patience * course.turns // job.settings.epochs),  # is counted in epochs
        judged_by=judged_by,
        turn=course.turn,
    )


def schedule_of(job: Job, feed: Feed, epochs: int) -> Schedule:
    rows = sum(feed.rows(block) for block in range(len(feed))) * epochs
    return Schedule(job.settings.rate, rows, job.frame.schedule, job.frame.warm_up)


def _timed(validate: Validate, exchange: Exchange) -> Validate:
    def timed() -> dict[str, float]:
        with exchange.clock.on("validate"):
            return validate()

    return timed
