"""What ``prepare`` promises: the ledger adds up, order does not matter, what is saved is what is opened."""

import json
import random
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import reviews, write_jsonl

import manyhands
from manyhands.data.prepare.partitions import Spool
from manyhands.data.wordtables import WordTables
from manyhands.errors import InputError, UsageError
from manyhands.records import SPLITS

texts = st.one_of(
    st.sampled_from(["good", "Good!", "bad", "not good", "", " ", "\x00", "<br />"]),
    st.text(st.characters(codec="utf-8"), max_size=30),
)
lines = st.lists(
    st.one_of(
        st.tuples(texts, st.sampled_from([1, 2, 3, 4, 5, 5.0, "4", 0, 9, None, "x"])).map(
            lambda pair: json.dumps({"reviewText": pair[0], "overall": pair[1]})
        ),
        st.sampled_from(["{", "", "[]", '{"overall": 5}', "{'reviewText': 'it\\'s loose', 'overall': 2.0}"]),
    ),
    min_size=1,
    max_size=40,
)


def checksums(dataset: manyhands.Dataset) -> dict[str, str]:
    facts = {part.name: part.sha256 for part in dataset.manifest.parts}
    return facts | {
        name: file.sha256 for name, file in dataset.manifest.files.items() if name != "rejected.csv"
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(lines, st.randoms(use_true_random=False))
def test_the_ledger_adds_up_and_order_does_not_matter(tmp_path: Path, rows: list[str], order) -> None:
    head = json.dumps({"reviewText": "a first line that names the fields", "overall": 5})
    outcomes = []
    for attempt in range(2):
        path = tmp_path / f"rows{attempt}.jsonl"
        path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
        dataset = manyhands.prepare(str(path), tmp_path / "out", overwrite=True, max_rejected=1.0)
        ledger = dataset.manifest.ledger
        assert ledger.adds_up
        assert ledger.read == 1 + len(rows)
        assert ledger.kept == sum(len(dataset[split]) for split in SPLITS) == dataset.manifest.rows
        rejected = (dataset.folder / "rejected.csv").read_text().splitlines()
        assert len(rejected) == 1 + ledger.rejected
        assert sum(dataset.manifest.rejections.values()) == ledger.rejected
        outcomes.append((checksums(dataset), ledger))
        order.shuffle(rows)
    assert outcomes[0] == outcomes[1]


def test_rows_survive_the_round_trip(tmp_path: Path) -> None:
    rows = reviews(3000)
    dataset = manyhands.prepare(
        str(write_jsonl(tmp_path / "r.jsonl", rows)), tmp_path / "out", labels="stars"
    )
    found = {}
    for split in SPLITS:
        part = dataset[split]
        for tokens, label in zip(part, part.labels, strict=True):
            found[" ".join(dataset.vocabulary.word(t) for t in tokens)] = dataset.label_names[label]
    expected = {dataset.normaliser(text): str(int(stars)) for text, stars in rows}
    known = {text: label for text, label in found.items() if "<unknown>" not in text}
    assert len(known) > 2300, "only rows outside of train can hold words that train does not know"
    assert all(expected[text] == label for text, label in known.items())


def test_words_are_counted_on_training_rows_only(tmp_path: Path) -> None:
    dataset = manyhands.prepare(str(write_jsonl(tmp_path / "r.jsonl", reviews(500))), tmp_path / "out")
    counts = np.bincount(np.concatenate(list(dataset["train"])), minlength=dataset.vocabulary.ids)
    assert counts[3:].tolist() == dataset.vocabulary.counts.tolist()
    assert counts[:3].tolist() == [0, 0, 0]
    assert (np.diff(dataset.vocabulary.counts) <= 0).all()


def test_vocabulary_limits(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "r.jsonl", reviews(500)))
    small = manyhands.prepare(path, tmp_path / "small", vocabulary_size=10)
    assert len(small.vocabulary) == 10
    assert max(int(tokens.max()) for tokens in small["train"]) == 12
    often = manyhands.prepare(path, tmp_path / "often", min_count=50)
    assert often.vocabulary.counts.min() >= 50


def test_the_same_text_keeps_its_split_whatever_stands_around_it(tmp_path: Path) -> None:
    rows = reviews(2000)
    half = manyhands.prepare(str(write_jsonl(tmp_path / "h.jsonl", rows[:1000])), tmp_path / "half")
    whole = manyhands.prepare(str(write_jsonl(tmp_path / "w.jsonl", rows)), tmp_path / "whole")

    def split_of(dataset: manyhands.Dataset) -> dict[str, str]:
        return {
            " ".join(dataset.vocabulary.word(t) for t in tokens): split
            for split in SPLITS
            for tokens in dataset[split]
        }

    small, large = split_of(half), split_of(whole)
    shared = [text for text in small if "<unknown>" not in text and text in large]
    assert len(shared) > 700
    assert all(small[text] == large[text] for text in shared)
    assert 120 < whole.manifest.splits["test"] < 280
    other = manyhands.prepare(str(tmp_path / "w.jsonl"), tmp_path / "other", seed=1)
    assert other.manifest.splits != whole.manifest.splits or checksums(other) != checksums(whole)


def test_given_files_keep_their_split_and_nothing_is_trained_on_what_is_tested(tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", [*reviews(200), ("shared text", 1)])
    test = write_jsonl(
        tmp_path / "test.jsonl", [("shared text", 5), ("only in test", 5), ("only in test", 1)]
    )
    dataset = manyhands.prepare(str(train), tmp_path / "out", test_files=[str(test)], labels="stars")
    assert dataset.manifest.splits["test"] == 2
    assert dataset.manifest.ledger.duplicates == 2
    assert dataset["test"].labels.tolist() in ([4, 0], [0, 4]), "shared text keeps the test file's label"
    assert dataset.manifest.splits["valid"] > 0


def test_duplicates_merge_by_normalised_text(tmp_path: Path) -> None:
    rows = [("Good, really.", 5), ("good , REALLY .", 5), ("good, really.", 1), ("other words", 2)]
    path = str(write_jsonl(tmp_path / "r.jsonl", rows))
    dataset = manyhands.prepare(path, tmp_path / "one", labels="stars")
    assert (dataset.manifest.ledger.kept, dataset.manifest.ledger.duplicates) == (2, 2)
    kept = manyhands.prepare(path, tmp_path / "all", labels="stars", deduplicate=False)
    assert (kept.manifest.ledger.kept, kept.manifest.ledger.duplicates) == (4, 0)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_memory_and_many_parts_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    path = str(tmp_path / "raw.jsonl")
    manyhands.sample(5000, path, seed=3)
    monkeypatch.setattr("manyhands.data.store.PART_TOKENS", 20_000)
    plain = manyhands.prepare(path, tmp_path / "plain", threads=2)
    monkeypatch.setattr("manyhands.data.sources.blocks.BLOCK_BYTES", 100_000)
    monkeypatch.setattr("manyhands.data.prepare.local.PARTITION_BYTES", 50_000)
    monkeypatch.setattr("manyhands.data.prepare.partitions.Spool.__init__", tiny_spool)
    monkeypatch.setattr("manyhands.data.wordtables.WordTables.__init__", tiny_tables)
    other = manyhands.prepare(path, tmp_path / "other", threads=threads)
    assert len(plain.manifest.parts) > 8
    assert checksums(other) == checksums(plain)
    assert other.manifest.model_dump() == plain.manifest.model_dump()
    train = plain["train"]
    rows = np.random.default_rng(0).integers(0, len(train), 500)
    tokens, offsets = train.take(rows)
    for k, row in enumerate(rows):
        assert tokens[offsets[k] : offsets[k + 1]].tolist() == train[int(row)].tolist()
    with h5py.File(plain.folder / "dataset.h5") as whole:
        starts = whole["train/offsets"][:]
        assert np.array_equal(np.diff(starts), train.lengths())
        flat = whole["train/tokens"][:]
        assert np.array_equal(flat, np.concatenate(list(train)))
        assert np.array_equal(whole["train/labels"][:], train.labels)


def tiny_spool(spool: Spool, path: Path, memory_bytes: int, real=Spool.__init__) -> None:
    real(spool, path, 10_000)


def tiny_tables(tables: WordTables, table_bytes: int, real=WordTables.__init__) -> None:
    real(tables, 1)  # a new table for every block


def test_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    rows = [
        {"text": "same", "label": "a", "w": 1},
        {"text": "same", "label": "a", "w": 2},
        {"text": "one", "label": "b", "w": 0.5},
    ]
    rows += [{"text": "bad weight", "label": "a", "w": weight} for weight in (-1, "x", None)]
    path.write_text("\n".join(map(json.dumps, rows)))
    dataset = manyhands.prepare(
        str(path), tmp_path / "out", weight_field="w", max_rejected=1, valid=0, test=0
    )
    assert sorted(dataset["train"].weights.tolist()) == [0.5, 1.5]
    assert dataset.manifest.rejections == {"the weight is not a number from 0 up": 3}


def test_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text(
        "__label__b __label__a first text\n__label__c , second text\n__label__a third\nno label\n" * 1
    )
    dataset = manyhands.prepare(str(path), tmp_path / "out", max_rejected=0.5, valid=0, test=0)
    assert dataset.label_names == ["a", "b", "c"] and dataset.manifest.labels.multi_label
    train = dataset["train"]
    words = [" ".join(dataset.vocabulary.word(t) for t in tokens) for tokens in train]
    offsets = train.label_offsets
    assert offsets is not None
    found = {text: train.labels[offsets[k] : offsets[k + 1]].tolist() for k, text in enumerate(words)}
    assert found == {"first text": [0, 1], "second text": [2], "third": [0]}
    assert dataset.manifest.rejections == {"no label": 1}
    with h5py.File(dataset.folder / "dataset.h5") as whole:
        assert whole["train/label_offsets"][:].tolist() == offsets.tolist()


def test_settings_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "r.jsonl", reviews(5)))
    for settings_, message in [
        ({"vocabularly": 5}, "did you mean 'vocabulary_size'"),
        ({"labels": "star"}, "labels"),
        ({"valid": 0.6, "test": 0.6}, "leave nothing to train on"),
        ({"format": "jsn"}, "there is no format 'jsn'"),
        ({"memory": "lots"}, "is not a size"),
        ({"threads": 0}, "from 1 to"),
    ]:
        with pytest.raises(UsageError, match=message):
            manyhands.prepare(path, tmp_path / "out", **settings_)
    assert not (tmp_path / "out").exists()


def test_too_many_rejected_rows_stop_the_run(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write_jsonl(path, reviews(95))
    path.write_text(path.read_text() + "broken\n" * 5)
    with pytest.raises(InputError, match=r"5 of 100 rows .*r.jsonl line 96: not valid JSON"):
        manyhands.prepare(str(path), tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.jsonl"]
    assert manyhands.prepare(str(path), tmp_path / "out", max_rejected=0.05).manifest.ledger.rejected == 5


def test_leaving_neutral_reviews_out_is_no_failure(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "r.jsonl", reviews(100)))
    dataset = manyhands.prepare(path, tmp_path / "out", labels="polarity-strict")
    assert dataset.manifest.ledger.rejected == 20 and dataset.manifest.ledger.kept == 80


def test_a_sorted_file_is_read_to_its_end(tmp_path: Path) -> None:
    rows = [(f"neutral {n}", 3) for n in range(12_000)] + [(f"good {n}", 5) for n in range(50)]
    dataset = manyhands.prepare(
        write_jsonl(tmp_path / "r.jsonl", rows), tmp_path / "out", labels="polarity-strict"
    )
    assert dataset.manifest.ledger.kept == 50
    (tmp_path / "junk.jsonl").write_text('{"reviewText": "x", "overall": 9}\n' * 30_000)
    with pytest.raises(InputError, match="rows cannot be used"):
        manyhands.prepare(tmp_path / "junk.jsonl", tmp_path / "junk")


def test_a_file_counts_once_however_it_is_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", reviews(10))
    names = [path, str(path), f"{tmp_path}/./r.jsonl", f"file://{path}"]
    assert manyhands.prepare(names, tmp_path / "out").manifest.ledger.read == 10


def test_long_rows_are_rejected_wherever_they_stand(tmp_path: Path) -> None:
    long = ("word " * 1_900_000, 5)
    for name, rows in (("first", [*reviews(1), long, *reviews(400)[1:]]), ("last", [*reviews(400), long])):
        dataset = manyhands.prepare(write_jsonl(tmp_path / f"{name}.jsonl", rows), tmp_path / name)
        assert dataset.manifest.rejections == {"the line is longer than 8 MiB": 1}


def test_a_large_parquet_file_is_cut_by_bytes(tmp_path: Path) -> None:
    texts = [f"row {n} " + "many words here " * 4000 for n in range(300)]
    table = pa.table({"text": texts, "label": [n % 2 for n in range(300)]})
    pq.write_table(table, tmp_path / "r.parquet")
    dataset = manyhands.prepare(tmp_path / "r.parquet", tmp_path / "out")
    assert dataset.manifest.ledger.kept == 300


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    rows = reviews(300)
    random.Random(0).shuffle(rows)
    for name, part in (("a", rows[:100]), ("b", rows[100:250]), ("c", rows[250:])):
        write_jsonl(tmp_path / f"{name}.jsonl", part)
    files = [str(tmp_path / f"{name}.jsonl") for name in "abc"]
    one = manyhands.prepare(files, tmp_path / "one")
    two = manyhands.prepare(files[::-1], tmp_path / "two")
    glob = manyhands.prepare(str(tmp_path / "*.jsonl"), tmp_path / "glob")
    assert checksums(one) == checksums(two) == checksums(glob)
