"""Every source of the catalog goes through the same checks; a new one needs one writer here."""

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import manyhands
from manyhands.catalog import SOURCES
from manyhands.errors import InputError
from manyhands.settings import TextSettings
from manyhands.text.normalise import Normaliser

Rows = list[tuple[str, str]]  # label, text: no tabs, no line ends
ROWS: Rows = [
    ("1", "Plain words, a comma"),
    ("2", 'she said "so" and left'),
    ("1", "it's here: don't"),
    ("2", "naïve café 日本 \u2019tis"),
    ("1", "ends in backslash \\ here"),
    ("2", "{'a': 1} looks odd"),
    ("1", "plain   words , A COMMA"),
]


def as_jsonl(rows: Rows) -> bytes:
    return b"".join(json.dumps({"label": a, "text": b}, ensure_ascii=False).encode() + b"\n" for a, b in rows)


def as_csv(rows: Rows, header: list[str] | None) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(
        out, lineterminator="\n", quoting=csv.QUOTE_ALL if header is None else csv.QUOTE_MINIMAL
    )
    writer.writerows([header, *rows] if header else rows)
    return out.getvalue().encode()


def as_columns(rows: Rows, write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    labels, texts = zip(*rows, strict=True) if rows else ((), ())
    write(pa.table({"label": pa.array(labels, pa.string()), "text": pa.array(texts, pa.string())}), out)
    return out.getvalue()


def write_arrow(table: pa.Table, out: io.BytesIO) -> None:
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, tuple[str, Callable[[Rows], bytes]]] = {
    "jsonl": (".jsonl", as_jsonl),
    "csv": (".csv", lambda rows: as_csv(rows, ["label", "text"])),
    "yelp": (".csv", lambda rows: as_csv(rows, None)),
    "labelled": (".txt", lambda rows: b"".join(f"__label__{a} {b}\n".encode() for a, b in rows)),
    "text": (".txt", lambda rows: b"".join(f"{b}\n".encode() for _, b in rows)),
    "parquet": (".parquet", lambda rows: as_columns(rows, pyarrow.parquet.write_table)),
    "arrow": (".arrow", lambda rows: as_columns(rows, write_arrow)),
}
LINED = [name for name in SOURCES if name not in ("parquet", "arrow")]
every_source = pytest.mark.parametrize("name", list(SOURCES))
every_lined_source = pytest.mark.parametrize("name", LINED)


def outcome(dataset: manyhands.Dataset) -> dict[str, str]:
    """Each text of the dataset, in training or not, with its label."""
    found = {}
    for split in ("train", "valid", "test"):
        for tokens, label in zip(dataset[split], dataset[split].labels, strict=True):
            words = " ".join(dataset.vocabulary.word(t) for t in tokens)
            found[words] = dataset.label_names[label] if dataset.label_names else ""
    return found


def prepare(path: Path, **settings: object) -> manyhands.Dataset:
    return manyhands.prepare(str(path), path.parent / "out", overwrite=True, valid=0, test=0, **settings)


def expected(name: str, rows: Rows = ROWS) -> dict[str, str]:
    normalise = Normaliser(TextSettings())
    return {normalise(text): "" if name == "text" else label for label, text in rows}


def write(tmp_path: Path, name: str, data: bytes | None = None, suffix: str = "") -> Path:
    path = tmp_path / f"reviews{WRITERS[name][0]}{suffix}"
    path.write_bytes(WRITERS[name][1](ROWS) if data is None else data)
    return path


def test_every_source_has_a_writer_here() -> None:
    assert set(WRITERS) == set(SOURCES)


@every_source
def test_found_by_itself_and_read_right(tmp_path: Path, name: str) -> None:
    dataset = prepare(write(tmp_path, name))
    assert outcome(dataset) == expected(name)
    assert (dataset.manifest.ledger.read, dataset.manifest.ledger.duplicates) == (7, 1)


@every_source
def test_asked_for_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "reviews.strange"
    path.write_bytes(WRITERS[name][1](ROWS))
    assert outcome(prepare(path, format=name)) == expected(name)


@every_lined_source
@pytest.mark.parametrize("codec", ["gz", "bz2", "zst"])
def test_compressed(tmp_path: Path, name: str, codec: str) -> None:
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstd}[codec]
    data = WRITERS[name][1](ROWS)
    # Two members in one file, as `cat a.gz b.gz` makes them.
    middle = data.index(b"\n", len(data) // 2) + 1
    path = write(tmp_path, name, compress(data[:middle]) + compress(data[middle:]), f".{codec}")
    assert outcome(prepare(path)) == expected(name)


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


@every_lined_source
def test_bom_and_crlf(tmp_path: Path, name: str) -> None:
    data = b"\xef\xbb\xbf" + WRITERS[name][1](ROWS).replace(b"\n", b"\r\n")
    assert outcome(prepare(write(tmp_path, name, data))) == expected(name)


@every_lined_source
def test_no_line_end_at_the_end(tmp_path: Path, name: str) -> None:
    data = WRITERS[name][1](ROWS).removesuffix(b"\n")
    assert outcome(prepare(write(tmp_path, name, data))) == expected(name)


@every_lined_source
def test_standard_input(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    run = request.getfixturevalue("manyhands")  # a name that the library has here
    for data in (WRITERS[name][1](ROWS), gzip.compress(WRITERS[name][1](ROWS))):
        arguments = ("-", "--format", name, "--out", "out", "--valid", "0", "--test", "0", "--overwrite")
        done = run("prepare", *arguments, stdin=data)
        assert done.code == 0, done.err
        assert outcome(manyhands.open_dataset(tmp_path / "out")) == expected(name)


@every_lined_source
def test_bytes_that_are_no_text_cost_one_row_and_its_line_is_named(tmp_path: Path, name: str) -> None:
    data = WRITERS[name][1](ROWS).replace(b"and left", b"and \xff\xfe left")
    dataset = prepare(write(tmp_path, name, data), max_rejected=0.5)
    assert dataset.manifest.ledger.rejected == 1 and dataset.manifest.ledger.adds_up
    line = 3 if name == "csv" else 2
    assert f",{line}," in (dataset.folder / "rejected.csv").read_text().splitlines()[1]
    assert list(dataset.manifest.rejections) == ["not valid UTF-8"]


@every_lined_source
def test_blank_lines_are_empty_rows(tmp_path: Path, name: str) -> None:
    data = WRITERS[name][1](ROWS) + b"\n\n"
    dataset = prepare(write(tmp_path, name, data))
    assert (dataset.manifest.ledger.read, dataset.manifest.ledger.empty) == (9, 2)


@every_source
def test_an_empty_file_among_others(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder, name)
    empty = folder / f"a-first-empty-one{WRITERS[name][0]}"
    empty.write_bytes(WRITERS[name][1]([]) if name in ("parquet", "arrow") else b"")
    dataset = manyhands.prepare(str(folder), tmp_path / "out", valid=0, test=0)
    assert outcome(dataset) == expected(name)


@every_lined_source
def test_nothing_but_an_empty_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no rows"):
        prepare(write(tmp_path, name, b""))
    assert not (tmp_path / "out").exists()


@every_source
def test_cut_short(tmp_path: Path, name: str) -> None:
    data = gzip.compress(WRITERS[name][1](ROWS * 500)) if name in LINED else WRITERS[name][1](ROWS)
    path = write(tmp_path, name, data[: len(data) // 2], ".gz" if name in LINED else "")
    with pytest.raises(InputError, match=path.name):
        prepare(path)
    assert not (tmp_path / "out").exists()
