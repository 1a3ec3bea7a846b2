"""How input is shared out among tasks."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.data.prepare.partitions import SourceFile
from manyhands.data.prepare.spark import ranges as module
from manyhands.data.prepare.spark.ranges import FileRange, assign_to_tasks, split_files
from manyhands.settings import PrepareSettings
from manyhands.storage.files import InputFile, expand


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 40))
def test_every_range_is_read_once_and_in_order(sizes: list[int], tasks: int) -> None:
    files = [SourceFile(InputFile(str(k), str(k), None, size), 0) for k, size in enumerate(sizes)]
    tasks_of_ranges = assign_to_tasks([FileRange(k) for k in range(len(sizes))], files, tasks)
    assert [number for share in tasks_of_ranges for number in share] == list(range(len(sizes)))
    assert all(tasks_of_ranges)
    assert len(tasks_of_ranges) <= 2 * tasks + 1


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.jsonl", '{"text": "good", "label": "1"}\n', 4),
        ("a.txt", "plain text\n", 4),
        ("a.csv", 'text,label\n"good\nreally",1\n', 1),  # a quoted line end might be cut at
    ],
)
def test_only_lines_are_cut(tmp_path: Path, monkeypatch, name: str, text: str, count: int) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 64)
    (tmp_path / name).write_text(text * 400)
    size = (tmp_path / name).stat().st_size
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode() * 90_000))
    given = [SourceFile(file, 0) for file in expand([str(tmp_path)])]
    ranges = split_files([item for item in given if item.file.suffix and not item.file.name.endswith("gz")],
                      PrepareSettings(), 4)  # fmt: skip
    assert len(ranges) == count
    if count > 1:
        assert ranges[0].start == 0 and ranges[-1].end == size
        assert all(one.end == two.start for one, two in pairwise(ranges))
    packed = [item for item in given if item.file.name.endswith("gz")]
    assert split_files(packed, PrepareSettings(), 4) == [FileRange(0)]
