"""A stream of Redis or Valkey, read from an id on; consumer groups are left alone."""

import json
import time
from typing import Any

from manyhands.data.streams.address import Address, parse
from manyhands.data.streams.server import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    ServerStream,
    messages_gone,
    refused,
)
from manyhands.data.streams.stream import READ_AHEAD_BYTES, Messages, Position, StreamSettings, reject_long
from manyhands.errors import InputError, missing_extra

PORT = 6379
BEGINNING = b"0-0"
BLOCK_SECONDS = ANSWER_SECONDS / 2  # so that a server that is gone is told from one with no messages
FIRST_COUNT, MOST_COUNT = 128, 10_000  # entries asked for at once: the server does nothing else meanwhile

Entry = list[Any]  # its id and its fields: name, value, name, value…


class RedisStream(ServerStream):
    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        redis = _import_redis()
        errors = redis.exceptions
        self.broken = (errors.ConnectionError, errors.TimeoutError, OSError)
        self._refusals = (errors.AuthenticationError, errors.AuthorizationError, errors.NoPermissionError)
        address = parse(url, PORT, "stream", ("from", "db", "tls"))
        if not address.options.get("db", "0").isdigit() or len(address.hosts) > 1:
            raise address.wrong("db is a number, and there is one server")
        self._longest, self._count = settings.max_message_bytes, FIRST_COUNT
        self._key = address.name
        if position is not None and position["stream"] != self._key:
            raise address.wrong(f"the kept position is one in the stream {position['stream']}")
        self._begins = position is None
        self._connection = _connection(redis, address)
        super().__init__(address, position or {})

    def _connect(self) -> None:
        kind = self._ask("TYPE", self._key)
        if kind != b"stream":
            what = "there is none of that name" if kind == b"none" else f"{self._key} is a {kind.decode()}"
            raise InputError(
                f"{self._address.shown} is no stream: {what}; check the name, or add a message to it first"
            )
        if self._begins:
            last, added, removed = self._state()
            latest = self._address.latest
            self._position = self._at(last if latest else BEGINNING, added if latest else removed or 0)
            self._begins = False

    def _ask(self, *words: str | bytes | int) -> Any:
        """The answer as the server gives it: the client's own answers are made entry by entry."""
        try:
            self._connection.send_command(*words)
            return self._connection.read_response()
        except self._refusals:
            raise refused(self._address) from None

    def _state(self) -> tuple[bytes, int, int | None]:
        """The last id given, how many entries were added, and how many removed (None: an old server)."""
        words = self._ask("XINFO", "STREAM", self._key)
        state = dict(zip(words[::2], words[1::2], strict=True))
        added: int | None = state.get(b"entries-added")
        removed = None if added is None else added - state[b"length"]
        return state[b"last-generated-id"], added or 0, removed

    def _at(self, identifier: bytes, entries: int) -> Position:
        """Behind an entry, which is the so-many-th of all that were ever added."""
        return {"kind": "redis", "stream": self._key, "id": identifier.decode(), "entries": entries}

    def _fetch(self, most: int, seconds: float) -> Messages:
        deadline = time.monotonic() + seconds
        entries = self._behind_position(most)
        while not entries and (left := deadline - time.monotonic()) > 0:
            wait = max(1, int(min(left, BLOCK_SECONDS) * 1000))
            last = self._position["id"]
            if self._ask("XREAD", "BLOCK", wait, "COUNT", 1, "STREAMS", self._key, last):
                entries = self._behind_position(most)
        if not entries:
            return Messages([], [], self._position)
        texts, rejected = [], {}
        for k, (_, fields) in enumerate(entries):
            if len(fields) == 2:
                texts.append(fields[1])
            else:
                text = _as_json(fields)
                texts.append(text)
                if not text:
                    rejected[k] = "not valid UTF-8"
        rejected |= reject_long(texts, self._longest)
        places = [f"{self._key} id {identifier.decode()}" for identifier, _ in entries]
        self._position = self._at(entries[-1][0], self._position["entries"] + len(entries))
        return Messages(texts, places, self._position, rejected)

    def _behind_position(self, most: int) -> list[Entry]:
        """What comes next. The entry read last is asked for again: while it is there, none behind it was
        trimmed, for the oldest go first. If it is not, the number of those that are gone tells.
        """
        last = self._position["id"].encode()
        anchored = last != BEGINNING
        count = min(most, self._count) + anchored
        entries: list[Entry] = self._ask("XRANGE", self._key, last if anchored else "-", "+", "COUNT", count)
        if entries and entries[0][0] == last:
            del entries[0]
        elif anchored:
            removed = self._state()[2]
            if removed is None or removed > self._position["entries"]:
                raise messages_gone(self._address, f"id {last.decode()}")
        del entries[most:]
        if entries:
            largest = max(sum(map(len, fields)) for _, fields in entries)
            self._count = max(1, min(2 * self._count, MOST_COUNT, READ_AHEAD_BYTES // max(1, largest)))
        return entries

    def _disconnect(self) -> None:
        self._connection.disconnect()


def _import_redis() -> Any:
    try:
        import redis  # noqa: PLC0415
    except ImportError:
        raise missing_extra("redis", "redis") from None
    return redis


def _connection(redis: Any, address: Address) -> Any:
    host, port = address.hosts[0]
    kind = redis.SSLConnection if address.tls else redis.Connection
    return kind(
        host=host.strip("[]"),
        port=port,
        db=int(address.options.get("db", 0)),
        username=address.user or None,
        password=address.password or None,
        protocol=2,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        socket_read_size=1 << 20,
    )


def _as_json(fields: list[bytes]) -> bytes:
    """A JSON object of the fields of an entry; nothing if they are no text.

    >>> _as_json([b"text", b"so good", b"label", b"5"])
    b'{"text": "so good", "label": "5"}'
    """
    try:
        words = [field.decode() for field in fields]
    except UnicodeDecodeError:
        return b""
    return json.dumps(dict(zip(words[::2], words[1::2], strict=True)), ensure_ascii=False).encode()
