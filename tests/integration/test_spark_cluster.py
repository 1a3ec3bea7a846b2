"""A standalone Spark cluster on the loopback address; killed executors, and masters that are none."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.clusters import QUICK, cluster, executors, kill_an_executor, messy, same, spark_home
from tests.tasks import write_labelled

import manyhands
from manyhands.engines.spark import spark
from manyhands.errors import MissingPartError, UsageError
from manyhands.records import Silent

pytest.importorskip("pyspark", reason="needs the extra spark")
SMALL = ["spark.executor.memory=512m", *QUICK]


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster"), 2) as address:
        yield address


class Killer(Silent):
    """Watches the work, and kills an executor once in each of the stages named.

    In the middle of it: when some tasks are done; or, for the last one named, before it begins.
    """

    def __init__(self, *stages: str, between: bool = False) -> None:
        self.waiting, self._now = set(stages), ""
        self._before = stages[-1] if between else ""

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._now = name
        if name == self._before:
            self._kill()

    def advance(self, done: int, note: str = "") -> None:
        if done:
            self._kill()

    def _kill(self) -> None:
        if self._now in self.waiting and executors():
            self.waiting.discard(self._now)
            kill_an_executor()


def test_killed_executors_change_nothing(tmp_path, master):
    (tmp_path / "reviews.json").write_text("\n".join(messy(6_000, 3)))
    local = manyhands.prepare(tmp_path / "reviews.json", tmp_path / "local", max_rejected=0.1)
    killer = Killer("reading", "writing")
    out = tmp_path / "out"
    with spark(master, SMALL, "tests"):
        dataset = manyhands.prepare(
            tmp_path / "reviews.json", out, engine="spark", partitions=6, max_rejected=0.1, progress=killer
        )
    assert not killer.waiting, "it was over before an executor could be killed"
    same(local, dataset)


def test_by_spark_submit(tmp_path, master):
    (tmp_path / "reviews.json").write_text("\n".join(messy(500, 4)))
    local = manyhands.prepare(tmp_path / "reviews.json", tmp_path / "local", max_rejected=0.1)
    program = str(Path(manyhands.__file__).parent / "__main__.py")
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master]
    command += [word for conf in SMALL for word in ("--conf", conf)]
    command += [program, "prepare", str(tmp_path / "reviews.json"), "--engine", "spark"]
    done = subprocess.run(
        [*command, "--max-rejected", "0.1", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    same(local, manyhands.open_dataset(tmp_path / "out"))


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lesson")
    write_labelled(folder / "rows.txt", 600)
    return manyhands.prepare(folder / "rows.txt", folder / "data").folder


AVERAGE = {"model": "lstm", "hidden_size": "8", "dim": 8, "epochs": 4}
AVERAGE |= {"spread": "average", "partitions": 3, "rounds": 4}


def test_executors_killed_in_and_between_rounds_change_nothing(tmp_path, master, examples):
    weights = []
    with spark(master, SMALL, "tests"):
        for killer in (Killer(), Killer("round 2 of 4", "round 3 of 4", between=True)):
            out = tmp_path / str(len(weights))
            manyhands.train(examples, out, progress=killer, **AVERAGE)
            assert not killer.waiting, "it was over before an executor could be killed"
            weights.append((out / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_crew_started_by_sparks_torch_distributor(tmp_path, master, examples):
    pytest.importorskip("torch", reason="needs the extra torch")
    from pyspark.ml.torch.distributor import TorchDistributor

    arguments = [
        "train",
        str(examples),
        "--model",
        "lstm",
        "--hidden-size",
        "8",
        "--dim",
        "8",
        "--epochs",
        "2",
    ]
    with spark(master, SMALL, "tests"):
        TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(
            str(Path(manyhands.__file__).parent / "__main__.py"),
            *arguments,
            *("--spread", "allreduce", "--out", str(tmp_path / "run")),
        )
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["spread"], record["workers"]) == ("allreduce", 2)


def test_executors_without_the_package(tmp_path, master, monkeypatch):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "bare" / "bin" / "python"))
    (tmp_path / "reviews.json").write_text("\n".join(messy(50, 5)))
    with pytest.raises(MissingPartError, match="an executor's Python has no manyhands; install"):
        manyhands.prepare(
            tmp_path / "reviews.json", tmp_path / "out", engine="spark", master=master, spark_conf=SMALL
        )


@pytest.mark.parametrize(
    ("memory", "message"),
    [("100m", "the memory asked for is too small for Spark"), ("900g", "has given no executor for")],
)
def test_executors_of_a_wrong_size(tmp_path, master, memory, message, monkeypatch):
    monkeypatch.setattr("manyhands.engines.spark.JOIN_SECONDS", 3.0)
    (tmp_path / "reviews.json").write_text("\n".join(messy(50, 5)))
    with pytest.raises(UsageError, match=message):
        manyhands.prepare(
            tmp_path / "reviews.json",
            tmp_path / "out",
            engine="spark",
            master=master,
            spark_conf=[f"spark.executor.memory={memory}", *QUICK],
        )


def test_masters_that_do_not_answer(tmp_path):
    (tmp_path / "reviews.json").write_text("\n".join(messy(50, 5)))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # something listens, and is no master
        threading.Thread(target=silent.accept, daemon=True).start()
        for place in ("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}"):
            began = time.monotonic()
            with pytest.raises(UsageError, match=f"no Spark master answers at spark://{place}"):
                manyhands.prepare(
                    tmp_path / "reviews.json", tmp_path / "out", engine="spark", master=f"spark://{place}"
                )
            assert time.monotonic() - began < 120
