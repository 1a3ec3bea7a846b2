"""Versions in a store: the newest is whole or not there, and what a killed writer left goes."""

import io
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from manyhands.errors import InputError, UsageError
from manyhands.storage.versions import Versions, newest_version
from manyhands.training.checkpoint import checkpoint_folder, checkpoint_store

URL = "memory://bucket/live"


@pytest.fixture
def store() -> Iterator[MemoryFileSystem]:
    yield MemoryFileSystem()
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def standing(store: MemoryFileSystem) -> list[str]:
    found = [name.removeprefix("/bucket/live/") for name in store.find("/bucket/live")]
    return sorted(name.rpartition("-")[0] or name for name in found)


def add(versions: Versions, number: int) -> None:
    versions.add(f"snapshot-{number:012d}", {"a": io.BytesIO(b"a" * number), "b": io.BytesIO(b"b")})


def test_the_last_ones_are_kept(store, tmp_path):
    versions = Versions(URL, tmp_path, kept=2)
    assert versions.newest() is None and versions.is_here(None)
    for number in range(4):
        add(versions, number)
    assert standing(store) == ["latest.json", *["snapshot-000000000002"] * 2, *["snapshot-000000000003"] * 2]
    newest = newest_version(URL)
    assert newest.name == "snapshot-000000000003"
    assert versions.is_here(newest) and not Versions(URL, tmp_path / "elsewhere").is_here(newest)
    versions.fetch(newest, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"aaa"
    versions.remove()
    assert not store.find("/bucket/live")


def test_leftovers_go_and_the_one_before_stays(store, tmp_path):
    """Killed before the pointer was replaced: files that it does not name, of a name that comes again."""
    versions = Versions(URL, tmp_path)
    add(versions, 1)
    store.pipe_file("/bucket/live/snapshot-000000000002-0123abcd/a", b"half")
    store.pipe_file("/bucket/live/notes.txt", b"of others")
    assert versions.newest().name == "snapshot-000000000001"
    assert versions.others() == ["notes.txt"]
    versions.clear()
    assert standing(store) == ["latest.json", "notes.txt", *["snapshot-000000000001"] * 2]


def test_damage_is_told(store, tmp_path):
    versions = Versions(URL, tmp_path)
    add(versions, 1)
    newest = versions.newest()
    store.pipe_file(f"/bucket/live/{newest.folder}/a", b"other")
    with pytest.raises(InputError, match="wrong checksum"):
        versions.fetch(newest, tmp_path)
    for text in (b"{", newest.model_dump_json().replace('"b"', '"../b"').encode()):
        store.pipe_file("/bucket/live/latest.json", text)
        with pytest.raises(InputError, match="remove it to begin anew"):
            versions.newest()


def test_uploads_follow_what_is_made(store, tmp_path, monkeypatch):
    """None is waited for; one that fails is told and the work goes on; at the end the last one is there."""
    made: list[str] = []
    (tmp_path / "file").write_bytes(b"x")
    versions, said = Versions(URL, tmp_path), []

    def newest() -> tuple[str, list[Path]] | None:
        return (made[-1], [tmp_path / "file"]) if made else None

    def fail(*given: object) -> None:
        raise UsageError("the store is away")

    monkeypatch.setattr("manyhands.storage.versions.LOOK_SECONDS", 0.01)
    with versions.following(newest, said.append, last=True):
        with monkeypatch.context() as away:
            away.setattr(versions, "add", fail)
            made.append("snapshot-000000000001")
            while not said:
                time.sleep(0.01)
            time.sleep(0.1)
        made.append("snapshot-000000000002")
        while versions.newest() is None:
            time.sleep(0.01)
        assert versions.newest().name == made[-1]
        made.append("snapshot-000000000003")
    assert versions.newest().name == "snapshot-000000000003"
    assert len(said) == 1 and "snapshot-000000000001 is kept here only" in said[0]
    with pytest.raises(KeyboardInterrupt), versions.following(newest, said.append, last=True):
        made.append("snapshot-000000000004")
        raise KeyboardInterrupt
    assert versions.newest().name == "snapshot-000000000004"
    monkeypatch.setattr(versions, "add", fail)
    # Of a run that has ended well, the last checkpoint is not needed.
    for last, expected in ((False, nullcontext()), (True, pytest.raises(UsageError, match="is away"))):
        with expected, versions.following(newest, said.append, last=last):
            made.append(f"snapshot-{len(made) + 1:012d}")


def test_where_checkpoints_stand(tmp_path):
    assert checkpoint_store(str(tmp_path / "run")) is None
    assert checkpoint_folder(str(tmp_path / "run")) == tmp_path / ".run.checkpoint"
    assert checkpoint_folder(str(tmp_path / "run"), str(tmp_path / "kept")) == tmp_path / "kept" / "run"
    assert checkpoint_store("memory://bucket/runs/one/") == "memory://bucket/runs/.one.checkpoint"
    assert checkpoint_store(str(tmp_path / "run"), "memory://kept/") == "memory://kept/run"
    assert checkpoint_store("memory://bucket/one", str(tmp_path)) is None
    assert checkpoint_folder("memory://bucket/one", str(tmp_path)).parent == tmp_path
    with pytest.raises(UsageError, match="a whole bucket"):
        checkpoint_store("memory://bucket")
