"""Messages of several partitions in one order: it follows from what they hold, not from who answers first."""

from collections import deque
from typing import Any

TURN_MESSAGES = 500  # that a partition gives before the next one does
LONE_SECONDS = 2.0  # that one is waited for while others have messages


class Turns:
    """Partitions take turns of some hundred messages. One that has none is waited for a little. Then it
    counts as slow: it is passed over, and what comes of it is taken at its turn, until it has a whole turn at
    once.

    >>> turns = Turns([0, 1])
    >>> turns.put(0, ["a"] * 600), turns.put(1, ["b"] * 600)
    (None, None)
    >>> taken = turns.take(1_100, now=0.0)
    >>> [(name, taken.count(name)) for name in dict.fromkeys(taken)], taken[500], taken[1_000:]
    ([('a', 600), ('b', 500)], 'b', ['a', 'a', ...])
    """

    def __init__(self, partitions: list[int], turn: int | None = None, left: int = TURN_MESSAGES) -> None:
        self._partitions = partitions
        self._at = partitions.index(turn) if turn in partitions else 0
        self.left = left if turn in partitions else TURN_MESSAGES
        self._held: dict[int, deque[Any]] = {partition: deque() for partition in partitions}
        self._slow: set[int] = set()
        self._since: float | None = None

    @property
    def turn(self) -> int:
        return self._partitions[self._at]

    def put(self, partition: int, messages: list[Any]) -> None:
        held = self._held[partition]
        held.extend(messages)
        if len(held) >= TURN_MESSAGES:
            self._slow.discard(partition)

    def take(self, most: int, now: float) -> list[Any]:
        taken: list[Any] = []
        passed = 0
        while len(taken) < most and passed < len(self._partitions):
            held = self._held[self.turn]
            count = min(self.left, len(held), most - len(taken))
            if count:
                taken += [held.popleft() for _ in range(count)]
                self.left -= count
                passed, self._since = 0, None
            if self.left and not held:
                if not self._is_slow(now):
                    break
                passed += 1
            if not self.left or not held:
                self._at, self.left = (self._at + 1) % len(self._partitions), TURN_MESSAGES
        return taken

    def _is_slow(self, now: float) -> bool:
        """Whether the partition whose turn it is need not be waited for."""
        if self.turn in self._slow:
            return True
        if not any(self._held.values()):
            self._since = None  # nobody waits for it
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < LONE_SECONDS:
            return False
        self._slow.add(self.turn)
        self._since = None
        return True
