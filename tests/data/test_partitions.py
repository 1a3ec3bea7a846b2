"""The spool gives back what it was given, from memory and from disk."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manyhands.data.prepare.partitions import Spool


@pytest.mark.parametrize("memory", [0, 1000, 10**9])
def test_every_row_comes_back_in_its_partition(tmp_path: Path, memory: int) -> None:
    spool = Spool(tmp_path / "rows", memory)
    random = np.random.default_rng(0)
    expected: dict[int, list[int]] = {p: [] for p in range(5)}
    for _ in range(50):
        numbers = {p: random.integers(0, 1000, 3).tolist() for p in range(4)}
        for partition, some in numbers.items():
            expected[partition] += some
        spool.add({p: pa.RecordBatch.from_pydict({"n": some}) for p, some in numbers.items()})
    for partition, numbers in expected.items():
        for _ in range(2):
            batch = spool.read(partition)
            assert sorted(batch["n"].to_pylist() if batch else []) == sorted(numbers)
        spool.drop(partition)
        assert spool.read(partition) is None
    assert (tmp_path / "rows").exists() == (memory < 10**9)
