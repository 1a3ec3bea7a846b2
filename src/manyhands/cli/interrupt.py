"""Ctrl-C that stops long work between two pieces of it, and not inside a compiled kernel.

An exception that is raised by a signal handler can come up anywhere, also where a library does
not expect one; numba's dispatcher even crashes. So while work is watched, the first Ctrl-C only
makes a note, and the next report of progress stops the work. A second one stops it at once.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from manyhands.errors import ResumableError
from manyhands.machine import seconds_since_start

EXIT_CODE = 130


class Interrupt(BaseException):
    """The user wants to stop. Not Python's KeyboardInterrupt, which some libraries catch."""


class _State:
    watched = False
    asked = False
    started: float | None = None


def install() -> None:
    """From now on, Ctrl-C is handled here, and so is the request to end that systems send."""
    signal.signal(signal.SIGINT, _handle)
    signal.signal(signal.SIGTERM, _handle)
    _State.started = time.time() - seconds_since_start()


def ignore() -> None:
    """All is done: Ctrl-C must not change the exit code any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def watched(is_watched: bool) -> None:
    """Say whether there is work that reports its progress by ``check``."""
    _State.watched = is_watched


def check() -> None:
    """Stop here if the user asked for it."""
    if _State.asked:
        raise Interrupt


def started() -> float | None:
    """The time of day at which this program was started; None where we are no program of our own."""
    return _State.started


def asked() -> bool:
    return _State.asked


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Training that can be taken up again once it has left a checkpoint in ``folder``."""
    from manyhands.training.checkpoint import checkpoints

    try:
        yield
    except Interrupt:
        if not checkpoints(folder):
            raise
        raise ResumableError("interrupted; to continue, repeat the command with --resume") from None


def _handle(signal_number: int, frame: FrameType | None) -> None:
    at_once = not _State.watched or _State.asked
    _State.asked = True
    if at_once:
        raise Interrupt
