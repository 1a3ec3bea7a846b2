"""A stream of NATS JetStream, pulled in the order of its sequence numbers."""

import asyncio
import json
import ssl
from contextlib import suppress
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

PORT = 4222
MOST_BATCH = 10_000
CLOSE_SECONDS = 2.0
FORGET_SECONDS = 300.0  # after which the server forgets a consumer that nobody asks
HEARTBEAT = "100"
FORGOTTEN = ("503", "Consumer Deleted")  # said of a consumer that the server does not know any more


class NatsStream(ServerStream):
    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        self._nats = nats = _import_nats()
        self.broken = (nats.errors.Error, nats.js.errors.Error, OSError, asyncio.TimeoutError)
        address = parse(url, PORT, "stream", ("from", "tls"))
        if position is not None and position["stream"] != address.name:
            raise address.wrong(f"the kept position is one in the stream {position['stream']}")
        self._longest = settings.max_message_bytes
        self._begins_at_end = position is None and address.latest
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        self._consumer = ""
        self._done, self._said = asyncio.Event(), ""
        try:
            begin = {"kind": "nats", "stream": address.name, "sequence": 0}
            super().__init__(address, {**(position or begin)})
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        missing = self._nats.js.errors.ServiceUnavailableError, self._nats.errors.NoRespondersError
        try:
            self._run(asyncio.wait_for(self._join(), 3 * CONNECT_SECONDS))
        except missing:
            if self._consumer:  # it was there before: the server is still starting
                raise
            raise InputError(
                f"{self._address.shown} does not offer JetStream; start nats-server with it, by -js"
            ) from None

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def _join(self) -> None:
        """Connect, and have a consumer that begins behind the position."""
        nats, address = self._nats, self._address
        self._client = nats.NATS()
        try:
            await self._client.connect(
                servers=[f"nats://{host}:{port}" for host, port in address.hosts],
                error_cb=_say_nothing,
                closed_cb=self._wake,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # or the first connection is tried for ever
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                tls=ssl.create_default_context() if address.tls else None,
                **_credentials(address),
            )
        except nats.errors.Error as error:
            if "Authorization" in str(error):
                raise refused(address) from None
            raise
        self._jetstream = self._client.jetstream(timeout=CONNECT_SECONDS)
        stream, self._subject = await self._find()
        self._name = stream.config.name
        if self._begins_at_end:
            self._go_on(stream.state.last_seq)
            self._begins_at_end = False
        self._refuse_another(stream)
        self._refuse_if_gone(stream)
        api = nats.js.api
        consumer = await self._jetstream.add_consumer(
            self._name,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._position["sequence"] + 1,
                ack_policy=api.AckPolicy.NONE,
                filter_subject=self._subject,
                inactive_threshold=FORGET_SECONDS,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._consumer, self._delivered, self._requests = consumer.name, 0, 0
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def _find(self) -> tuple[Any, str | None]:
        """The stream of that name, or the one that holds the subject of that name."""
        name, missing = self._address.name, self._nats.js.errors.NotFoundError
        try:
            if not set(name) & set(".*>"):
                with suppress(missing):
                    return self._refuse_queues(await self._jetstream.stream_info(name)), None
            holder = await self._jetstream.find_stream_name_by_subject(name)
            return self._refuse_queues(await self._jetstream.stream_info(holder)), name
        except missing:
            raise InputError(
                f"{self._address.shown} has neither a stream nor a subject of that name; check the name"
            ) from None

    def _refuse_queues(self, stream: Any) -> Any:
        if stream.config.retention not in (None, self._nats.js.api.RetentionPolicy.LIMITS):
            raise InputError(
                f"{self._address.shown} drops messages once they are taken, so they cannot be read again "
                "after a restart; give the stream the retention policy limits"
            )
        return stream

    def _refuse_if_gone(self, stream: Any) -> None:
        """The oldest messages are dropped first: if those up to the one read last were, none is missed."""
        last = self._position["sequence"]
        if last and stream.state.first_seq > last + 1:
            raise messages_gone(self._address, f"sequence {last}")

    def _refuse_another(self, stream: Any) -> None:
        """Sequence numbers mean nothing in a stream that was made anew, or lost its end in a crash."""
        created = str(stream.created)
        if self._position.setdefault("created", created) != created:
            raise InputError(f"{self._address.shown} was deleted and made anew since; start a new run")
        if stream.state.last_seq < self._position["sequence"]:
            raise InputError(
                f"{self._address.shown} has lost messages that were read already, and gives their numbers "
                "again; start a new run"
            )

    def _go_on(self, sequence: int) -> None:
        self._position = {**self._position, "sequence": sequence}

    async def _receive(self, message: Any) -> None:
        status = message.headers and not message.data and message.headers.get("Status")
        if not status:
            self._received.append(message)
            if len(self._received) == self._wanted:
                self._done.set()
        elif status != HEARTBEAT and message.subject == self._request:
            self._said = f"{status} {message.headers.get('Description') or ''}"
            self._done.set()

    async def _wake(self) -> None:
        """Whoever waits for an answer on a connection that is gone."""
        self._done.set()

    def _fetch(self, most: int, seconds: float) -> Messages:
        received = self._run(self._pull(min(most, MOST_BATCH), seconds))
        if not received:
            return Messages([], [], self._position)
        answers = [message.reply.split(".") for message in received]
        at = 5 if len(answers[0]) == 9 else 7  # with a domain and an account in front
        delivered = int(answers[-1][at + 1])
        if delivered - self._delivered != len(received):  # some were lost on their way: ask for them again
            raise self._nats.errors.Error
        self._delivered = delivered
        sequences = [int(answer[at]) for answer in answers]
        if sequences[-1] - self._position["sequence"] != len(
            sequences
        ):  # some are not there, or not of the subject
            self._refuse_if_gone(self._run(self._jetstream.stream_info(self._name)))
        self._go_on(sequences[-1])
        texts = [message.data for message in received]
        places = [f"{self._name} message {sequence}" for sequence in sequences]
        return Messages(texts, places, self._position, reject_long(texts, self._longest))

    async def _pull(self, most: int, seconds: float) -> list[Any]:
        """What is there; if nothing is, the first message that comes in that time."""
        available = {"batch": most, "no_wait": True, "max_bytes": READ_AHEAD_BYTES}
        await self._ask(available, most, 0.0)
        if self._subject and not self._received:
            # Others publish as well: that nothing of the subject came up to the end of now is worth keeping.
            end = (await self._jetstream.stream_info(self._name)).state.last_seq
            await self._ask(available, most, 0.0)
            if not self._received and "MaxBytes" not in self._said:
                self._go_on(end)
        if not self._received and "MaxBytes" in self._said:  # a single message that is longer
            await self._ask({"batch": 1, "no_wait": True}, 1, 0.0)
        elif not self._received and seconds > 0:
            await self._ask({"batch": 1, "expires": max(1_000_000, int(seconds * 1e9))}, 1, seconds)
        return self._received

    async def _ask(self, request: dict[str, Any], wanted: int, seconds: float) -> None:
        self._requests += 1
        self._request, self._wanted = f"{self._inbox}.{self._requests}", wanted
        self._received: list[Any] = []
        self._done, self._said = asyncio.Event(), ""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{self._consumer}"
        await self._client.publish(subject, json.dumps(request).encode(), reply=self._request)
        await asyncio.wait_for(self._done.wait(), seconds + ANSWER_SECONDS)
        if self._client.is_closed or any(word in self._said for word in FORGOTTEN):
            raise self._nats.errors.Error

    def _disconnect(self) -> None:
        if self._client is not None:
            with suppress(Exception):  # after a failed handshake the client would wait for ever
                self._run(asyncio.wait_for(self._client.close(), CLOSE_SECONDS))
        self._client = None

    def close(self) -> None:
        if self._client is not None and self._client.is_connected:
            with suppress(Exception):
                self._run(self._jetstream.delete_consumer(self._name, self._consumer))
        super().close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._run(asyncio.wait(left)) if left else None
        self._loop.close()


async def _say_nothing(error: Exception) -> None:
    """Errors come from the calls that they break."""


def _credentials(address: Address) -> dict[str, str]:
    """User and password; one of them alone is a token."""
    if address.user and address.password:
        return {"user": address.user, "password": address.password}
    token = address.user or address.password
    return {"token": token} if token else {}


def _import_nats() -> Any:
    try:
        import nats  # noqa: PLC0415
        import nats.js  # noqa: PLC0415
    except ImportError:
        raise missing_extra("nats-py", "nats") from None
    return nats
