"""``fit``, the only training loop: rounds of blocks with an exchange after each, epochs with a validation."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from manyhands.errors import InputError
from manyhands.kernel import Ints, kernel
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import Progress, Traffic
from manyhands.text.hashing import mix
from manyhands.train.exchange import Exchange
from manyhands.train.state import NOTHING, Plan, State, Validate


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
    until: int | None = None,
) -> Traffic:
    """Train until the epochs are over or validation no longer improves; ``state`` tells how it went.

    With ``until``, training breaks off after so many rounds, counted from its very beginning.
    """
    exchange.start(learner, state)
    total = sum(feed.rows(block) for block in range(len(feed)))
    with ThreadPoolExecutor(plan.threads) as hands:
        while not state.done(plan):
            progress.stage(f"{plan.turn} {state.epoch + 1} of {plan.epochs}", total, feed.unit)
            rounds = _rounds(learner, feed, plan, state.epoch)
            last = len(rounds) if until is None else until - state.epoch * len(rounds)
            now = rounds[state.round : last]
            for blocks, pieces, rows in _ready(learner, feed, exchange, now, state.epoch, hands):
                began, state.whole = time.monotonic(), False
                work = zip(rows, _rates(blocks, pieces, feed, plan, state), strict=True)
                learn = partial(_learn, learner, list(work), exchange, hands)
                state.loss = _added(state, exchange.round(learner, rows, learn), plan, feed.unit)
                state.seen += sum(feed.rows(block) for block in blocks.tolist())
                state.round += 1
                state.whole = True
                state.seconds += time.monotonic() - began
                keep(state)
                progress.advance(state.seen - state.epoch * total, f"loss {state.loss.mean:.4f}")
            if until is None:
                _refuse_if_nothing_was_learnt(state)
            elif last <= len(rounds):
                break
            _end_epoch(learner, plan, state, validate() if validate else {}, exchange.lap())
            keep(state)
    return exchange.finish()


def state_at(learner: Learner, feed: Feed, plan: Plan, rounds: int) -> State:
    """Where training stands after so many rounds of it."""
    epoch, done = divmod(rounds, len(_rounds(learner, feed, plan, 0)))
    seen = epoch * sum(feed.rows(block) for block in range(len(feed)))
    for blocks in _rounds(learner, feed, plan, epoch)[:done]:
        seen += sum(feed.rows(block) for block in blocks.tolist())
    return State(epoch=epoch, round=done, seen=seen)


def _rounds(learner: Learner, feed: Feed, plan: Plan, epoch: int) -> list[Ints]:
    """The blocks of an epoch in an order of its own, cut into rounds; of one where a crew shares each."""
    order = np.random.default_rng([plan.seed, epoch]).permutation(len(feed))
    size = 1 if learner.shares_batches else plan.round_blocks
    return [order[start : start + size] for start in range(0, len(order), size)]


def _ready(
    learner: Learner,
    feed: Feed,
    exchange: Exchange,
    rounds: list[Ints],
    epoch: int,
    hands: ThreadPoolExecutor,
) -> Iterator[tuple[Ints, list[Piece], list[Any]]]:
    """Each round with this worker's rows, which are made while the round before is learnt.

    Whose rows they are is settled here, in step with the other workers, whenever the rows are made.
    """
    ahead: deque[tuple[Ints, list[Piece], list[Future[Any]]]] = deque()
    for blocks in [*rounds, None]:
        if blocks is not None:
            pieces = exchange.pieces(learner, feed, blocks)
            ahead.append((blocks, pieces, [hands.submit(feed.piece, piece, epoch) for piece in pieces]))
        if len(ahead) > (blocks is not None):
            blocks_now, pieces_now, coming = ahead.popleft()
            with exchange.clock.on("load"):
                rows = [future.result() for future in coming]
            yield blocks_now, pieces_now, rows


def _learn(
    learner: Learner,
    work: list[tuple[Any, tuple[float, int]]],
    exchange: Exchange,
    hands: ThreadPoolExecutor,
) -> list[Loss]:
    if learner.shares_batches:  # its threads are inside, and those of the loop make the next rows
        return [learner.learn(rows, rate, seed, exchange) for rows, (rate, seed) in work]
    with exchange.clock.on("learn"):
        return list(hands.map(lambda item: learner.learn(item[0], item[1][0], item[1][1], exchange), work))


def _rates(
    blocks: Ints, pieces: list[Piece], feed: Feed, plan: Plan, state: State
) -> list[tuple[float, int]]:
    """For each piece the rate at its block's place in the whole training, and a seed of its own."""
    rates, seen = {}, state.seen
    for block in blocks.tolist():
        rates[block] = plan.schedule.at(seen)
        seen += feed.rows(block)
    return [(rates[piece.block], _seed(plan.seed, state.epoch, piece.block)) for piece in pieces]


def _seed(seed: int, epoch: int, block: int) -> int:
    """From (seed, epoch, block) and never from who does the work, so that it does not matter who does."""
    return int(_mixed(np.uint64(seed), np.uint64(epoch), np.uint64(block))) >> 2


def _added(state: State, loss: Loss, plan: Plan, unit: str) -> Loss:
    total = state.loss.total + loss.total
    if not np.isfinite(total):
        raise InputError(
            f"the loss became {total} in {plan.turn} {state.epoch + 1}, step {state.round + 1}, "
            f"after {state.seen:,} {unit}; lower --rate"
        )
    return Loss(total, state.loss.rows + loss.rows)


def _refuse_if_nothing_was_learnt(state: State) -> None:
    if not state.loss.rows:
        raise InputError("there was nothing to learn: no row counts, or no word has a neighbour in its row")


def _end_epoch(
    learner: Learner, plan: Plan, state: State, scores: dict[str, float], lap: dict[str, Any]
) -> None:
    """Write down how the epoch went, and keep its weights if none was better."""
    state.laps.append({"rounds": state.round, "seen": state.seen, **lap})
    state.epoch += 1
    state.round = 0
    state.history.append(
        {"epoch": state.epoch, "loss": state.loss.mean, "examples": state.loss.rows, **scores}
    )
    state.loss = NOTHING
    judged = [epoch.get(plan.judged_by, float("-inf")) for epoch in state.history]
    if scores and judged[-1] > max(judged[:-1], default=float("-inf")):
        state.best_epoch = state.epoch
        state.best = {name: array.copy() for name, array in learner.weights().items()}


@kernel
def _mixed(seed: np.uint64, epoch: np.uint64, block: np.uint64) -> np.uint64:
    return mix(mix(mix(seed) + epoch) + block)
