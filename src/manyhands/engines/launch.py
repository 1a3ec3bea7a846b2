"""How a crew is started, watched and sent home, and what it complains of.

On one machine, workers are forked by a process of ours (``local``); on several, torchrun starts them.
"""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from manyhands.engines import local, torchrun
from manyhands.engines.crew import FOLDER, SAFE, STARTER, Crew, Status
from manyhands.errors import (
    InputError,
    ManyhandsError,
    MissingPartError,
    ResumableError,
    UnderTrainedError,
    UsageError,
)
from manyhands.records import Progress

POLL_SECONDS = 0.2
LEAVING_SECONDS = 40.0  # workers have 30 to save what they have
GIVE_UP_SECONDS = 120.0
LONGEST_REASON = 300
ERRORS = {kind.exit_code: kind for kind in (UsageError, InputError, MissingPartError, ResumableError)}


def launch_crew(module: str, call: dict[str, Any], crew: Crew, progress: Progress) -> bool:
    """Have a crew run ``module`` with ``call``; whether what came of it was written on this machine."""
    with tempfile.TemporaryDirectory(prefix="manyhands-crew-") as name:
        folder = Path(name)
        (folder / "call.json").write_text(json.dumps(call), "utf-8")
        start = local.command(crew) if crew.of_one_machine else torchrun.command(crew, folder)
        command = [*start, "-m", module, str(folder / "call.json")]
        with (folder / "log").open("wb") as log, _started(command, folder, log) as process:
            status = Status(folder)
            _watch(process, status, progress)
        status.show(progress)
        _raise_if_failed(process.returncode, status, folder)
        return status.wrote()


@contextmanager
def _started(command: list[str], folder: Path, log: Any) -> Iterator[subprocess.Popen[bytes]]:
    # Without torchrun's variable, workers that it restarts hang in two of five cases, in the old ones' store.
    environment = {
        **os.environ,
        **SAFE,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
        FOLDER: str(folder),
        STARTER: str(os.getpid()),
    }
    crew = subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield crew
    except BaseException:
        _send_home(crew)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(crew.pid, signal.SIGKILL)
        crew.wait()


def _send_home(crew: subprocess.Popen[bytes]) -> None:
    """Ask the workers to save what they have and leave."""
    crew.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        crew.wait(LEAVING_SECONDS)


def _watch(crew: subprocess.Popen[bytes], status: Status, progress: Progress) -> None:
    """Pass on what the first worker reports, until all are done or one has met an error that lasts."""
    while crew.poll() is None:
        status.show(progress)
        if status.error() is not None:
            with suppress(subprocess.TimeoutExpired):
                crew.wait(3)  # the others are about to say the same
            return
        if status.seconds_since_a_loss() > GIVE_UP_SECONDS:
            return  # torchrun waits for a machine that it cannot reach
        with suppress(subprocess.TimeoutExpired):
            crew.wait(POLL_SECONDS)


def _raise_if_failed(code: int, status: Status, folder: Path) -> None:
    error = status.error()
    if error is not None:
        raise ERRORS.get(error["code"], ManyhandsError)(error["message"])
    if status.done():
        return
    lost = status.losses()
    log = (folder / "log").read_text("utf-8", "replace").splitlines()
    errors = [line.strip()[:LONGEST_REASON] for line in log if "Error: " in line]
    reason = [*errors, *lost][-1] if errors or lost else ""
    raise UnderTrainedError(
        f"training stopped before it was complete ({reason or f'its starter gave {code}'}); "
        "to continue, repeat the command with --resume"
    )
