"""A training that has begun: learner, state, checkpoints and validation, the same for every spread."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from manyhands.catalog import LEARNERS, SPREADS, load
from manyhands.errors import ResumableError
from manyhands.models.learner import Feed, Learner, arrays_of
from manyhands.records import Progress, Traffic
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.checkpoint import Keeper
from manyhands.training.exchange import Exchange
from manyhands.training.job import Job, Outcome
from manyhands.training.loop import fit
from manyhands.training.money import Account
from manyhands.training.objective import OBJECTIVES, Objective
from manyhands.training.schedule import Schedule
from manyhands.training.state import Plan, State, Validate

Watch = Callable[[State], None]


@dataclass
class Training:
    """All that a spread needs to go on from. ``keeps`` says whether this worker writes checkpoints."""

    job: Job
    learner: Learner
    examples: LabelledRows  # as they are learnt
    objective: Objective
    exchange: Exchange
    state: State
    keeper: Keeper | None
    watch: Watch | None
    keeps: bool
    account: Account
    judged_rows: int = 0

    def keep(self, state: State) -> None:
        """After every round: tell who watches, and keep a checkpoint if it is time or if all are to stop."""
        if self.watch is not None:
            self.watch(state)
        self.account.note(state)
        keeper = self.keeper if self.keeps and self.exchange.keeps_weights else None
        short = self.account.is_short(self._way(state))
        if short or self.exchange.stopping:
            state.spent = self.account.at_the_end(keeper.took or 0.0 if keeper else 0.0)
        if keeper:
            unmeasured = self.account.limited and keeper.took is None
            keeper.save(state) if self.exchange.stopping or short or unmeasured else keeper(state)
        if short and self.account.is_short(self._way(state)):  # the checkpoint may have taken less this time
            self.account.ends = True
            self.exchange.stop()
        if self.exchange.stopping:
            raise self.account.error() or ResumableError(
                "interrupted; to continue, repeat the command with --resume"
            )
        self.account.mark()

    def _way(self, state: State) -> float:
        """Seconds to the next place where the run can stop, and a checkpoint there."""
        saving = self.keeper.took or 0.0 if self.keeper else 0.0
        # A row takes less to judge than to learn.
        first_validation = state.seconds * self.judged_rows / len(self.examples)
        return self.account.way(state, self.exchange.stops_after, first_validation, saving)

    @property
    def judged_by(self) -> str:
        return self.objective.judged_by(self.job, self.examples)

    def validation(self, valid: LabelledRows | None) -> Validate | None:
        if valid is None or not len(valid):
            return None
        self.judged_rows = len(valid)
        threads = self.job.resources.threads
        scores = self.objective.validation(self.learner, valid, self.exchange, threads, self.judged_by)

        def validate() -> dict[str, float]:
            with self.exchange.clock.on("validate"):
                return scores()

        return validate

    def run(self, loop: Callable[[], Traffic]) -> Outcome:
        """Run a loop over the state, and give back the best epoch's model."""
        state = self.state
        self.account.mark()
        try:
            traffic = loop()
        except BaseException as error:  # an interrupt above all: what was learnt is not lost
            saved = isinstance(error, ResumableError)
            keeps = self.keeps and self.exchange.keeps_weights
            if self.keeper and keeps and state.seen and state.whole and not saved:
                state.spent = self.account.spent
                self.keeper.save(state)
            raise
        arrays = arrays_of(self.learner)
        for name, array in arrays.items():
            if state.best_epoch not in (0, state.epoch) and self.exchange.keeps_weights:
                array[...] = state.best[name]
        workers = self.exchange.workers
        size = sum(array.nbytes for array in arrays.values())
        return Outcome(self.learner.model(), state, traffic, self.job.spread, workers, self.account, size)


def begin(
    job: Job,
    examples: LabelledRows,
    valid: LabelledRows | None,
    exchange: Exchange,
    progress: Progress,
    watch: Watch | None = None,
    *,
    keeps: bool = True,
) -> Training:
    """A learner that knows nothing yet, or what the checkpoint or the bundle to continue from knew."""
    kind: type[Learner] = load(LEARNERS, "model", job.model)
    objective = OBJECTIVES[kind.learns]
    examples = objective.ready(job, examples)
    previous = job.previous.model if job.previous else None
    identity = job.identity(examples, valid)
    said = exchange.join(identity, kind, examples)
    if said:
        progress.say(said)
    learner = kind.begin(job.settings, examples, previous, job.resources, progress, exchange)
    state, keeper = State(), None
    if job.checkpoint is not None:
        keeper = Keeper(job.checkpoint, identity, learner, job.training.checkpoint_seconds)
        if job.resume or job.run:
            state = keeper.restore(job.run)
    state.run = state.run or secrets.token_hex(8)
    exchange.start(learner, state)
    leaving = load(SPREADS, "spread", job.spread).leaving_seconds
    account = Account(job.training.price, job.training.budget, job.paid_since, leaving)
    account.begin(state)
    return Training(job, learner, examples, objective, exchange, state, keeper, watch, keeps, account)


def learn(
    job: Job,
    examples: LabelledRows,
    valid: LabelledRows | None,
    exchange: Exchange,
    progress: Progress,
    watch: Watch | None = None,
    *,
    keeps: bool = True,
) -> Outcome:
    """One worker's training by the usual loop, from rows to a model. ``watch`` is told of every round."""
    training = begin(job, examples, valid, exchange, progress, watch, keeps=keeps)
    feed = training.learner.feed(training.examples, job.settings.seed, job.resources, progress, exchange)
    plan = Plan(
        epochs=job.settings.epochs,
        schedule=schedule_of(job, feed),
        seed=job.settings.seed,
        threads=1 if job.training.deterministic else job.resources.threads,
        patience=job.training.early_stopping,
        judged_by=training.judged_by,
    )
    validate = training.validation(valid)
    return training.run(
        lambda: fit(
            training.learner,
            feed,
            plan,
            exchange,
            training.state,
            validate=validate,
            keep=training.keep,
            progress=progress,
        )
    )


def schedule_of(job: Job, feed: Feed) -> Schedule:
    rows = sum(feed.rows(block) for block in range(len(feed))) * job.settings.epochs
    return Schedule(job.settings.learning_rate, rows, job.training.schedule, job.training.warmup)
