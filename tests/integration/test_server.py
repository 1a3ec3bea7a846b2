"""The server on a real Ray: whoever is killed, every row counts once and the run ends."""

import json
import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import write_labelled

from manyhands.errors import InputError, UsageError
from manyhands.records import Silent
from manyhands.run.train import train

pytest.importorskip("ray", reason="a parameter server needs Ray")

EPOCHS, ROWS = 40, 6000
MARK = "MANYHANDS_TEST"


@pytest.fixture(scope="module", autouse=True)
def library():
    """One for all: starting Ray takes longer than a test."""
    from manyhands.engines.ray import ray

    os.environ[MARK] = str(os.getpid())  # which all processes of this Ray inherit, and no others
    with ray(None, 4, 0) as library:
        yield library
    del os.environ[MARK]


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return write_labelled(tmp_path_factory.mktemp("rows") / "rows.txt", ROWS, 3)


def served(rows, out, **settings):
    return train(rows, out, spread="server", model="fasttext", **{"epochs": EPOCHS, **settings})


def processes(kind: str) -> list[int]:
    """The actors of this kind, by what Ray calls their processes."""
    found, ours = [], f"{MARK}={os.getpid()}\0".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:  # it has ended
                continue
            if words.startswith(f"ray::{kind}".encode()) and ours in variables:
                found.append(int(folder.name))
    return found


class Kills(Silent):
    """Progress of someone who kills a process as soon as rows are learnt, and again a little later."""

    def __init__(self, kind: str, times: int = 1) -> None:
        self.kind, self.left, self.killed, self.after = kind, times, [], 0.0

    def stage(self, name, total, unit):
        pass

    def advance(self, done, note=""):
        if note and self.left and time.monotonic() > self.after:
            found = [process for process in processes(self.kind) if process not in self.killed]
            if found:
                os.kill(found[len(self.killed) % len(found)], signal.SIGKILL)
                self.killed.append(found[0])
                self.left -= 1
                self.after = time.monotonic() + 0.7


@pytest.mark.parametrize("kind", ["WorkerActor", "ShardActor"])
@pytest.mark.parametrize("apart", [False, True], ids=["one memory", "apart"])
def test_whoever_is_killed_every_row_counts_once(tmp_path, rows, kind, apart):
    epochs = 12 if apart else EPOCHS
    killer = Kills(kind, 2)
    run = served(rows, tmp_path / "run", epochs=epochs, shards=2, apart=apart, progress=killer)
    assert killer.left == 0, "it was over before anyone was killed"
    assert run.record["examples_seen"] == epochs * ROWS
    assert [epoch["examples"] for epoch in run.record["scores"]["train"]] == [float(ROWS)] * epochs
    assert run.record["scores"]["train"][-1]["loss"] < 0.01
    texts = ["awful broken food", "a great lovely day", "fine and decent"]
    assert [row[0][0] for row in run.bundle.predict(texts)] == ["0", "2", "1"]
    assert not list(tmp_path.glob(".*"))


class StopAfter(Silent):
    """Progress of a user who has had enough."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def stage(self, name, total, unit):
        self.left -= name.startswith("epoch")

    def advance(self, done, note=""):
        if self.left <= 0 and note:
            raise KeyboardInterrupt


def test_a_run_that_was_stopped_goes_on(tmp_path, rows):
    with pytest.raises(KeyboardInterrupt):
        served(rows, tmp_path / "run", progress=StopAfter(3))
    seen = []
    rest = served(rows, tmp_path / "run", resume=True, workers=3, progress=Epochs(seen))
    assert int(seen[0].split()[1]) in (3, 4), "it goes on with the epoch that it was in"
    assert rest.record["examples_seen"] == EPOCHS * ROWS
    assert len(rest.record["scores"]["train"]) == EPOCHS


class Epochs(Silent):
    def __init__(self, seen):
        self._seen = seen

    def stage(self, name, total, unit):
        if name.startswith("epoch"):
            self._seen.append(name)

    def advance(self, done, note=""):
        pass


def test_the_faster_worker_does_more(tmp_path, rows):
    """One of two is stopped and let go on again, all the time."""
    slow = Slow("WorkerActor")
    run = served(rows, tmp_path / "run", progress=slow)
    slow.end()
    shares = np.mean([lap["shares"][0]["shares"] for lap in run.record["laps"]], axis=0)
    assert abs(shares[0] - shares[1]) > 0.15, shares
    assert run.record["examples_seen"] == EPOCHS * ROWS


class Slow(Silent):
    """Progress that holds one process up, most of the time, from when rows are learnt."""

    def __init__(self, kind: str) -> None:
        self._kind, self._ends = kind, threading.Event()
        self._thread: threading.Thread | None = None

    def stage(self, name, total, unit):
        pass

    def advance(self, done, note=""):
        if note and self._thread is None:
            self._thread = threading.Thread(target=self._hold_up, args=(processes(self._kind)[0],))
            self._thread.start()

    def _hold_up(self, process):
        with suppress(ProcessLookupError):  # the run is over
            while not self._ends.wait(0.02):
                os.kill(process, signal.SIGSTOP)
                self._ends.wait(0.08)
                os.kill(process, signal.SIGCONT)

    def end(self):
        self._ends.set()
        self._thread.join()


def test_a_worker_slower_than_the_bound_is_named(tmp_path, rows):
    """In the progress, at the end, and in the record."""
    watch = Stopped("WorkerActor")
    run = served(rows, tmp_path / "run", staleness=1, progress=watch)
    name = rf"worker [01] on \S+ \(process {watch.process}\)"
    assert [note for note in watch.notes if re.fullmatch(f"waiting for .*{name}.*", note)]
    laps = [lap.get("waited_for", {}) for lap in run.record["laps"]]
    spent = sum(seconds for lap in laps for who, seconds in lap.items() if re.fullmatch(name, who))
    assert spent > 2.0
    said = [re.fullmatch(rf"others waited (\S+) s for {name}; see --staleness", one) for one in watch.said]
    assert [float(one[1]) >= spent - 0.1 for one in said if one] == [True]
    assert run.record["examples_seen"] == EPOCHS * ROWS


class Stopped(Silent):
    """Progress that stops one process for three seconds when rows are learnt, and keeps what it is told."""

    def __init__(self, kind: str) -> None:
        self._kind, self.process, self._since = kind, 0, 0.0
        self.notes: list[str] = []
        self.said: list[str] = []

    def say(self, sentence):
        self.said.append(sentence)

    def advance(self, done, note=""):
        self.notes.append(note)
        if note and not self.process:
            self.process, self._since = processes(self._kind)[0], time.monotonic()
            os.kill(self.process, signal.SIGSTOP)
        elif self._since and time.monotonic() - self._since > 3.0:
            os.kill(self.process, signal.SIGCONT)
            self._since = 0.0


def test_mistakes_are_told(tmp_path, rows, monkeypatch):
    with pytest.raises(UsageError, match="--address elsewhere is no address of Ray"):
        served(rows, tmp_path / "run", address="elsewhere")
    with pytest.raises(UsageError, match="--deterministic is not for --spread server"):
        served(rows, tmp_path / "run", deterministic=True)
    with pytest.raises(UsageError, match=r"Ray has room for 4 workers of 1 threads, not for 9"):
        served(rows, tmp_path / "run", workers=9, threads=1)
    moved = tmp_path / "rows.txt"
    moved.write_bytes(rows.read_bytes())
    from manyhands.spread.server import server

    begin = server.begin

    def read_and_begin(*arguments):
        moved.unlink()  # the driver has read it; workers have not
        return begin(*arguments)

    monkeypatch.setattr(server, "begin", read_and_begin)
    with pytest.raises(InputError, match=r"rows\.txt does not exist.*machines share"):
        served(moved, tmp_path / "run")


def test_from_the_command_line(tmp_path, rows, manyhands):
    """With a Ray of its own, which leaves nothing behind and keeps no token in the home folder."""
    prepared = manyhands("prepare", rows, "--out", "data")
    assert prepared.code == 0, prepared.err
    done = manyhands(
        "train", "data", "--out", "run", "--spread", "server", "--shards", "2", "--staleness", "3",
        "--early-stopping", "99", env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "test: accuracy" in done.out
    assert "Ray listens on all interfaces" in done.err
    stages = r"epoch \d of \d|starting Ray|counting|feat|choosing settings"
    ours = re.compile(rf"({stages}|on one machine|Ray listens|workers read|chosen of \d+: )")
    assert all(ours.match(line) for line in done.err.splitlines()), done.err
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["spread"], record["workers"], record["settings"]["shards"]) == ("server", 2, 2)
    assert len(record["scores"]["valid"]) == len(record["scores"]["train"])
    left = {path.name for path in tmp_path.iterdir()} - {".cache"}
    assert left == {"data", "run"}
