"""How the driver reaches workers and shards, be they processes on many machines or threads of this one."""

from collections.abc import Sequence
from typing import Any, Protocol

from manyhands.errors import ManyhandsError
from manyhands.spread.server.messages import Table
from manyhands.storage.tensors import Arrays


class LostError(ManyhandsError):
    """Whoever was asked has ended."""


class Lines(Protocol):
    """Calls that are answered later. ``who`` is what ``start`` gave."""

    shards: int
    shares_memory: bool  # workers of one machine may have the same tables
    here: str  # the driver's own machine, if workers may be there too

    def start(self, rank: int, node: str = "") -> Any:
        """Start a worker: on this machine, if it is still there."""
        ...

    def ask(self, who: Any, what: str, *arguments: Any, **named: Any) -> Any: ...

    def wait(self, asked: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Those that are answered; none if nothing comes in that time."""
        ...

    def answer(self, asked: Any) -> Any:
        """What was answered, or the error; a LostError if whoever was asked is gone."""
        ...

    def stop(self, who: Any) -> None: ...

    def begin_shards(self, tables: list[Table], replicas: int, values: list[Arrays]) -> None:
        """Give every shard its rows."""
        ...

    def shard_states(self) -> list[Arrays]:
        """What every shard has."""
        ...

    def end(self) -> None: ...
