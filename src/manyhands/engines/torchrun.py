"""torchrun: how a crew on several machines is started.

``python -m manyhands.engines.torchrun`` is torchrun with two manners of its own:
it ends when the process that started it does, and its rendezvous (``--rdzv-backend manyhands``) is that of
``c10d`` but listens at the address it was given, and nowhere else.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from manyhands.engines.crew import SAFE, STARTER, Crew, end_with_parent
from manyhands.errors import UsageError, missing_extra

BACKEND = "manyhands"
ASK_SECONDS = 15.0
LOOK_SECONDS = 0.5
READ_SECONDS = 60.0
JOIN_SECONDS = 600  # machines of a cloud may come minutes apart
# Keep-alives of nodes may fail for so long; a link that is cut for a moment loses nobody.
KEEP_ALIVE = "keep_alive_interval=5,keep_alive_max_attempt=12"


def command(crew: Crew, folder: Path) -> list[str]:
    """What starts torchrun on this machine."""
    endpoint = crew.rendezvous or ""
    host, _, port = endpoint.partition(":")
    here = local_address(host)
    if here is None:
        raise UsageError(f"--rendezvous {host} cannot be reached; give an address of the machine that leads")
    leads = here == socket.gethostbyname(host) and _is_free(host, int(port), crew.nodes)
    start = [sys.executable, "-m", "manyhands.engines.torchrun"]
    start += ["--nnodes", crew.nodes, "--nproc-per-node", str(crew.workers)]
    start += ["--max-restarts", str(crew.restarts), "--monitor-interval", "0.2"]
    start += ["--log-dir", str(folder / "logs")]
    start += ["--rdzv-backend", BACKEND, "--rdzv-endpoint", endpoint, "--rdzv-id", "manyhands"]
    patience = f"{KEEP_ALIVE},last_call_timeout=3,join_timeout={JOIN_SECONDS}"
    start += ["--rdzv-conf", f"{patience},is_host={int(leads)}"]
    return [*start, "--local-addr", here]


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
    start, environment = [sys.executable, "-c", ask], {**os.environ, **SAFE}
    try:
        done = subprocess.run(  # noqa: S603
            start, env=environment, timeout=ASK_SECONDS, check=False, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


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


def _meet(parameters: Any) -> Any:
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (  # noqa: PLC0415
        C10dRendezvousBackend,
    )
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler  # noqa: PLC0415

    class Backend(C10dRendezvousBackend):  # type: ignore[misc]
        name = BACKEND  # torchrun compares it with what was asked for

    host, _, port = parameters.endpoint.rpartition(":")
    leads = bool(parameters.get_as_bool("is_host"))
    if not leads:
        _wait_for_leader(host, int(port))
    store = open_store(host, int(port), leads=leads, seconds=READ_SECONDS)
    return create_handler(store, Backend(store, parameters.run_id), parameters)


def _wait_for_leader(host: str, port: int) -> None:
    """A machine may be ready minutes before the one that leads."""
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, port), ASK_SECONDS):
            return
        time.sleep(LOOK_SECONDS)


def main() -> None:
    end_with_parent(signal.SIGTERM, int(os.environ[STARTER]))  # before anything heavy is loaded

    from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry  # noqa: PLC0415
    from torch.distributed.run import main as torchrun  # noqa: PLC0415

    rendezvous_handler_registry.register(BACKEND, _meet)
    torchrun()


if __name__ == "__main__":
    main()
