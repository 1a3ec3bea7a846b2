"""``fit``, the training loop: rounds of blocks with an exchange after each, epochs with a validation."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from manyhands.errors import InputError
from manyhands.kernels.compile import Ints, kernel
from manyhands.models.learner import Feed, Learner, Loss, Piece
from manyhands.records import Progress, Traffic
from manyhands.text.hashing import mix
from manyhands.training.exchange import Exchange, Step, Work, total_loss
from manyhands.training.state import Plan, State, Validate


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
    total = sum(feed.rows(block) for block in range(len(feed)))
    with ThreadPoolExecutor(plan.threads) as executor:
        learn = partial(_learn, learner, exchange, executor)
        while not state.done(plan):
            progress.stage(f"epoch {state.epoch + 1} of {plan.epochs}", total, feed.unit)
            order = block_order(plan.seed, state.epoch, len(feed))
            rounds = exchange.rounds(learner, feed, order)
            count, rounds = len(rounds), rounds[state.round :]
            steps = _steps(learner, feed, exchange, rounds, plan, state, executor)
            for blocks in rounds:
                began, state.whole = time.monotonic(), False
                state.add(exchange.round(learner, _one_round(steps), learn), feed.unit)
                state.seen += sum(feed.rows(block) for block in blocks.tolist())
                state.round += 1
                state.left = count - state.round
                state.whole = True
                state.seconds += time.monotonic() - began
                keep(state)
                progress.advance(state.seen - state.epoch * total, f"loss {state.loss.mean:.4f}")
            if not state.loss.rows:
                raise InputError(
                    "there was nothing to learn: no row counts, or no word has a neighbour in its row"
                )
            scores = validate() if validate else {}
            state.end_epoch(learner, plan, scores, exchange.lap(), copy=exchange.keeps_weights)
            state.left = 0 if state.done(plan) else count
            keep(state)
    return exchange.finish()


def block_order(seed: int, epoch: int, blocks: int) -> Ints:
    """The blocks of an epoch, in an order of its own."""
    return np.random.default_rng([seed, epoch]).permutation(blocks)


def block_seed(seed: int, epoch: int, block: int) -> int:
    """From (seed, epoch, block) and never from who does the work, so that it does not matter who does."""
    return int(_mixed(np.uint64(seed), np.uint64(epoch), np.uint64(block))) >> 2


def _steps(
    learner: Learner,
    feed: Feed,
    exchange: Exchange,
    rounds: list[Ints],
    plan: Plan,
    state: State,
    executor: ThreadPoolExecutor,
) -> Iterator[tuple[Step, bool]]:
    """This worker's steps of some rounds, and whether each ends its round.

    Rows are made while the step before is learnt. Whose rows they are is settled here, in step with the
    other workers, whenever the rows are made.
    """
    epoch, rates = state.epoch, _rates(rounds, feed, plan, state.seen)
    ahead: deque[tuple[list[Piece], list[Future[Any]], bool]] = deque()

    def ready() -> tuple[Step, bool]:
        pieces, coming, last = ahead.popleft()
        with exchange.clock.on("load"):
            rows = [future.result() for future in coming]
        # A piece has the learning rate of its block's place in the whole training, and a seed of its own.
        seeds = [block_seed(plan.seed, epoch, piece.block) + piece.first for piece in pieces]
        return [
            Work(row, rates[p.block], seed) for row, p, seed in zip(rows, pieces, seeds, strict=True)
        ], last

    for blocks in rounds:
        parts = exchange.steps(learner, feed, blocks)
        for number, pieces in enumerate(parts, 1):
            coming = [executor.submit(feed.piece, piece, epoch) for piece in pieces]
            ahead.append((pieces, coming, number == len(parts)))
            if len(ahead) > 1:
                yield ready()
    yield ready()


def _one_round(steps: Iterator[tuple[Step, bool]]) -> Iterator[Step]:
    for step, last in steps:
        yield step
        if last:
            return


def _learn(learner: Learner, exchange: Exchange, executor: ThreadPoolExecutor, step: Step) -> Loss:
    if learner.shares_batches:  # its threads are inside, and those of the loop make the next rows
        return total_loss(learner.learn(w.rows, w.rate, w.seed, exchange) for w in step)
    with exchange.clock.on("learn"):
        every = map if len(step) == 1 else executor.map  # a thread would have to be woken for one
        return total_loss(every(lambda w: learner.learn(w.rows, w.rate, w.seed, exchange), step))


def _rates(rounds: list[Ints], feed: Feed, plan: Plan, seen: int) -> dict[int, float]:
    rates = {}
    for block in (block for blocks in rounds for block in blocks.tolist()):
        rates[block] = plan.schedule.at(seen)
        seen += feed.rows(block)
    return rates


@kernel
def _mixed(seed: np.uint64, epoch: np.uint64, block: np.uint64) -> np.uint64:
    return mix(mix(mix(seed) + epoch) + block)
