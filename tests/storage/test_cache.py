"""Copies of what stands in a store: fetched once, and removed when there are too many."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.storage import cache
from manyhands.storage.cache import LIMIT, local_copy
from manyhands.storage.destination import Kind

KIND = Kind("thing", "marker", re.compile(".*"), lambda folder: None)


def fetched(name: str, count: list[str]) -> Path:
    def fetch(folder: Path) -> None:
        count.append(name)
        (folder / "data").write_bytes(b"x" * 1000)
        (folder / "marker").write_bytes(b"")

    return local_copy("datasets", name, KIND, fetch)


def test_the_longest_unused_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT, "2500")
    count: list[str] = []
    for age, name in ((300, "a"), (200, "b")):
        os.utime(fetched(name, count), (0, 1_000_000 - age))
    assert fetched("a", count).is_dir() and count == ["a", "b"]  # used again, and not fetched again
    for lock in cache._in_use.values():
        os.close(lock)
    cache._in_use.clear()
    fetched("c", count)
    assert sorted(path.name for path in (tmp_path / "manyhands" / "datasets").iterdir()) == ["a", "c"]
    fetched("b", count)
    assert count == ["a", "b", "c", "b"]


def test_what_another_process_reads_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT, "1")
    fetched("mine", [])
    fetched("other", [])
    assert sorted(path.name for path in (tmp_path / "manyhands" / "datasets").iterdir()) == ["mine", "other"]
    code = "from tests.storage.test_cache import fetched; fetched('third', [])"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    assert len(list((tmp_path / "manyhands" / "datasets").iterdir())) == 3
