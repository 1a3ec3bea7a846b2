"""Progress on standard error: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Self

from manyhands.cli import interrupt
from manyhands.report.shown import amount

if TYPE_CHECKING:
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 10.0


def watch() -> "Bar | Lines":
    """The watcher that fits where standard error goes."""
    return Bar() if sys.stderr.isatty() else Lines()


class _Meter:
    """How far a stage has come, and how fast."""

    def __init__(self, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.began = time.monotonic()
        self.done = 0
        self.note = ""

    def rate(self) -> str:
        per_second = self.done / max(time.monotonic() - self.began, 1e-6)
        return f"{amount(per_second, self.unit)}/s"

    def line(self) -> str:
        of = f" of {amount(self.total, self.unit)}" if self.total else ""
        seconds = time.monotonic() - self.began
        left = ""
        if self.total and self.done:
            left = f", {seconds * (self.total - self.done) / self.done:.0f} s left"
        note = f", {self.note}" if self.note else ""
        done = amount(self.done, "" if of and self.unit != "B" else self.unit).rstrip()  # 2 k of 9 k rows
        return f"{self.name}: {done}{of}, {self.rate()}{left}{note}"


class Lines:
    """A line every ten seconds, and one when a stage that took as long is over."""

    def __init__(self) -> None:
        self._meter: _Meter | None = None
        self._said = 0.0

    def __enter__(self) -> Self:
        interrupt.watched(True)
        return self

    def __exit__(self, *raised: object) -> None:
        interrupt.watched(False)

    def stage(self, name: str, total: int | None, unit: str) -> None:
        self._meter, self._said = _Meter(name, total, unit), time.monotonic()

    def advance(self, done: int, note: str = "") -> None:
        interrupt.check()
        if self._meter is None:
            return
        self._meter.done, self._meter.note = done, note
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            print(self._meter.line(), file=sys.stderr)

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)


class Bar:
    """One bar, for the stage that is under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from manyhands.kernels.compile import when_compiling

        self._progress = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None
        self._meter = _Meter("", None, "")
        # On the first run after an installation, the bar stands still for a while.
        when_compiling(
            lambda: self._progress.console.print("compiling kernels; this happens once after an installation")
        )

    def __enter__(self) -> Self:
        interrupt.watched(True)
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        interrupt.watched(False)
        self._progress.stop()

    def stage(self, name: str, total: int | None, unit: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._meter = _Meter(name, total, unit)
        self._task = self._progress.add_task(name, total=total, rate="", note="")

    def advance(self, done: int, note: str = "") -> None:
        interrupt.check()
        self._meter.done = done
        if self._task is not None:
            self._progress.update(self._task, completed=done, rate=self._meter.rate(), note=note)

    def say(self, sentence: str) -> None:
        self._progress.console.print(sentence)
