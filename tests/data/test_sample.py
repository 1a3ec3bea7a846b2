"""Synthetic reviews are what they promise."""

import json
from pathlib import Path

import numpy as np
import pytest

import manyhands
from manyhands.errors import UsageError


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_promises(tmp_path: Path) -> None:
    manyhands.sample(20_000, tmp_path / "raw.jsonl", seed=5)
    rows, broken = [], 0
    for line in lines_of(tmp_path / "raw.jsonl"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            broken += 1
    assert 1 <= broken <= 30 and len(rows) + broken == 20_000
    lengths = np.array([len(row["reviewText"].split()) for row in rows])
    assert 0.85 < (lengths <= 100).mean() < 0.91, "100 words cover 88 %"
    by_text: dict[str, set[float]] = {}
    for row in rows:
        by_text.setdefault(row["reviewText"], set()).add(row["overall"])
    assert 400 < len(rows) - len(by_text) < 800, "3 % are duplicates"
    assert sum(len(stars) > 1 for stars in by_text.values()) > 100, "some with clashing stars"
    good = [("great" in row["reviewText"].lower(), row["overall"]) for row in rows]
    with_word = np.mean([stars for has, stars in good if has])
    assert with_word > np.mean([stars for has, stars in good if not has]) + 0.1, "opinions follow the stars"
    counts = np.sort(
        np.unique(np.concatenate([r["reviewText"].split() for r in rows]), return_counts=True)[1]
    )[::-1]
    assert 3 < counts[0] / counts[9] < 12, "a few words are very frequent"


def test_the_same_seed_gives_the_same_reviews_however_many(tmp_path: Path) -> None:
    manyhands.sample(30_000, tmp_path / "many.jsonl", seed=2)
    manyhands.sample(100, tmp_path / "few.jsonl", seed=2)
    manyhands.sample(100, tmp_path / "other.jsonl", seed=3)
    assert lines_of(tmp_path / "many.jsonl")[:100] == lines_of(tmp_path / "few.jsonl")
    assert lines_of(tmp_path / "other.jsonl") != lines_of(tmp_path / "few.jsonl")


def test_compressed_by_its_ending(tmp_path: Path) -> None:
    manyhands.sample(1000, tmp_path / "raw.jsonl", seed=1)
    plain = manyhands.prepare(str(tmp_path / "raw.jsonl"), tmp_path / "plain")
    for ending in ("gz", "bz2", "zst"):
        manyhands.sample(1000, tmp_path / f"raw.jsonl.{ending}", seed=1)
        packed = manyhands.prepare(str(tmp_path / f"raw.jsonl.{ending}"), tmp_path / ending)
        assert [part.sha256 for part in packed.manifest.parts] == [
            part.sha256 for part in plain.manifest.parts
        ]


def test_wrong_wishes(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        manyhands.sample(0, tmp_path / "raw.jsonl")
