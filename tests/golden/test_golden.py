"""The bytes of a dataset are a promise: other engines, later versions and old bundles rely on them.

If a change here is meant, it changes every dataset: say so in the changelog, and raise the
manifest's version.
"""

import hashlib
from pathlib import Path
from typing import Any

import manyhands
from manyhands.records import SPLITS

GOLDEN = {
    "raw": "454e9d514a175542",
    "train": "155e3286b0ec4cfb",
    "valid": "f1b2ff385afb3146",
    "test": "5c73158826b118b2",
    "vocabulary": "345b25c6dacc1d02",
}


def test_a_known_input_gives_known_bytes(tmp_path: Path) -> None:
    manyhands.sample(2000, tmp_path / "raw.jsonl", seed=11)
    dataset = manyhands.prepare(str(tmp_path / "raw.jsonl"), tmp_path / "out", vocabulary_size=5000)
    found = {"raw": digest((tmp_path / "raw.jsonl").read_bytes())}
    for split in SPLITS:
        part = dataset[split].parts[0]
        found[split] = digest(part.tokens, part.offsets, part.labels, part.weights)
    found["vocabulary"] = digest((dataset.folder / "vocabulary.tsv").read_bytes())
    assert found == GOLDEN


def digest(*pieces: Any) -> str:
    return hashlib.sha256(b"".join(bytes(piece) for piece in pieces)).hexdigest()[:16]
