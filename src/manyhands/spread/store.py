"""The small table by which workers find each other, listening at one address and nowhere else."""

import socket
from contextlib import suppress
from datetime import timedelta
from typing import Any

from manyhands.errors import missing_extra


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
