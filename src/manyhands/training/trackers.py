"""Who is told how a training goes: TensorBoard's event files so far."""

import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from manyhands.catalog import TRACKERS, load
from manyhands.errors import missing_extra
from manyhands.training.learn import Watch
from manyhands.training.state import State


def open_tracker(name: str | None, live: Path, final: Path) -> AbstractContextManager[Watch | None]:
    """Who is told of every round, if anyone: it may write to ``live``, and leaves files in ``final``."""
    tracker: AbstractContextManager[Watch | None]
    tracker = nullcontext() if name is None else load(TRACKERS, "tracker", name)(live, final)
    return tracker


class TensorBoard:
    """Writes losses and scores as event files while they come."""

    def __init__(self, live: Path, final: Path) -> None:
        self._live, self._final = live / "events", final
        shutil.rmtree(self._live, ignore_errors=True)  # of a run that was given up, or is told again
        self._scalars, self._epochs = self.scalars(self._live), 0

    @staticmethod
    def scalars(folder: Path) -> "Scalars":
        return Scalars(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._scalars.close()
        if kind is None:
            for file in self._live.iterdir():
                shutil.copy(file, self._final)

    def __call__(self, state: State) -> None:
        if state.loss.rows:
            self._scalars.add("loss/running", state.loss.mean, state.seen)
        for epoch in state.history[self._epochs :]:
            for name, value in epoch.items():
                if name != "epoch":
                    self._scalars.add(f"epoch/{name}", value, epoch["epoch"])
        self._epochs = len(state.history)


class Scalars:
    """Numbers as TensorBoard's event files, each under a name and after a number of steps."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415
        except ImportError:
            raise missing_extra("tensorboard", "track") from None
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, tag: str, value: float, step: int) -> None:
        self._writer.add_event(_event(tag, value, step))

    def close(self) -> None:
        self._writer.close()


def open_scalars(name: str | None, folder: Path) -> AbstractContextManager[Scalars | None]:
    """Where a tracker keeps numbers over time, if one is asked for; those of earlier runs stay."""
    scalars: AbstractContextManager[Scalars | None]
    scalars = nullcontext() if name is None else load(TRACKERS, "tracker", name).scalars(folder)
    return scalars


def _event(tag: str, value: float, step: int) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415

    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return Event(wall_time=time.time(), step=step, summary=summary)
