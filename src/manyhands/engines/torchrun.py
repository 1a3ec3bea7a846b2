"""torchrun: how a crew of processes is started, watched and sent home, and what it complains of.

``launch_crew`` runs ``python -m manyhands.engines.torchrun``, which is torchrun with two manners of its own:
it ends when the process that started it does, and its rendezvous (``--rdzv-backend manyhands``) is that of
``c10d`` but listens at the address it was given, and nowhere else. Workers report in files of a folder.
"""

import ctypes
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
from dataclasses import dataclass
from datetime import timedelta
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
from manyhands.records import Progress

WHO = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells a worker
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
FOLDER = "MANYHANDS_CREW"  # where workers report
STARTER = "MANYHANDS_STARTER"  # the process of whoever started the crew
BACKEND = "manyhands"
POLL_SECONDS = 0.2
LEAVING_SECONDS = 40.0  # torchrun gives its workers 30 to save what they have
GIVE_UP_SECONDS = 120.0
ASK_SECONDS = 15.0
READ_SECONDS = 60.0
LONGEST_REASON = 300
MOST_PORT = 1 << 16
SAFE = {"PYTHONSAFEPATH": "1"}  # nothing is imported from the folder at hand
ERRORS = {kind.exit_code: kind for kind in (UsageError, InputError, MissingPartError, ResumableError)}
# Keep-alives of nodes may fail for so long; a link that is cut for a moment loses nobody.
KEEP_ALIVE = "keep_alive_interval=5,keep_alive_max_attempt=12"
END_WITH_PARENT = 1  # prctl's number for it, on Linux; elsewhere there is nothing of the kind
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
        if find_spec("torch") is None:
            raise missing_extra("torch", "torch")


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
        if time.monotonic() - self._told >= REPORT_SECONDS:
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


def launch_crew(module: str, call: dict[str, Any], crew: Crew, progress: Progress) -> bool:
    """Have a crew run ``module`` with ``call``; whether what came of it was written on this machine."""
    with tempfile.TemporaryDirectory(prefix="manyhands-crew-") as name:
        folder = Path(name)
        (folder / "call.json").write_text(json.dumps(call), "utf-8")
        command = [*_torchrun(crew, folder), "-m", module, str(folder / "call.json")]
        with (folder / "log").open("wb") as log, _started(command, folder, log) as process:
            _watch(process, Status(folder), progress)
        _raise_if_failed(process.returncode, Status(folder), folder)
        return Status(folder).wrote()


def _torchrun(crew: Crew, folder: Path) -> list[str]:
    endpoint = crew.rendezvous or "127.0.0.1:0"
    host, _, port = endpoint.partition(":")
    here = local_address(host)
    if here is None:
        raise UsageError(f"--rendezvous {host} cannot be reached; give an address of the machine that leads")
    leads = here == socket.gethostbyname(host) and _is_free(host, int(port), crew.nodes)
    command = [sys.executable, "-m", "manyhands.engines.torchrun"]
    command += ["--nnodes", crew.nodes, "--nproc-per-node", str(crew.workers)]
    command += ["--max-restarts", str(crew.restarts), "--monitor-interval", "0.2"]
    command += ["--log-dir", str(folder / "logs")]
    command += ["--rdzv-backend", BACKEND, "--rdzv-endpoint", endpoint]
    command += ["--rdzv-id", "manyhands" if crew.rendezvous else folder.name]
    command += ["--rdzv-conf", f"{KEEP_ALIVE},last_call_timeout=3,join_timeout=600,is_host={int(leads)}"]
    return [*command, "--local-addr", here]


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
        f"training stopped before it was complete ({reason or f'torchrun gave {code}'}); "
        "to continue, repeat the command with --resume"
    )


def local_address(host: str) -> str | None:
    """By which address others reach this machine when they meet at ``host``; None if no way leads there."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((socket.gethostbyname(host), 9))
        return str(probe.getsockname()[0])
    return None


def open_store(host: str, port: int, *, leads: bool, seconds: float) -> Any:
    """The store at an address: made where this process ``leads``, asked for otherwise.

    Left to itself, PyTorch's store listens on all addresses of the machine; it takes over a socket
    that listens on one of them.
    """
    try:
        from torch.distributed import TCPStore  # noqa: PLC0415
    except ImportError:
        raise missing_extra("torch", "torch") from None
    patience = timedelta(seconds=seconds)
    if not leads:
        return TCPStore(host, port, is_master=False, timeout=patience)
    listener = socket.create_server((host, port))
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        is_master=True,
        timeout=patience,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have this process sent a signal when its parent ends, in whatever way; end now if that was before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, int(number))
        if os.getppid() == 1 or parent not in (None, os.getppid()):
            sys.exit(1)


def _meet(parameters: Any) -> Any:
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (  # noqa: PLC0415
        C10dRendezvousBackend,
    )
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler  # noqa: PLC0415

    class Backend(C10dRendezvousBackend):  # type: ignore[misc]
        name = BACKEND  # torchrun compares it with what was asked for

    host, _, port = parameters.endpoint.rpartition(":")
    leads = bool(parameters.get_as_bool("is_host"))
    store = open_store(host, int(port), leads=leads, seconds=READ_SECONDS)
    return create_handler(store, Backend(store, parameters.run_id), parameters)


def main() -> None:
    end_with_parent(signal.SIGTERM, int(os.environ[STARTER]))  # before anything heavy is loaded

    from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry  # noqa: PLC0415
    from torch.distributed.run import main as torchrun  # noqa: PLC0415

    rendezvous_handler_registry.register(BACKEND, _meet)
    torchrun()


if __name__ == "__main__":
    main()
