"""What a stream is, and how the right one is found for a URL.

A stream hands over messages in their order, with the position behind them. A position is plain data. Whoever
learns keeps it together with what was learnt, and nothing else is the truth: no offset is committed anywhere,
and reading again from a kept position gives exactly the messages behind it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from manyhands.catalog import STREAMS, load
from manyhands.data.streams.address import describe, scheme_of
from manyhands.errors import UsageError
from manyhands.settings import Settings
from manyhands.storage.files import STDIN

__all__ = ["Messages", "Position", "Stream", "StreamSettings", "describe", "open_stream"]

Position = dict[str, Any]

READ_AHEAD_BYTES = 8 << 20  # that a stream holds beyond what it has handed over


class StreamSettings(Settings):
    """What is taken from a stream."""

    max_message_bytes: Annotated[
        int, Field(ge=1, le=1 << 30, description="Longest message in bytes; longer ones are rejected.")
    ] = 1 << 20


DEFAULTS = StreamSettings()


@dataclass(frozen=True)
class Messages:
    """Some messages, in their order, and where the stream stands behind the last of them."""

    texts: list[bytes]  # the raw payload of each: a line, a value of Kafka, a field of Redis
    places: list[str]  # where each stands, for people: "reviews[0] offset 17"
    position: Position  # behind the last of them: reading from here goes on after it
    rejected: dict[int, str] = field(default_factory=dict)  # whose text is left out, and why


class Stream(Protocol):
    """An open stream. It is made of a URL, a position (None: from the beginning) and settings."""

    replays: ClassVar[bool]  # reading from a kept position gives what came after it

    def read(self, most: int, seconds: float) -> Messages | None:
        """At most so many messages, as soon as there are some; empty if none came in that time; None at the
        end.
        """

    def close(self) -> None: ...


def open_stream(url: str, position: Position | None, settings: StreamSettings = DEFAULTS) -> Stream:
    """The stream of a URL, a file, a folder or ``-``, to be read from ``position`` on."""
    kind = kind_of(url)
    stream: type[Any] = load(STREAMS, "stream", kind)
    if position is not None and position["kind"] != kind:
        raise UsageError(
            f"the kept position is one in a {position['kind']} stream, and {describe(url)} is of the kind "
            f"{kind}; name the stream that was read before"
        )
    opened: Stream = stream(url, position, settings)
    return opened


def kind_of(url: str) -> str:
    """The catalog's name of a stream.

    >>> kind_of("redis://localhost/reviews"), kind_of("-"), kind_of("live.jsonl"), kind_of("/")
    ('redis', 'stdin', 'file', 'folder')
    """
    if url == STDIN:
        return "stdin"
    scheme = scheme_of(url)
    if scheme:
        return scheme
    return "folder" if url.endswith("/") or Path(url).is_dir() else "file"


def reject_long(texts: list[bytes], longest: int) -> dict[int, str]:
    """Empty the texts that are too long, and say which they were.

    >>> texts = [b"short", b"far too long"]
    >>> reject_long(texts, 8), texts
    ({1: 'longer than 8 bytes'}, [b'short', b''])
    """
    if max(map(len, texts), default=0) <= longest:  # nearly always, and quickly told
        return {}
    long = [k for k, text in enumerate(texts) if len(text) > longest]
    for k in long:
        texts[k] = b""
    return dict.fromkeys(long, too_long(longest))


def too_long(longest: int) -> str:
    return f"longer than {longest:,} bytes"
