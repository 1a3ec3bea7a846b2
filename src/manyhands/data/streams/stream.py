"""What a stream is: messages without end, and the position behind each batch of them."""

from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from manyhands.catalog import STREAMS, load

Position = dict[str, Any]  # plain JSON data: where to go on reading


@dataclass(frozen=True)
class Messages:
    """Some messages, and the position behind the last of them."""

    texts: list[bytes]
    places: list[str]  # where each stands, for people
    position: Position
    rejected: dict[int, str] = field(default_factory=dict)  # those that cannot be used, and why


class Stream(Protocol):
    def read(self, most: int, seconds: float) -> Messages | None:
        """Up to ``most`` messages, waiting no longer than ``seconds`` for the first; None at the end."""
        ...

    def close(self) -> None: ...


def open_stream(url: str, position: Position | None) -> Stream:
    """The stream behind ``url``, from ``position`` on; from its beginning where there is none."""
    opened: Stream = load(STREAMS, "stream", _kind(url))(url, position)
    return opened


def describe(url: str) -> str:
    """The URL without credentials."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _kind(url: str) -> str:
    return urlsplit(url).scheme or "file"
