"""Real crews, started by torchrun: the same as one worker, whatever the shares; and who does not answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manyhands.records import Resources, Silent
from manyhands.spread.single import Single
from manyhands.training.job import job_for
from tests.tasks import examples, running_text, unlabelled

pytest.importorskip("torch", reason="crews need PyTorch")

WORKER = Path(__file__).with_name("crew_worker.py")
SMALL = {"dim": 16, "hidden_size": 16, "batch_size": 40, "epochs": 2}  # 50 steps of 1,000 rows


def crew(workers, *calls):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(workers)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(WORKER)]
    root = Path(__file__).parents[2]
    path = f"{root / 'src'}{os.pathsep}{root}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command.append(json.dumps(calls))
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def weights(out, rank=0):
    found = dict(np.load(out.with_suffix(f".{rank}.npz")))
    return json.loads(str(found.pop("facts"))), found


LSTMS = {
    "plain": SMALL,
    "gru": {**SMALL, "optimizer": "sgd", "learning_rate": 0.1, "bidirectional": True, "cell": "gru"},
}
LETTERS = {"dim": 10, "hidden_size": 16, "char_dim": 8, "batch_size": 256, "min_count": 1, "epochs": 2}
SHARES = {"even": [0.5, 0.5], "uneven": [0.8, 0.2]}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two workers made of each of these, in a folder."""
    folder = tmp_path_factory.mktemp("two")
    calls = []
    for name, shares in SHARES.items():
        for cell, settings in LSTMS.items():
            calls.append({"out": f"{cell}-{name}", "rows": 1000, "settings": settings, "shares": shares})
        letters = {"model": "charlstm", "rows": 200, "settings": LETTERS, "shares": shares}
        calls.append({"out": f"letters-{name}", **letters})
    done = crew(2, *({**call, "out": str(folder / call["out"])} for call in calls))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("cell", LSTMS)
@pytest.mark.parametrize("shares", SHARES)
def test_two_workers_equal_one_after_fifty_steps(two, cell, shares):
    alone = Single().run(job_for("lstm", LSTMS[cell], Resources(1, 1 << 30)), examples(1000), None, Silent())
    facts, together = weights(two / f"{cell}-{shares}")
    assert facts["seen"] == alone.state.seen == 2000
    assert facts["loss"] == pytest.approx(alone.state.history[-1]["loss"], rel=1e-5)
    expected = alone.model.arrays()
    for name, array in together.items():
        assert np.abs(array - expected[name]).max() <= 1e-6, name
    _, other = weights(two / f"{cell}-{shares}", rank=1)
    assert all(np.array_equal(other[name], array) for name, array in together.items())


@pytest.mark.parametrize("shares", SHARES)
def test_two_readers_of_letters_equal_one(two, shares):
    rows = unlabelled(running_text(200))
    alone = Single().run(job_for("charlstm", LETTERS, Resources(1, 1 << 30)), rows, None, Silent())
    facts, together = weights(two / f"letters-{shares}")
    assert facts["seen"] == alone.state.seen == 2 * rows.corpus.tokens
    assert facts["loss"] == pytest.approx(alone.state.history[-1]["loss"], rel=1e-5)
    expected = alone.model.arrays()
    for name, array in together.items():
        assert np.abs(array - expected[name]).max() <= 1e-5, name


@pytest.mark.parametrize("model", ["fasttext", "ngrams"])
def test_models_that_learn_in_place_are_as_good_together(tmp_path, model):
    alone = Single().run(job_for(model, {}, Resources(1, 1 << 30)), examples(20_000), None, Silent())
    done = crew(3, {"out": str(tmp_path / "three"), "model": model, "rows": 20_000, "settings": {}})
    assert done.returncode == 0, done.stderr[-3000:]
    facts, arrays = weights(tmp_path / "three")
    assert facts["seen"] == alone.state.seen
    assert facts["loss"] < alone.state.history[-1]["loss"] + 0.1
    for rank in (1, 2):
        other = weights(tmp_path / "three", rank)[1]
        assert all(np.array_equal(other[name], array) for name, array in arrays.items())


def test_the_balancer_gives_the_slow_one_less(tmp_path):
    settings = {**SMALL, "batch_size": 200, "epochs": 4, "learning_rate": 0.001}
    call = {"rows": 4000, "settings": settings, "stalls": [2e-4, 8e-4]}
    calls = [
        {**call, "out": str(tmp_path / balance[:3]), "balance": balance} for balance in ("steps:5", "off")
    ]
    done = crew(2, *calls)
    assert done.returncode == 0, done.stderr[-3000:]
    (balanced, _), (off, _) = weights(tmp_path / "ste"), weights(tmp_path / "off")
    assert len(balanced["shares"]) == 16
    assert 0.68 < np.mean([shares[0] for shares in balanced["shares"][3:]]) < 0.88
    assert balanced["seen"] == off["seen"] == 16_000
    assert balanced["loss"] == pytest.approx(off["loss"], rel=0.02)
    rates = []
    for facts in (balanced, off):
        (began, first), (ended, last) = facts["times"][15], facts["times"][-1]
        rates.append((last - first) / (ended - began))
    assert rates[0] > 1.25 * rates[1]


def test_a_worker_that_does_not_answer_is_named(tmp_path):
    silent = {"worker": 1, "step": 20, "seconds": 3}
    done = crew(2, {"out": str(tmp_path / "out"), "rows": 1000, "settings": SMALL, "silent": silent})
    assert done.returncode != 0
    said = (tmp_path / "out.0").read_text()
    assert said.startswith("worker 1 on ")
    assert "does not answer" in said


def test_more_workers_than_rows(tmp_path):
    done = crew(4, {"out": str(tmp_path / "out"), "rows": 3, "settings": SMALL})
    assert done.returncode != 0
    assert "3 rows are too few for 4 workers; lower --workers" in done.stderr
