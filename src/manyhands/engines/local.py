"""Workers of one machine: forked from a process that has loaded what they need, and again if one is lost.

``python -m manyhands.engines.local WORKERS RESTARTS -m MODULE ARGUMENTS`` is to one machine what torchrun is
to several. It needs no PyTorch, and its workers begin at once, as what they import is loaded already.
"""

import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from manyhands.engines.crew import (
    FOLDER,
    PLACE,
    RESTARTS,
    RUN,
    STARTER,
    WHO,
    Crew,
    Reporter,
    Status,
    end_with_parent,
)
from manyhands.kernels.compile import preload

HOST = "127.0.0.1"


def command(crew: Crew) -> list[str]:
    return [sys.executable, "-m", __name__, str(crew.workers), str(crew.restarts)]


def main() -> int:
    end_with_parent(signal.SIGTERM, int(os.environ[STARTER]))
    workers, restarts, _, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    work = import_module(module).main
    preload()
    return Nursery(int(workers), Path(os.environ[FOLDER]), work).run(int(restarts))


class Nursery:
    """Forks workers, each to call ``work``, and waits for them."""

    def __init__(self, workers: int, folder: Path, work: Any) -> None:
        self._workers, self._folder, self._work = workers, folder, work
        self._ranks: dict[int, int] = {}  # by process
        self._sent_home = False

    def run(self, restarts: int) -> int:
        """The exit code: 0 once all workers have ended as they should."""
        signal.signal(signal.SIGTERM, self._send_home)
        for attempt in range(restarts + 1):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until all can be told
            self._fork_all(attempt)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            lost = self._wait()
            if lost is None:
                return 0
            if self._sent_home or Status(self._folder).error():  # another attempt would meet it again
                return 1
            Reporter(self._folder, attempt).lost(lost)
        return 1

    def _send_home(self, *_: Any) -> None:
        """Ask the workers to save what they have and leave."""
        self._sent_home = True
        for process in self._ranks:
            os.kill(process, signal.SIGTERM)

    def _fork_all(self, attempt: int) -> None:
        address = (HOST, str(_free_port()))
        for rank in range(self._workers):
            process = os.fork()
            if not process:
                place = (rank, self._workers, *address, rank, self._workers, 0, 1, self._folder.name, attempt)
                names = (*WHO, *PLACE, RUN, RESTARTS)
                os.environ.update(dict(zip(names, map(str, place), strict=True)))
                self._begin()
            self._ranks[process] = rank

    def _begin(self) -> NoReturn:
        """As a worker. Nothing that was to be done at the end of the process that forked it is done twice."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        code = 1
        try:
            code = self._work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _wait(self) -> str | None:
        """Until all have ended. If one is lost, the others cannot go on: they are ended, and it is named."""
        lost = None
        while self._ranks:
            process, status = os.wait()
            rank, code = self._ranks.pop(process), os.waitstatus_to_exitcode(status)
            if code and lost is None:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                lost = f"worker {rank} (process {process}) {how}"
                for other in self._ranks:
                    with suppress(ProcessLookupError):
                        os.kill(other, signal.SIGKILL)
        return lost


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
