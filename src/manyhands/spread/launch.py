"""``python -m manyhands.spread.launch …``: torchrun, which ends when the process that started it does."""

import ctypes
import os
import signal
import sys

STARTER = "MANYHANDS_STARTER"  # the process of whoever started the crew
END_WITH_PARENT = 1  # prctl's number for it, on Linux; elsewhere there is nothing of the kind


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have this process sent a signal when its parent ends, in whatever way; end now if that was before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, int(number))
        if os.getppid() == 1 or parent not in (None, os.getppid()):
            sys.exit(1)


if __name__ == "__main__":
    end_with_parent(signal.SIGTERM, int(os.environ[STARTER]))

    from torch.distributed.run import main

    main()
