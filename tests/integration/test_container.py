"""The container's ``train`` and ``serve``, in folders as SageMaker lays them out."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tasks import write_labelled

import manyhands
from manyhands import prepare
from manyhands.cli import container
from manyhands.training.checkpoint import checkpoints

PROGRAM = [sys.executable, "-m", "manyhands.cli.container"]
LSTM = {"model": "lstm", "hidden_size": "16", "dim": "16", "batch_size": "32", "early_stopping": "99"}
METRIC = re.compile(r"validation:accuracy=([0-9.]+);")
SECONDS = 500


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    return write_labelled(tmp_path_factory.mktemp("raw") / "reviews.txt", 2000, 2)


@pytest.fixture(scope="module")
def prepared(raw) -> Path:
    prepare(str(raw), raw.parent / "data")
    return raw.parent / "data"


def lay_out(base: Path, hyperparameters: dict[str, object] | None = None, **channels: Path) -> Path:
    """The folders of a job: what it is told, and a copy of a file or a dataset in each channel."""
    config = base / "input" / "config"
    for folder in (config, base / "model", base / "output", base / "checkpoints"):
        folder.mkdir(parents=True)
    if hyperparameters is not None:
        (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    for name, data in channels.items():
        channel = base / "input" / "data" / name
        if data.is_dir():
            shutil.copytree(data, channel)
        else:
            channel.mkdir(parents=True)
            shutil.copy(data, channel)
    return base


def start(
    base: Path, *before: str, words: tuple[str, ...] = ("train",), **variables: str
) -> subprocess.Popen:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SM_")}
    return subprocess.Popen(
        [*before, *PROGRAM, *words],
        env={**environment, "SAGEMAKER_BASE_DIR": str(base), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(run: subprocess.Popen) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=SECONDS)
    return run.returncode, out, err


def record_of(base: Path) -> dict:
    return json.loads((base / "output" / "data" / "record.json").read_text())


def test_a_job_whose_hyperparameters_are_text(tmp_path, raw):
    """As SageMaker's library writes them; files of three channels become three splits."""
    valid, test = (
        write_labelled(tmp_path / f"{name}.txt", 300, 2, seed) for seed, name in enumerate("vt", 7)
    )
    chosen = {
        "model": '"ngrams"',
        "epochs": "3",
        "early-stopping": "9",
        "learning_rate": "0.5",
        "deterministic": "true",
        "sagemaker_region": '"here"',
        "_tuning_objective_metric": "validation:accuracy",
    }
    base = lay_out(tmp_path / "ml", chosen, train=raw, validation=valid, test=test)
    code, out, err = finished(start(base))
    assert code == 0, err
    record = record_of(base)
    settings = {name: record["settings"][name] for name in ("epochs", "learning_rate", "deterministic")}
    assert settings == {"epochs": 3, "learning_rate": 0.5, "deterministic": True}
    rows = record["data"]["rows"]
    assert [epoch["examples"] for epoch in record["scores"]["train"]] == [rows] * 3
    assert len(set(raw.read_text().splitlines())) - 600 < rows <= 2000
    assert record["scores"]["test"]["rows"] > 250
    losses = re.findall(r"epoch=(\d); train:loss=([0-9.]+);", out)
    assert losses == [(str(e["epoch"]), f"{e['loss']:.4f}") for e in record["scores"]["train"]]
    assert [float(value) for value in METRIC.findall(out)] == pytest.approx(
        [epoch["accuracy"] for epoch in record["scores"]["valid"]], abs=1e-6
    )
    assert float(re.search(r"test:accuracy=([0-9.]+);", out)[1]) > 0.95
    assert manyhands.load_bundle(base / "model").predict(["superb great lovely"])
    assert not (base / "output" / "failure").exists()
    assert not list((base / "checkpoints").iterdir())


def test_variables_count_more_than_files(tmp_path, raw, prepared):
    """And a prepared dataset in a channel is trained on as it is."""
    base = lay_out(tmp_path / "ml", {"epochs": "7", "seed": "3"}, training=raw)
    code, _, err = finished(
        start(
            base,
            SM_HPS=json.dumps({"epochs": 2, "model": "fasttext"}),
            SM_CHANNEL_TRAIN=str(prepared),
            SM_MODEL_DIR=str(tmp_path / "elsewhere"),
            SM_OUTPUT_DATA_DIR=str(tmp_path / "facts"),
            SM_HOSTS='["algo-1"]',
            SM_CURRENT_HOST="algo-1",
            SM_NUM_CPUS="1",
        )
    )
    assert code == 0, err
    record = json.loads((tmp_path / "facts" / "record.json").read_text())
    assert (record["model"], record["threads"], record["spread"]) == ("fasttext", 1, "single")
    assert (record["settings"]["epochs"], record["settings"]["seed"]) == (2, 3)
    assert "test" in record["scores"]
    assert manyhands.load_bundle(tmp_path / "elsewhere").predict(["superb great lovely"])
    assert not list((base / "model").iterdir())


def test_a_job_that_fails_says_why(tmp_path, raw):
    base = lay_out(tmp_path, {"epoch": "5"}, train=raw)
    code, out, err = finished(start(base))
    assert (code, out) == (2, "")
    failure = "there is no setting 'epoch'; did you mean 'epochs'?"
    assert (base / "output" / "failure").read_text() == failure
    assert err == f"manyhands: {failure}\n"
    assert not list((base / "model").iterdir())


@pytest.fixture
def failure(monkeypatch):
    """The exit code and the sentence of a job that fails, in this process."""

    def fail(base: Path, **variables: str) -> tuple[int, str]:
        for name, value in {"SAGEMAKER_BASE_DIR": str(base), **variables}.items():
            monkeypatch.setenv(name, value)
        return container.train_as_asked(), (base / "output" / "failure").read_text()

    return fail


@pytest.mark.parametrize(
    ("chosen", "code", "sentence"),
    [
        ({"epochs": "five"}, 2, "--epochs: Input should be a valid integer"),
        ({"model": "lstn"}, 2, "--model: Input should be one of ngrams"),
        ({"hidden_size": "8"}, 2, "--hidden-size is for --model lstm"),
        ({"threads": "0"}, 2, "--threads: Input should be greater than or equal to 1"),
        ({"label_field": "stars", "format": "csv"}, 3, "name it with --text-field"),
    ],
)
def test_hyperparameters_that_are_wrong(tmp_path, raw, failure, chosen, code, sentence):
    found, said = failure(lay_out(tmp_path, chosen, train=raw))
    assert found == code
    assert sentence in said
    assert "\n" not in said


def test_jobs_that_cannot_be_understood(tmp_path, raw, prepared, failure):
    code, said = failure(lay_out(tmp_path / "none", {}))
    assert code == 3
    assert "there is no channel train below" in said
    code, said = failure(lay_out(tmp_path / "both", {}, train=prepared, test=raw))
    assert code == 2
    assert "the channel train is a prepared dataset" in said
    many = lay_out(tmp_path / "many", {"spread": "average"}, train=raw)
    (many / "input" / "config" / "resourceconfig.json").write_text('{"hosts": ["a", "b"]}')
    code, said = failure(many)
    assert code == 2
    assert "2 hosts train by --spread allreduce" in said
    code, said = failure(many, SM_HPS="epochs=5")
    assert code == 3
    assert "SM_HPS does not hold an object in JSON" in said


def wait_for_checkpoint(run: subprocess.Popen, folder: Path) -> None:
    while not checkpoints(folder):
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)


def test_a_job_that_is_interrupted_goes_on_where_it_was(tmp_path, prepared):
    """As a spot machine is taken away: SIGTERM, and later the same job on another machine."""
    base = lay_out(tmp_path, {**LSTM, "epochs": "20", "checkpoint_seconds": "0.1"}, train=prepared)
    run = start(base)
    wait_for_checkpoint(run, base / "checkpoints" / "model")
    run.send_signal(signal.SIGTERM)
    code, _, err = finished(run)
    assert code == 5, err
    assert not (base / "output" / "failure").exists()
    assert not list((base / "model").iterdir())
    kept = checkpoints(base / "checkpoints" / "model")
    assert kept
    code, out, err = finished(start(base))
    assert code == 0, err
    record = record_of(base)
    rows = record["data"]["rows"]
    assert record["examples_seen"] == 20 * rows
    assert [epoch["examples"] for epoch in record["scores"]["train"]] == [rows] * 20
    assert sum(lap["rounds"] for lap in record["laps"]) == 20 * -(-rows // 32)
    assert len(METRIC.findall(out)) == 20
    assert not list((base / "checkpoints").iterdir())


def test_a_checkpoint_of_another_job_is_not_taken_up(tmp_path, prepared):
    base = lay_out(tmp_path, {**LSTM, "epochs": "20", "checkpoint_seconds": "0"}, train=prepared)
    run = start(base)
    wait_for_checkpoint(run, base / "checkpoints" / "model")
    run.kill()
    run.wait()
    code, _, _ = finished(start(base, SM_HPS='{"seed": "4"}'))
    assert code == 2
    assert "seed was 0, now it is 4" in (base / "output" / "failure").read_text()
    assert checkpoints(base / "checkpoints" / "model")


def test_a_container_without_a_job_is_the_command_line(tmp_path, prepared):
    """``docker run … train DATA --out …``."""
    words = ("train", str(prepared), "--out", str(tmp_path / "run"), "--epochs", "1", "--json")
    code, out, err = finished(start(tmp_path, words=words))
    assert code == 0, err
    assert json.loads(out)["examples_seen"] == json.loads(out)["data"]["rows"]


def test_serving_takes_the_place_of_the_process(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr(os, "execv", lambda program, words: called.append((program, words)))
    monkeypatch.setattr(sys, "argv", ["manyhands-container", "serve"])
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    container.run()
    service = ["serve", str(tmp_path / "model"), "--host", "0.0.0.0", "--port", "8080"]
    assert called == [(sys.executable, [sys.executable, "-m", "manyhands", *service])]


def test_the_model_folder_may_be_a_volume(tmp_path, prepared):
    """Such a folder cannot be renamed: what is made appears in it, without a trace of the making."""
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("only root can mount a volume, where it may")
    base = lay_out(tmp_path, {"epochs": "1"}, train=prepared)
    (base / "kept").mkdir()
    script = (
        f"mount -t tmpfs volume {base}/model && mkdir {base}/model/lost+found && {' '.join(PROGRAM)} train"
    )
    script += f" && cp -r {base}/model/. {base}/kept"
    code, _, err = finished(start(base, "unshare", "-m", "sh", "-c", script))
    assert code == 0, err
    assert {path.name for path in (base / "kept").iterdir() if path.name[0] == "."} == set()
    (base / "kept" / "lost+found").rmdir()
    assert manyhands.load_bundle(base / "kept").predict(["superb great lovely"])


ADDRESSES = ("10.79.0.1", "10.79.0.2")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two hosts with a cable between them, each a network namespace; their names."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("two hosts are made by root with iproute2")
    names = [f"mh{os.getpid()}{end}" for end in "ab"]

    def ip(*words: str, check: bool = True) -> bool:
        return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0

    if not ip("netns", "add", names[0], check=False):
        pytest.skip("network namespaces may not be made here")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", f"{names[0]}0", "type", "veth", "peer", "name", f"{names[1]}0")
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("link", "set", f"{name}0", "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"{name}0")
            for device in ("lo", f"{name}0"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


def test_two_hosts_are_one_crew_that_can_be_interrupted_and_makes_one_model(tmp_path, hosts, prepared):
    pytest.importorskip("torch", reason="machines speak by PyTorch")
    bases = []
    for host, address in zip(hosts, ADDRESSES, strict=True):
        base = lay_out(tmp_path / host, {**LSTM, "epochs": "20", "checkpoint_seconds": "0.1"}, train=prepared)
        resources = {"current_host": address, "hosts": list(ADDRESSES)}
        (base / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
        bases.append(base)

    def start_all() -> list[subprocess.Popen]:
        return [start(base, "ip", "netns", "exec", host) for base, host in zip(bases, hosts, strict=True)]

    runs = start_all()
    for run, base, address in zip(runs, bases, ADDRESSES, strict=True):
        wait_for_checkpoint(run, base / "checkpoints" / address / "model")
    for run in runs:
        run.send_signal(signal.SIGTERM)
    ended = [finished(run) for run in runs]
    assert [code for code, _, _ in ended] == [5, 5], ended
    ended = [finished(run) for run in start_all()]
    assert [code for code, _, _ in ended] == [0, 0], ended
    record = record_of(bases[0])
    assert (record["spread"], record["workers"]) == ("allreduce", 2)
    assert record["examples_seen"] == 20 * record["data"]["rows"]
    assert record["traffic"]["bytes"] > 0
    assert manyhands.load_bundle(bases[0] / "model").predict(["superb great lovely"])
    assert len(METRIC.findall(ended[0][1])) == 20
    assert not list((bases[1] / "model").iterdir())
    assert "another host wrote the model" in ended[1][1]
    assert not any((base / "output" / "failure").exists() for base in bases)
    assert not any(list((base / "checkpoints").glob("*/model")) for base in bases)
