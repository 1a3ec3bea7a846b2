"""A worker of a crew that tests start by torchrun: trains on made-up rows and writes its weights.

torchrun … crew_worker.py '[{"model": …, "rows": …, "shares": […], "settings": {…}, "out": …}, …]'

One crew does several jobs after each other, since it takes far longer to start than to learn so little.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from manyhands.models.recurrent import lstm
from manyhands.records import Resources, Silent
from manyhands.spread.allreduce import AllReduceExchange
from manyhands.spread.balance import Policy
from manyhands.spread.group import Group
from manyhands.spread.node import LostWorkerError
from manyhands.training.job import job_for
from manyhands.training.learn import learn
from manyhands.training.objective import objective_of
from tests.tasks import examples, running_text, unlabelled

RANK = int(os.environ.get("RANK", "0"))


def main(calls):
    for number, call in enumerate(calls):
        if number:  # each needs a store of its own, or keys of its own
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)
        with Group(call.get("silent", {}).get("seconds", 60)) as group:
            work(group, **call)


def work(
    group, rows, settings, out, model="lstm", shares=None, balance="off", stalls=(0, 0, 0, 0), silent=None
):
    lstm.gradients = slowed(stalls[RANK])
    job = job_for(model, settings, Resources(1, 1 << 30))
    steps = []

    def watch(state):
        steps.append((time.monotonic(), state.seen))
        if silent and silent["worker"] == RANK and len(steps) == silent["step"]:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun waits 30 s for who only makes a note
            time.sleep(3600)

    exchange = AllReduceExchange(group, Policy.parse(balance))
    if shares:
        exchange._shares = np.array(shares)
    try:
        made = examples(rows) if objective_of(model).labelled else unlabelled(running_text(rows))
        outcome = learn(job, made, None, exchange, Silent(), watch, keeps=False)
    except LostWorkerError as error:
        Path(out).with_suffix(f".{RANK}").write_text(str(error))
        os._exit(1)
    facts = {
        "seen": outcome.state.seen,
        "loss": outcome.state.history[-1]["loss"],
        "shares": [entry["shares"] for lap in outcome.state.laps for entry in lap["shares"]],
        "times": steps,
    }
    arrays = {name: array for name, array in outcome.model.arrays().items() if array.dtype == np.float32}
    np.savez(Path(out).with_suffix(f".{RANK}.npz"), facts=json.dumps(facts), **arrays)


gradients = lstm.gradients


def slowed(stall):
    def wrapped(work, batch):
        part = gradients(work, batch)
        if stall:
            time.sleep(stall * len(batch.rows))
        return part

    return wrapped


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
