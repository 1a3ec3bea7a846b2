"""Cutting streams: no byte lost, no record cut, lines counted, whatever the block size."""

import csv
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.data.sources import blocks as blocks_module
from manyhands.data.sources.blocks import RecordBlock, blocks, cut_delimited, cut_lines
from manyhands.storage.files import InputStream, expand


class FakeStream:
    """Hands out a few bytes at a time, so that every record crosses a border somewhere."""

    begins = True

    def __init__(self, data: bytes, step: int) -> None:
        self.file = expand([__file__])[0]
        self._data, self._step = data, step

    def read_behind(self, rest: np.ndarray, size: int) -> np.ndarray:
        chunk, self._data = self._data[: self._step], self._data[self._step :]
        return np.frombuffer(rest.tobytes() + chunk, np.uint8)


def cut(data: bytes, step: int, cutter=cut_lines) -> tuple[list[bytes], list[int], list[int]]:
    records, lines, rejected = [], [], []
    raw = b""
    for block in blocks(FakeStream(data, step), cutter, "too long"):
        assert isinstance(block, RecordBlock)
        raw += block.raw.tobytes()
        for k, start in enumerate(block.starts.tolist()):
            record = block.rows.data[block.rows.offsets[k] : block.rows.offsets[k + 1]].tobytes()
            assert block.raw[start : start + len(record)].tobytes() == record
        text, offsets = block.rows.data.tobytes(), block.rows.offsets.tolist()
        records += [text[a:b] for a, b in pairwise(offsets)]
        lines += block.lines.tolist()
        rejected += [rejection.line for rejection in block.rejected]
    assert raw == data  # of the file, no byte is lost
    return records, lines, rejected


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=20),
    st.integers(1, 40),
    st.booleans(),
)
def test_lines(texts: list[str], step: int, ends: bool) -> None:
    data = "\n".join(texts).encode() + (b"\n" if ends else b"")
    records, lines, rejected = cut(data, step)
    expected = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [record.removesuffix(b"\n") for record in records] == expected
    assert lines == list(range(1, len(expected) + 1))
    assert not rejected


@given(
    st.lists(st.lists(st.text("ab,\"'\n é", max_size=8), min_size=2, max_size=3), max_size=8),
    st.integers(1, 40),
)
def test_delimited_records_are_those_of_the_csv_module(rows: list[list[str]], step: int) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    data = out.getvalue().encode()
    records, lines, rejected = cut(data, step, lambda d, final: cut_delimited(d, final, ord(",")))
    assert b"".join(records) == data
    assert [next(csv.reader(io.StringIO(r.decode(), newline=""))) for r in records] == rows
    before = [data[: data.index(records[0])].count(b"\n")] if records else []
    for record in records[:-1]:
        before.append(before[-1] + record.count(b"\n"))
    assert lines == [1 + count for count in before]
    assert not rejected


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_line_without_end_is_rejected_and_left_behind(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(blocks_module, "LONGEST_RECORD_BYTES", 50)
    records, lines, rejected = cut(b"one\n" + b"x" * 500 + b"\nthree\n", step)
    assert (records, lines, rejected) == ([b"one\n", b"three\n"], [1, 3], [2])


def test_a_lone_return_ends_a_row_as_it_does_for_arrow() -> None:
    data = b'1,half\rother half\r\n2,"in\rside"\r\n3,end\r'
    for step in (1, 5, 1000):
        records, lines, _ = cut(data, step, lambda d, final: cut_delimited(d, final, ord(",")))
        assert records == [b"1,half\r", b"other half\r\n", b'2,"in\rside"\r\n', b"3,end\r"]
        assert lines == [1, 1, 2, 3]


def test_a_quote_that_never_closes_costs_one_line() -> None:
    data = b'1,fine\n2,"open\n3,also fine\n'
    records, lines, rejected = cut(data, 1000, lambda d, final: cut_delimited(d, final, ord(",")))
    assert records == [b"1,fine\n", b"3,also fine\n"]
    assert lines == [1, 3] and rejected == [2]


def test_a_real_stream(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(b"line %d\n" % n for n in range(2_000_000)))
    count = 0
    for block in blocks(InputStream(expand([str(path)])[0]), cut_lines, "too long"):
        assert block.lines[0] == count + 1
        first = block.rows.data[block.rows.offsets[0] : block.rows.offsets[1]]
        assert first.tobytes() == b"line %d\n" % count
        count += len(block.rows)
    assert count == 2_000_000
