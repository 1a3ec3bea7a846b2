"""What the workers of a crew let the one who started them know, in files of a folder of its own."""

import json
import os
import time
from pathlib import Path
from typing import Any

from manyhands.records import Progress
from manyhands.train.checkpoint import ANY

FOLDER = "MANYHANDS_CREW"
SECONDS_BETWEEN = 0.2
WROTE = "wrote"


def note_run(run: str) -> None:
    """Remember the run's name for the workers that may be started in the place of this one."""
    if FOLDER in os.environ:
        _write(Path(os.environ[FOLDER]) / "run", run)


def known_run() -> str | None:
    """The run that this worker goes on with, if it was started in the place of another."""
    if FOLDER in os.environ:
        path = Path(os.environ[FOLDER]) / "run"
        return path.read_text("utf-8") if path.is_file() else None
    return ANY if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" else None


class Status:
    """The side that reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stage: list[Any] = []

    def show(self, progress: Progress) -> None:
        """Pass the newest report on; whoever watches may stop the work by an exception."""
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
        if time.monotonic() - self._told >= SECONDS_BETWEEN:
            self._tell(done, note)

    def _tell(self, done: int, note: str) -> None:
        self._told = time.monotonic()
        report = {"stage": self._stage, "done": int(done), "note": note, "restarts": self._restarts}
        _write(self._folder / "progress.json", json.dumps(report))

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
