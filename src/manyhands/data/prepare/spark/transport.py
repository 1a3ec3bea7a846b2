"""What Spark moves between the stages of ``prepare``: few large messages, which the JVM need not understand.

Each is a row of four columns: ``place``, to whom it goes; ``kind``, what it is; ``start``, a number that
some kinds need; ``payload``, up to some megabytes of Arrow, JSON or plain numbers.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from manyhands.data.prepare.partitions import KEPT_SCHEMA, ROW_SCHEMA

Batches = Iterable[pa.RecordBatch]

SPARK_SCHEMA = "place int, kind string, start long, payload binary"
MESSAGE_SCHEMA = pa.schema(
    {"place": pa.int32(), "kind": pa.string(), "start": pa.int64(), "payload": pa.binary()}
)
ROWS, TALLY, REJECTED, WORDS, COUNTS = "rows", "tally", "rejected", "words", "counts"
BEGIN, ERROR, FACTS = "begin", "error", "facts"

# Spark copies what it moves half a dozen times: that costs more than making it small.
COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")

# A text on its way from reading to folding; its label is that of the input.
TEXT_SCHEMA = pa.schema(
    {
        **{name: ROW_SCHEMA.field(name).type for name in ("high", "low", "origin")},
        "label": pa.dictionary(pa.int32(), pa.string()),
        "weight": pa.float32(),
        "text": pa.large_binary(),
    }
)
# A kept row on its way from folding to writing.
WORD_COLUMNS = ("table", "length", "units")
FOLDED_SCHEMA = pa.schema([*KEPT_SCHEMA, *(ROW_SCHEMA.field(name) for name in WORD_COLUMNS)])


def message(place: int, kind: str, payload: bytes | pa.Buffer, start: int = 0) -> pa.RecordBatch:
    """One message, its payload not copied."""
    offsets = (0).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    stored = pa.Array.from_buffers(pa.binary(), 1, buffers)
    others = [
        pa.array([value], type_)
        for value, type_ in zip((place, kind, start), MESSAGE_SCHEMA.types, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*others, stored], schema=MESSAGE_SCHEMA)


def messages(batches: Batches) -> Iterator[tuple[int, str, int, pa.Buffer]]:
    for batch in batches:
        place, kind, start, payload = batch.columns
        for k in range(len(batch)):
            yield place[k].as_py(), kind[k].as_py(), start[k].as_py(), payload[k].as_buffer()


def pack(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=COMPRESSED) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def unpack(payload: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()
