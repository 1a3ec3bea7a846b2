"""A scaling study as a user starts it, with real crews."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.tasks import write_labelled

from manyhands import load_bundle, open_dataset, prepare

pytest.importorskip("torch", reason="crews need PyTorch")

LSTM = ["--model", "lstm", "--hidden-size", "16", "--dim", "16", "--batch-size", "32", "--epochs", "2"]
STUDY = [*LSTM, "--spread", "allreduce", "--workers", "1,2", "--out", "study"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(str(write_labelled(folder / "raw.txt", 1500)), folder / "data")
    return folder / "data"


def test_crews_of_one_and_two(manyhands, tmp_path, data):
    done = manyhands("scale", data, *STUDY, "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts == json.loads((tmp_path / "study" / "study.json").read_text())
    one, two = facts["points"]
    assert (one["workers"], two["workers"], one["speedup"], one["efficiency"]) == (1, 2, 1.0, 1.0)
    assert two["efficiency"] == two["speedup"] / 2
    records = {}
    for point, folder in ((one, "workers-1-run-1"), (two, "workers-2-run-1")):
        load_bundle(tmp_path / "study" / folder)
        record = records[folder] = json.loads((tmp_path / "study" / folder / "record.json").read_text())
        assert record["workers"] == point["workers"] and record["threads"] == 1
        assert point["rate"] == record["rows_per_second"]
        assert point["seconds"] >= record["seconds"] >= point["learning_seconds"]
        assert point["score"] == record["scores"]["test"]["accuracy"]
        assert record["compiled"] is False
    assert [record["spread"] for record in records.values()] == ["single", "allreduce"]
    assert one["bytes_per_worker"] == two["bytes_per_worker"] == 0, "on one machine, nothing is sent"
    assert abs(two["score_difference"]) < 0.02, "gradients are added up: a crew learns as one process does"
    assert (tmp_path / "study" / "study.svg").read_text().count("<circle") == 4
    again = manyhands("scale", data, *STUDY)
    assert again.code == 0
    assert "lstm, allreduce, strong scaling" in again.out
    assert "relative to 1 worker: one process (single)" in again.out
    assert again.err.strip() == "2 of 2 runs were complete already, and were not repeated"
    assert [line.split()[0] for line in again.out.splitlines()[1:4]] == ["workers", "1", "2"]
    assert json.loads(manyhands("scale", data, *STUDY, "--json").out) == facts


def test_weak_scaling(manyhands, tmp_path, data):
    """Two are what three are compared with, and the crew of two is given a sample."""
    done = manyhands("scale", data, *STUDY, "--workers", "2,3", "--weak")
    assert done.code == 0, done.err
    assert "weak scaling" in done.out and "relative to 2 workers" in done.out
    two, three = json.loads((tmp_path / "study" / "study.json").read_text())["points"]
    rows = len(open_dataset(data)["train"])
    assert (two["rows"], three["rows"]) == (rows * 2 // 3, rows)
    assert three["efficiency"] == pytest.approx(three["rate"] / 3 / (two["rate"] / 2))


def test_asked_to_end_it_goes_on_later(tmp_path, data):
    long = [*STUDY, "--epochs", "3000", "--early-stopping", "3000"]
    command = [sys.executable, "-m", "manyhands", "scale", str(data), *long]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ)
    while not list(tmp_path.glob("study/.workers-1-run-1.checkpoint")):
        assert run.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=500)
    assert run.returncode == 5, said
    assert said.strip() == "manyhands: interrupted; to continue, repeat the command"
    assert json.loads((tmp_path / "study" / "study.json").read_text())["runs"] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--workers", "1;2"], "--workers must be whole numbers, like 1,2,4, not '1;2'"),
        (["--workers", "2,1"], "smallest first"),
        (["--workers", "1,9999"], "--workers: Input should be less than or equal to 512"),
        (
            ["--spread", "single"],
            "--spread single has no workers to count; choose --spread allreduce or average",
        ),
        (["--spread", "average", "--partitions", "2"], "--workers lists how many workers there are"),
        (["--model", "lstmm"], "there is no model 'lstmm'; did you mean lstm?"),
        (["--window", "3"], "--window is for --model skipgram or charlstm, not for lstm"),
        (["--nodes", "2"], "several machines need an address to meet at"),
    ],
)
def test_mistakes(manyhands, tmp_path, data, wrong, said):
    done = manyhands("scale", data, *STUDY, *wrong)
    assert done.code == 2, done.err
    assert said in done.err and len(done.err.splitlines()) == 1
    assert not (tmp_path / "study").exists()


def test_help_has_the_options_of_train_but_not_how_many_workers(manyhands):
    shown = manyhands("scale", "--help").out
    assert "--learning-rate" in shown and "--weak / --strong" in shown
    assert "--partitions" not in shown and shown.count("--workers") == 1
