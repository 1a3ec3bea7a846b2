"""What Spark moves between the stages of ``prepare``: few large rows, which the JVM need not understand.

Each has four columns: ``place``, to whom it goes; ``kind``, what it is; ``start``, a number that some
kinds need; ``payload``, up to some megabytes of Arrow, JSON or plain numbers.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from manyhands.data.counting import KEPT
from manyhands.data.fold import ROW

Batches = Iterable[pa.RecordBatch]

SCHEMA = "place int, kind string, start long, payload binary"
TYPES = pa.schema({"place": pa.int32(), "kind": pa.string(), "start": pa.int64(), "payload": pa.binary()})
ROWS, TALLY, REJECTED, WORDS, COUNTS = "rows", "tally", "rejected", "words", "counts"
BEGIN, ERROR, FACTS = "begin", "error", "facts"

# Spark copies what it moves half a dozen times: that costs more than making it small.
COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")

# A text on its way from reading to folding; its label is that of the input.
TEXT = pa.schema(
    {
        **{name: ROW.field(name).type for name in ("high", "low", "origin")},
        "label": pa.dictionary(pa.int32(), pa.string()),
        "weight": pa.float32(),
        "text": pa.large_binary(),
    }
)
# A kept row on its way from folding to writing.
WORD_COLUMNS = ("table", "length", "units")
FOLDED = pa.schema([*KEPT, *(ROW.field(name) for name in WORD_COLUMNS)])


def row(place: int, kind: str, payload: bytes | pa.Buffer, start: int = 0) -> pa.RecordBatch:
    stored = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(_offsets(len(payload))), pa.py_buffer(payload)]
    )  # not copied
    others = [
        pa.array([value], type_) for value, type_ in zip((place, kind, start), TYPES.types, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*others, stored], schema=TYPES)


def _offsets(length: int) -> bytes:
    return (0).to_bytes(4, "little") + length.to_bytes(4, "little")


def rows_of(batches: Batches) -> Iterator[tuple[int, str, int, pa.Buffer]]:
    for batch in batches:
        place, kind, start, payload = batch.columns
        for k in range(len(batch)):
            yield place[k].as_py(), kind[k].as_py(), start[k].as_py(), payload[k].as_buffer()


def packed(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=COMPRESSED) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def unpacked(payload: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()
