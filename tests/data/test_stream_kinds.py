"""What single kinds of streams have of their own: rotation, late files, partitions, fields, subjects."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.brokers import TEXTS, Broker, Nats, Tansu, Valkey, read_all, texts_of
from tests.conftest import need

from manyhands.data.streams.lines import Lines
from manyhands.data.streams.stream import Messages, Stream, StreamSettings, open_stream
from manyhands.data.streams.turns import TURN_MESSAGES, Turns
from manyhands.errors import InputError, UsageError

Position = dict[str, Any]


def kept(position: Position) -> Position:
    """As it comes back from a snapshot."""
    return json.loads(json.dumps(position))


def everything(stream: Stream) -> list[Messages]:
    """What is there now."""
    batches = []
    while (batch := stream.read(1000, 0.0)) is not None and batch.texts:
        batches.append(batch)
    return batches


# Lines


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=30),
    ended=st.booleans(),
    cuts=st.lists(st.integers(1, 20)),
    most=st.integers(1, 5),
)
def test_lines_are_the_same_however_their_bytes_come(lines, ended, cuts, most) -> None:
    longest = 8
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    cutter, texts, size, rejected, at = Lines(longest), [], 0, set(), 0

    def take() -> None:
        nonlocal size
        while cutter.waiting:
            taken = cutter.take(most)
            rejected.update(len(texts) + k for k in taken.rejected)
            texts.extend(taken.texts)
            size += taken.size

    for length in [*cuts, len(data)]:
        cutter.feed(data[at : at + length])
        at += length
        take()
    cutter.finish()
    take()
    expected = data.split(b"\n")[: None if data and not data.endswith(b"\n") else -1]
    assert texts == [line if len(line) <= longest else b"" for line in expected]
    assert rejected == {k for k, line in enumerate(expected) if len(line) > longest}
    assert size == len(data)


# A followed file


@pytest.fixture
def live(tmp_path: Path) -> Path:
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    return path


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_whole_lines(live: Path) -> None:
    stream = open_stream(str(live), None)
    assert texts_of(everything(stream)) == [b"one", b"two"]
    add(live, b"ee\nfo")
    (batch,) = everything(stream)
    assert (batch.texts, batch.places) == ([b"three"], ["live.jsonl line 3"])
    stream.close()


def test_a_byte_order_mark_is_no_text(live: Path) -> None:
    live.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    stream = open_stream(str(live), None)
    assert texts_of([stream.read(1, 0), stream.read(1, 0)]) == [b"one", b"two"]
    stream.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_rotation_by_renaming(live: Path, restarted: bool) -> None:
    """Twice in a row, with a last line that was never ended, and files beside it that only look alike."""
    stream = open_stream(str(live), None)
    (batch,) = everything(stream)
    if restarted:
        stream.close()
    live.rename(live.with_name("live.jsonl.1"))
    add(live.with_name("live.jsonl.1"), b"ee")  # the writer has it open still
    if not restarted:
        assert everything(stream) == []
    live.write_bytes(b"four\nfive\n")
    live.with_name("live.jsonl.1").rename(live.with_name("live.jsonl.2"))
    live.rename(live.with_name("live.jsonl.1"))
    live.with_name("live.jsonl.bak").write_bytes(b"not this\n")
    live.write_bytes(b"")
    if restarted:
        stream = open_stream(str(live), kept(batch.position))
    assert texts_of(everything(stream)) == [b"three", b"four", b"five"]
    add(live, b"six\n")
    (last,) = everything(stream)
    assert (last.texts, last.places) == ([b"six"], ["live.jsonl line 1"])
    stream.close()
    stream = open_stream(str(live), kept(last.position))
    assert everything(stream) == []
    stream.close()


def test_a_rotated_file_that_is_removed_while_it_is_read(live: Path) -> None:
    live.write_bytes(b"".join(b"line %d\n" % k for k in range(100)))
    stream = open_stream(str(live), None)
    batches = [stream.read(50, 0)]
    live.unlink()
    live.write_bytes(b"new\n")
    assert texts_of(batches + everything(stream)) == [*(b"line %d" % k for k in range(100)), b"new"]
    stream.close()


def test_a_rotated_file_that_is_gone(live: Path) -> None:
    stream = open_stream(str(live), None)
    (batch,) = everything(stream)
    stream.close()
    live.rename(live.with_name("elsewhere"))
    live.write_bytes(b"another\nfile\n")
    with pytest.raises(
        InputError, match=r"is another file than the one that was read up to line 2, .* or start a"
    ):
        open_stream(str(live), kept(batch.position))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("now", [b"one\n", b"entirely new\nand longer than before\n"])
def test_truncation_is_an_error(live: Path, restarted: bool, now: bytes) -> None:
    """Also if the file has grown past the place since, or another has been given its inode."""
    stream = open_stream(str(live), None)
    (batch,) = everything(stream)
    live.write_bytes(now)  # the same inode
    with pytest.raises(
        InputError, match="was truncated or written anew after it was read up to line 2"
    ) as caught:
        if restarted:
            open_stream(str(live), kept(batch.position))
        else:
            stream.read(1, 0)
    assert caught.value.exit_code == 3


def test_a_compressed_file_is_refused(live: Path) -> None:
    live.write_bytes(b"\x1f\x8b\x08\x00 and so on")
    with pytest.raises(InputError, match="is compressed"):
        open_stream(str(live), None)


# A folder that fills


def test_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"three\nfour")  # the last line has no end
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    for name in (".c.txt", "_SUCCESS", "c.txt.tmp", "c.txt.part"):
        (tmp_path / name).write_bytes(b"unfinished")
    (tmp_path / "folder").mkdir()
    stream = open_stream(str(tmp_path), None)
    batches = everything(stream)
    assert texts_of(batches) == [b"one", b"two", b"three", b"four"]
    assert [place for batch in batches[-2:] for place in batch.places] == ["b.txt line 1", "b.txt line 2"]
    (tmp_path / "c.txt.tmp").rename(tmp_path / "c.txt")
    assert texts_of(everything(stream)) == [b"unfinished"]
    stream.close()


def test_files_that_were_read_may_be_removed(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.txt").write_bytes(b"%d first\n%d second\n" % (k, k))
    stream = open_stream(str(tmp_path), None)
    batches = [stream.read(2, 0) for _ in range(2)]
    stream.close()
    (tmp_path / "0.txt").unlink()
    (tmp_path / "1.txt").unlink()
    (tmp_path / "3.txt").write_bytes(b"3 first\n")
    stream = open_stream(str(tmp_path), kept(batches[-1].position))
    assert texts_of(everything(stream)) == [b"2 first", b"2 second", b"3 first"]
    stream.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_comes_late_is_an_error(tmp_path: Path, restarted: bool) -> None:
    (tmp_path / "b.txt").write_bytes(b"one\n")
    stream = open_stream(str(tmp_path), None)
    (batch,) = everything(stream)
    (tmp_path / "a.txt").write_bytes(b"late\n")
    with pytest.raises(InputError, match=r"a\.txt came late: its name stands in front of b\.txt"):
        if restarted:
            open_stream(str(tmp_path), kept(batch.position))
        else:
            stream.read(1, 0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_still_written_is_an_error(tmp_path: Path, restarted: bool) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthr")
    stream = open_stream(str(tmp_path), None)
    batch = stream.read(1, 0)
    add(tmp_path / "a.txt", b"ee\n")
    with pytest.raises(InputError, match=r"a\.txt changed while it was read; write files under another name"):
        if restarted:
            open_stream(str(tmp_path), kept(batch.position))
        else:
            everything(stream)


# Standard input

ECHO = """
import json, sys
from manyhands.data.streams.stream import StreamSettings, open_stream
position = json.loads(sys.argv[1])
stream = open_stream("-", position, StreamSettings(max_message_bytes=100))
assert not stream.replays
while (batch := stream.read(2, 0.05)) is not None:
    texts = [text.decode() for text in batch.texts]
    print(json.dumps([texts, batch.places, batch.position["lines"], list(batch.rejected)]), flush=True)
"""


def test_standard_input() -> None:
    command = [sys.executable, "-c", ECHO, json.dumps({"kind": "stdin", "lines": 7})]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert json.loads(process.stdout.readline()) == [[], [], 7, []]  # nothing came in its time
    out, _ = process.communicate("one\ntwo\n" + "x" * 200_000 + "\nfour", timeout=60)
    batches = [said for line in out.splitlines() if (said := json.loads(line))[0]]
    assert [text for texts, *_ in batches for text in texts] == ["one", "two", "", "four"]
    places = [place for _, places, *_ in batches for place in places]
    assert places == [f"standard input line {k}" for k in (8, 9, 10, 11)]
    assert sum(len(rejected) for *_, rejected in batches) == 1
    assert process.returncode == 0


# Kafka


def start(kind: type[Broker], folder: Path, library: str) -> Iterator[Any]:
    pytest.importorskip(library, reason=f"needs {library}")
    need(f"a server for {library}, from the extra test", kind.program())
    broker = kind(folder)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def tansu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tansu]:
    yield from start(Tansu, tmp_path_factory.mktemp("tansu"), "confluent_kafka")


def partitioned(tansu: Tansu, name: str, counts: list[int]) -> list[list[bytes]]:
    """A topic with so many messages in each partition."""
    tansu.create(name, len(counts))
    texts = [[b"%d of %d" % (k, partition) for k in range(count)] for partition, count in enumerate(counts)]
    for partition, some in enumerate(texts):
        tansu.send(name, some, partition)
    return texts


def by_turns(texts: list[list[bytes]]) -> list[bytes]:
    """The order that the rule gives, written down the slow way."""
    merged, at = [], 0
    while any(texts):
        merged += texts[at][:TURN_MESSAGES]
        texts[at] = texts[at][TURN_MESSAGES:]
        at = (at + 1) % len(texts)
    return merged


def test_partitions_are_merged_by_turns_whatever_the_batches_and_restarts(tansu: Tansu) -> None:
    expected = by_turns(partitioned(tansu, "turns", [2_300, 1_700, 2_000]))
    whole = open_stream(tansu.url("turns"), None)
    batches = read_all(whole, 6_000, [311, 1, 700])
    whole.close()
    assert texts_of(batches) == expected
    for at in (0, len(batches) // 3, len(batches) - 2):
        stream = open_stream(tansu.url("turns"), kept(batches[at].position))
        rest = texts_of(batches[at + 1 :])
        assert texts_of(read_all(stream, len(rest), [97])) == rest
        stream.close()


def test_a_partition_that_has_little_holds_nobody_up(tansu: Tansu) -> None:
    texts = partitioned(tansu, "uneven", [20_000, 0, 3])
    stream = open_stream(tansu.url("uneven"), None)
    began = time.monotonic()
    found = texts_of(read_all(stream, 20_003))
    assert time.monotonic() - began < 20
    assert sorted(found) == sorted(text for some in texts for text in some)
    assert [text for text in found if text.endswith(b"of 0")] == texts[0]
    tansu.send("uneven", [b"at last"], 1)
    assert texts_of(read_all(stream, 1)) == [b"at last"]
    stream.close()


def test_what_waits_for_another_partition_is_bounded(tansu: Tansu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyhands.data.streams.turns.LONE_SECONDS", 1e9)
    tansu.create("bounded", 2)
    big = [b"x" * 50_000 + b"%d" % k for k in range(1_200)]  # 60 MB
    tansu.send("bounded", big, 1)
    stream = open_stream(tansu.url("bounded"), None)
    for _ in range(20):
        assert stream.read(100, 0.1).texts == []  # the turn is that of partition 0
    assert vars(stream)["_held"][1] < 24 << 20
    small = [b"%d" % k for k in range(3 * TURN_MESSAGES)]
    tansu.send("bounded", small, 0)
    assert texts_of(read_all(stream, len(small) + len(big))) == by_turns([small, big])
    stream.close()


def test_only_some_partitions(tansu: Tansu) -> None:
    texts = partitioned(tansu, "some", [5, 6, 7])
    stream = open_stream(tansu.url("some") + "?partitions=2,0", None)
    assert texts_of(read_all(stream, 12)) == texts[0] + texts[2]
    stream.close()
    for wrong in ("3", "0,x", ""):
        with pytest.raises(UsageError, match="partitions"):
            open_stream(tansu.url("some") + f"?partitions={wrong}", None)


def test_a_partition_that_the_position_does_not_know_is_read_from_its_beginning(tansu: Tansu) -> None:
    texts = partitioned(tansu, "grown", [4, 4])
    stream = open_stream(tansu.url("grown") + "?partitions=0", None)
    (batch,) = read_all(stream, 4)
    stream.close()
    stream = open_stream(tansu.url("grown"), kept(batch.position))
    assert texts_of(read_all(stream, 4)) == texts[1]
    stream.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_log_in_that_kafka_refuses(
    tmp_path: Path, mechanism: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent_kafka")
    need("a server for kafka, from the extra test", Tansu.program())
    broker = Tansu(tmp_path, password=True)
    broker.start()
    try:
        with pytest.raises(InputError, match="refused the user or the password") as caught:
            open_stream(broker.url("reviews", "me:s3cret@") + f"?mechanism={mechanism}", None)
        assert "s3cret" not in str(caught.value)
        assert capfd.readouterr() == ("", "")
        with pytest.raises(UsageError, match="mechanism=MAGIC should be one of PLAIN, SCRAM"):
            open_stream(broker.url("reviews", "me:s3cret@") + "?mechanism=MAGIC", None)
    finally:
        broker.kill()


def test_turns_wait_a_little_and_then_no_more() -> None:
    turns = Turns([0, 1])
    turns.put(1, ["b"] * 10)
    assert turns.take(10, now=0.0) == []
    assert turns.take(10, now=1.9) == []
    assert turns.take(10, now=2.1) == ["b"] * 10
    turns.put(0, ["a"])
    turns.put(1, ["b"])
    assert turns.take(10, now=2.2) == ["b"]  # its turn is not over
    assert turns.take(10, now=5.0) == ["a"]
    turns.put(0, ["a"] * TURN_MESSAGES)  # as many as a turn: it is waited for again
    turns.put(1, ["b"] * 2 * TURN_MESSAGES)
    assert turns.take(9_999, now=5.0) == ["a"] * TURN_MESSAGES + ["b"] * TURN_MESSAGES
    assert turns.take(9_999, now=6.9) == []
    assert turns.take(9_999, now=7.0) == ["b"] * TURN_MESSAGES


# Redis


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    yield from start(Valkey, tmp_path_factory.mktemp("valkey"), "redis")


def test_entries_with_several_fields_are_objects(valkey: Valkey) -> None:
    client = valkey.client()
    client.xadd("fields", {"review": "only one"})
    client.xadd("fields", {"text": 'said "so" 日本', "label": "5"})
    client.xadd("fields", {"text": b"\xff\xfe", "label": "5"})
    client.xadd("fields", {"text": b"\xff\xfe"})
    stream = open_stream(valkey.url("fields"), None)
    (batch,) = read_all(stream, 4)
    assert batch.texts[0] == b"only one"
    assert json.loads(batch.texts[1]) == {"text": 'said "so" 日本', "label": "5"}
    assert (batch.texts[2], batch.rejected) == (b"", {2: "not valid UTF-8"})
    assert batch.texts[3] == b"\xff\xfe"  # as of any stream: who reads it as text will see
    assert batch.places[0].startswith("fields id ")
    stream.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_messages_that_were_trimmed_before_they_were_read(valkey: Valkey, restarted: bool) -> None:
    name = f"trimmed-{restarted}"
    valkey.send(name, TEXTS[:50])
    stream = open_stream(valkey.url(name), None)
    batch = stream.read(10, 1.0)
    valkey.client().xtrim(name, maxlen=41, approximate=False)
    assert (
        stream.read(1, 1.0).texts == TEXTS[10:11]
    )  # the one read last is still there, so nothing is missing
    valkey.client().xtrim(name, maxlen=30, approximate=False)
    with pytest.raises(InputError, match="no longer holds all that followed the last message read") as caught:
        if restarted:
            open_stream(valkey.url(name), kept(batch.position)).read(1, 1.0)
        else:
            stream.read(1, 1.0)
    assert caught.value.exit_code == 3


def test_messages_that_were_trimmed_after_they_were_read(valkey: Valkey) -> None:
    valkey.send("idle", TEXTS[:10])
    valkey.client().xtrim("idle", maxlen=8, approximate=False)
    stream = open_stream(valkey.url("idle"), None)
    batches = read_all(stream, 8)
    valkey.client().xtrim("idle", maxlen=0, approximate=False)
    assert stream.read(5, 0.1).texts == []
    stream.close()
    valkey.send("idle", TEXTS[10:20])
    stream = open_stream(valkey.url("idle"), kept(batches[-1].position))
    batches += read_all(stream, 10, [3])
    assert texts_of(batches) == TEXTS[2:20]
    stream.close()


def test_a_key_that_is_no_stream_and_a_number_of_a_database(valkey: Valkey) -> None:
    valkey.client().rpush("list", "one")
    with pytest.raises(InputError, match="is no stream: list is a list"):
        open_stream(valkey.url("list"), None)
    with pytest.raises(UsageError, match="db is a number"):
        open_stream(valkey.url("list") + "?db=x", None)
    with pytest.raises(InputError, match="there is none of that name"):
        open_stream(valkey.url("fields") + "?db=1", None)


# NATS


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    yield from start(Nats, tmp_path_factory.mktemp("nats"), "nats")


def test_one_subject_of_a_stream(nats: Nats) -> None:
    nats.create("many")
    for k in range(10):
        nats.send("many", [b"even %d" % k], "even")
        nats.send("many", [b"odd %d" % k], "odd")
    odd = [b"odd %d" % k for k in range(10)]
    stream = open_stream(nats.url("of.many.odd"), None)
    batches = read_all(stream, 10, [3])
    stream.close()
    assert texts_of(batches) == odd
    assert batches[0].places[0] == "many message 2"
    stream = open_stream(nats.url("of.many.odd"), kept(batches[1].position))
    assert texts_of(read_all(stream, 4)) == odd[6:]
    stream.close()
    with pytest.raises(InputError, match="neither a stream nor a subject"):
        open_stream(nats.url("of.nothing.odd"), None)


def test_other_subjects_and_old_messages_that_are_dropped_are_not_missed(nats: Nats) -> None:
    nats.create("busy", max_msgs=20)
    nats.send("busy", [b"ours"], "ours")
    stream = open_stream(nats.url("of.busy.ours"), None)
    read_all(stream, 1)
    for _ in range(3):
        nats.send("busy", TEXTS[:15], "theirs")
        idle = stream.read(10, 0.1)
        assert idle is not None and idle.texts == []
    nats.send("busy", [b"ours again"], "ours")
    assert texts_of(read_all(stream, 1)) == [b"ours again"]
    stream.close()
    whole = open_stream(nats.url("busy"), None)
    last = read_all(whole, 20)[-1]
    whole.close()
    nats.call(lambda jetstream: jetstream.purge_stream("busy"))  # as age would
    whole = open_stream(nats.url("busy"), kept(last.position))
    nats.send("busy", [b"new"], "ours")
    assert texts_of(read_all(whole, 1)) == [b"new"]
    whole.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_messages_that_were_dropped_before_they_were_read(nats: Nats, restarted: bool) -> None:
    name = f"dropped-{restarted}"
    nats.create(name, max_msgs=50)
    nats.send(name, TEXTS[:50])
    stream = open_stream(nats.url(name), None)
    batch = stream.read(10, 1.0)
    nats.send(name, TEXTS[50:80])
    with pytest.raises(InputError, match="no longer holds all that followed the last message read"):
        if restarted:
            open_stream(nats.url(name), kept(batch.position))
        else:
            stream.read(50, 1.0)
    stream.close()


def test_a_stream_that_was_made_anew(nats: Nats) -> None:
    nats.create("anew")
    nats.send("anew", TEXTS[:20])
    stream = open_stream(nats.url("anew"), None)
    position = read_all(stream, 20)[-1].position
    stream.close()
    nats.call(lambda jetstream: jetstream.delete_stream("anew"))
    nats.create("anew")
    nats.send("anew", TEXTS[:30])
    with pytest.raises(InputError, match="was deleted and made anew since; start a new run"):
        open_stream(nats.url("anew"), kept(position))
    with pytest.raises(InputError, match="has lost messages that were read already"):
        open_stream(nats.url("anew"), {"kind": "nats", "stream": "anew", "sequence": 31})


def test_messages_that_are_deleted_are_not_missed(nats: Nats) -> None:
    nats.create("deleted")
    nats.send("deleted", TEXTS[:10])
    nats.call(lambda jetstream: jetstream.delete_msg("deleted", 5))
    stream = open_stream(nats.url("deleted"), None)
    assert texts_of(read_all(stream, 9, [3])) == TEXTS[:4] + TEXTS[5:10]
    stream.close()


def test_a_stream_that_drops_what_is_taken_is_refused(nats: Nats) -> None:
    nats.create("queue", retention="workqueue")
    with pytest.raises(InputError, match="give the stream the retention policy limits"):
        open_stream(nats.url("queue"), None)


def test_a_message_longer_than_all_that_is_read_ahead(nats: Nats) -> None:
    nats.create("huge")
    texts = [b"before", b"x" * (10 << 20), b"behind"]
    nats.send("huge", texts)
    stream = open_stream(nats.url("huge"), None, StreamSettings(max_message_bytes=12 << 20))
    assert [len(text) for text in texts_of(read_all(stream, 3))] == [6, 10 << 20, 6]
    stream.close()


def test_a_consumer_that_the_server_has_forgotten(nats: Nats) -> None:
    nats.create("forgotten")
    nats.send("forgotten", TEXTS[:20])
    stream = open_stream(nats.url("forgotten"), None)
    first = stream.read(7, 1.0)
    nats.call(lambda jetstream: jetstream.delete_consumer("forgotten", vars(stream)["_consumer"]))
    assert texts_of([first, *read_all(stream, 13, [5])]) == TEXTS[:20]
    stream.close()
