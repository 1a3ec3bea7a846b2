"""The server in processes of its own: its driver is killed, machines come and go."""

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tasks import write_labelled

pytest.importorskip("ray", reason="a parameter server needs Ray")

ROWS = 6000
OPTIONS = ["--model", "fasttext", "--spread", "server", "--threads", "1", "--shards", "2", "--json"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as the names of sockets have to be; whatever a run leaves behind is left in here."""
    with tempfile.TemporaryDirectory(prefix="mh", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def rows(folder) -> Path:
    return write_labelled(folder / "rows.txt", ROWS, 3)


def start(folder: Path, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """A run whose temporary files are all in the folder."""
    command = [sys.executable, "-m", "manyhands", "train", "rows.txt", "--out", "run", *OPTIONS, *options]
    with (folder / "out").open("wb") as out, (folder / "err").open("ab") as err:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=err,
            env={**os.environ, "TMPDIR": str(folder), **variables},
        )


def until(
    what: Callable[[], object], run: subprocess.Popen[bytes] | None = None, pause: float = 0.05
) -> None:
    """Wait for something that a run does."""
    ends = time.monotonic() + 300
    while not what():
        assert time.monotonic() < ends
        assert run is None or run.poll() is None, "it was over before"
        time.sleep(pause)


def record_of(run: subprocess.Popen[bytes], folder: Path) -> dict:
    said = (folder / "err").read_text
    assert run.wait(300) == 0, said()
    return json.loads((folder / "out").read_text())


def left_of(folder: Path) -> list[str]:
    """Processes with their temporary files there that learn, hold weights or are Ray's own servers."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"TMPDIR={folder}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().split(b"\0")[0].decode())
        except OSError:  # it has ended
            continue
    return [name for name in found if "Agent" not in name]  # Ray's own watch over logs ends a minute later


def test_a_driver_that_is_killed_leaves_nothing_and_its_run_goes_on(folder, rows):
    """Once in the middle of an epoch, and once while it writes a checkpoint."""
    kept, epochs = folder / ".run.checkpoint", 80
    often = ["--epochs", str(epochs), "--checkpoint-seconds", "0.2"]
    run = start(folder, *often)
    until(lambda: list(kept.glob("checkpoint-*")), run)
    run.kill()
    run.wait()
    assert list(folder.glob("manyhands-shards-*")), "its shards had journals"
    until(lambda: not left_of(folder))
    run = start(folder, *often, "--resume")
    until((kept / "checkpoint.new").exists, run, pause=0.0)
    run.kill()
    run.wait()
    until(lambda: not left_of(folder))
    record = record_of(start(folder, "--epochs", str(epochs), "--resume"), folder)
    assert record["examples_seen"] == epochs * ROWS
    assert [epoch["examples"] for epoch in record["scores"]["train"]] == [float(ROWS)] * epochs
    assert record["scores"]["train"][-1]["loss"] < 0.01
    assert {path.name for path in folder.iterdir()} == {"rows.txt", "run", "out", "err", "ray"}
    assert "training from the start" not in (folder / "err").read_text()


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=small)
print(cluster.address, flush=True)
others = []
for line in sys.stdin:
    if line == "add\\n":
        others.append(cluster.add_node(**small))
    else:  # as if its power were cut
        cluster.remove_node(others.pop(), allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


class Machines:
    """A Ray of several machines of one core, all of which are here; it begins with one."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            env={**os.environ, **variables, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "cluster").open("wb"),
            text=True,
        )
        self.address, self.variables = self._process.stdout.readline().strip(), variables

    def tell(self, what: str) -> None:
        print(what, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def machines(folder) -> Iterator[Machines]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    found = Machines(folder, {**token, "RAY_USAGE_STATS_ENABLED": "0"})
    yield found
    found.end()


def test_machines_that_join_are_used_and_those_that_leave_are_not_missed(folder, rows, machines):
    epochs, said = 240, folder / "err"
    run = start(
        folder, "--epochs", str(epochs), "--checkpoint-seconds", "0.2", "--address", machines.address,
        "--apart", **machines.variables,
    )  # fmt: skip
    until(lambda: list((folder / ".run.checkpoint").glob("checkpoint-*")), run)
    machines.tell("add")
    until(lambda: "joins" in said.read_text(), run)
    time.sleep(2.0)
    machines.tell("remove")
    record = record_of(run, folder)
    for sentence in (
        r"there is room for 1 of 2 workers; the others join with more machines",
        r"worker [01] on .* joins",
        r"worker [01] on .* is lost; others take up its rows",
    ):
        assert re.search(sentence, said.read_text()), sentence
    assert record["examples_seen"] == epochs * ROWS
    assert [epoch["examples"] for epoch in record["scores"]["train"]] == [float(ROWS)] * epochs
    shares = [min(lap["shares"][0]["shares"]) for lap in record["laps"]]
    assert shares[-1] == 0.0, "it is no longer there"
    assert max(shares) > 0.05
    assert record["scores"]["train"][-1]["loss"] < 0.01
