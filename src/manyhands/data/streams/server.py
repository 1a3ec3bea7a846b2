"""What streams behind a connection share: a connection that breaks is made anew, at the position."""

import time
from abc import ABC, abstractmethod
from typing import ClassVar

from manyhands.data.streams.address import Address
from manyhands.data.streams.stream import Messages, Position
from manyhands.errors import InputError, ResumableError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # that a server may take for an answer beyond the time it was given
OUTAGE_SECONDS = 120.0  # a server that is gone for longer does not come back by itself
PAUSE_SECONDS = 0.1


def unreachable(address: Address) -> InputError:
    return InputError(f"{address.shown} cannot be reached; check the address, and whether the server runs")


def refused(address: Address) -> InputError:
    return InputError(
        f"{address.shown} refused the user or the password; check them in the URL or the environment"
    )


def outage(address: Address) -> ResumableError:
    return ResumableError(
        f"{address.shown} has not answered for {OUTAGE_SECONDS:.0f} seconds; start again when it does"
    )


def messages_gone(address: Address, last: str) -> InputError:
    return InputError(
        f"{address.shown} no longer holds all that followed the last message read ({last}); "
        "let it keep messages for longer, and start a new run"
    )


class ServerStream(ABC):
    """Nothing but the position lives longer than a connection."""

    replays: ClassVar[bool] = True
    broken: tuple[type[Exception], ...]  # errors after which a new connection may help

    def __init__(self, address: Address, position: Position) -> None:
        self._address, self._position = address, position
        self._connected, self._answered = False, time.monotonic()
        try:
            self._connect()
        except self.broken:
            self._disconnect()
            raise unreachable(address) from None
        self._connected = True

    def read(self, most: int, seconds: float) -> Messages | None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                if not self._connected:
                    self._connect()
                    self._connected = True
                found = self._fetch(most, max(0.0, deadline - time.monotonic()))
                self._answered = time.monotonic()
                return found
            except self.broken:
                self._disconnect()
                self._connected = False
            now = time.monotonic()
            if now - self._answered > OUTAGE_SECONDS:
                raise outage(self._address) from None
            if now >= deadline:
                return Messages([], [], self._position)
            time.sleep(min(PAUSE_SECONDS, deadline - now))

    @abstractmethod
    def _connect(self) -> None: ...

    @abstractmethod
    def _fetch(self, most: int, seconds: float) -> Messages:
        """Read, and move the position on."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Whatever state the connection is in."""

    def close(self) -> None:
        self._disconnect()
