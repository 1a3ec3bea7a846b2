"""The cluster model: how long a training takes on a cluster, and what for.

A training is turns: every worker learns its rows, then all exchange what they have learnt. A turn takes as
long as the slowest worker, and its exchange as long as the busiest link needs (see ``exchange``).
Where workers are unequal or do not wait for each other, no formula holds, and turns are simulated.
"""

import numpy as np
from scipy.special import ndtri

from manyhands.plan.costs import Costs
from manyhands.plan.exchange import exchanges_of
from manyhands.plan.fleet import Fleet, Floats
from manyhands.plan.simulate import mean_of_slowest, without_waiting
from manyhands.plan.work import Parts, Storage, Work


def time_parts(work: Work, fleet: Fleet, costs: Costs, reference: float) -> Parts:
    """Seconds of a training on each cluster. ``reference`` is the batch that ``row`` costs are for."""
    count = _learning(work, fleet)
    crew = (count * fleet.workers).sum(axis=1)
    rows = _rows_of_turn(work, crew)
    turns = np.maximum(work.rows * work.epochs / rows, 1)
    step = _steps(work, fleet, costs, reference, rows, count)
    compute = (step * count * fleet.workers).sum(axis=1) / crew
    exchanges = exchanges_of(work, fleet, costs, count, rows, compute)
    wait = compute * costs["jitter"] * _slowest_of(crew) * work.waits
    for index in np.flatnonzero(fleet.mixed.any(axis=1)):
        steps = np.repeat(step[index], (count[index] * fleet.workers[index]).astype(int))
        if work.waits:
            wait[index] = mean_of_slowest(steps, costs["jitter"]) - compute[index]
        else:  # the fast take more turns than the slow
            exchange = float(exchanges.seconds[index] / exchanges.stretch[index])
            compute[index] = without_waiting(steps, costs["jitter"], exchange) - exchange
    epoch = work.rows * compute / rows  # of everyone's compute
    if work.remakes:
        compute = compute * (1 + work.passes_before)
    outside = 0 if work.loop_only else 1
    return Parts(
        start=outside * (costs["start"] + work.engine * costs["engine"]) * np.ones_like(crew),
        load=outside * (_before(work, fleet, costs, count, epoch) + _fetch(work, fleet, costs)),
        compute=turns * compute + outside * work.epochs * _validation(work, fleet, costs),
        wait=turns * wait,
        exchange=exchanges.total(turns),
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


def _before(work: Work, fleet: Fleet, costs: Costs, count: Floats, epoch: Floats) -> Floats:
    """Seconds until rows are read and counted: a part of it is done by one thread, whoever else is there.

    ``epoch`` is how long all workers together learn the rows.
    """
    row = fleet.of_devices(costs, "row") * fleet.of_instances(costs, "core")
    alone = work.rows * (row * count).sum(axis=1) / count.sum(axis=1)
    serial = costs["serial"] / (1 + costs["serial"])
    seconds: Floats = work.passes_before * (serial * alone + (1 - serial) * epoch)
    return seconds


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
