"""``fit``, the only training loop: rounds of blocks with an exchange after each, epochs with a validation."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manyhands.errors import InputError
from manyhands.kernel import Ints, kernel
from manyhands.models.learner import Arrays, Feed, Learner, Loss
from manyhands.records import Progress, Traffic
from manyhands.text.hashing import mix
from manyhands.train.exchange import Exchange
from manyhands.train.schedule import Linear

BLOCKS_A_ROUND = 32
NOTHING = Loss(0.0, 0.0)

Validate = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn."""

    epochs: int
    schedule: Linear
    seed: int
    threads: int
    patience: int
    judged_by: str = "accuracy"


@dataclass
class State:
    """How far training has come: with the learner's weights, all that is needed to go on."""

    epoch: int = 0
    round: int = 0
    seen: int = 0
    seconds: float = 0.0
    loss: Loss = NOTHING
    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    best: Arrays = field(default_factory=dict)
    whole: bool = True  # False inside a round, when the weights are ahead of what is said here

    def done(self, plan: Plan) -> bool:
        patient = not self.best_epoch or self.epoch - self.best_epoch < plan.patience
        return self.epoch >= plan.epochs or not patient


def fit(
    learner: Learner,
    feed: Feed,
    plan: Plan,
    exchange: Exchange,
    state: State,
    *,
    validate: Validate | None,
    keep: Callable[[State], None],
    progress: Progress,
) -> Traffic:
    """Train until the epochs are over or validation no longer improves; ``state`` tells how it went."""
    exchange.start(learner)
    with ThreadPoolExecutor(plan.threads) as hands:
        while not state.done(plan):
            progress.stage(f"epoch {state.epoch + 1} of {plan.epochs}", _rows(feed), "rows")
            for blocks in _rounds(len(feed), plan.seed, state.epoch)[state.round :]:
                began, state.whole = time.monotonic(), False
                work = _with_rates(blocks, feed, plan, state)
                losses = list(hands.map(lambda item: learner.learn(feed.block(item[0]), *item[1:]), work))
                state.loss = _added(state, losses)
                state.seen += exchange.round(learner, sum(feed.rows(block) for block in blocks))
                state.round += 1
                state.whole = True
                state.seconds += time.monotonic() - began
                keep(state)
                progress.advance(state.seen - state.epoch * _rows(feed), f"loss {state.loss.mean:.4f}")
            _end_epoch(learner, plan, state, validate() if validate else {})
            keep(state)
    return exchange.finish(learner)


def _rounds(blocks: int, seed: int, epoch: int) -> list[Ints]:
    """The blocks of an epoch in an order of its own, cut into rounds."""
    order = np.random.default_rng([seed, epoch]).permutation(blocks)
    return [order[start : start + BLOCKS_A_ROUND] for start in range(0, blocks, BLOCKS_A_ROUND)]


def _with_rates(blocks: Ints, feed: Feed, plan: Plan, state: State) -> list[tuple[int, float, int]]:
    """Each block with the rate at its place in the whole training, and a seed of its own."""
    work, seen = [], state.seen
    for block in blocks.tolist():
        work.append((block, plan.schedule.at(seen), _seed(plan.seed, state.epoch, block)))
        seen += feed.rows(block)
    return work


def _seed(seed: int, epoch: int, block: int) -> int:
    """From (seed, epoch, block) and never from who does the work, so that it does not matter who does."""
    return int(_mixed(np.uint64(seed), np.uint64(epoch), np.uint64(block))) >> 2


def _rows(feed: Feed) -> int:
    return sum(feed.rows(block) for block in range(len(feed)))


def _added(state: State, losses: list[Loss]) -> Loss:
    total = state.loss.total + sum(loss.total for loss in losses)
    if not np.isfinite(total):
        raise InputError(
            f"the loss became {total} in epoch {state.epoch + 1} after {state.seen:,} rows; lower --rate"
        )
    return Loss(total, state.loss.rows + sum(loss.rows for loss in losses))


def _end_epoch(learner: Learner, plan: Plan, state: State, scores: dict[str, float]) -> None:
    """Write down how the epoch went, and keep its weights if none was better."""
    state.epoch += 1
    state.round = 0
    state.history.append({"epoch": state.epoch, "loss": state.loss.mean, **scores})
    state.loss = NOTHING
    judged = [epoch.get(plan.judged_by, float("-inf")) for epoch in state.history]
    if scores and judged[-1] > max(judged[:-1], default=float("-inf")):
        state.best_epoch = state.epoch
        state.best = {name: array.copy() for name, array in learner.weights().items()}


@kernel
def _mixed(seed: np.uint64, epoch: np.uint64, block: np.uint64) -> np.uint64:
    return mix(mix(mix(seed) + epoch) + block)
