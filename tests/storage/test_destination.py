"""Appearing whole or not at all, here and in remote places."""

from pathlib import Path

import fsspec
import pytest

import manyhands
from manyhands.data.manifest import DATASET
from manyhands.errors import UsageError
from manyhands.storage.destination import destination
from tests.conftest import reviews, write_jsonl


def make(tmp_path: Path, out: object, count: int = 20, **settings: object) -> manyhands.Dataset:
    return manyhands.prepare(write_jsonl(tmp_path / f"{count}.jsonl", reviews(count)), out, **settings)


def test_a_dataset_being_replaced_comes_back_if_its_run_dies(tmp_path: Path) -> None:
    """Between the two renames of an overwriting run, both datasets have other names."""
    out = tmp_path / "out"
    make(tmp_path, out)
    out.rename(tmp_path / ".out.replaced-x")
    (tmp_path / ".out.partial-y").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        make(tmp_path, out)
    assert len(manyhands.open_dataset(out)) == 20
    make(tmp_path, out, count=30, overwrite=True)
    assert len(manyhands.open_dataset(out)) == 30
    assert not list(tmp_path.glob(".out.*"))


def test_what_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        pytest.raises(UsageError, match="exists already"),
        destination(str(out), overwrite=False, kind=DATASET) as folder,
    ):
        (folder / "file").write_text("slow")
        make(tmp_path, out)
    assert len(manyhands.open_dataset(out)) == 20
    assert not list(tmp_path.glob(".out.*"))


def test_a_name_with_glob_characters(tmp_path: Path) -> None:
    (tmp_path / ".a.partial-alive").mkdir()
    make(tmp_path, tmp_path / "[a]")
    assert (tmp_path / ".a.partial-alive").exists()
    assert len(manyhands.open_dataset(tmp_path / "[a]")) == 20


def test_a_remote_place_with_other_files_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/raw/precious.jsonl", b"input")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="holds other files"):
            make(tmp_path, "memory://bucket", overwrite=overwrite)
    assert files.cat("/bucket/raw/precious.jsonl") == b"input"
    files.pipe("/bucket/half/train-000.h5", b"an upload that was cut off")
    assert len(make(tmp_path, "memory://bucket/half")) == 20
    with pytest.raises(UsageError, match="exists already"):
        make(tmp_path, "memory://bucket/half")
    assert len(make(tmp_path, "memory://bucket/half", count=30, overwrite=True)) == 30
