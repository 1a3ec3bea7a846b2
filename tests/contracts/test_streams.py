"""Every stream of the catalog goes through the same checks, with its real server."""

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.brokers import (
    BROKERS,
    LIBRARIES,
    PASSWORD,
    SECONDS,
    TEXTS,
    USER,
    Broker,
    Nats,
    Tansu,
    read_all,
    texts_of,
    tls_proxy,
)
from tests.clusters import free_port
from tests.conftest import need

from manyhands.catalog import STREAMS
from manyhands.data.streams.stream import StreamSettings, describe, open_stream
from manyhands.errors import InputError, ManyhandsError, MissingPartError, UsageError

LOCAL = ["file", "folder"]
KINDS = [*BROKERS, *LOCAL]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_server = pytest.mark.parametrize("kind", list(BROKERS))


class Feed:
    """A new and empty stream of one kind, and who writes to it."""

    def __init__(self, kind: str, folder: Path, broker: Broker | None) -> None:
        self.kind, self.folder, self.broker = kind, folder, broker
        self._name, self._files = f"reviews-{folder.name}", 0
        if broker is not None:
            broker.create(self._name)
            self.url = broker.url(self._name)
        elif kind == "folder":
            self.url = str(folder)
        else:
            self.url = str(folder / "live.jsonl")
            Path(self.url).touch()

    def send(self, texts: Sequence[bytes]) -> None:
        lines = b"".join(text + b"\n" for text in texts)
        if self.broker is not None:
            self.broker.send(self._name, texts)
        elif self.kind == "folder":
            self._files += 1
            unfinished = self.folder / f".{self._files:06}.jsonl"
            unfinished.write_bytes(lines)
            unfinished.rename(self.folder / f"{self._files:06}.jsonl")
        else:
            with Path(self.url).open("ab") as file:
                file.write(lines)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    """Those that were asked for."""
    started: dict[str, Broker] = {}
    yield started
    for broker in started.values():
        broker.kill()


@pytest.fixture
def feed(kind: str, brokers: dict[str, Broker], tmp_path_factory: pytest.TempPathFactory) -> Feed:
    if kind in BROKERS:
        pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
        need(f"a server for {kind}, from the extra test", BROKERS[kind].program())
        if kind not in brokers:
            brokers[kind] = BROKERS[kind](tmp_path_factory.mktemp(kind))
        if not brokers[kind].answers():
            brokers[kind].start()
    return Feed(kind, tmp_path_factory.mktemp("stream"), brokers.get(kind))


def test_every_stream_is_checked_here() -> None:
    assert {*KINDS, "stdin"} == set(
        STREAMS
    )  # standard input cannot be read again: tests/data/test_stream_kinds.py


@every_kind
def test_in_order_in_batches_of_any_size_and_from_every_position(feed: Feed) -> None:
    feed.send(TEXTS[:100])
    feed.send(TEXTS[100:])

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(sizes=st.lists(st.integers(1, 120), min_size=1, max_size=8), data=st.data())
    def check(sizes: list[int], data: st.DataObject) -> None:
        stream = open_stream(feed.url, None)
        batches = read_all(stream, len(TEXTS), sizes)
        assert texts_of(batches) == TEXTS
        places = [place for batch in batches for place in batch.places]
        assert len(set(places)) == len(TEXTS)
        stream.close()
        kept = data.draw(st.integers(0, len(batches) - 1))
        stream = open_stream(feed.url, json.loads(json.dumps(batches[kept].position)))
        rest = texts_of(batches[kept + 1 :])
        again = read_all(stream, len(rest), sizes[::-1])
        assert texts_of(again) == rest
        assert [place for batch in again for place in batch.places] == places[len(places) - len(rest) :]
        nothing = stream.read(10, 0.0)
        assert nothing is not None and nothing.texts == []
        assert nothing.position == (again or [batches[kept]])[-1].position
        stream.close()

    check()


@every_kind
def test_the_position_of_an_empty_stream_misses_nothing(feed: Feed) -> None:
    stream = open_stream(feed.url, None)
    nothing = stream.read(10, 0.1)
    assert nothing is not None and nothing.texts == []
    stream.close()
    feed.send(TEXTS[:5])
    stream = open_stream(feed.url, json.loads(json.dumps(nothing.position)))
    assert texts_of(read_all(stream, 5)) == TEXTS[:5]
    stream.close()


READER = """
import json, os, sys
from pathlib import Path
from manyhands.data.streams.stream import open_stream

url, count, state = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
kept = json.loads(state.read_text()) if state.exists() else {"position": None, "texts": []}
stream = open_stream(url, kept["position"])
while len(kept["texts"]) < count:
    batch = stream.read(7, 0.2)
    kept["texts"] += [text.decode() for text in batch.texts]
    kept["position"] = batch.position
    new = state.with_suffix(".new")
    new.write_text(json.dumps(kept))
    new.rename(state)
"""


def start_reader(feed: Feed, count: int, state: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", READER, feed.url, str(count), str(state)])


@every_kind
def test_nothing_is_lost_or_doubled_when_the_reader_is_killed(feed: Feed, tmp_path: Path) -> None:
    state, lots, dice = tmp_path / "state.json", TEXTS * 4, random.Random(0)

    def produce() -> None:
        for first in range(0, len(lots), 40):
            feed.send(lots[first : first + 40])
            time.sleep(0.1)

    producer = threading.Thread(target=produce)
    producer.start()
    kills = 0
    for _ in range(3):
        reader = start_reader(feed, len(lots), state)
        before = read_so_far(state)
        while read_so_far(state) <= before and reader.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.random() * 0.3)
        kills += reader.poll() is None
        reader.kill()
        reader.wait()
    producer.join()
    assert start_reader(feed, len(lots), state).wait(SECONDS) == 0
    assert kills == 3
    assert [text.encode() for text in json.loads(state.read_text())["texts"]] == lots


def read_so_far(state: Path) -> int:
    return len(json.loads(state.read_text())["texts"]) if state.exists() else 0


@every_server
def test_a_broker_that_is_killed_and_comes_back(feed: Feed) -> None:
    assert feed.broker is not None
    if not feed.broker.keeps:
        pytest.skip("this broker keeps its messages in memory only")
    feed.send(TEXTS[:200])
    stream = open_stream(feed.url, None)
    batches = read_all(stream, 60, [20])
    feed.broker.kill()
    began = time.monotonic()
    batch = stream.read(10, 0.5)
    assert batch is not None and batch.texts == [] and batch.position == batches[-1].position
    assert time.monotonic() - began < 10
    feed.broker.start()
    batches += read_all(stream, 140, [20])
    feed.send(TEXTS[200:])
    batches += read_all(stream, 100, [20])
    stream.close()
    assert texts_of(batches) == TEXTS
    stream = open_stream(feed.url, batches[1].position)
    assert texts_of(read_all(stream, 260)) == TEXTS[40:]
    stream.close()


@every_kind
def test_waiting_costs_nothing_and_ends_with_the_first_message(feed: Feed) -> None:
    feed.send(TEXTS[:1])
    stream = open_stream(feed.url, None)
    read_all(stream, 1)
    began, busy = time.monotonic(), time.process_time()
    nothing = stream.read(100, 1.5)
    waited, busy = time.monotonic() - began, time.process_time() - busy
    assert nothing is not None and nothing.texts == []
    assert 1.4 < waited < 10
    assert busy < 0.2
    later = threading.Timer(0.3, feed.send, [TEXTS[1:2]])
    later.start()
    began = time.monotonic()
    found = stream.read(100, SECONDS)
    assert found is not None and found.texts == TEXTS[1:2]
    assert time.monotonic() - began < SECONDS / 2
    later.join()
    stream.close()


MEMORY = """
import sys, time
from pathlib import Path
from manyhands.data.streams.stream import open_stream

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

url, count = sys.argv[1], int(sys.argv[2])
stream = open_stream(url, None)
read = len(stream.read(1, 10.0).texts)
before = peak()
time.sleep(1.0)  # a client that reads ahead without bounds does it now
while read < count:
    read += len(stream.read(100_000, 10.0).texts)
print(peak() - before)
"""


@every_kind
def test_a_fast_producer_does_not_fill_the_memory(feed: Feed) -> None:
    text, count = b"x" * 50_000, 3_000
    for _ in range(3):
        feed.send([text] * (count // 3))
    command = [sys.executable, "-c", MEMORY, feed.url, str(count)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS)
    assert int(done.stdout) < 60 << 20  # of 150 MB


@every_kind
def test_messages_that_are_too_long_are_handed_over_as_rejected(feed: Feed) -> None:
    feed.send([b"short", b"x" * 1001, b"y" * 1000, b"z" * 3_000_000, b"last"])
    for sizes in ([10], [2], [1]):
        stream = open_stream(feed.url, None, StreamSettings(max_message_bytes=1000))
        batches = read_all(stream, 5, sizes)
        stream.close()
        assert texts_of(batches) == [b"short", b"", b"y" * 1000, b"", b"last"]
        reasons = [batch.rejected.get(k, "") for batch in batches for k in range(len(batch.texts))]
        assert reasons == ["", "longer than 1,000 bytes", "", "longer than 1,000 bytes", ""]
    stream = open_stream(feed.url, batches[3].position)
    assert texts_of(read_all(stream, 1)) == [b"last"]
    stream.close()


@every_kind
def test_empty_messages_are_messages(feed: Feed) -> None:
    feed.send([b"", b"one", b"", b""])
    stream = open_stream(feed.url, None)
    assert texts_of(read_all(stream, 4, [3])) == [b"", b"one", b"", b""]
    stream.close()


@every_kind
def test_a_position_of_another_stream_is_refused(feed: Feed) -> None:
    with pytest.raises(UsageError, match=r"the kept position is one in a parrot stream"):
        open_stream(feed.url, {"kind": "parrot"})
    if feed.broker is not None:
        feed.send(TEXTS[:1])
        stream = open_stream(feed.url, None)
        position = read_all(stream, 1)[0].position
        stream.close()
        with pytest.raises(UsageError, match=r"the kept position is one in the (topic|stream) reviews"):
            open_stream(feed.url + "2", position)


SECRET = "s3cret%2Fpass"


def error_of(url: str) -> ManyhandsError:
    with pytest.raises(ManyhandsError) as caught:
        open_stream(url, None)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300
    assert "s3cret" not in sentence and caught.value.__cause__ is None
    return caught.value


@every_server
def test_wrong_urls(kind: str) -> None:
    pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
    for wrong in (
        "host:9x/name",
        "host:99999/name",
        "host",
        "host/",
        "/name",
        "[::1/name",
        "host/name?form=latest",
    ):
        assert error_of(f"{kind}://me:{SECRET}@{wrong}").exit_code == 2, wrong
    for wrong in ("host/name?from=middle", "host/name?tls=perhaps"):
        assert error_of(f"{kind}://me:{SECRET}@{wrong}").exit_code == 2, wrong
    assert "did you mean 'from'?" in str(error_of(f"{kind}://host/name?form=latest"))
    for special in "/?#":
        error = error_of(f"{kind}://me:s3cret{special}pass@host/name")
        assert str(error) == f"{kind}://host/name: in passwords and names write @ / ? # as %40 %2F %3F %23"


def test_a_scheme_that_is_none() -> None:
    error = error_of(f"kafak://me:{SECRET}@host/name")
    assert error.exit_code == 2
    assert str(error).startswith("there is no stream 'kafak'; did you mean kafka?")


@every_server
def test_nobody_answers(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
    port = free_port()
    error = error_of(f"{kind}://me:{SECRET}@127.0.0.1:{port}/name")
    assert isinstance(error, InputError) and error.exit_code == 3
    assert str(error).startswith(f"{kind}://127.0.0.1:{port}/name cannot be reached; check the address")
    assert capfd.readouterr() == ("", "")


@every_server
def test_a_name_that_the_server_does_not_know(feed: Feed) -> None:
    error = error_of(feed.url + "-of-nobody")
    assert error.exit_code == 3
    assert "check the name" in str(error)


@every_server
def test_without_its_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    with pytest.raises(MissingPartError, match=rf"pip install 'manyhands\[{kind}\]'"):
        open_stream(f"{kind}://127.0.0.1:1/name", None)


@pytest.mark.parametrize("kind", LOCAL)
def test_a_path_that_is_not_there(kind: str, tmp_path: Path) -> None:
    error = error_of(str(tmp_path / "none") + ("/" if kind == "folder" else ""))
    assert error.exit_code == 3
    assert "does not exist; check the path" in str(error)


@pytest.mark.parametrize("kind", ["redis", "nats"])
def test_credentials(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the URL or in the environment; they are never shown."""
    pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
    need(f"a server for {kind}, from the extra test", BROKERS[kind].program())
    broker = BROKERS[kind](tmp_path / "broker", password=True)
    broker.start()
    try:
        broker.create("reviews")
        broker.send("reviews", TEXTS[:3])
        login = f"{quote(USER)}:{quote(PASSWORD, safe='')}@"
        for url in (broker.url("reviews", login), broker.url("reviews")):
            stream = open_stream(url, None)
            batches = read_all(stream, 3)
            assert texts_of(batches) == TEXTS[:3]
            shown = json.dumps(batches[0].position) + repr(vars(stream)["_address"]) + describe(url)
            assert PASSWORD not in shown and quote(PASSWORD, safe="") not in shown and USER not in shown
            stream.close()
            monkeypatch.setenv("MANYHANDS_STREAM_USER", USER)
            monkeypatch.setenv("MANYHANDS_STREAM_PASSWORD", PASSWORD)
        error = error_of(broker.url("reviews", f"{USER}:{SECRET}@"))
        assert error.exit_code == 3
        assert "refused the user or the password" in str(error)
        monkeypatch.delenv("MANYHANDS_STREAM_USER")
        monkeypatch.delenv("MANYHANDS_STREAM_PASSWORD")
        assert "refused the user or the password" in str(error_of(broker.url("reviews")))
        assert capfd.readouterr() == ("", "")
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself, and its key."""
    need("openssl", shutil.which("openssl"))
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    command += f" -addext subjectAltName=IP:127.0.0.1 -out {made[0]} -keyout {made[1]}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return made


@every_server
def test_tls(
    kind: str, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(LIBRARIES[kind], reason=f"needs the extra {kind}")
    need(f"a server for {kind}, from the extra test", BROKERS[kind].program())
    broker = BROKERS[kind](tmp_path / "broker")
    with tls_proxy(broker, *certificate) as port:
        if isinstance(broker, Tansu):
            broker.advertised, broker.trusted = port, certificate[0]
        broker.start()
        try:
            broker.create("reviews")
            broker.send("reviews", TEXTS[:3])
            if isinstance(broker, Nats):  # it greets before the handshake
                broker.kill()
                broker.tls = certificate
                broker.start()
            shown = broker.port if isinstance(broker, Nats) else port
            url = f"{kind}://127.0.0.1:{shown}/reviews?tls=true"
            assert "cannot be reached" in str(error_of(url))  # by whom is it signed?
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            stream = open_stream(url, None)
            assert texts_of(read_all(stream, 3)) == TEXTS[:3]
            stream.close()
        finally:
            broker.kill()


@pytest.mark.parametrize("kind", ["redis", "nats"])  # of Tansu's ends of partitions some are wrong
def test_from_the_end_on(feed: Feed) -> None:
    feed.send(TEXTS[:10])
    stream = open_stream(feed.url + "?from=latest", None)
    nothing = stream.read(10, 0.1)
    assert nothing is not None and nothing.texts == []
    stream.close()
    feed.send(TEXTS[10:20])
    stream = open_stream(feed.url + "?from=latest", nothing.position)  # what came meanwhile is not missed
    assert texts_of(read_all(stream, 10)) == TEXTS[10:20]
    stream.close()
