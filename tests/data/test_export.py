"""The fixed-width layout: cut, padded, spread over datasets."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.conftest import reviews, write_jsonl

import manyhands
from manyhands.data.export import export
from manyhands.errors import UsageError
from manyhands.records import SPLITS


@pytest.mark.parametrize("parts", [1, 8])
def test_every_row_is_there(tmp_path: Path, parts: int) -> None:
    dataset = manyhands.prepare(str(write_jsonl(tmp_path / "r.jsonl", reviews(1000))), tmp_path / "data")
    assert export(dataset, tmp_path / "seed.h5", length=8, parts=parts) == 1000
    with h5py.File(tmp_path / "seed.h5") as file:
        assert list(file) == sorted(map(str, range(parts)))
        tables = [file[str(part)] for part in range(parts)]
        assert all(
            table.shape[1] == 9 and abs(len(table) - 1000 / parts) < 1 and table.chunks is None
            for table in tables
        )
        rows = np.concatenate([table[:] for table in tables])
        assert [file.attrs[f"{split}_begins"] for split in SPLITS] == np.cumsum(
            [0, *dataset.manifest.splits.values()]
        )[:3].tolist()
    at = 0
    for split in SPLITS:
        for tokens, label in zip(dataset[split], dataset[split].labels, strict=True):
            expected = [*tokens[:8].tolist(), *[1] * (8 - len(tokens[:8])), label]
            assert rows[at].tolist() == expected
            at += 1


def test_refusals(tmp_path: Path) -> None:
    dataset = manyhands.prepare(str(write_jsonl(tmp_path / "r.jsonl", reviews(10))), tmp_path / "data")
    (tmp_path / "there.h5").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export(dataset, tmp_path / "there.h5")
    with pytest.raises(UsageError, match="at least 1"):
        export(dataset, tmp_path / "new.h5", length=0)
    assert (tmp_path / "there.h5").read_text() == "mine"
