"""The cluster model: how long a training takes on a cluster, and what for.

A training is turns: every worker learns its rows, then all exchange what they have learnt. A turn takes as
long as the slowest worker, and its exchange as long as the slowest link needs for the bytes of the pattern.
Where workers are unequal or do not wait for each other, no formula holds, and turns are simulated.
"""

import numpy as np
from scipy.special import ndtri

from manyhands.plan.costs import Costs
from manyhands.plan.fleet import Fleet, Floats
from manyhands.plan.simulate import mean_of_slowest, without_waiting
from manyhands.plan.work import Parts, Pattern, Storage, Work


def time_parts(work: Work, fleet: Fleet, costs: Costs, reference: float) -> Parts:
    """Seconds of a training on each cluster. ``reference`` is the batch that ``row`` costs are for."""
    count = _learning(work, fleet)
    crew = (count * fleet.workers).sum(axis=1)
    rows = _rows_of_turn(work, crew)
    turns = np.maximum(work.rows * work.epochs / rows, 1)
    step = _steps(work, fleet, costs, reference, rows, count)
    exchange = _exchange(work, fleet, costs, crew, count)
    compute = (step * count * fleet.workers).sum(axis=1) / crew
    wait = compute * costs["jitter"] * _slowest_of(crew) * work.waits
    for index in np.flatnonzero(fleet.mixed.any(axis=1)):
        steps = np.repeat(step[index], (count[index] * fleet.workers[index]).astype(int))
        if work.waits:
            wait[index] = mean_of_slowest(steps, costs["jitter"]) - compute[index]
        else:  # the fast take more turns than the slow
            every = without_waiting(steps, costs["jitter"], float(exchange[index]))
            compute[index] = every - exchange[index]
    epoch = work.rows * compute / rows  # of everyone's compute
    if work.remakes:
        compute = compute * (1 + work.passes_before)
    outside = 0 if work.loop_only else 1
    return Parts(
        start=outside * (costs["start"] + work.engine * costs["engine"]) * np.ones_like(crew),
        load=outside * (work.passes_before * epoch + _fetch(work, fleet, costs)),
        compute=turns * compute + outside * work.epochs * _validation(work, fleet, costs),
        wait=turns * wait,
        exchange=turns * exchange,
    )


def _rows_of_turn(work: Work, crew: Floats) -> Floats:
    """What all workers learn together between two exchanges."""
    if work.turns_of_worker:
        turns = np.minimum(work.turns_of_worker * crew, work.most_turns)
        return work.rows / np.where(crew > 1, turns, 1)
    return work.batch * (np.ones_like(crew) if work.shared else crew)


def _learning(work: Work, fleet: Fleet) -> Floats:
    """Machines of each group that learn: of few rows, not all."""
    machines = fleet.count.sum(axis=1, keepdims=True)
    learning: Floats = fleet.count * np.minimum(1, work.most_machines / machines)
    return learning


def _steps(work: Work, fleet: Fleet, costs: Costs, reference: float, rows: Floats, count: Floats) -> Floats:
    """Seconds of a worker of each group for its rows of a turn."""
    row = fleet.of_devices(costs, "row") * fleet.of_instances(costs, "core")
    row = row / fleet.threads ** costs["threads"]
    crowded = np.maximum(fleet.workers * fleet.threads / np.maximum(fleet.processors, 1), 1)
    odds = fleet.of_devices(costs, "fixed")
    fixed = odds / (1 + odds)
    speed = 1 / row if work.balanced else np.ones_like(row)
    share = rows[:, None] * speed / (count * fleet.workers * speed).sum(axis=1, keepdims=True)
    seconds: Floats = row * crowded * (fixed * reference + (1 - fixed) * share)
    return seconds


def _exchange(work: Work, fleet: Fleet, costs: Costs, crew: Floats, count: Floats) -> Floats:
    """Seconds of an exchange: first between the devices of a machine, then between machines."""
    machines = count.sum(axis=1)
    speakers = machines if work.in_memory else crew
    here = count > 0
    link = np.where(here, fleet.links(costs), np.inf).min(axis=1)
    beside = np.where(here, fleet.workers, 1).max(axis=1)
    if work.pattern is Pattern.RING:
        sent, messages = 2 * (speakers - 1) / speakers, 2 * (speakers - 1)
    else:
        sent, messages = 2 * (speakers - 1), 2 * np.minimum(speakers - 1, 1)
    between = sent * work.exchange_bytes / link + messages * costs["latency"]
    inside = 0.0 if work.in_memory else 2 * (beside - 1) * work.exchange_bytes / costs["bus"]
    # A star has a master, who does his part for a single worker, too.
    alone = (crew <= 1) & (work.pattern is not Pattern.STAR)
    return np.where(machines > 1, between, 0) + inside + np.where(alone, 0, costs["turn"])


def _fetch(work: Work, fleet: Fleet, costs: Costs) -> Floats:
    """Seconds until every machine has read its share from where it is stored."""
    machines = fleet.count.sum(axis=1)
    readers = {Storage.LOCAL: 0.0, Storage.S3: 1 / machines, Storage.NFS: np.ones_like(machines)}
    seconds: Floats = readers[work.storage] * work.data_bytes / costs["store"] * np.ones_like(machines)
    return seconds


def _validation(work: Work, fleet: Fleet, costs: Costs) -> Floats:
    """Seconds after each epoch: workers share the rows."""
    hands = fleet.count * fleet.workers * fleet.threads ** costs["threads"]
    seconds: Floats = work.validation / hands.sum(axis=1)
    return seconds


def _slowest_of(crew: Floats) -> Floats:
    """How far the largest of so many standard normal numbers is from 0, on average (Blom)."""
    return np.where(crew > 1, ndtri((crew - 0.375) / (crew + 0.25)), 0)
