"""Connections, as uvicorn keeps them, with limits on what a client may send and how long it may take.

uvicorn's own limits cover the time between two requests only. Here one look a second over all connections
finds those that have taken too long to send a request, or to read an answer.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from signal import SIGHUP, SIGINT, SIGTERM
from socket import socket
from typing import Any

import uvicorn
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from manyhands.serve.answers import SEND_WHOLE, Answer
from manyhands.serve.service import Service

MOST_HEAD_BYTES = 1 << 16
SECONDS_BETWEEN_LOOKS = 1.0
# At the end, new requests are still taken for so long: who keeps a connection is told to close it, and
# what was on its way when the end began is answered.
LAST_CALL_SECONDS = 0.5


class Connection(HttpToolsProtocol):
    """One connection. ``since`` is when the client was first waited for; None while it waits for us."""

    service: Service  # of the class that a server makes for itself

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since: float | None = self.loop.time()
        self._in_head, self._head_bytes = True, 0
        self._closing_since: float | None = None
        if len(self.connections) > self.service.limits.max_connections:
            most = self.service.limits.max_connections
            self._refuse(503, f"{most:,} connections are open, which is all that the service takes on")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self._refuse(431, f"the head of the request is larger than {MOST_HEAD_BYTES:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since, self._in_head = self.loop.time(), True

    def on_headers_complete(self) -> None:
        large = self._head_bytes > MOST_HEAD_BYTES  # the body may have come with it
        if large and sum(len(name) + len(value) for name, value in self.headers) > MOST_HEAD_BYTES:
            self._refuse(431, f"the head of the request is larger than {MOST_HEAD_BYTES:,} bytes")
            return
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()
        if self.service.draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self.cycle is not None and not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.since = None
        if self.cycle is not None and not self.transport.is_closing():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope["extensions"] = {SEND_WHOLE: {"send": partial(self._send_whole, cycle)}}
        super()._start_asgi_task(cycle, app)

    def _send_whole(self, cycle: RequestResponseCycle, answer: Answer) -> bool:
        """Send head and body in one piece: in two, each would be a call of the system and wake the client.

        Not to a client that is slow to read: uvicorn waits for it.
        """
        if self.flow.write_paused and not cycle.disconnected:
            return False
        cycle.response_started = cycle.response_complete = True
        if self.transport.is_closing():  # the client has left, or has sent nonsense after this request
            return True
        head = [STATUS_LINE[answer.status]]
        head += [b"%b: %b\r\n" % pair for pair in (*self.server_state.default_headers, *answer.all_headers())]
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        body = b"" if cycle.scope["method"] == "HEAD" else answer.body
        self.transport.write(b"".join([*head, end, body]))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self.since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.since = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP request")

    def shutdown(self) -> None:
        """Close, unless a request is under way, or on its way."""
        if self.since is None or self.cycle is None or not self._in_head:
            super().shutdown()

    def give_up(self, now: float) -> None:
        """Close the connection if its client has been waited for too long."""
        seconds = self.service.limits.request_seconds
        if self.transport.is_closing():  # what was written before is still on its way
            self._closing_since = self._closing_since or now
            if now - self._closing_since > seconds:
                self.transport.abort()
        elif self.since is not None and now - self.since > seconds:
            if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
                self._refuse(408, "the request took too long to arrive")
            else:
                self.transport.abort()

    def _refuse(self, status: int, why: str) -> None:
        if self.transport.is_closing():
            return
        body = to_json({"error": why})
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + retry + b"\r\n" + body)
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn with our connections and our signals."""

    def __init__(self, app: Any, service: Service, on_hangup: Callable[[], None]) -> None:
        limits = service.limits
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=type("Connection", (Connection,), {"service": service}),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # what clients do wrong is told to them
                access_log=False,
                server_header=False,
                proxy_headers=False,  # a client is who connects, whatever it says of itself
                timeout_keep_alive=max(1, round(limits.idle_seconds)),
                timeout_graceful_shutdown=max(1, round(limits.drain_seconds)),
            )
        )
        self._service, self._on_hangup = service, on_hangup
        service.requests = self.server_state.tasks

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the service when all requests are answered, a second one at once."""
        loop = asyncio.get_running_loop()
        for number in (SIGTERM, SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(SIGHUP, self._on_hangup)
        looking = loop.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._service.draining = True
        await asyncio.sleep(LAST_CALL_SECONDS)
        await super().shutdown(sockets)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            for connection in list(self.server_state.connections):
                connection.give_up(loop.time())  # type: ignore[union-attr]
