"""A worker of a crew that tests start by torchrun: trains on made-up rows and writes its weights.

torchrun … tests/spread/crew_worker.py '{"model": …, "rows": …, "shares": […], "settings": {…}, "out": …}'
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from manyhands.models import lstm
from manyhands.records import Resources, Silent
from manyhands.spread.allreduce import AllReduce
from manyhands.spread.balance import Policy
from manyhands.spread.group import Group, LostWorkerError
from manyhands.spread.job import job_for
from manyhands.spread.running import learn
from manyhands.spread.task import task_of
from tests.tasks import lesson, running_text, unlabelled


def main(
    rows, settings, out, model="lstm", shares=None, balance="off", stalls=None, stop_at=None, silent=None
):
    rank = int(os.environ["RANK"])
    if stalls:
        slow_down(stalls[rank])
    job = job_for(model, settings, Resources(1, 1 << 30))
    steps = []

    def watch(state):
        steps.append((time.monotonic(), state.seen))
        if silent and silent["worker"] == rank and len(steps) == silent["step"]:
            time.sleep(3600)

    with Group(silent["seconds"] if silent else 60) as group:
        exchange = AllReduce(group, Policy.parse(balance))
        if shares:
            exchange._shares = np.array(shares)
        try:
            made = lesson(rows) if task_of(model).labelled else unlabelled(running_text(rows))
            outcome = learn(job, made, None, exchange, Silent(), watch, keeps=False)
        except LostWorkerError as error:
            Path(out).with_suffix(f".{rank}").write_text(str(error))
            os._exit(1)
    facts = {
        "seen": outcome.state.seen,
        "loss": outcome.state.history[-1]["loss"],
        "shares": [entry["shares"] for lap in outcome.state.laps for entry in lap["shares"]],
        "times": steps,
    }
    arrays = {name: array for name, array in outcome.model.arrays().items() if array.dtype == np.float32}
    np.savez(Path(out).with_suffix(f".{rank}.npz"), facts=json.dumps(facts), **arrays)


def slow_down(stall):
    gradients = lstm.gradients

    def slowed(work, batch):
        part = gradients(work, batch)
        time.sleep(stall * len(batch.rows))
        return part

    lstm.gradients = slowed


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
