"""A topic of Kafka, or of what speaks its protocol, read from given offsets on.

Offsets are assigned and never committed, and nothing hangs on where a broker says that a partition ends: not
all of them know.
"""

import logging
import os
import time
from itertools import groupby
from typing import Any, ClassVar

from manyhands.data.streams.address import Address, parse
from manyhands.data.streams.server import (
    CONNECT_SECONDS,
    OUTAGE_SECONDS,
    messages_gone,
    outage,
    refused,
    unreachable,
)
from manyhands.data.streams.stream import READ_AHEAD_BYTES, Messages, Position, StreamSettings, reject_long
from manyhands.data.streams.turns import TURN_MESSAGES, Turns
from manyhands.errors import InputError, missing_extra

PORT = 9092
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ASK_SECONDS = 0.5
LOOK_SECONDS = 0.1  # for messages of any partition, before it is looked again whose turn it is
MOST_AT_ONCE = 100_000
LEAST_HELD_BYTES = 1 << 20  # of a partition, before it is paused

SILENT = logging.getLogger("manyhands.kafka")  # the client reports to the screen otherwise
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class KafkaStream:
    replays: ClassVar[bool] = True

    def __init__(self, url: str, position: Position | None, settings: StreamSettings) -> None:
        self._kafka = kafka = _import_kafka()
        self._address = address = parse(url, PORT, "topic", ("partitions", "from", "tls", "mechanism"))
        self._topic, self._longest = address.name, settings.max_message_bytes
        if position is not None and position["topic"] != self._topic:
            raise address.wrong(f"the kept position is one in the topic {position['topic']}")
        asked = _numbers(address)
        self._down: float | None = None
        self._refusal = False
        self._consumer = kafka.Consumer(_configuration(address) | {"error_cb": self._note}, logger=SILENT)
        try:
            there = self._partitions()
            if asked is not None and not set(asked) <= set(there):
                raise address.wrong(f"the topic has the partitions {', '.join(map(str, there))}")
            partitions = asked or there
            if position is None:
                ends = {str(k): self._end(k) for k in partitions} if address.latest else {}
                position = {"turn": partitions[0], "left": TURN_MESSAGES, "offsets": ends}
            self._offsets: dict[str, int] = {**position["offsets"]}
            self._turns = Turns(partitions, position["turn"], position["left"])
            self._alone = len(partitions) == 1
            self._held = dict.fromkeys(partitions, 0)
            self._most_held = max(LEAST_HELD_BYTES, READ_AHEAD_BYTES // len(partitions))
            self._paused: set[int] = set()
            self._consumer.assign([self._place(partition) for partition in partitions])
        except BaseException:
            self._consumer.close()
            raise

    def _place(self, partition: int) -> Any:
        """Where to read on; a partition that was added since is read from its beginning."""
        offset = self._offsets.get(str(partition), self._kafka.OFFSET_BEGINNING)
        return self._kafka.TopicPartition(self._topic, partition, offset)

    def _partitions(self) -> list[int]:
        topic = self._metadata().topics[self._topic]
        if topic.error is not None or not topic.partitions:
            self._complain(topic.error)
            raise InputError(
                f"{self._address.shown}: there is no topic {self._topic}; check the name, or create it first"
            )
        return sorted(topic.partitions)

    def _metadata(self) -> Any:
        """What the brokers say of the topic. The client waits its whole time for brokers that are not there,
        unless it is asked again and again whether it found them.
        """
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return self._consumer.list_topics(self._topic, timeout=ASK_SECONDS)
            except self._kafka.KafkaException:
                self._consumer.poll(0)  # which calls back with what went wrong
                if self._refusal:
                    raise refused(self._address) from None
                if self._down is not None or time.monotonic() > deadline:
                    raise unreachable(self._address) from None

    def _end(self, partition: int) -> int:
        """What the broker says the next offset is: once, for who wants to begin there."""
        try:
            place = self._kafka.TopicPartition(self._topic, partition)
            return int(self._consumer.get_watermark_offsets(place, timeout=CONNECT_SECONDS)[1])
        except self._kafka.KafkaException:
            raise unreachable(self._address) from None

    def _note(self, error: Any) -> None:
        """Called by the client when something is wrong; it goes on trying by itself."""
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN and self._down is None:
            self._down = time.monotonic()
        self._refusal |= error.code() == self._kafka.KafkaError._AUTHENTICATION

    def read(self, most: int, seconds: float) -> Messages | None:
        deadline = time.monotonic() + seconds
        most = min(most, MOST_AT_ONCE)
        while True:
            left = max(0.0, deadline - time.monotonic())
            messages = self._poll(most, left) if self._alone else self._merged(most, left)
            if messages or time.monotonic() >= deadline:
                break
        self._refuse_outage(bool(messages))
        places = [(message.partition(), message.offset()) for message in messages]
        for partition, offset in places if not self._alone else places[-1:]:
            self._offsets[str(partition)] = offset + 1
        texts = [message.value() or b"" for message in messages]
        return Messages(
            texts,
            [f"{self._topic}[{partition}] offset {offset}" for partition, offset in places],
            self._position(),
            reject_long(texts, self._longest),
        )

    def _merged(self, most: int, seconds: float) -> list[Any]:
        """What the turns allow; if that is nothing, what comes in that time is held for them."""
        taken = self._turns.take(most, time.monotonic())
        if not taken:
            found = self._poll(10 * TURN_MESSAGES, min(seconds, LOOK_SECONDS))
            for partition, group in groupby(found, lambda message: message.partition()):
                came = list(group)
                self._turns.put(partition, came)
                self._held[partition] += sum(map(len, came))
            taken = self._turns.take(most, time.monotonic())
        for message in taken:
            self._held[message.partition()] -= len(message)
        self._pause_full_ones()
        return taken

    def _pause_full_ones(self) -> None:
        """A partition that others are waited for must not fill the memory."""
        full = {partition for partition, held in self._held.items() if held > self._most_held}
        drained = {partition for partition in self._paused if self._held[partition] < self._most_held // 2}
        if full - self._paused:
            self._consumer.pause([self._kafka.TopicPartition(self._topic, k) for k in full - self._paused])
        if drained:
            self._consumer.resume([self._kafka.TopicPartition(self._topic, k) for k in drained])
        self._paused = (self._paused | full) - drained

    def _poll(self, most: int, seconds: float) -> list[Any]:
        """The client would wait for all of them: so wait for the first only."""
        found = self._consumer.consume(most, 0.0)
        if not found and seconds > 0:
            found = self._consumer.consume(1, seconds)
            if found and most > 1:
                found += self._consumer.consume(most - 1, 0.0)
        for message in found:
            if message.error() is not None:
                self._complain(message.error())
        return [message for message in found if message.error() is None]

    def _complain(self, error: Any) -> None:
        """Raise what trying again does not mend."""
        kinds = self._kafka.KafkaError
        code = error and error.code()
        if code in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):
            raise messages_gone(self._address, f"offsets {self._offsets}")
        if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds._AUTHENTICATION):
            raise refused(self._address)
        if code in (kinds._UNKNOWN_TOPIC, kinds._UNKNOWN_PARTITION):
            raise InputError(f"{self._address.shown}: the topic {self._topic} is gone; check the broker")

    def _refuse_outage(self, answered: bool) -> None:
        if self._refusal:
            raise refused(self._address)
        if answered:
            self._down = None
        elif self._down is not None and time.monotonic() - self._down > OUTAGE_SECONDS:
            try:
                self._consumer.list_topics(self._topic, timeout=CONNECT_SECONDS)
                self._down = None
            except self._kafka.KafkaException:
                raise outage(self._address) from None

    def _position(self) -> Position:
        return {
            "kind": "kafka",
            "topic": self._topic,
            "offsets": {**self._offsets},
            "turn": self._turns.turn,
            "left": self._turns.left,
        }

    def close(self) -> None:
        self._consumer.close()


def _configuration(address: Address) -> dict[str, Any]:
    secured = ("SASL_" if address.user else "") + ("SSL" if address.tls else "PLAINTEXT")
    chosen: dict[str, Any] = {
        "bootstrap.servers": ",".join(f"{host}:{port}" for host, port in address.hosts),
        "security.protocol": secured,
        "group.id": "manyhands",  # the client wants one; no group is joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",  # offsets that are gone are an error, not a leap
        "queued.max.messages.kbytes": READ_AHEAD_BYTES >> 10,
        "fetch.max.bytes": READ_AHEAD_BYTES,
        "fetch.queue.backoff.ms": 5,  # the client would fetch nothing for a second once that much was read
        "socket.connection.setup.timeout.ms": int(CONNECT_SECONDS * 1000),
        "reconnect.backoff.max.ms": 1000,
    }
    if address.user:
        chosen |= {
            "sasl.mechanism": address.choice("mechanism", MECHANISMS),
            "sasl.username": address.user,
            "sasl.password": address.password,
        }
    if address.tls and "SSL_CERT_FILE" in os.environ:
        chosen["ssl.ca.location"] = os.environ["SSL_CERT_FILE"]
    return chosen


def _numbers(address: Address) -> list[int] | None:
    given = address.options.get("partitions")
    if given is None:
        return None
    words = given.split(",")
    if not all(word.isdigit() for word in words):
        raise address.wrong("partitions are numbers, like partitions=0,1")
    return sorted({int(word) for word in words})


def _import_kafka() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415
    except ImportError:
        raise missing_extra("confluent-kafka", "kafka") from None
    return confluent_kafka
