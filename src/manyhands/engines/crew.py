"""A crew of processes: who is in it, what a worker knows of its place, and what it reports.

Whoever starts a worker tells it its place by the variables of torchrun. Workers report in files of a folder.
"""

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.errors import UsageError
from manyhands.records import Progress

WHO = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what a worker is told
# Its place on its machine and among how many, and that of its machine.
PLACE = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
RUN = "TORCHELASTIC_RUN_ID"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
FOLDER = "MANYHANDS_CREW"  # where workers report
STARTER = "MANYHANDS_STARTER"  # the process of whoever started the crew
SAFE = {"PYTHONSAFEPATH": "1"}  # nothing is imported from the folder at hand
MOST_PORT = 1 << 16
END_WITH_PARENT, SET_NAME = 1, 15  # prctl's numbers for it, on Linux; elsewhere there is nothing of the kind
WROTE = "wrote"
REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Crew:
    """How many workers, where they meet, and how often those that are lost are started again."""

    workers: int  # on this machine
    nodes: str
    rendezvous: str | None
    restarts: int

    def check(self) -> None:
        """Tell what cannot work before anyone is started."""
        least, _, most = self.nodes.partition(":")
        if most and int(least) > int(most):
            raise UsageError(f"--nodes {self.nodes} ends before it begins; write it like 1:4")
        if self.nodes != "1" and self.rendezvous is None:
            raise UsageError("several machines need an address to meet at; add --rendezvous ADDRESS:PORT")
        if self.rendezvous and not 0 < int(self.rendezvous.partition(":")[2]) < MOST_PORT:
            raise UsageError(f"--rendezvous {self.rendezvous} has no port from 1 to {MOST_PORT - 1}")

    @property
    def of_one_machine(self) -> bool:
        return self.nodes == "1" and self.rendezvous is None


def inside() -> bool:
    """Whether torchrun, or something like it, started this process."""
    return all(name in os.environ for name in WHO)


def rank() -> int:
    try:
        return int(os.environ["RANK"])
    except ValueError:
        raise UsageError(f"RANK is '{os.environ['RANK']}', which is not a number") from None


def note_run(run: str) -> None:
    """Remember the run's name for the workers that may be started in the place of this one."""
    if FOLDER in os.environ:
        _write(Path(os.environ[FOLDER]) / "run", run)


def known_run(whichever: str) -> str | None:
    """The name of the run that this worker goes on with, if it was started in the place of another.

    ``whichever`` stands for a name that nobody noted, as under a torchrun that we did not start.
    """
    if FOLDER in os.environ:
        path = Path(os.environ[FOLDER]) / "run"
        return path.read_text("utf-8") if path.is_file() else None
    return whichever if os.environ.get(RESTARTS, "0") != "0" else None


class Status:
    """The side that reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stage: list[Any] = []
        self._passed_on: set[str] = set()

    def show(self, progress: Progress) -> None:
        """Pass the newest report on; whoever watches may stop the work by an exception."""
        for said in sorted(self._folder.glob("said-*")):
            if said.name not in self._passed_on:
                progress.say(said.read_text("utf-8"))
                self._passed_on.add(said.name)
        report = _read(self._folder / "progress.json")
        if not report:
            progress.advance(0)
            return
        if report["stage"] != self._stage:
            self._stage = report["stage"]
            progress.stage(*self._stage)
        restarts = f", restarted {report['restarts']} x" if report["restarts"] else ""
        progress.advance(report["done"], report["note"] + restarts)

    def error(self) -> dict[str, Any] | None:
        """The first error that a restart would meet again."""
        found = sorted(self._folder.glob("error-*.json"))
        return _read(found[0]) if found else None

    def losses(self) -> list[str]:
        """What workers said of others that were lost."""
        return [path.read_text("utf-8") for path in sorted(self._folder.glob("lost-*"))]

    def seconds_since_a_loss(self) -> float:
        """How long ago a worker was lost; 0 where none was, or where work has gone on since."""
        moments = [path.stat().st_mtime for path in self._folder.glob("lost-*")]
        progress = self._folder / "progress.json"
        if not moments or (progress.is_file() and progress.stat().st_mtime > max(moments)):
            return 0.0
        return time.time() - max(moments)

    def done(self) -> bool:
        return (self._folder / "done").is_file()

    def wrote(self) -> bool:
        """Whether the bundle was written by a worker of this machine."""
        return self.done() and (self._folder / "done").read_text("utf-8") == WROTE


class Reporter:
    """The side that writes: a worker's progress, if it is the first one of its node."""

    def __init__(self, folder: Path, restarts: int) -> None:
        self._folder, self._restarts = folder, restarts
        self._stage: list[Any] = []
        self._told = 0.0

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._stage = [name, total, unit]
        self._tell(0, "")

    def advance(self, done: int, note: str = "") -> None:
        if time.monotonic() - self._told >= REPORT_SECONDS:
            self._tell(done, note)

    def _tell(self, done: int, note: str) -> None:
        self._told = time.monotonic()
        report = {"stage": self._stage, "done": int(done), "note": note, "restarts": self._restarts}
        _write(self._folder / "progress.json", json.dumps(report))

    def say(self, sentence: str) -> None:
        """A crew that begins again would only repeat it."""
        if not self._restarts:
            _write(self._folder / f"said-{time.time_ns()}", sentence)

    def failed(self, code: int, message: str) -> None:
        _write(self._folder / f"error-{os.getpid()}.json", json.dumps({"code": code, "message": message}))

    def lost(self, message: str) -> None:
        _write(self._folder / f"lost-{time.time_ns()}", message)

    def done(self, *, wrote: bool) -> None:
        _write(self._folder / "done", WROTE if wrote else "")


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for whoever reads at the same time."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, "utf-8")
    new.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have this process sent a signal when its parent ends, in whatever way; end now if that was before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, int(number))
        if os.getppid() == 1 or parent not in (None, os.getppid()):
            sys.exit(1)


def show_name(name: str) -> None:
    """Have this process shown under a name, of which systems keep fifteen letters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_NAME, name.encode(), 0, 0, 0)
