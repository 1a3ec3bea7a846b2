"""Starting a crew: torchrun and its workers, watched from outside until the bundle stands."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyhands.errors import (
    InputError,
    ManyhandsError,
    MissingPartError,
    ResumableError,
    UnderTrainedError,
    UsageError,
    missing_extra,
)
from manyhands.machine import LEAST_BYTES, cores
from manyhands.records import Progress, Resources
from manyhands.settings import SpreadSettings
from manyhands.spread.balance import Policy
from manyhands.spread.launch import BACKEND, STARTER
from manyhands.spread.status import FOLDER, Status
from manyhands.spread.store import local_address

POLL_SECONDS = 0.2
LEAVING_SECONDS = 40.0  # torchrun gives its workers 30 to save what they have
DEFAULT_WORKERS = 2
LONGEST_REASON = 300
ASK_SECONDS = 15.0
MOST_PORT = 1 << 16
SAFE = {"PYTHONSAFEPATH": "1"}  # nothing is imported from the folder at hand
GIVE_UP_SECONDS = 120.0
ERRORS = {kind.exit_code: kind for kind in (UsageError, InputError, MissingPartError, ResumableError)}
# Keep-alives of nodes may fail for so long; a link that is cut for a moment loses nobody.
KEEP_ALIVE = "keep_alive_interval=5,keep_alive_max_attempt=12"


def check_crew(spread: SpreadSettings, sources: list[str]) -> None:
    """Tell what cannot work before anyone is started."""
    Policy.parse(spread.balance)
    least, _, most = spread.nodes.partition(":")
    if most and int(least) > int(most):
        raise UsageError(f"--nodes {spread.nodes} ends before it begins; write it like 1:4")
    if spread.nodes != "1" and spread.rendezvous is None:
        raise UsageError("several machines need an address to meet at; add --rendezvous ADDRESS:PORT")
    if spread.rendezvous and not 0 < int(spread.rendezvous.partition(":")[2]) < MOST_PORT:
        raise UsageError(f"--rendezvous {spread.rendezvous} has no port from 1 to {MOST_PORT - 1}")
    if "-" in sources:
        raise UsageError("a crew cannot share standard input; give a file")
    if find_spec("torch") is None:
        raise missing_extra("torch", "torch")


def run_crew(
    call: dict[str, Any],
    spread: SpreadSettings,
    resources: Resources,
    threads: int | None,
    progress: Progress,
) -> bool:
    """Have ``call``, the arguments of ``train``, done by a crew; whether the bundle was written here."""
    workers = spread.workers or DEFAULT_WORKERS
    call = {
        **call,
        "threads": threads or max(cores() // workers, 1),
        "memory": max(resources.memory_bytes // workers, LEAST_BYTES),
    }
    with tempfile.TemporaryDirectory(prefix="manyhands-crew-") as name:
        folder = Path(name)
        (folder / "call.json").write_text(json.dumps(call), "utf-8")
        command = _command(spread, workers, folder)
        with (folder / "log").open("wb") as log, _started(command, folder, log) as crew:
            _watch(crew, Status(folder), progress)
        _tell_outcome(crew.returncode, Status(folder), folder)
        return Status(folder).wrote()


def _command(spread: SpreadSettings, workers: int, folder: Path) -> list[str]:
    endpoint = spread.rendezvous or "127.0.0.1:0"
    host, _, port = endpoint.partition(":")
    here = local_address(host)
    if here is None:
        raise UsageError(f"--rendezvous {host} cannot be reached; give an address of the machine that leads")
    leads = here == socket.gethostbyname(host) and _is_free(host, int(port), spread.nodes)
    command = [sys.executable, "-m", "manyhands.spread.launch"]
    command += ["--nnodes", spread.nodes, "--nproc-per-node", str(workers)]
    command += ["--max-restarts", str(spread.restarts), "--monitor-interval", "0.2"]
    command += ["--log-dir", str(folder / "logs")]
    command += ["--rdzv-backend", BACKEND, "--rdzv-endpoint", endpoint]
    command += ["--rdzv-id", "manyhands" if spread.rendezvous else folder.name]
    command += ["--rdzv-conf", f"{KEEP_ALIVE},last_call_timeout=3,join_timeout=600,is_host={int(leads)}"]
    command += ["--local-addr", here]
    return [*command, "-m", "manyhands.spread.worker", str(folder / "call.json")]


def _is_free(host: str, port: int, nodes: str) -> bool:
    """Whether a crew can begin there. If not, one must be waiting there: anything else is in the way."""
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        pass
    if nodes == "1" or not _is_store(host, port):
        raise UsageError(f"port {port} of {host} is in use; choose another with --rendezvous")
    return False


def _is_store(host: str, port: int) -> bool:
    """Whether PyTorch's store answers there. Asked by a process of its own: it may never come back."""
    ask = f"from torch.distributed import TCPStore; TCPStore({host!r}, {port}, None, False)"
    command = [sys.executable, "-c", ask]
    try:
        done = subprocess.run(  # noqa: S603
            command, env={**os.environ, **SAFE}, timeout=ASK_SECONDS, check=False, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@contextmanager
def _started(command: list[str], folder: Path, log: Any) -> Iterator[subprocess.Popen[bytes]]:
    # Without the first variable, restarted workers hang in two of five cases: they meet the old ones' store.
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
        time.sleep(POLL_SECONDS)


def _tell_outcome(code: int, status: Status, folder: Path) -> None:
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
        f"training ended before all was learnt ({reason or f'torchrun gave {code}'}); "
        f"go on with the same command and --resume"
    )
