"""How far apart exchanges are: further than would be best, where they take most of the time.

On a slow link, or where little is learnt between two exchanges, replicas would do little else than exchange.
What they learn is not much worse if they exchange more seldom, as decision 16 shows; so they do, up to a
bound, until learning takes about half of the time.
"""

import time

MOST_EXCHANGING, ENOUGH_LEARNING = 0.5, 0.35  # shares of the time: above it is stretched, below it shrinks
STRETCH = 1.05  # how much further apart the next exchanges are
MOST_STRETCH = 16.0
FOLLOWS = 0.1  # how far the share follows that of the last exchange
MOST_FOR_WHOLE = 0.2  # of the time of an epoch, for an exchange of all rows at its end


class Pace:
    """What the driver has measured of exchanges."""

    def __init__(self, most_stretch: float) -> None:
        self.stretch = 1.0
        self._most = most_stretch
        self._share = 0.0
        self._epoch, self._began, self._epoch_seconds = 0, time.monotonic(), 0.0
        self._whole_seconds = 0.0

    def note(self, exchanging: float, since_last: float, *, whole: bool) -> None:
        """An exchange took so many seconds, of all since the last one of its replica."""
        if whole:  # these are few, and take long on any link
            self._whole_seconds = exchanging
            return
        self._share += (exchanging / max(since_last, exchanging, 1e-6) - self._share) * FOLLOWS
        if self._share > MOST_EXCHANGING:
            self.stretch = min(self.stretch * STRETCH, self._most)
        elif self._share < ENOUGH_LEARNING:
            self.stretch = max(self.stretch / STRETCH, 1.0)

    def affords_whole(self, epoch: int) -> bool:
        """Whether all rows are to be exchanged as this epoch begins."""
        if epoch > self._epoch:
            now = time.monotonic()
            self._epoch_seconds, self._epoch, self._began = now - self._began, epoch, now
        return self._most == 1 or self._whole_seconds <= MOST_FOR_WHOLE * max(self._epoch_seconds, 1e-6)
