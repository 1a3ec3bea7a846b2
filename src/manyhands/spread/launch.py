"""``python -m manyhands.spread.launch …``: torchrun, with two manners of its own.

It ends when the process that started it does, and its rendezvous (``--rdzv-backend manyhands``) is
that of ``c10d`` but listens at the address it was given, and nowhere else.
"""

import ctypes
import os
import signal
import sys
from typing import Any

from manyhands.spread.store import open_store

STARTER = "MANYHANDS_STARTER"  # the process of whoever started the crew
BACKEND = "manyhands"
READ_SECONDS = 60.0
END_WITH_PARENT = 1  # prctl's number for it, on Linux; elsewhere there is nothing of the kind


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
