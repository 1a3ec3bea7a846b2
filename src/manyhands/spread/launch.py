"""``python -m manyhands.spread.launch …``: torchrun, which ends when the process that started it does."""

import ctypes
import signal
import sys

END_WITH_PARENT = 1  # prctl's number for it, on Linux; elsewhere there is nothing of the kind


def end_with_parent(number: signal.Signals) -> None:
    """Have this process sent a signal when its parent ends, in whatever way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, int(number))


if __name__ == "__main__":
    from torch.distributed.run import main

    end_with_parent(signal.SIGTERM)
    main()
