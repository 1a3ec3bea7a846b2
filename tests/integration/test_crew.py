"""Crews as a user starts them: kills, requests to end, errors, and what each says."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.tasks import write_labelled

from manyhands import prepare
from manyhands.bundle.bundle import TENSORS
from manyhands.training.checkpoint import checkpoints

pytest.importorskip("torch", reason="crews need PyTorch")

LSTM = ["--model", "lstm", "--hidden-size", "32", "--dim", "32", "--batch-size", "32"]
CREW = ["--spread", "allreduce", "--workers", "2"]
LONG = [
    *LSTM,
    *CREW,
    "--epochs",
    "16",
    "--early-stopping",
    "99",
    "--deterministic",
    "--checkpoint-seconds",
    "0.1",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    raw = write_labelled(folder / "raw.txt", 4000, 2)
    prepare(str(raw), folder / "data")
    return folder / "data"


def start(folder: Path, data: Path, *arguments: str) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "manyhands", "train", str(data), "--out", "run", "--json", *arguments]
    environment = {**os.environ, "TEST_FOLDER": str(folder)}  # by which its workers are found
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(run: subprocess.Popen) -> dict:
    out, err = run.communicate(timeout=500)
    assert run.returncode == 0, err
    return json.loads(out)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "run" / TENSORS).read_bytes()).hexdigest()


def worker_pids(folder: Path, rank: int) -> list[int]:
    """The workers of that rank, of a crew that trains in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text().strip() == f"worker {rank}":
                    environment = (entry / "environ").read_bytes().split(b"\0")
                    found += [int(entry.name)] if f"TEST_FOLDER={folder}".encode() in environment else []
            except OSError:
                continue
    return found


def wait_for_checkpoint(run: subprocess.Popen, folder: Path, more_than: int = 0) -> int:
    """Until there is one newer than so many."""
    while True:
        assert run.poll() is None, run.communicate()
        kept = checkpoints(folder / ".run.checkpoint")
        newest = int(kept[0].stem.partition("-")[2]) + 1 if kept else 0
        if newest > more_than:
            return newest
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> tuple[dict, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return finished(start(folder, data, *LONG)), digest(folder)


@pytest.mark.parametrize("started_by", ["us", "torchrun"])
def test_killed_workers_are_replaced_and_nothing_is_lost_or_counted_twice(
    tmp_path, data, undisturbed, started_by
):
    record, expected = undisturbed
    meet = ["--rendezvous", f"127.0.0.1:{free_port()}"] if started_by == "torchrun" else []
    run, seen = start(tmp_path, data, *LONG, *meet), 0
    for rank in (1, 0):
        seen = wait_for_checkpoint(run, tmp_path, seen)
        os.kill(worker_pids(tmp_path, rank)[0], signal.SIGKILL)
    again = finished(run)
    assert again["examples_seen"] == record["examples_seen"] == record["data"]["rows"] * 16
    assert digest(tmp_path) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def listening(folder: Path) -> set[str]:
    """The addresses at which processes of a crew listen, as the kernel writes them."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                sockets[f"socket:[{fields[9]}]"] = fields[1].partition(":")[0]
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"TEST_FOLDER={folder}".encode() in (entry / "environ").read_bytes():
                for descriptor in (entry / "fd").iterdir():
                    found.add(sockets.get(str(descriptor.readlink()), ""))
        except OSError:
            continue
    return found - {""}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize("started_by", ["us", "torchrun"])
def test_a_crew_listens_nowhere_or_where_it_was_told_to(tmp_path, data, started_by):
    meet = ["--rendezvous", f"127.0.0.1:{free_port()}"] if started_by == "torchrun" else []
    run = start(tmp_path, data, *LONG, *meet)
    wait_for_checkpoint(run, tmp_path)
    addresses = listening(tmp_path)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=500)
    assert addresses == ({"0100007F"} if meet else set())


def test_asked_to_end_it_saves_and_goes_on_later(tmp_path, data, undisturbed):
    run = start(tmp_path, data, *LONG, "--checkpoint-seconds", "0.3")
    wait_for_checkpoint(run, tmp_path)
    asked = time.monotonic()
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=500)
    assert time.monotonic() - asked < 120
    assert run.returncode == 5, said
    assert "interrupted; to continue, repeat the command with --resume" in said
    assert not worker_pids(tmp_path, 0)
    finished(start(tmp_path, data, *LONG, "--resume"))
    assert digest(tmp_path) == undisturbed[1]


def test_a_crew_that_learns_in_place_can_be_asked_to_end_as_well(tmp_path, data):
    """All it exchanges are rows that were touched: the wish travels with these, too."""
    words = ["--model", "skipgram", "--min-count", "1", *CREW, "--epochs", "5000", "--early-stopping", "5000"]
    run = start(tmp_path, data, *words, "--checkpoint-seconds", "0.3")
    wait_for_checkpoint(run, tmp_path)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=500)
    assert run.returncode == 5, said


def test_a_restart_does_not_take_up_what_another_run_left(tmp_path, data, undisturbed):
    """Also not one of other settings, which could not be taken up at all."""
    other = [*LSTM, "--epochs", "30", "--early-stopping", "99", "--checkpoint-seconds", "0", "--seed", "5"]
    run = start(tmp_path, data, *other)
    wait_for_checkpoint(run, tmp_path, 3)
    run.kill()
    run.wait()
    left = checkpoints(tmp_path / ".run.checkpoint")[0].name
    run = start(tmp_path, data, *LONG, "--checkpoint-seconds", "1000")
    while not worker_pids(tmp_path, 1):
        time.sleep(0.05)
    time.sleep(4)  # it reads or trains, and has kept nothing yet
    os.kill(worker_pids(tmp_path, 1)[0], signal.SIGKILL)
    finished(run)
    assert left.startswith("checkpoint-")
    assert digest(tmp_path) == undisturbed[1]


def test_a_crew_that_cannot_go_on_says_that_it_ended_short(tmp_path, data):
    run = start(tmp_path, data, *LONG, "--max-restarts", "0")
    wait_for_checkpoint(run, tmp_path)
    process = worker_pids(tmp_path, 1)[0]
    os.kill(process, signal.SIGKILL)
    _, said = run.communicate(timeout=500)
    assert run.returncode == 6, said
    assert "training stopped before it was complete" in said
    assert f"worker 1 (process {process}) was killed by signal 9" in said
    assert "--resume" in said
    assert not (tmp_path / "run").exists()
    assert checkpoints(tmp_path / ".run.checkpoint")


def test_a_loss_that_is_no_number_stops_the_crew(tmp_path, data):
    wild = ["--optimizer", "sgd", "--learning-rate", "1000", "--weight-decay", "10"]
    run = start(tmp_path, data, *LSTM, *CREW, *wild)
    _, said = run.communicate(timeout=500)
    assert run.returncode == 3, said
    assert "the loss became nan in epoch 1, step" in said
    assert "lower --learning-rate" in said


def test_started_by_torchrun(manyhands, tmp_path, data):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "manyhands"]
    command += ["train", str(data), "--out", "run", *LSTM, "--spread", "allreduce", "--epochs", "2", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(done.stdout)
    assert (record["spread"], record["workers"]) == ("allreduce", 2)
    assert record["examples_seen"] == 2 * record["data"]["rows"]
    assert record["scores"]["test"]["accuracy"] > 0.95
    shown = manyhands("profile", "run", "--picture", "p.svg").out
    assert "worker 1" in shown
    assert all(part in shown for part in ("load", "forward", "backward", "exchange", "update", "wait"))
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


def test_a_port_in_use(tmp_path, data):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = start(tmp_path, data, *LSTM, *CREW, "--rendezvous", f"127.0.0.1:{port}")
        _, said = run.communicate(timeout=500)
    assert run.returncode == 2
    assert f"port {port} of 127.0.0.1 is in use; choose another with --rendezvous" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--spread", "alreduce"], "there is no spread 'alreduce'; did you mean allreduce?"),
        (["--balance", "often", *CREW], "--balance is every:N (epochs), steps:N, once or off, not 'often'"),
        (["--spread", "allreduce", "--workers", "0"], "--workers"),
        (["--workers", "2"], "--workers is for --spread allreduce or server, not for single"),
        (
            ["--nodes", "2", "--rendezvous", "127.0.0.1:29400"],
            "--nodes is for --spread allreduce, not for single",
        ),
        ([*CREW, "--nodes", "3:2", "--rendezvous", "127.0.0.1:29400"], "--nodes 3:2 ends before it begins"),
        ([*CREW, "--nodes", "2"], "several machines need an address to meet at; add --rendezvous"),
        ([*CREW, "--rendezvous", "127.0.0.1:99999"], "has no port from 1 to 65535"),
    ],
)
def test_mistakes(manyhands, data, wrong, said):
    done = manyhands("train", data, "--out", "run", *LSTM, *wrong)
    assert done.code == 2
    assert said in done.err


def without_pytorch(tmp_path: Path, data: Path, *arguments: str) -> subprocess.CompletedProcess:
    every = ["train", str(data), "--out", str(tmp_path / "run"), *arguments]
    hidden = (
        f"import sys, importlib.util as util; sys.argv[1:] = {every!r}; find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more)\n"
        "from manyhands.cli.main import run; run()"
    )
    return subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("asks", [["--rendezvous", "127.0.0.1:29400"], ["--deterministic"]])
def test_crews_that_speak_by_pytorch_name_the_extra(tmp_path, data, asks):
    done = without_pytorch(tmp_path, data, *CREW, *asks)
    assert done.returncode == 4, done.stderr
    assert "torch is not installed; get it with: pip install 'manyhands[torch]'" in done.stderr


def test_a_crew_of_one_machine_needs_no_pytorch(tmp_path, data):
    done = without_pytorch(tmp_path, data, *LSTM, *CREW, "--epochs", "1")
    assert done.returncode == 0, done.stderr


def test_who_needs_no_crew_is_told(tmp_path, data):
    run = start(tmp_path, data, "--epochs", "1", *CREW)
    out, said = run.communicate(timeout=500)
    assert run.returncode == 0, said
    assert "use --threads 2 without --spread" in said
    assert json.loads(out)["traffic"]["bytes"] == 0
